"""Privacy-loss distributions (PLDs) of one draw, on a grid and in both directions, and their conversion to dp-accounting.

Composition needs no more than these numbers. dp-accounting takes a second to import, so it is imported only where somebody
asks for its distribution, or brings one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from mpmtl_prob._util.arrays import FloatArray


class Loss(NamedTuple):
    """Privacy loss of one draw in one direction: the losses (first, first + 1, ...) * interval, and an infinite one.

    Attributes:
        first: the least loss, in steps of the grid.
        mass: probabilities of first, first + 1, ..., (n,), none below 0.
        infinite: the probability of an infinite loss.
    """

    first: int
    mass: FloatArray
    infinite: float

    def masses(self, interval: float) -> tuple[FloatArray, FloatArray]:
        """Return the losses, ascending with the infinite one last, and their probabilities, (n + 1,) each."""
        losses = (self.first + np.arange(len(self.mass))) * interval
        return np.append(losses, np.inf), np.append(self.mass, self.infinite)


class LossDistribution(NamedTuple):
    """Privacy-loss distribution of one draw on a grid.

    Attributes:
        remove: the loss if the unit took part. The same object as ``add`` where both directions have the same law.
        add: the loss if it did not.
        interval: grid spacing.
        pessimistic: whether losses are rounded so that delta(eps) is never too small; otherwise it is never too large.
    """

    remove: Loss
    add: Loss
    interval: float
    pessimistic: bool

    @classmethod
    def of(cls, distribution: Any) -> Self:
        """Return a distribution as it is, or convert dp-accounting's ``PrivacyLossDistribution``.

        The public interface of dp-accounting answers for the worse direction only, so its private attributes are read.
        """
        if isinstance(distribution, cls):
            return distribution
        one, other = distribution._pmf_remove, distribution._pmf_add
        remove = _loss(one)
        return cls(remove, remove if other is one else _loss(other), one._discretization, one._pessimistic_estimate)

    def to_dp_accounting(self) -> Any:
        """Return the ``PrivacyLossDistribution`` of dp-accounting, which composes it with those of other programs."""
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution

        def converted(loss: Loss) -> Any:  # dp-accounting's own function needs a dictionary of losses, which is slow
            return pld_pmf.DensePLDPmf(self.interval, loss.first, loss.mass, loss.infinite, self.pessimistic)

        both = (self.remove,) if self.remove is self.add else (self.remove, self.add)
        return privacy_loss_distribution.PrivacyLossDistribution(*map(converted, both))


def on_grid(first: int, probabilities: FloatArray, infinite: float) -> Loss:
    """Build one direction. Negative probabilities, which rounding errors cause, become 0."""
    return Loss(int(first), np.maximum(probabilities, 0.0), float(infinite))


def _loss(pmf: Any) -> Loss:
    dense = pmf.to_dense_pmf()
    return on_grid(dense._lower_loss, dense._probs, dense._infinity_mass)
