"""What every task minimises on its own rows: least squares or logistic loss, for all tasks at once.

A loss is a small object that a user picks, such as ``LeastSquares(strong_convexity=0.1)``. Its ``of(tasks)`` binds it to
data and gives a :class:`Smooth`, a JAX pytree: the solvers take that as a traced argument, so other data or another mu of
the same shape compile nothing anew.

Source: TPAMI 2022, equation (1); spec of the strongly convex variant: section 4.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob._chunks import in_chunks
from mpmtl_prob.tasks import FloatArray, Gram, TaskData

#: (V, rho) -> argmin_W sum_i L_i(w_i) + (rho/2) ||W - V||_F^2, (d, m)
Resolvent = Callable[[Array, Array], Array]


class Smooth(Protocol):
    """sum_i L_i(w_i), bound to data. A JAX pytree."""

    def value(self, W: Array) -> Array:
        """L_i(w_i) of every task, (m,), for W (d, m)."""
        ...

    def gradient(self, W: Array) -> Array:
        """(d, m), column i the gradient of L_i at w_i."""
        ...

    def curvature(self) -> FloatArray:
        """A Lipschitz constant of the gradient of every L_i, (m,); the smallest there is for least squares."""
        ...

    def resolvent(self) -> Resolvent | None:
        """The prox of the loss, ready for any rho, where it has a closed form."""
        ...


class Loss(Protocol):
    """A choice of L_i."""

    @property
    def strong_convexity(self) -> float: ...

    def of(self, tasks: TaskData) -> Smooth: ...


@dataclass(frozen=True)
class LeastSquares:
    """L_i(w) = 0.5 ||X_i w - y_i||^2 + (mu/2) ||w||^2.

    Attributes:
        strong_convexity: mu >= 0, in squared units of X.
        average: divide the sum over rows by n_i.
    """

    strong_convexity: float = 0.0
    average: bool = False

    def __post_init__(self) -> None:
        _not_negative("strong_convexity", self.strong_convexity)

    def of(self, tasks: TaskData) -> Smooth:
        """Through the Gram matrices, or through the rows where those are fewer than features."""
        if tasks.mask.shape[1] < tasks.num_features:
            return SquaredRows(*_rows(tasks, self.average), np.float64(self.strong_convexity))
        return quadratic(tasks.gram, self.strong_convexity, average=self.average)


@dataclass(frozen=True)
class Logistic:
    """L_i(w) = sum_j log(1 + exp(-y_ij x_ij'w)) + (mu/2) ||w||^2, y_ij in {-1, 1}.

    Attributes:
        strong_convexity: mu >= 0, in squared units of X.
        average: divide the sum over rows by n_i.
    """

    strong_convexity: float = 0.0
    average: bool = False

    def __post_init__(self) -> None:
        _not_negative("strong_convexity", self.strong_convexity)

    def of(self, tasks: TaskData) -> Smooth:
        """Raises ValueError for targets that are not -1 or 1."""
        if not np.all(np.abs(tasks.y[tasks.mask]) == 1):
            raise ValueError("tasks: expected targets -1 and 1 for the logistic loss, got others")
        return LogisticRows(*_rows(tasks, self.average), np.float64(self.strong_convexity))


@partial(jax.tree_util.register_dataclass, data_fields=["xx", "xy", "yy"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class Quadratic:
    """0.5 w'(xx_i)w - xy_i'w + 0.5 yy_i: what least squares needs to know of its rows.

    Attributes:
        xx: (m, d, d).
        xy: (m, d).
        yy: (m,).
    """

    xx: Any
    xy: Any
    yy: Any

    def value(self, W: Array) -> Array:
        V = W.T
        return 0.5 * jnp.sum(V * (jnp.einsum("tij,tj->ti", self.xx, V) - 2 * self.xy), axis=1) + 0.5 * self.yy

    def gradient(self, W: Array) -> Array:
        return (jnp.einsum("tij,jt->ti", self.xx, W) - self.xy).T

    def curvature(self) -> FloatArray:
        return np.linalg.eigvalsh(self.xx)[:, -1]

    def resolvent(self) -> Resolvent:
        """(xx_i + rho I)^{-1} (xy_i + rho v_i), through one eigendecomposition of every task."""
        eigenvalues, U = jnp.linalg.eigh(self.xx)
        projected = jnp.einsum("tij,ti->tj", U, self.xy)

        def nearest(V: Array, rho: Array) -> Array:
            z = (projected + rho * jnp.einsum("tij,it->tj", U, V)) / (jnp.maximum(eigenvalues, 0.0) + rho)
            return jnp.einsum("tij,tj->it", U, z)

        return nearest


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """A sum over rows of weight * phi(x'w, y), plus (mu/2) ||w||^2.

    Attributes:
        X: (m, n, d), zero on padding.
        y: (m, n).
        weight: of every row, zero on padding, (m, n).
        mu: strong convexity.
    """

    X: Any
    y: Any
    weight: Any
    mu: Any

    def _phi(self, margin: Array) -> Array:
        raise NotImplementedError

    def _slope(self, margin: Array) -> Array:
        raise NotImplementedError

    def value(self, W: Array) -> Array:
        phi = self._phi(jnp.einsum("tnj,jt->tn", self.X, W))
        return jnp.sum(self.weight * phi, axis=1) + 0.5 * self.mu * jnp.sum(W**2, axis=0)

    def gradient(self, W: Array) -> Array:
        slope = self.weight * self._slope(jnp.einsum("tnj,jt->tn", self.X, W))
        return jnp.einsum("tnj,tn->jt", self.X, slope) + self.mu * W

    def curvature(self) -> FloatArray:
        rows, weight = np.asarray(self.X), np.asarray(self.weight)
        m, n, d = rows.shape
        largest = np.empty(m)

        def one(part: slice) -> None:
            # the largest eigenvalue of X'X is that of X X', and the smaller of the two is cheaper
            X = rows[part] * np.sqrt(weight[part])[..., None]
            gram = X @ np.swapaxes(X, 1, 2) if n < d else np.swapaxes(X, 1, 2) @ X
            largest[part] = np.linalg.eigvalsh(gram)[:, -1]

        in_chunks(one, m, bytes_per_task=8 * n * d)
        return self._bend * largest + np.asarray(self.mu)

    def resolvent(self) -> Resolvent | None:
        return None

    _bend = 1.0  # the largest second derivative of phi


class SquaredRows(_Rows):
    """phi = 0.5 (x'w - y)^2."""

    def _phi(self, margin: Array) -> Array:
        return 0.5 * (margin - self.y) ** 2

    def _slope(self, margin: Array) -> Array:
        return margin - self.y

    def resolvent(self) -> Resolvent:
        """(A'A + s I)^{-1} b = (b - A'(A A' + s I)^{-1} A b) / s, with A the weighted rows and s = mu + rho."""
        root = jnp.sqrt(self.weight)
        A = self.X * root[..., None]
        eigenvalues, U = jnp.linalg.eigh(jnp.einsum("tnj,tkj->tnk", A, A))
        A = jnp.einsum("tnk,tnj->tkj", U, A)  # A A' is diagonal in this basis
        xy = jnp.einsum("tnj,tn->jt", self.X, self.weight * self.y)

        def nearest(V: Array, rho: Array) -> Array:
            s, b = self.mu + rho, xy + rho * V
            inner = jnp.einsum("tkj,jt->tk", A, b) / (jnp.maximum(eigenvalues, 0.0) + s)
            return (b - jnp.einsum("tkj,tk->jt", A, inner)) / s

        return nearest


class LogisticRows(_Rows):
    """phi = log(1 + exp(-y x'w))."""

    _bend = 0.25

    def _phi(self, margin: Array) -> Array:
        return jax.nn.softplus(-self.y * margin)

    def _slope(self, margin: Array) -> Array:
        return -self.y * jax.nn.sigmoid(-self.y * margin)


for _kind in (SquaredRows, LogisticRows):
    jax.tree_util.register_dataclass(_kind, data_fields=["X", "y", "weight", "mu"], meta_fields=[])


def quadratic(gram: Gram, strong_convexity: float = 0.0, *, average: bool = False) -> Quadratic:
    """Least squares from the sufficient statistics alone."""
    share = 1 / gram.n if average else np.ones(len(gram.n))
    ridge = strong_convexity * np.eye(gram.xx.shape[-1])
    return Quadratic(gram.xx * share[:, None, None] + ridge, gram.xy * share[:, None], gram.yy * share)


def _rows(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    weight = tasks.mask.astype(np.float64)
    return tasks.X, tasks.y, weight / weight.sum(axis=1, keepdims=True) if average else weight


def _not_negative(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: expected a number >= 0, got {value!r}")
