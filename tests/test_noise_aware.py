"""The whole way as one estimator."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob.privacy import BudgetExceeded, Ledger
from mpmtl_prob.scikit import MultiTaskRegressor

SHORT = {"chains": 2, "warmup": 200, "draws": 60}


@pytest.fixture(scope="module")
def tasks():
    return mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=10, test_rows=5)[0]


def test_it_is_one_release_its_posterior_and_the_owners_own(tasks):
    found = mp.NoiseAware(2.0, adjacency="zero_out", unsafe_seed=1, seed=2, **SHORT).fit(tasks)
    answer = mp.inference.posterior_draws(tasks, 2)
    release = mp.release(tasks, 2.0, adjacency="zero_out", rounds="auto", respond=answer, unsafe_seed=1)
    shared = mp.inference.shared_covariance(release, seed=2, progress_bar=False, **SHORT)
    assert_array_equal(found.W, mp.inference.task_posteriors(tasks, shared, seed=2).W)
    assert found.guarantee == release.guarantee


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
