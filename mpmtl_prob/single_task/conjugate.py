"""Gaussian linear models of single tasks in closed form, from Gram matrices.

    y_i = X_i w_i + e,   e ~ N(0, sigma_i^2 I),   w_i = S_i v_i,   v_i ~ N(0, c_i Omega)

S_i is a diagonal scale that task i computes from its own rows. The scale-free signal-to-noise ratio
``snr_i = c_i tr(X_i S_i Omega S_i X_i') / (n_i sigma_i^2)`` carries the prior, log-normal; sigma_i has Jeffreys' prior
1/sigma_i. Given snr everything is conjugate, so the posterior is a mixture, over a grid of snr, of
normal-inverse-gammas. Omega matters only up to a factor, so that only directions must be learnt from other tasks.

The module uses NumPy in float64, so that the messages of a release do not depend on JAX settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.gram import Gram

#: Prior of the signal-to-noise ratio: from nearly zero to hundreds, with the middle half between .6 and 16. Picked by the
#: errors on synthetic data of 80 shapes, with true ratios of .5 to 128 (those of ``studies/benchmarks/shapes.py``).
SNR_MEDIAN = 3.0
SNR_LOG_SD = 2.5
GRID = np.linspace(-3.0, 3.0, 73)  # grid of log(snr), in prior standard deviations, with steps of 0.2 on the log scale


class SnrPrior(NamedTuple):
    """Prior of the signal-to-noise ratio, log(snr) ~ N(log(median), log_sd^2)."""

    median: float = SNR_MEDIAN
    log_sd: float = SNR_LOG_SD


#: Prior for slopes in a model with an intercept, which takes the mean out of the signal. R^2 = snr / (1 + snr) is then nearly
#: uniform; exactly uniform would be a logistic log(snr), with sd 1.81. On School slopes alone need less than the default.
SLOPES = SnrPrior(1.0, 1.8)

#: Prior for means that are sent as messages. Their direction matters, and shrinkage would turn it towards the features that
#: vary most. Picked by the test error on School and the papers' two synthetic sets.
SENT = SnrPrior(30.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPosteriors:
    """Posteriors of all tasks' weights, mixtures over the grid of signal-to-noise ratios.

    In the basis ``w = S R U z`` (Omega = R R', U the eigenvectors of R'S X'X S R) the components of z are independent.

    Attributes:
        weights: posterior probability of each grid value, (m, g).
        log_snr: the grid, (g,).
        ratio: c / sigma^2 at each grid value, (m, g).
        scale: the diagonals of S, (m, d).
        basis: R U, (m, d, d).
        eigenvalues: eigenvalues of R'S X'X S R, (m, d).
        projected: U'R'S X'y, (m, d).
        residual: y'(I + ratio X S Omega S X')^{-1} y at each grid value, (m, g).
        n: number of rows per task, (m,).
        log_evidence: log p(y_i | Omega) up to a constant of the task, (m,).
    """

    weights: FloatArray
    log_snr: FloatArray
    ratio: FloatArray
    scale: FloatArray
    basis: FloatArray
    eigenvalues: FloatArray
    projected: FloatArray
    residual: FloatArray
    n: FloatArray | NDArray[np.int64]
    log_evidence: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of W, (d, m)."""
        with np.errstate(all="ignore"):
            return self.scale.T * self.scaled_mean

    @property
    def scaled_mean(self) -> FloatArray:
        """Posterior mean of v = S^{-1} w, in which tasks are compared, (d, m)."""
        z = np.empty_like(self.projected)
        with np.errstate(all="ignore"):
            for now in in_turns(len(z), self.ratio.shape[1] * z.shape[1]):  # parts of the tasks
                ratio = self.ratio[now, :, None]
                shrunk = ratio / (1 + ratio * self.eigenvalues[now, None, :])
                z[now] = np.einsum("tg,tgj,tj->tj", self.weights[now], shrunk, self.projected[now])
            return np.einsum("tij,tj->it", self.basis, z)

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw independent samples: ``W`` (S, d, m), ``sigma`` (S, m) and ``log_snr`` (S, m).

        Every task has its own random stream, as the numbers that a gamma variable consumes depend on the number of rows.
        """
        with np.errstate(all="ignore"):  # a warning of an overflow would reveal one task
            drawn = [self._draws(i, stream, num_samples) for i, stream in enumerate(rng.spawn(len(self.n)))]
        W, sigma, log_snr = (np.moveaxis(np.stack(parts), 0, -1) for parts in zip(*drawn, strict=True))
        return {"W": W, "sigma": sigma, "log_snr": log_snr}

    def _draws(self, i: int, rng: np.random.Generator, num_samples: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw w (S, d), sigma (S,) and log_snr (S,) of task i."""
        index = np.searchsorted(np.cumsum(self.weights[i]), rng.random(num_samples))
        index = np.minimum(index, len(self.log_snr) - 1)
        ratio = self.ratio[i, index]
        # sigma^2 | snr, y ~ InverseGamma(n/2, residual/2)
        sigma2 = self.residual[i, index] / (2 * rng.standard_gamma(self.n[i] / 2, num_samples))
        shrunk = ratio[:, None] / (1 + ratio[:, None] * self.eigenvalues[i])
        z = shrunk * self.projected[i]
        z += np.sqrt(sigma2[:, None] * shrunk) * rng.standard_normal(z.shape)
        return z @ self.basis[i].T * self.scale[i], np.sqrt(sigma2), self.log_snr[index]


#: Scalings, with the power of a feature's mean square that is its scale.
SCALINGS = {"pareto": -0.25, "unit_variance": -0.5, "none": 0.0}


def scales(gram: Gram, scaling: str = "pareto") -> FloatArray:
    """Compute the diagonals of S_i, (m, d): rms(x_ij)^-1 with "unit_variance", its root with "pareto", 1 with "none".

    Each task computes them from its own rows. A feature that is zero in all rows of a task has the scale of the smallest one
    that is not. So has a feature below a millionth of the largest one, except with "unit_variance", as columns of a table
    may have any units.

    Source: van den Berg et al. (2006), BMC Genomics 7:142, table 1.
    """
    return scales_of(np.einsum("tii->ti", gram.xx), gram.n, scaling)


def scales_of(squares: FloatArray, n: NDArray[np.int64], scaling: str = "pareto") -> FloatArray:
    """Compute :func:`scales` from sums of squares of the features, (m, d), and numbers of rows, (m,)."""
    power = squares / n[:, None]  # mean of x_ij^2 over rows
    least = 0.0 if scaling == "unit_variance" else 1e-12 * power.max(axis=1, keepdims=True)
    seen = power > least
    rarest = np.min(np.where(seen, power, np.inf), axis=1, keepdims=True)
    power = np.where(seen, power, np.where(np.isfinite(rarest), rarest, 1.0))
    return power ** SCALINGS[scaling]


def gaussian_posteriors(
    gram: Gram,
    omega: FloatArray | None = None,
    scale: FloatArray | None = None,
    prior: SnrPrior = SnrPrior(),  # noqa: B008
) -> GaussianPosteriors:
    """Compute the posterior of every task given its own rows and the shape of the shared covariance.

    Args:
        gram: sufficient statistics of the m tasks.
        omega: (d, d) positive definite, up to a factor; default the identity, which is ridge regression with the penalty
            averaged by each task's own evidence.
        scale: the diagonals of S_i, (m, d); default 1.
        prior: of the signal-to-noise ratio.
    """
    m, d = gram.xy.shape
    R = np.eye(d) if omega is None else np.linalg.cholesky(omega)
    S = np.ones_like(gram.xy) if scale is None else scale
    log_snr = log_grid(prior)
    # One call per task, without arrays of other tasks, so that its result depends on no other task in any bit.
    posteriors = (alone(Gram(*(part[i] for part in gram)), S[i][:, None] * R, log_snr) for i in range(m))
    return gathered(posteriors, S, R, log_snr, gram.n)


def log_grid(prior: SnrPrior) -> FloatArray:
    """Return log(snr) at the grid of its prior, (g,)."""
    grid: FloatArray = np.log(prior.median) + prior.log_sd * GRID
    return grid


class SingleTaskPosterior(NamedTuple):
    """Posterior of one task, a part of :class:`GaussianPosteriors`; ``basis`` is U, (d, d)."""

    weights: FloatArray
    ratio: FloatArray
    basis: FloatArray
    eigenvalues: FloatArray
    projected: FloatArray
    residual: FloatArray
    log_evidence: FloatArray

    def __repr__(self) -> str:
        return shown(self)


def gathered(
    posteriors: Iterable[SingleTaskPosterior],
    scale: FloatArray,
    R: FloatArray,
    log_snr: FloatArray,
    n: FloatArray | NDArray[np.int64],
) -> GaussianPosteriors:
    """Collect the tasks' posteriors in arrays; R R' = Omega."""
    parts: list[FloatArray] = []
    for i, posterior in enumerate(posteriors):  # copied one by one, as a list of them would double the memory
        parts = parts or [np.empty((len(n), *np.shape(value))) for value in posterior]
        for part, value in zip(parts, posterior, strict=True):
            part[i] = value
    weights, ratio, basis, eigenvalues, projected, residual, evidence = parts
    for i in range(len(n)):
        basis[i] = R @ basis[i]
    return GaussianPosteriors(weights, log_snr, ratio, scale, basis, eigenvalues, projected, residual, n, evidence)


def alone(gram: Gram, SR: FloatArray, log_snr: FloatArray, signal: float | None = None) -> SingleTaskPosterior:
    """Compute one task's posterior; it is nan where numbers leave double precision.

    Args:
        gram: sufficient statistics of the task.
        SR: S R with R R' = Omega, (d, d).
        log_snr: the grid, (g,).
        signal: tr(X S Omega S X') / n, if it is not that of the Gram matrix.
    """
    with np.errstate(all="ignore"):
        try:
            eigenvalues, U = np.linalg.eigh(SR.T @ gram.xx @ SR)
        except np.linalg.LinAlgError:
            eigenvalues, U = np.full(len(SR), np.nan), np.full(SR.shape, np.nan)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        projected = (SR @ U).T @ gram.xy

        unit = eigenvalues.sum() / gram.n if signal is None else signal  # tr(X S Omega S X') / n
        ratio = np.exp(log_snr) / (1.0 if unit == 0 else unit)
        gain = ratio[:, None] * eigenvalues  # (g, d)
        explained = np.sum(ratio[:, None] * projected**2 / (1 + gain), axis=1)
        # Rounding may give a tiny negative residual where the rows are interpolated.
        residual = np.maximum(gram.yy - explained, np.finfo(float).eps * (gram.yy if gram.yy > 0 else 1.0))
        # log p(y | snr), sigma integrated out, plus the log prior
        log_weight = -0.5 * (np.sum(np.log1p(gain), axis=1) + gram.n * np.log(residual) + GRID**2)
        highest = log_weight.max()
        weights = np.exp(log_weight - highest)
        total = weights.sum()
    return SingleTaskPosterior(weights / total, ratio, U, eigenvalues, projected, residual, highest + np.log(total))


#: Largest size of temporary arrays, in numbers: a megabyte or two, about the size of a task's rows.
_AT_ONCE = 2**18
#: Number of draws from which a message is picked. They are always computed together, as the size of a part changes rounding.
OF_MESSAGES = 100


def in_turns(count: int, size: int, few: int = 0) -> list[slice]:
    """Split ``count`` items into parts that are computed together, where each item needs ``size`` numbers of memory.

    At most ``few`` items are in one part, whatever their size.
    """
    step = count if count <= few or count * size <= _AT_ONCE else max(1, _AT_ONCE // max(size, 1))
    return [slice(at, min(at + step, count)) for at in range(0, count, step)] if count else [slice(0, 0)]


def ridge(gram: Gram, penalty: float) -> FloatArray:
    """Fit ridge regression, argmin_w 0.5 ||y_i - X_i w||^2 + (penalty/2) ||w||^2, (d, m); minimum norm if penalty is 0."""
    return ridge_path(gram, [penalty])[0]


def ridge_path(gram: Gram, penalties: Sequence[float]) -> FloatArray:
    """Fit :func:`ridge` for several penalties, (penalties, d, m), with one decomposition per task."""
    return np.stack([_ridge(xx, xy, np.asarray(penalties)) for xx, xy in zip(gram.xx, gram.xy, strict=True)], axis=2)


def _ridge(xx: FloatArray, xy: FloatArray, penalties: FloatArray) -> FloatArray:
    eigenvalues, U = np.linalg.eigh(xx)
    shrunk = eigenvalues + penalties[:, None]  # (penalties, d)
    keep = np.where(penalties[:, None] == 0, eigenvalues > np.finfo(float).eps * len(xy) * eigenvalues[-1], True)
    w: FloatArray = (U.T @ xy * np.where(keep, 1 / np.where(keep, shrunk, 1.0), 0.0)) @ U.T
    return w
