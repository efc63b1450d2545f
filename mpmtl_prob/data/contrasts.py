"""Contrasts of a task's rows, in which its intercept cancels."""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

#: The name of the feature that is 1 in every row.
NAME = "intercept"


def contrasts(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """H X (n-1, d) and H y (n-1,) of one task's rows (n, d) and targets (n,), with H H' = I and H 1 = 0.

    Row k is what row k+1 has beyond the mean of the k rows before it. One row has no contrast, and says nothing of slopes:
    a single row of zeros.

    Source: Helmert's matrix.
    """
    if len(y) == 1:
        return np.zeros_like(X), np.zeros_like(y)
    rows = np.column_stack([X, y])
    k = np.arange(1.0, len(rows))[:, None]
    with np.errstate(all="ignore"):  # beyond double precision a warning would tell of one task
        rows -= rows[0].copy()  # first, so that columns without variation are zero, and a far origin costs no digits
        H = np.cumsum(rows, axis=0)[:-1]
        H /= k
        np.subtract(rows[1:], H, out=H)
        H *= np.sqrt(k / (k + 1))
    return H[:, :-1], H[:, -1]
