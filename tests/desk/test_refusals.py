"""Refusals at a desk: mistakes are named, and nothing is lost, sent or charged by them."""

import errno
import io
import json
import os
import re
import shutil
import signal
import stat
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.studies import IDS, STUDY, patients

import mpmtl_prob as mp
from mpmtl_prob import desk
from mpmtl_prob.cli import main


def run(*arguments):
    return main([str(one) for one in arguments])


class Terminal(io.StringIO):
    """Somebody at a keyboard."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Somebody who types an answer, and reads what stands on the screen."""

    def typing(answer):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        monkeypatch.setattr(sys, "stderr", screen := Terminal())
        return screen

    return typing


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A folder with a study and everybody's rows and messages."""
    root = tmp_path_factory.mktemp("sent")
    (root / "study.toml").write_text(STUDY)
    (root / "inbox").mkdir()
    schema = mp.Schema.read(root / "study.toml")
    for name in IDS:
        patients(name).to_csv(root / f"{name}.csv", index=False)
        desk.make_message(schema, patients(name)).save(root / "inbox" / f"{name}.json")
    return root


@pytest.fixture
def here(sent, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(sent, tmp_path / "here")


def sending(here, name="H1", *more):
    return ["message", "--study", here / "study.toml", "--csv", here / f"{name}.csv", "--out", here / "out.json", *more]


def publishing(here, *more):
    paid = ["--out", here / "release.nc", "--ledger", here / "ledger.db", "--total", "3"]
    return ["publish", "--study", here / "study.toml", "--messages", here / "inbox", *paid, *more]


def not_charged(here):
    before = {"study.toml", "inbox", *(f"{name}.csv" for name in IDS)}
    left = {path.name for path in here.iterdir()} - before
    return not left or (left == {"ledger.db"} and not mp.privacy.Ledger(here / "ledger.db").charges())


# consent


def test_without_a_terminal_and_without_yes_nothing_is_written(here, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    assert run(*sending(here)) == 2
    assert "--yes: expected it where there is no terminal to ask on" in capsys.readouterr().err
    assert not (here / "out.json").exists()


def test_on_a_terminal_yes_writes_the_message_that_was_shown(here, terminal, capsys):
    """On a terminal the numbers are shown, and "yes" writes the message."""
    screen = terminal("yes\n")
    assert run(*sending(here, "H1", "--json")) == 0
    shown = screen.getvalue()
    assert "an estimate for each of 3 coefficients (age, insurance[private], intercept)" in shown
    assert "at most 96 % likely after the release, rare exceptions aside (eps = 3, delta = 0.01)" in shown
    message = desk.Message.load(mp.Schema.read(here / "study.toml"), here / "out.json")
    assert f"age: {message.vector[0]:+.4f}" in shown
    assert json.loads(capsys.readouterr().out)["no_estimate"] is False
    assert stat.S_IMODE((here / "out.json").stat().st_mode) == 0o600


def test_who_declines_because_of_the_numbers_sends_no_estimate(here, terminal):
    terminal("no estimate\n")
    assert run(*sending(here)) == 0
    message = desk.Message.load(mp.Schema.read(here / "study.toml"), here / "out.json")
    assert message.says_nothing
    assert message.vector[-1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("answer", ["", "no\n", "y\n", "stop\n"])
def test_any_other_answer_writes_nothing(here, terminal, answer):
    screen = terminal(answer)
    assert run(*sending(here)) == 2
    assert "nobody said yes, and nothing was written" in screen.getvalue()
    assert not (here / "out.json").exists()


def test_a_script_says_yes_and_sees_no_numbers(here, capsys):
    assert run(*sending(here, "H1", "--yes")) == 0
    shown = capsys.readouterr().err
    assert "What leaves: an estimate for each of 3 coefficients" in shown
    message = desk.Message.load(mp.Schema.read(here / "study.toml"), here / "out.json")
    assert f"{message.vector[0]:+.4f}" not in shown


def test_a_draft_is_refused_until_it_is_accepted(here, capsys):
    (here / "study.toml").write_text(STUDY.replace("[target]", "[target]\nsettled = false"))
    assert run(*sending(here, "H1", "--yes")) == 2
    assert (
        "got a draft: [target] say settled = false; settle these sections, or say --accept-draft"
        in capsys.readouterr().err
    )
    assert run(*sending(here, "H1", "--yes", "--accept-draft")) == 0


# a hospital's rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.rename(columns={"age": "AGE"}), "expected age, insurance, stay, got none called age among 4"),
        (lambda f: f.assign(insurance=["gold", *f["insurance"][1:]]), "insurance: 1 of 24 patients: an unknown level"),
        (
            lambda f: f.assign(age=["old", *f["age"][1:]]),
            "age: 1 of 24 patients: no number (the first is row 1); correct",
        ),
        (lambda f: f.assign(insurance=["", *f["insurance"][1:]]), "insurance: 1 of 24 patients: empty"),
        (
            lambda f: f.assign(hospital="H2"),
            "expected rows of 'H1', got those of H2; is it another participant's table?",
        ),
        (lambda f: f.assign(hospital="Elsewhere"), "expected rows of 'H1', got others"),
    ],
)
def test_unsuitable_rows_are_refused_and_nothing_is_written(here, capsys, change, message):
    """Rows that the study does not take are refused, and nothing is written."""
    change(patients("H1")).to_csv(here / "H1.csv", index=False)
    assert run(*sending(here, "H1", "--yes", "--participant", "H1")) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "gold" not in said
    assert "Elsewhere" not in said
    assert not (here / "out.json").exists()


def test_a_column_that_is_there_twice_is_refused(here, capsys):
    text = (here / "H1.csv").read_text().splitlines()
    (here / "H1.csv").write_text("\n".join(f"{line},{line.split(',')[1]}" for line in text))
    assert run(*sending(here, "H1", "--yes")) == 2
    assert "expected columns of different names" in capsys.readouterr().err


def test_other_units_are_told_and_the_message_is_still_sent(here, capsys):
    """Other units are told at this desk, and the message is sent all the same."""
    frame = patients("H1")
    frame.assign(age=frame["age"] * 1000).to_csv(here / "H1.csv", index=False)
    assert run(*sending(here, "H1", "--yes", "--json")) == 0
    printed = capsys.readouterr()
    assert "warning: tasks: some columns are more than 20 times as large as the reference says" in printed.err
    assert "'age' of 'H1'" in printed.err
    assert json.loads(printed.out)["no_estimate"] is False


def test_a_hospital_without_usable_rows_sends_no_estimate(here, capsys):
    """A hospital all of whose rows are dropped is told so, and sends no estimate."""
    patients("H1").assign(age="").to_csv(here / "H1.csv", index=False)
    assert run(*sending(here, "H1", "--yes", "--json")) == 0
    printed = capsys.readouterr()
    assert "24 of 24 patients are dropped for their age" in printed.err
    assert 'no patient is left: the message says "no estimate", and the hospital counts all the same' in printed.err
    assert json.loads(printed.out)["no_estimate"] is True
    shutil.move(here / "out.json", here / "inbox" / "H1.json")
    assert run(*publishing(here)) == 0


def test_a_message_is_not_written_over_another(here, capsys):
    assert run(*sending(here, "H1", "--yes")) == 0
    before = (here / "out.json").read_bytes()
    assert run(*sending(here, "H1", "--yes")) == 2
    assert "expected a file that is not there yet" in capsys.readouterr().err
    assert (here / "out.json").read_bytes() == before


# a curator's inbox


def edited(change):
    def edit(here):
        path = here / "inbox" / "H2.json"
        said = json.loads(path.read_text())
        change(said)
        path.write_text(json.dumps(said))

    return edit


def of_another_study(here):
    (here / "inbox" / "H2.json").unlink()
    (here / "old.toml").write_text(STUDY.replace("epsilon = 3", "epsilon = 2"))
    desk.make_message(mp.Schema.read(here / "old.toml"), patients("H2")).save(here / "inbox" / "H2.json")
    (here / "old.toml").unlink()


def another(here):
    desk.make_message(mp.Schema.read(here / "study.toml"), patients("H2")).save(here / "inbox" / "again.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda here: (here / "inbox" / "H2.json").unlink(), "7 files of 8, none of H2; wait for them, or say --without"),
        (lambda here: shutil.copy(here / "inbox" / "H2.json", here / "inbox" / "H9.json"),
         "H2 has sent 2 messages, the same each time: 'H2.json', 'H9.json'"),
        (another, "H2 has sent 2 messages, another each time"),
        (of_another_study, "H2.json': made with another study file (its hash is "),
        (edited(lambda said: said["body"]["vector"].__setitem__(0, 0.0)), "H2.json': it was edited or damaged since"),
        (edited(lambda said: said.__setitem__("participant", "H3")), "H2.json': it was edited or damaged"),
        (edited(lambda said: said.__setitem__("format", "1")), "H2.json' holds no message of mpmtl-prob"),
        (lambda here: (here / "inbox" / "H2.json").write_text("{"), "H2.json' holds no message of mpmtl-prob"),
        (lambda here: (here / "inbox" / "H2.json").write_text("[" * 100_000), "H2.json' holds no message of mpmtl-prob"),
        (lambda here: shutil.rmtree(here / "inbox"), "expected a folder of them"),
    ],
)  # fmt: skip
def test_a_faulty_inbox_is_refused_and_nothing_is_charged(here, capsys, change, message):
    """An inbox that is not as it should be is refused, and nothing is charged."""
    change(here)
    assert run(*publishing(here)) == 2
    assert message in capsys.readouterr().err
    assert not_charged(here)


def test_a_vector_that_no_rows_give_is_refused(here, capsys):
    from mpmtl_prob.desk import envelope

    path = here / "inbox" / "H2.json"
    whole = json.loads(path.read_text())
    for vector in ([9.0] * 6, [0.1] * 6, [0.0] * 5, [float("nan")] * 6, ["1"] * 6, [1.0, 1.0, 0, 0, 0, 0], None):
        said = {name: whole[name] for name in ("format", "study", "participant", "nonce")} | {
            "body": {"vector": vector}
        }
        path.write_text(json.dumps({**said, "checksum": envelope._checksum(said)}))
        assert run(*publishing(here)) == 2
        assert "H2.json': expected" in capsys.readouterr().err
    assert not_charged(here)


def test_without_is_for_those_who_did_not_answer(here, capsys):
    assert run(*publishing(here, "--without", "H2")) == 2
    assert "H2 has answered, and --without is for those who did not" in capsys.readouterr().err
    assert run(*publishing(here, "--without", "X2")) == 2
    assert "without: expected ids of the study's participants, got X2" in capsys.readouterr().err
    for name in IDS[1:]:
        (here / "inbox" / f"{name}.json").unlink()
    assert run(*publishing(here, "--without", *IDS[1:])) == 2
    assert "expected at least two hospitals to be left, got 1" in capsys.readouterr().err
    assert not_charged(here)


def test_all_that_is_wrong_is_said_at_once(here, capsys):
    (here / "inbox" / "H1.json").write_text("{")
    another(here)
    assert run(*publishing(here)) == 2
    said = capsys.readouterr().err
    assert "H1.json' holds no message" in said
    assert "H2 has sent 2 messages" in said


def test_a_new_ledger_needs_a_total_and_an_old_one_keeps_its_own(here, capsys):
    """A new ledger needs a total, and an old one refuses what is over its own."""
    no_total = publishing(here)[:-2]
    assert run(*no_total) == 2
    assert "--total: expected the eps that a new ledger declares" in capsys.readouterr().err
    assert not (here / "ledger.db").exists()
    assert run(*no_total, "--total", "1") == 2
    assert "declared total is eps = 1" in capsys.readouterr().err
    assert not_charged(here)


def test_a_second_release_is_neither_written_nor_charged(here, capsys):
    """A second release is not written over the first, and not charged."""
    assert run(*publishing(here)) == 0
    before = (here / "release.nc").read_bytes()
    assert run(*publishing(here)) == 2
    assert "expected a file that is not there yet" in capsys.readouterr().err
    assert (here / "release.nc").read_bytes() == before
    assert len(mp.privacy.Ledger(here / "ledger.db").charges()) == 1


def test_a_full_disk_is_found_before_anything_is_charged(here, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mpmtl_prob.cli.desk.os.fsync", full)
    assert run(*publishing(here)) == 2
    assert "No space left" in capsys.readouterr().err
    assert not_charged(here)


def test_an_unwritable_paid_release_is_kept_elsewhere(here, capsys, monkeypatch):
    """A release that is paid for is kept elsewhere where it cannot be written."""
    save, calls = mp.Release.save, []

    def fails_once(self, path, **options):
        calls.append(path)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, path, **options)

    monkeypatch.setattr(mp.Release, "save", fails_once)
    assert run(*publishing(here, "--json")) == 2
    printed = capsys.readouterr()
    assert "the release, which is paid for, is in" in printed.err
    assert mp.Release.load(json.loads(printed.out)["out"]).num_tasks == 8
    shutil.rmtree(os.path.dirname(calls[1]))


def test_another_persons_release_is_not_written_over(here, capsys, monkeypatch):
    """A release that somebody else has put there meanwhile is not written over."""
    real = desk.publish

    def meanwhile(*arguments, **options):
        (here / "release.nc").write_bytes(b"another, which was paid for too")
        return real(*arguments, **options)

    monkeypatch.setattr(desk, "publish", meanwhile)
    assert run(*publishing(here, "--json")) == 2
    assert (here / "release.nc").read_bytes() == b"another, which was paid for too"
    place = json.loads(capsys.readouterr().out)["out"]
    assert mp.Release.load(place).num_tasks == 8
    shutil.rmtree(os.path.dirname(place))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_waits_for_a_release_that_is_paid_for(here, monkeypatch, number):
    real = desk.publish

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), number)
        return real(*arguments, **options)

    monkeypatch.setattr(desk, "publish", interrupted)
    if (before := signal.getsignal(number)) == signal.SIG_IGN:
        pytest.skip("this signal is ignored here, as under nohup")
    assert run(*publishing(here)) == 130
    assert mp.Release.load(here / "release.nc").num_tasks == 8
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (lambda here: publishing(here), "mpmtl_prob.desk.collect"),
        (lambda here: sending(here, "H1", "--yes"), "mpmtl_prob.desk.make_message"),
        (lambda here: sending(here, "H1", "--yes"), "mpmtl_prob.desk.message.write_text"),
        (lambda here: ["schema", "--from", here / "H1.csv", "--task", "hospital", "--target", "stay", "--epsilon", 1,
                       "--out", here / "draft.toml"], "mpmtl_prob._util.files.write_text"),
        (lambda here: ["fit", "--study", here / "study.toml", "--csv", here / "H1.csv", "--newcomer", "--release",
                       here / "inbox" / "release.nc", "--out", here / "results"], "mpmtl_prob.desk.model.shared_effects"),
        (lambda here: ["keys", "--role", "curator", "--out", here / "curator.key"], "mpmtl_prob.desk.keys.write_key"),
    ],
)  # fmt: skip
def test_an_interrupt_leaves_nothing_behind(here, released, capsys, monkeypatch, command, where):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    released.save(here / "release.nc")
    (here / "release.nc").rename(here / "inbox" / "release.nc")
    monkeypatch.setattr(where, interrupt)
    assert run(*command(here)) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not_charged(here)


# a hospital's fit


@pytest.fixture(scope="module")
def released(sent):
    schema = mp.Schema.read(sent / "study.toml")
    return desk.publish(desk.collect(schema, sent / "inbox"), unsafe_seed=1)


def in_other_units(here):
    """A release that says that it is of the study, and was made in other units."""
    (here / "other.toml").write_text(STUDY.replace("scale = 15", "scale = 30"))
    other, study = mp.Schema.read(here / "other.toml"), mp.Schema.read(here / "study.toml")
    messages = tuple(desk.make_message(other, patients(name)) for name in IDS)
    made = desk.publish(desk.Inbox(other, messages, (), other.terms()), unsafe_seed=1)
    replace(made, study=study.digest).save(here / "release.nc")


def fitting(here, *more):
    return ["fit", "--study", here / "study.toml", "--csv", here / "H1.csv", "--release", here / "release.nc", "--out",
            here / "results", *more]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (lambda here: None, ["--message", "H2"], "message: expected that of 'H1', got that of 'H2'"),
        (lambda here: None, [], "--message: expected the file that this hospital has sent, or --newcomer"),
        (lambda here: None, ["--message", "H1", "--newcomer"], "got both"),
        (lambda here: None, ["--message", "H1", "--task", "hospital"], "--task: expected none with --study"),
        (lambda here: None, ["--message", "H1", "--intercept"], "--intercept: expected none with --study"),
        (lambda here: (here / "study.toml").write_text(STUDY.replace("scale = 15", "scale = 16")), ["--newcomer"],
         "release: expected that of this study, .* got that of study"),
        (lambda here: mp.release(np.eye(3), 1.0, 0.1).save(here / "release.nc"), ["--newcomer"], "got one of no study"),
        (in_other_units, ["--newcomer"], "release: expected the columns and units of the study's file, got others"),
        (lambda here: patients("H1").assign(age="").to_csv(here / "H1.csv", index=False), ["--newcomer"],
         "expected at least one patient that the study keeps, got none; 24 of 24 patients are dropped for their age"),
        (lambda here: (here / "results").mkdir() or (here / "results" / "model.nc").touch(), ["--newcomer"],
         "--out: expected a folder without model.nc"),
        (lambda here: (here / "results").mkdir() or (here / "results" / "forest.png").touch(), ["--newcomer"],
         "--out: expected a folder without forest.png"),
    ],
)  # fmt: skip
def test_a_fit_of_another_study_is_refused_before_sampling(here, released, capsys, monkeypatch, change, more, message):
    """A fit of something else is refused before anything is sampled."""
    monkeypatch.setattr("mpmtl_prob.desk.model.shared_effects", lambda *_, **__: pytest.fail("sampled"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    released.save(here / "release.nc")
    change(here)
    more = [here / "inbox" / f"{one}.json" if one in IDS else one for one in more]
    assert run(*fitting(here, *more)) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (here / "results" / "coefficients.csv").exists()


def test_a_fit_asks_for_the_message_on_a_terminal(here, released, terminal, monkeypatch):
    class Asked(Exception):
        """Raised in place of a fit, which would take long."""

    asked = []

    def fit(*arguments, **options):
        asked.append((arguments[3], options["newcomer"]))
        raise Asked

    monkeypatch.setattr(desk, "fit", fit)
    released.save(here / "release.nc")
    for answer in ("\n", f"{here / 'inbox' / 'H1.json'}\n"):
        screen = terminal(answer)
        with pytest.raises(Asked):
            run(*fitting(here))
        assert "Has this hospital sent a message for this release?" in screen.getvalue()
    assert asked[0] == (None, True)
    assert (asked[1][0].participant, asked[1][1]) == ("H1", False)


def test_who_sent_no_estimate_takes_out_the_empty_message(released, sent):
    """Whoever sent no estimate takes that out, and not what its rows would say."""
    schema = mp.Schema.read(sent / "study.toml")
    sampler = {"chains": 2, "warmup": 140, "draws": 200, "progress_bar": False}
    silent = desk.make_message(schema, None, "H1", no_estimate=True)
    seen = []
    real = mp.inference.OwnerEffects
    for one in (silent, desk.make_message(schema, patients("H1"))):
        own = desk.fit(schema, patients("H1"), released, one, **sampler)
        assert isinstance(own.own, real)
        seen.append(own.coefficients())
    assert not np.allclose(seen[0]["mean"], seen[1]["mean"], rtol=1e-6)
    tasks = schema.tasks(patients("H1"))
    plain = mp.inference.task_posteriors(tasks, own.shared, leave_one_out="exact")
    np.testing.assert_allclose(plain.coefficients().xs("H1"), seen[1], rtol=1e-12)


def test_predictions_without_hospital_or_column_are_refused(released, sent, tmp_path, capsys):
    """Predictions for another hospital, or without a column, are refused."""
    schema = mp.Schema.read(sent / "study.toml")
    sampler = {"chains": 2, "warmup": 140, "draws": 200, "progress_bar": False}
    own = desk.fit(schema, patients("H1"), released, newcomer=True, **sampler)
    own.save(tmp_path / "model.nc")
    for frame, message in (
        (patients("H2"), "expected rows of 'H1', got others"),
        (patients("H1").drop(columns="age"), "got none called age"),
        (patients("H1").assign(age="old"), "age: 24 of 24 patients: no number"),
    ):
        frame.to_csv(tmp_path / "new.csv", index=False)
        assert (
            run("predict", "--model", tmp_path / "model.nc", "--csv", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
            == 2
        )
        assert message in capsys.readouterr().err
        assert not (tmp_path / "p.csv").exists()
    patients("H1").to_csv(tmp_path / "new.csv", index=False)
    before = (tmp_path / "new.csv").read_bytes()
    over = ["--csv", tmp_path / "new.csv", "--out", tmp_path / "new.csv"]
    assert run("predict", "--model", tmp_path / "model.nc", *over) == 2
    assert "--out: expected a file that is not there yet" in capsys.readouterr().err
    assert (tmp_path / "new.csv").read_bytes() == before
    own.own.save(tmp_path / "plain.nc")
    with pytest.raises(ValueError, match="expected a model of a study"):
        desk.OwnModel.load(tmp_path / "plain.nc")
    assert isinstance(desk.OwnModel.load(tmp_path / "model.nc").coefficients(), pd.DataFrame)
