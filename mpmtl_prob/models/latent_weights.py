"""Models of the public seat with latent weights, for the papers' priors and for fewer tasks than features.

``Sigma = W W' + E`` as in :mod:`mpmtl_prob.models.shared_covariance`, but W (d x m) is sampled. These are m d numbers, so
that the models suit small problems. W is identified up to a rotation of the tasks, which changes neither ``W W'`` nor the
priors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import constraints

from mpmtl_prob.models.observed import LOG_PHI_SD, Observed
from mpmtl_prob.models.scale import log_phi_of_weights
from mpmtl_prob.models.second_moment import known_trace
from mpmtl_prob.models.shared_covariance import degrees_of_freedom, log_normaliser
from mpmtl_prob.models.triangles import (
    below_diagonal,
    cholesky,
    diagonal,
    diagonal_of,
    inverse_of_lower,
    log_det,
    strictly_lower,
)

PRIORS = ("matrix_t", "trace_norm", "group_laplace")
#: The smallest argument at which Stirling's series with two terms has an error below 1e-7.
STIRLING = 30.0


def unit(observed: Observed, num_tasks: int) -> Array:
    """Return a typical size of each row of W in Sigma's eigenbasis, (d, 1), as the unit of the sampled coordinates."""
    guess = 1 / (jnp.asarray(observed.precision) + jnp.asarray(observed.noise.precision_floor))  # of A's eigenvalues
    known = jnp.asarray(observed.trace_precision) > 0
    guess = guess * jnp.where(known, observed.trace / jnp.sum(guess), 1.0)
    return jnp.sqrt(guess / num_tasks)[:, None]


def log_density_of_log_chi2(a: Array, x: Array) -> Array:
    """Return the log density of log(chi^2_{2a} / 2a) at x, times the unit sqrt(1 / a) of x, up to a constant.

    This is ``a (x - e^x + 1) + log(a^a e^{-a} / Gamma(a)) - log(a) / 2``. Large numbers would cancel in it where kappa is
    large, and a trajectory would meet rounding errors there. Therefore small x and large a are computed by series.
    """
    small = jnp.minimum(a, STIRLING)
    near = jnp.abs(x) < 1e-3
    tiny = jnp.where(near, x, 0.0)
    convex = jnp.where(near, 0.5 * tiny**2 * (1 + tiny / 3 + tiny**2 / 12), jnp.expm1(x) - x)  # e^x - 1 - x
    direct = small * jnp.log(small) - small - gammaln(small) - 0.5 * jnp.log(small)
    series = -0.5 * jnp.log(2 * jnp.pi) - 1 / (12 * jnp.maximum(a, STIRLING))  # Stirling's
    return -a * convex + jnp.where(a < STIRLING, direct, series)


def shear(Z: Array, slope: Array, G: Array) -> Array:
    """Return N (d, m) such that Z is nearly standard normal if row i of N has the precision ``I + slope_i G``.

    Where G is small, ``I + slope_i G = L D L'`` with D near ``diag(exp(slope_i G_jj))`` and L near ``I + slope_i G D^{-1}``
    below the diagonal. To that order, row i of N is ``Z_i D^{-1/2} L^{-1}``. A large G is replaced by its logarithm. The map
    keeps volumes.

    Args:
        Z: (d, m).
        slope: between -1 and 1, of sum 0, (d,).
        G: positive definite, (m, m).
    """
    size = diagonal_of(G)
    damped = jnp.log1p(size)
    root = jnp.sqrt(damped / size)
    scale = jnp.exp(-0.5 * slope[:, None] * damped)
    Y = scale * Z
    return Y - slope[:, None] * scale**2 * (Y @ (below_diagonal(G) * root[:, None] * root))


@lru_cache
def noise_dominated_weights(num_tasks: int) -> Callable[[Observed], None]:
    """Return the model :func:`latent_weights` with the matrix-t prior, in coordinates for a release that is mostly noise.

    It needs m <= d, and an A far smaller than Sigma: the coordinates do not know the boundary ``A < Sigma``, and chains that
    reach it are stuck.

    ``W = sqrt(Phi) N T^{-1}``, N (d, m) standard normal and ``T T' ~ Wishart_m(kappa + m - d, I)`` by Bartlett's
    decomposition; integrating T out gives the matrix t. The trace of W W' may be public, and is then known far better than
    phi. Therefore the coordinate is ``tau = tr(W W')``, and ``log(Phi) = log(tau) - log tr(V V')`` with ``V = N T^{-1}``. The
    diagonal of T is in units of its typical size, so that kappa can move alone. The likelihood prefers some directions of W,
    the more the larger W's singular values are. N follows it by :func:`shear`; otherwise kappa, which moves the singular
    values, would depend on all of N.

    Sites: ``z``, ``z_kappa``, ``Z`` (d, m), ``log_diagonal`` (m,), ``off_diagonal`` (m (m - 1) / 2,); the deterministic
    ``log_phi``, ``kappa``, ``prior_scale`` (d,) and ``A`` (d, d).

    Source: Dawid (1981), Biometrika 68(1), section 6: the matrix t from both its sides.
    """
    m = num_tasks

    def model(observed: Observed) -> None:
        Q = jnp.asarray(observed.eigenvectors)
        d = len(Q)
        kappa = degrees_of_freedom(d)
        df = kappa + m - d - jnp.arange(m, dtype=kappa.dtype)  # of the squared diagonal
        Z = numpyro.sample("Z", dist.ImproperUniform(constraints.real_matrix, (), (d, m)))
        below = numpyro.sample("off_diagonal", dist.Normal(0.0, 1.0).expand((m * (m - 1) // 2,)).to_event(1))
        log_diagonal = numpyro.sample("log_diagonal", dist.ImproperUniform(constraints.real_vector, (), (m,)))
        spread = jnp.sqrt(0.5 / df)
        log_chi = 0.5 * jnp.log(df) + spread * log_diagonal
        numpyro.factor("diagonal", jnp.sum(log_density_of_log_chi2(0.5 * df, 2 * spread * log_diagonal)))
        T = diagonal(jnp.exp(log_chi)) + strictly_lower(below, m)
        inverse = inverse_of_lower(T)

        z = numpyro.sample("z", dist.ImproperUniform(constraints.real, (), ()))
        trace_is_public = jnp.asarray(observed.trace_precision) > 0
        center = jnp.where(trace_is_public, jnp.log(observed.trace), observed.log_phi_mean + jnp.log(float(d * m)))
        trace_sd = 1 / (observed.trace * jnp.sqrt(observed.trace_precision))  # relative
        log_tau = center + jnp.where(trace_is_public, trace_sd, LOG_PHI_SD) * z
        tau = jnp.exp(log_tau)
        shape = inverse @ inverse.T  # V V' is near N shape N', and its trace near d tr(shape)
        slope = jnp.asarray(observed.likelihood_slope)
        steepest = jnp.maximum(jnp.max(jnp.abs(slope)), 1e-6)  # the slopes are all zero where Sigma is a multiple of I
        N = shear(Z, slope / steepest, steepest * tau / d * shape / jnp.trace(shape))
        numpyro.factor("weights", -0.5 * jnp.sum(N**2))
        V = N @ inverse
        size = jnp.sum(V**2)
        log_phi = numpyro.deterministic("log_phi", log_tau - jnp.log(size) - jnp.log(kappa))
        numpyro.deterministic("prior_scale", jnp.exp(log_tau) / size * jnp.ones(d))
        numpyro.factor("prior", dist.Normal(observed.log_phi_mean, LOG_PHI_SD).log_prob(log_phi))
        scaled = jnp.sqrt(tau / size) * V  # W in Sigma's eigenbasis
        W = Q @ scaled
        A = numpyro.deterministic("A", W @ W.T)
        # nan outside the support, where NUTS ends a trajectory
        numpyro.factor("release", observed.noise.log_density(A, observed.noise.log_det_rest(scaled), tau))
        known_trace(observed, tau)

    return model


@lru_cache
def latent_weights(num_tasks: int, prior: str) -> Callable[[Observed], None]:
    """Return the model of m = num_tasks latent weights under one of three priors with an unknown scale.

    - "matrix_t": the prior of :func:`mpmtl_prob.models.shared_covariance.full`, with Omega integrated out:
      ``p(W) ~ |Phi|^{kappa/2} |Phi + W W'|^{-(m+kappa)/2} Gamma_d((m+kappa)/2) / Gamma_d(kappa/2)``.
    - "trace_norm": ``p(W) = C lambda^{dm} exp(-lambda ||W||_*)``, the papers' low-rank penalty as a prior.
    - "group_laplace": ``p(W) = prod_j C lambda^m exp(-lambda ||w^j||)``, their group-sparse penalty as a prior.

    Sites: ``z``, ``Z`` (d, m) in units of :func:`unit`; the deterministic ``log_phi`` and ``A`` (d, d). With "matrix_t" also
    ``z_kappa``, and the deterministic ``kappa`` and ``prior_scale`` (d,). With the others ``Omega`` (d, d), the covariance of
    the Gaussian that touches the prior at W: ``(W W')^{1/2} / lambda`` and ``diag(||w^j||) / lambda``.
    """

    def model(observed: Observed) -> None:
        Q = jnp.asarray(observed.eigenvectors)
        d, m = len(Q), num_tasks
        Z = numpyro.sample("Z", dist.ImproperUniform(constraints.real_matrix, (), (d, m)))
        scaled, log_jacobian, log_det_rest = observed.noise.weights(unit(observed, m) * Z)  # W in Sigma's eigenbasis
        W = Q @ scaled
        A = numpyro.deterministic("A", W @ W.T)
        trace = jnp.sum(scaled**2)
        small = scaled @ scaled.T if d <= m else scaled.T @ scaled  # has the eigenvalues of A that are not zero
        numpyro.factor("release", observed.noise.log_density(A, log_det_rest, trace) + log_jacobian)
        known_trace(observed, trace)
        if prior == "matrix_t":
            kappa = degrees_of_freedom(d)
            log_phi = log_phi_of_weights(observed, small, kappa)
            Phi = numpyro.deterministic("prior_scale", kappa * jnp.exp(log_phi) * jnp.ones(d))
            log_scale = jnp.log(Phi[0])
            root = cholesky(Phi[0] * np.eye(len(small), dtype=small.dtype) + small)
            log_det_omega = log_det(root) + (d - len(small)) * log_scale
            log_prior = 0.5 * (kappa * d * log_scale - (m + kappa) * log_det_omega)
            numpyro.factor("prior", log_prior + log_normaliser(kappa, m, d))
            return
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        log_phi = numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * z)
        # in the group Laplace, weights of variance phi have lambda = sqrt(m / phi), nearly; the trace norm is scaled alike
        log_lambda = 0.5 * (jnp.log(float(m)) - log_phi)
        if prior == "trace_norm":
            jitter = 1e-12 * trace * jnp.eye(len(small))
            eigenvalues, U = jnp.linalg.eigh(small + jitter)
            root = jnp.sqrt(jnp.maximum(eigenvalues, 0.0))
            norm = jnp.sum(root)
            omega = (Q @ U * root) @ (Q @ U).T if d <= m else (W @ U / root) @ (W @ U).T
        else:
            rows = jnp.sqrt(diagonal_of(A))
            norm = jnp.sum(rows)
            omega = jnp.diag(rows)
        numpyro.deterministic("Omega", omega * jnp.exp(-log_lambda))
        numpyro.factor("prior", d * m * log_lambda - jnp.exp(log_lambda) * norm)

    return model
