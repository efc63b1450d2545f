"""A study from files and a shell: coordinator, curator, hospitals and a newcomer, each in a folder of its own."""

import itertools
import json
import os
import re
import shutil
import stat
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from helpers.studies import IDS, STUDY, patients
from scipy.optimize import least_squares

import mpmtl_prob as mp
from mpmtl_prob import desk
from mpmtl_prob.cli import main
from mpmtl_prob.schema import read_rows

QUICK = ["--chains", "2", "--draws", "200", "--quiet"]


def run(*arguments):
    return main([str(one) for one in arguments])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Folders of everybody: the study's file is in each, and messages and the release where they were sent."""
    root = tmp_path_factory.mktemp("study")
    for name in ("coordinator", "curator/inbox", *IDS, "N1"):
        (root / name).mkdir(parents=True)
    pd.concat([patients(name, seed=7) for name in IDS]).to_csv(root / "coordinator" / "example.csv", index=False)
    (root / "coordinator" / "study.toml").write_text(STUDY)
    for name in ("curator", *IDS, "N1"):
        shutil.copy(root / "coordinator" / "study.toml", root / name)
    for name in IDS:
        here = root / name
        patients(name).to_csv(here / "mine.csv", index=False)
        assert (
            run(
                "message",
                "--study",
                here / "study.toml",
                "--csv",
                here / "mine.csv",
                "--yes",
                "--out",
                here / "message.json",
            )
            == 0
        )
        shutil.copy(here / "message.json", root / "curator" / "inbox" / f"{name}.json")
    there = root / "curator"
    sent = ["--study", there / "study.toml", "--messages", there / "inbox"]
    paid = ["--ledger", there / "ledger.db", "--total", 3]
    assert run("publish", *sent, *paid, "--out", there / "release.nc") == 0
    for name in (*IDS[:3], "N1"):
        shutil.copy(there / "release.nc", root / name)
    return root


@pytest.fixture(scope="module")
def fitted(study):
    """The folder of H0, which has its results."""
    here = study / "H0"
    assert run("fit", *asked(here), "--message", here / "message.json", "--out", here / "results") == 0
    return here


def asked(here):
    return ["--study", here / "study.toml", "--csv", here / "mine.csv", "--release", here / "release.nc", *QUICK]


def test_the_release_is_that_of_all_rows_in_one_place(study):
    """The release is of this study, and is what all rows in one place would give."""
    release, schema = (
        mp.Release.load(study / "curator" / "release.nc"),
        mp.Schema.read(study / "curator" / "study.toml"),
    )
    assert release.study == schema.digest
    assert (release.num_tasks, release.effects.coefficients) == (8, schema.coefficients)
    ledger = mp.privacy.Ledger(study / "curator" / "ledger.db")
    assert len(ledger.charges()) == 1
    tasks = schema.tasks(pd.concat([patients(name) for name in IDS]))
    inbox = desk.collect(schema, study / "curator" / "inbox")
    same = mp.release(tasks, schema.spec, unsafe_seed=1)
    assert np.array_equal(desk.publish(inbox, unsafe_seed=1).sigma, same.sigma)


def test_a_hospital_has_coefficients_alone_and_with_the_release(fitted):
    """A hospital has its coefficients alone and with the release, for itself only."""
    results = fitted / "results"
    assert sorted(path.name for path in results.iterdir()) == [
        "average_effects.csv",
        "coefficients.csv",
        "forest.png",
        "model.nc",
    ]
    assert stat.S_IMODE(results.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in results.iterdir()} == {0o600}
    table = pd.read_csv(results / "coefficients.csv", index_col="effect")
    own = desk.OwnModel.load(results / "model.nc")
    np.testing.assert_allclose(table, own.coefficients(), rtol=1e-5)
    assert list(table.index) == ["age", "insurance[private]", "intercept"]
    assert set(table) == {"mean", "sd", "lower", "upper", "alone", "alone_lower", "alone_upper"}
    np.testing.assert_allclose(own.alone()[["mean", "lower"]], table[["alone", "alone_lower"]], rtol=1e-5)
    assert 0 < own.average_effects().loc["age", "mean"] < 0.2


def test_in_python_it_is_the_same(fitted):
    schema, release = mp.Schema.read(fitted / "study.toml"), mp.Release.load(fitted / "release.nc")
    sent = desk.Message.load(schema, fitted / "message.json")
    sampler = {"chains": 2, "warmup": 140, "draws": 200, "progress_bar": False, "sampler": "weighted"}
    own = desk.fit(schema, patients("H0"), release, sent, **sampler)
    loaded = desk.OwnModel.load(fitted / "results" / "model.nc")
    np.testing.assert_allclose(own.coefficients(), loaded.coefficients(), rtol=1e-4)
    assert (loaded.shared.sampler, loaded.shared.weights) == (own.shared.sampler, own.shared.weights)
    assert own.shared.sampler == "weighted"
    assert loaded.own.diagnose().khat == own.own.diagnose().khat
    frame = patients("H0", seed=5).drop(columns=["stay", "hospital"])
    frame.index = [f"patient {i}" for i in range(len(frame))]
    frame.loc["patient 3", "age"] = np.nan
    prediction = own.predict(frame)
    assert list(prediction.index) == list(frame.index)
    assert list(prediction.index[prediction["mean"].isna()]) == ["patient 3"]
    effect = own.coefficients()["mean"]
    by_hand = effect["intercept"] + effect["age"] * (frame["age"] - 60)
    by_hand += effect["insurance[private]"] * ((frame["insurance"] == "private") - 0.3)
    kept = prediction["mean"].notna()
    np.testing.assert_allclose(prediction["mean"][kept], by_hand[kept], atol=0.3)
    assert (prediction["lower"] < prediction["mean"])[kept].all()
    assert "private to this hospital" in repr(own)


def test_predictions_are_in_the_order_of_the_table(fitted, capsys):
    new = patients("H0", seed=5).drop(columns="stay")
    new.to_csv(fitted / "new.csv", index=False)
    assert (
        run(
            "predict",
            "--model",
            fitted / "results" / "model.nc",
            "--csv",
            fitted / "new.csv",
            "--out",
            fitted / "p.csv",
            "--json",
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {"rows": 24, "without": 0, "out": str(fitted / "p.csv")}
    predictions = pd.read_csv(fitted / "p.csv", index_col="row")
    expected = desk.OwnModel.load(fitted / "results" / "model.nc").predict(new)
    np.testing.assert_allclose(predictions, expected, rtol=1e-6)
    assert stat.S_IMODE((fitted / "p.csv").stat().st_mode) == 0o600


def test_a_newcomer_has_a_model_too(study, capsys):
    here = study / "N1"
    patients("N1").to_csv(here / "mine.csv", index=False)
    assert run("fit", *asked(here), "--newcomer", "--out", here / "results", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["participant"] == "N1"
    assert [row["effect"] for row in said["coefficients"]] == ["age", "insurance[private]", "intercept"]
    assert said["target_unit"] == "days"


def arrays(node):
    for name, variable in {**node.dataset.data_vars, **node.dataset.coords}.items():
        yield f"{node.path}/{name}", np.asarray(variable.values)
    for child in node.children.values():
        yield from arrays(child)


def test_the_model_file_has_nothing_per_row(study, tmp_path):
    """No array is as long as there are rows, and none has an outcome in it, as it is, or in the study's units."""
    schema, release = mp.Schema.read(study / "H2" / "study.toml"), mp.Release.load(study / "H2" / "release.nc")
    frame = patients("H2", 23)
    frame["stay"] += np.random.default_rng(0).uniform(
        -0.05, 0.05, 23
    )  # so that no other number is one of them by chance
    own = desk.fit(schema, frame, release, newcomer=True, chains=2, warmup=140, draws=200, progress_bar=False)
    own.save(tmp_path / "model.nc")
    outcomes = frame["stay"].to_numpy()
    known = np.concatenate([outcomes, (outcomes - 7) / 5])
    tree = xr.open_datatree(tmp_path / "model.nc", engine="h5netcdf").load()
    seen, there = 0, set()
    for name, values in arrays(tree):
        assert 23 not in values.shape, name
        if values.dtype.kind == "f":
            meets = (np.abs(values.ravel()[:, None] / known - 1) < 1e-7).any(axis=0)
            seen, there = seen + values.size, there | set(np.flatnonzero(meets) % len(outcomes))
    assert seen > 10_000
    # Of 1e5 numbers one or two meet an outcome to eight digits by chance; a file with outcomes has all 23.
    assert len(there) < 5
    assert "observed_data" not in str(tree.groups)
    assert "log_likelihood" not in tree.children  # that of the release is under "shared"
    assert not [text for text in outcomes.astype(str) if text in json.dumps([str(one.attrs) for one in tree.subtree])]


def test_rows_are_kept_where_somebody_asks_for_them(study, capsys):
    """The file then has every outcome, for its owner alone, and ArviZ leaves rows out."""
    here = study / "H1"
    assert run("fit", *asked(here), "--message", here / "message.json", "--keep-rows", "--out", here / "kept") == 0
    assert "model.nc holds every outcome, as --keep-rows asks" in capsys.readouterr().err
    assert stat.S_IMODE((here / "kept" / "model.nc").stat().st_mode) == 0o600
    tree = desk.OwnModel.load(here / "kept" / "model.nc").own.to_arviz()
    np.testing.assert_allclose(tree["observed_data/y"], patients("H1")["stay"])
    assert tree["posterior_predictive/y"].dims == ("chain", "draw", "observation")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of some k
        assert np.isfinite(az.loo(tree).elpd)


def test_a_model_without_rows_has_none_in_memory_either(study):
    schema, release = mp.Schema.read(study / "H2" / "study.toml"), mp.Release.load(study / "H2" / "release.nc")
    own = desk.fit(schema, patients("H2"), release, newcomer=True, chains=2, warmup=140, draws=200, progress_bar=False)
    assert not {"log_likelihood", "posterior_predictive", "observed_data"} & set(own.own.to_arviz().children)


@pytest.mark.parametrize(("rows", "recovered"), [(2, True), (12, False)])
def test_outcomes_can_be_solved_from_coefficients_of_few_rows(study, rows, recovered):
    """Outcomes can be worked out from coefficients of few rows alone.

    An attacker who knows the columns looks for outcomes that give these coefficients: for two rows there is one solution.
    """
    schema, release = mp.Schema.read(study / "H1" / "study.toml"), mp.Release.load(study / "H1" / "release.nc")
    shared = mp.inference.shared_effects(release, chains=2, warmup=140, draws=200, progress_bar=False)
    frame = patients("H1", rows, seed=4)

    def coefficients(stays):
        tasks = schema.tasks(frame.assign(stay=stays))
        own = mp.inference.task_posteriors(tasks, shared, leave_one_out="not_in_release", draws=1, chains=1)
        return own.W[:, 0] / [0.1, 1, 5]

    outcomes = frame["stay"].to_numpy()
    there = coefficients(outcomes)
    guess = least_squares(lambda stays: coefficients(stays) - there, np.full(rows, 7.0), max_nfev=15).x
    error = np.sqrt(np.mean((guess - outcomes) ** 2))
    assert (error < 0.01) == recovered
    assert recovered or error > 1


def test_binary_outcomes_can_be_solved_from_coefficients(study):
    """Outcomes of two kinds can be worked out from coefficients of several times as many rows.

    Numbers of few kinds leave few cases to try: of 10 rows 1024, and one of them alone gives these 3 coefficients.
    """
    schema, release = mp.Schema.read(study / "H1" / "study.toml"), mp.Release.load(study / "H1" / "release.nc")
    shared = mp.inference.shared_effects(release, chains=2, warmup=140, draws=200, progress_bar=False)
    frame = patients("H1", 10, seed=4)
    frame["age"] += np.arange(10)  # no two rows are alike
    X, names = read_rows(schema, frame).X, schema.coefficients[:-1]

    def coefficients(cases):
        tasks = mp.TaskData.from_lists([X] * len(cases), list(cases), features=names).with_intercept()
        options = {"leave_one_out": "not_in_release", "draws": 1, "chains": 1}
        return mp.inference.task_posteriors(tasks, shared, **options).W

    every = np.array(list(itertools.product([5.0, 9.0], repeat=10)))
    truth = every[629]
    away = np.abs(coefficients(every) - coefficients(truth[None])).max(axis=0)
    assert np.flatnonzero(away < 1e-9).tolist() == [629]


def replaced(frame):
    """The rows of one hospital in every way."""
    n = len(frame)
    yield frame.assign(stay=frame["stay"] * 1000)
    yield frame.iloc[:1]
    yield frame.iloc[:0]
    yield pd.concat([frame] * 50)
    yield frame.assign(age=[None] * n)
    yield frame.assign(age=frame["age"].astype(str))
    yield frame.assign(age=1e100)
    yield frame.assign(insurance="public")
    yield frame.assign(insurance=pd.Categorical(frame["insurance"], ["private", "public", "other"]))
    yield frame.assign(stay=np.nan)
    yield frame.assign(more="text", age2=[object()] * n)
    yield frame[frame.columns[::-1]].sample(frac=1, random_state=0)


def test_one_hospitals_rows_change_no_bit_of_anything_else(study):
    """Whatever the rows of one hospital are, all else is the same in bits."""
    schema = mp.Schema.read(study / "curator" / "study.toml")
    others = [desk.make_message(schema, patients(name)).vector for name in IDS if name != "H3"]
    terms, seen = schema.terms(), set()
    for frame in replaced(patients("H3")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns in other units
            changed = desk.make_message(schema, frame, "H3")
        assert changed.vector.shape == others[0].shape
        assert len(changed.nonce) == 32
        seen.add(changed.vector.tobytes())
        again = mp.Schema.read(study / "curator" / "study.toml")
        assert (again.coefficients, again.terms(), again.digest) == (schema.coefficients, terms, schema.digest)
        messages = [desk.make_message(again, patients(name)) for name in IDS if name != "H3"]
        assert all(np.array_equal(one.vector, before) for one, before in zip(messages, others, strict=True))
        inbox = desk.Inbox(again, (*messages, changed), (), terms)
        release = desk.publish(inbox, unsafe_seed=3)
        rest = release.sigma[0] - np.outer(changed.vector, changed.vector)
        if len(seen) == 1:
            first = rest
        assert np.array_equal(rest, first)
    assert len(seen) > 4  # they did change its own


def test_without_silent_hospitals_the_release_is_of_fewer(study, tmp_path, capsys):
    """Without the hospitals that never answered, the release is of fewer."""
    inbox = shutil.copytree(study / "curator" / "inbox", tmp_path / "inbox")
    (inbox / "H6.json").unlink()
    out = tmp_path / "release.nc"
    options = ["publish", "--study", study / "curator" / "study.toml", "--messages", inbox, "--out", out]
    assert run(*options) == 2
    assert "7 files of 8, none of H6; wait for them, or say --without" in capsys.readouterr().err
    assert not out.exists()
    assert run(*options, "--without", "H6", "--json") == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert (said["messages"], said["without"], mp.Release.load(out).num_tasks) == (7, ["H6"], 7)
    assert "not covered by the guarantee" in printed.err
    assert said["guarantee"]["proved"]["delta"] == pytest.approx(0.01)


def test_keys_sign_and_encrypt(tmp_path, capsys):
    pytest.importorskip("cryptography")
    keys = {}
    for role, name in (("curator", "curator"), *(("participant", name) for name in IDS)):
        assert run("keys", "--role", role, "--out", tmp_path / f"{name}.key", "--json") == 0
        keys[name] = json.loads(capsys.readouterr().out)["public"]
        assert stat.S_IMODE((tmp_path / f"{name}.key").stat().st_mode) == 0o600
    listed = "\n".join(f'{name} = "{keys[name]}"' for name in IDS)
    path = tmp_path / "study.toml"
    path.write_text(f'{STUDY}\n[keys]\ncurator = "{keys["curator"]}"\n[keys.participants]\n{listed}\n')
    schema, inbox = mp.Schema.read(path), tmp_path / "inbox"
    inbox.mkdir()
    for name in IDS:
        patients(name).to_csv(tmp_path / f"{name}.csv", index=False)
        sending = [
            "message",
            "--study",
            path,
            "--csv",
            tmp_path / f"{name}.csv",
            "--yes",
            "--out",
            tmp_path / f"{name}.json",
        ]
        assert run(*sending) == 2
        assert "expected this participant's private key" in capsys.readouterr().err
        assert run(*sending, "--key", tmp_path / f"{name}.key") == 0
        capsys.readouterr()
        shutil.move(tmp_path / f"{name}.json", inbox)
    assert "vector" not in (inbox / "H1.json").read_text()
    own = desk.Message.load(schema, tmp_path / "H1.own.json")
    assert np.array_equal(own.vector, desk.make_message(schema, patients("H1")).vector)
    options = ["publish", "--study", path, "--messages", inbox, "--out", tmp_path / "release.nc"]
    assert run(*options) == 2
    assert "encrypted to the curator, whose key opens it (--key)" in capsys.readouterr().err
    forged = json.loads((inbox / "H1.json").read_text())
    (inbox / "H2.json").write_text(json.dumps({**forged, "participant": "H2"}))
    assert run(*options, "--key", tmp_path / "curator.key") == 2
    assert "H2.json': it was edited or damaged" in capsys.readouterr().err
    del forged["signature"]
    from mpmtl_prob.desk import envelope

    parts = {name: forged[name] for name in ("format", "study", "nonce", "body")} | {"participant": "H2"}
    (inbox / "H2.json").write_text(json.dumps({**parts, "checksum": envelope._checksum(parts), "signature": "00" * 64}))
    assert run(*options, "--key", tmp_path / "curator.key") == 2
    assert "it is not signed by 'H2'" in capsys.readouterr().err
    sending = ["message", "--study", path, "--csv", tmp_path / "H2.csv", "--yes", "--out", tmp_path / "again.json"]
    assert run(*sending, "--key", tmp_path / "H1.key") == 2
    assert "expected that of 'H2', whose public one the study has, got another" in capsys.readouterr().err
    assert run(*sending, "--key", tmp_path / "H2.key") == 0
    shutil.move(tmp_path / "again.json", inbox / "H2.json")
    assert run(*options, "--key", tmp_path / "H1.key") == 2
    assert run(*options, "--key", tmp_path / "curator.key") == 0
    os.chmod(tmp_path / "curator.key", 0o644)
    assert run(*options[:-1], tmp_path / "other.nc", "--key", tmp_path / "curator.key") == 2
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["binary", "count"])
def test_labels_and_counts_go_the_same_way(kind, tmp_path):
    """A study of outcomes that are no numbers: its coefficients are those of the model of all rows at once."""
    target = {"binary": 'labels = ["no", "yes"]\nbaseline = 0.2', "count": 'baseline = 0.3\nexposure = "days"'}[kind]
    text = STUDY.split("[target]")[0] + f'[target]\ncolumn = "stay"\nkind = "{kind}"\n{target}\n\n' + "[columns.age]"
    (tmp_path / "study.toml").write_text(text + STUDY.split("[columns.age]")[1])
    schema, rng = mp.Schema.read(tmp_path / "study.toml"), np.random.default_rng(0)
    frames = []
    for name in IDS:
        frame = patients(name, 60)
        log_rate = -1 + 0.03 * (frame["age"] - 60)
        frame["days"] = rng.uniform(1, 10, 60)
        happened = rng.random(60) < 1 / (1 + np.exp(-log_rate))
        frame["stay"] = (
            np.where(happened, "yes", "no") if kind == "binary" else rng.poisson(frame["days"] * np.exp(log_rate))
        )
        frames.append(frame)
    messages = tuple(desk.make_message(schema, frame) for frame in frames)
    release = desk.publish(desk.Inbox(schema, messages, (), schema.terms()), unsafe_seed=0)
    sampler = {"chains": 2, "warmup": 140, "draws": 200, "progress_bar": False, "sampler": "weighted"}
    own = desk.fit(schema, frames[0], release, messages[0], **sampler)
    tasks = schema.tasks(pd.concat(frames))
    same = mp.release(tasks, schema.spec, unsafe_seed=0)
    shared = mp.inference.shared_effects(same, **sampler)
    beside = mp.inference.task_posteriors(tasks, shared).coefficients().xs("H0")
    np.testing.assert_allclose(own.coefficients()["mean"], beside["mean"], rtol=1e-6)
    own.save(tmp_path / "model.nc")
    new = frames[0].drop(columns="stay")
    prediction, loaded = own.predict(new), desk.OwnModel.load(tmp_path / "model.nc").predict(new)
    np.testing.assert_allclose(prediction, loaded, rtol=1e-5)
    if kind == "binary":
        assert ((prediction["mean"] > 0) & (prediction["mean"] < 1)).all()
    else:
        twice = own.predict(new.assign(days=2 * new["days"]))["mean"]
        np.testing.assert_allclose(twice, 2 * prediction["mean"], rtol=1e-6)


def test_nothing_that_a_desk_holds_shows_a_number_of_it(fitted):
    schema = mp.Schema.read(fitted / "study.toml")
    sent = desk.Message.load(schema, fitted / "message.json")
    own = desk.OwnModel.load(fitted / "results" / "model.nc")
    inbox = desk.Inbox(schema, (sent,), (), schema.terms())
    rows = mp.schema.read_rows(schema, patients("H0"))
    for each in (sent, own, inbox, rows):
        said = f"{each!r} {each} {[each]}"
        assert not re.search(r"\d\.\d", said), said
    numbers = [f"{value:.3g}" for value in own.coefficients().to_numpy().ravel()]
    assert not [number for number in numbers if number in repr(own)]
