"""Models of the public seat: priors on the tasks' second moment, which is observed with noise.

A release is ``Sigma = A + E`` with ``A = W W'`` (d x d, W the m bounded task vectors). The distribution of the noise E is
public, Wishart or Gaussian, so that Sigma has a likelihood: :mod:`mpmtl_prob.models.noise`.
:mod:`mpmtl_prob.models.second_moment` has the coordinates in which A is sampled.
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

#: Prior mean and sd of log(kappa - d - 1). A small kappa allows an Omega of any shape, a large one hardly any but its mean.
LOG_KAPPA_MEAN = 1.0
LOG_KAPPA_SD = 2.0
#: Stirling's series is evaluated at the argument plus this number, where it is accurate.
SHIFT = 8
#: Number of directions of `few_directions`, more than are expected to matter.
MAX_RANK = 8


def degrees_of_freedom(num_features: int) -> Array:
    """Sample kappa of the prior ``Omega ~ InverseWishart(kappa, kappa S)``, that is ``E[Omega^{-1}] = S^{-1}``.

    kappa is learnt because no fixed value suits all releases: a small one assumes that a few directions have most of the
    variance, and in a release that is nearly all noise some directions always look as if they had.

    Sites: ``z_kappa``, the deterministic ``kappa``.
    """
    z = numpyro.sample("z_kappa", dist.Normal(0.0, 1.0))
    return numpyro.deterministic("kappa", num_features + 1 + jnp.exp(LOG_KAPPA_MEAN + LOG_KAPPA_SD * z))


def log_normaliser(kappa: Array, num_tasks: ArrayLike, num_features: int) -> Array:
    """Return the log of ``Gamma_d((m + kappa) / 2) / Gamma_d(kappa / 2)``, a constant of the priors without Omega."""
    a = 0.5 * (kappa - jnp.arange(num_features, dtype=kappa.dtype))
    h = 0.5 * num_tasks
    # Gamma(a) = Gamma(a + SHIFT) / (a (a + 1) ... (a + SHIFT - 1)), and Stirling's series at a + SHIFT. The difference of the
    # two series is accurate in single precision too.
    ratios = jnp.log1p(h / (a + jnp.arange(SHIFT + 1, dtype=a.dtype)[:, None]))
    steps = jnp.sum(ratios[:SHIFT], axis=0)
    x = a + SHIFT
    series = (x - 0.5) * ratios[SHIFT] + h * (jnp.log(x + h) - 1) + _stirling(x + h) - _stirling(x)
    return jnp.sum(series - steps)


def _stirling(x: Array) -> Array:
    """Return log Gamma(x) less (x - 1/2) log x - x + log(2 pi) / 2, with an error below 1e-10 for x from 8 on."""
    square = 1 / (x * x)
    return (1 / 12 - square * (1 / 360 - square / 1260)) / x


def full(observed: Observed) -> Array:
    r"""Model the second moment A without a structure of the weights' covariance.

    ``w_i ~ N(0, Omega)``, ``Omega ~ InverseWishart(kappa, Phi)``, ``Phi = kappa phi I``. kappa is learnt and says how near
    Omega is to ``phi I``. W and Omega are integrated out, which gives the matrix-F distribution
    ``p(A) ~ |A|^{(m-d-1)/2} |Phi + A|^{-(m+kappa)/2} |Phi|^{kappa/2} Gamma_d((m+kappa)/2) / Gamma_d(kappa/2)``. Given A,
    Omega is ``InverseWishart(kappa + m, Phi + A)``.

    Sites: ``z_kappa``, those of :func:`isotropic`; the deterministic ``log_phi``, ``kappa`` and ``prior_scale``
    (the diagonal of Phi, (d,)).

    Args:
        observed: from :func:`observe`; needs m >= d, so that A has a density.

    Returns:
        Phi + A, the conditional mean of Omega up to a factor, (d, d).
    """
    d = jnp.size(observed.precision)
    kappa = degrees_of_freedom(d)
    log_phi, moment, inverse = isotropic(observed, kappa)
    scale = kappa * jnp.exp(log_phi)
    Phi = numpyro.deterministic("prior_scale", scale * jnp.ones(d))
    log_det_phi = d * (jnp.log(kappa) + log_phi)
    # |Phi + A| = |I + Phi A^{-1}| |A|, which is accurate in single precision too
    _, log_ratio = inverse_and_log_det(np.eye(d, dtype=inverse.dtype) + scale * inverse)
    _matrix_f(moment, observed.num_tasks, kappa, log_det_phi, log_ratio + moment.log_det - log_det_phi)
    return jnp.diag(Phi) + moment.A


def few_features(observed: Observed) -> None:
    """Model weights of which few features matter (group sparsity, with a horseshoe prior).

    ``w_i ~ N(0, diag(omega))``, ``omega_j = psi (1 + lambda_j^2)``, ``lambda_j ~ HalfCauchy(1)``. psi is a floor that the
    errors of messages cause in every feature. As with the horseshoe, the share of omega_j above the floor,
    ``lambda_j^2 / (1 + lambda_j^2)``, has a prior with most mass near 0 and 1, and is read as the probability that the
    feature is included.

    Sites: ``z``, ``size`` (d,), those of :func:`second_moment`; the deterministic ``log_phi``
    (of psi), ``omega`` (d,) and ``inclusion`` (d,).

    Source: Carvalho, Polson and Scott (2010), Biometrika 97, section 1.2.
    """
    d = jnp.size(observed.precision)
    log_psi = log_phi_site(observed)
    log_lambda = _log_lambda(observed, log_psi, d)
    log_omega = log_psi + jax.nn.softplus(2 * log_lambda)
    numpyro.deterministic("omega", jnp.exp(log_omega))
    numpyro.deterministic("inclusion", jax.nn.sigmoid(2 * log_lambda))
    log_root = 0.5 * (log_omega + jnp.log(observed.num_tasks))
    moment = second_moment(observed, jnp.exp(log_root))
    scaled_trace = jnp.sum(diagonal_of(moment.A) * jnp.exp(-log_omega))  # tr(Omega^{-1} A)
    numpyro.factor("wishart_prior", _wishart(moment, observed.num_tasks, d, jnp.sum(log_omega), scaled_trace))


def adaptive(observed: Observed) -> None:
    r"""Model with any degree of group sparsity, which is learnt from the release.

    It is :func:`full` with ``Phi = kappa diag(s)`` and the ``s_j = psi (1 + lambda_j^2)`` of :func:`few_features`. As kappa
    grows, Omega approaches diag(s); with equal lambda_j the model is :func:`full`.

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
    moment, relative = loose_second_moment(observed, log_root, kappa)
    ratio = np.eye(d, dtype=Phi.dtype) + observed.num_tasks / kappa * relative  # I + Phi^{-1} A, up to a rotation
    log_det_phi = d * jnp.log(kappa / observed.num_tasks) + 2 * jnp.sum(log_root)
    _matrix_f(moment, observed.num_tasks, kappa, log_det_phi, inverse_and_log_det(ratio)[1])


def few_directions(observed: Observed, rank: int = MAX_RANK) -> None:
    """Model weights that vary along a few directions (low rank plus a floor).

    ``w_i ~ N(0, Omega)``, ``Omega = psi (I + sum_k lambda_k^2 g_k g_k' / d)`` with ``g_k ~ N(0, I)`` and
    ``lambda_k ~ HalfCauchy(1)``. There are more k than directions are expected to matter; the lambda_k of the others shrink
    to zero.

    Sites: ``z``, ``size`` (rank,), ``G`` (d, rank), the g_k along the eigenvectors of Sigma, those of
    :func:`second_moment`; the deterministic ``log_phi`` (of psi) and ``Omega`` (d, d).

    Args:
        observed: from :func:`observe`; needs m >= d.
        rank: the largest number of directions.
    """
    d = jnp.size(observed.precision)
    log_psi = log_phi_site(observed)
    log_lambda = _log_lambda(observed, log_psi, rank)
    G = numpyro.sample("G", dist.Normal(jnp.zeros((d, rank)), 1.0).to_event(2))
    H = jnp.asarray(observed.eigenvectors) @ (G * jnp.exp(log_lambda) / jnp.sqrt(d))
    shape = jnp.eye(d, dtype=H.dtype) + H @ H.T
    C = cholesky(shape)
    Omega = numpyro.deterministic("Omega", jnp.exp(log_psi) * shape)
    C_inverse = inverse_of_lower(C)
    moment = rotated_second_moment(observed, jnp.asarray(observed.num_tasks) * Omega)
    scaled_trace = jnp.sum((C_inverse @ moment.A) * C_inverse) * jnp.exp(-log_psi)  # tr(Omega^{-1} A)
    numpyro.factor("wishart_prior", _wishart(moment, observed.num_tasks, d, log_det(C) + d * log_psi, scaled_trace))


def _log_lambda(observed: Observed, log_psi: Array, size: int) -> Array:
    """Sample log(lambda) with lambda ~ HalfCauchy(1), whose density is the hyperbolic secant 1 / (pi cosh x).

    The site is a coordinate of sqrt(psi) lambda, because a release determines this product better than psi. The product is
    the site's softplus: small values are on a logarithmic scale, large ones on a linear one. A follows the product, and on a
    logarithmic scale the density would fall too steeply where A is too large.

    Sites: ``size`` (size,).
    """
    site = numpyro.sample("size", dist.ImproperUniform(constraints.real_vector, (), (size,)))
    product = jax.nn.softplus(site)  # sqrt(psi) lambda over its unit
    log_product = jnp.log(product)
    x = log_product - 0.5 * (log_psi - observed.log_phi_mean)
    log_cosh = jnp.abs(x) + jnp.log1p(jnp.exp(-2 * jnp.abs(x)))
    # site - product is the logarithm of the softplus's derivative
    numpyro.factor("lambda_prior", jnp.sum(site - product - log_product - log_cosh))
    return x


def _matrix_f(moment: SecondMoment, m: ArrayLike, kappa: Array, log_det_phi: Array, log_det_ratio: Array) -> None:
    """Add the log density of A without Omega, as in `full`; ``log_det_ratio`` is log|I + Phi^{-1} A|."""
    d = len(moment.A)
    # |Phi|^{kappa/2} |Phi + A|^{-(m+kappa)/2} = |I + Phi^{-1} A|^{-(m+kappa)/2} |Phi|^{-m/2}
    log_prior = (m - d - 1) * moment.log_det - (m + kappa) * log_det_ratio - m * log_det_phi
    numpyro.factor("matrix_f_prior", 0.5 * log_prior + log_normaliser(kappa, m, d))


def _wishart(moment: SecondMoment, num_tasks: ArrayLike, d: int, log_det_omega: Array, scaled_trace: Array) -> Array:
    """Return log p(A | Omega) of A ~ Wishart(m, Omega), up to a constant."""
    m = jnp.asarray(num_tasks)
    return 0.5 * ((m - d - 1) * moment.log_det - m * log_det_omega - scaled_trace)
