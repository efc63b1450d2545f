"""Figure of the adaptation experiment: errors of all arms, and errors against n and eps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.papers.adaptation_arms import ORACLE

_OURS, _PAPER, _OTHERS = "C0", "C3", "0.45"
_COLORS = {"one release": _OURS, "printed": _PAPER, "frozen": _PAPER, "profiled": _PAPER}


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the figure as PNG. Raises ImportError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'mpmtl-prob[plots]'") from None
    page = Figure(figsize=(11, 10.5), layout="constrained")
    axes = page.subplots(2, 2).ravel()
    for ax, name in zip(axes, ("made", "school", "plain"), strict=False):
        _dots(ax, report["parts"][name])
    _curves(axes[3], report["parts"]["curves"])
    fast = ", fast version" if report["fast"] else ""
    page.suptitle(
        f"{report['title']}{fast}: hollow is tuned with the test rows, bars are two standard errors", fontsize=12
    )
    page.savefig(path, dpi=100, metadata={"Software": None})


def _dots(ax: Any, part: Mapping[str, Any]) -> None:
    """Plot errors, with one line per arm and one symbol per cell."""
    rows: Sequence[Mapping[str, Any]] = part["tables"][0]
    arms = [row["arm"] for row in rows if not row["arm"].endswith(ORACLE)]
    cells = [key for key in rows[0] if key != "arm" and not key.endswith("s.e.")]
    for k, cell in enumerate(cells):
        for row in rows:
            name = row["arm"].removesuffix(ORACLE)
            at = len(arms) - arms.index(name) + 0.6 * (k / max(len(cells) - 1, 1) - 0.5)
            color = _COLORS.get(name.removesuffix(", domains"), _OTHERS)
            oracle = row["arm"] != name
            ax.errorbar(row[cell], at, xerr=2 * (row[f"{cell}, s.e."] or 0), fmt="os^Dv<>"[k % 7], ms=4, color=color,
                        mfc="white" if oracle else color, lw=0.8)  # fmt: skip
        ax.plot([], [], "os^Dv<>"[k % 7], color="0.2", ms=4, label=cell)
    ax.set_yticks(range(len(arms), 0, -1), arms, fontsize=8)
    ax.set(xscale="log", xlabel="test error", title=part["title"])
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    ax.spines[["top", "right"]].set_visible(False)


def _curves(ax: Any, part: Mapping[str, Any]) -> None:
    rows = {row["arm"]: row for row in part["tables"][0]}
    cells = [key for key in rows["profiled"] if key != "arm" and not key.endswith("s.e.")]
    sizes = list(dict.fromkeys(cell.rpartition(", eps ")[0] for cell in cells))
    for k, size in enumerate(sizes):
        of_size = [cell for cell in cells if cell.rpartition(", eps ")[0] == size]
        eps = np.array([float(cell.rpartition(", eps ")[2]) for cell in of_size])
        ax.plot(eps, [rows["profiled"][c] for c in of_size], "o-", color=f"C{k}", label=f"profiled, {size}")
        ax.plot(eps, [rows["noisy gradient"][c] for c in of_size], "s:", color=f"C{k}", ms=4, mfc="white")
        ax.axhline(rows["target, not private"][of_size[-1]], color=f"C{k}", lw=0.6)
    ax.plot([], [], "s:", color="0.2", mfc="white", ms=4, label="noisy gradient, target alone")
    ax.plot([], [], "-", color="0.2", lw=0.6, label="target, not private")
    ax.set(xscale="log", yscale="log", xlabel="eps", ylabel="test error", title=part["title"])
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    ax.spines[["top", "right"]].set_visible(False)
