"""Privacy profiles: delta as a function of eps, and what it says of every test and of groups of units.

A single (eps, delta) is one point of a profile. The same curve says how good any test for a task can be, and what a whole
group of tasks is promised. Closed forms and the accountant make profiles; see :func:`mpmtl_prob.privacy.compute_profile`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, whole
from mpmtl_prob._util.former import former_names
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian

#: Above, an eps is as good as none, and the closed forms lose digits: one that is searched for is then infinite.
LARGEST_EPSILON = 1e9
# Where a trade-off curve is supported by lines; each bounds it everywhere.
_LARGEST = 20.0
_EPSILONS = np.concatenate([np.linspace(0, 3, 121), np.linspace(3, _LARGEST, 69)[1:]])
_SPLITS = 200  # of an eps between two members of a group; any split gives a valid bound
_DELTAS_IN_REPR = (1e-2, 1e-4, 1e-6)
_FALSE_ALARMS = np.concatenate([[0.0], np.geomspace(1e-5, 1, 200)])


@dataclass(frozen=True, repr=False)
class PrivacyProfile:
    """Privacy profile: delta(eps) of all rounds together, in the two directions of an adjacency, and what follows from it.

    Attributes:
        add: delta(eps) of one unit where the data without it are the likelier ones, for eps >= 0.
        remove: delta(eps) of one unit where the data with it are. Of a replacement both directions are the same.
        mu: of Gaussian differential privacy, for one unit; None where the profile is not Gaussian.
        group: how many units change together.
    """

    add: Callable[[float], float]
    remove: Callable[[float], float]
    mu: float | None = None
    group: int = 1

    @classmethod
    def gaussian(cls, mu: float) -> PrivacyProfile:
        """Return the profile of N(0, 1) against N(mu, 1)."""
        delta = lambda epsilon: delta_gaussian(epsilon, mu)
        return cls(delta, delta, mu)

    @classmethod
    def nothing(cls) -> PrivacyProfile:
        """Return the profile where nothing is released: delta is 0 at every eps."""
        delta = lambda epsilon: 0.0
        return cls(delta, delta)

    def for_group(self, k: int) -> PrivacyProfile:
        """Return the profile of k units that change together, as the tasks of one family. Raises ValueError for k < 1."""
        return replace(self, group=whole("k", k))

    def delta(self, epsilon: float) -> float:
        """Return the delta at which (epsilon, delta)-privacy holds. Raises ValueError for an eps below 0.

        For a group of k the bound goes through k - 1 data sets between the two, each with one unit changed; for Gaussian
        noise alone it is exact.
        """
        epsilon = in_range("epsilon", epsilon, 0, np.inf, left_closed=True)
        if self.group == 1:
            return self._of_one(epsilon)
        if self.gdp is not None:
            return float(delta_gaussian(epsilon, self.gdp))
        return float(self._of_group(np.linspace(0.0, epsilon, _SPLITS + 1))[-1])

    def epsilon(self, delta: float) -> float:
        """Return the smallest eps at which (eps, delta)-privacy holds, to five digits; inf if there is none."""
        target = in_range("delta", delta, 0, 1)
        return smallest_epsilon(self.delta, target, 1e-7 if self.group == 1 else 1e-6)

    def power(self, false_alarms: ArrayLike) -> FloatArray:
        """Return the largest probability with which any test recognises the change, at given false-alarm rates.

        An upper bound whichever of the two data sets is the null hypothesis, as delta is (Dong, Roth and Su 2022).
        """
        delta = self.delta if self.group == 1 or self.gdp is not None else self._tabulated()
        return _power(delta, delta, false_alarms)

    def one_sided_power(self, false_alarms: ArrayLike) -> FloatArray:
        """Return the same of tests that recognise the data without the unit ("add"). Raises ValueError for a group."""
        if self.group > 1:
            raise ValueError(
                f"group: expected one unit, as a group's bound is the same in both directions, got {self.group}"
            )
        return _power(self.add, self.remove, false_alarms)

    def tradeoff(self, false_alarms: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return errors of type I and the least errors of type II that any test can have with them: the trade-off curve.

        Args:
            false_alarms: errors of type I, in [0, 1]; default a grid.
        """
        rates = np.asarray(_FALSE_ALARMS if false_alarms is None else false_alarms, dtype=np.float64)
        return rates, 1 - self.power(rates)

    @property
    def gdp(self) -> float | None:
        """mu of Gaussian differential privacy where all noise is Gaussian; None for other laws."""
        return None if self.mu is None else self.mu * self.group

    @property
    def zcdp(self) -> float | None:
        """rho of zero-concentrated differential privacy, mu^2 / 2 where all noise is Gaussian.

        None for other laws: the loss of Wishart noise is infinite with a small probability, and no rho is.
        """
        return None if self.gdp is None else self.gdp**2 / 2

    def plot(self, axes: Any = None) -> Any:
        """Draw delta(eps), and the trade-off curve beside it; returns the two matplotlib axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")[1] if axes is None else axes
        reach = max(min(self.epsilon(1e-6), 50.0), 0.1)
        at = np.linspace(0, reach, 120)
        axes[0].plot(at, [self.delta(value) for value in at], color="#1b6ca8", lw=2)
        axes[0].set(xlabel="eps", ylabel="delta", yscale="log", title="what may fail, and how often", xlim=(0, reach))
        first, second = self.tradeoff()
        axes[1].fill_between(first, second, color="#1b6ca8", alpha=0.15, label="no test is in here")
        axes[1].plot(first, second, color="#1b6ca8", lw=2)
        axes[1].plot([0, 1], [1, 0], color="0.5", ls="--", lw=1, label="a guess")
        axes[1].set(
            xlabel="false alarms", ylabel="changes missed", title="what any test can do", xlim=(0, 1), ylim=(0, 1)
        )
        axes[1].legend(frameon=False, fontsize=8)
        return axes

    def __repr__(self) -> str:
        who = "one unit" if self.group == 1 else f"{self.group} units together"
        at = ", ".join(f"{delta:g}: {self.epsilon(delta):.3g}" for delta in _DELTAS_IN_REPR)
        return f"PrivacyProfile({who}; eps at delta = {at})"

    def _of_one(self, epsilon: float) -> float:
        return max(self.add(epsilon), self.remove(epsilon))

    def _of_group(self, at: FloatArray) -> FloatArray:
        """Return a group's delta at equally spaced eps from 0.

        delta_{a+b}(eps) <= min over c of delta_a(c) + e^c delta_b(eps - c).
        """
        step = np.array([self._of_one(value) for value in at])
        grown = np.exp(np.minimum(at, 700.0))
        delta = step
        for _ in range(self.group - 1):
            joined = [np.min(step[: j + 1] + grown[: j + 1] * delta[j::-1]) for j in range(len(at))]
            delta = np.minimum(joined, 1.0)
        return delta

    def _tabulated(self) -> Callable[[float], float]:
        """Return a group's delta(eps) from a table for all eps at once. delta falls, so the eps below gives a bound."""
        at = np.linspace(0.0, _LARGEST, 4 * _SPLITS + 1)
        delta = self._of_group(at)
        return lambda epsilon: float(delta[np.searchsorted(at, epsilon, side="right") - 1])


def _power(add: Callable[[float], float], remove: Callable[[float], float], false_alarms: ArrayLike) -> FloatArray:
    a = np.asarray(false_alarms, dtype=np.float64)
    power = np.ones_like(a)
    for epsilon in _EPSILONS:
        power = np.minimum(power, np.exp(epsilon) * a + add(epsilon))
        power = np.minimum(power, 1 - np.exp(-epsilon) * (1 - a - remove(epsilon)))
    return np.clip(power, 0.0, 1.0)


def smallest_epsilon(delta: Callable[[float], float], target: float, tolerance: float = 1e-7) -> float:
    """Return where a falling delta(eps) comes down to the target, on the private side of it; inf if it does not."""

    from scipy.optimize import brentq  # a quarter of a second to import

    def excess(value: float) -> float:
        return delta(value) - target

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0:
        if high >= LARGEST_EPSILON:
            return float(np.inf)
        low, high = high, min(high * (2 if high < 1e4 else 32), LARGEST_EPSILON)
    epsilon = brentq(excess, low, high, xtol=1e-9, rtol=tolerance)
    while excess(epsilon) > 0:  # on the private side of the root
        epsilon *= 1 + tolerance
    return float(epsilon)


__getattr__ = former_names(__name__, {"Profile": "PrivacyProfile"})
