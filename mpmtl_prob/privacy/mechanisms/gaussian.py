"""Gaussian noise on a symmetric matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded, symmetric
from mpmtl_prob.privacy.mechanisms.loss_distributions import gaussian_loss
from mpmtl_prob.privacy.mechanisms.mechanism import MatrixMechanism, Mechanism, register
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency


@register
@dataclass(frozen=True)
class Gaussian(MatrixMechanism):
    """Gaussian noise E on a symmetric matrix: independent entries, N(0, sd^2) off the diagonal and N(0, 2 sd^2) on it.

    The noise is invariant under rotation and has mean 0, but Sigma need not be positive definite.

    Attributes:
        num_features: d.
        sd: sigma, in squared units of the weights.
        clip: K, the largest norm of a column of W, in units of the weights.

    Raises:
        ValueError: an argument outside its range.
    """

    num_features: int
    sd: float
    clip: float = 1.0

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_features")
        normalise_fields(self, positive, "sd", "clip")

    def mu(self, adjacency: str) -> float:
        """Return mu of Gaussian differential privacy: ||Delta||_F / (sqrt2 sigma).

        ||Delta||_F is at most K^2 when a column is zeroed, and sqrt2 K^2 when it is replaced. With a single feature it is at
        most K^2 in both cases, as squares lie between 0 and K^2.
        """
        zeroed = Adjacency.of(adjacency) is Adjacency.ZERO_OUT or self.num_features == 1
        sensitivity = self.clip**2 * (1.0 if zeroed else np.sqrt(2))
        return float(sensitivity / (np.sqrt(2) * self.sd))

    @property
    def mean(self) -> FloatArray:
        """The mean of the noise, E[Sigma - A] = 0, (d, d)."""
        return np.zeros((self.num_features, self.num_features))

    @property
    def operator_norm(self) -> float:
        """Size of Sigma - A in operator norm, 2 sigma sqrt(d), in squared units of the weights."""
        return 2 * self.sd * np.sqrt(self.num_features)

    @property
    def variance(self) -> float:
        """The variance of w' E w for w of length 1: 2 sigma^2."""
        return 2 * self.sd**2

    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw E in whole multiples of ``unit``, (d, d), as :meth:`Wishart.draw` does."""
        d = self.num_features
        rows, columns = np.tril_indices(d)

        def lower(draws: Draws) -> list[arb]:
            off = arb(self.sd) / arb(unit)
            on = arb(2).sqrt() * self.sd / arb(unit)
            normals = draws.normals(len(rows))
            return [z * (on if i == j else off) for z, i, j in zip(normals, rows, columns, strict=True)]

        return unit * symmetric(rounded(lower, source), d)

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """Return A + E for A of shape (..., d, d), with fresh symmetric noise for each; in doubles, for simulations."""
        d = self.num_features
        G = rng.standard_normal((*A.shape[:-2], d, d)) * (self.sd / np.sqrt(2))
        return (A + np.swapaxes(A, -1, -2)) / 2 + (G + np.swapaxes(G, -1, -2))

    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """Return the log density of the release sigma given A, (...), over the d (d + 1) / 2 free entries."""
        d = self.num_features
        log_norm = 0.25 * d * (d + 1) * np.log(2 * np.pi * self.sd**2) + 0.5 * d * np.log(2)
        return -np.sum((sigma - A) ** 2, axis=(-1, -2)) / (4 * self.sd**2) - log_norm

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        return 10 * self.mu("zero_out")

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the privacy loss of one draw; see :meth:`Mechanism.loss_distribution`."""
        return gaussian_loss(self.mu(adjacency), self._interval(interval), pessimistic)

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Compose any number of Gaussian rounds exactly: the squares of their mu add up."""
        squares = [law.mu(adjacency) ** 2 for law in laws if isinstance(law, Gaussian)]
        return PrivacyProfile.gaussian(float(np.sqrt(sum(squares)))) if len(squares) == len(laws) else None

    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee of this number of draws holds."""
        return "A release is exactly as private as Gaussian noise on a number."
