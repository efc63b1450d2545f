"""The public seat: a prior on the tasks' second moment and the law of the noise that hides it.

A release is ``Sigma = A + E`` with ``A = W W'`` (d x d, the m bounded task vectors) and noise E whose law is public, so
Sigma is data with a likelihood: :mod:`mpmtl_prob.models.noise`, Wishart or Gaussian.

Several rounds are several such Sigma, each with its own A, of one Omega: ``w_i^(t) ~ N(0, Omega)`` in every round t.

Coordinates. Beside Wishart noise ``0 < A < Sigma``, exactly when ``A^{-1} = F + P`` with ``F = Sigma^{-1}`` and P positive
definite: P has no boundary to run into. Beside Gaussian noise F = 0. ``P = S^{-1} T T' S'^{-1}``, T lower triangular and near
I: Bartlett's coordinates of a precision, in which a Wishart prior and either likelihood are nearly normal. S is a model's own
guess of a root, ``S' S``, of ``P^{-1}``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.lax.linalg import triangular_solve
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from mpmtl_prob.models.noise import NoisyRelease, of_law
from mpmtl_prob.privacy.laws import MatrixNoise
from mpmtl_prob.tasks import FloatArray

#: Prior sd of log(phi): phi, the typical variance of one weight, is known up to a factor of 50 either way.
LOG_PHI_SD = 2.0
#: Prior of log(kappa - d - 1): from an Omega of any shape to one that is nearly its mean.
LOG_KAPPA_MEAN = 1.0
LOG_KAPPA_SD = 2.0
#: From here on Stirling's series, to its second term, is right to 1e-7.
STIRLING = 30.0
#: Directions of `few_directions`: more than there is use for.
MAX_RANK = 8


class Observed(NamedTuple):
    """A release as the models read it, with the coordinates in which NUTS moves easily. Leaves are traced arrays.

    Of several rounds every field has a leading axis (T,), but for ``num_tasks`` and ``log_phi_mean``.
    """

    eigenvectors: ArrayLike  #: of Sigma, by descending eigenvalue, columns, (d, d)
    noise: NoisyRelease  #: the release and the law of its noise
    num_tasks: ArrayLike  #: m
    log_phi_mean: ArrayLike  #: prior mean of log(phi)
    trace: ArrayLike  #: tr(A) where it is public, as with directions; else any number
    trace_sd: ArrayLike  #: how well tr(A) is known, relative; infinite where it is not
    precision: ArrayLike  #: typical size of P in each direction, (d,)
    hidden: ArrayLike  #: from 1 where the noise hides what A has in that direction to 0 where it shows, (d,)


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
    # a rough guess of A's eigenvalues: where the noise hides them, what the prior says, or less if that would show
    guess = (1 - hidden) * signal + hidden * min(num_tasks * phi, law.fluctuation)
    inverse = np.maximum(1 / guess, noise.floor / 0.9)
    return Observed(
        eigenvectors=eigenvectors,
        noise=noise,
        num_tasks=float(num_tasks),
        log_phi_mean=np.log(phi),
        trace=1.0 if trace is None else trace,
        trace_sd=np.inf if trace is None else trace_sd,
        precision=inverse - noise.floor,
        hidden=hidden,
    )


def degrees_of_freedom(num_features: int) -> Array:
    """kappa of the prior ``Omega ~ InverseWishart(kappa, kappa S)``, that is ``E[Omega^{-1}] = S^{-1}``, learnt.

    One kappa would have to be right before anything is known: a small one holds that a few directions have most of the
    variance, and a release that is nearly all noise always has some that look so.

    Sites: ``z_kappa``, the deterministic ``kappa``.
    """
    z = numpyro.sample("z_kappa", dist.Normal(0.0, 1.0))
    return numpyro.deterministic("kappa", kappa_at(z, num_features))


def kappa_at(z: ArrayLike, num_features: int) -> Array:
    """kappa where ``z_kappa`` is z."""
    return num_features + 1 + jnp.exp(LOG_KAPPA_MEAN + LOG_KAPPA_SD * z)


def log_normaliser(kappa: Array, num_tasks: ArrayLike, num_features: int) -> Array:
    """log of ``Gamma_d((m + kappa) / 2) / Gamma_d(kappa / 2)``, of the laws that integrating Omega out leaves."""
    a, h = 0.5 * (kappa - jnp.arange(num_features, dtype=kappa.dtype)), 0.5 * num_tasks
    small = jnp.minimum(a, STIRLING)
    large = jnp.maximum(a, STIRLING)  # there single precision would not survive the difference
    series = (large - 0.5) * jnp.log1p(h / large) + h * (jnp.log(large + h) - 1) + (1 / (large + h) - 1 / large) / 12
    return jnp.sum(jnp.where(a < STIRLING, gammaln(small + h) - gammaln(small), series))


class Triangular(NamedTuple):
    """T in the coordinates of the sampler, with a leading axis for several rounds."""

    T: Array  #: lower triangular, (d, d)
    log_diagonal: Array  #: of T, (d,)
    log_jacobian: Array  #: of T in the sites, summed over rounds


def triangular(observed: Observed, hidden: ArrayLike, kappa: Array | float = jnp.inf) -> Triangular:
    """T, with a flat density so far, in units of the spread that Bartlett's law gives it where A is hidden.

    Where the release shows A the law says nothing of T, and a row of it is in units of its own diagonal.

    Sites: ``log_diagonal`` (d,) and ``off_diagonal`` (d(d-1)/2,).

    Args:
        observed: from :func:`observe`.
        hidden: from 1 to 0 by row of T, as :attr:`Observed.hidden` by eigenvector, (d,).
        kappa: of Omega; infinite where Omega is known.
    """
    *rounds, d = jnp.shape(observed.precision)
    free = d * (d - 1) // 2
    z = numpyro.sample("log_diagonal", dist.ImproperUniform(constraints.real_vector, (), (*rounds, d)))
    below = numpyro.sample("off_diagonal", dist.ImproperUniform(constraints.real_vector, (), (*rounds, free)))
    center, spread, unit = _bartlett(observed, hidden, kappa)
    shown, (row, column) = 1 - jnp.asarray(hidden), np.tril_indices(d, -1)
    log_diagonal = center + spread * z
    diagonal = jnp.eye(d, dtype=log_diagonal.dtype) * jnp.exp(log_diagonal)[..., None]
    scale = unit * jnp.exp(shown * log_diagonal)[..., row]
    each = (1 + jnp.arange(d, dtype=shown.dtype) * shown) * log_diagonal + jnp.log(spread)
    log_jacobian = jnp.sum(each) + jnp.size(below) * jnp.log(unit)
    return Triangular(diagonal.at[..., row, column].set(scale * below), log_diagonal, log_jacobian)


def _bartlett(observed: Observed, hidden: ArrayLike, kappa: Array | float) -> tuple[Array, Array, Array]:
    """Mean and sd of log T_jj and sd of T_jk: T_jj^2 has kappa - j degrees of freedom, and m tasks add their spread."""
    m, j = observed.num_tasks, jnp.arange(jnp.shape(observed.precision)[-1], dtype=jnp.result_type(hidden))
    center = jnp.asarray(hidden) * 0.5 * jnp.log1p(-j / kappa)
    return center, jnp.sqrt(0.5 / m + hidden * 0.5 / (kappa - j)), jnp.sqrt(1 / m + 1 / kappa)


def by_feature(observed: Observed) -> Array:
    """How hidden each feature is, (d,)."""
    return jnp.sum(jnp.square(observed.eigenvectors) * jnp.asarray(observed.hidden)[..., None, :], axis=-1)


def sites_of(
    observed: Observed, variances: FloatArray, omega: FloatArray, kappa: float = np.inf
) -> dict[str, FloatArray]:
    """The sites of :func:`triangular` :func:`by_feature` at which A / m has these eigenvalues, along those of Sigma.

    Args:
        observed: from :func:`observe`.
        variances: of the weights along the eigenvectors of Sigma, (d,).
        omega: (d, d).
        kappa: of Omega; infinite where Omega is known.
    """
    SV = np.linalg.cholesky(omega).T @ np.asarray(observed.eigenvectors)
    precision = 1 / variances - np.asarray(observed.num_tasks) * np.asarray(observed.noise.floor)
    T = np.linalg.cholesky((SV * precision[..., None, :]) @ np.swapaxes(SV, -1, -2))
    hidden = np.asarray(by_feature(observed))
    center, spread, unit = (np.asarray(x) for x in _bartlett(observed, hidden, kappa))
    row, column = np.tril_indices(len(omega), -1)
    log_diagonal = np.log(np.diagonal(T, axis1=-2, axis2=-1))
    scale = unit * np.exp((1 - hidden) * log_diagonal)[..., row]
    return {"log_diagonal": (log_diagonal - center) / spread, "off_diagonal": T[..., row, column] / scale}


class SecondMoment(NamedTuple):
    """A in the coordinates P, with a leading axis for several rounds."""

    A: Array  #: in the features' basis, (d, d)
    root: Array  #: K, lower triangular, K K' = S A^{-1} S', (d, d)
    log_det: Array  #: log|A|


def second_moment(observed: Observed, factor: Triangular, root: Array, log_det_root: Array) -> SecondMoment:
    """A in its coordinates; the density so far is that of the noise, p(Sigma | A), against Lebesgue measure in A.

    ``A = S' B^{-1} S``, ``B = T T' + S F S' = K K'``: directions of very different size, which S knows, do not meet in B.

    Sites: the deterministic ``A`` (d, d).

    Args:
        observed: from :func:`observe`.
        factor: T.
        root: S, its columns in the features' basis, (d, d).
        log_det_root: log|det S|.
    """
    left = jnp.arange(root.shape[-1], 0, -1, root.dtype)  # d - j, j = 0..d-1
    K = observed.noise.root(factor.T, root @ jnp.asarray(observed.eigenvectors))
    half = triangular_solve(K, jnp.broadcast_to(root, K.shape), left_side=True, lower=True)  # A = half' half
    A = numpyro.deterministic("A", jnp.swapaxes(half, -1, -2) @ half)

    log_det_a = 2 * log_det_root - log_det(K)
    log_det_p = 2 * (jnp.sum(factor.log_diagonal, axis=-1) - log_det_root)
    log_det_rest = log_det_a + log_det_p  # |Sigma - A| = |Sigma| |A| |P| where F = Sigma^{-1}
    # |dA| = |A|^{d+1} |dP|, |dP| = |S|^{-(d+1)} prod_j T_jj^{d-j} |dT|
    jacobian = (len(left) + 1) * (log_det_a - log_det_root) + jnp.sum(left * factor.log_diagonal, axis=-1)
    likelihood = observed.noise.log_density(A, log_det_rest)
    numpyro.factor("release", jnp.sum(likelihood + jacobian) + factor.log_jacobian)
    known_trace(observed, jnp.trace(A, axis1=-2, axis2=-1))
    return SecondMoment(A, K, log_det_a)


def known_trace(observed: Observed, trace: Array) -> None:
    """What is public of tr(A) beside the release."""
    numpyro.factor("known_trace", -0.5 * jnp.sum(((trace / observed.trace - 1) / observed.trace_sd) ** 2))


def full(observed: Observed) -> Array:
    r"""Posterior of the second moment A given the release, when the weights' covariance has no structure.

    ``w_i ~ N(0, Omega)``, ``Omega ~ InverseWishart(kappa, Phi)``, ``Phi = kappa phi I``: kappa, learnt, says how far
    Omega is from ``phi I``. W and Omega are integrated out, which leaves the matrix-F law
    ``p(A) ~ |A|^{(m-d-1)/2} |Phi + A|^{-(m+kappa)/2} |Phi|^{kappa/2} Gamma_d((m+kappa)/2) / Gamma_d(kappa/2)``; afterwards
    ``Omega | A`` is ``InverseWishart(kappa + m, Phi + A)``. With T rounds, A in the second factor is the sum of theirs, and
    m is T m.

    Where the noise hides A, and only there, the coordinates follow the prior, which would make a funnel of it: the scale S
    follows phi, T follows Bartlett's law, and phi follows from tr(A), if that is public.

    Sites: ``z``, ``z_kappa``, those of :func:`triangular` and :func:`second_moment`; the deterministic ``log_phi``, ``kappa``
    and ``prior_scale`` (the diagonal of Phi, (d,)).

    Args:
        observed: from :func:`observe`; needs m >= d, so that A has a density.

    Returns:
        Phi + A, the conditional mean of Omega up to a factor, (d, d).
    """
    *rounds, d = jnp.shape(observed.precision)
    m, hidden, precision = observed.num_tasks, jnp.asarray(observed.hidden), jnp.asarray(observed.precision)
    kappa, eye = degrees_of_freedom(d), jnp.eye(d, dtype=hidden.dtype)
    factor = triangular(observed, hidden, kappa)
    if rounds:  # so many only where little is hidden
        log_phi = _log_phi(observed)
    else:
        T_inverse = triangular_solve(factor.T, eye, left_side=True, lower=True)
        size = jnp.sum(T_inverse**2 / precision)  # tr(A) at the prior mean of log(phi), where all is hidden
        log_phi = _log_phi_of_trace(observed, jnp.log(size), hidden[0])
    Phi = numpyro.deterministic("prior_scale", kappa * jnp.exp(log_phi) * jnp.ones(d))
    log_size = 0.5 * (hidden * (log_phi - observed.log_phi_mean) - jnp.log(precision))
    root = jnp.exp(log_size)[..., None] * jnp.swapaxes(jnp.asarray(observed.eigenvectors), -1, -2)
    found = second_moment(observed, factor, root, log_size.sum(-1))
    total = jnp.diag(Phi) + (found.A.sum(axis=0) if rounds else found.A)
    if rounds:
        log_det_omega = log_det(jnp.linalg.cholesky(total))
    else:  # |Phi + A| = |I + Phi A^{-1}| |A|, which single precision survives
        half = jnp.exp(-log_size)[:, None] * found.root  # of A^{-1} in Sigma's eigenbasis
        log_det_omega = log_det(jnp.linalg.cholesky(eye + Phi[0] * half @ half.T)) + found.log_det
    _matrix_f(found, m, kappa, Phi, log_det_omega - jnp.sum(jnp.log(Phi)))
    return total


def few_features(observed: Observed) -> None:
    """``w_i ~ N(0, diag(omega))``, ``omega_j = psi (1 + lambda_j^2)``, ``lambda_j ~ HalfCauchy(1)``: few features matter.

    psi is the floor that the errors of messages leave everywhere. As with the horseshoe, the share of omega_j above it,
    ``lambda_j^2 / (1 + lambda_j^2)``, is uniform-like at both ends: it is the probability that the feature is included.

    Sites: ``z``, ``log_size`` (d,), those of :func:`triangular` and :func:`second_moment`; the deterministic ``log_phi``
    (of psi), ``omega`` (d,) and ``inclusion`` (d,).

    Source: Carvalho, Polson and Scott (2010), Biometrika 97, section 1.2.
    """
    d, log_psi = jnp.shape(observed.precision)[-1], _log_phi(observed)
    log_lambda = _log_lambda(observed, log_psi, d)
    log_omega = log_psi + jax.nn.softplus(2 * log_lambda)
    numpyro.deterministic("omega", jnp.exp(log_omega))
    numpyro.deterministic("inclusion", jax.nn.sigmoid(2 * log_lambda))
    log_root = 0.5 * (log_omega + jnp.log(observed.num_tasks))
    factor = triangular(observed, by_feature(observed))
    found = second_moment(observed, factor, jnp.diag(jnp.exp(log_root)), jnp.sum(log_root))
    scaled = jnp.sum(jnp.diagonal(found.A, axis1=-2, axis2=-1) * jnp.exp(-log_omega), axis=-1)
    numpyro.factor("wishart_prior", _wishart(found, observed.num_tasks, d, jnp.sum(log_omega), scaled))


def adaptive(observed: Observed) -> None:
    r"""Anything between no structure and group sparsity, as the release says.

    That of :func:`full` with ``Phi = kappa diag(s)`` and the ``s_j = psi (1 + lambda_j^2)`` of :func:`few_features`: as
    kappa grows Omega becomes diag(s), and with equal lambda_j the model is :func:`full`.

    Sites: ``z``, ``z_kappa``, ``log_size`` (d,), those of :func:`triangular` and :func:`second_moment`; the deterministic
    ``log_phi`` (of psi), ``kappa``, ``prior_scale`` (the diagonal of Phi, (d,)) and ``inclusion`` (d,).
    """
    *rounds, d = jnp.shape(observed.precision)
    log_psi = _log_phi(observed)
    log_lambda = _log_lambda(observed, log_psi, d)
    numpyro.deterministic("inclusion", jax.nn.sigmoid(2 * log_lambda))
    kappa = degrees_of_freedom(d)
    log_s = log_psi + jax.nn.softplus(2 * log_lambda)
    Phi = numpyro.deterministic("prior_scale", kappa * jnp.exp(log_s))
    log_root = 0.5 * (log_s + jnp.log(observed.num_tasks))
    factor = triangular(observed, by_feature(observed), kappa)
    found = second_moment(observed, factor, jnp.diag(jnp.exp(log_root)), jnp.sum(log_root))
    total = found.A.sum(axis=0) if rounds else found.A
    ratio = jnp.eye(d, dtype=Phi.dtype) + total / jnp.sqrt(Phi[:, None] * Phi)
    _matrix_f(found, observed.num_tasks, kappa, Phi, log_det(jnp.linalg.cholesky(ratio)))


def few_directions(observed: Observed, rank: int = MAX_RANK) -> None:
    """``w_i ~ N(0, Omega)``, ``Omega = psi (I + sum_k lambda_k^2 g_k g_k' / d)``: a few directions above a floor.

    ``g_k ~ N(0, I)`` and ``lambda_k ~ HalfCauchy(1)``, for more k than there is use for: those that the release does not
    ask for shrink to nothing.

    Sites: ``z``, ``log_size`` (rank,), ``G`` (d, rank), those of :func:`triangular` and :func:`second_moment`; the
    deterministic ``log_phi`` (of psi) and ``Omega`` (d, d).

    Args:
        observed: from :func:`observe`; needs m >= d.
        rank: the largest number of directions.
    """
    d, log_psi = jnp.shape(observed.precision)[-1], _log_phi(observed)
    log_lambda = _log_lambda(observed, log_psi, rank)
    G = numpyro.sample("G", dist.Normal(jnp.zeros((d, rank)), 1.0).to_event(2))
    H = G * jnp.exp(log_lambda) / jnp.sqrt(d)
    eye = jnp.eye(d, dtype=H.dtype)
    shape = eye + H @ H.T
    C = jnp.linalg.cholesky(shape)
    numpyro.deterministic("Omega", jnp.exp(log_psi) * shape)
    C_inverse = triangular_solve(C, eye, left_side=True, lower=True)
    log_scale = 0.5 * (log_psi + jnp.log(observed.num_tasks))
    root, log_det_root = C.T * jnp.exp(log_scale), 0.5 * log_det(C) + d * log_scale
    found = second_moment(observed, triangular(observed, by_feature(observed)), root, log_det_root)
    scaled = jnp.sum((C_inverse @ found.A) * C_inverse, axis=(-2, -1)) * jnp.exp(-log_psi)  # tr(Omega^{-1} A)
    numpyro.factor("wishart_prior", _wishart(found, observed.num_tasks, d, log_det(C) + d * log_psi, scaled))


def log_det(cholesky: Array) -> Array:
    """log|M| of M = R R' from its triangular factor R."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky, axis1=-2, axis2=-1)), axis=-1)


def _log_phi(observed: Observed) -> Array:
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * z)


def _log_phi_of_trace(observed: Observed, log_size: Array, hidden: Array) -> Array:
    """log(phi), the same prior, in coordinates in which tr(A) = size exp(log_phi - its prior mean) is known, if it is."""
    known = jnp.isfinite(observed.trace_sd)
    share = jnp.where(known, hidden, 0.0)
    unit = jnp.where(known, observed.trace_sd, 1.0) ** share * LOG_PHI_SD ** (1 - share)
    z = numpyro.sample("z", dist.ImproperUniform(constraints.real, (), ()))
    shift = unit * z + share * (jnp.log(observed.trace) - log_size)
    numpyro.factor("log_phi_prior", -0.5 * (shift / LOG_PHI_SD) ** 2)
    return numpyro.deterministic("log_phi", observed.log_phi_mean + shift)


def _log_lambda(observed: Observed, log_psi: Array, size: int) -> Array:
    """log(lambda), lambda ~ HalfCauchy(1): the hyperbolic secant law, p(x) = 1 / (pi cosh x).

    The site is that of sqrt(psi) lambda, which a release shows where it shows anything: of psi alone it may know little.
    """
    site = numpyro.sample("log_size", dist.ImproperUniform(constraints.real_vector, (), (size,)))
    x = site - 0.5 * (log_psi - observed.log_phi_mean)
    numpyro.factor("log_lambda_prior", -jnp.sum(jnp.logaddexp(x, -x)))
    return x


def _matrix_f(found: SecondMoment, m: ArrayLike, kappa: Array, Phi: Array, log_det_ratio: Array) -> None:
    """The law of A with Omega integrated out, see `full`; log_det_ratio is log|I + Phi^{-1} A|, A summed over rounds."""
    d = len(Phi)
    tasks = m * jnp.size(found.log_det)
    prior = (m - d - 1) * jnp.sum(found.log_det) - (tasks + kappa) * log_det_ratio - tasks * jnp.sum(jnp.log(Phi))
    numpyro.factor("matrix_f_prior", 0.5 * prior + log_normaliser(kappa, tasks, d))


def _wishart(found: SecondMoment, m: ArrayLike, d: int, log_det_omega: Array, scaled_trace: Array) -> Array:
    """log p(A | Omega) of A ~ Wishart(m, Omega), summed over rounds, up to a constant."""
    return 0.5 * jnp.sum((m - d - 1) * found.log_det - m * log_det_omega - scaled_trace)
