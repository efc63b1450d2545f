"""Releases of moments and what was made of them, written and read: whatever a file says is checked."""

import json

import numpy as np
import pytest

from mpmtl_prob.adaptation import Domain, MomentRelease, OneRelease, infer, problems

DATA = problems.two_sources((120, 60), num_features=3, tests=50, seed=5)


@pytest.fixture(scope="module")
def model():
    return OneRelease(epsilon=1.0, delta=1e-2, draws=30).fit(DATA.sources, DATA.target)


def test_a_release_comes_back_as_it_was_with_its_guarantee_worked_out_anew(model, tmp_path):
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


def test_a_file_that_promises_more_than_its_noise_gives_proves_nothing(model, tmp_path):
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


def test_a_model_predicts_as_before_and_its_posterior_can_be_made_again(model, tmp_path):
    path, X = tmp_path / "model.nc", DATA.test.X
    model.save(path)
    again = OneRelease.load(path)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again.interval(X), model.interval(X))
    assert again.posterior_.domain_weights == model.posterior_.domain_weights
    assert again.guarantee_.proved == model.guarantee_.proved
    anew = infer(again.release_, again.prior_, again.posterior_.domains, draws=30)
    np.testing.assert_allclose(anew.mean, model.posterior_.mean, atol=1e-9)


def test_what_holds_something_else_is_named(model, tmp_path):
    model.save(tmp_path / "model.nc")
    (tmp_path / "text.nc").write_text("something else")
    with pytest.raises(ValueError, match=r"path: .*text.nc' holds no release"):
        MomentRelease.load(tmp_path / "text.nc")
    with pytest.raises(ValueError, match=r"path: .*model.nc' holds no moment release"):
        MomentRelease.load(tmp_path / "model.nc")
    with pytest.raises(ValueError, match=r"path: .*text.nc' holds no model"):
        OneRelease.load(tmp_path / "text.nc")
    model.release_.save(tmp_path / "release.nc")
    with pytest.raises(ValueError, match="expected the groups that save writes"):
        OneRelease.load(tmp_path / "release.nc")
    with pytest.raises(ValueError, match="expected a fit before it is saved"):
        OneRelease().save(tmp_path / "none.nc")
    data = model.release_.to_xarray()
    for wrong in ({}, {"release": json.dumps({"kind": "tasks"})}, {"release": "[]"}):
        with pytest.raises(ValueError, match="release: expected"):
            MomentRelease.from_xarray(data.drop_attrs().assign_attrs(wrong))


def test_an_intercept_is_a_weight_inside_the_bound(tmp_path):
    rng = np.random.default_rng(8)
    w = np.array([0.3, -0.2])
    records = lambda n: (lambda X: Domain(X, X @ w + 0.4 + 0.05 * rng.standard_normal(n)))(
        rng.uniform(-0.6, 0.6, (n, 2))
    )
    source, target, test = records(400), records(400), records(200)
    model = OneRelease(epsilon=4.0, intercept=True, draws=50, unsafe_seed=1).fit(source, target)
    assert model.coef_.shape == (2,)
    assert model.intercept_ == pytest.approx(0.4, abs=0.1)
    assert model.release_.features[-1] == "intercept"
    assert model.release_.row_bound == pytest.approx(np.sqrt(2))
    assert np.mean((test.y - model.predict(test.X)) ** 2) < 0.01
    low, high = model.interval(test.X)
    assert np.mean((low < test.y) & (test.y < high)) > 0.5
    model.save(tmp_path / "model.nc")
    again = OneRelease.load(tmp_path / "model.nc")
    assert np.array_equal(again.predict(test.X), model.predict(test.X))
    with pytest.raises(ValueError, match=r"X: expected shape \(records, 2\)"):
        model.predict(np.ones((3, 3)))
