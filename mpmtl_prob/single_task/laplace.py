"""Logistic regression of single tasks by normal approximation (Laplace), with importance weights.

    y_ij in {-1, 1},   log odds of y_ij = 1:  x_ij'w_i,   w_i = S_i v_i,   v_i ~ N(0, c_i Omega)

S_i is the diagonal scale of :func:`mpmtl_prob.single_task.conjugate.scales`. The prior variance of the log odds averaged
over the task's rows, ``snr_i = c_i tr(X_i S_i Omega S_i X_i') / n_i`` (sigma is 1 here), is log-normal. Given snr the
posterior is log-concave and nearly normal. Over a grid of snr it is nearly a mixture of normals, weighted by the Laplace
evidence. Draws from that mixture, with somewhat longer tails, have importance weights, the ratios of exact to approximate
density, by which :func:`mpmtl_prob.sampling.importance.resampled` turns them into draws from the exact posterior.

With ``Omega = R R'`` and ``v = root(c) R u``, u is standard normal and the log odds are ``root(c) A u``, ``A = X S R``. Only
the projection t of u on the span of the rows of A, min(n, d) numbers, is in the likelihood; the other components keep their
prior.

The module uses NumPy in float64, as messages of a release do. Newton steps use matrices in float32 where that is precise
enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import expit, gammaln

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.single_task.conjugate import OF_MESSAGES, SnrPrior, in_turns

#: Prior of the variance of the log odds: their sd lies between .46 and 5.4 with probability .95, 1.6 in the middle. With
#: less, probabilities stay between .4 and .6, and rows have little information. A change by 5 takes .01 to .5 and .5 to .99,
#: which inputs rarely do. This is the argument by which Gelman, Jakulin, Pittau and Su (2008), Annals of Applied Statistics
#: 2, section 2.2, scale their default prior. Nothing was tuned on data.
SNR_MEDIAN = 2.5
SNR_LOG_SD = 1.25
# Grid of log(snr), in prior standard deviations, with steps of 0.31 on the log scale.
_GRID = np.linspace(-3.0, 3.0, 25)
_NEWTON = 100  # largest number of Newton steps; more than ten are rare
_TOLERANCE = 1e-4  # squared Newton decrement before the last step, in units of the log density; after it, its square
_REFINEMENTS = 8  # largest number of refinements
_NEGLIGIBLE = 1e-3  # weight of a grid value whose normal needs no refinement
_HOPELESS = 30.0  # values interpolated this far below the highest log weight are not computed
_CONDITION = 1e5  # largest condition number with which single precision still gives two digits of a step
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(9)
_SHARES = _SHARES / _SHARES.sum()


class _Rows(NamedTuple):
    """Rows of one task, in the basis in which weights are independent a priori."""

    L: FloatArray  #: rows A = L Q', (n, k)
    Q: FloatArray | None  #: orthonormal, (d, k); None where k = d and Q = I
    y: FloatArray  #: (n,)
    signal: float  #: ||A||_F^2 / n


@dataclass(frozen=True, eq=False, repr=False)
class LogisticPosteriors:
    """Approximate posteriors of all tasks' weights, mixtures of normals over the grid of snr.

    Attributes:
        tasks: the rows.
        root: R, (d, d).
        scale: the diagonals of S, (m, d).
        log_snr: the grid, (g,).
        weights: probability of each grid value, by the Laplace evidence, (m, g).
        log_laplace: Laplace approximation of log p(y_i | snr, Omega), (m, g).
        centre: mean of t at each grid value, for every task (g, k) with k = min(n_i, d).
        curvature: curvature of every row's loss there, for every task (g_i, n_i); the precision of t is
            I + c L' diag(curvature) L, A = L Q'. It is stored for values with a weight above .001, which were refined. For
            others it is that at the mode, and is recomputed when needed.
        mean: mean of W under the mixture, (d, m).
        log_evidence: Laplace approximation of log p(y_i | Omega), (m,).
    """

    tasks: TaskData
    root: FloatArray
    scale: FloatArray
    log_snr: FloatArray
    weights: FloatArray
    log_laplace: FloatArray
    centre: tuple[FloatArray, ...]
    curvature: tuple[NDArray[np.float32], ...]
    mean: FloatArray
    log_evidence: FloatArray

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw independent samples from the mixtures: ``W`` (S, d, m), ``log_snr`` (S, m), and ``log_ratio`` (S, m).

        ``log_ratio`` is the log importance weight, exact over approximate joint density. The mean of its exponential is exact
        over approximate evidence. A task's draws come from its own random stream and depend on its own rows alone. They are
        nan if these are not finite.
        """
        d, m = self.mean.shape
        draws = {"W": np.full((num_samples, d, m), np.nan)}
        draws |= {name: np.full((num_samples, m), np.nan) for name in ("log_snr", "log_ratio")}
        for i, stream in enumerate(rng.spawn(m)):
            if np.isfinite(self.weights[i]).all():
                task_draws = self._draws(stream, i, num_samples)
                draws["W"][:, :, i], draws["log_snr"][:, i], draws["log_ratio"][:, i] = task_draws
        return draws

    def _draws(self, rng: np.random.Generator, i: int, num_samples: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw W (S, d), log_snr (S,) and log_ratio (S,) of task i."""
        rows = _rows(*self.tasks.rows_of(i), self.root, self.scale[i])
        k, d = rows.L.shape[1], len(self.root)
        index = np.minimum(np.searchsorted(np.cumsum(self.weights[i]), rng.random(num_samples)), len(self.log_snr) - 1)
        # Multivariate t: where a direction separates the labels, the posterior has the prior's tail, longer than the
        # normal's. With df far above k the importance weights hardly vary because of it.
        df = max(8.0, 3.0 * k)
        z = rng.standard_normal((num_samples, k)) * np.sqrt(df / rng.chisquare(df, (num_samples, 1)))
        # Without 2 pi, as in the prior.
        log_norm = gammaln(0.5 * (df + k)) - gammaln(0.5 * df) - 0.5 * k * np.log(0.5 * df)
        unit = np.sqrt(np.exp(self.log_snr) / rows.signal)  # root(c)
        used, which = np.unique(index, return_inverse=True)
        C = np.linalg.cholesky(_precision(rows.L, self._curvature(rows, i, used, unit), unit[used]))
        log_det = np.log(np.diagonal(C, axis1=1, axis2=2)).sum(axis=1)
        t = self.centre[i][index]
        for j in range(len(used)):
            t[which == j] += solve_triangular(C[j], z[which == j].T, lower=True, trans="T").T
        log_t = log_norm + log_det[which] - 0.5 * (df + k) * np.log1p(np.sum(z**2, axis=1) / df)
        turns = in_turns(num_samples, len(rows.y), few=OF_MESSAGES)
        joint = [_log_joint(rows, t[now], unit[index[now]]) for now in turns]
        log_ratio = np.concatenate(joint) - self.log_laplace[i, index] - log_t
        u = t
        if rows.Q is not None:  # outside the span of the rows the prior is unchanged
            u = rng.standard_normal((num_samples, d))
            u += (t - u @ rows.Q) @ rows.Q.T
        return unit[index][:, None] * (u @ self.root.T) * self.scale[i], self.log_snr[index], log_ratio

    def _curvature(self, rows: _Rows, i: int, used: NDArray[np.int64], unit: FloatArray) -> NDArray[np.float32]:
        """Return the curvature of every row of task i at some of the grid values."""
        refined = self.weights[i] > _NEGLIGIBLE
        known = refined[used]
        curvature = np.empty((len(used), len(rows.y)), dtype=np.float32)
        curvature[known] = self.curvature[i][np.cumsum(refined)[used[known]] - 1]
        if not known.all():
            curvature[~known] = _bend(_log_odds(rows, self.centre[i], unit)[used[~known]])
        return curvature


def logistic_posteriors(
    tasks: TaskData,
    omega: FloatArray | None = None,
    scale: FloatArray | None = None,
    prior: SnrPrior = SnrPrior(SNR_MEDIAN, SNR_LOG_SD),  # noqa: B008
) -> LogisticPosteriors:
    """Approximate the posterior of every task given its own rows and the shape of the shared covariance.

    Args:
        tasks: the rows, with targets -1 and 1.
        omega: (d, d) positive definite, up to a factor; default the identity.
        scale: the diagonals of S_i, (m, d); default 1.
        prior: prior of the variance of the log odds.
    """
    m, d = tasks.num_tasks, tasks.num_features
    root = np.eye(d) if omega is None else np.linalg.cholesky(omega)
    S = np.ones((m, d)) if scale is None else scale
    log_snr = np.log(prior.median) + prior.log_sd * _GRID
    weights, log_laplace = np.full((m, len(_GRID)), np.nan), np.full((m, len(_GRID)), np.nan)
    centre, curvature = [np.zeros((0, 0))] * m, [np.zeros((0, 0), dtype=np.float32)] * m
    mean, log_evidence = np.full((d, m), np.nan), np.full(m, np.nan)
    for i, posterior in _each(tasks, root, S, log_snr):
        weights[i], log_laplace[i], centre[i], curvature[i] = (
            posterior.weight,
            posterior.log_laplace,
            posterior.centre,
            posterior.curvature,
        )
        mean[:, i], log_evidence[i] = posterior.mean, posterior.log_evidence
    per_task = tuple(centre), tuple(curvature)
    return LogisticPosteriors(tasks, root, S, log_snr, weights, log_laplace, *per_task, mean, log_evidence)


def logistic_means(
    tasks: TaskData,
    scale: FloatArray,
    prior: SnrPrior = SnrPrior(SNR_MEDIAN, SNR_LOG_SD),  # noqa: B008
) -> FloatArray:
    """Compute :attr:`LogisticPosteriors.mean`, (d, m), with Omega the identity, and store nothing else per task."""
    m, d = tasks.num_tasks, tasks.num_features
    mean = np.full((d, m), np.nan)
    for i, posterior in _each(tasks, np.eye(d), scale, np.log(prior.median) + prior.log_sd * _GRID):
        mean[:, i] = posterior.mean
    return mean


class _Alone(NamedTuple):
    """Posterior of one task, as in :class:`LogisticPosteriors`."""

    weight: FloatArray
    log_laplace: FloatArray
    centre: FloatArray
    curvature: NDArray[np.float32]
    mean: FloatArray
    log_evidence: float

    def __repr__(self) -> str:
        return shown(self)


def _each(tasks: TaskData, root: FloatArray, S: FloatArray, log_snr: FloatArray) -> Iterator[tuple[int, _Alone]]:
    """Yield every task's index and posterior, except for tasks whose rows are not finite, which affect no other task."""
    for i in range(tasks.num_tasks):
        rows = _rows(*tasks.rows_of(i), root, S[i])
        if np.isfinite(rows.signal) and np.isfinite(rows.y).all():
            posterior = _alone(rows, log_snr)
            yield (
                i,
                posterior._replace(
                    mean=S[i] * (root @ (posterior.mean if rows.Q is None else rows.Q @ posterior.mean))
                ),
            )


def _alone(rows: _Rows, log_snr: FloatArray) -> _Alone:
    """Compute one task's posterior, with the mean of root(c) t in place of the mean of the weights."""
    unit = np.sqrt(np.exp(log_snr) / rows.signal)  # root(c), (g,)
    centre, log_weight = _modes(rows, unit)
    highest = log_weight.max()
    weight = np.exp(log_weight - highest)
    log_evidence = highest + np.log(weight.sum() / np.exp(-0.5 * _GRID**2).sum())
    weight /= weight.sum()
    used = weight > _NEGLIGIBLE
    curvature = _bend(_log_odds(rows, centre, unit)[used])
    centre[used], curvature = _refined(rows, centre[used], curvature, unit[used])
    return _Alone(
        weight=weight,
        log_laplace=log_weight + 0.5 * _GRID**2,
        centre=centre,
        curvature=curvature.astype(np.float32),
        mean=(weight * unit) @ centre,
        log_evidence=log_evidence,
    )


def _rows(X: FloatArray, y: FloatArray, root: FloatArray, scale: FloatArray) -> _Rows:
    with np.errstate(over="ignore", invalid="ignore"):
        A = (X * scale) @ root
        signal = float(np.sum(A**2) / len(A))
    if len(A) >= len(root) or not np.isfinite(signal):
        return _Rows(A, None, y, signal or 1.0)
    Q, half = np.linalg.qr(A.T)
    return _Rows(half.T, Q, y, signal or 1.0)


def _log_odds(rows: _Rows, t: FloatArray, unit: FloatArray) -> FloatArray:
    """Return the log odds of every row, (c, n), for several t (c, k)."""
    eta: FloatArray = t @ rows.L.T
    eta *= unit[:, None]
    return eta


def _log_joint(rows: _Rows, t: FloatArray, unit: FloatArray) -> FloatArray:
    """Return log p(y | t) + log N(t; 0, I) + (k/2) log(2 pi) for several t (c, k), (c,)."""
    losses = _log_odds(rows, t, unit)  # overwritten by the rows' losses, as these are the largest arrays
    losses *= -rows.y
    np.logaddexp(0.0, losses, out=losses)
    return -np.sum(losses, axis=1) - 0.5 * np.sum(t**2, axis=1)


def _curvature(rows: _Rows, t: FloatArray, unit: FloatArray) -> FloatArray:
    """Return p (1 - p) of every row, (c, n)."""
    return _bend(_log_odds(rows, t, unit))


def _bend(eta: FloatArray) -> FloatArray:
    """Return p (1 - p) for log odds, and overwrite them by p."""
    p = expit(eta, out=eta)
    bend: FloatArray = 1 - p
    bend *= p
    return bend


def _precision(L: NDArray[np.floating], curvature: NDArray[np.floating], unit: FloatArray) -> NDArray[np.floating]:
    """Return I + c L' diag(curvature) L, (c, k, k), in the floating-point precision of L."""
    root = np.sqrt(curvature, dtype=np.float64)
    root *= unit[:, None]
    root = root.astype(L.dtype, copy=False)
    out = np.empty((len(unit), L.shape[1], L.shape[1]), dtype=L.dtype)
    for now in in_turns(len(unit), L.size):
        half = L * root[now, :, None]
        out[now] = np.eye(half.shape[-1], dtype=L.dtype) + np.swapaxes(half, 1, 2) @ half
    return out


def _roughly(rows: _Rows, unit: FloatArray) -> tuple[NDArray[np.floating], FloatArray]:
    """Return L and root(c) up to factors that cancel, with L in float32 if that gives two digits of a Newton step."""
    size = np.sqrt(rows.signal)
    # The trace of c L'L is n snr, and a curvature is at most 1/4.
    condition = 0.25 * len(rows.y) * (size * unit.max(initial=0.0)) ** 2
    return (rows.L / size).astype(np.float32 if condition < _CONDITION else np.float64), size * unit


def _gradient(rows: _Rows, t: FloatArray, p: FloatArray, unit: FloatArray) -> FloatArray:
    """Return the gradient of the log density, (c, k), given the rows' probabilities p (c, n)."""
    gradient: FloatArray = unit[:, None] * ((0.5 * (rows.y + 1) - p) @ rows.L) - t
    return gradient


def _modes(rows: _Rows, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find the mode of t at each grid value, (g, k), and the log of its weight up to a constant, (g,).

    The search starts from zero at every fourth value, and from a spline through known values at every second, then at all
    values. If the spline and both neighbours give a value a negligible weight, the spline is used without a search.
    """
    t, log_weight = np.zeros((len(unit), rows.L.shape[1])), np.zeros(len(unit))
    for known, new, spline in _order(len(unit), (4, 2, 1)):
        t[new], log_weight[new] = spline @ t[known], spline @ log_weight[known]
        if len(known):
            negligible = log_weight <= log_weight[known].max() - _HOPELESS
            step = new[0]  # distance to the neighbours, which are known
            new = new[~(negligible[new] & negligible[new - step] & negligible[new + step])]
        t[new], value = _newton(rows, t[new], unit[new])
        H = _precision(rows.L, _curvature(rows, t[new], unit[new]), unit[new])
        log_weight[new] = value - 0.5 * np.linalg.slogdet(H)[1] - 0.5 * _GRID[new] ** 2
    return t, log_weight


@cache
def _order(size: int, strides: Sequence[int]) -> list[tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]]:
    """Return, for every stride, the known indices of a grid, the next ones, and the cubic spline between them.

    Every stride includes both ends of the grid, so that the spline never extrapolates.
    """
    from scipy.interpolate import CubicSpline  # slow to import, with scipy.optimize

    known, order = np.arange(0), []
    for stride in strides:
        new = np.setdiff1d(np.arange(0, size, stride), known)
        spline = CubicSpline(known, np.eye(len(known)))(new) if len(known) else np.zeros((len(new), 0))
        order.append((known, new, spline))
        known = np.arange(0, size, stride)
    return order


def _newton(rows: _Rows, start: FloatArray, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find modes (c, k) and their log joint densities (c,) by Newton's method with step halving.

    The density is log-concave and its prior proper, so that it converges from any start, also for separable labels.
    """
    t = start.copy()
    value = _log_joint(rows, t, unit)
    active = np.arange(len(unit))
    L, root = _roughly(rows, unit)
    for _ in range(_NEWTON):
        now, c, before = t[active], unit[active], value[active]
        H = _precision(L, _curvature(rows, now, c), root[active])
        gradient = _gradient(rows, now, expit(_log_odds(rows, now, c)), c)
        step = np.linalg.solve(H, gradient[..., None].astype(L.dtype))[..., 0].astype(np.float64)
        decrement = np.sum(gradient * step, axis=1)
        size = np.ones(len(active))
        for _ in range(30):
            reached = _log_joint(rows, now + size[:, None] * step, c)
            short = reached < before + 1e-4 * size * decrement - 1e-12 * np.abs(before)
            if not np.any(short):
                break
            size = np.where(short, 0.5 * size, size)
        t[active], value[active] = now + size[:, None] * step, reached
        active = active[decrement > _TOLERANCE]
        if not len(active):
            break
    return t, value


def _refined(rows: _Rows, t: FloatArray, curvature: FloatArray, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Refine normals at modes towards the nearest ones in Kullback-Leibler divergence; return centres and curvatures.

    Gradient and curvature of the rows' losses are averaged over the normal instead of taken at its centre. Two steps are
    usually enough. The first one removes most of the skewness of the importance weights, as the mode is not the mean.

    Source: Opper and Archambeau (2009), Neural Computation 21, equations (2.7) and (2.8).
    """
    active = np.ones(len(t), dtype=bool)
    L, root = _roughly(rows, unit)
    for _ in range(_REFINEMENTS):
        V = np.linalg.inv(_precision(L, curvature, root))
        square = np.concatenate([np.sum((L @ V[now]) * L, axis=2) for now in in_turns(len(V), L.size)])
        sd = root[:, None] * np.sqrt(square)  # sd of the log odds
        del square
        eta = _log_odds(rows, t, unit)
        p, averaged = np.zeros_like(eta), np.zeros_like(eta)
        for now in in_turns(eta.shape[1], len(eta)):
            for node, share in zip(_NODES, _SHARES, strict=True):
                at_node = expit(eta[:, now] + node * sd[:, now])
                p[:, now] += share * at_node
                averaged[:, now] += share * at_node * (1 - at_node)
        del eta, sd
        gradient = _gradient(rows, t, p, unit)
        step = (V @ gradient[..., None])[..., 0]
        t = np.where(active[:, None], t + step, t)
        averaged += curvature
        averaged *= 0.5  # damped, as the iteration could oscillate otherwise
        curvature[active] = averaged[active]
        active = active & (np.sum(gradient * step, axis=1) > 0.1)
        if not active.any():
            break
    return t, curvature
