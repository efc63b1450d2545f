"""A release ``Sigma = A + E`` as the models read it: what it shows of A, and along which axes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.noise import NoisyRelease, of_law
from mpmtl_prob.privacy.mechanisms import MatrixMechanism

#: Prior sd of log(phi): phi, the typical variance of one weight, is known up to a factor of 50 either way.
LOG_PHI_SD = 2.0


class Visible(NamedTuple):
    """Part of L in ``A = Q L L' Q'`` that Sigma shows."""

    basis: ArrayLike  #: Q, orthogonal, (d, d)
    information: ArrayLike  #: on log L_jj^2, (d,)
    log_size: ArrayLike  #: of L_jj^2, where there is information, (d,)
    products: ArrayLike  #: L_kj L_jj, zero where nothing is known of L_jj, (d, d)


class Free(NamedTuple):
    """A release whose noise leaves A any positive definite matrix."""

    sd: ArrayLike  #: of an entry of E off the diagonal; on it, sqrt(2) times as much
    features: Visible  #: in an order of the features
    directions: Visible  #: along Sigma's eigenvectors


class Axes(NamedTuple):
    """Bounds of A along orthogonal axes by a Sigma that bounds A, the best shown last."""

    basis: ArrayLike  #: the axes, columns, (d, d)
    log_precision: ArrayLike  #: typical size of log P along each, (d,)
    noise_dominance: ArrayLike  #: as :attr:`Observed.noise_dominance`, (d,)
    floor: ArrayLike  #: Sigma^{-1} in this basis, (d, d)


class Observed(NamedTuple):
    """A release as the models read it; its directions are the eigenvectors of Sigma, the best shown last.

    Leaves are traced arrays. What follows from them alone is here: in a model it would be worked out at every step.
    """

    eigenvectors: ArrayLike  #: of Sigma, by ascending eigenvalue, columns, (d, d)
    noise: NoisyRelease  #: the release and the law of its noise
    num_tasks: ArrayLike  #: m
    per_task: ArrayLike  #: 1 / m
    log_phi_mean: ArrayLike  #: prior mean of log(phi)
    log_phi_sd: ArrayLike  #: of log(phi), roughly, beside what is public of tr(A)
    log_phi_follows: ArrayLike  #: by how much of it log(phi) follows log tr(A); 0 where that is not public
    trace: ArrayLike  #: tr(A) where it is public, as with directions; else any number
    log_trace: ArrayLike  #: its logarithm
    trace_precision: ArrayLike  #: how well tr(A) is known, 1 / sd^2; 0 where it is not
    precision: ArrayLike  #: typical size of P in each direction, (d,)
    log_precision: ArrayLike  #: its logarithm, (d,)
    noise_dominance: ArrayLike  #: from 1 where the noise hides what A has in that direction to 0 where it shows, (d,)
    likelihood_slope: (
        ArrayLike  #: what Sigma adds to the precision of a weight along each eigenvector, less the mean of all, (d,)
    )
    axes: Axes  #: features where what Sigma shows lies along them, or where it shows nothing; else its eigenvectors
    noise_precision: ArrayLike  #: of an entry of E off the diagonal, roughly
    noise_mean: ArrayLike  #: of an eigenvalue of E, the mean of all; 0 of noise that does not bound A
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
        law: of its noise.
        num_tasks: m.
        phi: prior median of the variance of one weight.
        trace: tr(A), if public.
        trace_sd: relative sd with which tr(A) is taken to be known.

    Raises:
        ValueError: noise without a known density.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(sigma)
    noise = of_law(law, sigma)
    bound = (eigenvectors * noise.precision_floor) @ eigenvectors.T

    def along(basis: FloatArray) -> Axes:
        basis = basis[:, np.argsort(np.diagonal(basis.T @ sigma @ basis))]
        clear = np.diagonal(basis.T @ (sigma - law.mean) @ basis)
        signal = np.clip(clear, 0.0, trace)  # no direction has more than all of A
        hidden = 1 / (1 + (signal / (2 * law.operator_norm)) ** 4)
        # where the noise hides A, what the prior says, or less if that would show
        guess = (1 - hidden) * signal + hidden * min(num_tasks * phi, law.operator_norm)
        inverse_sigma = basis.T @ bound @ basis
        floor = np.diagonal(inverse_sigma)
        return Axes(basis, np.log(np.maximum(1 / guess, floor / 0.9) - floor), hidden, inverse_sigma)

    directions = along(eigenvectors)
    precision, hidden = np.exp(directions.log_precision), np.asarray(directions.noise_dominance)
    shown = (eigenvectors * (1 - hidden) * (eigenvalues - np.diagonal(law.mean))) @ eigenvectors.T
    by_feature = hidden.min() > 0.5 or np.sum(np.diagonal(shown) ** 2) > 0.5 * np.sum(shown**2)
    free = None
    if noise.sd is not None:
        rotated = _shown(np.diag(eigenvalues), noise.sd)
        free = Free(noise.sd, _shown(sigma, noise.sd), rotated._replace(basis=eigenvectors @ rotated.basis))
    known, size = (0.0, 1.0) if trace is None else (trace_sd**-2, trace)
    # what is shown leaves this share of tr(A) to what is hidden, which alone moves with phi
    share = np.clip(1 - np.sum((1 - hidden) / (precision + noise.precision_floor)) / size, 0.0, 1.0)
    log_phi_precision = LOG_PHI_SD**-2 + share**2 * known
    return Observed(
        eigenvectors=eigenvectors,
        noise=noise,
        num_tasks=float(num_tasks),
        per_task=1 / num_tasks,
        log_phi_mean=np.log(phi),
        log_phi_sd=log_phi_precision**-0.5,
        log_phi_follows=share * known / log_phi_precision,
        trace=size,
        log_trace=np.log(size),
        trace_precision=known / size**2,
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
    """The Cholesky factor of what noise leaves of Sigma, largest first."""
    rest, d, unit = np.array(sigma), len(sigma), np.sqrt(2) * float(np.asarray(sd))
    order, left = [], list(range(d))
    information, log_size, products = np.zeros(d), np.zeros(d), np.zeros((d, d))
    for j in range(d):
        k = max(left, key=lambda i: rest[i, i])
        left.remove(k)
        order.append(k)
        size = max(rest[k, k], 0.1 * unit)
        ratio = size / unit
        share = 1 / (1 + ratio**-4.0)  # of what an entry shows; below the noise, nothing
        information[j], log_size[j] = share * ratio**2, np.log(size)
        products[:, j] = share * rest[:, k]
        rest = rest - share * np.outer(rest[:, k], rest[:, k]) / size
    return Visible(np.eye(d)[:, order], information, log_size, products[order])
