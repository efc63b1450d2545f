from dataclasses import replace

import cvxpy as cp
import jax
import numpy as np
import pytest
from helpers.optimum import optimum
from numpy.testing import assert_allclose, assert_array_equal

from mpmtl_prob import TaskData
from mpmtl_prob.convex.solver import minimise
from mpmtl_prob.estimators import (
    L1,
    MTRL,
    ColumnGroupLasso,
    ConvergenceWarning,
    GroupLasso,
    Lasso,
    Logistic,
    LowRankPlusSparse,
    MultiTask,
    Ridge,
    TraceNorm,
)


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    W = np.outer(rng.standard_normal(3), rng.standard_normal(6)) * [[1], [1], [0]]
    X = [rng.standard_normal((n, 3)) for n in 2 * (9, 8, 7)]
    return TaskData.from_lists(X, [x @ w + 0.3 * rng.standard_normal(len(x)) for x, w in zip(X, W.T, strict=True)])


@pytest.mark.parametrize(
    ("norm", "expression"),
    [(TraceNorm(), cp.normNuc), (GroupLasso(), lambda W: cp.sum(cp.norm(W, 2, axis=1)))],
    ids=["trace norm", "l2,1"],
)
@pytest.mark.parametrize("penalty", [0.5, 5.0])
def test_optimum_satisfies_its_conditions_and_an_outside_solver(tasks, norm, expression, penalty):
    """The optimum satisfies its conditions and matches an interior-point solver."""
    fitted = MultiTask(norm, penalty, tolerance=1e-8).fit(tasks)
    assert fitted.history["optimality"][0] <= 1e-8
    V = cp.Variable((3, 6))
    loss = sum(0.5 * cp.sum_squares(tasks.y[i] - tasks.X[i] @ V[:, i]) for i in range(6))
    best = optimum(cp.Problem(cp.Minimize(loss + penalty * expression(V))))
    assert_allclose(fitted.history["objective"][0], best, rtol=1e-6)
    assert_allclose(fitted.W, V.value, atol=1e-4)


@pytest.mark.parametrize("loss", [Logistic(), Logistic(strong_convexity=0.3)], ids=repr)
def test_the_logistic_optimum_matches_an_interior_point_solver(tasks, loss):
    binary = replace(tasks, y=np.where(tasks.mask, np.where(tasks.y > 0, 1.0, -1.0), 0.0))
    fitted = MultiTask(TraceNorm(), 1.0, loss, tolerance=1e-8).fit(binary)
    V = cp.Variable((3, 6))
    margins = [cp.multiply(-y[real], X[real] @ V[:, i]) for i, (X, y, real) in enumerate(rows(binary))]
    value = sum(cp.sum(cp.logistic(margin)) for margin in margins) + loss.strong_convexity / 2 * cp.sum_squares(V)
    best = optimum(cp.Problem(cp.Minimize(value + cp.normNuc(V))))
    assert_allclose(fitted.history["objective"][0], best, rtol=1e-6)
    assert_allclose(fitted.W, V.value, atol=1e-4)


def rows(tasks):
    return zip(tasks.X, tasks.y, tasks.mask, strict=True)


def squares(tasks, V, average=False):
    return sum(
        0.5 * cp.sum_squares(y - X @ V[:, i]) / (real.sum() if average else 1)
        for i, (X, y, real) in enumerate(rows(tasks))
    )


@pytest.mark.parametrize(
    ("own", "expression"),
    [
        (L1(), lambda Q: cp.sum(cp.abs(Q))),
        pytest.param(ColumnGroupLasso(), lambda Q: cp.sum(cp.norm(Q, 2, axis=0)), marks=pytest.mark.evidence),
    ],
)
def test_low_rank_plus_sparse_matches_an_interior_point_solver(tasks, own, expression):
    fitted = LowRankPlusSparse((2.0, 0.7), own=own, tolerance=1e-8).fit(tasks)
    assert fitted.history["optimality"][0] <= 1e-8
    P, Q = cp.Variable((3, 6)), cp.Variable((3, 6))
    problem = cp.Problem(cp.Minimize(squares(tasks, P + Q) + 2.0 * cp.normNuc(P) + 0.7 * expression(Q)))
    assert_allclose(fitted.history["objective"][0], optimum(problem), rtol=1e-6)
    assert_allclose(fitted.W, P.value + Q.value, atol=1e-4)
    assert_allclose(fitted.W, fitted.history["P"][0] + fitted.history["Q"][0])


def test_task_relationships_match_an_interior_point_solver(tasks):
    """Task-relationship learning matches an interior-point solver and its alternating form."""
    fitted = MTRL(0.2, 0.5, tolerance=1e-9).fit(tasks)
    V = cp.Variable((3, 6))
    value = squares(tasks, V, average=True) + 0.1 * cp.sum_squares(V) + 0.25 * cp.square(cp.normNuc(V))
    assert_allclose(fitted.history["objective"][0], optimum(cp.Problem(cp.Minimize(value))), rtol=1e-6)
    assert_allclose(fitted.W, V.value, atol=1e-4)
    # the same point stands still under Zhang and Yeung's two steps, smoothed by a little
    Omega = fitted.history["Omega"][0]
    assert_allclose(np.trace(Omega), 1)
    P = np.linalg.inv(Omega + 1e-7 * np.eye(6))
    coupled = np.kron(np.eye(6) * 0.2 + 0.5 * P, np.eye(3))
    for i, (X, _, real) in enumerate(rows(tasks)):
        coupled[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] += X.T @ X / real.sum()
    target = np.concatenate([X.T @ y / real.sum() for X, y, real in rows(tasks)])
    assert_allclose(np.linalg.solve(coupled, target).reshape(6, 3).T, fitted.W, atol=1e-4)


@pytest.mark.evidence  # of its loss test_losses.py says the same every day
def test_fewer_rows_than_features_have_an_optimum_all_the_same(tasks):
    few = TaskData.from_lists(list(tasks.X[:, :2]), list(tasks.y[:, :2]))
    fitted = MultiTask(TraceNorm(), 1.0, tolerance=1e-8).fit(few)
    V = cp.Variable((3, 6))
    best = optimum(cp.Problem(cp.Minimize(squares(few, V) + cp.normNuc(V))))
    assert fitted.history["optimality"][0] <= 1e-8
    assert_allclose(fitted.history["objective"][0], best, rtol=1e-6)


@pytest.mark.parametrize("norm", [TraceNorm(), GroupLasso()], ids=lambda n: type(n).__name__)
def test_tasks_of_very_different_sizes_need_few_iterations(norm):
    # one task bends a hundred thousand times more than another: a step size for all of them would need as many steps
    rng = np.random.default_rng(0)
    X = [size * rng.standard_normal((9, 3)) for size in np.geomspace(1, 300, 6)]
    wide = TaskData.from_lists(X, [x @ np.ones(3) + rng.standard_normal(9) for x in X])
    assert MultiTask(norm, 3.0, tolerance=1e-8).fit(wide).history["iterations"][0] <= 2000


@pytest.mark.parametrize("norm", [TraceNorm(), L1()], ids=lambda n: type(n).__name__)
def test_a_path_takes_fewer_iterations_to_the_same_solutions(tasks, norm):
    """A path gives the solutions of its penalties in fewer iterations."""
    penalties = np.geomspace(0.5, 0.499, 6).tolist()
    problem = MultiTask(norm, 1.0, tolerance=1e-8)
    along = problem.path(tasks, penalties)
    apart = [replace(problem, penalty=penalty).fit(tasks) for penalty in penalties]
    for one, other in zip(along, apart, strict=True):
        assert one.history["optimality"][0] <= 1e-8
        assert_allclose(one.W, other.W, atol=1e-6)
    iterations = lambda fits: sum(int(fit.history["iterations"][0]) for fit in fits)
    assert iterations(along) < iterations(apart)


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
    assert str(np.abs(fitted.W).max())[:5] not in repr(fitted)  # more digits than the seconds have that it says


@pytest.mark.parametrize(
    "of", [lambda p: MultiTask(TraceNorm(), p, tolerance=1e-9), lambda p: Lasso(p, tolerance=1e-9)]
)
def test_the_optimum_is_in_doubles_whatever_jax_is_set_to(tasks, of):
    """The optimum is found in double precision, whatever JAX is set to."""
    with jax.enable_x64(False):
        single = of(2.0).fit(tasks)
    assert single.history["optimality"].max() <= 1e-9
    assert_array_equal(single.W, of(2.0).fit(tasks).W)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (MultiTask(TraceNorm(), 0.0), "penalty: expected a positive number, got 0.0"),
        (MultiTask(TraceNorm(), 1.0, max_iterations=0), "max_iterations: expected a whole number >= 1"),
        (LowRankPlusSparse(1.0), r"penalty: expected a pair \(lambda_1, lambda_2\), got 1.0"),
        (MTRL(-1.0, 1.0), "ridge: expected a number >= 0, got -1.0"),
        (MTRL(1.0, 0.0), "relation: expected a positive number, got 0.0"),
        (Ridge(-1.0), "penalty: expected a number >= 0 or 'evidence', got -1.0"),
        (Ridge("lasso"), "penalty: expected one of 'evidence'"),
    ],
)
def test_bad_arguments_are_named(tasks, estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(tasks)
