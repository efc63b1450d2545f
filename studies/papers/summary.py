"""Summary of a study's results for JSON: settings, curves with intervals, guarantees, verdicts and targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from studies.papers import arms, paper
from studies.papers.contrasts import gap_share, loss
from studies.papers.runner import library_version, plain, settings_hash
from studies.papers.settings import ALONE, LASSO, OF_2018, POSTERIOR, REPLACEMENT, RIDGE, WITHOUT_EPSILON, Data, Study
from studies.papers.verdicts import verdicts

#: targets of the posterior with a proved guarantee at delta = 1/(m log m), zero-out: largest error, by eps
SCHOOL_TARGETS = {0.1: 0.820, 0.3: 0.795, 1.0: 0.770, 10.0: 0.755}
#: targets on synthetic low-rank data: smallest share of the STL-to-MTL gap, by eps
SHARE_TARGETS = {1e-3: 0.0, 0.1: 0.15, 0.3: 0.5, 1.0: 0.88, 10.0: 1.02}
COVERAGE = (0.88, 0.92)
#: studies with targets
WITH_TARGETS = ("fig6", "fig9")

NOISE = "The noise of every release came from the operating system: a rerun draws other noise."


def interval(values: np.ndarray, probability: float = 0.95) -> tuple[float, float, float, float]:
    """Return mean, sd and t interval of the mean over replications; nan if there are too few."""
    values = values[np.isfinite(values)]
    n = len(values)
    mean = float(values.mean()) if n else np.nan
    if n < 2:
        return mean, np.nan, np.nan, np.nan
    sd = float(values.std(ddof=1))
    half = float(stats.t(n - 1).ppf((1 + probability) / 2)) * sd / np.sqrt(n)
    return mean, sd, mean - half, mean + half


def curves(results: xr.Dataset, variable: str = "error") -> Iterator[dict[str, Any]]:
    """Yield one entry per data set, arm, eps (and number of tasks, exponent): mean, interval and both guarantees."""
    if variable not in results:
        return
    digitised = {str(data): paper.curves(str(data)) for data in results["data"].values}
    axes = [str(dim) for dim in results[variable].dims if dim != "replication"]
    for index in np.ndindex(*(results.sizes[dim] for dim in axes)):
        cell = results.isel(dict(zip(axes, index, strict=True)))
        values = np.atleast_1d(cell[variable].values)
        if not np.isfinite(values).any():
            continue
        mean, sd, low, high = interval(values)
        at = {dim: cell[dim].values.item() for dim in axes}
        if at["arm"] in WITHOUT_EPSILON:
            if index[axes.index("epsilon")] > 0:
                continue
            at["epsilon"] = None
        n = int(np.isfinite(values).sum())
        entry = at | {"mean": mean, "sd": sd, "low": low, "high": high, "replications": n}
        entry |= {kind: _bound(cell, kind) for kind in ("claimed", "proved")}
        if "coverage" in cell:
            entry["coverage"] = interval(np.atleast_1d(cell["coverage"].values))[0]
        paper_curve = digitised[at["data"]].get(OF_2018.get(at["arm"], at["arm"]))
        if paper_curve is not None and variable == "error" and "tasks" not in at and "exponent" not in at:
            entry["paper"] = (
                float(np.median(paper_curve[1])) if at["epsilon"] is None else paper.at(paper_curve, at["epsilon"])
            )
        yield entry


def _bound(cell: xr.Dataset, kind: str) -> dict[str, Any] | None:
    """Return the weakest bound over replications, which all have the same adjacency; None if there is none."""
    if f"{kind}_delta" not in cell or not np.isfinite(cell[f"{kind}_delta"].values).any():
        return None
    epsilon, delta = (float(np.nanmax(cell[f"{kind}_{part}"].values)) for part in ("epsilon", "delta"))
    (adjacency,) = set(np.ravel(cell[f"{kind}_adjacency"].values)) - {""}
    return {"epsilon": epsilon, "delta": delta, "adjacency": str(adjacency)}


def targets(results: xr.Dataset) -> list[dict[str, Any]]:
    """Compare the posterior with its targets under zero-out adjacency; replacement adjacency is reported too."""
    reached: list[dict[str, Any]] = []
    if results.attrs["study"] not in WITH_TARGETS or "coverage" not in results or "tasks" in results.dims:
        return reached
    for data in map(str, results["data"].values):
        ours, by_replacement = (_reached(results, data, arm) for arm in (POSTERIOR, REPLACEMENT))
        for what, epsilon, low, high, goal in _goals(results, data):
            number = ours.get((what, epsilon))
            if number is not None:
                reached.append(
                    {"data": data, "what": what, "epsilon": epsilon, "goal": goal, "found": number}
                    | {"met": low <= number <= high, "replacement": by_replacement.get((what, epsilon))}
                )
    return reached


_SCHOOL, _LOW_RANK = Data("School").name, Data("low rank").name  #: data sets with targets
_ERROR, _SHARE, _COVERED = "nMSE within", "share of the gap", "coverage of 90 % intervals"


def _goals(results: xr.Dataset, data: str) -> Iterator[tuple[str, float, float, float, str]]:
    """Yield the targets: measure, eps, lower and upper bound, and the target in words."""
    if data == _SCHOOL:
        errors = loss(results, data).mean("replication")
        alone = [arm for arm in (RIDGE, LASSO, ALONE) if arm in errors["arm"]]
        if alone:
            best = float(errors.sel(arm=alone).min())
            yield _ERROR, 1e-3, -np.inf, best, f"<= {best:.3f}, best single-task arm"
        for epsilon, most in SCHOOL_TARGETS.items():
            yield _ERROR, epsilon, -np.inf, most, f"<= {most:.3f}"
    elif data == _LOW_RANK:
        for epsilon, least in SHARE_TARGETS.items():
            yield _SHARE, epsilon, least, np.inf, f">= {least:g}"
    else:
        return
    low, high = COVERAGE
    for epsilon in map(float, results["epsilon"].values):
        yield _COVERED, epsilon, low, high, f"{low:g} to {high:g}"


def _reached(results: xr.Dataset, data: str, arm: str) -> dict[tuple[str, float], float]:
    """Return means over replications of the measures with targets, by name and eps."""
    if arm not in results["arm"]:
        return {}
    by_name = {
        _ERROR: loss(results, data).sel(arm=arm).mean("replication"),
        _SHARE: gap_share(results, data, arm),
        _COVERED: results["coverage"].sel(data=data, arm=arm).mean("replication"),
    }
    return {
        (name, float(value["epsilon"])): float(value)
        for name, values in by_name.items()
        if values is not None
        for value in values.dropna("epsilon")
    }


def summarise(study: Study, results: xr.Dataset, *, fast: bool, command: str) -> dict[str, Any]:
    """Return the report of a study, without rows, weights or noise."""
    extra = (
        "cosine",
        "cosine_before",
        "within",
        "across",
        "truth",
        "error_without_noise",
        "between_draws",
        "log10_ratio_of_round_1",
    )
    return plain(
        {
            "name": study.name,
            "figure": study.figure,
            "title": study.title,
            "fast": fast,
            "command": command,
            "library_version": library_version(),
            "settings": asdict(study),
            "settings_hash": settings_hash(study),
            "metrics": json.loads(results.attrs["metrics"]),
            "selection": arms.selection(study.effort),
            "noise": NOISE,
            "interval": "t interval of the mean over replications, 95 %",
            "missing": json.loads(results.attrs["missing"]),
            "curves": list(curves(results)),
            "measures": {name: list(curves(results, name)) for name in extra if name in results},
            "verdicts": [asdict(verdict) for verdict in verdicts(results)],
            "targets": targets(results),
        }
    )
