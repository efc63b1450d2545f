"""Messages of effects (random effects): one vector of length 1 with a task's coefficients and their reliability.

    u_i = (g eta_i, k p_i, 1),    v_i = u_i / |u_i|

eta_i are the coefficients under a declared prior, minus guesses from earlier studies if there are any. p_i says how far the
rows determine them, averaged over the coefficients of columns and, separately, the intercept
(:mod:`mpmtl_prob.single_task.shrunk`). The sum of v v' then contains a first moment: its last column is the weighted mean of
effects, and the other columns their covariance. So one noisy matrix gives the mean, the spread between tasks, and the
reliability that is needed to separate this spread from errors of estimation. If the outcome is not a number, effects are
those of the linear predictor (:mod:`mpmtl_prob.single_task.generalized`).

The length of a message is 1 whatever the rows, as for directions, and so the guarantees are the same. A task without
information sends (0, 0, 1). A message depends on its own task's rows and on public numbers only.

Where the reference declares covariates of tasks, which are public, the one becomes z_i = (1, z_i1, ..., z_iq), in units of
their centres and scales. The last 1 + q columns of the sum then hold the first moments of effects by z.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, normalise_fields
from mpmtl_prob.data.cells import file_name
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.covariates import Covariates, check_varying, standardised
from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.observations import Observations
from mpmtl_prob.data.outcomes import impossible, targets_of
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.data.units import Units, own_units
from mpmtl_prob.single_task.families import OF_OUTCOMES
from mpmtl_prob.single_task.generalized import Predictors, generalized_estimate
from mpmtl_prob.single_task.shrunk import Shrunk, shrunk_estimate, shrunk_from


class MessageConstants(NamedTuple):
    """Public constants of a message, for studies whose targets have variance of about 1 in common units.

    A small prior variance helps to separate the spread between tasks from errors of estimation, whose size it bounds. A large
    one lets more of an effect through the noise.

    Attributes:
        effect_size: g, the share of effects in a message.
        determined_size: k, the share of p, which says how far the rows determine effects.
        prior_variance: prior variance of all effects together.
        weak_prior: factor by which the prior variance is larger while effects are estimated.
    """

    effect_size: float
    determined_size: float
    prior_variance: float
    weak_prior: float


#: Constants by outcome. Those of numbers were chosen on the benchmark panel: on one seed of its cells a, b and c with few
#: rows (eps = 3), of d10-m60-square (eps = 10), and of four simple kinds (eps = 1), among effect sizes of 2, 3 and 4,
#: variances of .5, 1 and 2, and weak priors of 1, 3 and 8 (4 lies between). Those of other outcomes are the earlier constants
#: of numbers, chosen on two seeds of four simple kinds; their fourth is unused, as coefficients are estimated under N(0, 1).
CONSTANTS = {
    "number": MessageConstants(3.0, 1.0, 1.0, 4.0),
    "binary": MessageConstants(2.0, 1.0, 0.5, 4.0),
    "count": MessageConstants(2.0, 1.0, 0.5, 4.0),
}
_DETERMINED, _COVARIATE = "determined: ", "covariate: "
#: If columns or targets are this many times as large as the reference says, the data owner is warned.
_FAR = 20.0
NO_UNITS = (
    "reference: expected reference values with estimates, which have no rows from which units could be taken, got none; of "
    "columns in common units give Reference.standard(columns)"
)
_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class EffectsLayout:
    """Layout of messages of effects: the meaning and the units of every coordinate, and the public constants.

    Attributes:
        coefficients: names of the effects, d of them; an intercept is the last and is named "intercept".
        reference: the study's reference values. If None, every task scales columns and target by its own rows, and effects
            are per standard deviation of these.
        effect_size: g.
        determined_size: k.
        prior_variance: prior variance of all d effects together, in common units.
        weak_prior: factor by which it is larger while effects are estimated (:mod:`mpmtl_prob.single_task.shrunk`).
        covariates: covariates of all tasks in the release, if the reference declares any.

    Raises:
        ValueError: an intercept without reference values, columns that these do not name, a constant that is not positive, or
            covariates other than the reference's, or collinear ones.
    """

    coefficients: tuple[Hashable, ...]
    reference: Reference | None = None
    effect_size: float = CONSTANTS["number"].effect_size
    determined_size: float = CONSTANTS["number"].determined_size
    prior_variance: float = CONSTANTS["number"].prior_variance
    weak_prior: float = CONSTANTS["number"].weak_prior
    covariates: Covariates | None = None

    def __post_init__(self) -> None:
        if isinstance(self.coefficients, str) or not tuple(self.coefficients):
            raise ValueError(f"coefficients: expected names of one effect at least, got {self.coefficients!r}")
        object.__setattr__(self, "coefficients", tuple(file_name(name) for name in self.coefficients))
        if len(set(self.coefficients)) < len(self.coefficients):
            raise ValueError(f"coefficients: expected distinct names, got {list(self.coefficients)}")
        normalise_fields(self, _constant, "effect_size", "determined_size", "prior_variance", "weak_prior")
        if self.reference is not None and not isinstance(self.reference, Reference):
            raise ValueError(f"reference: expected a mpmtl_prob.Reference, got {type(self.reference).__name__}")
        if NAME in self.coefficients[:-1]:
            raise ValueError(f"coefficients: expected {NAME!r} as the last, got {list(self.coefficients)}")
        if self.reference is None and self.intercept:
            raise ValueError(
                "reference: expected reference values of the columns and the target where the intercept is an effect; "
                "without them it is every task's own"
            )
        if self.reference is not None:
            self.reference.units(self.coefficients)
        declared = () if self.reference is None else tuple(self.reference.covariates)
        if declared != (() if self.covariates is None else self.covariates.names):
            raise ValueError(
                f"covariates: expected values of those that the reference declares, {list(declared)}, got "
                f"{'none' if self.covariates is None else list(self.covariates.names)}; give them as covariates=table"
            )
        if taken := [name for name in self.coefficients if name in self.coordinates[len(self.coefficients) :]]:
            raise ValueError(f"features: {taken[0]!r} is what messages of effects call a coordinate; rename the column")
        if self.covariates is not None:
            check_varying(self.covariates, self.z)

    @classmethod
    def of_study(
        cls, coefficients: Sequence[Hashable], reference: Reference | None, covariates: Covariates | None = None
    ) -> EffectsLayout:
        """Return the layout of a study, with the constants of its outcome."""
        outcome = "number" if reference is None else reference.outcome
        return cls(tuple(coefficients), reference, *CONSTANTS[outcome], covariates)

    @property
    def intercept(self) -> bool:
        """True if the last coefficient is the intercept."""
        return self.coefficients[-1] == NAME

    @property
    def outcome(self) -> str:
        """Outcome of the reference; a number without one."""
        return "number" if self.reference is None else self.reference.outcome

    @property
    def effect_variance(self) -> float:
        """Prior variance of one effect, v."""
        return self.prior_variance / len(self.coefficients)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """For every coefficient the index of its average of p: 0 for columns, the last one for the intercept."""
        d = len(self.coefficients)
        return (0,) * (d - 1) + (int(self.intercept and d > 1),)

    @property
    def coordinates(self) -> tuple[Hashable, ...]:
        """Names of the coordinates of a message, D of them."""
        names = [_DETERMINED + (NAME if self.intercept and group else "columns") for group in sorted(set(self.groups))]
        of_tasks = () if self.covariates is None else self.covariates.names
        return (*self.coefficients, *names, "one", *(f"{_COVARIATE}{name}" for name in of_tasks))

    @property
    def averages(self) -> FloatArray:
        """Matrix (groups, d) from the reliability of all coefficients to the averages in a message."""
        numbers = sorted(set(self.groups))
        member = np.array([[group == number for group in self.groups] for number in numbers], dtype=float)
        averages: FloatArray = member / member.sum(axis=1, keepdims=True)
        return averages

    def of(self, tasks: TaskData | Estimates) -> tuple[Hashable, ...]:
        """Return the features that the effects belong to: with the intercept if it is an effect, else without."""
        if isinstance(tasks, Estimates):
            return estimates_in_layout(tasks, self).features
        return in_layout(tasks, self).features

    def units(self, X: FloatArray, y: FloatArray) -> Units:
        """Return the units of a task with rows X (n, d), y (n,): the reference's, or those of its own rows."""
        return own_units(X, y) if self.reference is None else self.reference_units

    @property
    def reference_units(self) -> Units:
        """Units of the reference. Raises ValueError if there is none."""
        if self.reference is None:
            raise ValueError(NO_UNITS)
        return self.reference.units(self.coefficients)

    @property
    def z(self) -> FloatArray:
        """Design of covariates: a one and every task's values in common units, (m, 1 + q). Raises ValueError for none."""
        return self.z_of(self._covariates.tasks, self._covariates)

    @property
    def _covariates(self) -> Covariates:
        if self.covariates is None:
            raise ValueError("covariates: expected a release whose reference declares some, got one without")
        return self.covariates

    def z_of(self, tasks: Sequence[Hashable], covariates: Covariates | None = None) -> FloatArray:
        """Return a one and the covariates in common units for tasks with these names, (k, 1 + q).

        Args:
            tasks: names of the tasks.
            covariates: values of tasks outside the release; default those of the release.

        Raises:
            ValueError: a task without values.
        """
        if self.covariates is None or self.reference is None:
            return np.ones((len(tasks), 1))
        known = self.covariates if covariates is None else covariates
        return standardised(known.of(tasks), self.reference.covariates)

    def vector(self, own: Shrunk, z: FloatArray) -> FloatArray:
        """Return the message (D,) of a task with this estimate and z (1 + q,), before it is scaled to length 1."""
        averages = self.determined_size * (self.averages @ own.determined)
        return np.concatenate([self.effect_size * own.estimate, averages, z])

    def to_dict(self) -> dict[str, Any]:
        """Return the layout in types that JSON can hold."""
        entries = {
            "coefficients": list(self.coefficients),
            "reference": None if self.reference is None else self.reference.to_dict(),
            "effect_size": self.effect_size,
            "determined_size": self.determined_size,
            "prior_variance": self.prior_variance,
            "weak_prior": self.weak_prior,
        }
        return entries if self.covariates is None else entries | {"covariates": self.covariates.to_dict()}

    @classmethod
    def from_dict(cls, meta: Mapping[str, Any]) -> EffectsLayout:
        """Restore a layout from what :meth:`to_dict` returns. Raises ValueError, KeyError or TypeError for anything else."""
        reference = None if meta["reference"] is None else Reference.from_dict(meta["reference"])
        sizes = (meta["effect_size"], meta["determined_size"], meta["prior_variance"], meta["weak_prior"])
        covariates = Covariates.from_dict(meta["covariates"]) if "covariates" in meta else None
        return cls(tuple(meta["coefficients"]), reference, *sizes, covariates)


def effect_messages(tasks: TaskData | Estimates, layout: EffectsLayout) -> FloatArray:
    """Return one message per task, (D, m), before it is scaled to length 1.

    Each depends on its own rows or its own estimate, on its public name if there are covariates, and on the layout, only.

    Raises:
        ValueError: tasks that do not match the layout, or that have no covariates in it.
    """
    Z = layout.z_of(tasks.tasks)
    if isinstance(tasks, Estimates):
        estimates = estimates_in_layout(tasks, layout).estimates
        return np.stack(
            [_estimates_message(estimate, layout, z) for estimate, z in zip(estimates, Z, strict=True)], axis=1
        )
    tasks = in_layout(tasks, layout)
    return np.stack([_message(tasks.observations_of(i), layout, z) for i, z in enumerate(Z)], axis=1)


def _constant(name: str, value: float) -> float:
    """Return a public constant of a message. Raises ValueError for a value that would leave messages without information."""
    return in_range(name, value, 1e-6, 1e6)


def in_layout(tasks: TaskData, layout: EffectsLayout) -> TaskData:
    """Return the rows that the effects describe: with the intercept if it is an effect, else as contrasts without it.

    Raises:
        ValueError: contrasts, from which a reference's centres cannot be subtracted; an ordinary column named "intercept";
            exposure of an outcome other than counts; weights without a reference; or, with a reference, an intercept that
            the layout does not have, and the reverse.
    """
    if tasks.exposure is not None and layout.outcome != "count":
        raise ValueError(
            f"tasks: expected rows without exposure with outcome={layout.outcome!r}, got some with; counts alone have it, "
            "Reference(..., outcome='count', baseline=rate)"
        )
    if tasks.weights is not None and layout.reference is None:
        raise ValueError("reference: expected reference values of rows that have weights, got none")
    check_intercept(tasks.features, tasks.intercept)
    if layout.reference is not None and tasks.centred:
        raise ValueError(
            "tasks: expected rows, got contrasts, in which the reference's centres have cancelled; give the tasks "
            "themselves, with_intercept() where every task has one"
        )
    if layout.reference is None:
        return tasks.slopes
    if tasks.intercept != layout.intercept:
        raise ValueError(
            "tasks: expected them with an intercept, which the messages share; make them with intercept=True or "
            "with_intercept(), in a shell --intercept"
            if layout.intercept
            else "tasks: expected them without an intercept, as the messages are; in a shell without --intercept"
        )
    return tasks


def _message(own: Observations, layout: EffectsLayout, z: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):  # a warning would reveal something of one task
        units = layout.units(own.X, own.y)
        if layout.outcome == "number" and _constant_target(own.y, layout):
            shrunk = Shrunk(*np.zeros((2, own.X.shape[1])))
        elif layout.outcome == "number":
            shrunk = shrunk_estimate(*rows_of_numbers(own, units), layout.effect_variance, layout.weak_prior)
        else:
            rows = predictors(own, units, layout.outcome)
            shrunk = generalized_estimate(rows, OF_OUTCOMES[layout.outcome], layout.effect_variance)
        vector = layout.vector(shrunk, z)
    return _or_silent(vector, z)


def _constant_target(y: FloatArray, layout: EffectsLayout) -> bool:
    """Return True if a task's targets do not vary, as then its effects would seem to be known exactly.

    A single row has information about levels. But where every task has its own scale, a single 0 has none.
    """
    return (layout.reference is None and not y.any()) or (len(y) > 1 and bool((y == y[0]).all()))


def rows_of_numbers(own: Observations, units: Units) -> tuple[FloatArray, FloatArray]:
    """Return rows (n, d) and targets (n,) in common units, minus guesses, scaled by weights to equal residual variances."""
    root = np.sqrt(own.weights)
    rows = units.rows(own.X)
    return rows * root[:, None], (units.targets(own.y) - rows @ units.guess) * root


def predictors(own: Observations, units: Units, outcome: str) -> Predictors:
    """Return rows in common units for a generalized linear model; none if any target is impossible for this outcome."""
    possible = slice(0, 0) if impossible(outcome, own.y).any() else slice(None)
    rows = units.rows(own.X)
    offset = units.target_centre + rows @ units.guess + np.log(own.exposure)
    return Predictors(rows[possible], targets_of(outcome, own.y)[possible], offset[possible], own.weights[possible])


def _estimates_message(own: Estimate, layout: EffectsLayout, z: FloatArray) -> FloatArray:
    """Return the message of an estimate whose coefficients are the layout's."""
    with np.errstate(all="ignore"):  # a warning would reveal something of one task
        mean, covariance = in_common_units(own, layout)
        shrunk = shrunk_from(mean, covariance, layout.effect_variance, layout.weak_prior)
        return _or_silent(layout.vector(shrunk, z), z)


def _or_silent(vector: FloatArray, z: FloatArray) -> FloatArray:
    """Return the message, or that of a task without information if its numbers are not finite."""
    silent = np.concatenate([np.zeros(len(vector) - len(z)), z])
    return vector if np.isfinite(vector).all() else silent


def estimates_in_layout(estimates: Estimates, layout: EffectsLayout) -> Estimates:
    """Return the estimates in the order of the layout's coefficients.

    Raises:
        ValueError: estimates of other coefficients, or a layout without reference values.
    """
    if layout.reference is None:
        raise ValueError(NO_UNITS)
    return estimates.ordered(layout.coefficients, "the release")


def in_common_units(own: Estimate, layout: EffectsLayout) -> tuple[FloatArray, FloatArray]:
    """Return an estimate (d,), minus guesses, and its covariance (d, d), in the reference's units."""
    units = layout.reference_units
    mean, covariance = units.from_table(own.mean, own.covariance)
    return mean - units.guess, covariance


def coefficients_of(estimates: Estimates, reference: Reference | None) -> tuple[Hashable, ...]:
    """Return the coefficients of a release of estimates, in the public order of the reference, with an intercept last.

    Raises:
        ValueError: estimates of other coefficients than the reference's, or no reference.
    """
    if reference is None:
        raise ValueError(NO_UNITS)
    names = (*reference.features, *((NAME,) if estimates.intercept else ()))
    estimates.ordered(names, "the reference")
    return names


def check_intercept(features: Sequence[Hashable], intercept: bool) -> None:
    """Raise ValueError for an ordinary column named "intercept", the name of the intercept in messages of effects."""
    if NAME in features[: len(features) - intercept]:
        raise ValueError(
            f"features: expected no column of your own that is called {NAME!r}, which in messages of effects is the "
            "intercept; rename it, or, where it is 1 in every row, leave it out and say intercept=True or with_intercept()"
        )


class RowWarnings(NamedTuple):
    """Unusual properties of rows, which only the data owner is told.

    Attributes:
        far: names of tasks, by the column (or "the target") that is far larger than the reference says.
        impossible: names of tasks with targets that the outcome cannot have.
    """

    far: dict[Hashable, list[Hashable]]
    impossible: list[Hashable]


def row_warnings(tasks: TaskData | Estimates, layout: EffectsLayout) -> RowWarnings:
    """Compare rows with the reference values; return what is unusual. Estimates do not show how large columns are."""
    unusual = RowWarnings({}, [])
    if layout.reference is None or isinstance(tasks, Estimates):
        return unusual
    units = layout.reference_units
    for i in range(tasks.num_tasks):
        X, y, *_ = tasks.observations_of(i)
        with np.errstate(all="ignore"):  # a warning would reveal something of one task
            sizes = np.sqrt((units.rows(X) ** 2).mean(axis=0)).tolist()
            sizes.append(np.sqrt((units.targets(y) ** 2).mean()) if layout.outcome == "number" else 0.0)
        for name, size in zip((*layout.coefficients, "the target"), sizes, strict=True):
            if not size <= _FAR:
                unusual.far.setdefault(name, []).append(tasks.tasks[i])
        if impossible(layout.outcome, y).any():
            unusual.impossible.append(tasks.tasks[i])
    return unusual


def warn_owner(parts: Sequence[RowWarnings], outcome: str) -> None:
    """Warn the data owner of everything unusual in parts of its rows (:func:`row_warnings`), with targets of this outcome."""
    far: dict[Hashable, list[Hashable]] = {}
    for part in parts:
        for name, which in part.far.items():
            far.setdefault(name, []).extend(which)
    if far:
        columns = "; ".join(f"{name!r} of {_several(which)}" for name, which in far.items())
        _warn(
            f"tasks: some columns are more than {_FAR:g} times as large as the reference says, as if in other units: "
            f"{columns}. Messages of such rows say little, and their effects are shrunk as if they were ordinary"
        )
    if wrong := [name for part in parts for name in part.impossible]:
        _warn(
            f"tasks: some targets are not {_TARGETS[outcome]}: of {_several(wrong)}. Such a task sends what one without rows "
            "would, and its effects are those of a new task"
        )


_TARGETS = {"number": "numbers", "binary": "0 and 1, or -1 and 1", "count": "whole numbers from 0 on"}


def _several(names: Sequence[Hashable]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if names[3:] else "")


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, skip_file_prefixes=(_PACKAGE,))
