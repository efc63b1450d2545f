"""A second moment A behind a release ``Sigma = A + E``, in coordinates in which NUTS moves easily.

A prior holds A to be near ``S'S``, of a Bartlett law with kappa. Which coordinates suit depends on the noise.

*Where Sigma bounds A* (Wishart): ``0 < A < Sigma``, exactly when ``P = A^{-1} - Sigma^{-1}`` is positive definite, and P has
no boundary to run into. ``P = S^{-1} T T' S'^{-1}``, T lower triangular and near I: Bartlett's coordinates of a precision, in
which a Wishart prior and the likelihood are nearly normal. Where kappa is small A may be far from ``S'S``: then T is measured
along axes, features or eigenvectors of Sigma, of which what Sigma shows best comes last. Where Omega has sites of its own, S
follows it where the noise hides A, and Sigma elsewhere.

*Where it does not* (Gaussian): ``A = Q L L' Q'``, L lower triangular; Q an order of the features, or the eigenvectors of
Sigma, in which what Sigma shows comes first.

An entry of T or L is measured from where prior and release, each by its precision, would have it: what the noise hides
follows the prior, and what it does not the release.
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

#: By how much Sigma has to know a direction of A better than Omega does, for A not to follow Omega there: with 1 chains mixed
#: half as well at eps = 1 on the papers' synthetic data, and with 10 at eps = 10 and 1000 as well.
_CLEARER = 10.0


class SecondMoment(NamedTuple):
    """A in its coordinates."""

    A: Array  #: in the features' basis, (d, d)
    log_det: Array  #: log|A|


def second_moment(observed: Observed, root: Array) -> SecondMoment:
    """A whose prior is near S'S, S diagonal; the density so far is p(Sigma | A), against Lebesgue measure in A.

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
    """The same, A's prior near any positive definite matrix (d, d), along the eigenvectors of Sigma.

    Where Sigma bounds A, S follows the prior in the directions in which it knows A better than Sigma does, and Sigma in the
    others, where A is nearly known: there it would have to undo whatever the prior does.

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
    """Return how much A follows Omega beside Sigma, by direction, (d,): m tasks know it up to sqrt(2 / m).

    Until Sigma knows it much better: a direction that it shows still goes with those that the noise hides.
    """
    shown = (1 - observed.noise_dominance) / (observed.precision + observed.noise.precision_floor)
    clearer = shown**2 * observed.noise_precision / observed.num_tasks  # by so much, as a ratio of variances
    return 1 / (1 + (clearer / _CLEARER) ** 2)


def _mixed(observed: Observed, follows: Any, prior: Any) -> Any:
    """S'S of :func:`rotated_second_moment`, from that of the prior along the eigenvectors, (d, d): variances geometrically
    between it and Sigma, correlations likewise between it and none."""
    d, xp = len(follows), prior.__array_namespace__()
    variance = xp.sum(prior * np.eye(d, dtype=prior.dtype), axis=-1)
    size = variance ** (0.5 * (follows - 1)) * observed.precision ** (0.5 * (follows - 1))
    weight = follows**0.5 * size
    return weight[:, None] * prior * weight + np.eye(d, dtype=prior.dtype) * ((1 - follows) * variance * size**2)


def _ordered(observed: Observed, free: Free, shown: Visible, prior: Array) -> SecondMoment:
    """A anywhere, its prior near this matrix, along the basis of what is shown."""
    Q = jnp.asarray(shown.basis)
    return _anywhere(observed, free, shown, cholesky(Q.T @ prior @ Q), jnp.inf)[1]


def loose_second_moment(observed: Observed, log_root: Array, kappa: Array) -> tuple[SecondMoment, Array]:
    """The same where A may be far from S'S, as where kappa is small; also ``S'^{-1} A S^{-1}`` up to a rotation, (d, d).

    Sites: those of :func:`second_moment`.

    Args:
        observed: from :func:`observe`.
        log_root: the logarithm of S, which is diagonal, (d,).
        kappa: of the prior's Omega.
    """
    if (free := observed.free) is not None:
        order = jnp.asarray(free.features.basis)
        found = _anywhere(observed, free, free.features, diagonal(order.T @ jnp.exp(log_root)), kappa)[1]
        return found, found.A * jnp.exp(-log_root[:, None] - log_root)
    V = jnp.asarray(observed.axes.basis)
    SV = jnp.exp(log_root)[:, None] * V
    C = cholesky(SV.T @ SV)
    bounded = _Bounded(C.T @ V.T, C.T @ C, jnp.sum(log_root))
    below = C.T @ jnp.asarray(observed.axes.floor) @ C
    _, inverse, found = _below_sigma(observed, _along_axes(observed, C, kappa), bounded, below)
    return found, inverse


def isotropic(observed: Observed, kappa: Array) -> tuple[Array, SecondMoment, Array]:
    """log(phi), A whose prior is near m phi I, and A^{-1} up to a rotation, (d, d).

    Where noise that bounds A hides it, and only there, the coordinates follow the prior, which would make a funnel of it: the
    scale S follows phi, T follows Bartlett's law, and phi follows from tr(A), if that is public.

    Sites: ``z``, those of :func:`second_moment`; the deterministic ``log_phi``.
    """
    d = jnp.size(observed.precision)
    if (free := observed.free) is not None:
        shown = free.directions
        log_phi = log_phi_of_release(observed, jnp.asarray(shown.log_size), jnp.asarray(shown.information), kappa)
        C = diagonal(jnp.exp(0.5 * log_phi) * jnp.full(d, jnp.sqrt(observed.num_tasks)))
        L, found = _anywhere(observed, free, shown, C, kappa)
        half = inverse_of_lower(L)
        return log_phi, found, half.T @ half
    # what Sigma shows best comes last: 1 / T_dd^2 alone is what A has there
    hidden, precision, floor = (
        jnp.asarray(x) for x in (observed.noise_dominance, observed.precision, observed.noise.precision_floor)
    )
    factor = _given_kappa(observed, kappa)
    # A's eigenvalues, roughly, at the prior mean of log(phi); those that are hidden move with it
    inverse_squares = jnp.sum(inverse_of_lower(factor.T) ** 2, axis=-2)  # the diagonal of (T T')^{-1}
    log_phi = log_phi_of_size(observed, 1 / (precision / inverse_squares + floor), 1 - hidden, kappa)
    log_size = 0.5 * (hidden * (log_phi - observed.log_phi_mean) - observed.log_precision)
    # along the eigenvectors S is diagonal, and so is what Sigma adds to B
    square = jnp.exp(2 * log_size)
    to_features = jnp.asarray(observed.eigenvectors).T
    bounded = _Bounded(jnp.exp(log_size)[:, None] * to_features, diagonal(square), log_size.sum())
    B, _, found = _below_sigma(observed, factor, bounded, diagonal(square * floor))
    return log_phi, found, jnp.exp(-log_size[:, None] - log_size) * B


def at_rest(observed: Observed) -> dict[str, FloatArray]:
    """Return the point where the coordinates of :func:`second_moment` are zero: near what prior and release suggest."""
    d = np.size(observed.precision)
    return {"log_diagonal": np.zeros(d), "off_diagonal": np.zeros(d * (d - 1) // 2)}


def _sites(observed: Observed) -> tuple[Array, Array]:
    d = jnp.size(observed.precision)
    z = numpyro.sample("log_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d,)))
    return z, numpyro.sample("off_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d * (d - 1) // 2,)))


def _anywhere(
    observed: Observed, free: Free, shown: Visible, C: Array, kappa: Array | float
) -> tuple[Array, SecondMoment]:
    """L and A, where A may be any positive definite matrix.

    Args:
        observed: the release.
        free: the same as one that does not bound A.
        shown: what it says of L, in a basis.
        C: lower triangular, the root of what the prior holds A to be near, in the basis of L, (d, d).
        kappa: of Omega.
    """
    d, m, Q = len(C), jnp.asarray(observed.num_tasks), jnp.asarray(shown.basis)
    root = diagonal_of(C)
    variance = root**2  # of every axis given those before it
    z, below = _sites(observed)
    information, noise_precision = jnp.asarray(shown.information), jnp.asarray(free.sd) ** -2.0
    j, (row, column) = jnp.arange(d, dtype=variance.dtype), places(d)

    # Bartlett: L_jj^2 has m - j degrees of freedom, and Omega adds its spread
    center = jnp.log(variance) + jnp.log1p(-j / m) - jnp.log1p((j + 1 - d) / kappa)
    prior = 1 / (2 / (m - j) + 2 / (kappa + j + 1 - d))
    precision = prior + information
    log_square = (prior * center + information * jnp.asarray(shown.log_size)) / precision + z / jnp.sqrt(precision)
    square, size = jnp.exp(log_square), jnp.exp(0.5 * log_square)

    # Bartlett: L = C T, which goes with T_jj, and has a spread of its own from the axes after j
    after = jnp.cumsum(C[:, ::-1] ** 2, axis=1)[:, ::-1][row, column + 1]
    spread = after / m + variance[row] * (square / variance)[column] / kappa
    expected = (C / root)[row, column] * size[column]
    # Sigma_kj = L_kj L_jj + what the columns before have, give or take the noise
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
    """T in the coordinates of the sampler."""

    T: Array  #: lower triangular, (d, d)
    log_diagonal: Array  #: of T, (d,)
    log_jacobian: Array  #: of T in the sites


def _triangular(observed: Observed, hidden: ArrayLike) -> _Triangular:
    """T where Omega is known, with a flat density so far, in units of the spread that m tasks give it where A is hidden.

    Where the release shows A the law says nothing of T, and a row of it is in units of its own diagonal.

    Args:
        observed: from :func:`observe`.
        noise_dominance: from 1 to 0 by row of T, as :attr:`Observed.noise_dominance` by eigenvector, (d,).
    """
    d, hidden = jnp.size(observed.precision), jnp.asarray(hidden)
    z, below = _sites(observed)
    center, spread, unit = _bartlett(observed, hidden, jnp.inf)
    shown, log_diagonal = 1 - hidden, center + spread * z
    rows = (unit * jnp.exp(shown * log_diagonal))[:, None] * strictly_lower(below, d)
    each = (1 + jnp.arange(d, dtype=shown.dtype) * shown) * log_diagonal + jnp.log(spread)
    log_jacobian = jnp.sum(each) + jnp.size(below) * jnp.log(unit)
    return _Triangular(diagonal(jnp.exp(log_diagonal)) + rows, log_diagonal, log_jacobian)


def _given_kappa(observed: Observed, kappa: Array) -> _Triangular:
    """T along Sigma's eigenvectors where only kappa is known of Omega, in units of what prior and noise leave open of it.

    Near Sigma's eigenvectors ``A_kj`` moves ``T_kj`` by ``-1 / sqrt(a_k a_j weak_k weak_j)``, a the eigenvalues of A and weak
    the share of Sigma's that is noise. The prior leaves ``A_kj`` an sd of ``sqrt(a_k a_j (1/m + 1/kappa))``, and the noise
    its own: only where the noise is the larger does the unit follow kappa. Twice ``log T_jj`` likewise, with twice the
    variances.

    Args:
        observed: from :func:`observe`.
        kappa: of Omega.
    """
    m, shown = jnp.asarray(observed.num_tasks), 1 - jnp.asarray(observed.noise_dominance)
    z, below = _sites(observed)
    precision = jnp.asarray(observed.precision)
    size = 1 / (precision + jnp.asarray(observed.noise.precision_floor))
    weak = precision * size
    # what Sigma shows has a typical precision that is no less than a share of Sigma's, and the noise may be less
    noise = jnp.sqrt(observed.noise_precision) * jnp.minimum(size * weak, observed.noise_mean)
    j, d = jnp.arange(len(size), dtype=size.dtype), len(size)
    # Bartlett, twice: T = C R, where C_jj^2 has kappa - j degrees of freedom and 1 / R_jj^2 has m - d + 1 + j
    of_kappa, of_tasks = 1 / (kappa - j), 1 / (m - d + 1 + j)
    prior = weak**2 / (of_kappa + of_tasks)
    spread = 1 / jnp.sqrt(2 * (prior + noise**2))
    by_prior = prior / (prior + noise**2)
    center = 0.5 * by_prior * (jnp.log1p(-j / kappa) - jnp.log1p((1 + j - d) / m))
    log_diagonal = center + spread * z
    log_R = by_prior * of_tasks / (of_kappa + of_tasks) * log_diagonal  # the part of log T_jj, roughly
    variance = 1 / kappa + jnp.exp(2 * log_R) / m  # of T_kj / R_jj where Omega is known up to kappa, by row
    log_unit = -0.5 * jnp.log((weak / variance)[:, None] * weak + noise[:, None] * noise)
    # a row of what is shown is in units of its own diagonal
    log_unit = log_unit + (shown * log_diagonal)[:, None] + log_R
    T = diagonal(jnp.exp(log_diagonal)) + strictly_lower(below, d) * jnp.exp(log_unit)
    log_jacobian = jnp.sum(log_diagonal + jnp.log(spread)) + jnp.sum(below_diagonal(log_unit))
    return _Triangular(T, log_diagonal, log_jacobian)


def _along_axes(observed: Observed, C: Array, kappa: Array) -> _Triangular:
    """T where ``S = C' V'``, V the release's axes: its last row then says what P has along the last of them.

    Args:
        observed: from :func:`observe`.
        C: lower triangular, ``C C' = V' S'S V``, (d, d).
        kappa: of Omega.
    """
    axes, m, d = observed.axes, jnp.asarray(observed.num_tasks), len(C)
    z, below = _sites(observed)
    log_size, hidden = jnp.log(diagonal_of(C)), jnp.asarray(axes.noise_dominance)
    center, spread, unit = _bartlett(observed, hidden, kappa)
    shown = log_size + 0.5 * axes.log_precision
    log_diagonal = center + 2 * m * (1 - hidden) * spread**2 * shown + spread * z

    # T_kj moves A_kj by C_kk C_jj / (T_kk^2 T_jj), the less the nearer A is to Sigma, and the noise hides as much as its sd
    log_inverse = 2 * (log_size - log_diagonal)
    log_moved = log_inverse - 2 * jnp.log1p(diagonal_of(jnp.asarray(axes.floor)) * jnp.exp(log_inverse))
    information = 2 * observed.noise_precision * jnp.exp((log_moved - 2 * log_diagonal)[:, None] + log_moved)
    log_unit = -0.5 * jnp.log(unit**-2 + information)
    T = diagonal(jnp.exp(log_diagonal)) + strictly_lower(below, d) * jnp.exp(log_unit)
    log_jacobian = jnp.sum(log_diagonal + jnp.log(spread)) + jnp.sum(below_diagonal(log_unit))
    return _Triangular(T, log_diagonal, log_jacobian)


def _bartlett(observed: Observed, hidden: Any, kappa: Any) -> tuple[Any, Any, Any]:
    """Mean and sd of log T_jj and sd of T_jk: T_jj^2 has kappa - j degrees of freedom, and m tasks add their spread.

    Where Sigma shows A it says as much of log T_jj as m tasks would, and the law of kappa little.
    """
    xp = hidden.__array_namespace__()  # NumPy's where a start is worked out: nothing is compiled for it
    j = xp.arange(len(hidden), dtype=hidden.dtype)
    m, each, loose = observed.num_tasks, observed.per_task, 1 / kappa
    left = 1 - loose * j
    # over the prior's precision: 1 / (1 / (2 m) + 1 / (2 (kappa - j)))
    share = 0.5 / (left + (1 - hidden) * (m * loose + left))
    return left * share * xp.log(left), xp.sqrt((loose + each * left) * share), xp.sqrt(each + loose)


def _by_feature(observed: Observed) -> Any:
    """Return how hidden each feature is, (d,)."""
    eigenvectors: Any = observed.eigenvectors
    return eigenvectors**2 @ observed.noise_dominance


def _congruent(S: Array, M: Array) -> Array:
    """S'M S."""
    return S[:, None] * M * S if S.ndim == 1 else S.T @ M @ S


class _Bounded(NamedTuple):
    """S, where Sigma bounds A."""

    root: Array  #: S, its columns in the features' basis, (d, d), or its diagonal, (d,)
    outer: Array  #: S S', (d, d)
    log_det: Array  #: log|det S|


def _below_sigma(
    observed: Observed, factor: _Triangular, S: _Bounded, below: Array
) -> tuple[Array, Array, SecondMoment]:
    """``B = S A^{-1} S'``, (d, d), its inverse, and A, where Sigma bounds it.

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
    return B, inverse, SecondMoment(A, log_det_a)


def sites_of(observed: Observed, variances: FloatArray, omega: FloatArray) -> dict[str, FloatArray]:
    """The sites of :func:`second_moment` at which A / m has these eigenvalues, along those of Sigma; near them beside noise
    that does not bound A.

    Args:
        observed: from :func:`observe`.
        variances: of the weights along the eigenvectors of Sigma, (d,).
        omega: Omega's diagonal, (d,); or Omega, (d, d), for the sites of :func:`rotated_second_moment`.
    """
    if observed.free is not None:
        return at_rest(observed)
    V, m = np.asarray(observed.eigenvectors), float(np.asarray(observed.num_tasks))
    if omega.ndim == 1:
        SV, hidden = np.sqrt(m * omega)[:, None] * V, _by_feature(observed)
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
    """Public knowledge of tr(A) beside the release."""
    numpyro.factor("known_trace", -0.5 * observed.trace_precision * (trace - observed.trace) ** 2)
