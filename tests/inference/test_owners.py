"""The owners' posteriors: calibrated, private by construction, and what their results hold."""

import dataclasses

import numpy as np
import pytest
import scipy.stats as st
from helpers.tolerances import FAR
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.data.prediction import in_single
from mpmtl_prob.inference import shared_covariance, subspace, task_posteriors
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.releases.messages import messages
from mpmtl_prob.single_task import conjugate

FAST = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}


def simulate(m, d, n, seed):
    """Tasks from the owners' model, with a covariance of rank about two."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, 2)) * [3.0, 1.5]
    omega = root @ root.T + 0.05 * np.eye(d)
    X = rng.standard_normal((m, n, d))
    snr = np.exp(np.log(conjugate.SNR_MEDIAN) + conjugate.SNR_LOG_SD * rng.standard_normal(m))
    c = snr * n / np.einsum("tni,ij,tnj->t", X, omega, X)  # sigma = 1
    W = (np.linalg.cholesky(omega) @ rng.standard_normal((d, m))) * np.sqrt(c)
    y = np.einsum("tni,it->tn", X, W) + rng.standard_normal((m, n))
    split = 2 * n // 3
    train, test = (TaskData.from_lists(list(X[:, part]), list(y[:, part])) for part in (slice(split), slice(split, n)))
    return train, test, W, omega


@pytest.fixture(scope="module")
def fitted():
    train, test, W, omega = simulate(m=300, d=3, n=18, seed=0)
    release = mp.release(train, epsilon=1.0, adjacency="zero_out", scaling="none", unsafe_seed=1)
    shared = shared_covariance(release, **FAST)
    return train, test, W, omega, shared, task_posteriors(train, shared)


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95])
def test_intervals_cover_weights_and_targets_as_they_say(fitted, probability):
    """Intervals cover weights and targets as often as they say."""
    _, test, W, _, _, own = fitted
    draws = own.to_arviz()["posterior/W"].values.reshape(-1, *W.shape)
    tail = (1 - probability) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    # weights of one task are dependent: the error is that of 300 tasks, not of 900 weights
    error = np.sqrt(probability * (1 - probability) / 300)
    assert abs(np.mean((low <= W) & (high >= W)) - probability) < FAR * error
    assert abs(mp.evaluation.coverage(own.predict(test), test, probability) - probability) < FAR * error


def test_a_posterior_that_knows_too_much_is_caught(fitted):
    _, _, W, _, _, own = fitted
    draws = own.to_arviz()["posterior/W"].values.reshape(-1, *W.shape)
    narrow = own.W + 0.55 * (draws - own.W)
    low, high = np.quantile(narrow, [0.1, 0.9], axis=0)
    assert abs(np.mean((low <= W) & (high >= W)) - 0.8) > FAR * np.sqrt(0.16 / 300)


def test_sharing_helps_and_the_mean_is_exact(fitted):
    train, test, _, _, _, own = fitted
    alone = mp.estimators.Ridge().fit(train)
    assert mp.evaluation.nmse(own.predict(test), test) < mp.evaluation.nmse(alone.predict(test), test)
    draws = own.to_arviz()["posterior/W"]
    error = draws.std(("chain", "draw")) / np.sqrt(1000)
    assert (np.abs(draws.mean(("chain", "draw")) - own.W) < 5.5 * error).all()


def test_the_shared_covariance_points_where_the_truth_does(fitted):
    _, _, _, omega, _, own = fitted
    estimate = own.subspace(1, reference=omega)
    assert estimate.angles.values.mean() < 25


def test_an_owner_needs_no_row_of_any_other_task(fitted):
    train, _, _, _, shared, own = fitted
    keep = 17
    X, y = np.full_like(train.X, np.nan), np.full_like(train.y, np.nan)
    X[keep], y[keep] = train.X[keep], train.y[keep]
    with np.errstate(invalid="ignore"):
        # nan in a row would spread to whatever reads it; LAPACK refuses nan, so the others' Gram matrices become 1
        poisoned = dataclasses.replace(train, X=X, y=y)
        gram = poisoned.gram._replace(xx=np.nan_to_num(poisoned.gram.xx, nan=1.0))
    object.__setattr__(poisoned, "gram", gram)
    assert np.isnan(gram.xy[keep + 1]).all()
    again = task_posteriors(poisoned, shared, chains=1, draws=2)
    assert_allclose(again.W[:, keep], own.W[:, keep], rtol=1e-10)
    assert np.isnan(again.W[:, keep + 1]).all()


def test_the_public_posterior_needs_no_task_at_all(fitted, tmp_path):
    _, _, _, _, shared, _ = fitted
    shared.release.save(tmp_path / "release.nc")
    again = shared_covariance(mp.Release.load(tmp_path / "release.nc"), **FAST)
    assert_allclose(again.omega, shared.omega, rtol=1e-10)


def test_tree_names_its_dimensions(fitted):
    train, _, _, _, _, own = fitted
    tree = own.to_arviz()
    groups = {"posterior", "posterior_predictive", "log_likelihood", "observed_data", "constant_data"}
    assert set(tree.children) == groups | {"shared", "release"}
    assert tree["posterior/W"].dims == ("chain", "draw", "feature", "task")
    assert tree["posterior/W"].shape == (4, 300, 3, 300)
    assert tree["posterior/sigma"].dims == ("chain", "draw", "task")
    assert tree["observed_data/y"].isnull().sum() == (~train.mask).sum()
    assert tree.attrs["seat"] == "owner"
    assert "proved" in repr(own)


def test_tree_survives_the_disk(fitted, tmp_path):
    import xarray as xr

    train, _, _, _, shared, _ = fitted
    few = TaskData.from_lists(list(train.X[:20]), list(train.y[:20]))
    own = task_posteriors(few, shared, draws=5)
    own.to_arviz().to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as tree:
        assert_allclose(tree["posterior/W"], own.to_arviz()["posterior/W"])


def test_with_unit_scaling_units_do_not_matter():
    train, test, _, _ = simulate(m=100, d=3, n=18, seed=4)
    units = np.array([1e-2, 1.0, 1e3])
    wild, new = (dataclasses.replace(tasks, X=tasks.X * units) for tasks in (train, test))
    assert_allclose(messages(wild, "unit_variance")[0], messages(train, "unit_variance")[0], rtol=1e-9)
    shared = shared_covariance(mp.release(wild, epsilon=3.0, scaling="unit_variance", unsafe_seed=1), **FAST)
    own = task_posteriors(wild, shared, draws=5)
    assert_allclose(own.W * units[:, None], task_posteriors(train, shared, draws=5).W, rtol=1e-9)
    pareto = shared_covariance(mp.release(wild, epsilon=3.0, unsafe_seed=1), **FAST)
    halfway = task_posteriors(wild, pareto, draws=5)
    assert mp.evaluation.nmse(own.predict(new), new) < 0.97 * mp.evaluation.nmse(halfway.predict(new), new)


def test_pareto_scaling_undoes_a_tasks_own_units():
    train, _, _, _ = simulate(m=60, d=3, n=30, seed=5)
    shared = shared_covariance(mp.release(train, epsilon=5.0, unsafe_seed=0), **FAST)
    own = task_posteriors(train, shared, power=1.25, draws=5)
    assert shared.release.scaling == "pareto"
    scale = conjugate.scales(train.gram)
    assert_allclose(own.W, conjugate.gaussian_posteriors(train.gram, shared.shape(1.25), scale).mean)


def test_the_power_is_integrated_by_every_owners_own_evidence(fitted):
    train, _, _, _, shared, own = fitted
    # three times as fine as the grid it uses
    few = TaskData.from_lists(list(train.X[:100]), list(train.y[:100]))
    p = st.lognorm(methods.POWER_LOG_SD, scale=methods.POWER_MEDIAN).ppf((np.arange(21) + 0.5) / 21)
    posteriors = [conjugate.gaussian_posteriors(few.gram, shared.shape(each)) for each in p]
    evidence = np.array([posterior.log_evidence for posterior in posteriors])
    weight = np.exp(evidence - evidence.max(axis=0))
    expected = np.einsum("pm,pdm->dm", weight / weight.sum(axis=0), [posterior.mean for posterior in posteriors])
    sd = own.to_arviz()["posterior/W"].std(("chain", "draw")).values[:, :100]
    off = lambda estimate: np.sqrt(np.mean(((estimate - expected) / sd) ** 2))
    assert off(own.W[:, :100]) < 0.02
    assert off(task_posteriors(few, shared, power=1.0, draws=5).W) > 0.05


def test_the_plugged_in_shape_is_the_exact_posterior_mean(fitted):
    """The shape that is plugged in is the posterior mean without its sampling noise."""
    _, _, _, _, shared, _ = fitted
    tree = shared.to_arviz()["posterior"].dataset
    M = tree["A"].values + np.exp(tree["log_phi"].values)[..., None, None] * np.eye(3)
    plain = 3 * (M / np.trace(M, axis1=-2, axis2=-1)[..., None, None]).reshape(-1, 3, 3)
    error = plain.std(0) / np.sqrt(100)  # an effective sample size that the chains surely have
    shape = shared.shape()
    assert (np.abs(shape - plain.mean(0)) < FAR * error).all()
    sigma = shared.release.sigma[0]
    assert_allclose(shape @ sigma, sigma @ shape, rtol=1e-8, atol=1e-8 * sigma.max())
    assert_allclose(np.trace(shared.shape(1.5)), 3)
    assert np.linalg.eigvalsh(shared.shape(1.5))[-1] > np.linalg.eigvalsh(shape)[-1]


def test_where_the_release_says_nothing_owners_lose_nothing():
    train, test, _, _ = simulate(m=100, d=3, n=18, seed=2)
    shared = shared_covariance(mp.release(train, epsilon=1e-3, unsafe_seed=3), **FAST)
    alone = mp.evaluation.nmse(mp.estimators.Ridge().fit(train).predict(test), test)
    assert mp.evaluation.nmse(task_posteriors(train, shared, draws=10).predict(test), test) < 1.02 * alone


def test_draws_for_a_task_ignore_the_rows_of_others(fitted):
    """The draws for a task do not depend on the rows of other tasks."""
    _, test, _, _, _, own = fitted
    rows = [test.rows_of(i) for i in range(test.num_tasks)]
    longer = [*rows[:-1], tuple(np.concatenate([part, part]) for part in rows[-1])]
    both = [own.predict(TaskData.from_lists(*map(list, zip(*each, strict=True)))) for each in (rows, longer)]
    one, other = (prediction.interval() for prediction in both)
    n = len(rows[0][1])
    for bound, again in zip(one, other, strict=True):
        assert_allclose(bound[:-1, :n], again[:-1, :n], rtol=1e-9)


def test_bad_arguments_are_named(fitted):
    train, test, _, _, shared, own = fitted
    fewer = TaskData.from_lists([x[:, :2] for x in train.X], list(train.y))
    with pytest.raises(ValueError, match="features: expected 3 as in the release, got 2"):
        task_posteriors(fewer, shared)
    with pytest.raises(ValueError, match="method: expected one of 'plug_in', 'mixture', 'joint', got 'exact'"):
        task_posteriors(train, shared, method="exact")
    with pytest.raises(ValueError, match="features: expected 3 as in the fit, got 2"):
        own.predict(TaskData.from_lists(list(test.X[..., :2]), list(test.y)))
    with pytest.raises(ValueError, match="rank: expected at most the number of features, 3, got 4"):
        own.subspace(4)
    with pytest.raises(ValueError, match=r"reference: expected a covariance \(3, 3\) or a basis \(3, 2\)"):
        own.subspace(2, reference=np.ones((4, 4)))


def test_subspace_functionals_of_known_covariances():
    turn = lambda a: np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    angles = np.linspace(-0.3, 0.3, 101)
    draws = np.array([[turn(a) @ np.diag([4.0, 1.0, 0.5]) @ turn(a).T for a in angles]])
    spread = subspace(draws, 1, features="xyz", reference=np.array([[1.0], [0.0], [0.0]]))
    assert_allclose(spread.angles.values[0, :, 0], np.degrees(np.abs(angles)), atol=1e-6)
    assert_allclose(spread.projector.values[0, 0], np.mean(np.cos(angles) ** 2), rtol=1e-9)
    assert_allclose(spread.spectrum.values[0, 7], np.array([4, 1, 0.5]) / 5.5)
    assert_allclose(spread.effective_rank, np.exp(st.entropy([4, 1, 0.5])), rtol=1e-9)
    assert_allclose(np.trace(subspace(draws, 2, features="xyz").projector), 2)
    assert spread.projector.coords["feature"].values.tolist() == ["x", "y", "z"]


TERMS_OF_THREE = mp.releases.terms(1.0, 8, 3)


@pytest.fixture(scope="module")
def three_features():
    tasks, *_ = mp.datasets.synthetic_low_rank(num_tasks=8, num_features=3, rows=10)
    release = mp.release(tasks, 5.0, unsafe_seed=0)
    return tasks, shared_covariance(release, chains=2, warmup=200, draws=100, progress_bar=False)


@pytest.mark.parametrize(
    ("kind", "intercept"),
    [("gaussian", False), ("gaussian", True), ("student_t", False)],
    ids=["plain", "own", "tails"],
)
@pytest.mark.parametrize("size", [1e-200, 1e-100, 1e-60, 1e60, 1e100, 1e148])
def test_intervals_scale_with_the_targets(three_features, size, kind, intercept):
    """With targets c y the posterior is that of y times c, for any c, and the message is the same direction."""
    tasks, public = three_features
    bounds, sent = [], []
    for c in (1.0, size):
        scaled = dataclasses.replace(tasks, y=tasks.y * c)
        data = scaled.with_intercept() if intercept else scaled
        prediction = task_posteriors(data, public, likelihood=kind, leave_one_out="not_in_release", draws=50).predict(
            data
        )
        bounds.append([part[data.mask] / c for part in (prediction.mean, *prediction.interval())])
        sent.append(mp.releases.message(scaled, TERMS_OF_THREE))
    assert (bounds[0][2] > bounds[0][1]).all()
    assert_allclose(bounds[1], bounds[0], rtol=1e-5, atol=1e-6 * np.ptp(bounds[0]))
    assert_allclose(sent[1], sent[0], atol=1e-6)


def test_draws_of_a_row_are_in_its_own_unit():
    """Rows of one task may differ by more than single precision reaches."""
    away = np.random.default_rng(0).standard_normal((400, 3)) * [1e-300, 1.0, 1e300]
    single, unit = in_single(away)
    assert single.dtype == np.float32
    assert_allclose(single * unit, away, rtol=1e-6)
    assert in_single(np.zeros((5, 2)))[0].tolist() == [[0.0, 0.0]] * 5
