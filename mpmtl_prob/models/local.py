"""Local coordinates w_i = mu_i + L_i z_i, in which every task's weights are nearly standard normal (a reparametrisation).

A normal prior of precision ``(rate / sigma)^2 C`` replaces the penalty, where C comes from a quadratic that touches the
penalty from above. Then ``L_i L_i' = (X_i'X_i / sigma^2 + (rate / sigma)^2 C)^{-1}``, and mu_i is the posterior mean under
that prior. Both depend on rate and sigma. Therefore w_i shrinks with the prior where a task has few rows, and there is no
funnel between rate and W.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown


class LocalCoordinates(NamedTuple):
    """Basis B_i of every task in which X_i'X_i and C are both diagonal. Leaves are traced arrays."""

    basis: ArrayLike  #: B_i, with B_i'C B_i = I, (m, d, d)
    inverse: ArrayLike  #: B_i^{-1} = B_i'C, (m, d, d)
    gain: ArrayLike  #: the diagonal of B_i'X_i'X_i B_i, (m, d)
    projected: ArrayLike  #: B_i'X_i'y_i, (m, d)
    log_det: ArrayLike  #: sum_i log|det B_i|

    def __repr__(self) -> str:
        return shown(self)

    def sample(self, name: str, law: dist.Distribution, rate: Array, sigma: Array) -> Array:
        """Sample a matrix W (d, m) from a prior in local coordinates.

        Sites: ``{name}_local`` (d, m) and the deterministic ``name`` (d, m).
        """
        transform = self.at(rate, sigma)
        # z is a real matrix by construction, so that it needs no validation
        z = numpyro.sample(f"{name}_local", dist.TransformedDistribution(law, transform.inv, validate_args=False))
        return numpyro.deterministic(name, transform(z))

    def at(self, rate: ArrayLike, sigma: ArrayLike) -> TaskAffine:
        """Return the transform from z to W at these values of the hyper-parameters."""
        precision = jnp.asarray(self.gain) / sigma**2 + (rate / sigma) ** 2
        mean = jnp.asarray(self.projected) / (sigma**2 * precision)
        basis, inverse = jnp.asarray(self.basis), jnp.asarray(self.inverse)
        return TaskAffine(mean, 1 / jnp.sqrt(precision), basis, inverse, jnp.asarray(self.log_det))


def local_coordinates(xx: FloatArray, xy: FloatArray, prior_precision: FloatArray) -> LocalCoordinates:
    """Return local coordinates of tasks with X_i'X_i (m, d, d) and X_i'y_i (m, d), for C (d, d)."""
    K = np.linalg.cholesky(prior_precision)  # C = K K'
    K_inverse = np.linalg.inv(K)
    gain, U = np.linalg.eigh(K_inverse @ xx @ K_inverse.T)
    basis = K_inverse.T @ U
    return LocalCoordinates(
        basis=basis,
        inverse=np.swapaxes(U, 1, 2) @ K.T,
        gain=np.maximum(gain, 0.0),
        projected=np.einsum("tij,ti->tj", basis, xy),
        log_det=-len(xx) * np.sum(np.log(np.diagonal(K))),
    )


class TaskAffine(Transform):
    """Transform from z (d, m) to W with columns w_i = basis_i (mean_i + scale_i * z_i).

    Args:
        mean: (m, d).
        scale: > 0, (m, d).
        basis: (m, d, d).
        inverse: inverse of every basis, (m, d, d).
        log_det: sum of log|det basis_i|.
    """

    domain = constraints.real_matrix
    codomain = constraints.real_matrix

    def __init__(self, mean: Array, scale: Array, basis: Array, inverse: Array, log_det: Array) -> None:
        self.mean = mean
        self.scale = scale
        self.basis = basis
        self.inverse = inverse
        self.log_det = log_det

    def __call__(self, x: ArrayLike) -> Array:
        return jnp.einsum("tij,...jt->...it", self.basis, self.mean.T + self.scale.T * x)

    def _inverse(self, y: ArrayLike) -> Array:
        return (jnp.einsum("tij,...jt->...it", self.inverse, y) - self.mean.T) / self.scale.T

    def log_abs_det_jacobian(self, x: ArrayLike, y: ArrayLike, intermediates: Any = None) -> Array:
        return jnp.broadcast_to(jnp.sum(jnp.log(self.scale)) + self.log_det, jnp.shape(x)[:-2])

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        names = ("mean", "scale", "basis", "inverse", "log_det")
        return tuple(getattr(self, name) for name in names), (names, {})
