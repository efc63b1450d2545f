"""A study without a curator from files: every site and the server called once a stage, each with a folder of its own."""

import json
import os
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from helpers.studies import IDS, STUDY, patients

import mpmtl_prob as mp
from mpmtl_prob import desk
from mpmtl_prob.cli import main

pytest.importorskip("cryptography")


def run(*arguments):
    return main([str(one) for one in arguments])


class Folders:
    """Everybody's, and a post that brings files from an outbox to the inbox that they are for."""

    def __init__(self, root, text=STUDY):
        self.root = root
        for name in ("server", *IDS):
            (root / name / "inbox").mkdir(parents=True)
            (root / name / "study.toml").write_text(text)
        for name in IDS:
            patients(name).to_csv(root / name / "mine.csv", index=False)

    def coordinate(self, *more):
        here = self.root / "server"
        done = run(
            "federated", "coordinate", "--study", here / "study.toml", "--state", here / "state", "--inbox", here / "inbox",
            "--outbox", here / "outbox", "--out", here / "release.nc", *more,
        )  # fmt: skip
        self._post(here / "outbox")
        return done

    def step(self, name, *more):
        here = self.root / name
        done = run(
            "federated", "step", "--study", here / "study.toml", "--csv", here / "mine.csv", "--participant", name, "--state",
            here / "state", "--inbox", here / "inbox", "--outbox", here / "outbox", "--yes", *more,
        )  # fmt: skip
        self._post(here / "outbox")
        return done

    def _post(self, outbox):
        for file in outbox.glob("*.json") if outbox.exists() else ():
            to = file.stem.rsplit("-to-", 1)[1]
            shutil.move(file, self.root / to / "inbox" / file.name)

    @property
    def release(self):
        return mp.Release.load(self.root / "server" / "release.nc")


STAGES = ("advertise", "share", "mask", "confirm", "reveal")


def test_the_release_is_of_all_rows_and_sites_fit_with_it(tmp_path, capsys, monkeypatch):
    """The release is that of all rows, and a site fits with its own copy."""
    folders = Folders(tmp_path)
    monkeypatch.setattr("mpmtl_prob.federated.protocol.publish", _seeded)
    assert folders.coordinate() == 0
    for _ in STAGES:
        for name in IDS:
            assert folders.step(name) == 0
        capsys.readouterr()
        assert folders.coordinate("--json") == 0
        said = json.loads(capsys.readouterr().out)
    assert (said["stage"], said["sites"]) == (None, 8)
    schema, release = mp.Schema.read(tmp_path / "server" / "study.toml"), folders.release
    assert release.study == schema.digest
    central = mp.release(schema.tasks(pd.concat([patients(name) for name in IDS])), schema.spec, unsafe_seed=1)
    assert np.array_equal(release.sigma, central.sigma)
    here = tmp_path / "H2"
    assert stat.S_IMODE((here / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((here / "state" / "message.own.json").stat().st_mode) == 0o600
    release.save(here / "release.nc")
    options = ["--study", here / "study.toml", "--csv", here / "mine.csv", "--release", here / "release.nc"]
    own = ["--message", here / "state" / "message.own.json", "--out", here / "results"]
    assert run("fit", *options, *own, "--chains", "2", "--draws", "200", "--quiet") == 0
    own = desk.OwnModel.load(here / "results" / "model.nc")
    assert list(own.coefficients().index) == ["age", "insurance[private]", "intercept"]
    assert folders.step("H2") == 0
    assert "nothing in the inbox waits" in capsys.readouterr().out
    assert folders.coordinate() == 2
    assert "expected a file that is not there yet" in capsys.readouterr().err


def _seeded(A, terms, **options):
    from mpmtl_prob.releases import publish

    return publish(A, terms, **options | {"unsafe_seed": 1})


def test_without_a_curator_sites_may_vanish_unseen(tmp_path, capsys):
    """Without a curator, sites may vanish, and nobody sees a sum of fewer."""
    folders = Folders(tmp_path)
    trust = ["--trust", "no_curator"]
    assert folders.coordinate(*trust, "--dropouts", "2") == 0
    there = list(IDS)
    for stage in STAGES:
        if stage == "mask":
            there.remove("H5")
        if stage == "reveal":
            there.remove("H1")
        for name in there:
            assert folders.step(name, *trust) == 0
        capsys.readouterr()
        if len(there) < len(IDS) and stage in ("mask", "reveal"):
            assert folders.coordinate() == 0
            assert "waiting for " in capsys.readouterr().out
        assert folders.coordinate("--close") == 0
    assert folders.release.num_tasks == 7
    assert folders.release.guarantee.proved.epsilon == 3
    assert folders.release.guarantee.proved.delta <= 0.01
    schema, copy = mp.Schema.read(tmp_path / "H2" / "study.toml"), tmp_path / "H2" / "state" / "message.own.json"
    own = desk.Message.load(schema, copy, lattice=folders.release.lattice)
    assert not np.mod(own.vector, folders.release.lattice).any()
    np.testing.assert_allclose(own.vector, desk.make_message(schema, patients("H2")).vector, atol=2e-3)


def test_keys_of_the_study_sign_what_sites_say(tmp_path, capsys):
    from mpmtl_prob.desk.keys import write_key

    public = {name: write_key(tmp_path / f"{name}.key", "participant") for name in IDS}
    listed = "\n".join(f'{name} = "{key}"' for name, key in public.items())
    folders = Folders(tmp_path, f"{STUDY}\n[keys.participants]\n{listed}\n")
    assert folders.coordinate() == 0
    assert folders.step("H0") == 2
    assert "expected this participant's private key" in capsys.readouterr().err
    assert folders.step("H0", "--key", tmp_path / "H1.key") == 2
    assert "expected that of 'H0'" in capsys.readouterr().err
    for _ in STAGES:
        for name in IDS:
            assert folders.step(name, "--key", tmp_path / f"{name}.key") == 0
        assert folders.coordinate() == 0
    assert folders.release.num_tasks == 8


def test_what_a_site_does_not_take_part_in(tmp_path, capsys, monkeypatch):
    folders = Folders(tmp_path)
    here = tmp_path / "H0"
    assert folders.step("H0") == 0
    assert "nothing in the inbox waits for an answer" in capsys.readouterr().out
    assert folders.coordinate("--trust", "curator") == 0
    assert folders.step("H0") == 2
    assert "trust: this site accepts 'secure_sum', and was asked for 'curator'" in capsys.readouterr().err
    (here / "study.toml").write_text(STUDY.replace("epsilon = 3", "epsilon = 1"))
    assert folders.step("H0") == 2
    assert "made with another study file" in capsys.readouterr().err
    (here / "study.toml").write_text(STUDY)
    file = next((here / "inbox").iterdir())
    file.write_text(file.read_text().replace('"stage": "send"', '"stage": "mask"'))
    assert folders.step("H0") == 2
    assert "it was edited or damaged" in capsys.readouterr().err
    file.write_text("{")
    assert folders.step("H0") == 2
    assert "holds no stage of a run" in capsys.readouterr().err


def test_an_invitation_to_another_study_is_refused(tmp_path):
    """An invitation to something else than the study is refused."""
    from mpmtl_prob import federated
    from mpmtl_prob.desk.site import SiteDesk
    from mpmtl_prob.desk.stages import Stage

    folders = Folders(tmp_path)
    schema = mp.Schema.read(tmp_path / "H0" / "study.toml")
    site = SiteDesk(schema, "H0", tmp_path / "H0" / "state")
    spec, names, digest = schema.spec, schema.coefficients, schema.digest
    other = mp.Reference({"age": (0, 1), "insurance[private]": (0, 1)})
    for invitation, message in (
        (federated.invite(3.0, 8, names, 0.01, reference=other, study=digest),
         "columns and units of the study"),
        (federated.invite(spec, 9, names, sites=8, study=digest), "expected 8 hospitals, got 9"),
        (federated.invite(spec, 8, names), "one to this study"),
        (federated.invite(spec, 8, names, sites=4, study=digest), "8 sites of one hospital each"),
        (federated.invite(30.0, 8, names, 0.01, reference=schema.reference, study=digest), "epsilon: at 3 this site accepts"),
    ):  # fmt: skip
        asked = Stage(schema.digest, invitation.agreed.run.hex(), "advertise", "server", "H0", {}, invitation)
        with pytest.raises(federated.RunRefused, match=message):
            site.answer(asked, lambda: pytest.fail("read"), tmp_path / "H0")
    assert not (folders.root / "H0" / "state" / "message.own.json").exists()


def test_consent_is_asked_once_and_no_estimate_stays_no_estimate(tmp_path, capsys):
    folders = Folders(tmp_path)
    assert folders.coordinate() == 0
    here = tmp_path / "H3"
    options = ["--study", here / "study.toml", "--participant", "H3", "--state", here / "state", "--inbox", here / "inbox",
               "--outbox", here / "outbox"]  # fmt: skip
    assert run("federated", "step", *options, "--csv", here / "mine.csv") == 2
    assert "--yes: expected it where there is no terminal to ask on" in capsys.readouterr().err
    assert not (here / "outbox").exists()
    assert folders.step("H3", "--no-estimate") == 0
    assert "nobody; the server sees the sum over all hospitals, and adds the noise" in capsys.readouterr().err
    for stage in STAGES:
        for name in IDS:
            if (stage, name) != ("advertise", "H3"):
                assert folders.step(name) == 0
        assert folders.coordinate() == 0
    own = desk.Message.load(mp.Schema.read(here / "study.toml"), here / "state" / "message.own.json")
    assert own.says_nothing
    assert folders.release.num_tasks == 8


def test_too_few_sites_are_no_sum_and_more_may_still_answer(tmp_path, capsys):
    folders = Folders(tmp_path)
    assert folders.coordinate("--dropouts", "1") == 0
    for name in IDS[:6]:
        assert folders.step(name) == 0
    assert folders.coordinate("--close") == 2
    assert "6 owners are there, and it takes 7; wait for more" in capsys.readouterr().err
    assert folders.step("H6") == 0
    assert folders.coordinate("--close") == 0
    assert "went on without H7" in capsys.readouterr().err


def test_repeated_and_edited_answers_are_found_out(tmp_path, capsys):
    """An answer is not given twice, and one that was edited is noticed."""
    folders = Folders(tmp_path)
    assert folders.coordinate() == 0
    for name in IDS:
        assert folders.step(name) == 0
    inbox = tmp_path / "server" / "inbox"
    answers = sorted(inbox.iterdir())
    text = answers[0].read_text()
    answers[0].write_text(text.replace('"masks": "', '"masks": "AAAA'))
    assert folders.coordinate() == 2
    assert "it was edited or damaged" in capsys.readouterr().err
    answers[0].write_text(text)
    shutil.copy(answers[0], inbox / "again.json")
    assert folders.coordinate() == 0  # the same answer twice is one


def test_options_of_one_side_are_asked_for(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(STUDY)
    assert run("federated", "step", "--study", tmp_path / "study.toml") == 2
    assert "--participant: expected it with federated step" in capsys.readouterr().err
    assert run("federated", "coordinate") == 2
    assert "--study: expected it with federated coordinate" in capsys.readouterr().err


def test_an_id_is_no_path(tmp_path):
    from mpmtl_prob.desk.stages import Stage

    (tmp_path / "out").mkdir()
    place = Stage("0" * 64, "../x", "a/b", "../../etc", "H 1", {"x": b"y"}).save(tmp_path / "out")
    assert place.parent == tmp_path / "out"
    assert Stage.load(place, "0" * 64).sender == "../../etc"


def test_a_stage_that_is_no_ordinary_file_is_refused_at_once(tmp_path):
    """A stage that is no ordinary file is refused and not waited for."""
    from mpmtl_prob.desk.stages import Stage, read_folder

    stage = Stage("a" * 64, "b" * 32, "keys", "H1", "server", {"key": b"public"})
    place = stage.save(tmp_path)
    assert read_folder(tmp_path, "a" * 64) == [stage]
    said = json.loads(place.read_text())
    for study in ("\x1b[2J", "a" * 11 + "\n"):
        (tmp_path / "other.json").write_text(json.dumps({**said, "study": study}))
        with pytest.raises(ValueError, match=r"other\.json' holds no stage"):
            read_folder(tmp_path, "a" * 64)
    (tmp_path / "other.json").unlink()
    os.mkfifo(tmp_path / "pipe.json")
    os.symlink("/dev/zero", tmp_path / "zero.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ValueError, match="inbox: expected stages") as raised:
        read_folder(tmp_path, "a" * 64)
    for name in ("pipe", "zero", "folder"):
        assert f"{name}.json' holds no stage" in str(raised.value)
