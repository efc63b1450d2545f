"""One task's logistic regression by normal approximation, for all tasks at once: :mod:`mpmtl_prob.conjugate`'s sibling.

    y_ij in {-1, 1},   log odds of y_ij = 1:  x_ij'w_i,   w_i = S_i v_i,   v_i ~ N(0, c_i Omega)

S_i is the diagonal scale of :func:`mpmtl_prob.conjugate.pareto_scale`. ``snr_i = c_i tr(X_i S_i Omega S_i X_i') / n_i``, the
prior variance of the log odds averaged over the task's rows (sigma is 1 here), is log-normal. Given snr the posterior is
log-concave and nearly normal; over a grid of snr it is nearly a mixture of normals, weighted by Laplace's evidence. Draws of
that mixture, with somewhat longer tails, come with the ratio of exact to approximate density, by which
:func:`mpmtl_prob.inference.importance.resampled` makes them draws of the exact posterior.

With ``Omega = R R'`` and ``v = root(c) R u``, u is standard normal and the log odds are ``root(c) A u``, ``A = X S R``. Only
the projection t of u on the span of the rows of A meets the data, min(n, d) numbers; the rest keeps its prior.

NumPy in float64, as the messages of a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from mpmtl_prob._chunks import in_chunks
from mpmtl_prob.conjugate import SnrPrior
from mpmtl_prob.tasks import FloatArray, TaskData

#: Prior of the variance of the log odds: their sd lies between .46 and 5.4 with probability .95, 1.6 in the middle. With
#: less, probabilities stay between .4 and .6, and rows say next to nothing; a change by 5 takes .01 to .5 and .5 to .99,
#: and inputs hardly ever do that: the argument by which Gelman, Jakulin, Pittau and Su (2008), Annals of Applied
#: Statistics 2, section 2.2, scale their default prior. Nothing was tuned on data.
SNR_MEDIAN = 2.5
SNR_LOG_SD = 1.25
_GRID = np.linspace(-3.0, 3.0, 25)  # of log(snr), in prior standard deviations: 0.31 on the log scale
_NEWTON = 100  # steps at most; ten are many
_TOLERANCE = 1e-4  # squared Newton decrement before the last step, in units of the log density; after it, its square
_REFINEMENTS = 8  # at most
_NEGLIGIBLE = 1e-3  # weight of a grid value whose normal needs no refinement
_FAR = 12.0  # log weight below the largest at which the grid ends
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(9)
_SHARES = _SHARES / _SHARES.sum()


class _Rows(NamedTuple):
    """A chunk of tasks in the basis in which weights are a priori independent."""

    L: FloatArray  #: rows A = L Q', (c, n, k), zero on padding
    Q: FloatArray | None  #: orthonormal, (c, d, k); None where k = d and Q = I
    y: FloatArray  #: (c, n)
    mask: FloatArray  #: (c, n)
    signal: FloatArray  #: ||A||_F^2 / n, (c,)


@dataclass(frozen=True, eq=False, repr=False)
class TaskPosteriors:
    """Every task's mixture of normals, over the grid of snr.

    Attributes:
        tasks: the rows.
        root: R, (d, d).
        scale: the diagonals of S, (m, d).
        log_snr: the grid, (g,).
        weights: probability of each grid value, by Laplace's evidence, (m, g).
        log_laplace: log p(y_i | snr, Omega) by Laplace's method, (m, g).
        centre: mean of t at each grid value, (m, g, k) with k = min(n, d).
        curvature: of every row's loss there; the precision of t is I + c L' diag(curvature) L, A = L Q'; (m, g, n).
        mean: of W under the mixture, (d, m).
        log_evidence: Laplace's log p(y_i | Omega), (m,).
    """

    tasks: TaskData
    root: FloatArray
    scale: FloatArray
    log_snr: FloatArray
    weights: FloatArray
    log_laplace: FloatArray
    centre: FloatArray
    curvature: NDArray[np.float32]
    mean: FloatArray
    log_evidence: FloatArray

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Independent draws of the mixtures: ``W`` (S, d, m), ``log_snr`` (S, m), and ``log_ratio`` (S, m), the logarithm of
        exact over approximate joint density; its exponential has mean exact over approximate evidence.

        A task's draws depend on its own rows alone. Those of a task whose rows are not numbers are nan.
        """
        d, m = self.mean.shape
        draws = {"W": np.full((num_samples, d, m), np.nan)}
        draws |= {name: np.full((num_samples, m), np.nan) for name in ("log_snr", "log_ratio")}
        own = rng.spawn(m)

        def one(part: slice) -> None:
            rows = _rows(self.tasks, self.root, self.scale, part)
            for j, i in enumerate(range(m)[part]):
                if np.isfinite(self.weights[i]).all():
                    found = self._draws(own[i], _one(rows, j), i, num_samples)
                    draws["W"][:, :, i], draws["log_snr"][:, i], draws["log_ratio"][:, i] = found

        in_chunks(one, m, bytes_per_task=8 * self.tasks.X[0].size)
        return draws

    def _draws(
        self, rng: np.random.Generator, rows: _Rows, i: int, num_samples: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """W (S, d), log_snr (S,) and log_ratio (S,) of task i."""
        k, d = rows.L.shape[-1], len(self.root)
        index = np.minimum(np.searchsorted(np.cumsum(self.weights[i]), rng.random(num_samples)), len(self.log_snr) - 1)
        # multivariate t: where labels agree with a direction the posterior's tail is the prior's, wider than the normal's;
        # with df far above k, ratios hardly vary for it
        df = max(8.0, 3.0 * k)
        z = rng.standard_normal((num_samples, k)) * np.sqrt(df / rng.chisquare(df, (num_samples, 1)))
        log_norm = (
            gammaln(0.5 * (df + k)) - gammaln(0.5 * df) - 0.5 * k * np.log(0.5 * df)
        )  # but for 2 pi, as the prior
        unit = np.sqrt(np.exp(self.log_snr) / rows.signal)  # root(c)
        used, which = np.unique(index, return_inverse=True)
        C = np.linalg.cholesky(_precision(rows, self.curvature[i, used], unit[used]))
        inverse, log_det = np.linalg.inv(C), np.log(np.diagonal(C, axis1=1, axis2=2)).sum(axis=1)
        t = self.centre[i, index]
        for j in range(len(used)):
            t[which == j] += z[which == j] @ inverse[j]
        log_t = log_norm + log_det[which] - 0.5 * (df + k) * np.log1p(np.sum(z**2, axis=1) / df)
        log_ratio = _log_joint(rows, t, unit[index, None]) - self.log_laplace[i, index] - log_t
        u = t
        if rows.Q is not None:  # beyond the span of the rows the prior stays as it is
            u = rng.standard_normal((num_samples, d))
            u += (t - u @ rows.Q[0]) @ rows.Q[0].T
        return unit[index][:, None] * (u @ self.root.T) * self.scale[i], self.log_snr[index], log_ratio


def task_posteriors(
    tasks: TaskData,
    omega: FloatArray | None = None,
    scale: FloatArray | None = None,
    prior: SnrPrior = SnrPrior(SNR_MEDIAN, SNR_LOG_SD),  # noqa: B008
) -> TaskPosteriors:
    """Laplace's posterior of every task given its own rows and the shape of the shared covariance.

    Args:
        tasks: the rows, with targets -1 and 1.
        omega: (d, d) positive definite, up to a factor; default the identity.
        scale: the diagonals of S_i, (m, d); default 1.
        prior: of the variance of the logits.
    """
    m, n, d = tasks.X.shape
    root = np.eye(d) if omega is None else np.linalg.cholesky(omega)
    S = np.ones((m, d)) if scale is None else scale
    log_snr = np.log(prior.median) + prior.log_sd * _GRID
    weights, log_laplace = np.empty((m, len(_GRID))), np.empty((m, len(_GRID)))
    centre = np.empty((m, len(_GRID), min(n, d)))
    curvature = np.empty((m, len(_GRID), n), dtype=np.float32)
    mean, log_evidence = np.empty((d, m)), np.empty(m)

    def one(part: slice) -> None:
        rows = _rows(tasks, root, S, part)
        unit = np.sqrt(np.exp(log_snr) / rows.signal[:, None])  # root(c), (c, g)
        with np.errstate(invalid="ignore"):  # rows that are not numbers spoil their own task alone
            _modes(rows, unit, log_laplace[part], centre[part], curvature[part])
        log_weight = log_laplace[part] - 0.5 * _GRID**2
        highest = log_weight.max(axis=1, keepdims=True)
        weight = np.exp(log_weight - highest)
        log_evidence[part] = highest[:, 0] + np.log(weight.sum(axis=1) / np.exp(-0.5 * _GRID**2).sum())
        weights[part] = weight = weight / weight.sum(axis=1, keepdims=True)
        for g in np.flatnonzero(np.any(weight > _NEGLIGIBLE, axis=0)):
            centre[part, g], curvature[part, g] = _refined(
                rows, centre[part, g], curvature[part, g], unit[:, g], weight[:, g] > _NEGLIGIBLE
            )
        t = np.einsum("tg,tg,tgk->tk", weight, unit, centre[part])
        u = t if rows.Q is None else np.einsum("tik,tk->ti", rows.Q, t)
        mean[:, part] = (S[part] * (u @ root.T)).T

    in_chunks(one, m, bytes_per_task=8 * n * d)
    return TaskPosteriors(tasks, root, S, log_snr, weights, log_laplace, centre, curvature, mean, log_evidence)


def _modes(
    rows: _Rows,
    unit: FloatArray,
    log_laplace: FloatArray,
    centre: FloatArray,
    curvature: NDArray[np.float32],
) -> None:
    """Fill in the modes along the grid: from its middle up, then down, until what follows weighs nothing.

    Every mode is looked for where the last two point.
    """
    middle = len(_GRID) // 2
    log_laplace[:], centre[:], curvature[:] = -np.inf, 0.0, 0.0
    highest = np.full(len(log_laplace), -np.inf)
    for direction, first in ((1, middle), (-1, middle - 1)):
        t = before = centre[:, middle] if direction < 0 else np.zeros_like(centre[:, 0])
        alive = np.ones(len(log_laplace), dtype=bool)  # every task ends by itself, whoever shares its chunk
        for g in range(first, len(_GRID) if direction > 0 else -1, direction):
            before, (t, log_laplace[:, g]) = t, _mode(rows, 2 * t - before, unit[:, g])
            centre[:, g], curvature[:, g] = t, _curvature(rows, t, unit[:, g])
            log_weight = log_laplace[:, g] - 0.5 * _GRID[g] ** 2
            log_laplace[:, g] = np.where(alive, log_laplace[:, g], -np.inf)
            highest = np.where(alive, np.maximum(highest, log_weight), highest)
            alive = alive & ~(log_weight < highest - _FAR)
            if not alive.any():
                break


def _rows(tasks: TaskData, root: FloatArray, scale: FloatArray, part: slice) -> _Rows:
    mask = np.asarray(tasks.mask[part], dtype=np.float64)
    A = (np.asarray(tasks.X[part], dtype=np.float64) * scale[part, None, :]) @ root
    signal = np.sum(A**2, axis=(1, 2)) / mask.sum(axis=1)
    Q, L = None, A
    if A.shape[1] < A.shape[2]:
        Q, half = np.linalg.qr(np.swapaxes(A, 1, 2))
        L = np.swapaxes(half, 1, 2)
    return _Rows(L, Q, np.asarray(tasks.y[part], dtype=np.float64), mask, np.where(signal == 0, 1.0, signal))


def _one(rows: _Rows, j: int) -> _Rows:
    return _Rows(*(None if leaf is None else leaf[j : j + 1] for leaf in rows))  # type: ignore[arg-type]


def _log_odds(rows: _Rows, t: FloatArray, unit: FloatArray) -> FloatArray:
    """Of every row, (c, n), for t (c, k)."""
    return unit[:, None] * (rows.L @ t[..., None])[..., 0]


def _log_joint(rows: _Rows, t: FloatArray, unit: FloatArray | float) -> FloatArray:
    """log p(y | t) + log N(t; 0, I) + (k/2) log(2 pi): of t (c, k), or of several t (S, k) of a single task."""
    eta = t @ rows.L[0].T * unit if len(rows.L) == 1 else _log_odds(rows, t, np.asarray(unit))
    return -np.sum(rows.mask * np.logaddexp(0.0, -rows.y * eta), axis=1) - 0.5 * np.sum(t**2, axis=1)


def _curvature(rows: _Rows, t: FloatArray, unit: FloatArray) -> FloatArray:
    """p (1 - p) of every row, (c, n)."""
    p = expit(_log_odds(rows, t, unit))
    return rows.mask * p * (1 - p)


def _precision(rows: _Rows, curvature: NDArray[np.floating], unit: FloatArray | float) -> FloatArray:
    """I + c L' diag(curvature) L, (c, k, k)."""
    half = rows.L * (np.reshape(unit, (-1, 1)) * np.sqrt(curvature.astype(np.float64)))[..., None]
    return np.eye(half.shape[-1]) + np.swapaxes(half, 1, 2) @ half


def _gradient(rows: _Rows, t: FloatArray, p: FloatArray, unit: FloatArray) -> FloatArray:
    """Of the log density where the rows have probabilities p, (c, k)."""
    error = rows.mask * (0.5 * (rows.y + 1) - p)
    gradient: FloatArray = unit[:, None] * (error[:, None, :] @ rows.L)[:, 0] - t
    return gradient


def _mode(rows: _Rows, start: FloatArray, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mode of every task's t, (c, k), and Laplace's log p(y | snr), (c,), by Newton's method with step halving.

    The density is log-concave and its prior proper, so this converges from anywhere, for separable rows too.
    """
    t, value = start, _log_joint(rows, start, unit)
    active = np.ones(len(t), dtype=bool)  # every task stops by itself, whoever shares its chunk
    kept = np.empty((len(t), t.shape[1], t.shape[1]))
    for _ in range(_NEWTON):
        H = _precision(rows, _curvature(rows, t, unit), unit)
        kept[active] = H[active]
        gradient = _gradient(rows, t, expit(_log_odds(rows, t, unit)), unit)
        step = np.linalg.solve(H, gradient[..., None])[..., 0]
        decrement = np.sum(gradient * step, axis=1)
        size = active.astype(float)
        for _ in range(30):
            reached = _log_joint(rows, t + size[:, None] * step, unit)
            short = active & (reached < value + 1e-4 * size * decrement - 1e-12 * np.abs(value))
            if not np.any(short):
                break
            size = np.where(short, 0.5 * size, size)
        t, value = t + size[:, None] * step, reached
        active = active & (decrement > _TOLERANCE)
        if not active.any():
            break
    return t, value - 0.5 * np.linalg.slogdet(kept)[1]


def _refined(
    rows: _Rows, t: FloatArray, curvature: NDArray[np.floating], unit: FloatArray, active: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.floating]]:
    """The normal at a mode moved towards the one that is nearest in Kullback-Leibler divergence: centre and curvature.

    Gradient and curvature of the rows' losses are averaged over the normal instead of taken at its centre. Two steps are
    the rule: the first takes most of the skewness out of the ratios of a mode's normal, whose centre is not the mean.

    Source: Opper and Archambeau (2009), Neural Computation 21, equations (2.7) and (2.8).
    """
    for _ in range(_REFINEMENTS):
        V = np.linalg.inv(_precision(rows, curvature, unit))
        sd = unit[:, None] * np.sqrt(np.sum((rows.L @ V) * rows.L, axis=2))  # of the log odds
        eta = _log_odds(rows, t, unit)
        p, averaged = np.zeros_like(eta), np.zeros_like(eta)
        for node, share in zip(_NODES, _SHARES, strict=True):
            each = expit(eta + node * sd)
            p += share * each
            averaged += share * rows.mask * each * (1 - each)
        gradient = _gradient(rows, t, p, unit)
        step = (V @ gradient[..., None])[..., 0]
        t = np.where(active[:, None], t + step, t)
        half_way = 0.5 * (curvature + averaged)  # else the two may take turns
        curvature = np.where(active[:, None], half_way, curvature)
        active = active & (np.sum(gradient * step, axis=1) > 0.1)
        if not active.any():
            break
    return t, curvature
