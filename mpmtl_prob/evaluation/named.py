"""Every estimator by name, tuned on the training rows and fitted: what a comparison has side by side.

Arms without noise are fitted once, and arms with noise at every budget. Hyper-parameters are chosen by cross-validation over
all tasks' training rows, among equally many candidates for each. As in the papers, no budget is charged for the choice. The
noise-aware posterior has none to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from tqdm.auto import tqdm

from mpmtl_prob._util.checks import one_of, optional, positive, whole
from mpmtl_prob.data.outcomes import impossible
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import (
    MTRL,
    Fitted,
    GroupLasso,
    GroupSparse,
    LeastSquares,
    Logistic,
    LowRank,
    LowRankPlusSparse,
    LowRankSparse,
    Ridge,
    RowProtection,
    TraceNorm,
)
from mpmtl_prob.evaluation import grids
from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL, Fit, noise_aware
from mpmtl_prob.evaluation.selection import cross_validate
from mpmtl_prob.inference import Likelihood, NoiseAware
from mpmtl_prob.inference.owner.effects import check_likelihood
from mpmtl_prob.privacy import Guarantee
from mpmtl_prob.releases.spec import ReleaseSpec
from mpmtl_prob.sampling.extent import WARMUP


class _Settings(NamedTuple):
    """Settings of an arm's candidates.

    Attributes:
        loss: of rows.
        adjacency: of proved guarantees.
        rounds: T of the algorithms that publish rounds; None tries several.
        start: a ridge regression that was chosen before, or None.
        epsilon: the budget; None of an arm without noise.
        row_epsilon: the budget of Algorithm 5 for one row; None trusts the curator.
    """

    loss: LeastSquares | Logistic
    adjacency: str
    rounds: int | None
    start: Ridge | None
    epsilon: float | None
    row_epsilon: float | None = None

    @property
    def published(self) -> dict[str, Any]:
        """Arguments of the algorithms that publish rounds."""
        counts = {} if self.rounds is None else {"counts": (self.rounds,)}
        rows = {} if self.row_epsilon is None else {"rows": RowProtection(self.row_epsilon)}
        options = {"epsilon": self.epsilon, "adjacency": self.adjacency, "loss": self.loss, "start": self.start}
        return options | counts | rows


class Arm(NamedTuple):
    """One estimator of a comparison.

    Attributes:
        title: its name in a table.
        noisy: whether it has a budget.
        grid: candidates for training rows; None of the noise-aware posterior.
    """

    title: str
    noisy: bool
    grid: Callable[[TaskData, _Settings], Sequence[Any]] | None


def _ridge(train: TaskData, s: _Settings) -> Sequence[Any]:
    return grids.ridge_logistic(train) if isinstance(s.loss, Logistic) else grids.ridge(train)


def _sparse_rounds(train: TaskData, s: _Settings) -> Sequence[Any]:
    """Return candidates of Algorithm 4 with the same penalty on both parts, as there is no grid for two."""
    both = lambda penalty, **options: LowRankSparse(penalty=(penalty, penalty), **options)
    return grids.rounds(both, train, **s.published)


def _frank_wolfe(train: TaskData, s: _Settings) -> Sequence[Any]:
    return grids.frank_wolfe(train, **s.published)


def _relationships(train: TaskData, s: _Settings) -> Sequence[Any]:
    top = float(LeastSquares(average=True).of(train).curvature().max())
    shares = product(np.geomspace(1e-6, 1e-1, 5), np.geomspace(1e-6, 1.0, grids.SIZE // 5))
    return [MTRL(float(top * ridge), float(top * relation)) for ridge, relation in shares]


def _sum(train: TaskData, s: _Settings) -> Sequence[Any]:
    single = grids.multi_task(TraceNorm(), train, s.loss)[:: grids.SIZE // 8]
    return [
        LowRankPlusSparse((one.penalty, one.penalty * share), loss=s.loss, tolerance=1e-3, max_iterations=500)
        for one, share in product(single, np.geomspace(0.03, 1.0, grids.SIZE // 8))
    ]


#: Arms by the names that a command takes.
ARMS: dict[str, Arm] = {
    "ridge": Arm(STL, False, _ridge),
    "lasso": Arm("STL lasso", False, lambda train, s: grids.lasso(train, s.loss)),
    "alone": Arm(ALONE, False, lambda train, s: grids.alone(train, s.loss)),
    "trace_norm": Arm(NON_PRIVATE, False, lambda train, s: grids.multi_task(TraceNorm(), train, s.loss)),
    "group_lasso": Arm(
        "MTL l2,1 norm, not private", False, lambda train, s: grids.multi_task(GroupLasso(), train, s.loss)
    ),
    "low_rank_plus_sparse": Arm("MTL low rank + sparse, not private", False, _sum),
    "mtrl": Arm("MTRL, not private", False, _relationships),
    "low_rank": Arm("Algorithm 2", True, lambda train, s: grids.rounds(LowRank, train, **s.published)),
    "group_sparse": Arm("Algorithm 3", True, lambda train, s: grids.rounds(GroupSparse, train, **s.published)),
    "low_rank_sparse": Arm("Algorithm 4", True, _sparse_rounds),
    "frank_wolfe": Arm("Frank-Wolfe", True, _frank_wolfe),
    "dp_mtrl": Arm("DP-MTRL", True, lambda train, s: grids.dp_mtrl(train, epsilon=s.epsilon)),
    "dp_aggr": Arm("DP-AGGR", True, lambda train, s: grids.dp_aggr(train, epsilon=s.epsilon, loss=s.loss)),
    "noise_aware": Arm("noise-aware posterior", True, None),
}
#: arms of :func:`standard_fits`
STANDARD = ("ridge", "alone", "trace_norm", "low_rank", "group_sparse", "noise_aware")
#: arms with least squares alone, which treat labels as numbers
_SQUARED = ("mtrl", "dp_mtrl")


@dataclass(frozen=True, eq=False)
class Probabilities:
    """A fit by logistic loss whose predictions are probabilities of the label 1, instead of log odds.

    Attributes:
        fitted: the fit.
    """

    fitted: Fitted

    @property
    def guarantee(self) -> Guarantee:
        """The fit's guarantee."""
        return self.fitted.guarantee

    @property
    def row_guarantee(self) -> Guarantee | None:
        """The fit's guarantee for one row against the curator, if any."""
        return self.fitted.row_guarantee

    @property
    def seconds(self) -> float:
        """The fit's seconds."""
        return self.fitted.seconds

    def predict(self, tasks: TaskData) -> Prediction:
        """Predict the probability of the label 1 for every row."""
        odds = self.fitted.predict(tasks)
        names: tuple[Hashable, ...] = tuple(odds.tasks)
        return Prediction(means=expit(odds.means), offsets=odds.offsets, tasks=names, quantity="probability")


def fits_by_name(
    arms: Sequence[str],
    train: TaskData,
    epsilons: Sequence[float] = (0.1, 1.0, 10.0),
    *,
    rounds: int | None = None,
    row_epsilon: float | None = None,
    logistic: bool = False,
    adjacency: str = "replace",
    likelihood: str | Likelihood | None = None,
    reference: Reference | None = None,
    chains: int = 4,
    draws: int = 300,
    folds: int = 5,
    seed: int = 0,
    progress_bar: bool = True,
) -> dict[str, Fit]:
    """Fit arms by name: those without noise once, those with noise at every budget.

    Args:
        arms: some of :data:`ARMS`, in the order of the result.
        train: training rows of m tasks.
        epsilons: budgets.
        rounds: T of Algorithms 2 to 4, of Frank-Wolfe and of the noise-aware posterior; default several, of which one is
            chosen, and "auto".
        row_epsilon: Algorithm 5: a second budget, for one row against the curator, in Algorithms 2 to 4 and Frank-Wolfe.
        logistic: for labels: the logistic loss where an arm has it, and the choice by AUC. Otherwise labels are numbers.
        adjacency: adjacency of the guarantees: "replace", or "zero_out", whose sensitivity the papers use.
        likelihood: likelihood of the targets in the posterior, as in :func:`mpmtl_prob.inference.task_posteriors`.
        reference: public centres and scales of columns and target. The posterior is then that of a mixed model.
        chains: number of chains of NUTS.
        draws: draws of NUTS kept per chain; warmup takes as many, up to 140.
        folds: number of folds of the cross-validations.
        seed: seed of folds and samplers. The noise of the releases comes from the operating system.
        progress_bar: show one.

    Raises:
        ValueError: an unknown arm, a budget that is not positive, tasks too small to cross-validate, targets that are no
            labels with ``logistic``; of the posterior, a single feature without reference values, or labels with them.
    """
    for name in arms:
        one_of("arms", name, tuple(ARMS))
    if not arms:
        raise ValueError(f"arms: expected some of {', '.join(ARMS)}, got none")
    for epsilon in epsilons:
        positive("epsilons", epsilon)
    whole("draws", draws)
    optional(whole, "rounds", rounds)
    optional(positive, "row_epsilon", row_epsilon)
    if logistic and impossible("binary", train.targets).any():
        raise ValueError("train: expected targets -1 and 1, or 0 and 1, for a logistic loss, got others")
    if "noise_aware" in arms:
        _check_posterior(train, likelihood, reference, rounds)
    fits: dict[str, Fit] = {}
    runs: list[tuple[str, float | None]] = [(name, None) for name in arms if not ARMS[name].noisy]
    runs += [(name, epsilon) for epsilon in epsilons for name in arms if ARMS[name].noisy]
    loss, start, metric = (Logistic() if logistic else LeastSquares()), None, "auc" if logistic else "nmse"
    with tqdm(total=len(runs), desc="fitting", disable=not progress_bar) as bar:
        for name, budget in runs:
            title = ARMS[name].title if budget is None else f"{ARMS[name].title}, eps = {budget:g}"
            bar.set_postfix_str(title)
            grid = ARMS[name].grid
            if grid is None:
                assert budget is not None
                posterior = NoiseAware(
                    budget,
                    rounds="auto" if rounds is None else rounds,
                    adjacency=adjacency,
                    likelihood=likelihood,
                    reference=reference,
                    chains=chains,
                    warmup=min(draws, WARMUP),
                    draws=draws,
                    seed=seed,
                    progress_bar=False,
                )
                fits[noise_aware(budget)] = posterior.fit(train)
            else:
                candidates = grid(train, _Settings(loss, adjacency, rounds, start, budget, row_epsilon))
                chosen = cross_validate(candidates, train, folds=folds, metric=metric, seed=seed, progress_bar=False)
                fitted = chosen.fit(train)
                fits[title] = Probabilities(fitted) if logistic and name not in _SQUARED else fitted
                if name == "ridge" and not logistic:
                    start = chosen.best
            bar.update()
    return fits


def standard_fits(
    train: TaskData,
    epsilons: Sequence[float] = (0.1, 1.0, 10.0),
    *,
    adjacency: str = "replace",
    likelihood: str | Likelihood | None = None,
    reference: Reference | None = None,
    chains: int = 4,
    draws: int = 300,
    folds: int = 5,
    seed: int = 0,
    progress_bar: bool = True,
) -> dict[str, Fit]:
    """Fit the standard comparison: non-private, private and noise-aware methods, tuned on the training rows.

    The methods are single-task ridge; Algorithm 2 with M = I (nothing shared); the non-private trace norm; Algorithms 2 and
    3 at every budget; the noise-aware posterior of one release at every budget. All but the last treat labels as numbers.

    Args:
        train: training rows of m tasks.
        epsilons: budgets.
        adjacency: as in :func:`fits_by_name`.
        likelihood: likewise.
        reference: likewise.
        chains: likewise.
        draws: likewise.
        folds: likewise.
        seed: likewise.
        progress_bar: show one.

    Raises:
        ValueError: as :func:`fits_by_name`.
    """
    return fits_by_name(
        STANDARD, train, epsilons, adjacency=adjacency, likelihood=likelihood, reference=reference, chains=chains,
        draws=draws, folds=folds, seed=seed, progress_bar=progress_bar,
    )  # fmt: skip


def _check_posterior(
    train: TaskData, likelihood: str | Likelihood | None, reference: Reference | None, rounds: int | None
) -> None:
    """Raise ValueError for rows or options of which the noise-aware posterior cannot be fitted."""
    if reference is None:
        if train.slopes.num_features == 1:
            raise ValueError(
                "reference: expected one with a single feature, whose direction is 1 or -1 and says nothing when it is "
                "squared, got none"
            )
        return
    if rounds is not None and rounds > 1:
        raise ValueError(
            f"rounds: expected one round with reference values, whose messages answer nothing, got {rounds}"
        )
    ReleaseSpec(reference=reference).layout(train.features)
    check_likelihood(likelihood, train, reference.outcome)
