"""Pictures of what tasks share and of what privacy costs. Every function returns its matplotlib Axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL, Comparison
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior, Subspace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#dd6b20", "#4a5568"


def spectrum(
    posterior: SharedPosterior | OwnerPosteriors,
    reference: ArrayLike | None = None,
    *,
    reference_label: str = "without noise",
    probability: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Eigenvalues of the shared covariance as shares of their sum, with intervals, against a reference.

    Args:
        posterior: of the shared covariance.
        reference: a covariance or second moment (d, d) to compare with: the truth, or the one without noise.
        reference_label: its name in the legend.
        probability: of the intervals.
        ax: to draw on.
    """
    ax = _axes(ax)
    draws = posterior.subspace(1).spectrum.values
    tail = (1 - probability) / 2
    low, middle, high = np.quantile(draws, [tail, 0.5, 1 - tail], axis=(0, 1))
    x = np.arange(1, len(middle) + 1)
    ax.vlines(x, low, high, color=_BLUE, lw=5, alpha=0.35, label=f"{100 * probability:g} % interval")
    ax.plot(x, middle, "o", color=_BLUE, ms=4, label="posterior median")
    if reference is not None:
        eigenvalues = np.linalg.eigvalsh(np.asarray(reference, dtype=np.float64))[::-1]
        share = np.maximum(eigenvalues, 0) / eigenvalues.sum()
        ax.plot(x, np.where(share > 0, share, np.nan), "x", color=_ORANGE, ms=6, mew=1.8, label=reference_label)
    ax.set(yscale="log", xlabel="component", ylabel="share of variance", title="Spectrum of the shared covariance")
    ax.set_ylim(bottom=max(low[low > 0].min() / 3, 1e-6))
    ax.legend(frameon=False)
    return ax


def projector(subspace: Subspace, *, ax: Axes | None = None) -> Axes:
    """Heat map of the mean projector on the leading subspace: which features move together, over all tasks."""
    ax = _axes(ax, figsize=(5.6, 4.8))
    values = subspace.projector.values
    names = [str(name) for name in subspace.projector["feature"].values]
    image = ax.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    step = max(1, len(names) // 30)
    ticks = np.arange(0, len(names), step)
    ax.set_xticks(ticks, [names[t] for t in ticks], rotation=90, fontsize=7)
    ax.set_yticks(ticks, [names[t] for t in ticks], fontsize=7)
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    ax.set_title(f"Mean projector on the leading {subspace.rank} directions")
    return ax


def error_against_epsilon(
    comparison: Comparison, epsilons: Sequence[float], *, metric: str = "nmse_within", ax: Axes | None = None
) -> Axes:
    """Error of every arm of :func:`mpmtl_prob.evaluation.standard_fits` against the budget.

    Args:
        comparison: of the standard fits.
        epsilons: their budgets.
        metric: "nmse" or "nmse_within".
        ax: to draw on.
    """
    ax = _axes(ax)
    levels = {STL: ("--", _GREY), ALONE: (":", _GREY), NON_PRIVATE: ("-", _GREY)}
    for name, (style, color) in levels.items():
        ax.axhline(comparison[name][metric], ls=style, color=color, lw=1.2, label=name)
    curves = {
        "Algorithm 2": ("s-", _ORANGE),
        "Algorithm 3": ("^-", "#c9a227"),
        "noise-aware posterior": ("o-", _BLUE),
    }
    order = sorted(epsilons)
    for name, (style, color) in curves.items():
        error = [comparison[f"{name}, eps = {epsilon:g}"][metric] for epsilon in order]
        proved = all(_delta_is_small(comparison[f"{name}, eps = {epsilon:g}"]) for epsilon in order)
        ax.plot(order, error, style, color=color, ms=5, label=name if proved else f"{name} (eps only claimed)")
    ax.set(xscale="log", xlabel="eps", ylabel=metric.replace("_", ", "), title="What privacy costs")
    ax.legend(frameon=False, fontsize=8)
    return ax


def _delta_is_small(row: Mapping[str, Any]) -> bool:
    """Whether what is proved at this eps is worth calling by it."""
    return row["proved"] is not None and row["proved"].delta < 0.01


def _axes(ax: Axes | None, figsize: tuple[float, float] = (6.4, 4.0)) -> Any:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'mpmtl-prob[plots]'") from None
    axes = plt.subplots(figsize=figsize, layout="constrained")[1]
    axes.spines[["top", "right"]].set_visible(False)
    return axes
