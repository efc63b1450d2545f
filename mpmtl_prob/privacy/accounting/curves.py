"""Privacy profiles of composed mechanisms, and membership-inference odds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from mpmtl_prob._util.checks import in_range
from mpmtl_prob._util.former import former_names
from mpmtl_prob._util.tables import percent
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency


def compute_profile(
    mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace", group: int = 1
) -> PrivacyProfile:
    """Return the privacy profile of mechanisms, one per round: delta at every eps, trade-off curves, groups.

    Args:
        mechanisms: one, or one per round, in any mixture; an empty sequence means that nothing is released.
        adjacency: neighbouring relation, "replace" or "zero_out".
        group: number of units that change together (group privacy).

    Raises:
        ValueError: an argument outside its range, or a mechanism without a proof.

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
    """Membership-inference odds: the distribution of the strongest attacker's posterior probability that a task took part.

    The attacker knows all other data, the task's own vector, and the vector that replaces it if the task is absent (zero, or
    that of another task). They compute the Bayes factor of the release.

    Attributes:
        prior: the probability, before the release, that the task took part.
        adjacency: what replaces an absent task.
        log_factor: values of the log Bayes factor, ascending; the last may be infinite.
        mass: their probabilities if the task took part, (n,).
        epsilon: of the stated guarantee.
        delta: of the stated guarantee.
        above: probability that the posterior exceeds the cap, if the task took part. It is larger than delta, as delta
            weights every case by how far the cap is exceeded.
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
        """Return the q-quantile of the posterior probability that the task took part, if it did."""
        index = min(int(np.searchsorted(np.cumsum(self.mass), in_range("q", q, 0, 1))), len(self.mass) - 1)
        return float(expit(logit(self.prior) + self.log_factor[index]))

    @property
    def typical(self) -> float:
        """The median posterior probability."""
        return self.quantile(0.5)

    def __str__(self) -> str:
        unknown = Adjacency.of(self.adjacency).unknown
        # a cap that no decimals tell from 1 is told by the odds
        cap = percent(self.cap, 1) if self.cap < 1 - 1e-9 else f"e^{self.epsilon:.3g} times the odds before"
        return (
            f"Assume an attacker who knows everything except {unknown}, and thought it {percent(self.prior)} likely that you "
            f"are in it. If you are, then after seeing this they typically find it {percent(self.typical)} likely (in one "
            f"case of ten more than {percent(self.quantile(0.9))}), and more than {cap} with a probability of about "
            f"{self.above:.2g}."
        )


def membership_odds(
    mechanisms: Mechanism | Sequence[Mechanism], adjacency: str, epsilon: float, prior: float = 0.5
) -> MembershipOdds:
    """Return the membership-inference odds that releases allow, from the distribution of their privacy loss.

    The loss is that of the pair of distributions whose delta(eps) is proved. Some data sets have it if the noise is Gaussian,
    or if it is Wishart and a task is zeroed. If a task is replaced, no pair is easier to tell apart, but the loss of another
    may have larger quantiles: :meth:`PrivacyProfile.exceeding` bounds those of all.

    Args:
        mechanisms: one, or one per round.
        adjacency: what replaces an absent task.
        epsilon: of the stated guarantee.
        prior: the attacker's probability, before the release, that the task took part, in (0, 1).
    """
    prior = in_range("prior", prior, 0, 1)
    loss, mass = composition.loss_when_there(mechanisms, adjacency)
    above = composition.loss_above(epsilon, mechanisms, adjacency)
    delta = composition.compute_delta(epsilon, mechanisms, adjacency)
    return MembershipOdds(prior, adjacency, loss, mass, epsilon, delta, above)


__getattr__ = former_names(__name__, {"Curve": "compute_profile"})
