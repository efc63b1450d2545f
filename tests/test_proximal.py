"""Proximal operators and optimality, against definitions and an independent convex solver."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpmtl_prob.convex.penalties import (
    L1,
    ColumnGroupLasso,
    GroupLasso,
    NoPenalty,
    SquaredFrobenius,
    SquaredTraceNorm,
    Sum,
    TraceNorm,
)

EXPRESSIONS = {
    TraceNorm(): cp.normNuc,
    SquaredTraceNorm(): lambda W: 0.5 * cp.square(cp.normNuc(W)),
    GroupLasso(): lambda W: cp.sum(cp.norm(W, 2, axis=1)),
    ColumnGroupLasso(): lambda W: cp.sum(cp.norm(W, 2, axis=0)),
    L1(): lambda W: cp.sum(cp.abs(W)),
    SquaredFrobenius(): cp.sum_squares,
}
every_penalty = pytest.mark.parametrize("norm", EXPRESSIONS, ids=lambda n: type(n).__name__)


@every_penalty
@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_prox_minimises_its_definition(norm, shape):
    W = np.random.default_rng(0).standard_normal(shape)
    V = cp.Variable(shape)
    cp.Problem(cp.Minimize(0.5 * cp.sum_squares(V - W) + 0.4 * EXPRESSIONS[norm](V))).solve(solver=cp.CLARABEL)
    assert_allclose(norm.prox(jnp.asarray(W), 0.4), V.value, atol=5e-5)
    assert_allclose(norm.value(jnp.asarray(W), 0.4), 0.4 * EXPRESSIONS[norm](cp.Constant(W)).value, rtol=1e-9)


@every_penalty
def test_optimality_vanishes_at_the_prox_and_nowhere_near(norm):
    W = jnp.asarray(np.random.default_rng(2).standard_normal((5, 7)))
    V = norm.prox(W, 0.8)
    assert norm.optimality(V, V - W, 0.8) < 1e-11
    assert norm.optimality(V + 1e-3, V + 1e-3 - W, 0.8) > 1e-3
    assert norm.optimality(V, V - W, 0.7) > 1e-2


@pytest.mark.parametrize("norm", [TraceNorm(), GroupLasso()], ids=lambda n: type(n).__name__)
def test_the_projection_read_off_the_second_moment_is_the_prox(norm):
    W = jnp.asarray(np.random.default_rng(3).standard_normal((5, 7)))
    assert_allclose(norm.projection(W @ W.T, 1.3) @ W, norm.prox(W, 1.3), atol=1e-12)


@pytest.mark.parametrize("norm", [L1(), ColumnGroupLasso()], ids=lambda n: type(n).__name__)
def test_separable_penalties_take_a_threshold_per_task(norm):
    W = jnp.asarray(np.random.default_rng(3).standard_normal((5, 3)))
    thresholds = jnp.asarray([0.1, 0.5, 2.0])
    each = [norm.prox(W[:, [i]], thresholds[i]) for i in range(3)]
    assert_allclose(norm.prox(W, thresholds), jnp.concatenate(each, axis=1))


def test_a_sum_acts_on_its_parts():
    P, Q = np.random.default_rng(4).standard_normal((2, 3, 5))
    both, stacked = Sum(TraceNorm(), L1()), jnp.asarray(np.vstack([P, Q]))
    assert_allclose(both.value(stacked, (2.0, 3.0)), TraceNorm().value(P, 2.0) + L1().value(Q, 3.0))
    assert_allclose(both.prox(stacked, (0.3, 0.2)), np.vstack([TraceNorm().prox(P, 0.3), L1().prox(Q, 0.2)]))
    V = both.prox(stacked, (0.3, 0.2))
    assert both.optimality(V, V - stacked, (0.3, 0.2)) < 1e-12
    assert both.optimality(V, V - stacked, (0.3, 0.1)) > 1e-2


def test_all_tasks_alone_when_there_is_no_penalty():
    W = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))
    assert_allclose(NoPenalty().prox(W, 10.0), W)
    assert NoPenalty().value(W) == 0


def test_a_threshold_above_everything_leaves_nothing():
    W = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4)))
    for norm in (TraceNorm(), GroupLasso(), ColumnGroupLasso(), L1()):
        assert not norm.prox(W, 100.0).any()


def test_zero_directions_are_projected_away_without_nan():
    W = jnp.zeros((3, 5)).at[0].set(2.0)
    for norm in (TraceNorm(), GroupLasso()):
        M = norm.projection(W @ W.T, 0.5)
        assert jnp.isfinite(M).all()
        assert_allclose(M[1:, 1:], 0, atol=1e-12)
    for norm in EXPRESSIONS:
        assert jnp.isfinite(norm.prox(jnp.zeros((3, 5)), 0.5)).all()
        assert norm.optimality(jnp.zeros((3, 5)), jnp.zeros((3, 5)), 0.5) == 0
