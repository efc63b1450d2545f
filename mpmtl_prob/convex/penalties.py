"""Convex penalties on the weights W (d x m): value, proximal operator, and distance from optimality.

:class:`TraceNorm` and :class:`GroupLasso` act on W only through its second moment: prox_t(W) = M W with M a function of
W W'. The MP-MTL algorithms compute the same M from a perturbed second moment, which is their only connection to the
non-private solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array


class Penalty(Protocol):
    """Protocol class for a convex penalty strength * g(W). It must be hashable, as it is static under jit."""

    #: True if g is a sum over tasks, so that every task may have its own step size
    separable: ClassVar[bool]
    #: 1 for a norm, whose strength has the units of a gradient; 2 for a square; 0 for no penalty
    degree: ClassVar[int]

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        """Return strength * g(W)."""
        ...

    def prox(self, W: Array, threshold: Any) -> Array:
        """Return the proximal operator, argmin_V 0.5 ||V - W||_F^2 + threshold g(V)."""
        ...

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        """Return the Frobenius distance of -gradient to strength * (subdifferential of g at W); 0 exactly at an optimum."""
        ...


@runtime_checkable
class SharedPenalty(Penalty, Protocol):
    """Protocol class for a penalty whose prox multiplies W by a function of its second moment."""

    def projection(self, sigma: Array, threshold: Any) -> Array:
        """Return M, (d, d), with M W = prox_{threshold g}(W) if sigma = W W'."""
        ...


@dataclass(frozen=True)
class TraceNorm:
    """Trace norm ||W||_* (nuclear norm), the sum of singular values: tasks share a subspace.

    Attributes:
        factors: number of leading eigenvectors of the second moment that the projection uses; None uses all d. The papers
            have min(d, m), which for d > m reduces the rank of M to m and contradicts their Proposition 1.
    """

    factors: int | None = None

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(jnp.linalg.svd(W, compute_uv=False))

    def projection(self, sigma: Array, threshold: Any) -> Array:
        """Return U diag(max(0, 1 - t / sqrt(Lambda_jj))) U', sigma = U Lambda U' (Algorithm 2, steps 6 to 8)."""
        eigenvalues, U = jnp.linalg.eigh(sigma)  # ascending
        shrinkage = _shrinkage(eigenvalues, threshold)
        if self.factors is not None:
            shrinkage = jnp.where(jnp.arange(len(shrinkage)) >= len(shrinkage) - self.factors, shrinkage, 0.0)
        return (U * shrinkage) @ U.T

    def prox(self, W: Array, threshold: Any) -> Array:
        """Reduce the singular values by the threshold."""
        if W.shape[0] > W.shape[1]:  # W and W' have the same singular values: decompose the smaller second moment
            return self.prox(W.T, threshold).T
        return self.projection(W @ W.T, threshold) @ W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        # The subdifferential at W = U S V' is U V' + N, with U'N = 0, N V = 0 and a spectral norm of N of at most 1.
        U, s, Vt = jnp.linalg.svd(W, full_matrices=False)
        active = (s > jnp.finfo(W.dtype).eps * max(W.shape) * s[0]).astype(W.dtype)
        U, Vt = U * active, Vt * active[:, None]
        D = -gradient
        free = D - U @ (U.T @ D) - (D @ Vt.T) @ Vt + U @ (U.T @ D @ Vt.T) @ Vt  # (I - UU') D (I - VV')
        tight = D - free - strength * U @ Vt
        excess = jnp.maximum(jnp.linalg.svd(free, compute_uv=False) - strength, 0.0)
        return jnp.sqrt(jnp.sum(tight**2) + jnp.sum(excess**2))


@dataclass(frozen=True)
class SquaredTraceNorm:
    """Squared trace norm 0.5 ||W||_*^2, the minimum of 0.5 tr(W Omega^{-1} W') over task relations Omega with unit trace.

    The minimum is at Omega = (W'W)^{1/2} / tr (W'W)^{1/2}, so that this is multi-task relationship learning.

    Source: Zhang and Yeung (2010), section 2.2, with Omega minimised out.
    """

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 2

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * 0.5 * jnp.sum(jnp.linalg.svd(W, compute_uv=False)) ** 2

    def prox(self, W: Array, threshold: Any) -> Array:
        """Map singular values s to max(s - t S, 0), where S is the sum of the results."""
        U, s, Vt = jnp.linalg.svd(W, full_matrices=False)  # descending
        k = jnp.arange(1, len(s) + 1, dtype=s.dtype)
        total = jnp.cumsum(s) / (1 + threshold * k)  # S if the first k remain positive
        count = jnp.sum(s > threshold * total)
        remaining = jnp.where(count > 0, total[jnp.maximum(count - 1, 0)], 0.0)
        return (U * jnp.maximum(s - threshold * remaining, 0.0)) @ Vt

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        return TraceNorm().optimality(W, gradient, strength * TraceNorm().value(W))  # chain rule


@dataclass(frozen=True)
class GroupLasso:
    """Group lasso ||W||_{2,1}, the sum of row norms: tasks share a set of features."""

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(jnp.linalg.norm(W, axis=1))

    def projection(self, sigma: Array, threshold: Any) -> Array:
        """Return diag(max(0, 1 - t / sqrt(Sigma_jj))) (Algorithm 3, steps 6 and 7)."""
        return jnp.diag(_shrinkage(jnp.diagonal(sigma), threshold))

    def prox(self, W: Array, threshold: Any) -> Array:
        """Reduce the row norms by the threshold."""
        return _shrinkage(jnp.sum(W**2, axis=1, keepdims=True), threshold) * W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        norm = jnp.linalg.norm(W, axis=1, keepdims=True)
        at_row = jnp.linalg.norm(-gradient - strength * W / jnp.where(norm > 0, norm, 1.0), axis=1)
        at_zero = jnp.maximum(jnp.linalg.norm(gradient, axis=1) - strength, 0.0)
        return jnp.sqrt(jnp.sum(jnp.where(norm[:, 0] > 0, at_row, at_zero) ** 2))


@dataclass(frozen=True)
class ColumnGroupLasso:
    """Group lasso over tasks ||W||_{1,2}, the sum of column norms: few tasks differ from the others."""

    separable: ClassVar[bool] = True
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return GroupLasso().value(W.T, strength)

    def prox(self, W: Array, threshold: Any) -> Array:
        """Reduce the column norms by the threshold, a number or one per task."""
        return _shrinkage(jnp.sum(W**2, axis=0), threshold) * W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        return GroupLasso().optimality(W.T, gradient.T, strength)


@dataclass(frozen=True)
class L1:
    """Lasso penalty, the sum of absolute values."""

    separable: ClassVar[bool] = True
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(jnp.abs(W))

    def prox(self, W: Array, threshold: Any) -> Array:
        """Return sign(w) max(0, |w| - t), with t a number or one per task (Algorithm 4, the update of Q)."""
        return jnp.sign(W) * jnp.maximum(jnp.abs(W) - threshold, 0.0)

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        at_zero = jnp.maximum(jnp.abs(gradient) - strength, 0.0)
        return jnp.linalg.norm(jnp.where(W == 0, at_zero, gradient + strength * jnp.sign(W)))


@dataclass(frozen=True)
class SquaredFrobenius:
    """Squared Frobenius norm ||W||_F^2, a ridge penalty."""

    separable: ClassVar[bool] = True
    degree: ClassVar[int] = 2

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(W**2)

    def prox(self, W: Array, threshold: Any) -> Array:
        return W / (1 + 2 * threshold)

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        return jnp.linalg.norm(gradient + 2 * strength * W)


@dataclass(frozen=True)
class NoPenalty:
    """Zero penalty, with M = I: every task is fitted alone. It is the baseline for methods that share."""

    separable: ClassVar[bool] = True
    degree: ClassVar[int] = 0

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return jnp.zeros((), W.dtype)

    def projection(self, sigma: Array, threshold: Any) -> Array:
        return jnp.eye(sigma.shape[0], dtype=sigma.dtype)

    def prox(self, W: Array, threshold: Any) -> Array:
        return W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        return jnp.linalg.norm(gradient)


@dataclass(frozen=True)
class Sum:
    """Sum g_1(P) + g_2(Q) of penalties on two stacked parts [P; Q], (2d, m). Strengths and thresholds are pairs.

    Attributes:
        first: g_1, for example :class:`TraceNorm`.
        second: g_2, for example :class:`L1`.
    """

    first: Penalty
    second: Penalty

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = (1.0, 1.0)) -> Array:
        P, Q = jnp.split(W, 2)
        return self.first.value(P, strength[0]) + self.second.value(Q, strength[1])

    def prox(self, W: Array, threshold: Any) -> Array:
        P, Q = jnp.split(W, 2)
        return jnp.concatenate([self.first.prox(P, threshold[0]), self.second.prox(Q, threshold[1])])

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        (P, Q), (G, H) = jnp.split(W, 2), jnp.split(gradient, 2)
        return jnp.hypot(self.first.optimality(P, G, strength[0]), self.second.optimality(Q, H, strength[1]))


def _shrinkage(second_moment: Array, threshold: Any) -> Array:
    """Return max(0, 1 - t / sqrt(x)), and 0 where x is 0 or negative by rounding."""
    root = jnp.sqrt(jnp.maximum(second_moment, 0.0))
    return jnp.where(root > threshold, 1 - threshold / jnp.where(root > 0, root, 1.0), 0.0)
