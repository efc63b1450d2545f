"""Privacy profiles of mechanisms, and the odds that somebody took part (membership inference)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from mpmtl_prob._util.checks import in_range
from mpmtl_prob._util.former import former_names
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency


def compute_profile(
    mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace", group: int = 1
) -> PrivacyProfile:
    """Return the privacy profile of mechanisms, one per round: delta at every eps, trade-off curves, groups.

    Args:
        mechanisms: one, or one per round, in any mixture; of none nothing is released.
        adjacency: what is compared: "replace" or "zero_out".
        group: how many units change together.

    Raises:
        ValueError: an argument outside its range, or a mechanism of which nothing is proved.

    >>> law = mp.privacy.calibrate(1.0, 1e-3, num_features=4)
    >>> [round(mp.privacy.compute_profile(law, group=k).epsilon(1e-3), 1) for k in (1, 2, 3)]
    [1.0, 2.3, 3.8]
    """
    if isinstance(mechanisms, Sequence) and not mechanisms:
        return PrivacyProfile.nothing().for_group(group)
    rounds = composition.as_rounds(mechanisms)
    return composition.profile(rounds, Adjacency.of(adjacency)).for_group(group)


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


def membership_odds(
    mechanisms: Mechanism | Sequence[Mechanism], adjacency: str, epsilon: float, prior: float = 0.5
) -> MembershipOdds:
    """Return the odds of membership that releases allow, from the law of their privacy loss.

    For Wishart noise that law is exact where a task is zeroed, and a bound where it is replaced.

    Args:
        mechanisms: one, or one per round.
        adjacency: what stands in a task's place if it is not there.
        epsilon: at which the guarantee is stated.
        prior: in (0, 1).
    """
    prior = in_range("prior", prior, 0, 1)
    loss, mass = composition.loss_when_there(mechanisms, adjacency)
    above = composition.loss_above(epsilon, mechanisms, adjacency)
    delta = composition.compute_delta(epsilon, mechanisms, adjacency)
    return MembershipOdds(prior, adjacency, loss, mass, epsilon, delta, above)


__getattr__ = former_names(__name__, {"Curve": "compute_profile"})
