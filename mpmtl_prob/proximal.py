"""Penalties on the weights W (d x m) that tie tasks together: value, proximal operator, optimality.

Both penalties act on W only through its second moment: prox_t(W) = M W with M a function of W W'. The MP-MTL algorithms
read the same M off a perturbed second moment, which is all that connects them to the non-private solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
from jax import Array


class Penalty(Protocol):
    """g(W), convex, with the mapping M(W W', t) behind its proximal operator. Hashable: static under jit."""

    def value(self, W: Array) -> Array:
        """g(W)."""
        ...

    def projection(self, sigma: Array, threshold: Array | float) -> Array:
        """M, (d, d), such that M W = prox_{threshold g}(W) when sigma = W W'."""
        ...

    def optimality(self, W: Array, gradient: Array, strength: Array | float) -> Array:
        """Frobenius distance of -gradient to strength * (subdifferential of g at W); 0 exactly at an optimum."""
        ...


@dataclass(frozen=True)
class TraceNorm:
    """||W||_*, the sum of singular values: tasks share a subspace.

    Attributes:
        factors: how many leading factors of a second moment the projection fills; None fills all d. The papers print
            min(d, m), which for d > m forces the rank of M down to m and breaks their Proposition 1.
    """

    factors: int | None = None

    def value(self, W: Array) -> Array:
        return jnp.sum(jnp.linalg.svd(W, compute_uv=False))

    def projection(self, sigma: Array, threshold: Array | float) -> Array:
        """U diag(max(0, 1 - t / sqrt(Lambda_jj))) U', sigma = U Lambda U' (Algorithm 2, steps 6 to 8)."""
        eigenvalues, U = jnp.linalg.eigh(sigma)  # ascending
        shrinkage = _shrinkage(eigenvalues, threshold)
        if self.factors is not None:
            shrinkage = jnp.where(jnp.arange(len(shrinkage)) >= len(shrinkage) - self.factors, shrinkage, 0.0)
        return (U * shrinkage) @ U.T

    def optimality(self, W: Array, gradient: Array, strength: Array | float) -> Array:
        # subdifferential at W = U S V' of rank r: U V' + N, with U'N = 0, N V = 0 and spectral norm of N at most 1
        U, s, Vt = jnp.linalg.svd(W, full_matrices=False)
        active = s > jnp.finfo(W.dtype).eps * max(W.shape) * s[0]
        U, Vt = U * active, Vt * active[:, None]
        D = -gradient
        free = D - U @ (U.T @ D) - (D @ Vt.T) @ Vt + U @ (U.T @ D @ Vt.T) @ Vt  # (I - UU') D (I - VV')
        tight = D - free - strength * U @ Vt
        excess = jnp.maximum(jnp.linalg.svd(free, compute_uv=False) - strength, 0.0)
        return jnp.sqrt(jnp.sum(tight**2) + jnp.sum(excess**2))


@dataclass(frozen=True)
class GroupLasso:
    """||W||_{2,1}, the sum of row norms: tasks share a set of features."""

    def value(self, W: Array) -> Array:
        return jnp.sum(jnp.linalg.norm(W, axis=1))

    def projection(self, sigma: Array, threshold: Array | float) -> Array:
        """diag(max(0, 1 - t / sqrt(Sigma_jj))) (Algorithm 3, steps 6 and 7)."""
        return jnp.diag(_shrinkage(jnp.diagonal(sigma), threshold))

    def optimality(self, W: Array, gradient: Array, strength: Array | float) -> Array:
        norm = jnp.linalg.norm(W, axis=1, keepdims=True)
        at_row = jnp.linalg.norm(-gradient - strength * W / jnp.where(norm > 0, norm, 1.0), axis=1)
        at_zero = jnp.maximum(jnp.linalg.norm(gradient, axis=1) - strength, 0.0)
        return jnp.sqrt(jnp.sum(jnp.where(norm[:, 0] > 0, at_row, at_zero) ** 2))


@dataclass(frozen=True)
class NoPenalty:
    """0: every task for itself, M = I. What a private method must beat before it has shared anything."""

    def value(self, W: Array) -> Array:
        return jnp.zeros((), W.dtype)

    def projection(self, sigma: Array, threshold: Array | float) -> Array:
        return jnp.eye(sigma.shape[0], dtype=sigma.dtype)

    def optimality(self, W: Array, gradient: Array, strength: Array | float) -> Array:
        return jnp.linalg.norm(gradient)


def prox(norm: Penalty, W: Array, threshold: Array | float) -> Array:
    """argmin_V 0.5 ||V - W||_F^2 + threshold g(V)."""
    return norm.projection(W @ W.T, threshold) @ W


def _shrinkage(second_moment: Array, threshold: Array | float) -> Array:
    """max(0, 1 - t / sqrt(x)), 0 where x is 0 or, by rounding, below."""
    root = jnp.sqrt(jnp.maximum(second_moment, 0.0))
    return jnp.where(root > threshold, 1 - threshold / jnp.where(root > 0, root, 1.0), 0.0)
