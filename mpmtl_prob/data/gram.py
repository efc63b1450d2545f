"""Sufficient statistics of least squares: X'X, X'y, y'y and the number of rows of every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray, aligned_zeros
from mpmtl_prob._util.hidden_arrays import shown

#: Function from i to X_i (n_i, d) and y_i (n_i,).
RowsOf = Callable[[int], tuple[FloatArray, FloatArray]]

#: Squares of numbers between these, and sums of many of them, are doubles with all their digits.
_ORDINARY = 1e-75, 1e75


class Gram(NamedTuple):
    """Sufficient statistics of every task's least-squares problem; those of a single task have no axis of tasks."""

    xx: FloatArray  #: X_i'X_i, (m, d, d)
    xy: FloatArray  #: X_i'y_i, (m, d)
    yy: FloatArray  #: y_i'y_i, (m,)
    n: NDArray[np.int64]  #: number of rows n_i, (m,)

    def __repr__(self) -> str:
        return shown(self)


def gram(X: FloatArray, y: FloatArray) -> Gram:
    """Compute the statistics of one task's rows (n, d) and targets (n,)."""
    return Gram(X.T @ X, X.T @ y, y @ y, np.int64(len(y)))  # type: ignore[arg-type] # numbers are arrays without axes


def grams(rows_of: RowsOf, m: int, d: int) -> Gram:
    """Compute the statistics of m tasks with d features, each from its own rows."""
    statistics = Gram(aligned_zeros(m, d, d), np.empty((m, d)), np.empty(m), np.empty(m, dtype=np.int64))
    for i in range(m):
        statistics.xx[i], statistics.xy[i], statistics.yy[i], statistics.n[i] = gram(*rows_of(i))
    return statistics


def squares(rows_of: RowsOf, m: int, d: int) -> FloatArray:
    """Compute the diagonals of all X_i'X_i, (m, d), without keeping the matrices.

    They agree with :func:`grams` in every bit: sums of squares by themselves would be added in another order.
    """
    diagonals = np.empty((m, d))
    for i in range(m):
        X, _ = rows_of(i)
        diagonals[i] = np.diagonal(X.T @ X)
    return diagonals


def unit(y: FloatArray) -> float:
    """Return a power of two by which to divide one task's targets (n,), so that their sum of squares is an accurate double.

    It is 1 for targets of ordinary size, whose results therefore do not change in any bit.
    """
    largest = float(np.abs(y).max(initial=0.0))
    return (
        1.0 if largest == 0 or _ORDINARY[0] < largest < _ORDINARY[1] else float(np.ldexp(1.0, np.frexp(largest)[1] - 1))
    )
