"""A private model from public data, at the command line: what is printed, what it costs, what must not be seen."""

import bz2
import gzip
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.tolerances import FAR

from mpmtl_prob.adaptation import Domain, release_moments
from mpmtl_prob.adaptation import adapt as report
from mpmtl_prob.adaptation.adapt import adapt
from mpmtl_prob.adaptation.data import problems, tables
from mpmtl_prob.adaptation.data.scaling import Scaling
from mpmtl_prob.cli import main
from mpmtl_prob.privacy import Ledger

DATA = problems.two_sources((400, 150), num_features=3, tests=400, seed=1)
UNITS = np.array([4.0, 100.0, 0.01]), np.array([40.0, 1.0, 2.0])  # sizes and places of the columns


def frame(records):
    """A table in other units than the library's."""
    table = pd.DataFrame(records.X * UNITS[0] + UNITS[1], columns=["age", "dose", "time"])
    return table.assign(effect=200.0 + 30.0 * records.y)


@pytest.fixture
def files(tmp_path):
    tables_by_name = {**DATA.sources, "private": DATA.target}
    for name, records in tables_by_name.items():
        frame(records).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def asked(folder, *more, sources=("good", "bad"), epsilon="1"):
    paths = [str(folder / f"{name}.csv") for name in sources]
    target = str(folder / "private.csv")
    return ["adapt", "--source", *paths, "--target", target, "--label", "effect", "--epsilon", epsilon, *more]


def test_it_prints_its_tables_and_charges_once(files, capsys):
    """It prints arms, domains, weights and the guarantee, and charges once."""
    pytest.importorskip("matplotlib")
    out, ledger = files / "new" / "out", files / "ledger.db"
    arguments = asked(files, "--delta", "1e-3", "--ledger", str(ledger), "--out", str(out))
    assert main([*arguments, "--total", "1.5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("effect from 3 features and an intercept: 400 public records, 150 private ones")
    arms = [line.split("  ")[0] for line in said.splitlines()[4:9]]
    assert arms == [
        "source only",
        "source only, good",
        "source only, bad",
        "AdaSSP on residuals",
        "one release, posterior",
    ]
    assert re.search(r"^good +\d+ +0?\.?\d+", said, flags=re.MULTILINE)
    assert re.search(r"^intercept +\S+ +\S+ +\S+ +\S+$", said, flags=re.MULTILINE)
    assert "One charge, proved: eps = 1, delta = 0.001 (replace, one target record)" in said
    assert said.rstrip().endswith(f"written to {out}/: model.json, adaptation.png")
    assert (out / "adaptation.png").stat().st_size > 10_000
    book = Ledger(ledger)
    assert len(book.charges()) == 1
    assert (book.unit, book.epsilon, book.delta) == ("target record", 1.5, 1e-3)
    assert main([*arguments[:-1], str(files / "again")]) == 2  # there is no second one
    said, error = capsys.readouterr()
    assert said == ""
    assert "Nothing was charged" in error
    assert len(book.charges()) == 1


def test_json_is_the_model_that_is_written(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(asked(files, "--json", "--out", str(files / "out"), sources=("good",))) == 0
    said, missing = capsys.readouterr()
    printed = json.loads(said)
    assert printed == json.loads((files / "out" / "model.json").read_text())
    assert "no picture" in missing
    assert list(printed["weights"]) == ["age", "dose", "time", "intercept"]
    assert [arm["charge"] for arm in printed["arms"]] == ["nothing", "the release", "the release"]
    assert [arm["read_off"] is None for arm in printed["arms"]] == [False, True, True]
    assert sum(printed["resembles"].values()) == pytest.approx(1.0)
    assert printed["guarantee"]["proved"]["unit"] == "target record"
    assert all(row["low"] < row["mean"] < row["high"] for row in printed["weights"].values())
    assert main(asked(files, "--json", "--no-intercept", sources=("good",))) == 0
    assert list(json.loads(capsys.readouterr().out)["weights"]) == ["age", "dose", "time"]


def test_weights_are_of_the_tables_own_units():
    sources = {name: Domain.from_pandas(frame(each), "effect") for name, each in DATA.sources.items()}
    adapted = adapt(
        sources, Domain.from_pandas(frame(DATA.target), "effect"), label="effect", epsilon=50.0, unsafe_seed=0
    )
    w = np.array([adapted.weights[name]["mean"] for name in ("age", "dose", "time", "intercept")])
    test = frame(DATA.test)
    predicted = test[["age", "dose", "time"]].to_numpy() @ w[:3] + w[3]
    error = np.mean((test["effect"] - predicted) ** 2) / 30**2
    assert error < 1.3 * 0.01  # noise of sd .1
    units = adapted.scaling
    scaled = units.scaled(Domain(test[["age", "dose", "time"]].to_numpy(), test["effect"].to_numpy()))
    again = scaled.X @ adapted.posterior.mean * units.label_scale + units.label_centre
    np.testing.assert_allclose(again, predicted)


def test_a_read_off_error_is_true_up_to_the_stated_noise():
    """An error that is read off the release is the true one plus noise of the stated size."""
    w_0, w = np.array([0.5, -0.1, 0.2]), np.array([0.2, 0.3, -0.4])
    read = lambda epsilon, seed: release_moments(
        DATA.target, centre=w_0, residual_bound=0.4, epsilon=epsilon, delta=1e-2, unsafe_seed=seed
    )
    cut = np.clip(DATA.target.y - DATA.target.X @ w_0, -0.4, 0.4)
    true = np.mean((cut - DATA.target.X @ (w - w_0)) ** 2)
    exact = read(1e10, 0)
    assert exact.squared_error(w)[0] == pytest.approx(true, abs=exact.lattice)  # records are rounded to the grid
    noisy = np.array([read(1.0, seed).squared_error(w) for seed in range(200)])
    z = (noisy[:, 0] - true) / noisy[:, 1]
    assert abs(z.mean()) < FAR / np.sqrt(200)
    assert abs(z.std() - 1) < FAR / np.sqrt(400)


def test_errors_read_off_for_fitted_weights_are_too_small():
    """Errors that are read off for weights fitted to the noise would be too small."""
    target, off = problems.shifted((400, 150), 0.5, num_features=40, tests=10, seed=0).target, []
    for seed in range(40):
        release = release_moments(
            target, centre=np.zeros(40), residual_bound=1.0, epsilon=1.0, delta=1e-2, unsafe_seed=seed
        )
        w = release.ridge()
        off.append(release.squared_error(w)[0] - np.mean((target.y - target.X @ w) ** 2))
    assert np.mean(off) < -3 * np.std(off) / np.sqrt(40)  # so it is not printed; ten such errors below zero, not three


def test_errors_by_the_posterior_are_where_errors_are():
    inside = []
    for seed in range(12):
        data = problems.shifted((400, 150), 0.5, num_features=3, tests=4000, seed=seed)
        adapted = adapt(data.source, data.target, label="y", epsilon=2.0, delta=1e-2, unsafe_seed=seed)
        test = adapted.scaling.scaled(data.test)
        for arm in adapted.arms:
            error = np.mean((test.y - test.X @ arm.w) ** 2)
            inside.append(arm.expected[1] < error < arm.expected[2])
    assert np.mean(inside) > 0.7  # over 60 seeds .88
    assert adapted.arms[0].read_off[0] < adapted.arms[0].expected[0]  # the shift is in what the cut took away


def poisoned(folder, cell, column=1, row=7):
    lines = (folder / "private.csv").read_text().splitlines()
    cells = lines[row].split(",")
    cells[column] = cell
    lines[row] = ",".join(cells)
    path = folder / "poisoned.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.filterwarnings("error")
def test_a_bad_private_cell_is_a_record_of_zeros_in_silence(files):
    """Whatever is in a private cell becomes a record of zeros, and nobody is told."""
    sources = [files / "good.csv", files / "bad.csv"]
    given = lambda path: adapt(*tables.read(sources, path, "effect"), label="effect", epsilon=1.0, unsafe_seed=3)
    shown = set()
    for cell, column in [
        ("nan", 1),
        ("", 3),
        ("inf", 3),
        ("-inf", 1),
        ("1e999", 2),
        ("4711 Main Street", 1),
        ("0x1f", 3),
    ]:
        answer = given(poisoned(files, cell, column))
        shown.add(str(answer) + json.dumps(answer.to_dict()))
    assert len(shown) == 1
    clean, zero = given(files / "private.csv"), given(poisoned(files, "nan"))
    for cell in ("1e300", "-1e308"):
        huge = given(poisoned(files, cell))
        assert np.trace(huge.release.sigma - zero.release.sigma) <= 2.0 + 1e-6  # as any record
        assert str(huge).splitlines()[0] == str(clean).splitlines()[0]
    flags = pd.DataFrame({"a": [True, False, True], "y": [1.0, 2.0, 3.5]})
    flags.to_csv(files / "flags.csv", index=False)
    _, read = tables.read([files / "flags.csv"], files / "flags.csv", "y")
    assert read.X.ravel().tolist() == [1.0, 0.0, 1.0]


LINES = {
    "a field more": b"4711,3.14159,1,2,5",
    "a last comma": b"4711,3.14159,1,2,",
    "many fields more": b"4711" + 30 * b",3.14159",
    "a field less": b"4711,3.14159,1",
    "nothing": b"",
    "blanks": b"   ",
    "a quote that is never closed": b'4711,3.14159,1,"2',
    "a quote that was closed before": b'"4711"3.14159,1,2',
    "a byte of no text": b"4711,3.14159,1,\xff",
    "half a letter": b"4711,3.14159,1,2\xe2\x82",
    "the end of a line, on another system": b"4711,3.14159\r1,2,3,4",
    "zeros": b"4711,3.14159,1,\x00",
    "a novel": b"4711,3.14159,1," + 200_000 * b"a",
    "a number as long": b"4711,3.14159,1," + 200_000 * b"9",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["", "of Windows"])
@pytest.mark.parametrize("row", [0, 7, 19])
@pytest.mark.parametrize("name", LINES)
def test_a_bad_private_line_changes_one_record_alone(name, row, end, tmp_path):
    """Whatever is in a private line is one record of zeros, and no other record changes."""
    files = tmp_path
    frame(DATA.source)[:20].to_csv(files / "good.csv", index=False)
    head, *before = frame(DATA.target)[:20].to_csv(index=False).encode().splitlines()
    after = [LINES[name] if i == row else line for i, line in enumerate(before)]
    one, other = files / "one.csv", files / "other.csv"
    one.write_bytes(end.join([head, *before, b""]))
    other.write_bytes(end.join([head, *after, b""]))
    records = [tables.read([files / "good.csv"], path, "effect")[1] for path in (one, other)]
    assert [each.num_records for each in records] == [20, 20]
    X, y = (np.delete(value, row, axis=0) for value in (records[0].X, records[0].y))
    assert np.array_equal(np.delete(records[1].X, row, axis=0), X)
    assert np.array_equal(np.delete(records[1].y, row, axis=0), y)
    zeros = records[1].bounded(1e9, 1e9)
    assert not np.any(zeros.X[row])
    assert zeros.y[row] == 0


def test_private_records_are_as_many_as_lines_below_the_head(files):
    def count(text):
        path = files / "private.csv"
        path.write_bytes(text)
        return tables.read([files / "good.csv"], path, "effect")[1].num_records

    head, one = b"age,dose,time,effect", b"1,2,3,4"
    assert count(head) == count(head + b"\n") == 0
    assert count(b"\n".join([head, one, one])) == count(b"\n".join([head, one, one, b""])) == 2
    assert count(b"\n".join([head, one, b"", one, b"", b""])) == 4
    assert count(b"\xef\xbb\xbf" + b"\n".join([head, one])) == 1


def test_a_compressed_private_table_is_the_table(files):
    text = (files / "private.csv").read_bytes()
    (files / "private.csv.gz").write_bytes(gzip.compress(text))
    (files / "private.csv.bz2").write_bytes(bz2.compress(text))
    records = [
        tables.read([files / "good.csv"], files / f"private.csv{end}", "effect")[1] for end in ("", ".gz", ".bz2")
    ]
    assert all(np.array_equal(each.X, records[0].X) for each in records)
    assert np.allclose(records[0].y, frame(DATA.target)["effect"], rtol=1e-15)
    (files / "private.csv.gz").write_bytes(gzip.compress(text)[:-10])
    with pytest.raises(ValueError, match=r"^target: cannot read '.*private.csv.gz' as a table with one record a line$"):
        tables.read([files / "good.csv"], files / "private.csv.gz", "effect")


def test_a_paid_answer_is_printed_and_never_overwritten(files, capsys, monkeypatch):
    """A paid answer is printed whatever becomes of its files, and never overwritten."""

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(report.Report, "save", full)
        assert main(asked(files, "--out", str(files / "out"))) == 2
    said, error = capsys.readouterr()
    assert "proved: eps = " in said
    assert error.splitlines()[1:] == ["mpmtl-prob adapt: disk full"]
    (files / "out" / "model.json").write_text("paid for")
    assert main(asked(files, "--out", str(files / "out"))) == 2
    assert "--out: expected a folder without model.json" in capsys.readouterr().err
    assert (files / "out" / "model.json").read_text() == "paid for"


def test_a_model_of_which_nothing_is_proved_is_its_owners(tmp_path):
    before = os.umask(0o022)
    try:
        for seed in (None, 3):
            adapt(DATA.sources, DATA.target, label="y", epsilon=1.0, unsafe_seed=seed).save(tmp_path / str(seed))
    finally:
        os.umask(before)
    modes = {
        folder: {os.stat(path).st_mode & 0o777 for path in (tmp_path / folder).iterdir()} for folder in ("None", "3")
    }
    assert modes == {"None": {0o644}, "3": {0o600}}


def test_a_ledger_of_tasks_is_refused(files, capsys):
    Ledger(files / "tasks.db", epsilon=9.0, delta=1e-3)
    assert main(asked(files, "--ledger", str(files / "tasks.db"))) == 2
    said, error = capsys.readouterr()
    assert said == ""
    assert error.splitlines()[1].startswith("mpmtl-prob adapt: unit: expected 'task' in a ledger of tasks")
    assert Ledger(files / "tasks.db").charges() == []


SECRET = re.compile(r"4711|3\.14159")


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("private", "age,dose,time\n4711,1,2\n", {}, "label: expected the columns ['effect'] in"),
        ("private", "age,time,effect\n4711,1,2\n", {}, "target: expected the columns ['dose'] in"),
        ("private", "4711,3.14159,1,2\n1,2,3,4\n", {}, "label: expected the columns ['effect'] in"),
        ("private", "", {}, "target: cannot read"),
        ("private", "age;dose;time;effect\n4711;1;2;3,14159\n", {}, "target: expected commas between the columns of"),
        ("good", "age\tdose\ttime\teffect\n4711\t1\t2\t3\n", {}, "got tabs; save the table with commas"),
        ("good", "age,dose,time\n1,1,2\n", {}, "label: expected one of the columns ['age', 'dose', 'time'] of"),
        ("good", "age,dose,effect\n1,1,2\n", {"sources": ("bad", "good")}, "source: expected the columns of the first"),
        ("good", "age,dose,time,more,effect\n1,1,2,3,4\n", {"sources": ("bad", "good")}, "got also ['more'] in"),
        (
            "good",
            "age,dose,time,effect\n1,low,2,3\n",
            {},
            "source: expected numbers, got something else in the columns ['dose']",
        ),
        (
            "good",
            "age,dose,time,effect\n1,,2,3\n",
            {},
            "source: expected a number in every cell, got none in some of ['dose']",
        ),
        ("good", "age,dose,time,effect\n1,2,3,4,\n1,2,3,4\n", {}, "source: expected 4 fields in every line of"),
        ("good", "age,dose,time,effect\n", {}, "source"),
        ("other", "", {"sources": ("good", "good")}, "source: expected files of different names"),
        ("other", "", {"sources": ("nowhere",)}, "nowhere.csv"),
        ("none", "age,dose,time,effect\n1,1,2,3\n", {"sources": ("none",)}, "source: expected other names than 'none'"),
        ("other", "", {"epsilon": "0"}, "epsilon: expected a positive number, got 0.0"),
    ],
)
def test_mistakes_are_named_free_and_show_nothing_private(name, text, options, message, files, capsys):
    """Mistakes are named, cost nothing and show nothing private."""
    (files / f"{name}.csv").write_text(text)
    book = Ledger(files / "ledger.db", epsilon=5.0, delta=1e-2, unit="target record")
    assert main(asked(files, "--ledger", str(files / "ledger.db"), **options)) == 2
    said, error = capsys.readouterr()
    assert said == ""
    assert message in error
    assert (
        len([line for line in error.splitlines() if "features are all other columns, 3: age, dose, time" not in line])
        == 1
    )
    assert not SECRET.search(error.replace(str(files), ""))
    assert book.charges() == []


def test_a_place_that_is_no_folder_is_found_before_paying(files, capsys):
    """A place that is no folder is noticed before anything is paid for."""
    book = Ledger(files / "ledger.db", epsilon=5.0, delta=1e-2, unit="target record")
    assert main(asked(files, "--out", str(files / "good.csv"), "--ledger", str(files / "ledger.db"))) == 2
    assert "out: expected a folder" in capsys.readouterr().err
    assert book.charges() == []


def test_no_private_value_is_printed(files, capsys):
    assert main(asked(files, "--json", "--out", str(files / "out"))) == 0
    printed = capsys.readouterr().out
    assert main(asked(files)) == 0
    printed += capsys.readouterr().out + Path(files / "out" / "model.json").read_text()
    numbers = [x for x in re.findall(r"\d+\.\d{6,}", printed) if float(x)]
    assert len(numbers) > 100
    private = frame(DATA.target).to_numpy()
    units = Scaling.of(Domain.from_pandas(pd.concat([frame(each) for each in DATA.sources.values()]), "effect"))
    scaled = units.scaled(Domain.from_pandas(frame(DATA.target), "effect"))
    every = np.abs(np.concatenate([private.ravel(), scaled.X[:, :3].ravel(), scaled.y]))
    for number in map(float, numbers):
        assert not np.any(np.abs(every - number) < 1e-9 * number)


def test_features_may_be_constant_and_names_may_clash():
    constant = Domain(np.ones((50, 2)), np.arange(50.0) / 50)
    adapted = adapt(constant, constant, label="y", epsilon=1.0)
    assert np.all(np.isfinite([list(row.values()) for row in adapted.weights.values()]))
    with pytest.raises(ValueError, match="intercept: expected no feature of the name"):
        adapt(*2 * [Domain(np.ones((5, 1)), np.ones(5), ("intercept",))], label="y", epsilon=1.0)


def test_a_total_without_a_ledger_is_refused(files, capsys):
    assert main(asked(files, "--total", "2")) == 2
    assert "--total: expected it with --ledger alone, got none" in capsys.readouterr().err


def test_other_outcomes_are_left_out_of_all_tables_features(files, capsys):
    """Another outcome is left out of the features of all tables.

    The public files may have it, in any order, or not; the private one as well.
    """
    for name, frame in ((path.name, pd.read_csv(path)) for path in sorted(files.glob("*.csv"))):
        if name.startswith("good"):
            frame.insert(0, "recovered", frame["effect"])
        frame.to_csv(files / name, index=False)
    for sources in (("good", "bad"), ("bad", "good")):
        assert main(asked(files, "--exclude", "recovered", "--json", sources=sources)) == 0
        said, told = capsys.readouterr()
        assert list(json.loads(said)["weights"]) == ["age", "dose", "time", "intercept"]
        assert told.count("features are all other columns, 3: age, dose, time;") == 1
    assert main(asked(files, "--exclude", "recoverd", sources=("good",))) == 2
    assert "exclude: no column 'recoverd' among the frame's 5" in capsys.readouterr().err
