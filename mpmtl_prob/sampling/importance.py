"""Pareto-smoothed importance weights, and draws that are resampled by them, for all tasks at once.

Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25(72).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import Draws, FloatArray

#: Number of proposals for each resampled draw.
_OVERSAMPLED = 2
#: Smallest number of proposals, so that their tail is long enough to fit a Pareto distribution.
_LEAST = 200
#: Smallest number of weights in a tail to which a Pareto distribution is fitted.
_LEAST_TAIL = 5
#: The Pareto k up to which averages under the weights can be trusted.
KHAT_LIMIT = 0.7


def num_proposals(num_draws: int) -> int:
    """Return how many proposals are drawn so that ``num_draws`` can be resampled from them."""
    return max(_OVERSAMPLED * num_draws, _LEAST)


def smoothed(log_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return normalised, smoothed importance weights and their Pareto k.

    Args:
        log_ratio: log density ratios by task and point, (m, S).

    Returns:
        Weights (m, S) and k (m,); both nan for a task with a ratio that is not finite. Averages under weights whose k is
        above about .7 are not to be trusted.
    """
    weight = np.full(log_ratio.shape, np.nan)
    khat = np.full(len(log_ratio), np.nan)
    for i, of_task in enumerate(log_ratio):
        if not np.isfinite(of_task).all():
            continue
        if np.ptp(of_task) < 1e-9:  # the approximation is exact, so that there is no tail to smooth
            weight[i], khat[i] = 1 / len(of_task), 0.0
            continue
        log_weight, khat[i] = _with_smooth_tail(of_task - of_task.max())
        unnormalised = np.exp(log_weight - log_weight.max())
        weight[i] = unnormalised / unnormalised.sum()
    return weight, khat


def _with_smooth_tail(log_weight: FloatArray) -> tuple[FloatArray, float]:
    """Replace the largest weights by quantiles of a generalised Pareto distribution that is fitted to them.

    Args:
        log_weight: log weights, (S,), at most 0.

    Returns:
        Log weights, (S,), and the distribution's k. A tail to which none can be fitted is returned as it is, with k = nan.
    """
    size = len(log_weight)
    number = int(min(size / 5, 3 * np.sqrt(size)))
    if number < _LEAST_TAIL:
        return log_weight, np.nan
    order = np.argsort(log_weight)
    tail = order[-number:]
    threshold = np.exp(log_weight[order[-number - 1]])
    k, sigma = _pareto(np.exp(log_weight[tail]) - threshold)
    if not np.isfinite(k):
        return log_weight, k
    exponential = -np.log1p(-(np.arange(number) + 0.5) / number)  # quantiles of the standard exponential distribution
    quantiles = sigma * (exponential if abs(k) < 1e-12 else np.expm1(k * exponential) / k)
    out = log_weight.copy()
    out[tail] = np.minimum(np.log(quantiles + threshold), 0.0)  # no smoothed weight exceeds the largest raw one
    return out, k


def _pareto(excess: FloatArray) -> tuple[float, float]:
    """Fit a generalised Pareto distribution to values above a threshold.

    Args:
        excess: value less threshold, (M,), in ascending order.

    Returns:
        k and sigma; nan where the smallest quarter of the values are equal.

    Source: Zhang and Stephens (2009), Technometrics 51(3), with the prior of Vehtari et al., which counts as ten values with
    k = .5.
    """
    M = len(excess)
    number = 30 + int(np.sqrt(M))
    quarter = excess[int(M / 4 + 0.5) - 1]
    if quarter <= excess[0]:
        return np.nan, np.nan
    b = 1 / excess[-1] + (1 - np.sqrt(number / (np.arange(number) + 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_likelihood = M * (np.log(-b / k) - k - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    b_mean = float(weight @ b / weight.sum())
    k_mean = float(np.log1p(-b_mean * excess).mean())
    return (M * k_mean + 10 * 0.5) / (M + 10), -k_mean / b_mean


def systematic(weight: FloatArray, number: int, begin: float) -> NDArray[np.int64]:
    """Resample systematically: pick every point number * weight times, rounded up or down.

    Args:
        weight: normalised weights, (S,).
        number: of picks.
        begin: the place of the first pick within its step, from 0 to 1.

    Returns:
        Indices of the picked points, (number,), in ascending order.
    """
    height = (np.arange(number) + begin) / number
    return np.minimum(np.searchsorted(np.cumsum(weight), height), len(weight) - 1)


def resampled(
    proposals: Draws,
    mean: FloatArray,
    num_draws: int,
    rng: np.random.Generator,
    begins: FloatArray | None = None,
) -> tuple[FloatArray, Draws, FloatArray]:
    """Resample draws of an approximation by their importance weights, so that they follow the exact posterior.

    Args:
        proposals: draws of the approximation, (S, ..., m) each: ``log_ratio`` (S, m), the log of the exact over the
            approximate density up to a constant of the task, ``W`` (S, d, m) and others. ``centre`` (S, d, m) is the mean of
            W given the rest of a draw, for tasks where W varies too much to be averaged, and nan for other tasks.
        mean: exact mean of W under the approximation, (d, m).
        num_draws: number of draws; a proposal with a large weight is drawn more than once.
        rng: generator that shuffles the draws of every task.
        begins: the place of every task's first pick within its step, from 0 to 1, (m,); default: drawn.

    Returns:
        The posterior mean of W (d, m), the draws without ``log_ratio`` and ``centre``, and the Pareto k of every task (m,).
    """
    weight, khat = smoothed(proposals["log_ratio"].T)
    # the mean under the approximation is known, so that only the weights' correction of it has a Monte Carlo error
    W = mean + np.einsum("ms,sdm->dm", weight - 1 / weight.shape[1], proposals["W"])
    if "centre" in proposals:
        centre = np.einsum("ms,sdm->dm", weight, proposals["centre"])
        W = np.where(np.isnan(centre), W, centre)
    begins = rng.random(len(weight)) if begins is None else begins
    index = np.stack([systematic(w, num_draws, b) for w, b in zip(weight, begins, strict=True)], axis=1)  # (S', m)
    index = rng.permuted(index, axis=0)
    task = np.arange(len(weight))
    picked = {k: np.moveaxis(v, -1, 1)[index, task] for k, v in proposals.items() if k not in ("log_ratio", "centre")}
    return W, {k: np.moveaxis(v, 1, -1) for k, v in picked.items()}, khat
