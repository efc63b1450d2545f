"""Results of audits: scores of both kinds of releases, a lower bound on eps, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.audit.thresholds import SPLIT, Threshold, clopper_pearson
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism


@dataclass(frozen=True)
class Interval:
    """Estimate with a confidence interval."""

    estimate: float
    lower: float
    upper: float

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """Result of a privacy audit.

    Attributes:
        test: name of the attack.
        view: what its adversary sees.
        claim: the claim that it tried to refute.
        absent: scores of the releases without the task, or with another in its place, (n,). A high score is evidence that
            the task is absent.
        present: scores of the releases with the task, (n,).
        confidence: of every bound.
        mechanisms: the laws that the claim is about, for the proved curve.
        threshold: rule that chooses the score above which a release counts as one without the task.
    """

    test: str
    view: View
    claim: Bound
    absent: FloatArray
    present: FloatArray
    confidence: float
    mechanisms: tuple[Mechanism, ...]
    threshold: Threshold = SPLIT

    @property
    def epsilon_lower(self) -> float:
        """Lower confidence bound on the eps at which the claimed delta can hold."""
        return self.threshold.epsilon_lower(self.absent, self.present, self.claim.delta, self.confidence)

    @property
    def broken(self) -> bool:
        """True if the claim is refuted."""
        return self.epsilon_lower > self.claim.epsilon

    def delta_at(self, epsilon: float, threshold: float | None = None, direction: str = "add") -> Interval:
        """Measure delta at eps, by the event "score above the threshold" ("add"), or below it ("remove").

        Args:
            epsilon: any number.
            threshold: of the score; default eps ("remove": -eps), which is the best one where the score is the privacy loss.
            direction: "add" (the task's absence is more likely) or "remove".
        """
        sign = 1.0 if direction == "add" else -1.0
        p, q = (self.absent, self.present) if direction == "add" else (self.present, self.absent)
        level = sign * epsilon if threshold is None else threshold
        hits, alarms = (int(np.sum(sign * scores > sign * level)) for scores in (p, q))
        factor = np.exp(epsilon)
        tail = (1 - self.confidence) / 4  # two rates, two sides
        (p_low, p_high), (q_low, q_high) = clopper_pearson(hits, len(p), tail), clopper_pearson(alarms, len(q), tail)
        estimate = hits / len(p) - factor * alarms / len(q)
        return Interval(float(estimate), float(p_low - factor * q_high), float(p_high - factor * q_low))

    def roc(self) -> tuple[FloatArray, FloatArray]:
        """Return false-positive and true-positive rates of the verdict "the task was not there", at every threshold."""
        thresholds = np.unique(np.concatenate([self.absent, self.present]))[::-1]
        rates = [
            1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)
            for scores in (self.present, self.absent)
        ]
        return np.append(0.0, rates[0]), np.append(0.0, rates[1])

    def plot(self, ax: Any = None) -> Any:
        """Plot the measured ROC curve below the proved and the claimed ones, and return the matplotlib axes."""
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(4.6, 4.2))[1] if ax is None else ax
        grid = np.concatenate([[0.0], np.geomspace(1e-5, 1, 200)])
        fpr, tpr = self.roc()
        proved = proved_power(self.mechanisms, grid, self.claim.adjacency)
        ax.plot(grid, proved, color="#1b6ca8", lw=6, alpha=0.35, label="proved: no test is above")
        eps, delta = self.claim.epsilon, self.claim.delta
        claimed = np.minimum(np.exp(eps) * grid + delta, 1 - np.exp(-eps) * (1 - grid - delta))
        name = f"claimed: eps = {eps:.3g}, delta = {delta:.2g}"
        ax.plot(grid, np.minimum(claimed, 1), color="0.5", ls="--", label=name)
        ax.plot(fpr, tpr, color="#c8472b", lw=1.5, label=f"measured: {self.test}, {self.view.name}")
        ax.set(xlabel="false alarms", ylabel="absent tasks recognised", xlim=(-0.01, 1), ylim=(0, 1.01))
        ax.set_title(self.verdict, fontsize=9)
        ax.legend(loc="lower right", fontsize=8, frameon=False)
        return ax

    @property
    def verdict(self) -> str:
        """The result in words."""
        result = "BROKEN" if self.broken else "not broken"
        measured = f"eps >= {self.epsilon_lower:.3g}"
        return f"{result}: {measured} at delta = {self.claim.delta:.3g}, claimed {self.claim.epsilon:.3g}"

    def __repr__(self) -> str:
        return (
            f"Audit({self.test}; seen by {self.view.name}; {len(self.absent)} + {len(self.present)} releases)\n"
            f"  {self.verdict} ({self.confidence:.0%} confidence)"
        )


@dataclass(frozen=True)
class Drawn:
    """Comparison of published noise with its stated distribution.

    Attributes:
        mechanism: the stated law.
        confidence: probability that correctly drawn noise passes.
        p_values: p-value of every compared statistic, by its name.
    """

    mechanism: Mechanism
    confidence: float
    p_values: dict[str, float]

    @property
    def broken(self) -> bool:
        """True if the noise does not follow the stated law."""
        return min(self.p_values.values()) < (1 - self.confidence) / len(self.p_values)

    @property
    def verdict(self) -> str:
        """The result in words."""
        name, least = min(self.p_values.items(), key=lambda item: item[1])
        result = "BROKEN: noise of another law than is stated" if self.broken else "not broken"
        return f"{result}; least p-value {least:.2g}, of the {name}"


def surprise(one: FloatArray, other: FloatArray) -> float:
    """Return the p-value of Kolmogorov and Smirnov's test that two samples have the same distribution."""
    from scipy.stats import ks_2samp  # a second to import

    return float(ks_2samp(one, other).pvalue)


def distance(one: FloatArray, other: FloatArray) -> float:
    """Return the p-value of Welch's test that two samples have the same mean; 0 for infinite or constant values."""
    from scipy.stats import ttest_ind  # a second to import

    if not all(np.all(np.isfinite(sample)) and np.ptp(sample) > 0 for sample in (one, other)):
        return 0.0
    return float(ttest_ind(one, other, equal_var=False).pvalue)


def proved_power(mechanisms: Sequence[Mechanism], false_alarms: FloatArray, adjacency: str = "replace") -> FloatArray:
    """Return the largest probability of recognising an absent task at given false-alarm rates, from the whole profile."""
    return composition.profile(composition.as_rounds(mechanisms), adjacency).one_sided_power(false_alarms)
