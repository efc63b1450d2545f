"""Compared methods (arms) of the experiments: candidates, choice by cross-validation, fit and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mpmtl_prob.data.prediction import linear_prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import (
    MPMTL,
    Fitted,
    GroupLasso,
    GroupSparse,
    LeastSquares,
    Logistic,
    LowRank,
    TraceNorm,
)
from mpmtl_prob.evaluation import auc, coverage, cross_validate, grids, log_score, nmse, nmse_within
from mpmtl_prob.evaluation.selection import METRICS, Selection
from mpmtl_prob.inference import NoiseAware, OwnerEffects, OwnerPosteriors
from mpmtl_prob.privacy import Bound, Guarantee
from mpmtl_prob.sampling.extent import WARMUP
from studies.papers.settings import (
    ALONE,
    AVERAGE,
    DP_AGGR,
    DP_MTRL,
    GROUP,
    GROUP_SPARSE,
    GROUP_SPARSE_2018,
    GROUP_SPARSE_UNIT,
    LASSO,
    LOW_RANK,
    LOW_RANK_2018,
    LOW_RANK_UNIT,
    POSTERIOR,
    REPLACEMENT,
    RIDGE,
    TRACE,
    Data,
    Effort,
    Loaded,
    Unit,
    subset,
)

#: adjacency of the proved guarantees, whose sensitivity the papers use
ADJACENCY = "zero_out"

_SELECTION = (
    "Hyper-parameters of every arm but the posterior were chosen by cross-validation on the training rows of {rows}{more}. "
    "As in the papers, no budget was charged for it. The noise-aware posterior has none to choose."
)


def selection(effort: Effort) -> str:
    """Say how hyper-parameters were chosen."""
    first = "the first replication, among equally many candidates for each, and used in all replications"
    each = "every replication by itself, among equally many candidates for each"
    more = (
        "; Algorithms 2 and 3 then tried, with the chosen ones, all that the papers name" if effort.strategies else ""
    )
    return _SELECTION.format(rows=each if effort.each else first, more=more)


class Missing(Exception):
    """Error for an arm that cannot run on these data; the message says why."""


@dataclass(frozen=True)
class Choice:
    """Result of cross-validation: the estimator, its index in the thinned grid, its score, and the number of candidates.

    ``strategy`` is the index among ``grids.strategies``, if one of those was better.
    """

    estimator: Any
    index: int
    score: float
    candidates: int
    strategy: int | None = None


Grid = Callable[[Unit, TaskData, Effort], Sequence[Any]]


@dataclass(frozen=True)
class Arm:
    """Method in the comparison.

    Attributes:
        grid: returns its candidates for training rows; None for the posterior, which has nothing to choose.
        adjacency: adjacency of its proved guarantee.
    """

    grid: Grid | None = None
    adjacency: str = ADJACENCY


def candidates(unit: Unit, train: TaskData, effort: Effort) -> list[Any]:
    """Return the thinned grid of an arm for these training rows."""
    grid = ARMS[unit.arm].grid
    if grid is None:
        raise ValueError(f"arm: no grid for {unit.arm!r}")
    return list(grid(unit, train, effort))[:: effort.stride]


def _ridge(unit: Unit, train: TaskData, effort: Effort) -> Sequence[Any]:
    return grids.ridge_logistic(train) if isinstance(unit.data.loss, Logistic) else grids.ridge(train)


def _rounds(algorithm: type[MPMTL], **options: Any) -> Grid:
    def grid(unit: Unit, train: TaskData, effort: Effort) -> Sequence[Any]:
        loss, start = unit.data.loss, None
        if isinstance(loss, LeastSquares):  # the ridge regression that was chosen as an arm of its own
            start = choose(replace(unit, arm=RIDGE, epsilon=None), effort).estimator
        return grids.rounds(
            algorithm, train, start=start, epsilon=unit.epsilon, loss=loss, adjacency=ADJACENCY, record=False, **options
        )

    return grid


_2018: dict[str, Any] = {"mechanism": "paper_2018", "unclipped": True}
_UNIT: dict[str, Any] = {"mechanism": "paper_2018_unit", "unclipped": True}

ARMS = {
    RIDGE: Arm(_ridge),
    LASSO: Arm(lambda unit, train, effort: grids.lasso(train, unit.data.loss)),
    ALONE: Arm(lambda unit, train, effort: grids.alone(train, unit.data.loss)),
    TRACE: Arm(lambda unit, train, effort: grids.multi_task(TraceNorm(), train, unit.data.loss)),
    GROUP: Arm(lambda unit, train, effort: grids.multi_task(GroupLasso(), train, unit.data.loss)),
    AVERAGE: Arm(lambda unit, train, effort: grids.dp_aggr(train, epsilon=None, loss=unit.data.loss)),
    LOW_RANK: Arm(_rounds(LowRank)),
    GROUP_SPARSE: Arm(_rounds(GroupSparse)),
    LOW_RANK_2018: Arm(_rounds(LowRank, **_2018)),
    LOW_RANK_UNIT: Arm(_rounds(LowRank, **_UNIT)),
    GROUP_SPARSE_2018: Arm(_rounds(GroupSparse, **_2018)),
    GROUP_SPARSE_UNIT: Arm(_rounds(GroupSparse, **_UNIT)),
    DP_MTRL: Arm(lambda unit, train, effort: grids.dp_mtrl(train, epsilon=unit.epsilon)),
    DP_AGGR: Arm(lambda unit, train, effort: grids.dp_aggr(train, epsilon=unit.epsilon, loss=unit.data.loss)),
    POSTERIOR: Arm(),
    REPLACEMENT: Arm(adjacency="replace"),
}


@lru_cache(maxsize=8)
def load(data: Data, replication: int) -> Loaded:
    """Load a replication of a data set, cached."""
    return data.load(replication)


@lru_cache(maxsize=1024)
def choose(unit: Unit, effort: Effort, index: int | None = None, strategy: int | None = None) -> Choice:
    """Choose a candidate by cross-validation, or return the one at a known index.

    Args:
        unit: the unit. Its training rows are those of the first replication, unless the effort is for each.
        effort: effort of tuning.
        index: index in the thinned grid, if known.
        strategy: index among the strategies, if known and one of them was chosen.
    """
    train = subset(load(unit.data, unit.replication if effort.each else 0).train, unit.tasks)
    grid = candidates(unit, train, effort)
    if index is not None:
        estimator = grid[index] if strategy is None else grids.strategies(grid[index])[strategy]
        return Choice(estimator, index, float("nan"), len(grid), strategy)
    best, mean = _best(grid, unit, train, effort)
    choice = Choice(grid[best], best, mean, len(grid))
    if not (effort.strategies and isinstance(choice.estimator, LowRank | GroupSparse)):
        return choice
    tried = grids.strategies(choice.estimator)
    strategy, mean = _best(tried, unit, train, effort)
    choice = replace(choice, candidates=len(grid) + len(tried))
    # Both stages have the same folds and noise, so that their scores compare.
    is_better = mean > choice.score if METRICS[unit.data.metric][1] else mean < choice.score
    return replace(choice, estimator=tried[strategy], score=mean, strategy=strategy) if is_better else choice


def _best(grid: Sequence[Any], unit: Unit, train: TaskData, effort: Effort) -> tuple[int, float]:
    """Return the index of the best candidate and its mean score over the folds."""
    selection = cross_validate(grid, train, folds=effort.folds, metric=unit.data.metric, progress_bar=False)
    best = next(i for i, candidate in enumerate(grid) if candidate is selection.best)
    return best, float(selection.mean[best])


def fit(unit: Unit, effort: Effort, choice: Choice | None) -> Fitted | OwnerPosteriors | OwnerEffects:
    """Fit the arm to the training rows of the unit's replication, with noise from the operating system.

    Raises:
        Missing: the posterior of these data does not exist.
    """
    train = subset(load(unit.data, unit.replication).train, unit.tasks)
    if ARMS[unit.arm].grid is None:
        return posterior(unit, train, effort)
    assert choice is not None
    best = choice.estimator  # fitted through a Selection, whose guarantee says that tuning was not charged
    return Selection((best,), np.array([[choice.score]]), unit.data.metric, best).fit(train)


def posterior(unit: Unit, train: TaskData, effort: Effort) -> OwnerPosteriors | OwnerEffects:
    """Fit the noise-aware posterior: one release, with as many rounds as its eps allows, and the owners' posteriors.

    Raises Missing if there is no such model.
    """
    assert unit.epsilon is not None
    estimator = NoiseAware(
        unit.epsilon,
        adjacency=ARMS[unit.arm].adjacency,
        likelihood=unit.data.of.likelihood,
        chains=effort.chains,
        warmup=min(effort.draws, WARMUP),
        draws=effort.draws,
        seed=unit.replication,
        progress_bar=False,
    )
    try:
        return estimator.fit(train)
    except ValueError as error:
        raise Missing(str(error)) from error


def scores(unit: Unit, fitted: Fitted | OwnerPosteriors | OwnerEffects, scored: int | None) -> dict[str, Any]:
    """Score a fit: the papers' measure as ``error``, other measures by name, and both guarantees."""
    test = subset(subset(load(unit.data, unit.replication).test, unit.tasks), scored)
    of_all_tasks = fitted.W.shape[1] == test.num_tasks
    prediction = fitted.predict(test) if of_all_tasks else linear_prediction(fitted.W[:, : test.num_tasks], test)
    measures = (auc,) if unit.data.metric == "auc" else (nmse, nmse_within)
    by_measure: dict[str, Any] = {measure.__name__: measure(prediction, test) for measure in measures}
    if prediction.quantity == "probability":
        by_measure["log_score"] = log_score(prediction, test)
    elif prediction.draws is not None:
        by_measure["coverage"] = coverage(prediction, test)
    error = METRICS[unit.data.metric][0](prediction, test)
    return {"error": error, **by_measure, "seconds": fitted.seconds, **bounds(fitted.guarantee)}


def bounds(guarantee: Guarantee) -> dict[str, Any]:
    """Return the claimed and the proved bound as plain numbers; None where there is none."""

    def plain(bound: Bound | None) -> dict[str, Any] | None:
        return None if bound is None else {"epsilon": bound.epsilon, "delta": bound.delta, "adjacency": bound.adjacency}

    return {"claimed": plain(guarantee.claimed), "proved": plain(guarantee.proved), "reason": guarantee.reason}
