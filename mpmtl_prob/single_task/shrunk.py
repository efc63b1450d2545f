"""A task's coefficients, each shrunk by itself, and how far its rows determine it: what a message of effects says.

In common units, with a residual variance sigma^2 whose prior is public,

    y = X beta + sigma e,    beta ~ N(0, v I),    v declared.

Coefficients are estimated under a weaker prior, N(0, u I) with u = k v: of least squares b the posterior mean is S b for
S = (X'X + sigma^2 / u I)^-1 X'X. Of coefficient j divide by S_jj what it says. That is beta_j, with a variance of

    N_j = [u (S - S^2)]_jj / S_jj^2  +  v sum over others of S_jk^2 / S_jj^2,

errors of the targets and what other coefficients add, which are known no better than by their prior. Shrunk under N(0, v) it
is eta_j, and p_j how far it is determined,

    p_j = v / (v + N_j) = S_jj^2 / ([S^2]_jj + k [S - S^2]_jj),    eta_j = p_j (S b)_j / S_jj,

so that whatever beta_j is

    E[eta_j | beta_j] = p_j beta_j,    Var(eta_j | beta_j) = v (p_j - p_j^2),

and a reader who knows p on average can undo the shrinkage. Both exist whatever the number of rows. With k = 1 they are the
mean under N(0, v I) and the diagonal of its S. There correlated columns are shrunk into one another: what one has is read as
the other's, in all tasks alike, and no number of tasks averages that out. The weaker the prior, the less of it, and the less
is determined where rows are few.

Of an estimate b that was made elsewhere, with covariance V, the same is true of S = u (u I + V)^-1: the S above where V is
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
        determined: p, (d,), each between 0, nothing, and 1, all.
    """

    estimate: FloatArray
    determined: FloatArray

    def __repr__(self) -> str:
        return shown(self)


def shrunk_estimate(X: FloatArray, y: FloatArray, prior_variance: float, weak_prior: float) -> Shrunk:
    """Estimate one task's coefficients, each under N(0, v), the residual variance averaged over by its evidence.

    Args:
        X: rows (n, d) in common units.
        y: targets (n,) in common units.
        prior_variance: v, public.
        weak_prior: k, how many times as large the variance of the prior is under which all are estimated; public.

    Returns:
        Estimates; of a task whose numbers leave double precision zeros, as of one whose rows say nothing.
    """
    d = X.shape[1]
    with np.errstate(all="ignore"):  # a warning would tell of one task
        gram = X.T @ X
        if not np.isfinite(gram).all() or not np.isfinite(y @ y):
            return _nothing(d)
        try:
            eigenvalues, U = np.linalg.eigh(gram)
        except np.linalg.LinAlgError:  # an error would tell the others of one task's rows
            return _nothing(d)
        e, r = np.maximum(eigenvalues, 0.0), U.T @ (X.T @ y)
        s2 = RESIDUALS[:, None]
        ratio = 1 + prior_variance * e / s2
        explained = (prior_variance * r**2 / (s2 * ratio)).sum(axis=1)
        quadratic = (y @ y - explained) / RESIDUALS
        log = LOG_PRIOR - 0.5 * (len(y) * np.log(RESIDUALS) + np.log(ratio).sum(axis=1) + quadratic)
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        inverse = 1 / (e + s2 / (weak_prior * prior_variance))  # of X'X + sigma^2 / u I, by residual variance
        share = e * inverse
        estimates, determined = _each_by_itself((r * inverse) @ U.T, share @ U.T**2, share**2 @ U.T**2, weak_prior)
        shrunk = Shrunk(weight @ estimates, weight @ determined)
    return _sound(shrunk)


def shrunk_from(mean: FloatArray, covariance: FloatArray, prior_variance: float, weak_prior: float) -> Shrunk:
    """Shrink an estimate that was made elsewhere, N(b | beta, V): what its rows would say, sigma known.

    Args:
        mean: b, (d,), in common units.
        covariance: V, (d, d), in common units.
        prior_variance: v, public.
        weak_prior: k, public.

    Returns:
        Estimates; of numbers that leave double precision zeros, as of a task whose rows say nothing.
    """
    d, u = len(mean), weak_prior * prior_variance
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        return _nothing(d)
    with np.errstate(all="ignore"):  # a warning would tell of one task
        given = u * np.eye(d) + covariance
        size = np.sqrt(np.diag(given))  # divided by, as one coefficient may be far from another
        try:
            S = u * (np.linalg.inv(given / size[:, None] / size) / size[:, None] / size)
        except np.linalg.LinAlgError:  # an error would tell the others of one task's estimate
            return _nothing(d)
        shrunk = Shrunk(*_each_by_itself(S @ mean, np.diag(S), (S**2).sum(axis=1), weak_prior))
    return _sound(shrunk)


def _each_by_itself(
    mean: FloatArray, share: FloatArray, squares: FloatArray, weak_prior: float
) -> tuple[FloatArray, FloatArray]:
    """eta and p by S b, the diagonal of S, and that of S^2; zeros of a coefficient of which rows say nothing."""
    total = squares + weak_prior * np.maximum(share - squares, 0.0)
    over = np.divide(share, total, out=np.zeros_like(total), where=total > 0)
    return over * mean, over * share


def _nothing(d: int) -> Shrunk:
    """Of a task whose rows say nothing."""
    return Shrunk(*np.zeros((2, d)))


def _sound(shrunk: Shrunk) -> Shrunk:
    """The estimates, or nothing in the place of numbers that leave double precision."""
    if not (np.isfinite(shrunk.estimate).all() and np.isfinite(shrunk.determined).all()):
        return _nothing(len(shrunk.estimate))
    return Shrunk(shrunk.estimate, np.clip(shrunk.determined, 0.0, 1.0))
