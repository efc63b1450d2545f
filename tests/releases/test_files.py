"""A release's file in the hands of somebody else: edited, signed, broken."""

import json
import os
from dataclasses import replace

import h5netcdf
import numpy as np
import pytest
import xarray as xr

from mpmtl_prob._util.files import atomic_write as files_whole
from mpmtl_prob._util.files import check_place, write_netcdf
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior
from mpmtl_prob.privacy import Bound, Gaussian, compute_delta
from mpmtl_prob.privacy.guarantee import DISCRETE
from mpmtl_prob.privacy.mechanisms import GaussianShares
from mpmtl_prob.releases import Release, files, private_clip_norm, release, terms
from mpmtl_prob.releases.publish import from_noisy_sum

W = np.random.default_rng(0).standard_normal((3, 8))
KEY = b"sixteen bytes or more"


@pytest.fixture(scope="module")
def published():
    return release(W, 3.0, 1e-3, message="clip", clip=private_clip_norm(W, 1.0, low=0.1, high=10.0))


def edited(published, **change):
    """The file's data with fields changed, or with dots for what lies deeper: ``guarantee__proved__epsilon``."""
    data = published.to_xarray()
    meta = json.loads(data.attrs["release"])
    for name, value in change.items():
        *path, last = name.split("__")
        inner = meta
        for key in path:
            inner = inner[int(key) if key.isdigit() else key]
        inner[last] = value
    return data.assign_attrs(release=json.dumps(meta))


def read(data, path):
    data.to_netcdf(path, engine="h5netcdf")
    return Release.load(path)


def test_a_file_edited_to_promise_more_proves_nothing(published, tmp_path):
    back = read(edited(published, guarantee__proved__epsilon=0.01), tmp_path / "out.nc")
    assert back.guarantee.proved is None
    assert back.guarantee.reason.startswith(
        "The file says eps = 0.01, delta = 0.001 (replace, one task), which its noise laws do not"
    )
    little, scale = 0.9 * published.guarantee.proved.delta, published.mechanisms[0].scale / 2
    for change in ({"guarantee__proved__delta": little}, {"mechanisms__0__scale": scale}, {"besides__0__epsilon": 5.0}):
        assert Release.from_xarray(edited(published, **change)).guarantee.proved is None


def test_what_is_read_is_worked_out_from_the_laws(published):
    again = Release.from_xarray(edited(published, guarantee__proved__delta=0.5, guarantee__reason="Trust me."))
    assert again.guarantee == published.guarantee
    assert Release.from_xarray(edited(published, besides=[])).guarantee.proved.delta < published.guarantee.proved.delta


def test_a_claim_stays_a_claim(published):
    claimed = {"epsilon": 0.5, "delta": 0.0, "adjacency": "replace", "unit": "task"}
    back = Release.from_xarray(edited(published, guarantee__claimed=claimed)).guarantee
    assert back.claimed == Bound(0.5, 0.0, "replace")
    assert back.proved == published.guarantee.proved


def test_arithmetic_is_exact_only_on_the_lattice(published):
    assert published.guarantee.arithmetic.startswith("exact")
    for change in ({"lattice": None}, {"lattice": 2 * published.lattice}):
        assert Release.from_xarray(edited(published, **change)).guarantee.arithmetic.startswith("double")


def test_who_is_protected_follows_from_the_kind(published):
    """A release of tasks' messages protects a task, and with it a row; never a person, whatever its file says."""
    for unit in ("person", "target record"):
        back = Release.from_xarray(edited(published, guarantee__proved__unit=unit)).guarantee
        assert back.proved is None
        assert back.reason.endswith("which no release of its kind gives: what it protects is one task.")
    again = Release.from_xarray(edited(published, guarantee__proved__unit="row")).guarantee
    assert again == published.guarantee


def test_a_direction_has_length_1_in_a_file_too():
    """Else a release of eps = 8 says eps = .1 where its file says ``clip: 0.1``, as noise is measured by the clip norm."""
    out = release(W, 8.0, 1e-3)
    proved = {"epsilon": 0.1, "delta": 1e-3, "adjacency": "replace", "unit": "task"}
    for clip in (0.1, 2.0):
        with pytest.raises(ValueError, match=r"^mechanisms: expected clip = 1.0, as messages have unit length, got"):
            Release.from_xarray(edited(out, mechanisms__0__clip=clip, guarantee__proved=proved))
        with pytest.raises(ValueError, match=r"^mechanisms: expected clip = 1.0"):
            replace(out, mechanisms=(replace(out.mechanisms[0], clip=clip),))


def test_the_lattice_follows_from_the_files_numbers(published):
    """On a lattice of 2^-200 every double lies, and Sigma would be called exact however it was drawn and added."""
    drawn_in_doubles = replace(published, sigma=published.sigma * (1 + 1e-6))
    assert not np.all(np.mod(drawn_in_doubles.sigma, published.lattice**2) == 0)
    for finer in (published.lattice / 2, 2.0**-100, 2.0**-500, 1e-300):
        back = Release.from_xarray(edited(drawn_in_doubles, lattice=finer)).guarantee
        assert back.arithmetic == "double precision, not covered"
        assert "from its clip norm, sizes and noise one of" in back.reason
        assert back.proved == published.guarantee.proved
    far = replace(published, sigma=published.sigma * 2.0**40)
    assert Release.from_xarray(far.to_xarray()).guarantee.arithmetic.startswith("double")
    for change in ({"num_tasks": 10**15}, {"mechanisms__0__clip": published.mechanisms[0].clip / 4}):
        assert Release.from_xarray(edited(published, **change)).guarantee.arithmetic.startswith("double")


def test_shares_of_noise_are_on_the_lattice():
    settled = terms(1.0, 8, 3, mechanism=Gaussian(3, 2.0))
    law = GaussianShares(3, 1.0, 4, settled.lattice**2)
    out = from_noisy_sum(np.zeros((3, 3)), replace(settled, mechanisms=(law,)))
    assert Release.from_xarray(out.to_xarray()).guarantee == out.guarantee
    assert out.guarantee.arithmetic == DISCRETE
    other = Release.from_xarray(edited(out, mechanisms__0__step=settled.lattice**2 / 4)).guarantee
    assert other.arithmetic.startswith("double")
    assert "its noise is in shares on another lattice" in other.reason


def test_features_of_one_name_are_refused(published):
    with pytest.raises(ValueError, match=r"^features: expected distinct names"):
        Release.from_xarray(edited(published, features=["a", "b", "a"]))


def test_a_seeded_release_stays_unproved(tmp_path):
    out = release(W, 1.0, 1e-3, unsafe_seed=3)
    out.save(tmp_path / "out.nc")
    back = Release.load(tmp_path / "out.nc").guarantee
    assert back == out.guarantee
    assert back.proved is None
    assert "fixed seed" in back.reason


def test_a_signature_tells_the_key_holder_what_was_changed(published, tmp_path):
    """A signature tells the holder of the key what was changed."""
    path = tmp_path / "out.nc"
    published.save(path, key=KEY)
    assert repr(Release.load(path, key=KEY)) == repr(Release.load(path)) == repr(published)
    with pytest.raises(ValueError, match=r"^key: .* was signed with another key, or changed after"):
        Release.load(path, key=KEY + b"!")
    with xr.open_dataset(path, engine="h5netcdf") as stored:
        signed = stored.load()
    moved = signed.copy(deep=True)
    moved["sigma"][0, 0, 0] = np.nextafter(moved["sigma"][0, 0, 0].item(), np.inf)
    meta = signed.assign_attrs(release=signed.attrs["release"].replace('"num_tasks": 8', '"num_tasks": 9'))
    assert meta.attrs != signed.attrs
    for changed in (moved, meta):
        changed.to_netcdf(tmp_path / "changed.nc", engine="h5netcdf")
        with pytest.raises(ValueError, match=r"^key: .*changed"):
            Release.load(tmp_path / "changed.nc", key=KEY)
    published.save(path)
    with pytest.raises(ValueError, match=r"^key: expected a signed release"):
        Release.load(path, key=KEY)


def test_any_edit_of_a_signed_file_is_noticed(published, tmp_path):
    """Also of what :meth:`Release.load` does not read, but whoever opens the file with another library does."""
    path, other = tmp_path / "out.nc", tmp_path / "changed.nc"
    published.save(path, key=KEY)
    signed = files.read(path)
    names = signed.sizes["feature"] * ["another"]
    for changed in (
        signed.assign_coords(round=[7]), signed.assign_coords(feature=names), signed.assign_coords(source=7.0),
        signed.assign(centre=("feature", np.zeros(3))), signed.drop_vars("feature_other"), signed.assign_attrs(by="me"),
        signed.assign(sigma=signed["sigma"].astype(np.float32).astype(float)), signed.rename(feature_other="column"),
        signed.assign(sigma=signed["sigma"].assign_attrs(units="metres")),
    ):  # fmt: skip
        write_netcdf(changed, other, private=False)
        with pytest.raises(ValueError, match=r"^key: .* was signed with another key, or changed"):
            Release.load(other, key=KEY)
    write_netcdf(signed, other, private=False)
    assert Release.load(other, key=KEY).features == published.features
    with h5netcdf.File(other, "a") as file:
        file.create_group("appendix").attrs["release"] = "Trust me."
    with pytest.raises(ValueError, match=r"^path: expected a release and nothing beside it .*'appendix'"):
        Release.load(other, key=KEY)


def test_private_files_are_their_owners_alone(published, tmp_path):
    """From the first byte, in place of a file that was not, and whatever the umask."""
    path = tmp_path / "private.nc"
    for umask in (0o000, 0o022, 0o277):
        before = os.umask(umask)
        try:
            with files_whole(path, private=True) as unfinished:
                assert os.stat(unfinished).st_mode & 0o777 == 0o600
                with open(unfinished, "w") as file:
                    file.write("rows")
            assert os.stat(path).st_mode & 0o777 == 0o600
            path.chmod(0o644)
            write_netcdf(published.to_xarray(), path, private=True)
            assert os.stat(path).st_mode & 0o777 == 0o600
        finally:
            os.umask(before)
        path.chmod(0o644)


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path):
    place, link = tmp_path / "there" / "file", tmp_path / "link"
    place.parent.mkdir()
    place.write_text("before")
    link.symlink_to(place)
    with files_whole(link, private=True) as unfinished, open(unfinished, "w") as file:
        file.write("after")
        check_place("--out", link)  # which looks at the place while it is written, and leaves what is unfinished
    assert link.is_symlink()
    assert place.read_text() == "after"
    assert place.stat().st_mode & 0o077 == 0
    assert [path.name for path in place.parent.iterdir()] == ["file"]


def test_a_release_is_public_only_if_it_is_proved(published, tmp_path):
    before = os.umask(0o022)
    try:
        published.save(tmp_path / "proved.nc")
        release(W, 1.0, 1e-3, unsafe_seed=3).save(tmp_path / "seeded.nc")
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "proved.nc").st_mode & 0o777 == 0o644
    assert os.stat(tmp_path / "seeded.nc").st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", [b"short", "sixteen characters", 7, True])
def test_a_key_that_is_none_is_named_and_not_shown(published, tmp_path, key):
    for use in (published.save, Release.load):
        published.save(tmp_path / "out.nc") if use == Release.load else None
        with pytest.raises(ValueError, match=r"^key: expected at least 16 bytes") as error:
            use(tmp_path / "out.nc", key=key)
        assert "short" not in str(error.value)
        assert "sixteen" not in str(error.value)


FIELDS = [
    "mechanisms", "mechanisms__0", "mechanisms__0__kind", "mechanisms__0__df", "mechanisms__0__num_features",
    "besides__0", "besides__0__epsilon", "num_tasks", "features", "features__0", "guarantee", "guarantee__proved",
    "guarantee__proved__epsilon", "guarantee__proved__delta", "guarantee__proved__adjacency", "guarantee__proved__unit",
    "guarantee__claimed", "guarantee__reason", "guarantee__arithmetic", "message", "scaling", "library_version", "lattice",
]  # fmt: skip
WRONG = [
    "wrong",
    -1,
    1.5e308,
    float("nan"),
    [],
    [None],
    {},
    {"kind": "Wishart"},
    {"kind": "Spell"},
    True,
    [[1]],
    10**400,
]


@pytest.mark.parametrize("name", FIELDS)
def test_malformed_fields_are_named_errors_or_harmless(published, monkeypatch, name):
    """A malformed field is an error that names the file, or does no harm.

    Never a traceback, and never a guarantee that is better than the laws'. Tests above and below read real files.
    """
    refused = 0
    for value in WRONG:
        path = *_, last = name.split("__")
        if last == "0":
            data = edited(published, **{"__".join(path[:-1]): [value, *([value] * 2 if path[0] == "features" else [])]})
        else:
            data = edited(published, **{name: value})
        monkeypatch.setattr(files, "read", {"out.nc": data}.get)
        try:
            back = Release.load("out.nc")
        except ValueError as error:
            assert str(error).startswith("path: 'out.nc' holds no release")  # noqa: PT017
            refused += 1
        else:
            proved = back.guarantee.proved
            laws = (*back.mechanisms, *back.composed_with)
            assert proved is None or proved.delta >= compute_delta(proved.epsilon, laws, proved.adjacency)
            assert repr(back)
    assert refused >= (4 if any(part in name for part in ("reason", "version", "features")) else len(WRONG) - 3)


@pytest.mark.parametrize("missing", ["mechanisms", "num_tasks", "features", "guarantee", "message", "scaling"])
def test_a_missing_field_is_named(published, tmp_path, missing):
    data = published.to_xarray()
    meta = json.loads(data.attrs["release"])
    del meta[missing]
    with pytest.raises(ValueError, match=rf"holds no release of mpmtl_prob: .*{missing}"):
        read(data.assign_attrs(release=json.dumps(meta)), tmp_path / "out.nc")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"release"'])
def test_metadata_that_are_no_metadata_are_refused(published, tmp_path, text):
    with pytest.raises(ValueError, match=r"^path: .* holds no release"):
        read(published.to_xarray().assign_attrs(release=text), tmp_path / "out.nc")


def test_other_dimensions_and_other_numbers_are_refused(published, tmp_path):
    data = published.to_xarray()
    for n, changed in enumerate((
        data.isel(feature=[0, 1]), data.isel(round=[]), data.drop_vars("sigma"), data.assign(sigma=("round", [1.0])),
        data.assign(sigma=data["sigma"] * np.nan), data.assign(sigma=data["sigma"].astype(str)), -data,
    )):  # fmt: skip
        changed.attrs = data.attrs
        with pytest.raises(ValueError, match=r"^path: .* holds no release"):
            read(changed, tmp_path / f"{n}.nc")


def test_a_file_or_folder_that_is_not_there_is_named(published, tmp_path):
    for read in (Release.load, OwnerPosteriors.load, SharedPosterior.load):
        with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*nowhere\.nc"):
            read(tmp_path / "nowhere.nc")
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*nowhere'"):
        published.save(tmp_path / "nowhere" / "out.nc")


# h5netcdf, of files that it could not open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_broken_file_is_no_traceback(published, tmp_path):
    published.save(tmp_path / "out.nc")
    whole, rng = (tmp_path / "out.nc").read_bytes(), np.random.default_rng(0)
    for n in range(60):
        broken = bytearray(whole[: rng.integers(len(whole))] if n % 2 else whole)
        for place in rng.integers(len(broken), size=40) if broken else ():
            broken[place] = rng.integers(256)
        (tmp_path / "broken.nc").write_bytes(broken)
        try:
            Release.load(tmp_path / "broken.nc")
        except ValueError as error:
            assert str(error).startswith("path: ")  # noqa: PT017
