"""Many related data sets as one object: ragged tasks, padded and masked, with the same d features in each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array, in_range, whole
from mpmtl_prob._util.former import FormerName
from mpmtl_prob._util.html import card
from mpmtl_prob.data.cells import column_names, frame_columns, is_frame
from mpmtl_prob.data.columns import check_columns, chosen, numeric_columns, task_labels
from mpmtl_prob.data.contrasts import NAME, contrasts
from mpmtl_prob.data.gram import Gram, gram
from mpmtl_prob.data.padding import cells, check_numbers, check_shapes, feature_names, stacked, subjects, task_names

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["TaskData"]

_IN_UNITS = "; features are scaled to unit variance by every task's own rows"


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["X", "y", "mask", "subject"],
    meta_fields=["tasks", "features", "intercept", "centred", "scaling", "numbered", "has_targets"],
)
@dataclass(frozen=True, eq=False, repr=False)
class TaskData:
    """m tasks with n_i rows each and d common features; a JAX pytree whose leaves are its arrays.

    Build one with :meth:`from_lists`, :meth:`from_rows`, :meth:`from_targets`, :meth:`from_pandas` or
    :meth:`from_xarray`, which check their input. Padding rows are zero and masked.

    Attributes:
        X: features, (m, n_max, d).
        y: targets, (m, n_max); NaN in every row of data that are for prediction alone.
        mask: True where a row is real, (m, n_max).
        tasks: task names, m of them.
        features: feature names, d of them.
        subject: whom a row is about, (m, n_max), where tasks share subjects: :meth:`split` and :meth:`folds` then keep
            all rows of a subject together, whatever the task. None where every row is about somebody else.
        intercept: True where the last feature is 1 in every row, and its weight every task's own: :meth:`with_intercept`.
        centred: True where rows are contrasts, in which an intercept cancelled: :attr:`slopes`.
        scaling: how messages and estimators scale the features by every task's own rows, unless they are told otherwise:
            "unit_variance" for tasks that come from a table, whose columns may be age and income; "pareto", by the root of
            that, for tasks that come from arrays. It never follows from the rows.
        has_targets: False where rows were made without targets: they can be predicted, and not fitted.
        numbered: True where tasks were given no names: 0..m-1 are then their places, by which alone fits find them.
    """

    X: FloatArray
    y: FloatArray
    mask: NDArray[np.bool_]
    tasks: tuple[Hashable, ...]
    features: tuple[Hashable, ...]
    subject: NDArray[np.int64] | None = None
    intercept: bool = False
    centred: bool = False
    scaling: str = "pareto"
    numbered: bool = False
    has_targets: bool = True

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
        """Tasks from one feature matrix and one target vector per task.

        Args:
            X: m matrices, the i-th n_i x d.
            y: m vectors, the i-th of length n_i. None where no target is known: such rows can be predicted, and not fitted.
            tasks: task names; default 0..m-1.
            features: feature names; default those of data frames' columns, or 0..d-1.
            subject: m vectors of whole numbers that say whom a row is about, where tasks share subjects.

        Raises:
            ValueError: no tasks, a task without rows, shapes that disagree, values that are not finite or beyond 1e150, two
                spellings of one name, such as 7 and "7", or a name that no file can hold.
        """
        if len(X) == 0:
            raise ValueError("X: expected at least one task, got none")
        if y is not None and len(X) != len(y):
            raise ValueError(f"X and y: expected one entry per task in each, got {len(X)} and {len(y)}")
        names = task_names(tasks, len(X))
        xs = [cells(f"X: task {name!r}", x) for name, x in zip(names, X, strict=True)]
        if y is None:
            ys = [np.full(x.shape[:1], np.nan) for x in xs]
        else:
            ys = [cells(f"y: task {name!r}", v) for name, v in zip(names, y, strict=True)]
        d = xs[0].shape[-1] if xs[0].ndim == 2 else 0
        for name, x, v in zip(names, xs, ys, strict=True):
            check_shapes(name, x, v, d)
        columns = feature_names(features, X, d)
        for name, x, v in zip(names, xs, ys, strict=True):
            check_numbers(name, x, None if y is None else v, columns)
        X_pad, y_pad, mask = stacked(xs, ys)
        if subject is None:
            return cls(X_pad, y_pad, mask, names, columns, numbered=tasks is None, has_targets=y is not None)
        whom = [as_float_array("subject", s, np.int64) for s in subject]
        if [s.shape for s in whom] != [v.shape for v in ys]:
            raise ValueError("subject: expected one vector per task, with one whole number per row")
        return cls(
            X_pad, y_pad, mask, names, columns, subjects(whom, mask), numbered=tasks is None, has_targets=y is not None
        )

    @classmethod
    def from_rows(
        cls, X: ArrayLike, y: ArrayLike | None, task: ArrayLike, *, features: Sequence[Hashable] | None = None
    ) -> Self:
        """Tasks from one long table: rows X (n, d), targets y (n,) and the task each row belongs to (n,).

        Tasks are ordered by first appearance; y may be None, as in :meth:`from_lists`. Raises ValueError for rows without a
        task, and as :meth:`from_lists`.
        """
        names = column_names(X) if features is None else features
        X, task = cells("X", X), np.asarray(task_labels(task))
        if X.ndim != 2:
            raise ValueError(f"X: expected a matrix (rows, features), got shape {X.shape}")
        y = np.full(len(X), np.nan) if (unknown := y is None) else cells("y", y)
        if y.shape != X.shape[:1] or task.shape != X.shape[:1]:
            raise ValueError(f"y and task: expected one value per row of X ({len(X)}), got {y.shape} and {task.shape}")
        labels, first, code = np.unique(task, return_index=True, return_inverse=True)
        together = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
        groups = [together[j] for j in np.argsort(first)]
        tasks = [label.item() if isinstance(label, np.generic) else label for label in labels[np.argsort(first)]]
        targets = None if unknown else [y[g] for g in groups]
        return cls.from_lists([X[g] for g in groups], targets, tasks=tasks, features=names or None)

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
        """Several targets of the same subjects, one task each; a task holds the subjects whose target was observed.

        Args:
            X: features, (subjects, d).
            Y: targets, (subjects, m); what stands where nothing was observed is not read.
            observed: True where a target was observed, (subjects, m); default everywhere.
            tasks: as in :meth:`from_lists`; default the names of a data frame's columns.
            features: as in :meth:`from_lists`.

        Raises:
            ValueError: shapes that disagree, and as :meth:`from_lists`.
        """
        columns = (column_names(X) or None) if features is None else features
        names = (column_names(Y) or None) if tasks is None else tasks
        X, Y = cells("X", X), cells("Y", Y)
        seen = np.ones(Y.shape, dtype=bool) if observed is None else np.asarray(observed, dtype=bool)
        if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
            raise ValueError(f"X and Y: expected matrices with a row per subject, got shapes {X.shape} and {Y.shape}")
        if seen.shape != Y.shape:
            raise ValueError(f"observed: expected shape {Y.shape} as Y, got {seen.shape}")
        if missing := int(np.sum(seen & ~np.isfinite(Y))):
            raise ValueError(
                f"Y: expected finite numbers, got {missing} cells with others; observed=np.isfinite(Y) leaves them out"
            )
        rows = [np.flatnonzero(column) for column in seen.T]
        return cls.from_lists(
            [X[r] for r in rows], [Y[r, i] for i, r in enumerate(rows)], tasks=names, features=columns, subject=rows
        )

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
    ) -> Self:
        """Tasks from a data frame with one row per observation, whose columns may be in any units: see ``scaling``.

        Args:
            frame: the table, a data frame of any kind that narwhals knows: of pandas, polars, Arrow and others.
            task: the column that says which task a row belongs to.
            target: the column to predict; None where there is none, as in :meth:`from_lists`.
            features: feature columns; default every other column. Look at the list, ``tasks.features``: another outcome in
                the table tells the target, and is seldom there when rows are predicted.
            exclude: columns that are no features.
            intercept: give every task one of its own: :meth:`with_intercept`.

        Raises:
            ValueError: a named column that is not there or means two things, a feature that is not numeric, and as
                :meth:`from_rows`.
        """
        if not is_frame(frame):
            raise ValueError(f"frame: expected a data frame, of pandas, polars or Arrow, got {type(frame).__name__}")
        table = frame_columns(frame)
        others = (task,) if target is None else (task, target)
        every = [name for name, _ in table]
        columns = chosen(every, others, features, exclude)
        check_columns(every, task, target, columns)
        labels = task_labels(dict(table)[task])
        X = numeric_columns("features", dict(table), columns, labels)
        y = None if target is None else numeric_columns("target", dict(table), [target], labels)[:, 0]
        tasks = replace(cls.from_rows(X, y, labels, features=columns), scaling="unit_variance")
        return tasks.with_intercept() if intercept else tasks

    @classmethod
    def from_xarray(
        cls, data: xr.Dataset, *, task: str = "task", target: str | None = "y", features: str = "X"
    ) -> Self:
        """Tasks from a data set with ``features`` (row, feature), ``target`` (row,) or None, and ``task`` (row,)."""
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
        """m."""
        return self.X.shape[0]

    @property
    def num_features(self) -> int:
        """d."""
        return self.X.shape[2]

    @property
    def num_rows(self) -> int:
        """Rows of all tasks together."""
        return int(self.mask.sum())

    def check_targets(self, name: str = "tasks") -> None:
        """Raise ValueError for rows without targets, which cannot be fitted; ``name`` is of the argument."""
        if not self.has_targets:
            raise ValueError(f"{name}: expected rows with targets, got rows made without, which can be predicted alone")

    own = FormerName("rows_of")

    def rows_of(self, i: int) -> tuple[FloatArray, FloatArray]:
        """The rows of task i and nothing else: X_i (n_i, d) and y_i (n_i,), copies in float64, without padding.

        What is computed from them does not depend on another task, down to the last bit; n_max itself would tell of one.
        Raises ValueError for rows without targets.
        """
        self.check_targets()
        real = np.asarray(self.mask[i])
        return np.asarray(self.X[i], dtype=np.float64)[real], np.asarray(self.y[i], dtype=np.float64)[real]

    @cached_property
    def gram(self) -> Gram:
        """X_i'X_i, X_i'y_i, y_i'y_i and n_i of every task, each from its :meth:`rows_of` rows, in float64; computed once."""
        return Gram(*map(np.stack, zip(*(gram(*self.rows_of(i)) for i in range(self.num_tasks)), strict=True)))

    def with_intercept(self) -> Self:
        """The same tasks with a last feature "intercept", 1 in every row, whose weight is every task's own intercept.

        With numbers as targets nothing shrinks it, no message holds it, and intervals count what the rows leave open of it:
        :mod:`mpmtl_prob.data.intercepts` says how, and what is different with labels. ValueError for a feature of this name.
        """
        if NAME in self.features:
            raise ValueError(f"features: expected none named {NAME!r} beside the intercept, got {list(self.features)}")
        X = np.concatenate([self.X, np.asarray(self.mask, dtype=np.float64)[..., None]], axis=2)
        return replace(self, X=X, features=(*self.features, NAME), intercept=True)

    @cached_property
    def slopes(self) -> Self:
        """Every task's contrasts, in which an intercept cancels (:mod:`~mpmtl_prob.data.contrasts`); without it, these."""
        if not self.intercept:
            return self
        rows = [contrasts(X[:, :-1], y) for X, y in map(self.rows_of, range(self.num_tasks))]
        X, y, mask = stacked(*zip(*rows, strict=True))
        columns = self.features[:-1]
        return type(self)(X, y, mask, self.tasks, columns, centred=True, scaling=self.scaling, numbered=self.numbered)

    def split(self, fraction: float, seed: int) -> tuple[TaskData, TaskData]:
        """Random training and test rows, drawn in each task separately, or, where tasks share subjects, whole subjects.

        Args:
            fraction: share of every task's rows, or of all subjects, that goes to training, in (0, 1). Both parts keep at
                least one row of every task, training two where there is an intercept.
            seed: of the random choice.

        Raises:
            ValueError: fraction outside (0, 1), a task with too few rows, or one whose subjects all fell into one part.
        """
        in_range("fraction", fraction, 0, 1)
        whole("seed", seed, 0)
        n = self.mask.sum(axis=1)
        least = 1 + self.intercept
        if n.min() <= least:
            few = self.tasks[int(n.argmin())]
            raise ValueError(f"tasks: expected {least + 1} rows or more of each for a split, got {n.min()} of {few!r}")
        rng = np.random.default_rng(seed)
        if self.subject is not None:
            everybody = np.unique(self.subject[self.mask])
            cut = int(np.clip(round(fraction * len(everybody)), 1, len(everybody) - 1))
            chosen = np.isin(self.subject, rng.permutation(everybody)[:cut])
            return self._where(chosen), self._where(~chosen)
        order = [rng.permutation(k) for k in n]
        cut = np.clip(np.round(fraction * n).astype(int), least, n - 1)
        return (
            self._take([np.sort(o[:c]) for o, c in zip(order, cut, strict=True)]),
            self._take([np.sort(o[c:]) for o, c in zip(order, cut, strict=True)]),
        )

    def folds(self, k: int, seed: int) -> list[tuple[TaskData, TaskData]]:
        """k cross-validation folds, each (training, validation), cut in every task separately; needs k rows per task.

        Where tasks share subjects, the subjects are cut instead.
        """
        n = self.mask.sum(axis=1)
        whole("seed", seed, 0)
        if not 2 <= whole("k", k) <= n.min():
            raise ValueError(f"k: expected 2 <= k <= the rows of the smallest task ({n.min()}), got {k!r}")
        rng = np.random.default_rng(seed)
        if self.subject is not None:
            everybody = np.unique(self.subject[self.mask])
            fold = rng.permutation(np.arange(len(everybody)) % k)[np.searchsorted(everybody, self.subject)]
            return [(self._where(fold != j), self._where(fold == j)) for j in range(k)]
        label = [rng.permutation(np.arange(size) % k) for size in n]
        return [
            (self._take([np.flatnonzero(v != j) for v in label]), self._take([np.flatnonzero(v == j) for v in label]))
            for j in range(k)
        ]

    def unit_rows(self) -> TaskData:
        """The same tasks with every row of X scaled to Euclidean length 1 (zero rows stay zero), but for the intercept."""
        d = self.num_features - self.intercept
        norm = np.linalg.norm(self.X[..., :d], axis=2, keepdims=True)
        X = self.X / np.where(norm > 0, norm, 1.0)
        X[..., d:] = self.X[..., d:]
        return replace(self, X=X)

    def to_pandas(self, *, task: str = "task", target: str = "y") -> pd.DataFrame:
        """One row per observation: the task, the features but for the intercept, and the target, where there are any."""
        import pandas as pd

        d = self.num_features - self.intercept
        frame = pd.DataFrame(self.X[self.mask][:, :d], columns=list(self.features[:d]))
        frame.insert(0, task, np.repeat(np.asarray(self.tasks, dtype=object), self.mask.sum(axis=1)))
        if self.has_targets:
            frame[target] = self.y[self.mask]
        return frame

    def _take(self, rows: list[NDArray[np.int64]]) -> TaskData:
        X = [x[r] for x, r in zip(self.X, rows, strict=True)]
        y = [v[r] for v, r in zip(self.y, rows, strict=True)] if self.has_targets else None
        subject = None if self.subject is None else [s[r] for s, r in zip(self.subject, rows, strict=True)]
        found = type(self).from_lists(X, y, tasks=self.tasks, features=self.features, subject=subject)
        return replace(found, intercept=self.intercept, scaling=self.scaling, numbered=self.numbered)

    def _where(self, keep: NDArray[np.bool_]) -> TaskData:
        """The rows where keep (m, n_max) is True."""
        return self._take([np.flatnonzero(row) for row in keep & self.mask])

    def __repr__(self) -> str:  # never shows rows: a notebook prints what it is handed
        if not isinstance(self.X, np.ndarray | jax.Array):
            return "TaskData(...)"
        n = np.asarray(self.mask).sum(axis=1)
        return (
            f"TaskData({self.num_tasks} tasks, {self.num_features} features, {self.num_rows} rows, "
            f"{n.min()} to {n.max()} per task{'' if self.has_targets else ', no targets'}"
            f"{_IN_UNITS if self.scaling == 'unit_variance' else ''})"
        )

    def _repr_html_(self) -> str:
        n = np.asarray(self.mask).sum(axis=1)
        shown = [str(name) for name in self.features[:8]] + ["..."] * (self.num_features > 8)
        facts = {
            "tasks": self.num_tasks,
            "features": f"{self.num_features}: {', '.join(shown)}",
            "rows": f"{self.num_rows}, from {n.min()} to {n.max()} per task, median {np.median(n):g}",
        }
        if self.scaling == "unit_variance":
            facts["scaling"] = "to unit variance, by every task's own rows"
        return card("TaskData", facts, "Rows are private, and not shown.")
