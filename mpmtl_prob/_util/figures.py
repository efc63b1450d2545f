"""Axes to draw on, and ArviZ's forests on a figure of their size."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

GREY = "#4a5568"
#: Inches of a letter of a row's label; letters of a line over a panel.
_LETTER, _TITLE = 0.065, 26


def forest(shown: xr.DataTree | dict[str, xr.DataTree], label: str, probability: float) -> Any:
    """ArviZ's forest plot, one row per label; the Axes that hold the intervals, with a legend where there are several."""
    import arviz as az
    from matplotlib.lines import Line2D

    several = list(shown.items()) if isinstance(shown, dict) else [("", shown)]
    rows = several[0][1]["posterior"].sizes[label]
    size = (6.4, 1.0 + rows * (0.16 + 0.08 * len(several)))
    drawn = az.plot_forest(
        shown,
        combined=True,
        labels=[label],
        point_estimate="median",
        ci_kind="eti",
        ci_probs=(0.5, probability),
        backend="matplotlib",
        figure_kwargs={"figsize": size, "figsize_units": "inches", "width_ratios": [1, 3], "layout": "constrained"},
    )
    ax = drawn.viz["plot"].sel(column="forest").item()
    if isinstance(shown, dict):
        color = drawn.get_aes_as_dataset("color").to_array().sel(model=list(shown)).values.ravel()
        handles = [Line2D([], [], color=c, label=name) for c, name in zip(color, shown, strict=True)]
        ax.legend(handles=handles, frameon=False, fontsize=8)
    ax.set_title(f"median, 50 % and {100 * probability:g} % intervals", fontsize=8, loc="right", color=GREY)
    return ax


def tree_of(name: str, values: Any, dimension: str, names: list[str]) -> xr.DataTree:
    """Return draws (chain, draw, name) as ArviZ takes them."""
    import arviz as az

    return az.from_dict({"posterior": {name: values}}, dims={name: [dimension]}, coords={dimension: names})


def axes_of(ax: Axes | None, figsize: tuple[float, float] = (6.4, 4.0)) -> Any:
    """Return the given Axes, or new ones. Raises ImportError where matplotlib is not there."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'mpmtl-prob[plots]'") from None
    axes = plt.subplots(figsize=figsize, layout="constrained")[1]
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def panels(titles: Sequence[Any], rows: Sequence[str], title: str, *, per_row: float = 0.26) -> list[Any]:
    """Return Axes side by side, four at most, that share their rows and the labels of these.

    Args:
        titles: of the panels.
        rows: labels, from top to bottom, of every panel.
        title: of the figure.
        per_row: inches.
    """
    import matplotlib.pyplot as plt

    columns = min(len(titles), 4)
    lines = -(-len(titles) // columns)
    labels = 0.4 + _LETTER * max(map(len, rows))
    size = (labels + max(2.2 * columns, 3.6), 0.7 + lines * (0.65 + per_row * len(rows)))
    figure, grid = plt.subplots(lines, columns, figsize=size, sharey=True, squeeze=False, layout="constrained")
    axes = list(grid.ravel())
    for ax in axes[len(titles) :]:
        ax.remove()
    for ax, name in zip(axes, titles, strict=False):
        ax.set_title(fill(str(name), _TITLE), fontsize=9)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(labelsize=8, left=False)
        ax.grid(axis="x", lw=0.4, alpha=0.5)
        ax.set_yticks(range(len(rows)), rows)
        ax.set_ylim(len(rows) - 0.4, -0.6)
    figure.suptitle(title, fontsize=10)
    return axes[: len(titles)]
