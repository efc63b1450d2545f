"""Fits to public records: where an adaptation starts from. Robust, since public records come from anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob._util.threads import one_thread
from mpmtl_prob.adaptation.data.domain import Domain

_HUBER = 1.345  # 95 % efficient for Gaussian residuals
#: records per feature below which a fit would follow its own records, and find residuals next to nothing
FEW = 3


@dataclass(frozen=True, eq=False)
class PublicFit:
    """A regression on public records.

    Attributes:
        w: weights, (d,).
        covariance: of w, sandwich, (d, d).
        scale: of the residuals, robust.
    """

    w: FloatArray
    covariance: FloatArray
    scale: float

    def slopes(self, records: Domain) -> FloatArray:
        """What of w sets records apart: w less weights that give all the mean prediction, as nearly as any can, (d,)."""
        X, n = records.X, max(records.num_records, 1)
        mean = X.sum(axis=0) / n
        level = np.linalg.pinv(X.T @ X / n, rcond=1e-6, hermitian=True) @ mean * (mean @ self.w)
        return self.w - level

    def residual_bound(self, records: Domain, quantile: float = 0.95) -> float:
        """c: a quantile of the sizes of the residuals of public records."""
        residuals = np.abs(records.y - records.X @ self.w)
        found = float(np.quantile(residuals, in_range("quantile", quantile, 0, 1)))
        return found if found > 0 else self.scale


def least_squares(records: Domain, ridge: float = 0.0) -> FloatArray:
    """Ordinary least squares, or ridge on the mean loss; of least norm where columns are dependent."""
    X, y, n = records.X, records.y, max(records.num_records, 1)
    if not ridge:
        return np.linalg.lstsq(X, y, rcond=None)[0] if records.num_records else np.zeros(X.shape[1])
    found: FloatArray = np.linalg.solve(X.T @ X / n + ridge * np.eye(X.shape[1]), X.T @ y / n)
    return found


def huber(
    records: Domain,
    threshold: float,
    ridge: float = 1e-9,
    max_iterations: int = 500,
    first: FloatArray | None = None,
) -> FloatArray:
    """Huber's regression with a threshold in units of y, by iterated reweighting.

    Least absolute deviations as the threshold goes to 0.
    """
    positive("threshold", threshold)
    X, y, d = records.X, records.y, records.num_features
    w = least_squares(records) if first is None else first
    floor = ridge * max(np.trace(X.T @ X) / d, 1e-12)
    for _ in range(max_iterations):
        weights = threshold / np.maximum(np.abs(y - X @ w), threshold)
        weighted = X * weights[:, None]
        new = np.linalg.solve(weighted.T @ X + floor * np.eye(d), weighted.T @ y)
        if np.linalg.norm(new - w) <= 1e-10 * np.linalg.norm(w):
            return new
        w = new
    return w


@one_thread
def robust(records: Domain, towards: PublicFit | None = None) -> PublicFit:
    """Huber's regression at 1.345 times the residuals' scale, with its sandwich covariance.

    Args:
        records: public.
        towards: a fit to more public records. With fewer than three records per feature the result is a ridge regression that
            starts from it, or from zero, and says how little is known.

    Source: Huber and Ronchetti (2009), sections 7.6 and 7.8; MacKinnon and White (1985) for what leverage hides.
    """
    X, y, d = records.X, records.y, records.num_features
    if len(y) < FEW * d:
        return _few(records, towards)
    w = least_squares(records)
    scale = _scale(y - X @ w, y)
    for _ in range(50):
        new = huber(records, _HUBER * scale, max_iterations=20, first=w)
        scale, done = _scale(y - X @ new, y), np.linalg.norm(new - w) <= 1e-8 * np.linalg.norm(w)
        w = new
        if done:
            break
    residuals = y - X @ w
    inside, psi = np.abs(residuals) <= _HUBER * scale, np.clip(residuals, -_HUBER * scale, _HUBER * scale)
    # where columns are dependent nothing is known, and nothing is said: a huge variance there would be one of rounding
    bread = np.linalg.pinv((X * inside[:, None]).T @ X, rcond=1e-9, hermitian=True)
    # a fit hides a share h of a record's variance, all of it where nobody else has a column: E r^2 = (1 - h) sigma^2
    leverage = np.clip(np.sum((X @ bread) * X, axis=1), 0.0, 1.0)
    meat = (X * (psi**2 + leverage * scale**2)[:, None]).T @ X
    return PublicFit(w, bread @ meat @ bread, scale)


def _few(records: Domain, towards: PublicFit | None) -> PublicFit:
    """The posterior of a Gaussian regression whose prior lets weights explain as much as a shift may, or as labels vary.

    w ~ N(w_0, V_0 + t^2 I / d) and errors of scale s, both of ``towards``, with t as far as a target may be from its domain;
    without it w_0 = 0, and half of the labels' mean square is left to errors at first.
    """
    X, y, d = records.X, records.y, records.num_features
    width = max(float(np.sqrt(np.mean(X**2))), 1e-12)
    size = max(float(np.sqrt(np.mean(y**2))), _scale(y, y))
    w, V, s, reach = (
        (np.zeros(d), np.zeros((d, d)), size, size / width)
        if towards is None
        else (towards.w, towards.covariance, towards.scale, shift_scale(towards.scale, width))
    )
    prior = d / reach**2 * np.eye(d)
    inverse = np.linalg.inv(X.T @ X / s**2 + prior)
    residuals = y - X @ w
    w = w + inverse @ X.T @ residuals / s**2
    kept = inverse @ prior
    if towards is None:
        left, room = y - X @ w, len(y) - float(np.sum((X @ inverse) * X)) / s**2  # degrees of freedom: always some
        s = max(float(np.sqrt(left @ left / max(room, 1e-6))), _scale(left, y))
    return PublicFit(w, inverse + kept @ V @ kept.T, s)


def shift_scale(scale: float, width: float) -> float:
    """tau of which the shift explains four times as much as noise of that scale, for features of that root mean square."""
    return 2 * scale / width


def least_scale(y: FloatArray) -> float:
    """The smallest scale that residuals of targets y are said to have: below it is rounding, and no size of errors."""
    return 1e-6 * float(np.abs(y).max(initial=0.0)) or 1e-9


def _scale(residuals: FloatArray, y: FloatArray) -> float:
    """Median absolute deviation, consistent for Gaussian residuals; never zero."""
    found = float(np.median(np.abs(residuals))) / 0.6745 if len(residuals) else 1.0
    return max(found, least_scale(y))
