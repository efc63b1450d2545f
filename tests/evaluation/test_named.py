"""Estimators by name, as `mpmtl-prob compare --arms` has them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob.cli import main
from mpmtl_prob.evaluation import compare, cross_validate, fits_by_name, grids, named

TRAIN, TEST, _ = mp.datasets.synthetic_low_rank(num_tasks=12, num_features=4, rows=12, test_rows=10, group=4, seed=0)
LABELS, OTHERS = (replace(part, targets=np.where(part.targets > 0, 1.0, -1.0)) for part in (TRAIN, TEST))
POINTS = [name for name in named.ARMS if name != "noise_aware"]
QUICK = {"progress_bar": False}


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    """One candidate of a grid, on two folds."""
    whole = cross_validate
    some = lambda grid, *rest, **options: whole(grid[len(grid) // 2 :][:1], *rest, **options | {"folds": 2})
    monkeypatch.setattr(named, "cross_validate", some)


ALL_OR_SOME = pytest.mark.parametrize(
    "arms", [pytest.param(POINTS, marks=pytest.mark.evidence), ["ridge", "mtrl", "low_rank"]], ids=["all", "some"]
)


@ALL_OR_SOME
@pytest.mark.filterwarnings("ignore::mpmtl_prob.estimators.ConvergenceWarning")
def test_every_arm_is_fitted_and_says_what_is_proved(arms):
    fits = fits_by_name(arms, TRAIN, [1.0, 10.0], rounds=2, **QUICK)
    noisy = [name for name in arms if named.ARMS[name].noisy]
    assert len(fits) == len(arms) + len(noisy)
    assert list(fits)[: len(arms) - len(noisy)] == [named.ARMS[name].title for name in arms if name not in noisy]
    for name in {"low_rank", "group_sparse", "low_rank_sparse"}.intersection(arms):
        assert fits[f"{named.ARMS[name].title}, eps = 10"].release.rounds == 2
    table = compare(fits, TEST)
    assert "auc" not in table.rows[0]
    assert table["STL ridge"]["nmse"] < 0.9
    assert all(np.isfinite(row["nmse"]) for row in table.rows)


@ALL_OR_SOME
@pytest.mark.filterwarnings("ignore::mpmtl_prob.estimators.ConvergenceWarning")
def test_labels_have_an_auc_and_probabilities(arms):
    fits = fits_by_name(arms, LABELS, [1.0], rounds=2, logistic=True, **QUICK)
    table = compare(fits, OTHERS)
    assert "AUC" in str(table).splitlines()[0]
    by_name = {row["name"]: row for row in table.rows}
    ridge = fits["STL ridge"]
    scores = ridge.fitted.predict(OTHERS)
    areas = []
    for i in range(OTHERS.num_tasks):
        rows = slice(OTHERS.offsets[i], OTHERS.offsets[i + 1])
        up, down = (scores.means[rows][OTHERS.targets[rows] == label] for label in (1, -1))
        if len(up) and len(down):
            areas.append(np.mean((up[:, None] > down) + 0.5 * (up[:, None] == down)))
    assert by_name["STL ridge"]["auc"] == pytest.approx(np.mean(areas), rel=1e-12)
    means = np.tanh(scores.means / 2)  # the mean label
    assert by_name["STL ridge"]["nmse"] == pytest.approx(
        np.mean((means - OTHERS.targets) ** 2) / np.var(OTHERS.targets)
    )
    with pytest.raises(
        ValueError, match="train: expected targets -1 and 1, or 0 and 1, for a logistic loss, got others"
    ):
        fits_by_name(["ridge"], TRAIN, logistic=True, **QUICK)


def test_candidates_have_the_rounds_that_are_asked_for():
    assert {one.rounds for one in grids.rounds(mp.estimators.LowRank, TRAIN, counts=(7,))} == {7}
    sizes = [len(grids.rounds(mp.estimators.LowRank, TRAIN, **options)) for options in ({}, {"counts": (7,)})]
    assert sizes == [grids.SIZE, grids.SIZE]


def test_a_data_set_of_labels_is_one_word(capsys, monkeypatch):
    monkeypatch.setattr(mp.datasets, "lsoa2", lambda: LABELS)
    asked = ["compare", "--data", "lsoa2", "--fraction", ".7", "--quiet", "--arms", "ridge", "--logistic", "--json"]
    assert main(asked) == 0
    assert 0.5 < json.loads(capsys.readouterr().out)[0]["auc"] <= 1


def test_the_command_takes_arms_by_name(tmp_path, capsys):
    path = tmp_path / "labels.csv"
    LABELS.to_pandas(task="school", target="mark").to_csv(path, index=False)
    asked = ["compare", "--csv", str(path), "--task", "school", "--target", "mark", "--fraction", ".7", "--quiet"]
    assert main([*asked, "--arms", "ridge", "low_rank", "--rounds", "2", "--logistic", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["STL ridge", "Algorithm 2, eps = 1"]
    assert all(0 < row["auc"] <= 1 for row in rows)
    assert main([*asked, "--arms", "ridge", "low-rank"]) == 2
    assert "arms: expected one of 'ridge', 'lasso'" in capsys.readouterr().err
    assert main([*asked, "--arms", "low_rank", "--rounds", "0"]) == 2
    assert "rounds: expected a whole number >= 1, got 0" in capsys.readouterr().err


def test_rows_are_protected_from_the_curator_in_rounds_alone(tmp_path, capsys):
    """Algorithm 5 by one option: every algorithm that publishes rounds has a second guarantee, and no other arm."""
    fits = fits_by_name(["ridge", "frank_wolfe"], TRAIN, [10.0], rounds=2, row_epsilon=5.0, **QUICK)
    assert fits["STL ridge"].row_guarantee is None
    frank = fits["Frank-Wolfe, eps = 10"]
    assert frank.row_guarantee.claimed.epsilon == 5.0
    assert frank.row_guarantee.claimed.unit == "row"
    path = tmp_path / "tasks.csv"
    LABELS.to_pandas(task="school", target="mark").to_csv(path, index=False)
    asked = ["compare", "--csv", str(path), "--task", "school", "--target", "mark", "--fraction", ".7", "--quiet"]
    asked += ["--arms", "low_rank", "--rounds", "2", "--row-epsilon", "5"]
    assert main([*asked, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["one_row"]["claimed"]["epsilon"] == 5.0
    assert main([*asked[:-1], "0"]) == 2
    assert "--row-epsilon: expected a positive number" in capsys.readouterr().err
