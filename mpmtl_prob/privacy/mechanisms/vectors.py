"""Laplace mechanisms for single vectors, with pure differential privacy; also for a curator who is not trusted.

A message w lies in a ball about zero. A change of the data moves it by at most the ball's diameter, the sensitivity s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from flint import arb
from scipy.special import gammaln

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded
from mpmtl_prob.privacy.mechanisms.loss_distributions import pure_loss, vector_loss, vector_spread
from mpmtl_prob.privacy.mechanisms.mechanism import VectorMechanism, register
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.units import Adjacency


@register
@dataclass(frozen=True)
class VectorLaplace(VectorMechanism):
    """Noise b on a vector with density proportional to exp(-(eps / s) ||b||_2): uniform direction, Gamma(d, s / eps) length.

    It is (eps, 0)-private for a change of the vector by at most s, as ||b - h|| differs from ||b|| by at most ||h||. With
    many features, a much smaller eps holds at a small delta, as b is rarely parallel to the change h.

    Attributes:
        num_features: d.
        epsilon: eps of one release when the vector is replaced.
        sensitivity: s, the largest distance by which a replacement can move the vector, in Euclidean norm.

    Raises:
        ValueError: an argument outside its range.

    Source: TPAMI 2022, Algorithm 5 (one version prints the exponent as s / eps); Chaudhuri, Monteleoni and Sarwate (2011).
    """

    num_features: int
    epsilon: float
    sensitivity: float

    by_quadrature: ClassVar[bool] = True

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_features")
        normalise_fields(self, positive, "epsilon", "sensitivity")

    @property
    def scale(self) -> float:
        """Scale of the noise, s / eps, in units of the vector."""
        return self.sensitivity / self.epsilon

    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw b in whole multiples of ``unit``, (d,): a real draw, correctly rounded. Releases use this method."""
        return unit * np.array(rounded(partial(self._real, unit), source), dtype=np.float64)

    def _real(self, unit: float, draws: Draws) -> list[arb]:
        direction = draws.normals(self.num_features)
        length = draws.gamma(float(self.num_features)) * self.scale / arb(unit)
        norm = sum((z * z for z in direction), arb(0)).sqrt()
        return [length * z / norm for z in direction]

    def sample(self, rng: np.random.Generator, w: FloatArray) -> FloatArray:
        """Return w + b for vectors of shape (..., d), with fresh noise for each; in doubles, for simulations."""
        direction = rng.standard_normal(w.shape)
        direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
        return w + rng.gamma(self.num_features, self.scale, (*w.shape[:-1], 1)) * direction

    def log_prob(self, released: FloatArray, w: FloatArray) -> FloatArray:
        """Return the log density of the released vectors given w, (...)."""
        d = self.num_features
        # the area of the unit sphere, 2 pi^{d/2} / Gamma(d/2), times the integral of r^{d-1} e^{-r/scale}
        log_norm = np.log(2) + d / 2 * np.log(np.pi) - gammaln(d / 2) + gammaln(d) + d * np.log(self.scale)
        return -np.linalg.norm(released - w, axis=-1) / self.scale - log_norm

    def max_loss(self, adjacency: str) -> float:
        """Return the largest privacy loss: eps when the vector is replaced, half of it when it is zeroed.

        A zeroed vector moves by half of the sensitivity at most, as zero is the centre of its ball.
        """
        return self.epsilon * (1.0 if Adjacency.of(adjacency) is Adjacency.REPLACE else 0.5)

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        return vector_spread(self.num_features, self.epsilon)

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the privacy loss of the largest possible change; arguments as :meth:`Mechanism.loss_distribution`."""
        return vector_loss(self.num_features, self.max_loss(adjacency), self._interval(interval), pessimistic)

    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee of this number of draws holds."""
        return "The density of the noise changes by at most e^eps when the vector moves by its sensitivity" + (
            "; the rounds are composed as if each lost the most that this allows." if rounds > 1 else "."
        )


@register
@dataclass(frozen=True)
class IndependentLaplace(VectorLaplace):
    """Independent Laplace(s / eps) noise on every entry, where the sensitivity s is in the sum of absolute values (L1 norm).

    The L1 norm is at most sqrt(d) times the Euclidean norm.

    Source: Dwork, McSherry, Nissim and Smith (2006).
    """

    def _real(self, unit: float, draws: Draws) -> list[arb]:
        # a Laplace number is the difference of two exponential ones
        pairs = [(draws.uniform().log(), draws.uniform().log()) for _ in range(self.num_features)]
        return [(first - second) * self.scale / arb(unit) for first, second in pairs]

    def sample(self, rng: np.random.Generator, w: FloatArray) -> FloatArray:
        """Return w + b for vectors of shape (..., d), with fresh noise for each; in doubles, for simulations."""
        return w + rng.laplace(0.0, self.scale, w.shape)

    def log_prob(self, released: FloatArray, w: FloatArray) -> FloatArray:
        """Return the log density of the released vectors given w, (...)."""
        return -np.sum(np.abs(released - w), axis=-1) / self.scale - self.num_features * np.log(2 * self.scale)

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        return 2 * self.epsilon

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the largest privacy loss that (eps, 0) allows; arguments as :meth:`Mechanism.loss_distribution`."""
        return pure_loss(self.max_loss(adjacency), self._interval(interval), pessimistic)
