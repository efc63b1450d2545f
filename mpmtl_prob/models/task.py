"""The owner seat: one task's weights given its own rows and the shape of the shared covariance.

The closed form of the same model, for all tasks at once, is in :mod:`mpmtl_prob.conjugate`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from mpmtl_prob.conjugate import SNR_LOG_SD, SNR_MEDIAN


def gaussian(X: ArrayLike, y: ArrayLike, omega: ArrayLike, scale: ArrayLike | None = None) -> None:
    """y ~ N(X w, sigma^2 I), w = S v, v ~ N(0, c Omega), with the signal-to-noise ratio log-normal.

    ``snr = c tr(X S Omega S X') / (n sigma^2)``; sigma has Jeffreys' prior 1/sigma.

    Sites: ``log_snr``, ``log_sigma``, ``v`` (d,), and the deterministic ``w`` (d,) and ``sigma``.

    Args:
        X: the task's rows, (n, d).
        y: its targets, (n,).
        omega: (d, d) positive definite, up to a factor.
        scale: the diagonal of S, (d,); default 1.
    """
    X, y, omega = jnp.asarray(X), jnp.asarray(y), jnp.asarray(omega)
    n, d = X.shape
    S = jnp.ones(d) if scale is None else jnp.asarray(scale)
    R = jnp.linalg.cholesky(omega)
    log_snr = numpyro.sample("log_snr", dist.Normal(jnp.log(SNR_MEDIAN), SNR_LOG_SD))
    log_sigma = numpyro.sample("log_sigma", dist.ImproperUniform(dist.constraints.real, (), ()))
    sigma = numpyro.deterministic("sigma", jnp.exp(log_sigma))
    root_c = sigma * jnp.exp(0.5 * log_snr) * jnp.sqrt(n / jnp.sum((X * S @ R) ** 2))
    v = numpyro.sample("v", dist.MultivariateNormal(jnp.zeros(d), scale_tril=root_c * R))
    w = numpyro.deterministic("w", S * v)
    numpyro.sample("y", dist.Normal(X @ w, sigma), obs=y)
