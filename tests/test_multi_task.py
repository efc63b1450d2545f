import cvxpy as cp
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import ConvergenceWarning, GroupLasso, MultiTask, Ridge, TraceNorm
from mpmtl_prob.estimators.solver import minimise


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    W = np.outer(rng.standard_normal(5), rng.standard_normal(8)) * [[1], [1], [1], [0], [0]]
    X = [rng.standard_normal((n, 5)) for n in rng.integers(6, 12, 8)]
    return TaskData.from_lists(X, [x @ w + 0.3 * rng.standard_normal(len(x)) for x, w in zip(X, W.T, strict=True)])


@pytest.mark.parametrize(
    ("norm", "expression"),
    [(TraceNorm(), cp.normNuc), (GroupLasso(), lambda W: cp.sum(cp.norm(W, 2, axis=1)))],
    ids=["trace norm", "l2,1"],
)
@pytest.mark.parametrize("penalty", [0.5, 5.0])
def test_optimum_satisfies_its_conditions_and_matches_an_interior_point_solver(tasks, norm, expression, penalty):
    fitted = MultiTask(norm, penalty, tolerance=1e-8).fit(tasks)
    assert fitted.history["optimality"][0] <= 1e-8
    V = cp.Variable((5, 8))
    loss = sum(0.5 * cp.sum_squares(tasks.y[i] - tasks.X[i] @ V[:, i]) for i in range(8))
    best = cp.Problem(cp.Minimize(loss + penalty * expression(V))).solve(solver=cp.CLARABEL)
    assert_allclose(fitted.history["objective"][0], best, rtol=1e-6)
    assert_allclose(fitted.W, V.value, atol=1e-4)


def test_a_large_penalty_gives_zero_and_a_tiny_one_least_squares(tasks):
    assert not MultiTask(TraceNorm(), 1e4).fit(tasks).W.any()
    assert_allclose(MultiTask(GroupLasso(), 1e-7).fit(tasks).W, Ridge(0.0).fit(tasks).W, atol=1e-5)


def test_a_warm_start_at_the_optimum_needs_no_iteration(tasks):
    first = MultiTask(TraceNorm(), 2.0).fit(tasks)
    again = MultiTask(TraceNorm(), 2.0).fit(tasks, start=first.W)
    assert first.history["iterations"][0] > 0
    assert again.history["iterations"][0] == 0


def test_running_out_of_iterations_is_said(tasks):
    with pytest.warns(ConvergenceWarning, match="3 iterations left the optimality condition"):
        MultiTask(TraceNorm(), 0.5, max_iterations=3).fit(tasks)


def test_another_penalty_does_not_compile_again(tasks):
    MultiTask(TraceNorm(), 1.0).fit(tasks)
    compiled = minimise._cache_size()
    MultiTask(TraceNorm(), 1.7, tolerance=1e-5).fit(tasks)
    assert minimise._cache_size() == compiled


def test_results_are_immutable_and_private_numbers_are_not_shown(tasks):
    fitted = MultiTask(TraceNorm(), 1.0).fit(tasks)
    with pytest.raises(ValueError, match="read-only"):
        fitted.W[0, 0] = 1.0
    assert "proved: nothing" in repr(fitted)
    assert f"{fitted.W[0, 0]:.3f}" not in repr(fitted)


def test_single_precision_reaches_a_single_precision_optimum(tasks):
    with jax.enable_x64(False):
        single = MultiTask(TraceNorm(), 2.0, tolerance=1e-3).fit(tasks)
    assert_allclose(single.W, MultiTask(TraceNorm(), 2.0).fit(tasks).W, atol=2e-3)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (MultiTask(TraceNorm(), 0.0), "penalty: expected a positive number, got 0.0"),
        (MultiTask(TraceNorm(), 1.0, max_iterations=0), "max_iterations: expected a whole number >= 1"),
        (Ridge(-1.0), "penalty: expected a number >= 0 or 'evidence', got -1.0"),
        (Ridge("lasso"), "penalty: expected one of 'evidence'"),
    ],
)
def test_bad_arguments_are_named(tasks, estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(tasks)
