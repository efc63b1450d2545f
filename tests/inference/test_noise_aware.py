"""The whole way as one estimator."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob.inference import noise_aware
from mpmtl_prob.privacy import BudgetExceeded, Ledger
from mpmtl_prob.scikit import MultiTaskRegressor

SHORT = {"chains": 2, "warmup": 200, "draws": 60}


@pytest.fixture(scope="module")
def tasks():
    return mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=10, test_rows=5)[0]


def test_it_is_one_release_its_posterior_and_the_owners_own(tasks):
    fitted = mp.NoiseAware(2.0, adjacency="zero_out", unsafe_seed=1, seed=2, **SHORT).fit(tasks)
    answer = mp.inference.posterior_draws(tasks, 2)
    release = mp.release(tasks, 2.0, adjacency="zero_out", rounds="auto", respond=answer, unsafe_seed=1)
    shared = mp.inference.shared_covariance(release, seed=2, progress_bar=False, **SHORT)
    assert_array_equal(fitted.W, mp.inference.task_posteriors(tasks, shared, seed=2).W)
    assert fitted.guarantee == release.guarantee


def test_every_fit_pays(tasks, tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=2.0, delta=0.01)
    estimator = mp.NoiseAware(2.0, 0.01, ledger=ledger, rounds=1, **SHORT)
    assert estimator.fit(tasks).guarantee.proved.epsilon == 2.0
    with pytest.raises(BudgetExceeded):
        estimator.fit(tasks)


def test_it_fits_where_scikit_learn_wants_an_estimator(tasks):
    estimator = mp.NoiseAware(2.0, unsafe_seed=1, **SHORT)
    X = np.column_stack([np.repeat(np.arange(12.0), 10), tasks.X[tasks.mask]])
    wrapped = MultiTaskRegressor(estimator, task=0).fit(X, tasks.y[tasks.mask])
    assert_array_equal(wrapped.fitted_.W, estimator.fit(tasks.with_intercept()).W)


def one_row_of_a_task(tasks):
    X, y = [*tasks.X[:11], tasks.X[11][:1]], [*tasks.y[:11], tasks.y[11][:1]]
    return mp.TaskData.from_lists(X, y).with_intercept()


def one_feature(tasks):
    return mp.TaskData.from_lists(list(tasks.X[..., :1]), list(tasks.y))


def two_tasks(tasks):
    return mp.TaskData.from_lists(list(tasks.X[:2]), list(tasks.y[:2]))


WRONG = {
    "structure": ({"structure": "ful"}, None, "structure: expected one of"),
    "few tasks": ({"structure": "low_rank"}, two_tasks, "structure: 'low_rank' needs at least as many tasks"),
    "no structure": ({"structure": ""}, None, "structure: expected one of"),
    "method": ({"method": "plugin"}, None, "method: expected one of"),
    "chains": ({"chains": 0}, None, "chains: expected a whole number >= 1, got 0"),
    "warmup": ({"warmup": 0}, None, "warmup: expected a whole number >= 1, got 0"),
    "draws": ({"draws": 0}, None, "draws: expected a whole number >= 1, got 0"),
    "seed": ({"seed": "a"}, None, "seed: expected a whole number, got 'a'"),
    "joint, intercept": ({"method": "joint"}, mp.TaskData.with_intercept, "method: 'joint' knows no intercept"),
    "joint, structure": ({"method": "joint", "structure": "auto"}, None, "method: 'joint' needs a posterior of struct"),
    "joint, rounds": ({"method": "joint", "rounds": 2}, None, "method: 'joint' needs a posterior of structure"),
    "one feature": (
        {},
        one_feature,
        "message: expected 'clip' with one feature, .*; take message='clip' with a clip norm",
    ),
    "no tasks": ({}, lambda tasks: tasks.X[0], "tasks: expected TaskData, got ndarray"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_before_anything_is_spent(tasks, tmp_path, case):
    options, of, message = WRONG[case]
    ledger = Ledger(tmp_path / "ledger", epsilon=2.0, delta=0.2)
    with pytest.raises(ValueError, match=message):
        mp.NoiseAware(2.0, 0.01, ledger=ledger, **SHORT | options).fit(of(tasks) if of else tasks)
    assert ledger.charges() == []


def test_one_row_of_a_task_does_not_end_a_fit_that_is_paid_for(tasks, tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=2.0, delta=0.2)
    with pytest.warns(UserWarning, match="tasks: 1 of them") as told:
        own = mp.NoiseAware(2.0, 0.01, ledger=ledger, **SHORT).fit(one_row_of_a_task(tasks))
    first, second = (str(warning.message) for warning in told)
    assert "send the zero vector" in first
    assert "have one row, which says nothing of slopes" in second
    assert len(ledger.charges()) == 1
    assert own.shared.release.num_tasks == tasks.num_tasks
    assert np.isfinite(own.W).all()


@pytest.mark.parametrize("broken", ["shared_covariance", "task_posteriors"])
def test_a_release_that_was_paid_for_outlives_an_interrupt(tasks, tmp_path, monkeypatch, broken):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    ledger = Ledger(tmp_path / "ledger", epsilon=2.0, delta=0.01)
    monkeypatch.setattr(noise_aware, broken, interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        mp.NoiseAware(2.0, 0.01, ledger=ledger, **SHORT).fit(tasks)
    assert caught.value.release.guarantee.proved.epsilon == 2.0
    assert "error's attribute `release`" in caught.value.__notes__[0]


def test_rounds_that_were_paid_for_outlive_their_answers(tasks):
    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        mp.release(tasks, 2.0, rounds=2, respond=interrupted)
    assert caught.value.release.rounds == 1
    assert caught.value.release.guarantee.proved.epsilon == 2.0


def test_the_joint_method_takes_one_round():
    assert mp.NoiseAware(method="joint")._rounds == 1
    assert mp.NoiseAware()._rounds == "auto"
