"""Coordinates of a second moment A given a release ``Sigma = A + E``, in which NUTS mixes well.

A priori A is near a matrix ``S'S``, with a spread that kappa determines. The coordinates depend on the noise.

*Where Sigma bounds A* (Wishart noise): ``0 < A < Sigma`` exactly if ``P = A^{-1} - Sigma^{-1}`` is positive definite, so that
P has no other boundary. ``P = S^{-1} T T' S'^{-1}`` with T lower triangular and near I. These are Bartlett's coordinates of a
precision, in which a Wishart prior and the likelihood are nearly normal. Where kappa is small, A may be far from ``S'S``.
Then T refers to axes, the features or the eigenvectors of Sigma, in ascending order of how well Sigma determines A along
them. Where Omega is sampled, S follows Omega in directions where noise dominates, and Sigma in the others.

*Where Sigma does not bound A* (Gaussian noise): ``A = Q L L' Q'`` with L lower triangular. Q is an order of the features, or
the eigenvectors of Sigma, in descending order of how well Sigma determines A.

The coordinates of T and L are centred where prior and release, weighted by their precisions, expect them: entries that noise
dominates follow the prior, and the others follow the release.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.observed import Free, Observed, Visible
from mpmtl_prob.models.scale import log_phi_of_release, log_phi_of_size
from mpmtl_prob.models.triangles import (
    below_diagonal,
    cholesky,
    diagonal,
    diagonal_of,
    inverse_and_log_det,
    inverse_of_lower,
    places,
    strictly_lower,
)

#: A ratio of precisions of A along a direction, by Sigma and by Omega, beyond which coordinates no longer follow Omega there.
#: With 1, chains mixed half as well at eps = 1 on the papers' synthetic data, and equally well at eps = 10 and 1000.
_CLEARER = 10.0


class SecondMoment(NamedTuple):
    """Sampled second moment."""

    A: Array  #: in the features' basis, (d, d)
    log_det: Array  #: log|A|


def second_moment(observed: Observed, root: Array) -> SecondMoment:
    """Sample A with the density p(Sigma | A), in coordinates for a prior near S'S with a diagonal S.

    The density refers to Lebesgue measure in A; the model adds the prior.

    Sites: ``log_diagonal`` (d,) and ``off_diagonal`` (d(d-1)/2,); the deterministic ``A`` (d, d).

    Args:
        observed: from :func:`observe`.
        root: the diagonal of S, (d,).
    """
    if (free := observed.free) is None:
        SV = root[:, None] * jnp.asarray(observed.eigenvectors)
        below = (SV * jnp.asarray(observed.noise.precision_floor)) @ SV.T
        bounded = _Bounded(root, diagonal(root**2), jnp.sum(jnp.log(root)))
        return _below_sigma(observed, _triangular(observed, _by_feature(observed)), bounded, below)[-1]
    return _ordered(observed, free, free.features, diagonal(root**2))


def rotated_second_moment(observed: Observed, prior: Array) -> SecondMoment:
    """Sample A as :func:`second_moment` does, in coordinates for a prior near any positive definite matrix (d, d).

    Where Sigma bounds A, S follows the prior along the eigenvectors of Sigma for which the prior is more precise. In other
    directions Sigma nearly determines A: there S follows Sigma, because T would have to cancel every change of the prior.

    Sites: those of :func:`second_moment`.
    """
    if (free := observed.free) is not None:
        return _ordered(observed, free, free.directions, prior)
    V = jnp.asarray(observed.eigenvectors)
    follows = _follows(observed)
    C = cholesky(_mixed(observed, follows, V.T @ prior @ V))
    bounded = _Bounded(C.T @ V.T, C.T @ C, jnp.sum(jnp.log(diagonal_of(C))))
    below = (C.T * jnp.asarray(observed.noise.precision_floor)) @ C
    return _below_sigma(observed, _triangular(observed, follows), bounded, below)[-1]


def _follows(observed: Observed) -> Any:
    """Return how far coordinates follow Omega, from 1 to 0 where they follow Sigma, by direction, (d,).

    Omega determines A along a direction with a relative sd of sqrt(2 / m). The coordinates follow Omega until Sigma is much
    more precise, because directions that Sigma determines are correlated a priori with those that noise dominates.
    """
    shown = (1 - observed.noise_dominance) / (observed.precision + observed.noise.precision_floor)
    ratio = shown**2 * observed.noise_precision / observed.num_tasks  # of the precisions by Sigma and by Omega
    return 1 / (1 + (ratio / _CLEARER) ** 2)


def _mixed(observed: Observed, follows: Any, prior: Any) -> Any:
    """Return S'S of :func:`rotated_second_moment` along the eigenvectors of Sigma, (d, d).

    Its variances are geometric means of the prior's and Sigma's, and its correlations are those of the prior, reduced where
    coordinates follow Sigma.
    """
    d = len(follows)
    xp = prior.__array_namespace__()
    variance = xp.sum(prior * np.eye(d, dtype=prior.dtype), axis=-1)
    size = variance ** (0.5 * (follows - 1)) * observed.precision ** (0.5 * (follows - 1))
    weight = follows**0.5 * size
    return weight[:, None] * prior * weight + np.eye(d, dtype=prior.dtype) * ((1 - follows) * variance * size**2)


def _ordered(observed: Observed, free: Free, shown: Visible, prior: Array) -> SecondMoment:
    """Sample A where Sigma does not bound it, for a prior near a matrix (d, d), along the basis of ``shown``."""
    Q = jnp.asarray(shown.basis)
    return _anywhere(observed, free, shown, cholesky(Q.T @ prior @ Q), jnp.inf)[1]


def loose_second_moment(observed: Observed, log_root: Array, kappa: Array) -> tuple[SecondMoment, Array]:
    """Sample A as :func:`second_moment` does, in coordinates for an A that may be far from S'S, as where kappa is small.

    Sites: those of :func:`second_moment`.

    Args:
        observed: from :func:`observe`.
        log_root: the logarithm of the diagonal of S, (d,).
        kappa: degrees of freedom of the prior of Omega.

    Returns:
        A, and ``S'^{-1} A S^{-1}`` up to a rotation, (d, d).
    """
    if (free := observed.free) is not None:
        order = jnp.asarray(free.features.basis)
        _, moment = _anywhere(observed, free, free.features, diagonal(order.T @ jnp.exp(log_root)), kappa)
        return moment, moment.A * jnp.exp(-log_root[:, None] - log_root)
    V = jnp.asarray(observed.axes.basis)
    SV = jnp.exp(log_root)[:, None] * V
    C = cholesky(SV.T @ SV)
    bounded = _Bounded(C.T @ V.T, C.T @ C, jnp.sum(log_root))
    below = C.T @ jnp.asarray(observed.axes.floor) @ C
    _, inverse, moment = _below_sigma(observed, _along_axes(observed, C, kappa), bounded, below)
    return moment, inverse


def isotropic(observed: Observed, kappa: Array) -> tuple[Array, SecondMoment, Array]:
    """Sample log(phi) and A, in coordinates for a prior near m phi I.

    Where Sigma bounds A, coordinates follow the prior only in directions that noise dominates, where the prior would
    otherwise cause a funnel. There S follows phi, T follows Bartlett's distribution, and phi follows tr(A), if that is
    public.

    Sites: ``z``, those of :func:`second_moment`; the deterministic ``log_phi``.

    Returns:
        log(phi), A, and A^{-1} up to a rotation, (d, d).
    """
    d = jnp.size(observed.precision)
    if (free := observed.free) is not None:
        shown = free.directions
        log_phi = log_phi_of_release(observed, jnp.asarray(shown.log_size), jnp.asarray(shown.information), kappa)
        C = diagonal(jnp.exp(0.5 * log_phi) * jnp.full(d, jnp.sqrt(observed.num_tasks)))
        L, moment = _anywhere(observed, free, shown, C, kappa)
        half = inverse_of_lower(L)
        return log_phi, moment, half.T @ half
    # the direction that Sigma determines best comes last, where A depends on 1 / T_dd^2 alone
    hidden = jnp.asarray(observed.noise_dominance)
    precision = jnp.asarray(observed.precision)
    floor = jnp.asarray(observed.noise.precision_floor)
    factor = _given_kappa(observed, kappa)
    # rough eigenvalues of A at the prior mean of log(phi); those that noise dominates follow phi
    inverse_squares = jnp.sum(inverse_of_lower(factor.T) ** 2, axis=-2)  # the diagonal of (T T')^{-1}
    log_phi = log_phi_of_size(observed, 1 / (precision / inverse_squares + floor), 1 - hidden, kappa)
    log_size = 0.5 * (hidden * (log_phi - observed.log_phi_mean) - observed.log_precision)
    # along the eigenvectors of Sigma both S and S Sigma^{-1} S' are diagonal
    square = jnp.exp(2 * log_size)
    to_features = jnp.asarray(observed.eigenvectors).T
    bounded = _Bounded(jnp.exp(log_size)[:, None] * to_features, diagonal(square), log_size.sum())
    B, _, moment = _below_sigma(observed, factor, bounded, diagonal(square * floor))
    return log_phi, moment, jnp.exp(-log_size[:, None] - log_size) * B


def at_rest(observed: Observed) -> dict[str, FloatArray]:
    """Return the sites of :func:`second_moment` at zero, near the centre of prior and release."""
    d = np.size(observed.precision)
    return {"log_diagonal": np.zeros(d), "off_diagonal": np.zeros(d * (d - 1) // 2)}


def _sites(observed: Observed) -> tuple[Array, Array]:
    """Sample the coordinates of a triangular matrix, diagonal and below, with flat densities."""
    d = jnp.size(observed.precision)
    z = numpyro.sample("log_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d,)))
    return z, numpyro.sample("off_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d * (d - 1) // 2,)))


def _anywhere(
    observed: Observed, free: Free, shown: Visible, C: Array, kappa: Array | float
) -> tuple[Array, SecondMoment]:
    """Sample L and A, where A may be any positive definite matrix.

    Args:
        observed: the release.
        free: the part of it for noise that does not bound A.
        shown: an estimate of L from the release, in a basis.
        C: lower triangular root of the matrix that A is near a priori, in the basis of L, (d, d).
        kappa: degrees of freedom of the prior of Omega.
    """
    d = len(C)
    m = jnp.asarray(observed.num_tasks)
    Q = jnp.asarray(shown.basis)
    root = diagonal_of(C)
    variance = root**2  # of every axis given those before it
    z, below = _sites(observed)
    information = jnp.asarray(shown.information)
    noise_precision = jnp.asarray(free.sd) ** -2.0
    j = jnp.arange(d, dtype=variance.dtype)
    row, column = places(d)

    # Bartlett: L_jj^2 has m - j degrees of freedom, to whose spread that of Omega is added
    center = jnp.log(variance) + jnp.log1p(-j / m) - jnp.log1p((j + 1 - d) / kappa)
    prior = 1 / (2 / (m - j) + 2 / (kappa + j + 1 - d))
    precision = prior + information
    log_square = (prior * center + information * jnp.asarray(shown.log_size)) / precision + z / jnp.sqrt(precision)
    square = jnp.exp(log_square)
    size = jnp.exp(0.5 * log_square)

    # Bartlett: L = C T, so that an entry of L follows T_jj, with a spread from the axes after j
    after = jnp.cumsum(C[:, ::-1] ** 2, axis=1)[:, ::-1][row, column + 1]
    spread = after / m + variance[row] * (square / variance)[column] / kappa
    expected = (C / root)[row, column] * size[column]
    # Sigma_kj = L_kj L_jj + a sum over the columns before j + noise
    weight = 1 / spread + square[column] * noise_precision
    pull = jnp.asarray(shown.products)[row, column] * size[column] * noise_precision
    entries = (expected / spread + pull) / weight + below / jnp.sqrt(weight)
    L = diagonal(size) + strictly_lower(entries, d)

    half = Q @ L
    A = numpyro.deterministic("A", half @ half.T)
    # |dA| = prod_j L_jj^{d-j} |dL|, j from 0, up to a constant
    jacobian = 0.5 * ((d + 1 - j) * log_square - jnp.log(precision)).sum() - 0.5 * jnp.log(weight).sum()
    numpyro.factor("release", observed.noise.log_density(A, 0.0) + jacobian)
    known_trace(observed, jnp.trace(A))
    return L, SecondMoment(A, jnp.sum(log_square))


class _Triangular(NamedTuple):
    """Sampled triangular matrix T."""

    T: Array  #: lower triangular, (d, d)
    log_diagonal: Array  #: logarithm of the diagonal of T, (d,)
    log_jacobian: Array  #: log|dT/dz| of T in the sites


def _triangular(observed: Observed, hidden: ArrayLike) -> _Triangular:
    """Sample T with a flat density where Omega is known.

    In rows where noise dominates, the unit is the spread that m tasks have under Bartlett's distribution. Where the release
    determines A, that distribution says nothing about T, and the unit of a row is its diagonal entry.

    Args:
        observed: from :func:`observe`.
        hidden: from 1 to 0 by row of T, as :attr:`Observed.noise_dominance` by eigenvector, (d,).
    """
    d = jnp.size(observed.precision)
    hidden = jnp.asarray(hidden)
    z, below = _sites(observed)
    center, spread, unit = _bartlett(observed, hidden, jnp.inf)
    shown = 1 - hidden
    log_diagonal = center + spread * z
    rows = (unit * jnp.exp(shown * log_diagonal))[:, None] * strictly_lower(below, d)
    of_rows = (1 + jnp.arange(d, dtype=shown.dtype) * shown) * log_diagonal + jnp.log(spread)
    log_jacobian = jnp.sum(of_rows) + jnp.size(below) * jnp.log(unit)
    return _Triangular(diagonal(jnp.exp(log_diagonal)) + rows, log_diagonal, log_jacobian)


def _given_kappa(observed: Observed, kappa: Array) -> _Triangular:
    """Sample T along Sigma's eigenvectors where only kappa is known of Omega, in units of its approximate posterior sd.

    Near Sigma's eigenvectors, a change of ``A_kj`` changes ``T_kj`` by ``-1 / sqrt(a_k a_j weak_k weak_j)`` times as much,
    where a are the eigenvalues of A and weak the shares of Sigma's eigenvalues that are noise. A priori ``A_kj`` has an sd of
    ``sqrt(a_k a_j (1/m + 1/kappa))``, and the release determines it up to the noise's sd. Therefore the unit follows kappa
    only where the noise is larger. The same holds for twice ``log T_jj``, with twice the variances.

    Args:
        observed: from :func:`observe`.
        kappa: degrees of freedom of the prior of Omega.
    """
    m = jnp.asarray(observed.num_tasks)
    shown = 1 - jnp.asarray(observed.noise_dominance)
    z, below = _sites(observed)
    precision = jnp.asarray(observed.precision)
    size = 1 / (precision + jnp.asarray(observed.noise.precision_floor))
    weak = precision * size
    # where Sigma determines A the typical precision has a lower bound, a share of Sigma's, and may so exceed the noise's
    noise = jnp.sqrt(observed.noise_precision) * jnp.minimum(size * weak, observed.noise_mean)
    d = len(size)
    j = jnp.arange(d, dtype=size.dtype)
    # Bartlett, twice: T = C R, where C_jj^2 has kappa - j degrees of freedom and 1 / R_jj^2 has m - d + 1 + j
    of_kappa = 1 / (kappa - j)
    of_tasks = 1 / (m - d + 1 + j)
    prior = weak**2 / (of_kappa + of_tasks)
    spread = 1 / jnp.sqrt(2 * (prior + noise**2))
    by_prior = prior / (prior + noise**2)
    center = 0.5 * by_prior * (jnp.log1p(-j / kappa) - jnp.log1p((1 + j - d) / m))
    log_diagonal = center + spread * z
    log_R = by_prior * of_tasks / (of_kappa + of_tasks) * log_diagonal  # roughly the part of R_jj in log T_jj
    variance = 1 / kappa + jnp.exp(2 * log_R) / m  # a priori, of T_kj / R_jj, by row
    log_unit = -0.5 * jnp.log((weak / variance)[:, None] * weak + noise[:, None] * noise)
    # where the release determines A, the unit of a row is its diagonal entry
    log_unit = log_unit + (shown * log_diagonal)[:, None] + log_R
    T = diagonal(jnp.exp(log_diagonal)) + strictly_lower(below, d) * jnp.exp(log_unit)
    log_jacobian = jnp.sum(log_diagonal + jnp.log(spread)) + jnp.sum(below_diagonal(log_unit))
    return _Triangular(T, log_diagonal, log_jacobian)


def _along_axes(observed: Observed, C: Array, kappa: Array) -> _Triangular:
    """Sample T where ``S = C' V'``, V the release's axes, so that the last row of T determines P along the last axis.

    Args:
        observed: from :func:`observe`.
        C: lower triangular, ``C C' = V' S'S V``, (d, d).
        kappa: degrees of freedom of the prior of Omega.
    """
    axes = observed.axes
    m = jnp.asarray(observed.num_tasks)
    d = len(C)
    z, below = _sites(observed)
    log_size = jnp.log(diagonal_of(C))
    hidden = jnp.asarray(axes.noise_dominance)
    center, spread, unit = _bartlett(observed, hidden, kappa)
    shown = log_size + 0.5 * axes.log_precision
    log_diagonal = center + 2 * m * (1 - hidden) * spread**2 * shown + spread * z

    # T_kj moves A_kj by C_kk C_jj / (T_kk^2 T_jj), and by less where A is near Sigma; the release determines A_kj up to the
    # noise's sd
    log_inverse = 2 * (log_size - log_diagonal)
    log_moved = log_inverse - 2 * jnp.log1p(diagonal_of(jnp.asarray(axes.floor)) * jnp.exp(log_inverse))
    information = 2 * observed.noise_precision * jnp.exp((log_moved - 2 * log_diagonal)[:, None] + log_moved)
    log_unit = -0.5 * jnp.log(unit**-2 + information)
    T = diagonal(jnp.exp(log_diagonal)) + strictly_lower(below, d) * jnp.exp(log_unit)
    log_jacobian = jnp.sum(log_diagonal + jnp.log(spread)) + jnp.sum(below_diagonal(log_unit))
    return _Triangular(T, log_diagonal, log_jacobian)


def _bartlett(observed: Observed, hidden: Any, kappa: Any) -> tuple[Any, Any, Any]:
    """Return means and sds of log T_jj, (d,), and the sd of T_jk.

    T_jj^2 has kappa - j degrees of freedom, and m tasks add their spread. Where Sigma determines A, it informs about log T_jj
    as much as m tasks would, and kappa little.
    """
    xp = hidden.__array_namespace__()  # NumPy where a start is computed, so that nothing is compiled for it
    j = xp.arange(len(hidden), dtype=hidden.dtype)
    m = observed.num_tasks
    per_task = observed.per_task
    per_kappa = 1 / kappa
    left = 1 - per_kappa * j  # (kappa - j) / kappa
    # over the prior's precision 1 / (1 / (2 m) + 1 / (2 (kappa - j)))
    share = 0.5 / (left + (1 - hidden) * (m * per_kappa + left))
    mean = left * share * xp.log(left)
    return mean, xp.sqrt((per_kappa + per_task * left) * share), xp.sqrt(per_task + per_kappa)


def _by_feature(observed: Observed) -> Any:
    """Return the noise dominance of each feature, (d,)."""
    eigenvectors: Any = observed.eigenvectors
    return eigenvectors**2 @ observed.noise_dominance


def _congruent(S: Array, M: Array) -> Array:
    """Return S'M S, where S may be given by its diagonal."""
    return S[:, None] * M * S if S.ndim == 1 else S.T @ M @ S


class _Bounded(NamedTuple):
    """Matrix S of the coordinates where Sigma bounds A."""

    root: Array  #: S, its columns in the features' basis, (d, d), or its diagonal, (d,)
    outer: Array  #: S S', (d, d)
    log_det: Array  #: log|det S|


def _below_sigma(
    observed: Observed, factor: _Triangular, S: _Bounded, below: Array
) -> tuple[Array, Array, SecondMoment]:
    """Compute A from T where Sigma bounds it, and add the density p(Sigma | A).

    ``B = S A^{-1} S' = T T' + S F S'`` with ``F = Sigma^{-1}`` is well conditioned, because S has the sizes of the
    directions.

    Args:
        observed: from :func:`observe`.
        factor: T.
        S: the matrix S.
        below: ``S F S'``, (d, d).

    Returns:
        B (d, d), its inverse, and A.
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
    return B, inverse, SecondMoment(A, log_det_a)


def sites_of(observed: Observed, variances: FloatArray, omega: FloatArray) -> dict[str, FloatArray]:
    """Return the sites of :func:`second_moment` at a given A with the eigenvectors of Sigma.

    Where Sigma does not bound A, these are the sites at zero, which are near enough.

    Args:
        observed: from :func:`observe`.
        variances: eigenvalues of A / m, which are variances of the weights along the eigenvectors of Sigma, (d,).
        omega: Omega's diagonal, (d,); or Omega, (d, d), for the sites of :func:`rotated_second_moment`.
    """
    if observed.free is not None:
        return at_rest(observed)
    V = np.asarray(observed.eigenvectors)
    m = float(np.asarray(observed.num_tasks))
    if omega.ndim == 1:
        hidden = _by_feature(observed)
        SV = np.sqrt(m * omega)[:, None] * V
    else:
        hidden = _follows(observed)
        SV = np.linalg.cholesky(_mixed(observed, hidden, V.T @ (m * omega) @ V)).T
    precision = 1 / (m * variances) - np.asarray(observed.noise.precision_floor)
    T = np.linalg.cholesky((SV * precision) @ SV.T)
    center, spread, unit = _bartlett(observed, hidden, np.inf)
    row, column = places(len(omega))
    log_diagonal = np.log(np.diagonal(T))
    scale = unit * np.exp((1 - hidden) * log_diagonal)[row]
    return {"log_diagonal": (log_diagonal - center) / spread, "off_diagonal": T[row, column] / scale}


def known_trace(observed: Observed, trace: Array) -> None:
    """Add the density of tr(A), where that is public."""
    numpyro.factor("known_trace", -0.5 * observed.trace_precision * (trace - observed.trace) ** 2)
