"""The page for a board: in whose words, what it says, and what it must not."""

import datetime
import html
import re
import stat
import tomllib

import numpy as np
import pandas as pd
import pytest
from helpers.studies import IDS, STUDY, patients
from scipy import special, stats

import mpmtl_prob as mp
from mpmtl_prob import desk
from mpmtl_prob._util.words import plural
from mpmtl_prob.cli import main
from mpmtl_prob.privacy import Adjacency, IndependentLaplace, board
from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian
from mpmtl_prob.privacy.guarantee import NOTHING_SHARED, of_release

#: Words that a board does not know.
JARGON = ("lattice", "Gamma", "clip", "Wishart", "second moment", "eps", "delta")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study, its release, and the model of its first hospital, also as files."""
    root = tmp_path_factory.mktemp("report")
    (root / "study.toml").write_text(STUDY)
    study = mp.Schema.read(root / "study.toml")
    (root / "inbox").mkdir()
    sent = {name: desk.make_message(study, patients(name)) for name in IDS}
    for name, message in sent.items():
        message.save(root / "inbox" / f"{name}.json")
    release = desk.publish(desk.collect(study, root / "inbox"))
    model = desk.fit(study, patients("H0"), release, sent["H0"], chains=2, draws=100, progress_bar=False)
    release.save(root / "release.nc")
    model.save(root / "model.nc")
    return root, study, release, model


def plain(page):
    """The words of a page, up to what is for experts."""
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S))).split(
        "For experts"
    )[0]


def test_the_page_speaks_of_patients_and_in_the_studys_words(made):
    """The page speaks in the study's words and starts with the patients."""
    _, study, release, model = made
    words = plain(desk.report(release, study, shared=model.shared))
    assert words.index("Your patients") < words.index("How much can be learnt") < words.index("What was found")
    assert "8 hospitals took part" in words
    assert "insurance: private, against public" in words
    assert "age (years)" in words
    assert "The intercept is of patients with age 60 years and the study's usual mix of insurance." in words
    assert not [word for word in JARGON if re.search(rf"\b{word}\b", words)]


def test_effects_on_a_binary_outcome_are_told_as_ratios_of_odds():
    study = mp.datasets.example_study()
    schema = mp.Schema.from_dict(tomllib.loads(study.files["study-readmitted.toml"]))
    rows = dict(list(study.patients.groupby("hospital")))
    messages = tuple(desk.make_message(schema, rows[name]) for name in schema.participants)
    release = desk.publish(desk.Inbox(schema, messages, (), schema.terms()))
    model = desk.fit(schema, rows["H01"], release, messages[0], chains=2, draws=200, progress_bar=False)
    page = desk.report(release, schema, model=model)
    words = plain(page)
    assert "multiplies the odds of readmitted = yes, so that 1 is no effect" in words
    assert "The intercept is the probability of patients with age 60 years, albumin 38 g/l and" in words
    assert "log odds" not in words
    averages, own = model.average_effects(), model.coefficients()
    for table, column in ((averages, "mean"), (own, "mean"), (own, "alone")):
        for effect, value in table[column].items():
            written = 1 / (1 + np.exp(-value)) if effect == "intercept" else np.exp(value)
            assert f"<td>{written:.3g}</td>" in page
    assert f"<td>{np.exp(averages.loc['age', 'tau']):.3g}</td>" in page


def test_nothing_is_loaded_from_elsewhere(made):
    _, study, release, model = made
    page = desk.report(release, study, model=model)
    assert not re.findall(r"https?:|<script|<link|@import|url\(", page)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r"src='([^']*)'", page))


def test_without_a_model_the_page_is_of_public_things_alone(made):
    """The same whoever's the posterior is: nothing of a hospital's own rows is in it."""
    _, study, release, model = made
    page = desk.report(release, study, shared=model.shared)
    assert "Private to" not in page
    assert "own records alone" not in page
    # one of its numbers may be the average's to three digits, by chance
    assert sum(f"<td>{value:.3g}</td>" in page for value in model.coefficients()["mean"]) < 2


def test_with_a_model_the_page_is_marked_as_private(made):
    _, _, release, model = made
    page = desk.report(release, model=model)
    assert "Private to H0" in page
    assert f"{model.coefficients().loc['age', 'mean']:.3g}</td>" in page


def test_names_and_titles_are_shown_and_not_run(made, tmp_path):
    _, _, release, _ = made
    evil = STUDY.replace("Length of stay", "<script>alert(1)</script>")
    study = mp.Schema.from_dict(tomllib.loads(evil))
    page = desk.report(release, study, contact="<img src=x onerror=alert(1)>")
    assert "<script" not in page
    assert "<img src=x" not in page


def test_the_page_names_its_curator_and_its_day(made):
    _, study, release, _ = made
    words = plain(desk.report(release, study, curator="the trial unit.", prepared=datetime.date(2026, 3, 1)))
    assert "keeps the ledger of all releases, is the trial unit. Prepared on 1 March 2026, about this release" in words
    assert "Prepared on" not in desk.report(release, study)


def test_a_release_of_which_nothing_is_proved_says_so(made):
    root, study, *_ = made
    seeded = desk.publish(desk.collect(study, root / "inbox"), unsafe_seed=0)
    words = plain(desk.report(seeded, study))
    assert "Nothing is proved" in words
    assert "How much can be learnt" not in words


def test_a_page_of_another_study_is_refused(made):
    root, study, release, model = made
    other = mp.Schema.from_dict(tomllib.loads(STUDY.replace("epsilon = 3", "epsilon = 2")))
    with pytest.raises(ValueError, match="release: expected that of this study"):
        desk.report(release, other)
    again = desk.publish(desk.collect(study, root / "inbox"))
    with pytest.raises(ValueError, match="model: expected one of this release"):
        desk.report(again, model=model)
    with pytest.raises(ValueError, match="release: expected a Release, got DataFrame"):
        desk.report(pd.DataFrame())


def test_a_file_with_a_model_is_for_its_owner_alone(made, capsys):
    root, *_ = made
    files = ["report", "--release", str(root / "release.nc"), "--study", str(root / "study.toml"), "--quiet"]
    assert main([*files, "--model", str(root / "model.nc"), "--out", str(root / "own.html")]) == 0
    assert stat.S_IMODE((root / "own.html").stat().st_mode) == 0o600
    assert main([*files, "--draws", "60", "--out", str(root / "report.html"), "--json"]) == 0
    assert '"private": false' in capsys.readouterr().out


def test_a_shell_refuses_files_of_different_studies(made, tmp_path, capsys):
    """A shell refuses files of different studies, and names the argument."""
    root, *_ = made
    text = STUDY.replace("centre = 60", "centre = 65")
    (tmp_path / "other.toml").write_text(text)
    other = mp.Schema.read(tmp_path / "other.toml")
    messages = tuple(desk.make_message(other, patients(name)) for name in IDS)
    theirs = desk.publish(desk.Inbox(other, messages, (), other.terms()))
    theirs.save(tmp_path / "theirs.nc")
    files = {"release": str(tmp_path / "theirs.nc"), "model": str(root / "model.nc")}
    ours = f"{mp.Release.load(root / 'release.nc').study[:12]}"
    for given, refused in (
        ({}, "model: expected one of this release"),
        ({"study": str(tmp_path / "other.toml")}, "model: expected one of this release"),
        ({"study": str(root / "study.toml")}, "release: expected that of this study"),
        ({"study": str(root / "study.toml"), "model": None}, "release: expected that of this study"),
        (
            {"study": str(tmp_path / "other.toml"), "release": str(root / "release.nc")},
            "release: expected that of this study",
        ),
    ):
        told = [f"--{name}={value}" for name, value in (files | given).items() if value is not None]
        assert main(["report", *told, "--out", str(tmp_path / "page.html"), "--quiet"]) == 2
        error = capsys.readouterr().err
        assert refused in error
        assert ours in error
        assert not (tmp_path / "page.html").exists()


def test_a_picture_shows_what_the_table_says(made):
    """Points and ends of lines, read off the drawing and taken back by its own ticks, are the numbers of the posterior."""
    _, study, release, model = made
    page = desk.report(release, study, model=model)
    panel = next(part for part in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL) if ">age (years)<" in part)
    ticks = re.findall(r"<path d='M([\d.]+) \d+ v4'.*?>([-\d.]+)</text>", panel)
    (at, first), (other, second) = [(float(x), float(value)) for x, value in (ticks[0], ticks[-1])]
    points = [
        first + (float(x) - at) * (second - first) / (other - at) for x in re.findall(r"<circle cx='([\d.]+)'", panel)
    ]
    own, averages = model.coefficients().loc["age"], model.average_effects().loc["age"]
    assert points == pytest.approx([own["alone"], own["mean"], averages["mean"]], abs=0.003)
    assert 3 <= len(ticks) <= 6
    assert panel.count("<rect") == 1  # of any hospital, which has no point


def guarantee(epsilon, **options):
    tasks = mp.datasets.synthetic_low_rank(num_tasks=30, num_features=3, rows=10).train
    return mp.release(tasks, epsilon, reference=mp.Reference.standard(3), **options).guarantee


def test_a_belief_of_one_half_becomes_at_most_what_eps_allows():
    """e^1 to 1 is 73.1 %, which is a bound, and rounded up."""
    text = guarantee(1.0).explain("board", organisation="hospital", person="patient")
    assert text.startswith("Your patients.")
    assert "a probability of at most 74 %." in text
    assert "at most 2.72 times as large" in text
    assert "One that they believed 1 % likely becomes at most 3 % likely" in text  # e / (e + 99)
    assert not [word for word in JARGON if re.search(rf"\b{word}\b", text)]


def test_promises_about_taking_part_exclude_single_records():
    """A promise about taking part says nothing of single records.

    One record that is different is a hospital that leaves and another that comes: twice the loss.
    """
    text = guarantee(1.0, adjacency="zero_out").explain("board", organisation="hospital", person="patient")
    assert "If the hospital had not taken part" in text
    assert "at least as well" not in text
    assert "at least as well" in guarantee(1.0).explain("board", organisation="hospital", person="patient")


def test_where_little_is_promised_the_words_say_so():
    text = guarantee(3.0).explain("board", group=3)
    assert "little is promised" in text
    assert "at most more than" not in text
    assert "an organisation takes part" in text


def test_several_hospitals_are_promised_less():
    one, three = (guarantee(0.3).promise(group).odds for group in (1, 3))
    assert three.most > one.most
    assert "3 hospitals that belong together" in guarantee(0.3).explain("board", organisation="hospital", group=3)


def test_no_rounding_makes_a_certainty():
    assert [board.about(share) for share in (0.9999, 0.5, 0.001)] == ["more than 99 %", "50 %", "less than 1 %"]


@pytest.mark.parametrize("share", [0.0001, 0.1, 0.5, 0.5001, 0.504, 0.511, 0.7311, 0.95257, 0.98999])
def test_a_bound_is_never_rounded_down(share):
    said = board.at_most(share)
    assert share <= float(said.removesuffix(" %")) / 100 < share + 0.01
    assert board.at_most(0.995) == "more than 99 %"


def test_the_page_names_somebody_to_ask(made):
    _, study, release, model = made
    alone = plain(desk.report(release, study, shared=model.shared))
    assert "Whom to ask Ask whoever brought you this page" in " ".join(alone.split())
    named = plain(desk.report(release, study, shared=model.shared, curator="Dr Lee."))
    assert "Whom to ask The curator, Dr Lee, knows the study" in " ".join(named.split())
    assert "A.B., room 3" in plain(desk.report(release, study, shared=model.shared, contact="A.B., room 3"))


def test_the_page_tells_a_group_of_one_owner(made):
    _, study, release, model = made
    words = " ".join(plain(desk.report(release, study, shared=model.shared, group=2)).split())
    most = release.guarantee.promise(2).odds.most
    assert most > release.guarantee.promise().odds.most
    assert "To 2 hospitals of one owner" in words
    assert f"about them a probability of {board.bound(most)}." in words.replace("\xa0", " ")
    with pytest.raises(ValueError, match="group: expected a whole number"):
        desk.report(release, study, shared=model.shared, group=9)


def test_the_page_says_what_is_left_in_the_ledger(made, tmp_path):
    root, study, release, model = made
    ledger = mp.privacy.Ledger(tmp_path / "ledger.db", epsilon=4.0, delta=0.01, adjacency="replace")
    law = mp.privacy.calibrate(1.0, 0.01, 3)
    ledger.charge([law])
    words = plain(desk.report(release, study, shared=model.shared, account=ledger)).replace("\xa0", " ")
    moved = [board.bound(special.expit(eps)) for eps in (4.0, ledger.spent.epsilon, ledger.left.epsilon)]
    assert [text in words for text in moved] == [True] * 3
    assert "What is left for further releases" in words
    assert not [word for word in JARGON if re.search(rf"\b{word}\b", words)]
    rows = mp.privacy.Ledger(epsilon=4.0, delta=0.01, unit="row")
    with pytest.raises(ValueError, match="account: expected a ledger of whole tasks"):
        desk.report(release, study, shared=model.shared, account=rows)
    options = [
        "--release",
        str(root / "release.nc"),
        "--model",
        str(root / "model.nc"),
        "--out",
        str(tmp_path / "a.html"),
    ]
    assert main(["report", *options, "--ledger", str(tmp_path / "ledger.db"), "--group", "3"]) == 0
    page = plain((tmp_path / "a.html").read_text())
    assert "To 3 hospitals of one owner" in page
    assert "What is left for further releases" in page


def test_labels_of_bars_are_not_cut_off(made):
    """A label ends where its bar begins, and has 7.5 units for each letter of size 13."""
    _, study, release, model = made
    page = desk.report(release, study, shared=model.shared)
    labels = re.findall(r"<text x='(\d+)' y='\d+' text-anchor='end' font-size='13'[^>]*>([^<]+)", page)
    assert "exceptions aside" in [label for _, label in labels]
    assert all(int(x) >= 7.5 * len(label) for x, label in labels)


def test_plurals_are_those_of_english(made):
    assert [plural(word) for word in ("hospital", "pharmacy", "box", "day", "person", "church")] == [
        "hospitals", "pharmacies", "boxes", "days", "people", "churches"
    ]  # fmt: skip
    said = guarantee(0.3).explain("board", organisation="pharmacy", person="customer", group=3)
    assert "3 pharmacies that belong together" in said
    assert "pharmacys" not in said


@pytest.mark.parametrize(
    ("chance", "said"),
    [
        (0.0, "no exception"),
        (1e-13, "less than one in a trillion"),
        (0.03, "at most one in 33"),
        (0.7, "nothing useful"),
    ],
)
def test_an_exception_is_denied_only_where_there_is_none(chance, said):
    """A chance of 1e-13 was no exception, and one of 0.7 "one case of 1"."""
    odds = board.Odds(0.7, chance, 0.6)
    words = dict(board.paragraphs(board.Promise(Adjacency.REPLACE, odds, ""), board.Words()))
    assert said in words["How much can be learnt"]


@pytest.mark.parametrize("group", [1, 3])
def test_how_often_the_odds_are_passed_is_no_less_than_is_true(group):
    """Bounds of the promise hold for Gaussian noise, whose privacy loss is normal with mean mu^2 / 2 and variance mu^2."""
    law = calibrate_gaussian(1.0, 1e-2, 3)
    mu = group * law.mu("replace")
    W = np.random.default_rng(0).standard_normal((3, 12))
    odds = mp.releases.release(W, 1.0, 1e-2, mechanism=law).guarantee.promise(group).odds
    passed = stats.norm.sf((special.logit(odds.most) - mu**2 / 2) / mu)
    assert passed < odds.exception < 20 * passed
    assert special.expit(mu**2 / 2) < odds.typical < odds.most


def test_words_for_a_board_are_of_whole_tasks():
    with pytest.raises(ValueError, match="audience: expected one of"):
        guarantee(1.0).explain("children")
    with pytest.raises(ValueError, match="group: "):
        guarantee(1.0).explain("board", group=0)


def test_a_guarantee_without_noise_laws_is_explained_too():
    nothing = NOTHING_SHARED.explain("board")
    assert "There is no exception" in nothing
    pure = of_release((IndependentLaplace(3, 1, 1),), epsilon=1.0, adjacency="replace", claimed=None, seeded=False)
    two = pure.promise(2).odds
    assert two.exception == 0
    assert two.typical <= two.most == pytest.approx(special.expit(2 * pure.proved.epsilon))
