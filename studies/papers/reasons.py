"""Why claims and goals are not met, each in plain words, for the results pages.

The reasons are about the results in docs/results, against which tests hold their numbers. Fast versions have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.papers.settings import AVERAGE, MTL, STUDIES, Data
from studies.papers.verdicts import FAILS

#: why claims do not hold, by the experiment
_CLAIMS = {
    "fig4": (
        "The exponents of Theorem 6 are the best ones of an upper bound on the error, not of the error. With a convex loss "
        "budgets that grow faster do a little better."
    ),
    "fig6": (
        "At these eps the journal's noise is far above the signal of a release ([fig5](fig5.md)), so that rounds share next "
        "to nothing. With less noise the claim holds, or nearly so ([noise-2018-synthetic](noise-2018-synthetic.md))."
    ),
    "fig7": (
        "The noise that the papers describe, at eps / n per row, is far above DP-MTRL's models at all but the largest eps."
    ),
    "fig8": "On low-rank data tasks beyond the group of 75 are of other kinds.",
    "fig9": (
        "Up to eps = 1 Algorithm 2 differs from STL by 0.002 at most: the noise hides what is shared, and the rounds end a "
        "little off ridge."
    ),
    "noise-2018": (
        "With noise of scale 1 / eps the error changes by 0.002 from eps = 0.001 to 10: noise is not what is missing to MTL "
        "there, but the rounds end half-way."
    ),
    "noise-2018-synthetic": (
        "With K / eps little is missing: Algorithm 2 is worse than STL at eps = 0.001 alone, and closes 0.88 and 0.90 of the "
        "gap. The journal's noise is far above the signal."
    ),
    "adaptation": (
        "One release is compared with algorithms that were tuned with the test rows. With 2,000 private records the target "
        "alone is better than what adapts to it."
    ),
    "training": (
        "At eps = 0.001 nothing is shared, and on School 70 % the rounds end 0.0002 off ridge (standard error 0.0001)."
    ),
    "training-lsoa2": (
        "On these data there is little to gain: STL, MTL and Algorithm 2 lie within 0.006 of each other, and three "
        "replications tell differences of 0.002 from none."
    ),
}

_RIDGE = (
    "A release says nothing at this eps, and the goal has one penalty that was chosen on all tasks' rows. No owner could "
    "choose it; the posterior is as good as the best that owners can do alone "
    "([where the release says nothing](../benchmarks/gain.md#where-the-release-says-nothing))."
)
_TOLD = (
    "The goal came from a trial that knew the true signal-to-noise ratios. Told these, the posterior closes {} with tasks of "
    "similarity .95 "
    "([what it would be worth](../benchmarks/gain.md#what-it-would-be-worth-to-know-how-much-features-explain))."
)
_SCHOOL, _LOW_RANK = Data("School").name, Data("low rank").name
#: why goals are not met, by data set, measure and eps
_GOALS = {
    (_SCHOOL, "nMSE within", 1e-3): _RIDGE,
    (_LOW_RANK, "share of the gap", 1e-3): _RIDGE,
    (_LOW_RANK, "share of the gap", 0.1): _TOLD.format("0.19 of the gap"),
    (_LOW_RANK, "share of the gap", 0.3): _TOLD.format("0.56 of the gap"),
    (_LOW_RANK, "share of the gap", 1.0): _TOLD.format("0.88 of the gap"),
    (_LOW_RANK, "share of the gap", 10.0): _TOLD.format(
        "1.00 of the gap, and 1.01 if told that tasks are of low rank too"
    ),
}


def of_claims(report: Mapping[str, Any]) -> str:
    """Say why claims of an experiment do not hold; "" if all do, or if the verdicts say all there is to say."""
    fails = any(verdict["verdict"] == FAILS for verdict in report["verdicts"])
    return _CLAIMS.get(report["name"], "") if fails and not report.get("fast") else ""


def of_goals(report: Mapping[str, Any]) -> str:
    """Say for each goal that is not met why not, as a list; "" if there is none."""
    if report.get("fast"):
        return ""
    unmet = [(t, _GOALS.get((t["data"], t["what"], t["epsilon"]))) for t in report["targets"] if not t["met"]]
    return "\n".join(f"- {t['data']}, {t['what']}, eps = {t['epsilon']:g}: {why}" for t, why in unmet if why)


def of_average(report: Mapping[str, Any], reports: Sequence[Mapping[str, Any]]) -> str:
    """Say of an experiment without the average of all models what its error is, from the experiments that have it."""
    settings = report["settings"]
    if AVERAGE not in STUDIES[report["name"]].arms or AVERAGE in settings["arms"]:
        return ""
    kinds, texts = {data["kind"] for data in settings["data"]}, []
    for other in (one for one in reports if AVERAGE in one["settings"].get("arms", ())):
        means = {(entry["data"], entry["arm"]): entry["mean"] for entry in other["curves"]}
        for name in (Data(**data).name for data in other["settings"]["data"] if data["kind"] in kinds):
            beside = ", ".join(
                f"{means[name, arm]:.3f} of {arm}" for arm in MTL if (name, arm) in means and arm != AVERAGE
            )
            link = f"[{other['name']}]({other['name']}.md)"
            texts.append(f"{means[name, AVERAGE]:.3f} on {name} in {link}, beside {beside}")
    said = "Run before the average of all models, which is DP-AGGR without noise, was a candidate of MTL"
    return f"{said}; it has {'; '.join(texts)}." if texts else ""
