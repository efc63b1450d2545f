"""The scale phi of the weights' covariance as a site of the sampler, in units that follow what kappa and A say of it.

Given A and kappa the matrix-F law of :func:`mpmtl_prob.models.shared_covariance.full` knows log(phi) up to
``1 / sqrt(d kappa m / (2 (kappa + m)))``, about: closely where kappa is large, hardly at all where it is small. With a fixed
unit that is a funnel, at whose narrow end, large kappa, chains diverge. Here the unit of the site follows kappa, and its
centre A.
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

#: How much of such a prior sd a release leaves open, roughly: the unit of a sampler that has not learnt it yet.
OPEN = 0.4


def log_phi_site(observed: Observed) -> Array:
    """Sample log(phi), N(its prior mean, LOG_PHI_SD), in a fixed unit. Sites: ``z``, the deterministic ``log_phi``."""
    z = numpyro.sample("z", dist.Normal(0.0, 1 / OPEN))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * OPEN * z)


def log_phi_of_size(observed: Observed, size: Array, shown: ArrayLike, kappa: Array) -> Array:
    """Sample log(phi), the same prior, measured from where it, kappa, A and tr(A), if that is public, would have it.

    Sites: ``z``, the deterministic ``log_phi``. Any unit and centre leave the law of log(phi) the same.

    Args:
        observed: the release.
        size: A's eigenvalues, roughly, at the prior mean of log(phi), (d,).
        shown: from 1 where an eigenvalue stays there whatever phi is to 0 where it moves with it, (d,).
        kappa: of the prior's Omega.
    """
    known = jnp.asarray(observed.log_phi_sd) ** -2.0  # by the prior and the trace
    by_trace = known * observed.log_phi_follows * (observed.log_trace - jnp.log(jnp.sum(size)))
    weight = jnp.square(jnp.asarray(shown))
    found, center = _given_size(observed, size, weight, kappa)
    return _measured(observed, known + found, (by_trace + found * center) / (known + found))


def log_phi_of_release(observed: Observed, log_size: Array, information: Array, kappa: Array) -> Array:
    """Sample log(phi), the same prior, measured from where it, kappa and what the release shows of A would have it.

    Sites: ``z``, the deterministic ``log_phi``.

    Args:
        observed: the release.
        log_size: of A's eigenvalues where the release shows them, (d,).
        information: on each of them, (d,).
        kappa: of the prior's Omega.
    """
    m = jnp.asarray(observed.num_tasks)
    weight = information / (information + 0.5 * kappa * m / (kappa + m))  # what is left of the law of phi given A
    found, center = _given_size(observed, jnp.exp(log_size), weight, kappa)
    known = LOG_PHI_SD**-2
    return _measured(observed, known + found, found * center / (known + found))


def log_phi_of_weights(observed: Observed, square: Array, kappa: Array) -> Array:
    """Sample log(phi), the same prior, measured from where it, kappa and m latent weights would have it, m <= d.

    Sites: ``z``, the deterministic ``log_phi``.

    Args:
        observed: the release.
        square: W'W of the weights W (d, m), or what has its eigenvalues, (m, m).
        kappa: of the prior's Omega.
    """
    m, d = len(square), jnp.size(observed.precision)
    # at the mode of the law of phi given W the mean of x / (x + eigenvalues of W'W) is `share`, x = kappa phi
    share, rest = (kappa - d + m) / (kappa + m), d / (kappa + m)
    x = jnp.trace(square) / m * share / rest
    inverse, _ = inverse_and_log_det(square + x * np.eye(m, dtype=square.dtype))
    mean = x * jnp.trace(inverse) / m
    center = jnp.log(x / kappa) + jnp.log(share / rest) - jnp.log(mean) + jnp.log1p(-mean) - observed.log_phi_mean
    known, found = LOG_PHI_SD**-2, 0.5 * m * d * share
    return _measured(observed, known + found, found * center / (known + found))


def _given_size(observed: Observed, size: Array, weight: Array, kappa: Array) -> tuple[Array, Array]:
    """Return precision and place of log(phi) given kappa and A, from its prior mean.

    The mode of the law of phi given eigenvalues that are nearly equal lies between their arithmetic mean, for large kappa,
    and their harmonic one, for small.
    """
    m = jnp.asarray(observed.num_tasks)
    share, total = kappa / (kappa + m), jnp.sum(weight) + 1e-6  # nothing is shown: then it counts for nothing
    arithmetic, harmonic = (
        jnp.log(jnp.sum(weight * size) / total + _TINY),
        jnp.log(jnp.sum(weight / size) / total + _TINY),
    )
    center = share * arithmetic - (1 - share) * harmonic - jnp.log(m) - observed.log_phi_mean
    return 0.5 * share * m * jnp.sum(weight), center


def _measured(observed: Observed, precision: Array, center: Any) -> Array:
    z = numpyro.sample("z", dist.ImproperUniform(constraints.real, (), ()))
    shift = center + z / jnp.sqrt(precision)
    numpyro.factor("log_phi_prior", -0.5 * (jnp.square(shift / LOG_PHI_SD) + jnp.log(precision)))
    return numpyro.deterministic("log_phi", observed.log_phi_mean + shift)


#: Below any eigenvalue, so that a logarithm exists where nothing is shown.
_TINY = 1e-30
