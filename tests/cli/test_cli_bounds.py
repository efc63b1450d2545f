"""Bounds, odds and audits from a shell: the numbers are those of the library, and a missing number is named."""

import json

import pytest

import mpmtl_prob as mp
from mpmtl_prob.adaptation.paper import accounting
from mpmtl_prob.adaptation.paper.losses import Logistic
from mpmtl_prob.adaptation.paper.objective import Sizes, Smoothed
from mpmtl_prob.cli import main
from mpmtl_prob.privacy import Ledger, calibrate
from mpmtl_prob.theory.adaptation import stationarity
from mpmtl_prob.theory.people import lower_bounds
from mpmtl_prob.theory.utility import UtilityBound
from mpmtl_prob.threat_models import metalearning_error


def said(capsys, *asked):
    assert main([*map(str, asked), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_bounds_are_those_of_the_library(capsys):
    (row,) = said(
        capsys, "bounds", "utility", "--tasks", 10**6, "--features", 10, "--epsilon", 1, "--norm", "group sparse"
    )["rows"]
    bound = UtilityBound(10**6, 10, 1.0, norm="group sparse")
    assert (row["noise M"], row["error"]) == pytest.approx((bound.noise(), bound.rate()))
    asked = [
        "bounds",
        "utility",
        "--tasks",
        50,
        "--features",
        10,
        "--epsilon",
        1,
        "--delta",
        1e-3,
        "--composition",
        "plain",
    ]
    plain = said(capsys, *asked)
    assert plain["rows"][0]["error"] == UtilityBound(50, 10, 1.0, 1e-3, composition="plain").rate()
    assert plain["text"].endswith("There are fewer tasks than Assumption 1 needs at C = 1.")
    people = ["--people", 1000, "--features", 10**6, "--epsilon", 1, "--delta", 5e-7]
    rows = said(capsys, "bounds", "people", *people)["rows"]
    assert [row["at least"] for row in rows] == [bound.value for bound in lower_bounds(1000, 10**6, 1.0, 5e-7)]
    assert all(row["at least"] < row["at most"] for row in rows)
    rows = said(capsys, "bounds", "metalearning", "--people", 50, "--features", 4, "--epsilon", 1, "--delta", 1e-4)[
        "rows"
    ]
    for row in rows:
        assert row["newcomers, at most"] == metalearning_error(row["loss"], 50, 4, 1.0, 1e-4).newcomers
    records = ["--public", 2000, "--private", 500, "--features", 8, "--epsilon", 1, "--delta", 0.01]
    (row,) = said(capsys, "bounds", "adaptation", *records)["rows"]
    assert row["true eps of the printed noise"] == accounting.printed_epsilon(1.0, 0.01)
    logistic = (Logistic(1.0, 1.0), Smoothed(2.0), Sizes(2000, 500, 0.5))
    for more in ({"steps": None}, {"steps": 40}):
        steps = [] if more["steps"] is None else ["--steps", more["steps"]]
        (row,) = said(capsys, "bounds", "ncnvx", *records, *steps)["rows"]
        expected, best = stationarity(*logistic, epsilon=1.0, delta=0.01, num_features=8, **more)
        assert (row["E ||G_J||^2, at most"], row["steps T"]) == (expected, best)
    law = calibrate(1.0, 1e-3, 3)
    text = said(capsys, "bounds", "odds", "--features", 3, "--epsilon", 1, "--delta", 1e-3)["text"]
    assert text == str(mp.privacy.accounting.curves.membership_odds((law,), "replace", 1.0, 0.5))


def test_an_audit_refutes_the_papers_noise_and_no_ledger(capsys, tmp_path):
    noise = ["--features", 2, "--epsilon", 1, "--delta", 0.05, "--trials", 400, "--mechanism", "paper"]
    rows = said(capsys, "audit", "noise", *noise)["rows"]
    assert (rows[0]["attack"], rows[0]["found"], rows[0]["expected"]) == ("likelihood ratio", "broken", "broken")
    book = Ledger(tmp_path / "ledger.db", epsilon=5.0, delta=0.05)
    book.charge([calibrate(1.0, 0.05, 2)])
    (row,) = said(capsys, "audit", "ledger", "--ledger", tmp_path / "ledger.db", "--trials", 400)["rows"]
    assert row["found"] == "not broken"
    assert row["claimed eps"] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.evidence
def test_an_audit_finds_its_controls_and_nothing_else(capsys):
    rows = said(capsys, "audit", "noise", "--features", 2, "--epsilon", 1, "--delta", 0.05, "--trials", 4000)["rows"]
    assert [row["found"] for row in rows] == [row["expected"] for row in rows]
    asked = ["--people", 20, "--features", 30, "--epsilon", 1, "--delta", 0.01, "--trials", 2000]
    people = said(capsys, "audit", "people", *asked)
    assert {row["found"] for row in people["rows"] if row["promise holds"] == "yes"} <= {"not broken", "-"}
    assert "NOT BROKEN" not in people["text"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["bounds", "nothing", "--epsilon", "1"], "WHAT: expected one of utility, people"),
        (["bounds", "utility", "--epsilon", "1"], "--tasks: expected a number with utility, got none"),
        (
            ["bounds", "people", "--epsilon", "1", "--people", "9", "--features", "3"],
            "--delta: expected a number with people",
        ),
        (
            [
                "bounds",
                "odds",
                "--people",
                "9",
                "--features",
                "3",
                "--epsilon",
                "1",
                "--delta",
                ".01",
                "--adjacency",
                "replace",
            ],
            "--adjacency: expected it without --people, got 'replace'",
        ),
        (["audit", "noise", "--epsilon", "1", "--delta", ".1"], "--features: expected a number with noise, got none"),
        (["audit", "ledger"], "--ledger: expected a file that publish or release has charged, got none"),
        (["audit", "everything"], "WHAT: expected one of noise, ledger, people"),
    ],
)
def test_what_is_missing_is_named(asked, message, capsys):
    assert main(asked) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--private", "0"], "private: expected a whole number >= 1, got 0"),
        (["--steps", "0"], "steps: expected a whole number >= 1, got 0"),
        (["--features", "0"], "--features: expected a whole number >= 1, got 0"),
        (["--epsilon", "0"], "epsilon: expected a positive number, got 0.0"),
        (["--delta", "2"], "delta: expected a number in (0, 1), got 2.0"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_adaptation_bounds_refuse_numbers_out_of_range(wrong, message, capsys):
    right = ["--public", "5", "--private", "10", "--features", "3", "--epsilon", "1", "--delta", "1e-5"]
    assert main(["bounds", "adaptation", *right, *wrong]) == 2
    assert message in capsys.readouterr().err
