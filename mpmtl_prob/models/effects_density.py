"""Density of the mixed model of a release at many points, with its gradient, in NumPy.

It is the density of :func:`mpmtl_prob.models.random_effects` with structure "full", of one release of messages of more than
``FEW_NUMBERS`` numbers whose tasks have no covariates. That model is the definition, and this module agrees with it up to
rounding. Here nothing is traced or compiled, which for the few thousand points of a release would take longer than
computing them.

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
#: Points that are computed together; more do not fit a processor's cache, and fewer leave it waiting for Python.
BATCH = 32
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


#: Energies (N,), gradients (N, n) or None, and sites by name, (N, ...).
Computed = tuple[FloatArray, FloatArray | None, dict[str, FloatArray]]


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

    def __call__(self, points: FloatArray, *, gradient: bool = True) -> Computed:
        """Return energies (N,), which are minus log densities, gradients (N, n) and sites at points (N, n).

        Args:
            points: unconstrained numbers of all sites.
            gradient: compute gradients; otherwise they are None.
        """
        batches = [points[i : i + BATCH] for i in range(0, len(points), BATCH)]
        with ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1)) as pool:
            return _joined(list(pool.map(lambda batch: self._of_any(batch, gradient), batches)))

    def _of_any(self, points: FloatArray, gradient: bool) -> Computed:
        """Return what :meth:`_of_batch` does, with an infinite energy at points so far out that nothing can be computed."""
        with np.errstate(all="ignore"):
            try:
                return self._of_batch(points, gradient)
            except np.linalg.LinAlgError:
                if len(points) > 1:
                    return _joined([self._of_any(half, gradient) for half in np.array_split(points, 2)])
                energy, slope, sites = self._of_batch(self.start[None], gradient)
                nothing = {name: np.full_like(values, np.nan) for name, values in sites.items()}
                return np.full_like(energy, np.inf), None if slope is None else np.zeros_like(slope), nothing

    def _of_batch(self, points: FloatArray, gradient: bool) -> Computed:
        x = self._by_name(points)
        spread = _Spread(self._release, x)
        accuracy = _Accuracies(self._release, x)
        p = accuracy.p
        mu = (self._release.start + self._release.start_scale * x["mu_away"]) / p
        log_prior_mu, mu_bar = _log_prior_of_average(mu, self._release.prior.average)
        law = Law(mu, spread.Omega, accuracy.level, accuracy.spread, accuracy.errors)
        likelihood, law_bar = _likelihood(self._release, law, gradient)
        log_joint = spread.log_prior + accuracy.log_prior + log_prior_mu - np.log(p).sum(axis=1) + likelihood
        sites = {
            "mu": mu,
            "Omega": spread.Omega,
            "determined": accuracy.level,
            "determined_spread": accuracy.spread,
            "errors": accuracy.errors,
            "log_prior_mu": log_prior_mu,
            "log_prior_tau": spread.log_prior_tau,
            "log_likelihood": likelihood,
        }
        if law_bar is None:
            return -log_joint, None, sites
        mu_bar = mu_bar + law_bar.mu
        bar = {"mu_away": mu_bar * self._release.start_scale / p}
        bar |= spread.derivatives(law_bar.Omega) | accuracy.derivatives(law_bar, -(mu_bar * mu + 1) / p)
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


def _joined(parts: list[Computed]) -> Computed:
    """Join what was computed at several groups of points."""
    energies, gradients, sites = zip(*parts, strict=True)
    slopes = None if gradients[0] is None else np.concatenate(gradients)
    return np.concatenate(energies), slopes, {k: np.concatenate([each[k] for each in sites]) for k in sites[0]}


def log_likelihoods(release: EffectsRelease, law: Law) -> FloatArray:
    """Return log p(Sigma | law), (B,), up to a constant, of a release whose tasks have no covariates."""
    parts = [
        _likelihood(release, Law(*(field[i : i + BATCH] for field in law)), gradient=False)[0]
        for i in range(0, len(law.mu), BATCH)
    ]
    return np.concatenate(parts)


class _Spread:
    """Omega (B, d, d), from the size tau of every group of effects and the factor of Bartlett."""

    def __init__(self, release: EffectsRelease, x: dict[str, FloatArray]) -> None:
        self._x, self._prior = x, release.prior
        averages = np.asarray(release.averages, dtype=np.float64)
        self._member, self._root = (averages > 0).astype(np.float64), np.sqrt(averages.max(axis=0))
        d = averages.shape[1]
        self._soft = np.logaddexp(0.0, x["size"])
        self._log_tau = np.log(self._prior.spread) + np.log(self._soft) - np.log(np.log(2.0))
        self._log_factor = np.log(self._prior.spread_factor)
        self._tau = np.exp(self._log_tau) @ self._member * self._root
        most = np.sqrt(LARGEST_SHARE / (d - 1))
        self._uneven = expit(x["unevenness"])
        self._c = (most * self._uneven)[:, None]
        self._steps = np.arange(d)
        self._size = np.sqrt(1 - self._c**2 * self._steps)
        self._per_diagonal = self._c / (np.sqrt(2) * self._size)
        self._below = np.tril_indices(d, -1)
        self._L = np.zeros((len(self._c), d, d))
        self._L[:, self._steps, self._steps] = self._size * np.exp(self._per_diagonal * x["diagonal"])
        self._L[:, *self._below] = self._c * x["below"]
        self._T = self._tau[:, :, None] * self._L
        self.Omega = self._T @ self._T.swapaxes(1, 2)
        self._logit = _logit(self._prior.correlation)
        #: Log density of tau, (B,); and that of all sites.
        self.log_prior_tau = _log_normal(self._log_tau, np.log(self._prior.spread), self._log_factor)
        self.log_prior = self.log_prior_tau - (np.logaddexp(0.0, -x["size"]) + np.log(self._soft)).sum(axis=1)
        self.log_prior += _log_normal(x["unevenness"], self._logit, LOGIT_SD)
        self.log_prior += _log_normal(x["diagonal"]) + _log_normal(x["below"])

    def derivatives(self, Omega_bar: FloatArray) -> dict[str, FloatArray]:
        """Return the derivatives in the sites."""
        x, c, size = self._x, self._c, self._size
        # L is lower triangular, so that the upper triangle of the derivative in T does not matter
        T_bar = 2 * Omega_bar @ self._T
        L_bar = T_bar * self._tau[:, :, None]
        on_diagonal = L_bar[:, self._steps, self._steps] * self._L[:, self._steps, self._steps]
        below_bar = L_bar[:, *self._below]
        exponent = self._per_diagonal * x["diagonal"]
        through_size = (1 - exponent) * c * self._steps / size**2
        c_bar = (below_bar * x["below"]).sum(axis=1)
        c_bar += (on_diagonal * (x["diagonal"] / (np.sqrt(2) * size) - through_size)).sum(axis=1)
        tau_bar = (T_bar * self._L).sum(axis=2)
        log_tau_bar = (tau_bar * self._root) @ self._member.T * np.exp(self._log_tau)
        log_tau_bar -= (self._log_tau - np.log(self._prior.spread)) / self._log_factor**2
        return {
            "size": (log_tau_bar - 1) * expit(x["size"]) / self._soft + expit(-x["size"]),
            "unevenness": c_bar * c[:, 0] * (1 - self._uneven) - (x["unevenness"] - self._logit) / LOGIT_SD**2,
            "diagonal": on_diagonal * self._per_diagonal - x["diagonal"],
            "below": c * below_bar - x["below"],
        }


class _Accuracies:
    """Accuracy of estimates: ``level`` (B, d), its sigmoid p, ``spread`` (B,) and ``errors`` (B,)."""

    def __init__(self, release: EffectsRelease, x: dict[str, FloatArray]) -> None:
        self._x, self._prior = x, release.prior
        self._member = (np.asarray(release.averages) > 0).astype(np.float64)
        self._logit = _logit(self._prior.determined)
        self._level_sd, self._level_sd_slope = _half_normal(x["level_sd_site"])
        self.spread, self._spread_slope = _half_normal(x["determined_spread_site"])
        self.level = x["level"] @ self._member + self._level_sd[:, None] * x["levels"]
        self.p = expit(self.level)
        self._uncertain = self._prior.errors * (1 - self.p.mean(axis=1))
        self.errors = np.exp(self._uncertain * x["errors_site"])
        self.log_prior = _log_normal(x["level"], self._logit, LOGIT_SD) + _log_normal(x["levels"])
        for name in ("level_sd_site", "determined_spread_site", "errors_site"):
            self.log_prior += _log_normal(x[name])

    def derivatives(self, bar: Law, p_bar: FloatArray) -> dict[str, FloatArray]:
        """Return the derivatives in the sites, from those in the law and in p."""
        x, p = self._x, self.p
        log_errors_bar = bar.errors * self.errors
        p_bar = p_bar - (log_errors_bar * x["errors_site"] * self._prior.errors / p.shape[1])[:, None]
        level_bar = bar.level + p_bar * p * (1 - p)
        return {
            "level": level_bar @ self._member.T - (x["level"] - self._logit) / LOGIT_SD**2,
            "levels": level_bar * self._level_sd[:, None] - x["levels"],
            "level_sd_site": (level_bar * x["levels"]).sum(axis=1) * self._level_sd_slope - x["level_sd_site"],
            "determined_spread_site": bar.spread * self._spread_slope - x["determined_spread_site"],
            "errors_site": log_errors_bar * self._uncertain - x["errors_site"],
        }


def _likelihood(release: EffectsRelease, law: Law, gradient: bool) -> tuple[FloatArray, Law | None]:
    """Return log likelihoods (B,) and their derivatives: :func:`mpmtl_prob.models.effects.log_likelihood`."""
    m, noise = float(np.asarray(release.num_tasks)), float(np.asarray(release.noise_variance))
    messages = _Messages(release, law)
    products = _Products(messages.C, messages.V)
    length = messages.length
    # from here on u is divided by its root mean square length at every node
    C, V = messages.C / length[..., None], messages.V / (length**2)[..., None, None]
    basis = _Basis(C, V)
    entries = _Entries(basis.Q, C, V)
    surplus = np.asarray(release.sigma) - m * products.mean
    fit = _Fit(m, noise, basis.Q.swapaxes(1, 2) @ surplus @ basis.Q, entries)
    if not gradient:
        return fit.log_likelihood, None
    difference_bar, joint_bar, variance_bar = fit.derivatives()
    Q_bar, C_bar, V_bar = entries.derivatives(joint_bar, variance_bar)
    surplus_bar = basis.Q @ difference_bar
    Q_bar += 2 * surplus @ surplus_bar
    basis.add_derivatives(Q_bar, C_bar, V_bar)
    length_bar = -((C_bar * C).sum(axis=2) + 2 * (V_bar * V).sum(axis=(2, 3)))
    C_bar = (C_bar + length_bar[..., None] * C) / length[..., None]
    np.einsum("bnii->bni", V_bar)[...] += 0.5 * length_bar[..., None]
    V_bar /= (length**2)[..., None, None]
    products.add_derivatives(-m * surplus_bar @ basis.Q.swapaxes(1, 2), C_bar, V_bar)
    return fit.log_likelihood, messages.derivatives(C_bar, V_bar)


class _Messages:
    """Means of u, C (B, nodes, D), and covariances of its first d entries, V (B, nodes, d, d)."""

    def __init__(self, release: EffectsRelease, law: Law) -> None:
        self._law = law
        self._g, self._k = float(np.asarray(release.effect_size)), float(np.asarray(release.determined_size))
        self._v, self._averages = np.asarray(release.prior_variance), np.asarray(release.averages)
        d = law.mu.shape[1]
        self._p = p = expit(law.level[:, None] + law.spread[:, None, None] * NODES[:, None])
        self.C = np.ones((len(p), len(NODES), d + len(self._averages) + 1))
        self.C[..., :d] = self._g * p * law.mu[:, None]
        self.C[..., d:-1] = self._k * p @ self._averages.T
        self._pairs = p[..., None] * p[..., None, :]
        self._binomial = self._v * p * (1 - p)
        self.V = self._pairs * law.Omega[:, None]
        np.einsum("bnii->bni", self.V)[...] += law.errors[:, None, None] * self._binomial + 1e-9
        self.V *= self._g**2
        #: Root mean square length of u at every node, (B, nodes).
        self.length = np.sqrt((self.C**2).sum(axis=2) + np.trace(self.V, axis1=2, axis2=3))

    def derivatives(self, C_bar: FloatArray, V_bar: FloatArray) -> Law:
        """Return the derivatives in the law."""
        law, p, g = self._law, self._p, self._g
        d = law.mu.shape[1]
        V_bar = V_bar * g**2
        on_V = np.einsum("bnii->bni", V_bar)
        p_bar = 2 * ((V_bar * law.Omega[:, None]) @ p[..., None])[..., 0] + g * law.mu[:, None] * C_bar[..., :d]
        p_bar += self._k * C_bar[..., d:-1] @ self._averages
        p_bar += on_V * law.errors[:, None, None] * self._v * (1 - 2 * p)
        logit_bar = p_bar * p * (1 - p)
        return Law(
            mu=g * (p * C_bar[..., :d]).sum(axis=1),
            Omega=(V_bar * self._pairs).sum(axis=1),
            level=logit_bar.sum(axis=1),
            spread=logit_bar.sum(axis=2) @ NODES,
            errors=(on_V * self._binomial).sum(axis=(1, 2)),
        )


class _Products:
    """``mean``, E[u u' / |u|^2] (B, D, D), as an average over points of the distribution of u.

    Points come in pairs c + v and c - v with v = R z. With a and b, the sum and the difference of a pair's 1 / |u|^2, it
    adds a (c c' + v v') + b (c v' + v c'). So lengths and sums are linear in z z' and z, and no point is ever formed.
    """

    def __init__(self, C: FloatArray, V: FloatArray) -> None:
        self._C, self._R = C, _cholesky(V)
        self._shape = V.shape
        pairs = len(points_of(V.shape[2])) // 2
        self._z = points_of(V.shape[2])[:pairs]
        self._zz = (self._z[:, :, None] * self._z[:, None]).reshape(pairs, -1)
        self._weight = (WEIGHTS / (2 * pairs))[:, None]
        turned = self._R.swapaxes(2, 3)
        c = C[..., : V.shape[2], None]
        length = (C**2).sum(axis=2)[..., None] + self._forms(turned @ self._R)  # |c|^2 + |v|^2
        twice = 2 * self._lines((turned @ c)[..., 0])  # 2 c'v
        self._plus, self._minus = 1 / (length + twice), 1 / (length - twice)
        self._a, self._b = self._weight * (self._plus + self._minus), self._weight * (self._plus - self._minus)
        self._of_a = self._sums_of_squares(self._a)
        self._of_b = self._sums(self._b)
        self.mean = C.swapaxes(1, 2) @ (self._a.sum(axis=2)[..., None] * C)
        crossed = C.swapaxes(1, 2) @ (self._R @ self._of_b[..., None])[..., 0]
        d = V.shape[2]
        self.mean[:, :, :d] += crossed
        self.mean[:, :d] += crossed.swapaxes(1, 2)
        self.mean[:, :d, :d] += (self._R @ self._of_a @ turned).sum(axis=1)

    def add_derivatives(self, mean_bar: FloatArray, C_bar: FloatArray, V_bar: FloatArray) -> None:
        """Add the derivatives in C and V to theirs, from a symmetric one in ``mean``."""
        d = V_bar.shape[2]
        R, turned = self._R, self._R.swapaxes(2, 3)
        through = self._C @ mean_bar
        M = mean_bar[:, None, :d, :d]
        a_bar = (self._C * through).sum(axis=2)[..., None] + self._forms(turned @ M @ R)
        b_bar = 2 * self._lines((turned @ through[..., :d, None])[..., 0])
        on_plus = -self._weight * self._plus**2 * (a_bar + b_bar)
        on_minus = -self._weight * self._minus**2 * (a_bar - b_bar)
        length_bar = on_plus + on_minus
        along_bar = 2 * self._sums(on_plus - on_minus)
        C_bar += 2 * (length_bar.sum(axis=2)[..., None] * self._C + self._a.sum(axis=2)[..., None] * through)
        C_bar[..., :d] += (R @ along_bar[..., None])[..., 0]
        C_bar += 2 * (R @ self._of_b[..., None])[..., 0] @ mean_bar[:, :d]
        R_bar = 2 * (R @ self._sums_of_squares(length_bar) + M @ R @ self._of_a)
        R_bar += self._C[..., :d, None] * along_bar[..., None, :]
        R_bar += 2 * through[..., :d, None] * self._of_b[..., None, :]
        V_bar += _cholesky_bar(R, R_bar)

    def _forms(self, matrices: FloatArray) -> FloatArray:
        """Return z'Az of every pair, (B, nodes, pairs), from symmetric matrices A (B, nodes, d, d)."""
        return (matrices.reshape(-1, self._zz.shape[1]) @ self._zz.T).reshape(*self._shape[:2], -1)

    def _lines(self, vectors: FloatArray) -> FloatArray:
        """Return z'h of every pair, (B, nodes, pairs), from vectors h (B, nodes, d)."""
        return (vectors.reshape(-1, self._z.shape[1]) @ self._z.T).reshape(*self._shape[:2], -1)

    def _sums_of_squares(self, weights: FloatArray) -> FloatArray:
        """Return weighted sums of z z', (B, nodes, d, d), from weights (B, nodes, pairs)."""
        return (weights.reshape(-1, len(self._zz)) @ self._zz).reshape(self._shape)

    def _sums(self, weights: FloatArray) -> FloatArray:
        """Return weighted sums of z, (B, nodes, d), from weights (B, nodes, pairs)."""
        return (weights.reshape(-1, len(self._z)) @ self._z).reshape(self._shape[:3])


class _Entries:
    """Covariances of the entries of u u' / |u|^2 in a basis Q: ``variance`` off the diagonal, ``joint`` of the diagonal."""

    def __init__(self, Q: FloatArray, C: FloatArray, V: FloatArray) -> None:
        self._Q, self._C = Q, C
        self._Qd = Q[:, None, : V.shape[2]]
        self._VQ = V @ self._Qd
        self._c = c = self._Qd.swapaxes(2, 3) @ self._VQ
        self._b = b = C @ Q
        self._outer = outer = b[..., None] * b[..., None, :]
        self._second = second = outer + c  # E[u_i u_j]
        self._square = square = np.einsum("bnii->bni", second)
        mixed = 2 * c * (c + 2 * outer)
        self._products = square[..., None] * square[..., None, :]
        self._beta = (b**2).sum(axis=2)[..., None, None]
        self._along = 2 * (second @ second - self._beta * outer)
        self._on_along = np.einsum("bnii->bni", self._along)
        self._total = self._on_along.sum(axis=2)[..., None, None]
        self._average = _averaged(second)
        self._sizes = np.einsum("bii->bi", self._average)
        self._squares = second**2
        of_node = self._products + mixed - 2 * second * self._along + self._total * self._squares
        self.variance = _averaged(of_node) - self._average**2
        crossed = square[..., None] * self._on_along[..., None, :]
        joint = _averaged(mixed - crossed - crossed.swapaxes(2, 3) + (self._total + 1) * self._products)
        self.joint = joint - self._sizes[:, :, None] * self._sizes[:, None]

    def derivatives(self, joint_bar: FloatArray, variance_bar: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the derivatives in Q, C and V."""
        b, c, second, square, Qd = self._b, self._c, self._second, self._square, self._Qd
        average_bar = -2 * variance_bar * self._average
        np.einsum("bii->bi", average_bar)[...] -= 2 * (joint_bar @ self._sizes[..., None])[..., 0]
        Jn, Vn = joint_bar[:, None], variance_bar[:, None]
        mixed_bar = Vn + Jn
        along_bar = -2 * Vn * second
        total_bar = (Vn * self._squares + Jn * self._products).sum(axis=(2, 3))
        of_squares, of_along = (mixed_bar + self._total * Jn) @ square[..., None], Jn @ self._on_along[..., None]
        square_bar = 2 * (of_squares - of_along)[..., 0]
        np.einsum("bnii->bni", along_bar)[...] += total_bar[..., None] - 2 * (Jn @ square[..., None])[..., 0]
        second_bar = 2 * Vn * (self._total * second - self._along) + average_bar[:, None]
        turned = along_bar @ second
        second_bar += 2 * (turned + turned.swapaxes(2, 3))
        np.einsum("bnii->bni", second_bar)[...] += square_bar
        outer_bar = _W * (second_bar + 4 * mixed_bar * c - 2 * self._beta * along_bar)
        c_bar = _W * (second_bar + 4 * mixed_bar * second)
        beta_bar = -2 * _W[:, 0] * (along_bar * self._outer).sum(axis=(2, 3))[..., None]
        b_bar = 2 * ((outer_bar @ b[..., None])[..., 0] + beta_bar * b)
        Q_bar = self._C.swapaxes(1, 2) @ b_bar
        Q_bar[:, : Qd.shape[2]] += 2 * (self._VQ @ c_bar).sum(axis=1)
        return Q_bar, b_bar @ self._Q.swapaxes(1, 2), Qd @ c_bar @ Qd.swapaxes(2, 3)


class _Fit:
    """Log density of the difference between Sigma and its mean, (B, D, D), in the basis of the entries."""

    def __init__(self, m: float, noise: float, difference: FloatArray, entries: _Entries) -> None:
        D = difference.shape[1]
        self._m, self._difference, self._entries = m, difference, entries
        self._variance = m * np.maximum(entries.variance, SMALLEST_VARIANCE) + noise
        self._ratio = difference**2 / self._variance
        self._half = 0.5 * (1 - np.eye(D))  # both triangles have half a weight
        off_diagonal = -0.5 * (self._half * (self._ratio + np.log(self._variance))).sum(axis=(1, 2))
        root = _cholesky(m * entries.joint + (2 * noise + FLOOR * m) * np.eye(D))
        self._inverse_root = np.linalg.inv(root)
        self._residual = self._inverse_root @ np.einsum("bii->bi", difference)[..., None]
        log_root = np.log(np.einsum("bii->bi", root)).sum(axis=1)
        self.log_likelihood = off_diagonal - 0.5 * (self._residual[..., 0] ** 2).sum(axis=1) - log_root

    def derivatives(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the derivatives in the difference, and in ``joint`` and ``variance`` of the entries."""
        transposed = self._inverse_root.swapaxes(1, 2)
        scaled = transposed @ self._residual
        joint_bar = (0.5 * self._m) * (scaled @ scaled.swapaxes(1, 2) - transposed @ self._inverse_root)
        free = self._entries.variance > SMALLEST_VARIANCE
        variance_bar = (0.5 * self._m) * self._half * free * (self._ratio - 1) / self._variance
        difference_bar = -self._half * self._difference / self._variance
        np.einsum("bii->bi", difference_bar)[...] = -scaled[..., 0]
        return difference_bar, joint_bar, variance_bar


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


def _logit(share: float) -> float:
    return float(np.log(share) - np.log1p(-share))


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
