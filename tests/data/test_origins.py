"""The origin of targets is a matter of words: another one moves every task's intercept, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob.convex.penalties import TraceNorm
from mpmtl_prob.estimators import (
    MTRL,
    GroupSparse,
    Lasso,
    LocalGradientDescent,
    LowRank,
    LowRankPlusSparse,
    LowRankSparse,
    MultiTask,
    Ridge,
)
from mpmtl_prob.inference import shared_covariance, task_posteriors

SIZES = (1, 1, 2, 3, 2, 12, 5)
SHIFTS = (100.0, -3.0, 1e6)
EXACTLY = {"tolerance": 1e-12, "max_iterations": 100_000}
ESTIMATORS = {
    "Ridge": Ridge(),
    "Ridge, a penalty": Ridge(0.5),
    "Lasso": Lasso(0.1, **EXACTLY),
    "MultiTask": MultiTask(TraceNorm(), 0.1, **EXACTLY),
    "MTRL": MTRL(0.1, 0.1, tolerance=1e-8),
    "LowRankPlusSparse": LowRankPlusSparse((0.5, 0.2), tolerance=1e-8),
    "LowRank": LowRank(0.5, rounds=3, clip=5.0, curvature=300.0, start="zero", epsilon=None),
    "LowRankSparse": LowRankSparse((0.5, 0.2), rounds=3, clip=5.0, curvature=300.0, start="zero", epsilon=None),
    "GroupSparse": GroupSparse(0.5, rounds=3, clip=5.0, curvature=300.0, start="zero", epsilon=None),
    "LocalGradientDescent": LocalGradientDescent(rounds=5),
    "FrankWolfe": mp.estimators.FrankWolfe(None, radius=2.0, rounds=3, clip=5.0),
}


def of_sizes(shift=0.0):
    """Tasks with an intercept, of 1, 2, 3 and more rows; and the same with targets of another origin."""
    rng = np.random.default_rng(5)
    X = [rng.standard_normal((n, 3)) for n in SIZES]
    y = [x @ np.array([1.0, -0.5, 0.2]) + 0.3 * rng.standard_normal(len(x)) for x in X]
    return mp.TaskData.from_lists(X, [v + shift for v in y]).with_intercept()


@pytest.fixture(scope="module")
def public():
    release = mp.release(np.random.default_rng(0).standard_normal((3, 40)), 3.0, 0.01, unsafe_seed=0)
    return shared_covariance(release, chains=2, warmup=200, draws=100, progress_bar=False)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_another_origin_moves_only_intercepts_of_estimators(name):
    """Another origin of the targets moves the intercepts of an estimator and nothing else."""
    here = ESTIMATORS[name].fit(of_sizes()).W
    for shift in SHIFTS:
        there = ESTIMATORS[name].fit(of_sizes(shift)).W
        assert_allclose(there[:-1], here[:-1], atol=1e-5)
        assert_allclose(there[-1] - shift, here[-1], atol=1e-5)


@pytest.mark.filterwarnings("ignore:tasks. 2 of them")
@pytest.mark.parametrize("size", [1.0, 1e-12, 1e40])
@pytest.mark.parametrize("method", ["plug_in", "mixture"])
def test_another_origin_moves_the_intercepts_of_posteriors_alone(public, method, size):
    def drawn(shift):
        tasks = of_sizes(shift)
        own = task_posteriors(
            replace(tasks, y=tasks.y * size), public, method=method, draws=50, leave_one_out="not_in_release"
        )
        return own.to_arviz()["posterior"].dataset

    here = drawn(0.0)
    sd = here["W"].values.std(axis=(0, 1))
    for shift in SHIFTS:
        there = drawn(shift)
        away = there["W"].values - here["W"].values
        away[:, :, -1] -= np.where(np.equal(SIZES, 1), 0.0, shift * size)  # nothing beside what is not known of theirs
        assert np.all(np.abs(away) < 1e-6 * sd)
        for name in ("sigma", "snr"):
            assert_allclose(there[name], here[name], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:tasks. 2 of them")
def test_one_row_has_its_target_for_a_mean_at_any_origin(public):
    for shift in (0.0, *SHIFTS):
        tasks = of_sizes(shift)
        W = task_posteriors(tasks, public, draws=20, leave_one_out="not_in_release").W
        assert_allclose(W[:, :2], [[0, 0], [0, 0], [0, 0], tasks.y[:2, 0]], rtol=1e-9)


def test_scikit_learn_finds_the_same_slopes_at_any_origin():
    pytest.importorskip("sklearn")
    from mpmtl_prob.scikit import MultiTaskRegressor

    tasks = of_sizes()
    table = np.column_stack([np.repeat(np.arange(len(SIZES)), SIZES), tasks.X[tasks.mask][:, :3]])
    here, there = (MultiTaskRegressor(task=0).fit(table, tasks.y[tasks.mask] + s).fitted_.W for s in (0.0, 1e4))
    assert_allclose(there[:-1], here[:-1], atol=1e-8)
    assert_allclose(there[-1] - 1e4, here[-1], atol=1e-8)
