"""Many related data sets as one object: ragged tasks, padded and masked, with the same d features in each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._cells import check_labels
from mpmtl_prob._check import in_range, numbers, whole
from mpmtl_prob._columns import check_columns, numeric_columns, task_labels
from mpmtl_prob._gram import Gram, gram
from mpmtl_prob._html import card
from mpmtl_prob.intercept import NAME, contrasts
from mpmtl_prob.prediction import FloatArray, Prediction, check_weights, linear_prediction

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["FloatArray", "Gram", "Prediction", "TaskData", "check_weights", "gram", "linear_prediction"]

#: The largest number in the rows: sums of its squares are still numbers.
LARGEST = 1e150


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["X", "y", "mask", "subject"],
    meta_fields=["tasks", "features", "intercept", "centred", "numbered"],
)
@dataclass(frozen=True, eq=False, repr=False)
class TaskData:
    """m tasks with n_i rows each and d common features; a JAX pytree whose leaves are its arrays.

    Build one with :meth:`from_lists`, :meth:`from_rows`, :meth:`from_targets`, :meth:`from_pandas` or
    :meth:`from_xarray`, which check their input. Padding rows are zero and masked.

    Attributes:
        X: features, (m, n_max, d).
        y: targets, (m, n_max).
        mask: True where a row is real, (m, n_max).
        tasks: task names, m of them.
        features: feature names, d of them.
        subject: whom a row is about, (m, n_max), where tasks share subjects: :meth:`split` and :meth:`folds` then keep
            all rows of a subject together, whatever the task. None where every row is about somebody else.
        intercept: True where the last feature is 1 in every row, and its weight every task's own: :meth:`with_intercept`.
        centred: True where rows are contrasts, in which an intercept cancelled: :attr:`slopes`.
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
    numbered: bool = False

    @classmethod
    def from_lists(
        cls,
        X: Sequence[ArrayLike],
        y: Sequence[ArrayLike],
        *,
        tasks: Sequence[Hashable] | None = None,
        features: Sequence[Hashable] | None = None,
        subject: Sequence[ArrayLike] | None = None,
    ) -> Self:
        """Tasks from one feature matrix and one target vector per task.

        Args:
            X: m matrices, the i-th n_i x d.
            y: m vectors, the i-th of length n_i.
            tasks: task names; default 0..m-1.
            features: feature names; default 0..d-1.
            subject: m vectors of whole numbers that say whom a row is about, where tasks share subjects.

        Raises:
            ValueError: no tasks, a task without rows, shapes that disagree, values that are not finite or beyond 1e150, or
                two spellings of one name, such as 7 and "7".
        """
        if len(X) == 0:
            raise ValueError("X: expected at least one task, got none")
        if len(X) != len(y):
            raise ValueError(f"X and y: expected one entry per task in each, got {len(X)} and {len(y)}")
        names = tuple(tasks) if tasks is not None else tuple(range(len(X)))
        if len(names) != len(X):
            raise ValueError(f"tasks: expected {len(X)} names, one per task, got {len(names)}")
        if len(set(names)) != len(names):
            raise ValueError("tasks: expected distinct names, got a name twice")
        check_labels("tasks", names)
        xs = [numbers(f"X: task {name!r}", x) for name, x in zip(names, X, strict=True)]
        ys = [numbers(f"y: task {name!r}", v) for name, v in zip(names, y, strict=True)]
        d = xs[0].shape[-1] if xs[0].ndim == 2 else 0
        for name, x, v in zip(names, xs, ys, strict=True):
            _check_task(name, x, v, d)
        columns = tuple(features) if features is not None else tuple(range(d))
        if len(columns) != d:
            raise ValueError(f"features: expected {d} names, one per column of X, got {len(columns)}")
        if len(set(columns)) != d:
            raise ValueError("features: expected distinct names, got a name twice")
        X_pad, y_pad, mask = _stacked(xs, ys)
        if subject is None:
            return cls(X_pad, y_pad, mask, names, columns, numbered=tasks is None)
        whom = [numbers("subject", s, np.int64) for s in subject]
        if [s.shape for s in whom] != [v.shape for v in ys]:
            raise ValueError("subject: expected one vector per task, with one whole number per row")
        return cls(X_pad, y_pad, mask, names, columns, _padded(whom, mask), numbered=tasks is None)

    @classmethod
    def from_rows(
        cls, X: ArrayLike, y: ArrayLike, task: ArrayLike, *, features: Sequence[Hashable] | None = None
    ) -> Self:
        """Tasks from one long table: rows X (n, d), targets y (n,) and the task each row belongs to (n,).

        Tasks are ordered by first appearance. Raises ValueError for rows without a task, and as :meth:`from_lists`.
        """
        X, y, task = numbers("X", X), numbers("y", y), np.asarray(task_labels(task))
        if X.ndim != 2:
            raise ValueError(f"X: expected a matrix (rows, features), got shape {X.shape}")
        if y.shape != X.shape[:1] or task.shape != X.shape[:1]:
            raise ValueError(f"y and task: expected one value per row of X ({len(X)}), got {y.shape} and {task.shape}")
        labels, first, code = np.unique(task, return_index=True, return_inverse=True)
        together = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
        groups = [together[j] for j in np.argsort(first)]
        names = [label.item() if isinstance(label, np.generic) else label for label in labels[np.argsort(first)]]
        return cls.from_lists([X[g] for g in groups], [y[g] for g in groups], tasks=names, features=features)

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
            tasks: as in :meth:`from_lists`.
            features: as in :meth:`from_lists`.

        Raises:
            ValueError: shapes that disagree, and as :meth:`from_lists`.
        """
        X, Y = numbers("X", X), numbers("Y", Y)
        seen = np.ones(Y.shape, dtype=bool) if observed is None else np.asarray(observed, dtype=bool)
        if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
            raise ValueError(f"X and Y: expected matrices with a row per subject, got shapes {X.shape} and {Y.shape}")
        if seen.shape != Y.shape:
            raise ValueError(f"observed: expected shape {Y.shape} as Y, got {seen.shape}")
        rows = [np.flatnonzero(column) for column in seen.T]
        return cls.from_lists(
            [X[r] for r in rows], [Y[r, i] for i, r in enumerate(rows)], tasks=tasks, features=features, subject=rows
        )

    @classmethod
    def from_pandas(
        cls,
        frame: pd.DataFrame,
        *,
        task: str,
        target: str,
        features: Sequence[str] | None = None,
        intercept: bool = False,
    ) -> Self:
        """Tasks from a data frame with one row per observation.

        Args:
            frame: the table.
            task: the column that says which task a row belongs to.
            target: the column to predict.
            features: feature columns; default every other column.
            intercept: give every task one of its own: :meth:`with_intercept`.

        Raises:
            ValueError: a named column that is not there or means two things, a feature that is not numeric, and as
                :meth:`from_rows`.
        """
        if not hasattr(frame, "columns"):
            raise ValueError(f"frame: expected a pandas DataFrame, got {type(frame).__name__}")
        if isinstance(features, str):
            raise ValueError(f"features: expected a list of names, got the text {features!r}; write [{features!r}]")
        columns = [c for c in frame.columns if c not in (task, target)] if features is None else list(features)
        check_columns(frame, task, target, columns)
        labels = task_labels(frame[task])
        X = numeric_columns("features", frame, columns, labels)
        y = numeric_columns("target", frame, [target], labels)[:, 0]
        tasks = cls.from_rows(X, y, labels, features=columns)
        return tasks.with_intercept() if intercept else tasks

    @classmethod
    def from_xarray(cls, data: xr.Dataset, *, task: str = "task", target: str = "y", features: str = "X") -> Self:
        """Tasks from a data set with ``features`` (row, feature), ``target`` (row,) and ``task`` (row,)."""
        for argument, name in (("task", task), ("target", target), ("features", features)):
            if name not in data.variables:
                raise ValueError(f"{argument}: no variable {name!r} in the data set; it has {list(data.variables)}")
        X = data[features]
        if X.ndim != 2:
            raise ValueError(f"features: expected {features!r} with two dimensions (row, feature), got {X.dims}")
        row, column = (X.dims[0], X.dims[1]) if X.dims[0] in data[target].dims else (X.dims[1], X.dims[0])
        names = data[column].values.tolist() if column in data.coords else None
        return cls.from_rows(X.transpose(row, column), data[target], data[task], features=names)

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

    def own(self, i: int) -> tuple[FloatArray, FloatArray]:
        """The rows of task i and nothing else: X_i (n_i, d) and y_i (n_i,), copies in float64, without padding.

        What is computed from them does not depend on another task, down to the last bit; n_max itself would tell of one.
        """
        real = np.asarray(self.mask[i])
        return np.asarray(self.X[i], dtype=np.float64)[real], np.asarray(self.y[i], dtype=np.float64)[real]

    @cached_property
    def gram(self) -> Gram:
        """X_i'X_i, X_i'y_i, y_i'y_i and n_i of every task, each from its :meth:`own` rows, in float64; computed once."""
        return Gram(*map(np.stack, zip(*(gram(*self.own(i)) for i in range(self.num_tasks)), strict=True)))

    def with_intercept(self) -> Self:
        """The same tasks with a last feature "intercept", 1 in every row, whose weight is every task's own intercept.

        With numbers as targets nothing shrinks it, no message holds it, and intervals count what the rows leave open of it:
        :mod:`mpmtl_prob.intercept` says how, and what is different with labels. ValueError for a feature of this name.
        """
        if NAME in self.features:
            raise ValueError(f"features: expected none named {NAME!r} beside the intercept, got {list(self.features)}")
        X = np.concatenate([self.X, np.asarray(self.mask, dtype=np.float64)[..., None]], axis=2)
        return replace(self, X=X, features=(*self.features, NAME), intercept=True)

    @cached_property
    def slopes(self) -> Self:
        """Every task's :func:`~mpmtl_prob.intercept.contrasts`, in which intercepts cancel; or these tasks, without one."""
        if not self.intercept:
            return self
        rows = [contrasts(X[:, :-1], y) for X, y in map(self.own, range(self.num_tasks))]
        arrays = _stacked(*zip(*rows, strict=True))
        return type(self)(*arrays, self.tasks, self.features[:-1], centred=True, numbered=self.numbered)

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
        """One row per observation: the task, the features but for the intercept, and the target."""
        import pandas as pd

        d = self.num_features - self.intercept
        frame = pd.DataFrame(self.X[self.mask][:, :d], columns=list(self.features[:d]))
        frame.insert(0, task, np.repeat(np.asarray(self.tasks, dtype=object), self.mask.sum(axis=1)))
        frame[target] = self.y[self.mask]
        return frame

    def _take(self, rows: list[NDArray[np.int64]]) -> TaskData:
        X = [x[r] for x, r in zip(self.X, rows, strict=True)]
        y = [v[r] for v, r in zip(self.y, rows, strict=True)]
        subject = None if self.subject is None else [s[r] for s, r in zip(self.subject, rows, strict=True)]
        found = type(self).from_lists(X, y, tasks=self.tasks, features=self.features, subject=subject)
        return replace(found, intercept=self.intercept, numbered=self.numbered)

    def _where(self, keep: NDArray[np.bool_]) -> TaskData:
        """The rows where keep (m, n_max) is True."""
        return self._take([np.flatnonzero(row) for row in keep & self.mask])

    def __repr__(self) -> str:  # never shows rows: a notebook prints what it is handed
        if not isinstance(self.X, np.ndarray | jax.Array):
            return "TaskData(...)"
        n = np.asarray(self.mask).sum(axis=1)
        return (
            f"TaskData({self.num_tasks} tasks, {self.num_features} features, {self.num_rows} rows, "
            f"{n.min()} to {n.max()} per task)"
        )

    def _repr_html_(self) -> str:
        n = np.asarray(self.mask).sum(axis=1)
        shown = [str(name) for name in self.features[:8]] + ["..."] * (self.num_features > 8)
        facts = {
            "tasks": self.num_tasks,
            "features": f"{self.num_features}: {', '.join(shown)}",
            "rows": f"{self.num_rows}, from {n.min()} to {n.max()} per task, median {np.median(n):g}",
        }
        return card("TaskData", facts, "Rows are private, and not shown.")


def _stacked(xs: Sequence[FloatArray], ys: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """X, y and mask of a TaskData."""
    shape = len(xs), max(len(v) for v in ys)
    X, y, mask = np.zeros((*shape, xs[0].shape[1])), np.zeros(shape), np.zeros(shape, dtype=bool)
    for i, (x, v) in enumerate(zip(xs, ys, strict=True)):
        X[i, : len(v)], y[i, : len(v)], mask[i, : len(v)] = x, v, True
    return X, y, mask


def _padded(subjects: Sequence[NDArray[np.int64]], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One list of subjects per task as (m, n_max); padding repeats a subject of the data, and is masked."""
    out = np.full(mask.shape, min(s.min() for s in subjects))
    out[mask] = np.concatenate(list(subjects))
    return out


def _check_task(name: Hashable, x: FloatArray, v: FloatArray, d: int) -> None:
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"X: task {name!r}: expected a matrix (rows, features), got shape {x.shape}")
    if x.shape[1] != d:
        raise ValueError(f"X: task {name!r}: expected {d} features as in the first task, got {x.shape[1]}")
    if len(x) == 0:
        raise ValueError(f"X: task {name!r} has no rows; every task needs at least one")
    if v.shape != (len(x),):
        raise ValueError(f"y: task {name!r}: expected {len(x)} targets, one per row, got shape {v.shape}")
    for argument, array in (("X", x), ("y", v)):
        if bad := int(np.sum(~np.isfinite(array))):  # values are private: say where and how many, not what
            raise ValueError(f"{argument}: task {name!r}: expected finite numbers, got {bad} that are not")
        if bad := int(np.sum(np.abs(array) > LARGEST)):
            raise ValueError(f"{argument}: task {name!r}: expected numbers up to {LARGEST:g}, got {bad} beyond")
