"""A task's coefficients under a declared prior, and how much of each its rows determine: what a message of effects says.

In common units, with a residual variance sigma^2 whose prior is public,

    y = X beta + sigma e,    beta ~ N(0, v I),    v declared,

the posterior mean is eta = S b for least squares b, where S = (X'X + sigma^2 / v I)^-1 X'X is what the rows determine.
Whatever beta is,

    E[eta | beta] = S beta,    Var(eta | beta) = v (S - S^2),

so that a reader who knows S on average can undo the shrinkage. Both exist whatever the number of rows.

Of an estimate b that was made elsewhere, with covariance V, the same is true of S = v (v I + V)^-1: the S above where V is
sigma^2 (X'X)^-1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown

#: Residual variances in units of the target's declared scale, squared, and the public prior of them: log-normal, its median
#: half of that square, because in such units the rows vary about 1. It was not tuned.
RESIDUALS = np.geomspace(1e-3, 30.0, 32)
_MEDIAN, _SPREAD = 0.5, 1.2
LOG_PRIOR = -0.5 * (np.log(RESIDUALS / _MEDIAN) / _SPREAD) ** 2
LOG_PRIOR -= np.log(np.exp(LOG_PRIOR).sum())


class Shrunk(NamedTuple):
    """Of one task.

    Attributes:
        estimate: eta, (d,).
        determined: the diagonal of S, (d,), each between 0, nothing, and 1, all.
    """

    estimate: FloatArray
    determined: FloatArray

    def __repr__(self) -> str:
        return shown(self)


def shrunk_estimate(X: FloatArray, y: FloatArray, prior_variance: float) -> Shrunk:
    """Estimate one task's coefficients under N(0, v I), the residual variance averaged over by its evidence.

    Args:
        X: rows (n, d) in common units.
        y: targets (n,) in common units.
        prior_variance: v, public.

    Returns:
        Estimates; of a task whose numbers leave double precision zeros, as of one whose rows say nothing.
    """
    d = X.shape[1]
    with np.errstate(all="ignore"):  # a warning would tell of one task
        gram = X.T @ X
        if not np.isfinite(gram).all() or not np.isfinite(y @ y):
            return Shrunk(np.zeros(d), np.zeros(d))
        try:
            eigenvalues, U = np.linalg.eigh(gram)
        except np.linalg.LinAlgError:  # an error would tell the others of one task's rows
            return Shrunk(np.zeros(d), np.zeros(d))
        e, r = np.maximum(eigenvalues, 0.0), U.T @ (X.T @ y)
        s2 = RESIDUALS[:, None]
        ratio = 1 + prior_variance * e / s2
        explained = (prior_variance * r**2 / (s2 * ratio)).sum(axis=1)
        quadratic = (y @ y - explained) / RESIDUALS
        log = LOG_PRIOR - 0.5 * (len(y) * np.log(RESIDUALS) + np.log(ratio).sum(axis=1) + quadratic)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        left = weight @ (1 / (e + s2 / prior_variance))  # of 1 / (e + sigma^2 / v)
        estimate, determined = U @ (r * left), U**2 @ (e * left)
    if not (np.isfinite(estimate).all() and np.isfinite(determined).all()):
        return Shrunk(np.zeros(d), np.zeros(d))
    return Shrunk(estimate, np.clip(determined, 0.0, 1.0))


def shrunk_from(mean: FloatArray, covariance: FloatArray, prior_variance: float) -> Shrunk:
    """Shrink an estimate that was made elsewhere, N(b | beta, V), under N(0, v I): what its rows would say, sigma known.

    Args:
        mean: b, (d,), in common units.
        covariance: V, (d, d), in common units.
        prior_variance: v, public.

    Returns:
        Estimates; of numbers that leave double precision zeros, as of a task whose rows say nothing.
    """
    nothing = Shrunk(np.zeros(len(mean)), np.zeros(len(mean)))
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        return nothing
    with np.errstate(all="ignore"):  # a warning would tell of one task
        given = prior_variance * np.eye(len(mean)) + covariance
        size = np.sqrt(np.diag(given))  # divided by, as one coefficient may be far from another
        try:
            S = prior_variance * (np.linalg.inv(given / size[:, None] / size) / size[:, None] / size)
        except np.linalg.LinAlgError:  # an error would tell the others of one task's estimate
            return nothing
        estimate, determined = S @ mean, np.diag(S)
    if not (np.isfinite(estimate).all() and np.isfinite(determined).all()):
        return nothing
    return Shrunk(estimate, np.clip(determined, 0.0, 1.0))
