"""Estimates from models fitted elsewhere, with covariances: a task can take part with these in the place of rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.cells import (
    as_matrix,
    as_numbers,
    as_vector,
    check_spelling,
    file_name,
    frame_columns,
    is_frame,
    label_text,
)
from mpmtl_prob.data.columns import check_columns, task_labels
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.matching import default, match_names
from mpmtl_prob.data.padding import LARGEST, Part, fixed, task_names

#: Names of the intercept in R, in SAS and formulas, in Stata, and in statsmodels.
INTERCEPTS = (NAME, "(Intercept)", "Intercept", "_cons", "const")
#: Relative asymmetry of a covariance that counts as rounding; smallest eigenvalue of a correlation matrix that is accepted.
_ROUNDED, _PERFECT = 1e-6, 1e-10


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Estimate:
    """Estimate of one task's effects with its covariance, from any model and program: R, SAS, Stata, statsmodels.

    It stands for rows that the data owner keeps elsewhere, by the normal approximation N(mean | effects, covariance) of a
    meta-analysis. The estimate should come from least squares or maximum likelihood. One that a prior or a penalty has
    already shrunk would be shrunk twice.

    Args:
        mean: the coefficients, (d,), each the change of the target, or of the linear predictor (log odds, log hazard), for
            one unit of its column. A Series or a mapping brings its names.
        covariance: their covariance matrix, (d, d), such as R's ``vcov``. A data frame's columns are matched by name.
        coefficients: their names; by default those that the numbers bring, else 0, 1, ... Where the numbers bring names, this
            argument selects some of them, in this order; the model has adjusted for the others. The names of the intercept in
            R, SAS, Stata and statsmodels, "(Intercept)", "Intercept", "_cons" and "const", become "intercept".

    Attributes:
        mean: (d,), which only the data owner should see.
        covariance: (d, d), likewise.
        coefficients: their names, d of them.

    Raises:
        ValueError: numbers that are not finite, a covariance of a wrong size, or one that is not symmetric and positive
            definite, or names that are missing or occur twice.

    >>> mp.Estimate([0.08, 1.1], [[0.0004, 0.0], [0.0, 0.09]], coefficients=["age", "male"])
    Estimate(2 coefficients: age, male)
    """

    mean: FloatArray
    covariance: FloatArray
    coefficients: tuple[Hashable, ...]

    def __init__(
        self,
        mean: ArrayLike | Mapping[Hashable, float],
        covariance: ArrayLike,
        coefficients: Sequence[Hashable] | None = None,
    ) -> None:
        values, labels = _vector(mean)
        matrix, columns = _matrix(covariance)
        if coefficients is not None:
            if isinstance(coefficients, str):
                raise ValueError(f"coefficients: expected a list of names, got the text {coefficients!r}")
            names = _names("coefficients", coefficients)
        else:
            names = labels or columns or tuple(range(len(values)))
        if not names:
            raise ValueError("mean: expected numbers of one coefficient at least, got none")
        values = values[_places("mean", names, labels, len(values))]
        place = _places("covariance", names, columns, len(matrix))
        object.__setattr__(self, "mean", fixed(values))
        object.__setattr__(self, "covariance", fixed(_checked(values, matrix[np.ix_(place, place)])))
        object.__setattr__(self, "coefficients", names)

    def take(self, coefficients: Sequence[Hashable]) -> Self:
        """Return the estimate of these coefficients, in this order. Raises ValueError for other names."""
        place = match_names("coefficients", coefficients, self.coefficients, of="the estimate", advice=_ADVICE)
        return type(self)(self.mean[place], self.covariance[np.ix_(place, place)], tuple(coefficients))

    def __repr__(self) -> str:  # shows no private numbers, as notebooks print their last value
        return f"Estimate({_counted(self.coefficients)})"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Estimates:
    """Estimates of one or several tasks, which may take the place of a :class:`~mpmtl_prob.data.TaskData`.

    Args:
        estimates: a mapping from tasks' names to estimates, or a sequence of estimates.
        tasks: names for a sequence; default 0, 1, ...
        coefficients: the coefficients to take, in this order; default all of the first task, with the intercept last.

    Attributes:
        estimates: one for every task, all with the same coefficients in the same order.
        tasks: their names.

    Raises:
        ValueError: no estimates, or estimates of other coefficients than the first.

    >>> estimates = mp.Estimates({"A": mp.Estimate([0.5], [[0.04]], ["age"]), "B": mp.Estimate([0.3], [[0.01]], ["age"])})
    >>> estimates
    Estimates(2 tasks, 1 coefficient: age)
    """

    estimates: tuple[Estimate, ...]
    tasks: tuple[Hashable, ...]

    def __init__(
        self,
        estimates: Mapping[Hashable, Estimate] | Sequence[Estimate],
        tasks: Sequence[Hashable] | None = None,
        coefficients: Sequence[Hashable] | None = None,
    ) -> None:
        if isinstance(estimates, Mapping):
            if tasks is not None:
                raise ValueError("tasks: expected none with a mapping, which has the names of tasks")
            tasks, estimates = tuple(estimates), tuple(estimates.values())
        every = (estimates,) if isinstance(estimates, Estimate) else tuple(estimates)
        if not every or not all(isinstance(estimate, Estimate) for estimate in every):
            kinds = sorted({type(other).__name__ for other in every if not isinstance(other, Estimate)})
            raise ValueError(f"estimates: expected an Estimate of every task, got {', '.join(kinds) or 'none'}")
        names = task_names(tasks, len(every))
        names_taken = _intercept_last(every[0].coefficients) if coefficients is None else tuple(coefficients)
        ordered = []
        for name, estimate in zip(names, every, strict=True):
            if coefficients is None and len(estimate.coefficients) != len(names_taken):
                raise ValueError(
                    f"estimates: task {name!r}: expected the coefficients {list(names_taken)} of the first, got "
                    f"{list(estimate.coefficients)}; say which are taken, coefficients=[...]"
                )
            try:
                ordered.append(estimate.take(names_taken))
            except ValueError as error:
                raise ValueError(f"estimates: task {name!r}: {error}") from None
        object.__setattr__(self, "estimates", tuple(ordered))
        object.__setattr__(self, "tasks", names)

    @classmethod
    def from_pandas(
        cls, frame: Any, *, task: str = "task", coefficient: str = "coefficient", estimate: str = "estimate"
    ) -> Self:
        """Read estimates from a table: one row per task and coefficient, with the covariance in columns named by coefficient.

        In R, for the fit of one task: ``data.frame(task = "A", coefficient = names(coef(fit)), estimate = coef(fit),
        vcov(fit), check.names = FALSE)``.

        Args:
            frame: a data frame of any kind that narwhals knows.
            task: the column of tasks' names.
            coefficient: the column of coefficients' names.
            estimate: the column of estimates.

        Raises:
            ValueError: a missing column, or numbers that :class:`Estimate` refuses, with the task's name.
        """
        if not is_frame(frame):
            raise ValueError(f"frame: expected a data frame, of pandas, polars or Arrow, got {type(frame).__name__}")
        columns = frame_columns(frame)
        every = [name for name, _ in columns]
        check_columns(every, task, None, [])
        for argument, name in (("coefficient", coefficient), ("estimate", estimate)):
            if every.count(name) != 1:
                raise ValueError(f"{argument}: expected one column {name!r} in the frame, got {every.count(name)}")
        others = [name for name in every if name not in (task, coefficient, estimate)]
        table = dict(columns)
        labels = task_labels(table[task]).tolist()
        names, values = list(table[coefficient]), as_numbers(table[estimate])
        matrix = np.column_stack([as_numbers(table[name]) for name in others]) if others else np.zeros((len(labels), 0))
        rows_of: dict[Hashable, list[int]] = {}
        for i, label in enumerate(labels):
            rows_of.setdefault(label, []).append(i)
        of_tasks = {}
        for label, rows in rows_of.items():
            try:
                of_task = _names("coefficient", [names[i] for i in rows])
                place = _places("covariance", of_task, _names("covariance", others), len(others))
                of_tasks[label] = Estimate(values[rows], matrix[np.ix_(rows, place)], of_task)
            except ValueError as error:
                raise ValueError(f"frame: task {label!r}: {error}") from None
        return cls(of_tasks)

    @property
    def features(self) -> tuple[Hashable, ...]:
        """Names of the coefficients, d of them; an intercept is called "intercept"."""
        return self.estimates[0].coefficients

    @property
    def intercept(self) -> bool:
        """True if the intercept is among the coefficients."""
        return NAME in self.features

    @property
    def num_tasks(self) -> int:
        """Number of tasks, m."""
        return len(self.tasks)

    def ordered(self, coefficients: Sequence[Hashable], of: str) -> Self:
        """Return the same estimates with all their coefficients in this order.

        Args:
            coefficients: names of all coefficients.
            of: whose coefficients these are, for the error.

        Raises:
            ValueError: other coefficients than those of the estimates.
        """
        names = tuple(coefficients)
        here, there = (set(map(label_text, some)) for some in (self.features, names))
        if here != there:
            got = [f"none of {sorted(there - here)}"] if there - here else []
            got += [f"others: {sorted(here - there)}"] if here - there else []
            raise ValueError(f"estimates: expected the coefficients of {of}, got {' and '.join(got)}; {_ADVICE}")
        return type(self)(self.estimates, self.tasks, names)

    def fingerprint_parts(self) -> Iterator[Part]:
        """Yield the parts of a fingerprint: every task's mean and covariance, in order."""
        for estimate in self.estimates:
            for array in (estimate.mean, estimate.covariance):
                yield array.shape, array.dtype, iter((np.ascontiguousarray(array).tobytes(),))

    def __repr__(self) -> str:  # shows no private numbers
        return f"Estimates({self.num_tasks} task{'s' * (self.num_tasks > 1)}, {_counted(self.features)})"


_ADVICE = "give coefficients the names that they have there, and take the study's alone, coefficients=[...]"


def _counted(names: Sequence[Hashable]) -> str:
    shown = ", ".join(map(str, names[:8])) + (", ..." if names[8:] else "")
    return f"{len(names)} coefficient{'s' * (len(names) > 1)}: {shown}"


def _intercept_last(names: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    return (*(name for name in names if name != NAME), *(name for name in names if name == NAME))


def _names(argument: str, given: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Return names as files hold them, with "intercept" for the intercept. Raises ValueError for none, or a repeated name."""
    names = tuple(NAME if label_text(name) in INTERCEPTS else file_name(name) for name in given)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{argument}: expected distinct names of one coefficient at least, got {list(names)}")
    check_spelling(argument, "coefficient", names)
    return names


def _labels(argument: str, given: Sequence[Hashable]) -> tuple[Hashable, ...] | None:
    """Return the names that the numbers bring; None if these are just 0, 1, ..."""
    return None if default(tuple(given)) else _names(argument, given)


def _vector(mean: Any) -> tuple[FloatArray, tuple[Hashable, ...] | None]:
    """Return numbers (d,), and their names if they have any."""
    if isinstance(mean, Mapping):
        return as_numbers(list(mean.values())), _names("mean", list(mean))
    if np.ndim(mean) == 0 and not isinstance(mean, str | bytes):
        mean = [mean]
    if len(shape := np.shape(mean)) > 1:
        raise ValueError(f"mean: expected one number for every coefficient, got shape {shape}")
    values = as_vector("mean", mean)
    labels = list(mean.index) if hasattr(mean, "index") and hasattr(mean, "to_numpy") else []  # a Series of pandas
    return values, _labels("mean", labels) if labels else None


def _matrix(covariance: Any) -> tuple[FloatArray, tuple[Hashable, ...] | None]:
    """Return a matrix (d, d) whose rows are in the order of its columns, and the names of these, if any."""
    if not is_frame(covariance) and np.ndim(covariance) == 0 and not isinstance(covariance, str | bytes):
        covariance = [[covariance]]
    values = as_matrix("covariance", covariance)
    if values.shape[0] != values.shape[1]:
        raise ValueError(f"covariance: expected as many rows as columns, got shape {values.shape}")
    if not is_frame(covariance):
        return values, None
    columns = _labels("covariance", [name for name, _ in frame_columns(covariance)])
    rows = _labels("covariance", list(covariance.index)) if hasattr(covariance, "index") else None
    if columns is not None and rows is not None:
        values = values[match_names("covariance", columns, rows, of="its rows", advice="name rows as columns are")]
    return values, columns


def _places(
    argument: str, names: tuple[Hashable, ...], labels: tuple[Hashable, ...] | None, size: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the positions of the named coefficients among these labels; 0, 1, ... where there are no labels."""
    if labels is not None:
        return match_names(argument, names, labels, of="the estimate", advice=_ADVICE)
    if size != len(names):
        raise ValueError(f"{argument}: expected numbers of {len(names)} coefficients, got {size}")
    return np.arange(size)


def _checked(mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the covariance, exactly symmetric. Raises ValueError for impossible numbers, without showing them."""
    for argument, values in (("mean", mean), ("covariance", covariance)):
        if bad := int(np.sum(~np.isfinite(values))):
            raise ValueError(
                f"{argument}: expected finite numbers, got {bad} that are not; leave coefficients out that could not be "
                "estimated"
            )
        if large := int(np.sum(np.abs(values) > LARGEST)):
            raise ValueError(f"{argument}: expected numbers up to {LARGEST:g}, got {large} beyond")
    variances = np.diag(covariance)
    if not np.all(variances > 0):
        raise ValueError(f"covariance: expected variances above 0, got {int(np.sum(variances <= 0))} that are not")
    sd = np.sqrt(variances)
    correlation = covariance / sd[:, None] / sd
    if not np.all(np.abs(correlation - correlation.T) <= _ROUNDED):
        raise ValueError("covariance: expected a symmetric matrix, got another")
    if np.linalg.eigvalsh((correlation + correlation.T) / 2)[0] <= _PERFECT:
        raise ValueError(
            "covariance: expected a positive definite matrix, got another; leave out coefficients that the others determine"
        )
    return (covariance + covariance.T) / 2
