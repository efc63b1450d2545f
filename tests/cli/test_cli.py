"""The command line and the pictures, as a user meets them."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mpmtl_prob as mp
from mpmtl_prob import plots
from mpmtl_prob.cli import main
from mpmtl_prob.inference import shared_covariance
from mpmtl_prob.sampling import chains


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    train, _, _ = mp.datasets.synthetic_low_rank(num_tasks=30, num_features=3, rows=12, test_rows=1, group=10)
    path = tmp_path_factory.mktemp("data") / "marks.csv"
    train.to_pandas(task="school", target="mark").to_csv(path, index=False)
    return str(path)


def columns(csv):
    return ["--csv", str(csv), "--task", "school", "--target", "mark"]


def features_of(command, features="0, 1, 2"):
    return (
        f"mpmtl-prob {command}: features are all other columns, 3: {features}; --exclude leaves out columns that are not "
        "features, such as another outcome\n"
    )


def test_release_then_fit(csv, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mpmtl_prob.sampling.extent.WARMUP", 200)  # a program that there is
    release, posterior = tmp_path / "release.nc", tmp_path / "posterior.nc"
    assert main(["release", *columns(csv), "--epsilon", "2", "--out", str(release)]) == 0
    assert "proved: eps = 2, delta = 0.0098 (replace, one task)" in capsys.readouterr().out
    assert mp.Release.load(release).num_tasks == 30

    options = ["--release", str(release), "--out", str(posterior), "--draws", "200", "--quiet", "--json"]
    assert main(["fit", *columns(csv), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert np.shape(printed["spectrum_05_50_95"]) == (3, 3)
    assert posterior.exists()

    asked, real = [], mp.inference.task_posteriors
    monkeypatch.setattr(
        mp.inference, "task_posteriors", lambda *a, **k: asked.append(k["leave_one_out"]) or real(*a, **k)
    )
    for more in ([], ["--newcomers"]):
        assert main(["fit", *columns(csv), *options, *more]) == 0
    assert asked == ["auto", "not_in_release"]


def test_a_ledger_pays_once_and_refuses_the_second_time(csv, tmp_path, capsys):
    out, ledger = tmp_path / "release.nc", str(tmp_path / "ledger.db")
    arguments = ["release", *columns(csv), "--epsilon", "1", "--out", str(out), "--ledger", ledger]
    assert main([*arguments, "--total", "1.5"]) == 0
    assert "declared: eps = 1.5" in capsys.readouterr().out
    out.unlink()
    assert main(arguments) == 2
    assert "Nothing was charged" in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture
def few_chains(monkeypatch):
    monkeypatch.setattr("mpmtl_prob.sampling.extent.WARMUP", 200)  # a program that there is


def test_a_shell_pays_what_a_ledger_says_is_left_and_no_more(csv, tmp_path, capsys):
    book = str(tmp_path / "ledger")
    paying = ["release", *columns(csv), "--delta", "0.0098", "--ledger", book]
    assert main([*paying, "--epsilon", "1.5", "--total", "3", "--out", str(tmp_path / "first.nc")]) == 0
    capsys.readouterr()
    assert main(["ledger", book]) == 0
    said = capsys.readouterr().out
    assert "spent: eps = 1.5, counted at this delta, in 1 charge" in said
    assert "charged 20" in said
    left = said.split("left: one release at eps ")[1].split(",")[0]
    assert main(["ledger", book, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert f"{answer['left']:.3g}" == left
    assert [one["rounds"] for one in answer["charges"]] == [1]
    more = str(1.01 * float(left))
    assert main([*paying, "--epsilon", more, "--out", str(tmp_path / "more.nc")]) == 2
    assert main([*paying, "--epsilon", left, "--out", str(tmp_path / "second.nc")]) == 0
    capsys.readouterr()
    assert main(["ledger", str(tmp_path / "none")]) == 2
    assert "ledger: expected a file that publish or release has charged" in capsys.readouterr().err


def test_labels_are_fitted_after_their_release(csv, tmp_path, capsys, monkeypatch, few_chains):
    """The option that the error asks for is there, for what is paid for already."""
    table, release, out = tmp_path / "labels.csv", tmp_path / "release.nc", tmp_path / "own.nc"
    frame = pd.read_csv(csv)
    frame.assign(mark=np.where(frame["mark"] > 0, 1, -1)).to_csv(table, index=False)
    assert main(["release", *columns(table), "--epsilon", "2", "--out", str(release)]) == 0
    fit = ["fit", *columns(table), "--release", str(release), "--out", str(out), "--draws", "200", "--quiet"]
    assert main(fit) == 2
    assert "likelihood='bernoulli' if these are two labels" in (error := capsys.readouterr().err)
    assert "--likelihood on the command line" in error
    assert main([*fit, "--likelihood", "bernoulli"]) == 0
    assert mp.inference.OwnerPosteriors.load(out).likelihood.name == "bernoulli"

    asked = []

    def some_fits(arms, train, epsilons, *, likelihood, **_):
        asked.append(likelihood)
        return {"own": mp.inference.OwnerPosteriors.load(out)}

    monkeypatch.setattr(mp.evaluation, "fits_by_name", some_fits)
    assert main(["compare", *columns(table), "--fraction", "0.5"]) == 2
    assert "--likelihood on the command line" in capsys.readouterr().err
    assert main(["compare", *columns(table), "--fraction", "0.5", "--likelihood", "bernoulli"]) == 0
    assert asked == ["bernoulli"]
    assert "nMSE" in capsys.readouterr().out


@pytest.mark.filterwarnings("default:tasks. 1 of them:UserWarning")  # as it is outside of tests
def test_a_school_with_one_row_ends_nobodys_fit(csv, tmp_path, few_chains):
    table, release, out = tmp_path / "marks.csv", tmp_path / "release.nc", tmp_path / "own.nc"
    frame = pd.read_csv(csv)
    frame.drop(frame.index[frame["school"] == 7][1:]).to_csv(table, index=False)
    with pytest.warns(UserWarning, match="'?7'?. They are counted as declared"):
        assert main(["release", *columns(table), "--intercept", "--epsilon", "2", "--out", str(release)]) == 0
    fit = [
        "fit",
        *columns(table),
        "--intercept",
        "--release",
        str(release),
        "--out",
        str(out),
        "--draws",
        "200",
        "--quiet",
    ]
    with pytest.warns(
        UserWarning, match="one row, which says nothing of slopes beside an intercept: '?7'?. Their posteriors"
    ):
        assert main(fit) == 0
    assert np.isfinite(mp.inference.OwnerPosteriors.load(out).W).all()


def test_compare_with_one_feature_asks_for_what_it_takes(csv, capsys):
    assert main(["compare", *columns(csv), "--features", "0", "--quiet"]) == 2
    assert "reference: expected one with a single feature" in capsys.readouterr().err


def test_one_feature_needs_a_clip_norm(csv, tmp_path, capsys):
    book = tmp_path / "ledger.db"
    release = ["release", *columns(csv), "--features", "0", "--epsilon", "1", "--out", str(tmp_path / "release.nc")]
    assert main([*release, "--ledger", str(book), "--total", "2"]) == 2
    assert "--clip on the command line" in capsys.readouterr().err
    assert mp.privacy.Ledger(book).charges() == []
    assert main([*release, "--ledger", str(book), "--clip", "2"]) == 0
    assert mp.Release.load(tmp_path / "release.nc").mechanisms[0].clip == 2.0


def test_rounds_answer_each_other_and_are_paid_for_at_once(csv, tmp_path, capsys):
    book, out = tmp_path / "ledger.db", tmp_path / "release.nc"
    asked = ["release", *columns(csv), "--epsilon", "1", "--delta", "1e-3", "--ledger", str(book), "--out", str(out)]
    mp.privacy.Ledger(book, epsilon=1.5, delta=1e-3)
    for more, message in (
        (["--rounds", "0"], "rounds: expected a whole number >= 1, got 0"),
        (["--rounds", "2", "--likelihood", "some"], "likelihood: expected one of"),
        (["--likelihood", "bernoulli"], "--likelihood: expected it with --rounds above 1 alone"),
    ):
        assert main([*asked, *more]) == 2
        assert message in capsys.readouterr().err
    assert mp.privacy.Ledger(book).charges() == []
    assert main([*asked, "--rounds", "2"]) == 0
    published = mp.Release.load(out)
    assert published.rounds == 2
    assert published.guarantee.proved.epsilon == 1.0
    (charge,) = mp.privacy.Ledger(book).charges()
    assert len(charge.mechanisms) == 2


def test_a_failed_answer_keeps_the_rounds_that_are_paid_for(csv, tmp_path, monkeypatch):
    def failing(tasks, seed, likelihood):
        def respond(release):
            raise ValueError("no answer")

        respond.shape = tasks.num_features, tasks.num_tasks
        return respond

    monkeypatch.setattr(mp.inference, "posterior_draws", failing)
    out = tmp_path / "release.nc"
    assert main(["release", *columns(csv), "--epsilon", "1", "--rounds", "2", "--out", str(out)]) == 2
    assert mp.Release.load(out).num_tasks == 30


def test_a_structure_is_that_of_the_posterior(csv, tmp_path, capsys, monkeypatch):
    release, asked = tmp_path / "release.nc", []

    def sampler(published, *, structure, **_):
        asked.append(structure)
        raise ValueError("no draws here")

    assert main(["release", *columns(csv), "--epsilon", "2", "--out", str(release)]) == 0
    fit = ["fit", *columns(csv), "--release", str(release), "--out", str(tmp_path / "own.nc"), "--quiet"]
    assert main([*fit, "--structure", "round"]) == 2
    assert "structure: expected one of" in capsys.readouterr().err
    monkeypatch.setattr(mp.inference, "shared_covariance", sampler)
    for more in ([], ["--structure", "group_sparse"]):
        assert main([*fit, *more]) == 2
    assert asked == ["full", "group_sparse"]


def test_compare_prints_a_table_or_json(csv, capsys, monkeypatch):
    def some_fits(arms, train, epsilons, *, draws, adjacency, **_):  # test_evaluation.py has them all
        assert (epsilons, adjacency) == ([1.0], "replace")
        ours = mp.NoiseAware(1.0, chains=2, warmup=200, draws=draws, progress_bar=False).fit(train)
        return {"ridge": mp.estimators.Ridge().fit(train), mp.evaluation.noise_aware(1.0): ours}

    monkeypatch.setattr(mp.evaluation, "fits_by_name", some_fits)
    options = ["--epsilon", "1", "--fraction", "0.5", "--draws", "100", "--quiet"]
    assert main(["compare", *columns(csv), *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows][-1] == "noise-aware posterior, eps = 1"
    assert rows[-1]["proved_epsilon"] == 1.0


@pytest.fixture
def interrupted(monkeypatch):
    """A key is pressed after some draws."""
    advance = chains.advance

    def until(*args, **kwargs):
        for step in advance(*args, **kwargs):
            yield step
            if step[0].drawn >= 50:
                raise KeyboardInterrupt

    monkeypatch.setattr(chains, "advance", until)


@pytest.mark.filterwarnings("default::mpmtl_prob.inference.Interrupted")  # as it is outside of tests
def test_an_interrupt_ends_a_command_and_keeps_the_draws(csv, tmp_path, capsys, monkeypatch, interrupted):
    """An interrupt ends a command, and a fit keeps what was drawn."""
    train = mp.TaskData.from_pandas(pd.read_csv(csv), task="school", target="mark")
    run = {"chains": 2, "warmup": 200, "draws": 100, "progress_bar": False}
    fits = lambda *_, **__: {"ours": mp.NoiseAware(1.0, **run).fit(train)}
    monkeypatch.setattr(mp.evaluation, "fits_by_name", fits)
    assert main(["compare", *columns(csv), "--quiet"]) == 130
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"{features_of('compare')}mpmtl-prob compare: interrupted\n")

    monkeypatch.setattr("mpmtl_prob.sampling.extent.WARMUP", 200)  # a program that there is
    release, posterior = tmp_path / "release.nc", tmp_path / "posterior.nc"
    mp.release(train, 1.0).save(release)
    with pytest.warns(mp.inference.Interrupted, match="interrupted: 50 of 200 draws"):
        status = main(
            ["fit", *columns(csv), "--release", str(release), "--out", str(posterior), "--draws", "200", "--quiet"]
        )
    assert status == 130
    assert mp.inference.OwnerPosteriors.load(posterior).shared.to_arviz()["posterior"].sizes["draw"] == 50
    assert f"written to {posterior}" in capsys.readouterr().out


def test_whoever_stops_reading_is_told_nothing(tmp_path):
    command = [sys.executable, "-c", "import sys; from mpmtl_prob.cli import main; sys.exit(main())", "plan"]
    plan = [
        *command,
        "--people",
        "100",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--features",
        "10",
        "--out",
        str(tmp_path / "plan.png"),
    ]
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(plan, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_sites_that_have_answered_are_not_asked_again(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "release.nc").touch()
    assert main(["federated", "sites", "--folder", str(tmp_path)]) == 2
    assert "have answered a run, and answer one; take another" in capsys.readouterr().err


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "mpmtl-prob demo --data school" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"mpmtl-prob {version('mpmtl-prob')}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--epsilon", "1", "-1"], "--epsilon: expected a positive number, got -1.0"),
        (["demo", "--data", "moon"], "--data: expected one of synthetic_low_rank"),
        (
            ["release", "--csv", "nowhere.csv", "--task", "a", "--target", "b", "--epsilon", "1", "--out", "x"],
            "nowhere",
        ),
        (["release", "--csv", "nowhere.csv", "--epsilon", "1", "--out", "x"], "--csv: needs --task and --target"),
        (
            ["release", "--csv", ".", "--task", "a", "--target", "b", "--epsilon", "1", "--out", "x"],
            "mpmtl-prob release:",
        ),
        (
            ["compare", "--data", "school", "--intercept"],
            "--intercept: expected it with --csv alone, got --data school",
        ),
        (["compare", "--data", "school", "--features", "a"], "--features: expected it with --csv alone"),
        (
            [
                "plan",
                "--error",
                ".1",
                "--epsilon",
                "1",
                "--delta",
                "1e-6",
                "--features",
                "9",
                "--out",
                "/dev/null/x.png",
            ],
            "",
        ),
    ],
)
def test_mistakes_are_one_line_on_stderr_and_exit_2(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
@pytest.mark.parametrize("decimal", [".", ","])
def test_a_table_without_commas_is_told_so(separator, word, decimal, csv, tmp_path, capsys):
    other = tmp_path / "other.csv"
    pd.read_csv(csv).to_csv(other, sep=separator, decimal=decimal, index=False)
    options = ["--csv", str(other), "--task", "school", "--target", "mark", "--epsilon", "1"]
    assert main(["release", *options, "--out", str(tmp_path / "out.nc")]) == 2
    said = f"--csv: expected commas between the columns of {str(other)!r}, got {word}; save the table with commas"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("row", [1, 2, 100])
@pytest.mark.parametrize("row_as", ["{0},", "{0},4711", '{1},"47', "{1}", "4711"])
def test_tables_with_lines_of_other_lengths_are_refused(row_as, row, csv, tmp_path, capsys):
    """A table with a line of more or fewer fields than its head is refused."""
    lines = Path(csv).read_text().splitlines()
    lines[row] = row_as.format(lines[row], lines[row].rpartition(",")[0])
    (tmp_path / "table.csv").write_text("\n".join([*lines, ""]))
    asked = ["release", *columns(str(tmp_path / "table.csv")), "--epsilon", "1", "--out", str(tmp_path / "release.nc")]
    assert main(asked) == 2
    said, error = capsys.readouterr()
    assert said == ""
    assert error.startswith("mpmtl-prob release: --csv: expected 5 fields in every line of ")
    assert error.count("\n") == 1
    assert "47" not in error.replace(str(tmp_path), "")
    assert not (tmp_path / "release.nc").exists()


@pytest.mark.parametrize("text", [b"", b"school,mark\n\xff,4711\n", b"school,mark\r1,4711\r2,3\r"])
def test_a_table_that_is_none_is_refused_and_not_shown(text, tmp_path, capsys):
    (tmp_path / "table.csv").write_bytes(text)
    asked = ["release", *columns(str(tmp_path / "table.csv")), "--epsilon", "1", "--out", str(tmp_path / "release.nc")]
    assert main(asked) == 2
    error = capsys.readouterr().err
    assert error.startswith("mpmtl-prob release: --csv: ")
    assert error.count("\n") == 1
    assert "4711" not in error.replace(str(tmp_path), "")


@pytest.mark.parametrize("place", [".", "nowhere/release.nc"])
def test_nothing_is_paid_for_what_cannot_be_written(csv, tmp_path, capsys, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    paying = ["--epsilon", "1", "--ledger", "ledger.db", "--total", "1.5"]
    assert main(["release", *columns(csv), *paying, "--out", place]) == 2
    assert f"--out: expected a place for a file, got '{place}'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_release_is_not_overwritten_or_paid_again(csv, tmp_path, capsys):
    """A release that is there is not overwritten, and nothing is paid for another."""
    (tmp_path / "release.nc").write_text("paid for")
    paying = ["--epsilon", "1", "--ledger", str(tmp_path / "ledger.db"), "--total", "1.5"]
    assert main(["release", *columns(csv), *paying, "--out", str(tmp_path / "release.nc")]) == 2
    assert "--out: expected a new file" in capsys.readouterr().err
    assert (tmp_path / "release.nc").read_text() == "paid for"
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize("option", [["--total", "2"], ["--adaptive"]])
def test_what_only_a_ledger_takes_is_refused_without_one(csv, tmp_path, capsys, option):
    out = tmp_path / "release.nc"
    assert main(["release", *columns(csv), "--epsilon", "1", "--out", str(out), *option]) == 2
    assert f"{option[0]}: expected it with --ledger alone, got none" in capsys.readouterr().err
    assert not out.exists()


def test_a_fit_that_cannot_be_is_refused_before_it_is_sampled(csv, tmp_path, capsys, monkeypatch):
    def sampled(*_, **__):
        raise AssertionError

    train = mp.TaskData.from_pandas(pd.read_csv(csv), task="school", target="mark")
    mp.release(train, 2.0, unsafe_seed=0).save(tmp_path / "release.nc")
    monkeypatch.setattr(mp.inference, "shared_covariance", sampled)
    names = [str(name) for name in train.features]
    fit = ["fit", *columns(csv), "--release", str(tmp_path / "release.nc")]
    out = ["--out", str(tmp_path / "posterior.nc")]
    for arguments, message in (
        ([*out, "--features", *names[::-1]], "features: expected the order of the release"),
        ([*out, "--features", *names[:2]], "features: expected 3 as in the release, got 2"),
        ([*out, "--draws", "0"], "--draws: expected a whole number >= 1, got 0"),
        (["--out", str(tmp_path)], "--out: expected a place for a file"),
    ):
        assert main([*fit, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_an_index_that_pandas_wrote_is_no_feature(csv, tmp_path, capsys):
    frame, path = pd.read_csv(csv), tmp_path / "marks.csv"
    frame.to_csv(path)
    release = ["release", *columns(path), "--epsilon", "1", "--out", str(tmp_path / "release.nc")]
    assert main(release) == 2
    assert "--csv: expected a name for every column of " in capsys.readouterr().err
    names = [name for name in frame.columns if name not in ("school", "mark")]
    assert main([*release, "--features", *names]) == 0


def test_a_bad_epsilon_writes_nothing(csv, tmp_path, capsys):
    out = tmp_path / "release.nc"
    assert main(["release", *columns(csv), "--epsilon", "-1", "--out", str(out)]) == 2
    assert "epsilon: expected a positive number, got -1.0" in capsys.readouterr().err
    assert not out.exists()


def test_pictures_show_what_they_say(csv):
    pytest.importorskip("matplotlib").use("Agg")
    W = np.random.default_rng(0).standard_normal((3, 40)) * [[3.0], [1.0], [1.0]]
    release = mp.release(W, epsilon=5.0, unsafe_seed=0)
    posterior = shared_covariance(release, chains=2, warmup=200, draws=100, progress_bar=False)
    ax = plots.spectrum(posterior, W @ W.T, reference_label="truth")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["90 % interval", "posterior median", "truth"]
    truth = ax.lines[-1].get_ydata()
    np.testing.assert_allclose(truth, np.linalg.eigvalsh(W @ W.T)[::-1] / np.trace(W @ W.T))

    ax = plots.projector(posterior.subspace(2))
    np.testing.assert_allclose(ax.images[0].get_array(), posterior.subspace(2).projector)

    bound = mp.privacy.Bound(1.0, 0.1, "replace")
    names = ["STL ridge", "Algorithm 2, M = I", "MTL trace norm, not private"]
    names += [f"{a}, eps = {e}" for a in ("Algorithm 2", "Algorithm 3", "noise-aware posterior") for e in (1, 10)]
    rows = tuple({"name": n, "nmse": float(i), "claimed": bound, "proved": bound} for i, n in enumerate(names))
    ax = plots.error_against_epsilon(mp.evaluation.Comparison(rows), [10, 1], metric="nmse")
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), [[1, 7], [10, 8]])
    # at delta = .1 an eps is not what protects anybody, and the legend says so
    assert ax.lines[-1].get_label() == "noise-aware posterior (eps only claimed)"


@pytest.fixture
def leaky(csv, tmp_path):
    """The table with another outcome in it, which tells the target."""
    path = tmp_path / "leaky.csv"
    frame = pd.read_csv(csv)
    frame.assign(readmitted=frame["mark"], left=-frame["mark"]).to_csv(path, index=False)
    return path


def test_feature_columns_are_listed_once_and_can_be_left_out(leaky, tmp_path, capsys):
    """Columns that are taken for features are listed once, and can be left out."""
    release = lambda name, *options: main(
        ["release", *columns(leaky), "--epsilon", "1", "--out", str(tmp_path / name), *options]
    )
    assert release("all.nc", "--json") == 0
    said, told = capsys.readouterr()
    assert json.loads(said)["num_tasks"] == 30  # and nothing else
    assert told.count("features are all other columns, 5: 0, 1, 2, readmitted, left; --exclude leaves out columns") == 1
    assert release("some.nc", "--exclude", "readmitted", "left") == 0
    assert features_of("release") in capsys.readouterr().err
    assert release("twice.nc", "--exclude", "readmitted", "--exclude", "left") == 0
    assert (
        mp.Release.load(tmp_path / "some.nc").features
        == mp.Release.load(tmp_path / "twice.nc").features
        == ("0", "1", "2")
    )
    capsys.readouterr()
    assert release("named.nc", "--features", "0", "1", "2") == 0
    assert not capsys.readouterr().err  # they were named
    for options, message in (
        (["--exclude", "readmited"], "exclude: no column 'readmited' among the frame's 7"),
        (["--exclude", "mark"], "exclude: expected columns that would be features, got 'mark'"),
        (["--features", "0", "1", "--exclude", "1"], "exclude: expected none of the features that are named, got '1'"),
    ):
        assert release("none.nc", *options) == 2
        assert message in capsys.readouterr().err
    assert main(["compare", "--data", "school", "--exclude", "a"]) == 2
    assert "--exclude: expected it with --csv alone" in capsys.readouterr().err
