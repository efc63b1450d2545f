"""Cross-validation: the same scores as one fit at a time, however the work is shared out."""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.tolerances import FAR
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.estimators import (
    GroupLasso,
    GroupSparse,
    Lasso,
    LocalGradientDescent,
    Logistic,
    LowRank,
    MultiTask,
    Ridge,
    RidgeLogistic,
    RowProtection,
    TraceNorm,
)
from mpmtl_prob.evaluation import auc, cross_validate, grids, log_score, nmse
from mpmtl_prob.evaluation.selection import NOT_CHARGED, Selection, _jobs, _many_runs


@pytest.fixture(scope="module")
def tasks():
    return mp.datasets.synthetic_low_rank(num_tasks=6, num_features=3, rows=9, test_rows=1, group=3, seed=2)[0]


def one_at_a_time(candidates, tasks, metric=nmse, folds=3):
    return np.array(
        [[metric(c.fit(train).predict(held), held) for train, held in tasks.folds(folds, 0)] for c in candidates]
    )


@pytest.mark.parametrize(
    "candidates",
    [
        [
            MultiTask(norm, p, tolerance=1e-8)
            for norm in (TraceNorm(), GroupLasso())
            for p in (0.01, 1.0, 0.1, 0.3, 0.03, 3.0)
        ],
        [
            Ridge(),
            Ridge(0.1),
            Ridge(3.0),
            Ridge(0.0),
            *(Lasso(p, tolerance=1e-8) for p in (0.05, 0.01, 0.1, 0.02, 0.2, 0.5)),
        ],
        [
            LocalGradientDescent(rounds=T, start=start, step_size=s)
            for T in (1, 3)
            for start in (Ridge(), "zero")
            for s in (None, "per_task")
        ],
        [LowRank(penalty=p, epsilon=None, rounds=3, acceleration=a) for p in (0.01, 0.1) for a in (True, False)],
    ],
    ids=["paths", "single tasks", "alone", "rounds"],
)
def test_scores_are_those_of_one_fit_at_a_time(tasks, candidates):
    selection = cross_validate(candidates, tasks, folds=3, progress_bar=False)
    assert_allclose(selection.scores, one_at_a_time(candidates, tasks), rtol=1e-5)
    assert selection.best is candidates[selection.mean.argmin()]


@pytest.mark.parametrize("algorithm", [LowRank, pytest.param(GroupSparse, marks=pytest.mark.evidence)])
def test_noise_in_scores_vanishes_with_a_large_epsilon(tasks, algorithm):
    """Noise is in the scores, and vanishes with a large epsilon."""
    grid = [
        algorithm(penalty=3.0, epsilon=eps, rounds=3, clip=1.0, unsafe_seed=0, rows=rows)
        for eps in (0.1, 1e6)
        for rows in (None, RowProtection(1e6))
    ]
    selection = cross_validate(grid, tasks, folds=3, progress_bar=False)
    clean = [algorithm(penalty=3.0, epsilon=None, rounds=3, clip=1.0)]
    exact = cross_validate(clean, tasks, folds=3, progress_bar=False).scores
    scores = selection.scores.reshape(2, 2, 3)
    assert_allclose(scores[1], np.broadcast_to(exact, (2, 3)), rtol=2e-4)
    assert (np.abs(scores[0] / exact - 1) > 1e-3).all()


def test_noise_in_scores_has_the_mechanisms_trace(tasks, monkeypatch):
    """Noise in the scores has the trace that the mechanism states."""
    candidates = [LowRank(penalty=10.0, epsilon=eps, rounds=3, clip=1.0) for eps in (0.1, 10.0)]
    plans = [each.plan(tasks, each.bind(tasks)) for each in candidates]
    degrees, scales = (
        np.array([[getattr(law, name) for law in p.mechanisms] for p in plans]) for name in ("df", "scale")
    )
    traces = []

    def watched(sharing, loss, runs, W0, noises):
        traces.append(np.trace(noises.moment[:2], axis1=-2, axis2=-1))
        return _many_runs(sharing, loss, runs, W0, noises)

    monkeypatch.setattr("mpmtl_prob.evaluation.selection._many_runs", watched)
    cross_validate(candidates, tasks, folds=3, progress_bar=False)
    chi2 = np.mean(traces, axis=0) / scales  # of degrees times features, the mean over folds
    expected = degrees * plans[0].size
    assert (np.abs(chi2 - expected) < FAR * np.sqrt(2 * expected / len(traces))).all()


def test_more_candidates_of_a_kind_do_not_compile_again(tasks):
    grid = lambda penalties: [LowRank(penalty=p, epsilon=1.0, rounds=3, clip=1.0, unsafe_seed=0) for p in penalties]
    cross_validate(grid([0.1, 0.2]), tasks, folds=3, progress_bar=False)
    compiled = _many_runs._cache_size()
    cross_validate(grid(np.geomspace(0.01, 1, 11)), tasks, folds=3, progress_bar=False)
    assert _many_runs._cache_size() == compiled


def test_the_choice_is_fitted_with_fresh_noise(tasks):
    """The chosen estimator is fitted with fresh noise, and says what was not charged."""
    selection = cross_validate(
        [LowRank(penalty=p, epsilon=1.0, rounds=3, clip=1.0, curvature=40.0, unsafe_seed=0) for p in (0.1, 1.0)],
        tasks,
        progress_bar=False,
    )
    one, other = selection.fit(tasks), selection.fit(tasks)
    assert not np.allclose(one.release.sigma, other.release.sigma)
    # the papers' noise of eps = 1 in all: its support shows a task with probability 1 - exp(-1)
    assert (one.guarantee.proved.epsilon, one.guarantee.proved.delta) == pytest.approx((1.0, -np.expm1(-1.0)))
    assert NOT_CHARGED in one.guarantee.reason
    assert NOT_CHARGED in repr(selection)
    assert NOT_CHARGED in cross_validate([Ridge(0.1)], tasks, progress_bar=False).fit(tasks).guarantee.reason
    assert list(selection.to_pandas().columns) == ["penalty", "nmse", "sd"]


def test_every_fold_draws_its_own_noise(tasks, monkeypatch):
    seeds = []

    def recorded(candidates, train, seed):
        seeds.append(seed)
        return _jobs(candidates, train, seed)

    monkeypatch.setattr("mpmtl_prob.evaluation.selection._jobs", recorded)
    cross_validate([Ridge()], tasks, folds=3, progress_bar=False)
    assert len(set(seeds)) == 3


def test_what_was_chosen_roughly_is_solved_to_the_end(tasks):
    asked = []

    @dataclass
    class Rough:
        tolerance: float = 0.1
        max_iterations: int = 10

        def fit(self, train):
            asked.append((self.tolerance, self.max_iterations))
            return Ridge().fit(train)

    Selection((Rough(),), np.zeros((1, 1)), "nmse", Rough()).fit(tasks)
    assert asked == [(1e-5, 50_000)]


@pytest.mark.parametrize(("metric", "of_no_weights"), [(auc, 0.5), (log_score, -np.log(2))], ids=["auc", "log_score"])
def test_binary_tasks_have_scores_of_which_more_is_better(metric, of_no_weights):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 18, 3))
    y = np.where(X @ [1.0, -1.0, 0.0] + 0.5 * rng.standard_normal((6, 18)) > 0, 1.0, -1.0)
    tasks = TaskData.from_lists(list(X), list(y))
    candidates = [*(Lasso(penalty, Logistic(), tolerance=1e-8) for penalty in (0.1, 1.0, 1e3)), RidgeLogistic()]
    selection = cross_validate(candidates, tasks, folds=2, metric=metric.__name__, progress_bar=False)
    assert_allclose(selection.scores, one_at_a_time(candidates, tasks, metric, folds=2), rtol=1e-5)
    assert selection.best is candidates[selection.mean.argmax()]
    assert_allclose(selection.mean[2], of_no_weights, rtol=1e-12)


def test_every_grid_is_as_long_as_the_others(tasks):
    lengths = [
        len(grids.ridge(tasks)),
        len(grids.lasso(tasks)),
        len(grids.ridge_logistic(tasks)),
        len(grids.alone(tasks)),
        len(grids.multi_task(TraceNorm(), tasks)),
        len(grids.multi_task(GroupLasso(), tasks)),
        len(grids.rounds(LowRank, tasks, epsilon=1.0)),
        len(grids.dp_aggr(tasks, epsilon=1.0)),
        len(grids.dp_mtrl(tasks, epsilon=1.0)),
    ]
    assert set(lengths) == {grids.SIZE}


def test_the_largest_penalty_is_the_least_that_leaves_nothing(tasks):
    """The largest penalty of a grid is the least that leaves nothing."""
    for norm in (TraceNorm(), GroupLasso()):
        largest = grids.multi_task(norm, tasks)[-1].penalty
        assert not MultiTask(norm, largest * 1.01).fit(tasks).W.any()
        assert MultiTask(norm, largest * 0.9).fit(tasks).W.any()


def test_bad_arguments_are_named(tasks):
    with pytest.raises(
        ValueError, match="metric: expected one of 'nmse', 'nmse_within', 'auc', 'log_score', got 'accuracy'"
    ):
        cross_validate([Ridge()], tasks, metric="accuracy")
    with pytest.raises(ValueError, match="penalty: expected a number >= 0 or 'evidence', got -1"):
        cross_validate([Ridge(-1.0)], tasks, progress_bar=False)


def test_candidates_without_any_score_are_refused_in_words():
    same = TaskData.from_lists([np.eye(3)] * 2, [np.ones(3)] * 2)  # one label: no AUC on any fold
    with pytest.raises(ValueError, match="candidates: expected at least one with a finite auc on every fold, got none"):
        cross_validate([Ridge(1.0)], same, folds=2, metric="auc", progress_bar=False)
