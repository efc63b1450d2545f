"""Releases of moments and what was made of them, written and read: whatever a file says is checked."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mpmtl_prob._util.files import write_netcdf
from mpmtl_prob.adaptation import Domain, MomentAdaptation, MomentRelease, infer
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.releases import files

DATA = problems.two_sources((120, 60), num_features=3, tests=50, seed=5)


@pytest.fixture(scope="module")
def model():
    return MomentAdaptation(epsilon=1.0, delta=1e-2, draws=30).fit(DATA.sources, DATA.target)


def test_a_release_comes_back_with_its_guarantee_recomputed(model, tmp_path):
    """A release comes back as it was, with its guarantee worked out anew."""
    release, path = model.release_, tmp_path / "release.nc"
    release.save(path)
    again = MomentRelease.load(path)
    for name in (
        "sigma",
        "centre",
        "residual_bound",
        "residual_unit",
        "row_bound",
        "num_records",
        "features",
        "mechanism",
        "lattice",
    ):
        assert np.array_equal(getattr(again, name), getattr(release, name)), name
    assert again.guarantee.proved == release.guarantee.proved
    assert again.guarantee.arithmetic == release.guarantee.arithmetic
    assert np.array_equal(again.ridge(), release.ridge())


def test_a_file_that_promises_too_much_proves_nothing(model, tmp_path):
    """A file that promises more than its noise gives proves nothing."""
    data = model.release_.to_xarray()
    meta = json.loads(data.attrs["release"])
    meta["guarantee"]["proved"]["delta"] /= 2
    other = MomentRelease.from_xarray(data.assign_attrs(release=json.dumps(meta)))
    assert other.guarantee.proved is None
    assert "which its noise laws do not give" in other.guarantee.reason
    off = MomentRelease.from_xarray(data.assign(sigma=data.sigma + 0.1))
    assert off.guarantee.arithmetic != model.release_.guarantee.arithmetic


def test_a_key_signs_it(model, tmp_path):
    key, path = b"sixteen secret bytes", tmp_path / "signed.nc"
    model.release_.save(path, key=key)
    assert np.array_equal(MomentRelease.load(path, key=key).sigma, model.release_.sigma)
    with pytest.raises(ValueError, match="signed with another key"):
        MomentRelease.load(path, key=b"another, as long as it")


def edited(release, **change):
    """The release's data with fields changed, or with dots for what lies deeper: ``guarantee__proved__unit``."""
    data = release.to_xarray()
    meta = json.loads(data.attrs["release"])
    for name, value in change.items():
        *path, last = name.split("__")
        inner = meta
        for key in path:
            inner = inner[key]
        inner[last] = value
    return data.assign_attrs(release=json.dumps(meta))


def test_what_is_protected_is_a_record_whatever_a_file_says(model):
    for unit in ("task", "row", "person"):
        back = MomentRelease.from_xarray(edited(model.release_, guarantee__proved__unit=unit)).guarantee
        assert back.proved is None
        assert back.reason.endswith("which no release of its kind gives: what it protects is one target record.")
    data = model.release_.to_xarray()
    meta = json.loads(data.attrs["release"])
    del meta["guarantee"]["proved"]["unit"]
    silent = MomentRelease.from_xarray(data.assign_attrs(release=json.dumps(meta)))
    assert silent.guarantee.proved == model.release_.guarantee.proved


def test_the_noise_covers_records_of_the_files_size(model):
    """Noise on fewer numbers, or for shorter records, gives away less than what is in Sigma does."""
    little = model.release_.guarantee.proved.delta / 1e3
    for change in ({"mechanism__num_features": 1}, {"mechanism__num_features": 9}, {"mechanism__clip": 0.125}):
        with pytest.raises(
            ValueError, match=r"^mechanism: expected Gaussian noise on 4 numbers, for vectors up to 1.25"
        ):
            MomentRelease.from_xarray(edited(model.release_, guarantee__proved__delta=little, **change))
    with pytest.raises(ValueError, match=r"^residual_unit: expected the residual bound over 0.75"):
        MomentRelease.from_xarray(edited(model.release_, residual_unit=model.release_.residual_unit / 2))


def test_a_lattice_of_moments_follows_from_their_numbers(model):
    off = replace(model.release_, sigma=model.release_.sigma * (1 + 1e-6))
    for change in ({"lattice": 2.0**-200}, {"lattice": model.release_.lattice / 2}, {"num_records": 10**15}):
        assert MomentRelease.from_xarray(edited(off, **change)).guarantee.arithmetic.startswith("double")


def test_a_signature_covers_all_that_is_read(model, tmp_path):
    """The centre of the moments among it: what is said of a target's weights is centre + ..."""
    key, path = b"sixteen secret bytes", tmp_path / "signed.nc"
    model.release_.save(path, key=key)
    signed = files.read(path)
    for changed in (
        signed.assign(centre=signed["centre"] + 1.0),
        signed.assign(centre=signed["centre"] * (1 + 1e-15)),
        signed.rename(centre="middle"),
        signed.assign(weights=signed["centre"]),
    ):
        write_netcdf(changed, tmp_path / "changed.nc", private=False)
        with pytest.raises(ValueError, match=r"key: .* was signed with another key, or changed"):
            MomentRelease.load(tmp_path / "changed.nc", key=key)


def test_a_model_predicts_as_before_and_can_be_refitted(model, tmp_path):
    """A model predicts as before, and its posterior can be made again."""
    path, X = tmp_path / "model.nc", DATA.test.X
    model.save(path)
    again = MomentAdaptation.load(path)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again.interval(X), model.interval(X))
    assert again.posterior_.domain_weights == model.posterior_.domain_weights
    assert again.guarantee_.proved == model.guarantee_.proved
    anew = infer(again.release_, again.prior_, again.posterior_.domains, draws=30)
    np.testing.assert_allclose(again.scaling_.original(anew.w), model.posterior_.w, rtol=1e-12)


def test_what_holds_something_else_is_named(model, tmp_path):
    model.save(tmp_path / "model.nc")
    (tmp_path / "text.nc").write_text("something else")
    with pytest.raises(ValueError, match=r"path: .*text.nc' holds no release"):
        MomentRelease.load(tmp_path / "text.nc")
    with pytest.raises(ValueError, match=r"path: .*model.nc' holds no moment release"):
        MomentRelease.load(tmp_path / "model.nc")
    with pytest.raises(ValueError, match=r"path: .*text.nc' holds no model"):
        MomentAdaptation.load(tmp_path / "text.nc")
    model.release_.save(tmp_path / "release.nc")
    with pytest.raises(ValueError, match="expected the groups that save writes"):
        MomentAdaptation.load(tmp_path / "release.nc")
    with pytest.raises(ValueError, match="expected a fit before it is saved"):
        MomentAdaptation().save(tmp_path / "none.nc")
    data = model.release_.to_xarray()
    for wrong in ({}, {"release": json.dumps({"kind": "tasks"})}, {"release": "[]"}):
        with pytest.raises(ValueError, match="release: expected"):
            MomentRelease.from_xarray(data.drop_attrs().assign_attrs(wrong))


def test_an_intercept_is_a_weight_inside_the_bound(tmp_path):
    rng = np.random.default_rng(8)
    w = np.array([0.3, -0.2])

    def records(n):
        X = rng.uniform(-0.6, 0.6, (n, 2))
        return Domain(X, X @ w + 0.4 + 0.05 * rng.standard_normal(n))

    source, target, test = records(400), records(400), records(200)
    model = MomentAdaptation(epsilon=4.0, intercept=True, row_bound=1.0, draws=50, unsafe_seed=1).fit(source, target)
    assert model.coef_.shape == (2,)
    assert model.intercept_ == pytest.approx(0.4, abs=0.1)
    assert model.release_.features[-1] == "intercept"
    assert model.release_.row_bound == pytest.approx(np.sqrt(2))
    assert np.mean((test.y - model.predict(test.X)) ** 2) < 0.01
    low, high = model.interval(test.X)
    assert np.mean((low < test.y) & (test.y < high)) > 0.5
    model.save(tmp_path / "model.nc")
    again = MomentAdaptation.load(tmp_path / "model.nc")
    assert np.array_equal(again.predict(test.X), model.predict(test.X))
    with pytest.raises(ValueError, match=r"X: expected shape \(records, 2\)"):
        model.predict(np.ones((3, 3)))
