"""Losses against the sum as it is written and its derivatives, and their curvature against its definition."""

import jax
import numpy as np
import pytest
from helpers.effort import effort
from numpy.testing import assert_allclose
from scipy.special import expit

from mpmtl_prob import TaskData
from mpmtl_prob.convex.losses import LeastSquares, Logistic, LogisticRows, LogisticTable, Quadratic, SquaredRows


def make(rows, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, d)) for n in rows]
    return TaskData.from_lists(X, [np.sign(rng.standard_normal(n)) for n in rows])


def by_hand(loss, tasks, W):
    """The sum as it is written, one row at a time."""
    total = 0.0
    for i in range(tasks.num_tasks):
        own = 0.0
        for x, y in zip(tasks.X[i][tasks.mask[i]], tasks.y[i][tasks.mask[i]], strict=True):
            margin = x @ W[:, i]
            own += np.log1p(np.exp(-y * margin)) if isinstance(loss, Logistic) else 0.5 * (margin - y) ** 2
        share = tasks.mask[i].sum() if loss.average else 1
        total += own / share + loss.strong_convexity / 2 * np.sum(W[:, i] ** 2)
    return total


def slope(function, W):
    """The gradient of an analytic function, by steps off the real axis, where no difference loses digits."""
    derivative = np.empty_like(W)
    for at in np.ndindex(W.shape):
        step = np.zeros(W.shape, dtype=complex)
        step[at] = 1e-30j
        derivative[at] = function(W + step).imag / 1e-30
    return derivative


@jax.jit
def both(smooth, W):
    """Values and gradient."""
    return smooth.value(W), smooth.gradient(W)


def hessians(loss, tasks, W):
    """Compute the Hessian of every task from the second derivative of the loss of a row."""
    for i in range(tasks.num_tasks):
        X = tasks.X[i][tasks.mask[i]]
        bend = expit(X @ W[:, i]) * expit(-X @ W[:, i]) if isinstance(loss, Logistic) else np.ones(len(X))
        share = len(X) if loss.average else 1
        yield (X.T * bend) @ X / share + loss.strong_convexity * np.eye(X.shape[1])


@jax.jit
def resolved(smooth, V, rho):
    """Return the point where the pull to V leaves W, and the gradient there."""
    W = smooth.resolvent()(V, rho)
    return W, smooth.gradient(W)


LOSSES = [
    LeastSquares(),
    LeastSquares(strong_convexity=0.7, average=True),
    Logistic(),
    Logistic(strong_convexity=0.7, average=True),
]


@pytest.mark.parametrize("rows", [(7, 5, 9), (3, 2, 3)], ids=["more rows than features", "fewer"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_value_and_gradient_are_those_of_the_sum_over_rows(loss, rows):
    tasks = make(rows)
    W = np.random.default_rng(1).standard_normal((4, 3))
    values, gradient = both(loss.of(tasks), W)
    assert values.shape == (3,)
    assert_allclose(np.sum(values), by_hand(loss, tasks, W), rtol=1e-12)
    assert_allclose(gradient, slope(lambda V: by_hand(loss, tasks, V), W), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rows", [(7, 5, 9), (3, 2, 3)], ids=["more rows than features", "fewer"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_curvature_bounds_the_hessian_and_is_reached(loss, rows):
    """The curvature bounds the largest eigenvalue of the Hessian, and is reached."""
    tasks = make(rows)
    smooth = loss.of(tasks)
    # the logistic loss is most curved where all margins vanish, at W = 0
    largest = [np.linalg.eigvalsh(hessian)[-1] for hessian in hessians(loss, tasks, np.zeros((4, 3)))]
    assert_allclose(smooth.curvature(), largest, rtol=1e-10)
    elsewhere = [np.linalg.eigvalsh(hessian)[-1] for hessian in hessians(loss, tasks, np.ones((4, 3)))]
    assert (elsewhere <= np.array(largest) * (1 + 1e-12)).all()


@pytest.mark.parametrize("rows", [(7, 5, 9), (3, 2, 3)], ids=["more rows than features", "fewer"])
@pytest.mark.parametrize("loss", LOSSES[:2], ids=repr)
def test_the_resolvent_balances_gradient_and_pull(loss, rows):
    """The resolvent of least squares is where the gradient and the pull to V cancel."""
    smooth = loss.of(make(rows))
    V = np.random.default_rng(1).standard_normal((4, 3))
    for rho in (1e-3, 1.0, 1e3):
        W, gradient = resolved(smooth, V, rho)
        assert_allclose(gradient, rho * (V - W), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("loss", "d"),
    [
        *((loss, 13) for loss in LOSSES),
        *((loss, 1) for loss in LOSSES if not loss.average),
        *(pytest.param(loss, 1, marks=pytest.mark.evidence) for loss in LOSSES if loss.average),
        *(pytest.param(loss, 4, marks=pytest.mark.evidence) for loss in LOSSES),
    ],
    ids=repr,
)
def test_another_tasks_number_of_rows_moves_no_bit_of_a_task(loss, d):
    own, W = make((7, 5, 9), d), np.random.default_rng(1).standard_normal((d, 4))
    outcomes = set()
    for n in effort((1, 300), (1, 31, 32, 33, 64, 65, 300)):
        other = make((n,), d, seed=n)
        X, y = [own.X[i][own.mask[i]] for i in range(3)], [own.y[i][own.mask[i]] for i in range(3)]
        smooth = loss.alone(TaskData.from_lists([*X, other.X[0]], [*y, other.y[0]]))
        values, gradient = both(smooth, W)
        parts = (values[:3], gradient[:, :3], smooth.curvature()[:3])
        outcomes.add(b"".join(np.asarray(part).tobytes() for part in parts))
    assert len(outcomes) == 1


def several_targets(seed=0):
    """Nine subjects, four features, three targets, some of them not observed."""
    rng = np.random.default_rng(seed)
    observed = np.array([[1, 1, 1, 0, 1, 0, 1, 1, 1], [1, 0, 1, 1, 1, 1, 1, 0, 1], [0, 0, 1, 1, 0, 1, 1, 1, 1]]).T == 1
    return TaskData.from_targets(rng.standard_normal((9, 4)), np.sign(rng.standard_normal((9, 3))), observed)


@pytest.mark.parametrize("loss", LOSSES[2:], ids=repr)
def test_targets_of_the_same_subjects_share_one_table(loss):
    """Targets of the same subjects share one table of features."""
    tasks, W = several_targets(), np.random.default_rng(1).standard_normal((4, 3))
    table = loss.of(tasks)
    assert isinstance(table, LogisticTable)
    for of_table, expected in zip(both(table, W), both(loss.alone(tasks), W), strict=True):
        assert_allclose(of_table, expected, rtol=1e-12)
    assert_allclose(table.curvature(), loss.alone(tasks).curvature(), rtol=1e-12)


def test_rows_of_one_subject_stay_with_their_tasks():
    """Rows stay with their tasks where a subject has several, or other features there."""
    tasks = several_targets()
    X, whom = [list(tasks.X[i][tasks.mask[i]]) for i in range(3)], [tasks.subject[i][tasks.mask[i]] for i in range(3)]
    y = [tasks.y[i][tasks.mask[i]] for i in range(3)]
    moved = [X[0], X[1][:-1] + [X[1][-1] + 1e-9], X[2]]
    twice = [np.r_[whom[0][:-1], whom[0][0]], *whom[1:]]
    strangers = [100 * i + s for i, s in enumerate(whom)]
    for rows, subject in ((moved, whom), ([X[0][:-1] + [X[0][0]], *X[1:]], twice), (X, strangers)):
        assert isinstance(Logistic().of(TaskData.from_lists(rows, y, subject=subject)), LogisticRows)
    assert isinstance(Logistic().of(TaskData.from_lists(X, y)), LogisticRows)  # nobody said whom rows are about


def test_the_logistic_loss_has_no_resolvent_in_closed_form():
    assert Logistic().of(make((3, 2, 3))).resolvent() is None
    assert Logistic().of(several_targets()).resolvent() is None


def test_least_squares_takes_the_smaller_of_rows_and_grams():
    """Least squares goes through the smaller of the rows and the Gram matrices."""
    assert isinstance(LeastSquares().of(make((7, 5, 9))), Quadratic)
    assert isinstance(LeastSquares().of(make((3, 2, 3))), SquaredRows)


def test_extreme_margins_do_not_overflow():
    tasks = TaskData.from_lists([np.full((2, 4), 2.5e3)] * 3, [[1.0, -1.0]] * 3)
    values, gradient = both(Logistic().of(tasks), np.ones((4, 3)))
    assert_allclose(values, [1e4] * 3)
    assert_allclose(gradient, np.full((4, 3), 2.5e3))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="targets -1 and 1 for the logistic loss"):
        Logistic().of(TaskData.from_lists([np.ones((2, 1))], [[0.0, 1.0]]))
    with pytest.raises(ValueError, match="strong_convexity: expected a number >= 0, got -1"):
        LeastSquares(strong_convexity=-1.0)


def test_a_loop_over_rows_is_compiled_without_their_number():
    """Other tasks' last bits would follow n_max, the size of one, if XLA could unroll the loop."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((n, 3)) for n in (4, 5, 700)]
    tasks = TaskData.from_lists(rows, [np.where(x[:, 0] > 0, 1.0, -1.0) for x in rows])
    loss = Logistic().of(tasks)
    W = np.ones((3, 3))
    traced = jax.jit(lambda loss, W: loss.gradient(W)).lower(loss, W).compile().as_text()
    constant = jax.jit(loss.gradient).lower(W).compile().as_text()
    assert "known_trip_count" in constant  # else this test no longer sees what it looks for
    assert "while" in traced
    assert "known_trip_count" not in traced
