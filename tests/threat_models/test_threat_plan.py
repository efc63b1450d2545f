"""Number of people that a wanted error needs: numbers, words, a picture, and the command."""

import json
import sys

import pytest

from mpmtl_prob.cli import main
from mpmtl_prob.threat_models import NoisyMeans, Plan, views

ASKED = ["plan", "--epsilon", "1", "--delta", "1e-6", "--features", "10000"]


def test_the_numbers_of_the_table():
    assert list(Plan(1.0, 1e-6, 10_000, error=0.01).needed.values()) == [25, 57, 1809, 4238]
    assert list(Plan(1.0, 1e-6, 1000, error=0.01).needed.values()) == [25, 57, 1349, 1349]  # more others than questions


@pytest.mark.parametrize("asked", [(1.0, 1e-6, 300, 0.01), (0.3, 1e-3, 20, 0.1), (4.0, 1e-9, 5000, 1e-4)])
def test_as_many_people_have_the_error_and_one_fewer_has_not(asked):
    plan = Plan(*asked)
    for name, people in plan.needed.items():
        assert plan.errors(people)[name] <= plan.error
        assert plan.errors(people - 1)[name] > plan.error


def test_errors_are_those_of_the_mechanisms():
    plan = Plan(1.0, 1e-6, 500, num_people=200)
    assert plan.needed is None
    mechanism = NoisyMeans.within(1.0, 1e-6, 200, 500, view=views.others(), clipped=False)
    assert plan.errors(200)["all others"] == pytest.approx(mechanism.error(0.0))
    assert plan.errors(200)["none"] == pytest.approx(1 / 800)
    alone = plan.errors(1)  # has no others, and may still stand on a billboard
    assert alone["one other"] is alone["all others"] is None
    assert alone["billboard"] == alone["none"] == pytest.approx(1 / 4)


def test_no_error_is_larger_than_of_answering_0():
    """Noise for a billboard of one person costs 7000 in this plan, and whoever knows nothing has 1/4."""
    plan = Plan(1.0, 1e-6, 100, num_people=1)
    assert NoisyMeans.within(1.0, 1e-6, 1, 100, view=views.billboard(), clipped=False).error(0.0) > 1000
    assert plan.errors(1)["billboard"] == 0.25
    assert [row["error"] for row in plan.to_dict()["threat_models"]] == [0.25, None, None, 0.25]
    assert "0.25: answering 0 without any data, as an estimate is no better" in str(plan)
    assert "answering 0" not in str(Plan(1.0, 1e-6, 10, num_people=10_000))
    with pytest.raises(ValueError, match=r"^error: expected less than 0\.25, which answering 0 has without any data"):
        Plan(1.0, 1e-6, 100, error=0.25)


def test_a_plan_is_plain_numbers_and_words():
    plan = Plan(1.0, 1e-6, 10_000, error=0.01, num_people=1000)
    numbers = plan.to_dict()
    assert json.loads(json.dumps(numbers)) == numbers
    assert {row["name"]: row["people_needed"] for row in numbers["threat_models"]} == plan.needed
    assert {row["name"]: row["error"] for row in numbers["threat_models"]} == plan.errors(1000)
    head, *rows = str(plan).splitlines()[2:]
    assert head.endswith("people for an error of 0.01  error of 1000 people")
    assert rows[3].split()[-2:] == ["1809", "0.0181"]
    assert str(Plan(1.0, 1e-6, 5, num_people=1)).splitlines()[-4].split()[-1] == "-"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error": 0.0}, "error: expected a positive number, got 0.0"),
        ({"error": float("nan")}, "error: expected a positive number, got nan"),
        ({"epsilon": 0.0}, "epsilon: expected a positive number"),
        ({"delta": 1.0}, r"delta: expected a number in \(0, 1\), got 1.0"),
        ({"num_features": 0}, "num_features: expected a whole number >= 1, got 0"),
        ({"num_people": 0}, "num_people: expected a whole number >= 1, got 0"),
        ({"error": None}, "error: expected an error or num_people, got neither"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**({"epsilon": 1.0, "delta": 1e-6, "num_features": 10, "error": 0.01} | options))


def test_the_picture_shows_curves_and_people():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    plan, ax = Plan(1.0, 1e-6, 100, error=0.01, num_people=30), figure.subplots()
    plan.plot(ax)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[1] == f"any one other person, {plan.needed['one other']} people"
    dots = [tuple(line.get_xydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    assert set(dots) == {(n, 0.01) for n in plan.needed.values()} | {(30, e) for e in plan.errors(30).values()}
    assert ax.get_ylim()[1] > max(plan.errors(30).values()) > 0.2


def test_command_line(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "plan.png"
    assert main([*ASKED, "--error", ".01", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert [line.split()[-1] for line in said.splitlines()[4:8]] == ["25", "57", "1809", "4238"]
    assert f"written to {out}" in said
    assert out.stat().st_size > 10_000
    assert main([*ASKED, "--people", "1000", "--json", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out) == Plan(1.0, 1e-6, 10_000, num_people=1000).to_dict()
    out.unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*ASKED, "--error", ".01", "--out", str(out)]) == 0
    said, missing = capsys.readouterr()
    assert "4238" in said
    assert "no picture: pictures need matplotlib" in missing
    assert main([*ASKED, "--error", "0", "--out", str(out)]) == 2
    assert capsys.readouterr().err == "mpmtl-prob plan: --error: expected a positive number, got 0.0\n"
    assert not out.exists()
