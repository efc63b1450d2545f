"""Importance weights for covariate shift: kernel mean matching and discrepancy minimisation.

They match the source's features to the target's. Neither is private, unless the target's features come from a private
release; then both cost no further privacy.

Source: Huang, Smola, Gretton, Borgwardt and Schoelkopf (2006); Cortes and Mohri (2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob.adaptation.data.domain import Domain, numbers
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.public_fit import least_squares
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE


def kernel_weights(
    source: FloatArray,
    target: FloatArray,
    *,
    width: float | None = None,
    largest: float = 1000.0,
    max_iterations: int = 5000,
) -> FloatArray:
    """Compute weights by kernel mean matching, (m,).

    Minimise b'Kb / 2 - k'b with 0 <= b <= B and |sum b - m| <= m eps, eps = (sqrt m - 1) / sqrt m.

    Args:
        source: rows, (m, d).
        target: rows, (n, d).
        width: width of the Gaussian kernel exp(-||x - x'||^2 / (2 width^2)); default the median distance of source rows.
        largest: B, the largest weight.
        max_iterations: largest number of projected gradient steps with momentum.
    """
    m, n = len(source), max(len(target), 1)
    distance = _squares(source, source)
    if width is None:
        positive_distances = distance[distance > 0]
        width = float(np.sqrt(np.median(positive_distances))) if len(positive_distances) else 1.0
    K = np.exp(-distance / (2 * positive("width", width) ** 2))
    k = m / n * np.exp(-_squares(source, target) / (2 * width**2)).sum(axis=1)
    slack, step = (np.sqrt(m) - 1) / np.sqrt(m), 1 / max(float(np.linalg.eigvalsh(K)[-1]), 1e-12)
    b = z = np.ones(m)
    momentum = 1.0
    for _ in range(max_iterations):
        new = box_and_sum(z - step * (K @ z - k), largest, m * (1 - slack), m * (1 + slack))
        if np.abs(new - z).max() < 1e-9 * max(np.abs(new).max(), 1.0):
            return new
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        restart = (z - new) @ (new - b) > 0
        z, momentum = (new, 1.0) if restart else (new + (momentum - 1) / faster * (new - b), faster)
        b = new
    return b


def box_and_sum(b: FloatArray, largest: float, low: float, high: float) -> FloatArray:
    """Return the nearest point with 0 <= b_i <= B and low <= sum b <= high."""
    inside = np.clip(b, 0.0, largest)
    if low <= inside.sum() <= high:
        return inside
    bound = low if inside.sum() < low else high
    below, above = float(b.min()) - largest, float(b.max())
    for _ in range(100):
        shift = (below + above) / 2
        below, above = (shift, above) if np.clip(b - shift, 0.0, largest).sum() > bound else (below, shift)
    return np.clip(b - (below + above) / 2, 0.0, largest)


def discrepancy_weights(source: FloatArray, second_moment: FloatArray, *, max_iterations: int = 2000) -> FloatArray:
    """Compute q in the simplex that minimises ||M - sum q_i x_i x_i'||_2, the spectral norm, (m,).

    The method is mirror descent on the smoothed norm log tr(exp(k N) + exp(-k N)) / k with rising k. It returns the best
    point of the path.

    Args:
        source: rows, (m, d).
        second_moment: M of the target's features, (d, d); it may be a private release of it.
        max_iterations: number of mirror descent steps.
    """
    m = len(source)
    q = best = np.full(m, 1 / m)
    scale = max(float(np.max(np.sum(source**2, axis=1))), 1e-12)
    least = np.inf
    for t in range(max_iterations):
        a, Q = np.linalg.eigh((source.T * q) @ source - second_moment)
        if (value := float(np.abs(a).max())) < least:
            least, best = value, q
        sharp = (10 + t) / scale
        heavy = np.concatenate([sharp * (a - value), sharp * (-a - value)])
        p = np.exp(heavy) / np.exp(heavy).sum()
        signed = p[: len(a)] - p[len(a) :]
        slopes = ((source @ Q) ** 2) @ signed / scale
        q = q * np.exp(-np.sqrt(2 * np.log(m + 1) / (t + 1)) * (slopes - slopes.min()))
        q /= q.sum()
    return best


@dataclass(repr=False, eq=False)
class KMM(Adaptation):
    """Kernel mean matching, then weighted ridge regression on the source.

    It is not private, as it looks at the target's features.

    Attributes:
        width: width of the kernel; default the median distance.
        largest: B, the largest weight.
        ridge: at least 0.
    """

    width: float | None = None
    largest: float = 1000.0
    ridge: float = 1e-4

    def fit(self, source: Any, target: Any) -> Self:
        """Fit, and set ``source_weights_``, (m,), with sum near m. Raises ValueError for records that are not numbers."""
        public, private = self._pair(source, target)
        numbers("target", private)
        self.source_weights_ = kernel_weights(public.X, private.X, width=self.width, largest=self.largest)
        self.coef_, self.guarantee_ = weighted(public, self.source_weights_, self.ridge), NOT_PRIVATE
        return self


@dataclass(repr=False, eq=False)
class DiscrepancyMinimisation(Adaptation):
    """Discrepancy minimisation (DM): weights that match second moments, then weighted ridge regression. Not private.

    Attributes:
        ridge: at least 0.
    """

    ridge: float = 1e-4

    def fit(self, source: Any, target: Any) -> Self:
        """Fit, and set ``source_weights_``, (m,), with sum 1. Raises ValueError for records that are not numbers."""
        public, private = self._pair(source, target)
        numbers("target", private)
        moment = private.X.T @ private.X / max(private.num_records, 1)
        self.source_weights_ = discrepancy_weights(public.X, moment)
        self.coef_, self.guarantee_ = weighted(public, self.source_weights_, self.ridge), NOT_PRIVATE
        return self


def weighted(records: Domain, weights: FloatArray, ridge: float) -> FloatArray:
    """Fit a ridge regression to weighted records."""
    in_range("ridge", ridge, 0, np.inf, left_closed=True)
    root = np.sqrt(len(weights) * weights / max(weights.sum(), 1e-300))
    return least_squares(Domain(records.X * root[:, None], records.y * root), ridge)


def _squares(a: FloatArray, b: FloatArray) -> FloatArray:
    squares: FloatArray = np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0.0)
    return squares
