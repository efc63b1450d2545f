"""A second moment A behind a release ``Sigma = A + E``, in coordinates in which NUTS moves easily.

A prior holds A to be near ``S'S``, of a Bartlett law with kappa. Which coordinates suit depends on the noise.

*Where Sigma bounds A* (Wishart): ``0 < A < Sigma``, exactly when ``P = A^{-1} - Sigma^{-1}`` is positive definite, and P has
no boundary to run into. ``P = S^{-1} T T' S'^{-1}``, T lower triangular and near I: Bartlett's coordinates of a precision, in
which a Wishart prior and the likelihood are nearly normal.

*Where it does not* (Gaussian): ``A = Q L L' Q'``, L lower triangular; Q an order of the features, or the eigenvectors of
Sigma, in which what Sigma shows comes first. An entry of L is measured from where prior and release, each by its precision,
would have it: what the noise hides follows the prior, and what it does not the release.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from mpmtl_prob.models.noise import NoisyRelease, of_law
from mpmtl_prob.models.triangles import diagonal, inverse_and_log_det, inverse_of_lower, places, strictly_lower
from mpmtl_prob.privacy.laws import MatrixNoise
from mpmtl_prob.tasks import FloatArray

#: Prior sd of log(phi): phi, the typical variance of one weight, is known up to a factor of 50 either way.
LOG_PHI_SD = 2.0


class Shown(NamedTuple):
    """What Sigma says of L in ``A = Q L L' Q'``."""

    basis: ArrayLike  #: Q, orthogonal, (d, d)
    information: ArrayLike  #: on log L_jj^2, (d,)
    log_size: ArrayLike  #: of L_jj^2, where there is information, (d,)
    products: ArrayLike  #: L_kj L_jj, zero where nothing is known of L_jj, (d, d)


class Free(NamedTuple):
    """A release whose noise leaves A any positive definite matrix."""

    sd: ArrayLike  #: of an entry of E off the diagonal; on it, sqrt(2) times as much
    features: Shown  #: in an order of the features
    directions: Shown  #: along Sigma's eigenvectors


class Observed(NamedTuple):
    """A release as the models read it. Leaves are traced arrays."""

    eigenvectors: ArrayLike  #: of Sigma, by descending eigenvalue, columns, (d, d)
    noise: NoisyRelease  #: the release and the law of its noise
    num_tasks: ArrayLike  #: m
    log_phi_mean: ArrayLike  #: prior mean of log(phi)
    trace: ArrayLike  #: tr(A) where it is public, as with directions; else any number
    trace_sd: ArrayLike  #: how well tr(A) is known, relative; infinite where it is not
    precision: ArrayLike  #: typical size of P in each direction, (d,)
    hidden: ArrayLike  #: from 1 where the noise hides what A has in that direction to 0 where it shows, (d,)
    free: Free | None  #: None where Sigma bounds A


def observe(
    sigma: FloatArray,
    law: MatrixNoise,
    num_tasks: int,
    *,
    phi: float,
    trace: float | None = None,
    trace_sd: float = 0.1,
) -> Observed:
    """Prepare a release for the models.

    Args:
        sigma: the release, (d, d).
        law: of its noise.
        num_tasks: m.
        phi: prior median of the variance of one weight.
        trace: tr(A), if public.
        trace_sd: relative sd with which tr(A) is taken to be known.

    Raises:
        ValueError: noise without a known density.
    """
    eigenvalues, eigenvectors = (x[..., ::-1] for x in np.linalg.eigh(sigma))
    noise = of_law(law, sigma)
    signal = np.clip(eigenvalues - np.diagonal(law.mean), 0.0, trace)  # no direction has more than all of A
    hidden = 1 / (1 + (signal / (2 * law.fluctuation)) ** 4)
    # where the noise hides A, what the prior says, or less if that would show
    guess = (1 - hidden) * signal + hidden * min(num_tasks * phi, law.fluctuation)
    inverse = np.maximum(1 / guess, noise.floor / 0.9)
    free = None
    if noise.sd is not None:
        rotated = _shown(np.diag(eigenvalues), noise.sd)._replace(basis=eigenvectors)
        free = Free(noise.sd, _shown(sigma, noise.sd), rotated)
    return Observed(
        eigenvectors=eigenvectors,
        noise=noise,
        num_tasks=float(num_tasks),
        log_phi_mean=np.log(phi),
        trace=1.0 if trace is None else trace,
        trace_sd=np.inf if trace is None else trace_sd,
        precision=inverse - noise.floor,
        hidden=hidden,
        free=free,
    )


class SecondMoment(NamedTuple):
    """A in its coordinates."""

    A: Array  #: in the features' basis, (d, d)
    log_det: Array  #: log|A|


def second_moment(
    observed: Observed, root: Array, log_det_root: Array, kappa: Array | float = jnp.inf, *, rotated: bool = False
) -> SecondMoment:
    """A in coordinates that suit the noise; the density so far is p(Sigma | A), against Lebesgue measure in A.

    Sites: ``log_diagonal`` (d,) and ``off_diagonal`` (d(d-1)/2,); the deterministic ``A`` (d, d).

    Args:
        observed: from :func:`observe`.
        root: S, its columns in the features' basis: what the prior holds A to be is S'S, (d, d); its diagonal where it has
            no more, (d,).
        log_det_root: log|det S|.
        kappa: of the prior's Omega; infinite where Omega is known.
        rotated: S'S is nearly diagonal along the eigenvectors of Sigma, where it shows nothing, and not along the features.
    """
    if (free := observed.free) is None:
        SV = _times(root, jnp.asarray(observed.eigenvectors))
        below = (SV * jnp.asarray(observed.noise.floor)) @ SV.T
        bounded = _Bounded(root, diagonal(root**2) if root.ndim == 1 else root @ root.T, log_det_root)
        return _below_sigma(observed, _triangular(observed, _by_feature(observed), kappa), bounded, below)[1]
    shown = free.directions if rotated else free.features
    SQ = _times(root, jnp.asarray(shown.basis))
    C = jnp.linalg.cholesky(SQ.T @ SQ)
    return _anywhere(observed, free, shown, jnp.diagonal(C) ** 2, kappa)[1]


def isotropic(observed: Observed, kappa: Array) -> tuple[Array, SecondMoment, Array]:
    """log(phi), A whose prior is near m phi I, and A^{-1} up to a rotation, (d, d).

    Where noise that bounds A hides it, and only there, the coordinates follow the prior, which would make a funnel of it: the
    scale S follows phi, T follows Bartlett's law, and phi follows from tr(A), if that is public.

    Sites: ``z``, those of :func:`second_moment`; the deterministic ``log_phi``.
    """
    d = jnp.size(observed.precision)
    # what Sigma shows last: 1 / T_dd^2 alone is what A has there
    hidden, precision, floor = (
        jnp.flip(jnp.asarray(x)) for x in (observed.hidden, observed.precision, observed.noise.floor)
    )
    if (free := observed.free) is not None:
        log_phi = log_phi_site(observed)
        variance = jnp.exp(log_phi) * jnp.full(d, observed.num_tasks)
        L, found = _anywhere(observed, free, free.directions, variance, kappa)
        half = inverse_of_lower(L)
        return log_phi, found, half.T @ half
    factor = _triangular(observed, hidden, kappa)
    # A's eigenvalues, roughly, at the prior mean of log(phi); those that are hidden move with it
    inverse_squares = jnp.sum(inverse_of_lower(factor.T) ** 2, axis=-2)  # the diagonal of (T T')^{-1}
    log_phi = _log_phi_of_trace(observed, 1 / (precision / inverse_squares + floor), hidden)
    log_size = 0.5 * (hidden * (log_phi - observed.log_phi_mean) - jnp.log(precision))
    # along the eigenvectors S is diagonal, and so is what Sigma adds to B
    square = jnp.exp(2 * log_size)
    to_features = jnp.flip(jnp.asarray(observed.eigenvectors).T, 0)
    bounded = _Bounded(jnp.exp(log_size)[:, None] * to_features, diagonal(square), log_size.sum())
    B, found = _below_sigma(observed, factor, bounded, diagonal(square * floor))
    return log_phi, found, jnp.exp(-log_size[:, None] - log_size) * B


def at_rest(observed: Observed) -> dict[str, FloatArray]:
    """Where the coordinates of :func:`second_moment` are zero: near what prior and release suggest."""
    d = np.size(observed.precision)
    return {"log_diagonal": np.zeros(d), "off_diagonal": np.zeros(d * (d - 1) // 2)}


def _sites(observed: Observed) -> tuple[Array, Array]:
    d = jnp.size(observed.precision)
    z = numpyro.sample("log_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d,)))
    return z, numpyro.sample("off_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d * (d - 1) // 2,)))


def _anywhere(
    observed: Observed, free: Free, shown: Shown, variance: Array, kappa: Array | float
) -> tuple[Array, SecondMoment]:
    """L and A, where A may be any positive definite matrix.

    Args:
        observed: the release.
        free: the same as one that does not bound A.
        shown: what it says of L, in a basis.
        variance: of the prior of A, in the basis of L: of every axis given those before it, times m, (d,).
        kappa: of Omega.
    """
    d, m, Q = len(variance), jnp.asarray(observed.num_tasks), jnp.asarray(shown.basis)
    z, below = _sites(observed)
    information, noise_precision = jnp.asarray(shown.information), jnp.asarray(free.sd) ** -2.0
    j, (row, column) = jnp.arange(d, dtype=variance.dtype), places(d)

    # Bartlett: L_jj^2 has m - j degrees of freedom, and Omega adds its spread
    center = jnp.log(variance) + jnp.log1p(-j / m) - jnp.log1p((j + 1 - d) / kappa)
    prior = 1 / (2 / (m - j) + 2 / (kappa + j + 1 - d))
    precision = prior + information
    log_square = (prior * center + information * jnp.asarray(shown.log_size)) / precision + z / jnp.sqrt(precision)
    square, size = jnp.exp(log_square), jnp.exp(0.5 * log_square)

    # Sigma_kj = L_kj L_jj + what the columns before have, give or take the noise
    spread = variance[row] * (1 / m + (square / variance)[column] / kappa)
    weight = 1 / spread + square[column] * noise_precision
    pull = jnp.asarray(shown.products)[row, column] * size[column] * noise_precision
    entries = pull / weight + below / jnp.sqrt(weight)
    L = diagonal(size) + strictly_lower(entries, d)

    half = Q @ L
    A = numpyro.deterministic("A", half @ half.T)
    # |dA| = prod_j L_jj^{d-j} |dL|, j from 0, up to a constant
    jacobian = 0.5 * ((d + 1 - j) * log_square - jnp.log(precision)).sum() - 0.5 * jnp.log(weight).sum()
    numpyro.factor("release", observed.noise.log_density(A, 0.0) + jacobian)
    known_trace(observed, jnp.trace(A))
    return L, SecondMoment(A, jnp.sum(log_square))


def _shown(sigma: FloatArray, sd: ArrayLike) -> Shown:
    """The Cholesky factor of what noise leaves of Sigma, largest first."""
    rest, d, unit = np.array(sigma), len(sigma), np.sqrt(2) * float(np.asarray(sd))
    order, left = [], list(range(d))
    information, log_size, products = np.zeros(d), np.zeros(d), np.zeros((d, d))
    for j in range(d):
        k = max(left, key=lambda i: rest[i, i])
        left.remove(k)
        order.append(k)
        size = max(rest[k, k], 0.1 * unit)
        ratio = size / unit
        share = 1 / (1 + ratio**-4.0)  # of what an entry shows; below the noise, nothing
        information[j], log_size[j] = share * ratio**2, np.log(size)
        products[:, j] = share * rest[:, k]
        rest = rest - share * np.outer(rest[:, k], rest[:, k]) / size
    return Shown(np.eye(d)[:, order], information, log_size, products[order])


class _Triangular(NamedTuple):
    """T in the coordinates of the sampler."""

    T: Array  #: lower triangular, (d, d)
    log_diagonal: Array  #: of T, (d,)
    log_jacobian: Array  #: of T in the sites


def _triangular(observed: Observed, hidden: ArrayLike, kappa: Array | float = jnp.inf) -> _Triangular:
    """T, with a flat density so far, in units of the spread that Bartlett's law gives it where A is hidden.

    Where the release shows A the law says nothing of T, and a row of it is in units of its own diagonal.

    Args:
        observed: from :func:`observe`.
        hidden: from 1 to 0 by row of T, as :attr:`Observed.hidden` by eigenvector, (d,).
        kappa: of Omega; infinite where Omega is known.
    """
    d = jnp.size(observed.precision)
    z, below = _sites(observed)
    center, spread, unit = _bartlett(observed, hidden, kappa)
    shown, log_diagonal = 1 - jnp.asarray(hidden), center + spread * z
    rows = (unit * jnp.exp(shown * log_diagonal))[:, None] * strictly_lower(below, d)
    each = (1 + jnp.arange(d, dtype=shown.dtype) * shown) * log_diagonal + jnp.log(spread)
    log_jacobian = jnp.sum(each) + jnp.size(below) * jnp.log(unit)
    return _Triangular(diagonal(jnp.exp(log_diagonal)) + rows, log_diagonal, log_jacobian)


def _bartlett(observed: Observed, hidden: ArrayLike, kappa: Array | float) -> tuple[Array, Array, Array]:
    """Mean and sd of log T_jj and sd of T_jk: T_jj^2 has kappa - j degrees of freedom, and m tasks add their spread.

    Where Sigma shows A it says as much of log T_jj as m tasks would, and the law of kappa little.
    """
    hidden, m = jnp.asarray(hidden), jnp.asarray(observed.num_tasks)
    j = jnp.arange(len(hidden), dtype=hidden.dtype)
    prior = 1 / (0.5 / m + 0.5 / (kappa - j))
    precision = prior + 2 * m * (1 - hidden)
    center = prior / precision * 0.5 * jnp.log1p(-j / kappa)
    return center, jnp.sqrt(1 / precision), jnp.sqrt(1 / m + 1 / kappa)


def _by_feature(observed: Observed) -> Array:
    """How hidden each feature is, (d,)."""
    return jnp.square(observed.eigenvectors) @ jnp.asarray(observed.hidden)


def _times(S: Array, M: Array) -> Array:
    """S M, S as it is given, or by its diagonal."""
    return S[:, None] * M if S.ndim == 1 else S @ M


def _congruent(S: Array, M: Array) -> Array:
    """S'M S."""
    return S[:, None] * M * S if S.ndim == 1 else S.T @ M @ S


class _Bounded(NamedTuple):
    """S, where Sigma bounds A."""

    root: Array  #: S, its columns in the features' basis, (d, d), or its diagonal, (d,)
    outer: Array  #: S S', (d, d)
    log_det: Array  #: log|det S|


def _below_sigma(observed: Observed, factor: _Triangular, S: _Bounded, below: Array) -> tuple[Array, SecondMoment]:
    """``B = S A^{-1} S'``, (d, d), and A, where Sigma bounds it.

    ``B = T T' + S F S'``, ``F = Sigma^{-1}``: directions of very different size, which S knows, do not meet in B.
    ``below`` is ``S F S'``, (d, d).
    """
    left = jnp.arange(S.root.shape[-1], 0, -1, S.root.dtype)  # d - j, j = 0..d-1
    T = factor.T
    B = T @ T.T + below
    inverse, log_det_b = inverse_and_log_det(B)
    A = numpyro.deterministic("A", _congruent(S.root, inverse))
    trace = jnp.sum(inverse * S.outer)

    log_det_a = 2 * S.log_det - log_det_b
    log_det_p = 2 * (jnp.sum(factor.log_diagonal) - S.log_det)
    log_det_rest = log_det_a + log_det_p  # |Sigma - A| = |Sigma| |A| |P|
    # |dA| = |A|^{d+1} |dP|, |dP| = |S|^{-(d+1)} prod_j T_jj^{d-j} |dT|
    jacobian = (len(left) + 1) * (log_det_a - S.log_det) + jnp.sum(left * factor.log_diagonal)
    likelihood = observed.noise.log_density(A, log_det_rest, trace)
    numpyro.factor("release", likelihood + jacobian + factor.log_jacobian)
    known_trace(observed, trace)
    return B, SecondMoment(A, log_det_a)


def sites_of(
    observed: Observed, variances: FloatArray, omega: FloatArray, kappa: float = np.inf
) -> dict[str, FloatArray]:
    """The sites of :func:`second_moment` at which A / m has these eigenvalues, along those of Sigma; near them beside noise
    that does not bound A.

    Args:
        observed: from :func:`observe`.
        variances: of the weights along the eigenvectors of Sigma, (d,).
        omega: (d, d).
        kappa: of Omega; infinite where Omega is known.
    """
    if observed.free is not None:
        return at_rest(observed)
    SV = np.linalg.cholesky(omega).T @ np.asarray(observed.eigenvectors)
    precision = 1 / variances - np.asarray(observed.num_tasks) * np.asarray(observed.noise.floor)
    T = np.linalg.cholesky((SV * precision) @ SV.T)
    hidden = np.asarray(_by_feature(observed))
    center, spread, unit = (np.asarray(x) for x in _bartlett(observed, hidden, kappa))
    row, column = places(len(omega))
    log_diagonal = np.log(np.diagonal(T))
    scale = unit * np.exp((1 - hidden) * log_diagonal)[row]
    return {"log_diagonal": (log_diagonal - center) / spread, "off_diagonal": T[row, column] / scale}


def known_trace(observed: Observed, trace: Array) -> None:
    """What is public of tr(A) beside the release."""
    numpyro.factor("known_trace", -0.5 * ((trace / observed.trace - 1) / observed.trace_sd) ** 2)


def log_phi_site(observed: Observed) -> Array:
    """log(phi), N(its prior mean, LOG_PHI_SD). Sites: ``z``, the deterministic ``log_phi``."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * z)


def _log_phi_of_trace(observed: Observed, size: Array, hidden: Array) -> Array:
    """log(phi), the same prior, measured from where it and tr(A), if that is public, would have it."""
    total = jnp.sum(size)
    share = jnp.sum(hidden * size) / total  # log tr(A) moves by so much of log(phi)
    information = share / jnp.square(observed.trace_sd)
    precision = LOG_PHI_SD**-2 + share * information
    z = numpyro.sample("z", dist.ImproperUniform(constraints.real, (), ()))
    shift = (information * (jnp.log(observed.trace) - jnp.log(total))) / precision + z / jnp.sqrt(precision)
    numpyro.factor("log_phi_prior", -0.5 * (shift / LOG_PHI_SD) ** 2 - 0.5 * jnp.log(precision))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + shift)
