"""What noise laws give away at all eps at once, to whom, and for how many tasks that belong together.

A single (eps, delta) is one point of a curve. The same curve says how good any test for a task can be, what a whole group of
tasks is promised, and how far the odds that somebody took part can move.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.mechanisms.profile import LARGEST, LossProfile
from mpmtl_prob.privacy.units import Adjacency

_SPLITS = 200  # of an eps between two members of a group; any split gives a valid bound
_SHOWN = (1e-2, 1e-4, 1e-6)  # deltas in a curve's words
_FALSE_ALARMS = np.concatenate([[0.0], np.geomspace(1e-5, 1, 200)])


@dataclass(frozen=True, repr=False)
class PrivacyProfile:
    """delta(eps) of all rounds together, and what follows from it.

    Attributes:
        mechanisms: the noise law of every round, and of what was bought besides.
        adjacency: what is compared: "replace" or "zero_out".
        group: how many units change together.
    """

    mechanisms: tuple[Mechanism, ...]
    adjacency: str
    group: int = 1

    def delta(self, epsilon: float) -> float:
        """The delta at which (epsilon, delta)-privacy holds. Raises ValueError for an eps below 0.

        For a group of k the bound goes through k - 1 data sets between the two, each with one unit changed; for Gaussian
        noise alone it is exact.
        """
        epsilon = in_range("epsilon", epsilon, 0, np.inf, left_closed=True)
        if not self.mechanisms:
            return 0.0
        if self._mu is not None:
            return delta_gaussian(epsilon, self._mu)
        if self.group == 1:
            return self._one.delta(epsilon)
        return float(_together(self._one, np.linspace(0.0, epsilon, _SPLITS + 1), self.group)[-1])

    def epsilon(self, delta: float) -> float:
        """The smallest eps at which (eps, delta)-privacy holds, to five digits; inf if there is none."""
        target = in_range("delta", delta, 0, 1)
        if not self.mechanisms:
            return 0.0
        if self.group == 1:
            return composition.compute_epsilon(target, self.mechanisms, self.adjacency)
        return composition.smallest_epsilon(self.delta, target, 1e-6)

    def power(self, false_alarms: ArrayLike) -> FloatArray:
        """The largest probability with which any test recognises the change, at given false-alarm rates.

        An upper bound for every rate, whichever of the two data sets is the null hypothesis (Dong, Roth and Su 2022).
        """
        delta = self.delta
        if self.group > 1 and self._mu is None:  # once for all eps; delta falls, so the eps below gives a bound
            at = np.linspace(0.0, LARGEST, 4 * _SPLITS + 1)
            found = _together(self._one, at, self.group)
            delta = lambda epsilon: float(found[np.searchsorted(at, epsilon, side="right") - 1])
        return LossProfile(delta, delta).power(false_alarms)

    def tradeoff(self, false_alarms: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Errors of type I and the least errors of type II that any test can have with them: the trade-off curve.

        Args:
            false_alarms: errors of type I, in [0, 1]; default a grid.
        """
        rates = np.asarray(_FALSE_ALARMS if false_alarms is None else false_alarms, dtype=np.float64)
        return rates, 1 - self.power(rates)

    @property
    def gdp(self) -> float | None:
        """mu of Gaussian differential privacy where all noise is Gaussian; None for other laws."""
        return self._mu

    @property
    def zcdp(self) -> float | None:
        """rho of zero-concentrated differential privacy, mu^2 / 2 where all noise is Gaussian.

        None for other laws: the loss of Wishart noise is infinite with a small probability, and no rho is.
        """
        return None if self._mu is None else self._mu**2 / 2

    def plot(self, axes: Any = None) -> Any:
        """delta(eps), and the trade-off curve beside it; returns the two matplotlib axes."""
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
        at = ", ".join(f"{delta:g}: {self.epsilon(delta):.3g}" for delta in _SHOWN)
        return f"Curve({who}, {self.adjacency}; eps at delta = {at})"

    @cached_property
    def _one(self) -> LossProfile:
        return composition.profile(self.mechanisms, self.adjacency)

    @cached_property
    def _mu(self) -> float | None:
        mu = self._one.mu if self.mechanisms else None
        return None if mu is None else mu * self.group


def _together(one: LossProfile, at: FloatArray, group: int) -> FloatArray:
    """delta of a group at equally spaced eps from 0: delta_{a+b}(eps) <= min over c of delta_a(c) + e^c delta_b(eps - c)."""
    step = np.array([one.delta(value) for value in at])

    def joined(first: FloatArray, second: FloatArray) -> FloatArray:
        grown = np.exp(np.minimum(at, 700.0))
        return np.array([np.min(first[: j + 1] + grown[: j + 1] * second[j::-1]) for j in range(len(at))])

    found = step
    for _ in range(group - 1):
        found = np.minimum(joined(step, found), 1.0)
    return found


@dataclass(frozen=True, eq=False)
class MembershipOdds:
    """What the strongest attacker can learn of one task: the law of its posterior odds.

    The attacker knows all other data, the task's own vector, and what stands in its place if it is not there (nothing, or
    another vector), and computes the Bayes factor of the release.

    Attributes:
        prior: the probability, before the release, that the task is there.
        adjacency: what stands in its place if it is not.
        log_factor: values of the log Bayes factor, ascending; the last may be infinite.
        mass: their probabilities when the task is there, (n,).
        epsilon: of the guarantee that is stated.
        delta: of the same.
        above: the probability with which the cap is passed when the task is there. It is more than delta, which weighs every
            case by how far it goes beyond.
    """

    prior: float
    adjacency: str
    log_factor: NDArray[np.float64]
    mass: NDArray[np.float64]
    epsilon: float
    delta: float
    above: float

    @property
    def cap(self) -> float:
        """The posterior probability at a Bayes factor of e^eps."""
        return float(expit(logit(self.prior) + self.epsilon))

    def quantile(self, q: float) -> float:
        """The posterior probability that the task is there which is not passed with probability q, when it is there."""
        index = min(int(np.searchsorted(np.cumsum(self.mass), in_range("q", q, 0, 1))), len(self.mass) - 1)
        return float(expit(logit(self.prior) + self.log_factor[index]))

    @property
    def typical(self) -> float:
        """The median."""
        return self.quantile(0.5)

    def __str__(self) -> str:
        unknown = Adjacency.of(self.adjacency).unknown
        return (
            f"Whoever knows everything but {unknown}, and thought it {self.prior:.0%} likely that you are "
            f"in it, will after seeing this typically think it {self.typical:.0%} likely if you are (in one case of ten more "
            f"than {self.quantile(0.9):.0%}), and more than {self.cap:.1%} with a probability of about {self.above:.2g}."
        )


def membership_odds(curve: PrivacyProfile, epsilon: float, prior: float = 0.5) -> MembershipOdds:
    """The odds of membership that releases allow, from the law of their privacy loss.

    For Wishart noise that law is exact where a task is zeroed, and a bound where it is replaced.

    Args:
        curve: of one unit.
        epsilon: at which the guarantee is stated.
        prior: in (0, 1).
    """
    prior = in_range("prior", prior, 0, 1)
    loss, mass = composition.loss_when_there(curve.mechanisms, curve.adjacency)
    above = composition.loss_above(epsilon, curve.mechanisms, curve.adjacency)
    return MembershipOdds(prior, curve.adjacency, loss, mass, epsilon, curve.delta(epsilon), above)
