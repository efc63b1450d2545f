"""Robust regression on public records, from which an adaptation starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob._util.threads import one_thread
from mpmtl_prob.adaptation.data.domain import Domain

_HUBER = 1.345  # 95 % efficient for Gaussian residuals
#: records per feature below which least squares would overfit, and its residuals would be far too small
FEW = 3


@dataclass(frozen=True, eq=False)
class PublicFit:
    """Result of a regression on public records.

    Attributes:
        w: weights, (d,).
        covariance: sandwich covariance of w, (d, d).
        scale: robust scale of the residuals.
    """

    w: FloatArray
    covariance: FloatArray
    scale: float

    def slopes(self, records: Domain) -> FloatArray:
        """Return w without its level, (d,): minus the weights that come closest to predicting the mean for every record."""
        X, n = records.X, max(records.num_records, 1)
        mean = X.sum(axis=0) / n
        level = np.linalg.pinv(X.T @ X / n, rcond=1e-6, hermitian=True) @ mean * (mean @ self.w)
        return self.w - level

    def residual_bound(self, records: Domain, quantile: float = 0.95) -> float:
        """Return c, a quantile of the absolute residuals of public records."""
        residuals = np.abs(records.y - records.X @ self.w)
        bound = float(np.quantile(residuals, in_range("quantile", quantile, 0, 1)))
        return bound if bound > 0 else self.scale


def least_squares(records: Domain, ridge: float = 0.0) -> FloatArray:
    """Fit ordinary least squares, or ridge on the mean loss; the solution of least norm where columns are dependent."""
    X, y, n = records.X, records.y, max(records.num_records, 1)
    if not ridge:
        return np.linalg.lstsq(X, y, rcond=None)[0] if records.num_records else np.zeros(X.shape[1])
    w: FloatArray = np.linalg.solve(X.T @ X / n + ridge * np.eye(X.shape[1]), X.T @ y / n)
    return w


def huber(
    records: Domain,
    threshold: float,
    ridge: float = 1e-9,
    max_iterations: int = 500,
    first: FloatArray | None = None,
) -> FloatArray:
    """Fit Huber's robust regression by iterated reweighting, with a threshold in units of y.

    As the threshold goes to 0 it becomes least absolute deviations.
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
    """Fit Huber's regression with threshold 1.345 times the residuals' scale, and its sandwich covariance.

    Args:
        records: public.
        towards: a fit to more public records. With fewer than three records per feature the result is a ridge regression that
            shrinks to this fit, or to zero, with a covariance that shows how little is known.

    Source: Huber and Ronchetti (2009), sections 7.6 and 7.8; MacKinnon and White (1985) for the correction for leverage.
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
    # Along dependent columns the variance is set to zero: without the cut-off it would be huge, by rounding alone.
    bread = np.linalg.pinv((X * inside[:, None]).T @ X, rcond=1e-9, hermitian=True)
    # Residuals are too small by the leverage h, E r^2 = (1 - h) sigma^2; h is 1 where only one record has a column.
    leverage = np.clip(np.sum((X @ bread) * X, axis=1), 0.0, 1.0)
    meat = (X * (psi**2 + leverage * scale**2)[:, None]).T @ X
    return PublicFit(w, bread @ meat @ bread, scale)


def _few(records: Domain, towards: PublicFit | None) -> PublicFit:
    """Fit a Gaussian regression with few records: the posterior under a wide prior around another fit.

    w ~ N(w_0, V_0 + t^2 I / d) with errors of scale s. The other fit gives w_0, V_0 and s, and t is the size of a shift
    between a target and its domain. Without another fit w_0 = 0, V_0 = 0, and s and t follow from the labels' size.
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
    prior_share = inverse @ prior
    if towards is None:
        residuals = y - X @ w
        degrees = len(y) - float(np.sum((X @ inverse) * X)) / s**2  # degrees of freedom, always positive
        s = max(float(np.sqrt(residuals @ residuals / max(degrees, 1e-6))), _scale(residuals, y))
    return PublicFit(w, inverse + prior_share @ V @ prior_share.T, s)


def shift_scale(scale: float, width: float) -> float:
    """Return the tau whose shift explains four times the variance of noise of scale ``scale``.

    The features have root mean square ``width``.
    """
    return 2 * scale / width


def least_scale(y: FloatArray) -> float:
    """Return the smallest scale for residuals of targets y; smaller residuals are rounding errors."""
    return 1e-6 * float(np.abs(y).max(initial=0.0)) or 1e-9


def _scale(residuals: FloatArray, y: FloatArray) -> float:
    """Return the median absolute deviation, consistent for Gaussian residuals; never zero."""
    deviation = float(np.median(np.abs(residuals))) / 0.6745 if len(residuals) else 1.0
    return max(deviation, least_scale(y))
