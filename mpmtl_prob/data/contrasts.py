"""Contrasts of a task's rows: orthonormal combinations in which its intercept cancels."""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

#: Name of the feature that is 1 in every row.
NAME = "intercept"
_AT_ONCE = 2**16  # numbers that are transformed at a time


def contrasts(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute H X (n-1, d) and H y (n-1,) of one task's rows (n, d) and targets (n,), with H H' = I and H 1 = 0.

    H is Helmert's matrix: row k is proportional to the difference of row k+1 and the mean of the k rows before it. A single
    row has no contrast and carries no information about slopes: the result is then one row of zeros.
    """
    rows = in_place(np.column_stack([X, y]))
    return rows[:, :-1], rows[:, -1]


def in_place(rows: FloatArray) -> FloatArray:
    """Overwrite rows (n, d+1), whose last column is the target, with their :func:`contrasts`; return these."""
    if len(rows) == 1:
        return np.zeros_like(rows)
    k = np.arange(1.0, len(rows))[:, None]
    step = max(1, _AT_ONCE // len(rows))
    with np.errstate(all="ignore"):  # a warning of an overflow would reveal one task
        # Subtracted first, so that constant columns become exact zeros, and a far origin costs no digits.
        rows -= rows[0].copy()
        for at in range(0, rows.shape[1], step):  # a few columns at a time, to save memory
            some = rows[:, at : at + step]
            H = np.cumsum(some, axis=0)[:-1]
            H /= k
            np.subtract(some[1:], H, out=H)
            H *= np.sqrt(k / (k + 1))
            some[1:] = H
    return rows[1:]
