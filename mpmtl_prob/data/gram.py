"""What least squares need of a task's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.hidden_arrays import shown

if TYPE_CHECKING:
    from mpmtl_prob._util.arrays import FloatArray


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


def unit(y: FloatArray) -> float:
    """Return a power of two by which one task's targets (n,) are divided, so that their squares' sum is a good double.

    It is 1 for ordinary targets, whose results then are the same in every bit.
    """
    largest = float(np.abs(y).max(initial=0.0))
    return (
        1.0 if largest == 0 or _ORDINARY[0] < largest < _ORDINARY[1] else float(np.ldexp(1.0, np.frexp(largest)[1] - 1))
    )
