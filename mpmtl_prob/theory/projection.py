"""Lemmas 1 and 2: how far noise in a second moment can take a projection from the proximal step that it replaces.

The error is that of the proximal problem, (1 / 2 eta) ||W - C||_F^2 + lambda g(W) at W = M C less its least value, with M
read off C C' + E.

Source: TPAMI 2022, Lemmas 1 and 2.
"""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive


def low_rank_error(C: FloatArray, noise: float, *, step_size: float, penalty: float) -> float:
    """Bound the proximal error of the low-rank projection (Lemma 1).

    Args:
        C: the models before the step, (d, m).
        noise: largest singular value of E, positive semidefinite.
        step_size: eta.
        penalty: lambda, of the trace norm.

    Raises:
        ValueError: an argument outside its range, or noise beyond half the least gap between the squares of neighbouring
            singular values of C down to the last above eta lambda, where the lemma says nothing.
    """
    eta, threshold = positive("step_size", step_size), positive("step_size", step_size) * positive("penalty", penalty)
    s = np.linalg.svd(np.asarray(C, dtype=np.float64), compute_uv=False)
    rank, kept = int(np.sum(s > 1e-10 * s[0])), int(np.sum(s > threshold))
    squares = np.append(s**2, np.zeros(max(len(C) - len(s), 0) + 1))
    gap = np.min(squares[:kept] - squares[1 : kept + 1]) if kept else np.inf
    if 2 * noise > gap:
        raise ValueError(f"noise: expected at most {gap / 2:.3g}, half the least gap of the spectrum, got {noise:.3g}")
    shared = (s[0] ** 2 / threshold + s[0]) / eta
    return float(shared * ((kept**2 / threshold + 2 * kept) * noise + max(0, rank - kept) * np.sqrt(noise)))


def group_sparse_error(C: FloatArray, noise: float, *, step_size: float, penalty: float) -> float:
    """Bound the proximal error of the group-sparse projection (Lemma 2).

    Args:
        C: the models before the step, (d, m).
        noise: largest entry of the diagonal of E, which is not negative there.
        step_size: eta.
        penalty: lambda, of the l2,1 norm.

    Raises:
        ValueError: an argument outside its range.
    """
    eta, threshold = positive("step_size", step_size), positive("step_size", step_size) * positive("penalty", penalty)
    rows = np.linalg.norm(np.asarray(C, dtype=np.float64), axis=1)
    used, kept = int(np.sum(rows > 0)), int(np.sum(rows >= threshold))
    shared = (used / threshold * rows.max() ** 2 + rows.max()) / eta
    return float(shared * (kept / (2 * threshold) * noise + max(0, used - kept) * np.sqrt(noise)))
