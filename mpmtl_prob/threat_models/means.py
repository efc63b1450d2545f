"""Noisy means: one Gaussian mechanism for every view, where the view to protect against decides the size of the noise.

Published results are sums of whole numbers plus noise, divided by t n. The noise is a real number that is rounded to a
public grid, so the guarantee also holds for the bits of the result. Simulations use doubles and have no guarantee.

Source: Aliakbarpour et al. (2024), Proposition 4.1 and Theorems 4.2 to 4.4. Their estimates are not clipped, but Theorem 3.2
and every tracing bound need clipped estimates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, not_negative, positive, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays
from mpmtl_prob.privacy import views
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.charge_and_draw import draw_vectors
from mpmtl_prob.privacy.guarantee import ANYBODY, Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import VectorGaussian
from mpmtl_prob.threat_models.calibration import mu_within, numbers_seen, others_seen
from mpmtl_prob.threat_models.problems import People, checked_means, questions, uniform_nodes

_FINE = 2.0**-10  # largest step of the grid, relative to the sd of the noise

#: The views of the paper's table that need noise, by name.
AGAINST = {"one other": views.single(), "all others": views.others(), "billboard": views.billboard()}


@dataclass(frozen=True)
class NoisyMeans:
    """Mechanism that adds N(0, sd^2) to the mean answer of t people, once per feature (billboard) or anew for every person.

    Attributes:
        num_people: t.
        num_features: d.
        sd: s, of the noise on a mean; 0 for no noise.
        view: the view that the noise protects against. On a billboard all d noisy means are published, and everybody reads
            their own. Otherwise each person is sent one number, with noise of its own, or with one noise per feature where
            that needs less noise.
        samples: n, of each person.
        clipped: whether estimates are cut to [-1, 1], which never makes them worse.

    Raises:
        ValueError: an argument outside its range.
    """

    num_people: int
    num_features: int
    sd: float
    view: View
    samples: int = 1
    clipped: bool = True

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_people", "num_features", "samples")
        if not isinstance(self.view, View):
            raise ValueError(f"view: expected one of mpmtl_prob.threat_models.views, got {self.view!r}")
        normalise_fields(self, not_negative, "sd")
        numbers_seen(self.view, self.num_people, self.num_features)

    @classmethod
    def at(cls, mu: float, num_people: int, num_features: int, *, view: View, **options: Any) -> NoisyMeans:
        """Build the mechanism with mu-Gaussian differential privacy against a view.

        A person moves k numbers by at most 2 / t each, so s = 2 sqrt(k) / (mu t).

        Args:
            mu: > 0; rho = mu^2 / 2 in zero-concentrated privacy.
            num_people: t.
            num_features: d.
            view: the view to protect against.
            **options: ``samples`` and ``clipped``.
        """
        k = numbers_seen(view, num_people, num_features)
        sd = 2 * np.sqrt(k) / (positive("mu", mu) * num_people)
        return cls(num_people, num_features, float(sd), view, **options)

    @classmethod
    def within(
        cls,
        epsilon: float,
        delta: float,
        num_people: int,
        num_features: int,
        *,
        view: View,
        accounting: str = "exact",
        **options: Any,
    ) -> NoisyMeans:
        """Build the mechanism with the least noise that is (eps, delta)-private for a person; arguments as :meth:`at`.

        >>> from mpmtl_prob.threat_models import NoisyMeans, views
        >>> for view in (views.single(), views.others(), views.billboard()):
        ...     print(f"{view.name}: {NoisyMeans.within(1.0, 1e-6, 1000, 10_000, view=view).sd:.3f}")
        one other owner: 0.008
        all other owners: 0.267
        the release itself: 0.845
        """
        return cls.at(mu_within(epsilon, delta, accounting), num_people, num_features, view=view, **options)

    @property
    def on_billboard(self) -> bool:
        """True if one result is published for everybody, False if each person is sent a number."""
        return self.view.owners is None

    @property
    def shared(self) -> bool:
        """True if each feature has one noise for all people: on a billboard, or against more people than features."""
        return self.on_billboard or others_seen(self.view, self.num_people) > self.num_features

    def numbers(self, view: View) -> int | None:
        """Return the number of different noisy numbers in a view; None where the view shows a person's own number.

        If numbers that were sent to single people are put on a billboard, it shows each person's own number, which depends
        on their question. For a mechanism on a billboard, a view of other people is of people who are told only their own
        numbers, as in the paper's definitions; whoever reads the billboard sees all d.
        """
        if view.owners is None:
            return self.num_features if self.on_billboard else None
        k = others_seen(view, self.num_people)
        return min(k, self.num_features) if self.shared else k

    def mu(self, view: View | None = None) -> float:
        """Return mu of Gaussian privacy for one person against a view, default the mechanism's own; inf for no privacy."""
        k = self.numbers(self.view if view is None else view)
        return float(2 * np.sqrt(k) / (self.num_people * self.sd)) if k and self.sd else np.inf

    def law(self, view: View | None = None) -> VectorGaussian:
        """Return the law of the noise on the sums of answers in a view. Raises ValueError where mu is infinite."""
        k = self.numbers(self.view if view is None else view)
        if not (k and self.sd):
            raise ValueError("view: expected one that the noise covers, got one that shows more")
        total = self.num_people * self.samples
        return VectorGaussian(k, self.sd * total, 2 * self.samples * np.sqrt(k))

    def check(self, people: People) -> None:
        """Raise ValueError for people whose number, samples or features differ from the mechanism's."""
        shape = (self.num_people, self.samples, self.num_features)
        if people.answers.shape != shape:
            raise ValueError(f"people: expected answers of shape {shape}, got {people.answers.shape}")

    def estimate(self, value: ArrayLike) -> FloatArray:
        """Return noisy means as estimates: truncated to [-1, 1] if ``clipped``."""
        return np.clip(value, -1, 1) if self.clipped else np.asarray(value, dtype=np.float64)

    def publish(
        self, people: People, epsilon: float, *, ledger: Ledger | None = None, unsafe_seed: int | None = None
    ) -> Published:
        """Pay from the ledger, then add exact noise to the sums of answers.

        Args:
            people: the people, whose number must be the mechanism's.
            epsilon: where the guarantee is stated, > 0.
            ledger: of unit "person". It pays, on disk, before noise is drawn. It is accepted for a billboard only, as a
                ledger counts what anybody may see.
            unsafe_seed: draws the noise from this seed, for demonstrations. Nothing is then guaranteed.

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: other numbers of people, samples or features, or no noise. Nothing was charged.
        """
        self.check(people)
        if not self.sd:
            raise ValueError("sd: expected noise in what is published, got 0")
        if ledger is not None and not self.on_billboard:
            raise ValueError("ledger: expected none, as it counts what anybody sees, and this is meant for single eyes")
        law = self.law()
        # Sums are whole numbers, and lie on any grid of step 2^-b. So the step of the noise is at most 1.
        lattice = float(2.0 ** min(0.0, np.floor(np.log2(law.sd * _FINE))))
        size = self.num_features if self.shared else self.num_people
        noise, guarantee = draw_vectors(
            [law],
            -(-size // law.num_features),  # as all noise is independent, any k numbers may form one vector
            epsilon=epsilon,
            lattice=lattice,
            unit="person",
            ledger=ledger,
            unsafe_seed=unsafe_seed,
            data=people.answers.reshape(self.num_people, -1),
        )
        sums = people.totals if self.shared else people.totals[people.index]
        values = (sums + noise[0].T.ravel()[:size]) / (self.num_people * self.samples)
        return Published(self, values, replace(guarantee, adversary=against(self.view)))

    def simulate(self, rng: np.random.Generator, totals: ArrayLike, index: ArrayLike) -> FloatArray:
        """Simulate the numbers that people receive or read, given sums of answers (..., d): (..., t), not clipped."""
        j, means = questions(index, np.size(index), self.num_features), self._means(totals)
        if self.shared:
            return self.board(rng, totals)[..., j]
        return means[..., j] + self.sd * rng.standard_normal((*means.shape[:-1], len(j)))

    def board(self, rng: np.random.Generator, totals: ArrayLike) -> FloatArray:
        """Simulate a billboard, the noisy mean of every feature, given sums of answers: (..., d), not clipped."""
        means = self._means(totals)
        return means + self.sd * rng.standard_normal(means.shape)

    def _means(self, totals: ArrayLike) -> FloatArray:
        if np.shape(totals)[-1:] != (self.num_features,):
            raise ValueError(
                f"totals: expected {self.num_features} sums, one per feature, got shape {np.shape(totals)}"
            )
        return np.asarray(totals) / (self.num_people * self.samples)

    def error(self, p: ArrayLike) -> FloatArray:
        """Compute the expected loss where the mean is p.

        It is (1/4) ((1 - p^2) / (t n) + s^2) for estimates that are not clipped, and a sum over counts for clipped ones.
        """
        from scipy.stats import binom  # a second to import

        p = checked_means(p)
        total = self.num_people * self.samples
        if not self.clipped or not self.sd:
            return ((1 - p**2) / total + self.sd**2) / 4
        counts = np.arange(total + 1)
        means, q = 2 * counts / total - 1, (1 + p[..., None]) / 2
        return np.sum(binom.pmf(counts, total, q) * _clipped_square(means, self.sd, p[..., None]), axis=-1) / 4

    def uniform_error(self) -> float:
        """Compute the expected loss under p ~ U[-1, 1]: (1/4) (2 / (3 t n) + s^2) unless clipped."""
        p, weights = uniform_nodes()
        return float(self.error(p) @ weights)


@dataclass(frozen=True, eq=False, repr=False)
class Published(HidesArrays):
    """Noisy means with their guarantee. On a billboard they are public, otherwise each number is for one person only.

    Attributes:
        mechanism: which made them.
        values: noisy means, one per feature, (d,), where noise is shared, else one per person, (t,).
        guarantee: for one person.
    """

    mechanism: NoisyMeans
    values: FloatArray
    guarantee: Guarantee

    def estimates(self, index: ArrayLike) -> FloatArray:
        """Return the estimates of the t people, given their questions, (t,)."""
        shared = self.mechanism.shared
        people = np.size(index) if shared else len(self.values)
        j = questions(index, people, self.mechanism.num_features)
        return self.mechanism.estimate(self.values[j] if shared else self.values)


def against(view: View) -> str:
    """Return the attackers of a view in words."""
    if view.owners is None:
        return ANYBODY
    if view.owners == -1:
        return "all other people together, who see what they are sent themselves"
    return "any one other person" if view.owners == 1 else f"any {view.owners} other people together"


def people_needed(
    error: float, epsilon: float | None, delta: float | None, num_features: int, view: View, *, samples: int = 1
) -> int:
    """Compute the smallest number of people with an expected loss of at most ``error``, at the worst p, not clipped.

    Args:
        error: the largest acceptable expected loss, > 0.
        epsilon: None for no privacy, and then delta is None too.
        delta: of the guarantee, None without privacy.
        num_features: d.
        view: the view to protect against. A coalition needs at least one person more than its own number.
        samples: n, of each.

    Raises:
        ValueError: an argument outside its range.

    >>> from mpmtl_prob.threat_models import people_needed, views
    >>> [people_needed(0.01, 1.0, 1e-6, 10_000, v) for v in (views.single(), views.others(), views.billboard())]
    [57, 1809, 4238]
    """
    whole("samples", samples)
    positive("error", error)
    if (epsilon is None) != (delta is None):
        raise ValueError(f"delta: expected epsilon and delta, or neither, got {epsilon!r} and {delta!r}")
    mu = np.inf if epsilon is None or delta is None else mu_within(epsilon, delta)
    least = 1 if view.owners is None else max(view.owners, 1) + view.first + 1

    def enough(t: int) -> bool:
        k = numbers_seen(view, t, num_features)
        return bool(1 / (4 * t * samples) + k / (mu * t) ** 2 <= error * (1 + 1e-12))

    high = least
    while not enough(high):
        high *= 2
    low = max(high // 2, least - 1)  # too few people, as the error decreases with t, or fewer than the view allows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def one_of_each(mu: float, num_people: int, num_features: int, **options: Any) -> dict[str, NoisyMeans]:
    """Return the mechanisms of the paper's table, by name: no privacy, one other person, all others, the billboard.

    Arguments as :meth:`NoisyMeans.at`.
    """
    private = {
        name: NoisyMeans.at(mu, num_people, num_features, view=view, **options) for name, view in AGAINST.items()
    }
    return {"none": NoisyMeans(num_people, num_features, 0.0, views.billboard(), **options)} | private


def _clipped_square(means: FloatArray, sd: float, p: FloatArray) -> FloatArray:
    """Compute E (clip(m + sd Z) - p)^2, Z standard normal, by the moments of a truncated normal."""
    a, b = (-1 - means) / sd, (1 - means) / sd
    phi = lambda z: np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    inside = ndtr(b) - ndtr(a)
    bias = means - p
    middle = bias**2 * inside + 2 * bias * sd * (phi(a) - phi(b)) + sd**2 * (inside + a * phi(a) - b * phi(b))
    return (1 + p) ** 2 * ndtr(a) + (1 - p) ** 2 * ndtr(-b) + middle
