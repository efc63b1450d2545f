"""Reasons on the results pages: there is one for whatever does not hold, and their numbers are those of the results."""

import json
from pathlib import Path

import numpy as np

from studies.papers import page, reasons
from studies.papers.settings import AVERAGE, LOW_RANK, LOW_RANK_2018, LOW_RANK_UNIT, MTL, RIDGE, STL, TRACE
from studies.papers.verdicts import FAILS

FOLDER = Path(__file__).parents[2] / "docs" / "results"
REPORTS = {report["name"]: report for report in page.load(FOLDER)}
#: experiments whose verdicts or notes say all there is to say
SAID = {"fig5"}


def means(report, arm):
    """Return means by data set and eps."""
    return {(e["data"], e["epsilon"]): e["mean"] for e in REPORTS[report]["curves"] if e["arm"] == arm}


def verdict_of(report, data):
    return next(verdict for verdict in REPORTS[report]["verdicts"] if verdict["data"] == data)


def test_whatever_does_not_hold_has_a_reason():
    for name, report in REPORTS.items():
        fails = any(verdict["verdict"] == FAILS for verdict in report["verdicts"])
        assert bool(reasons.of_claims(report)) == (fails and name not in SAID), name
        unmet = sum(not target["met"] for target in report.get("targets", ()))
        assert len(reasons.of_goals(report).splitlines()) == unmet if "targets" in report else not unmet


def test_a_fast_version_has_no_reasons():
    fast = REPORTS["fig6"] | {"fast": True}
    assert (reasons.of_claims(fast), reasons.of_goals(fast)) == ("", "")


def test_differences_from_single_tasks_are_as_small_as_said():
    (stl,) = means("fig9", RIDGE).values()
    ours = means("fig9", LOW_RANK)
    assert max(abs(value - stl) for (_, eps), value in ours.items() if eps <= 1) < 0.0025
    mean, se = verdict_of("training", "School 70 %")["statistic"]["Algorithm 2 minus STL, mean and s.e."]["0.001"]
    assert (round(mean, 4), round(se, 4)) == (0.0002, 0.0001)
    for data, ridge in means("training-lsoa2", RIDGE).items():
        beside = [value for place, value in means("training-lsoa2", LOW_RANK).items() if place[0] == data[0]]
        every = [ridge, means("training-lsoa2", TRACE)[data], *beside]
        assert max(every) - min(every) < 0.006


def test_what_smaller_noise_does_is_as_said():
    unit = means("noise-2018", LOW_RANK_UNIT).values()
    assert round(max(unit) - min(unit), 3) == 0.002
    shares = [
        verdict["statistic"]["share of the STL-to-MTL gap"]["10"]
        for verdict in REPORTS["noise-2018-synthetic"]["verdicts"]
        if verdict["statement"].startswith(f"{LOW_RANK_2018} lies")
    ]
    assert [round(share, 2) for share in shares] == [0.88, 0.90]
    whys = [v["why"] for v in REPORTS["noise-2018-synthetic"]["verdicts"] if f"{LOW_RANK_2018} lies" in v["statement"]]
    assert all(why.startswith("worse than STL at eps = 0.001; ") for why in whys)


def test_goals_are_missed_by_what_nobody_knows():
    """Told signal-to-noise ratios, the posterior closes the shares that the page says."""
    told = json.loads((FOLDER.parent / "benchmarks" / "told.json").read_text())["data"]["synthetic_low_rank"]
    said = dict(zip((0.001, 0.1, 0.3, 1.0, 10.0), reasons.of_goals(REPORTS["fig6"]).splitlines(), strict=True))
    for eps in (0.1, 0.3, 1.0, 10.0):
        share = np.mean(told[f"{eps:g}, as it comes, told"]["share"])
        assert f"closes {share:.2f} of the gap" in said[eps]
    assert f"and {np.mean(told['10, low_rank, one round, told']['share']):.2f} if told" in said[10.0]


def test_the_average_is_not_the_best_without_privacy():
    """No verdict changes by it: where experiments were run without the average, it is no minimum."""
    with_average = [report for report in REPORTS.values() if AVERAGE in report["settings"].get("arms", ())]
    assert with_average
    for report in with_average:
        auc = set(report["metrics"].values()) == {"auc"}
        by_arm = {e["arm"]: 1 - e["mean"] if auc else e["mean"] for e in report["curves"] if e["epsilon"] is None}
        assert by_arm[AVERAGE] > min(by_arm[arm] for arm in (*STL, *MTL) if arm in by_arm)
    assert "0.942 on School 30 % in [non-private]" in reasons.of_average(REPORTS["fig9"], list(REPORTS.values()))
    assert reasons.of_average(REPORTS["fig6"], list(REPORTS.values())) == ""
