"""Proximal operators and optimality, against definitions and an independent convex solver."""

from functools import partial

import cvxpy as cp
import jax
import numpy as np
import pytest
from helpers.optimum import optimum
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
SHAPE = (4, 6)  # of all, as each compiles
every_penalty = pytest.mark.parametrize("norm", EXPRESSIONS, ids=lambda n: type(n).__name__)


@partial(jax.jit, static_argnums=0)
def value_and_prox(norm, W, strength):
    return norm.value(W, strength), norm.prox(W, strength)


def prox(norm, W, threshold):
    return value_and_prox(norm, W, threshold)[1]


@partial(jax.jit, static_argnums=0)
def optimality(norm, W, gradient, strength):
    return norm.optimality(W, gradient, strength)


@partial(jax.jit, static_argnums=0)
def projection(norm, sigma, threshold):
    return norm.projection(sigma, threshold)


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        *((norm, SHAPE) for norm in EXPRESSIONS),
        *((norm, (6, 4)) for norm in (TraceNorm(), SquaredTraceNorm())),  # the others know no sides
    ],
    ids=lambda each: None if isinstance(each, tuple) else type(each).__name__,
)
def test_prox_minimises_its_definition(norm, shape):
    W = np.random.default_rng(0).standard_normal(shape)
    V = cp.Variable(shape)
    optimum(cp.Problem(cp.Minimize(0.5 * cp.sum_squares(V - W) + 0.4 * EXPRESSIONS[norm](V))))
    value, nearest = value_and_prox(norm, W, 0.4)
    assert_allclose(nearest, V.value, atol=5e-5)
    assert_allclose(value, 0.4 * EXPRESSIONS[norm](cp.Constant(W)).value, rtol=1e-9)


@every_penalty
def test_optimality_vanishes_at_the_prox_and_nowhere_near(norm):
    W = np.random.default_rng(2).standard_normal(SHAPE)
    V = np.asarray(prox(norm, W, 0.8))
    assert optimality(norm, V, V - W, 0.8) < 1e-11
    assert optimality(norm, V + 1e-3, V + 1e-3 - W, 0.8) > 1e-3
    assert optimality(norm, V, V - W, 0.7) > 1e-2


@pytest.mark.parametrize("norm", [TraceNorm(), GroupLasso()], ids=lambda n: type(n).__name__)
def test_the_projection_read_off_the_second_moment_is_the_prox(norm):
    W = np.random.default_rng(3).standard_normal(SHAPE)
    assert_allclose(projection(norm, W @ W.T, 1.3) @ W, prox(norm, W, 1.3), atol=1e-12)


@pytest.mark.parametrize("norm", [L1(), ColumnGroupLasso()], ids=lambda n: type(n).__name__)
def test_separable_penalties_take_a_threshold_per_task(norm):
    W, thresholds = np.random.default_rng(3).standard_normal(SHAPE), np.array([0.1, 0.5, 2.0, 0.3, 0.2, 1.0])
    each = [prox(norm, W, threshold)[:, i] for i, threshold in enumerate(thresholds)]
    assert_allclose(prox(norm, W, thresholds), np.stack(each, axis=1))


def test_a_sum_acts_on_its_parts():
    P, Q = np.random.default_rng(4).standard_normal((2, *SHAPE))
    both, stacked = Sum(TraceNorm(), L1()), np.vstack([P, Q])
    (of_P, near_P), (of_Q, near_Q) = value_and_prox(TraceNorm(), P, 0.3), value_and_prox(L1(), Q, 0.2)
    value, V = value_and_prox(both, stacked, (0.3, 0.2))
    assert_allclose(value, of_P + of_Q)
    assert_allclose(V, np.vstack([near_P, near_Q]))
    assert optimality(both, V, V - stacked, (0.3, 0.2)) < 1e-12
    assert optimality(both, V, V - stacked, (0.3, 0.1)) > 1e-2


def test_all_tasks_alone_when_there_is_no_penalty():
    W = np.random.default_rng(0).standard_normal((3, 4))
    assert_allclose(NoPenalty().prox(W, 10.0), W)
    assert NoPenalty().value(W) == 0


def test_a_threshold_above_everything_leaves_nothing():
    W = np.random.default_rng(0).standard_normal(SHAPE)
    for norm in (TraceNorm(), GroupLasso(), ColumnGroupLasso(), L1()):
        assert not prox(norm, W, 100.0).any()


def test_zero_directions_are_projected_away_without_nan():
    W, nothing = np.zeros(SHAPE), np.zeros(SHAPE)
    W[0] = 2.0
    for norm in (TraceNorm(), GroupLasso()):
        M = np.asarray(projection(norm, W @ W.T, 0.5))
        assert np.isfinite(M).all()
        assert_allclose(M[1:, 1:], 0, atol=1e-12)
    for norm in EXPRESSIONS:
        assert np.isfinite(prox(norm, nothing, 0.5)).all()
        assert optimality(norm, nothing, nothing, 0.5) == 0
