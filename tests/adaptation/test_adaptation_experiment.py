"""The experiment of adaptation, in small: resumable seeds, verdicts, the page, the picture, the command."""

import json

import pytest

from mpmtl_prob.cli import main
from studies import papers as experiments
from studies.papers import adaptation_arms, adaptations, page
from studies.papers.adaptation_arms import NAMES, ORACLE, Cell, arms, measure, tune, unit
from studies.papers.verdicts import FAILS, HOLDS, UNTESTED

TINY = adaptations.Adaptations(2, ((60, 25),), (), (20, 40), (1.0, 15.0))
SHORT = {
    "frozen": ({"steps": 2}, {"steps": 4}),
    "noisy gradient": ({"steps": 2}, {"steps": 3}),
    "profiled": ({"steps": 4, "source_weight": 0.2}, {"steps": 4}),
    "warm": ({"steps": 4}, {"steps": 3}),
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out, drawn = tmp_path_factory.mktemp("out"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptation_arms, "CANDIDATES", SHORT)
        patch.setattr(adaptation_arms, "_TRIED", SHORT)
        patch.setattr(adaptations.adaptation_figures, "draw", lambda *args: drawn.append(args))
        patch.setattr(adaptations, "PARTS", {k: v for k, v in adaptations.PARTS.items() if k != "school"})
        patch.setattr(adaptations.Adaptations, "cells", property(no_school))
        patch.setattr(adaptation_arms.problems, "two_sources", small(adaptation_arms.problems.two_sources))
        report = experiments.reproduce(TINY, out, command="made", progress_bar=False)
        again = unit(Cell("two_sources", (60, 25), None, 0.5), 0, next(out.glob("units/*")))
    assert drawn == [(report, out / "adaptation.png")]
    return out, report, again


def small(made):
    return lambda records, seed: made(records, num_features=3, tests=100, seed=seed)


def no_school(self, cells=adaptations.Adaptations.cells.fget):
    smaller = cells(self)
    del smaller["school"]
    return smaller


def test_every_arm_has_an_error_and_every_claim_a_verdict(done):
    out, report, _ = done
    rows = report["parts"]["made"]["tables"][0]
    assert [row["arm"] for row in rows if not row["arm"].endswith(ORACLE)] == list(NAMES)
    errors = {row["arm"]: row["two_sources (60, 25), eps 1"] for row in rows}
    for name in SHORT:
        assert errors[name + ORACLE] <= errors[name]
    said = [v["verdict"] for v in report["verdicts"]]
    assert said.count(UNTESTED) == 3
    assert set(said) <= {HOLDS, FAILS, UNTESTED}
    assert {v["claim"] for v in report["verdicts"]} >= {
        "DA Fig. 1",
        "DA Fig. 1, gap",
        "DA Fig. 2",
        "DA Table 1, stand-ins",
    }
    assert json.loads((out / "adaptation.json").read_text()) == report


def test_a_seed_that_is_there_is_not_run_again(done, monkeypatch):
    monkeypatch.setattr(adaptation_arms, "CANDIDATES", SHORT)
    monkeypatch.setattr(adaptation_arms, "measure", lambda *args: pytest.fail("measured again"))
    folder = next(done[0].glob("units/*"))
    assert unit(Cell("two_sources", (60, 25), None, 0.5), 0, folder) == done[2]


def test_constants_are_chosen_without_a_private_record(monkeypatch):
    monkeypatch.setattr(adaptation_arms, "_TRIED", SHORT)
    monkeypatch.setattr(adaptation_arms.problems, "two_sources", small(adaptation_arms.problems.two_sources))
    cell, seen = Cell("two_sources", (60, 25), None, 1.0), []
    data = cell.pair(0)
    arm = next(arm for arm in arms(cell, 0) if arm.name == "profiled")
    watched = arm._replace(make=lambda **chosen: Watched(arm.make(**chosen), seen))
    assert tune(watched, data.source, 25, 0) in (0, 1)
    rows = {tuple(x) for x in data.source.X}
    assert len(seen) == 2
    assert all(tuple(x) in rows for pair in seen for each in pair for x in each.X)


class Watched:
    def __init__(self, model, seen):
        self.model, self.seen = model, seen

    def fit(self, source, target):
        self.seen.append((source, target))
        return self.model.fit(source, target)


def test_only_what_is_wanted_is_measured():
    measured = measure(Cell("shifted", (60, 25), 0.5, 1.0), 0, ("source, Huber", "one release, domains"))
    assert measured.keys() == {"source, Huber", "one release, domains", "coverage"}


@pytest.mark.usefixtures("unspaced_figures")
def test_the_picture_and_the_page(done, tmp_path):
    _, report, _ = done
    parts = report["parts"] | {"school": report["parts"]["made"]}
    adaptations.adaptation_figures.draw(report | {"parts": parts}, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 30_000
    texts = page.pages([report], tmp_path / "figures", tmp_path / "results.md")
    text = texts[tmp_path / "results" / "adaptation.md"]
    assert "A private target and a public source" in text
    assert "Cannot be checked here: none of the sets may be shipped" in text


def test_command_line(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(adaptations, "reproduce", lambda study, out, **options: asked.append(study) or CANNOT)
    options = ["--fast", "--replications", "2", "--workers", "1", "--out", str(tmp_path), "--quiet"]
    assert main(["reproduce", "adaptation", *options]) == 0
    assert asked[0].replications == 2
    assert "not testable: claim DA Table 1" in capsys.readouterr().out


CANNOT = {"name": "a", "figure": "f", "title": "t", "verdicts": adaptations.CANNOT, "targets": []}
