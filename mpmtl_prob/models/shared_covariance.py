"""The public seat: a prior on the tasks' second moment and the law of the noise that hides it.

A release is ``Sigma = A + E`` with ``A = W W'`` (d x d, the m bounded task vectors) and ``E ~ Wishart(df, scale I)``. The
law of E is public, so Sigma is data with a likelihood: ``Sigma - A ~ Wishart(df, scale I)`` on ``0 < A < Sigma``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from mpmtl_prob.tasks import FloatArray

#: Prior sd of log(phi): phi, the typical variance of one weight, is known up to a factor of 50 either way.
LOG_PHI_SD = 2.0


class Observed(NamedTuple):
    """A release as the models read it, with the coordinates in which NUTS moves easily. Leaves are traced arrays."""

    eigenvalues: ArrayLike  #: of Sigma, descending, (d,)
    eigenvectors: ArrayLike  #: columns, (d, d)
    df: ArrayLike  #: degrees of freedom of the noise
    scale: ArrayLike  #: s, its scale matrix is s I
    num_tasks: ArrayLike  #: m
    log_phi_mean: ArrayLike  #: prior mean of log(phi)
    trace: ArrayLike  #: tr(A) where it is public, as with directions; else any number
    trace_sd: ArrayLike  #: how well tr(A) is known, relative; infinite where it is not
    precision: ArrayLike  #: typical size of P (see `full`) in each direction, (d,)
    noncentred: (
        ArrayLike  #: share of log(phi) in that size, (d,): 1 where the noise drowns the signal, 0 where it shows
    )


def observe(
    sigma: FloatArray,
    df: float,
    scale: float,
    num_tasks: int,
    *,
    phi: float,
    trace: float | None = None,
    trace_sd: float = 0.1,
) -> Observed:
    """Prepare a release for the models.

    Args:
        sigma: the release, (d, d), positive definite.
        df: degrees of freedom of the noise, at least d + 1.
        scale: s of the noise.
        num_tasks: m.
        phi: prior median of the variance of one weight.
        trace: tr(A), if public.
        trace_sd: relative sd with which tr(A) is taken to be known.
    """
    d = len(sigma)
    eigenvalues, eigenvectors = np.linalg.eigh(sigma)
    eigenvalues, eigenvectors = eigenvalues[::-1], eigenvectors[:, ::-1]
    fluctuation = scale * (2 * np.sqrt(df * d) + d)
    signal = np.maximum(eigenvalues - df * scale, 0.0)
    # a rough guess of A's eigenvalues: where the noise dominates, some fraction of what it could hide
    guess = np.maximum(signal**2 / (signal + fluctuation), 0.1 * min(num_tasks * phi, fluctuation))
    guess = np.minimum(guess, 0.9 * eigenvalues)
    return Observed(
        eigenvalues=eigenvalues,
        eigenvectors=eigenvectors,
        df=df,
        scale=scale,
        num_tasks=float(num_tasks),
        log_phi_mean=np.log(phi),
        trace=1.0 if trace is None else trace,
        trace_sd=np.inf if trace is None else trace_sd,
        precision=1 / guess - 1 / eigenvalues,
        noncentred=1 / (1 + (signal / fluctuation) ** 2),
    )


def prior_degrees_of_freedom(num_features: int) -> float:
    """kappa = d + 2: the vaguest inverse-Wishart prior on Omega with a finite mean, E[Omega] = phi I."""
    return num_features + 2.0


def full(observed: Observed) -> None:
    r"""Posterior of the second moment A given one release, when the weights' covariance has no structure.

    ``w_i ~ N(0, Omega)``, ``Omega ~ InverseWishart(kappa, phi I)``. W and Omega are integrated out, which leaves the
    matrix-F law ``p(A) ~ |A|^{(m-d-1)/2} |phi I + A|^{-(m+kappa)/2} phi^{kappa d/2}``; afterwards ``Omega | A`` is
    ``InverseWishart(kappa + m, phi I + A)``.

    Coordinates. ``0 < A < Sigma`` holds exactly when ``A^{-1} = Sigma^{-1} + P`` with P positive definite, so P has no
    boundary to run into. In Sigma's eigenbasis ``P = D T T' D``, T lower triangular and near I: Bartlett's coordinates
    of a precision, in which both an inverse-Wishart prior and a Wishart likelihood are nearly normal. The scale D
    follows phi only in the directions where the noise hides the signal, which removes the funnel between phi and A.

    Sites: ``log_phi``, ``log_diagonal`` (d,) and ``off_diagonal`` (d(d-1)/2,) of T, the deterministic ``A`` (d, d).

    Args:
        observed: from :func:`observe`; needs m >= d, so that A has a density.
    """
    eigenvalues, m, df = jnp.asarray(observed.eigenvalues), observed.num_tasks, observed.df
    d = eigenvalues.shape[0]
    kappa = prior_degrees_of_freedom(d)
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    log_phi = numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * z)
    log_diagonal = numpyro.sample("log_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d,)))
    off_diagonal = numpyro.sample(
        "off_diagonal", dist.ImproperUniform(constraints.real_vector, (), (d * (d - 1) // 2,))
    )

    T = jnp.zeros((d, d), eigenvalues.dtype).at[jnp.tril_indices(d, -1)].set(off_diagonal)
    T = T + jnp.diag(jnp.exp(log_diagonal))
    log_D = 0.5 * (jnp.log(observed.precision) - observed.noncentred * (log_phi - observed.log_phi_mean))
    DT = jnp.exp(log_D)[:, None] * T
    M = DT @ DT.T + jnp.diag(1 / eigenvalues)  # A^{-1} = P + Sigma^{-1}
    R = jnp.linalg.cholesky(M)
    R_inverse = solve_triangular(R, jnp.eye(d, dtype=eigenvalues.dtype), lower=True)
    trace = jnp.sum(R_inverse**2)  # tr A
    V = R_inverse @ jnp.asarray(observed.eigenvectors).T
    numpyro.deterministic("A", V.T @ V)

    log_det_a = -_log_det(R)
    log_det_p = 2 * jnp.sum(log_D + log_diagonal)
    log_det_noise = log_det_a + log_det_p  # |Sigma - A| = |Sigma| |A| |P|
    # |phi I + A| = |I + phi A^{-1}| |A|
    log_det_omega = _log_det(jnp.linalg.cholesky(jnp.eye(d, dtype=M.dtype) + jnp.exp(log_phi) * M)) + log_det_a

    # |dA| = |A|^{d+1} |dP|, |dP| = |D|^{d+1} prod_j T_jj^{d-j} |dT|, j = 0..d-1, and T_jj = exp(log_diagonal_j)
    jacobian = (d + 1) * (log_det_a + jnp.sum(log_D)) + jnp.sum((d - jnp.arange(d) + 1) * log_diagonal)
    prior = 0.5 * ((m - d - 1) * log_det_a - (m + kappa) * log_det_omega + kappa * d * log_phi)
    likelihood = 0.5 * ((df - d - 1) * log_det_noise + trace / observed.scale)
    numpyro.factor("matrix_f_prior", prior + jacobian)
    numpyro.factor("release", likelihood)
    numpyro.factor("known_trace", -0.5 * ((trace / observed.trace - 1) / observed.trace_sd) ** 2)


def _log_det(cholesky: Array) -> Array:
    """log|M| of M = R R' from its triangular factor R."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky)))
