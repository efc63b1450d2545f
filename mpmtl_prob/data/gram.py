"""What least squares need of a task's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray, aligned_zeros
from mpmtl_prob._util.hidden_arrays import shown

#: i -> X_i (n_i, d) and y_i (n_i,)
RowsOf = Callable[[int], tuple[FloatArray, FloatArray]]

#: Squares of numbers between these, and sums of many of them, are doubles with all their digits.
_ORDINARY = 1e-75, 1e75


class Gram(NamedTuple):
    """The sufficient statistics of every task's least-squares problem, or, without the axis of tasks, of one."""

    xx: FloatArray  #: X_i'X_i, (m, d, d)
    xy: FloatArray  #: X_i'y_i, (m, d)
    yy: FloatArray  #: y_i'y_i, (m,)
    n: NDArray[np.int64]  #: number of rows n_i, (m,)

    def __repr__(self) -> str:
        return shown(self)


def gram(X: FloatArray, y: FloatArray) -> Gram:
    """Of one task's rows (n, d) and targets (n,)."""
    return Gram(X.T @ X, X.T @ y, y @ y, np.int64(len(y)))  # type: ignore[arg-type] # numbers are arrays without axes


def grams(rows_of: RowsOf, m: int, d: int) -> Gram:
    """Of m tasks with d features, each from its own rows."""
    found = Gram(aligned_zeros(m, d, d), np.empty((m, d)), np.empty(m), np.empty(m, dtype=np.int64))
    for i in range(m):
        found.xx[i], found.xy[i], found.yy[i], found.n[i] = gram(*rows_of(i))
    return found


def squares(rows_of: RowsOf, m: int, d: int) -> FloatArray:
    """Return the diagonals of all X_i'X_i alone, (m, d); the very bits, as another product would sum in another order."""
    found = np.empty((m, d))
    for i in range(m):
        X, _ = rows_of(i)
        found[i] = np.diagonal(X.T @ X)
    return found


def unit(y: FloatArray) -> float:
    """Return a power of two by which one task's targets (n,) are divided, so that their squares' sum is a good double.

    It is 1 for ordinary targets, whose results then are the same in every bit.
    """
    largest = float(np.abs(y).max(initial=0.0))
    return (
        1.0 if largest == 0 or _ORDINARY[0] < largest < _ORDINARY[1] else float(np.ldexp(1.0, np.frexp(largest)[1] - 1))
    )
