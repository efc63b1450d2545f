"""Planning of a study: expected errors of a mixed model with one release, from public numbers only (power analysis).

How they are computed is in :mod:`mpmtl_prob.evaluation.expected_errors`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, positive, whole
from mpmtl_prob._util.tables import aligned
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.matching import match_names
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.evaluation.expected_errors import Accuracy, Guess, SimulatedTask, accuracy, expected_errors, simulate
from mpmtl_prob.inference.public.effects_draws import per_table_unit
from mpmtl_prob.models.effects_release import EffectsPrior
from mpmtl_prob.privacy.board import at_most
from mpmtl_prob.privacy.guarantee import of_release
from mpmtl_prob.releases.spec import ReleaseSpec, Terms

if TYPE_CHECKING:
    import pandas as pd

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: Limits of the ratio of errors for "worth it" and "a little", and of the ratio of standard errors
#: beyond which the noise hides average effects.
_WORTH, _LITTLE, _SAYS_LITTLE = 0.95, 0.98, 0.8
_FEW_TASKS = 30
#: Largest distance of an example's numbers from the centres of the reference, in its scales.
_FARTHEST = 1e4
#: Range of eps that is searched for one with the wanted standard error.
_LEAST_EPSILON, _MOST_EPSILON = 1e-3, 50.0


class Expected(NamedTuple):
    """Expectation at one eps. Errors are mean squared errors of a task's coefficients, in units of the target.

    Attributes:
        epsilon: the budget.
        delta: the delta that is proved with it.
        odds: largest probability with which an attacker who has two versions of a task's rows names the true one (membership
            inference).
        alone: error of a task by its own rows.
        release: error of a task with the release.
        mixed: error of a task in a mixed model of all rows, without privacy.
        standard_error: standard error of an average effect with the release, in standard deviations of the target for one
            of the column.
        before: the same before the release, from the prior.
        standard_errors: the same as ``standard_error`` for every coefficient, an intercept last.
        error: standard error of ``release`` over ``alone`` due to the number of simulated tasks.
    """

    epsilon: float
    delta: float
    odds: float
    alone: float
    release: float
    mixed: float
    standard_error: float
    before: float
    standard_errors: tuple[float, ...]
    error: float

    @property
    def ratio(self) -> float:
        """Error with the release over the error alone."""
        return self.release / self.alone

    @property
    def says(self) -> str:
        """Verdict in words on whether the release is worth it."""
        if self.standard_error > _SAYS_LITTLE * self.before:
            return "no: the release says nothing above its noise"
        if self.ratio > _LITTLE or self.ratio + 2 * self.error >= 1:
            return "no: own rows say as much"
        return "a little" if self.ratio > _WORTH else "worth it"


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a study: expectations of one release, at several eps and for several numbers of tasks; str() is a table.

    Attributes:
        num_tasks: number of tasks m.
        coefficients: number of coefficients d, with a shared intercept.
        rows: smallest and largest number of rows of a task.
        has_example: True if tasks were simulated with the columns of an example: a plan from private rows is private.
        explained: share of the target's variance within a task that its coefficients explain: a guess.
        common: share of that which is the same in all tasks: a guess.
        between: share of the target's variance that lies between tasks: a guess; None without a shared intercept.
        residual_spread: standard deviation of the logarithm of tasks' residual variances: a guess.
        by_epsilon: expectations by eps.
        by_tasks: expectations at the study's eps, by the number of tasks.
        wanted: the wanted standard error of average effects, if any.
        epsilon_wanted: the eps that reaches it; None if no eps up to 50 does.
        task: word for a task, such as "hospital".
        table_units: factors that convert standard errors to the table's units, by coefficient; empty without a
            reference.
        target_unit: unit of the target, in words.
        column_units: units of columns, in words, by name.
    """

    num_tasks: int
    coefficients: int
    rows: tuple[int, int]
    has_example: bool
    explained: float
    common: float
    between: float | None
    residual_spread: float
    by_epsilon: tuple[Expected, ...]
    by_tasks: tuple[tuple[int, Expected], ...]
    wanted: float | None = None
    epsilon_wanted: float | None = None
    task: str = "task"
    table_units: Mapping[Hashable, float] = field(default_factory=dict)
    target_unit: str = ""
    column_units: Mapping[Hashable, str] = field(default_factory=dict)

    @property
    def least_epsilon(self) -> float | None:
        """Smallest eps of the table at which the release is worth it; None if there is none."""
        return min((expected.epsilon for expected in self.by_epsilon if expected.says == "worth it"), default=None)

    def to_frame(self) -> pd.DataFrame:
        """Return a table by eps: delta, odds, errors over the error alone, and the standard error of an average effect."""
        import pandas as pd

        rows = [
            {
                "delta": expected.delta,
                "odds": expected.odds,
                "with the release": expected.ratio,
                "mixed model": expected.mixed / expected.alone,
                "standard error": expected.standard_error,
                "says": expected.says,
            }
            for expected in self.by_epsilon
        ]
        return pd.DataFrame(rows, index=pd.Index([expected.epsilon for expected in self.by_epsilon], name="epsilon"))

    def standard_errors(self) -> pd.DataFrame:
        """Return standard errors of average effects in the units of the table: a row for every coefficient, a column by eps.

        They refer to changes of the target for one unit of a column; an intercept's to the centres of the reference.

        Raises:
            ValueError: a plan without a reference, whose units are unknown.
        """
        import pandas as pd

        if not self.table_units:
            raise ValueError(
                "spec: expected one with a reference, whose scales say what the table's units are, got none"
            )
        index = pd.Index(list(self.table_units), name="effect")
        columns = {expected.epsilon: list(self._in_table(expected).values()) for expected in self.by_epsilon}
        return pd.DataFrame(columns, index=index).rename_axis(columns="epsilon")

    def _in_table(self, expected: Expected) -> dict[Hashable, float]:
        names = sorted(self.table_units, key=lambda name: name == NAME)  # an intercept comes last
        errors = dict(zip(names, expected.standard_errors, strict=True))
        return {name: errors[name] * times for name, times in self.table_units.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words, for JSON."""
        by_epsilon = [each._asdict() | {"ratio": each.ratio, "says": each.says} for each in self.by_epsilon]
        units = {}
        if self.table_units:
            for entry, expected in zip(by_epsilon, self.by_epsilon, strict=True):
                entry["standard_errors"] = {str(name): value for name, value in self._in_table(expected).items()}
            columns = {str(name): self.column_units.get(name, "") for name in self.table_units}
            units = {"units": {"target": self.target_unit, "columns": columns}}
        by_tasks = [{"num_tasks": m} | each._asdict() | {"ratio": each.ratio} for m, each in self.by_tasks]
        guess = {
            "explained": self.explained,
            "common": self.common,
            "between": self.between,
            "residual_spread": self.residual_spread,
            "rows": list(self.rows),
        }
        shape = {"num_tasks": self.num_tasks, "coefficients": self.coefficients}
        wanted = {"standard_error_wanted": self.wanted, "epsilon_wanted": self.epsilon_wanted}
        return shape | guess | wanted | units | {"by_epsilon": by_epsilon, "by_tasks": by_tasks}

    def __str__(self) -> str:
        rows = f"{self.rows[0]}" if self.rows[0] == self.rows[1] else f"{self.rows[0]} to {self.rows[1]}"
        lines = [
            (
                f"{expected.epsilon:g}", f"{expected.delta:.2g}", at_most(expected.odds), f"{expected.ratio:.2f}",
                f"{expected.mixed / expected.alone:.2f}", f"{expected.standard_error:.3f}", expected.says,
            )
            for expected in self.by_epsilon
        ]  # fmt: skip
        task, before = self.task, self.by_epsilon[0].before
        text = [
            f"{self.num_tasks} {plural(task)} with {rows} rows and {self.coefficients} coefficients each.",
            *(["Columns as in the example. If its rows are private, so is this plan."] if self.has_example else []),
            *self._guessed(),
            "",
            aligned([("eps", "delta", "attacker", "error", "pooled", "standard error", "is it worth it?"), *lines]),
            "",
            f"attacker        Somebody who holds two versions of a {task}'s rows for equally likely names the true one",
            "                after the release with at most this probability. 50 % is a guess.",
            f"error           {self._kind_of_error(task)}, over the error without the release:",
            "                0.8 is a fifth less, 1 no gain.",
            "pooled          The same for a mixed model of all rows in one place, which is not private.",
            "standard error  Of an average effect, in standard deviations of the target for one of the column. Before the",
            f"                release, by its prior, it is {before:.2f}.",
        ]
        if self.table_units:
            text += ["", *self._lines_of_columns(), ""]
        if self.wanted is not None:
            reached = (
                f"reached at eps = {self.epsilon_wanted:.2g}" if self.epsilon_wanted else "reached at no eps up to 50"
            )
            text.append(f"A standard error of {self.wanted:g} is {reached}.")
        if self.least_epsilon is None:
            text += [
                "At none of these eps is the release worth it. What else there is: fewer columns; a larger eps, with "
                "its odds;",
                f"more {plural(self.task)}; or tools that show single {plural(self.task)}' numbers to each other (pda, "
                "DataSHIELD), which prove nothing.",
            ]
        elif self.num_tasks < _FEW_TASKS:
            text.append(
                f"With {self.num_tasks} {plural(self.task)} it is worth it from eps = {self.least_epsilon:g} on."
            )
        return "\n".join(text)

    def _kind_of_error(self, task: str) -> str:
        if self.has_example:
            return "Expected squared error of predictions, less what no coefficient predicts"
        return f"Expected squared error of a {task}'s coefficients"

    def _guessed(self) -> list[str]:
        """Return the guess in words; a plan is no better than it."""
        if self.between is None:
            first = f"Your guess: coefficients explain {self.explained:.0%} of the target's variance, "
        else:
            first = f"Your guess: {self.between:.0%} of the target's variance lies between {plural(self.task)}; "
            first += "of the rest columns "
            first += f"explain {self.explained:.0%},"
        return [first.strip(), f"and {self.common:.0%} of what they explain is the same in every {self.task}."]

    def _lines_of_columns(self) -> list[str]:
        """Return standard errors in the units of the table, by column and eps."""
        named = [(name, self.column_units.get(name, "")) for name in self.table_units]
        rows = [
            (f"{name} ({unit})" if unit else str(name), *(f"{error:.2g}" for error in errors))
            for (name, unit), errors in zip(named, self.standard_errors().to_numpy(), strict=True)
        ]
        of = f" in {self.target_unit}" if self.target_unit else " in units of the target"
        head = ("average effect", *(f"eps = {expected.epsilon:g}" for expected in self.by_epsilon))
        return [f"Standard errors{of}, for one unit of a column:", "", aligned([head, *rows])]

    def picture(self, path: str | os.PathLike[str]) -> None:
        """Draw errors over eps and over the number of tasks. Raises ImportError without matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("pictures need matplotlib: pip install 'mpmtl-prob[plots]'") from None
        page = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = page.subplots(1, 2, sharey=True)
        epsilons = [expected.epsilon for expected in self.by_epsilon]
        tasks = [m for m, _ in self.by_tasks]
        for axes, x, expected in (
            (left, epsilons, self.by_epsilon),
            (right, tasks, [expected for _, expected in self.by_tasks]),
        ):
            axes.axhline(1.0, color="0.45", label="alone")
            axes.plot(x, [one.ratio for one in expected], "o-", color="#1b6ca8", label="with the release")
            axes.plot(
                x,
                [one.mixed / one.alone for one in expected],
                "--",
                color="#e08a1e",
                label="mixed model, not private",
            )
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{tick:g}" for tick in x])
            axes.minorticks_off()
        left.set(title=f"{self.num_tasks} {plural(self.task)}", ylim=(0, None))
        left.set(xlabel="eps (less private to the right)", ylabel="error of coefficients\nover that of being alone")
        right.set(title=f"eps = {self.by_tasks[0][1].epsilon:g}", xlabel=f"number of {plural(self.task)}")
        left.legend(frameon=False)
        page.savefig(path, dpi=120)


def plan_study(
    spec: ReleaseSpec | float,
    num_tasks: int,
    coefficients: int | Sequence[Hashable],
    rows: int | tuple[int, int] | None = None,
    *,
    example: TaskData | None = None,
    explained: float = 0.3,
    common: float = 0.7,
    between: float = 0.1,
    residual_spread: float = 0.0,
    epsilons: Sequence[float] = EPSILONS,
    delta: float | None = None,
    wanted: float | None = None,
    task: str = "task",
    target_unit: str = "",
    column_units: Mapping[Hashable, str] | None = None,
    seed: int = 0,
    progress_bar: bool = True,
) -> StudyPlan:
    """Compute what a study can expect of one release of messages of effects, before anybody looks at a row.

    It takes a few seconds. The page docs/benchmarks/plans.md compares such plans with simulated studies.

    Args:
        spec: the study's specification, or its eps, at which numbers of tasks are compared. Covariates of tasks are ignored.
            With a reference, standard errors of average effects are also given in the units of the table.
        num_tasks: number of tasks m.
        coefficients: number of coefficients d, or their names: those of the reference, if there is one, and "intercept" if it
            is shared. With a reference, a number is that of its columns, or one more, which is the intercept.
        rows: number of rows of a task; or the smallest and the largest, between which it is log-uniform. Without an example
            it is needed, and columns are independent and normal.
        example: tasks with columns as those of the study: public, made up, or one's own, whose plan is as private as they
            are. Simulated tasks have the columns of these tasks in turn, and without ``rows`` all their rows; with it rows
            are drawn from them. Use it if columns are correlated, rare, or constant within a task. Targets are not used.
            Columns are converted to common units by the reference, or else by their means and standard deviations.
        explained: share of the target's variance within a task that its coefficients explain, between 0 and 1.
        common: share of that which is the same in all tasks, between 0 and 1.
        between: share of the target's variance that lies between tasks (the intra-class correlation), with "intercept" among
            ``coefficients``; not used without it.
        residual_spread: standard deviation of the logarithm of tasks' residual variances: 0 if they are equal; with .8 one
            task in six has less than half of the median, and one in six more than twice.
        epsilons: budgets to compare.
        delta: delta at all of them; default that of ``spec``, else 1 / (m log m). With fewer than 30 tasks it has no default.
        wanted: a wanted standard error of average effects: the plan then contains the eps that reaches it.
        task: word for a task, such as "hospital".
        target_unit: unit of the target in the printed plan, such as "days".
        column_units: units of columns, by name, such as "years".
        seed: seed of the simulated tasks.
        progress_bar: show one.

    Raises:
        ValueError: an argument outside its range, or an outcome other than numbers.

    >>> plan = mp.evaluation.plan_study(1.0, num_tasks=60, coefficients=5, rows=(20, 200))
    >>> plan.by_epsilon[2].says
    'worth it'
    """
    m = whole("num_tasks", num_tasks, 2)
    d = whole("coefficients", len(coefficients) if isinstance(coefficients, Sequence) else coefficients)
    if isinstance(coefficients, Sequence) and (isinstance(coefficients, str) or len(set(coefficients)) < d):
        raise ValueError(
            f"coefficients: expected their number, or names of which each is there once, got {coefficients!r}"
        )
    seed = whole("seed", seed, 0)
    explained = fraction("explained", explained)
    common = _share("common", common)
    if isinstance(epsilons, str) or not isinstance(epsilons, Sequence) or not len(epsilons):
        raise ValueError(f"epsilons: expected at least one, such as (0.3, 1.0), got {epsilons!r}")
    budgets = [positive("epsilons", epsilon) for epsilon in epsilons]
    wanted = None if wanted is None else positive("wanted", wanted)
    spec = spec if isinstance(spec, ReleaseSpec) else ReleaseSpec(positive("spec", spec))
    if spec.reference is not None and spec.reference.outcome != "number":
        raise ValueError(
            f"spec: expected a study whose outcome is a number, got {spec.reference.outcome!r}, for which no plan is built"
        )
    names: Sequence[Hashable] = coefficients if isinstance(coefficients, Sequence) else ()
    if spec.reference is not None:
        names = names or _of_reference(spec.reference, d)
    table_units = {} if spec.reference is None else _table_units(spec.reference, names)
    delta = _delta(spec.delta if delta is None else delta, m)
    between = _share("between", between)
    between_tasks = min(between, 0.999) if NAME in names else None
    columns = () if example is None else _columns(example, spec.reference, names, d)
    if rows is None and example is None:
        raise ValueError("rows: expected a number or two, such as (20, 200), or an example in their place, got neither")
    residual_spread = 0.0 if residual_spread == 0 else positive("residual_spread", residual_spread)
    row_range = None if rows is None else _range(rows)
    guess = Guess(d, row_range, explained, common, between_tasks, residual_spread, columns)
    simulated = simulate(guess, seed)
    mixed: dict[bytes, FloatArray] = {}

    @cache  # the study itself is in both lists
    def expected_at(epsilon: float, number: int) -> Expected:
        return _expected(guess, simulated, _terms(spec, epsilon, delta, number, d), seed, mixed)

    numbers = sorted({max(2, round(m * times)) for times in (0.25, 0.5, 1, 2, 4)})
    with tqdm(total=len(budgets) + len(numbers), desc="plan", leave=False, disable=not progress_bar) as bar:
        by_epsilon = tuple(_counted(bar, expected_at(epsilon, m)) for epsilon in budgets)
        by_tasks = tuple((number, _counted(bar, expected_at(spec.epsilon, number))) for number in numbers)
    reached = None
    if wanted is not None:
        reached = _epsilon_for(wanted, guess, simulated, lambda eps: _terms(spec, eps, delta, m, d))
    return StudyPlan(
        m, d, guess.rows or (min(map(len, columns)), max(map(len, columns))), example is not None, explained, common,
        guess.between, residual_spread, by_epsilon, by_tasks, wanted, reached, task, table_units, target_unit,
        dict(column_units or {}),
    )  # fmt: skip


def _delta(delta: float | None, m: int) -> float | None:
    """Return a delta, or none where its default promises something. Raises ValueError with few tasks and none."""
    if delta is None and m < _FEW_TASKS:
        raise ValueError(
            f"delta: expected one with fewer than {_FEW_TASKS} tasks, where the default 1 / (m log m) is "
            f"{1 / (m * np.log(m)):.2g} and promises little, got none; .001 is usual"
        )
    return delta


def _of_reference(reference: Reference, d: int) -> list[Hashable]:
    """Return the names of d coefficients: those of a reference, and "intercept" if there is one more."""
    names = [*reference.features, NAME]
    if d not in (len(names) - 1, len(names)):
        raise ValueError(
            f"coefficients: expected {len(names) - 1}, as many as the reference has columns, or one more, which is the "
            f"intercept, got {d}; or give their names"
        )
    return names[:d]


def _table_units(reference: Reference, names: Sequence[Hashable]) -> dict[Hashable, float]:
    """Return factors from effects in common units to the table's units, by coefficient."""
    return dict(zip(names, per_table_unit(reference.units(list(names))).tolist(), strict=True))


def _columns(
    example: TaskData, reference: Reference | None, names: Sequence[Hashable], d: int
) -> tuple[FloatArray, ...]:
    """Return the columns of every example task in common units, in the order of the coefficients, without an intercept."""
    if not isinstance(example, TaskData):
        raise ValueError(
            f"example: expected TaskData, such as those of TaskData.from_pandas, got {type(example).__name__}"
        )
    slopes = [name for name in names or example.features if name != NAME]
    if len(slopes) != d - (NAME in names):
        raise ValueError(
            f"example: expected tasks with {d} columns, one for every coefficient, got {len(slopes)}; name the coefficients "
            'if one of them is "intercept"'
        )
    places = match_names(
        "example", slopes, example.features, of="the coefficients", advice="name its columns as they are"
    )
    every = np.asarray(example.rows, dtype=np.float64)[:, places]
    varies = np.ptp(every, axis=0) > 0
    if slopes and not varies.any():
        raise ValueError(f"example: expected columns that vary, got {len(every)} rows that are all alike")
    if reference is not None:
        every = reference.units(slopes).rows(every)
    else:
        every = np.where(varies, (every - every.mean(axis=0)) / np.where(varies, every.std(axis=0), 1.0), 0.0)
    if (away := np.abs(every).max(initial=0.0)) > _FARTHEST:
        raise ValueError(
            f"example: expected columns in the units of the reference, got one {away:.2g} of its scales from its centre"
        )
    return tuple(every[begin:end] for begin, end in pairwise(example.offsets))


def _counted(bar: Any, expected: Expected) -> Expected:
    bar.update()
    return expected


def _share(name: str, value: float) -> float:
    """Return a number from 0 to 1, both included."""
    return float(value) if value in (0, 1) else fraction(name, value)


def _range(rows: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(rows, str) or (isinstance(rows, Sequence) and len(rows) != 2):
        raise ValueError(f"rows: expected a number or two, such as (20, 200), got {rows!r}")
    low, high = rows if isinstance(rows, Sequence) else (rows, rows)
    low = whole("rows", low)
    return low, whole("rows", high, low)


def _terms(spec: ReleaseSpec, epsilon: float, delta: float | None, m: int, d: int) -> Terms:
    names: list[Hashable] = [f"x{j}" for j in range(d)]
    public = replace(
        spec, epsilon=epsilon, delta=delta, reference=Reference.standard(names), message="effects", covariates=None
    )
    return public.terms(m, names)


def _expected(
    guess: Guess, tasks: Sequence[SimulatedTask], terms: Terms, seed: int, with_all_rows: dict[bytes, FloatArray]
) -> Expected:
    law, known = terms.mechanisms[0], _accuracy(guess, tasks, terms)
    rng = np.random.default_rng([seed, 1])
    # Errors with all rows are the same at every eps: they are kept by what they depend on.
    without_noise = known.mean_without_noise.tobytes() + known.log_spread_without_noise.tobytes()
    mixed_errors = with_all_rows.get(without_noise, [None] * len(tasks))
    errors = np.array(
        [expected_errors(task, guess, known, rng, one) for task, one in zip(tasks, mixed_errors, strict=True)]
    ).T
    with_all_rows[without_noise] = errors[2]
    alone, release, mixed = errors.mean(axis=1)
    ratio = release / alone
    error = np.std(errors[1] - ratio * errors[0]) / np.sqrt(len(tasks)) / alone
    guarantee = of_release((law,), epsilon=terms.epsilon, adjacency=terms.adjacency, claimed=None, seeded=False)
    assert guarantee.proved is not None
    return Expected(
        terms.epsilon, guarantee.proved.delta, (1 + guarantee.delta(0.0)) / 2, float(alone), float(release), float(mixed),
        float(known.standard_errors(guess.d).mean()), float(EffectsPrior().average / np.sqrt(guess.d)),
        tuple(known.standard_errors(guess.d).tolist()), float(error),
    )  # fmt: skip


def _epsilon_for(
    wanted: float, guess: Guess, tasks: Sequence[SimulatedTask], terms: Callable[[float], Terms]
) -> float | None:
    """Return the smallest eps with at most the wanted standard error, to three digits; None if there is none."""
    from scipy.optimize import brentq  # a tenth of a second to import

    def missed(log_epsilon: float) -> float:
        at = terms(float(np.exp(log_epsilon)))
        return float(_accuracy(guess, tasks, at).standard_errors(guess.d).mean()) - wanted

    low, high = np.log(_LEAST_EPSILON), np.log(_MOST_EPSILON)
    if missed(high) > 0:
        return None
    return float(np.exp(brentq(missed, low, high, xtol=1e-3))) if missed(low) > 0 else _LEAST_EPSILON


def _accuracy(guess: Guess, tasks: Sequence[SimulatedTask], terms: Terms) -> Accuracy:
    assert terms.effects is not None
    return accuracy(guess, tasks, terms.effects, np.sqrt(terms.mechanisms[0].variance / 2), terms.num_tasks)
