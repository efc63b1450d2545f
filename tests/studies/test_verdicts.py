"""The verdicts on made-up results: each claim holds where it was made to hold, and fails where it was made to fail."""

import json

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from scipy import stats

from studies.papers import page
from studies.papers.contrasts import Difference, best_of, gap_share, loss
from studies.papers.settings import (
    DP_AGGR,
    DP_MTRL,
    GROUP,
    GROUP_SPARSE,
    KINDS,
    LASSO,
    LOW_RANK,
    LOW_RANK_2018,
    LOW_RANK_UNIT,
    POSTERIOR,
    REPLACEMENT,
    RIDGE,
    STUDIES,
    TRACE,
    Data,
)
from studies.papers.summary import _bound, interval, targets
from studies.papers.verdicts import CLAIMS, FAILS, HOLDS, HOLDS_2018, UNTESTED, verdicts

EPSILONS = (1e-3, 1.0, 10.0, 1e3)
SINGLE, TOGETHER = 0.16, 0.02


def noise(*shape):
    """Differs from cell to cell, and is zero in the mean over replications: equal means are equal, and nothing is chance."""
    *cells, replications = shape
    row = stats.norm.ppf((np.arange(replications) + 0.5) / replications)
    made = [np.roll(row, i) * (1 + 0.1 * i) for i in range(int(np.prod(cells)))]
    return np.reshape(made, shape)


def results(study, errors, data="synthetic low rank", metric="nmse", replications=5, spread=1e-3, epsilons=EPSILONS):
    """Errors by arm, a number or one per eps, with a little noise that differs from arm to arm."""
    values = np.stack([np.broadcast_to(np.asarray(e, float), len(epsilons)) for e in errors.values()])
    values = values[None, ..., None] + spread * noise(1, *values.shape, replications)
    coords = {"data": [data], "arm": list(errors), "epsilon": list(epsilons), "replication": np.arange(replications)}
    kind = next((kind for kind in KINDS if Data(kind).name == data), "School")
    attrs = {"study": study, "metrics": json.dumps({data: metric}), "kinds": json.dumps({data: kind}), "missing": "{}"}
    return xr.Dataset({"error": (tuple(coords), values)}, coords, attrs)


def of(all_verdicts, claim):
    (only,) = [verdict for verdict in all_verdicts if verdict.claim == claim]
    return only.verdict


PANEL = {RIDGE: SINGLE, TRACE: TOGETHER, LOW_RANK: [0.15, 0.09, 0.025, 0.02], GROUP_SPARSE: [0.155, 0.15, 0.14, 0.13]}


def test_claim_1_between_single_and_multi_task_learning():
    assert of(verdicts(results("fig6", PANEL)), "1") == HOLDS
    above = PANEL | {LOW_RANK: [0.2, 0.09, 0.025, 0.02]}  # worse than STL at one eps
    assert of(verdicts(results("fig6", above)), "1") == FAILS
    late = PANEL | {LOW_RANK: [0.15, 0.1, 0.09, 0.02]}  # does not reach MTL by eps = 10
    assert of(verdicts(results("fig6", late)), "1") == FAILS
    better = PANEL | {LOW_RANK: [0.15, 0.09, 0.01, 0.01]}
    assert of(verdicts(results("fig6", better)), "1") == FAILS
    assert of(verdicts(results("fig6", PANEL, replications=1)), "1") == UNTESTED
    no_gap = PANEL | {TRACE: SINGLE + 0.01}
    assert of(verdicts(results("fig6", no_gap)), "1") == UNTESTED


def test_claims_of_2018_are_told_as_that():
    worse = [0.17, 0.15, 0.12, 0.1]
    journal, first, second = verdicts(
        results("noise-2018", PANEL | {LOW_RANK: worse, LOW_RANK_2018: PANEL[LOW_RANK], LOW_RANK_UNIT: worse})
    )
    assert (journal.verdict, first.verdict, second.verdict) == (FAILS, HOLDS_2018, FAILS)
    assert first.statement.startswith("Algorithm 2 of 2018 lies between")
    assert "not private" in first.verdict
    assert verdicts(results("noise-2018", PANEL))[0].verdict == HOLDS  # the journal's noise holds without a reserve
    report = {"name": "noise-2018", "figure": "x", "verdicts": [vars(verdict) for verdict in (journal, first, second)]}
    said = page._claims([report], "results")
    assert "| 0 of 3, 1 with the noise of 2018, which is not private at that eps | [noise-2018]" in said


def test_claim_2_the_wrong_structure_costs():
    assert of(verdicts(results("fig6", PANEL)), "2") == HOLDS
    rivals = PANEL | {GROUP_SPARSE: PANEL[LOW_RANK]}
    assert of(verdicts(results("fig6", rivals)), "2") == FAILS
    sparse = "synthetic group sparse"
    assert of(verdicts(results("fig6", rivals, data=sparse)), "2") == HOLDS
    assert of(verdicts(results("fig6", PANEL, data=sparse)), "2") == FAILS
    del rivals[GROUP_SPARSE]
    assert of(verdicts(results("fig6", rivals)), "2") == UNTESTED


def test_claim_2_rivals_differ_to_neither_side():
    swapped = PANEL | {LOW_RANK: PANEL[GROUP_SPARSE], GROUP_SPARSE: PANEL[LOW_RANK]}
    assert of(verdicts(results("fig6", swapped, data="synthetic group sparse")), "2") == FAILS


def test_claim_3_noisy_relations_win_at_large_eps_only():
    late, never, early = ({RIDGE: SINGLE, DP_MTRL: e} for e in ([1, 0.9, 0.5, 0.1], [1, 0.9, 0.5, 0.2], 0.1))
    sparse = "synthetic group sparse"
    verdict = lambda errors, **options: of(verdicts(results("fig7", errors | {DP_AGGR: 1.0}, **options)), "3")
    assert verdict(late) == HOLDS
    assert verdict(never) == FAILS
    assert verdict(early) == FAILS
    assert verdict(late, data=sparse) == FAILS
    assert verdict(never, data=sparse) == HOLDS
    assert verdict(late, epsilons=(0.1, 0.2, 0.3, 0.4)) == UNTESTED


def test_claim_4_one_model_for_all():
    far, near = {RIDGE: SINGLE, DP_AGGR: [1, 1, 0.9, 0.8]}, {RIDGE: SINGLE, DP_AGGR: [1, 1, 0.4, 0.17]}
    verdict = lambda errors, data, study="fig7": of(verdicts(results(study, errors, data=data)), "4")
    assert verdict(far, "synthetic low rank") == HOLDS
    assert verdict(near, "synthetic low rank") == FAILS
    assert verdict(near, "all tasks alike") == HOLDS
    assert verdict(far, "all tasks alike") == FAILS
    assert verdict(near, "School 30 %", "fig9") == HOLDS
    assert verdict({RIDGE: SINGLE, DP_AGGR: [1, 1, 0.4, 0.1]}, "School 30 %", "fig9") == FAILS
    assert verdict({RIDGE: SINGLE}, "synthetic low rank") == UNTESTED


def sizes(means, spread=1e-3):
    values = np.asarray(means, float)[None, None, None, :, None]
    values = values + spread * noise(1, 1, 3, len(means), 4)
    dims = ("data", "arm", "epsilon", "tasks", "replication")
    coords = {"data": ["x"], "arm": [LOW_RANK], "epsilon": [1, 2, 3], "tasks": [20, 40, 80], "replication": range(4)}
    attrs = {"study": "fig8", "metrics": json.dumps({"x": "nmse"})}
    return xr.Dataset({"error": (dims, values)}, {k: list(v) for k, v in coords.items()}, attrs)


def test_claim_5_more_tasks_less_error():
    judged = verdicts(sizes([0.12, 0.11, 0.1]))
    assert judged[0].verdict == HOLDS
    few, many = (sizes([0.12, 0.11, 0.1])["error"].sel(tasks=m).values.ravel() for m in (20, 40))
    assert_allclose(
        judged[0].statistic["p of Mann-Whitney tests"]["20 to 40"],
        stats.mannwhitneyu(few, many, alternative="greater").pvalue,
    )
    assert verdicts(sizes([0.12, 0.11, 0.11]))[0].verdict == FAILS
    assert verdicts(sizes([0.12, 0.11, 0.13]))[0].verdict == FAILS
    assert [verdict.verdict for verdict in judged[1:]] == [UNTESTED]  # no posterior was run


def allocation(slow, quick):
    arms = ["convex", "convex, accelerated"]
    exponents = [-1.0, 0.0, 0.4, 1.0]
    rng = np.random.default_rng(2)
    values = np.array([slow, quick])[None, :, None, :, None] + 1e-4 * rng.standard_normal((1, 2, 1, 4, 6))
    dims = ("data", "arm", "epsilon", "exponent", "replication")
    coords = {"data": ["x"], "arm": arms, "epsilon": [1.0], "exponent": exponents, "replication": list(range(6))}
    return xr.Dataset({"error": (dims, values)}, coords, {"study": "fig4", "metrics": '{"x": "nmse"}'})


def test_claim_6_acceleration_and_the_best_exponent():
    slow, quick = [0.2, 0.15, 0.16, 0.2], [0.2, 0.12, 0.1, 0.14]
    convex, strongly = verdicts(allocation(slow, quick))
    assert (convex.verdict, strongly.verdict) == (HOLDS, UNTESTED)
    assert convex.statistic["best exponent"] == 0.4
    assert verdicts(allocation(quick, slow))[0].verdict == FAILS  # acceleration hurts
    assert verdicts(allocation(slow, [0.2, 0.12, 0.14, 0.1]))[0].verdict == FAILS  # another exponent is better
    quick = np.array(quick)
    assert verdicts(allocation(quick + 0.005, quick))[0].verdict == HOLDS
    assert verdicts(allocation(quick - 0.005, quick))[0].verdict == FAILS  # it hurts, if only a little


def test_claim_7_much_noise_little_movement():
    def noisy(ratio, moved):
        dims, coords = ("data", "arm", "epsilon", "replication"), {"data": ["x"], "arm": [LOW_RANK], "epsilon": [0.1]}
        path = lambda end: ((*dims, "iteration"), np.tile(np.linspace(0.5, 1, 5) * end, (1, 1, 1, 3, 1)))
        return xr.Dataset({"ratio": path(ratio), "moved": path(moved)}, coords, {"study": "fig5"})

    assert verdicts(noisy(2.0, 0.05))[0].verdict == HOLDS
    assert verdicts(noisy(2.0, 0.5))[0].verdict == FAILS
    assert verdicts(noisy(-1.0, 0.05))[0].verdict == FAILS


def test_claim_8_the_ordering_whatever_the_measure():
    errors = PANEL | {DP_MTRL: [1, 1, 0.9, 0.5], DP_AGGR: [1, 1, 0.9, 0.5], LASSO: 0.17}
    auc = {arm: 1 - np.asarray(error) / 2 for arm, error in errors.items()}
    for study, values, metric in (("fig9", errors, "nmse_within"), ("fig10", auc, "auc")):
        assert of(verdicts(results(study, values, data="x", metric=metric)), "8") == HOLDS
        assert of(verdicts(results(study, values | {DP_MTRL: values[TRACE]}, data="x", metric=metric)), "8") == FAILS
        assert of(verdicts(results(study, values | {RIDGE: values[TRACE]}, data="x", metric=metric)), "8") == FAILS
        del values[DP_AGGR]
        assert of(verdicts(results(study, values, data="x", metric=metric)), "8") == UNTESTED


@pytest.mark.parametrize(("tight", "loose", "verdict"), [(0.78, 1.0, HOLDS), (0.99, 1.0, FAILS), (0.78, 0.8, FAILS)])
def test_running_example(tight, loose, verdict):
    dims = ("data", "arm", "epsilon", "replication")
    values = np.repeat([[[[tight], [loose]]]], 3, axis=-1)
    before = np.full_like(values, 0.77)
    coords = {"epsilon": [0.1, 1e40]}
    cosines = xr.Dataset({"cosine": (dims, values), "cosine_before": (dims, before)}, coords, {"study": "fig2"})
    assert verdicts(cosines)[0].verdict == verdict


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"), [(0.9, 0.0, HOLDS), (0.9, 0.6, FAILS), (0.3, 0.0, FAILS), (np.nan, 0, UNTESTED)]
)
def test_task_relations(ours, theirs, verdict):
    dims = ("data", "arm", "epsilon", "replication")
    values = np.array([ours, theirs])[None, :, None, None]
    coords = {"data": ["x"], "arm": [LOW_RANK, DP_MTRL]}
    relations = xr.Dataset({"within": (dims, values), "across": (dims, 0 * values)}, coords, {"study": "fig3"})
    assert verdicts(relations)[0].verdict == verdict


def test_studies_have_claims_and_claims_have_studies():
    """Every study has claims, and every claim of the papers has a study."""
    assert CLAIMS.keys() == STUDIES.keys()


def test_differences_are_paired_t_tests():
    a, b = np.random.default_rng(3).normal(size=(2, 8))
    difference = Difference.of(a, b)
    assert_allclose(difference.worse, stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert_allclose(difference.better, stats.ttest_rel(a, b, alternative="less").pvalue)
    assert Difference.of(a[:1], b[:1]) is None
    constant = Difference.of(np.ones(3), np.zeros(3))
    assert constant.is_worse
    assert not constant.is_better


def test_the_gap_is_between_the_best_of_each_kind():
    made = results("fig6", {RIDGE: 0.2, LASSO: 0.15, TRACE: 0.05, GROUP: 0.1, LOW_RANK: 0.1}, spread=0.0)
    errors = loss(made, "synthetic low rank")
    assert best_of(errors, (RIDGE, LASSO))["arm"] == LASSO
    assert_allclose(gap_share(made, "synthetic low rank", LOW_RANK), 0.5)


def test_intervals_by_hand():
    assert_allclose(interval(np.array([1.0, 3.0])), [2, np.sqrt(2), 2 - 12.7062, 2 + 12.7062], rtol=1e-5)
    assert_allclose(interval(np.array([1.0, np.nan])), [1, np.nan, np.nan, np.nan])


def test_the_weakest_bound_stands_for_all_replications():
    proved = {"epsilon": [1.0, 1.0, np.nan], "delta": [0.01, 0.02, np.nan], "adjacency": ["replace", "replace", ""]}
    cell = xr.Dataset({f"proved_{part}": ("replication", values) for part, values in proved.items()})
    assert _bound(cell, "proved") == {"epsilon": 1.0, "delta": 0.02, "adjacency": "replace"}


def test_targets_are_met_from_the_right_side():
    epsilons = (1e-3, 0.1, 1.0, 10.0)
    errors = {RIDGE: 0.16, TRACE: 0.06, POSTERIOR: [0.17, 0.14, 0.07, 0.057]}
    made = results("fig6", errors, epsilons=epsilons, spread=0.0)
    made["coverage"] = xr.full_like(made["error"], 0.9)
    made["coverage"][{"epsilon": 0}] = 0.7
    met = {(t["what"], t["epsilon"]): t["met"] for t in targets(made)}
    assert met["share of the gap", 1e-3] is False  # worse than STL
    assert met["share of the gap", 0.1] is True  # .2 of the gap, .15 wanted
    assert met["share of the gap", 1.0] is True
    assert met["share of the gap", 10.0] is True  # 1.03
    assert met["coverage of 90 % intervals", 1e-3] is False
    assert met["coverage of 90 % intervals", 1.0] is True
    assert {t["replacement"] for t in targets(made)} == {None}
    school = results("fig9", errors, data="School 30 %", metric="nmse_within", epsilons=epsilons, spread=0.0)
    assert targets(school) == []  # a point predictor has no coverage, and no targets


def test_replacement_stands_beside_the_target_without_deciding():
    """Replacement stands beside the target at the same eps, and decides nothing."""
    eps, nan = (0.1, 1.0, 10.0), np.nan
    errors = {RIDGE: 0.9, TRACE: 0.7, POSTERIOR: [0.81, 0.76, 0.8], REPLACEMENT: [nan, 0.85, 0.75]}
    school = results("fig9", errors, data="School 30 %", metric="nmse_within", epsilons=eps, spread=0.0)
    school["coverage"] = xr.full_like(school["error"], 0.9)
    by_epsilon = {t["epsilon"]: t for t in targets(school) if t["what"] == "nMSE within"}
    assert [(by_epsilon[e]["met"], by_epsilon[e]["replacement"]) for e in eps] == [
        (True, None),
        (True, 0.85),
        (False, 0.75),
    ]
    lines = page._targets({"name": "fig6", "targets": list(by_epsilon.values())}).splitlines()
    assert lines[2].startswith("2 of 3 are met.")
    assert lines[-1] == "| School 30 % | nMSE within | 10 | <= 0.755 | 0.800 | **not met** | 0.750 |"
    assert lines[-3].endswith("| met | - |")
