"""Likelihood of A given a release ``Sigma = A + E``, by the distribution of the noise E.

With Wishart noise ``Sigma - A`` is positive definite, so that Sigma bounds A from above. With Gaussian noise every positive
definite A is possible, and Sigma itself may be indefinite. :class:`NoisyRelease` has all that a model needs from the
distribution of E, so that models run with either; they are compiled for each.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax.linalg import triangular_solve
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import accept_former_methods
from mpmtl_prob.models.triangles import cholesky, diagonal_of, log_det
from mpmtl_prob.models.wishart import ShiftedGaussian, ShiftedWishart
from mpmtl_prob.privacy.mechanisms import Gaussian, GaussianShares, MatrixMechanism, Wishart


class NoisyRelease(Protocol):
    """Release and the distribution of its noise. Its leaves are traced arrays."""

    @property
    def sd(self) -> ArrayLike | None:
        """Standard deviation of an entry of E off the diagonal; None where Sigma bounds A."""

    @property
    def precision_floor(self) -> ArrayLike:
        """Lower bound of A^{-1}, ``V diag(floor) V'``, V the eigenvectors of Sigma by ascending eigenvalue, (d,)."""

    @property
    def likelihood_slope(self) -> FloatArray:
        """Return the precision that Sigma adds to a weight along each of its eigenvectors where A is small, (d,).

        It is ``-2 d log p(Sigma | A) / dA`` at A = 0. Chains use it for their coordinates, and the posterior does not depend
        on it.
        """

    def weights(self, Z: Array) -> tuple[Array, Array | float, Array | float]:
        """Map any Z (d, m), one to one, to a W in the eigenbasis of Sigma for which ``W W'`` is possible.

        Returns:
            W, ``log|dW/dZ|`` up to a constant, and :meth:`log_det_rest` of W.
        """

    def log_det_rest(self, W: Array) -> Array | float:
        """Return ``log|Sigma - W W'| - log|Sigma|`` for W in the eigenbasis of Sigma; nan where such a W is impossible."""

    def log_density(self, A: Array, log_det_rest: Array | float, trace: Array | None = None) -> Array:
        """Return log p(Sigma | A) up to a constant.

        Args:
            A: in the features' basis, (d, d).
            log_det_rest: ``log|Sigma - A|`` up to a constant, which is used only where Sigma bounds A.
            trace: tr(A), where it is known without A; default: computed from A.
        """

    def sampling_distribution(self, A: Array) -> Distribution:
        """Return the distribution of Sigma given A (d, d)."""


class WishartNoise(NamedTuple):
    """Wishart noise: ``Sigma - A ~ Wishart(df, scale I)``, on ``0 < A < Sigma``."""

    precision_floor: ArrayLike  #: eigenvalues of Sigma^{-1}, descending: ``A < Sigma`` is ``A^{-1} > Sigma^{-1}``, (d,)
    df: ArrayLike  #: degrees of freedom, at least d + 1
    rate: ArrayLike  #: 1 / s

    @classmethod
    def __init_subclass__(cls, **kwargs: Any) -> None:
        accept_former_methods(cls, given="sampling_distribution", tilt="likelihood_slope", floor="precision_floor")

    @property
    def sd(self) -> None:
        """None, because Sigma bounds A."""
        return None

    @property
    def likelihood_slope(self) -> FloatArray:
        """Return the slope of ``log|Sigma - A|`` and of the trace."""
        return (np.asarray(self.df) - np.size(self.precision_floor) - 1) * np.asarray(self.precision_floor) - self.rate

    def weights(self, Z: Array) -> tuple[Array, Array, Array]:
        """Map Z to W by :func:`contraction`."""
        size = jnp.sqrt(jnp.asarray(self.precision_floor))[:, None]
        Y, log_jacobian, log_det_rest = contraction(size * Z)
        return Y / size, log_jacobian, log_det_rest

    def log_det_rest(self, W: Array) -> Array:
        """Return log|I - W' Sigma^{-1} W|, as ``|Sigma - W W'| = |Sigma| |I - W' Sigma^{-1} W|``."""
        inner = jnp.eye(W.shape[1], dtype=W.dtype) - (W * jnp.asarray(self.precision_floor)[:, None]).T @ W
        return log_det(cholesky(inner))

    def log_density(self, A: Array, log_det_rest: Array | float, trace: Array | None = None) -> Array:
        """Return the log density of ``E = Sigma - A``, without terms of Sigma alone."""
        d = len(A)
        trace = jnp.trace(A) if trace is None else trace
        return 0.5 * ((jnp.asarray(self.df) - d - 1) * log_det_rest + trace * self.rate)

    def sampling_distribution(self, A: Array) -> ShiftedWishart:
        """Return Sigma's distribution, a Wishart distribution that is shifted by A."""
        # validation would decompose Sigma - A once more, and the density is -inf outside the support anyway
        return ShiftedWishart(A, self.df, 1 / self.rate, validate_args=False)


class GaussianNoise(NamedTuple):
    """Gaussian noise: ``Sigma - A`` symmetric, N(0, sd^2) off the diagonal and N(0, 2 sd^2) on it, on ``A > 0``."""

    sigma: ArrayLike  #: Sigma, (d, d)
    sd: ArrayLike  #: sd of an entry of the noise off the diagonal

    @classmethod
    def __init_subclass__(cls, **kwargs: Any) -> None:
        accept_former_methods(cls, given="sampling_distribution", tilt="likelihood_slope", floor="precision_floor")

    @property
    def precision_floor(self) -> ArrayLike:
        """Zeros, because A has no upper bound."""
        return np.zeros(np.shape(self.sigma)[0])

    @property
    def likelihood_slope(self) -> FloatArray:
        """Return the slope of the squared residuals."""
        return -np.linalg.eigvalsh(self.sigma) / np.square(self.sd)

    def weights(self, Z: Array) -> tuple[Array, float, float]:
        """Return Z itself, because every W is possible."""
        return Z, 0.0, 0.0

    def log_det_rest(self, W: Array) -> float:
        """Return zero, because A has no upper bound."""
        return 0.0

    def log_density(self, A: Array, log_det_rest: Array | float, trace: Array | None = None) -> Array:
        """Return the log density of the d (d + 1) / 2 free entries of E.

        The sum of all d^2 squares counts entries off the diagonal twice, and those have half the variance.
        """
        squares = jnp.sum(jnp.square(jnp.asarray(self.sigma) - A))
        return -squares / (4 * jnp.square(jnp.asarray(self.sd)))

    def sampling_distribution(self, A: Array) -> ShiftedGaussian:
        """Return Sigma's distribution, a Gaussian one that is shifted by A."""
        return ShiftedGaussian(A, self.sd, validate_args=False)


@singledispatch
def of_law(law: MatrixMechanism, sigma: FloatArray) -> NoisyRelease:
    """Return a release Sigma (d, d) with the distribution of its noise, for models; ``of_law.register`` adds a mechanism.

    Raises:
        ValueError: noise without a known density.
    """
    raise ValueError(f"release: expected Wishart or Gaussian noise, whose density the model knows, got {law.kind}")


@of_law.register
def _(law: Wishart, sigma: FloatArray) -> WishartNoise:
    return WishartNoise(1 / np.linalg.eigvalsh(sigma), law.df, 1 / law.scale)


@of_law.register
def _(law: Gaussian, sigma: FloatArray) -> GaussianNoise:
    return GaussianNoise(sigma, law.sd)


@of_law.register
def _(law: GaussianShares, sigma: FloatArray) -> GaussianNoise:
    return GaussianNoise(sigma, law.sd)


def contraction(Z: Array) -> tuple[Array, Array, Array]:
    """Map any Z (d, m), one to one, to a Y (d, m) with ``Y Y' < I``.

    ``Y = Z C'^{-1}`` with ``C C' = I + Z'Z``, if m is at most d; otherwise the transposed map.

    For the Jacobian, ``dZ ~ |Z'Z|^{(d-m-1)/2} d(Z'Z) dH`` with an orthonormal frame H that Z and Y share,
    ``Y'Y = I - (C'C)^{-1}``, and the Jacobians of ``C C'`` and ``C'C`` in C are ``2^m prod_j C_jj^{m-j+1}`` and
    ``2^m prod_j C_jj^j``, j = 1..m.

    Returns:
        Y, ``log|dY/dZ|`` and ``log|I - Y Y'|``.

    Source: Muirhead (1982), Aspects of Multivariate Statistical Theory, theorems 2.1.9 and 2.1.14, for the Jacobians.
    """
    d, m = Z.shape
    if d < m:
        Y, jacobian, log_det_rest = contraction(Z.T)
        return Y.T, jacobian, log_det_rest
    C = cholesky(np.eye(m, dtype=Z.dtype) + Z.T @ Z)
    Y = triangular_solve(C, Z, left_side=False, lower=True, transpose_a=True)
    log_diagonal = jnp.log(diagonal_of(C))
    log_det_rest = -2 * jnp.sum(log_diagonal)  # |I - Y Y'| = 1 / |I + Z'Z|
    j = jnp.arange(m, dtype=Z.dtype)
    jacobian = 0.5 * (d + m + 1) * log_det_rest + jnp.sum((2 * j + 1 - m) * log_diagonal)
    return Y, jacobian, log_det_rest
