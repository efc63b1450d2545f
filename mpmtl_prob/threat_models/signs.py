"""Signs and classifiers from noisy means, and the reductions between these problems.

R_{p,j} draws w ~ P_X(p), a fair label y in {-1, 1}, and features x that equal w except for x_j = w_j y. The sign of p_j gives
the best classifier, y = sign(p_j) x_j, whose error is (1 - |p_j|) / 2. The opposite classifier has an error that is |p_j|
larger.

Source: Aliakbarpour et al. (2024), section 5. Here sign(0) = +1, as means of an even number of people can be 0.
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

#: The worst case of the error of a sign, |p| / v and error / v: the maximum of z Phi(-z).
WORST_MEAN, WORST_ERROR = 0.75179, 0.16997


def sign(values: ArrayLike) -> Signs:
    """Return -1 or 1, and 1 for 0. The private curator sends this bit and nothing else."""
    return np.where(np.asarray(values) >= 0, 1, -1).astype(np.int8)


@dataclass(frozen=True, eq=False, repr=False)
class Labelled(HidesArrays):
    """Labelled data: a draw of R_{p,j} for each person.

    Attributes:
        x: features, -1 or 1, (t, d).
        y: labels, -1 or 1, (t,).
        index: the feature that depends on the label, (t,).

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
    """Turn draws w (t, d) of P_X(p) into draws of R_{p,j}: multiply the feature by a new random label (Lemma 5.2)."""
    x = _signs("w", w)
    y = sign(rng.random(len(x)) - 0.5)
    checked = Labelled(x, y, index)  # type: ignore[arg-type]
    x[np.arange(len(x)), checked.index] *= y
    return Labelled(x, y, checked.index)


def sign_problem(data: Labelled) -> People:
    """Turn labelled data into a problem for a sign algorithm: w with w_j = x_j y (Lemma 5.1)."""
    w = data.x.copy()
    w[np.arange(len(w)), data.index] *= data.y
    return People(w[:, None, :], data.index)


@dataclass(frozen=True, eq=False, repr=False)
class Classifiers(HidesArrays):
    """Classifiers f_i(x) = s_i x_{j_i} of all people (Lemma 5.1).

    Attributes:
        signs: s_i of each person, -1 or 1, (..., t).
        index: the feature that each classifier uses, (t,).

    Raises:
        ValueError: other values, or not one index per person.
    """

    signs: Signs
    index: Ints

    def __post_init__(self) -> None:
        signs = _signs("signs", self.signs)
        object.__setattr__(self, "signs", signs)
        object.__setattr__(self, "index", questions(self.index, signs.shape[-1], np.iinfo(np.int64).max))

    def predict(self, x: ArrayLike) -> Signs:
        """Predict each person's label from their own features (t, d), (..., t)."""
        features = _signs("x", x)
        if features.ndim != 2 or len(features) != len(self.index):
            raise ValueError(f"x: expected features of {len(self.index)} people, got shape {features.shape}")
        return self.signs * features[np.arange(len(features)), questions(self.index, *features.shape)]

    def excess_error(self, population: Population) -> FloatArray:
        """Compute P(f_i(x_j) != y) minus the least possible error, (..., t), from the law of R_{p,j}."""
        p = population.p[questions(self.index, len(self.index), len(population.p))]
        wrong = (1 - self.signs * p) / 2  # P(s w_j = -1), as s x_j = s w_j y
        return wrong - (1 - np.abs(p)) / 2


def signs_from(classifiers: Classifiers, second: People, rng: np.random.Generator) -> Signs:
    """Recover signs from classifiers by a second sample: s^ = f(x~_j) x~_j (Lemma 5.2), (t,).

    The second sample has a new label. With the label of the first sample, which the paper prints, a classifier could have
    memorised it.
    """
    relabelled = labelled(second.answers[:, 0], second.index, rng)
    return classifiers.predict(relabelled.x) * relabelled.x[np.arange(len(relabelled.x)), relabelled.index]


def sign_error(mechanism: NoisyMeans, p: ArrayLike) -> FloatArray:
    """Compute the expected loss |p| 1{wrong sign} of a noisy mean's sign where the mean is p, exactly."""
    from scipy.stats import binom  # a second to import

    p = checked_means(p)
    total = mechanism.num_people * mechanism.samples
    counts = np.arange(total + 1)
    mean = 2 * counts / total - 1
    negative = ndtr(-mean / mechanism.sd) if mechanism.sd else (mean < 0).astype(np.float64)
    below = binom.pmf(counts, total, (1 + p[..., None]) / 2) @ negative
    return np.abs(p) * np.where(p >= 0, below, 1 - below)


def sign_error_roughly(mechanism: NoisyMeans, p: ArrayLike) -> FloatArray:
    """Approximate the same by |p| Phi(-|p| / v), v^2 = s^2 + (1 - p^2) / (t n), as if the noisy mean were normal."""
    size = np.abs(checked_means(p))
    v = np.sqrt(mechanism.sd**2 + (1 - size**2) / (mechanism.num_people * mechanism.samples))
    return size * ndtr(-size / v)


def _signs(name: str, values: ArrayLike) -> Signs:
    """Return a copy as an array. Raises ValueError for values other than -1 and 1, and for none."""
    array = np.atleast_1d(values)
    if not array.size or not np.isin(array, (-1, 1)).all():
        raise ValueError(f"{name}: expected -1 and 1, got other values")
    return array.astype(np.int8)
