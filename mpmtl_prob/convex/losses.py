"""Losses of all tasks on their own rows: least squares and logistic loss.

A loss is a small object that a user picks, such as ``LeastSquares(strong_convexity=0.1)``. Its method ``of(tasks)`` binds it
to data and returns a :class:`Smooth`, a JAX pytree. The solvers take that as a traced argument, so that other data or another
mu of the same shape need no new compilation.

Source: TPAMI 2022, equation (1); section 4.5 for the strongly convex variant.
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
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray, aligned_zeros
from mpmtl_prob.data.gram import Gram
from mpmtl_prob.data.tasks import TaskData

_BLOCK = 8  # rows per block, all of one task; the last block is padded

#: (V, rho) -> argmin_W sum_i L_i(w_i) + (rho/2) ||W - V||_F^2, (d, m)
Resolvent = Callable[[Array, Array], Array]


class Smooth(Protocol):
    """Protocol class for a smooth loss sum_i L_i(w_i) that is bound to data. A JAX pytree."""

    def value(self, W: Array) -> Array:
        """Return L_i(w_i) of every task, (m,), for W (d, m)."""
        ...

    def gradient(self, W: Array) -> Array:
        """Return the gradients of L_i at w_i as columns, (d, m)."""
        ...

    def curvature(self) -> FloatArray:
        """Return a Lipschitz constant of the gradient of every L_i, (m,); the smallest one for least squares."""
        ...

    def resolvent(self) -> Resolvent | None:
        """Return the proximal operator of the loss for any rho, or None where it has no closed form."""
        ...


class Loss(Protocol):
    """Protocol class for a choice of the losses L_i, not yet bound to data."""

    @property
    def strong_convexity(self) -> float: ...

    def of(self, tasks: TaskData) -> Smooth:
        """Bind to data in the fastest form, for problems that couple the tasks anyway."""
        ...

    def alone(self, tasks: TaskData) -> Smooth:
        """Bind to data so that L_i, its gradient and its curvature depend on task i's own rows alone, in every bit.

        Other tasks' rows, and their number, change neither shapes nor the order of a sum.
        """
        ...


@dataclass(frozen=True)
class LeastSquares:
    """Least-squares loss L_i(w) = 0.5 ||X_i w - y_i||^2 + (mu/2) ||w||^2.

    Attributes:
        strong_convexity: mu >= 0, in squared units of X.
        average: divide the sum over rows by n_i.
    """

    strong_convexity: float = 0.0
    average: bool = False

    def __post_init__(self) -> None:
        _not_negative("strong_convexity", self.strong_convexity)

    def of(self, tasks: TaskData) -> Smooth:
        """Bind to the Gram matrices, or to the rows where there are fewer rows than features."""
        if tasks.longest >= tasks.num_features:
            return self.alone(tasks)
        groups = _similar(tasks.row_counts)
        parts = [tasks.take(at) if len(groups) > 1 else tasks for at in groups]
        bound = [SquaredRows(*_padded_rows(part, self.average), np.float64(self.strong_convexity)) for part in parts]
        return (
            bound[0] if len(groups) == 1 else InGroups(tuple(bound), tuple(groups), np.argsort(np.concatenate(groups)))
        )

    def alone(self, tasks: TaskData) -> Quadratic:
        """Bind to the Gram matrices, whose shapes are public, (m, d, d)."""
        return quadratic(tasks.gram, self.strong_convexity, average=self.average)


@dataclass(frozen=True)
class Logistic:
    """Logistic loss L_i(w) = sum_j log(1 + exp(-y_ij x_ij'w)) + (mu/2) ||w||^2, y_ij in {-1, 1}.

    Attributes:
        strong_convexity: mu >= 0, in squared units of X.
        average: divide the sum over rows by n_i.
    """

    strong_convexity: float = 0.0
    average: bool = False

    def __post_init__(self) -> None:
        _not_negative("strong_convexity", self.strong_convexity)

    def of(self, tasks: TaskData) -> LogisticRows | LogisticTable:
        """Bind to one row per subject where tasks share subjects, and else as :meth:`alone` does.

        Raises ValueError for targets other than -1 and 1.
        """
        self.check(tasks)
        table = _table(tasks, self.average)
        return self.alone(tasks) if table is None else LogisticTable(*table, np.float64(self.strong_convexity))

    def alone(self, tasks: TaskData) -> LogisticRows:
        """Bind to every task's own rows, in blocks of rows of one task. Raises as :meth:`of` does."""
        self.check(tasks)
        counts = tasks.row_counts
        blocks = -(-counts // _BLOCK)
        first = np.cumsum(blocks) - blocks
        size = _roomy(int(blocks.sum()))  # rounded up, so that programs are compiled for few sizes
        of_row = np.repeat(_BLOCK * first - tasks.offsets[:-1], counts) + np.arange(tasks.num_rows)
        X, y, weight = aligned_zeros(size * _BLOCK, tasks.num_features), *aligned_zeros(2, size * _BLOCK)
        X[of_row], y[of_row] = tasks.rows, tasks.targets
        weight[of_row] = np.repeat(1 / counts, counts) if self.average else 1.0
        # Padding blocks are at place 0, and nothing is added to them.
        task, place, last = np.zeros((3, size), dtype=np.int64)
        task[: blocks.sum()] = np.repeat(np.arange(tasks.num_tasks), blocks)
        place[: blocks.sum()] = np.arange(blocks.sum()) - np.repeat(first, blocks)
        last[: blocks.sum()] = np.repeat(blocks - 1, blocks)
        shape = size, _BLOCK
        return LogisticRows(
            X=X.reshape(*shape, tasks.num_features),
            y=y.reshape(shape),
            weight=weight.reshape(shape),
            mu=np.float64(self.strong_convexity),
            task=task,
            place=place,
            last=last,
            first=first,
            turns=np.int64(int(blocks.max() - 1).bit_length()),
        )

    def check(self, tasks: TaskData) -> None:
        """Raise ValueError for targets other than -1 and 1."""
        if not np.all(np.abs(tasks.targets) == 1):
            raise ValueError("tasks: expected targets -1 and 1 for the logistic loss, got others")


@partial(jax.tree_util.register_dataclass, data_fields=["xx", "xy", "yy"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class Quadratic:
    """Least-squares loss from sufficient statistics: 0.5 w'(xx_i)w - xy_i'w + 0.5 yy_i.

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
        """Return v -> (xx_i + rho I)^{-1} (xy_i + rho v_i), from one eigendecomposition per task."""
        eigenvalues, U = jnp.linalg.eigh(self.xx)
        projected = jnp.einsum("tij,ti->tj", U, self.xy)

        def nearest(V: Array, rho: Array) -> Array:
            z = (projected + rho * jnp.einsum("tij,it->tj", U, V)) / (jnp.maximum(eigenvalues, 0.0) + rho)
            return jnp.einsum("tij,tj->it", U, z)

        return nearest


@dataclass(frozen=True, eq=False, repr=False)
class SquaredRows:
    """Least-squares loss from rows: the sum of weight * 0.5 (x'w - y)^2, plus (mu/2) ||w||^2.

    Attributes:
        X: (m, n, d), zero on padding.
        y: (m, n).
        weight: weight of every row, zero on padding, (m, n).
        mu: strong convexity.
    """

    X: Any
    y: Any
    weight: Any
    mu: Any

    def curvature(self) -> FloatArray:
        rows = zip(np.asarray(self.X), np.asarray(self.weight), strict=True)
        return np.array([_largest_eigenvalue(X, weight) for X, weight in rows]) + np.asarray(self.mu)

    def value(self, W: Array) -> Array:
        error = jnp.einsum("tnj,jt->tn", self.X, W) - self.y
        return 0.5 * (jnp.sum(self.weight * error**2, axis=1) + self.mu * jnp.sum(W**2, axis=0))

    def gradient(self, W: Array) -> Array:
        slope = self.weight * (jnp.einsum("tnj,jt->tn", self.X, W) - self.y)
        return jnp.einsum("tnj,tn->jt", self.X, slope) + self.mu * W

    def resolvent(self) -> Resolvent:
        """Return the prox by (A'A + s I)^{-1} b = (b - A'(A A' + s I)^{-1} A b) / s, A the weighted rows, s = mu + rho."""
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


@partial(jax.tree_util.register_dataclass, data_fields=["parts", "groups", "order"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class InGroups:
    """Loss of tasks in several groups of similar numbers of rows, which limits padding.

    Attributes:
        parts: the loss of every group.
        groups: positions of every group's tasks.
        order: position of every task after the groups are concatenated, (m,).
    """

    parts: tuple[Smooth, ...]
    groups: tuple[Any, ...]
    order: Any

    def value(self, W: Array) -> Array:
        return self._together([part.value(W[:, at]) for part, at in self._each()])

    def gradient(self, W: Array) -> Array:
        return self._together([part.gradient(W[:, at]) for part, at in self._each()])

    def curvature(self) -> FloatArray:
        return np.concatenate([part.curvature() for part in self.parts])[np.asarray(self.order)]

    def resolvent(self) -> Resolvent | None:
        resolvents = [part.resolvent() for part in self.parts]

        def nearest(V: Array, rho: Array) -> Array:
            return self._together(
                [
                    nearest_of_part(V[:, at], rho)
                    for nearest_of_part, (_, at) in zip(resolvents, self._each(), strict=True)
                    if nearest_of_part
                ]
            )

        return None if None in resolvents else nearest

    def _each(self) -> list[tuple[Smooth, Array]]:
        return [(part, jnp.asarray(at).astype(int)) for part, at in zip(self.parts, self.groups, strict=True)]

    def _together(self, parts: list[Array]) -> Array:
        return jnp.concatenate(parts, axis=-1)[..., jnp.asarray(self.order).astype(int)]


_OF_ROWS = ["X", "y", "weight", "mu", "task", "place", "last", "first", "turns"]


@partial(jax.tree_util.register_dataclass, data_fields=_OF_ROWS, meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogisticRows:
    """Logistic loss from rows: the sum of weight * log(1 + exp(-y x'w)), plus (mu/2) ||w||^2.

    Rows are in blocks of _BLOCK rows of one task. The sums of all blocks are computed in parallel. The blocks of a task are
    then added in pairs, pairs of pairs, and so on, in an order that depends only on the number of the task's blocks.

    Attributes:
        X: (b, _BLOCK, d), zero on padding.
        y: (b, _BLOCK).
        weight: weight of every row, zero on padding, (b, _BLOCK).
        mu: strong convexity.
        task: the task of every block, (b,).
        place: position of a block among its task's blocks, from 0, (b,).
        last: position of the last block of its task, (b,).
        first: index of the first block of every task, (m,).
        turns: number of rounds of adding pairs, for the task with most blocks.
    """

    X: Any
    y: Any
    weight: Any
    mu: Any
    task: Any
    place: Any
    last: Any
    first: Any
    turns: Any

    _bend: ClassVar[float] = 0.25  # the largest second derivative of log(1 + exp(-z))

    def value(self, W: Array) -> Array:
        block_sums = jnp.sum(self.weight * _log_loss(self._margins(W), self.y), axis=1)
        return self._by_task(block_sums) + 0.5 * self.mu * jnp.sum(W**2, axis=0)

    def gradient(self, W: Array) -> Array:
        slope = self.weight * _log_slope(self._margins(W), self.y)
        return self._by_task(jnp.einsum("bnj,bn->bj", self.X, slope)).T + self.mu * W

    def curvature(self) -> FloatArray:
        X, weight, first = (np.asarray(part) for part in (self.X, self.weight, self.first))
        ends = first + np.asarray(self.last)[first] + 1
        rows = ((X[a:b].reshape(-1, X.shape[2]), weight[a:b].ravel()) for a, b in zip(first, ends, strict=True))
        return self._bend * np.array([_largest_eigenvalue(*task_rows) for task_rows in rows]) + np.asarray(self.mu)

    def resolvent(self) -> Resolvent | None:
        return None

    def scale(self, by: FloatArray) -> None:
        """Multiply the features of task i by ``by[i]``, (m, d), in place: NumPy arrays that nobody else uses yet."""
        np.multiply(self.X, by[self.task][:, None], out=self.X)

    def _margins(self, W: Array) -> Array:
        return jnp.einsum("bnj,bj->bn", self.X, W.T[jnp.asarray(self.task).astype(int)])

    def _by_task(self, blocks: Array) -> Array:
        """Sum blocks, (b, ...), by task, (m, ...), in a loop whose number of rounds is not known when it is compiled.

        The number of rounds depends on the size of one task, which must not change the order of summation for others. The
        loop can be differentiated in forward mode only.
        """
        # The loss must be an argument of the compiled function, as it is everywhere in this library. If it were a constant,
        # XLA would know the number of rounds and unroll the loop, and the rounding of other tasks would depend on it.
        place, last, first = (jnp.asarray(part).astype(int) for part in (self.place, self.last, self.first))
        here = jnp.arange(len(blocks))

        def pairs(turn: Array, total: Array) -> Array:
            step = jnp.left_shift(1, turn)
            other = total[jnp.minimum(here + step, len(blocks) - 1)]
            has = (place % (2 * step) == 0) & (place + step <= last)
            # Adding -0.0 changes no number.
            return total + jnp.where(has.reshape(-1, *(1,) * (blocks.ndim - 1)), other, -0.0)

        return jax.lax.fori_loop(0, jnp.asarray(self.turns).astype(int), pairs, blocks)[first]


@partial(jax.tree_util.register_dataclass, data_fields=["X", "y", "weight", "mu"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class LogisticTable:
    """Logistic loss of tasks that share subjects, each task being one target of them: one product with X for all tasks.

    Attributes:
        X: features of every subject, (subjects, d).
        y: targets, (subjects, m).
        weight: weight of every target, zero where it was not observed, (subjects, m).
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
        return (
            LogisticRows._bend * np.array([_largest_eigenvalue(X, weight) for weight in np.asarray(self.weight).T]) + mu
        )

    def resolvent(self) -> Resolvent | None:
        return None


jax.tree_util.register_dataclass(SquaredRows, data_fields=["X", "y", "weight", "mu"], meta_fields=[])


def quadratic(gram: Gram, strong_convexity: float = 0.0, *, average: bool = False) -> Quadratic:
    """Return the least-squares loss from the sufficient statistics alone."""
    xx, xy, yy = gram.xx, gram.xy, gram.yy  # not copied unless necessary, as xx is large
    if average:
        share = 1 / gram.n
        xx, xy, yy = xx * share[:, None, None], xy * share[:, None], yy * share
    if strong_convexity:
        xx = xx + strong_convexity * np.eye(xx.shape[-1])
    return Quadratic(xx, xy, yy)


def _log_loss(margin: Array, y: Array) -> Array:
    """Return log(1 + exp(-y x'w))."""
    return jax.nn.softplus(-y * margin)


def _log_slope(margin: Array, y: Array) -> Array:
    """Return the derivative of :func:`_log_loss` in x'w."""
    return -y * jax.nn.sigmoid(-y * margin)


def _table(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Return X (subjects, d), y and weights (subjects, m) of tasks that share subjects.

    Return None if most subjects are in few tasks, if a subject has several rows in one task, or if its features differ
    between tasks.
    """
    if tasks.subjects is None:
        return None
    m, task, rows = tasks.num_tasks, tasks.task_of_rows, tasks.rows
    subjects, first, place = np.unique(tasks.subjects, return_index=True, return_inverse=True)
    if len(subjects) * m > 2 * len(task):  # the table would be mostly empty
        return None
    once = len(np.unique(place * m + task)) == len(task)
    if not once or not np.array_equal(rows[first][place], rows):
        return None
    weight, y = np.zeros((2, len(subjects), m))
    weight[place, task], y[place, task] = 1.0, tasks.targets
    return rows[first], y, weight / weight.sum(axis=0) if average else weight


def _padded_rows(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return padded X (m, n, d), y and weights (m, n), with n rounded up, so that programs are compiled for few sizes."""
    weight = tasks.mask.astype(np.float64)
    if average:
        weight /= weight.sum(axis=1, keepdims=True)
    more = _roomy(tasks.longest, 1) - tasks.longest

    def wider(array: FloatArray) -> FloatArray:
        return np.pad(array, [(0, 0), (0, more)] + [(0, 0)] * (array.ndim - 2)) if more else array

    return wider(tasks.X), wider(tasks.y), wider(weight)


def _similar(counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return positions of tasks in groups: one group if padding to the longest at most doubles the rows, else by size."""
    if counts.max() * len(counts) <= 2 * counts.sum():
        return [np.arange(len(counts))]
    doublings = np.frexp(counts - 0.5)[1]
    return [np.flatnonzero(doublings == power) for power in np.unique(doublings)]


def _roomy(size: int, least: int = 64) -> int:
    """Round a size up to one of few sizes, by a quarter at most; return at least ``least``."""
    step = max(least, 2 ** (int(size - 1).bit_length() - 3))
    return -(-size // step) * step


def _largest_eigenvalue(X: FloatArray, weight: FloatArray) -> float:
    """Return the largest eigenvalue of sum_j weight_j x_j x_j' over one task's own rows."""
    observed = weight > 0
    A = X[observed] * np.sqrt(weight[observed])[:, None]
    # A'A and A A' have the same largest eigenvalue, and the smaller matrix is cheaper.
    return float(np.linalg.eigvalsh(A @ A.T if len(A) < A.shape[1] else A.T @ A)[-1])


def _not_negative(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: expected a number >= 0, got {value!r}")
