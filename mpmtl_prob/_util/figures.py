"""Drawing helpers for matplotlib: axes, forest plots, and panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

GREY = "#4a5568"
_LETTER = 0.065  # width in inches of one letter of a row's label
_TITLE = 26  # letters that fit in one line of a panel's title


def forest(
    shown: xr.DataTree | dict[str, xr.DataTree], label: str, probability: float, apart: str | None = None
) -> Any:
    """Draw a forest plot: a row per label with the median, the 50 % interval and a wider interval of every tree's draws.

    Args:
        shown: the tree to draw, or several by name, in one color each. The first variable of a tree is drawn.
        label: the dimension of the rows. A tree may lack some rows, and trees may have different numbers of draws.
        probability: of the wider interval.
        apart: a row whose numbers have another order of magnitude. It is drawn in its own panel below.

    Returns:
        The Axes of all rows except ``apart``, with a legend where there are several trees.
    """
    import matplotlib.pyplot as plt

    several = dict(shown) if isinstance(shown, dict) else {"": shown}
    draws = {name: _by_row(tree, label) for name, tree in several.items()}
    rows = list(dict.fromkeys(row for one in draws.values() for row in one))
    parts = [part for part in ([row for row in rows if row != apart], [row for row in rows if row == apart]) if part]
    per_row = 0.16 + 0.1 * len(several)
    beside = 0.5 + _LETTER * max(map(len, several)) if isinstance(shown, dict) else 0.0  # the legend
    size = (4.0 + _LETTER * min(max(map(len, rows)), _TITLE) + beside, 0.7 + 0.5 * len(parts) + per_row * len(rows))
    _, grid = plt.subplots(
        len(parts),
        1,
        figsize=size,
        squeeze=False,
        layout="constrained",
        height_ratios=[len(part) + 0.5 for part in parts],
    )
    axes = grid[:, 0]
    for ax, part in zip(axes, parts, strict=True):
        _rows(ax, part, draws, probability)
    if isinstance(shown, dict):
        axes[0].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[0].set_title(f"median, 50 % and {100 * probability:g} % intervals", fontsize=8, loc="right", color=GREY)
    return axes[0]


def _by_row(tree: xr.DataTree, label: str) -> dict[str, Any]:
    """Return the draws (S,) of the first variable, by row."""
    (first, *_) = tree["posterior"].data_vars.values()
    flat = first.stack(sample=("chain", "draw"))
    return {str(row): flat.isel({label: i}).values for i, row in enumerate(first[label].values)}


def _rows(ax: Any, rows: Sequence[str], draws: dict[str, dict[str, Any]], probability: float) -> None:
    """Draw rows from the top; the intervals of several trees for one row stand close together."""
    for k, (name, one) in enumerate(draws.items()):
        shift = 0.6 * ((k + 0.5) / len(draws) - 0.5)
        for i, row in enumerate(rows):
            if row not in one:
                continue
            y = -(i + shift)
            for inside, width in ((probability, 1.2), (0.5, 3.0)):
                ends = np.quantile(one[row], [(1 - inside) / 2, (1 + inside) / 2])
                ax.plot(ends, [y, y], color=f"C{k}", lw=width, alpha=0.6, solid_capstyle="butt")
            ax.scatter([np.median(one[row])], [y], s=22, color=f"C{k}", zorder=3)
        ax.plot([], [], "o-", color=f"C{k}", ms=4, label=name)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(labelsize=8, left=False)
    ax.grid(axis="x", lw=0.4, alpha=0.5)
    ax.set_yticks([-i for i in range(len(rows))], [fill(row, _TITLE) for row in rows])
    ax.set_ylim(-(len(rows) - 0.4), 0.6)


def tree_of(name: str, values: Any, dimension: str, names: list[str]) -> xr.DataTree:
    """Return draws (chain, draw, name) as a tree for ArviZ."""
    import arviz as az

    return az.from_dict({"posterior": {name: values}}, dims={name: [dimension]}, coords={dimension: names})


def axes_of(ax: Axes | None, figsize: tuple[float, float] = (6.4, 4.0)) -> Any:
    """Return the given Axes, or new ones. Raises ImportError without matplotlib."""
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
    """Return panels as Axes with shared rows and row labels, at most four side by side.

    Args:
        titles: of the panels.
        rows: labels, from top to bottom, of every panel.
        title: of the figure.
        per_row: height of a row, in inches.
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
