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
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.gram import Gram
from mpmtl_prob.data.tasks import TaskData

_BLOCK = 32  # rows

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

    def of(self, tasks: TaskData) -> Smooth:
        """The fastest form: for problems whose tasks are tied anyway."""
        ...

    def alone(self, tasks: TaskData) -> Smooth:
        """The form in which L_i, its gradient and its curvature are functions of task i's own rows down to the last bit:
        other tasks' rows, their number included, change neither shapes nor the order of a sum."""
        ...


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
        return self.alone(tasks)

    def alone(self, tasks: TaskData) -> Quadratic:
        """Through the Gram matrices, whose shapes are public, (m, d, d)."""
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

    def of(self, tasks: TaskData) -> LogisticRows | LogisticTable:
        """Through one row per subject where tasks share subjects, and else as :meth:`alone`.

        Raises ValueError for targets that are not -1 or 1.
        """
        self._check(tasks)
        table = _table(tasks, self.average)
        return self.alone(tasks) if table is None else LogisticTable(*table, np.float64(self.strong_convexity))

    def alone(self, tasks: TaskData) -> LogisticRows:
        """Through every task's own rows, added up block by block. Raises as :meth:`of`."""
        self._check(tasks)
        X, y, weight = _rows(tasks, self.average)
        blocks = -(-X.shape[1] // _BLOCK)
        # one block more than is added up: a block that is all there is would be compiled in another way
        short = [(0, 0), (0, (blocks + 1) * _BLOCK - X.shape[1])]
        X, y, weight = np.pad(X, [*short, (0, 0)]), np.pad(y, short), np.pad(weight, short)
        return LogisticRows(X, y, weight, np.float64(self.strong_convexity), np.int64(blocks))

    def _check(self, tasks: TaskData) -> None:
        if not np.all(np.abs(tasks.y[tasks.mask]) == 1):
            raise ValueError("tasks: expected targets -1 and 1 for the logistic loss, got others")


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

    _bend: ClassVar[float] = 1.0  # the largest second derivative of phi

    def curvature(self) -> FloatArray:
        rows = zip(np.asarray(self.X), np.asarray(self.weight), strict=True)
        return self._bend * np.array([_largest_eigenvalue(X, weight) for X, weight in rows]) + np.asarray(self.mu)


class SquaredRows(_Rows):
    """phi = 0.5 (x'w - y)^2."""

    def value(self, W: Array) -> Array:
        error = jnp.einsum("tnj,jt->tn", self.X, W) - self.y
        return 0.5 * (jnp.sum(self.weight * error**2, axis=1) + self.mu * jnp.sum(W**2, axis=0))

    def gradient(self, W: Array) -> Array:
        slope = self.weight * (jnp.einsum("tnj,jt->tn", self.X, W) - self.y)
        return jnp.einsum("tnj,tn->jt", self.X, slope) + self.mu * W

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


@dataclass(frozen=True, eq=False, repr=False)
class LogisticRows(_Rows):
    """phi = log(1 + exp(-y x'w)).

    Attributes:
        blocks: of _BLOCK rows each, that are added up; n is one block more.
    """

    blocks: Any

    _bend: ClassVar[float] = 0.25

    def value(self, W: Array) -> Array:
        def phi(X: Array, y: Array, weight: Array) -> Array:
            return jnp.sum(weight * _log_loss(jnp.einsum("tnj,jt->tn", X, W), y), axis=1)

        return self._sum(phi, jnp.zeros_like(W[0])) + 0.5 * self.mu * jnp.sum(W**2, axis=0)

    def gradient(self, W: Array) -> Array:
        def slope(X: Array, y: Array, weight: Array) -> Array:
            return jnp.einsum("tnj,tn->jt", X, weight * _log_slope(jnp.einsum("tnj,jt->tn", X, W), y))

        return self._sum(slope, jnp.zeros_like(W)) + self.mu * W

    def _sum(self, of: Callable[[Array, Array, Array], Array], zero: Array) -> Array:
        """Sum over blocks of rows, in a loop compiled without their number; it can be differentiated in forward mode only.

        The number of blocks follows from n_max, which tells of one task, and must not change the order in which the rows of
        another are added up.
        """
        # The loss has to be an argument of the compiled function, as it is everywhere in this library. Where it is a constant
        # of that function, XLA knows the number of blocks, unrolls the loop, and other tasks' last bits follow n_max.
        parts = (self.X, self.y, self.weight)

        def add(b: Array, total: Array) -> Array:
            return total + of(*(jax.lax.dynamic_slice_in_dim(part, b * _BLOCK, _BLOCK, 1) for part in parts))

        return jax.lax.fori_loop(0, jnp.asarray(self.blocks).astype(int), add, zero)

    def resolvent(self) -> Resolvent | None:
        return None


@partial(jax.tree_util.register_dataclass, data_fields=["X", "y", "weight", "mu"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class LogisticTable:
    """As :class:`LogisticRows`, for tasks that are several targets of the same subjects: one product with X for all tasks.

    Attributes:
        X: features of every subject, (subjects, d).
        y: targets, (subjects, m).
        weight: of every target, zero where none was observed, (subjects, m).
        mu: strong convexity.
    """

    X: Any
    y: Any
    weight: Any
    mu: Any

    def value(self, W: Array) -> Array:
        return jnp.sum(self.weight * _log_loss(self.X @ W, self.y), axis=0) + 0.5 * self.mu * jnp.sum(W**2, axis=0)

    def gradient(self, W: Array) -> Array:
        return self.X.T @ (self.weight * _log_slope(self.X @ W, self.y)) + self.mu * W

    def curvature(self) -> FloatArray:
        X, mu = np.asarray(self.X), np.asarray(self.mu)
        return LogisticRows._bend * np.array([_largest_eigenvalue(X, own) for own in np.asarray(self.weight).T]) + mu

    def resolvent(self) -> Resolvent | None:
        return None


jax.tree_util.register_dataclass(SquaredRows, data_fields=["X", "y", "weight", "mu"], meta_fields=[])
jax.tree_util.register_dataclass(LogisticRows, data_fields=["X", "y", "weight", "mu", "blocks"], meta_fields=[])


def quadratic(gram: Gram, strong_convexity: float = 0.0, *, average: bool = False) -> Quadratic:
    """Least squares from the sufficient statistics alone."""
    share = 1 / gram.n if average else np.ones(len(gram.n))
    ridge = strong_convexity * np.eye(gram.xx.shape[-1])
    return Quadratic(gram.xx * share[:, None, None] + ridge, gram.xy * share[:, None], gram.yy * share)


def _log_loss(margin: Array, y: Array) -> Array:
    """log(1 + exp(-y x'w))."""
    return jax.nn.softplus(-y * margin)


def _log_slope(margin: Array, y: Array) -> Array:
    """Its derivative in x'w."""
    return -y * jax.nn.sigmoid(-y * margin)


def _table(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """X (subjects, d), y and weights (subjects, m), of tasks that share subjects; None where these are another's in every
    task, have several rows in one, or features that differ between tasks."""
    if tasks.subject is None:
        return None
    task = np.nonzero(tasks.mask)[0]
    rows = tasks.X[tasks.mask]
    subjects, first, place = np.unique(tasks.subject[tasks.mask], return_index=True, return_inverse=True)
    once = len(np.unique(place * tasks.num_tasks + task)) == len(task)
    if not once or len(subjects) > 2 * tasks.mask.shape[1] or not np.array_equal(rows[first][place], rows):
        return None
    weight, y = np.zeros((2, len(subjects), tasks.num_tasks))
    weight[place, task], y[place, task] = 1.0, tasks.y[tasks.mask]
    return rows[first], y, weight / weight.sum(axis=0) if average else weight


def _rows(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    weight = tasks.mask.astype(np.float64)
    return tasks.X, tasks.y, weight / weight.sum(axis=1, keepdims=True) if average else weight


def _largest_eigenvalue(X: FloatArray, weight: FloatArray) -> float:
    """Of sum_j weight_j x_j x_j' over one task's own rows."""
    own = weight > 0
    A = X[own] * np.sqrt(weight[own])[:, None]
    # the largest eigenvalue of A'A is that of A A', and the smaller of the two is cheaper
    return float(np.linalg.eigvalsh(A @ A.T if len(A) < A.shape[1] else A.T @ A)[-1])


def _not_negative(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: expected a number >= 0, got {value!r}")
