"""Solver of min_W sum_i L_i(w_i) + lambda g(W), for a smooth loss and a convex penalty.

If the loss has a prox in closed form and g couples the tasks, the solver is the alternating direction method of multipliers
(ADMM), in which every task steps by its own curvatures. Otherwise it is FISTA with adaptive restart, in which a separable
penalty allows every task its own step size.

Source: Boyd et al. (2011), sections 3.3 and 3.4; Beck and Teboulle (2009), the restart of O'Donoghue and Candes (2015).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob._util import devices
from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.convex.losses import LogisticRows, Resolvent, Smooth
from mpmtl_prob.convex.penalties import Penalty

_CHECK_EVERY = 10  # iterations between checks: in FISTA optimality costs two decompositions, and a step one
_RELAXATION = 1.6  # over-relaxation of ADMM; Boyd et al., section 3.4.3
_LAST_TUNING = 1000  # from this iteration on rho is fixed, so that ADMM is sure to converge


class ConvergenceWarning(UserWarning):
    """Warning that the iteration limit was reached before the optimality condition held."""


class Solution(NamedTuple):
    """Result of the solver.

    Attributes:
        W: (d, m).
        objective: sum_i L_i + lambda g.
        optimality: distance of -gradient to lambda times the subdifferential, in units of ``scale``.
        iterations: number of iterations used.
    """

    W: Any
    objective: Any
    optimality: Any
    iterations: Any

    def __repr__(self) -> str:
        return shown(self)


class _Problem(NamedTuple):
    """Problem for both methods; ``scale`` is the unit of optimality."""

    norm: Penalty
    loss: Smooth
    strength: Any
    scale: Any
    tolerance: Any
    max_iterations: Any

    def residual(self, W: Array) -> Array:
        return self.norm.optimality(W, self.loss.gradient(W), self.strength) / self.scale

    def unfinished(self, state: _Momentum | _Split) -> Array:
        return (state.residual > self.tolerance) & (state.iteration < self.max_iterations)


class _Momentum(NamedTuple):
    W: Array
    Z: Array
    momentum: Array
    iteration: Array
    residual: Array


class _Split(NamedTuple):
    W: Array
    dual: Array
    rho: Array
    iteration: Array
    residual: Array


def solve(
    norm: Penalty,
    loss: Smooth,
    strength: Any,
    W0: FloatArray,
    curvature: FloatArray,
    tolerance: float,
    max_iterations: int,
) -> Solution:
    """Solve from W0 in double precision, whatever JAX is set to, and warn if it has not converged.

    Args:
        norm: g.
        loss: a loss that is bound to data.
        strength: lambda, in the form that the penalty takes, such as a pair.
        W0: starting point, (d, m).
        curvature: Lipschitz constants L_i of the gradients, (m,). With a separable penalty every task uses its own.
        tolerance: largest optimality, relative to lambda if g is a norm, and else to the gradient at W = 0.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """
    check_not_forked()
    L = curvature if norm.separable else np.max(curvature)
    with jax.enable_x64(True):  # in single precision most tolerances cannot be reached
        solution = minimise(norm, loss, strength, W0, L, tolerance, max_iterations)
    if (optimality := float(solution.optimality)) > tolerance:
        warnings.warn(
            f"{max_iterations} iterations left the optimality condition at {optimality:.2g} of its scale, "
            f"above {tolerance:.2g}; allow more iterations or a larger tolerance",
            ConvergenceWarning,
            stacklevel=3,
        )
    return solution


@partial(jax.jit, static_argnums=0)
def minimise(
    norm: Penalty, loss: Smooth, strength: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """Solve as :func:`solve` does, as a pure and traceable function, in the precision of the user's JAX setting."""
    loss, W0, strength, L = _floating((loss, W0, strength, L))
    return _minimise(norm, loss, _resolvent(norm, loss), strength, W0, L, tolerance, max_iterations)


@partial(jax.jit, static_argnums=0)
def minimise_path(
    norm: Penalty, loss: Smooth, strengths: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """Solve for several strengths in turn as :func:`minimise` does, each from the solution before it."""
    loss, W0, strengths, L = _floating((loss, W0, strengths, L))
    nearest = _resolvent(norm, loss)  # computed once for all strengths

    def body(W: Array, strength: Any) -> tuple[Array, Solution]:
        solution = _minimise(norm, loss, nearest, strength, W, L, tolerance, max_iterations)
        return solution.W, solution

    return jax.lax.scan(body, W0, strengths)[1]


def solve_alone(
    norm: Penalty,
    loss: Smooth,
    strength: Any,
    W0: FloatArray,
    curvature: FloatArray,
    tolerance: float,
    max_iterations: int,
) -> Solution:
    """Solve every task's problem alone, with a separable g: steps, restarts and stops depend on no other task.

    Arguments are those of :func:`solve`, with a loss that :meth:`Loss.alone` has bound. Objective, optimality and iterations
    have one entry per task, (m,). The precision is double.
    """
    check_not_forked()
    with jax.enable_x64(True):
        if isinstance(loss, LogisticRows):  # its rows are not in an array with an axis of tasks
            return _told(
                minimise_alone(norm, loss, strength, W0, curvature, tolerance, max_iterations),
                tolerance,
                max_iterations,
            )
        spread = jax.tree.map(lambda leaf: devices.by_task(leaf) if np.ndim(leaf) else leaf, loss)
        start, L = devices.by_task(W0, axis=1), devices.by_task(curvature)
        solution = minimise_alone(norm, spread, strength, start, L, tolerance, max_iterations)
    if devices.padding(np.shape(W0)[1]):
        m = np.shape(W0)[1]
        solution = Solution(solution.W[:, :m], *(part[:m] for part in solution[1:]))
    return _told(solution, tolerance, max_iterations)


def _told(solution: Solution, tolerance: float, max_iterations: int) -> Solution:
    """Warn if tasks have not converged, and return the solution."""
    if unconverged := int(np.sum(np.asarray(solution.optimality) > tolerance)):
        warnings.warn(
            f"{max_iterations} iterations left the optimality condition of {unconverged} tasks above {tolerance:.2g} "
            f"of its scale; allow more iterations or a larger tolerance",
            ConvergenceWarning,
            stacklevel=4,
        )
    return solution


@partial(jax.jit, static_argnums=0)
def minimise_alone(
    norm: Penalty, loss: Smooth, strength: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """Solve as :func:`solve_alone` does, as a pure and traceable function. Finished tasks are frozen."""
    loss, strength, W0, L = _floating((loss, strength, W0, L))
    out = Solution(1, 0, 0, 0)
    if isinstance(loss, LogisticRows):

        def column(i: Array, w: Array, curvature: Array) -> Solution:
            solution = _minimise(
                norm, _Column(loss, i), None, strength, w[:, None], curvature, tolerance, max_iterations
            )
            return solution._replace(W=solution.W[:, 0])

        return jax.vmap(column, in_axes=(0, 1, 0), out_axes=out)(jnp.arange(W0.shape[1]), W0, L)
    leaves, kind = jax.tree.flatten(loss)
    axes = [0 if leaf.ndim else None for leaf in leaves]  # numbers are common to all tasks

    def one(task_leaves: list[Array], w: Array, curvature: Array) -> Solution:
        parts = [leaf if axis is None else leaf[None] for leaf, axis in zip(task_leaves, axes, strict=True)]
        task_loss = jax.tree.unflatten(kind, parts)
        solution = _minimise(norm, task_loss, None, strength, w[:, None], curvature, tolerance, max_iterations)
        return solution._replace(W=solution.W[:, 0])

    return jax.vmap(one, in_axes=(axes, 1, 0), out_axes=out)(leaves, W0, L)


class _Column(NamedTuple):
    """Loss of task i alone in a :class:`LogisticRows`. Under vmap over all tasks they are computed together."""

    loss: LogisticRows
    i: Array

    def value(self, W: Array) -> Array:
        return _values(self.loss, self.i, W[:, 0])[None]

    def gradient(self, W: Array) -> Array:
        return _gradients(self.loss, self.i, W[:, 0])[:, None]

    def curvature(self) -> FloatArray:
        return self.loss.curvature()[np.asarray(self.i)]

    def resolvent(self) -> Resolvent | None:
        return None


def _of_columns(function: Callable[[LogisticRows, Array], Array]) -> Callable[[LogisticRows, Array, Array], Array]:
    """Turn a function of all weights, (d, m), into one of the weights of task i, (d,).

    The function's result has the axis of tasks last. Under vmap over all tasks the result is the function itself.
    """

    @jax.custom_batching.custom_vmap
    def one(loss: LogisticRows, i: Array, w: Array) -> Array:
        return function(loss, jnp.zeros((len(w), len(loss.first)), w.dtype).at[:, i].set(w))[..., i]

    @one.def_vmap
    def every(size: int, batched: Any, loss: LogisticRows, i: Array, w: Array) -> tuple[Array, bool]:
        # A loss with an axis of tasks has the same entries for all of them, repeated by lax.cond for its branches.
        loss = jax.tree.map(lambda leaf, repeated: leaf[0] if repeated else leaf, loss, batched[0])
        W = w.T if batched[2] else jnp.repeat(w[:, None], size, axis=1)
        return jnp.moveaxis(function(loss, W), -1, 0), True

    return one


_values = _of_columns(lambda loss, W: loss.value(W))
_gradients = _of_columns(lambda loss, W: loss.gradient(W))


def _floating(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), tree)


def _resolvent(norm: Penalty, loss: Smooth) -> Resolvent | None:
    return None if norm.separable else loss.resolvent()


def _minimise(
    norm: Penalty,
    loss: Smooth,
    nearest: Resolvent | None,
    strength: Any,
    W0: Array,
    L: Array,
    tolerance: Any,
    max_iterations: Any,
) -> Solution:
    at_zero = jnp.linalg.norm(loss.gradient(jnp.zeros_like(W0)))
    scale = sum(jnp.sum(part) for part in jax.tree.leaves(strength)) if norm.degree == 1 else at_zero
    problem = _Problem(norm, loss, strength, scale, tolerance, max_iterations)
    last = _accelerated(problem, W0, L) if nearest is None else _split(problem, nearest, W0, L)
    objective = jnp.sum(loss.value(last.W)) + norm.value(last.W, strength)
    return Solution(last.W, objective, problem.residual(last.W), last.iteration)


def _accelerated(problem: _Problem, W0: Array, L: Array) -> _Momentum:
    """Run FISTA with step sizes 1/L, a number or one per task."""
    threshold = jax.tree.map(lambda part: part / L, problem.strength)

    def step(state: _Momentum) -> _Momentum:
        W = problem.norm.prox(state.Z - problem.loss.gradient(state.Z) / L, threshold)
        momentum = (1 + jnp.sqrt(1 + 4 * state.momentum**2)) / 2
        restart = jnp.sum(L * (state.Z - W) * (W - state.W)) > 0  # restart when the step opposes the momentum
        Z = jnp.where(restart, W, W + (state.momentum - 1) / momentum * (W - state.W))
        momentum = jnp.where(restart, 1.0, momentum).astype(state.momentum.dtype)
        iteration = state.iteration + 1
        check = iteration % _CHECK_EVERY == 0
        residual = jax.lax.cond(check, problem.residual, lambda _: state.residual, W)
        return _Momentum(W, Z, momentum, iteration, residual)

    first = _Momentum(W0, W0, jnp.ones((), W0.dtype), jnp.zeros((), int), problem.residual(W0))
    return jax.lax.while_loop(problem.unfinished, step, first)


def _split(problem: _Problem, nearest: Resolvent, W0: Array, L: Array) -> _Split:
    """Run ADMM with over-relaxation, and with rho tuned to balance the residuals; W is the result of the prox of g."""
    gradient = problem.loss.gradient

    def step(state: _Split) -> _Split:
        rho = state.rho
        X = nearest(state.W - state.dual / rho, rho)
        V = _RELAXATION * X + (1 - _RELAXATION) * state.W + state.dual / rho
        W = problem.norm.prox(V, jax.tree.map(lambda part: part / rho, problem.strength))
        dual = rho * (V - W)  # in lambda times the subdifferential of g at W
        iteration = state.iteration + 1

        def check(_: None) -> tuple[Array, Array]:
            # The dual is an element of the subdifferential, so this bounds the distance of -gradient to the subdifferential.
            bound = jnp.linalg.norm(gradient(W) + dual) / problem.scale
            return bound, jnp.where(iteration < _LAST_TUNING, _tuned(rho, X, W, state.W, dual), rho)

        residual, rho = jax.lax.cond(iteration % _CHECK_EVERY == 0, check, lambda _: (state.residual, rho), None)
        return _Split(W, dual, rho, iteration, residual)

    first = _Split(W0, -gradient(W0), 0.01 * L, jnp.zeros((), int), problem.residual(W0))
    return jax.lax.while_loop(problem.unfinished, step, first)


def _tuned(rho: Array, X: Array, W: Array, before: Array, dual: Array) -> Array:
    """Return the rho that balances the primal residual X - W and the dual residual, the change of W, both relative."""
    tiny = jnp.finfo(W.dtype).tiny
    size = jnp.linalg.norm
    primal = size(X - W) / jnp.maximum(jnp.maximum(size(X), size(W)), tiny)
    change = rho * size(W - before) / jnp.maximum(size(dual), tiny)
    factor = jnp.sqrt(jnp.maximum(primal, tiny) / jnp.maximum(change, tiny))
    return rho * jnp.clip(factor, 0.1, 10.0)
