"""Is a study worth it, and at which eps: errors to be expected of a mixed model with one release, from public numbers alone.

Tasks are made up as the guess has them, with targets of variance 1 and features that are independent and standard,

    beta_i ~ N(mu, tau^2 / d I),   |mu|^2 + tau^2 = explained,   |mu|^2 = common * explained,   sigma^2 = 1 - explained,

and fitted as an owner fits its own: alone, and with what a release lets everybody know. That is worked out and not sampled: a
message (g eta, k p, 1) over its length |u| adds g p mu / |u|^2 to the sum's last column, on which noise has the standard
deviation s, so that a coordinate of mu is read with the variance

    (s E|u|^2 / (g p m))^2 / (1 + (g p)^2 |mu|^2 (d - 1) / d)  +  1 / sum_i (tau^2 / d + V_i)^-1.

The first part is the noise's, *accuracy before spending*: in brackets what the column tells, and below it what the products
of mu with itself tell beside it. The second is what m tasks leave open without noise. The spread is known as well as the
trace of what is left beside the mean tells it, and no worse than by its prior.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, positive, whole
from mpmtl_prob._util.tables import aligned
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.inference.owner.effects import APART, APART_SCALES, SCALE_WEIGHTS, SCALES
from mpmtl_prob.inference.public.effects import per_table_unit
from mpmtl_prob.models.effects import EffectsPrior
from mpmtl_prob.privacy.board import percent
from mpmtl_prob.privacy.guarantee import of_release
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.spec import ReleaseSpec, Terms
from mpmtl_prob.single_task.random_effects import EffectsPriors, effects_posterior

if TYPE_CHECKING:
    import pandas as pd

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: Tasks that are made up, and readings of the spread, and of the length of mu, that each of them averages over.
_TASKS, _READINGS = 100, 6
#: Gains and interval widths below which nothing is said to be gained.
_WORTH, _LITTLE, _SAYS_LITTLE = 0.95, 0.98, 0.8
_FEW_TASKS = 30
#: Between which eps one is looked for that reaches a wanted standard error.
_LEAST_EPSILON, _MOST_EPSILON = 1e-3, 50.0


class Expected(NamedTuple):
    """What is to be expected at one eps. Errors are mean squared errors of a task's coefficients, in units of the target.

    Attributes:
        epsilon: the budget.
        delta: beside it, as it is true.
        odds: to what an attacker's belief of one half moves at most.
        alone: the error of a task by its own rows.
        release: of a task with the release.
        mixed: of a task in a mixed model with all rows, without privacy.
        standard_error: of an average effect with the release, standard deviations of the target for one of the column.
        before: the same before the release, when only its prior is known.
        error: the standard error of ``release`` over ``alone`` that comes from the number of simulated tasks.
    """

    epsilon: float
    delta: float
    odds: float
    alone: float
    release: float
    mixed: float
    standard_error: float
    before: float
    error: float

    @property
    def ratio(self) -> float:
        """Error with the release over that of being alone."""
        return self.release / self.alone

    @property
    def says(self) -> str:
        """Whether it is worth it, in words."""
        if self.standard_error > _SAYS_LITTLE * self.before:
            return "nothing: the noise hides average effects"
        if self.ratio > _LITTLE or self.ratio + 2 * self.error >= 1:
            return "next to nothing: own rows say as much"
        return "a little" if self.ratio > _WORTH else "worth it"


@dataclass(frozen=True)
class StudyPlan:
    """What a study may expect of one release, at several eps and for several numbers of tasks; str() is a table.

    Attributes:
        num_tasks: m.
        coefficients: d, an intercept that is shared among them.
        rows: of a task, from and to.
        explained: share of the target's variance within a task that its coefficients explain: a guess.
        common: share of that which is the same in all tasks: a guess.
        by_epsilon: what is to be expected, by eps.
        by_tasks: the same at the study's eps, by the number of tasks.
        wanted: a standard error of average effects that is wanted, if any.
        epsilon_wanted: the eps that reaches it; None if none up to 50 does.
        task: what a task is called.
        table_units: by coefficient, by what a standard error is multiplied to be in the table's units; none without a
            reference.
        target_unit: of the target, in words.
        column_units: of columns, in words, by name.
    """

    num_tasks: int
    coefficients: int
    rows: tuple[int, int]
    explained: float
    common: float
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
        """The least eps of the table at which the release is worth it; None if it is at none."""
        return next((each.epsilon for each in self.by_epsilon if each.says == "worth it"), None)

    def to_frame(self) -> pd.DataFrame:
        """Table by eps: delta, odds, errors over that of being alone, and the standard error of an average effect."""
        import pandas as pd

        rows = [
            {
                "delta": each.delta,
                "odds": each.odds,
                "with the release": each.ratio,
                "mixed model": each.mixed / each.alone,
                "standard error": each.standard_error,
                "says": each.says,
            }
            for each in self.by_epsilon
        ]
        return pd.DataFrame(rows, index=pd.Index([each.epsilon for each in self.by_epsilon], name="epsilon"))

    def standard_errors(self) -> pd.DataFrame:
        """Table of standard errors of average effects in the units of the table, a row for every coefficient, by eps.

        They are changes of the target for one unit of a column; an intercept's is at the centres of the reference.

        Raises:
            ValueError: a plan without a reference, which knows of no such units.
        """
        import pandas as pd

        if not self.table_units:
            raise ValueError(
                "spec: expected one with a reference, whose scales say what the table's units are, got none"
            )
        index = pd.Index(list(self.table_units), name="effect")
        columns = {each.epsilon: list(self._in_table(each).values()) for each in self.by_epsilon}
        return pd.DataFrame(columns, index=index).rename_axis(columns="epsilon")

    def _in_table(self, expected: Expected) -> dict[Hashable, float]:
        return {name: expected.standard_error * times for name, times in self.table_units.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        expected = [each._asdict() | {"ratio": each.ratio, "says": each.says} for each in self.by_epsilon]
        units = {}
        if self.table_units:
            for said, each in zip(expected, self.by_epsilon, strict=True):
                said["standard_errors"] = {str(name): value for name, value in self._in_table(each).items()}
            columns = {str(name): self.column_units.get(name, "") for name in self.table_units}
            units = {"units": {"target": self.target_unit, "columns": columns}}
        tasks = [{"num_tasks": m} | each._asdict() | {"ratio": each.ratio} for m, each in self.by_tasks]
        guess = {"explained": self.explained, "common": self.common, "rows": list(self.rows)}
        shape = {"num_tasks": self.num_tasks, "coefficients": self.coefficients}
        wanted = {"standard_error_wanted": self.wanted, "epsilon_wanted": self.epsilon_wanted}
        return shape | guess | wanted | units | {"by_epsilon": expected, "by_tasks": tasks}

    def __str__(self) -> str:
        rows = f"{self.rows[0]}" if self.rows[0] == self.rows[1] else f"{self.rows[0]} to {self.rows[1]}"
        head = (
            "eps",
            "delta",
            "50 % is at most",
            "error over alone",
            "not private *",
            "standard error",
            "the release says",
        )
        lines = [
            (
                f"{each.epsilon:g}", f"{each.delta:.2g}", percent(each.odds), f"{each.ratio:.2f}",
                f"{each.mixed / each.alone:.2f}", f"{each.standard_error:.3f}", each.says,
            )
            for each in self.by_epsilon
        ]  # fmt: skip
        said = [
            f"{self.num_tasks} {self.task}s with {rows} rows and {self.coefficients} coefficients each. Guessed: they "
            f"explain {self.explained:.0%} of",
            f"the target's variance, and {self.common:.0%} of that is alike everywhere.",
            "",
            aligned([head, *lines]),
            "",
            "An attacker's belief of one half that it was you, and not another, becomes at most what the third column says.",
            f"Errors are those of a {self.task}'s coefficients; * is a mixed model with all rows on one desk. "
            "Standard errors",
            "are of an average effect, in standard deviations of the target for one of the column; before the release "
            f"{self.by_epsilon[0].before:.2f}.",
        ]
        if self.table_units:
            said += ["", *self._lines_of_columns(), ""]
        if self.wanted is not None:
            reached = (
                f"reached at eps = {self.epsilon_wanted:.2g}" if self.epsilon_wanted else "reached at no eps up to 50"
            )
            said.append(f"A standard error of {self.wanted:g} is {reached}.")
        if self.least_epsilon is None:
            said += [
                "At none of these eps is the release worth it. What else there is: fewer columns; a larger eps, with "
                "its odds;",
                f"more {self.task}s; or tools that show single {self.task}s' numbers to each other (pda, DataSHIELD), "
                "which prove nothing.",
            ]
        elif self.num_tasks < _FEW_TASKS:
            said.append(f"With {self.num_tasks} {self.task}s it is worth it from eps = {self.least_epsilon:g} on.")
        return "\n".join(said)

    def _lines_of_columns(self) -> list[str]:
        """Standard errors in the units of the table, by column and eps."""
        named = [(name, self.column_units.get(name, "")) for name in self.table_units]
        rows = [
            (f"{name} ({unit})" if unit else str(name), *(f"{each:.2g}" for each in errors))
            for (name, unit), errors in zip(named, self.standard_errors().to_numpy(), strict=True)
        ]
        of = f" in {self.target_unit}" if self.target_unit else " in units of the target"
        head = ("average effect", *(f"eps = {each.epsilon:g}" for each in self.by_epsilon))
        return [f"Standard errors{of}, for one unit of a column:", "", aligned([head, *rows])]

    def picture(self, path: str | os.PathLike[str]) -> None:
        """Draw errors over eps and over the number of tasks. Raises ImportError without matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("pictures need matplotlib: pip install 'mpmtl-prob[plots]'") from None
        page = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = page.subplots(1, 2, sharey=True)
        epsilons = [each.epsilon for each in self.by_epsilon]
        tasks = [m for m, _ in self.by_tasks]
        for axes, x, expected in (
            (left, epsilons, self.by_epsilon),
            (right, tasks, [each for _, each in self.by_tasks]),
        ):
            axes.axhline(1.0, color="0.45", label="alone")
            axes.plot(x, [each.ratio for each in expected], "o-", color="#1b6ca8", label="with the release")
            axes.plot(
                x,
                [each.mixed / each.alone for each in expected],
                "--",
                color="#e08a1e",
                label="mixed model, not private",
            )
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{each:g}" for each in x])
            axes.minorticks_off()
        left.set(title=f"{self.num_tasks} {self.task}s", ylim=(0, None))
        left.set(xlabel="eps (less private to the right)", ylabel="error of coefficients\nover that of being alone")
        right.set(title=f"eps = {self.by_tasks[0][1].epsilon:g}", xlabel=f"number of {self.task}s")
        left.legend(frameon=False)
        page.savefig(path, dpi=120)


def plan_study(
    spec: ReleaseSpec | float,
    num_tasks: int,
    coefficients: int | Sequence[Hashable],
    rows: int | tuple[int, int],
    *,
    explained: float = 0.3,
    common: float = 0.7,
    epsilons: Sequence[float] = EPSILONS,
    delta: float | None = None,
    wanted: float | None = None,
    task: str = "task",
    target_unit: str = "",
    column_units: Mapping[Hashable, str] | None = None,
    seed: int = 0,
    progress_bar: bool = True,
) -> StudyPlan:
    """Work out what a study may expect of one release of messages of effects, before anybody looks at a row.

    It takes a few seconds. On the panel of simulated studies it is compared with what was realised: docs/benchmarks.md.

    Args:
        spec: the study's, or its eps, at which numbers of tasks are compared. Covariates of tasks are left out. With a
            reference standard errors of average effects are told in the units of the table too.
        num_tasks: m.
        coefficients: d, or their names: those of the reference, if there is one, and "intercept" if it is shared.
        rows: of a task; or from and to, between which they are taken as log-uniform.
        explained: share of the target's variance within a task that its coefficients explain, between 0 and 1.
        common: share of that which is the same in all tasks, between 0 and 1.
        epsilons: to compare.
        delta: at all of them; default that of ``spec``, else 1 / (m log m). With fewer than 30 tasks it has no default.
        wanted: a standard error of average effects, of which the eps is looked for that reaches it.
        task: what a task is called.
        target_unit: what the target is in, for what is printed, such as "days".
        column_units: what columns are in, by name, such as "years".
        seed: of the tasks that are made up.
        progress_bar: show one.

    Raises:
        ValueError: an argument outside its range, or an outcome that is no number.

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
    explained, common = fraction("explained", explained), _share("common", common)
    if isinstance(epsilons, str) or not isinstance(epsilons, Sequence) or not len(epsilons):
        raise ValueError(f"epsilons: expected at least one, such as (0.3, 1.0), got {epsilons!r}")
    asked = [positive("epsilons", epsilon) for epsilon in epsilons]
    wanted = None if wanted is None else positive("wanted", wanted)
    spec = spec if isinstance(spec, ReleaseSpec) else ReleaseSpec(positive("spec", spec))
    if spec.reference is not None and spec.reference.outcome != "number":
        raise ValueError(
            f"spec: expected a study whose outcome is a number, got {spec.reference.outcome!r}, for which no plan is built"
        )
    table_units = {} if spec.reference is None else _table_units(spec.reference, coefficients, d)
    if delta is None and (delta := spec.delta) is None and m < _FEW_TASKS:
        raise ValueError(
            f"delta: expected one with fewer than {_FEW_TASKS} tasks, where the default 1 / (m log m) is "
            f"{1 / (m * np.log(m)):.2g} and promises little, got none; .001 is usual"
        )
    guess = _Guess(d, _range(rows), explained, common)
    made_up = _made_up(guess, seed)
    at = lambda epsilon, number: _expected(guess, made_up, _terms(spec, epsilon, delta, number, d), seed)
    numbers = sorted({max(2, round(m * times)) for times in (0.25, 0.5, 1, 2, 4)})
    with tqdm(total=len(asked) + len(numbers), desc="plan", leave=False, disable=not progress_bar) as bar:
        by_epsilon = tuple(_counted(bar, at(epsilon, m)) for epsilon in asked)
        by_tasks = tuple((number, _counted(bar, at(spec.epsilon, number))) for number in numbers)
    reached = None
    if wanted is not None:
        reached = _epsilon_for(wanted, guess, made_up, lambda eps: _terms(spec, eps, delta, m, d))
    return StudyPlan(
        m, d, guess.rows, explained, common, by_epsilon, by_tasks, wanted, reached, task,
        table_units, target_unit, dict(column_units or {}),
    )  # fmt: skip


def _table_units(reference: Reference, coefficients: int | Sequence[Hashable], d: int) -> dict[Hashable, float]:
    """By coefficient, what effects in common units are multiplied by for those in the table's."""
    names = list(coefficients) if isinstance(coefficients, Sequence) else [*reference.features, NAME][:d]
    return dict(zip(names, per_table_unit(reference.units(names)).tolist(), strict=True))


def _counted(bar: Any, expected: Expected) -> Expected:
    bar.update()
    return expected


class _Guess(NamedTuple):
    d: int
    rows: tuple[int, int]
    explained: float
    common: float

    @property
    def mean(self) -> float:
        """|mu|^2."""
        return self.common * self.explained

    @property
    def spread(self) -> float:
        """tau^2."""
        return max((1 - self.common) * self.explained, 1e-4)

    @property
    def residual(self) -> float:
        """sigma^2."""
        return max(1 - self.explained, 1e-4)


class _Task(NamedTuple):
    X: FloatArray
    y: FloatArray
    mu: FloatArray
    beta: FloatArray


def _share(name: str, value: float) -> float:
    """A number from 0 to 1, both included."""
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


def _made_up(guess: _Guess, seed: int) -> list[_Task]:
    rng = np.random.default_rng(seed)
    low, high = np.log(guess.rows)
    tasks = []
    for share in (np.arange(_TASKS) + 0.5) / _TASKS:  # every number of rows alike
        n = round(np.exp(low + share * (high - low)))
        direction = rng.standard_normal(guess.d)
        mu = np.sqrt(guess.mean) * direction / np.linalg.norm(direction)
        beta = mu + np.sqrt(guess.spread / guess.d) * rng.standard_normal(guess.d)
        X = rng.standard_normal((n, guess.d))
        tasks.append(_Task(X, X @ beta + np.sqrt(guess.residual) * rng.standard_normal(n), mu, beta))
    return tasks


def _expected(guess: _Guess, tasks: Sequence[_Task], terms: Terms, seed: int) -> Expected:
    law, reading = terms.mechanisms[0], _read(guess, tasks, terms)
    rng = np.random.default_rng([seed, 1])
    errors = np.array([_errors(task, guess, reading, rng) for task in tasks]).T
    alone, release, mixed = errors.mean(axis=1)
    ratio = release / alone
    error = np.std(errors[1] - ratio * errors[0]) / np.sqrt(len(tasks)) / alone
    guarantee = of_release((law,), epsilon=terms.epsilon, adjacency=terms.adjacency, claimed=None, seeded=False)
    assert guarantee.proved is not None
    return Expected(
        terms.epsilon, guarantee.proved.delta, guarantee.membership_odds().cap, float(alone), float(release), float(mixed),
        reading.standard_error(guess.d), float(EffectsPrior().average / np.sqrt(guess.d)), float(error),
    )  # fmt: skip


def _epsilon_for(wanted: float, guess: _Guess, tasks: Sequence[_Task], terms: Callable[[float], Terms]) -> float | None:
    """The least eps whose standard error is no more than is wanted, to three digits; None where none is."""
    from scipy.optimize import brentq  # a tenth of a second to import

    def missed(log_epsilon: float) -> float:
        at = terms(float(np.exp(log_epsilon)))
        return _read(guess, tasks, at).standard_error(guess.d) - wanted

    low, high = np.log(_LEAST_EPSILON), np.log(_MOST_EPSILON)
    if missed(high) > 0:
        return None
    return float(np.exp(brentq(missed, low, high, xtol=1e-3))) if missed(low) > 0 else _LEAST_EPSILON


def _read(guess: _Guess, tasks: Sequence[_Task], terms: Terms) -> _Reading:
    assert terms.effects is not None
    return _reading(guess, tasks, terms.effects, np.sqrt(terms.mechanisms[0].variance / 2), terms.num_tasks)


class _Reading(NamedTuple):
    """How well average effects and the spread are read.

    Attributes:
        mean: variance of a coordinate of mu, with the release.
        mean_without_noise: of the same, with all rows.
        log_spread: standard deviation of log tau, with the release.
        log_spread_without_noise: with all rows.
    """

    mean: float
    mean_without_noise: float
    log_spread: float
    log_spread_without_noise: float

    def standard_error(self, d: int) -> float:
        """Of an average effect, of whose length nothing is known but the prior."""
        return float(1 / np.sqrt(1 / self.mean + d / EffectsPrior().average ** 2))


def _reading(guess: _Guess, tasks: Sequence[_Task], layout: EffectsLayout, sd: float, m: int) -> _Reading:
    d, weak, v = guess.d, layout.weak_prior, layout.effect_variance
    precision, p, length, sampling = [], [], [], []
    for task in tasks:
        e = np.maximum(np.linalg.eigvalsh(task.X.T @ task.X), 0.0)
        precision.append(np.mean(1 / (guess.spread / d + guess.residual / np.maximum(e, 1e-12))))
        share = e / (e + guess.residual / (weak * v))
        s, squares = share.mean(), (share**2).mean()
        p.append(s**2 / (squares + weak * (s - squares)))
        size = p[-1] ** 2 * guess.explained + d * v * p[-1] * (1 - p[-1])
        length.append(1 + (layout.determined_size * p[-1]) ** 2 + layout.effect_size**2 * size)
        sampling.append(v * (1 - p[-1]) / p[-1])
    g, p_, u = layout.effect_size, float(np.mean(p)), float(np.mean(length))
    open_ = 1 / (m * np.mean(precision))
    noise = (sd * u / (g * p_ * m)) ** 2 / (1 + (g * p_) ** 2 * guess.mean * (d - 1) / d)
    # the trace of what is left beside the mean: of d entries on the diagonal, with twice the variance of those off it
    per_effect = guess.spread / d + float(np.mean(sampling))
    without = per_effect * np.sqrt(2 / (m * d))
    prior = EffectsPrior()
    # how large errors of estimation are is known up to a factor alone, which no number of tasks averages out
    unknown = prior.errors * (1 - p_) * float(np.mean(sampling))
    read = np.sqrt((sd * np.sqrt(2 / d) * u / (g**2 * p_**2 * m)) ** 2 + without**2 + unknown**2)
    before = np.log(prior.spread_factor)
    tau2 = guess.spread / d
    log_sd = [1 / np.sqrt(1 / before**2 + (2 * tau2 / each) ** 2) for each in (read, without)]
    return _Reading(open_ + noise, open_, *log_sd)


def _errors(task: _Task, guess: _Guess, reading: _Reading, rng: np.random.Generator) -> tuple[float, float, float]:
    """Squared errors of one task's coefficients: alone, with the release, and with all rows."""
    d, mu, beta = guess.d, task.mu, task.beta
    even = np.full(len(APART_SCALES), -np.log(len(APART_SCALES)))
    apart = EffectsPriors(np.zeros(1), np.zeros((1, d)), np.eye(d)[None], APART_SCALES / d, even)
    found = [effects_posterior(task.X, task.y, (apart,)).mean]
    prior = EffectsPrior()
    lengths = prior.average * ndtri(0.5 + (np.arange(_READINGS) + 0.5) / (2 * _READINGS))  # half-normal
    trusted = ((reading.mean, reading.log_spread), (reading.mean_without_noise, reading.log_spread_without_noise))
    for variance, log_sd in trusted:
        read = mu + np.sqrt(variance) * rng.standard_normal(d)
        # the length of mu is as the guess has it where mu is read, and as its prior has it where it is not
        seen = guess.mean / (guess.mean + d * variance)
        square = seen * guess.mean + (1 - seen) * lengths**2
        keep = square / (square + d * variance)
        trust = 1 - (log_sd / np.log(prior.spread_factor)) ** 2
        log_tau = trust * 0.5 * np.log(guess.spread) + (1 - trust) * np.log(prior.spread)
        tau = np.exp(log_tau + log_sd * rng.standard_normal(_READINGS))
        # what is not known of mu is averaged over in closed form
        size = keep * variance + tau**2 / d
        weight = np.full(_READINGS, np.log((1 - APART) / _READINGS))
        covariance = size[:, None, None] * np.eye(d)
        known = EffectsPriors(weight, keep[:, None] * read, covariance, SCALES, np.log(SCALE_WEIGHTS))
        other = apart._replace(log_weight=np.log([APART]))
        found.append(effects_posterior(task.X, task.y, (known, other)).mean)
    alone, release, mixed = (float(((each - beta) ** 2).sum()) for each in found)
    return alone, release, mixed
