"""Figure of the threat models: exact curves, measured dots, and bars of two standard errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob.threat_models import Plan
from mpmtl_prob.threat_models.plan import COLORS, NAMES

Rows = list[Mapping[str, Any]]
_PAIRS = {"all others / one other": COLORS["all others"], "billboard / all others": COLORS["billboard"]}


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the figure as PNG. Raises ImportError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'mpmtl-prob[plots]'") from None
    page = Figure(figsize=(11, 17), layout="constrained")
    tables = {name: part["tables"] for name, part in report["parts"].items()}
    for ax, (name, panel) in zip(page.subplots(4, 2).ravel(), _PANELS.items(), strict=True):
        panel(ax, tables[name.split(",")[0]])
        ax.title.set_fontsize(10)
        if name != "matrix":
            ax.spines[["top", "right"]].set_visible(False)
    fast = ", fast version" if report["fast"] else ""
    page.suptitle(f"{report['title']}{fast}: lines are exact, dots are measured, with two standard errors", fontsize=12)
    page.savefig(path, dpi=100, metadata={"Software": None})


def _line(ax: Any, rows: Rows, across: str, color: str, label: str, **style: Any) -> None:
    """Draw exact values as a line, and measured ones as dots."""
    x, exact, measured, se = (
        np.array([row[key] for row in rows], float) for key in (across, "exact", "measured", "s.e.")
    )
    ax.plot(x, exact, color=color, lw=1.6, ls=style.get("ls", "-"), label=label)
    marks = {"fmt": style.get("fmt", "o"), "ms": 4.5, "mfc": style.get("mfc", color), "capsize": 2, "lw": 1}
    ax.errorbar(x, measured, 2 * se, color=color, **marks)


def _people(ax: Any, tables: list[Rows]) -> None:
    for name, color in COLORS.items():
        _line(ax, [row for row in tables[0] if row["noise against"] == name], "people", color, NAMES[name])
    slopes = ", ".join(f"{row['exact']:.2f}" for row in tables[1])
    ax.set(xscale="log", yscale="log", xlabel="people", ylabel="mean loss, not clipped",
           title=f"Error against people\n(slopes of the price of privacy: {slopes})")  # fmt: skip
    ax.legend(frameon=False, fontsize=8)


def _questions(ax: Any, tables: list[Rows]) -> None:
    for name, color in COLORS.items():
        mean, sign = ([row for row in rows if row["noise against"] == name] for rows in tables[:2])
        _line(ax, mean, "questions", color, NAMES[name])
        _line(ax, sign, "questions", color, "", ls="--", fmt="s", mfc="white")
    ax.plot([], [], "s--", color="0.2", mfc="white", label="signs, where they are hardest")
    slopes = " and ".join(f"{row['exact']:.2f}" for row in tables[2])
    ax.set(xscale="log", yscale="log", xlabel="questions", ylabel="mean loss",
           title=f"Error against questions, 1000 people\n(billboard: slopes {slopes}, means and signs)")  # fmt: skip
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.45)  # room for the legend
    ax.legend(frameon=False, fontsize=8, loc="upper left")


def _ratios(ax: Any, tables: list[Rows]) -> None:
    for pair, color in _PAIRS.items():
        formula = "t - 1" if pair.startswith("all") else "d / (t - 1)"
        _line(ax, [row for row in tables[2] if row["ratio"] == pair], "people", color, f"{pair}: {formula}")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="people",
        ylabel="ratio of the prices",
        title="How many times as much privacy costs",
    )
    ax.legend(frameon=False, fontsize=8)


def _coalitions(ax: Any, tables: list[Rows]) -> None:
    for name, label in (
        ("one other", "noise for one other: sqrt(2 rho k)"),
        ("these k", "noise for these k: sqrt(2 rho)"),
    ):
        color = COLORS["one other" if name == "one other" else "all others"]
        _line(ax, [row for row in tables[0] if row["noise against"] == name], "k", color, label)
    ks = sorted({row["k"] for row in tables[0]})
    ax.set(xscale="log", xlabel="people who look together, k", ylabel="mu of the likelihood ratio", ylim=(0, None),
           title="A coalition attacks\n(50 people, rho = .2)")  # fmt: skip
    ax.set_xticks(ks, map(str, ks))
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)


def _matrix(ax: Any, tables: list[Rows]) -> None:
    kinds, seen = (list(dict.fromkeys(row[key] for row in tables[0])) for key in ("noise against", "looks"))
    values = np.full((len(kinds), len(seen)), np.nan)
    for row in tables[0]:
        at = kinds.index(row["noise against"]), seen.index(row["looks"])
        covered = row["LR AUC"] is not None
        if covered:
            values[at] = row["LR AUC"]
        text = f"LR {row['LR AUC']:.3f}\ntracing {row['tracing AUC']:.2f}" if covered else "shows own outputs"
        dark = covered and row["LR AUC"] > 0.85
        ax.text(at[1], at[0], f"{text}\n{row['promise']}", ha="center", va="center", fontsize=9,
                color="white" if dark else "0.1", weight="bold" if row["promise"] == "pass" else None)  # fmt: skip
    ax.imshow(values, cmap="Reds", vmin=0.5, vmax=1.1, aspect="auto")
    ax.set_facecolor("0.9")
    ax.set_xticks(range(len(seen)), seen)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set(
        xlabel="who looks",
        ylabel="noise against",
        title="Who recognises a participant (AUC)\nand whether the promise holds",
    )


def _newcomers(ax: Any, tables: list[Rows]) -> None:
    rows = tables[0]
    eps = [row["eps"] for row in rows]
    ax.plot(eps, [row["at most"] for row in rows], color="0.4", ls="--", label="at most, by Theorem 3.2")
    _line(ax, rows, "eps", COLORS["billboard"], "newcomers, who read the billboard")
    ax.plot(eps, [row["those on it"] for row in rows], "x", color="0.1", ms=7, label="those on it, measured")
    ax.set(xscale="log", yscale="log", xlabel="eps of the billboard", ylabel="mean loss, clipped",
           title="Newcomers\n(100 people, 300 questions)")  # fmt: skip
    ax.set_xticks(eps, [f"{epsilon:g}" for epsilon in eps])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8, loc="lower left")


def _needed(ax: Any, tables: list[Rows]) -> None:
    most = max(row["questions"] for row in tables[0])
    Plan(1.0, 1e-6, most, error=0.01).plot(ax)
    ax.set_title(f"People needed for an error of .01\n(1, 1e-6), {most:,} questions")


def _calibration(ax: Any, tables: list[Rows]) -> None:
    ax.plot([0, 1], [0, 1], color="0.6", lw=0.8, ls=":")
    for which, color, off in (("known", COLORS["billboard"], -0.004), ("not known", COLORS["one other"], 0.004)):
        rows = [row for row in tables[0] if row["p"] == which and row["cases"] >= 30]
        said, true, se = (np.array([row[key] for row in rows]) for key in ("exact", "measured", "s.e."))
        ax.errorbar(said + off, true, 2 * se, color=color, fmt="o", ms=5, capsize=2, lw=1, label=f"p {which}")
    stated = [row for row in tables[0] if row["stated: said"] is not None]
    ax.plot(*([row[key] for row in stated] for key in ("stated: said", "stated: true")), "x", color="0.2", ms=7,
            label="stated beforehand, p known")  # fmt: skip
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="said: took part with this probability", ylabel="took part",
           title="Probabilities of having taken part\n(a billboard, rho = 2)")  # fmt: skip
    ax.legend(frameon=False, fontsize=8, loc="upper left")


_PANELS: dict[str, Callable[[Any, list[Rows]], None]] = {
    "people": _people,
    "people, ratios": _ratios,
    "questions": _questions,
    "needed": _needed,
    "coalitions": _coalitions,
    "matrix": _matrix,
    "newcomers": _newcomers,
    "calibration": _calibration,
}
