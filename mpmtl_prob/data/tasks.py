"""Data of related tasks (a multi-task data set): rows of all tasks in one object, with the same d features."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import FormerName
from mpmtl_prob._util.html import card
from mpmtl_prob.data.cells import column_names
from mpmtl_prob.data.columns import by_appearance, of_frame, task_labels
from mpmtl_prob.data.contrasts import NAME, in_place
from mpmtl_prob.data.gram import Gram, grams, squares
from mpmtl_prob.data.lists import of_lists, of_targets
from mpmtl_prob.data.observations import Observations, check_plain, of_every_row
from mpmtl_prob.data.padding import (
    Part,
    cells,
    check_shapes,
    check_tasks,
    check_view,
    feature_names,
    fixed,
    offsets_of,
    padded,
    parts_of,
    real_rows,
    some_rows,
    task_names,
)
from mpmtl_prob.data.splits import fold_of_rows, in_first_part

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["TaskData"]

_IN_UNITS = "; features are scaled to unit variance by every task's own rows"


class _Unsaid:
    """Default of an argument for which None has a meaning."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class TaskData:
    """Rows of m tasks, n_i each, with d common features: a JAX pytree of read-only arrays.

    Build one with :meth:`from_lists`, :meth:`from_rows`, :meth:`from_targets`, :meth:`from_pandas` or :meth:`from_xarray`,
    which check their input. Rows are stored once: those of task i from ``offsets[i]`` to ``offsets[i + 1]``, in their
    original order. ``X``, ``y``, ``mask`` and ``subject`` are the same, padded to the longest task and made on demand. They
    may replace the arrays of rows when an object is built or changed, as in ``TaskData(X, y, mask, tasks, features)`` and
    ``dataclasses.replace(tasks, X=X)``.

    Attributes:
        rows: features, (N, d), of the N rows of all tasks together.
        targets: (N,); NaN in data for prediction only.
        offsets: first row of every task, and the end of the last, (m + 1,).
        tasks: task names, m of them.
        features: feature names, d of them.
        subjects: number of every row's subject, (N,), where tasks share subjects (the same person in several tasks). Then
            :meth:`split` and :meth:`folds` keep all rows of a subject together. None if every row has its own subject.
        intercept: True if the last feature is 1 in every row, and its weight every task's own: :meth:`with_intercept`.
        centred: True if rows are contrasts, in which an intercept cancels: :attr:`slopes`.
        scaling: how messages and estimators scale the features by every task's own rows, unless they are told otherwise:
            "unit_variance" for tasks from a table, whose columns may be age and income; "pareto", by the square root of
            that, for tasks from arrays. It never depends on the rows.
        has_targets: False if rows were made without targets: then they can only be predicted.
        exposure: for counts, time at risk or number of chances of every row, (N,): :meth:`with_exposure`. None if all are 1.
        weights: how much every row counts, (N,): :meth:`with_weights`. None if all count alike.
        numbered: True if tasks were given no names: 0..m-1 are then positions, by which fits match them.
    """

    rows: FloatArray
    targets: FloatArray
    offsets: NDArray[np.int64]
    tasks: tuple[Hashable, ...]
    features: tuple[Hashable, ...]
    subjects: NDArray[np.int64] | None
    intercept: bool
    centred: bool
    scaling: str
    numbered: bool
    has_targets: bool
    exposure: FloatArray | None
    weights: FloatArray | None

    longest: ClassVar[int]  # rows of the longest task; not a field, as it follows from the offsets

    def __init__(
        self,
        X: Any = None,
        y: Any = None,
        mask: Any = None,
        tasks: Sequence[Hashable] = (),
        features: Sequence[Hashable] = (),
        subject: Any = _Unsaid,
        intercept: bool = False,
        centred: bool = False,
        scaling: str = "pareto",
        numbered: bool = False,
        has_targets: bool = True,
        *,
        rows: Any = None,
        targets: Any = None,
        offsets: Any = None,
        subjects: Any = None,
        exposure: Any = None,
        weights: Any = None,
    ) -> None:
        """Build from arrays of rows, from padded arrays, or from rows, some replaced by padded arrays. Nothing is checked."""
        if not (X is y is mask is None and subject is _Unsaid):
            real = real_rows(offsets, _longest(offsets)) if mask is None else np.asarray(mask)
            selected = slice(None) if mask is None or offsets is None else some_rows(real, offsets)
            rows, targets = (
                given[real] if given is not None else None if flat is None else flat[selected]
                for given, flat in ((X, rows), (y, targets))
            )
            subjects, exposure, weights = (
                None if flat is None else flat[selected] for flat in (subjects, exposure, weights)
            )
            if subject is not _Unsaid:
                subjects = None if subject is None else subject[real]
            offsets = offsets_of(real.sum(axis=1))
        arrays = (rows, targets, offsets, tuple(tasks), tuple(features), subjects)
        for name, value in zip(
            _NAMES, (*arrays, intercept, centred, scaling, numbered, has_targets, exposure, weights), strict=True
        ):
            object.__setattr__(self, name, fixed(value))
        object.__setattr__(self, "longest", _longest(self.offsets))

    @classmethod
    def from_lists(
        cls,
        X: Sequence[ArrayLike],
        y: Sequence[ArrayLike] | None,
        *,
        tasks: Sequence[Hashable] | None = None,
        features: Sequence[Hashable] | None = None,
        subject: Sequence[ArrayLike] | None = None,
    ) -> Self:
        """Build tasks from one feature matrix and one target vector per task.

        Args:
            X: m matrices, the i-th n_i x d.
            y: m vectors, the i-th of length n_i. None if no target is known: such rows can only be predicted.
            tasks: task names; default 0..m-1.
            features: feature names; default the columns of data frames, or 0..d-1.
            subject: m vectors of whole numbers, the subject of every row, where tasks share subjects.

        Raises:
            ValueError: no tasks, a task without rows, shapes that disagree, values that are not finite or beyond 1e150, two
                spellings of one name, such as 7 and "7", or a name that no file can hold.
        """
        arrays, names, columns = of_lists(X, y, tasks, features, subject)
        return cls(**arrays, tasks=names, features=columns, numbered=tasks is None, has_targets=y is not None)

    @classmethod
    def from_rows(
        cls, X: ArrayLike, y: ArrayLike | None, task: ArrayLike, *, features: Sequence[Hashable] | None = None
    ) -> Self:
        """Build tasks from one long table: rows X (n, d), targets y (n,) and the task of every row (n,).

        Tasks are ordered by first appearance. y may be None, as in :meth:`from_lists`. Raises ValueError for rows without a
        task, and as :meth:`from_lists`.
        """
        names = column_names(X) if features is None else features
        X, task = cells("X", X), np.asarray(task_labels(task))
        if X.ndim != 2:
            raise ValueError(f"X: expected a matrix (rows, features), got shape {X.shape}")
        return cls._of_table(X, None if y is None else cells("y", y), task, names or None)

    @classmethod
    def _of_table(
        cls, X: FloatArray, targets: FloatArray | None, task: Any, names: Sequence[Hashable] | None, own: bool = False
    ) -> Self:
        """Build from a table's rows (n, d); with ``own`` the array may be kept without a copy, if rows are in order."""
        known = X.shape[:1] if targets is None else targets.shape
        if known != X.shape[:1] or task.shape != X.shape[:1]:
            raise ValueError(f"y and task: expected one value per row of X ({len(X)}), got {known} and {task.shape}")
        tasks, place = by_appearance(task)
        return cls._of_places(X, targets, tasks, place, names, own)

    @classmethod
    def _of_places(
        cls,
        X: FloatArray,
        targets: FloatArray | None,
        tasks: Sequence[Hashable],
        place: NDArray[np.int64],
        names: Sequence[Hashable] | None,
        own: bool = False,
    ) -> Self:
        """Build from a table's rows as :meth:`_of_table`, with each row's position (n,) among the tasks."""
        if len(tasks) == 0:
            raise ValueError("X: expected at least one task, got none")
        y = np.full(len(X), np.nan) if targets is None else targets
        known = task_names(tasks, len(tasks))
        offsets = offsets_of(np.bincount(place))
        if own and (place[1:] >= place[:-1]).all():
            rows = X
        else:
            order = np.argsort(place, kind="stable")
            rows, y = X[order], y[order]
        check_shapes(known[0], rows[: offsets[1]], y[: offsets[1]], X.shape[1])
        columns = feature_names(names, [], X.shape[1])
        check_tasks(known, rows, None if targets is None else y, offsets, columns)
        arrays: dict[str, Any] = {"rows": rows, "targets": y, "offsets": offsets}
        return cls(**arrays, tasks=known, features=columns, has_targets=targets is not None)

    @classmethod
    def from_targets(
        cls,
        X: ArrayLike,
        Y: ArrayLike,
        observed: ArrayLike | None = None,
        *,
        tasks: Sequence[Hashable] | None = None,
        features: Sequence[Hashable] | None = None,
    ) -> Self:
        """Build one task per target of the same subjects; a task holds the subjects whose target was observed.

        Args:
            X: features, (subjects, d).
            Y: targets, (subjects, m); cells that were not observed are ignored.
            observed: True where a target was observed, (subjects, m); default everywhere.
            tasks: as in :meth:`from_lists`; default the names of a data frame's columns.
            features: as in :meth:`from_lists`.

        Raises:
            ValueError: shapes that disagree, and as :meth:`from_lists`.
        """
        xs, ys, rows, names, columns = of_targets(X, Y, observed, tasks, features)
        return cls.from_lists(xs, ys, tasks=names, features=columns, subject=rows)

    @classmethod
    def from_pandas(
        cls,
        frame: Any,
        *,
        task: str,
        target: str | None,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        intercept: bool = False,
        exposure: str | None = None,
        weights: str | None = None,
    ) -> Self:
        """Build tasks from a data frame with one row per observation, whose columns may be in any units: see ``scaling``.

        Args:
            frame: a data frame of any kind that narwhals knows: pandas, polars, Arrow and others.
            task: the column with the task of every row.
            target: the column to predict; None if there is none, as in :meth:`from_lists`.
            features: feature columns; default every other column. Check the list, ``tasks.features``: another outcome in the
                table reveals the target (leakage), and is seldom known when rows are predicted.
            exclude: columns that are not features.
            intercept: give every task an intercept of its own: :meth:`with_intercept`.
            exposure: the column of :meth:`with_exposure`, which is not a feature.
            weights: the column of :meth:`with_weights`, which is not a feature.

        Raises:
            ValueError: a named column that is missing or has two meanings, a feature that is not numeric, and as
                :meth:`from_rows`.
        """
        extra_columns = {
            name: given for name, given in (("exposure", exposure), ("weights", weights)) if given is not None
        }
        X, y, labels, columns, further = of_frame(frame, task, target, features, exclude, extra_columns)
        tasks = replace(cls._of_table(X, y, labels, columns or None, own=True), scaling="unit_variance")
        del X, y
        if further:
            order = np.argsort(by_appearance(labels)[1], kind="stable")
            counts = tasks.row_counts
            arrays: dict[str, Any] = {name: of_every_row(name, flat[order], counts) for name, flat in further.items()}
            tasks = replace(tasks, **arrays)
        return tasks.with_intercept() if intercept else tasks

    @classmethod
    def from_xarray(
        cls, data: xr.Dataset, *, task: str = "task", target: str | None = "y", features: str = "X"
    ) -> Self:
        """Build tasks from a data set with ``features`` (row, feature), ``target`` (row,) or None, and ``task`` (row,)."""
        for argument, name in (("task", task), ("target", target), ("features", features)):
            if name is not None and name not in data.variables:
                raise ValueError(f"{argument}: no variable {name!r} in the data set; it has {list(data.variables)}")
        X = data[features]
        if X.ndim != 2:
            raise ValueError(f"features: expected {features!r} with two dimensions (row, feature), got {X.dims}")
        row, column = (X.dims[0], X.dims[1]) if X.dims[0] in data[task].dims else (X.dims[1], X.dims[0])
        names = data[column].values.tolist() if column in data.coords else None
        y = None if target is None else data[target]
        return cls.from_rows(X.transpose(row, column), y, data[task], features=names)

    @property
    def num_tasks(self) -> int:
        """Number of tasks, m."""
        return len(self.offsets) - 1

    @property
    def num_features(self) -> int:
        """Number of features, d."""
        return self.rows.shape[1]

    @property
    def num_rows(self) -> int:
        """Number of rows of all tasks together, N."""
        return int(self.offsets[-1])

    @property
    def row_counts(self) -> NDArray[np.int64]:
        """Number of rows n_i of every task, (m,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def task_of_rows(self) -> NDArray[np.int64]:
        """Index of every row's task, (N,)."""
        if isinstance(self.offsets, np.ndarray):
            return np.repeat(np.arange(self.num_tasks), self.row_counts)
        import jax.numpy as jnp

        return jnp.searchsorted(self.offsets, jnp.arange(len(self.targets)), side="right") - 1

    @property
    def X(self) -> FloatArray:
        """``rows`` padded to the longest task, (m, n_max, d), with zeros after a task's own rows; read-only.

        Raises ValueError if that would take more than 1 GiB, and more than twice the memory of the rows.
        """
        return self._padded("X", self.rows)

    @property
    def y(self) -> FloatArray:
        """``targets`` padded, (m, n_max), as ``X``."""
        return self._padded("y", self.targets)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a padded array holds a row, (m, n_max)."""
        check_view("mask", (self.num_tasks, self.longest), 1, self.rows.nbytes)
        mask: NDArray[np.bool_] = fixed(real_rows(self.offsets, self.longest))
        return mask

    @property
    def subject(self) -> NDArray[np.int64] | None:
        """``subjects`` padded, (m, n_max), as ``X``, with the smallest subject number as padding."""
        if self.subjects is None:
            return None
        return self._padded("subject", self.subjects, self.subjects.min() if len(self.subjects) else 0)

    def _padded(self, name: str, flat: Any, fill: Any = 0) -> Any:
        shape = (self.num_tasks, self.longest, *flat.shape[1:])
        check_view(name, shape, flat.dtype.itemsize, flat.nbytes)
        return fixed(padded(flat, self.offsets, self.longest, fill))

    def check_targets(self, name: str = "tasks", *, plain: bool = True) -> None:
        """Raise ValueError for rows without targets, which cannot be fitted.

        With ``plain``, exposure and weights are refused too. ``name`` is that of the argument, for the error.
        """
        if not self.has_targets:
            raise ValueError(f"{name}: expected rows with targets, got rows made without, which can be predicted alone")
        if plain:
            check_plain(name, self.exposure, self.weights)

    own = FormerName("rows_of")

    def rows_of(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Return the rows of task i without padding, X_i (n_i, d) and y_i (n_i,), as copies in float64.

        Results computed from them do not depend on another task in any bit, as the copies lie in memory of their own. Raises
        ValueError for rows without targets, or with exposure or weights: see :meth:`observations_of`.
        """
        self.check_targets()
        own = slice(*self.offsets[i : i + 2] if i >= 0 else self.offsets[i + self.num_tasks :][:2])
        return np.array(self.rows[own], dtype=np.float64), np.array(self.targets[own], dtype=np.float64)

    def observations_of(self, i: int) -> Observations:
        """Return copies of the rows of task i as :meth:`rows_of`, with exposure and weights, which are 1 by default."""
        self.check_targets(plain=False)
        own = slice(*self.offsets[i : i + 2])
        X, y = np.array(self.rows[own], dtype=np.float64), np.array(self.targets[own], dtype=np.float64)
        return Observations(
            X, y, *(np.ones(len(y)) if v is None else np.array(v[own]) for v in (self.exposure, self.weights))
        )

    def take(self, places: ArrayLike) -> Self:
        """Return the tasks at these places, whole numbers from 0 to m - 1, in this order."""
        at = np.atleast_1d(np.asarray(places, dtype=np.int64))
        if not len(at):
            raise ValueError("places: expected those of at least one task, got none")
        names, counts = tuple(self.tasks[i] for i in at), self.row_counts[at]
        offsets = offsets_of(counts)
        return self._with(np.repeat(self.offsets[at] - offsets[:-1], counts) + np.arange(offsets[-1]), offsets, names)

    def where(self, keep: ArrayLike) -> Self:
        """Return the rows where keep (N,) is True. Raises ValueError if a task would have none."""
        chosen = np.flatnonzero(keep)
        counts = np.add.reduceat(np.asarray(keep, dtype=np.int64), self.offsets[:-1])
        if (empty := np.flatnonzero(counts == 0)).size:
            raise ValueError(f"X: task {self.tasks[empty[0]]!r} has no rows; every task needs at least one")
        return self._with(chosen, offsets_of(counts), self.tasks)

    def _with(self, chosen: NDArray[np.int64], offsets: NDArray[np.int64], names: tuple[Hashable, ...]) -> Self:
        """Return the chosen rows, which belong to the tasks with these names."""
        arrays: dict[str, Any] = {
            name: None if (flat := getattr(self, name)) is None else flat[chosen] for name in _OF_ROWS
        }
        return replace(self, **arrays, offsets=offsets, tasks=names)

    @cached_property
    def gram(self) -> Gram:
        """Sufficient statistics X_i'X_i, X_i'y_i, y_i'y_i and n_i of every task, from its :meth:`rows_of`; computed once."""
        return grams(self.rows_of, self.num_tasks, self.num_features)

    @cached_property
    def squares(self) -> FloatArray:
        """Sums of squares of every task's features, (m, d): the diagonals of :attr:`gram`, without keeping the matrices."""
        return squares(self.rows_of, self.num_tasks, self.num_features)

    def with_intercept(self) -> Self:
        """Add a last feature "intercept", 1 in every row, whose weight is every task's own intercept; return the new tasks.

        For numeric targets nothing shrinks the intercept, no message contains it, and intervals include its uncertainty.
        :mod:`mpmtl_prob.data.intercepts` explains this, and labels. Raises ValueError for a feature of this name.
        """
        if NAME in self.features:
            raise ValueError(f"features: expected none named {NAME!r} beside the intercept, got {list(self.features)}")
        rows = np.column_stack([self.rows, np.ones(self.num_rows)])
        return replace(self, rows=rows, features=(*self.features, NAME), intercept=True)

    def with_exposure(self, exposure: ArrayLike | Sequence[ArrayLike]) -> Self:
        """Return these tasks of counts with an exposure of every row: patient days, person years, people at risk.

        The expected count is the exposure times the rate. Only mixed models of counts use it.

        Args:
            exposure: one positive number for every row, task after task, or one vector per task.

        Raises:
            ValueError: a wrong number of values, or one that is not positive and finite.
        """
        return replace(self, exposure=of_every_row("exposure", exposure, self.row_counts))

    def with_weights(self, weights: ArrayLike | Sequence[ArrayLike]) -> Self:
        """Return these tasks with a weight of every row; a row of weight 2 counts as two equal rows.

        With numeric targets, the error of a row then has variance sigma^2 / weight. Only mixed models use weights.

        Args:
            weights: as exposure in :meth:`with_exposure`.

        Raises:
            ValueError: a wrong number of values, or one that is not positive and finite.
        """
        return replace(self, weights=of_every_row("weights", weights, self.row_counts))

    @property
    def slopes(self) -> Self:
        """Contrasts of every task, in which an intercept cancels (:mod:`~mpmtl_prob.data.contrasts`); else the tasks."""
        return (
            self._contrasts if self.intercept else self
        )  # not cached as self: a reference cycle would keep it in memory

    @cached_property
    def _contrasts(self) -> Self:
        counts = np.maximum(self.row_counts - 1, 1)  # a single row has a contrast of zeros
        offsets, d = offsets_of(counts), self.num_features - 1
        rows, targets = np.empty((offsets[-1], d)), np.empty(offsets[-1])
        for i, (begin, end) in enumerate(pairwise(offsets)):
            contrasts, y = self.rows_of(i)
            contrasts[:, -1] = y  # replaces the constant column
            contrasts = in_place(contrasts)
            rows[begin:end], targets[begin:end] = contrasts[:, :-1], contrasts[:, -1]
        return type(self)(
            rows=rows,
            targets=targets,
            offsets=offsets,
            tasks=self.tasks,
            features=self.features[:-1],
            centred=True,
            scaling=self.scaling,
            numbered=self.numbered,
        )

    def split(self, fraction: float, seed: int) -> tuple[TaskData, TaskData]:
        """Split rows at random into training and test rows, in each task separately; where tasks share subjects, by subject.

        Args:
            fraction: share of every task's rows, or of all subjects, that goes to training, in (0, 1). Both parts keep at
                least one row of every task, and the training part two if there is an intercept.
            seed: seed of the random choice.

        Raises:
            ValueError: fraction outside (0, 1), a task with too few rows, or one whose subjects all fell into one part.
        """
        least = 1 + self.intercept
        first = in_first_part(self.row_counts, self.subjects, fraction, seed, least, self.tasks)
        return self.where(first), self.where(~first)

    def folds(self, k: int, seed: int) -> list[tuple[TaskData, TaskData]]:
        """Return k folds of cross-validation, each (training, validation), split in every task separately.

        Every task needs k rows. Where tasks share subjects, the subjects are split instead.
        """
        fold = fold_of_rows(self.row_counts, self.subjects, k, seed)
        return [(self.where(fold != j), self.where(fold == j)) for j in range(k)]

    def unit_rows(self) -> TaskData:
        """Return the tasks with every row scaled to Euclidean length 1, without the intercept; rows of zeros stay zero."""
        d = self.num_features - self.intercept
        norm = np.linalg.norm(self.rows[:, :d], axis=1, keepdims=True)
        rows = self.rows / np.where(norm > 0, norm, 1.0)
        rows[:, d:] = self.rows[:, d:]
        return replace(self, rows=rows)

    def scaled(self, scale: FloatArray) -> Self:
        """Return the tasks with the features of task i times ``scale[i]``, (m, d), and with ``scaling="none"``."""
        rows = np.repeat(scale, self.row_counts, axis=0)
        rows *= self.rows
        return replace(self, rows=rows, scaling="none")

    def moved(self, by: FloatArray) -> Self:
        """Return the tasks with ``by[i]`` added to the features of task i, (m, d)."""
        rows = np.repeat(by, self.row_counts, axis=0)
        rows += self.rows
        return replace(self, rows=rows)

    def to_pandas(self, *, task: str = "task", target: str = "y") -> pd.DataFrame:
        """Return one row per observation: the task, the features without the intercept, and the target if there is one."""
        import pandas as pd

        d = self.num_features - self.intercept
        frame = pd.DataFrame(self.rows[:, :d].copy(), columns=list(self.features[:d]))
        frame.insert(0, task, np.repeat(np.asarray(self.tasks, dtype=object), self.row_counts))
        if self.has_targets:
            frame[target] = self.targets.copy()
        return frame

    def fingerprint_parts(self) -> Iterator[Part]:
        """Yield the parts of a fingerprint, as :func:`mpmtl_prob.data.padding.parts_of`."""
        return parts_of(self.rows, self.targets, self.offsets, self.exposure, self.weights)

    def __repr__(self) -> str:  # shows no rows, as notebooks print their last value
        if not isinstance(self.offsets, np.ndarray):  # JAX's traced arrays and placeholders have no values
            import jax

            if not isinstance(self.offsets, jax.Array) or isinstance(self.offsets, jax.core.Tracer):
                return "TaskData(...)"
        n = np.asarray(self.row_counts)
        return (
            f"TaskData({self.num_tasks} tasks, {self.num_features} features, {self.num_rows} rows, "
            f"{n.min()} to {n.max()} per task{'' if self.has_targets else ', no targets'}"
            f"{_IN_UNITS if self.scaling == 'unit_variance' else ''})"
        )

    def _repr_html_(self) -> str:
        n = np.asarray(self.row_counts)
        shown = [str(name) for name in self.features[:8]] + ["..."] * (self.num_features > 8)
        facts = {
            "tasks": self.num_tasks,
            "features": f"{self.num_features}: {', '.join(shown)}",
            "rows": f"{self.num_rows}, from {n.min()} to {n.max()} per task, median {np.median(n):g}",
        }
        if self.scaling == "unit_variance":
            facts["scaling"] = "to unit variance, by every task's own rows"
        return card("TaskData", facts, "Rows are private, and not shown.")


_NAMES = tuple(field.name for field in fields(TaskData))
_OF_ROWS = ("rows", "targets", "subjects", "exposure", "weights")


def _longest(offsets: Any) -> int:
    """Return the number of rows of the longest task."""
    return int(np.diff(offsets).max(initial=0))
