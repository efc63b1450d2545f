"""min_W sum_i L_i(w_i) + lambda g(W) for a smooth loss and a convex penalty: FISTA with adaptive restart.

Source: Beck and Teboulle (2009); the restart of O'Donoghue and Candes (2015).
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob.losses import Smooth
from mpmtl_prob.proximal import Penalty
from mpmtl_prob.tasks import FloatArray

_CHECK_EVERY = 10  # optimality costs two decompositions, a step one


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


class _State(NamedTuple):
    W: Array
    Z: Array
    momentum: Array
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
    """Solve from W0, and warn if that took too long.

    Args:
        norm: g.
        loss: bound to data.
        strength: lambda, or what the penalty takes for it.
        W0: (d, m).
        curvature: Lipschitz constants L_i of the gradients, (m,). A separable penalty uses each task's own.
        tolerance: on the optimality, relative to lambda where g is a norm, and else to the gradient at W = 0.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """
    L = curvature if norm.separable else np.max(curvature)
    found = minimise(norm, loss, strength, W0, L, tolerance, max_iterations)
    if found.optimality > tolerance:
        warnings.warn(
            f"{max_iterations} iterations left the optimality condition at {float(found.optimality):.2g} of its scale, "
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
    loss, W0, strength, L = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), (loss, W0, strength, L)
    )
    at_zero = jnp.linalg.norm(loss.gradient(jnp.zeros_like(W0)))
    scale = sum(jnp.sum(part) for part in jax.tree.leaves(strength)) if norm.degree == 1 else at_zero
    threshold = jax.tree.map(lambda part: part / L, strength)

    def residual(W: Array) -> Array:
        return norm.optimality(W, loss.gradient(W), strength) / scale

    def step(state: _State) -> _State:
        W = norm.prox(state.Z - loss.gradient(state.Z) / L, threshold)
        momentum = (1 + jnp.sqrt(1 + 4 * state.momentum**2)) / 2
        restart = jnp.sum(L * (state.Z - W) * (W - state.W)) > 0  # the step goes against the momentum
        Z = jnp.where(restart, W, W + (state.momentum - 1) / momentum * (W - state.W))
        momentum = jnp.where(restart, 1.0, momentum).astype(state.momentum.dtype)
        iteration = state.iteration + 1
        found = jax.lax.cond(iteration % _CHECK_EVERY == 0, residual, lambda _: state.residual, W)
        return _State(W, Z, momentum, iteration, found)

    def unfinished(state: _State) -> Array:
        return (state.residual > tolerance) & (state.iteration < max_iterations)

    first = _State(W0, W0, jnp.ones((), W0.dtype), jnp.zeros((), int), residual(W0))
    last = jax.lax.while_loop(unfinished, step, first)
    objective = jnp.sum(loss.value(last.W)) + norm.value(last.W, strength)
    return Solution(last.W, objective, residual(last.W), last.iteration)


@partial(jax.jit, static_argnums=0)
def minimise_path(
    norm: Penalty, loss: Smooth, strengths: Any, W0: Any, L: Any, tolerance: Any, max_iterations: Any
) -> Solution:
    """:func:`minimise` for each of several strengths in turn, every one from the solution before it."""

    def body(W: Array, strength: Any) -> tuple[Array, Solution]:
        found = minimise(norm, loss, strength, W, L, tolerance, max_iterations)
        return found.W, found

    W0 = jnp.asarray(W0, jnp.result_type(float))
    return jax.lax.scan(body, W0, jax.tree.map(jnp.asarray, strengths))[1]
