"""Algorithm 2 under the journal's noise and under that of January 2018, beside the papers' curves: text and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studies.papers.settings import LOW_RANK, LOW_RANK_2018, LOW_RANK_UNIT, Data

#: experiments with both noises
NAMES = ("noise-2018", "noise-2018-synthetic", "noise-2018-lsoa2")

#: scale of the noise of every arm of Algorithm 2
SCALES = {LOW_RANK: "K^2 / (2 eps)", LOW_RANK_2018: "K / eps", LOW_RANK_UNIT: "1 / eps"}

SEARCHED = (
    "Hyper-parameters of Algorithms 2 and 3 are searched as the papers say, at every eps: T, lambda and K, and then, at the "
    "best of them, with and without acceleration and strong convexity (mu = 1e-3), with four alpha and three Q."
)

_NOISES = (
    "The papers' curves are read off the supplement of January 2018. Its Wishart noise has scale K / eps (proof of its "
    "Corollary 1) or 1 / eps (its Algorithm 4), and its M is applied to models as they were before the clip. The journal's "
    "noise has scale K^2 / (2 eps), which is K / 2 or K^2 / 2 times as large; on School K is in the hundreds. The smaller "
    "noise is not private at the eps of the curves: it understates what one task can change, and its true delta is "
    "1 - exp(-K eps / 2) or 1 - exp(-K^2 eps / 2) a round. Nor is the journal's at its own: there it is 1 - exp(-eps). The "
    'two are `mechanism="paper_2018"` and `"paper_2018_unit"`, with `unclipped=True`.'
)

_MATLAB = (
    " The papers' programs are in MATLAB, whose variance divides by n - 1: by that the errors on School are 1.3 % smaller "
    "than those in the table (`evaluation.nmse_within(ddof=1)`)."
)

_SCHOOL = Data("School").name


def explanation(report: Mapping[str, Any]) -> str:
    """Explain the papers' curves by their noise, and say where they lie among ours."""
    rows = compared(report)
    matlab = _MATLAB if any(row["data"] == _SCHOOL for row in rows) else ""
    known = [(row["paper"], *(row[arm]["mean"] for arm in SCALES)) for row in rows if row["paper"] is not None]
    if not known:
        return _NOISES + matlab
    better = "above" if set(report["metrics"].values()) == {"auc"} else "below"
    less = sum((paper > journal) if better == "above" else (paper < journal) for paper, journal, _, _ in known)
    between = sum(min(of_k, unit) <= paper <= max(of_k, unit) for paper, _, of_k, unit in known)
    away = [sum(abs(paper - ours[i]) for paper, *ours in known) / len(known) for i in range(len(SCALES))]
    distances = ", ".join(f"{distance:.3f} at {scale}" for distance, scale in zip(away, SCALES.values(), strict=True))
    return (
        f"{_NOISES}{matlab}\n\nOf {len(known)} points of the papers' curve of Algorithm 2, {less} lie {better} ours with the "
        f"journal's noise, and {between} between ours with the two noises of 2018. Mean distance of their curve from ours: "
        f"{distances}. The table has means over replications, by the scale of the noise."
    )


def compared(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return, by data and eps, the papers' value and our entry of every noise; empty without all three."""
    entries = {(entry["data"], entry["epsilon"], entry["arm"]): entry for entry in report["curves"]}
    points = dict.fromkeys((data, epsilon) for data, epsilon, arm in entries if arm == LOW_RANK)
    return [
        {"data": data, "epsilon": epsilon, "paper": entries[data, epsilon, LOW_RANK].get("paper")}
        | {arm: entries[data, epsilon, arm] for arm in SCALES}
        for data, epsilon in points
        if all((data, epsilon, arm) in entries for arm in SCALES)
    ]
