"""Public numbers of hospitals in a study's file: in every message, in the release, and in what average effects depend on."""

import dataclasses
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from helpers.studies import IDS, STUDY, patients

import mpmtl_prob as mp
from mpmtl_prob import desk
from mpmtl_prob.cli import main
from mpmtl_prob.desk.coordinator import Coordinator
from mpmtl_prob.inference import shared_effects, task_posteriors
from mpmtl_prob.schema import read_rows

BEDS = dict(zip(IDS, [120, 300, 450, 80, 600, 220, 350, 500], strict=True))
SECTION = '[covariates.beds]\nunit = "beds"\ncentre = 300\nscale = 200\n\n[covariates.beds.values]\n'
WHOLE = f"{STUDY}\n{SECTION}" + "".join(f"{name} = {beds}\n" for name, beds in BEDS.items())
QUICK = {"chains": 1, "draws": 200, "sampler": "weighted", "progress_bar": False}


def read(tmp_path, text=WHOLE, name="study.toml"):
    (tmp_path / name).write_text(text)
    return mp.Schema.read(tmp_path / name)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The study, everybody's messages in a folder, and a release with noise from a seed; H7 has no estimate."""
    root = tmp_path_factory.mktemp("study")
    schema = read(root)
    (root / "inbox").mkdir()
    messages = {name: desk.make_message(schema, patients(name)) for name in IDS[:-1]}
    messages["H7"] = desk.make_message(schema, None, "H7", no_estimate=True)
    for name, message in messages.items():
        message.save(root / "inbox" / f"{name}.json")
    release = desk.publish(desk.collect(schema, root / "inbox"), unsafe_seed=1)
    return root, schema, messages, release


@pytest.fixture(scope="module")
def own(study):
    _, schema, messages, release = study
    return desk.fit(schema, patients("H1"), release, messages["H1"], **QUICK)


def test_the_release_is_that_of_all_rows_and_a_table_of_beds(tmp_path):
    """The release from files is what all rows in one place give with a table of the same public numbers."""
    schema = read(tmp_path)
    (tmp_path / "inbox").mkdir()
    for name in IDS:
        desk.make_message(schema, patients(name)).save(tmp_path / "inbox" / f"{name}.json")
    release = desk.publish(desk.collect(schema, tmp_path / "inbox"), unsafe_seed=1)
    plain = schema.reference
    reference = mp.Reference(plain.features, plain.target, covariates={"beds": (300, 200)})
    same = mp.release(
        schema.tasks(pd.concat([patients(name) for name in IDS])), 3.0, 0.01, reference=reference,
        covariates=pd.DataFrame({"beds": BEDS}), unsafe_seed=1,
    )  # fmt: skip
    np.testing.assert_array_equal(release.sigma, same.sigma)
    assert release.effects == same.effects
    assert release.mechanisms == same.mechanisms


def test_whoever_has_no_estimate_sends_its_public_numbers(study):
    """A hospital without an estimate, or without rows that the study keeps, sends what everybody can compute."""
    _, schema, messages, _ = study
    z = np.array([1.0, (BEDS["H7"] - 300) / 200])
    sent = messages["H7"].vector
    np.testing.assert_array_equal(sent[:-2], 0)
    np.testing.assert_allclose(sent[-2:], z / np.linalg.norm(z), atol=1e-3)
    assert messages["H7"].says_nothing
    assert not messages["H1"].says_nothing
    nobody = patients("H7").assign(stay=np.nan)
    np.testing.assert_array_equal(desk.make_message(schema, nobody).vector, sent)


def test_a_sender_is_told_that_its_beds_go_with_the_message(study):
    assert "with it what the study's file says of H1, in public: beds 300" in study[2]["H1"].describe()


def test_rows_change_their_message_and_nothing_public(study, tmp_path):
    """Whatever one hospital's rows are, nothing of the release but the noisy sum is another."""
    root, schema, messages, release = study
    public = lambda release: str(dataclasses.asdict(release) | {"sigma": None})
    for number, odd in enumerate((patients("H1").head(1), patients("H1", seed=3), patients("H1").assign(stay=7.0))):
        changed = desk.make_message(schema, odd)
        assert not np.array_equal(changed.vector, messages["H1"].vector)
        inbox = shutil.copytree(root / "inbox", tmp_path / str(number), ignore=shutil.ignore_patterns("H1.json"))
        changed.save(inbox / "H1.json")
        other = desk.publish(desk.collect(schema, inbox), unsafe_seed=1)
        assert not np.array_equal(other.sigma, release.sigma)
        assert public(other) == public(release)


def test_the_model_is_that_of_a_release_with_covariates(study, own, tmp_path):
    """A hospital's model from files is that of the same release and rows in Python, and a file keeps it."""
    _, schema, _, release = study
    shared = shared_effects(release, **QUICK)
    same = task_posteriors(schema.tasks(patients("H1")), shared, leave_one_out="exact")
    np.testing.assert_allclose(own.coefficients()["mean"], same.coefficients().loc["H1"]["mean"], atol=0.02)
    slopes = own.covariate_slopes()
    assert list(slopes.index.get_level_values("covariate")) == ["beds"] * 3
    pd.testing.assert_frame_equal(slopes, shared.covariate_slopes())
    own.save(tmp_path / "model.nc")
    again = desk.OwnModel.load(tmp_path / "model.nc")
    pd.testing.assert_frame_equal(again.covariate_slopes(), slopes, rtol=1e-4)
    assert again.predict(patients("H1").head(2)).notna().all(axis=None)


def test_whoever_did_not_answer_is_not_in_the_release(study, tmp_path):
    """Without two hospitals the release is of six, with their beds alone, and fits the study's file all the same."""
    _, schema, messages, _ = study
    (tmp_path / "inbox").mkdir()
    for name in IDS[:-2]:
        messages[name].save(tmp_path / "inbox" / f"{name}.json")
    inbox = desk.collect(schema, tmp_path / "inbox", without=["H6", "H7"])
    release = desk.publish(inbox, unsafe_seed=1)
    assert release.effects.covariates.tasks == tuple(IDS[:-2])
    desk.model.check_release(schema, release)
    with pytest.raises(ValueError, match="newcomer: expected a hospital that is not in the release, got 'H1'"):
        desk.fit(schema, patients("H1"), release, newcomer=True, **QUICK)
    with pytest.raises(ValueError, match="message: expected one that is in the release, got that of 'H6'"):
        desk.fit(schema, patients("H6"), release, messages["H6"], **QUICK)
    with pytest.raises(ValueError, match="covariates: expected none, as the study's file has those of 'H6'"):
        desk.fit(schema, patients("H6"), release, newcomer=True, covariates={"beds": 1}, **QUICK)
    late = desk.fit(schema, patients("H6"), release, newcomer=True, **QUICK)
    assert np.isfinite(late.coefficients().to_numpy()).all()
    other = read(tmp_path, WHOLE.replace("H0 = 120", "H0 = 125"), "other.toml")
    assert other != schema
    with pytest.raises(ValueError, match="release: expected that of this study"):
        desk.model.check_release(other, release)


def test_those_who_are_left_have_to_differ_or_nothing_is_paid(tmp_path):
    """A release of hospitals with equally many beds is refused before it is charged, and the error says what to do."""
    schema = read(tmp_path, re.sub(r"(H[0-5]) = \d+", r"\1 = 300", WHOLE))
    (tmp_path / "inbox").mkdir()
    for name in IDS[:-2]:
        desk.make_message(schema, patients(name)).save(tmp_path / "inbox" / f"{name}.json")
    with pytest.raises(
        ValueError, match=r"without: those who are left have no release .*'beds' to differ.*wait for the"
    ):
        desk.collect(schema, tmp_path / "inbox", without=["H6", "H7"])


def test_who_is_absent_is_counted_once(study):
    schema = study[1]
    assert schema.terms(["H6", "H6"]).num_tasks == schema.layout(["H6"]).covariates.of(IDS[:-2]).shape[0] + 1
    with pytest.raises(ValueError, match="without: expected a list of ids"):
        schema.terms("H6")
    with pytest.raises(ValueError, match="without: expected at least two hospitals"):
        schema.terms(IDS[:-1])


def test_numbers_of_a_draft_are_not_settled(tmp_path):
    assert read(tmp_path, WHOLE.replace("scale = 200", "scale = 200\nsettled = false")).unsettled == (
        "[covariates.beds]",
    )


def test_a_newcomer_gives_its_own_beds(study):
    """A hospital that the file does not name has to say its beds, and they move its average, as in Python."""
    _, schema, _, release = study
    fit = lambda **given: desk.fit(schema, patients("N1", rows=3), release, newcomer=True, **given, **QUICK)
    for wrong in (["beds"], 5, {"beds": 3.0, 5: 1.0}):
        with pytest.raises(ValueError, match=r"covariates: expected a number for each of \['beds'\]"):
            fit(covariates=wrong)
    for wrong in (1e6, np.nan, "many"):
        with pytest.raises(ValueError, match="covariates: beds: expected a number"):
            fit(covariates={"beds": wrong})
    with pytest.raises(ValueError, match=r"covariates: expected a number for each of \['beds'\].* got none.*beds=300"):
        fit()
    with pytest.raises(ValueError, match=r"covariates: expected a number for each of \['beds'\].* got \['size'\]"):
        fit(covariates={"size": 3.0})
    ours = fit(covariates={"beds": 500})
    shared = shared_effects(release, **QUICK)
    tasks = read_rows(schema, patients("N1", rows=3), newcomer=True).tasks(schema)
    same = task_posteriors(tasks, shared, leave_one_out="not_in_release", covariates={"N1": {"beds": 500}})
    np.testing.assert_allclose(ours.coefficients()["mean"], same.coefficients().loc["N1"]["mean"], rtol=1e-6)
    far = fit(covariates={"beds": 2500}).coefficients()["mean"]
    assert not np.allclose(far, ours.coefficients()["mean"], rtol=1e-3)


def test_numbers_that_are_known_or_not_asked_for_are_refused(study, tmp_path):
    _, schema, messages, release = study
    with pytest.raises(ValueError, match="covariates: expected none of a participant"):
        desk.fit(schema, patients("H1"), release, messages["H1"], covariates={"beds": 1}, **QUICK)
    plain = read(tmp_path, STUDY)
    (tmp_path / "inbox").mkdir()
    for name in IDS:
        desk.make_message(plain, patients(name)).save(tmp_path / "inbox" / f"{name}.json")
    of_plain = desk.publish(desk.collect(plain, tmp_path / "inbox"), unsafe_seed=1)
    with pytest.raises(ValueError, match="covariates: expected none, as the study's file has no covariates"):
        desk.fit(plain, patients("N1"), of_plain, newcomer=True, covariates={"beds": 1}, **QUICK)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("H3 = 80\n", "", "[covariates.beds]: values: expected a number of every participant, .* got none of H3"),
        ("H3 = 80", 'H3 = "80"', "[covariates.beds.values]: H3: expected a finite number, got '80'"),
        ("H3 = 80", "H3 = nan", "[covariates.beds.values]: H3: expected a finite number, got nan"),
        ("H3 = 80", "H3 = 80\nH9 = 1", "[covariates.beds.values]: H9: expected ids of the study's participants"),
        ("scale = 200", "scale = 0", "[covariates.beds]: scale: expected a usual distance from the centre, above 0"),
        ("scale = 200", "scale = 1", "covariates: expected values within 20 scales of the reference's centre"),
        (
            "scale = 200",
            "scale = 200\nsort = 1",
            "[covariates.beds]: 'sort': expected the keys centre, scale, settled, unit",
        ),
        ("covariates.beds", "covariates.age", "[covariates.age]: expected another name than a column's"),
        ("covariates.beds", 'covariates." beds"', "[covariates]: ' beds': expected a name without blanks around it"),
        ("covariates.beds", 'covariates.""', "[covariates]: '': expected a name without blanks around it"),
        ("covariates.beds", "covariates.stay", "[covariates.stay]: expected another name than a column's"),
        (r"= \d+\n", "= 300\n", "covariates: expected 'beds' to differ between tasks"),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path, old, new, words):
    head, _, section = WHOLE.partition("[covariates")
    text = f"{head}[covariates" + (re.sub(old, new, section) if "\\" in old else section.replace(old, new))
    text = text.replace("[covariates.beds", f"[{new}") if old == "covariates.beds" else text
    pattern = re.escape(words).replace(r"\.\*", ".*").replace(r"\ ", " ")
    with pytest.raises(ValueError, match=pattern):
        read(tmp_path, text)


def test_who_takes_part_has_to_be_known(tmp_path):
    text = re.sub(r"participants = .*\n", "tasks = 8\n", WHOLE)
    with pytest.raises(ValueError, match=r"\[study\]: participants: expected the ids of all"):
        read(tmp_path, text)


def test_without_a_curator_they_are_refused(study):
    with pytest.raises(ValueError, match="covariates: expected none of tasks at several sites"):
        Coordinator(study[1], study[0] / "server")


def test_a_shell_tells_how_effects_change_with_beds(study, tmp_path, capsys):
    root, _, _, release = study
    release.save(tmp_path / "release.nc")
    patients("N1").to_csv(tmp_path / "mine.csv", index=False)
    asked = [
        "fit",
        "--study",
        root / "study.toml",
        "--csv",
        tmp_path / "mine.csv",
        "--release",
        tmp_path / "release.nc",
    ]
    asked = [*map(str, asked), "--newcomer", "--draws", "100", "--chains", "1", "--quiet", "--out"]
    assert main([*asked, str(tmp_path / "one")]) == 2
    assert "(--covariate beds=300)" in capsys.readouterr().err
    assert not (tmp_path / "one").exists()
    assert main([*asked, str(tmp_path / "one"), "--covariate", "beds"]) == 2
    assert "--covariate: expected a name and a number, such as beds=300, got 'beds'" in capsys.readouterr().err
    assert main([*asked, str(tmp_path / "one"), "--covariate", "beds=4", "--covariate", "beds=5"]) == 2
    assert "--covariate: expected every covariate once, got 'beds' twice" in capsys.readouterr().err
    assert main([*asked, str(tmp_path / "one"), "--covariate", "beds=410"]) == 0
    said = capsys.readouterr().out
    assert "Average effects over 8 hospitals, at beds 300, public" in said
    assert "Change of average effects with one unit of a covariate of hospitals, public" in said
    assert "covariate_slopes.csv" in said
    assert list(pd.read_csv(tmp_path / "one" / "covariate_slopes.csv")["covariate"]) == ["beds"] * 3


def test_the_board_s_page_has_a_table_of_them(study, own):
    page = desk.report(study[3], study[1], model=own)
    assert "Averages, above and in the pictures, are of hospitals with beds 300." in page
    table = page.partition("By how much an effect changes where beds is larger by 200")[2]
    slope = 200 * own.covariate_slopes()["mean"].xs("beds", level="covariate")["intercept"]
    assert f">{slope:.3g}<" in table
