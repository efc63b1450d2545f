import numpy as np
import pytest
from helpers.tolerances import FAR
from numpy.testing import assert_allclose

from mpmtl_prob.datasets import digits, ilea, lsoa, lsoa2, school, synthetic_group_sparse, synthetic_low_rank
from mpmtl_prob.datasets.ilea import FEATURES
from mpmtl_prob.estimators import MultiTask, Ridge, TraceNorm
from mpmtl_prob.evaluation import nmse


def test_low_rank_tasks_come_in_groups_that_resemble_each_other():
    train, test, W = synthetic_low_rank()
    assert (train.num_tasks, train.num_features) == (320, 30)
    assert train.num_rows == 320 * 30
    assert test.num_rows == 320 * 270
    assert_allclose(np.linalg.norm(train.X, axis=2), 1)
    share = np.linalg.svd(W, compute_uv=False) ** 2
    assert share[:5].sum() / share.sum() > 0.9
    # one correlation of two groups has the error of its d features
    d = 4000
    correlation = np.corrcoef(synthetic_low_rank(6, d, 1, 1, group=3).W.T)
    assert_allclose(correlation[:3, :3][np.triu_indices(3, 1)], 0.95, atol=FAR * (1 - 0.95**2) / np.sqrt(d))
    assert np.abs(correlation[:3, 3:]).max() < FAR / np.sqrt(d)


@pytest.mark.parametrize(
    ("candidates", "low", "high"),
    [
        ([Ridge(p) for p in (0.01, 0.02, 0.04)], 0.13, 0.16),
        # takes a while to compile
        pytest.param([MultiTask(TraceNorm(), p) for p in (4.0, 6.0, 9.0)], 0.04, 0.06, marks=pytest.mark.evidence),
    ],
    ids=["alone", "together"],
)
def test_baselines_stand_where_the_documentation_says(candidates, low, high):
    """The scale of the weights puts the baselines where the documentation says."""
    train, test, _ = synthetic_low_rank()
    assert low < min(nmse(each.fit(train).predict(test), test) for each in candidates) < high


def test_group_sparse_tasks_use_the_same_few_features():
    _, _, W = synthetic_group_sparse(num_tasks=50, num_features=8, active=3)
    assert not W[3:].any()
    assert np.abs(W[:3]).min() >= 1
    assert np.abs(W[:3]).max() <= 50


def test_generators_are_functions_of_their_seed():
    one, other = synthetic_low_rank(num_tasks=5, seed=4), synthetic_low_rank(num_tasks=5, seed=4)
    assert_allclose(one.W, other.W)
    assert not np.allclose(one.W, synthetic_low_rank(num_tasks=5, seed=5).W)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_tasks": 0}, "num_tasks: expected a positive whole number"),
        ({"similarity": 1.5}, "similarity: expected a correlation"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        synthetic_low_rank(**arguments)


def test_school_has_139_schools_of_27_attributes():
    try:
        tasks = school()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert (tasks.num_tasks, tasks.num_features, tasks.num_rows) == (139, 27, 15362)
    assert tasks.features == FEATURES
    assert_allclose(np.linalg.norm(tasks.X[tasks.mask], axis=1), 1)
    assert_allclose([tasks.y[tasks.mask].mean(), tasks.y[tasks.mask].std()], [20.6, 12.7], atol=0.05)
    assert tasks.mask.sum(axis=1).min() == 22
    raw = school(unit_rows=False)
    assert set(np.unique(raw.X[raw.mask][:, 5:])) == {0.0, 1.0}


def test_a_missing_or_wrong_school_file_is_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path: no file .*school.mat"):
        school(tmp_path)
    (tmp_path / "school.mat").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not the School data; expected sha256 57fb3238fdd0"):
        school(tmp_path)


def test_without_file_and_network_the_error_says_where_to_put_it(tmp_path, monkeypatch):
    """Without the file and without a network, the error says where to put the file."""
    import pooch

    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", no_network)
    with pytest.raises(FileNotFoundError, match="set MPMTL_DATA to that folder"):
        ilea.FILE.download()


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    (tmp_path / "school.mat").write_bytes(b"found me")
    monkeypatch.setenv("MPMTL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=str(tmp_path)):
        school()


@pytest.fixture(scope="module")
def aging():
    try:
        return lsoa2()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def test_lsoa2_has_41_outcomes_of_the_people_observed(aging):
    """LSOA2 has 41 outcomes, each of the people in whom it was observed."""
    assert (aging.num_tasks, aging.num_features) == (41, 293)
    n = aging.mask.sum(axis=1)
    assert (n.min(), n.max(), n.sum()) == (1192, 3473, 130_235)
    assert set(np.unique(aging.y[aging.mask])) == {-1.0, 1.0}
    assert_allclose(np.einsum("tnj,tnj->tn", aging.X, aging.X)[aging.mask], 1)
    assert_allclose((aging.y == 1).sum(axis=1)[:3] / n[:3], [2242 / 3296, 2659 / 3279, 2427 / 3296])


@pytest.mark.evidence  # it takes a while to read
def test_the_first_feature_of_lsoa2_is_one(aging):
    raw = lsoa2(unit_rows=False)
    assert (raw.X[..., 0][raw.mask] == 1).all()
    assert_allclose(raw.unit_rows().X, aging.X)


def test_a_person_is_in_training_or_in_test_whatever_the_outcome(aging):
    train, test = aging.split(0.3, seed=0)
    people = lambda part: set(part.subject[part.mask].tolist())
    assert not people(train) & people(test)
    everybody = people(train) | people(test)
    assert len(people(train)) == round(0.3 * len(everybody))
    assert train.num_rows + test.num_rows == aging.num_rows
    for part in (train, test):  # and the rows are still that person's
        mine = part.mask[7]
        place = np.searchsorted(aging.subject[7][aging.mask[7]], part.subject[7][mine])
        assert np.array_equal(aging.X[7][place], part.X[7][mine])
        assert np.array_equal(aging.y[7][place], part.y[7][mine])


def test_without_the_lsoa_file_the_message_says_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setattr(type(lsoa.FILE), "_find", lambda self, path: self.download())
    with pytest.raises(FileNotFoundError, match=r"no address to download it from: put lsoa2\.mat .* set MPMTL_DATA"):
        lsoa2()


def test_digits_are_ten_tasks_about_the_same_images():
    tasks = digits()
    assert (tasks.num_tasks, tasks.num_features, tasks.num_rows) == (10, 64, 17_970)
    assert (tasks.y.sum(axis=0) == -8).all()  # one digit yes, nine no
    train, test = tasks.split(0.3, seed=1)
    assert train.num_rows == 10 * round(0.3 * 1797)
    assert (train.subject == train.subject[0]).all()
    assert not set(train.subject[0].tolist()) & set(test.subject[0].tolist())
    assert digits(unit_rows=False).X.max() == 16
