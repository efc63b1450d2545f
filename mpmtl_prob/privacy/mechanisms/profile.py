"""Privacy profiles delta(eps), with trade-off curves of tests and group privacy.

A single (eps, delta) is one point of a profile. The same curve bounds the power of any test for a task, and gives the
guarantee of a whole group of tasks. Use :func:`mpmtl_prob.privacy.compute_profile` to compute one.
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

#: Largest eps of a search; beyond, the result is infinite, as such an eps protects nothing and closed forms lose digits.
LARGEST_EPSILON = 1e9
_LARGEST = 20.0
#: Each eps gives a line below the trade-off curve; the curve is computed as the highest of these lines.
_EPSILONS = np.concatenate([np.linspace(0, 3, 121), np.linspace(3, _LARGEST, 69)[1:]])
_LEVELS = 65  # number of eps that are tried in a bound of the privacy loss; each gives a valid one
_SPLITS = 200  # number of ways to divide eps between two members of a group; each gives a valid bound
_DELTAS_IN_REPR = (1e-2, 1e-4, 1e-6)
_FALSE_ALARMS = np.concatenate([[0.0], np.geomspace(1e-5, 1, 200)])


@dataclass(frozen=True, repr=False)
class PrivacyProfile:
    """Privacy profile: delta(eps) of all rounds together, in the two directions of an adjacency.

    Attributes:
        add: delta(eps) of one unit for results that are more probable without it than with it, for eps >= 0.
        remove: delta(eps) of one unit in the other direction. Both directions are the same for a replacement.
        mu: of Gaussian differential privacy, for one unit; None where the profile is not Gaussian.
        group: number of units that change together.
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
        """Return the profile of k units that change together (group privacy). Raises ValueError for k < 1."""
        return replace(self, group=whole("k", k))

    def delta(self, epsilon: float) -> float:
        """Return the delta at which (epsilon, delta)-privacy holds. Raises ValueError for an eps below 0.

        The bound for a group of k goes through k - 1 intermediate data sets, and changes one unit in each step. It is exact
        where all noise is Gaussian.
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

    def exceeding(self, loss: float) -> float:
        """Bound the probability that the privacy loss, the logarithm of the Bayes factor, exceeds a number >= 0.

        delta(e) is at least the expectation of (1 - e^(e - L)) over losses L above e, so that P(L > l) is at most
        delta(e) / (1 - e^(e - l)) for every e < l, for every pair of data sets.
        """
        loss = in_range("loss", loss, 0, np.inf, left_closed=True)
        delta = self._quickly()
        if delta(loss) == 0:
            return 0.0
        smaller = loss * np.linspace(0, 1, _LEVELS, endpoint=False)
        return float(min([1.0, *(delta(e) / -np.expm1(e - loss) for e in smaller if e < loss)]))

    def median(self) -> float:
        """Bound the median of the privacy loss, for every pair of data sets; inf if that is more than 20."""
        from scipy.optimize import brentq  # a quarter of a second to import

        delta, levels = self._quickly(), _EPSILONS
        deltas = np.array([delta(e) for e in levels])

        def excess(loss: float) -> float:
            return float(np.min((deltas / -np.expm1(np.minimum(levels - loss, -1e-300)))[levels < loss])) - 0.5

        least = 1e-9
        if excess(least) <= 0:
            return least
        if excess(_LARGEST) > 0:
            return float(np.inf)
        return float(brentq(excess, least, _LARGEST, xtol=1e-6)) + 1e-6

    def power(self, false_alarms: ArrayLike) -> FloatArray:
        """Return the largest power of any test that recognises the change, at given false-alarm rates.

        The bound holds whichever of the two data sets is the null hypothesis (Dong, Roth and Su 2022).

        Raises:
            ValueError: a rate outside [0, 1].
        """
        delta = self._quickly()
        return _power(delta, delta, false_alarms)

    def one_sided_power(self, false_alarms: ArrayLike) -> FloatArray:
        """Return the largest power of tests for the data without the unit ("add").

        Raises:
            ValueError: a group, or a false-alarm rate outside [0, 1].
        """
        if self.group > 1:
            raise ValueError(
                f"group: expected one unit, as a group's bound is the same in both directions, got {self.group}"
            )
        return _power(self.add, self.remove, false_alarms)

    def tradeoff(self, false_alarms: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the trade-off curve: type I errors, and the least type II errors of any test with these.

        Args:
            false_alarms: type I errors, in [0, 1]; default a grid.
        """
        rates = np.asarray(_FALSE_ALARMS if false_alarms is None else false_alarms, dtype=np.float64)
        return rates, 1 - self.power(rates)

    @property
    def gdp(self) -> float | None:
        """mu of Gaussian differential privacy, where all noise is Gaussian; None for other laws."""
        return None if self.mu is None else self.mu * self.group

    @property
    def zcdp(self) -> float | None:
        """rho of zero-concentrated differential privacy, mu^2 / 2, where all noise is Gaussian; None for other laws.

        Wishart noise has no finite rho, as its privacy loss is infinite with a small probability.
        """
        return None if self.gdp is None else self.gdp**2 / 2

    def plot(self, axes: Any = None) -> Any:
        """Draw delta(eps), and the trade-off curve beside it; returns the two matplotlib axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")[1] if axes is None else axes
        reach = max(min(self.epsilon(1e-6), 50.0), 0.1)
        at = np.linspace(0, reach, 120)
        axes[0].plot(at, [self.delta(value) for value in at], color="#1b6ca8", lw=2)
        axes[0].set(xlabel="eps", ylabel="delta", yscale="log", title="privacy profile", xlim=(0, reach))
        first, second = self.tradeoff()
        axes[1].fill_between(first, second, color="#1b6ca8", alpha=0.15, label="impossible for any test")
        axes[1].plot(first, second, color="#1b6ca8", lw=2)
        axes[1].plot([0, 1], [1, 0], color="0.5", ls="--", lw=1, label="a guess")
        axes[1].set(xlabel="false alarms", ylabel="changes missed", title="trade-off curve", xlim=(0, 1), ylim=(0, 1))
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

        delta_{a+b}(eps) <= min over c of delta_a(c) + e^c delta_b(eps - c). Which steps are joined first does not matter, so
        that groups of 1, 2, 4, ... are joined, and a large group takes little longer than a small one.
        """
        of_one = np.array([self._of_one(value) for value in at])
        with np.errstate(over="ignore"):
            factor = np.exp(at)  # infinite for large eps, where only a delta of 0 gives a bound

        def joined(first: FloatArray, then: FloatArray) -> FloatArray:
            least = [
                np.min(first[: j + 1] + np.where(then[j::-1] > 0, factor[: j + 1], 0.0) * then[j::-1])
                for j in range(len(at))
            ]
            return np.minimum(least, 1.0)

        delta, doubled, left = None, of_one, self.group
        while left:
            if left % 2:
                delta = doubled if delta is None else joined(doubled, delta)
            left //= 2
            doubled = joined(doubled, doubled) if left else doubled
        assert delta is not None
        return delta

    def _quickly(self) -> Callable[[float], float]:
        """Return delta(eps) for many eps: as a table if each would take long."""
        return self.delta if self.group == 1 or self.gdp is not None else self._tabulated()

    def _tabulated(self) -> Callable[[float], float]:
        """Return a group's delta(eps) as a table. As delta decreases, the nearest smaller eps in the table gives a bound."""
        at = np.linspace(0.0, _LARGEST, 4 * _SPLITS + 1)
        delta = self._of_group(at)
        return lambda epsilon: float(delta[np.searchsorted(at, epsilon, side="right") - 1])


def _power(add: Callable[[float], float], remove: Callable[[float], float], false_alarms: ArrayLike) -> FloatArray:
    """Compute the largest power at false-alarm rates from delta(eps) in both directions."""
    a = np.asarray(false_alarms, dtype=np.float64)
    if not ((a >= 0) & (a <= 1)).all():
        raise ValueError("false_alarms: expected rates from 0 to 1, got others; give probabilities, not percentages")
    power = np.ones_like(a)
    for epsilon in _EPSILONS:
        power = np.minimum(power, np.exp(epsilon) * a + add(epsilon))
        power = np.minimum(power, 1 - np.exp(-epsilon) * (1 - a - remove(epsilon)))
    return np.clip(power, 0.0, 1.0)


def smallest_epsilon(delta: Callable[[float], float], target: float, tolerance: float = 1e-7) -> float:
    """Return the least eps at which a decreasing delta(eps) is at most the target, rounded up; inf if there is none."""
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
    while excess(epsilon) > 0:  # brentq may return a point on the wrong side of the root
        epsilon *= 1 + tolerance
    return float(epsilon)


__getattr__ = former_names(__name__, {"Profile": "PrivacyProfile"})
