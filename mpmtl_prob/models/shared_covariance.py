"""The public seat: a prior on the tasks' second moment and the law of the noise that hides it.

A release is ``Sigma = A + E`` with ``A = W W'`` (d x d, the m bounded task vectors) and noise E whose law is public, so
Sigma is data with a likelihood: :mod:`mpmtl_prob.models.noise`, Wishart or Gaussian.

In which coordinates A is sampled: :mod:`mpmtl_prob.models.second_moment`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from mpmtl_prob.models.observed import Observed
from mpmtl_prob.models.scale import log_phi_site
from mpmtl_prob.models.second_moment import (
    SecondMoment,
    isotropic,
    loose_second_moment,
    rotated_second_moment,
    second_moment,
)
from mpmtl_prob.models.triangles import cholesky, diagonal_of, inverse_and_log_det, inverse_of_lower, log_det

#: Prior of log(kappa - d - 1): from an Omega of any shape to one that is nearly its mean.
LOG_KAPPA_MEAN = 1.0
LOG_KAPPA_SD = 2.0
#: How far above its argument Stirling's series is read.
SHIFT = 8
#: Directions of `few_directions`: more than there is use for.
MAX_RANK = 8


def degrees_of_freedom(num_features: int) -> Array:
    """kappa of the prior ``Omega ~ InverseWishart(kappa, kappa S)``, that is ``E[Omega^{-1}] = S^{-1}``, learnt.

    One kappa would have to be right before anything is known: a small one holds that a few directions have most of the
    variance, and a release that is nearly all noise always has some that look so.

    Sites: ``z_kappa``, the deterministic ``kappa``.
    """
    z = numpyro.sample("z_kappa", dist.Normal(0.0, 1.0))
    return numpyro.deterministic("kappa", num_features + 1 + jnp.exp(LOG_KAPPA_MEAN + LOG_KAPPA_SD * z))


def log_normaliser(kappa: Array, num_tasks: ArrayLike, num_features: int) -> Array:
    """log of ``Gamma_d((m + kappa) / 2) / Gamma_d(kappa / 2)``, of the laws that integrating Omega out leaves."""
    a, h = 0.5 * (kappa - jnp.arange(num_features, dtype=kappa.dtype)), 0.5 * num_tasks
    # Gamma(a) = Gamma(a + SHIFT) / (a (a + 1) ... ), and Stirling's series there, whose difference single precision survives
    ratios = jnp.log1p(h / (a + jnp.arange(SHIFT + 1, dtype=a.dtype)[:, None]))
    steps, x = jnp.sum(ratios[:SHIFT], axis=0), a + SHIFT
    series = (x - 0.5) * ratios[SHIFT] + h * (jnp.log(x + h) - 1) + _stirling(x + h) - _stirling(x)
    return jnp.sum(series - steps)


def _stirling(x: Array) -> Array:
    """Compute what log Gamma(x) has beside (x - 1/2) log x - x + constant, to 1e-10 from 8 on."""
    square = 1 / (x * x)
    return (1 / 12 - square * (1 / 360 - square / 1260)) / x


def full(observed: Observed) -> Array:
    r"""Posterior of the second moment A given the release, when the weights' covariance has no structure.

    ``w_i ~ N(0, Omega)``, ``Omega ~ InverseWishart(kappa, Phi)``, ``Phi = kappa phi I``: kappa, learnt, says how far
    Omega is from ``phi I``. W and Omega are integrated out, which leaves the matrix-F law
    ``p(A) ~ |A|^{(m-d-1)/2} |Phi + A|^{-(m+kappa)/2} |Phi|^{kappa/2} Gamma_d((m+kappa)/2) / Gamma_d(kappa/2)``; afterwards
    ``Omega | A`` is ``InverseWishart(kappa + m, Phi + A)``.

    Sites: ``z_kappa``, those of :func:`isotropic`; the deterministic ``log_phi``, ``kappa`` and ``prior_scale``
    (the diagonal of Phi, (d,)).

    Args:
        observed: from :func:`observe`; needs m >= d, so that A has a density.

    Returns:
        Phi + A, the conditional mean of Omega up to a factor, (d, d).
    """
    d = jnp.size(observed.precision)
    kappa = degrees_of_freedom(d)
    log_phi, found, inverse = isotropic(observed, kappa)
    scale = kappa * jnp.exp(log_phi)
    Phi = numpyro.deterministic("prior_scale", scale * jnp.ones(d))
    log_det_phi = d * (jnp.log(kappa) + log_phi)
    # |Phi + A| = |I + Phi A^{-1}| |A|, which single precision survives
    ratio = inverse_and_log_det(np.eye(d, dtype=inverse.dtype) + scale * inverse)[1]
    _matrix_f(found, observed.num_tasks, kappa, log_det_phi, ratio + found.log_det - log_det_phi)
    return jnp.diag(Phi) + found.A


def few_features(observed: Observed) -> None:
    """``w_i ~ N(0, diag(omega))``, ``omega_j = psi (1 + lambda_j^2)``, ``lambda_j ~ HalfCauchy(1)``: few features matter.

    psi is the floor that the errors of messages leave everywhere. As with the horseshoe, the share of omega_j above it,
    ``lambda_j^2 / (1 + lambda_j^2)``, is uniform-like at both ends: it is the probability that the feature is included.

    Sites: ``z``, ``size`` (d,), those of :func:`second_moment`; the deterministic ``log_phi``
    (of psi), ``omega`` (d,) and ``inclusion`` (d,).

    Source: Carvalho, Polson and Scott (2010), Biometrika 97, section 1.2.
    """
    d, log_psi = jnp.size(observed.precision), log_phi_site(observed)
    log_lambda = _log_lambda(observed, log_psi, d)
    log_omega = log_psi + jax.nn.softplus(2 * log_lambda)
    numpyro.deterministic("omega", jnp.exp(log_omega))
    numpyro.deterministic("inclusion", jax.nn.sigmoid(2 * log_lambda))
    log_root = 0.5 * (log_omega + jnp.log(observed.num_tasks))
    found = second_moment(observed, jnp.exp(log_root))
    scaled = jnp.sum(diagonal_of(found.A) * jnp.exp(-log_omega))
    numpyro.factor("wishart_prior", _wishart(found, observed.num_tasks, d, jnp.sum(log_omega), scaled))


def adaptive(observed: Observed) -> None:
    r"""Anything between no structure and group sparsity, as the release says.

    That of :func:`full` with ``Phi = kappa diag(s)`` and the ``s_j = psi (1 + lambda_j^2)`` of :func:`few_features`: as
    kappa grows Omega becomes diag(s), and with equal lambda_j the model is :func:`full`.

    Sites: ``z``, ``z_kappa``, ``size`` (d,), those of :func:`second_moment`; the deterministic
    ``log_phi`` (of psi), ``kappa``, ``prior_scale`` (the diagonal of Phi, (d,)) and ``inclusion`` (d,).
    """
    d = jnp.size(observed.precision)
    log_psi = log_phi_site(observed)
    log_lambda = _log_lambda(observed, log_psi, d)
    numpyro.deterministic("inclusion", jax.nn.sigmoid(2 * log_lambda))
    kappa = degrees_of_freedom(d)
    log_s = log_psi + jax.nn.softplus(2 * log_lambda)
    Phi = numpyro.deterministic("prior_scale", kappa * jnp.exp(log_s))
    log_root = 0.5 * (log_s + jnp.log(observed.num_tasks))
    found, relative = loose_second_moment(observed, log_root, kappa)
    ratio = np.eye(d, dtype=Phi.dtype) + observed.num_tasks / kappa * relative
    log_det_phi = d * jnp.log(kappa / observed.num_tasks) + 2 * jnp.sum(log_root)
    _matrix_f(found, observed.num_tasks, kappa, log_det_phi, inverse_and_log_det(ratio)[1])


def few_directions(observed: Observed, rank: int = MAX_RANK) -> None:
    """``w_i ~ N(0, Omega)``, ``Omega = psi (I + sum_k lambda_k^2 g_k g_k' / d)``: a few directions above a floor.

    ``g_k ~ N(0, I)`` and ``lambda_k ~ HalfCauchy(1)``, for more k than there is use for: those that the release does not
    ask for shrink to nothing.

    Sites: ``z``, ``size`` (rank,), ``G`` (d, rank), the g_k along the eigenvectors of Sigma, those of
    :func:`second_moment`; the deterministic ``log_phi`` (of psi) and ``Omega`` (d, d).

    Args:
        observed: from :func:`observe`; needs m >= d.
        rank: the largest number of directions.
    """
    d, log_psi = jnp.size(observed.precision), log_phi_site(observed)
    log_lambda = _log_lambda(observed, log_psi, rank)
    G = numpyro.sample("G", dist.Normal(jnp.zeros((d, rank)), 1.0).to_event(2))
    H = jnp.asarray(observed.eigenvectors) @ (G * jnp.exp(log_lambda) / jnp.sqrt(d))
    shape = jnp.eye(d, dtype=H.dtype) + H @ H.T
    C = cholesky(shape)
    Omega = numpyro.deterministic("Omega", jnp.exp(log_psi) * shape)
    C_inverse = inverse_of_lower(C)
    found = rotated_second_moment(observed, jnp.asarray(observed.num_tasks) * Omega)
    scaled = jnp.sum((C_inverse @ found.A) * C_inverse) * jnp.exp(-log_psi)  # tr(Omega^{-1} A)
    numpyro.factor("wishart_prior", _wishart(found, observed.num_tasks, d, log_det(C) + d * log_psi, scaled))


def _log_lambda(observed: Observed, log_psi: Array, size: int) -> Array:
    """log(lambda), lambda ~ HalfCauchy(1): the hyperbolic secant law, p(x) = 1 / (pi cosh x).

    The site is that of sqrt(psi) lambda, which a release shows where it shows anything: of psi alone it may know little. Its
    softplus, so that small ones are on a logarithmic scale, large ones on a linear one: A follows them, and on a logarithmic
    scale the density would end in a wall where A is too large.
    """
    site = numpyro.sample("size", dist.ImproperUniform(constraints.real_vector, (), (size,)))
    size_of = jax.nn.softplus(site)
    log_size = jnp.log(size_of)
    x = log_size - 0.5 * (log_psi - observed.log_phi_mean)
    log_cosh = jnp.abs(x) + jnp.log1p(jnp.exp(-2 * jnp.abs(x)))
    numpyro.factor("lambda_prior", jnp.sum(site - size_of - log_size - log_cosh))
    return x


def _matrix_f(found: SecondMoment, m: ArrayLike, kappa: Array, log_det_phi: Array, log_det_ratio: Array) -> None:
    """The law of A with Omega integrated out, see `full`; log_det_ratio is log|I + Phi^{-1} A|."""
    d = len(found.A)
    prior = (m - d - 1) * found.log_det - (m + kappa) * log_det_ratio - m * log_det_phi
    numpyro.factor("matrix_f_prior", 0.5 * prior + log_normaliser(kappa, m, d))


def _wishart(found: SecondMoment, num_tasks: ArrayLike, d: int, log_det_omega: Array, scaled_trace: Array) -> Array:
    """log p(A | Omega) of A ~ Wishart(m, Omega), up to a constant."""
    m = jnp.asarray(num_tasks)
    return 0.5 * ((m - d - 1) * found.log_det - m * log_det_omega - scaled_trace)
