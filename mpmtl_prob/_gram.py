"""What least squares need of a task's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._discreet import shown

if TYPE_CHECKING:
    from mpmtl_prob.prediction import FloatArray


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
