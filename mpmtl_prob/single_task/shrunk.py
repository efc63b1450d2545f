"""A task's coefficients, each shrunk by itself, and how far its rows determine it: what a message of effects says.

In common units, with a residual variance sigma^2 whose prior is public,

    y = X beta + sigma e,    beta ~ N(0, v I),    v declared.

Coefficients are estimated under a weaker prior, N(0, u I) with u = k v: of least squares b the posterior mean is S b for
S = (X'X + sigma^2 / u I)^-1 X'X. What it says of coefficient j grows with beta_j by r S_jj, where r is of all coefficients
together (below). It is wrong by

    N_j = [u (S - S^2)]_jj / (r S_jj)^2  +  v sum over others of S_jk^2 / (r S_jj)^2,

errors of the targets and what other coefficients add, which are known no better than by their prior. Shrunk under N(0, v) it
is eta_j, and p_j how far it is determined,

    p_j = v / (v + N_j) = (r S_jj)^2 / ((r S_jj)^2 + [S^2]_jj - S_jj^2 + k [S - S^2]_jj),    eta_j = p_j (S b)_j / (r S_jj),

r S_jj being at most one. If the other coefficients are as their prior says,

    E[eta_j | beta_j] = p_j beta_j / r,    Var(eta_j | beta_j) = v (p_j - p_j^2),

and with r = 1 a reader who knows p on average can undo the shrinkage. Both exist whatever the number of rows. With k = r = 1
they are the mean under N(0, v I) and the diagonal of its S. There correlated columns are shrunk into one another: what one
has is read as the other's, in all tasks alike, and no number of tasks averages that out. The weaker the prior, the less of
it, and the less is determined where rows are few.

What is left of it is undone on average over coefficients, and not for each. Where columns have covariance C,

    r = tr(C S) / sum_j C_jj S_jj

is how much of rows' predictions is read back, x'S beta of x'beta, over what that were if no coefficient were read as another:
one where columns do not go together. Over rows, and over coefficients from N(0, v I), x'S beta has the covariance with x'beta
that it would have if every [S beta]_j were r S_jj beta_j. r is estimated over pairs of a task's rows, S being that of all its
other rows. As pairs are of one task, columns that are constant within tasks, such as an intercept, do not count.

Of an estimate b that was made elsewhere, with covariance V, the same is true of S = u (u I + V)^-1: the S above where V is
sigma^2 (X'X)^-1. There are no rows to tell r, which is taken for one.
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
#: Rows whose pairs are looked at, at most.
_MOST_ROWS = 256


class Shrunk(NamedTuple):
    """Shrunken estimates of one task.

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
        S, squares = share @ U.T**2, share**2 @ U.T**2
        residual = np.exp(weight @ np.log(RESIDUALS))
        together = read_together(X, residual / (weak_prior * prior_variance))
        estimates, determined = _each_by_itself((r * inverse) @ U.T, S, squares, weak_prior, together)
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
    mean: FloatArray, share: FloatArray, squares: FloatArray, weak_prior: float, together: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """eta and p by S b, the diagonal of S, that of S^2, and r; zeros of a coefficient of which rows say nothing."""
    read = np.minimum(together * share, 1.0)  # no coefficient is read as more than it is
    total = read**2 + np.maximum(squares - share**2, 0.0) + weak_prior * np.maximum(share - squares, 0.0)
    over = np.divide(read, total, out=np.zeros_like(total), where=total > 0)
    return over * mean, over * read


def read_together(X: FloatArray, ridge: float) -> float:
    """Compute how many times as much of all coefficients together rows determine as of each by itself: r.

    Over pairs of rows, d their difference and S that of all other rows: the sum of d'S d over that of sum_j d_j^2 S_jj. Of
    more rows than are looked at, those of some that are evenly spaced.

    Args:
        X: rows (n, d) in common units.
        ridge: sigma^2 / u.

    Returns:
        r; one of fewer than three rows, and where no row differs from another.
    """
    n, d = X.shape
    if n < 3:
        return 1.0
    try:
        inverse = np.linalg.inv(X.T @ X + ridge * np.eye(d))
    except np.linalg.LinAlgError:  # an error would tell the others of one task's rows
        return 1.0
    Z = X[np.unique(np.linspace(0, n - 1, min(n, _MOST_ROWS)).astype(int))]
    W = Z @ inverse
    H = W @ Z.T
    left = 1 - np.diag(H)
    # without rows r and s, Z their two, the inverse is inverse + W'(I - H)^-1 W, and (I - H)^-1 is this two by two matrix
    determinant = np.outer(left, left) - H**2
    np.fill_diagonal(determinant, np.inf)
    own, other = left / determinant, H / determinant
    D = Z - Z.mean(axis=0)  # whose differences are those of Z
    squared = 2 * len(Z) * (D**2).sum(axis=0)  # of d_j^2 over all pairs, either way round
    total = squared.sum()
    if not total > 1e-12 * len(Z) * (Z**2).sum():
        return 1.0
    read = total - 2 * ridge * ((own - other) * (np.diag(H)[:, None] - H)).sum()
    added = (W**2 * D**2) * own.sum(axis=1)[:, None] + W**2 * (own @ D**2) - 2 * W**2 * D * (own @ D)
    added += 2 * W * D**2 * (other @ W) - 2 * W * D * (other @ (W * D))
    each = total - ridge * (squared @ np.diag(inverse) + 2 * added.sum())
    # both lie between nothing and all of it, but for rounding
    return float(np.clip(read, 0.0, total) / min(each, total)) if each > 1e-9 * total else 1.0


def _nothing(d: int) -> Shrunk:
    """Return the estimates of a task whose rows say nothing."""
    return Shrunk(*np.zeros((2, d)))


def _sound(shrunk: Shrunk) -> Shrunk:
    """The estimates, or nothing in the place of numbers that leave double precision."""
    if not (np.isfinite(shrunk.estimate).all() and np.isfinite(shrunk.determined).all()):
        return _nothing(len(shrunk.estimate))
    return Shrunk(shrunk.estimate, np.clip(shrunk.determined, 0.0, 1.0))
