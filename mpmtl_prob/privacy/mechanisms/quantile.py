"""Private quantile of norms by the exponential mechanism, for choosing a clip norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive
from mpmtl_prob.privacy.mechanisms.exact import Source, exponential
from mpmtl_prob.privacy.mechanisms.loss_distributions import pure_loss
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism, register
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.units import Adjacency


@register
@dataclass(frozen=True)
class Quantile(Mechanism):
    """Private quantile of the messages' norms on a public grid, by the exponential mechanism; for choosing a clip norm.

    Attributes:
        epsilon: its privacy cost, the same when a task is zeroed or replaced.

    Source: McSherry and Talwar (2007); the utility -|count - target| changes by at most 1 with one task.
    """

    epsilon: float

    def __post_init__(self) -> None:
        normalise_fields(self, positive, "epsilon")

    def draw(self, norms: FloatArray, grid: FloatArray, quantile: float, source: Source) -> float:
        """Draw a grid point g with probability proportional to exp(-eps/2 |#{norms <= g} - [quantile m]|), exactly."""
        count = np.searchsorted(np.sort(norms), grid, side="right")
        rank = round(quantile * len(norms))  # a whole number makes the utilities whole
        return float(grid[exponential((-np.abs(count - rank)).tolist(), self.epsilon, source)])

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        return 2 * self.epsilon

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the largest privacy loss that (eps, 0) allows; arguments as :meth:`Mechanism.loss_distribution`."""
        return pure_loss(self.max_loss(adjacency), self._interval(interval), pessimistic)

    def max_loss(self, adjacency: str) -> float:
        """Return eps, which holds under either adjacency."""
        Adjacency.of(adjacency)
        return self.epsilon

    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee holds."""
        return "The clip norm was bought by the exponential mechanism."
