"""Release ``Sigma = A + E`` prepared for the models: how precisely it determines A, and along which axes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.noise import NoisyRelease, of_law
from mpmtl_prob.privacy.mechanisms import MatrixMechanism

#: Prior sd of log(phi). The typical variance phi of one weight is so known up to a factor of 50 either way, with 95 %.
LOG_PHI_SD = 2.0


class Visible(NamedTuple):
    """Estimate of L in ``A = Q L L' Q'`` from Sigma, and its precision."""

    basis: ArrayLike  #: Q, orthogonal, (d, d)
    information: ArrayLike  #: precision of log L_jj^2, (d,)
    log_size: ArrayLike  #: log L_jj^2, where there is information, (d,)
    products: ArrayLike  #: L_kj L_jj, zero where Sigma does not determine L_jj, (d, d)


class Free(NamedTuple):
    """Release whose noise is possible for every positive definite A."""

    sd: ArrayLike  #: sd of an entry of E off the diagonal; on it, sqrt(2) times as much
    features: Visible  #: estimate of A with the features in an order
    directions: Visible  #: estimate of A along Sigma's eigenvectors


class Axes(NamedTuple):
    """Bounds on A along orthogonal axes where Sigma bounds A, in ascending order of how well Sigma determines A."""

    basis: ArrayLike  #: the axes, columns, (d, d)
    log_precision: ArrayLike  #: typical log P along each axis, (d,)
    noise_dominance: ArrayLike  #: as :attr:`Observed.noise_dominance`, (d,)
    floor: ArrayLike  #: Sigma^{-1} in this basis, (d, d)


class Observed(NamedTuple):
    """Release as the models read it. Its directions are the eigenvectors of Sigma by ascending eigenvalue.

    Leaves are traced arrays. Whatever depends on the release alone is computed here once; a model would compute it at every
    step.
    """

    eigenvectors: ArrayLike  #: of Sigma, by ascending eigenvalue, columns, (d, d)
    noise: NoisyRelease  #: the release and the distribution of its noise
    num_tasks: ArrayLike  #: m
    per_task: ArrayLike  #: 1 / m
    log_phi_mean: ArrayLike  #: prior mean of log(phi)
    log_phi_sd: ArrayLike  #: rough sd of log(phi) given tr(A), where that is public
    log_phi_follows: ArrayLike  #: slope of the mean of log(phi) in log tr(A); 0 where tr(A) is not public
    trace: ArrayLike  #: tr(A) where it is public, as it is with directions; otherwise any number
    log_trace: ArrayLike  #: its logarithm
    trace_precision: ArrayLike  #: 1 / sd^2 of tr(A); 0 where it is not public
    precision: ArrayLike  #: typical size of P in each direction, (d,)
    log_precision: ArrayLike  #: its logarithm, (d,)
    noise_dominance: ArrayLike  #: from 1 where noise dominates a direction to 0 where Sigma determines A, (d,)
    likelihood_slope: ArrayLike  #: precision that Sigma adds to a weight along each eigenvector, less their mean, (d,)
    axes: Axes  #: the features, if Sigma is nearly diagonal or mostly noise; otherwise its eigenvectors
    noise_precision: ArrayLike  #: rough precision of an entry of E off the diagonal
    noise_mean: ArrayLike  #: mean eigenvalue of E; 0 for noise that does not bound A
    free: Free | None  #: None where Sigma bounds A


def observe(
    sigma: FloatArray,
    law: MatrixMechanism,
    num_tasks: int,
    *,
    phi: float,
    trace: float | None = None,
    trace_sd: float = 0.1,
) -> Observed:
    """Prepare a release for the models.

    Args:
        sigma: the release, (d, d).
        law: the mechanism of its noise.
        num_tasks: m.
        phi: prior median of the variance of one weight.
        trace: tr(A), if public.
        trace_sd: relative sd of the public tr(A).

    Raises:
        ValueError: noise without a known density.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(sigma)
    noise = of_law(law, sigma)
    bound = (eigenvectors * noise.precision_floor) @ eigenvectors.T

    def along(basis: FloatArray) -> Axes:
        basis = basis[:, np.argsort(np.diagonal(basis.T @ sigma @ basis))]
        without_mean = np.diagonal(basis.T @ (sigma - law.mean) @ basis)
        signal = np.clip(without_mean, 0.0, trace)  # A has no more than tr(A) along an axis
        hidden = 1 / (1 + (signal / (2 * law.operator_norm)) ** 4)
        # where noise dominates, A is as the prior expects, but no larger than the noise, or Sigma would show it
        guess = (1 - hidden) * signal + hidden * min(num_tasks * phi, law.operator_norm)
        inverse_sigma = basis.T @ bound @ basis
        floor = np.diagonal(inverse_sigma)
        return Axes(basis, np.log(np.maximum(1 / guess, floor / 0.9) - floor), hidden, inverse_sigma)

    directions = along(eigenvectors)
    precision = np.exp(directions.log_precision)
    hidden = np.asarray(directions.noise_dominance)
    shown = (eigenvectors * (1 - hidden) * (eigenvalues - np.diagonal(law.mean))) @ eigenvectors.T
    by_feature = hidden.min() > 0.5 or np.sum(np.diagonal(shown) ** 2) > 0.5 * np.sum(shown**2)
    free = None
    if noise.sd is not None:
        rotated = _shown(np.diag(eigenvalues), noise.sd)
        free = Free(noise.sd, _shown(sigma, noise.sd), rotated._replace(basis=eigenvectors @ rotated.basis))
    # of log tr(A); zero where it is not public, with any trace
    log_trace_precision, size = (0.0, 1.0) if trace is None else (trace_sd**-2, trace)
    # the share of tr(A) in directions where noise dominates; only these follow phi
    share = np.clip(1 - np.sum((1 - hidden) / (precision + noise.precision_floor)) / size, 0.0, 1.0)
    log_phi_precision = LOG_PHI_SD**-2 + share**2 * log_trace_precision
    return Observed(
        eigenvectors=eigenvectors,
        noise=noise,
        num_tasks=float(num_tasks),
        per_task=1 / num_tasks,
        log_phi_mean=np.log(phi),
        log_phi_sd=log_phi_precision**-0.5,
        log_phi_follows=share * log_trace_precision / log_phi_precision,
        trace=size,
        log_trace=np.log(size),
        trace_precision=log_trace_precision / size**2,
        precision=precision,
        log_precision=np.log(precision),
        noise_dominance=hidden,
        likelihood_slope=noise.likelihood_slope - np.mean(noise.likelihood_slope),
        axes=along(np.eye(len(sigma))) if by_feature else directions,
        noise_precision=4 * len(sigma) / law.operator_norm**2,
        noise_mean=np.trace(law.mean) / len(sigma),
        free=free,
    )


def _shown(sigma: FloatArray, sd: ArrayLike) -> Visible:
    """Estimate the Cholesky factor of A from Sigma, by elimination with the largest pivot first.

    Args:
        sigma: the release, (d, d).
        sd: sd of the noise off the diagonal.
    """
    d = len(sigma)
    schur = np.array(sigma)
    unit = np.sqrt(2) * float(np.asarray(sd))  # sd of the noise on the diagonal
    order = []
    remaining = list(range(d))
    information = np.zeros(d)
    log_size = np.zeros(d)
    products = np.zeros((d, d))
    for j in range(d):
        k = max(remaining, key=lambda i: schur[i, i])
        remaining.remove(k)
        order.append(k)
        size = max(schur[k, k], 0.1 * unit)
        ratio = size / unit
        share = 1 / (1 + ratio**-4.0)  # goes to 0 where a pivot is below the noise
        information[j] = share * ratio**2
        log_size[j] = np.log(size)
        products[:, j] = share * schur[:, k]
        schur = schur - share * np.outer(schur[:, k], schur[:, k]) / size
    return Visible(np.eye(d)[:, order], information, log_size, products[order])
