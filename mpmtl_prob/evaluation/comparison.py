"""Comparison of deterministic estimators and posteriors: error, coverage of intervals, and privacy guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tqdm.auto import tqdm

from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import Fitted, GroupSparse, LowRank, TraceNorm
from mpmtl_prob.evaluation import grids
from mpmtl_prob.evaluation.metrics import coverage, nmse, nmse_within
from mpmtl_prob.evaluation.selection import cross_validate
from mpmtl_prob.inference import Likelihood, NoiseAware, OwnerEffects, OwnerPosteriors
from mpmtl_prob.inference.owner.effects import check_likelihood
from mpmtl_prob.privacy import Guarantee
from mpmtl_prob.privacy.tables import Table, pair
from mpmtl_prob.releases.spec import ReleaseSpec, check_message
from mpmtl_prob.sampling.nuts import WARMUP


class Fit(Protocol):
    """Interface of a fit that :func:`compare` can score."""

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def seconds(self) -> float: ...
    def predict(self, tasks: TaskData) -> Prediction: ...


@dataclass(frozen=True, repr=False)
class Comparison(Table):
    """Scores of several fits on the same test rows.

    Attributes:
        rows: one mapping per fit: ``name``, ``nmse``, ``nmse_within``, ``coverage_90`` (nan for point predictors),
            ``claimed`` and ``proved`` (:class:`Bound` or None), ``seconds``.
    """

    def _cells(self) -> Iterator[tuple[str, ...]]:
        yield "", "nMSE", "nMSE within", "90 % coverage", "claimed (eps, delta)", "proved (eps, delta)", "seconds"
        for row in self.rows:
            covered = row["coverage_90"]
            yield (
                row["name"],
                f"{row['nmse']:.4f}",
                f"{row['nmse_within']:.4f}",
                "-" if math.isnan(covered) else f"{100 * covered:.1f} %",
                pair(row["claimed"]),
                pair(row["proved"]),
                f"{row['seconds']:.2f}",
            )


def compare(fits: Mapping[str, Fit], test: TaskData) -> Comparison:
    """Score fits on test rows. A probability p of a label is scored as the mean target: 2 p - 1 for -1 and 1, p for 0 and 1.

    Args:
        fits: fits by the name to show: estimators' results and posteriors alike.
        test: test rows of the same tasks.

    Raises:
        ValueError: no fits, or test rows with other tasks or features.
    """
    if not isinstance(fits, Mapping):
        raise ValueError(f"fits: expected a mapping from names to fits, got {type(fits).__name__}")
    if len(fits) == 0:
        raise ValueError("fits: expected at least one fit, got none")
    rows = []
    for name, fit in fits.items():
        if not hasattr(fit, "predict"):
            raise ValueError(f"fits: expected a fit, got {type(fit).__name__} as {name!r}; call its fit(train) first")
        implements(f"fits: {name!r}", fit, Fit)
        prediction = _of_targets(fit.predict(test), test)
        rows.append(
            {
                "name": name,
                "nmse": nmse(prediction, test),
                "nmse_within": nmse_within(prediction, test),
                "coverage_90": coverage(prediction, test),
                "claimed": fit.guarantee.claimed,
                "proved": fit.guarantee.proved,
                "seconds": fit.seconds,
            }
        )
    return Comparison(tuple(rows))


def _of_targets(prediction: Prediction, test: TaskData) -> Prediction:
    """Replace probabilities by the mean target, 2 p - 1 or p, without intervals, as these could not contain a label."""
    if prediction.quantity != "probability":
        return prediction
    p = prediction.means
    return Prediction(
        means=2 * p - 1 if test.targets.min() < 0 else p, offsets=prediction.offsets, tasks=prediction.tasks
    )


STL = "STL ridge"
ALONE = "Algorithm 2, M = I"
NON_PRIVATE = "MTL trace norm, not private"


def noise_aware(epsilon: float) -> str:
    """Return the name of the posterior at this budget in a table."""
    return f"noise-aware posterior, eps = {epsilon:g}"


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
) -> dict[str, Fitted | OwnerPosteriors | OwnerEffects]:
    """Fit the standard comparison: non-private, private and noise-aware methods, tuned on the training rows.

    The methods are single-task ridge; Algorithm 2 with M = I (nothing shared); the non-private trace norm; Algorithms 2 and
    3 at every budget; the noise-aware posterior of one release at every budget. Hyper-parameters of all but the last are
    chosen by cross-validation over all tasks' training rows, among equally many candidates for each. As in the papers, this
    choice is not charged to the budget. The posterior has no hyper-parameters to choose.

    Args:
        train: training rows of m tasks.
        epsilons: budgets.
        adjacency: adjacency of the guarantees: "replace", or "zero_out", whose sensitivity the papers use.
        likelihood: likelihood of the targets in the posterior, as in :func:`mpmtl_prob.inference.task_posteriors`; all other
            methods treat labels as numbers.
        reference: public centres and scales of columns and target. The posterior is then that of a mixed model, from messages
            of effects, which shares a mean too. All other methods are the same.
        chains: number of chains of NUTS.
        draws: draws of NUTS kept per chain; warmup takes as many, up to 140.
        folds: number of folds of the cross-validations.
        seed: seed of folds and samplers. The noise of the releases comes from the operating system.
        progress_bar: show one.

    Raises:
        ValueError: a budget that is not positive, tasks too small to cross-validate, a single feature without
            reference values, or labels with them.
    """
    for epsilon in epsilons:
        positive("epsilons", epsilon)
    whole("draws", draws)
    if reference is None:
        check_message("direction", train.slopes.num_features)
    else:
        ReleaseSpec(reference=reference).layout(train.features)
        check_likelihood(likelihood, train, reference.outcome)
    fits: dict[str, Fitted | OwnerPosteriors | OwnerEffects] = {}
    with tqdm(total=3 + 3 * len(epsilons), desc="fitting", disable=not progress_bar) as bar:

        def tuned(name: str, candidates: Sequence[Any]) -> Any:
            bar.set_postfix_str(name)
            chosen = cross_validate(candidates, train, folds=folds, seed=seed, progress_bar=False)
            fits[name] = chosen.fit(train)
            bar.update()
            return chosen.best

        start = tuned(STL, grids.ridge(train))
        tuned(ALONE, grids.alone(train))
        tuned(NON_PRIVATE, grids.multi_task(TraceNorm(), train))
        for epsilon in epsilons:
            for name, algorithm in (("Algorithm 2", LowRank), ("Algorithm 3", GroupSparse)):
                candidates = grids.rounds(algorithm, train, epsilon=epsilon, adjacency=adjacency, start=start)
                tuned(f"{name}, eps = {epsilon:g}", candidates)
            bar.set_postfix_str(noise_aware(epsilon))
            posterior = NoiseAware(
                epsilon,
                adjacency=adjacency,
                likelihood=likelihood,
                reference=reference,
                chains=chains,
                warmup=min(draws, WARMUP),
                draws=draws,
                seed=seed,
                progress_bar=False,
            )
            fits[noise_aware(epsilon)] = posterior.fit(train)
            bar.update()
    return fits
