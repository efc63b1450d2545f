"""The methods that the experiments compare: candidates of each, the choice among them, and what is kept of a fit."""

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
from mpmtl_prob.sampling.nuts import WARMUP
from studies.papers.settings import (
    ALONE,
    DP_AGGR,
    DP_MTRL,
    GROUP,
    GROUP_SPARSE,
    LASSO,
    LOW_RANK,
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

#: under which the true guarantees are computed: whose sensitivity the papers use
ADJACENCY = "zero_out"

SELECTION = (
    "Hyper-parameters of every arm but the posterior were chosen by cross-validation on the training rows of the first "
    "replication, among equally many candidates for each, and used in all replications. As in the papers, no budget was "
    "charged for it. The noise-aware posterior has none to choose."
)


class Missing(Exception):
    """An arm cannot run on these data; the message says why."""


@dataclass(frozen=True)
class Choice:
    """What cross-validation picked: the estimator, its place in the thinned grid, its score, and out of how many."""

    estimator: Any
    index: int
    score: float
    candidates: int


Grid = Callable[[Unit, TaskData, Effort], Sequence[Any]]


@dataclass(frozen=True)
class Arm:
    """A method that is compared.

    Attributes:
        grid: its candidates on training rows; None for the posterior, which has nothing to choose.
        adjacency: that it is asked to prove something for.
    """

    grid: Grid | None = None
    adjacency: str = ADJACENCY


def candidates(unit: Unit, train: TaskData, effort: Effort) -> list[Any]:
    """The grid of an arm on these training rows, thinned."""
    grid = ARMS[unit.arm].grid
    if grid is None:
        raise ValueError(f"arm: no grid for {unit.arm!r}")
    return list(grid(unit, train, effort))[:: effort.stride]


def _ridge(unit: Unit, train: TaskData, effort: Effort) -> Sequence[Any]:
    return grids.ridge_logistic(train) if isinstance(unit.data.loss, Logistic) else grids.ridge(train)


def _rounds(algorithm: type[MPMTL]) -> Grid:
    def grid(unit: Unit, train: TaskData, effort: Effort) -> Sequence[Any]:
        loss, start = unit.data.loss, None
        if isinstance(loss, LeastSquares):  # the ridge that was chosen where it stands alone
            start = choose(replace(unit, arm=RIDGE, epsilon=None), effort).estimator
        return grids.rounds(
            algorithm, train, start=start, epsilon=unit.epsilon, loss=loss, adjacency=ADJACENCY, record=False
        )

    return grid


ARMS = {
    RIDGE: Arm(_ridge),
    LASSO: Arm(lambda unit, train, effort: grids.lasso(train, unit.data.loss)),
    ALONE: Arm(lambda unit, train, effort: grids.alone(train, unit.data.loss)),
    TRACE: Arm(lambda unit, train, effort: grids.multi_task(TraceNorm(), train, unit.data.loss)),
    GROUP: Arm(lambda unit, train, effort: grids.multi_task(GroupLasso(), train, unit.data.loss)),
    LOW_RANK: Arm(_rounds(LowRank)),
    GROUP_SPARSE: Arm(_rounds(GroupSparse)),
    DP_MTRL: Arm(lambda unit, train, effort: grids.dp_mtrl(train, epsilon=unit.epsilon)),
    DP_AGGR: Arm(lambda unit, train, effort: grids.dp_aggr(train, epsilon=unit.epsilon, loss=unit.data.loss)),
    POSTERIOR: Arm(),
    REPLACEMENT: Arm(adjacency="replace"),
}


@lru_cache(maxsize=8)
def load(data: Data, replication: int) -> Loaded:
    return data.load(replication)


@lru_cache(maxsize=1024)
def choose(unit: Unit, effort: Effort, index: int | None = None) -> Choice:
    """The candidate that cross-validation picks on the first replication, or the one at an index picked before.

    Args:
        unit: its replication is not read.
        effort: of tuning.
        index: in the thinned grid.
    """
    train = subset(load(unit.data, 0).train, unit.tasks)
    grid = candidates(unit, train, effort)
    if index is not None:
        return Choice(grid[index], index, float("nan"), len(grid))
    found = cross_validate(grid, train, folds=effort.folds, metric=unit.data.metric, progress_bar=False)
    best = next(i for i, candidate in enumerate(grid) if candidate is found.best)
    return Choice(found.best, best, float(found.mean[best]), len(grid))


def fit(unit: Unit, effort: Effort, choice: Choice | None) -> Fitted | OwnerPosteriors | OwnerEffects | OwnerEffects:
    """The arm on the training rows of the unit's replication, noise drawn by the operating system.

    Raises:
        Missing: the posterior of these data does not exist.
    """
    train = subset(load(unit.data, unit.replication).train, unit.tasks)
    if ARMS[unit.arm].grid is None:
        return posterior(unit, train, effort)
    assert choice is not None
    best = choice.estimator  # fitted through a selection, whose guarantees say that nothing was charged for it
    return Selection((best,), np.array([[choice.score]]), unit.data.metric, best).fit(train)


def posterior(unit: Unit, train: TaskData, effort: Effort) -> OwnerPosteriors | OwnerEffects:
    """One release, of as many rounds as its eps pays for, and the owners' posteriors given it.

    Raises Missing where there is no such model.
    """
    assert unit.epsilon is not None
    whole_way = NoiseAware(
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
        return whole_way.fit(train)
    except ValueError as error:
        raise Missing(str(error)) from error


def scores(unit: Unit, fitted: Fitted | OwnerPosteriors | OwnerEffects, scored: int | None) -> dict[str, Any]:
    """The papers' measure as ``error``, the others by name, and both guarantees."""
    test = subset(subset(load(unit.data, unit.replication).test, unit.tasks), scored)
    whole = fitted.W.shape[1] == test.num_tasks
    prediction = fitted.predict(test) if whole else linear_prediction(fitted.W[:, : test.num_tasks], test)
    measures = (auc,) if unit.data.metric == "auc" else (nmse, nmse_within)
    found: dict[str, Any] = {measure.__name__: measure(prediction, test) for measure in measures}
    if prediction.quantity == "probability":
        found["log_score"] = log_score(prediction, test)
    elif prediction.draws is not None:
        found["coverage"] = coverage(prediction, test)
    error = METRICS[unit.data.metric][0](prediction, test)
    return {"error": error, **found, "seconds": fitted.seconds, **bounds(fitted.guarantee)}


def bounds(guarantee: Guarantee) -> dict[str, Any]:
    """What is claimed and what is proved, as plain numbers; None where there is nothing."""

    def plain(bound: Bound | None) -> dict[str, Any] | None:
        return None if bound is None else {"epsilon": bound.epsilon, "delta": bound.delta, "adjacency": bound.adjacency}

    return {"claimed": plain(guarantee.claimed), "proved": plain(guarantee.proved), "reason": guarantee.reason}
