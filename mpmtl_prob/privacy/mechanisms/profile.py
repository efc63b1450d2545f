"""delta as a function of eps, and what it says of every test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian

#: Where a trade-off curve is supported by lines; each bounds it everywhere.
LARGEST = 20.0
_EPSILONS = np.concatenate([np.linspace(0, 3, 121), np.linspace(3, LARGEST, 69)[1:]])


@dataclass(frozen=True)
class LossProfile:
    """delta as a function of eps, in the two directions of an adjacency; of a replacement they are the same.

    Attributes:
        add: delta(eps) where the data without the unit are the likelier ones.
        remove: delta(eps) where the others are.
        mu: of Gaussian differential privacy, where the profile is Gaussian.
    """

    add: Callable[[float], float]
    remove: Callable[[float], float]
    mu: float | None = None

    @classmethod
    def gaussian(cls, mu: float) -> LossProfile:
        """That of N(0, 1) against N(mu, 1)."""
        return cls(*2 * (lambda epsilon: delta_gaussian(epsilon, mu),), mu)

    def delta(self, epsilon: float) -> float:
        """The worse direction."""
        return max(self.add(epsilon), self.remove(epsilon))

    def power(self, false_alarms: ArrayLike) -> FloatArray:
        """The largest probability of recognising that "add" is true at given false-alarm rates, from all eps at once."""
        a = np.asarray(false_alarms, dtype=np.float64)
        power = np.ones_like(a)
        for epsilon in _EPSILONS:
            power = np.minimum(power, np.exp(epsilon) * a + self.add(epsilon))
            power = np.minimum(power, 1 - np.exp(-epsilon) * (1 - a - self.remove(epsilon)))
        return np.clip(power, 0.0, 1.0)
