"""A mixed model from a shell: reference values in a file, a release of effects, and what owners make of it."""

import json
import stat

import numpy as np
import pandas as pd
import pytest

import mpmtl_prob as mp
from mpmtl_prob.cli import main

REFERENCE = {"features": {"age": [60, 15], "male": [0.5, 0.5]}, "target": [7, 5], "effects": {"age": 0.05}}
COLUMNS = ["--task", "hospital", "--target", "stay", "--intercept"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the patients of eight hospitals, and reference values."""
    rng = np.random.default_rng(0)
    n, at = 96, tmp_path_factory.mktemp("hospitals")
    frame = pd.DataFrame({"hospital": [f"H{i % 8}" for i in range(n)], "age": rng.normal(60, 15, n).round()})
    frame["male"] = rng.integers(0, 2, n)
    frame["stay"] = (7 + 0.05 * (frame["age"] - 60) + rng.normal(0, 2, n)).round(1)
    frame.to_csv(at / "stays.csv", index=False)
    (at / "reference.json").write_text(json.dumps(REFERENCE))
    return at


@pytest.fixture(scope="module")
def release(folder):
    out = folder / "release.nc"
    assert main(["release", *table(folder), *values(folder), "--epsilon", "3", "--quiet", "--out", str(out)]) == 0
    return out


def table(folder):
    return ["--csv", str(folder / "stays.csv"), *COLUMNS]


def values(folder):
    return ["--reference", str(folder / "reference.json")]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("mpmtl_prob.sampling.extent.WARMUP", 200)


def test_the_release_has_the_reference_of_the_file(release):
    layout = mp.Release.load(release).effects
    assert layout.reference == mp.Reference({"age": (60, 15), "male": (0.5, 0.5)}, (7, 5), {"age": 0.05})
    assert layout.coefficients == ("age", "male", "intercept")


def fitting(folder, release, out, *more):
    options = ["--release", str(release), "--out", str(out), "--draws", "200", "--chains", "2", "--quiet"]
    return ["fit", *table(folder), *options, *more]


def test_a_fit_prints_averages_and_writes_all_tasks(folder, release, tmp_path, capsys, quick):
    """A fit prints average effects and a few tasks, and writes all tasks for their owners."""
    out, coefficients = tmp_path / "own.nc", tmp_path / "coefficients.csv"
    assert main(fitting(folder, release, out, "--coefficients", str(coefficients))) == 0
    printed = capsys.readouterr().out
    own = mp.inference.OwnerEffects.load(out)
    average = own.shared.average_effects()
    assert average.to_string(float_format="{:.3g}".format) in printed
    few = own.coefficients().loc[["H0", "H1", "H2", "H3", "H4"]]
    assert few.to_string(float_format="{:.3g}".format) in printed
    assert "H5" not in printed
    assert "and of 3 tasks more" in printed
    for path in (out, coefficients):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = pd.read_csv(coefficients, index_col=["task", "effect"])
    np.testing.assert_allclose(written.loc[("H7", "age"), "alone"], own.coefficients().loc[("H7", "age"), "alone"])
    assert len(written) == 24


def test_json_has_every_task_and_newcomers_take_no_message_out(folder, release, tmp_path, capsys, monkeypatch, quick):
    asked, real = [], mp.inference.task_posteriors
    monkeypatch.setattr(
        mp.inference, "task_posteriors", lambda *a, **k: asked.append(k["leave_one_out"]) or real(*a, **k)
    )
    out = tmp_path / "own.nc"
    more = ["--newcomers", "--likelihood", "student_t", "--json"]
    assert main(fitting(folder, release, out, *more)) == 0
    said = json.loads(capsys.readouterr().out)
    own = mp.inference.OwnerEffects.load(out)
    assert (own.likelihood.name, asked) == ("student_t", ["not_in_release"])
    assert [row["effect"] for row in said["average_effects"]] == ["age", "male", "intercept"]
    assert {row["task"] for row in said["coefficients"]} == {f"H{i}" for i in range(8)}
    first = said["coefficients"][0]
    assert first["mean"] == pytest.approx(own.coefficients().iloc[0]["mean"])
    assert {"alone", "alone_lower", "alone_upper", "lower", "upper"} <= set(first)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--reference: .* is no JSON"),
        ("[1]", "--reference: expected an object such as .*, got list"),
        (
            '{"features": {}, "targets": [7, 5]}',
            "--reference: 'targets': expected the keys features, target, effects, outcome, baseline",
        ),
        ('{"features": {"age": [60, 15]}}', "--reference: 'target': expected it"),
        ('{"features": {"age": [1, 2], "age": [60, 15]}, "target": [7, 5]}', "--reference: 'age': expected it once"),
        (
            '{"features": {"age": [60]}, "target": [7, 5]}',
            "--reference: features: 'age': expected a centre and a positive",
        ),
        ('{"features": {"age": [60, 15]}, "target": 7}', "--reference: target: expected a centre and a positive"),
        ('{"features": [60, 15], "target": [7, 5]}', "--reference: features: expected a mapping"),
        (
            '{"features": {"age": [60, 15]}, "target": [7, 5], "effects": [1]}',
            "--reference: 'effects': expected numbers",
        ),
        ('{"features": {"age": [60, 15]}, "target": [7, 5], "effects": {"age": "x"}}', "--reference: effects: 'age'"),
        ('{"features": {"age": [60, 15]}, "target": [7, 5]}', "reference: expected values of the columns .*'male'"),
    ],
)
def test_a_bad_reference_is_named_before_a_charge(folder, tmp_path, capsys, text, message):
    """A malformed reference is named before anything is charged."""
    path, book = tmp_path / "reference.json", tmp_path / "ledger.db"
    path.write_text(text)
    paying = ["--ledger", str(book), "--total", "5", "--out", str(tmp_path / "release.nc")]
    assert main(["release", *table(folder), "--reference", str(path), "--epsilon", "3", *paying]) == 2
    said = capsys.readouterr().err
    assert pytest.raises(ValueError, match=message).matches(ValueError(said)), said
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("more", "message"),
    [(["--clip", "2"], "reference: expected it with message='effects' alone"), (["--scaling", "pareto"], "scaling: ")],
)
def test_options_of_other_messages_are_refused(folder, tmp_path, capsys, more, message):
    out = tmp_path / "release.nc"
    assert main(["release", *table(folder), *values(folder), "--epsilon", "3", *more, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_fit_that_cannot_be_is_refused_before_the_sampler_runs(folder, release, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mp.inference, "shared_covariance", None)
    assert main(fitting(folder, release, tmp_path / "own.nc", "--likelihood", "bernoulli")) == 2
    assert (
        "expected 'gaussian' or 'student_t' with messages of effects of the outcome 'number', got 'bernoulli'"
        in capsys.readouterr().err
    )
    without = [option for option in fitting(folder, release, tmp_path / "own.nc") if option != "--intercept"]
    assert main(without) == 2
    assert "tasks: expected them with an intercept, which the messages share" in capsys.readouterr().err
    directions = tmp_path / "directions.nc"
    columns = ["--csv", str(folder / "stays.csv"), *COLUMNS[:-1]]
    assert main(["release", *columns, "--epsilon", "3", "--out", str(directions)]) == 0
    more = ["--release", str(directions), "--coefficients", str(tmp_path / "c.csv"), "--out", str(tmp_path / "own.nc")]
    assert main(["fit", *columns, *more]) == 2
    assert "--coefficients: expected it with a release of effects alone" in capsys.readouterr().err


def test_compare_hands_the_reference_on(folder, capsys, monkeypatch):
    asked = []

    def some_fits(arms, train, epsilons, *, reference, **_):
        asked.append(reference)
        return {"ridge": mp.estimators.Ridge().fit(train)}

    monkeypatch.setattr(mp.evaluation, "fits_by_name", some_fits)
    assert main(["compare", *table(folder), *values(folder), "--quiet"]) == 0
    assert asked[0].target == (7.0, 5.0)
    assert main(["compare", *table(folder), "--quiet"]) == 0
    assert asked[1] is None


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder with a table of eight hospitals' logistic models, as R writes them, and their reference values."""
    at = tmp_path_factory.mktemp("elsewhere")
    rng, names, parts = np.random.default_rng(0), ["(Intercept)", "age", "male"], []
    for i in range(8):
        root = 0.1 * rng.standard_normal((3, 3)) + 0.2 * np.eye(3)
        part = pd.DataFrame({"task": f"{i:03d}", "coefficient": names, "estimate": rng.normal([-1, 0.03, 0.4], 0.1)})
        parts.append(part.join(pd.DataFrame(root @ root.T, columns=names)))
    pd.concat(parts).to_csv(at / "estimates.csv", index=False)
    (at / "reference.json").write_text('{"features": {"age": [60, 15], "male": [0.5, 0.5]}, "target": [0, 1]}')
    return at


def test_estimates_of_a_table_make_a_release(elsewhere, tmp_path, capsys, quick):
    """Estimates of a table make a release, and their owners join it."""
    source = ["--estimates", str(elsewhere / "estimates.csv")]
    release, out, coefficients = (tmp_path / name for name in ("release.nc", "own.nc", "own.csv"))
    assert main(["release", *source, *values(elsewhere), "--epsilon", "3", "--out", str(release)]) == 0
    assert mp.Release.load(release).effects.coefficients == ("age", "male", "intercept")
    joining = ["--release", str(release), "--draws", "200", "--chains", "2", "--quiet", "--out", str(out)]
    assert main(["fit", *source, *joining, "--coefficients", str(coefficients)]) == 0
    assert "OwnerEffects(8 tasks, 3 effects, estimate" in capsys.readouterr().out
    table = pd.read_csv(elsewhere / "estimates.csv", dtype={"task": str}).set_index(["task", "coefficient"])
    written = pd.read_csv(coefficients, dtype={"task": str}, index_col=["task", "effect"])
    assert written.loc[("007", "male"), "alone"] == pytest.approx(table.loc[("007", "male"), "estimate"])
    assert stat.S_IMODE(coefficients.stat().st_mode) == 0o600


def test_some_coefficients_of_a_table_are_taken(elsewhere, tmp_path):
    """Some coefficients of a table with its own column of tasks are taken."""
    frame = pd.read_csv(elsewhere / "estimates.csv").rename(columns={"task": "hospital"})
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "reference.json").write_text('{"features": {"age": [60, 15]}, "target": [0, 1]}')
    source = ["--estimates", str(tmp_path / "table.csv"), "--task", "hospital", "--features", "age"]
    out = tmp_path / "release.nc"
    assert main(["release", *source, *values(tmp_path), "--epsilon", "3", "--out", str(out)]) == 0
    assert mp.Release.load(out).effects.coefficients == ("age",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--intercept"], "--intercept: expected it with --csv alone, got --estimates"),
        (["--target", "stay"], "--target: expected it with --csv alone"),
        (["--features", "bmi"], "--estimates: estimates: task '000': coefficients: expected those of the estimate"),
        (["--features", "age"], "estimates: expected the coefficients of the reference, got none of"),
        (["--task", "hospital"], "--estimates: task: no column 'hospital'"),
        (["--csv", "stays.csv"], "not allowed with argument"),
        (["--clip", "2"], "reference: expected it with message='effects' alone"),
    ],
)
def test_unsuitable_options_of_estimates_are_named_uncharged(elsewhere, tmp_path, capsys, more, words):
    """Options that do not go with estimates are named before anything is charged."""
    source = ["--estimates", str(elsewhere / "estimates.csv"), *values(elsewhere), *more]
    paying = ["--ledger", str(tmp_path / "ledger.db"), "--total", "5", "--out", str(tmp_path / "release.nc")]
    try:
        code = main(["release", *source, "--epsilon", "3", *paying])
    except SystemExit as end:  # of the parser's
        code = end.code
    assert code == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_estimates_need_reference_values_and_no_likelihood(elsewhere, release, tmp_path, capsys, monkeypatch):
    """Estimates without reference values, or with a likelihood, are refused."""
    source = ["--estimates", str(elsewhere / "estimates.csv")]
    paying = ["--ledger", str(tmp_path / "ledger.db"), "--total", "5", "--out", str(tmp_path / "release.nc")]
    assert main(["release", *source, "--epsilon", "3", *paying]) == 2
    assert "reference: expected reference values with estimates" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(mp.inference, "shared_covariance", None)
    joining = ["--release", str(release), "--out", str(tmp_path / "own.nc"), "--likelihood", "student_t"]
    assert main(["fit", *source, *joining]) == 2
    assert "likelihood: expected none with estimates" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", *source])
