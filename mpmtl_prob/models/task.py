"""Models of the owner's seat: one task's weights given its own rows and the shape of the shared covariance.

:mod:`mpmtl_prob.single_task.conjugate` (closed form) and :mod:`mpmtl_prob.single_task.laplace` solve the same models for all
tasks at once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from mpmtl_prob.models import shared_covariance
from mpmtl_prob.models.triangles import cholesky
from mpmtl_prob.single_task import laplace
from mpmtl_prob.single_task.conjugate import SNR_LOG_SD, SNR_MEDIAN
from mpmtl_prob.single_task.student import FREEDOM


def gaussian(X: ArrayLike, y: ArrayLike, omega: ArrayLike, scale: ArrayLike | None = None) -> None:
    """Model y ~ N(X w, sigma^2 I), w = S v, v ~ N(0, c Omega), with a log-normal signal-to-noise ratio.

    The ratio is ``snr = c tr(X S Omega S X') / (n sigma^2)``. sigma has Jeffreys' prior 1/sigma.

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


def bernoulli(X: ArrayLike, y: ArrayLike, omega: ArrayLike, scale: ArrayLike | None = None) -> None:
    """Model P(y = 1) = 1 / (1 + exp(-X w)), w = S v, v ~ N(0, c Omega), with a log-normal variance of the log odds.

    ``snr = c tr(X S Omega S X') / n`` is their prior variance, averaged over rows. Its median is ``laplace.SNR_MEDIAN``.

    Sites: ``log_snr``, ``v`` (d,), and the deterministic ``w`` (d,).

    Args:
        X: the task's rows, (n, d).
        y: its targets, -1 or 1, (n,).
        omega: (d, d) positive definite, up to a factor.
        scale: the diagonal of S, (d,); default 1.
    """
    X, y, omega = jnp.asarray(X), jnp.asarray(y), jnp.asarray(omega)
    n, d = X.shape
    S = jnp.ones(d) if scale is None else jnp.asarray(scale)
    R = jnp.linalg.cholesky(omega)
    log_snr = numpyro.sample("log_snr", dist.Normal(jnp.log(laplace.SNR_MEDIAN), laplace.SNR_LOG_SD))
    root_c = jnp.exp(0.5 * log_snr) * jnp.sqrt(n / jnp.sum((X * S @ R) ** 2))
    v = numpyro.sample("v", dist.MultivariateNormal(jnp.zeros(d), scale_tril=root_c * R))
    w = numpyro.deterministic("w", S * v)
    numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=(y + 1) / 2)


def joint(observed: shared_covariance.Observed, X: ArrayLike, y: ArrayLike, mask: ArrayLike, scale: ArrayLike) -> None:
    """Model an owner's rows and the release jointly.

    This is :func:`gaussian` with the shape ``Phi + A`` of :func:`mpmtl_prob.models.shared_covariance.full`, the conditional
    mean of Omega given A.

    Sites: those of ``full``, ``log_snr``, ``log_sigma``, ``u`` (d,), where v = sqrt(c) R u with R R' = Phi + A; the
    deterministic ``w`` (d,) and ``sigma``.

    Args:
        observed: the release, of one round.
        X: the task's rows, (n, d), zero where masked.
        y: its targets, (n,).
        mask: 1 where a row is real, else 0, (n,).
        scale: the diagonal of S, (d,).
    """
    square, log_sigma = _joint_errors(observed, X, y, mask, scale)
    numpyro.factor("y", -jnp.sum(mask * (0.5 * square + log_sigma)))


def joint_student_t(
    observed: shared_covariance.Observed, X: ArrayLike, y: ArrayLike, mask: ArrayLike, scale: ArrayLike
) -> None:
    """Model as :func:`joint`, with Student's t errors; :data:`mpmtl_prob.single_task.student.FREEDOM` is their freedom."""
    square, log_sigma = _joint_errors(observed, X, y, mask, scale)
    tail = 0.5 * (FREEDOM + 1) * jnp.log1p(square / FREEDOM)
    numpyro.factor("y", -jnp.sum(mask * (tail + log_sigma)))


def _joint_errors(
    observed: shared_covariance.Observed, X: ArrayLike, y: ArrayLike, mask: ArrayLike, scale: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Sample all sites except the targets; return ((y - X w) / sigma)^2 (n,) and log(sigma)."""
    omega = shared_covariance.full(observed)
    X, y, mask, S = (jnp.asarray(array) for array in (X, y, mask, scale))
    R = cholesky(omega)
    log_snr = numpyro.sample("log_snr", dist.Normal(jnp.log(SNR_MEDIAN), SNR_LOG_SD))
    log_sigma = numpyro.sample("log_sigma", dist.ImproperUniform(dist.constraints.real, (), ()))
    sigma = numpyro.deterministic("sigma", jnp.exp(log_sigma))
    root_c = sigma * jnp.exp(0.5 * log_snr) * jnp.sqrt(jnp.sum(mask) / jnp.sum((X * S @ R) ** 2))
    u = numpyro.sample("u", dist.Normal(jnp.zeros(len(S)), 1.0).to_event(1))
    w = numpyro.deterministic("w", S * (root_c * (R @ u)))
    return ((y - X @ w) / sigma) ** 2, log_sigma


def joint_bernoulli(
    observed: shared_covariance.Observed, X: ArrayLike, y: ArrayLike, mask: ArrayLike, scale: ArrayLike
) -> None:
    """Model as :func:`joint`, with the likelihood and the prior of :func:`bernoulli`.

    Sites: those of ``full``, ``log_snr``, ``u`` (d,), where v = sqrt(c) R u with R R' = Phi + A; the deterministic ``w``
        (d,).

    Args:
        observed: the release, of one round.
        X: the task's rows, (n, d), zero where masked.
        y: its targets, -1 or 1, (n,).
        mask: 1 where a row is real, else 0, (n,).
        scale: the diagonal of S, (d,).
    """
    omega = shared_covariance.full(observed)
    X, y, mask, S = (jnp.asarray(array) for array in (X, y, mask, scale))
    R = cholesky(omega)
    log_snr = numpyro.sample("log_snr", dist.Normal(jnp.log(laplace.SNR_MEDIAN), laplace.SNR_LOG_SD))
    root_c = jnp.exp(0.5 * log_snr) * jnp.sqrt(jnp.sum(mask) / jnp.sum((X * S @ R) ** 2))
    u = numpyro.sample("u", dist.Normal(jnp.zeros(len(S)), 1.0).to_event(1))
    w = numpyro.deterministic("w", S * (root_c * (R @ u)))
    numpyro.factor("y", -jnp.sum(mask * jax.nn.softplus(-y * (X @ w))))
