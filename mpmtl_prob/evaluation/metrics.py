"""How far predictions are from the targets, and how honest their intervals are."""

from __future__ import annotations

import numpy as np

from mpmtl_prob.tasks import Prediction, TaskData


def nmse(prediction: Prediction, test: TaskData) -> float:
    """Pooled: mean squared error over the variance of all targets."""
    _check(prediction, test)
    return float(np.mean((prediction.mean - test.y)[test.mask] ** 2) / np.var(test.y[test.mask]))


def nmse_within(prediction: Prediction, test: TaskData) -> float:
    """Sum of squared errors over the sum of squared deviations from each task's own test mean: the papers' figures."""
    _check(prediction, test)
    mean = np.sum(test.y * test.mask, axis=1) / test.mask.sum(axis=1)
    deviation = (test.y - mean[:, None])[test.mask]
    return float(np.sum((prediction.mean - test.y)[test.mask] ** 2) / np.sum(deviation**2))


def coverage(prediction: Prediction, test: TaskData, probability: float = 0.9) -> float:
    """Share of targets inside their central interval of the given probability; nan for a point predictor."""
    _check(prediction, test)
    if prediction.draws is None:
        return float("nan")
    lower, upper = prediction.interval(probability)
    return float(np.mean(((lower <= test.y) & (test.y <= upper))[test.mask]))


def _check(prediction: Prediction, test: TaskData) -> None:
    if prediction.mask.shape != test.mask.shape or not np.array_equal(prediction.mask, test.mask):
        raise ValueError("prediction and test: expected predictions of the rows of test, got rows of other tasks")
