"""Density of the mixed model of a release at many points, with its gradient, in NumPy.

It is the density of :func:`mpmtl_prob.models.random_effects` with structure "full", of one release whose tasks have no
covariates. That model is the definition, and this module agrees with it up to rounding. Here nothing is traced or compiled,
which for the few thousand points of a release would take longer than computing them.

Names are those of the model. Every array begins with the points, (B, ...). ``bar`` at the end of a name stands for the
derivative of the log density (reverse mode), of symmetric matrices as if all their entries were free.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.effects_release import (
    ACCURACY_SCALE,
    FLOOR,
    LARGEST_SHARE,
    LENGTHS,
    LOGIT_SD,
    NEAR,
    NODES,
    SMALLEST_VARIANCE,
    WEIGHTS,
    EffectsRelease,
    points_of,
)

#: Weights of the nodes, in front of matrices (B, nodes, D, D).
_W = WEIGHTS[:, None, None]
#: Points that are computed together; more do not fit a processor's cache.
BATCH = 64
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


class Law(NamedTuple):
    """Effects and their accuracy at B points, as the likelihood reads them."""

    mu: FloatArray  #: (B, d)
    Omega: FloatArray  #: (B, d, d)
    level: FloatArray  #: (B, d)
    spread: FloatArray  #: (B,)
    errors: FloatArray  #: (B,)


class EffectsDensity:
    """Energies, gradients and sites of the model at many points.

    Attributes:
        start: a point, (n,), whose numbers are in the order of the sites.
    """

    def __init__(self, release: EffectsRelease, start: Mapping[str, Any]) -> None:
        self.start = np.concatenate([np.ravel(value) for value in start.values()]).astype(np.float64)
        self._shapes = {name: np.shape(value) for name, value in start.items()}
        self._release = release
        self._averages = np.asarray(release.averages, dtype=np.float64)
        self._member = (self._averages > 0).astype(np.float64)

    def __call__(
        self, points: FloatArray, *, gradient: bool = True
    ) -> tuple[FloatArray, FloatArray | None, dict[str, FloatArray]]:
        """Return energies (N,), which are minus log densities, gradients (N, n) and sites at points (N, n).

        Args:
            points: unconstrained numbers of all sites.
            gradient: compute gradients; otherwise they are None.
        """
        batches = [points[i : i + BATCH] for i in range(0, len(points), BATCH)]
        with ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1)) as pool:
            computed = list(pool.map(lambda batch: self._of_batch(batch, gradient), batches))
        energies, gradients, sites = zip(*computed, strict=True)
        joined = {name: np.concatenate([part[name] for part in sites]) for name in sites[0]}
        return np.concatenate(energies), np.concatenate(gradients) if gradient else None, joined

    def _of_batch(
        self, points: FloatArray, gradient: bool
    ) -> tuple[FloatArray, FloatArray | None, dict[str, FloatArray]]:
        prior, member = self._release.prior, self._member
        x = self._by_name(points)
        d = member.shape[1]
        # the size tau of every group of effects
        soft = np.logaddexp(0.0, x["size"])
        log_tau = np.log(prior.spread) + np.log(soft) - np.log(np.log(2.0))
        log_spread_factor = np.log(prior.spread_factor)
        log_prior_tau = _log_normal(log_tau, np.log(prior.spread), log_spread_factor)
        log_joint = log_prior_tau - (np.logaddexp(0.0, -x["size"]) + np.log(soft)).sum(axis=1)
        root = np.sqrt(self._averages.max(axis=0))
        size_of_group = np.exp(log_tau)
        tau = size_of_group @ member * root
        # the shape of Omega, by the factor of Bartlett
        correlation = np.log(prior.correlation) - np.log1p(-prior.correlation)
        most = np.sqrt(LARGEST_SHARE / (d - 1))
        uneven = expit(x["unevenness"])
        c = (most * uneven)[:, None]
        steps = np.arange(d)
        size = np.sqrt(1 - c**2 * steps)
        exponent = c * x["diagonal"] / (np.sqrt(2) * size)
        rows, columns = np.tril_indices(d, -1)
        L = np.zeros((len(points), d, d))
        L[:, steps, steps] = size * np.exp(exponent)
        L[:, rows, columns] = c * x["below"]
        T = tau[:, :, None] * L
        Omega = T @ T.swapaxes(1, 2)
        log_joint += _log_normal(x["unevenness"], correlation, LOGIT_SD)
        log_joint += _log_normal(x["diagonal"]) + _log_normal(x["below"])
        # how far rows determine effects
        determined = np.log(prior.determined) - np.log1p(-prior.determined)
        level_sd, level_sd_slope = _half_normal(x["level_sd_site"])
        spread, spread_slope = _half_normal(x["determined_spread_site"])
        level = x["level"] @ member + level_sd[:, None] * x["levels"]
        p = expit(level)
        uncertain = prior.errors * (1 - p.mean(axis=1))
        errors = np.exp(uncertain * x["errors_site"])
        log_joint += _log_normal(x["level"], determined, LOGIT_SD) + _log_normal(x["levels"])
        log_joint += sum(_log_normal(x[name]) for name in ("level_sd_site", "determined_spread_site", "errors_site"))
        # average effects
        mu = (self._release.start + self._release.start_scale * x["mu_away"]) / p
        log_prior_mu, mu_bar = _log_prior_of_average(mu, prior.average)
        log_joint += log_prior_mu - np.log(p).sum(axis=1)
        law = Law(mu, Omega, level, spread, errors)
        likelihood, law_bar = _likelihood(self._release, law, gradient)
        log_joint += likelihood
        sites = {
            "mu": mu,
            "Omega": Omega,
            "determined": level,
            "determined_spread": spread,
            "errors": errors,
            "log_prior_mu": log_prior_mu,
            "log_prior_tau": log_prior_tau,
            "log_likelihood": likelihood,
        }
        if law_bar is None:
            return -log_joint, None, sites
        bar: dict[str, FloatArray] = {}
        mu_bar = mu_bar + law_bar.mu
        bar["mu_away"] = mu_bar * self._release.start_scale / p
        log_errors_bar = law_bar.errors * errors
        bar["errors_site"] = log_errors_bar * uncertain - x["errors_site"]
        p_bar = -(mu_bar * mu + 1) / p - (log_errors_bar * x["errors_site"] * prior.errors / d)[:, None]
        level_bar = law_bar.level + p_bar * p * (1 - p)
        bar["level"] = level_bar @ member.T - (x["level"] - determined) / LOGIT_SD**2
        bar["levels"] = level_bar * level_sd[:, None] - x["levels"]
        bar["level_sd_site"] = (level_bar * x["levels"]).sum(axis=1) * level_sd_slope - x["level_sd_site"]
        bar["determined_spread_site"] = law_bar.spread * spread_slope - x["determined_spread_site"]
        T_bar = 2 * law_bar.Omega @ T
        L_bar = T_bar * tau[:, :, None]
        on_diagonal = L_bar[:, steps, steps] * L[:, steps, steps]
        below_bar = L_bar[:, rows, columns]
        bar["diagonal"] = on_diagonal * c / (np.sqrt(2) * size) - x["diagonal"]
        bar["below"] = c * below_bar - x["below"]
        c_bar = (below_bar * x["below"]).sum(axis=1)
        c_bar += (on_diagonal * (x["diagonal"] / (np.sqrt(2) * size) - (1 - exponent) * c * steps / size**2)).sum(
            axis=1
        )
        bar["unevenness"] = c_bar * c[:, 0] * (1 - uneven) - (x["unevenness"] - correlation) / LOGIT_SD**2
        # T_bar is multiplied by the lower triangle L alone, so that its upper triangle does not matter
        tau_bar = (T_bar * L).sum(axis=2)
        log_tau_bar = (tau_bar * root) @ member.T * size_of_group - (
            log_tau - np.log(prior.spread)
        ) / log_spread_factor**2
        bar["size"] = (log_tau_bar - 1) * expit(x["size"]) / soft + expit(-x["size"])
        energy_gradient = np.empty_like(points)
        for name, part in self._by_name(energy_gradient).items():
            part[...] = -bar[name]
        return -log_joint, energy_gradient, sites

    def _by_name(self, points: FloatArray) -> dict[str, FloatArray]:
        """Return views of the numbers of every site, (B, ...)."""
        out, at = {}, 0
        for name, shape in self._shapes.items():
            number = int(np.prod(shape))
            out[name] = points[:, at : at + number].reshape(len(points), *shape)
            at += number
        return out


def log_likelihoods(release: EffectsRelease, law: Law) -> FloatArray:
    """Return log p(Sigma | law), (B,), up to a constant, of a release whose tasks have no covariates."""
    parts = [
        _likelihood(release, Law(*(field[i : i + BATCH] for field in law)), gradient=False)[0]
        for i in range(0, len(law.mu), BATCH)
    ]
    return np.concatenate(parts)


def _likelihood(release: EffectsRelease, law: Law, gradient: bool) -> tuple[FloatArray, Law | None]:
    """Return log likelihoods (B,) and their derivatives: :func:`mpmtl_prob.models.effects.log_likelihood`."""
    m, noise, g, k = (
        float(np.asarray(value))
        for value in (release.num_tasks, release.noise_variance, release.effect_size, release.determined_size)
    )
    v, averages, mu, Omega = np.asarray(release.prior_variance), np.asarray(release.averages), law.mu, law.Omega
    number, d = mu.shape
    nodes, D = len(NODES), d + len(averages) + 1
    # means of u, and covariances of its first d entries
    p = expit(law.level[:, None] + law.spread[:, None, None] * NODES[:, None])
    C = np.ones((number, nodes, D))
    C[..., :d] = g * p * mu[:, None]
    C[..., d:-1] = k * p @ averages.T
    pairs = p[..., None] * p[..., None, :]
    binomial = v * p * (1 - p)
    V = pairs * Omega[:, None]
    diagonal = np.einsum("bnii->bni", V)
    diagonal += law.errors[:, None, None] * binomial + 1e-9
    V *= g**2
    # E[u u' / |u|^2]
    R = _cholesky(V)
    points = points_of(d)
    u = np.empty((number, nodes, len(points), D))
    np.matmul(points, R.swapaxes(2, 3), out=u[..., :d])
    u[..., :d] += C[:, :, None, :d]
    u[..., d:] = C[:, :, None, d:]
    u = u.reshape(number, -1, D)
    weight = np.repeat(WEIGHTS / len(points), len(points))
    share = weight / np.einsum("bkd,bkd->bk", u, u)
    mean = (u * share[..., None]).swapaxes(1, 2) @ u
    # from here on u is divided by its root mean square length at every node
    length = np.sqrt((C**2).sum(axis=2) + np.trace(V, axis1=2, axis2=3))
    Cu, Vu = C / length[..., None], V / (length**2)[..., None, None]
    basis = _Basis(Cu, Vu)
    Q = basis.Q[:, None]
    Qd = Q[:, :, :d]
    surplus = np.asarray(release.sigma) - m * mean
    difference = basis.Q.swapaxes(1, 2) @ surplus @ basis.Q
    VQ = Vu @ Qd
    c = Qd.swapaxes(2, 3) @ VQ
    b = Cu @ basis.Q
    outer = b[..., None] * b[..., None, :]
    second = outer + c
    square = np.einsum("bnii->bni", second)
    mixed = 2 * c * (c + 2 * outer)
    products = square[..., None] * square[..., None, :]
    beta = (b**2).sum(axis=2)[..., None, None]
    along = 2 * (second @ second - beta * outer)
    on_along = np.einsum("bnii->bni", along)
    total = on_along.sum(axis=2)[..., None, None]
    average = _averaged(second)
    sizes = np.einsum("bii->bi", average)
    squares_of_second = second**2
    variance = _averaged(products + mixed - 2 * second * along + total * squares_of_second) - average**2
    entries = m * np.maximum(variance, SMALLEST_VARIANCE) + noise
    ratio = difference**2 / entries
    below = 0.5 * (1 - np.eye(D))  # half of both triangles
    off_diagonal = -0.5 * (below * (ratio + np.log(entries))).sum(axis=(1, 2))
    crossed = square[..., None] * on_along[..., None, :]
    joint = _averaged(mixed - crossed - crossed.swapaxes(2, 3) + (total + 1) * products)
    joint = m * (joint - sizes[:, :, None] * sizes[:, None]) + (2 * noise + FLOOR * m) * np.eye(D)
    factor = _cholesky(joint)
    inverse_factor = np.linalg.inv(factor)
    residual = inverse_factor @ np.einsum("bii->bi", difference)[..., None]
    log_root = np.log(np.einsum("bii->bi", factor)).sum(axis=1)
    likelihood = off_diagonal - 0.5 * (residual[..., 0] ** 2).sum(axis=1) - log_root
    if not gradient:
        return likelihood, None
    inverse_factor_t = inverse_factor.swapaxes(1, 2)
    scaled = inverse_factor_t @ residual
    joint_bar = (0.5 * m) * (scaled @ scaled.swapaxes(1, 2) - inverse_factor_t @ inverse_factor)
    variance_bar = (0.5 * m) * below * (variance > SMALLEST_VARIANCE) * (ratio - 1) / entries
    difference_bar = -below * difference / entries
    np.einsum("bii->bi", difference_bar)[...] = -scaled[..., 0]
    sizes_bar = -2 * (joint_bar @ sizes[..., None])[..., 0]
    average_bar = -2 * variance_bar * average
    np.einsum("bii->bi", average_bar)[...] += sizes_bar
    Jn, Vn = joint_bar[:, None], variance_bar[:, None]
    mixed_bar = Vn + Jn
    along_bar = -2 * Vn * second
    total_bar = (Vn * squares_of_second + Jn * products).sum(axis=(2, 3))
    square_bar = 2 * ((mixed_bar + total * Jn) @ square[..., None] - Jn @ on_along[..., None])[..., 0]
    np.einsum("bnii->bni", along_bar)[...] += total_bar[..., None] - 2 * (Jn @ square[..., None])[..., 0]
    second_bar = 2 * Vn * (total * second - along) + average_bar[:, None]
    turned = along_bar @ second
    second_bar += 2 * (turned + turned.swapaxes(2, 3))
    np.einsum("bnii->bni", second_bar)[...] += square_bar
    outer_bar = _W * (second_bar + 4 * mixed_bar * c - 2 * beta * along_bar)
    c_bar = _W * (second_bar + 4 * mixed_bar * second)
    beta_bar = -2 * _W[:, 0] * (along_bar * outer).sum(axis=(2, 3))[..., None]
    b_bar = 2 * ((outer_bar @ b[..., None])[..., 0] + beta_bar * b)
    Cu_bar = b_bar @ basis.Q.swapaxes(1, 2)
    Vu_bar = Qd @ c_bar @ Qd.swapaxes(2, 3)
    surplus_bar = basis.Q @ difference_bar
    Q_bar = 2 * surplus @ surplus_bar + Cu.swapaxes(1, 2) @ b_bar
    Q_bar[:, :d] += 2 * (VQ @ c_bar).sum(axis=1)
    basis.add_derivatives(Q_bar, Cu_bar, Vu_bar)
    mean_bar = -m * surplus_bar @ basis.Q.swapaxes(1, 2)
    length_bar = -((Cu_bar * Cu).sum(axis=2) + 2 * (Vu_bar * Vu).sum(axis=(2, 3)))
    C_bar = (Cu_bar + length_bar[..., None] * Cu) / length[..., None]
    V_bar = Vu_bar
    np.einsum("bnii->bni", V_bar)[...] += 0.5 * length_bar[..., None]
    V_bar /= (length**2)[..., None, None]
    u_bar = u @ mean_bar
    u_bar -= (share / weight * np.einsum("bkd,bkd->bk", u, u_bar))[..., None] * u
    u_bar *= 2 * share[..., None]
    u_bar = u_bar.reshape(number, nodes, -1, D)
    C_bar += u_bar.sum(axis=2)
    V_bar += _cholesky_bar(R, u_bar[..., :d].swapaxes(2, 3) @ points)
    V_bar *= g**2
    on_V = np.einsum("bnii->bni", V_bar)
    p_bar = 2 * ((V_bar * Omega[:, None]) @ p[..., None])[..., 0] + g * mu[:, None] * C_bar[..., :d]
    p_bar += k * C_bar[..., d:-1] @ averages + on_V * law.errors[:, None, None] * v * (1 - 2 * p)
    logit_bar = p_bar * p * (1 - p)
    return likelihood, Law(
        mu=g * (p * C_bar[..., :d]).sum(axis=1),
        Omega=(V_bar * pairs).sum(axis=1),
        level=logit_bar.sum(axis=1),
        spread=(logit_bar.sum(axis=2) @ NODES),
        errors=(on_V * binomial).sum(axis=(1, 2)),
    )


class _Basis:
    """Orthonormal bases Q (B, D, D): the principal axes of u about its mean, and last the direction of the mean."""

    def __init__(self, C: FloatArray, V: FloatArray) -> None:
        D, d = C.shape[2], V.shape[2]
        mean = np.einsum("n,bnd->bd", WEIGHTS, C)
        self._between = C - mean[:, None]
        self._length = np.sqrt((mean**2).sum(axis=1))[:, None]
        self._direction = mean / self._length
        reflected = self._direction.copy()
        reflected[:, -1] += 1
        self._reflected_length = np.sqrt((reflected**2).sum(axis=1))[:, None]
        self._v = reflected / self._reflected_length
        self._H = np.eye(D) - 2 * self._v[:, :, None] * self._v[:, None]
        self._covariance = self._between.swapaxes(1, 2) @ (WEIGHTS[:, None] * self._between)
        self._covariance[:, :d, :d] += _averaged(V)
        self._HC = self._H @ self._covariance
        self._values, self._axes = np.linalg.eigh((self._HC @ self._H)[:, :-1, :-1])
        self.Q = self._H.copy()
        self.Q[..., :-1] = self._H[..., :-1] @ self._axes

    def add_derivatives(self, Q_bar: FloatArray, C_bar: FloatArray, V_bar: FloatArray) -> None:
        """Add the derivatives in C and V to theirs, with the damped ones of the principal axes."""
        d = V_bar.shape[2]
        H, axes = self._H, self._axes
        H_bar = Q_bar.copy()
        H_bar[..., :-1] = Q_bar[..., :-1] @ axes.swapaxes(1, 2)
        axes_bar = H[..., :-1].swapaxes(1, 2) @ Q_bar[..., :-1]
        gap = self._values[:, None] - self._values[:, :, None]
        near = NEAR * np.abs(self._values).max(axis=1)[:, None, None]
        turn_bar = axes.swapaxes(1, 2) @ axes_bar * gap / (gap**2 + near**2)
        inner_bar = np.zeros_like(H)
        inner_bar[:, :-1, :-1] = axes @ (0.5 * (turn_bar + turn_bar.swapaxes(1, 2))) @ axes.swapaxes(1, 2)
        H_bar += 2 * inner_bar @ self._HC
        covariance_bar = H @ inner_bar @ H
        v_bar = -2 * ((H_bar + H_bar.swapaxes(1, 2)) @ self._v[..., None])[..., 0]
        direction_bar = (v_bar - self._v * (self._v * v_bar).sum(axis=1)[:, None]) / self._reflected_length
        along = (self._direction * direction_bar).sum(axis=1)[:, None]
        mean_bar = (direction_bar - self._direction * along) / self._length
        C_bar += WEIGHTS[:, None] * (mean_bar[:, None] + 2 * self._between @ covariance_bar)
        V_bar += _W * covariance_bar[:, None, :d, :d]


def _averaged(values: FloatArray) -> FloatArray:
    """Average (B, nodes, D, D) over the nodes."""
    out: FloatArray = values[:, 0] * WEIGHTS[0]
    for node, weight in enumerate(WEIGHTS[1:], 1):
        out += values[:, node] * weight
    return out


def _log_normal(values: FloatArray, mean: float = 0.0, sd: float = 1.0) -> FloatArray:
    """Return the log densities of independent normal numbers, summed over all axes but the first."""
    values = values.reshape(len(values), -1)
    out: FloatArray = -0.5 * (((values - mean) / sd) ** 2).sum(axis=1) - values.shape[1] * (np.log(sd) + _LOG_ROOT)
    return out


def _half_normal(site: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half-normal numbers as functions of standard normal ones, and the derivatives of these functions."""
    z = ndtri(0.5 * ndtr(-site))
    return -ACCURACY_SCALE * z, 0.5 * ACCURACY_SCALE * np.exp(0.5 * (z**2 - site**2))


def _log_prior_of_average(mu: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Return log densities (B,) of mu (B, d), and their derivatives: :func:`effects.log_prior_of_average`."""
    d = mu.shape[1]
    lengths = LENGTHS * scale
    of_lengths = np.log(lengths) - 0.5 * LENGTHS**2 - d * np.log(lengths)
    density = of_lengths - 0.5 * d * (mu**2).sum(axis=1)[:, None] / lengths**2
    largest = density.max(axis=1)[:, None]
    weight = np.exp(density - largest)
    total = weight.sum(axis=1)
    return largest[:, 0] + np.log(total), -d * mu * (weight @ lengths**-2 / total)[:, None]


def _cholesky(matrices: FloatArray) -> FloatArray:
    """Return factors of Cholesky; nan for a matrix that has none."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        flat = matrices.reshape(-1, *matrices.shape[-2:])
        return np.stack([_one_cholesky(matrix) for matrix in flat]).reshape(matrices.shape)


def _one_cholesky(matrix: FloatArray) -> FloatArray:
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def _cholesky_bar(R: FloatArray, R_bar: FloatArray) -> FloatArray:
    """Return the derivative in a symmetric matrix from that in its factor of Cholesky R.

    Source: Murray (2016), arXiv:1602.07527, equation 10.
    """
    inverse = np.linalg.inv(R)
    inner = np.tril(R.swapaxes(-1, -2) @ R_bar)
    np.einsum("...ii->...i", inner)[...] *= 0.5
    out = inverse.swapaxes(-1, -2) @ inner @ inverse
    symmetric: FloatArray = 0.5 * (out + out.swapaxes(-1, -2))
    return symmetric
