"""The threat models as an experiment, in small: exact numbers, what is measured on them, verdicts, the page, the command."""

import json

import numpy as np
import pytest
from helpers.effort import EVIDENCE, effort
from scipy import stats

from mpmtl_prob.cli import main
from mpmtl_prob.privacy import views
from mpmtl_prob.threat_models import NoisyMeans, odds, posterior
from studies import papers as experiments
from studies.papers import chance, page, threat_attacks, threat_errors, threat_posteriors, threats
from studies.papers.verdicts import FAILS, HOLDS

TINY = threats.ThreatModels(
    replications=20, people=(10, 100), features=(1000, 3000), signs=500, trials=1000, numbers=6000
)


def given(values, mechanism, population=None, *, public=posterior.public, **run):
    """Give the population where questions are alike: test_threat_posterior.py shows that chains learn it."""
    return public(values, mechanism, population=population or (25.6, 13.8), **run)  # p has mean .3 and sd .15


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out, drawn = tmp_path_factory.mktemp("out"), []
    with pytest.MonkeyPatch.context() as patch:  # of the picture below
        patch.setattr(threats.threat_figures, "draw", lambda *args: drawn.append(args))
        patch.setattr(threat_posteriors, "_QUESTIONS", effort(600, 2000))  # of which both verdicts are sure enough
        if not EVIDENCE:
            patch.setattr(posterior, "public", given)
        report = experiments.reproduce(TINY, out, fast=True, command="made", progress_bar=False)
    assert drawn == [(report, out / "threat-models.png")]
    return out, report


def test_all_claims_hold_and_everything_is_written(done):
    out, report = done
    assert [v["claim"] for v in report["verdicts"] if v["verdict"] != HOLDS] == []
    assert len(report["verdicts"]) > 10
    assert json.loads((out / "threat-models.json").read_text()) == report
    assert report["settings"]["replications"] == 20


@pytest.mark.usefixtures("unspaced_figures")
def test_the_picture(done, tmp_path):
    figures, report = threats.threat_figures, done[1]
    assert {name.split(",")[0] for name in figures._PANELS} == report["parts"].keys() - {
        "check",
        "information",
        "posteriors",
    }
    figures.draw(report, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 50_000


def test_lines_are_exact_and_dots_measured(done):
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    rows = [row for row in done[1]["parts"]["coalitions"]["tables"][0] if row["noise against"] == "one other"]
    threats.threat_figures._line(ax, rows, "k", "C0", "a line")
    (line, dots) = ax.lines[:2]
    assert line.get_xydata().tolist() == [[row["k"], row["exact"]] for row in rows]
    assert dots.get_xydata().tolist() == [[row["k"], row["measured"]] for row in rows]


def test_an_interrupted_run_goes_on_where_it_stopped(done, monkeypatch):
    out, report = done

    def never(settings):
        raise AssertionError("computed again")

    monkeypatch.setattr(threats.threat_figures, "draw", lambda report, path: None)
    monkeypatch.setattr(threats, "PARTS", dict.fromkeys(threats.PARTS, never))
    again = threats.reproduce(TINY, out, fast=True, command="made", progress_bar=False)
    assert again == report
    (next(out.glob("units/*/check.json"))).unlink()
    monkeypatch.setitem(threats.PARTS, "check", threat_errors.check)
    assert threats.reproduce(TINY, out, fast=True, command="made", progress_bar=False) == report  # seeds are its own


def test_its_page_shows_every_number_and_verdict(done, tmp_path):
    out, report = done
    texts = page.write(out, tmp_path / "results.md")
    overview, text = texts[tmp_path / "results.md"], texts[tmp_path / "results" / "threat-models.md"]
    assert "**Fast version** (threat-models)" in overview
    assert "[threat-models](results/threat-models.md)" in overview
    assert text.startswith("# threat-models: Who sees what, and what it costs")
    for part in report["parts"].values():
        assert f"## {part['title']}" in text
        for row in (row for rows in part["tables"] for row in rows):
            assert "| " + " | ".join(page._cells(row).values()) + " |" in text
    for verdict in report["verdicts"]:
        assert verdict["why"] in text
    assert "What a participant is told" in text
    assert "threat-models (Privacy in Metalearning" in page.brief(report)


def test_a_standard_error_stands_beside_its_number_to_two_digits():
    row = {
        "arm": "ours",
        "error": 0.0116812,
        "error, s.e.": 0.0003297,
        "people": 4238,
        "other": 0.5,
        "other, s.e.": None,
    }
    assert page._cells(row) == {"arm": "ours", "error": "0.01168 (0.00033)", "people": "4238", "other": "0.5"}


def test_a_table_wider_than_a_page_is_turned():
    """A table of more columns than rows is turned where it is wider than a page."""
    names = [f"cell {k}" for k in range(page.MOST_COLUMNS)]
    wide = [{"arm": arm, **dict.fromkeys(names, value)} for arm, value in (("ours", "1"), ("theirs", "2"))]
    assert page._upright(wide).splitlines()[0] == "| arm | ours | theirs |"
    assert page._upright(wide).splitlines()[2:] == [f"| {name} | 1 | 2 |" for name in names]
    narrow = [{name: row[name] for name in ("arm", "cell 0")} for row in wide]
    assert page._upright(narrow).splitlines()[2:] == ["| ours | 1 |", "| theirs | 2 |"]


def test_what_is_known_beforehand_stands_beside_what_is_found(done):
    parts = done[1]["parts"]
    people = parts["needed"]["tables"][0]
    assert [row["people"] for row in people] == [25, 57, 1349, 1349, 25, 57, 1809, 4238]
    exact = [row["exact"] for row in parts["check"]["tables"][0]]
    assert exact == pytest.approx([0.00167, 0.00267, 0.1007, 2.002, 2.002], rel=5e-3)
    learnt = {(row["noise against"], row["p"]): row["exact"] for row in parts["information"]["tables"][0]}
    assert learnt["one other", "known"] == pytest.approx(0.354, abs=1e-3)  # > .2
    assert learnt["one other", "not known"] == pytest.approx(0.047, abs=1e-3)
    cells = {(row["noise against"], row["looks"]): row for row in parts["matrix"]["tables"][0]}
    assert cells["one other", "all others"]["promise"] == "fail"
    assert cells["one other", "all others"]["broken by LR"] is True
    assert cells["all others", "everybody"]["LR AUC"] is None


@pytest.mark.parametrize("known", [True, False])
def test_the_mean_log_factor_is_the_factors_average(known):
    """The mean log factor is what the factor itself averages to."""
    # one feature, three people: every x and count by enumeration, the noisy mean by quadrature, with the library's factor
    mechanism = NoisyMeans(3, 1, 0.4, views.billboard())
    g, h = np.linspace(-4, 4, 801, retstep=True)
    q, w = np.polynomial.legendre.leggauss(20)
    total = 0.0
    for at, weight in zip((q + 1) / 2, w / 2, strict=True):
        for x in (-1, 1):
            factor = odds.log_factor(g[:, None], np.array([x]), mechanism, p=[2 * at - 1] if known else None)
            for rest, chances in zip((-2, 0, 2), stats.binom.pmf([0, 1, 2], 2, at), strict=True):
                law = stats.norm.pdf(g, (rest + x) / 3, 0.4)
                total += weight * (at if x == 1 else 1 - at) * chances * h * (law @ factor)
    assert threat_attacks.mean_log_factor(mechanism, views.billboard(), known) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("part", ["people", "questions", "check"])
def test_other_noise_than_the_formula_says_is_found(part, monkeypatch):
    # a tenth more noise than the exact errors know of: three hundred replications see it, whatever the seed
    noisier = lambda self, rng, totals: (
        np.asarray(totals) / self.num_people + 1.1 * self.sd * rng.standard_normal(np.shape(totals))
    )
    monkeypatch.setattr(NoisyMeans, "board", noisier)
    settings = threats.ThreatModels(300, people=(100, 300), features=(1000, 2000), signs=500)
    assert threats.PARTS[part](settings)["verdicts"][0]["verdict"] == FAILS


def test_a_promise_that_does_not_hold_is_no_pass(monkeypatch):
    monkeypatch.setattr(threat_attacks.odds, "participant", lambda *_, **__: "")  # what a participant is told
    weaker = NoisyMeans.at(0.9, 50, 100, view=views.others())
    honest = threat_attacks.one_of_each
    monkeypatch.setattr(threat_attacks, "one_of_each", lambda *a, **k: honest(*a, **k) | {"all others": weaker})
    part = threat_attacks.matrix(TINY)
    assert part["verdicts"][0]["verdict"] == FAILS
    assert part["tables"][0][7]["promise"] == "fail"


def test_room_for_chance():
    assert 2 * stats.t(19).sf(chance.far(7, 20)) * 7 == pytest.approx(chance.FALSE_ALARM)
    assert chance.far(1, 20) > chance.far(1, 400) > 5.7
    row = chance.measured(1.0, [0.0, 1.0, 2.0, 3.0])
    assert chance.z_score(row) == pytest.approx(0.5 / (np.std([0, 1, 2, 3], ddof=1) / 2))
    said = lambda off, **options: chance.agree("c", "s", "d", [chance.beside(0.0, off, 1.0)], 10_000, **options)[
        "verdict"
    ]
    assert said(5.0) == HOLDS
    assert said(6.0) == said(5.0, also=False) == said(np.nan) == FAILS
    assert chance.z_score(chance.beside(1.0, 1.0, 0.0)) == 0.0
    assert chance.z_score(chance.beside(1.0, 0.9, 0.0)) == np.inf


def test_command_line(done, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(threats.ThreatModels, "fast", lambda self: TINY)
    monkeypatch.setattr(threats, "PARTS", {"check": threat_errors.check})
    monkeypatch.setattr(threats.threat_figures, "draw", lambda report, path: None)
    options = ["--fast", "--replications", "30", "--workers", "1", "--out", str(tmp_path), "--quiet"]
    assert main(["reproduce", "threat-models", *options]) == 0
    assert "holds: claim check, 100 people, 2000 questions, rho = 0.05" in capsys.readouterr().out
    report = json.loads((tmp_path / "threat-models.json").read_text())
    assert report["command"] == "mpmtl-prob reproduce threat-models --fast --replications 30"
    assert report["settings"]["replications"] == 30
