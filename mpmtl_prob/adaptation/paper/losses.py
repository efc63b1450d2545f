"""Losses of linear predictors, with the constants for sensitivities: bound, Lipschitz constant, smoothness.

Weights are (d, k): one column for a number, one for each class with softmax. Every record's loss and gradient are computed
from that record alone, so that no record changes the rounding of another.

Source: Bassily et al. (2023), section 4 (squared loss) and section 5 (any smooth loss).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import moderate, normalise_fields, whole


@dataclass(frozen=True)
class Loss(ABC):
    """Loss on rows of length at most r, with weights of length at most Lambda.

    Attributes:
        row_bound: r; like all bounds, between 1e-30 and 1e30.
        weight_bound: Lambda.
    """

    row_bound: float = 1.0
    weight_bound: float = 1.0

    def __post_init__(self) -> None:
        normalise_fields(self, moderate, "row_bound", "weight_bound")

    #: number of columns of the weights
    outputs = 1
    #: True if the loss is convex in the weights, so that a solver finds its minimum
    convex = True

    @property
    @abstractmethod
    def bound(self) -> float:
        """B, the largest possible loss."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """G, the largest length of one record's gradient."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """beta, the largest curvature."""

    @abstractmethod
    def values(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of every record, (n,)."""

    @abstractmethod
    def slopes(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return derivatives by the record's scores, (n, k); with scores w'x the gradient of record i is x_i slopes_i'."""

    def size(self, num_features: int) -> int:
        """Return the number of weights."""
        return num_features * self.outputs

    def gradients(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        """Return the gradient of every record, (n, d k)."""
        return (X[:, :, None] * self.slopes(w, X, y)[:, None, :]).reshape(len(X), X.shape[1] * self.outputs)

    def scores(self, w: FloatArray, X: FloatArray) -> FloatArray:
        """Return the scores w'x of every record, (n, k), each from its own row."""
        return np.sum(X[:, :, None] * w.reshape(X.shape[1], self.outputs)[None], axis=1)


@dataclass(frozen=True)
class Squared(Loss):
    """Squared loss (w.x - y)^2 with |y| at most ``target_bound``: B = (Lambda r + t)^2, G = 2 r (Lambda r + t).

    Section 4 of the paper has t = 1.
    """

    target_bound: float = 1.0

    def __post_init__(self) -> None:
        normalise_fields(self, moderate, "row_bound", "weight_bound", "target_bound")

    @property
    def _largest(self) -> float:
        return self.weight_bound * self.row_bound + self.target_bound

    @property
    def bound(self) -> float:
        return self._largest**2

    @property
    def lipschitz(self) -> float:
        return 2 * self.row_bound * self._largest

    @property
    def smoothness(self) -> float:
        return 2 * self.row_bound**2

    def values(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return (self.scores(w, X)[:, 0] - y) ** 2

    def slopes(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return 2 * (self.scores(w, X) - y[:, None])


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss log(1 + exp(-y w.x)), y = -1 or 1: B = log(1 + e^{Lambda r}), G = r, beta = r^2 / 4.

    Section 5 has B = G Lambda, which is no bound, as no predictor has loss zero.
    """

    @property
    def bound(self) -> float:
        return float(np.logaddexp(0, self.weight_bound * self.row_bound))

    @property
    def lipschitz(self) -> float:
        return self.row_bound

    @property
    def smoothness(self) -> float:
        return self.row_bound**2 / 4

    def values(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return np.logaddexp(0, -y * self.scores(w, X)[:, 0])

    def slopes(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        margin = y * self.scores(w, X)[:, 0]
        return (-y * np.exp(-np.logaddexp(0, margin)))[:, None]


@dataclass(frozen=True)
class Softmax(Loss):
    """Softmax loss -log softmax(W'x)_y, y = 0..k-1: G = sqrt2 r, beta = r^2 / 2, B = log k + sqrt2 Lambda r.

    The length of the weights is ||W||_F <= Lambda.

    Attributes:
        outputs: k, number of classes.
    """

    outputs: int = 2

    def __post_init__(self) -> None:
        normalise_fields(self, moderate, "row_bound", "weight_bound")
        normalise_fields(self, whole, "outputs")

    @property
    def bound(self) -> float:
        # log sum_j exp(s_j - s_y) <= log k + max_j (s_j - s_y), and |s_j - s_y| <= sqrt2 Lambda r
        return float(np.log(self.outputs) + np.sqrt(2) * self.weight_bound * self.row_bound)

    @property
    def lipschitz(self) -> float:
        return float(np.sqrt(2) * self.row_bound)

    @property
    def smoothness(self) -> float:
        return self.row_bound**2 / 2

    def values(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        scores = self.scores(w, X)
        largest = scores.max(axis=1)
        total = largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1))
        return total - scores[np.arange(len(y)), y.astype(int)]

    def slopes(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        scores = self.scores(w, X)
        p = np.exp(scores - scores.max(axis=1)[:, None])
        p /= p.sum(axis=1)[:, None]
        p[np.arange(len(y)), y.astype(int)] -= 1
        return p
