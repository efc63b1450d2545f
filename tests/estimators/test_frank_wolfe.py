"""Frank-Wolfe under Algorithm 1, against closed forms, a projection method and its own rate."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import FrankWolfe, LeastSquares, Logistic, LowRank, RowProtection
from mpmtl_prob.evaluation import cross_validate, grids
from mpmtl_prob.privacy import Ledger, compute_delta

D, M, ROWS = 4, 7, 12


def tasks_of(orthonormal=False, binary=False):
    rng = np.random.default_rng(0)
    B = rng.standard_normal((D, 2)) @ rng.standard_normal((2, M))
    X = [rng.standard_normal((ROWS, D)) * np.geomspace(0.5, 1.5, D) for _ in range(M)]
    if orthonormal:
        X = [np.linalg.qr(x)[0] for x in X]
    y = [x @ w + 0.3 * rng.standard_normal(ROWS) for x, w in zip(X, B.T, strict=True)]
    return TaskData.from_lists(X, [np.where(v > 0, 1.0, -1.0) for v in y] if binary else y)


def trace_norm(W):
    return np.linalg.svd(W, compute_uv=False).sum()


def into_ball(W, radius):
    """Return the nearest matrix of this trace norm: singular values less a number that is found by halving."""
    U, s, V = np.linalg.svd(W, full_matrices=False)
    if s.sum() <= radius:
        return W
    low, high = 0.0, s[0]
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if np.maximum(s - level, 0).sum() > radius else (low, level)
    return (U * np.maximum(s - high, 0)) @ V


def of_rows(tasks, W):
    """Return X, y and X w of all tasks, which are of one length."""
    X, y = tasks.rows.reshape(M, ROWS, D), tasks.targets.reshape(M, ROWS)
    return X, y, np.einsum("tnj,jt->tn", X, W)


def objective(tasks, W, binary=False):
    _, y, Xw = of_rows(tasks, W)
    return np.logaddexp(0, -y * Xw).sum() if binary else 0.5 * np.sum((Xw - y) ** 2)


def slopes_of(tasks, W, binary=False):
    X, y, Xw = of_rows(tasks, W)
    return np.einsum("tnj,tn->jt", X, -y / (1 + np.exp(y * Xw)) if binary else Xw - y)


def by_projection(tasks, radius, binary=False):
    """Minimise by projected gradients, in NumPy; return the minimum with the curvature L."""
    L = max(np.linalg.eigvalsh(tasks.gram.xx)[:, -1])
    W = np.zeros((D, M))
    for _ in range(1500):
        W = into_ball(W - slopes_of(tasks, W, binary) / L, radius)
    return W, L


@pytest.mark.parametrize("binary", [False, True])
def test_without_noise_it_keeps_to_its_rate(binary):
    """Without noise the loss is at most 8 r^2 L / (T + 2) above that of a projection method, and never below it."""
    tasks, radius = tasks_of(binary=binary), 3.0
    best, L = by_projection(tasks, radius, binary)
    fitted = FrankWolfe(None, radius=radius, rounds=400, loss=Logistic() if binary else LeastSquares()).fit(tasks)
    least = objective(tasks, best, binary)
    above = [objective(tasks, W, binary) - least for W in fitted.history["W"]]
    bound = 8 * radius**2 * L / (np.arange(1, 401) + 2)
    assert np.all(np.array(above) <= bound)
    assert min(above) > -1e-9 * least
    assert above[-1] < 1e-2 * above[0]
    assert max(map(trace_norm, fitted.history["W"])) <= radius * (1 + 1e-9)


def test_orthonormal_rows_have_a_closed_form():
    """With X'X = I the minimum is the projection of X'y, by singular values; a ball that holds X'y changes nothing."""
    tasks = tasks_of(orthonormal=True)
    B = tasks.gram.xy.T
    fitted = FrankWolfe(None, radius=2.0, rounds=20000, record=False).fit(tasks)
    assert_allclose(fitted.W, into_ball(B, 2.0), atol=2e-2)
    inside = FrankWolfe(None, radius=2 * trace_norm(B), rounds=20000, record=False).fit(tasks)
    assert_allclose(inside.W, B, atol=5e-2)


def test_one_task_of_one_round_steps_to_the_boundary():
    """The first step of one task is r g / ||g||, the maximum of a linear function on a ball."""
    X, y = np.diag([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 0.5])
    fitted = FrankWolfe(None, radius=0.7, rounds=1).fit(TaskData.from_lists([X], [y]))
    g = X.T @ y
    assert_allclose(fitted.W[:, 0], 0.7 * g / np.linalg.norm(g), rtol=1e-12)


@pytest.mark.parametrize("mechanism", ["paper", "wishart"])
def test_models_stay_in_the_ball_with_wishart_noise(mechanism):
    for epsilon in (0.1, 10.0, 1e4):
        fitted = FrankWolfe(epsilon, radius=2.0, rounds=5, clip=3.0, mechanism=mechanism).fit(tasks_of())
        top = np.linalg.eigvalsh(fitted.release.sigma)[:, -1].min()
        rounded = np.sqrt(D * M) * fitted.release.lattice  # the most by which messages are shorter than gradients
        assert max(map(trace_norm, fitted.history["W"])) <= 2.0 * (1 + rounded / np.sqrt(top))
        assert rounded < 0.1
        assert fitted.W.any()


def test_little_noise_changes_little_and_much_leaves_nothing():
    tasks, options = tasks_of(), {"radius": 2.0, "rounds": 5, "clip": 50.0, "unsafe_seed": 0}
    exact = FrankWolfe(None, radius=2.0, rounds=5).fit(tasks)
    near = FrankWolfe(1e9, **options).fit(tasks)
    assert_allclose(near.W, exact.W, atol=1e-3)
    far = FrankWolfe(1e-9, **options).fit(tasks)
    assert np.abs(far.W).max() < 1e-3 * np.abs(exact.W).max()


def test_both_guarantees_are_stated_and_paid_for():
    tasks, ledger = tasks_of(), Ledger(epsilon=2.0, delta=1e-2)
    fitted = FrankWolfe(2.0, radius=2.0, rounds=3, clip=3.0, delta=1e-2, mechanism="wishart", ledger=ledger).fit(tasks)
    assert fitted.guarantee.claimed is None
    assert fitted.guarantee.proved.delta <= 1e-2
    assert [charge.mechanisms for charge in ledger.charges()] == [fitted.release.mechanisms]
    printed = FrankWolfe(2.0, radius=2.0, rounds=3, clip=3.0, delta=1e-2).fit(tasks).guarantee
    assert (printed.claimed.epsilon, printed.claimed.delta) == (2.0, 1e-2)
    assert printed.proved.delta > 1e-2
    budgets = [law.scale for law in fitted.release.mechanisms]
    assert_allclose(budgets, budgets[0])
    assert fitted.guarantee.proved.delta == compute_delta(2.0, fitted.release.mechanisms, "replace")


def test_messages_are_gradients_no_longer_than_the_clip():
    """The release is G G' of clipped gradients at zero, then at the first models."""
    tasks, K = tasks_of(), 2.0
    fitted = FrankWolfe(1e9, radius=2.0, rounds=2, clip=K, unsafe_seed=0).fit(tasks)
    h = fitted.release.lattice  # by which an entry of a message is cut, at most
    for W, sigma in zip((np.zeros((D, M)), fitted.history["W"][0]), fitted.release.sigma, strict=True):
        G = slopes_of(tasks, W)
        G = G * np.minimum(1, K / np.linalg.norm(G, axis=0))
        assert_allclose(sigma, G @ G.T, atol=M * h * (2 * K + h), rtol=1e-6)


def test_rows_can_be_protected_too():
    rows = RowProtection(1.0, 1e-3)
    fitted = FrankWolfe(2.0, radius=2.0, rounds=2, clip=3.0, rows=rows).fit(tasks_of())
    assert fitted.row_guarantee.proved.delta <= 1e-3


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan")])
def test_a_ball_has_a_radius(radius):
    with pytest.raises(ValueError, match="radius"):
        FrankWolfe(None, radius=radius).fit(tasks_of())


def test_it_is_tuned_like_the_others():
    """It has as many candidates as the others, and a choice among both kinds scores each as alone."""
    tasks = tasks_of()
    candidates = grids.frank_wolfe(tasks, epsilon=3.0)
    assert len(candidates) == grids.SIZE
    frank, other = candidates[0], LowRank(0.1, 3.0, 1, 1.0, start="zero", step_size=0.1, unsafe_seed=0)
    both = cross_validate([other, frank], tasks, folds=3, progress_bar=False)
    alone = cross_validate([frank], tasks, folds=3, progress_bar=False)
    assert_allclose(both.mean[1], alone.mean[0], rtol=1e-12)
    again = dataclasses.replace(frank, radius=2 * frank.radius)
    assert again.penalty == 2 * frank.radius
