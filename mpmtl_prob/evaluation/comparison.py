"""Comparison of deterministic estimators and posteriors: error, coverage of intervals, and privacy guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.outcomes import impossible
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.evaluation.metrics import auc, coverage, nmse, nmse_within
from mpmtl_prob.privacy import Guarantee
from mpmtl_prob.privacy.tables import Table, pair


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
            ``claimed`` and ``proved`` (:class:`Bound` or None), ``seconds``; where targets are labels, ``auc``.
    """

    def _cells(self) -> Iterator[tuple[str, ...]]:
        labels = any("auc" in row for row in self.rows)
        head = ("AUC",) if labels else ()
        yield (
            "",
            *head,
            "nMSE",
            "nMSE within",
            "90 % coverage",
            "claimed (eps, delta)",
            "proved (eps, delta)",
            "seconds",
        )
        for row in self.rows:
            covered = row["coverage_90"]
            yield (
                row["name"],
                *((f"{row['auc']:.4f}",) if labels else ()),
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
    labels, rows = not impossible("binary", test.targets).any(), []
    for name, fit in fits.items():
        if not hasattr(fit, "predict"):
            raise ValueError(f"fits: expected a fit, got {type(fit).__name__} as {name!r}; call its fit(train) first")
        implements(f"fits: {name!r}", fit, Fit)
        predicted = fit.predict(test)
        prediction = _of_targets(predicted, test)
        rows.append(
            {
                "name": name,
                **({"auc": auc(predicted, test)} if labels else {}),
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
