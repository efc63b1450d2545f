r"""Gaussian noise that nobody knows: the sum of shares, one of every owner, each a discrete Gaussian on the lattice.

A discrete Gaussian has probabilities proportional to ``exp(-k^2 / 2 s^2)`` on whole numbers k, s in steps of the lattice. A
sum of them gives away what real Gaussian noise of the same variance does, but for a probability of :func:`slack`:

1. *A sum is one of them.* Of two, P(X + Y = k) is ``exp(-k^2 / 2 (s^2 + t^2))`` times ``sum_x exp(-(x - c_k)^2 / 2 v)``,
   ``1/v = 1/s^2 + 1/t^2``, which by Poisson's summation formula is the same for all c but for a factor of
   ``1 +- 3 exp(-2 pi^2 v)``. With 16 steps to a share that is within 1e-1000 of 1 for any number of shares.
2. *It is nearly a rounded one.* A real Gaussian rounded to whole numbers, which is post-processing of it, has at k the
   probability of the discrete one times ``E exp(-(k u / s^2 + u^2 / 2 s^2))``, u uniform on +-1/2, over its mean. As
   ``E exp(-k u / s^2) <= exp(k^2 / 24 s^4)``, the discrete one has at least ``1 - b``, ``b = c^2 / 24 s^2``, of the rounded
   one's probability wherever ``|k| <= c s``; with ``c^2 = 2 (L + 74)`` either has less than ``1e-32 e^-L`` beyond.
3. *So* for p numbers, with P, Q the rounded pair and P', Q' the discrete one, ``P' >= (1 - p b) P`` but for ``1e-32 e^-L p``.
   Where ``P'(E) > e^eps Q'(E)``: ``P'(E) - e^eps Q'(E) <= delta(eps) + 2 p b`` and what lies beyond,
   ``(1 + e^eps) 1e-32 e^-L p``, which is nothing up to ``eps = L``. Above, delta is not larger than at L, and ``delta(L)`` of
   real noise is nothing either at ``L = mu^2 / 2 + 40 mu``.

Source: Canonne, Kamath and Steinke (2020), NeurIPS, for the law and its sampler; Kairouz, Liu and Steinke (2021), ICML, for
sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from flint import arb

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded, symmetric
from mpmtl_prob.privacy.mechanisms.gaussian import Gaussian
from mpmtl_prob.privacy.mechanisms.loss_distributions import add_slack, gaussian_loss
from mpmtl_prob.privacy.mechanisms.mechanism import MatrixMechanism, Mechanism, register
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile

#: Steps of the lattice that the sd of a share has at least.
LEAST_STEPS = 16.0
_BEYOND = 1e-20  # (1 + e^eps) 1e-32 e^-L, eps <= L, with room to spare


@register
@dataclass(frozen=True)
class GaussianShares(MatrixMechanism):
    """E symmetric, the sum of a share of every owner: N(0, sd^2) off the diagonal, N(0, 2 sd^2) on it, on a lattice.

    Attributes:
        num_features: d.
        share: sd of an owner's share of an entry off the diagonal, in squared units of the weights.
        owners: how many shares are in the sum.
        step: of the lattice, in the same units.
        colluders: owners who may tell their shares to whoever attacks; those of the others protect.
        clip: K, the largest norm of a column of W, in units of the weights.

    Raises:
        ValueError: an argument outside its range, nobody who does not collude, or a lattice too coarse for the shares.
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
        """Of an entry of E off the diagonal, in squared units of the weights."""
        return float(self.share * np.sqrt(self.owners))

    @property
    def mean(self) -> FloatArray:
        """E[Sigma - A] = 0, (d, d)."""
        return self._real.mean

    @property
    def operator_norm(self) -> float:
        """Size of Sigma - A in operator norm, in squared units of the weights."""
        return self._real.operator_norm

    @property
    def variance(self) -> float:
        """Of w' E w, for w of length 1."""
        return self._real.variance

    @property
    def adversary(self) -> str:
        """Who knows a share knows that much of the noise."""
        if not self.colluders:
            return "whoever added no noise to it"
        some = "any one" if self.colluders == 1 else f"{self.colluders} at most"
        return f"whoever added no noise to it, with {some} of the {self.owners} owners who did"

    @property
    def honest(self) -> Self:
        """The shares of those who do not collude: the noise that is left to whoever knows the others."""
        return replace(self, owners=self.owners - self.colluders, colluders=0)

    @property
    def slack(self) -> float:
        """By how much delta exceeds that of real Gaussian noise at most, whatever eps."""
        return self._slack(self.mu("replace"))

    def _slack(self, mu: float) -> float:
        """The same beside real noise that gives away mu with what else there is."""
        return slack(self.num_features, self.share * np.sqrt(self.owners - self.colluders) / self.step, mu)

    def mu(self, adjacency: str) -> float:
        """mu of the real Gaussian noise of those who do not collude."""
        honest = self.share * np.sqrt(self.owners - self.colluders)
        return Gaussian(self.num_features, float(honest), self.clip).mu(adjacency)

    def draw_share(self, source: Source) -> FloatArray:
        """One owner's share, (d, d), in whole multiples of the step."""
        d = self.num_features

        def lower(draws: Draws) -> list[arb]:
            off = arb(self.share) / arb(self.step)  # to as many bits as the draws have
            each = zip(*np.tril_indices(d), strict=True)
            return [draws.discrete_normal(off * arb(2).sqrt() if i == j else off) for i, j in each]

        return self.step * symmetric(rounded(lower, source), d)

    def draw(self, unit: float, source: Source) -> FloatArray:
        """E, (d, d): everybody's share. Raises ValueError for another unit than the step."""
        if unit != self.step:
            raise ValueError(f"unit: expected the step of the lattice, {self.step!r}, got {unit!r}")
        other = lambda i: lambda number, first, last: source(number + i * 2**32, first, last)
        total: FloatArray = np.sum([self.draw_share(other(i)) for i in range(self.owners)], axis=0)
        return total

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """A + E for A of shape (..., d, d), with a fresh E each, exactly symmetric: for simulations, in doubles."""
        return self._real.sample(rng, A)

    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """log density of real Gaussian noise of the same variance, (...), over the d (d + 1) / 2 free entries."""
        return self._real.log_prob(sigma, A)

    @property
    def _real(self) -> Gaussian:
        return Gaussian(self.num_features, self.sd, self.clip)

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, from which composition takes its grid."""
        return 10 * self.mu("zero_out")

    def loss_distribution(self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True) -> Any:
        """As :meth:`Mechanism.loss_distribution`: that of real noise, and the slack as what gives all away."""
        real = gaussian_loss(self.mu(adjacency), self._interval(interval), pessimistic)
        return add_slack(real, self.slack) if pessimistic else real

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Any number of rounds: their mu add up in squares, and their slack."""
        mine = [law for law in laws if isinstance(law, GaussianShares)]
        if len(mine) < len(laws):
            return None
        mu = float(np.sqrt(sum(law.mu(adjacency) ** 2 for law in mine)))
        lost = sum(law._slack(max(mu, law.mu("replace"))) for law in mine)
        curve = lambda epsilon: min(1.0, delta_gaussian(epsilon, mu) + lost)
        return PrivacyProfile(curve, curve)

    def justification(self, adjacency: str, rounds: int) -> str:
        """Why the guarantee of so many draws holds, in a sentence."""
        some = "any one of them tells" if self.colluders == 1 else f"{self.colluders} of them tell"
        known = f", whatever {some}" if self.colluders else ""
        return (
            f"The noise is the sum of {self.owners} owners' shares{known}: as private as Gaussian noise of that size."
        )


def slack(num_features: int, steps: float, mu: float) -> float:
    """What discrete noise may add to delta at any eps beside real noise, which gives away mu.

    Args:
        num_features: d.
        steps: of the lattice, in the sd off the diagonal.
        mu: of all rounds together.
    """
    numbers, c2 = num_features * (num_features + 1) / 2, 2 * (mu**2 / 2 + 40 * mu + 74)
    return float(numbers * (2 * c2 / (24 * steps**2) + _BEYOND))
