"""Algorithms 1 to 3 of the papers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.tolerances import FAR
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData, release
from mpmtl_prob.convex.losses import LeastSquares
from mpmtl_prob.estimators import (
    MPMTL,
    GroupLasso,
    GroupSparse,
    LocalGradientDescent,
    LowRank,
    MultiTask,
    Noise,
    Proximal,
    Ridge,
    RowProtection,
    Run,
    TraceNorm,
)
from mpmtl_prob.estimators.framework import run_rounds
from mpmtl_prob.privacy import BudgetExceeded, Ledger, schedule
from mpmtl_prob.privacy.lattice import sent


def make(m=6, d=3, n=9, seed=0):
    rng = np.random.default_rng(seed)
    W = np.outer(rng.standard_normal(d), rng.standard_normal(m))
    X = rng.standard_normal((m, n, d))
    y = np.einsum("tni,it->tn", X, W) + 0.3 * rng.standard_normal((m, n))
    return TaskData.from_lists(list(X), list(y))


@pytest.fixture(scope="module")
def tasks():
    return make()


def by_hand(tasks, norm, W0, noise, clip, eta, penalty, beta, unclipped=False):
    """Algorithms 2 and 3 as printed, one task and one round at a time; ``unclipped`` as in January 2018."""
    clipped = lambda W: np.stack([w / max(1, np.linalg.norm(w) / clip) for w in W.T], axis=1)
    W, previous, sigmas, outputs = W0, clipped(W0), [], []
    for t, E in enumerate(noise):
        own, W = W, clipped(W)
        sigma = W @ W.T + E
        if isinstance(norm, TraceNorm):
            U, eigenvalues, _ = np.linalg.svd(sigma)
            M = U @ np.diag(np.maximum(0, 1 - eta * penalty / np.sqrt(eigenvalues))) @ U.T
        else:
            M = np.diag(np.maximum(0, 1 - eta * penalty / np.sqrt(np.diag(sigma))))
        projected = M @ (own if unclipped else W)
        Z = projected + beta[t] * (projected - previous)
        slope = [tasks.X[i].T @ (tasks.X[i] @ Z[:, i] - tasks.y[i]) for i in range(tasks.num_tasks)]
        W, previous = Z - eta * np.stack(slope, axis=1), projected
        sigmas.append(sigma)
        outputs.append(projected)
    return np.array(sigmas), np.array(outputs)


@pytest.mark.parametrize("norm", [TraceNorm(), GroupLasso()], ids=lambda n: type(n).__name__)
@pytest.mark.parametrize(
    ("m", "d", "unclipped"), [(6, 3, False), (6, 3, True), pytest.param(3, 6, False, marks=pytest.mark.evidence)]
)
def test_rounds_are_those_printed_in_the_papers(norm, m, d, unclipped):
    tasks = make(m, d)
    rng = np.random.default_rng(5)
    noise = np.einsum("tij,tkj->tik", *(2 * [rng.standard_normal((3, d, d + 2))]))
    beta = np.arange(3) / np.arange(3, 6)
    W0 = rng.standard_normal((d, m))
    run = Run(LeastSquares().of(tasks), np.full(m, 0.05), 0.05 * 3.0, beta, 0.8, np.zeros(3), unclipped=unclipped)
    rounds_run = run_rounds(Proximal(norm), *jax.tree.map(np.asarray, (run, W0, Noise(noise))))
    expected = by_hand(tasks, norm, W0, noise, 0.8, 0.05, 3.0, beta, unclipped)
    assert_allclose(rounds_run[0], expected[0], atol=1e-10)
    assert_allclose(rounds_run[1], expected[1], atol=1e-10)


@pytest.mark.parametrize(("algorithm", "norm"), [(LowRank, TraceNorm()), (GroupSparse, GroupLasso())])
def test_without_noise_rounds_converge_to_the_optimum(tasks, algorithm, norm):
    """Without noise, the rounds converge to the optimum of the penalised problem."""
    optimum = MultiTask(norm, 2.0, tolerance=1e-9).fit(tasks)
    fitted = algorithm(penalty=2.0, epsilon=None, rounds=4000, acceleration=False, record=False).fit(tasks)
    assert_allclose(fitted.W, optimum.W, atol=1e-6)
    assert fitted.guarantee.proved is None


def test_enormous_noise_leaves_every_task_alone(tasks):
    # Proposition 1: when the smallest eigenvalue of E is C lambda^2 with C large, M -> I
    alone = LocalGradientDescent(rounds=3, clip=2.0, step_size=None).fit(tasks)
    for algorithm in (LowRank, GroupSparse):
        noisy = algorithm(penalty=1.0, epsilon=1e-12, rounds=3, clip=2.0, unsafe_seed=0).fit(tasks)
        assert_allclose(noisy.W, alone.W, atol=1e-4)


def test_enormous_noise_isolates_tasks_of_many_features():
    """Enormous noise leaves every task alone, with more features than tasks."""
    wide = make(m=2, d=6)
    alone = LocalGradientDescent(rounds=3, clip=2.0, step_size=None).fit(wide)
    noisy = LowRank(penalty=1.0, epsilon=1e-12, rounds=3, clip=2.0, unsafe_seed=0).fit(wide)
    assert_allclose(noisy.W, alone.W, atol=1e-4)


def test_the_papers_own_reading_of_step_7_does_not():
    wide = make(m=2, d=6)
    alone = LocalGradientDescent(rounds=3, clip=2.0, step_size=None).fit(wide)
    literal = MPMTL(Proximal(TraceNorm(factors=2)), 1.0, epsilon=1e-12, rounds=3, clip=2.0, unsafe_seed=0).fit(wide)
    assert np.abs(literal.W - alone.W).max() > 0.1


def running_example(epsilon):
    """m = 10, d = 5, W^(0) ~ U(0, 1) with the last column x 100; T = 1, eta = 1, lambda = 50, delta = 0 (section 4.2)."""
    W0 = np.random.default_rng(0).uniform(size=(5, 10))
    W0[:, -1] *= 100
    tasks = TaskData.from_lists([np.eye(5)] * 10, [np.ones(5)] * 10)
    algorithm = LowRank(
        penalty=50.0,
        epsilon=epsilon,
        rounds=1,
        clip=100 * np.sqrt(5),
        delta=0.0,
        step_size=1.0,
        start=W0,
        unsafe_seed=0,
    )
    return W0, algorithm.fit(tasks).W


def test_the_running_example_leaks_only_without_noise():
    """The running example leaks the odd task into the others without noise, and not with it."""
    profile = lambda W: W / np.linalg.norm(W, axis=0)
    W0, leaking = running_example(1e40)
    odd = profile(W0)[:, -1]
    assert (profile(leaking)[:, :9].T @ odd > 0.999).all()
    _, protected = running_example(0.1)
    before = profile(W0)[:, :9].T @ odd
    assert_allclose(profile(protected)[:, :9].T @ odd, before, atol=0.1)
    assert before.min() < 0.9


class Averaging:
    """f is the mean of the history; owners multiply by it and forget."""

    moment = "features"
    start = staticmethod(lambda W0: ())
    mapping = staticmethod(lambda history, t, run: history.sum(0) / (t + 1))
    update = staticmethod(lambda M, W, state, t, run: (W, M @ W, state))


def test_the_framework_runs_any_mapping_of_the_history(tasks):
    W0, noise = np.ones((3, 6)), np.stack([np.eye(3), 3 * np.eye(3)])
    run = Run(LeastSquares().of(tasks), 0.0, 0.0, np.zeros(2), np.inf, np.zeros(2))
    sigma, outputs, last = run_rounds(Averaging, *jax.tree.map(jnp.asarray, (run, W0, Noise(noise))))
    assert_allclose(sigma, W0 @ W0.T + noise)
    assert_allclose(outputs[1], (W0 @ W0.T + 2 * np.eye(3)) @ W0)
    assert_allclose(last, W0)


@pytest.mark.evidence
def test_more_tasks_lower_the_error_at_the_same_budget():
    """More tasks lower the error of the first twenty at the same budget."""
    train, test, _ = mp.datasets.synthetic_low_rank(group=320)  # all alike: every task that joins helps
    algorithm = LowRank(penalty=24.0, epsilon=1.0, rounds=30, clip=60.0, delta=1e-3, start=Ridge(0.3))
    twenty = lambda W: mp.evaluation.nmse(
        mp.data.prediction.linear_prediction(W[:, :20], first(test, 20)), first(test, 20)
    )
    errors = []
    for m in (20, 80, 320):
        fits = [dataclasses.replace(algorithm, unsafe_seed=seed).fit(first(train, m)) for seed in range(3)]
        errors.append(np.mean([twenty(fit.W) for fit in fits]))
    assert (np.diff(errors) < 0).all()
    assert errors[-1] < 0.75 * errors[0]


def first(tasks, m):
    return TaskData.from_lists(list(tasks.X[:m]), list(tasks.y[:m]))


def test_results_carry_the_claim_and_what_is_true(tasks):
    algorithm = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, delta=0.5, adjacency="zero_out", curvature=30.0)
    fitted = algorithm.fit(tasks)
    budgets = [1 / mechanism.theta for mechanism in fitted.release.mechanisms]
    assert fitted.guarantee.claimed.epsilon == 1.0
    assert fitted.guarantee.claimed.delta == 0.5
    assert_allclose(fitted.guarantee.proved.delta, -np.expm1(-sum(budgets)), rtol=1e-9)
    assert sum(budgets) > 1.1
    assert_allclose(np.array(budgets) / budgets[0], np.arange(1, 4) ** 0.4, rtol=1e-9)


@pytest.mark.parametrize(("mechanism", "lost"), [("paper_2018", 5.0 / 2), ("paper_2018_unit", 5.0**2 / 2)])
def test_noise_of_2018_has_its_proved_delta(tasks, mechanism, lost):
    """Rounds of budgets eps_t are as those of 002 with K / 2 or K^2 / 2 times the budgets, for K = 5."""
    options = {"epsilon": 0.1, "clip": 5.0, "delta": 0.01, "adjacency": "zero_out"}
    fitted = LowRank(0.1, rounds=3, curvature=30.0, mechanism=mechanism, unclipped=True, **options).fit(tasks)
    budgets = schedule(0.1, 0.01, 3, alpha=0.4)
    assert_allclose([law.epsilon for law in fitted.release.mechanisms], budgets)
    assert (fitted.guarantee.claimed.epsilon, fitted.guarantee.claimed.delta) == (0.1, 0.01)
    assert_allclose(fitted.guarantee.proved.delta, -np.expm1(-lost * budgets.sum()), rtol=1e-9)
    assert "sum of the rounds' eps" in fitted.guarantee.reason
    W = Ridge().fit(tasks).W
    released = release(W, 0.1, mechanism=mechanism, message="clip", clip=5.0, adjacency="zero_out")
    assert_allclose(released.guarantee.proved.delta, -np.expm1(-lost * 0.1), rtol=1e-9)
    assert released.guarantee.claimed.delta == 0


def test_unclipped_owners_publish_clipped_models(tasks):
    W, K = 100 * Ridge().fit(tasks).W, 0.5
    run = Run(LeastSquares().of(tasks), np.full(6, 0.01), 0.0, np.zeros(3), K, np.zeros(3), unclipped=True)
    nothing = Noise(np.zeros((3, 3, 3)))
    sigma, outputs, _ = run_rounds(Proximal(TraceNorm()), *jax.tree.map(np.asarray, (run, W, nothing)))
    assert_allclose(outputs[0], W)  # without a penalty M = I
    # All models are longer than K: the trace is what six clipped models have.
    assert_allclose(np.trace(sigma, axis1=1, axis2=2), 6 * K**2)


def test_budgets_can_grow_geometrically(tasks):
    fitted = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, q=0.8).fit(tasks)
    budgets = [1 / mechanism.theta for mechanism in fitted.release.mechanisms]
    assert_allclose(np.array(budgets) / budgets[0], 0.8 ** -np.arange(3.0), rtol=1e-9)


def test_published_rounds_are_clipped_models_plus_right_noise(tasks):
    """Published rounds are the clipped models plus noise of the right law."""
    fits = [LowRank(penalty=0.1, epsilon=2.0, rounds=1, clip=0.5).fit(tasks) for _ in range(100)]
    W = Ridge().fit(tasks).W
    W = sent(W, 0.5, fits[0].release.lattice)
    noise = np.array([fit.release.sigma[0] - W @ W.T for fit in fits])
    mean, scale = fits[0].release.mechanisms[0].mean, 0.5**2 / (2 * 2.0)
    assert_allclose(np.diag(mean), 4 * scale)  # df = d + 1
    error = np.sqrt(2 * 4 * scale**2 / 100)
    assert_allclose(np.diagonal(noise, axis1=1, axis2=2).mean(0), np.diag(mean), atol=FAR * error)
    assert (np.linalg.eigvalsh(noise) > 0).all()
    assert len({round(float(E[0, 0]), 12) for E in noise}) == 100  # fresh noise every time


def test_all_rounds_are_paid_for_before_the_first():
    tasks = make()
    ledger = Ledger(epsilon=1e-3, delta=0.5, adjacency="zero_out")
    algorithm = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, curvature=30.0, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        algorithm.fit(tasks)
    assert ledger.charges() == []
    enough = Ledger(epsilon=1.0, delta=0.9, adjacency="zero_out")
    dataclasses.replace(algorithm, ledger=enough).fit(tasks)
    assert [len(charge.mechanisms) for charge in enough.charges()] == [3]


def test_sharing_nothing_costs_nothing(tasks):
    alone = LocalGradientDescent(rounds=3).fit(tasks)
    assert alone.release is None
    assert alone.guarantee.proved.epsilon == 0


def test_releases_are_in_double_precision_under_any_setting(tasks):
    with jax.enable_x64(False):
        fitted = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, unsafe_seed=0).fit(tasks)
    again = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, unsafe_seed=0).fit(tasks)
    assert_allclose(fitted.release.sigma, again.release.sigma, rtol=1e-13)


def test_other_hyper_parameters_do_not_compile_again(tasks):
    LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0).fit(tasks)
    compiled = run_rounds._cache_size()
    LowRank(penalty=0.7, epsilon=3.0, rounds=3, clip=2.0, acceleration=False, step_size=0.01).fit(tasks)
    assert run_rounds._cache_size() == compiled


def test_the_default_step_is_one_over_the_largest_curvature(tasks):
    plan = LocalGradientDescent(rounds=1, step_size=None).plan(tasks)
    assert_allclose(1 / plan.run.step_size, max(np.linalg.norm(X, 2) ** 2 for X in tasks.X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": -1.0}, "penalty: expected a number >= 0, got -1.0"),
        ({"epsilon": 0.0}, "epsilon: expected a positive number, got 0.0"),
        ({"rounds": 0}, "rounds: expected a whole number >= 1, got 0"),
        ({"clip": 0.0}, "clip: expected a positive number, got 0.0"),
        ({"clip": float("inf")}, "clip: expected a finite norm K"),
        ({"delta": 1.0}, "delta: expected a number in"),
        ({"adjacency": "add"}, "adjacency: expected one of 'replace', 'zero_out', got 'add'"),
        ({"curvature": 0.0}, "curvature: expected a positive number, got 0.0"),
        ({"curvature": 1.0, "step_size": 0.1}, "curvature: expected none with a step_size that is a number"),
        ({"unclipped": True, "rows": RowProtection(1.0)}, "unclipped: expected False with rows"),
        ({"start": "warm"}, "start: expected one of 'zero', got 'warm'"),
        ({"start": np.ones((2, 2))}, "tasks: expected 2 features and 2 tasks"),
    ],
)
def test_bad_arguments_are_named(tasks, options, message):
    with pytest.raises(ValueError, match=message):
        LowRank(**({"penalty": 1.0, "clip": 1.0} | options)).fit(tasks)
