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


# -- mixed models beside other tools ---------------------------------------------------------------------------------------


def test_a_mixed_study_has_the_moments_of_its_model(benchmark):
    models = benchmark("pooled_mixed_models")
    study = models.draw(4000, 0, patients=4, d=3)
    Omega = models.covariance(3)
    assert_allclose(np.trace(Omega), models.SPREAD**2)
    assert_allclose(np.linalg.norm(study.mu), models.LENGTH)
    off = study.beta - study.mu
    assert_allclose(off.T @ off / len(off), Omega, atol=FAR * Omega[0, 0] * np.sqrt(2 / len(off)))
    residual = study.y - np.einsum("mni,mi->mn", study.X, study.beta)
    assert abs(residual.var() - 1) < FAR * np.sqrt(2 / residual.size)
    assert_allclose(study.X[..., 0], 1)
    assert_allclose(study.beta, models.draw(4000, 0, patients=4, d=3).beta, rtol=0)


def test_a_tools_table_is_judged_by_the_truth(benchmark, tmp_path):
    models, d = benchmark("pooled_mixed_models"), 11
    beta, mu = np.arange(2.0 * d).reshape(2, d), np.arange(float(d))
    lines = ["hospital,coefficient,estimate,lower,upper"]
    for name, truth, off in (("H0000", beta[0], 3.0), ("H0001", beta[1], -4.0), ('""', mu, 0.5)):
        lines += [f"{name},{j},{value + off},{value + off - 3.5},{value + off + 3.5}" for j, value in enumerate(truth)]
    (tmp_path / "estimates.csv").write_text("\n".join(lines))
    result = models.judged(tmp_path / "estimates.csv", {"beta": beta, "mu": mu})
    assert_allclose(result["coefficients"]["error"], np.sqrt((9 + 16) / 2))
    assert_allclose(result["coefficients"]["covered"], 0.5)  # 3 is within 3.5, and 4 is not
    assert_allclose(result["averages"]["error"], 0.5)
    assert result["averages"]["covered"] == 1
    assert models.score(mu, np.full(d, np.nan), mu, mu) == {"error": 0.0, "covered": None}  # a tool without intervals


def test_a_process_over_its_limit_is_stopped(benchmark, tmp_path):
    models = benchmark("pooled_mixed_models")
    np.savez(tmp_path / "truth.npz", beta=np.zeros((1, 11)), mu=np.zeros(11))
    result = models.fit([models.sys.executable, "-c", "while True: pass"], tmp_path, 0, limit=1)
    assert result["over"] == 1
    assert 0.5 < result["CPU seconds"] < 5
    result = models.fit([models.sys.executable, "-c", "raise ValueError('no such tool')"], tmp_path, 0, limit=100)
    assert result["failed"] == "ValueError: no such tool"


def test_intervals_of_draws_and_r_hat_are_those_of_arviz(benchmark):
    fits = benchmark("pooled_mixed_models_fits")
    az = pytest.importorskip("arviz")
    draws = np.random.default_rng(0).standard_normal((4, 50, 3)) + np.array([0.0, 0.0, 2.0, 0.0])[:, None, None]
    assert_allclose(fits.split_rhat(draws), [float(az.rhat(draws[..., j], method="split")) for j in range(3)])
    result = fits.of_draws(draws[:, :, None], draws, {})
    assert_allclose(result.beta, [draws.mean(axis=(0, 1))])
    assert_allclose(result.low, [np.quantile(draws.reshape(-1, 3), 0.05, axis=0)])
    assert not result.said["converged"]  # one chain is elsewhere


def test_every_hospital_alone_has_its_least_squares(benchmark):
    models, fits = benchmark("pooled_mixed_models"), benchmark("pooled_mixed_models_fits")
    smf, pd = pytest.importorskip("statsmodels.formula.api"), pytest.importorskip("pandas")
    study = models.draw(3, 0, patients=20, d=3)
    frame = pd.DataFrame(study.X[..., 1:].reshape(60, 2), columns=["x1", "x2"])
    frame.insert(0, "hospital", np.repeat(["c", "a", "b"], 20))
    frame["y"] = study.y.ravel()
    result = fits.alone(frame, 0, "alone")
    own = smf.ols("y ~ x1 + x2", frame[frame["hospital"] == "a"]).fit()
    assert_allclose(result.beta[1], own.params)
    assert_allclose(np.column_stack([result.low[1], result.high[1]]), own.conf_int(0.1))


def test_what_is_over_its_limit_is_not_run_again(benchmark):
    models = benchmark("pooled_mixed_models")
    options = models.argparse.Namespace(seeds=2, sizes=[12, 30], arms=["lme4", "alone"], limit=60.0)
    done = [{"arm": "lme4", "m": 12, "seed": 0, "over": 60.0}, {"arm": "alone", "m": 12, "seed": 0}]
    assert list(models.missing(options, done)) == [(30, 0, "alone"), (12, 1, "alone"), (30, 1, "alone")]
    options.limit = 61.0
    assert next(models.missing(options, done)) == (12, 0, "lme4")  # with more time it may end


def test_the_section_says_who_is_faster_and_what_was_stopped(benchmark):
    section = benchmark("page_pooled")

    def ran(arm, seconds, error, **more):
        scores = {"error": error, "covered": 0.9}
        took = {"seconds": 2 * seconds, "CPU seconds": seconds, "memory": 2**30}
        return {"arm": arm, "m": 300, "seed": 0, "coefficients": scores, "averages": scores, **took, **more}

    said = {"said": {"converged": True}}
    stopped = {"arm": "PyMC, not centred", "m": 30, "seed": 0, "seconds": 400.0, "CPU seconds": 300.0, "memory": 2**30}
    fits = [
        stopped | {"over": 300.0},
        ran("alone", 1.0, 0.1, **said),
        ran("lme4, uncorrelated", 10.0, 0.04, **said),
        ran("lme4", 100.0, 0.05, **said),
        ran("ours, eps = 1", 20.0, 0.08, **said),
    ]
    report = {"fits": fits, "patients": 100, "columns": 11, "processor": "a processor"}
    text = "\n".join(section.pooled(report))
    assert "faster are lme4 (uncorrelated)" in text
    assert "Its error of coefficients is 1.60 to 2.00 times theirs, that of average effects 1.60 to 2.00 times" in text
    assert "its memory 1.00 times; beside *alone* its error of coefficients is 0.80 times." in text
    assert (
        "| PyMC, not centred | full | **no** | not run | - | - | - | - | - | - | more than 300 CPU s with 30 hospitals |"
        in text
    )
    assert "Not measured: statsmodels" in text
    # a second study that one tool alone has finished does not enter its means
    fits.append(ran("alone", 1.0, 0.9, **said) | {"seed": 1})
    assert section.shared_seeds(fits[1:]) == [0]
    assert section.means(fits[1:])["alone"]["coefficients, error"] == 0.1
