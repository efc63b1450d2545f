"""The public seat with the weights themselves latent: for the papers' priors, and for fewer tasks than features.

``Sigma = W W' + E`` as in :mod:`mpmtl_prob.models.shared_covariance`, but W (d x m) is sampled: m d numbers, for small
problems. W is known up to a rotation of the tasks, which changes neither ``W W'`` nor the priors here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from mpmtl_prob.models.shared_covariance import LOG_PHI_SD, Observed, log_det, prior_degrees_of_freedom

PRIORS = ("matrix_t", "trace_norm", "group_laplace")


def contraction(Z: Array) -> tuple[Array, Array, Array]:
    """Any Z (d, m) to a Y (d, m) with ``Y Y' < I``, one to one: Y, ``log|dY/dZ|`` and ``log|I - Y Y'|``.

    Row by row: ``b = z / sqrt(1 + |z|^2)`` lies in the unit ball, and ``y_k = b_k F_k'`` with
    ``F_k F_k' = I - sum_{j<k} y_j' y_j``, so that ``F_{k+1} = F_k (I - b_k' b_k)^{1/2}``.
    """
    d, m = Z.shape

    def row(F: Array, z: Array) -> tuple[Array, Array]:
        square = jnp.sum(z**2)
        b = z / jnp.sqrt(1 + square)
        shrink = 1 / (1 + 1 / jnp.sqrt(1 + square))  # (I - b'b)^{1/2} = I - shrink b'b
        Fb = F @ b
        return F - shrink * jnp.outer(Fb, b), Fb

    _, Y = jax.lax.scan(row, jnp.eye(m, dtype=Z.dtype), Z)
    log1p = jnp.log1p(jnp.sum(Z**2, axis=1))
    later = d - 1 - jnp.arange(d)  # rows that b_k shrinks, each by |I - b'b|^{1/2}
    return Y, -0.5 * jnp.sum((m + 2 + later) * log1p), -jnp.sum(log1p)


@lru_cache
def latent_weights(num_tasks: int, prior: str) -> Callable[[Observed], None]:
    """The model of m = num_tasks latent weights under one of three priors, all of unknown scale.

    - "matrix_t": ``w_i ~ N(0, Omega)``, ``Omega ~ InverseWishart(kappa, phi I)``, with Omega integrated out.
    - "trace_norm": ``p(W) = C lambda^{dm} exp(-lambda ||W||_*)``, the papers' low-rank penalty as a prior.
    - "group_laplace": ``p(W) = prod_j C lambda^m exp(-lambda ||w^j||)``, their group-sparse penalty.

    Sites: ``z``, ``Z`` (d, m); the deterministic ``log_phi``, ``A`` (d, d), and ``Omega`` (d, d) but for "matrix_t": the
    covariance with which the prior is a Gaussian at W, ``(W W')^{1/2} / lambda`` and ``diag(||w^j||) / lambda``.
    """

    def model(observed: Observed) -> None:
        eigenvalues, Q = jnp.asarray(observed.eigenvalues), jnp.asarray(observed.eigenvectors)
        d, m = eigenvalues.shape[0], num_tasks
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        log_phi = numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * z)
        Y, jacobian, log_det_rest = contraction(
            numpyro.sample("Z", dist.ImproperUniform(constraints.real_matrix, (), (d, m)))
        )
        W = Q @ (jnp.sqrt(eigenvalues)[:, None] * Y)
        A = numpyro.deterministic("A", W @ W.T)
        trace = jnp.trace(A)
        numpyro.factor("release", 0.5 * ((observed.df - d - 1) * log_det_rest + trace / observed.scale) + jacobian)
        numpyro.factor("known_trace", -0.5 * ((trace / observed.trace - 1) / observed.trace_sd) ** 2)
        if prior == "matrix_t":
            kappa = prior_degrees_of_freedom(d)
            log_det_omega = log_det(jnp.linalg.cholesky(jnp.exp(log_phi) * jnp.eye(d) + A))
            numpyro.factor("prior", 0.5 * (kappa * d * log_phi - (m + kappa) * log_det_omega))
            return
        # a weight of variance phi has lambda = sqrt(m / phi), for a row of the group Laplace; the trace norm alike
        log_lambda = 0.5 * (jnp.log(float(m)) - log_phi)
        if prior == "trace_norm":
            small = A if d <= m else W.T @ W
            jitter = 1e-12 * trace * jnp.eye(len(small))
            root, U = jnp.linalg.eigh(small + jitter)
            root = jnp.sqrt(jnp.maximum(root, 0.0))
            norm = jnp.sum(root)
            omega = (U * root) @ U.T if d <= m else (W @ U / root) @ (W @ U).T
        else:
            rows = jnp.sqrt(jnp.diagonal(A))
            norm, omega = jnp.sum(rows), jnp.diag(rows)
        numpyro.deterministic("Omega", omega * jnp.exp(-log_lambda))
        numpyro.factor("prior", d * m * log_lambda - jnp.exp(log_lambda) * norm)

    return model
