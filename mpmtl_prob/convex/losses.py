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
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray, aligned_zeros
from mpmtl_prob.data.gram import Gram
from mpmtl_prob.data.tasks import TaskData

_BLOCK = 8  # rows of one task, the last one's filled up

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
        if tasks.longest >= tasks.num_features:
            return self.alone(tasks)
        groups = _similar(tasks.row_counts)
        parts = [tasks.take(at) if len(groups) > 1 else tasks for at in groups]
        bound = [SquaredRows(*_padded_rows(part, self.average), np.float64(self.strong_convexity)) for part in parts]
        return (
            bound[0] if len(groups) == 1 else InGroups(tuple(bound), tuple(groups), np.argsort(np.concatenate(groups)))
        )

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
        self.check(tasks)
        table = _table(tasks, self.average)
        return self.alone(tasks) if table is None else LogisticTable(*table, np.float64(self.strong_convexity))

    def alone(self, tasks: TaskData) -> LogisticRows:
        """Through every task's own rows, in blocks of one task's each. Raises as :meth:`of`."""
        self.check(tasks)
        counts = tasks.row_counts
        blocks = -(-counts // _BLOCK)
        first = np.cumsum(blocks) - blocks
        size = _roomy(int(blocks.sum()))  # so that programs are compiled for few sizes
        of_row = np.repeat(_BLOCK * first - tasks.offsets[:-1], counts) + np.arange(tasks.num_rows)
        X, y, weight = aligned_zeros(size * _BLOCK, tasks.num_features), *aligned_zeros(2, size * _BLOCK)
        X[of_row], y[of_row] = tasks.rows, tasks.targets
        weight[of_row] = np.repeat(1 / counts, counts) if self.average else 1.0
        task, place, last = np.zeros((3, size), dtype=np.int64)  # nothing is added to blocks that are nobody's
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
        """Raise ValueError for targets that are not -1 and 1."""
        if not np.all(np.abs(tasks.targets) == 1):
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
class SquaredRows:
    """A sum over rows of weight * 0.5 (x'w - y)^2, plus (mu/2) ||w||^2.

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


@partial(jax.tree_util.register_dataclass, data_fields=["parts", "groups", "order"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class InGroups:
    """Losses of tasks that are apart: in several groups, of similar sizes each.

    Attributes:
        parts: the loss of every group.
        groups: positions of its tasks.
        order: where every task is once the groups stand one after another, (m,).
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
        found = [part.resolvent() for part in self.parts]

        def nearest(V: Array, rho: Array) -> Array:
            return self._together([one(V[:, at], rho) for one, (_, at) in zip(found, self._each(), strict=True) if one])

        return None if None in found else nearest

    def _each(self) -> list[tuple[Smooth, Array]]:
        return [(part, jnp.asarray(at).astype(int)) for part, at in zip(self.parts, self.groups, strict=True)]

    def _together(self, found: list[Array]) -> Array:
        return jnp.concatenate(found, axis=-1)[..., jnp.asarray(self.order).astype(int)]


_OF_ROWS = ["X", "y", "weight", "mu", "task", "place", "last", "first", "turns"]


@partial(jax.tree_util.register_dataclass, data_fields=_OF_ROWS, meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogisticRows:
    """A sum over rows of weight * log(1 + exp(-y x'w)), plus (mu/2) ||w||^2.

    Rows are in blocks of _BLOCK rows of one task. What a block adds is worked out beside that of all others, and the blocks
    of a task are then added in pairs, pairs of pairs, and so on: in an order that follows from their number alone.

    Attributes:
        X: (b, _BLOCK, d), zero on padding.
        y: (b, _BLOCK).
        weight: of every row, zero on padding, (b, _BLOCK).
        mu: strong convexity.
        task: whose a block is, (b,).
        place: which of that task's blocks, from 0, (b,).
        last: the place of that task's last, (b,).
        first: where the blocks of every task begin, (m,).
        turns: how often pairs are added until the task with most blocks has one.
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
        each = jnp.sum(self.weight * _log_loss(self._margins(W), self.y), axis=1)
        return self._by_task(each) + 0.5 * self.mu * jnp.sum(W**2, axis=0)

    def gradient(self, W: Array) -> Array:
        slope = self.weight * _log_slope(self._margins(W), self.y)
        return self._by_task(jnp.einsum("bnj,bn->bj", self.X, slope)).T + self.mu * W

    def curvature(self) -> FloatArray:
        X, weight, first = (np.asarray(part) for part in (self.X, self.weight, self.first))
        ends = first + np.asarray(self.last)[first] + 1
        rows = ((X[a:b].reshape(-1, X.shape[2]), weight[a:b].ravel()) for a, b in zip(first, ends, strict=True))
        return self._bend * np.array([_largest_eigenvalue(*own) for own in rows]) + np.asarray(self.mu)

    def resolvent(self) -> Resolvent | None:
        return None

    def scale(self, by: FloatArray) -> None:
        """Multiply the features of task i by ``by[i]``, (m, d), where they are: NumPy's arrays, which nobody has read yet."""
        np.multiply(self.X, by[self.task][:, None], out=self.X)

    def _margins(self, W: Array) -> Array:
        return jnp.einsum("bnj,bj->bn", self.X, W.T[jnp.asarray(self.task).astype(int)])

    def _by_task(self, each: Array) -> Array:
        """Sums (m, ...) of what blocks add (b, ...), in a loop compiled without the number of its turns.

        That follows from the size of one task, and must not change the order in which what others add is added up. It can be
        differentiated in forward mode only.
        """
        # The loss has to be an argument of the compiled function, as it is everywhere in this library. Where it is a constant
        # of that function, XLA knows the number of turns, unrolls the loop, and other tasks' last bits follow it.
        place, last, first = (jnp.asarray(part).astype(int) for part in (self.place, self.last, self.first))
        here = jnp.arange(len(each))

        def pairs(turn: Array, total: Array) -> Array:
            step = jnp.left_shift(1, turn)
            other = total[jnp.minimum(here + step, len(each) - 1)]
            has = (place % (2 * step) == 0) & (place + step <= last)
            return total + jnp.where(has.reshape(-1, *(1,) * (each.ndim - 1)), other, -0.0)  # which changes no number

        return jax.lax.fori_loop(0, jnp.asarray(self.turns).astype(int), pairs, each)[first]


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


def quadratic(gram: Gram, strong_convexity: float = 0.0, *, average: bool = False) -> Quadratic:
    """Least squares from the sufficient statistics alone."""
    xx, xy, yy = gram.xx, gram.xy, gram.yy  # as they are where nothing is to be done to them: the first is large
    if average:
        share = 1 / gram.n
        xx, xy, yy = xx * share[:, None, None], xy * share[:, None], yy * share
    if strong_convexity:
        xx = xx + strong_convexity * np.eye(xx.shape[-1])
    return Quadratic(xx, xy, yy)


def _log_loss(margin: Array, y: Array) -> Array:
    """log(1 + exp(-y x'w))."""
    return jax.nn.softplus(-y * margin)


def _log_slope(margin: Array, y: Array) -> Array:
    """Its derivative in x'w."""
    return -y * jax.nn.sigmoid(-y * margin)


def _table(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """X (subjects, d), y and weights (subjects, m), of tasks that share subjects; None where these are another's in every
    task, have several rows in one, or features that differ between tasks."""
    if tasks.subjects is None:
        return None
    m, task, rows = tasks.num_tasks, tasks.task_of_rows, tasks.rows
    subjects, first, place = np.unique(tasks.subjects, return_index=True, return_inverse=True)
    if len(subjects) * m > 2 * len(task):  # where most are unknown to most tasks
        return None
    once = len(np.unique(place * m + task)) == len(task)
    if not once or not np.array_equal(rows[first][place], rows):
        return None
    weight, y = np.zeros((2, len(subjects), m))
    weight[place, task], y[place, task] = 1.0, tasks.targets
    return rows[first], y, weight / weight.sum(axis=0) if average else weight


def _padded_rows(tasks: TaskData, average: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """X (m, n, d), y and weights (m, n), with n one of few numbers, for which programs are compiled."""
    weight = tasks.mask.astype(np.float64)
    if average:
        weight /= weight.sum(axis=1, keepdims=True)
    more = _roomy(tasks.longest, 1) - tasks.longest
    wider = lambda array: np.pad(array, [(0, 0), (0, more)] + [(0, 0)] * (array.ndim - 2)) if more else array
    return wider(tasks.X), wider(tasks.y), wider(weight)


def _similar(counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return positions of tasks in groups: one where padding all to the longest no more than doubles them, else by size."""
    if counts.max() * len(counts) <= 2 * counts.sum():
        return [np.arange(len(counts))]
    doublings = np.frexp(counts - 0.5)[1]
    return [np.flatnonzero(doublings == each) for each in np.unique(doublings)]


def _roomy(size: int, least: int = 64) -> int:
    """Return the next larger of few sizes, at most a quarter more, or the least."""
    step = max(least, 2 ** (int(size - 1).bit_length() - 3))
    return -(-size // step) * step


def _largest_eigenvalue(X: FloatArray, weight: FloatArray) -> float:
    """Of sum_j weight_j x_j x_j' over one task's own rows."""
    own = weight > 0
    A = X[own] * np.sqrt(weight[own])[:, None]
    # the largest eigenvalue of A'A is that of A A', and the smaller of the two is cheaper
    return float(np.linalg.eigvalsh(A @ A.T if len(A) < A.shape[1] else A.T @ A)[-1])


def _not_negative(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: expected a number >= 0, got {value!r}")
