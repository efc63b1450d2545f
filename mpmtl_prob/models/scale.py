"""Scale phi of the weights' covariance as a site of the sampler, reparametrised by kappa and A.

Given A and kappa, log(phi) has a standard deviation of about ``1 / sqrt(d kappa m / (2 (kappa + m)))`` under the matrix-F
distribution of :func:`mpmtl_prob.models.shared_covariance.full`: small where kappa is large, and large where kappa is small.
In a fixed unit this is a funnel, and chains diverge at its narrow end. Therefore the unit of the site follows kappa, and its
centre follows A.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from mpmtl_prob.models.observed import LOG_PHI_SD, Observed
from mpmtl_prob.models.triangles import inverse_and_log_det

#: Typical posterior sd of log(phi) over its prior sd, the unit of the site before the sampler has adapted.
OPEN = 0.4


def log_phi_site(observed: Observed) -> Array:
    """Sample log(phi) from its normal prior, in a fixed unit.

    Sites: ``z``, the deterministic ``log_phi``.
    """
    z = numpyro.sample("z", dist.Normal(0.0, 1 / OPEN))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * OPEN * z)


def log_phi_of_size(observed: Observed, size: Array, shown: ArrayLike, kappa: Array) -> Array:
    """Sample log(phi) from its prior, around a centre that follows kappa, A's eigenvalues, and tr(A) if that is public.

    Sites: ``z``, the deterministic ``log_phi``. The distribution of log(phi) does not depend on the unit and the centre.

    Args:
        observed: the release.
        size: rough eigenvalues of A at the prior mean of log(phi), (d,).
        shown: 1 where the release determines an eigenvalue, 0 where it follows phi, (d,).
        kappa: degrees of freedom of the prior of Omega.
    """
    public_precision = jnp.asarray(observed.log_phi_sd) ** -2.0  # by the prior and the trace
    by_trace = public_precision * observed.log_phi_follows * (observed.log_trace - jnp.log(jnp.sum(size)))
    weight = jnp.square(jnp.asarray(shown))
    precision, center = _given_size(observed, size, weight, kappa)
    total = public_precision + precision
    return _measured(observed, total, (by_trace + precision * center) / total)


def log_phi_of_release(observed: Observed, log_size: Array, information: Array, kappa: Array) -> Array:
    """Sample log(phi) from its prior, around a centre that follows kappa and the eigenvalues that the release shows.

    Sites: ``z``, the deterministic ``log_phi``.

    Args:
        observed: the release.
        log_size: logarithms of A's eigenvalues where the release shows them, (d,).
        information: precision of each of them, (d,).
        kappa: degrees of freedom of the prior of Omega.
    """
    m = jnp.asarray(observed.num_tasks)
    # an eigenvalue informs about phi as far as the release determines it better than phi does
    weight = information / (information + 0.5 * kappa * m / (kappa + m))
    precision, center = _given_size(observed, jnp.exp(log_size), weight, kappa)
    total = LOG_PHI_SD**-2 + precision
    return _measured(observed, total, precision * center / total)


def log_phi_of_weights(observed: Observed, square: Array, kappa: Array) -> Array:
    """Sample log(phi) from its prior, around a centre that follows kappa and m latent weights, m <= d.

    Sites: ``z``, the deterministic ``log_phi``.

    Args:
        observed: the release.
        square: W'W of the weights W (d, m), or a matrix with the same eigenvalues, (m, m).
        kappa: degrees of freedom of the prior of Omega.
    """
    m, d = len(square), jnp.size(observed.precision)
    # at the mode of phi given W, the mean of x / (x + eigenvalue) over the eigenvalues of W'W is `share`, where x = kappa phi
    share = (kappa - d + m) / (kappa + m)
    odds = share / (d / (kappa + m))
    x = jnp.trace(square) / m * odds
    inverse, _ = inverse_and_log_det(square + x * np.eye(m, dtype=square.dtype))
    mean = x * jnp.trace(inverse) / m
    center = jnp.log(x / kappa) + jnp.log(odds) - jnp.log(mean) + jnp.log1p(-mean) - observed.log_phi_mean
    precision = 0.5 * m * d * share
    total = LOG_PHI_SD**-2 + precision
    return _measured(observed, total, precision * center / total)


def _given_size(observed: Observed, size: Array, weight: Array, kappa: Array) -> tuple[Array, Array]:
    """Return the precision of log(phi) given kappa and A, and its centre less the prior mean.

    Given eigenvalues that are nearly equal, the mode of phi lies between their arithmetic mean, for large kappa, and their
    harmonic mean, for small kappa.
    """
    m = jnp.asarray(observed.num_tasks)
    share = kappa / (kappa + m)
    total = jnp.sum(weight) + 1e-6  # so that the means exist where the release shows no eigenvalue
    log_arithmetic = jnp.log(jnp.sum(weight * size) / total + _TINY)
    log_inverse_harmonic = jnp.log(jnp.sum(weight / size) / total + _TINY)
    center = share * log_arithmetic - (1 - share) * log_inverse_harmonic - jnp.log(m) - observed.log_phi_mean
    return 0.5 * share * m * jnp.sum(weight), center


def _measured(observed: Observed, precision: Array, center: Any) -> Array:
    """Sample log(phi) from its prior, by a site z in units of 1 / sqrt(precision) around a centre."""
    z = numpyro.sample("z", dist.ImproperUniform(constraints.real, (), ()))
    shift = center + z / jnp.sqrt(precision)
    numpyro.factor("log_phi_prior", -0.5 * (jnp.square(shift / LOG_PHI_SD) + jnp.log(precision)))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + shift)


#: Less than any eigenvalue, so that logarithms exist where the release shows none.
_TINY = 1e-30
