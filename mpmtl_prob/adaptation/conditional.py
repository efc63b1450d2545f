"""The posterior of the target's weights without a sampler: Gaussian given the sizes of shift and residuals, on a grid.

    w | k, tau ~ N(w_k, V_k + tau^2 T_k / d)     k: a public domain, or none, with w_k = 0
    tau ~ half-Cauchy, or next to nothing with probability e_k;  log sigma ~ N(log of the public residuals' scale, .6^2)

and the release's moments as in :mod:`mpmtl_prob.adaptation.clipping`. T_k is the identity, but where k stands for other tasks
(:mod:`mpmtl_prob.adaptation.task_prior`). On the grid are tau and the size t of the target's residuals,
t^2 = sigma^2 + delta'X'X delta / n, on which attenuation depends: given both, the moments are linear in
delta = w - w_0, with a covariance that is iterated. In the evidence the doubt about X'X is multiplied with the shift that the
prior expects: with the posterior's, whatever explains the noise away were favoured.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from mpmtl_prob.adaptation.clipping import Moments, moments
from mpmtl_prob.adaptation.moments import MomentRelease
from mpmtl_prob.adaptation.shape import Shape, shape
from mpmtl_prob.tasks import FloatArray

#: prior probability of "none": so small that without information the posterior is the public fits', and evidence soon
#: outweighs it
NONE_BEFORE = 0.02
#: prior probability that the target's weights are a public domain's own
SAME_BEFORE = 0.2
#: sd of log sigma round the public residuals' scale
SIGMA_SPREAD = 0.6
#: tau on the grid, relative to its scale
TAUS = np.geomspace(0.02, 50.0, 21)
_SIZES = np.geomspace(
    0.3, 15.0, 400
)  # t, relative to the public residuals', of which those that rho'rho allows are kept
_KEPT = 13
_ROUNDS = 5  # of the covariance
_MOST = 0.98  # of t^2 that the shift may explain


class Prior(NamedTuple):
    """What is known before: public domains, and none.

    Attributes:
        means: w_k, (K + 1, d); the last is none's, zero.
        covariances: V_k, (K + 1, d, d).
        shapes: T_k, (K + 1, d, d).
        scales: of the half-Cauchy of tau_k, in units of weights, (K + 1,).
        sigma: scale of the public residuals.
        second_moment: of the source's features, (d, d).
        log_odds: log prior probabilities, (K + 1,).
        same: e_k, that there is no shift at all, (K + 1,).
    """

    means: FloatArray
    covariances: FloatArray
    shapes: FloatArray
    scales: FloatArray
    sigma: float
    second_moment: FloatArray
    log_odds: FloatArray
    same: FloatArray

    @property
    def log_tau(self) -> FloatArray:
        """Log probabilities of the tau of :data:`TAUS`, (K + 1, G)."""
        cauchy = TAUS / (1 + TAUS**2)  # on equal steps of log tau
        first = np.arange(len(TAUS)) == 0
        found: FloatArray = np.log((1 - self.same)[:, None] * cauchy / cauchy.sum() + self.same[:, None] * first)
        return found


class Grid(NamedTuple):
    """A mixture of Gaussians: every cell is a domain k, a tau and a t.

    Attributes:
        weights: probabilities, (K + 1, G, H).
        means: of w, (K + 1, G, H, d).
        covariances: (K + 1, G, H, d, d).
        tau: (K + 1, G).
        sizes: t, (H,).
        centre: w_0.
        second_moment: of the target's features, as far as it is known, (d, d).
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    tau: FloatArray
    sizes: FloatArray
    centre: FloatArray
    second_moment: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Of w, (d,)."""
        return np.einsum("kgh,kghd->d", self.weights, self.means)

    def draw(self, rng: np.random.Generator, draws: int) -> tuple[FloatArray, Any, FloatArray, FloatArray]:
        """Draws of w (S, d), k, tau and sigma (S,); sigma^2 is what the shift leaves of t^2."""
        cells = rng.choice(self.weights.size, size=draws, p=self.weights.ravel())
        k, g, h = np.unravel_index(cells, self.weights.shape)
        values, Q = np.linalg.eigh(self.covariances[k, g, h])
        z = rng.standard_normal(values.shape) * np.sqrt(np.maximum(values, 0.0))
        w = self.means[k, g, h] + np.einsum("sij,sj->si", Q, z)
        explained = np.einsum("si,ij,sj->s", w - self.centre, self.second_moment, w - self.centre)
        t2 = self.sizes[h] ** 2
        return w, k, self.tau[k, g], np.sqrt(np.maximum(t2 - explained, (1 - _MOST) * t2))


def posterior(release: MomentRelease, prior: Prior) -> Grid:
    """p(w, k, tau, sigma | release), a mixture over the grid."""
    found = shape(release.xx, release.sd * release.row_bound**2, release.num_records, prior.second_moment)
    t = sizes(release, prior.sigma)
    psi = moments(t, release.residual_bound, np, ndtr)
    parts = [_domain(release, prior, found, k, psi) for k in range(len(prior.means))]
    log_weights = np.stack([part[0] for part in parts]) + prior.log_odds[:, None, None]
    weights = np.exp(log_weights - log_weights.max())
    means, covariances = (np.stack([part[i] for part in parts]) for i in (1, 2))
    tau, C = prior.scales[:, None] * TAUS, found.mean / max(release.num_records, 1)
    return Grid(weights / weights.sum(), means + release.centre, covariances, tau, t, release.centre, C)


def sizes(release: MomentRelease, scale: float) -> FloatArray:
    """The sizes t of residuals that the release allows, from rho'rho alone, equally far apart in log t, (H,)."""
    t = scale * _SIZES
    psi, n = moments(t, release.residual_bound, np, ndtr), release.num_records
    variance = n * psi.spread(0.0) + 2 * (release.sd * release.residual_unit**2) ** 2
    log_weight = -0.5 * (np.log(variance) + (release.rr - n * psi.square) ** 2 / variance)
    log_weight -= 0.5 * (np.log(t / scale) / (2 * SIGMA_SPREAD)) ** 2  # the shift may explain a lot
    inside = np.flatnonzero(log_weight > log_weight.max() - 9.0)
    return np.geomspace(t[max(inside[0] - 1, 0)], t[min(inside[-1] + 1, len(t) - 1)], _KEPT)


def _domain(
    release: MomentRelease, prior: Prior, found: Shape, k: int, psi: Moments
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log weights (G, H), means of delta (G, H, d) and covariances (G, H, d, d) of one domain."""
    n, N, d = max(release.num_records, 1), found.mean, len(release.centre)
    C, m = N / n, prior.means[k] - release.centre
    noise = (release.sd * release.row_bound * release.residual_unit) ** 2 * np.eye(d)  # of X'rho
    P = prior.covariances[k] + (prior.scales[k] * TAUS)[:, None, None] ** 2 * prior.shapes[k] / d
    t2 = psi.total
    off = release.rr - release.num_records * psi.square  # of rho'rho from what t leads one to expect, (H,)
    noise_rr = 2 * (release.sd * release.residual_unit**2) ** 2

    square = np.broadcast_to((P + np.outer(m, m))[:, None], (len(TAUS), _KEPT, d, d))
    first = np.einsum("...ij,ji", square, C)
    square = square * np.minimum(1.0, _MOST * t2 / first)[..., None, None]  # the shift explains at most t^2
    expected = psi.kept[:, None, None] ** 2 * found.doubt(square)
    for _ in range(_ROUNDS):
        q = np.minimum(np.einsum("...ij,ji", square, C), _MOST * t2)
        var_rr = release.num_records * psi.spread(q) + noise_rr
        both = psi.common(q) / var_rr
        slope = psi.kept + both * off  # what rho'rho says of the noise in x'rho
        along, across = psi.along(q), psi.across(q) - both * psi.common(q) * n
        inner = N @ square @ N
        R = along[..., None, None] * N + np.maximum(across, -along / np.maximum(q, 1e-300))[..., None, None] * inner / n
        R = R + noise
        A = slope[..., None, None] * N
        gap = release.xr - np.einsum("...ij,j", A, m)
        T = A @ P[:, None] @ A + R + psi.kept[:, None, None] ** 2 * found.doubt(square)
        K = np.swapaxes(np.linalg.solve(T, A @ P[:, None]), -1, -2)
        mean = m + np.einsum("...ij,...j", K, gap)
        covariance = P[:, None] - K @ A @ P[:, None]
        covariance = (covariance + np.swapaxes(covariance, -1, -2)) / 2
        square = covariance + mean[..., :, None] * mean[..., None, :]
        share = np.einsum("...ij,ji", square, C) / t2
        square = square * np.minimum(1.0, _MOST / np.maximum(share, 1e-300))[..., None, None]
    # the evidence; what is not known of the features enters as the prior expects it
    log_weights = _log_normal(gap, A @ P[:, None] @ A + R + expected) - 0.5 * (np.log(var_rr) + off**2 / var_rr)
    sigma2 = np.maximum(t2 - np.einsum("...ij,ji", square, C), (1 - _MOST) * t2)
    # priors: of sigma with d log sigma / d log t = t^2 / sigma^2, and of tau
    log_sigma = 0.5 * np.log(sigma2 / prior.sigma**2)
    log_weights = log_weights - 0.5 * (log_sigma / SIGMA_SPREAD) ** 2 + np.log(t2 / sigma2)
    log_weights = log_weights + prior.log_tau[k][:, None]
    log_weights = log_weights - 20.0 * np.maximum(share - 1.0, 0.0)  # more than there is to explain
    return log_weights, mean, covariance


def _log_normal(x: FloatArray, covariance: FloatArray) -> FloatArray:
    """log N(x; 0, covariance) up to a constant, (...)."""
    L = np.linalg.cholesky(covariance)
    z = np.linalg.solve(L, x[..., None])[..., 0]
    return -0.5 * np.sum(z**2, axis=-1) - np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)
