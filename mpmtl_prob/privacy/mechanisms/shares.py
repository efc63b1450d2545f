r"""Distributed Gaussian noise for secure aggregation: the sum of one share of every owner, so that nobody knows the noise.

Each share is a discrete Gaussian on the lattice, with probabilities proportional to ``exp(-k^2 / 2 s^2)`` on whole numbers k,
s in steps of the lattice. A sum of shares is as private as real Gaussian noise of the same variance, except for a
probability of :func:`slack`:

1. *A sum of discrete Gaussians is nearly a discrete Gaussian.* For two of them, P(X + Y = k) is
   ``exp(-k^2 / 2 (s^2 + t^2))`` times ``sum_x exp(-(x - c_k)^2 / 2 v)``, ``1/v = 1/s^2 + 1/t^2``. By Poisson's summation
   formula this sum is the same for all c except for a factor of ``1 +- 3 exp(-2 pi^2 v)``. With 16 steps in the sd of a
   share, the factor is within 1e-1000 of 1 for any number of shares.
2. *A discrete Gaussian is nearly a rounded real one.* A real Gaussian rounded to whole numbers is post-processing of the real
   one. Its probability at k is that of the discrete one times ``E exp(-(k u / s^2 + u^2 / 2 s^2))``, u uniform on +-1/2,
   divided by the mean of this factor. As ``E exp(-k u / s^2) <= exp(k^2 / 24 s^4)``, the discrete one has at least ``1 - b``
   of the rounded one's probability wherever ``|k| <= c s``, with ``b = c^2 / 24 s^2``. For ``c^2 = 2 (L + 74)`` either has
   less than ``1e-32 e^-L`` beyond.
3. *The difference in delta is small.* Let P, Q be the pair of rounded laws of p numbers and P', Q' the discrete pair. Then
   ``P' >= (1 - p b) P`` except for ``1e-32 e^-L p``. Where ``P'(E) > e^eps Q'(E)``, ``P'(E) - e^eps Q'(E)`` is at most
   ``delta(eps) + 2 p b`` plus the mass beyond, ``(1 + e^eps) 1e-32 e^-L p``, which is negligible up to ``eps = L``. For
   larger eps, delta is not larger than at L, and ``delta(L)`` of real noise is negligible at ``L = mu^2 / 2 + 40 mu``.

Source: Canonne, Kamath and Steinke (2020), NeurIPS, for the law and its sampler; Kairouz, Liu and Steinke (2021), ICML, for
sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from flint import arb

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded, symmetric
from mpmtl_prob.privacy.mechanisms.gaussian import Gaussian
from mpmtl_prob.privacy.mechanisms.loss_distributions import add_slack, gaussian_loss
from mpmtl_prob.privacy.mechanisms.mechanism import MatrixMechanism, Mechanism, register
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile

#: Least number of lattice steps in the sd of a share.
LEAST_STEPS = 16.0
_BEYOND = 1e-20  # a generous bound on (1 + e^eps) 1e-32 e^-L for eps <= L


@register
@dataclass(frozen=True)
class GaussianShares(MatrixMechanism):
    """Distributed Gaussian noise: a symmetric E on a lattice that is the sum of a share of every owner.

    The variance of an entry is sd^2 off the diagonal and 2 sd^2 on it.

    Attributes:
        num_features: d.
        share: sd of an owner's share of an entry off the diagonal, in squared units of the weights.
        owners: number of shares in the sum.
        step: of the lattice, in the same units.
        colluders: number of owners who may tell their shares to the attacker. Only the other owners' shares protect.
        clip: K, the largest norm of a column of W, in units of the weights.

    Raises:
        ValueError: an argument outside its range, no honest owner, or a lattice too coarse for the shares.
    """

    num_features: int
    share: float
    owners: int
    step: float
    colluders: int = 0
    clip: float = 1.0

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_features", "owners")
        normalise_fields(self, positive, "share", "step", "clip")
        whole("colluders", self.colluders, 0)
        if self.colluders >= self.owners:
            raise ValueError(f"colluders: expected fewer than the {self.owners} owners, got {self.colluders}")
        if self.share < LEAST_STEPS * self.step:
            raise ValueError(
                f"step: expected at most {self.share / LEAST_STEPS:.3g} for shares of this size, got {self.step!r}"
            )

    @property
    def sd(self) -> float:
        """Standard deviation of an entry of E off the diagonal, in squared units of the weights."""
        return float(self.share * np.sqrt(self.owners))

    @property
    def mean(self) -> FloatArray:
        """The mean of the noise, E[Sigma - A] = 0, (d, d)."""
        return self._real.mean

    @property
    def operator_norm(self) -> float:
        """Size of Sigma - A in operator norm, in squared units of the weights."""
        return self._real.operator_norm

    @property
    def variance(self) -> float:
        """The variance of w' E w, for w of length 1."""
        return self._real.variance

    @property
    def adversary(self) -> str:
        """The attackers against whom the guarantee holds, in words: an owner knows its own share of the noise."""
        if not self.colluders:
            return "whoever added no noise to it"
        some = "any one" if self.colluders == 1 else f"{self.colluders} at most"
        return f"whoever added no noise to it, with {some} of the {self.owners} owners who did"

    @property
    def honest(self) -> Self:
        """The noise without the shares of colluding owners, which the attacker may know."""
        return replace(self, owners=self.owners - self.colluders, colluders=0)

    @property
    def slack(self) -> float:
        """Upper bound on the excess of delta over that of real Gaussian noise, for any eps."""
        return self._slack(self.mu("replace"))

    def _slack(self, mu: float) -> float:
        """Return the same bound for a composition whose real noise has this total mu."""
        return slack(self.num_features, self.share * np.sqrt(self.owners - self.colluders) / self.step, mu)

    def mu(self, adjacency: str) -> float:
        """Return mu of the real Gaussian noise that corresponds to the honest owners' shares."""
        honest = self.share * np.sqrt(self.owners - self.colluders)
        return Gaussian(self.num_features, float(honest), self.clip).mu(adjacency)

    def draw_share(self, source: Source) -> FloatArray:
        """Draw one owner's share, (d, d), in whole multiples of the step."""
        d = self.num_features

        def lower(draws: Draws) -> list[arb]:
            off_diagonal = arb(self.share) / arb(self.step)
            diagonal = off_diagonal * arb(2).sqrt()
            entries = zip(*np.tril_indices(d), strict=True)
            return [draws.discrete_normal(diagonal if i == j else off_diagonal) for i, j in entries]

        return self.step * symmetric(rounded(lower, source), d)

    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw E, (d, d), the sum of all owners' shares. Raises ValueError for another unit than the step."""
        if unit != self.step:
            raise ValueError(f"unit: expected the step of the lattice, {self.step!r}, got {unit!r}")

        def of_owner(owner: int) -> Source:
            return lambda number, first, last: source(number + owner * 2**32, first, last)

        total: FloatArray = np.sum([self.draw_share(of_owner(owner)) for owner in range(self.owners)], axis=0)
        return total

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """Return A + E for A of shape (..., d, d), with fresh symmetric noise for each; in doubles, for simulations."""
        return self._real.sample(rng, A)

    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """Return the log density of real Gaussian noise of the same variance, (...), over the d (d + 1) / 2 free entries."""
        return self._real.log_prob(sigma, A)

    @property
    def _real(self) -> Gaussian:
        return Gaussian(self.num_features, self.sd, self.clip)

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        return 10 * self.mu("zero_out")

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the privacy loss of one draw: that of real noise, with an infinite loss of probability :attr:`slack`.

        Arguments as :meth:`Mechanism.loss_distribution`.
        """
        real = gaussian_loss(self.mu(adjacency), self._interval(interval), pessimistic)
        return add_slack(real, self.slack) if pessimistic else real

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Compose any number of rounds: the squares of their mu add up, and so do their slacks."""
        shares = [law for law in laws if isinstance(law, GaussianShares)]
        if len(shares) < len(laws):
            return None
        mu = float(np.sqrt(sum(law.mu(adjacency) ** 2 for law in shares)))
        total_slack = sum(law._slack(max(mu, law.mu("replace"))) for law in shares)
        curve = lambda epsilon: min(1.0, delta_gaussian(epsilon, mu) + total_slack)
        return PrivacyProfile(curve, curve)

    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee of this number of draws holds."""
        some = "any one of them tells" if self.colluders == 1 else f"{self.colluders} of them tell"
        known = f", whatever {some}" if self.colluders else ""
        return (
            f"The noise is the sum of {self.owners} owners' shares{known}: as private as Gaussian noise of that size."
        )


def slack(num_features: int, steps: float, mu: float) -> float:
    """Return an upper bound on the excess of discrete noise's delta over that of real Gaussian noise, at any eps.

    Args:
        num_features: d.
        steps: number of lattice steps in the sd off the diagonal.
        mu: of all rounds together.
    """
    numbers, c2 = num_features * (num_features + 1) / 2, 2 * (mu**2 / 2 + 40 * mu + 74)
    return float(numbers * (2 * c2 / (24 * steps**2) + _BEYOND))
