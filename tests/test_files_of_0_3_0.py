"""Files that version 0.3.0 wrote are read as 0.3.0 read them: ledgers, releases, posteriors, models, federated sites.

Their folder has the script that wrote them. A number is compared up to another processor's rounding, a string as it is.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from files_of_0_3_0.example import FEATURES, HOSPITALS, KEY, RUN, plain_regressions

import mpmtl_prob as mp
from mpmtl_prob import federated, inference
from mpmtl_prob._util.files import write_netcdf
from mpmtl_prob.adaptation import MomentAdaptation, MomentRelease
from mpmtl_prob.federated.flower import wire
from mpmtl_prob.federated.flower.persistent_site import PersistentSite
from mpmtl_prob.inference import OwnerPosteriors, Posterior, SharedPosterior, fit
from mpmtl_prob.privacy import Ledger, LedgerAltered
from mpmtl_prob.privacy.mechanisms import write_mechanism
from mpmtl_prob.releases import Release, files

FOLDER = Path(__file__).parent / "files_of_0_3_0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def names(beginning):
    """The files whose names begin so."""
    return sorted(name for name in EXPECTED if name.startswith(beginning))


def rows(count, binary=False):
    """The first so many hospitals that the files are about."""
    X = np.array(EXPECTED["rows"]["X"])
    y = np.array(EXPECTED["rows"]["y"])
    y = np.where(y > 0, 1.0, -1.0) if binary else y
    return mp.TaskData.from_lists(list(X[:count]), list(y[:count]), tasks=HOSPITALS[:count], features=FEATURES)


def same_guarantee(guarantee, expected):
    """Compare what is proved and claimed, up to rounding, and the words."""
    read = guarantee.to_dict()
    for side in ("claimed", "proved"):
        assert (read[side] is None) == (expected[side] is None)
        if read[side] is not None:
            numbers = {"epsilon", "delta"}
            assert {k: read[side][k] for k in numbers} == pytest.approx(
                {k: expected[side][k] for k in numbers}, rel=1e-5
            )
            assert {k: v for k, v in read[side].items() if k not in numbers} == {
                k: v for k, v in expected[side].items() if k not in numbers
            }
    assert read["reason"] == expected["reason"]
    assert read["arithmetic"] == expected["arithmetic"]


def test_a_release_of_0_3_0_holds_no_average_effects():
    release = Release.load(FOLDER / "release_wishart.nc")
    with pytest.raises(ValueError, match=r"release: expected one of messages of effects.*got message='direction'"):
        inference.shared_effects(release)
    with pytest.raises(ValueError, match=r"path: .* holds no posterior of effects"):
        inference.SharedEffects.load(FOLDER / "shared_full.nc")
    with pytest.raises(ValueError, match=r"path: .* holds no owners' posteriors of effects"):
        inference.OwnerEffects.load(FOLDER / "owners_plug_in.nc")
    with pytest.raises(AttributeError, match=r"'average_effects': .* hold no average effects; with"):
        SharedPosterior.load(FOLDER / "shared_full.nc").average_effects()
    with pytest.raises(AttributeError, match=r"'coefficients': .* hold no average effects; with"):
        OwnerPosteriors.load(FOLDER / "owners_plug_in.nc").coefficients()
    with pytest.raises(AttributeError, match=r"'OwnerPosteriors' object has no attribute 'weights'$"):
        OwnerPosteriors.load(FOLDER / "owners_plug_in.nc").weights()


def test_every_file_is_read_by_one_of_these_tests():
    written = {path.name for path in FOLDER.iterdir()} - {"write.py", "example.py", "expected.json", "__pycache__"}
    read = {"invitation.json", *(name for kind in READ for name in names(kind))}
    assert written == read
    assert EXPECTED.keys() - read == {"rows"}


@pytest.mark.parametrize("name", names("ledger_"))
def test_a_ledger_holds_its_charges_and_goes_on(name, tmp_path):
    expected = EXPECTED[name]
    shutil.copy(FOLDER / name, tmp_path)
    ledger = Ledger(tmp_path / name)
    ledger.verify(expected["receipt"])
    assert ledger.spent.epsilon == pytest.approx(expected["spent"], rel=1e-5)
    charges = ledger.charges()
    if "laws" in expected:
        assert [write_mechanism(law) for charge in charges for law in charge.mechanisms] == expected["laws"]
        assert [charge.fingerprint for charge in charges] == expected["fingerprints"]
        assert ledger.fingerprint(np.eye(3)) == expected["fingerprints"][0]
        declared = [ledger.epsilon, ledger.delta, ledger.adjacency, ledger.unit, ledger.adaptive]
        assert declared == expected["declared"]
    ledger.charge(charges[0].mechanisms, unit=ledger.unit)
    assert ledger.spent.epsilon > expected["spent"]
    ledger.verify(expected["receipt"])
    with pytest.raises(LedgerAltered):
        Ledger(tmp_path / name).verify(expected["receipt"] | {"head": "0" * 64})


@pytest.mark.parametrize("name", names("release_"))
def test_a_release_says_what_it_said(name):
    release = Release.load(FOLDER / name)
    expected = EXPECTED[name]
    np.testing.assert_array_equal(release.sigma, expected["sigma"])
    assert [write_mechanism(law) for law in release.mechanisms] == expected["mechanisms"]
    assert list(release.features) == expected["features"]
    for field in ("message", "num_tasks", "lattice"):
        assert getattr(release, field) == expected[field]
    assert release.scaling == {"unit": "unit_variance"}.get(expected["scaling"], expected["scaling"])
    assert json.loads(release.to_xarray().attrs["release"])["scaling"] == expected["scaling"]
    same_guarantee(release.guarantee, expected["guarantee"])


def test_a_signed_release_still_verifies():
    signed = Release.load(FOLDER / "release_signed.nc", key=KEY)
    same_guarantee(signed.guarantee, EXPECTED["release_signed.nc"]["guarantee"])
    with pytest.raises(ValueError, match=r"^key: "):
        Release.load(FOLDER / "release_signed.nc", key=KEY + b"!")


def test_a_release_signed_by_0_3_0_holds_nothing_else(tmp_path):
    """Its signature covers Sigma and what else a release is made of; so nothing may lie in the file beside that."""
    signed = files.read(FOLDER / "release_signed.nc")
    other = [f"{name}?" for name in signed["feature"].values]
    for changed in (signed.assign_coords(feature=other), signed.assign(more=1.0), signed.assign_attrs(by="me")):
        write_netcdf(changed, tmp_path / "changed.nc", private=False)
        with pytest.raises(ValueError, match=r"^key: the signature in .* is of version 0.3.0, which did not cover"):
            Release.load(tmp_path / "changed.nc", key=KEY)


@pytest.mark.parametrize("name", names("shared_"))
def test_a_shared_posterior_keeps_its_draws(name):
    posterior = SharedPosterior.load(FOLDER / name)
    np.testing.assert_array_equal(posterior.to_arviz()["posterior"]["Omega"].values, EXPECTED[name]["Omega"])
    structure = EXPECTED[name]["structure"]
    assert type(posterior.structure).__name__ == {"Directions": "LowRankStructure"}.get(structure, structure)


def test_owners_models_are_written_for_their_owner_alone(tmp_path):
    path = tmp_path / "own.nc"
    shutil.copy(FOLDER / "owners_plug_in.nc", path)
    path.chmod(0o644)
    OwnerPosteriors.load(path).save(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", names("owners_"))
def test_owners_posteriors_predict_as_they_did(name):
    posterior = OwnerPosteriors.load(FOLDER / name)
    predicted = posterior.predict(rows(3, binary="labels" in name))
    np.testing.assert_allclose(predicted.mean, EXPECTED[name]["mean"], rtol=1e-9, atol=1e-12)


def test_the_curators_posterior_keeps_its_draws():
    posterior = Posterior.load(FOLDER / "curator.nc")
    np.testing.assert_array_equal(posterior.to_arviz()["posterior"]["W"].values, EXPECTED["curator.nc"]["W"])


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    path = shutil.copy(FOLDER / "checkpoint.npz", tmp_path)
    longer = RUN | {"draws": RUN["draws"] + 2}
    posterior = fit(plain_regressions, rows(12), checkpoint=path, progress_bar=False, **longer)
    W = posterior.to_arviz()["posterior"]["W"].values
    np.testing.assert_array_equal(W[:, : RUN["draws"]], EXPECTED["checkpoint.npz"]["W"])
    assert W.shape[1] == longer["draws"]


def test_a_moment_release_says_what_it_said():
    release = MomentRelease.load(FOLDER / "moment_release.nc")
    expected = EXPECTED["moment_release.nc"]
    np.testing.assert_array_equal(release.sigma, expected["sigma"])
    np.testing.assert_array_equal(release.centre, expected["centre"])
    assert list(release.features) == expected["features"]
    same_guarantee(release.guarantee, expected["guarantee"])


def test_a_signed_moment_release_is_read_without_its_key():
    release = MomentRelease.load(FOLDER / "moment_release_signed.nc")
    same_guarantee(release.guarantee, EXPECTED["moment_release_signed.nc"]["guarantee"])


def test_a_moment_release_signed_by_0_3_0_is_refused(tmp_path):
    """Its signature does not cover the centre. What its owner knows to be right is signed anew."""
    path = FOLDER / "moment_release_signed.nc"
    with pytest.raises(ValueError, match=r"of version 0.3.0, which did not cover centre: .* must be signed anew"):
        MomentRelease.load(path, key=KEY)
    with pytest.raises(ValueError, match=r"key: .* was signed with another key"):
        MomentRelease.load(path, key=KEY + b"!")
    MomentRelease.load(path).save(tmp_path / "anew.nc", key=KEY)
    anew = MomentRelease.load(tmp_path / "anew.nc", key=KEY)
    same_guarantee(anew.guarantee, EXPECTED["moment_release_signed.nc"]["guarantee"])


@pytest.mark.parametrize("name", names("one_release"))
def test_a_saved_model_predicts_as_it_did(name):
    expected = EXPECTED[name]
    predicted = MomentAdaptation.load(FOLDER / name).predict(np.array(expected["X"]))
    np.testing.assert_allclose(predicted, expected["predictions"], rtol=1e-9)


def test_the_command_lines_model_has_its_fields():
    assert sorted(json.loads((FOLDER / "adapt_model.json").read_text())) == EXPECTED["adapt_model.json"]["keys"]


@pytest.mark.filterwarnings("ignore:features. those of the terms have no names")
def test_a_site_remembers_its_runs_and_goes_on(tmp_path):
    folder = tmp_path / "site"
    shutil.copytree(FOLDER / "site", folder)
    for path in folder.iterdir():
        path.touch()  # a site forgets what has waited for a day
    invitation = wire.read((FOLDER / "invitation.json").read_bytes())
    expected = EXPECTED["site"]
    assert invitation.agreed.run.hex() == expected["run"]
    assert (invitation.terms.epsilon, invitation.terms.num_tasks) == tuple(expected["terms"].values())
    site = PersistentSite(0, rows(1), folder)
    received = {name: bytes.fromhex(part) for name, part in expected["received_at_mask"].items()}
    assert site.answer(invitation, "mask", received).keys()
    with pytest.raises(ValueError, match=r"^stage: "):
        PersistentSite(0, rows(1), folder).answer(invitation, "mask", received)


def test_an_account_remembers_its_runs(tmp_path):
    name = "account_of_a_finished_run.db"
    shutil.copy(FOLDER / name, tmp_path)
    answered = federated.RunLog(tmp_path / name, runs=3).answered()
    assert [list(row) for row in answered] == EXPECTED[name]["answered"]


#: The beginnings of the names of the files that the tests above read.
READ = [
    "ledger_", "release_", "shared_", "owners_", "curator.nc", "checkpoint.npz", "moment_release", "one_release",
    "adapt_model.json", "site", "account_of_a_finished_run.db",
]  # fmt: skip
