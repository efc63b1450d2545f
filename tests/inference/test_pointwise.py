"""Owners' posteriors row by row: beside SciPy's densities, exact leaving-one-out, and in ArviZ's hands."""

import pickle

import arviz as az
import numpy as np
import pytest
import scipy.stats as st
from helpers.tolerances import FAR
from scipy.special import expit, logsumexp

import mpmtl_prob as mp
from mpmtl_prob import Reference, TaskData
from mpmtl_prob.inference import OwnerEffects, OwnerPosteriors, shared_covariance, shared_effects, task_posteriors
from mpmtl_prob.inference.owner import pointwise
from mpmtl_prob.inference.owner.likelihoods import NormalErrors

FAST = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}
ROWS = 12


def numbers(seed=0, m=30, n=ROWS, labels=False):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((m, n, 3)), rng.standard_normal((m, 3)) * [1.5, 1, 0.3]
    signal = np.einsum("mnd,md->mn", X, W)
    y = np.where(rng.random((m, n)) < expit(signal), 1.0, -1.0) if labels else signal + rng.standard_normal((m, n))
    return TaskData.from_lists(X, y, tasks=[f"T{i}" for i in range(m)])


@pytest.fixture(scope="module")
def shared():
    return shared_covariance(mp.release(numbers(), 4.0, scaling="none", unsafe_seed=0), **FAST)


def of_outcome(outcome, weights=False, seed=0, m=30):
    """Tasks of a mixed model, some rows of which may count twice, and its posterior of average effects."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.standard_normal((m, 20, 2)), rng.uniform(0.5, 4, (m, 20))
    eta = X @ [0.6, -0.4] + rng.normal(0.5, 0.3, (m, 1))
    y = {
        "number": lambda: eta + rng.standard_normal((m, 20)),
        "binary": lambda: (rng.random((m, 20)) < expit(eta)).astype(float),
        "count": lambda: rng.poisson(exposure * np.exp(eta) * rng.gamma(1, 1, (m, 20))).astype(float),
    }[outcome]()
    tasks = TaskData.from_lists(X, y, features=["a", "b"], tasks=[f"H{i}" for i in range(m)]).with_intercept()
    tasks = tasks.with_exposure(exposure) if outcome == "count" else tasks
    tasks = tasks.with_weights(rng.choice([0.5, 1.0, 2.0], (m, 20))) if weights else tasks
    baseline = {"number": {}, "binary": {"baseline": 0.5}, "count": {"baseline": 1.5}}[outcome]
    release = mp.release(
        tasks, 20.0, reference=Reference.standard(["a", "b"], outcome=outcome, **baseline), unsafe_seed=1
    )
    return tasks, shared_effects(release, **FAST)


@pytest.fixture(scope="module", params=["number", "binary", "count"])
def effects(request):
    return request.param, *of_outcome(request.param, weights=True)


@pytest.fixture(scope="module")
def own(shared):
    return task_posteriors(numbers(), shared)


@pytest.fixture(scope="module")
def own_effects(effects):
    _, tasks, public = effects
    return task_posteriors(tasks, public)


def density(likelihood, tasks, own, i):
    """log p(y | draw) of the rows of a task by SciPy, (S, n)."""
    flat = lambda name: own[f"posterior/{name}"].values.reshape(-1, *own[f"posterior/{name}"].shape[2:])[..., i]
    X, y, exposure, weights = tasks.observations_of(i)
    eta = flat("W") @ X.T
    size = flat("sigma")[:, None] / np.sqrt(weights) if "sigma" in own["posterior"] else None
    a = flat("dispersion")[:, None] if "dispersion" in own["posterior"] else None
    rate = exposure * np.exp(eta)
    if likelihood == "negative_binomial":
        over = np.maximum(a, 1e-9)
        return weights * np.where(
            a > 0, st.nbinom.logpmf(y, 1 / over, 1 / (1 + over * rate)), st.poisson.logpmf(y, rate)
        )
    return {
        "gaussian": lambda: st.norm.logpdf(y, eta, size),
        "student_t": lambda: st.t.logpdf(y, 4, eta, size),
        "bernoulli": lambda: weights * st.bernoulli.logpmf(y > 0, expit(eta)),
        "poisson": lambda: weights * st.poisson.logpmf(y, rate),
    }[likelihood]()


def check(tree, likelihood, tasks):
    """Densities are SciPy's; means and spreads of targets drawn anew are those of the law, and observed are the targets."""
    assert tree["log_likelihood/y"].dims == tree["posterior_predictive/y"].dims == ("chain", "draw", "observation")
    np.testing.assert_array_equal(tree["observed_data/y"], tasks.targets)
    flat = {g: tree[f"{g}/y"].values.reshape(1200, -1) for g in ("log_likelihood", "posterior_predictive")}
    for i in (0, 7, tasks.num_tasks - 1):
        rows = slice(*tasks.offsets[i : i + 2])
        np.testing.assert_allclose(
            flat["log_likelihood"][:, rows], density(likelihood, tasks, tree, i), rtol=1e-4, atol=1e-5
        )
        assert set(tree["log_likelihood/y"].coords["task_of"].values[rows]) == {str(tasks.tasks[i])}
    if tasks.weights is None and likelihood in ("bernoulli", "poisson"):
        assert set(np.unique(flat["posterior_predictive"])) <= set(np.arange(-1.0, 1e6))
    return flat["posterior_predictive"]


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "bernoulli"])
def test_log_likelihoods_of_weights_are_scipys(shared, likelihood):
    """Log likelihoods of weights are SciPy's, and new draws of the targets are predictions."""
    tasks = numbers(labels=likelihood == "bernoulli")
    own = task_posteriors(tasks, shared, likelihood=likelihood)
    anew = check(own.to_arviz(), likelihood, tasks)
    means = own.predict(tasks).means
    if likelihood == "bernoulli":
        assert set(np.unique(anew)) == {-1.0, 1.0}
        means = 2 * means - 1
    error = (anew.mean(axis=0) - means) / (anew.std(axis=0) / np.sqrt(1200) + 1e-3)
    assert np.abs(error).max() < FAR
    if likelihood != "bernoulli":  # whose intervals are of the probability
        spread = np.subtract(*np.quantile(anew, [0.95, 0.05], axis=0)) / -np.subtract(
            *own.predict(tasks).interval_of_rows()
        )
        assert abs(np.median(spread) - 1) < 0.03


def test_log_likelihoods_of_effects_are_scipys(effects, own_effects):
    """Log likelihoods of effects are SciPy's, with exposure and weights."""
    outcome, tasks, shared = effects
    for likelihood in {"number": ("gaussian", "student_t"), "count": ("negative_binomial", "poisson")}.get(
        outcome, ("bernoulli",)
    ):
        as_usual = own_effects.likelihood.name == likelihood
        own = own_effects if as_usual else task_posteriors(tasks, shared, likelihood=likelihood)
        anew = check(own.to_arviz(), likelihood, tasks)
        error = (anew.mean(axis=0) - own.predict(tasks).means) / (anew.std(axis=0) / np.sqrt(1200) + 1e-3)
        assert np.abs(error).max() < 2 * FAR  # counts that are rare are far from normal
        if outcome == "binary":
            assert set(np.unique(anew)) == {0.0, 1.0}


def test_centres_without_an_intercept_are_in_predictors_of_rows():
    rng = np.random.default_rng(0)
    age = rng.normal(60, 15, (20, 12, 1))
    y = 7 + 0.1 * (age[..., 0] - 60) + rng.normal(0, 1, (20, 12))
    tasks = TaskData.from_lists(age, y, features=["age"])
    reference = Reference({"age": (60, 15)}, target=(7, 5))
    own = task_posteriors(tasks, shared_effects(mp.release(tasks, 9.0, reference=reference, unsafe_seed=0), **FAST))
    error = own.to_arviz()["posterior_predictive/y"].mean(("chain", "draw")).values - own.predict(tasks).means
    assert np.abs(error).max() < 0.3


def test_leaving_rows_out_is_fitting_without_them(shared):
    """Leaving rows out agrees with a fit without each row, for tasks that are not in the release."""
    tasks = numbers(seed=5, m=3, n=60)
    options = {"leave_one_out": "not_in_release", "chains": 4, "draws": 1000}
    loo = az.loo(task_posteriors(tasks, shared, **options).to_arviz(), pointwise=True)
    exact = np.empty((3, 60))
    for row in range(60):
        kept = np.arange(60) != row
        parts = [tasks.rows_of(i) for i in range(3)]
        without = TaskData.from_lists([X[kept] for X, _ in parts], [y[kept] for _, y in parts])
        left = TaskData.from_lists([X[[row]] for X, _ in parts], [y[[row]] for _, y in parts])
        tree = task_posteriors(without, shared, **options).to_arviz(left)  # of a row that the fit has not seen
        exact[:, row] = logsumexp(tree["log_likelihood/y"].values.reshape(4000, 3), axis=0) - np.log(4000)
    assert float(loo.pareto_k.max()) < 0.7
    np.testing.assert_allclose(loo.elpd_i.values, exact.ravel(), atol=0.12)
    assert abs(loo.elpd - exact.sum()) < 0.5
    within = task_posteriors(tasks, shared, **options).to_arviz()["log_likelihood/y"].values.reshape(4000, 180)
    assert (logsumexp(within, axis=0) - np.log(4000)).sum() - exact.sum() > 2  # what has seen the row says more of it


def test_arviz_compares_likelihoods_and_draws_what_is_drawn_anew():
    tasks, shared = of_outcome("count", m=20)
    trees = {
        name: task_posteriors(tasks, shared, likelihood=name).to_arviz() for name in ("poisson", "negative_binomial")
    }
    with np.errstate(all="ignore"), pytest.warns(UserWarning, match="Pareto"):  # Poisson's law is far off
        table = az.compare(trees)
    assert list(table.index) == ["negative_binomial", "poisson"]
    assert -table["elpd_diff"].iloc[1] > 3 * table["dse"].iloc[1]
    assert trees["poisson"]["observed_data/y"].dtype.kind == "i"  # by which ArviZ knows counts
    draw(trees["negative_binomial"], az.plot_ppc_rootogram, az.plot_ppc_pit, az.plot_loo_pit)


def draw(tree, *plots):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    for plot in plots:
        plot(tree)
        plt.close("all")


def test_arviz_draws_numbers_and_labels_anew(shared, own):
    draw(own.to_arviz(), az.plot_ppc_dist, az.plot_ppc_tstat, az.plot_ppc_interval)
    labels = task_posteriors(numbers(labels=True), shared, likelihood="bernoulli").to_arviz()
    draw(labels, az.plot_ppc_pava)


def check_without_rows(own, data, kind, path):
    """Rows are in no file and no pickle of a posterior, and may be given again after loading."""
    own.save(path)
    for again in (kind.load(path), pickle.loads(pickle.dumps(own))):
        assert not {"log_likelihood", "posterior_predictive"} & set(again.to_arviz().children)
        theirs, mine = (one.to_arviz(data)["log_likelihood/y"].values for one in (again, own))
        np.testing.assert_allclose(theirs, mine, rtol=1e-3, atol=1e-3)
    assert "log_likelihood" not in own.to_arviz(pointwise=False).children


def test_rows_are_in_no_file_and_no_pickle(effects, own_effects, tmp_path):
    check_without_rows(own_effects, effects[1], OwnerEffects, tmp_path / "effects.nc")


def test_rows_are_in_no_file_and_no_pickle_of_weights(own, tmp_path):
    check_without_rows(own, numbers(), OwnerPosteriors, tmp_path / "weights.nc")


def test_more_than_memory_is_asked_for_in_parts(own, monkeypatch):
    monkeypatch.setattr(pointwise, "LARGEST", 1200 * 8 * 3 * ROWS)
    with pytest.raises(ValueError, match=r"pointwise: expected at most .* GiB .* got 1200 draws of 360 rows"):
        own.to_arviz()
    assert own.to_arviz(numbers().take([0, 1, 2]))["log_likelihood/y"].shape == (4, 300, 3 * ROWS)
    assert "posterior" in own.to_arviz(pointwise=False).children


def test_some_of_the_tasks_in_another_order_are_found_by_name(effects, own_effects):
    tasks = effects[1]
    some, every = (own_effects.to_arviz(data)["log_likelihood/y"].values for data in (tasks.take([3, 1]), tasks))
    expected = np.concatenate([every[..., slice(*tasks.offsets[i : i + 2])] for i in (3, 1)], axis=-1)
    np.testing.assert_array_equal(some, expected)


def test_rows_have_log_likelihoods_where_the_likelihood_has(shared):
    """The whole way gives rows log likelihoods; a likelihood that has none leaves them out."""

    class Quiet(NormalErrors):
        def pointwise(self, tasks, own, predictor, draws, rng):
            return None

    fitted = mp.NoiseAware(2.0, unsafe_seed=0, **FAST).fit(numbers())
    with pytest.warns(UserWarning, match="Pareto"):
        assert np.isfinite(az.loo(fitted.to_arviz()).elpd)
    tree = task_posteriors(numbers(), shared, likelihood=Quiet()).to_arviz()
    assert not {"log_likelihood", "posterior_predictive"} & set(tree.children)
