"""Wishart noise on second moments: calibrated by degrees of freedom and scale, or as in the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from flint import arb, arb_mat
from scipy.special import multigammaln

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_add, delta_remove
from mpmtl_prob.privacy.mechanisms.exact import Draws, Source, rounded, symmetric
from mpmtl_prob.privacy.mechanisms.loss_distributions import gamma_loss, gamma_spread, replaced, two_point_loss
from mpmtl_prob.privacy.mechanisms.mechanism import MatrixMechanism, Mechanism, register
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency

#: Largest k at which the composition of rounds has a relative error of at most 1e-9. SciPy's gammainc truncates its series.
#: This makes tails beyond 4.5 standard deviations too small, by 1e-4 at k = 1e6 and by three quarters at 1e8; so is delta.
LARGEST_SHAPE = 2e5


@register
@dataclass(frozen=True)
class Wishart(MatrixMechanism):
    """Wishart noise E ~ Wishart_d(df, scale I) on a second moment.

    Attributes:
        num_features: d.
        df: degrees of freedom nu, from d + 1 to d - 1 + 4e5, in units of rows.
        scale: s, in squared units of the weights; E has mean df * scale * I.
        clip: K, the largest norm of a column of W, in units of the weights.

    Raises:
        ValueError: an argument outside its range.
    """

    num_features: int
    df: float
    scale: float
    clip: float = 1.0

    positive_definite: ClassVar[bool] = True

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_features")
        normalise_fields(self, positive, "df", "scale", "clip")
        if not self.df >= self.num_features + 1:
            # With fewer, the density is infinite where Sigma - A is singular, and the privacy loss is unbounded both ways.
            raise ValueError(f"df: expected at least num_features + 1 = {self.num_features + 1}, got {self.df!r}")
        if not self.shape <= LARGEST_SHAPE:
            most = self.num_features - 1 + 2 * LARGEST_SHAPE
            raise ValueError(f"df: expected at most num_features - 1 + 4e5 = {most:g}, beyond which delta is not known, "
                             f"got {self.df!r}; use Gaussian noise, which is nearly the same")  # fmt: skip

    @property
    def shape(self) -> float:
        """k of the equally private Gamma(k, theta) noise on a number: df = d - 1 + 2k."""
        return (self.df - self.num_features + 1) / 2

    @property
    def theta(self) -> float:
        """Scale theta = 2 s / K^2 of the equally private Gamma noise, in units of clip^2."""
        return 2 * self.scale / self.clip**2

    @property
    def mean(self) -> FloatArray:
        """The mean of the noise, E[Sigma - A] = df * scale * I, (d, d)."""
        return self.df * self.scale * np.eye(self.num_features)

    @property
    def operator_norm(self) -> float:
        """Size of Sigma - A - mean in operator norm, s (2 sqrt(nu d) + d), in squared units of the weights."""
        return self.scale * (2 * np.sqrt(self.df * self.num_features) + self.num_features)

    @property
    def variance(self) -> float:
        """The variance of w' E w, for w of length 1: 2 df scale^2."""
        return 2 * self.df * self.scale**2

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """Return A + E for A of shape (..., d, d), with fresh symmetric noise for each; in doubles, for simulations."""
        d, batch = self.num_features, A.shape[:-2]
        T = bartlett(rng, self.df, d, batch) * np.sqrt(self.scale)
        E = T @ np.swapaxes(T, -1, -2)
        return (A + np.swapaxes(A, -1, -2)) / 2 + (E + np.swapaxes(E, -1, -2)) / 2

    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw E in whole multiples of ``unit``, (d, d): a real draw, correctly rounded. Releases use this method."""
        d = self.num_features

        def lower(draws: Draws) -> list[arb]:
            below = iter(draws.normals(d * (d - 1) // 2))
            T = arb_mat(d, d)  # Bartlett's decomposition
            for i in range(d):
                for j in range(i):
                    T[i, j] = next(below)
                T[i, i] = (2 * draws.gamma((self.df - i) / 2)).sqrt()
            return _lower(T * T.transpose() * (arb(self.scale) / arb(unit)))

        return unit * symmetric(rounded(lower, source), d)

    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """Return the log density of the release sigma given A, (...); -inf where sigma - A is not positive definite."""
        d = self.num_features
        eigenvalues = np.linalg.eigvalsh(sigma - A)
        with np.errstate(divide="ignore"):
            log_det = np.sum(np.log(np.maximum(eigenvalues, 0.0)), axis=-1)
        log_norm = 0.5 * self.df * d * np.log(2 * self.scale) + multigammaln(0.5 * self.df, d)
        # At df = d + 1 the factor of log_det is 0, but the density is still 0 where sigma - A is not positive definite.
        power = np.where(np.isneginf(log_det), -np.inf, 0.5 * (self.df - d - 1) * np.maximum(log_det, -1e300))
        return power - 0.5 * np.sum(eigenvalues, axis=-1) / self.scale - log_norm

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""
        if self.shape == 1:
            return 1 / self.theta
        # With k just above 1 the loss is nearly constant at -1/theta. The grid must reach from there to zero.
        return max(gamma_spread(self.shape, self.theta), 4e-3 / self.theta)

    def loss_distribution(
        self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True
    ) -> LossDistribution:
        """Return the privacy loss of one draw; arguments as :meth:`Mechanism.loss_distribution`.

        The loss of a replacement is the sum of the losses of a removal and an addition with independent noise.
        """
        step = self._interval(interval)
        if self.shape == 1:  # infinite with probability 1 - e^{-1/theta}, else -1/theta
            zeroed = two_point_loss(1 / self.theta, -np.expm1(-1 / self.theta), step, pessimistic)
        else:
            zeroed = gamma_loss(self.shape, self.theta, step, pessimistic)
        return zeroed if Adjacency.of(adjacency) is Adjacency.ZERO_OUT else replaced(zeroed)

    #: minus the logarithm of 1 - delta of several rounds with k = 1, in words
    _lost: ClassVar[str] = "sum of the rounds' clip^2 / (2 scale)"

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Return the profile of one round with a zeroed task, or of any number of rounds of the papers' noise.

        The loss of the papers' noise (k = 1) has a single finite value. So several rounds are together like one round with
        1/theta = sum 1/theta_t. For a replacement the finite value is 0, and delta is the same at every eps.
        """
        wisharts = [law for law in laws if isinstance(law, Wishart)]
        papers = all(law.shape == 1 for law in wisharts)
        zeroed = Adjacency.of(adjacency) is Adjacency.ZERO_OUT
        if len(wisharts) < len(laws) or not (papers or (len(wisharts) == 1 and zeroed)):
            return None
        shape = wisharts[0].shape
        theta = 1 / sum(1 / law.theta for law in wisharts)
        if zeroed:
            return PrivacyProfile(
                lambda epsilon: delta_add(epsilon, shape, theta), lambda epsilon: delta_remove(epsilon, shape, theta)
            )
        certain = float(-np.expm1(-1 / theta))

        def delta(epsilon: float) -> float:
            return certain if epsilon >= 0 else float(1 - np.exp(epsilon) * (1 - certain))

        return PrivacyProfile(delta, delta)

    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee of this number of draws holds."""
        if self.shape == 1:
            return (
                "The support of the papers' noise moves with the data, so no finite eps holds with a smaller delta than "
                f"1 - exp(-{self._lost}), whatever the papers' (eps, 0) says."
            )
        one = "one-sided Gamma noise on a number in [0, clip^2]"
        exactly = "exactly"
        if Adjacency.of(adjacency) is Adjacency.REPLACE:
            one = f"a removal and an addition together, each with {one} of its own"
            exactly = "at least"
        if rounds > 1:
            return (
                f"A round is {exactly} as private as {one}; the rounds' privacy losses are composed numerically, rounded so "
                "that delta is never too small."
            )
        return f"The release is {exactly} as private as {one}."


@register
@dataclass(frozen=True, init=False)
class PaperWishart(Wishart):
    """Wishart noise of the papers for one round of nominal budget eps: Wishart_d(d + 1, K^2 / (2 eps) I), that is k = 1.

    The papers claim that it is (eps, 0)-private. It is not: delta is at least 1 - e^{-eps} at every finite eps.

    Source: TPAMI 2022, Algorithm 1, step 5.
    """

    _lost: ClassVar[str] = "sum of the rounds' eps"

    def __init__(self, num_features: int, epsilon: float, clip: float = 1.0) -> None:
        d, K = whole("num_features", num_features), positive("clip", clip)
        super().__init__(d, d + 1.0, self._sensitivity(K) / (2 * positive("epsilon", epsilon)), K)

    @staticmethod
    def _sensitivity(clip: float) -> float:
        """Return the change of W W' by one task, as the paper has it."""
        return clip**2

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Build the law from the fields of :class:`Wishart`, as a conversion to eps and back would change the last bits."""
        law = object.__new__(cls)
        Wishart.__init__(law, **fields)
        return law

    @property
    def epsilon(self) -> float:
        """The nominal budget of the round."""
        return self._sensitivity(self.clip) / (2 * self.scale)


@register
@dataclass(frozen=True, init=False)
class PaperWishart2018(PaperWishart):
    """Wishart noise with which the papers' figures were made, for nominal budget eps: Wishart_d(d + 1, (K / eps) I).

    The supplement of January 2018 bounds the change of ||w||^2 by 2 K, where it is K^2. A round is the papers' later noise at
    eps K / 2 in the place of eps. So delta is at least 1 - e^{-K eps / 2} at every finite eps, against the claimed 0.

    Source: supplement of January 2018, proof of Corollary 1.
    """

    _lost: ClassVar[str] = "clip / 2 times the sum of the rounds' eps"

    @staticmethod
    def _sensitivity(clip: float) -> float:
        return 2 * clip


@register
@dataclass(frozen=True, init=False)
class PaperWishart2018Unit(PaperWishart):
    """Wishart noise for models of length 1, whatever K: Wishart_d(d + 1, I / eps), for nominal budget eps.

    The supplement of January 2018 prints this sensitivity of 2 next to a clip norm K. A round is the papers' later noise at
    eps K^2 / 2 in the place of eps. So delta is at least 1 - e^{-K^2 eps / 2} at every finite eps, against the claimed 0.

    Source: supplement of January 2018, Algorithm 4, step 5.
    """

    _lost: ClassVar[str] = "clip^2 / 2 times the sum of the rounds' eps"

    @staticmethod
    def _sensitivity(clip: float) -> float:
        return 2.0


#: The papers' noise by the name of a ``mechanism``.
PAPERS: dict[str, type[PaperWishart]] = {
    "paper": PaperWishart,
    "paper_2018": PaperWishart2018,
    "paper_2018_unit": PaperWishart2018Unit,
}


@register
@dataclass(frozen=True, init=False)
class PaperTaskWishart(PaperWishart):
    """Wishart noise of the papers on W'W (m x m), the relations between tasks; ``num_features`` is m here.

    Source: TPAMI 2022, section 4.4.
    """

    unproved: ClassVar[str] = (
        "Changing one task changes a whole row and column of W'W, by a matrix with eigenvalues up to about "
        "clip^2 sqrt(m) in both signs: the support of the noise moves either way, and the papers' bound does not cover it."
    )


def _lower(E: arb_mat) -> list[arb]:
    """Return the lower triangle of a square matrix, row by row."""
    entries = E.entries()
    d = E.nrows()
    return [entries[d * i + j] for i in range(d) for j in range(i + 1)]


def bartlett(rng: np.random.Generator, df: FloatArray | float, d: int, batch: tuple[int, ...] = ()) -> FloatArray:
    """Draw lower triangular T, (*batch, d, d), with T T' ~ Wishart(df, I), in doubles; df broadcasts over the batch."""
    T = rng.standard_normal((*batch, d, d))
    T *= np.tri(d, k=-1)  # multiplied in place, as np.tril takes longer than the draws
    T[..., np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(np.asarray(df)[..., None] - np.arange(d), (*batch, d)))
    return T
