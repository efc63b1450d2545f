"""Penalties on the weights W (d x m): value, proximal operator, distance from optimality.

:class:`TraceNorm` and :class:`GroupLasso` act on W only through its second moment: prox_t(W) = M W with M a function of
W W'. The MP-MTL algorithms read the same M off a perturbed second moment, which is all that connects them to the
non-private solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array


class Penalty(Protocol):
    """g(W), convex. Hashable: static under jit. A strength multiplies it: strength * g(W)."""

    #: whether g is a sum over tasks, so that every task may step at its own pace
    separable: ClassVar[bool]
    #: 1 for a norm, whose strength has the units of a gradient; 2 for a square; 0 for nothing
    degree: ClassVar[int]

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        """strength * g(W)."""
        ...

    def prox(self, W: Array, threshold: Any) -> Array:
        """argmin_V 0.5 ||V - W||_F^2 + threshold g(V)."""
        ...

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        """Frobenius distance of -gradient to strength * (subdifferential of g at W); 0 exactly at an optimum."""
        ...


@runtime_checkable
class SharedPenalty(Penalty, Protocol):
    """A penalty whose prox multiplies W by a function of its second moment."""

    def projection(self, sigma: Array, threshold: Any) -> Array:
        """M, (d, d), such that M W = prox_{threshold g}(W) when sigma = W W'."""
        ...


@dataclass(frozen=True)
class TraceNorm:
    """||W||_*, the sum of singular values: tasks share a subspace.

    Attributes:
        factors: how many leading factors of a second moment the projection fills; None fills all d. The papers print
            min(d, m), which for d > m forces the rank of M down to m and breaks their Proposition 1.
    """

    factors: int | None = None

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(jnp.linalg.svd(W, compute_uv=False))

    def projection(self, sigma: Array, threshold: Any) -> Array:
        """U diag(max(0, 1 - t / sqrt(Lambda_jj))) U', sigma = U Lambda U' (Algorithm 2, steps 6 to 8)."""
        eigenvalues, U = jnp.linalg.eigh(sigma)  # ascending
        shrinkage = _shrinkage(eigenvalues, threshold)
        if self.factors is not None:
            shrinkage = jnp.where(jnp.arange(len(shrinkage)) >= len(shrinkage) - self.factors, shrinkage, 0.0)
        return (U * shrinkage) @ U.T

    def prox(self, W: Array, threshold: Any) -> Array:
        """Singular values reduced by the threshold."""
        if W.shape[0] > W.shape[1]:  # W and W' have the same singular values: decompose the smaller second moment
            return self.prox(W.T, threshold).T
        return self.projection(W @ W.T, threshold) @ W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        # subdifferential at W = U S V' of rank r: U V' + N, with U'N = 0, N V = 0 and spectral norm of N at most 1
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
    """0.5 ||W||_*^2: the least of 0.5 tr(W Omega^{-1} W') over task relations Omega with unit trace.

    The least is at Omega = (W'W)^{1/2} / tr (W'W)^{1/2}, which makes this multi-task relationship learning.

    Source: Zhang and Yeung (2010), section 2.2, with Omega minimised out.
    """

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 2

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * 0.5 * jnp.sum(jnp.linalg.svd(W, compute_uv=False)) ** 2

    def prox(self, W: Array, threshold: Any) -> Array:
        """Singular values s -> max(s - t S, 0), S the sum of what remains."""
        U, s, Vt = jnp.linalg.svd(W, full_matrices=False)  # descending
        k = jnp.arange(1, len(s) + 1, dtype=s.dtype)
        total = jnp.cumsum(s) / (1 + threshold * k)  # S, were the first k to remain
        count = jnp.sum(s > threshold * total)
        remaining = jnp.where(count > 0, total[jnp.maximum(count - 1, 0)], 0.0)
        return (U * jnp.maximum(s - threshold * remaining, 0.0)) @ Vt

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        return TraceNorm().optimality(W, gradient, strength * TraceNorm().value(W))  # chain rule


@dataclass(frozen=True)
class GroupLasso:
    """||W||_{2,1}, the sum of row norms: tasks share a set of features."""

    separable: ClassVar[bool] = False
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(jnp.linalg.norm(W, axis=1))

    def projection(self, sigma: Array, threshold: Any) -> Array:
        """diag(max(0, 1 - t / sqrt(Sigma_jj))) (Algorithm 3, steps 6 and 7)."""
        return jnp.diag(_shrinkage(jnp.diagonal(sigma), threshold))

    def prox(self, W: Array, threshold: Any) -> Array:
        """Row norms reduced by the threshold."""
        return _shrinkage(jnp.sum(W**2, axis=1, keepdims=True), threshold) * W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        norm = jnp.linalg.norm(W, axis=1, keepdims=True)
        at_row = jnp.linalg.norm(-gradient - strength * W / jnp.where(norm > 0, norm, 1.0), axis=1)
        at_zero = jnp.maximum(jnp.linalg.norm(gradient, axis=1) - strength, 0.0)
        return jnp.sqrt(jnp.sum(jnp.where(norm[:, 0] > 0, at_row, at_zero) ** 2))


@dataclass(frozen=True)
class ColumnGroupLasso:
    """||W||_{1,2}, the sum of column norms: few tasks differ from the rest."""

    separable: ClassVar[bool] = True
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return GroupLasso().value(W.T, strength)

    def prox(self, W: Array, threshold: Any) -> Array:
        """Column norms reduced by the threshold, a number or one per task."""
        return _shrinkage(jnp.sum(W**2, axis=0), threshold) * W

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        return GroupLasso().optimality(W.T, gradient.T, strength)


@dataclass(frozen=True)
class L1:
    """The sum of absolute values."""

    separable: ClassVar[bool] = True
    degree: ClassVar[int] = 1

    def value(self, W: Array, strength: Any = 1.0) -> Array:
        return strength * jnp.sum(jnp.abs(W))

    def prox(self, W: Array, threshold: Any) -> Array:
        """sign(w) max(0, |w| - t), t a number or one per task (Algorithm 4, the update of Q)."""
        return jnp.sign(W) * jnp.maximum(jnp.abs(W) - threshold, 0.0)

    def optimality(self, W: Array, gradient: Array, strength: Any) -> Array:
        at_zero = jnp.maximum(jnp.abs(gradient) - strength, 0.0)
        return jnp.linalg.norm(jnp.where(W == 0, at_zero, gradient + strength * jnp.sign(W)))


@dataclass(frozen=True)
class SquaredFrobenius:
    """||W||_F^2."""

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
    """0: every task for itself, M = I. What a private method must beat before it has shared anything."""

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
    """g_1(P) + g_2(Q) of two parts stacked as one matrix [P; Q], (2d, m). Strengths and thresholds are pairs.

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
    """max(0, 1 - t / sqrt(x)), 0 where x is 0 or, by rounding, below."""
    root = jnp.sqrt(jnp.maximum(second_moment, 0.0))
    return jnp.where(root > threshold, 1 - threshold / jnp.where(root > 0, root, 1.0), 0.0)
