"""Metrics of predictions: errors, coverage of intervals (calibration), AUC and log score."""

from __future__ import annotations

import numpy as np

from mpmtl_prob.data.outcomes import impossible
from mpmtl_prob.data.prediction import Prediction, check_rows
from mpmtl_prob.data.tasks import TaskData


def nmse(prediction: Prediction, test: TaskData, *, ddof: int = 0) -> float:
    """Compute the pooled nMSE: mean squared error over the variance of all targets.

    Args:
        prediction: predictions of the rows of ``test``.
        test: held-out rows.
        ddof: the variance divides by their number less ``ddof``: 0, or 1 as MATLAB's does.

    Raises:
        ValueError: predicted probabilities, or another ddof.

    >>> test = mp.TaskData.from_lists([np.eye(2), np.eye(2)], [[0.0, 2.0], [4.0, 6.0]])
    >>> prediction = mp.Prediction(test.y + 1.0, test.mask, test.tasks)
    >>> mp.evaluation.nmse(prediction, test), mp.evaluation.nmse_within(prediction, test)
    (0.2, 1.0)
    """
    _check_numbers(prediction, test)
    _check_ddof(ddof)
    return float(np.mean((prediction.means - test.targets) ** 2) / np.var(test.targets, ddof=ddof))


def nmse_within(prediction: Prediction, test: TaskData, *, ddof: int = 0) -> float:
    """Compute squared errors over squared deviations from each task's own test mean, as in the papers' figures.

    Args:
        prediction: predictions of the rows of ``test``.
        test: held-out rows.
        ddof: with 1 a task of n rows counts with n times its variance over n - 1, as in MATLAB, in which the papers' figures
            were made: its deviations are larger by n / (n - 1), and the nMSE smaller. A task of one row has none.

    Raises:
        ValueError: predicted probabilities, or another ddof.
    """
    _check_numbers(prediction, test)
    _check_ddof(ddof)
    mean = np.add.reduceat(test.targets, test.offsets[:-1]) / test.row_counts
    share = test.row_counts / np.maximum(test.row_counts - ddof, 1)
    deviation = test.targets - np.repeat(mean, test.row_counts)
    return float(
        np.sum((prediction.means - test.targets) ** 2) / np.sum(np.repeat(share, test.row_counts) * deviation**2)
    )


def coverage(prediction: Prediction, test: TaskData, probability: float = 0.9) -> float:
    """Compute the share of targets inside their central interval of the given probability.

    It is nan for a point predictor, and for intervals of a probability, which cannot contain a target -1 or 1.
    """
    check_rows(prediction, test)
    if prediction.row_draws is None or prediction.quantity == "probability":
        return float("nan")
    lower, upper = prediction.interval_of_rows(probability)
    return float(np.mean((lower <= test.targets) & (test.targets <= upper)))


def auc(prediction: Prediction, test: TaskData) -> float:
    """Compute the mean over tasks of the area under the ROC curve: P(positive row scores above a negative), ties half.

    Positive rows have target 1, negative rows any other target. A task without rows of both kinds is left out; the result
    is nan if no task is left. A score that is not a number is an error, not the lowest rank.

    Raises:
        ValueError: predictions of other rows, or scores that are not numbers.
    """
    check_rows(prediction, test)
    if bad := int(np.sum(np.isnan(prediction.means))):
        raise ValueError(f"prediction: expected numbers, got {bad} that are not")
    from scipy.stats import rankdata  # takes a second to import

    areas = []
    for begin, end in zip(test.offsets[:-1], test.offsets[1:], strict=True):
        score, positive = prediction.means[begin:end], test.targets[begin:end] == 1
        ones, others = int(positive.sum()), int((~positive).sum())
        if ones and others:
            rank_sum = rankdata(score)[positive].sum()  # Mann-Whitney; tied scores share their mean rank
            areas.append((rank_sum - ones * (ones + 1) / 2) / (ones * others))
    return float(np.mean(areas)) if areas else float("nan")


def log_score(prediction: Prediction, test: TaskData) -> float:
    """Compute the mean log predictive probability of targets -1 and 1, or 0 and 1: at most 0, minus the logistic loss.

    For a posterior it uses the predictive probabilities. For an estimator with the logistic loss, whose predictions are log
    odds, it is the mean of log 1 / (1 + exp(-y x'w)).

    Raises:
        ValueError: predictions of other rows, or targets that are neither -1 and 1 nor 0 and 1.
    """
    check_rows(prediction, test)
    if impossible("binary", test.targets).any():
        raise ValueError("test: expected targets -1 and 1, or 0 and 1, for a log score, got others")
    y, score = np.where(test.targets > 0, 1.0, -1.0), prediction.means
    if prediction.quantity == "probability":
        return float(np.mean(np.log(np.maximum(np.where(y == 1, score, 1 - score), np.finfo(float).tiny))))
    return float(-np.mean(np.logaddexp(0.0, -y * score)))


def _check_ddof(ddof: int) -> None:
    if ddof not in (0, 1):
        raise ValueError(f"ddof: expected 0, or 1 for variances over n - 1, got {ddof!r}")


def _check_numbers(prediction: Prediction, test: TaskData) -> None:
    check_rows(prediction, test)
    if prediction.quantity == "probability":
        raise ValueError("prediction: expected predicted targets, got probabilities; score them by auc or log_score")
