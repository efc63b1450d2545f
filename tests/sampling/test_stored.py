"""Draws in files: what is kept of them, whatever their size and origin, and in how many bytes."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr
from helpers.stored import same_but_for_rounding

from mpmtl_prob._util.files import opened_tree, read_tree, write_netcdf
from mpmtl_prob.sampling.stored import packed, packed_parts, unpacked


def group(seed=0, d=5, draws=40):
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((2, draws, d, d))
    dims = ("chain", "draw")
    return xr.Dataset({
        "A": ((*dims, "feature", "feature_other"), half @ np.swapaxes(half, -1, -2)),
        "far": ((*dims, "feature"), 1e9 + rng.standard_normal((2, draws, d))),
        "huge": ((*dims, "feature"), 1e120 * rng.standard_cauchy((2, draws, d))),
        "tiny": ((*dims, "feature"), 1e-150 * rng.standard_normal((2, draws, d))),
        "sigma": (dims, np.exp(20 * rng.standard_normal((2, draws)))),
        "constant": (dims, np.full((2, draws), 0.1)),
        "diverging": (dims, rng.random((2, draws)) < 0.5),
        "mean": (("feature",), rng.standard_normal(d)),
    }, coords={"feature": [f"x{j}" for j in range(d)], "feature_other": [f"x{j}" for j in range(d)]})  # fmt: skip


def written(data, path):
    write_netcdf(xr.DataTree.from_dict({"posterior": data}), path, private=True)
    return unpacked(read_tree(path)["posterior"].to_dataset())


def test_stored_draws_lose_no_more_than_single_precision(tmp_path):
    """Stored draws lose no more than single precision of their distance from the median."""
    saved = group()
    loaded = written(packed(saved), tmp_path / "draws.nc")
    same_but_for_rounding(xr.DataTree(loaded), xr.DataTree(saved))
    assert np.array_equal(loaded["mean"], saved["mean"])
    assert np.ptp(loaded["constant"].values) == 0  # what a posterior does not leave open
    assert (loaded["sigma"] > 0).all()
    assert np.array_equal(loaded["A"], np.swapaxes(loaded["A"].values, -1, -2))


def test_a_file_is_a_third_of_what_it_was(tmp_path):
    saved = group(d=20, draws=300)[["A"]]
    write_netcdf(xr.DataTree.from_dict({"posterior": saved}), tmp_path / "double.nc", private=True)
    written(packed(saved), tmp_path / "single.nc")
    before, after = ((tmp_path / name).stat().st_size for name in ("double.nc", "single.nc"))
    assert after < before / 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_stays_in_double_precision(tmp_path, value):
    saved = group()[["far"]]
    saved["far"][0, 0, 0] = value
    loaded = written(packed(saved), tmp_path / "draws.nc")
    np.testing.assert_array_equal(loaded["far"], saved["far"])


def test_a_group_of_an_earlier_version_is_as_it_was():
    saved = group()
    xr.testing.assert_identical(unpacked(saved), saved)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_triangle_of_symmetric_matrices_is_stored(tmp_path, symmetric):
    """One triangle of symmetric matrices is stored, over any dimensions."""
    saved = group(d=7)[["A"]].rename(feature="effect", feature_other="effect_other")
    if not symmetric:
        saved["A"][0, 0, 1, 0] += 1.0
    loaded = written(packed(saved), tmp_path / "draws.nc")
    kept = read_tree(tmp_path / "draws.nc")["posterior/A"].shape[2:]
    assert kept == ((28,) if symmetric else (7, 7))
    same_but_for_rounding(xr.DataTree(loaded), xr.DataTree(saved))


def test_squares_in_files_of_before_are_read(tmp_path, monkeypatch):
    saved = group()[["A"]].rename(feature="effect", feature_other="effect_other")
    with monkeypatch.context() as before:
        before.setattr("mpmtl_prob.sampling.stored._symmetric", lambda values, dims: False)
        file = packed(saved)
    assert file["A"].shape[2:] == (5, 5)
    same_but_for_rounding(xr.DataTree(written(file, tmp_path / "draws.nc")), xr.DataTree(saved))


def traced(call):
    """Return a call's value, and the bytes at the peak of NumPy's and Python's allocations, above what there was."""
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


def test_writing_and_reading_copy_only_a_few_draws_at_a_time(tmp_path):
    """Writing and reading take the memory of a few draws more than the draws themselves."""
    draws = np.random.default_rng(0).standard_normal((2, 300, 5, 1000))
    saved = xr.Dataset({"W": (("chain", "draw", "feature", "task"), draws)})
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(coords={"task": np.arange(1000)})})

    def write():
        parts = (("posterior", *part) for part in packed_parts(saved))
        write_netcdf(tree, tmp_path / "draws.nc", private=True, parts=parts)

    def read():
        with opened_tree(tmp_path / "draws.nc") as file:
            return unpacked(file["posterior"].to_dataset())

    write(), read()  # what is imported for it
    assert traced(write)[1] < 0.5 * draws.nbytes
    loaded, peak = traced(read)
    assert peak < 1.3 * draws.nbytes
    np.testing.assert_array_equal(loaded["W"], unpacked(packed(saved))["W"])
    assert list(loaded["W"].dims) == list(saved["W"].dims)
    assert read_tree(tmp_path / "draws.nc")["posterior/W"].dtype == np.float32
