"""Importance weights with Pareto-smoothed tails, and draws resampled by them, for all tasks at once.

Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25(72).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.sampling.chains import Draws

#: Proposals per draw that is kept, and the least number of them: a tail takes some to be fitted.
_OVERSAMPLED = 2
_LEAST = 200
#: Weights of a tail, at least, to which a law can be fitted.
_LEAST_TAIL = 5
#: The Pareto k up to which averages under the weights can be trusted.
KHAT_LIMIT = 0.7


def num_proposals(num_draws: int) -> int:
    """Return how many are drawn so that num_draws can be kept."""
    return max(_OVERSAMPLED * num_draws, _LEAST)


def smoothed(log_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Normalised weights, (m, S), and their Pareto k, (m,), of log density ratios (m, S); nan for a task with a ratio nan.

    Above a k of about .7 averages under the weights are not to be trusted.
    """
    weight, khat = np.full(log_ratio.shape, np.nan), np.full(len(log_ratio), np.nan)
    for i, own in enumerate(log_ratio):
        if not np.isfinite(own).all():
            continue
        if np.ptp(own) < 1e-9:  # nothing to smooth: the approximation is exact
            weight[i], khat[i] = 1 / len(own), 0.0
            continue
        log_weight, khat[i] = _with_smooth_tail(own - own.max())
        each = np.exp(log_weight - log_weight.max())
        weight[i] = each / each.sum()
    return weight, khat


def _with_smooth_tail(log_weight: FloatArray) -> tuple[FloatArray, float]:
    """Log weights (S,), at most 0, whose largest are those of a Pareto law that is fitted to them, and that law's k.

    A tail to which none can be fitted is left as it is, and its k is nan.
    """
    size = len(log_weight)
    number = int(min(size / 5, 3 * np.sqrt(size)))
    if number < _LEAST_TAIL:
        return log_weight, np.nan
    order = np.argsort(log_weight)
    tail, cut = order[-number:], np.exp(log_weight[order[-number - 1]])
    k, sigma = _pareto(np.exp(log_weight[tail]) - cut)
    if not np.isfinite(k):
        return log_weight, k
    share = -np.log1p(-(np.arange(number) + 0.5) / number)
    quantiles = sigma * (share if abs(k) < 1e-12 else np.expm1(k * share) / k)
    out = log_weight.copy()
    out[tail] = np.minimum(np.log(quantiles + cut), 0.0)  # none is more than the largest was
    return out, k


def _pareto(excess: FloatArray) -> tuple[float, float]:
    """k and sigma of a generalised Pareto law fitted to values above its threshold, (M,), in ascending order; nan if none is.

    Source: Zhang and Stephens (2009), Technometrics 51(3), with the prior of Vehtari et al., that of ten values with k = .5.
    """
    M = len(excess)
    number, quarter = 30 + int(np.sqrt(M)), excess[int(M / 4 + 0.5) - 1]
    if quarter <= excess[0]:
        return np.nan, np.nan
    b = 1 / excess[-1] + (1 - np.sqrt(number / (np.arange(number) + 0.5))) / (3 * quarter)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_likelihood = M * (np.log(-b / k) - k - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    at = float(weight @ b / weight.sum())
    fitted = float(np.log1p(-at * excess).mean())
    return (M * fitted + 10 * 0.5) / (M + 10), -fitted / at


def systematic(weight: FloatArray, number: int, begin: float) -> NDArray[np.int64]:
    """Pick which of S points are kept, ``number`` in all: each as often as its weight (S,) says, rounded up or down.

    ``begin`` is where the first pick is within its step, from 0 to 1.
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
    """Draws of the exact posterior from those of an approximation.

    Args:
        proposals: of the approximation, (S, ..., m) each: ``log_ratio`` (S, m), exact over approximate log density up to a
            constant of the task, ``W`` (S, d, m) and others; ``centre`` (S, d, m), where W varies too much to be averaged,
            is its mean given the rest of a draw, and nan for tasks where it does not.
        mean: of W under the approximation, exactly, (d, m).
        num_draws: to keep; independent given the proposals, of which heavy ones are kept more than once.
        rng: picks.
        begins: where the first pick of every task is within its step, from 0 to 1, (m,); default drawn.

    Returns:
        The exact mean of W (d, m), the draws but for ``log_ratio`` and ``centre``, and the Pareto k of every task (m,).
    """
    weight, khat = smoothed(proposals["log_ratio"].T)
    # the proposals' own mean is known: only the difference that the weights make is left to chance
    W = mean + np.einsum("ms,sdm->dm", weight - 1 / weight.shape[1], proposals["W"])
    if "centre" in proposals:
        centre = np.einsum("ms,sdm->dm", weight, proposals["centre"])
        W = np.where(np.isnan(centre), W, centre)
    begins = rng.random(len(weight)) if begins is None else begins
    index = np.stack([systematic(w, num_draws, b) for w, b in zip(weight, begins, strict=True)], axis=1)  # (S', m)
    index = rng.permuted(index, axis=0)
    task = np.arange(len(weight))
    kept = {k: np.moveaxis(v, -1, 1)[index, task] for k, v in proposals.items() if k not in ("log_ratio", "centre")}
    return W, {k: np.moveaxis(v, 1, -1) for k, v in kept.items()}, khat
