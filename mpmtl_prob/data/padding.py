"""Matrices and vectors of several tasks before they are one TaskData: read, named, checked, and padded to one size."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array
from mpmtl_prob.data.cells import as_matrix, as_numbers, check_labels, check_spelling, column_names

#: The largest number in the rows: sums of its squares are still numbers.
LARGEST = 1e150
#: What to do about cells that are no numbers.
ENCODE = "leave rows with missing values out, and encode text and dates as numbers first"


def cells(name: str, value: ArrayLike) -> FloatArray:
    """Return an array or a data frame as doubles. A cell of a mixed column that is no number is NaN, as a missing one is."""
    if hasattr(value, "iloc"):
        return as_matrix(name, value) if hasattr(value, "columns") else as_numbers(value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":
        array = np.asarray(value)
        return as_numbers(array.ravel()).reshape(array.shape)
    return as_float_array(name, value)


def task_names(tasks: Sequence[Hashable] | None, number: int) -> tuple[Hashable, ...]:
    """Return the names of so many tasks, default 0, 1, ... Raises ValueError for another number, or a name twice."""
    if tasks is None:
        return tuple(range(number))
    names = tuple(tasks)
    if len(names) != number:
        raise ValueError(f"tasks: expected {number} names, one per task, got {len(names)}")
    if len(set(names)) != len(names):
        raise ValueError("tasks: expected distinct names, got a name twice")
    check_labels("tasks", names)
    return names


def feature_names(features: Sequence[Hashable] | None, tables: Sequence[Any], number: int) -> tuple[Hashable, ...]:
    """Return the names of so many features: those given, those of data frames' columns, or 0, 1, ...

    Args:
        features: names, which stand for whatever the tables call them.
        tables: one per task.
        number: of columns of each.

    Raises:
        ValueError: another number of names, a name twice, or data frames whose columns have others.
    """
    named = {names: None for table in tables if (names := column_names(table))} if features is None else {}
    if len(named) > 1:
        first, other = list(named)[:2]
        raise ValueError(f"X: expected the columns {list(first)} in every task, in this order, got {list(other)}")
    columns = tuple(features) if features is not None else next(iter(named), tuple(range(number)))
    if len(columns) != number:
        raise ValueError(f"features: expected {number} names, one per column of X, got {len(columns)}")
    if len(set(columns)) != number:
        raise ValueError("features: expected distinct names, got a name twice")
    check_spelling("features", "feature", columns)
    return columns


def check_shapes(name: Hashable, x: FloatArray, y: FloatArray, num_features: int) -> None:
    """Raise ValueError for a task without rows, or whose shapes do not go with each other or with the first task's."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"X: task {name!r}: expected a matrix (rows, features), got shape {x.shape}")
    if x.shape[1] != num_features:
        raise ValueError(f"X: task {name!r}: expected {num_features} features as in the first task, got {x.shape[1]}")
    if len(x) == 0:
        raise ValueError(f"X: task {name!r} has no rows; every task needs at least one")
    if y.shape != (len(x),):
        raise ValueError(f"y: task {name!r}: expected {len(x)} targets, one per row, got shape {y.shape}")


def check_numbers(name: Hashable, x: FloatArray, y: FloatArray | None, features: Sequence[Hashable]) -> None:
    """Raise ValueError for numbers that are not finite or too large. Values are private: it says where, and not what."""
    if len(bad := np.argwhere(~np.isfinite(x))):
        raise ValueError(
            f"X: task {name!r}: expected finite numbers, got {len(bad)} that are not, the first in feature "
            f"{features[bad[0, 1]]!r}; {ENCODE}"
        )
    if y is not None and (missing := int(np.sum(~np.isfinite(y)))):
        raise ValueError(f"y: task {name!r}: expected finite numbers, got {missing} that are not; {ENCODE}")
    for argument, array in (("X", x), ("y", y)):
        if array is not None and (large := int(np.sum(np.abs(array) > LARGEST))):
            raise ValueError(f"{argument}: task {name!r}: expected numbers up to {LARGEST:g}, got {large} beyond")


def stacked(xs: Sequence[FloatArray], ys: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return X (m, n_max, d), y and mask (m, n_max) of a TaskData."""
    shape = len(xs), max(map(len, ys))
    X = np.zeros((*shape, xs[0].shape[1]))
    y = np.zeros(shape)
    mask = np.zeros(shape, dtype=bool)
    for i, (x, v) in enumerate(zip(xs, ys, strict=True)):
        X[i, : len(v)], y[i, : len(v)], mask[i, : len(v)] = x, v, True
    return X, y, mask


def subjects(of_tasks: Sequence[NDArray[np.int64]], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return one list of subjects per task as (m, n_max); padding repeats a subject of the data, and is masked."""
    out = np.full(mask.shape, min(s.min() for s in of_tasks))
    out[mask] = np.concatenate(list(of_tasks))
    return out
