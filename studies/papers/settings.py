"""Settings of the papers' experiments.

Source: TPAMI 2022, section 4.2 (Fig 2), sections 5.2, 5.4 and 5.5 (Figs 3 to 10); supplement (percentages of training data).
The papers replicate everything 100 times. With the settings here a machine of two cores takes hours, or minutes with
:meth:`Study.fast`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.convex.losses import LeastSquares, Logistic, Loss
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.datasets import lsoa2, school, synthetic_group_sparse, synthetic_low_rank

RIDGE, LASSO, ALONE = "STL ridge", "STL lasso", "Algorithm 2, M = I"
TRACE, GROUP, AVERAGE = "MTL trace norm", "MTL l2,1", "MTL average"  # the last is DP-AGGR without noise
LOW_RANK, GROUP_SPARSE = "Algorithm 2", "Algorithm 3"
LOW_RANK_2018, LOW_RANK_UNIT = "Algorithm 2 of 2018", "Algorithm 2 of 2018, unit"
GROUP_SPARSE_2018, GROUP_SPARSE_UNIT = "Algorithm 3 of 2018", "Algorithm 3 of 2018, unit"
DP_MTRL, DP_AGGR = "DP-MTRL", "DP-AGGR"
POSTERIOR, REPLACEMENT = "noise-aware posterior", "noise-aware posterior, replacement"

#: arms of Fig 4, all runs of Algorithm 2: True for a strongly convex loss, and True for acceleration
ALLOCATIONS = {
    "convex": (False, False),
    "convex, accelerated": (False, True),
    "strongly convex": (True, False),
    "strongly convex, accelerated": (True, True),
}

#: arms with the noise of January 2018, of scale K / eps or (unit) 1 / eps, and the same arm with that of the journal
OF_2018 = {
    LOW_RANK_2018: LOW_RANK,
    LOW_RANK_UNIT: LOW_RANK,
    GROUP_SPARSE_2018: GROUP_SPARSE,
    GROUP_SPARSE_UNIT: GROUP_SPARSE,
}

#: arms without a budget
WITHOUT_EPSILON = (RIDGE, LASSO, ALONE, TRACE, GROUP, AVERAGE)
#: candidates of the papers' STL and MTL, of which the best counts; the papers' MTL has task relations too
STL, MTL = (RIDGE, LASSO), (TRACE, GROUP, AVERAGE)

EPSILONS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3)


class Loaded(NamedTuple):
    """Training and test rows, and the true weights (d, m) if they are known."""

    train: TaskData
    test: TaskData
    W: FloatArray | None


class Shared(Enum):
    """Structure that the tasks of a data set share."""

    SUBSPACE = auto()
    FEATURES = auto()
    EVERYTHING = auto()
    UNKNOWN = auto()  #: for real data


@dataclass(frozen=True)
class Kind:
    """Kind of data sets, with loader, metric and loss.

    Attributes:
        name: name in tables.
        load: loads a replication of a data set.
        shared: structure that the tasks share.
        metric: the papers' measure on these data.
        loss: loss for the targets.
        likelihood: likelihood of the targets.
    """

    name: str
    load: Callable[[Data, int], Loaded]
    shared: Shared
    metric: str = "nmse"
    loss: Loss = field(default_factory=LeastSquares)
    likelihood: str = "gaussian"


@dataclass(frozen=True)
class Data:
    """Data set with its split.

    Attributes:
        kind: a name in :data:`KINDS`.
        num_tasks: m, for synthetic data.
        num_features: d, for synthetic data.
        rows: training rows per task, for synthetic data; there are nine times as many test rows.
        group: number of similar tasks per group, for synthetic low-rank data.
        similarity: correlation of tasks of a group, for synthetic low-rank data. The papers do not give it: with 1 the
            non-private gap is nearly theirs, with .95 two thirds of it.
        fraction: share of training rows, for real data.
    """

    kind: str
    num_tasks: int = 320
    num_features: int = 30
    rows: int = 30
    group: int = 75
    similarity: float = 1.0
    fraction: float = 0.3

    def load(self, replication: int) -> Loaded:
        """Load a replication: synthetic data are drawn anew, and real data are split anew."""
        return self.of.load(self, replication)

    @property
    def of(self) -> Kind:
        return KINDS[self.kind]

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.of.name} {100 * self.fraction:g} %" if self.of.shared is Shared.UNKNOWN else self.of.name

    @property
    def metric(self) -> str:
        return self.of.metric

    @property
    def loss(self) -> Loss:
        return self.of.loss

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Sizes of synthetic data: tasks, features, training rows and test rows."""
        return self.num_tasks, self.num_features, self.rows, 9 * self.rows


def _alike(data: Data, replication: int, group: int | None = None) -> Loaded:
    alike = group or data.group
    return Loaded(*synthetic_low_rank(*data.size, similarity=data.similarity, group=alike, seed=replication))


def _sparse(data: Data, replication: int) -> Loaded:
    return Loaded(*synthetic_group_sparse(*data.size, active=min(4, data.num_features), seed=replication))


def _real(table: Callable[[], TaskData]) -> Callable[[Data, int], Loaded]:
    return lambda data, replication: Loaded(*table().split(data.fraction, seed=replication), None)


KINDS = {
    "low rank": Kind("synthetic low rank", _alike, Shared.SUBSPACE),
    "group sparse": Kind("synthetic group sparse", _sparse, Shared.FEATURES),
    "alike": Kind("all tasks alike", lambda data, r: _alike(data, r, data.num_tasks), Shared.EVERYTHING),
    "School": Kind("School", _real(school), Shared.UNKNOWN, "nmse_within"),
    "LSOA II": Kind("LSOA II", _real(lsoa2), Shared.UNKNOWN, "auc", Logistic(), "bernoulli"),
}


@dataclass(frozen=True)
class Effort:
    """Effort of tuning, the same for all arms, and of sampling the posterior.

    Attributes:
        folds: number of folds of cross-validation.
        stride: every stride-th candidate of a grid is tried. If it has no factor in common with the grids' sides (2, 4, 5),
            every hyper-parameter takes several values.
        chains: number of chains of NUTS.
        draws: draws per chain of NUTS, after as many warm-up iterations.
        strategies: whether Algorithms 2 and 3 then try, at the chosen rounds, clip and penalty, all that the papers name:
            acceleration, strong convexity, alpha and Q.
        each: whether every replication is tuned on its own training rows, instead of all on those of the first.
    """

    folds: int = 5
    stride: int = 1
    chains: int = 2
    draws: int = 150
    strategies: bool = False
    each: bool = False


@dataclass(frozen=True)
class Unit:
    """Unit of computation, which a rerun skips as a whole; every coordinate except the last has an axis."""

    data: Data
    arm: str
    epsilon: float | None = None
    tasks: int | None = None
    exponent: float | None = None
    replication: int = 0


@dataclass(frozen=True)
class Study:
    """Experiment of the papers, with all its settings.

    Attributes:
        name: name in the command.
        figure: the papers' figure.
        title: title in words.
        measure: measure of a unit, a name in ``measures.MEASURES``.
        data: data sets, one panel each.
        arms: compared methods.
        epsilons: budgets.
        tasks: numbers of tasks to train with; default all.
        scored: number of first tasks that are scored; default all.
        exponents: exponents of the growth of budgets over the rounds, Fig 4.
        posterior_epsilons: budgets of the posterior, if they differ.
        replacement_epsilons: budgets of the posterior under replacement adjacency.
        replications: number of replications of data, splits and noise.
        effort: effort of tuning and sampling.
    """

    name: str
    figure: str
    title: str
    measure: str
    data: tuple[Data, ...]
    arms: tuple[str, ...]
    epsilons: tuple[float, ...] = EPSILONS
    tasks: tuple[int, ...] = ()
    scored: int | None = None
    exponents: tuple[float, ...] = ()
    posterior_epsilons: tuple[float, ...] = ()
    replacement_epsilons: tuple[float, ...] = ()
    replications: int = 20
    effort: Effort = field(default_factory=Effort)

    def units(self) -> list[Unit]:
        """Return all units in the order of replications, so that an interrupted run has complete replications."""
        return [
            Unit(data, arm, epsilon, tasks, exponent, replication)
            for replication in range(self.replications)
            for data in self.data
            for tasks in self.tasks or (None,)
            for arm in self.arms
            for epsilon in self.budgets(arm)
            for exponent in self.exponents or (None,)
        ]

    def budgets(self, arm: str) -> tuple[float | None, ...]:
        """Return the budgets of an arm; a single None for arms without a budget."""
        if arm in WITHOUT_EPSILON:
            return (None,)
        if arm == REPLACEMENT:
            return self.replacement_epsilons
        return (self.posterior_epsilons if arm == POSTERIOR else ()) or self.epsilons

    def fast(self) -> Study:
        """Return a study that takes minutes, with fewer replications, folds and draws, and fewer candidates for all arms."""
        return replace(self, **({"effort": _LITTLE} | _FAST[self.name]))


_LITTLE = Effort(folds=3, stride=7, chains=2, draws=100)
_LITTLE_ON_ALL = replace(_LITTLE, strategies=True)
_LEAST = Effort(folds=2, stride=13, chains=2, draws=100)

_SYNTHETIC = (Data("low rank"), Data("group sparse"))
_REAL_ARMS = (RIDGE, LASSO, ALONE, TRACE, GROUP, AVERAGE, LOW_RANK, GROUP_SPARSE, DP_MTRL, DP_AGGR, POSTERIOR)
_BOTH_NOISES = (RIDGE, LASSO, TRACE, GROUP, LOW_RANK, GROUP_SPARSE, *OF_2018)
_BOTH_EPSILONS = (1e-3, 0.1, 1.0, 10.0)
_TRAINING_ARMS = (RIDGE, TRACE, AVERAGE, LOW_RANK, DP_MTRL, DP_AGGR, POSTERIOR)
_PERCENTAGES = (0.3, 0.5, 0.7, 0.9)
_BESIDE = (0.1, 1.0)  # budgets that are also run under replacement adjacency, in seconds, with one round

STUDIES = {
    study.name: study
    for study in (
        Study(
            name="fig2",
            figure="Fig 2",
            title="The running example: one odd task among ten",
            measure="running_example",
            data=(Data("low rank", num_tasks=10, num_features=5, rows=5),),
            arms=(LOW_RANK,),
            epsilons=(0.1, 1e40),
            replications=100,
        ),
        Study(
            name="fig3",
            figure="Fig 3",
            title="Task relationships and output models",
            measure="relations",
            data=(Data("low rank"),),
            arms=(DP_MTRL, LOW_RANK, POSTERIOR),
            epsilons=(0.1,),
        ),
        Study(
            name="fig4",
            figure="Fig 4",
            title="How budgets are spread over the rounds",
            measure="allocation",
            data=(Data("low rank"),),
            arms=tuple(ALLOCATIONS),
            epsilons=(1.0,),  # TPAMI's caption; the preprint's says 0.1
            exponents=(-2.0, -1.0, -0.4, 0.0, 0.2, 0.4, 1.0, 2.0, 4.0),
        ),
        Study(
            name="fig5",
            figure="Fig 5",
            title="Noise against signal in the release, and how far it moves the models",
            measure="noise_to_signal",
            data=(Data("low rank"),),
            arms=(LOW_RANK, DP_MTRL),
            epsilons=(0.1,),
        ),
        Study(
            name="fig6",
            figure="Fig 6",
            title="Privacy against accuracy, synthetic data",
            measure="score",
            data=_SYNTHETIC,
            arms=(RIDGE, ALONE, TRACE, GROUP, LOW_RANK, GROUP_SPARSE, POSTERIOR, REPLACEMENT),
            posterior_epsilons=(*EPSILONS, 0.3),
            replacement_epsilons=_BESIDE,
        ),
        Study(
            name="fig7",
            figure="Fig 7",
            title="Privacy against accuracy, synthetic data: the baselines",
            measure="score",
            data=(*_SYNTHETIC, Data("alike")),
            arms=(RIDGE, TRACE, LOW_RANK, DP_MTRL, DP_AGGR),
        ),
        Study(
            name="fig8",
            figure="Fig 8",
            title="The number of tasks: error of the first twenty",
            measure="score",
            data=(Data("low rank"), Data("alike")),
            arms=(LOW_RANK, POSTERIOR),
            tasks=(20, 40, 80, 160, 320),
            scored=20,
        ),
        Study(
            name="fig9",
            figure="Figs 9 (a) and 10 (a)",
            title="Privacy against accuracy, School",
            measure="score",
            data=(Data("School"),),
            arms=(*_REAL_ARMS, REPLACEMENT),
            posterior_epsilons=(*EPSILONS, 0.3),
            replacement_epsilons=_BESIDE,
        ),
        Study(
            name="fig10",
            figure="Figs 9 (b) and 10 (b)",
            title="Privacy against accuracy, LSOA II",
            measure="score",
            data=(Data("LSOA II"),),
            arms=_REAL_ARMS,
        ),
        Study(
            name="non-private",
            figure="Fig 9 (a)",
            title="Candidates of the papers' best method without privacy, School",
            measure="score",
            data=(Data("School"),),
            arms=(RIDGE, LASSO, TRACE, GROUP, AVERAGE),
            epsilons=(1.0,),
            replications=10,
        ),
        Study(
            name="noise-2018",
            figure="Fig 9 (a)",
            title="The noise of the papers' figures, which is that of 2018: School",
            measure="score",
            data=(Data("School"),),
            arms=_BOTH_NOISES,
            epsilons=_BOTH_EPSILONS,
            replications=5,
            effort=Effort(strategies=True, each=True),
        ),
        Study(
            name="noise-2018-synthetic",
            figure="Fig 6",
            title="The noise of the papers' figures, which is that of 2018: synthetic data",
            measure="score",
            data=_SYNTHETIC,
            arms=tuple(arm for arm in _BOTH_NOISES if arm != LASSO),  # the papers' STL there is ridge
            epsilons=_BOTH_EPSILONS,
            replications=5,
            effort=Effort(folds=3, stride=3, strategies=True),
        ),
        Study(  # 293 attributes: an arm takes minutes to tune at one eps
            name="noise-2018-lsoa2",
            figure="Fig 9 (b)",
            title="The noise of the papers' figures, which is that of 2018: LSOA II",
            measure="score",
            data=(Data("LSOA II"),),
            arms=(RIDGE, TRACE, AVERAGE, LOW_RANK, LOW_RANK_2018, LOW_RANK_UNIT),
            epsilons=(1e-3, 10.0),
            replications=3,
            effort=_LEAST,
        ),
        Study(
            name="training",
            figure="supplement, Figs 3 and 4",
            title="The percentage of training data, School",
            measure="score",
            data=tuple(Data("School", fraction=share) for share in _PERCENTAGES),
            arms=_TRAINING_ARMS,
        ),
        Study(  # a posterior of 41 tasks with 293 attributes takes minutes, and an arm as many to tune
            name="training-lsoa2",
            figure="supplement, Figs 3 and 4",
            title="The percentage of training data, LSOA II",
            measure="score",
            data=tuple(Data("LSOA II", fraction=share) for share in _PERCENTAGES),
            arms=_TRAINING_ARMS,
            epsilons=(1e-3, 1.0, 1e3),
            posterior_epsilons=(1.0,),
            replications=3,
            effort=Effort(folds=3, stride=3),
        ),
    )
}

_SOME = {"replications": 3, "epsilons": (1e-3, 0.1, 1.0, 10.0, 1e3)}  # every budget is tuned for
_FAST: dict[str, dict[str, Any]] = {
    "fig2": {"replications": 20},
    "fig3": {"replications": 5},
    "fig4": {"replications": 3, "exponents": (-1.0, 0.0, 0.2, 0.4, 1.0, 2.0)},
    "fig5": {"replications": 5},
    "fig6": _SOME,
    "fig7": _SOME,
    "fig8": {"replications": 4, "epsilons": (1.0, 10.0), "tasks": (20, 40, 80, 160), "posterior_epsilons": (1.0,)},
    "fig9": _SOME,
    "fig10": {  # logistic regression on 293 attributes: an arm takes minutes to tune, whatever its algorithm
        "replications": 2,
        "epsilons": (1e-3, 1.0),
        "posterior_epsilons": (1.0,),
        "arms": _TRAINING_ARMS,
        "effort": _LEAST,
    },
    "non-private": {"replications": 3},
    "noise-2018": {"replications": 3, "effort": _LITTLE_ON_ALL},
    "noise-2018-synthetic": {"replications": 2, "effort": _LITTLE_ON_ALL},
    "noise-2018-lsoa2": {"replications": 2},
    "training": {"replications": 3, "epsilons": (1e-3, 1.0, 1e3), "posterior_epsilons": (1.0,)},
    "training-lsoa2": {
        "replications": 2,
        "epsilons": (1e-3, 1.0),
        "data": tuple(Data("LSOA II", fraction=share) for share in (0.3, 0.7)),
        "arms": _TRAINING_ARMS[:-1],
        "effort": _LEAST,
    },
}


def subset(tasks: TaskData, count: int | None) -> TaskData:
    """Return the first ``count`` tasks."""
    if count is None or count >= tasks.num_tasks:
        return tasks
    return tasks.take(range(count))


def groups(data: Data) -> NDArray[np.int64]:
    """Return the group of similar tasks of every synthetic low-rank task, (m,), Fig 3 (a)."""
    return np.arange(data.num_tasks) // data.group
