"""Means with Gaussian noise, one mechanism for every view: who is to learn nothing decides how much noise there is.

What is published are sums of whole numbers plus noise that is drawn as a real number and rounded to a public grid, so that a
guarantee holds in bits; divided by t n they are the estimates. Simulations use doubles, and promise nothing.

Source: Aliakbarpour et al. (2024), Proposition 4.1 and Theorems 4.2 to 4.4. Their estimates are not clipped, which Theorem
3.2 and every tracing bound need.
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

_FINE = 2.0**-10  # the grid against the noise's sd

#: the views of the paper's table that cost something, by name
AGAINST = {"one other": views.single(), "all others": views.others(), "billboard": views.billboard()}


@dataclass(frozen=True)
class NoisyMeans:
    """The mean answer of t people plus N(0, sd^2), once per feature (the billboard) or fresh for everybody.

    Attributes:
        num_people: t.
        num_features: d.
        sd: s, of the noise on a mean; 0 for none.
        view: against whom the noise is meant. On a billboard all d noisy means are published and everybody reads its own;
            else each person is sent one number, with noise of its own, or of its feature's if that is less.
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
        """Of mu-Gaussian privacy against the view: s = 2 sqrt(k) / (mu t), as a person moves k numbers by at most 2 / t each.

        Args:
            mu: > 0; rho = mu^2 / 2 in zero-concentrated privacy.
            num_people: t.
            num_features: d.
            view: against whom.
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
        """The least noise that keeps (eps, delta) of one person against the view; arguments as :meth:`at`.

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
        """One result for all to see, not one number to each."""
        return self.view.owners is None

    @property
    def shared(self) -> bool:
        """One noise per feature, whoever asks: on a billboard, or where more people are guarded against than features."""
        return self.on_billboard or others_seen(self.view, self.num_people) > self.num_features

    def numbers(self, view: View) -> int | None:
        """How many different noisy numbers somebody sees; None where it is more than was meant for other eyes.

        Numbers that were sent one by one and are put on a billboard show each person's own, which depends on its question.
        Of a billboard, views of other people are of those who are told their numbers and no more, as the paper's definitions
        have it: whoever can read it sees all d.
        """
        if view.owners is None:
            return self.num_features if self.on_billboard else None
        k = others_seen(view, self.num_people)
        return min(k, self.num_features) if self.shared else k

    def mu(self, view: View | None = None) -> float:
        """mu of Gaussian privacy of one person against a view, default the one that the noise is meant for; inf for none."""
        k = self.numbers(self.view if view is None else view)
        return float(2 * np.sqrt(k) / (self.num_people * self.sd)) if k and self.sd else np.inf

    def law(self, view: View | None = None) -> VectorGaussian:
        """The noise on the sums of answers that a view shows. Raises ValueError where mu is infinite."""
        k = self.numbers(self.view if view is None else view)
        if not (k and self.sd):
            raise ValueError("view: expected one that the noise covers, got one that shows more")
        total = self.num_people * self.samples
        return VectorGaussian(k, self.sd * total, 2 * self.samples * np.sqrt(k))

    def check(self, people: People) -> None:
        """Raises ValueError for other numbers of people, samples or features than it is for."""
        shape = (self.num_people, self.samples, self.num_features)
        if people.answers.shape != shape:
            raise ValueError(f"people: expected answers of shape {shape}, got {people.answers.shape}")

    def estimate(self, value: ArrayLike) -> FloatArray:
        """A noisy mean as an estimate: cut to [-1, 1] if clipped."""
        return np.clip(value, -1, 1) if self.clipped else np.asarray(value, dtype=np.float64)

    def publish(
        self, people: People, epsilon: float, *, ledger: Ledger | None = None, unsafe_seed: int | None = None
    ) -> Published:
        """Pay, then add exact noise to the sums of answers.

        Args:
            people: as many as the mechanism is for.
            epsilon: at which the guarantee is stated, > 0.
            ledger: of unit "person", pays, on disk, before noise is drawn. For a billboard alone: a ledger counts what
                anybody may see.
            unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

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
        # whole numbers lie on any grid of 2^-b; the noise may then be as coarse as they are, but no coarser
        lattice = float(2.0 ** min(0.0, np.floor(np.log2(law.sd * _FINE))))
        wanted = self.num_features if self.shared else self.num_people
        noise, guarantee = draw_vectors(
            [law],
            -(-wanted // law.num_features),  # any k of the numbers are one vector to the law, as all are independent
            epsilon=epsilon,
            lattice=lattice,
            unit="person",
            ledger=ledger,
            unsafe_seed=unsafe_seed,
            data=people.answers.reshape(self.num_people, -1),
        )
        sums = people.totals if self.shared else people.totals[people.index]
        values = (sums + noise[0].T.ravel()[:wanted]) / (self.num_people * self.samples)
        return Published(self, values, replace(guarantee, adversary=against(self.view)))

    def simulate(self, rng: np.random.Generator, totals: ArrayLike, index: ArrayLike) -> FloatArray:
        """What everybody is sent, or reads, given sums of answers (..., d): (..., t), in doubles, not clipped."""
        j, means = questions(index, np.size(index), self.num_features), self._means(totals)
        if self.shared:
            return self.board(rng, totals)[..., j]
        return means[..., j] + self.sd * rng.standard_normal((*means.shape[:-1], len(j)))

    def board(self, rng: np.random.Generator, totals: ArrayLike) -> FloatArray:
        """The mean of every feature with a noise, given sums of answers: (..., d), in doubles, not clipped."""
        means = self._means(totals)
        return means + self.sd * rng.standard_normal(means.shape)

    def _means(self, totals: ArrayLike) -> FloatArray:
        if np.shape(totals)[-1:] != (self.num_features,):
            raise ValueError(
                f"totals: expected {self.num_features} sums, one per feature, got shape {np.shape(totals)}"
            )
        return np.asarray(totals) / (self.num_people * self.samples)

    def error(self, p: ArrayLike) -> FloatArray:
        """Expected loss where the mean is p: (1/4) ((1 - p^2) / (t n) + s^2) unless clipped, and then a sum over counts."""
        from scipy.stats import binom  # which takes a second to import

        p = checked_means(p)
        total = self.num_people * self.samples
        if not self.clipped or not self.sd:
            return ((1 - p**2) / total + self.sd**2) / 4
        counts = np.arange(total + 1)
        means, q = 2 * counts / total - 1, (1 + p[..., None]) / 2
        return np.sum(binom.pmf(counts, total, q) * _clipped_square(means, self.sd, p[..., None]), axis=-1) / 4

    def uniform_error(self) -> float:
        """Expected loss under p ~ U[-1, 1]: (1/4) (2 / (3 t n) + s^2) unless clipped."""
        p, weights = uniform_nodes()
        return float(self.error(p) @ weights)


@dataclass(frozen=True, eq=False, repr=False)
class Published(HidesArrays):
    """Noisy means with what they promise. On a billboard they are public; else each is for one person's eyes.

    Attributes:
        mechanism: which made it.
        values: noisy means, one per feature, (d,), where noise is shared, else one per person, (t,).
        guarantee: of one person.
    """

    mechanism: NoisyMeans
    values: FloatArray
    guarantee: Guarantee

    def estimates(self, index: ArrayLike) -> FloatArray:
        """Everybody's estimate: of the t people, given their questions, (t,)."""
        shared = self.mechanism.shared
        people = np.size(index) if shared else len(self.values)
        j = questions(index, people, self.mechanism.num_features)
        return self.mechanism.estimate(self.values[j] if shared else self.values)


def against(view: View) -> str:
    """Who is looking, in words."""
    if view.owners is None:
        return ANYBODY
    if view.owners == -1:
        return "all other people together, who see what they are sent themselves"
    return "any one other person" if view.owners == 1 else f"any {view.owners} other people together"


def people_needed(
    error: float, epsilon: float | None, delta: float | None, num_features: int, view: View, *, samples: int = 1
) -> int:
    """The fewest people with whom the expected loss, at the worst p and not clipped, is at most so large.

    Args:
        error: > 0.
        epsilon: None for no privacy, and then delta is None too.
        delta: beside it.
        num_features: d.
        view: against whom; a coalition of more people than there are is not possible, and asks for as many and one.
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
    low = max(high // 2, least - 1)  # too few, or fewer than there may be: the error falls with t
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def one_of_each(mu: float, num_people: int, num_features: int, **options: Any) -> dict[str, NoisyMeans]:
    """The mechanisms of the paper's table, by name: no privacy, one other person, all others, the billboard.

    Arguments as :meth:`NoisyMeans.at`.
    """
    found = {name: NoisyMeans.at(mu, num_people, num_features, view=view, **options) for name, view in AGAINST.items()}
    return {"none": NoisyMeans(num_people, num_features, 0.0, views.billboard(), **options)} | found


def _clipped_square(means: FloatArray, sd: float, p: FloatArray) -> FloatArray:
    """E (clip(m + sd Z) - p)^2, Z standard normal, by the moments of a truncated normal."""
    a, b = (-1 - means) / sd, (1 - means) / sd
    phi = lambda z: np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    inside, off = ndtr(b) - ndtr(a), means - p
    middle = off**2 * inside + 2 * off * sd * (phi(a) - phi(b)) + sd**2 * (inside + a * phi(a) - b * phi(b))
    return (1 + p) ** 2 * ndtr(a) + (1 - p) ** 2 * ndtr(-b) + middle
