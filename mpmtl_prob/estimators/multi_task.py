"""Non-private multi-task learning: convex penalties by accelerated proximal gradient.

min_W sum_i 0.5 ||X_i w_i - y_i||^2 + lambda g(W); Ji and Ye (2009) for the trace norm, Liu, Ji and Ye (2009) for l2,1.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob._check import positive, whole
from mpmtl_prob.estimators.fitted import Fitted
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE
from mpmtl_prob.proximal import GroupLasso, Penalty, TraceNorm, prox
from mpmtl_prob.tasks import FloatArray, Gram, TaskData, check_weights


class ConvergenceWarning(UserWarning):
    """An iteration limit was reached before the optimality condition held."""


@dataclass(frozen=True)
class MultiTask:
    """Multi-task regression with a convex penalty, by FISTA with adaptive restart (O'Donoghue and Candes, 2015).

    Attributes:
        norm: g, for example :class:`TraceNorm` or :class:`GroupLasso`.
        penalty: lambda > 0.
        tolerance: stop when the distance of -gradient to lambda * subdifferential is at most this times lambda.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """

    norm: Penalty
    penalty: float
    tolerance: float = 1e-6
    max_iterations: int = 20_000

    def fit(self, tasks: TaskData, start: FloatArray | None = None) -> Fitted:
        """Solve from ``start`` (d, m), default zero. Raises ValueError for a bad argument.

        ``history`` holds ``objective``, ``optimality`` (relative to lambda) and ``iterations``, one entry each.
        """
        positive("penalty", self.penalty)
        positive("tolerance", self.tolerance)
        whole("max_iterations", self.max_iterations)
        begin = time.perf_counter()
        W0 = np.zeros((tasks.num_features, tasks.num_tasks)) if start is None else np.asarray(start)
        check_weights(W0, tasks)
        W, iterations, residual = _fista(
            self.norm, tasks.gram, W0, self.penalty, lipschitz(tasks.gram), self.tolerance, self.max_iterations
        )
        if residual > self.tolerance:
            warnings.warn(
                f"{self.max_iterations} iterations left the optimality condition at {float(residual):.2g} of lambda, "
                f"above {self.tolerance:.2g}; allow more iterations or a larger tolerance",
                ConvergenceWarning,
                stacklevel=2,
            )
        history = {
            "objective": np.array([objective(self.norm, tasks.gram, W, self.penalty)]),
            "optimality": np.array([residual]),
            "iterations": np.array([iterations]),
        }
        name = {TraceNorm(): "MTL trace norm", GroupLasso(): "MTL l2,1"}.get(self.norm, "MTL")
        return Fitted(np.asarray(W), NOT_PRIVATE, history, seconds=time.perf_counter() - begin, name=name)


def lipschitz(gram: Gram) -> float:
    """L, the largest curvature of any task's least-squares loss."""
    return float(np.linalg.eigvalsh(gram.xx)[:, -1].max())


def gradient(gram: Gram, W: Array) -> Array:
    """Gradient of sum_i 0.5 ||X_i w_i - y_i||^2, (d, m)."""
    return (jnp.einsum("tij,jt->ti", gram.xx, W) - gram.xy).T


@partial(jax.jit, static_argnums=0)
def objective(norm: Penalty, gram: Gram, W: Array, penalty: Array | float) -> Array:
    """sum_i 0.5 ||X_i w_i - y_i||^2 + lambda g(W)."""
    V = jnp.asarray(W).T
    fit = 0.5 * jnp.sum(V * (jnp.einsum("tij,tj->ti", gram.xx, V) - 2 * gram.xy)) + 0.5 * jnp.sum(gram.yy)
    return fit + penalty * norm.value(jnp.asarray(W))


class _State(NamedTuple):
    W: Array
    Z: Array
    momentum: Array
    iteration: Array
    residual: Array


@partial(jax.jit, static_argnums=0)
def _fista(
    norm: Penalty,
    gram: Gram,
    W0: Array,
    penalty: Array,
    L: Array,
    tolerance: Array,
    max_iterations: Array,
) -> tuple[Array, Array, Array]:
    gram = jax.tree.map(jnp.asarray, gram)
    W0 = jnp.asarray(W0, gram.xy.dtype)
    check_every = 10  # optimality costs two decompositions, a step one

    def residual(W: Array) -> Array:
        return norm.optimality(W, gradient(gram, W), penalty) / penalty

    def step(state: _State) -> _State:
        W = prox(norm, state.Z - gradient(gram, state.Z) / L, penalty / L)
        momentum = (1 + jnp.sqrt(1 + 4 * state.momentum**2)) / 2
        restart = jnp.vdot(state.Z - W, W - state.W) > 0  # the step goes against the momentum
        Z = jnp.where(restart, W, W + (state.momentum - 1) / momentum * (W - state.W))
        momentum = jnp.where(restart, 1.0, momentum).astype(state.momentum.dtype)
        iteration = state.iteration + 1
        found = jax.lax.cond(iteration % check_every == 0, residual, lambda _: state.residual, W)
        return _State(W, Z, momentum, iteration, found)

    def unfinished(state: _State) -> Array:
        return (state.residual > tolerance) & (state.iteration < max_iterations)

    first = _State(W0, W0, jnp.ones((), W0.dtype), jnp.zeros((), int), residual(W0))
    last = jax.lax.while_loop(unfinished, step, first)
    return last.W, last.iteration, residual(last.W)
