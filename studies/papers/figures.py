"""Figures of the experiments, from reports and data sets: our curves with intervals, and the papers' curves."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from studies.papers import paper
from studies.papers.settings import (
    ALONE,
    AVERAGE,
    DP_AGGR,
    DP_MTRL,
    GROUP,
    GROUP_SPARSE,
    GROUP_SPARSE_2018,
    GROUP_SPARSE_UNIT,
    LASSO,
    LOW_RANK,
    LOW_RANK_2018,
    LOW_RANK_UNIT,
    POSTERIOR,
    REPLACEMENT,
    RIDGE,
    TRACE,
)

_STYLE = {
    RIDGE: ("#4a5568", "--"),
    LASSO: ("#a0aec0", "--"),
    ALONE: ("#4a5568", ":"),
    TRACE: ("#4a5568", "-"),
    GROUP: ("#a0aec0", "-"),
    AVERAGE: ("#a0aec0", "-."),
    LOW_RANK: ("#dd6b20", "-"),
    GROUP_SPARSE: ("#c9a227", "-"),
    LOW_RANK_2018: ("#b83280", "-"),
    LOW_RANK_UNIT: ("#553c9a", "-"),
    GROUP_SPARSE_2018: ("#ed64a6", "-"),
    GROUP_SPARSE_UNIT: ("#9f7aea", "-"),
    DP_MTRL: ("#38a169", "-"),
    DP_AGGR: ("#9f7aea", "-"),
    POSTERIOR: ("#2b6cb0", "-"),
    REPLACEMENT: ("#2c5282", ""),
}
_LABELS = {"nmse": "nMSE", "nmse_within": "nMSE within tasks", "auc": "average AUC"}


def draw(report: Mapping[str, Any], results: xr.Dataset, path: Path) -> None:
    """Draw the figure of a study as PNG. Raises ImportError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'mpmtl-prob[plots]'") from None
    draw: dict[str, Any] = {"fig2": _models, "fig3": _relations, "fig4": _exponents, "fig5": _rounds, "fig8": _sizes}
    arms_count = results.sizes["arm"]
    count = {
        "fig2": 3,
        "fig3": 2 + 2 * arms_count,
        "fig4": 1,
        "fig5": 2,
        "fig8": arms_count * results.sizes["data"],
    }.get(report["name"])
    arms, heat, has_own_panels = report["settings"]["arms"], report["name"] in ("fig2", "fig3"), report["name"] in draw
    scales = 1 if has_own_panels or len(_fine(arms)) == len(arms) else 2
    panels = count or scales * results.sizes["data"]
    columns = min(panels, 4 if heat else 2)
    rows = -(-panels // columns)
    height = 2.8 if heat else 4.6 if report["name"] == "fig8" else 6.4 if has_own_panels else 4.2
    page = Figure(
        # The legend needs the width of two panels.
        figsize=(
            (3.4 if heat else 5.4) * (columns if has_own_panels else 2),
            height * rows + (0.4 if has_own_panels else 2.8),
        ),
        layout="constrained",
    )
    axes = np.atleast_1d(page.subplots(rows, columns)).ravel()
    for ax in axes[panels:]:
        ax.set_visible(False)
    if has_own_panels:
        draw[report["name"]](report, results, axes)
    else:
        _panels(report, axes, scales)
        _common_legend(page, axes, columns=2)
    fast = ", fast version" if report["fast"] else ""
    page.suptitle(f"{report['figure']}: {report['title']}{fast}", fontsize=11)
    page.savefig(path, dpi=70 if heat else 110, metadata={"Software": None})


def protection(entries: list[Mapping[str, Any]]) -> str:
    """Return the legend's note on an arm's guarantee: the true delta at the eps shown."""
    if entries[0]["epsilon"] is None:
        return ", not private" if entries[0]["proved"] is None else ""
    if any(entry["proved"] is None for entry in entries):
        return " (eps claimed, nothing proved)"
    if any(entry["proved"]["epsilon"] > entry["epsilon"] * (1 + 1e-9) for entry in entries):
        return " (eps claimed, proved only at a larger one)"
    deltas = sorted(entry["proved"]["delta"] for entry in entries)
    spread = " to ".join(dict.fromkeys(f"{delta:.2g}" for delta in (deltas[0], deltas[-1])))
    if all(entry["claimed"] is None or entry["proved"]["delta"] <= entry["claimed"]["delta"] for entry in entries):
        return f" (eps proved, delta = {spread})"
    return f" (eps claimed; true delta {spread})"


def _panels(report: Mapping[str, Any], axes: Any, scales: int) -> None:
    """Draw every data set with all arms and, if baselines are far off, without them: the papers' two scales."""

    def of(arm: str) -> list[Mapping[str, Any]]:
        return [entry for entry in report["curves"] if entry["arm"] == arm]

    labels = {arm: arm + protection(of(arm)) for arm in {entry["arm"] for entry in report["curves"]}}
    fine, places = _fine(report["settings"]["arms"]), iter(axes)
    for data in dict.fromkeys(entry["data"] for entry in report["curves"]):
        entries = [entry for entry in report["curves"] if entry["data"] == data]
        metric = report["metrics"][data]
        if scales > 1:
            near = [entry for entry in entries if entry["arm"] in fine]
            _panel(next(places), f"{data}, fine scale", near, metric, labels)
        _panel(next(places), str(data), entries, metric, labels)


def _fine(arms: Sequence[str]) -> list[str]:
    return [arm for arm in arms if arm not in (DP_MTRL, DP_AGGR)]


def _panel(ax: Any, title: str, entries: list[Mapping[str, Any]], metric: str, labels: Mapping[str, str]) -> None:
    epsilons = [entry["epsilon"] for entry in entries if entry["epsilon"] is not None] or [1e-3, 1e3]
    for arm in dict.fromkeys(entry["arm"] for entry in entries):
        _line(ax, [entry for entry in entries if entry["arm"] == arm], (min(epsilons), max(epsilons)), labels[arm])
    means = [entry["mean"] for entry in entries]
    for arm, (eps, value) in paper.curves(entries[0]["data"]).items():
        if arm in {entry["arm"] for entry in entries}:
            label = {RIDGE: "papers' STL", TRACE: "papers' MTL"}.get(arm, f"papers' {arm} (eps claimed)")
            dots = (0, (4, 1, 1, 1)) if arm == TRACE else (0, (1, 1))  # two styles, as both lines are grey
            ax.plot(eps, value, color=_STYLE[arm][0], ls=dots, lw=1.1, alpha=0.8, label=label)
            means += [value.min(), value.max()]
    ax.set(xscale="log", xlabel="eps", ylabel=_LABELS[metric], title=title)
    low, high = min(means), max(means)
    if metric != "auc" and high > 2 * low:  # limits by means, as an interval of few replications may include zero
        ax.set(yscale="log", ylim=(0.8 * low, 1.25 * high))
    else:
        ax.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
    ax.spines[["top", "right"]].set_visible(False)


def _line(ax: Any, entries: list[Mapping[str, Any]], span: tuple[float, float], label: str) -> None:
    color, style = _STYLE[entries[0]["arm"]]
    low, middle, high = (np.array([_number(entry[key]) for entry in entries]) for key in ("low", "mean", "high"))
    if entries[0]["epsilon"] is None:
        ax.axhline(middle[0], color=color, ls=style, lw=1.2, label=label)
        ax.fill_between(span, low[0], high[0], color=color, alpha=0.08, lw=0)
        return
    x = [entry["epsilon"] for entry in entries]
    if entries[0]["arm"] == REPLACEMENT:  # marks without a line, as it is close to the posterior's line
        ax.errorbar(
            x, middle, high - middle, color=color, fmt="D", ms=4.5, mfc="white", lw=1, capsize=2, zorder=3, label=label
        )
        return
    ax.plot(x, middle, "o-", color=color, ms=3.5, label=label)
    ax.fill_between(x, low, high, color=color, alpha=0.15, lw=0)


def _common_legend(page: Any, axes: Any, columns: int) -> None:
    """Draw one legend for all panels."""
    named = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    page.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _sizes(report: Mapping[str, Any], results: xr.Dataset, axes: Any) -> None:
    """Draw one row per data set, one column per method, and one line per budget."""
    import matplotlib

    epsilons, sizes = ([float(x) for x in results[name].values] for name in ("epsilon", "tasks"))
    shade = matplotlib.colormaps["viridis_r"].resampled(len(epsilons) + 1)
    panels = axes.reshape(results.sizes["data"], results.sizes["arm"])
    for row, data in zip(panels, results["data"].values, strict=True):
        for ax, arm in zip(row, results["arm"].values, strict=True):
            if ax is not row[0]:
                ax.sharey(row[0])
            curves = [entry for entry in report["curves"] if (entry["data"], entry["arm"]) == (data, arm)]
            for i, eps in enumerate(epsilons, start=1):
                if here := [entry for entry in curves if entry["epsilon"] == eps]:
                    x, y, sd = ([_number(entry[key]) for entry in here] for key in ("tasks", "mean", "sd"))
                    ax.errorbar(x, y, sd, color=shade(i), marker="o", ms=3.5, capsize=2, label=f"eps = {eps:g}")
            ax.set_xscale("log", base=2)
            ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
            ax.set_title(f"{data}: {arm}\n{protection(curves).strip()}", fontsize=10)
            ax.set(xlabel="tasks trained with")
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("nMSE of the first tasks, with sd")
    _common_legend(axes[0].figure, axes, columns=len(epsilons))


def _exponents(report: Mapping[str, Any], results: xr.Dataset, axes: Any) -> None:
    for i, arm in enumerate(results["arm"].values):
        here = [entry for entry in report["curves"] if entry["arm"] == arm]
        if here:
            style = "-" if "accelerated" in arm else "--"
            x, y = [e["exponent"] for e in here], np.array([e["mean"] for e in here])
            half = np.array([_number(e["high"]) for e in here]) - y
            axes[0].errorbar(x, y, half, color=f"C{i // 2}", ls=style, marker="o", ms=3.5, capsize=2, label=arm)
    title = f"eps = {float(results['epsilon'].values[0]):g}{protection(report['curves'])}"
    axes[0].set(xlabel="exponent: alpha, or log Q / log Q_0", ylabel="nMSE, cross-validation", title=title)
    _tidy(axes[0])


def _rounds(report: Mapping[str, Any], results: xr.Dataset, axes: Any) -> None:
    labels = ("log10 ||E|| / ||Sigma~||", "||W^ - W^ without noise|| / ||W^ without noise||")
    for ax, what, label in zip(axes, ("ratio", "moved"), labels, strict=True):
        for arm in results["arm"].values:
            values = results[what].isel(data=0, epsilon=0, drop=True).sel(arm=arm).dropna("iteration", how="all")
            x = np.arange(1, values.sizes["iteration"] + 1)
            mean, sd = values.mean("replication").values, values.std("replication").values
            here = [entry for entry in report["curves"] if entry["arm"] == arm]
            name = f"{arm}, mean and sd{protection(here)}"
            ax.errorbar(x, mean, sd, color=_STYLE[str(arm)][0], marker="o", ms=3, label=name)
        ax.set(xlabel="round", ylabel=label, title=f"eps = {float(results['epsilon'].values[0]):g}")
        _tidy(ax)
    axes[1].set_yscale("log")


def _models(report: Mapping[str, Any], results: xr.Dataset, axes: Any) -> None:
    cell = results.isel(data=0, arm=0, replication=0)
    tight, loose = sorted(float(eps) for eps in cell["epsilon"].values)[:: max(1, cell.sizes["epsilon"] - 1)][:2]
    shown = [("W^(0)", cell["W0"].isel(epsilon=0))]
    for eps in (loose, tight):
        entry = next(e for e in report["measures"]["cosine"] if e["epsilon"] == eps)
        shown.append((f"W^, eps = {eps:g}{protection([entry])}", cell["W"].sel(epsilon=eps)))
    for ax, (title, W) in zip(axes, shown, strict=True):
        _heat(ax, W.values / np.linalg.norm(W.values, axis=0), title)


def _relations(report: Mapping[str, Any], results: xr.Dataset, axes: Any) -> None:
    cell = results.isel(data=0, epsilon=0)
    shown = [("true", cell["W0"].isel(arm=0, replication=0).values)]
    for arm in results["arm"].values:
        here = [entry for entry in report["measures"]["within"] if entry["arm"] == arm]
        shown.append((f"{arm}{protection(here)}", cell["W"].sel(arm=arm).mean("replication").values))
    for i, (title, W) in enumerate(shown):
        profile = W / np.maximum(np.linalg.norm(W, axis=0), 1e-300)
        _heat(axes[i], profile.T @ profile, f"task relations: {title}")
        _heat(axes[len(shown) + i], profile, f"models: {title}")


def _heat(ax: Any, values: np.ndarray, title: str) -> None:
    limit = float(np.abs(values).max())
    ax.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    ax.set_title(textwrap.fill(title, 36), fontsize=9)
    ax.set_xlabel("task")


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.14), handlelength=3.5)
