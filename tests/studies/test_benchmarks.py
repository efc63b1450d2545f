"""The benchmarks page, and what of the benchmarks can be wrong without anybody noticing."""

from pathlib import Path

import numpy as np
import pytest
from helpers.tolerances import FAR
from numpy.testing import assert_allclose

from mpmtl_prob import datasets
from mpmtl_prob.privacy import PaperWishart
from mpmtl_prob.single_task import conjugate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    """Import a benchmark by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "studies" / "benchmarks"))
    return lambda name: __import__(name)


def test_the_pages_are_what_the_json_files_say(benchmark):
    page = benchmark("page")
    texts = page.pages(page.load(ROOT / "docs" / "benchmarks"))
    assert {name: (ROOT / "docs" / name).read_text() for name in texts} == texts
    written = {f"benchmarks/{path.name}" for path in (ROOT / "docs" / "benchmarks").glob("*.md")}
    assert written == texts.keys() - {"benchmarks.md"}
    assert (ROOT / "docs" / "benchmarks" / page.PICTURE).is_file()


def test_a_benchmark_that_was_not_run_is_left_out_and_named(benchmark):
    page = benchmark("page")
    reports = page.load(ROOT / "docs" / "benchmarks")
    texts = page.pages({name: reports[name] for name in ("gap", "told", "nodes")})
    assert texts.keys() == {"benchmarks.md", "benchmarks/gain.md", "benchmarks/no_curator.md"}
    assert "Not run for these pages: panel, outcomes" in texts["benchmarks.md"]
    assert "![" not in texts["benchmarks.md"]  # the picture is of the panel
    assert texts["benchmarks/gain.md"].count("\n## ") == 3  # two sections and the machines


def test_the_exponent_of_a_power_law_is_its_power(benchmark):
    sizes = [10, 100, 1000]
    assert_allclose(benchmark("scaling").exponent(sizes, [3 * size**1.7 for size in sizes]), 1.7)


def test_coverage_of_uniform_ranks_is_the_nominal_one(benchmark):
    intervals = benchmark("intervals")
    draws = np.arange(intervals.DRAWS, dtype=float)
    truth = np.arange(intervals.DRAWS + 1) - 0.5  # every rank once
    assert_allclose(intervals.covered(truth, draws[:, None]), intervals.LEVELS)
    assert intervals.covered(truth, 0.5 * draws[:, None] + 100) < list(intervals.LEVELS)  # too narrow


def test_simulated_owners_follow_their_model(benchmark):
    """Simulated owners have the weights and the noise of their model."""
    truth = benchmark("intervals").simulate(np.random.default_rng(0), 400)
    # sigma = 1, and x'w has the variance snr on average over a task's own training rows
    residual = truth.y - np.einsum("tni,it->tn", truth.X, truth.W)
    assert abs(residual.var() - 1) < FAR * np.sqrt(2 / residual.size)
    signal = np.mean(np.einsum("tni,it->tn", truth.train.X, truth.W) ** 2, axis=1)
    c = signal / np.exp(conjugate.SNR_LOG_SD**2 / 2) / conjugate.SNR_MEDIAN  # mean 1
    assert abs(c.mean() - 1) < FAR * c.std() / np.sqrt(len(c))


@pytest.mark.evidence
def test_public_posteriors_side_by_side_fit_their_releases(benchmark, monkeypatch):
    """Public posteriors side by side are within their releases."""
    intervals = benchmark("intervals")
    monkeypatch.setattr(intervals, "WARMUP", 5)
    monkeypatch.setattr(intervals, "PUBLIC_DRAWS", 5)
    truths = [intervals.simulate(np.random.default_rng(seed), 3) for seed in range(2)]
    law = PaperWishart(intervals.D, 3.0)
    releases = [intervals.released("model", truth, law, 3.0, seed) for seed, truth in enumerate(truths)]
    for release, posterior in zip(releases, intervals.posteriors(releases), strict=True):
        A = posterior.to_arviz()["posterior/A"].values
        assert A.shape[:2] == (1, 5)
        assert (np.linalg.eigvalsh(release.sigma[0] - A) > 0).all()


def test_a_penalty_of_a_tasks_own_does_not_look_at_other_tasks(benchmark):
    alone = benchmark("alone")
    train = datasets.synthetic_low_rank(6, 3, 15, 2, seed=0).train
    penalties = alone.own_penalty(train, seed=0)
    y = train.y.copy()
    y[1:] *= 100
    other = type(train)(train.X, y, train.mask, train.tasks, train.features)
    assert_allclose(alone.own_penalty(other, seed=0)[:, 0], penalties[:, 0])
    every = np.stack([conjugate.ridge(train.gram, penalty)[:, 0] for penalty in alone.PENALTIES])
    assert np.isclose(every, penalties[:, 0]).all(axis=1).any()


def test_a_command_is_written_as_one_types_it(benchmark):
    line = benchmark("record").command(["/somewhere/benchmarks/scaling.py", "--json", "out.json", "--m", "10"])
    assert line == "python studies/benchmarks/scaling.py --m 10"


def test_the_adaptation_section_marks_the_best_private_arm(benchmark):
    arms = {
        "target, not private": {"mean": 0.01},
        "one release": {"mean": 0.02},
        "warm": {"mean": 0.03},
        "warm, oracle": {"mean": 0.015},
    }
    cell = {
        "data": "shifted",
        "records": [300, 60],
        "shift": 0.5,
        "epsilon": 1.0,
        "seeds": 2,
        "coverage": 0.9,
        "arms": arms,
    }
    *_, table = benchmark("page_evidence").adaptation({"candidates": {"warm": 8}, "cells": [cell]})
    rows = dict(line.strip("| ").split(" | ") for line in table.splitlines() if "---" not in line)
    assert rows["target, not private"] == "0.0100"
    assert rows["one release"] == "**0.0200**"  # an oracle is not private
    assert rows["warm"] == "0.0300 (0.0150)"
    assert rows["coverage"] == "0.90"


def test_claims_of_the_overview_count_what_they_say(benchmark):
    claims = benchmark("page_claims")
    arm = lambda mean: {"mean": mean}
    cells = [
        {
            "arms": {
                "one release": arm(1.0),
                "warm": arm(2.0),
                "warm, oracle": arm(0.5),
                "target, not private": arm(0.1),
            }
        },
        {"arms": {"one release": arm(2.0), "one release, domains": arm(1.5), "warm": arm(1.0)}},
    ]
    assert claims.adaptation({"cells": cells})[1] == "in 1 of 2 settings"
    fits = [{"passed": True}] * 3 + [{"passed": False}]
    assert claims.defaults({"groups": [{"now": fits}]})[1] == "in 75% of fits"
    cell = {"weights": {"coverage": [0.52, 0.8]}, "targets": {"coverage": [0.5, 0.77]}}
    assert claims.coverage({"levels": [0.5, 0.8], "cells": [cell]})[1] == "within 3.0 points"
    shapes = {"arms": ["ours", "ridge"], "cells": {"1": [{"errors": {"ours": 1.0, "ridge": 2.0}}] * 2}}
    assert claims.shapes(shapes)[1] == "0.50; worst 0.50"
    data = {"a": {"arms": {"own": {"mean": 1.0, "excess": -0.02}, "other": {"mean": 2.0, "excess": 0.5}}}}
    assert claims.alone({"local": {"own": "", "other": ""}, "data": data})[1] == "-2.0 to -2.0 %"
