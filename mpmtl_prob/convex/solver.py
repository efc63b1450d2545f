"""min_W sum_i L_i(w_i) + lambda g(W) for a smooth loss and a convex penalty.

Where the loss has a prox in closed form and g ties tasks, the alternating direction method of multipliers (ADMM) takes both
in turn: every task steps by its own curvatures, which a common step size cannot. Elsewhere FISTA with adaptive restart,
in which a separable penalty lets every task step at its own pace.

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

_CHECK_EVERY = 10  # in FISTA optimality costs two decompositions, a step one
_RELAXATION = 1.6  # of ADMM; Boyd et al., section 3.4.3
_LAST_TUNING = 1000  # from this iteration on rho stays, and ADMM converges whatever it is


class ConvergenceWarning(UserWarning):
    """An iteration limit was reached before the optimality condition held."""


class Solution(NamedTuple):
    """Where the solver stopped.

    Attributes:
        W: (d, m).
        objective: sum_i L_i + lambda g.
        optimality: distance of -gradient to lambda times the subdifferential, in units of ``scale``.
        iterations: used.
    """

    W: Any
    objective: Any
    optimality: Any
    iterations: Any

    def __repr__(self) -> str:
        return shown(self)


class _Problem(NamedTuple):
    """What both methods solve; ``scale`` is the unit of optimality."""

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
    """Solve from W0, in double precision whatever JAX is set to, and warn if that took too long.

    Args:
        norm: g.
        loss: bound to data.
        strength: lambda, or what the penalty takes for it.
        W0: (d, m).
        curvature: Lipschitz constants L_i of the gradients, (m,). A separable penalty uses each task's own.
        tolerance: on the optimality, relative to lambda where g is a norm, and else to the gradient at W = 0.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """
    check_not_forked()
    L = curvature if norm.separable else np.max(curvature)
    with jax.enable_x64(True):  # in single precision the optimality condition stays above most tolerances
        found = minimise(norm, loss, strength, W0, L, tolerance, max_iterations)
    if (left := float(found.optimality)) > tolerance:
        warnings.warn(
            f"{max_iterations} iterations left the optimality condition at {left:.2g} of its scale, "
            f"above {tolerance:.2g}; allow more iterations or a larger tolerance",
            ConvergenceWarning,
            stacklevel=3,
        )
    return found


@partial(jax.jit, static_argnums=0)
def minimise(
    norm: Penalty, loss: Smooth, strength: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """As :func:`solve`, pure and traceable, in the precision of the user's JAX setting."""
    loss, W0, strength, L = _floating((loss, W0, strength, L))
    return _minimise(norm, loss, _resolvent(norm, loss), strength, W0, L, tolerance, max_iterations)


@partial(jax.jit, static_argnums=0)
def minimise_path(
    norm: Penalty, loss: Smooth, strengths: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """:func:`minimise` for each of several strengths in turn, every one from the solution before it."""
    loss, W0, strengths, L = _floating((loss, W0, strengths, L))
    nearest = _resolvent(norm, loss)  # once for all strengths

    def body(W: Array, strength: Any) -> tuple[Array, Solution]:
        found = _minimise(norm, loss, nearest, strength, W, L, tolerance, max_iterations)
        return found.W, found

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
    """Every task's own problem, with a separable g, in double precision: its step, its restarts and its stop are its own.

    Arguments as :func:`solve`, with a loss bound by :meth:`Loss.alone`. Objective, optimality and iterations are those of
    every task, (m,).
    """
    check_not_forked()
    with jax.enable_x64(True):
        if isinstance(loss, LogisticRows):  # whose rows are not in an array with an axis of tasks
            return _told(
                minimise_alone(norm, loss, strength, W0, curvature, tolerance, max_iterations),
                tolerance,
                max_iterations,
            )
        spread = jax.tree.map(lambda leaf: devices.by_task(leaf) if np.ndim(leaf) else leaf, loss)
        start, L = devices.by_task(W0, axis=1), devices.by_task(curvature)
        found = minimise_alone(norm, spread, strength, start, L, tolerance, max_iterations)
    if devices.padding(np.shape(W0)[1]):
        m = np.shape(W0)[1]
        found = Solution(found.W[:, :m], *(part[:m] for part in found[1:]))
    return _told(found, tolerance, max_iterations)


def _told(found: Solution, tolerance: float, max_iterations: int) -> Solution:
    """Warn of tasks that have not converged."""
    if late := int(np.sum(np.asarray(found.optimality) > tolerance)):
        warnings.warn(
            f"{max_iterations} iterations left the optimality condition of {late} tasks above {tolerance:.2g} of its scale; "
            f"allow more iterations or a larger tolerance",
            ConvergenceWarning,
            stacklevel=4,
        )
    return found


@partial(jax.jit, static_argnums=0)
def minimise_alone(
    norm: Penalty, loss: Smooth, strength: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """As :func:`solve_alone`, pure and traceable. Tasks run in step, and one that is done stands still."""
    loss, strength, W0, L = _floating((loss, strength, W0, L))
    out = Solution(1, 0, 0, 0)
    if isinstance(loss, LogisticRows):

        def column(i: Array, w: Array, curvature: Array) -> Solution:
            found = _minimise(norm, _Column(loss, i), None, strength, w[:, None], curvature, tolerance, max_iterations)
            return found._replace(W=found.W[:, 0])

        return jax.vmap(column, in_axes=(0, 1, 0), out_axes=out)(jnp.arange(W0.shape[1]), W0, L)
    leaves, kind = jax.tree.flatten(loss)
    axes = [0 if leaf.ndim else None for leaf in leaves]  # numbers are common to all tasks

    def one(own: list[Array], w: Array, curvature: Array) -> Solution:
        parts = [leaf if axis is None else leaf[None] for leaf, axis in zip(own, axes, strict=True)]
        mine = jax.tree.unflatten(kind, parts)
        found = _minimise(norm, mine, None, strength, w[:, None], curvature, tolerance, max_iterations)
        return found._replace(W=found.W[:, 0])

    return jax.vmap(one, in_axes=(axes, 1, 0), out_axes=out)(leaves, W0, L)


class _Column(NamedTuple):
    """The loss of task i alone, of a :class:`LogisticRows`. Where all tasks are at it, they are worked out together."""

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
    """Of a function of all weights (d, m), with an axis of tasks last: that of one task's, (d,), given that it is the i-th.

    Under vmap over all tasks it is the function itself.
    """

    @jax.custom_batching.custom_vmap
    def one(loss: LogisticRows, i: Array, w: Array) -> Array:
        return function(loss, jnp.zeros((len(w), len(loss.first)), w.dtype).at[:, i].set(w))[..., i]

    @one.def_vmap
    def every(size: int, batched: Any, loss: LogisticRows, i: Array, w: Array) -> tuple[Array, bool]:
        # a loss with an axis of tasks holds the same for all of them, as lax.cond repeats what both its branches are given
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
    """FISTA with step sizes 1/L, a number or one per task."""
    threshold = jax.tree.map(lambda part: part / L, problem.strength)

    def step(state: _Momentum) -> _Momentum:
        W = problem.norm.prox(state.Z - problem.loss.gradient(state.Z) / L, threshold)
        momentum = (1 + jnp.sqrt(1 + 4 * state.momentum**2)) / 2
        restart = jnp.sum(L * (state.Z - W) * (W - state.W)) > 0  # the step goes against the momentum
        Z = jnp.where(restart, W, W + (state.momentum - 1) / momentum * (W - state.W))
        momentum = jnp.where(restart, 1.0, momentum).astype(state.momentum.dtype)
        iteration = state.iteration + 1
        check = iteration % _CHECK_EVERY == 0
        found = jax.lax.cond(check, problem.residual, lambda _: state.residual, W)
        return _Momentum(W, Z, momentum, iteration, found)

    first = _Momentum(W0, W0, jnp.ones((), W0.dtype), jnp.zeros((), int), problem.residual(W0))
    return jax.lax.while_loop(problem.unfinished, step, first)


def _split(problem: _Problem, nearest: Resolvent, W0: Array, L: Array) -> _Split:
    """ADMM with over-relaxation and rho tuned to balance its residuals; W is what the prox of g returns."""
    gradient = problem.loss.gradient

    def step(state: _Split) -> _Split:
        rho = state.rho
        X = nearest(state.W - state.dual / rho, rho)
        V = _RELAXATION * X + (1 - _RELAXATION) * state.W + state.dual / rho
        W = problem.norm.prox(V, jax.tree.map(lambda part: part / rho, problem.strength))
        dual = rho * (V - W)  # in lambda times the subdifferential of g at W
        iteration = state.iteration + 1

        def check(_: None) -> tuple[Array, Array]:
            # the dual is one element of the subdifferential: -gradient is at most this far from all of it
            bound = jnp.linalg.norm(gradient(W) + dual) / problem.scale
            return bound, jnp.where(iteration < _LAST_TUNING, _tuned(rho, X, W, state.W, dual), rho)

        found, rho = jax.lax.cond(iteration % _CHECK_EVERY == 0, check, lambda _: (state.residual, rho), None)
        return _Split(W, dual, rho, iteration, found)

    first = _Split(W0, -gradient(W0), 0.01 * L, jnp.zeros((), int), problem.residual(W0))
    return jax.lax.while_loop(problem.unfinished, step, first)


def _tuned(rho: Array, X: Array, W: Array, before: Array, dual: Array) -> Array:
    """rho for which X - W and the change of W are alike, each relative to what it is a residual of."""
    tiny = jnp.finfo(W.dtype).tiny
    size = jnp.linalg.norm
    primal = size(X - W) / jnp.maximum(jnp.maximum(size(X), size(W)), tiny)
    change = rho * size(W - before) / jnp.maximum(size(dual), tiny)
    factor = jnp.sqrt(jnp.maximum(primal, tiny) / jnp.maximum(change, tiny))
    return rho * jnp.clip(factor, 0.1, 10.0)
