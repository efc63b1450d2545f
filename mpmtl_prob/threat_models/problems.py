"""Problems of the threat models: each person has yes/no answers to d questions, and asks how the population answers one.

P_X(p) is the law of independent answers x_j in {-1, 1} with mean p_j. Person i has n such vectors and a question j_i, which
is private too. Family A asks for the mean p_{j_i}, family B for its sign, or for a classifier that predicts a label from
the answer (:mod:`mpmtl_prob.threat_models.signs`).

Source: Aliakbarpour et al. (2024), sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import normalise_fields, positive, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class People(HidesArrays):
    """Private data of t people: their answers, and the question of each.

    Attributes:
        answers: -1 or 1, (t, n, d).
        index: question of each person, 0 to d - 1, (t,).

    Raises:
        ValueError: other values, no people, no answers, or an index out of range.
    """

    answers: NDArray[np.int8]
    index: Ints

    def __post_init__(self) -> None:
        x = np.asarray(self.answers)
        if x.ndim != 3 or 0 in x.shape:
            raise ValueError(
                f"answers: expected people, samples and features, at least one of each, got shape {x.shape}"
            )
        if not np.isin(x, (-1, 1)).all():
            raise ValueError("answers: expected -1 and 1, got other values")
        object.__setattr__(self, "answers", x.astype(np.int8))
        object.__setattr__(self, "index", questions(self.index, len(x), x.shape[2]))

    @property
    def num_people(self) -> int:
        """t."""
        return self.answers.shape[0]

    @property
    def samples(self) -> int:
        """n, the number of answers of each person to each question."""
        return self.answers.shape[1]

    @property
    def num_features(self) -> int:
        """d."""
        return self.answers.shape[2]

    @property
    def totals(self) -> Ints:
        """The sums of all answers, (d,). They are whole numbers, and so exact."""
        return self.answers.sum(axis=(0, 1), dtype=np.int64)

    def without(self, i: int) -> People:
        """Return all people except person i. Raises ValueError for an unknown person, and for the only one."""
        if not 0 <= whole("i", i, 0) < self.num_people > 1:
            raise ValueError(f"i: expected one of two or more people, got {i} of {self.num_people}")
        return People(np.delete(self.answers, i, axis=0), np.delete(self.index, i))


@dataclass(frozen=True, eq=False, repr=False)
class Population(HidesArrays):
    """Population from which people and their answers are drawn.

    Attributes:
        p: mean answers, in [-1, 1], (d,).
        index: question of each person, (t,).
        samples: n.

    Raises:
        ValueError: an argument outside its range.
    """

    p: FloatArray
    index: Ints
    samples: int = 1

    def __post_init__(self) -> None:
        p = np.atleast_1d(checked_means(self.p))
        if p.ndim != 1:
            raise ValueError(f"p: expected one mean per feature, got shape {p.shape}")
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "index", questions(self.index, np.size(self.index), len(p)))
        normalise_fields(self, whole, "samples")

    @property
    def num_people(self) -> int:
        """t."""
        return len(self.index)

    @property
    def asked(self) -> FloatArray:
        """The mean that each person asks for, p_{j_i}, (t,)."""
        return self.p[self.index]

    def person(self, rng: np.random.Generator, size: int = 1) -> NDArray[np.int8]:
        """Draw the answers of new people, (size, n, d)."""
        drawn = rng.random((size, self.samples, len(self.p))) < (1 + self.p) / 2
        return 2 * drawn.astype(np.int8) - 1

    def people(self, rng: np.random.Generator) -> People:
        """Draw the single answers of all people."""
        return People(self.person(rng, self.num_people), self.index)

    def totals(self, rng: np.random.Generator, size: int = 1, people: int | None = None) -> Ints:
        """Draw sums of the answers of t people (or ``people``) in several repetitions, (size, d), by binomial draws."""
        total = self.samples * (self.num_people if people is None else people)
        return 2 * rng.binomial(total, (1 + self.p) / 2, (size, len(self.p))) - total


@dataclass(frozen=True)
class HardPrior:
    """Prior of hard problems, as in the lower bounds: p ~ U[-spread, spread]^d and j ~ U[d]^t.

    Attributes:
        num_people: t.
        num_features: d.
        samples: n.
        spread: lambda; 1 for means, 16 or 8 times the error for signs.
        distinct: whether no two people have the same question.

    Raises:
        ValueError: an argument outside its range, or more people than distinct questions.
    """

    num_people: int
    num_features: int
    samples: int = 1
    spread: float = 1.0
    distinct: bool = False

    def __post_init__(self) -> None:
        normalise_fields(self, whole, "num_people", "num_features", "samples")
        normalise_fields(self, at_most_one, "spread")
        if self.distinct and self.num_people > self.num_features:
            raise ValueError(f"distinct: expected at most {self.num_features} people, got {self.num_people}")

    def population(self, rng: np.random.Generator) -> Population:
        """Draw a population from the prior."""
        t, d = self.num_people, self.num_features
        p = rng.uniform(-self.spread, self.spread, d)
        return Population(p, rng.permutation(d)[:t] if self.distinct else rng.integers(d, size=t), self.samples)


def questions(index: ArrayLike, people: int, num_features: int) -> Ints:
    """Return one question per person as an array. Raises ValueError for a wrong number, and for one out of range."""
    numbers = np.atleast_1d(np.asarray(index))
    if numbers.shape != (people,) or not people:
        raise ValueError(f"index: expected {people or 'some'} whole numbers, one per person, got shape {numbers.shape}")
    if not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError("index: expected whole numbers, got others")
    if ((numbers < 0) | (numbers >= num_features)).any():
        raise ValueError(f"index: expected whole numbers from 0 to {num_features - 1}, got one out of range")
    return numbers.astype(np.int64)


def checked_means(p: ArrayLike) -> FloatArray:
    """Return p as an array of any shape. Raises ValueError for means outside [-1, 1]."""
    means = np.asarray(p, dtype=np.float64)
    if not (np.abs(means) <= 1).all():  # also refuses NaN
        raise ValueError("p: expected means in [-1, 1], got others")
    return means


def at_most_one(name: str, value: float) -> float:
    """Return the value as a float. Raises ValueError unless it is in (0, 1]."""
    if positive(name, value) > 1:
        raise ValueError(f"{name}: expected a number in (0, 1], got {value!r}")
    return float(value)


def mean_loss(estimate: ArrayLike, p: ArrayLike) -> FloatArray:
    """Compute (p^ - p)^2 / 4, which is in [0, 1] for estimates in [-1, 1]."""
    return (np.asarray(estimate) - np.asarray(p)) ** 2 / 4


def sign_loss(sign: ArrayLike, p: ArrayLike) -> FloatArray:
    """Compute |p| where the sign is wrong, else 0: (|p| - s p) / 2."""
    p = np.asarray(p, dtype=np.float64)
    return (np.abs(p) - np.asarray(sign) * p) / 2


def uniform_nodes(spread: float = 1.0, size: int = 160) -> tuple[FloatArray, FloatArray]:
    """Return Gauss-Legendre nodes and weights for means over p ~ U[-spread, spread]; the weights add up to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(whole("size", size))
    return at_most_one("spread", spread) * nodes, weights / 2
