"""Proximal operators and optimality, against definitions and an independent convex solver."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpmtl_prob.proximal import GroupLasso, NoPenalty, TraceNorm

EXPRESSIONS = {TraceNorm(): lambda W: cp.normNuc(W), GroupLasso(): lambda W: cp.sum(cp.norm(W, 2, axis=1))}


@pytest.mark.parametrize("norm", EXPRESSIONS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_prox_minimises_its_definition(norm, shape):
    W = np.random.default_rng(0).standard_normal(shape)
    V = cp.Variable(shape)
    cp.Problem(cp.Minimize(0.5 * cp.sum_squares(V - W) + 1.3 * EXPRESSIONS[norm](V))).solve(solver=cp.CLARABEL)
    assert_allclose(norm.prox(jnp.asarray(W), 1.3), V.value, atol=2e-5)
    assert_allclose(norm.value(jnp.asarray(W)), EXPRESSIONS[norm](cp.Constant(W)).value, rtol=1e-9)


@pytest.mark.parametrize("norm", EXPRESSIONS, ids=lambda n: type(n).__name__)
def test_optimality_vanishes_at_the_prox_and_nowhere_near(norm):
    W = jnp.asarray(np.random.default_rng(2).standard_normal((5, 7)))
    V = norm.prox(W, 1.5)
    assert norm.optimality(V, V - W, 1.5) < 1e-12
    assert norm.optimality(V + 1e-3, V + 1e-3 - W, 1.5) > 1e-3
    assert norm.optimality(V, V - W, 1.4) > 1e-2


def test_all_tasks_alone_when_there_is_no_penalty():
    W = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))
    assert_allclose(NoPenalty().prox(W, 10.0), W)
    assert NoPenalty().value(W) == 0


def test_zero_directions_are_projected_away_without_nan():
    W = jnp.zeros((3, 5)).at[0].set(2.0)
    for norm in (TraceNorm(), GroupLasso()):
        M = norm.projection(W @ W.T, 0.5)
        assert jnp.isfinite(M).all()
        assert_allclose(M[1:, 1:], 0, atol=1e-12)
