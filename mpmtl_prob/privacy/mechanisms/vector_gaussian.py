"""Gaussian noise on a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded
from mpmtl_prob.privacy.mechanisms.loss_distributions import gaussian_loss
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism, VectorMechanism, register
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency


@register
@dataclass(frozen=True)
class VectorGaussian(VectorMechanism):
    """b ~ N(0, sd^2 I) on a vector that a replacement moves by at most the sensitivity: exactly mu-Gaussian private.

    Attributes:
        num_features: d.
        sd: of every entry, in units of the vector.
        sensitivity: s, by how much the change protected against can move the vector, in Euclidean norm.

    Raises:
        ValueError: an argument outside its range.

    Source: Dong, Roth and Su (2022), Theorem 2.7; Bun and Steinke (2016), Proposition 1.6, for rho = mu^2 / 2.
    """

    num_features: int
    sd: float
    sensitivity: float

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_features")
        normalise_fields(self, positive, "sd", "sensitivity")

    @property
    def scale(self) -> float:
        """Size of an entry of b, in units of the vector."""
        return self.sd

    def mu(self, adjacency: str) -> float:
        """mu of the Gaussian differential privacy: s / sd; half of it when the vector is zeroed, the centre of its ball."""
        return self.sensitivity / self.sd * (1.0 if Adjacency.of(adjacency) is Adjacency.REPLACE else 0.5)

    def draw(self, unit: float, source: Source) -> FloatArray:
        """b in whole multiples of ``unit``, (d,): the real draw, correctly rounded. This is what is published."""

        def entries(draws: Draws) -> list[arb]:
            return [z * self.sd / arb(unit) for z in draws.normals(self.num_features)]

        return unit * np.array(rounded(entries, source), dtype=np.float64)

    def sample(self, rng: np.random.Generator, w: FloatArray) -> FloatArray:
        """w + b for vectors of shape (..., d), with a fresh b for every one: for simulations, in doubles."""
        return w + self.sd * rng.standard_normal(w.shape)

    def log_prob(self, released: FloatArray, w: FloatArray) -> FloatArray:
        """log density of the released vectors given w, (...)."""
        squares = np.sum(((released - w) / self.sd) ** 2, axis=-1)
        return -squares / 2 - self.num_features * np.log(self.sd * np.sqrt(2 * np.pi))

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, from which composition takes its grid."""
        return 10 * self.mu("replace")

    def loss_distribution(self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True) -> Any:
        """As :meth:`Mechanism.loss_distribution`."""
        return gaussian_loss(self.mu(adjacency), self._interval(interval), pessimistic)

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Any number of rounds, exactly: their mu add up in squares."""
        squares = [law.mu(adjacency) ** 2 for law in laws if isinstance(law, VectorGaussian)]
        return PrivacyProfile.gaussian(float(np.sqrt(sum(squares)))) if len(squares) == len(laws) else None

    def justification(self, adjacency: str, rounds: int) -> str:
        """Why the guarantee of so many draws holds, in a sentence."""
        return "Gaussian noise on a vector tells two vectors apart no better than on a number as far apart as they are."
