"""Objective functions of the paper, of a predictor and weights of all records, in units in which the weights start at one.

With q0_i = alpha / m for public records, (1 - alpha) / n for private ones, and u~_i = q0_i u_i = q0_i / q_i >= 1,

    F = sum q0_i L_i / u~_i + kappa_1 (sum q0_i u~_i - 1) + kappa_2 ||q0 / u~||_2 + kappa_inf max_i q0_i / u~_i       (6)
    J = sum q0_i L_i / u~_i + lambda_1 (1 - sum q0_i / u~_i) + lambda_2 ||q0 / u~||_2 + lambda_inf M                  (7)
    M = log sum exp(mu_s q0_i / u~_i) / mu_s

and L_i is the loss, plus d_DP for public records. The paper's u = u~ / q0 grows with the sample, so that a step in
single precision would be lost to rounding.

Source: Bassily et al. (2023), (3), (5), (6) and (7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, moderate, normalise_fields, one_of, positive, whole
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.paper.losses import Loss

_or_zero = partial(moderate, zero=True)


@dataclass(frozen=True)
class Sizes:
    """Numbers of records, and the total weight of the public ones.

    Attributes:
        public: m.
        private: n.
        source_weight: alpha, in (0, 1], the total weight of the public records.
    """

    public: int
    private: int
    source_weight: float = 0.5

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "public")
        object.__setattr__(self, "private", whole("private", self.private, 0))
        share = positive("source_weight", self.source_weight)
        share = share if share == 1.0 else fraction("source_weight", share)
        object.__setattr__(self, "source_weight", share)

    @property
    def each_public(self) -> float:
        """alpha / m, the starting weight of a public record."""
        return self.source_weight / self.public

    @property
    def each_private(self) -> float:
        """(1 - alpha) / n, the starting weight of a private record."""
        return (1 - self.source_weight) / max(self.private, 1)

    @property
    def start(self) -> FloatArray:
        """q0 = p0, the starting weights, (m + n,), public records first."""
        return np.repeat([self.each_public, self.each_private], [self.public, self.private])


def with_weight(private: Domain, sizes: Sizes) -> tuple[Domain, Sizes]:
    """Return the private records that have a weight, with the sizes: none at alpha = 1.

    A record of weight zero would still leave its mark on a result: the sign of a zero, or infinity times zero.
    """
    if sizes.each_private:
        return private, sizes
    none = Domain(private.X[:0], private.y[:0], private.features)
    return none, Sizes(sizes.public, 0, sizes.source_weight)


class Penalties(Protocol):
    """Protocol class for penalties on the weights u~, which an objective adds to the weighted losses."""

    def value(self, u: FloatArray, L: FloatArray, q0: FloatArray) -> float:
        """Return the objective, losses and penalties."""
        ...

    def slopes(self, u: FloatArray, L: FloatArray, q0: FloatArray) -> FloatArray:
        """Return derivatives by u~_i, (m + n,). Each depends on the loss of its own record only."""
        ...

    @property
    def total(self) -> float:
        """Bbar - B, by which the penalties raise the bound on the loss."""
        ...


@dataclass(frozen=True)
class Convex:
    """Penalties of F, with which it is jointly convex in (w, u)."""

    kappa_1: float
    kappa_2: float = 0.0
    kappa_inf: float = 0.0

    def __post_init__(self) -> None:
        normalise_fields(self, _or_zero, "kappa_1", "kappa_2", "kappa_inf")

    @property
    def total(self) -> float:
        """Bbar - B = kappa_1 + kappa_2 + kappa_inf."""
        return self.kappa_1 + self.kappa_2 + self.kappa_inf

    def value(self, u: FloatArray, L: FloatArray, q0: FloatArray) -> float:
        q = q0 / u
        parts = q @ L + self.kappa_1 * (q0 @ u - q0.sum())  # sum q0 is 1, except without private records
        return float(parts + self.kappa_2 * np.linalg.norm(q) + self.kappa_inf * q.max())  # (6)

    def slopes(self, u: FloatArray, L: FloatArray, q0: FloatArray) -> FloatArray:
        q = q0 / u
        top = q == q.max()
        slope = -q * L / u + self.kappa_1 * q0 - self.kappa_2 * q**2 / u / np.linalg.norm(q)
        return slope - self.kappa_inf * np.where(top, q / u / top.sum(), 0.0)  # a subgradient, with ties shared equally

    def best_weights(self, L: FloatArray) -> FloatArray:
        """Return u~_i = max(1, sqrt(L_i / kappa_1)), the best weights if kappa_2 = kappa_inf = 0."""
        return np.maximum(1.0, np.sqrt(L / self.kappa_1))

    def profile(self, L: FloatArray) -> FloatArray:
        """Return the objective with the best weights: L up to kappa_1, then 2 sqrt(kappa_1 L) - kappa_1 (a Huber loss)."""
        return np.where(self.kappa_1 >= L, L, 2 * np.sqrt(self.kappa_1 * np.maximum(L, self.kappa_1)) - self.kappa_1)

    def profile_slope(self, L: FloatArray) -> FloatArray:
        """Return psi'(L) = 1 / u~."""
        return 1 / self.best_weights(L)


@dataclass(frozen=True)
class Smoothed:
    """Penalties of J. Its l1 term is exact, while F has a linear bound on it, so that lambda_1 differs from kappa_1.

    Attributes:
        lambda_1: penalty on ||q - p0||_1, at least 0.
        lambda_2: penalty on ||q||_2, at least 0.
        lambda_inf: penalty on the largest weight, at least 0.
        inverse_temperature: mu_s of the soft maximum, which is close to the maximum from (m + n) log(m + n) on.
    """

    lambda_1: float
    lambda_2: float = 0.0
    lambda_inf: float = 0.0
    inverse_temperature: float = 1e4

    def __post_init__(self) -> None:
        normalise_fields(self, _or_zero, "lambda_1", "lambda_2", "lambda_inf", "inverse_temperature")

    @property
    def total(self) -> float:
        """Bbar - B = lambda_1 + lambda_2 + lambda_inf."""
        return self.lambda_1 + self.lambda_2 + self.lambda_inf

    def value(self, u: FloatArray, L: FloatArray, q0: FloatArray) -> float:
        q = q0 / u
        top = q.max()
        soft = top + np.log(np.exp(self.inverse_temperature * (q - top)).sum()) / self.inverse_temperature
        return float(
            q @ L + self.lambda_1 * (q0.sum() - q.sum()) + self.lambda_2 * np.linalg.norm(q) + self.lambda_inf * soft
        )

    def slopes(self, u: FloatArray, L: FloatArray, q0: FloatArray) -> FloatArray:
        q = q0 / u
        p = np.exp(self.inverse_temperature * (q - q.max()))
        p /= p.sum()
        return -q / u * (L - self.lambda_1 + self.lambda_2 * q / np.linalg.norm(q) + self.lambda_inf * p)

    def best_weights(self, L: FloatArray) -> FloatArray:
        """Return the best weights if lambda_2 = lambda_inf = 0: u~ is 1 if L_i < lambda_1, else infinite (q_i is 0)."""
        return np.where(self.lambda_1 > L, 1.0, np.inf)

    def profile(self, L: FloatArray) -> FloatArray:
        """Return min(L, lambda_1), the objective with the best weights: J drops records with large losses."""
        return np.minimum(L, self.lambda_1)

    def profile_slope(self, L: FloatArray) -> FloatArray:
        """Return 1{L < lambda_1}."""
        return (self.lambda_1 > L).astype(np.float64)


#: Ways in which Algorithm 1 treats the weights.
VARIANTS = ("printed", "rescaled", "frozen", "profiled")


def variant(name: str) -> str:
    """Return a variant after a check. Raises ValueError for an unknown one."""
    return one_of("variant", name, VARIANTS)


def smoothness(loss: Loss, penalties: Smoothed, sizes: Sizes) -> float:
    """Return betabar, the smoothness of J in (w, u): beta + beta' + G (a^2 / m^{3/2} + c^2 / n^{3/2}) (20), corrected.

    The paper has |2B - lambda_1| and |B - lambda_1|, but a loss between 0 and its bound can be farther from lambda_1.
    """
    m, n, a, c, mu = (
        sizes.public,
        max(sizes.private, 1),
        sizes.source_weight,
        1 - sizes.source_weight,
        penalties.inverse_temperature,
    )
    B, l1, l2, li = loss.bound, penalties.lambda_1, penalties.lambda_2, penalties.lambda_inf
    far_public, far_private = max(l1, 2 * B - l1), max(l1, B - l1)
    public = l2 * a**3 / m**2 + 2 * a**3 * (far_public + l2 * np.sqrt(n) + li) / m**2.5
    public += li * mu * a**4 * (m**-3.0 + m**-3.5)
    private = l2 * c**3 / n**2 + 2 * c**3 * (far_private + l2 * np.sqrt(m) + li) / n**2.5
    private += li * mu * c**4 * (n**-3.0 + n**-3.5)
    mixed = 2 * li * mu * a**2 * c**2 / (m * n) ** 1.5
    cross = loss.lipschitz * (a**2 / m**1.5 + c**2 / n**1.5)
    return float(loss.smoothness + public + private + mixed + cross)


def objective_range(loss: Loss, penalties: Smoothed, sizes: Sizes) -> float:
    """Return a bound on max J - min J: 2B + lambda_1 + lambda_2 (a / sqrt m + c / sqrt n) + lambda_inf max(a / m, c / n)."""
    m, n, a, c = sizes.public, max(sizes.private, 1), sizes.source_weight, 1 - sizes.source_weight
    norms = penalties.lambda_2 * (a / np.sqrt(m) + c / np.sqrt(n)) + penalties.lambda_inf * max(a / m, c / n)
    return float(2 * loss.bound + penalties.lambda_1 + norms)
