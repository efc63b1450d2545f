"""Arms of an adaptation side by side: what each costs, what is refused before anything is paid, and who may see errors."""

import json
import os
import re

import numpy as np
import pandas as pd
import pytest

from mpmtl_prob.adaptation import CnvxAdap, Domain, RandomFeatures
from mpmtl_prob.adaptation.arms import CLASSIFICATION, REGRESSION, fit_arms
from mpmtl_prob.adaptation.data import named, problems
from mpmtl_prob.cli import main
from mpmtl_prob.privacy import BudgetExceeded, Ledger

DATA = problems.two_sources((300, 120), num_features=3, tests=300, seed=1)
PRIVATE = [name for name, kind in REGRESSION.items() if kind.private]
ASKED = {"label": "effect", "delta": 1e-2, "steps": 20}


def frame(records, classes=False):
    """A table in other units than the library's, with labels or classes 3 and 7."""
    table = pd.DataFrame(records.X * [4.0, 100.0, 0.01] + [40.0, 1.0, 2.0], columns=["age", "dose", "time"])
    return table.assign(effect=np.where(records.y > 0, 7.0, 3.0) if classes else 200.0 + 30.0 * records.y)


@pytest.fixture(params=[False], ids=["numbers"])
def files(tmp_path, request):
    for name, records in {**DATA.sources, "private": DATA.target, "test": DATA.test}.items():
        frame(records, request.param).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def asked(folder, *more):
    sources = [str(folder / f"{name}.csv") for name in ("good", "bad")]
    return ["adapt", "--source", *sources, "--target", str(folder / "private.csv"), "--label", "effect",
            "--epsilon", "1", "--delta", ".01", "--quiet", *more]  # fmt: skip


def test_every_private_arm_is_a_charge_and_they_compose():
    book = Ledger(epsilon=9.0, delta=1e-2, unit="target record")
    arms = fit_arms(PRIVATE, DATA.sources, DATA.target, epsilon=1.0, ledger=book, **ASKED)
    free = ["source"]
    assert [fit.name for fit in arms.fits if not fit.guarantee.proved.epsilon] == free
    assert len(book.charges()) == len(PRIVATE) - len(free)
    assert arms.total.epsilon == pytest.approx(book.spent.epsilon, rel=1e-9)
    assert max(fit.guarantee.proved.delta for fit in arms.fits) <= 1e-2
    assert all(np.isfinite(fit.weights).all() and fit.weights.shape == (4,) for fit in arms.fits)
    assert "All arms together: eps = " in str(arms)


def test_nothing_is_charged_where_a_later_arm_would_be_refused():
    book = Ledger(epsilon=1.2, delta=1e-2, unit="target record")
    with pytest.raises(BudgetExceeded):
        fit_arms(["adassp", "cnvx"], DATA.sources, DATA.target, epsilon=1.0, ledger=book, **ASKED)
    for options in (
        {"steps": 0},
        {"source_weight": 1.5},
        {"accounting": "own"},
        {"test": (DATA.test.X[:, :2], DATA.test.y)},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            fit_arms(["adassp", "cnvx"], DATA.sources, DATA.target, epsilon=0.1, ledger=book, **ASKED | options)
    with pytest.raises(ValueError, match="arms: expected arms with a guarantee, got kmm"):
        fit_arms(["adassp", "kmm"], DATA.sources, DATA.target, epsilon=0.1, ledger=book, **ASKED)
    with pytest.raises(ValueError, match="arms: expected every arm once, got cnvx more than once"):
        fit_arms(["adassp", "cnvx", "cnvx"], DATA.sources, DATA.target, epsilon=0.1, ledger=book, **ASKED)
    with pytest.raises(ValueError, match="arms: expected one of 'source', 'moments'"):
        fit_arms(["adassp", "ncnvx"], DATA.sources, DATA.target, epsilon=0.1, ledger=book, **ASKED)
    assert book.charges() == []


def test_what_is_paid_before_a_disk_is_full_is_not_lost(monkeypatch):
    fit, calls = CnvxAdap.fit, []

    def full(self, source, target):
        calls.append(self)
        if len(calls) == 2:  # the first is the rehearsal
            raise OSError("disk full")
        return fit(self, source, target)

    monkeypatch.setattr(CnvxAdap, "fit", full)
    with pytest.raises(OSError, match="disk full") as stopped:
        fit_arms(["adassp", "cnvx"], DATA.sources, DATA.target, epsilon=1.0, **ASKED)
    assert [each.name for each in stopped.value.arms.fits] == ["adassp"]
    assert stopped.value.arms.total.epsilon == pytest.approx(1.0, rel=1e-3)


@pytest.mark.filterwarnings("error")
def test_weights_are_in_the_tables_units():
    names = ["target", "cnvx_not_private", "moments"]
    sources = {name: Domain.from_pandas(frame(part), "effect") for name, part in DATA.sources.items()}
    target, test = (Domain.from_pandas(frame(part), "effect") for part in (DATA.target, DATA.test))
    arms = fit_arms(
        names, sources, target, epsilon=100.0, unsafe_seed=0, not_private=True, test=test, test_is="x", **ASKED
    )
    variance = np.var(np.concatenate([part.y for part in sources.values()]))
    for fit in arms.fits:
        by_hand = np.mean((test.y - test.X @ fit.weights[:3] - fit.weights[3]) ** 2) / variance
        assert fit.error == pytest.approx(by_hand, rel=1e-9)
    rows = np.column_stack([target.X, np.ones(target.num_records)])
    least = np.linalg.lstsq(rows, target.y, rcond=None)[0]
    np.testing.assert_allclose(arms.fits[0].weights[:2], least[:2], rtol=0.02)  # a ridge of 1e-4 is all that differs
    assert arms.total is None


def test_the_command_says_who_may_see_errors(files, capsys):
    out, book = files / "out", files / "ledger.db"
    more = ["--arms", "source", "cnvx", "--steps", "20", "--test", str(files / "test.csv"), "--out", str(out)]
    assert main(asked(files, *more, "--held-out", "--ledger", str(book), "--total", "2")) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"^cnvx: CnvxAdap, best weights inserted \(profiled\) +eps 1, delta 0.01 +0\.\d+$", said, re.MULTILINE
    )
    assert "private records that their owner held out (--held-out): the guarantee does not" in said
    assert len(Ledger(book).charges()) == 1
    assert os.stat(out / "arms.json").st_mode & 0o777 == 0o600
    assert main(asked(files, *more, "--ledger", str(book))) == 2  # the folder has what is paid for
    assert "--out: expected a folder without arms.json" in capsys.readouterr().err
    assert main(asked(files, *more[:-2], "--json")) == 0
    arms = json.loads(capsys.readouterr().out)
    assert arms["test"].startswith("They are computed without noise from --test, which was given as public records")
    assert [arm["name"] for arm in arms["arms"]] == ["source", "cnvx"]
    assert all(0 < arm["error"] < 2 for arm in arms["arms"])


def test_one_release_has_errors_on_test_records_too(files, capsys):
    assert main(asked(files, "--test", str(files / "test.csv"), "--json")) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["test"]["errors"]) == {arm["name"] for arm in said["arms"]}
    test = frame(DATA.test)
    for arm in said["arms"]:
        w = np.array(arm["weights"])
        scale = said["scaling"]["label_scale"]
        by_hand = np.mean(((test["effect"] - test[["age", "dose", "time"]].to_numpy() @ w[:3] - w[3]) / scale) ** 2)
        assert said["test"]["errors"][arm["name"]] == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("files", [True], indirect=True, ids=["classes"])
def test_classes_are_those_of_the_table(files, capsys):
    names = [name for name, kind in CLASSIFICATION.items() if kind.private]
    more = ["--classification", "--arms", *names, "--steps", "10", "--test", str(files / "test.csv"), "--json"]
    assert main(asked(files, *more)) == 0
    arms = {arm["name"]: arm for arm in json.loads(capsys.readouterr().out)["arms"]}
    assert list(arms) == names
    assert arms["source"]["guarantee"]["proved"]["epsilon"] == 0
    w, test = np.array(arms["ncnvx"]["weights"]), frame(DATA.test, True)
    scores = test[["age", "dose", "time"]].to_numpy() @ w[:3] + w[3]
    assert arms["ncnvx"]["error"] == pytest.approx(np.mean((scores > 0) != (test["effect"] == 7)))
    assert arms["network"]["weights"] is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--steps", "5"], "--steps: expected it with --arms alone, got no arms"),
        (["--held-out"], "--held-out: expected it with --test alone, got no test records"),
        (["--arms", "kmm"], "arms: expected arms with a guarantee, got kmm"),
        (["--arms", "cnvx", "--test", "nowhere.csv"], "nowhere.csv"),
        (["--arms", "cnvx", "--classification"], "arms: expected one of 'source', 'ncnvx'"),
    ],
)
def test_mistakes_are_named_and_cost_nothing(more, message, files, capsys):
    book = Ledger(files / "ledger.db", epsilon=5.0, delta=1e-2, unit="target record")
    assert main(asked(files, "--ledger", str(files / "ledger.db"), *more)) == 2
    assert message in capsys.readouterr().err
    assert book.charges() == []


def test_test_records_are_checked_before_anything_is_paid(files, capsys):
    book = Ledger(files / "ledger.db", epsilon=5.0, delta=1e-2, unit="target record")
    for text, message in (
        ("age,dose,effect\n1,2,3\n", "test: expected the columns ['time'] in"),
        ("age,dose,time,effect\n1,2,x,3\n", "test: expected a number in every cell, got something else in the columns"),
        ("age,dose,time,effect\n1,2,1e200,3\n", "test: expected numbers up to"),
    ):
        (files / "wrong.csv").write_text(text)
        more = ["--ledger", str(files / "ledger.db"), "--test", str(files / "wrong.csv")]
        for arms in ([], ["--arms", "cnvx"]):
            assert main(asked(files, *more, *arms)) == 2
            assert message in capsys.readouterr().err
    assert book.charges() == []


def test_data_sets_by_name_run_or_say_which_file_they_want(capsys, tmp_path):
    asked = ["adapt", "--epsilon", "2", "--delta", ".01", "--data"]
    more = ["--records", "200", "80", "--arms", "source", "cnvx", "--steps", "5", "--json"]
    assert main([*asked, "two_sources", *more]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["private_records"], sum(said["public_records"].values())) == (80, 200)
    assert said["arms"][1]["error"] > 0
    files = {"wind": "wind.data", "airline": "2008.csv", "gas": "batch1.dat", "news": "OnlineNewsPopularity.csv"}
    for name, file in (files | {"slices": "slice_localization_data.csv"}).items():
        assert main([*asked, name]) == 2
        told = capsys.readouterr().err
        assert file in told
        assert "from" in told
        assert main([*asked, name, "--path", str(tmp_path / "nowhere")]) == 2
        assert file in capsys.readouterr().err
    for more, message in (
        (["two_sources", "--path", "x"], "path: expected none with two_sources, which needs no file"),
        (["two_sources", "--label", "x"], "--label: expected none with --data"),
        (["digits"], "--arms: expected some for classes, as digits has"),
        (["rain"], "data: expected one of 'two_sources'"),
    ):
        assert main([*asked, *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["adapt", "--epsilon", "1"]) == 2
    assert "--source: expected it, or --data with a data set by name, got none" in capsys.readouterr().err


def test_a_file_of_the_paper_runs_through_the_command(tmp_path, capsys):
    rng = np.random.default_rng(0)
    dates = [(61 + year, month, day) for year in range(4) for month in range(1, 13) for day in range(1, 29)]
    table = np.column_stack([dates, rng.gamma(2.0, 5.0, (len(dates), 12))])
    np.savetxt(tmp_path / "wind.data", table, fmt="%.2f")
    asked = [
        "adapt",
        "--data",
        "wind",
        "--path",
        str(tmp_path / "wind.data"),
        "--records",
        "600",
        "60",
        "--epsilon",
        "2",
    ]
    assert main([*asked, "--delta", ".01", "--json", "--arms", "source", "moments"]) == 0
    assert json.loads(capsys.readouterr().out)["private_records"] == 60


def test_classes_and_a_network_run_on_digits(capsys):
    pytest.importorskip("sklearn")
    asked = ["adapt", "--data", "digits", "--records", "300", "100", "--epsilon", "5", "--delta", ".01", "--json"]
    assert main([*asked, "--arms", "source", "ncnvx", "--steps", "30"]) == 0
    arms = {arm["name"]: arm for arm in json.loads(capsys.readouterr().out)["arms"]}
    assert all(arm["error"] < 0.5 for arm in arms.values())  # better than guessing


def test_random_features_take_the_place_of_columns(capsys):
    """The command maps all records by public directions, from columns in public units, and then does what a call does."""
    asked = ["adapt", "--epsilon", "2", "--delta", ".01", "--data", "two_sources", "--records", "200", "80", "--json"]
    assert main([*asked, "--arms", "source", "--random-features", "6"]) == 0
    said = json.loads(capsys.readouterr().out)
    data = named.load("two_sources", None, records=[200, 80], seed=0)
    X = np.vstack([part.X for part in data.sources.values()])
    see = lambda part: Domain((part.X - X.mean(0)) / X.std(0), part.y)
    kernel = RandomFeatures.of(see(Domain(X, np.zeros(len(X)))), 6)
    sources = {name: kernel(see(part)) for name, part in data.sources.items()}
    intercept = "intercept" not in data.source.features
    expected = fit_arms(["source"], sources, kernel(see(data.target)), label="label", epsilon=2.0, delta=0.01,
                        intercept=intercept, test=kernel(see(data.test)), test_is="")  # fmt: skip
    assert said["arms"][0]["error"] == pytest.approx(expected.fits[0].error, rel=1e-9)
    assert len(said["features"]) == 12 + intercept
    assert main([*asked, "--random-features", "6"]) == 2
    assert "--random-features: expected it with --arms alone, got no arms" in capsys.readouterr().err
