"""Importance weights with Pareto-smoothed tails, and draws resampled by them, for all tasks at once.

Source: Vehtari, Simpson, Gelman, Yao and Gabry (2024), JMLR 25(72).
"""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.sampling.chains import Draws

#: Proposals per draw that is kept, and the least number of them: a tail takes some to be fitted.
_OVERSAMPLED = 2
_LEAST = 200


def num_proposals(num_draws: int) -> int:
    """How many are drawn so that num_draws can be kept."""
    return max(_OVERSAMPLED * num_draws, _LEAST)


def smoothed(log_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Normalised weights, (m, S), and their Pareto k, (m,), of log density ratios (m, S); nan for a task with a ratio nan.

    Above a k of about .7 averages under the weights are not to be trusted.
    """
    known = np.isfinite(log_ratio).all(axis=1)
    weight, khat = np.full(log_ratio.shape, np.nan), np.full(len(log_ratio), np.nan)
    even = known.copy()
    even[known] = np.ptp(log_ratio[known], axis=1) < 1e-9  # nothing to smooth: the approximation is exact
    weight[even], khat[even] = 1 / log_ratio.shape[1], 0.0
    known &= ~even
    if known.any():
        import arviz_stats  # noqa: F401 - gives arrays their .azstats; it takes two seconds to import
        import xarray as xr

        # ArviZ takes minus the log of the weights, as leave-one-out hands them over
        found = xr.DataArray(-log_ratio[known], dims=("task", "sample")).azstats.psislw(dim="sample")
        log_weight, khat[known] = found[0].transpose("task", "sample").values, found[1].values
        each = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        weight[known] = each / each.sum(axis=1, keepdims=True)
    return weight, khat


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
    # systematic: a proposal is kept as often as its weight says, rounded up or down
    begins = rng.random(len(weight)) if begins is None else begins
    height = (np.arange(num_draws)[:, None] + begins) / num_draws  # (S', m)
    index = np.stack([np.searchsorted(np.cumsum(w), h) for w, h in zip(weight, height.T, strict=True)], axis=1)
    index = rng.permuted(np.minimum(index, weight.shape[1] - 1), axis=0)
    task = np.arange(len(weight))
    kept = {k: np.moveaxis(v, -1, 1)[index, task] for k, v in proposals.items() if k not in ("log_ratio", "centre")}
    return W, {k: np.moveaxis(v, 1, -1) for k, v in kept.items()}, khat
