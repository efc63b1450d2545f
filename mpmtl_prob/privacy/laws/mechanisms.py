"""The noise laws of a release: how to draw from them, their densities, and what they give away.

A mechanism turns A = W W' (d x d), W with columns of norm at most ``clip``, into Sigma = A + E. The release path draws
from it exactly (``draw``), simulations in doubles (``sample``); the models read its density (``log_prob``, ``mean``), the
accountant its privacy loss (``loss_distribution``). ``sample`` and ``log_prob`` take batches: any leading axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb, arb_mat
from scipy.special import multigammaln

from mpmtl_prob._check import one_of, positive, settle, whole
from mpmtl_prob.privacy.laws.closed_forms import ADJACENCIES
from mpmtl_prob.privacy.laws.exact import Draws, Source, exponential, rounded, symmetric
from mpmtl_prob.privacy.laws.loss_distributions import (
    gamma_loss,
    gamma_spread,
    gaussian_loss,
    pure_loss,
    replaced,
    two_point_loss,
)
from mpmtl_prob.privacy.laws.vectors import VECTOR_LAWS, VectorLaplace
from mpmtl_prob.tasks import FloatArray


@dataclass(frozen=True)
class Wishart:
    """E ~ Wishart_d(df, scale I).

    Attributes:
        num_features: d.
        df: degrees of freedom nu, at least d + 1, in units of rows.
        scale: s, in squared units of the weights; E has mean df * scale * I.
        clip: K, the largest norm of a column of W, in units of the weights.

    Raises:
        ValueError: an argument outside its range.
    """

    num_features: int
    df: float
    scale: float
    clip: float = 1.0

    #: why nothing is proved of this mechanism; empty where something is
    unproved: ClassVar[str] = ""
    #: whether every release is positive definite
    positive_definite: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settle(self, whole, "num_features")
        settle(self, positive, "df", "scale", "clip")
        if not self.df >= self.num_features + 1:
            # with fewer the density is infinite where Sigma - A is singular, and the privacy loss is unbounded both ways
            raise ValueError(f"df: expected at least num_features + 1 = {self.num_features + 1}, got {self.df!r}")

    @property
    def kind(self) -> str:
        """The name of the law."""
        return type(self).__name__

    @property
    def shape(self) -> float:
        """k of the Gamma(k, theta) noise that this release is exactly as private as: df = d - 1 + 2k."""
        return (self.df - self.num_features + 1) / 2

    @property
    def theta(self) -> float:
        """Scale of that Gamma noise, in units of clip^2: theta = 2 s / K^2."""
        return 2 * self.scale / self.clip**2

    @property
    def mean(self) -> FloatArray:
        """E[Sigma - A] = df * scale * I, (d, d)."""
        return self.df * self.scale * np.eye(self.num_features)

    @property
    def fluctuation(self) -> float:
        """Size of Sigma - A - mean in operator norm, s (2 sqrt(nu d) + d), in squared units of the weights."""
        return self.scale * (2 * np.sqrt(self.df * self.num_features) + self.num_features)

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """A + E for A of shape (..., d, d), with a fresh E each, exactly symmetric: for simulations, in doubles."""
        d, batch = self.num_features, A.shape[:-2]
        T = np.tril(rng.standard_normal((*batch, d, d)), -1)
        T[..., np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(self.df - np.arange(d), (*batch, d)))
        T *= np.sqrt(self.scale)
        E = T @ np.swapaxes(T, -1, -2)
        return (A + np.swapaxes(A, -1, -2)) / 2 + (E + np.swapaxes(E, -1, -2)) / 2

    def draw(self, unit: float, source: Source) -> FloatArray:
        """E in whole multiples of ``unit``, (d, d): the real draw, correctly rounded. This is what is published."""
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
        """log density of the release sigma given A, (...); -inf where sigma - A is not positive definite."""
        d = self.num_features
        eigenvalues = np.linalg.eigvalsh(sigma - A)
        with np.errstate(divide="ignore"):
            log_det = np.sum(np.log(np.maximum(eigenvalues, 0.0)), axis=-1)
        log_norm = 0.5 * self.df * d * np.log(2 * self.scale) + multigammaln(0.5 * self.df, d)
        # at df = d + 1 the density does not depend on log_det, but on its sign it does
        power = np.where(np.isneginf(log_det), -np.inf, 0.5 * (self.df - d - 1) * np.maximum(log_det, -1e300))
        return power - 0.5 * np.sum(eigenvalues, axis=-1) / self.scale - log_norm

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, from which composition takes its grid."""
        return 1 / self.theta if self.shape == 1 else gamma_spread(self.shape, self.theta)

    def loss_distribution(
        self, adjacency: str = "zero_out", *, interval: float | None = None, pessimistic: bool = True
    ) -> Any:
        """The privacy loss of one release as a dp-accounting ``PrivacyLossDistribution``, "add" and "remove".

        Args:
            adjacency: "zero_out", or "replace", whose loss is the sum of an independent removal's and addition's.
            interval: grid spacing; default a thousandth of the width of the loss.
            pessimistic: rounded so that delta(eps) is never too small, else so that it is never too large.
        """
        one_of("adjacency", adjacency, ADJACENCIES)
        step = self.loss_spread / 1000 if interval is None else positive("interval", interval)
        if self.shape == 1:  # infinite with probability 1 - e^{-1/theta}, else -1/theta
            zeroed = two_point_loss(1 / self.theta, -np.expm1(-1 / self.theta), step, pessimistic)
        else:
            zeroed = gamma_loss(self.shape, self.theta, step, pessimistic)
        return zeroed if adjacency == "zero_out" else replaced(zeroed)


@dataclass(frozen=True, init=False)
class PaperWishart(Wishart):
    """The papers' noise for one round of nominal budget eps: Wishart_d(d + 1, K^2 / (2 eps) I), that is k = 1.

    It is not (eps, 0)-private, as the papers claim: delta is at least 1 - e^{-eps} at every finite eps.

    Source: TPAMI 2022, Algorithm 1, step 5.
    """

    def __init__(self, num_features: int, epsilon: float, clip: float = 1.0) -> None:
        d = whole("num_features", num_features)
        super().__init__(d, d + 1.0, positive("clip", clip) ** 2 / (2 * positive("epsilon", epsilon)), clip)

    @property
    def epsilon(self) -> float:
        """The nominal budget of the round."""
        return 1 / self.theta


@dataclass(frozen=True, init=False)
class PaperTaskWishart(PaperWishart):
    """The papers' noise on W'W (m x m), from which they learn how tasks relate; ``num_features`` is m here.

    Source: TPAMI 2022, section 4.4.
    """

    unproved: ClassVar[str] = (
        "Changing one task changes a whole row and column of W'W, by a matrix with eigenvalues up to about "
        "clip^2 sqrt(m) in both signs: the support of the noise moves either way, and the papers' bound does not cover it."
    )


@dataclass(frozen=True)
class Gaussian:
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

    unproved: ClassVar[str] = ""
    positive_definite: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settle(self, whole, "num_features")
        settle(self, positive, "sd", "clip")

    @property
    def kind(self) -> str:
        """The name of the law."""
        return "Gaussian"

    def mu(self, adjacency: str) -> float:
        """mu of the Gaussian differential privacy: ||Delta||_F / (sqrt2 sigma).

        ||Delta||_F is at most K^2 when a column is zeroed and sqrt2 K^2 when it is replaced.
        """
        sensitivity = self.clip**2 * (1.0 if one_of("adjacency", adjacency, ADJACENCIES) == "zero_out" else np.sqrt(2))
        return float(sensitivity / (np.sqrt(2) * self.sd))

    @property
    def mean(self) -> FloatArray:
        """E[Sigma - A] = 0, (d, d)."""
        return np.zeros((self.num_features, self.num_features))

    @property
    def fluctuation(self) -> float:
        """Size of Sigma - A in operator norm, 2 sigma sqrt(d), in squared units of the weights."""
        return 2 * self.sd * np.sqrt(self.num_features)

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

    def loss_distribution(
        self, adjacency: str = "zero_out", *, interval: float | None = None, pessimistic: bool = True
    ) -> Any:
        """The privacy loss of one release; arguments as :meth:`Wishart.loss_distribution`, and "replace" has one too."""
        step = self.loss_spread / 1000 if interval is None else positive("interval", interval)
        return gaussian_loss(self.mu(adjacency), step, pessimistic)


@dataclass(frozen=True)
class Quantile:
    """A quantile of the messages' norms on a public grid, by the exponential mechanism: what a clip norm costs.

    Attributes:
        epsilon: what it costs, when a task is zeroed or replaced alike.

    Source: McSherry and Talwar (2007); the utility -|count - target| changes by at most 1 with one task.
    """

    epsilon: float

    unproved: ClassVar[str] = ""

    def __post_init__(self) -> None:
        settle(self, positive, "epsilon")

    @property
    def kind(self) -> str:
        """The name of the law."""
        return "Quantile"

    def draw(self, norms: FloatArray, grid: FloatArray, quantile: float, source: Source) -> float:
        """A grid point g with probability proportional to exp(-eps/2 |#{norms <= g} - [quantile m]|), exactly."""
        count = np.searchsorted(np.sort(norms), grid, side="right")
        rank = round(quantile * len(norms))  # whole, so that utilities are
        return float(grid[exponential((-np.abs(count - rank)).tolist(), self.epsilon, source)])

    @property
    def loss_spread(self) -> float:
        """The width of the privacy loss, from which composition takes its grid."""
        return 2 * self.epsilon

    def loss_distribution(
        self, adjacency: str = "zero_out", *, interval: float | None = None, pessimistic: bool = True
    ) -> Any:
        """The largest privacy loss that (eps, 0) allows; arguments as :meth:`Wishart.loss_distribution`."""
        one_of("adjacency", adjacency, ADJACENCIES)
        step = self.loss_spread / 1000 if interval is None else positive("interval", interval)
        return pure_loss(self.epsilon, step, pessimistic)


def _lower(E: arb_mat) -> list[arb]:
    entries, d = E.entries(), E.nrows()
    return [entries[d * i + j] for i in range(d) for j in range(i + 1)]


Noise = Wishart | Gaussian
Mechanism = Wishart | Gaussian | Quantile | VectorLaplace

paper_wishart = PaperWishart

_KINDS: dict[str, type] = {
    law.__name__: law for law in (Wishart, PaperWishart, PaperTaskWishart, Gaussian, Quantile, *VECTOR_LAWS)
}


def to_dict(mechanism: Mechanism) -> dict[str, Any]:
    """The mechanism as plain numbers and its ``kind``, for a file."""
    return {"kind": mechanism.kind} | asdict(mechanism)


def from_dict(fields: Mapping[str, Any]) -> Mechanism:
    """The mechanism that :func:`to_dict` wrote. Raises ValueError for anything else."""
    numbers = dict(fields)
    law = _KINDS.get(numbers.pop("kind", "Wishart"))
    try:
        if law is None:
            raise TypeError
        mechanism: Any = object.__new__(law)
        (Wishart if issubclass(law, Wishart) else law).__init__(mechanism, **numbers)
        return mechanism
    except TypeError:
        raise ValueError(f"mechanism: expected a law of mpmtl_prob, got {dict(fields)!r}") from None
