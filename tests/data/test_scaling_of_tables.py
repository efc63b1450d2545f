"""Columns of a table may be in any units: they are scaled to unit variance by every task's own rows, whatever is in them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob import TaskData, TaskShards, evaluation
from mpmtl_prob.estimators import DPAggr, Lasso, LowRank, MultiTask, Ridge, RidgeLogistic, RowProtection, TraceNorm
from mpmtl_prob.releases import message, terms

UNITS = {"age": 1.0, "income": 1e5, "share": 1e-4}


def table(tasks=12, rows=10, units=UNITS, binary=False, seed=0):
    """Rows of hospitals; the outcome depends on all columns as much, in whatever units they are."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((tasks, rows, 3))
    y = np.einsum("mnd,d->mn", X, [1.0, -1.0, 0.5]) + 0.3 * rng.standard_normal((tasks, rows))
    y = np.where(y > 0, 1.0, -1.0) if binary else y
    frame = pd.DataFrame(X.reshape(-1, 3) * list(units.values()), columns=list(units))
    return frame.assign(hospital=np.repeat([f"h{i}" for i in range(tasks)], rows), outcome=y.ravel())


def tasks_of(frame, **options):
    return TaskData.from_pandas(frame, task="hospital", target="outcome", **options)


def test_what_comes_from_a_table_remembers_it(tmp_path):
    tasks = tasks_of(table())
    assert tasks.scaling == "unit_variance"
    assert "scaled to unit variance by every task's own rows" in repr(tasks)
    train, test = tasks.split(0.5, seed=0)
    parts = [
        train,
        test,
        tasks.with_intercept(),
        tasks.with_intercept().slopes,
        tasks.unit_rows(),
        tasks.folds(2, seed=0)[0][0],
    ]
    assert {part.scaling for part in parts} == {"unit_variance"}
    table().to_parquet(tmp_path / "part.parquet")
    shards = TaskShards.from_parquet(tmp_path, task="hospital", target="outcome", progress_bar=False)
    assert mp.release(shards, 1.0).scaling == mp.release(tasks, 1.0).scaling == "unit_variance"
    arrays = TaskData.from_lists(list(tasks.X), list(tasks.y))
    assert mp.release(arrays, 1.0).scaling == "pareto"
    assert mp.release(tasks, 1.0, scaling="none").scaling == "none"


def test_units_change_neither_a_release_nor_what_is_learnt():
    ordinary, odd = (tasks_of(table(units=dict.fromkeys(UNITS, 1.0))), tasks_of(table()))
    first, second = (mp.release(tasks, 1.0, unsafe_seed=1) for tasks in (ordinary, odd))
    assert_allclose(first.sigma, second.sigma, atol=1e-2 * np.abs(first.sigma).max())  # messages are cut to a grid
    for estimator in ESTIMATORS:
        expected = estimator.fit(ordinary).predict(ordinary).mean
        assert_allclose(estimator.fit(odd).predict(odd).mean, expected, rtol=1e-4, atol=1e-6, err_msg=repr(estimator))


ESTIMATORS = [
    Ridge(), Ridge(2.0), Lasso(0.5), MultiTask(TraceNorm(), 3.0), LowRank(penalty=1.0, epsilon=None, clip=10.0),
    LowRank(penalty=1.0, epsilon=None, clip=10.0, step_size=0.01),
]  # fmt: skip


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_weights_are_in_the_units_of_the_table(estimator, intercept):
    """Fitting scaled arrays and going back by hand gives the same."""
    tasks = tasks_of(table(), intercept=intercept)
    scale = np.sqrt(np.stack([np.var(x, axis=0) if intercept else np.mean(x**2, axis=0) for x in tasks.X[..., :3]]))
    X = list(tasks.X[..., :3] / scale[:, None, :])
    arrays = TaskData.from_lists(X, list(tasks.y), tasks=tasks.tasks, features=tasks.features[:3])
    arrays = arrays.with_intercept() if intercept else arrays
    if intercept:  # the scale is of contrasts, of which there are n - 1
        by_hand = tasks_of(table(units=dict.fromkeys(UNITS, 1.0)), intercept=True)
        expected = estimator.fit(by_hand).W[:3] / np.array(list(UNITS.values()))[:, None]
        assert_allclose(estimator.fit(tasks).W[:3], expected, rtol=1e-4, atol=1e-7 * np.abs(expected).max(axis=1).max())
    else:
        expected = estimator.fit(arrays).W / scale.T
        assert_allclose(estimator.fit(tasks).W, expected, rtol=1e-5, atol=0)


def test_logistic_regression_too():
    ordinary, odd = (tasks_of(table(units=units, binary=True, rows=30)) for units in (dict.fromkeys(UNITS, 1.0), UNITS))
    for estimator in (RidgeLogistic(), RidgeLogistic(1.0)):
        expected = estimator.fit(ordinary).predict(ordinary).mean
        assert_allclose(estimator.fit(odd).predict(odd).mean, expected, rtol=1e-3, atol=1e-5)


def test_a_path_is_its_fits_and_a_choice_is_made_in_these_units():
    tasks = tasks_of(table())
    for path, estimator in (
        (Ridge().path, Ridge),
        (MultiTask(TraceNorm(), 1.0).path, lambda p: MultiTask(TraceNorm(), p)),
    ):
        for fitted, penalty in zip(path(tasks, [5.0, 1.0]), [5.0, 1.0], strict=True):
            assert_allclose(fitted.W, estimator(penalty).fit(tasks).W, rtol=1e-3, atol=1e-8 * np.abs(fitted.W).max())
    odd, ordinary = (
        evaluation.cross_validate(evaluation.grids.ridge(rows), rows, folds=2, progress_bar=False)
        for rows in (tasks, tasks_of(table(units=dict.fromkeys(UNITS, 1.0))))
    )
    assert_allclose(odd.scores, ordinary.scores, rtol=1e-3)


def test_single_rows_are_not_scaled_by_all_rows_of_a_task():
    """A row would change how all others of its task are scaled, and what protects one row would not hold."""
    tasks = tasks_of(table(units=dict.fromkeys(UNITS, 0.1)))
    arrays = TaskData.from_lists(list(tasks.X), list(tasks.y), tasks=tasks.tasks, features=tasks.features)
    protected = LowRank(penalty=0.1, epsilon=1.0, clip=1.0, rows=RowProtection(5.0, 0.1), curvature=10.0, unsafe_seed=0)
    aggregated = DPAggr(penalty=0.1, unsafe_seed=0, target_bound=2.0)
    for estimator in (protected, aggregated):
        assert_array_equal(estimator.fit(tasks).W, estimator.fit(arrays).W)


@pytest.mark.parametrize("wild", [1e-100, 1e-6, 1.0, 1e6, 1e100])
def test_one_hospitals_wild_sizes_change_nothing_of_the_others(wild):
    """The scaling is public: it follows from no row, and so do all other messages, in bits."""
    frame = table()
    changed = frame.copy()
    one = changed.hospital == "h3"
    changed.loc[one, list(UNITS)] *= [wild, 1.0, 1 / wild]
    released = [mp.release(tasks_of(rows), 1.0) for rows in (frame, changed)]
    public = [
        (r.scaling, r.features, r.num_tasks, r.lattice, r.mechanisms, r.message, str(r.guarantee)) for r in released
    ]
    assert public[0] == public[1]
    agreed = terms(1.0, 12, list(UNITS), scaling=released[0].scaling)
    first, second = (np.delete(message(tasks_of(rows), agreed), 3, axis=1) for rows in (frame, changed))
    assert_array_equal(first, second)


def test_intervals_hold_what_they_say_in_natural_units():
    frame = table(tasks=60, rows=12, seed=1)
    tasks = tasks_of(frame)
    release = mp.release(tasks, 3.0)
    shared = mp.inference.shared_covariance(release, chains=2, warmup=200, draws=100, progress_bar=False)
    own = mp.inference.task_posteriors(tasks, shared, progress_bar=False)
    weights = (
        own.to_arviz()["posterior"]["W"].stack(sample=("chain", "draw")).transpose("sample", "feature", "task").values
    )
    low, high = np.quantile(weights, [0.05, 0.95], axis=0)
    truth = np.array([1.0, -1.0, 0.5])[:, None] / np.array(list(UNITS.values()))[:, None]
    assert 0.82 < np.mean((low < truth) & (truth < high)) < 0.98


def test_the_comparisons_baseline_is_an_honest_one():
    tasks = tasks_of(table(rows=20))
    train, test = tasks.split(0.5, seed=0)
    raw = TaskData.from_lists(list(train.X), list(train.y), tasks=train.tasks, features=train.features)
    scaled, straw = (Ridge().fit(rows).predict(test) for rows in (train, raw))
    error = lambda prediction: evaluation.nmse(prediction, test)
    assert error(scaled) < 0.25 < error(straw)
