"""Gaussian noise on a symmetric matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded, symmetric
from mpmtl_prob.privacy.mechanisms.loss_distributions import gaussian_loss
from mpmtl_prob.privacy.mechanisms.mechanism import MatrixMechanism, Mechanism, register
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency


@register
@dataclass(frozen=True)
class Gaussian(MatrixMechanism):
    """E symmetric with independent entries, N(0, sd^2) off the diagonal and N(0, 2 sd^2) on it.

    Rotation invariant and centred, but Sigma need not be positive definite.

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
        """mu of the Gaussian differential privacy: ||Delta||_F / (sqrt2 sigma).

        ||Delta||_F is at most K^2 when a column is zeroed and sqrt2 K^2 when it is replaced; K^2 with a single feature, as
        squares lie on one side.
        """
        zeroed = Adjacency.of(adjacency) is Adjacency.ZERO_OUT or self.num_features == 1
        sensitivity = self.clip**2 * (1.0 if zeroed else np.sqrt(2))
        return float(sensitivity / (np.sqrt(2) * self.sd))

    @property
    def mean(self) -> FloatArray:
        """E[Sigma - A] = 0, (d, d)."""
        return np.zeros((self.num_features, self.num_features))

    @property
    def operator_norm(self) -> float:
        """Size of Sigma - A in operator norm, 2 sigma sqrt(d), in squared units of the weights."""
        return 2 * self.sd * np.sqrt(self.num_features)

    @property
    def variance(self) -> float:
        """Of w' E w, for w of length 1: 2 sigma^2."""
        return 2 * self.sd**2

    def draw(self, unit: float, source: Source) -> FloatArray:
        """E in whole multiples of ``unit``, (d, d), as :meth:`Wishart.draw`."""
        d = self.num_features
        rows, columns = np.tril_indices(d)

        def lower(draws: Draws) -> list[arb]:
            off, on = arb(self.sd) / arb(unit), arb(2).sqrt() * self.sd / arb(unit)
            normals = draws.normals(len(rows))
            return [z * (on if i == j else off) for z, i, j in zip(normals, rows, columns, strict=True)]

        return unit * symmetric(rounded(lower, source), d)

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """A + E for A of shape (..., d, d), with a fresh E each, exactly symmetric: for simulations, in doubles."""
        d = self.num_features
        G = rng.standard_normal((*A.shape[:-2], d, d)) * (self.sd / np.sqrt(2))
        return (A + np.swapaxes(A, -1, -2)) / 2 + (G + np.swapaxes(G, -1, -2))

    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """log density of the release sigma given A, (...), over the d (d + 1) / 2 free entries."""
        d = self.num_features
        log_norm = 0.25 * d * (d + 1) * np.log(2 * np.pi * self.sd**2) + 0.5 * d * np.log(2)
        return -np.sum((sigma - A) ** 2, axis=(-1, -2)) / (4 * self.sd**2) - log_norm

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, from which composition takes its grid."""
        return 10 * self.mu("zero_out")

    def loss_distribution(self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True) -> Any:
        """As :meth:`Mechanism.loss_distribution`."""
        return gaussian_loss(self.mu(adjacency), self._interval(interval), pessimistic)

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Any number of Gaussian rounds, exactly: their mu add up in squares."""
        squares = [law.mu(adjacency) ** 2 for law in laws if isinstance(law, Gaussian)]
        return PrivacyProfile.gaussian(float(np.sqrt(sum(squares)))) if len(squares) == len(laws) else None

    def justification(self, adjacency: str, rounds: int) -> str:
        """Why the guarantee of so many draws holds, in a sentence."""
        return "A release is exactly as private as Gaussian noise on a number."
