"""Signs and classifiers from means, and the reductions between them.

R_{p,j}: w ~ P_X(p), a fair label y in {-1, 1}, and features x that are w but for x_j = w_j y. Knowing the sign of p_j is
knowing the best classifier, y = sign(p_j) x_j, whose error is (1 - |p_j|) / 2; any other predicts -y, at |p_j| more.

Source: Aliakbarpour et al. (2024), section 5. sign(0) = +1 here: means of an even number of people can be 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import HidesArrays
from mpmtl_prob.threat_models.means import NoisyMeans
from mpmtl_prob.threat_models.problems import Ints, People, Population, checked_means, questions

Signs = NDArray[np.int8]

#: where the error of a sign is largest, |p| / v and error / v: the maximum of z Phi(-z)
WORST_MEAN, WORST_ERROR = 0.75179, 0.16997


def sign(values: ArrayLike) -> Signs:
    """-1 or 1; of 0 it is 1. The private curator sends this bit and no more."""
    return np.where(np.asarray(values) >= 0, 1, -1).astype(np.int8)


@dataclass(frozen=True, eq=False, repr=False)
class Labelled(HidesArrays):
    """Draws of R_{p,j}, one for each person.

    Attributes:
        x: features, -1 or 1, (t, d).
        y: labels, -1 or 1, (t,).
        index: which feature the label is in, (t,).

    Raises:
        ValueError: other values or shapes, or an index out of range.
    """

    x: Signs
    y: Signs
    index: Ints

    def __post_init__(self) -> None:
        x, y = _signs("x", self.x), _signs("y", self.y)
        if x.ndim != 2 or y.shape != x.shape[:1]:
            raise ValueError(f"y: expected one label per person, got shape {y.shape} for features of shape {x.shape}")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "index", questions(self.index, *x.shape))


def labelled(w: ArrayLike, index: ArrayLike, rng: np.random.Generator) -> Labelled:
    """Draws of R_{p,j} from draws w (t, d) of P_X(p): a fresh label, multiplied into the feature (the core of Lemma 5.2)."""
    x = _signs("w", w)
    y = sign(rng.random(len(x)) - 0.5)
    found = Labelled(x, y, index)  # type: ignore[arg-type]
    x[np.arange(len(x)), found.index] *= y
    return Labelled(x, y, found.index)


def sign_problem(data: Labelled) -> People:
    """What a sign algorithm is given in place of labelled data: w with w_j = x_j y (Lemma 5.1)."""
    w = data.x.copy()
    w[np.arange(len(w)), data.index] *= data.y
    return People(w[:, None, :], data.index)


@dataclass(frozen=True, eq=False, repr=False)
class Classifiers(HidesArrays):
    """Everybody's classifier f_i(x) = s_i x_{j_i} (Lemma 5.1).

    Attributes:
        signs: of each, -1 or 1, (..., t).
        index: which feature each reads, (t,).

    Raises:
        ValueError: other values, or not one index per person.
    """

    signs: Signs
    index: Ints

    def __post_init__(self) -> None:
        found = _signs("signs", self.signs)
        object.__setattr__(self, "signs", found)
        object.__setattr__(self, "index", questions(self.index, found.shape[-1], np.iinfo(np.int64).max))

    def predict(self, x: ArrayLike) -> Signs:
        """Everybody's label for its own features (t, d), (..., t)."""
        seen = _signs("x", x)
        if seen.ndim != 2 or len(seen) != len(self.index):
            raise ValueError(f"x: expected features of {len(self.index)} people, got shape {seen.shape}")
        return self.signs * seen[np.arange(len(seen)), questions(self.index, *seen.shape)]

    def excess_error(self, population: Population) -> FloatArray:
        """P(f_i(x_j) != y) beyond the least there is, (..., t): computed from the law of R_{p,j}."""
        p = population.p[questions(self.index, len(self.index), len(population.p))]
        wrong = (1 - self.signs * p) / 2  # P(s w_j = -1), as s x_j = s w_j y
        return wrong - (1 - np.abs(p)) / 2


def signs_from(classifiers: Classifiers, second: People, rng: np.random.Generator) -> Signs:
    """Signs that classifiers know, read off with a second sample: s^ = f(x~_j) x~_j (Lemma 5.2), (t,).

    The label in the second sample is fresh: with the first one's, a classifier that remembered it would do as well as it
    likes (the paper prints the first one's).
    """
    again = labelled(second.answers[:, 0], second.index, rng)
    return classifiers.predict(again.x) * again.x[np.arange(len(again.x)), again.index]


def sign_error(mechanism: NoisyMeans, p: ArrayLike) -> FloatArray:
    """Expected |p| 1{wrong sign} where the mean is p: exactly, a sum over counts, for a mechanism's noisy mean's sign."""
    from scipy.stats import binom  # which takes a second to import

    p = checked_means(p)
    total = mechanism.num_people * mechanism.samples
    counts = np.arange(total + 1)
    mean = 2 * counts / total - 1
    negative = ndtr(-mean / mechanism.sd) if mechanism.sd else (mean < 0).astype(np.float64)
    below = binom.pmf(counts, total, (1 + p[..., None]) / 2) @ negative
    return np.abs(p) * np.where(p >= 0, below, 1 - below)


def sign_error_roughly(mechanism: NoisyMeans, p: ArrayLike) -> FloatArray:
    """|p| Phi(-|p| / v), v^2 = s^2 + (1 - p^2) / (t n): as if the mean were normal."""
    size = np.abs(checked_means(p))
    v = np.sqrt(mechanism.sd**2 + (1 - size**2) / (mechanism.num_people * mechanism.samples))
    return size * ndtr(-size / v)


def _signs(name: str, values: ArrayLike) -> Signs:
    """A copy. Raises ValueError for others than -1 and 1, and for none."""
    found = np.atleast_1d(values)
    if not found.size or not np.isin(found, (-1, 1)).all():
        raise ValueError(f"{name}: expected -1 and 1, got other values")
    return found.astype(np.int8)
