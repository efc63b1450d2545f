"""Posterior of the target's weights without a sampler: a mixture of Gaussians, on a grid of the shift's and residuals' sizes.

    w | k, tau ~ N(w_k, V_k + tau^2 T_k / d)     k: a public domain, or none, with w_k = 0
    tau ~ half-t_3, or nearly 0 with probability e_k;  log sigma ~ N(log of the public residuals' scale, .6^2)

and the release's moments as in :mod:`mpmtl_prob.adaptation.moments.clipping`. T_k is the identity, unless k stands
for other tasks (:mod:`~mpmtl_prob.adaptation.moments.task_prior`). Every public domain also enters a second time, with
slopes proportional to the size of the errors, as both are smaller where targets vary less than the public ones. That
size is first estimated from the release with the domains as they are. The grid is over tau and over the size t of the
target's residuals, t^2 = sigma^2 + q, q = delta'X'X delta / n, on which the attenuation depends. Given both, the moments
are linear in delta = w - w_0, with a covariance that is iterated.

The prior density of t is that of the sigma which q leaves of it, averaged over q, which is uncertain for a large shift.
In the evidence, the uncertainty of X'X is multiplied with the shift that the prior expects. With the posterior's shift
the evidence would favour whatever explains the noise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.adaptation.moments.clipping import Moments, moments
from mpmtl_prob.adaptation.moments.feature_moment import Shape, shape
from mpmtl_prob.adaptation.moments.release import MomentRelease

#: prior probability of "none": small, so that without information the posterior is near the public fits
NONE_BEFORE = 0.02
#: prior probability that the target's weights are a public domain's own
SAME_BEFORE = 0.2
#: prior probability that a domain's slopes are proportional to the errors' size, and the sd of its level and slopes then,
#: as a share of each; picked from .15 to .5, and from .15, .25, .35 and .5, on School's splits 100 to 109 (boys,
#: 1987, vr_band_1)
RESCALED_BEFORE, RESCALED_SPREAD = 0.4, 0.35
#: sd of log sigma around the public residuals' scale
SIGMA_SPREAD = 0.6
#: tau on the grid, relative to its scale
TAUS = np.geomspace(0.02, 50.0, 21)
# Candidates for t, relative to the public residuals; those that rho'rho rules out are dropped.
_SIZES = np.geomspace(0.15, 150.0, 1000)
_FEWEST, _APART = 13, 0.15  # least number of sizes t, and their largest distance in log t
_ROUNDS = 5  # iterations of the covariance
_MOST = 0.98  # largest share of t^2 that the shift may explain, in covariances
_TRIES = 16  # candidate shifts for one draw
_LEAST = 1e-100  # its square does not underflow
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(80)


_Part = tuple[FloatArray, FloatArray, FloatArray]


class Prior(NamedTuple):
    """Prior of the target's weights: a mixture over the public domains and "none".

    Attributes:
        means: w_k, (K + 1, d); the last row, for "none", is zero.
        covariances: V_k, (K + 1, d, d).
        shapes: T_k, (K + 1, d, d).
        scales: scales of the half-t_3 of tau_k, in units of weights, (K + 1,).
        sigma: scale of the public residuals.
        second_moment: of the source's features, (d, d).
        log_odds: log prior probabilities, (K + 1,).
        same: e_k, probabilities of no shift, (K + 1,).
        slopes: the part of w_k that may be proportional to sigma, (K + 1, d); zero where there is none.
    """

    means: FloatArray
    covariances: FloatArray
    shapes: FloatArray
    scales: FloatArray
    sigma: float
    second_moment: FloatArray
    log_odds: FloatArray
    same: FloatArray
    slopes: FloatArray

    def rescaled(self, sigma: float) -> Prior:
        """Return the prior with every domain a second time, with its slopes scaled down to sigma; "none" stays last."""
        k = np.flatnonzero(self.slopes.any(axis=1))
        level, slopes = self.means[k] - self.slopes[k], min(sigma / self.sigma, 1.0) * self.slopes[k]
        off = RESCALED_SPREAD * np.stack([level, slopes], axis=2)
        odds, same = self.log_odds.copy(), self.same.copy()
        odds[k] += np.log(1 - RESCALED_BEFORE)
        same[k] /= 1 - RESCALED_BEFORE  # so that the probability of no shift stays what it was
        both: dict[str, tuple[FloatArray, FloatArray]] = {
            "means": (self.means, level + slopes),
            "covariances": (self.covariances, self.covariances[k] + off @ np.swapaxes(off, 1, 2)),
            "log_odds": (odds, self.log_odds[k] + np.log(RESCALED_BEFORE)),
            "shapes": (self.shapes, self.shapes[k]),
            "scales": (self.scales, self.scales[k]),
            "same": (same, self.same[k]),
            "slopes": (0 * self.slopes, 0 * slopes),
        }
        rows: dict[str, Any] = {name: np.concatenate([old[:-1], new, old[-1:]]) for name, (old, new) in both.items()}
        return self._replace(**rows)

    @property
    def log_tau(self) -> FloatArray:
        """Log probabilities of tau on the grid :data:`TAUS`, (K + 1, G)."""
        half_t = TAUS / (1 + TAUS**2 / 3) ** 2  # per step of log tau; a half-Cauchy's tail could outweigh 60 records
        first = np.arange(len(TAUS)) == 0
        log_probabilities: FloatArray = np.log(
            (1 - self.same)[:, None] * half_t / half_t.sum() + self.same[:, None] * first
        )
        return log_probabilities


class Grid(NamedTuple):
    """Posterior as a mixture of Gaussians, with one component for every domain k, tau and t.

    Attributes:
        weights: probabilities, (K + 1, G, H).
        means: means of w, (K + 1, G, H, d).
        covariances: covariances of w, (K + 1, G, H, d, d).
        tau: (K + 1, G).
        sizes: t, (H,).
        centre: w_0.
        second_moment: posterior mean of the target's features' second moment, (d, d).
        sigma: scale of the public residuals.
        prior: the prior, with domains that enter twice.
        domains: for every domain of ``prior``, its index in the prior that was given, (K + 1,).
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    tau: FloatArray
    sizes: FloatArray
    centre: FloatArray
    second_moment: FloatArray
    sigma: float
    prior: Prior
    domains: Any

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of w, (d,)."""
        return np.einsum("kgh,kghd->d", self.weights, self.means)

    @property
    def typical_sigma(self) -> float:
        """exp of the posterior mean of log sigma, with what the shift explains replaced by its mean."""
        moved = self.means - self.centre
        q = np.einsum("kghi,ij,kghj->kgh", moved, self.second_moment, moved)
        q = q + np.einsum("kghij,ji->kgh", self.covariances, self.second_moment)
        left = np.maximum(self.sizes**2 - q, (1 - _MOST) * self.sizes**2)
        return float(np.exp(0.5 * np.sum(self.weights * np.log(left))))

    def draw(self, rng: np.random.Generator, draws: int) -> tuple[FloatArray, Any, FloatArray, FloatArray]:
        """Draw w (S, d), k, tau and sigma (S,) from the posterior; sigma^2 is what the shift leaves of t^2."""
        cells = rng.choice(self.weights.size, size=draws, p=self.weights.ravel())
        k, g, h = np.unravel_index(cells, self.weights.shape)
        t2, C = self.sizes[h] ** 2, self.second_moment
        values, Q = np.linalg.eigh(self.covariances[k, g, h])
        z = rng.standard_normal((_TRIES, *values.shape)) * np.sqrt(np.maximum(values, 0.0))
        shifts = self.means[k, g, h] - self.centre + np.einsum("sij,nsj->nsi", Q, z)
        explained = np.einsum("nsi,ij,nsj->ns", shifts, C, shifts)
        # Where the shift may explain much of t^2, draw sigma by its own law, and keep the shift among several that leaves
        # nearly as much.
        law = _Explained.of(self.means[k, g, h] - self.centre, self.covariances[k, g, h], C)
        target_explained = np.where(law.sure(t2), explained[0], t2 - law.draw_sigma2(rng, t2, self.sigma))
        # A zero shift explains nothing; the bound avoids a division by zero.
        explained, target_explained = (
            np.maximum(explained, _LEAST),
            np.maximum(target_explained, _LEAST),
        )
        best = np.argmin(np.abs(np.log(explained / target_explained)), axis=0), np.arange(draws)
        sigma2 = np.maximum(t2 - target_explained, (1 - _MOST) * t2 * law.sure(t2))
        w = shifts[best] * np.sqrt(target_explained / explained[best])[:, None] + self.centre
        return w, self.domains[k], self.tau[k, g], np.sqrt(sigma2)


def posterior(release: MomentRelease, prior: Prior) -> Grid:
    """Compute p(w, k, tau, sigma | release), a mixture over the grid."""
    xx_posterior = shape(release.xx, release.sd * release.row_bound**2, release.num_records, prior.second_moment)
    t = sizes(release, prior.sigma)
    psi = moments(t, release.residual_bound, np, ndtr)
    C = xx_posterior.mean / max(release.num_records, 1)

    def mixture(full: Prior, parts: list[_Part], domains: Any) -> Grid:
        before = full.log_odds[:, None] + full.log_tau
        log_weights = np.stack([part[0] for part in parts]) + before[:, :, None]
        weights = np.exp(log_weights - log_weights.max())
        means, covariances = (np.stack([part[i] for part in parts]) for i in (1, 2))
        tau, w_0 = full.scales[:, None] * TAUS, release.centre
        return Grid(weights / weights.sum(), means + w_0, covariances, tau, t, w_0, C, prior.sigma, full, domains)

    every = np.arange(len(prior.means))
    parts = [_domain(release, prior, xx_posterior, int(k), psi) for k in every]
    plain = mixture(prior, parts, every)
    rescalable = np.flatnonzero(prior.slopes.any(axis=1))
    if not len(rescalable):
        return plain
    full = prior.rescaled(plain.typical_sigma)
    rescaled_parts = [_domain(release, full, xx_posterior, len(every) - 1 + i, psi) for i in range(len(rescalable))]
    return mixture(
        full, [*parts[:-1], *rescaled_parts, parts[-1]], np.concatenate([every[:-1], rescalable, every[-1:]])
    )


def sizes(release: MomentRelease, scale: float) -> FloatArray:
    """Return the sizes t of residuals that rho'rho allows, equally spaced in log t, (H,)."""
    t = scale * _SIZES
    psi, n = moments(t, release.residual_bound, np, ndtr), release.num_records
    variance = n * psi.spread(0.0) + 2 * (release.sd * release.residual_unit**2) ** 2
    log_weight = -0.5 * (np.log(variance) + (release.rr - n * psi.square) ** 2 / variance)
    inside = np.flatnonzero(log_weight > log_weight.max() - 9.0)
    low, high = t[max(inside[0] - 1, 0)], t[min(inside[-1] + 1, len(t) - 1)]
    return np.geomspace(low, high, max(_FEWEST, int(np.log(high / low) / _APART) + 1))


def _domain(release: MomentRelease, prior: Prior, xx_posterior: Shape, k: int, psi: Moments) -> _Part:
    """Compute log evidences (G, H), means of delta (G, H, d) and covariances (G, H, d, d) for one domain."""
    n, N, d = max(release.num_records, 1), xx_posterior.mean, len(release.centre)
    C, m = N / n, prior.means[k] - release.centre
    noise = (release.sd * release.row_bound * release.residual_unit) ** 2 * np.eye(d)  # noise in X'rho
    P = prior.covariances[k] + (prior.scales[k] * TAUS)[:, None, None] ** 2 * prior.shapes[k] / d
    t2 = psi.total
    off = release.rr - release.num_records * psi.square  # rho'rho less its expectation given t, (H,)
    noise_rr = 2 * (release.sd * release.residual_unit**2) ** 2

    square = np.broadcast_to((P + np.outer(m, m))[:, None], (len(TAUS), len(t2), d, d))
    first = np.einsum("...ij,ji", square, C)
    square = square * np.minimum(1.0, _MOST * t2 / first)[..., None, None]  # the shift explains at most t^2
    expected = psi.kept[:, None, None] ** 2 * xx_posterior.residual_covariance(square)
    for _ in range(_ROUNDS):
        q = np.minimum(np.einsum("...ij,ji", square, C), _MOST * t2)
        var_rr = release.num_records * psi.spread(q) + noise_rr
        both = psi.common(q) / var_rr
        slope = psi.kept + both * off  # with what rho'rho tells about the noise in x'rho
        along, across = psi.along(q), psi.across(q) - both * psi.common(q) * n
        inner = N @ square @ N
        R = along[..., None, None] * N + np.maximum(across, -along / np.maximum(q, 1e-300))[..., None, None] * inner / n
        R = R + noise
        A = slope[..., None, None] * N
        gap = release.xr - np.einsum("...ij,j", A, m)
        error = R + psi.kept[:, None, None] ** 2 * xx_posterior.residual_covariance(square)
        K = np.swapaxes(np.linalg.solve(A @ P[:, None] @ A + error, A @ P[:, None]), -1, -2)
        mean = m + np.einsum("...ij,...j", K, gap)
        # Joseph's form, a sum of squares: P - K A P may lose positive definiteness where P is large.
        residual_map = np.eye(d) - K @ A
        covariance = residual_map @ P[:, None] @ np.swapaxes(residual_map, -1, -2) + K @ error @ np.swapaxes(K, -1, -2)
        covariance = (covariance + np.swapaxes(covariance, -1, -2)) / 2
        square = covariance + mean[..., :, None] * mean[..., None, :]
        share = np.einsum("...ij,ji", square, C) / t2
        square = square * np.minimum(1.0, _MOST / np.maximum(share, 1e-300))[..., None, None]
    # The evidence: the uncertainty of the features enters with the shift that the prior expects.
    log_weights = _log_normal(gap, A @ P[:, None] @ A + R + expected) - 0.5 * (np.log(var_rr) + off**2 / var_rr)
    explained = _Explained.of(mean, covariance, C)
    return log_weights + explained.log_size(t2, prior.sigma), mean, covariance


def _log_sigma(sigma2: FloatArray, scale: float) -> FloatArray:
    """Return the log density of log sigma, up to a constant."""
    log_density: FloatArray = -0.5 * (0.5 * np.log(sigma2 / scale**2) / SIGMA_SPREAD) ** 2
    return log_density


class _Explained(NamedTuple):
    """Distribution of q, the part of t^2 that a shift explains: a gamma law with matched mean and variance, (...)."""

    mean: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, mean: FloatArray, covariance: FloatArray, C: FloatArray) -> _Explained:
        """Match the mean and variance of ``delta'C delta`` for a normal delta."""
        spread, along = covariance @ C, mean @ C
        square = np.sum(along * mean, axis=-1)
        variance = 2 * np.einsum("...ij,...ji", spread, spread)
        variance = variance + 4 * np.einsum("...j,...jk,...k", along, covariance, along)
        return cls(np.maximum(square + np.trace(spread, axis1=-2, axis2=-1), _LEAST), np.maximum(variance, _LEAST**2))

    def sure(self, t2: FloatArray) -> Any:
        """Return True where q is known well, compared with what it leaves of t^2."""
        return np.sqrt(self.variance) < 0.1 * np.maximum(t2 - self.mean, 0.0)

    def log_density(self, q: FloatArray) -> FloatArray:
        """Return the log density of the gamma law at q."""
        shape, unit = (self.mean**2 / self.variance)[..., None], (self.variance / self.mean)[..., None]
        log_density: FloatArray = (shape - 1) * np.log(q / unit) - q / unit - gammaln(shape) - np.log(unit)
        return log_density

    def _nodes(self, t2: FloatArray, scale: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return nodes sigma^2 in (0, t^2), nodes q, and log weights of an integral over q, (..., 2 x nodes) each."""
        t2 = np.broadcast_to(t2, self.mean.shape)[..., None]
        # Legendre nodes: in log sigma where q is most of t^2, and in the root of q elsewhere.
        high = 0.5 * np.log(t2 / 2)
        low = np.minimum(np.log(scale) - 5 * SIGMA_SPREAD, high - 1.0)
        sigma2 = np.exp(high + low + (high - low) * _NODES)
        u = np.sqrt(0.5) * (1 + _NODES) / 2
        width = [2 * sigma2 * (high - low) / 2, 2 * t2 * u * np.sqrt(0.5) / 2]
        explained = [t2 - sigma2, t2 * u**2]
        log_width = np.log(np.concatenate(width, axis=-1) * np.tile(_NODE_WEIGHTS, 2))
        return np.concatenate([sigma2, t2 - explained[1]], axis=-1), np.concatenate(explained, axis=-1), log_width

    def log_size(self, t2: FloatArray, scale: float) -> FloatArray:
        """Return the log density of log t, averaged over q: d log sigma / d log t = t^2 / sigma^2."""
        sigma2, q, log_width = self._nodes(t2, scale)
        parts = self.log_density(q) + _log_sigma(sigma2, scale) - np.log(sigma2) + log_width
        left = np.maximum(t2 - self.mean, _LEAST)
        sure = _log_sigma(left, scale) - np.log(left)
        return np.log(t2) + np.where(self.sure(t2), sure, logsumexp(parts, axis=-1))

    def draw_sigma2(self, rng: np.random.Generator, t2: FloatArray, scale: float) -> FloatArray:
        """Draw one sigma^2 for every t."""
        sigma2, q, log_width = self._nodes(t2, scale)
        log_weight = self.log_density(q) + _log_sigma(sigma2, scale) - np.log(sigma2) + log_width
        pick = np.argmax(log_weight + rng.gumbel(size=log_weight.shape), axis=-1)
        drawn: FloatArray = np.take_along_axis(sigma2, pick[..., None], axis=-1)[..., 0]
        return drawn


def _log_normal(x: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return log N(x; 0, covariance) up to a constant, (...)."""
    L = np.linalg.cholesky(covariance)
    z = np.linalg.solve(L, x[..., None])[..., 0]
    return -0.5 * np.sum(z**2, axis=-1) - np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)
