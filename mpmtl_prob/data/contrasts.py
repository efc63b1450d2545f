"""Contrasts of a task's rows, in which its intercept cancels."""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

#: The name of the feature that is 1 in every row.
NAME = "intercept"
_AT_ONCE = 2**16  # numbers


def contrasts(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """H X (n-1, d) and H y (n-1,) of one task's rows (n, d) and targets (n,), with H H' = I and H 1 = 0.

    Row k is what row k+1 has beyond the mean of the k rows before it. One row has no contrast, and says nothing of slopes:
    a single row of zeros.

    Source: Helmert's matrix.
    """
    rows = in_place(np.column_stack([X, y]))
    return rows[:, :-1], rows[:, -1]


def in_place(rows: FloatArray) -> FloatArray:
    """Return :func:`contrasts` of rows (n, d+1) whose last column is the target, in their place."""
    if len(rows) == 1:
        return np.zeros_like(rows)
    k = np.arange(1.0, len(rows))[:, None]
    step = max(1, _AT_ONCE // len(rows))
    with np.errstate(all="ignore"):  # beyond double precision a warning would tell of one task
        rows -= rows[0].copy()  # first, so that columns without variation are zero, and a far origin costs no digits
        for at in range(0, rows.shape[1], step):  # a few columns at a time: memory
            some = rows[:, at : at + step]
            H = np.cumsum(some, axis=0)[:-1]
            H /= k
            np.subtract(some[1:], H, out=H)
            H *= np.sqrt(k / (k + 1))
            some[1:] = H
    return rows[1:]
