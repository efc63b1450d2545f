"""Rows of several tasks in one array: reading, naming and checking them, and padding to a common length."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array
from mpmtl_prob.data.cells import as_matrix, as_numbers, check_labels, check_spelling, column_names

Counts = NDArray[np.int64]

#: Largest number allowed in rows: sums of its squares are still finite.
LARGEST = 1e150
#: Advice for cells that are not numbers.
ENCODE = "leave rows with missing values out, and encode text and dates as numbers first"

#: Largest padded array in bytes that is made although the rows take less than half as much.
LARGEST_VIEW = 2**30
_ADVICE = "rows_of(i) returns the rows of one task, and rows, targets and offsets are those of all without padding"


def cells(name: str, value: ArrayLike) -> FloatArray:
    """Convert an array or a data frame to doubles. In a column of mixed types, cells that are not numbers become NaN."""
    if hasattr(value, "iloc"):
        return as_matrix(name, value) if hasattr(value, "columns") else as_numbers(value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":
        array = np.asarray(value)
        return as_numbers(array.ravel()).reshape(array.shape)
    return as_float_array(name, value)


def task_names(tasks: Sequence[Hashable] | None, number: int) -> tuple[Hashable, ...]:
    """Return the names of ``number`` tasks, default 0, 1, ... Raises ValueError for a wrong number or a repeated name."""
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
    """Return the names of ``number`` features: those given, those of data frames' columns, or 0, 1, ...

    Args:
        features: names, which take precedence over those of the tables.
        tables: one per task.
        number: number of columns of each table.

    Raises:
        ValueError: a wrong number of names, a repeated name, or data frames whose columns differ.
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
    """Raise ValueError for a task without rows, or with shapes that disagree with each other or with the first task's."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"X: task {name!r}: expected a matrix (rows, features), got shape {x.shape}")
    if x.shape[1] != num_features:
        raise ValueError(f"X: task {name!r}: expected {num_features} features as in the first task, got {x.shape[1]}")
    if len(x) == 0:
        raise ValueError(f"X: task {name!r} has no rows; every task needs at least one")
    if y.shape != (len(x),):
        raise ValueError(f"y: task {name!r}: expected {len(x)} targets, one per row, got shape {y.shape}")


def check_numbers(name: Hashable, x: FloatArray, y: FloatArray | None, features: Sequence[Hashable]) -> None:
    """Raise ValueError for numbers that are not finite or too large. Values are private: the error says where, not what."""
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


def check_tasks(
    names: Sequence[Hashable],
    rows: FloatArray,
    targets: FloatArray | None,
    offsets: Counts,
    features: Sequence[Hashable],
) -> None:
    """Raise ValueError as :func:`check_numbers` for the first bad task; task i has the rows offsets[i] to offsets[i+1]."""
    every = [rows] if targets is None else [rows, targets]
    with np.errstate(all="ignore"):  # np.abs would need as much memory again; NaN fails both tests
        if all(x.max(initial=0.0) <= LARGEST and x.min(initial=0.0) >= -LARGEST for x in every):
            return
    for name, begin, end in zip(names, offsets[:-1], offsets[1:], strict=True):
        check_numbers(name, rows[begin:end], None if targets is None else targets[begin:end], features)


def offsets_of(counts: Sequence[int] | Counts) -> Counts:
    """Return the first row of every task, and the end of the last, (m + 1,), for these numbers of rows per task."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def check_view(name: str, shape: Sequence[int], itemsize: int, held: int, advice: str = _ADVICE) -> None:
    """Raise ValueError for a padded array of more than a gibibyte that is over twice as large as the rows (bytes held)."""
    size = math.prod(shape) * itemsize
    if size > max(LARGEST_VIEW, 2 * held):
        raise ValueError(
            f"{name}: expected tasks of more alike sizes, got some for which the array padded to the longest, of shape "
            f"{tuple(shape)}, would take {size / 2**30:.3g} GiB, where its rows take {held / 2**20:.3g} MiB; {advice}"
        )


def padded(flat: Any, offsets: Any, longest: int, fill: float = 0) -> Any:
    """Return rows of all tasks (N, ...), stacked, as (m, longest, ...), with ``fill`` after each task's rows.

    Traced arrays give a traced array. If all tasks have equally many rows, nothing is copied.
    """
    m = len(offsets) - 1
    shape = (m, longest, *flat.shape[1:])
    if flat.shape[0] == m * longest:
        return flat.reshape(shape)
    if not isinstance(flat, np.ndarray) or not isinstance(offsets, np.ndarray):
        import jax.numpy as jnp

        place = offsets[:-1, None] + jnp.arange(longest)
        real = (place < offsets[1:, None]).reshape(m, longest, *(1,) * (flat.ndim - 1))
        return jnp.where(real, jnp.asarray(flat)[jnp.minimum(place, flat.shape[0] - 1)], fill)
    out = np.full(shape, fill, dtype=flat.dtype)
    for i, (begin, end) in enumerate(pairwise(offsets)):
        out[i, : end - begin] = flat[begin:end]
    return out


def real_rows(offsets: Any, longest: int) -> Any:
    """Return True where padded arrays (m, longest) hold a row."""
    counts = (offsets[1:] - offsets[:-1])[:, None]
    return counts > np.arange(longest)


def some_rows(mask: NDArray[np.bool_], offsets: Counts) -> Any:
    """Return which of the stacked rows a mask (m, n_max) keeps, (N,).

    A mask that asks for rows that do not exist, or is for another number of tasks, selects none: all arrays then have to be
    given with the mask.
    """
    if len(mask) != len(offsets) - 1:
        return slice(0, 0)
    longest = max(mask.shape[1], int(np.diff(offsets).max(initial=0)))
    asked = np.pad(mask, ((0, 0), (0, longest - mask.shape[1])))
    there = real_rows(offsets, longest)
    return slice(0, 0) if (asked & ~there).any() else asked[there]


def fixed(array: Any) -> Any:
    """Return a read-only view of a NumPy array; anything else as it is."""
    if isinstance(array, np.ndarray):
        array = array.view()
        array.setflags(write=False)
    return array


#: Shape, type and bytes of an array, in pieces.
Part = tuple[tuple[int, ...], Any, Iterator[bytes]]


def parts_of(rows: FloatArray, targets: FloatArray, offsets: Counts, *others: FloatArray | None) -> Iterator[Part]:
    """Yield the parts of a fingerprint: X, y and mask as padded arrays would be, task by task, then the other arrays.

    No padded array is made. Where one would be too large (:func:`check_view`), rows, targets and offsets are used instead.
    """
    m, longest = len(offsets) - 1, int(np.diff(offsets).max(initial=0))
    small = m * longest * rows.shape[1] * rows.itemsize <= max(LARGEST_VIEW, 2 * rows.nbytes)
    real = np.ones(len(rows), dtype=bool)
    for flat in (rows, targets, real) if small else (rows, targets):
        shape = (m, longest, *flat.shape[1:]) if small else flat.shape
        yield shape, flat.dtype, _chunks(flat, offsets, longest if small else 0)
    if not small:
        yield offsets.shape, offsets.dtype, iter((offsets.tobytes(),))
    for other in others:
        if other is not None:
            yield other.shape, other.dtype, iter((other.tobytes(),))


def _chunks(flat: NDArray[Any], offsets: Counts, longest: int) -> Iterator[bytes]:
    """Yield the bytes of every task's values, each followed by zeros up to the longest task."""
    behind = np.zeros((longest, *flat.shape[1:]), dtype=flat.dtype)
    for begin, end in pairwise(offsets):
        yield flat[begin:end].tobytes()
        yield behind[end - begin :].tobytes()
