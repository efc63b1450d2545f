"""Thresholds of audits: rules for the score above which a release counts as one without the task.

With S = {score > t}, (eps, delta) promises P(S) <= e^eps Q(S) + delta, so that log((P(S) - delta) / Q(S)) bounds eps from
below. Its confidence limits (Clopper-Pearson) require that t was chosen without the scores that are counted. Every class
here ensures this in its own way. Both directions are played: absence by high scores, and presence by low ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from mpmtl_prob._util.arrays import FloatArray

_LEVELS = 60  # number of thresholds that are tried on one half of the games


@dataclass(frozen=True)
class Split:
    """Threshold that is the best of sixty on one half of the games, and is judged on the other half."""

    def epsilon_lower(self, absent: FloatArray, present: FloatArray, delta: float, confidence: float) -> float:
        """Return a lower confidence bound on the eps at which delta can hold, at least 0.

        Args:
            absent: scores of releases without the task, (n,). A high score is evidence that the task is absent.
            present: scores of as many releases with it.
            delta: the claimed delta.
            confidence: of the bound, for both directions together.
        """
        tail = _tail(confidence)

        def judge(p: FloatArray, q: FloatArray, sign: int) -> float:
            half = len(p) // 2
            shares = 1 - np.geomspace(2 / half, 0.9, _LEVELS)
            levels = np.unique(np.quantile(q[:half], shares, method="inverted_cdf"))
            levels = levels[np.isfinite(levels)]
            if len(levels) == 0:
                return 0.0
            best = np.argmax(_log_ratio(p[:half], q[:half], levels, delta, tail))
            return float(_log_ratio(p[half:], q[half:], levels[best : best + 1], delta, tail)[0])

        return _both_directions(judge, absent, present)


@dataclass(frozen=True)
class Bonferroni:
    """Best of several thresholds that were named in advance, with all games: each gets an equal part of the error rate.

    Attributes:
        levels: the thresholds, chosen without looking at the scores.
    """

    levels: tuple[float, ...]

    def epsilon_lower(self, absent: FloatArray, present: FloatArray, delta: float, confidence: float) -> float:
        """Return the same bound as :meth:`Split.epsilon_lower`, by this rule."""
        if not self.levels:
            raise ValueError("levels: expected at least one threshold, got none")
        levels, tail = np.array(self.levels, dtype=np.float64), _tail(confidence) / len(self.levels)
        judge = lambda p, q, sign: float(np.max(_log_ratio(p, q, sign * levels, delta, tail)))
        return _both_directions(judge, absent, present)


@dataclass(frozen=True)
class Explicit:
    """One threshold that was named in advance, with all games.

    Attributes:
        level: the threshold, chosen without looking at the scores. Where the score is the privacy loss ("add"), the claimed
            eps is the best choice.
    """

    level: float

    def epsilon_lower(self, absent: FloatArray, present: FloatArray, delta: float, confidence: float) -> float:
        """Return the same bound as :meth:`Split.epsilon_lower`, by this rule."""
        return Bonferroni((self.level,)).epsilon_lower(absent, present, delta, confidence)


Threshold = Split | Bonferroni | Explicit
#: The default threshold.
SPLIT = Split()


def clopper_pearson(hits: Any, trials: int, tail: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return exact confidence limits of a probability. Each limit fails with probability at most ``tail``."""
    k = np.asarray(hits, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - k + 1, tail), 0.0)
    high = np.where(k < trials, betaincinv(k + 1, np.maximum(trials - k, 1), 1 - tail), 1.0)
    return low, high


def _tail(confidence: float) -> float:
    return (1 - confidence) / 4  # limits of two rates, in two directions


def _both_directions(
    judge: Callable[[FloatArray, FloatArray, int], float], absent: FloatArray, present: FloatArray
) -> float:
    return max(0.0, judge(absent, present, 1), judge(-present, -absent, -1))


def _log_ratio(p: FloatArray, q: FloatArray, levels: FloatArray, delta: float, tail: float) -> FloatArray:
    """Return log((P(S) - delta) / Q(S)) at every level, (n,), from the lower limit of P and the upper one of Q."""
    hits, alarms = (len(scores) - np.searchsorted(np.sort(scores), levels, side="right") for scores in (p, q))
    low, high = clopper_pearson(hits, len(p), tail)[0], clopper_pearson(alarms, len(q), tail)[1]
    return np.log(np.maximum(low - delta, 1e-300) / high)
