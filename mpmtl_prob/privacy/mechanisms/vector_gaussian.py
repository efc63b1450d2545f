"""Gaussian mechanism for vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded
from mpmtl_prob.privacy.mechanisms.loss_distributions import gaussian_loss
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism, VectorMechanism, register
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency


@register
@dataclass(frozen=True)
class VectorGaussian(VectorMechanism):
    """Gaussian noise b ~ N(0, sd^2 I) on a vector; a replacement moves it by at most the sensitivity (mu-Gaussian privacy).

    Attributes:
        num_features: d.
        sd: of every entry, in units of the vector.
        sensitivity: s, the largest distance by which a replacement can move the vector, in Euclidean norm.

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
        """Return mu of Gaussian differential privacy: s / sd, or half of it when the vector is zeroed."""
        return self.sensitivity / self.sd * (1.0 if Adjacency.of(adjacency) is Adjacency.REPLACE else 0.5)

    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw b in whole multiples of ``unit``, (d,): a real draw, correctly rounded. Releases use this method."""

        def entries(draws: Draws) -> list[arb]:
            return [z * self.sd / arb(unit) for z in draws.normals(self.num_features)]

        return unit * np.array(rounded(entries, source), dtype=np.float64)

    def sample(self, rng: np.random.Generator, w: FloatArray) -> FloatArray:
        """Return w + b for vectors of shape (..., d), with fresh noise for each; in doubles, for simulations."""
        return w + self.sd * rng.standard_normal(w.shape)

    def log_prob(self, released: FloatArray, w: FloatArray) -> FloatArray:
        """Return the log density of the released vectors given w, (...)."""
        squares = np.sum(((released - w) / self.sd) ** 2, axis=-1)
        return -squares / 2 - self.num_features * np.log(self.sd * np.sqrt(2 * np.pi))

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        return 10 * self.mu("replace")

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the privacy loss of one draw; see :meth:`Mechanism.loss_distribution`."""
        return gaussian_loss(self.mu(adjacency), self._interval(interval), pessimistic)

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Compose any number of rounds exactly: the squares of their mu add up."""
        squares = [law.mu(adjacency) ** 2 for law in laws if isinstance(law, VectorGaussian)]
        return PrivacyProfile.gaussian(float(np.sqrt(sum(squares)))) if len(squares) == len(laws) else None

    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee of this number of draws holds."""
        return "Gaussian noise on a vector tells two vectors apart no better than on a number as far apart as they are."
