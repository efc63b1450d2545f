"""One call from tasks to a posterior, and what the posterior offers."""

import dataclasses
import gc
import os

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from helpers.stored import said_alike, same_but_for_rounding
from helpers.tolerances import FAR
from numpy.testing import assert_allclose, assert_array_equal
from numpyro.infer import NUTS, Gibbs

import mpmtl_prob as mp
from mpmtl_prob.inference import Interrupted, Posterior, ProximalLangevin, fit
from mpmtl_prob.inference.curator import fitting
from mpmtl_prob.inference.curator.posterior import REMEDIES
from mpmtl_prob.models import group_sparse, low_rank, low_rank_sparse
from mpmtl_prob.privacy import NOTHING_SHARED
from mpmtl_prob.sampling import chains
from mpmtl_prob.sampling.chains import most_steps
from mpmtl_prob.sampling.diagnostics import diagnose

QUICK = {"kernel": "mala", "chains": 2, "warmup": 30, "draws": 30, "progress_bar": False}  # quick to compile


@pytest.fixture(scope="module")
def data():
    return mp.datasets.synthetic_low_rank(6, 3, 20, 30, variance=30.0, group=3, seed=0)


@pytest.fixture(scope="module")
def posterior(data):
    return fit(low_rank, data.train, chains=4, warmup=300, draws=1000, progress_bar=False)  # r-hat far from 1.01


def test_posterior_predicts_no_worse_than_each_task_alone(data, posterior):
    """The posterior predicts as well as every task alone, and says how well it does."""
    test, alone = data.test, mp.estimators.Ridge().fit(data.train)
    errors = [np.asarray((fitted.predict(test).mean - test.y) ** 2)[test.mask] for fitted in (posterior, alone)]
    worse = errors[0] - errors[1]
    assert worse.mean() < FAR * worse.std() / np.sqrt(worse.size)
    assert errors[0].mean() < 2.0  # the noise alone is 1, give or take .11; without models 4 and more
    # .04 over data sets: .022 of 180 test rows, and what 120 rows say of sigma and of W; of the weights alone it would be .45
    assert abs(mp.evaluation.coverage(posterior.predict(test), test) - 0.9) < FAR * 0.04


def test_chains_agree_and_the_diagnosis_says_so(posterior):
    diagnosis = posterior.diagnose()
    assert diagnosis.sound
    assert "Nothing is wrong with the draws." in str(diagnosis)
    assert set(diagnosis.rhat) == {"sigma", "rate", "the spectrum of W", "W"}
    assert diagnosis.divergences == 0


def test_a_chain_that_cannot_move_is_an_error(data):
    """A chain that could only stay where it starts is an error."""

    def nowhere(tasks):
        numpyro.sample("W", dist.Normal(0, 1).expand(data.W.shape).to_event(2))
        numpyro.factor("impossible", -jax.numpy.inf)

    with pytest.raises(ValueError, match="model: found no start of positive density for 2 of 2 chains"):
        fit(nowhere, data.train, **QUICK)


def test_diagnosis_turns_trouble_into_advice(posterior):
    stuck = {k: np.array(v) for k, v in posterior.draws.items()}
    stuck["W"][0] += 3.0  # one chain elsewhere
    yes = np.ones((4, 1000), dtype=bool)
    trouble = {"diverging": yes, "reached_max_treedepth": yes, "n_steps": np.full((4, 1000), 255)}
    troubled = Posterior("x", posterior.tasks, stuck, trouble, exact=False).diagnose()
    text = str(troubled)
    for words in ("Chains disagree on the spectrum of W and W", "effective draws", "4000 transitions diverged",
                  "limit of 255 steps", "not adjusted"):  # fmt: skip
        assert words in text
    assert not troubled.sound


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (0.0, "Nothing is wrong"),
        (0.4, "means can be used, intervals not yet"),
        (3.0, "do not use these draws yet"),
        (np.nan, "do not use these draws yet"),
    ],
)
def test_advice_on_draws_follows_from_how_far_chains_are_apart(apart, said):
    """The advice on draws follows from how far apart the chains are."""
    draws = st.norm.ppf((np.arange(8000) + 0.5) / 8000)[np.random.default_rng(0).permutation(8000)].reshape(4, 2000)
    draws[0] += apart  # r-hat is the root of 1 + apart^2 / 4
    assert said in str(diagnose({"x": draws}, {}, remedies=REMEDIES))


@pytest.mark.parametrize(("drift", "said"), [(0.0, "Nothing is wrong"), (3.0, "The chain has not settled on x")])
def test_of_a_single_chain_the_halves_are_compared(drift, said):
    draws = st.norm.ppf((np.arange(2000) + 0.5) / 2000)[np.random.default_rng(0).permutation(2000)]
    diagnosis = diagnose({"x": (draws + drift * np.arange(2000) / 2000)[None]}, {}, remedies=REMEDIES)
    assert np.isfinite(diagnosis.rhat["x"])
    assert said in str(diagnosis)


def ridge(tasks):
    sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
    W = numpyro.sample("W", dist.Normal(0.0, 5.0).expand([3, 6]).to_event(2))
    mean = jax.numpy.einsum("tnj,jt->tn", tasks.X, W)
    numpyro.sample("y", dist.Normal(mean, sigma).mask(tasks.mask), obs=tasks.y)


#: Seven steps of hardly any length, however steep it is where they start: no trajectory turns back.
SHORT = NUTS(ridge, max_tree_depth=(2, 3), step_size=1e-8, adapt_step_size=False, adapt_mass_matrix=False)


@pytest.fixture(scope="module")
def mine(data):
    """A model and a kernel of one's own."""
    return fit(ridge, data.train, **QUICK | {"kernel": SHORT})


def test_a_kernel_is_asked_how_long_its_trajectories_may_be(mine):
    assert_array_equal(mine.statistics["n_steps"], 7)
    assert mine.statistics["reached_max_treedepth"].all()
    assert "limit of 7 steps" in str(mine.diagnose())
    # NumPyro keeps the number under a private name: where it takes another, this fails
    assert [most_steps(k) for k in (SHORT, NUTS(ridge), NUTS(ridge, max_tree_depth=4))] == [7, 1023, 15]
    assert most_steps(ProximalLangevin(ridge)) is None


def test_tree_has_every_group_and_names_tasks_and_features(data, posterior):
    tree = posterior.to_arviz()
    groups = {"posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data", "constant_data"}
    assert set(tree.children) == groups | {"release"}
    assert tree["posterior/W"].dims == ("chain", "draw", "feature", "task")
    assert tree.attrs["seat"] == "curator"
    assert tree["release"].attrs["guarantee"].startswith("proved: nothing")
    assert tree["observed_data/y"].size == data.train.num_rows
    assert "W_local" not in tree["posterior"]
    # the log likelihood of the last row, from its definition
    W, sigma = tree["posterior/W"].values[1, 7], float(tree["posterior/sigma"][1, 7])
    x, y = data.train.X[-1, -1], data.train.y[-1, -1]
    expected = -0.5 * ((y - x @ W[:, -1]) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    assert_allclose(tree["log_likelihood/y"].values[1, 7, -1], expected, rtol=1e-3)
    drawn = tree["posterior_predictive/y"].values
    assert_allclose(drawn.mean((0, 1)), posterior.predict(data.train).mean[data.train.mask], atol=0.25)


# whether some row matters much to these draws is a fact about the rows
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution")
def test_arviz_reads_the_tree(posterior):
    import arviz as az

    assert np.isfinite(az.loo(posterior.to_arviz()).elpd)
    assert float(az.summary(posterior.to_arviz(), var_names=["sigma"])["r_hat"].iloc[0]) < 1.02


def test_subspace_is_that_of_the_second_moment(posterior):
    subspace = posterior.subspace(2)
    W = posterior.draws["W"]
    share = np.linalg.svd(W, compute_uv=False) ** 2
    assert_allclose(subspace.spectrum.values, share / share.sum(-1, keepdims=True), rtol=1e-8)
    assert_allclose(np.trace(subspace.projector), 2.0)


def test_extended_posterior_is_the_longer_run(data):
    short = fit(group_sparse, data.train, **QUICK).extend(20, progress_bar=False)
    long = fit(group_sparse, data.train, **(QUICK | {"draws": 50}))
    assert_array_equal(short.draws["W"], long.draws["W"])
    assert short.draws["sigma"].shape == (2, 50)


def test_interrupted_run_keeps_what_was_drawn(data, monkeypatch):
    whole = fit(group_sparse, data.train, **(QUICK | {"draws": 60}))
    calls = 0
    advance = chains.advance

    def interrupted(*args, **kwargs):
        nonlocal calls
        for step in advance(*args, **kwargs):
            calls += 1
            yield step
            if calls == 4:  # two chunks of warm-up, two of draws
                raise KeyboardInterrupt

    monkeypatch.setattr(chains, "advance", interrupted)
    with pytest.warns(UserWarning, match="interrupted: 50 of 60 draws per chain are in the posterior"):
        cut = fit(group_sparse, data.train, **(QUICK | {"draws": 60}))
    monkeypatch.undo()
    assert cut.draws["W"].shape[1] == 50
    assert_array_equal(cut.extend(10, progress_bar=False).draws["W"], whole.draws["W"])


def ended_by(error, monkeypatch):
    """Runs end with it after their first draws."""
    advance = chains.advance

    def until(*args, **kwargs):
        for step in advance(*args, **kwargs):
            yield step
            if step[1] is not None:
                raise error

    monkeypatch.setattr(chains, "advance", until)


def test_an_interrupt_that_is_an_error_leaves_a_checkpoint(data, tmp_path, monkeypatch):
    ended_by(KeyboardInterrupt, monkeypatch)
    with pytest.raises(Interrupted):  # as warnings are errors in tests
        fit(group_sparse, data.train, checkpoint=tmp_path / "run.npz", **QUICK)
    assert (tmp_path / "run.npz").exists()


def test_killed_run_goes_on_from_its_checkpoint(data, tmp_path, monkeypatch):
    file = tmp_path / "run.npz"
    monkeypatch.setattr(fitting, "_SAVE_EVERY", 0.0)
    whole = fit(group_sparse, data.train, **QUICK)
    ended_by(SystemExit, monkeypatch)
    for _ in range(2):  # killed after the first chunk of draws, and again after the second
        with pytest.raises(SystemExit):
            fit(group_sparse, data.train, checkpoint=file, **QUICK)
    monkeypatch.undo()
    resumed = fit(group_sparse, data.train, checkpoint=file, **QUICK)
    assert_array_equal(resumed.draws["W"], whole.draws["W"])
    assert_array_equal(resumed.statistics["lp"], whole.statistics["lp"])
    with pytest.raises(ValueError, match="holds another run; expected the same model, data"):
        fit(group_sparse, data.train, checkpoint=file, **(QUICK | {"seed": 1}))
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="holds no run of mpmtl_prob"):
        fit(group_sparse, data.train, checkpoint=file, **QUICK)


def test_a_curators_summaries_are_exact_far_from_zero():
    """A curator's summaries of rows are as exact far from zero as at zero."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((2, 9, 2)), np.ones((2, 9, 1))], axis=2)
    W = rng.standard_normal((2, 50, 3, 2))
    y, sigma = np.einsum("tnj,jt->tn", X, W[0, 0]) + rng.standard_normal((2, 9)), rng.uniform(0.5, 1, (2, 50))
    summaries = []
    for offset in (0.0, 2.0**27):  # about 1e8
        tasks = mp.TaskData.from_lists(list(X), list(y + offset))
        draws = {"W": W + offset * np.array([0, 0, 1])[:, None], "sigma": sigma}
        one = Posterior("made up", tasks, draws, {"lp": np.zeros((2, 50))})
        tree = one.to_arviz()
        low, high = one.predict(tasks).interval()
        summaries.append(
            (low - offset, high - offset, tree["posterior_predictive/y"].values - offset, tree["log_likelihood/y"])
        )
    (low, high, again, log_likelihood), (*elsewhere, other) = summaries
    assert (np.abs(np.array(elsewhere[:2]) - [low, high]) < 1e-6 * (high - low)).all()
    assert_allclose(elsewhere[2], again, atol=1e-5)
    away = (y - np.einsum("tnj,csjt->cstn", X, W)) / sigma[..., None, None]
    exact = st.norm.logpdf(away) - np.log(sigma)[..., None, None]
    for each in (log_likelihood, other):
        assert_allclose(each.values.reshape(exact.shape), exact, rtol=1e-6)


def test_posterior_survives_a_file(data, posterior, tmp_path):
    posterior.save(tmp_path / "posterior.nc")
    loaded = Posterior.load(tmp_path / "posterior.nc")
    said_alike(repr(loaded), repr(posterior))
    same_but_for_rounding(loaded.to_arviz()["posterior"], posterior.to_arviz()["posterior"])
    assert_allclose(loaded.predict(data.test).draws, posterior.predict(data.test).draws, rtol=1e-6, atol=1e-6)
    said_alike(str(loaded.diagnose()), str(posterior.diagnose()))
    with pytest.raises(ValueError, match="extend: this posterior holds no chains"):
        loaded.extend(5)
    (tmp_path / "other.nc").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="holds no posterior of mpmtl_prob"):
        Posterior.load(tmp_path / "other.nc")


def test_a_file_does_not_show_that_nothing_was_shared(posterior, tmp_path):
    dataclasses.replace(posterior, guarantee=NOTHING_SHARED).save(tmp_path / "posterior.nc")
    loaded = Posterior.load(tmp_path / "posterior.nc").guarantee
    assert loaded.proved is None
    assert "holds no release that it could follow from" in loaded.reason


def test_a_curators_files_are_its_own(data, posterior, tmp_path):
    """Rows and models of all tasks are in them: nobody else on the machine can open them."""
    before = os.umask(0o022)
    try:
        posterior.save(tmp_path / "posterior.nc")
        fit(group_sparse, data.train, checkpoint=tmp_path / "run.npz", **QUICK)
    finally:
        os.umask(before)
    assert [os.stat(path).st_mode & 0o777 for path in sorted(tmp_path.iterdir())] == [0o600, 0o600]


def test_subjects_survive_a_file(data, posterior, tmp_path):
    whom = list(np.random.default_rng(0).integers(0, 15, (6, 20)))
    X, y = list(data.train.X), list(data.train.y)
    shared = mp.TaskData.from_lists(X, y, subject=whom)
    dataclasses.replace(posterior, tasks=shared).save(tmp_path / "posterior.nc")
    loaded = Posterior.load(tmp_path / "posterior.nc").tasks
    assert_array_equal(loaded.subject, whom)
    for mine, theirs in zip(loaded.split(0.5, seed=0), shared.split(0.5, seed=0), strict=True):
        assert_array_equal(mine.y, theirs.y)
    with pytest.raises(ValueError, match="subject: expected one vector per task, with one whole number per row"):
        mp.TaskData.from_lists(X, y, subject=whom[:5])


def test_release_and_its_guarantee_survive_a_file(data, tmp_path):
    estimator = mp.estimators.LowRank(1.0, epsilon=1.0, clip=2.0, rounds=3, unsafe_seed=0)
    sampled = mp.inference.private_langevin(estimator, data.train, progress_bar=False)
    sampled.save(tmp_path / "private.nc")
    loaded = Posterior.load(tmp_path / "private.nc")
    assert loaded.guarantee == sampled.guarantee
    assert_array_equal(loaded.release.sigma, sampled.release.sigma)
    assert loaded.release.mechanisms == sampled.release.mechanisms


@pytest.mark.evidence
@pytest.mark.parametrize("model", [low_rank_sparse])
def test_every_model_has_a_default(model, data):
    of_default = fit(model, data.train, **QUICK)
    assert np.isfinite(of_default.W).all()
    assert {"sigma", "rate"} <= set(of_default.draws)


@pytest.mark.evidence
def test_kernels_of_ones_own(data):
    gibbs = Gibbs([(ProximalLangevin(low_rank), ["W"]), (NUTS(low_rank, max_tree_depth=3), None)])
    by_gibbs = fit(low_rank, data.train, precondition=False, **(QUICK | {"kernel": gibbs}))
    assert by_gibbs.draws["W"].shape == (2, 30, 3, 6)
    assert by_gibbs.name == "low_rank, Gibbs"


def test_models_of_ones_own(data, mine):
    assert mine.predict(data.test).draws.shape[0] == 60


@pytest.mark.evidence  # every day by a kernel of one's own
def test_models_of_ones_own_by_langevin(data):
    assert fit(ridge, data.train, **QUICK).predict(data.test).draws.shape[0] == 60


def test_other_numbers_do_not_compile_again(data, monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    fit(group_sparse, data.train, **QUICK)
    before = compiled()
    other = mp.datasets.synthetic_low_rank(6, 3, 20, 30, variance=30.0, group=3, seed=1)
    fit(group_sparse, other.train, rate=(3.0, 0.2), smoothing=0.4, **(QUICK | {"draws": 33}))
    assert compiled() == before


def compiled():
    """Count the shapes that every program has been compiled for, by part."""
    programs = [p for p in gc.get_objects() if isinstance(p, chains.Program)]
    return {p: [part._cache_size() for part in p if hasattr(part, "_cache_size")] for p in programs}


def test_bad_arguments_are_named(data):
    with pytest.raises(ValueError, match="kernel: expected one of 'nuts', 'mala', 'myula', got 'hmc'"):
        fit(low_rank, data.train, kernel="hmc")
    with pytest.raises(ValueError, match="draws: expected a whole number >= 1, got 0"):
        fit(low_rank, data.train, draws=0)
    with pytest.raises(ValueError, match="data: expected TaskData, got ndarray"):
        fit(low_rank, np.eye(3))
    with pytest.raises(ValueError, match="options: expected none for a model of your own, got rate"):
        fit(lambda tasks: None, data.train, rate=1.0)


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_show_what_they_say(data, posterior):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from mpmtl_prob import plots

    one = posterior.subspace(1, reference=data.W @ data.W.T)
    (curve,) = plots.angles(one).lines
    assert_allclose(np.trapezoid(curve.get_ydata(), curve.get_xdata()), 1.0, atol=0.02)
    assert abs(curve.get_xdata()[np.argmax(curve.get_ydata())] - np.median(one.angles)) < 6
    assert len(plots.angles({"a": one, "b": one}).lines) == 2
    assert_allclose(plots.projector(one, sd=True).images[0].get_array(), one.projector_sd)

    prediction = posterior.predict(data.test)
    line = plots.coverage({"posterior": prediction}, data.test).lines[1]
    low, high = prediction.interval(0.5)
    inside = np.mean(((low <= data.test.y) & (data.test.y <= high))[data.test.mask])
    assert_allclose(np.interp(0.5, line.get_xdata(), line.get_ydata()), inside)

    points = plots.shift(posterior, posterior).lines[0]
    assert_allclose(points.get_xdata(), 0, atol=1e-12)
    assert_allclose(points.get_ydata(), 1)
    median = plots.ladder({1.0: one, np.inf: one}).lines[0].get_ydata()
    assert_allclose(median, np.median(one.effective_rank))
    error = plots.error_by_task(posterior, data.test, limit=1)
    W = posterior.draws["W"].reshape(-1, 3, 6)
    of_first = np.sqrt(np.mean((data.test.y[0] - W[:, :, 0] @ data.test.X[0].T) ** 2, axis=1))
    assert_allclose(medians(error), [np.median(of_first)])
    both = plots.weights({"one": posterior, "other": posterior}, 2)
    assert_allclose(sorted(medians(both)), np.sort(np.repeat(np.median(W[:, :, 2], axis=0), 2)))
    assert [text.get_text() for text in both.get_legend().get_texts()] == ["one", "other"]
    with pytest.raises(ValueError, match="task: expected one of the posterior's, such as '0', got 'x'"):
        plots.weights({"one": posterior}, "x")
    assert plots.spectrum(posterior, data.W @ data.W.T).lines
    plt.close("all")


def medians(forest):
    """The points of ArviZ's forest."""
    return [float(points.get_offsets()[0, 0]) for points in forest.collections if len(points.get_offsets()) == 1]


def test_what_is_given_in_a_wrong_kind_is_named():
    tasks = mp.datasets.synthetic_low_rank(4, 3, 4, 1)[0]
    for options, message in (
        ({"kernel": NUTS}, r"kernel: expected an instance, such as NUTS\(...\), got the class NUTS"),
        ({"seed": "a"}, "seed: expected a whole number, got 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(low_rank, tasks, **QUICK | options)
    with pytest.raises(ValueError, match="data: expected TaskData, got ndarray"):
        fit(low_rank, tasks.X, **QUICK)


@pytest.mark.parametrize("size", [1e-100, 1e-60, 1e60, 1e100])
def test_a_curators_intervals_reach_any_target(data, posterior, size):
    """Single precision ends at 1e38 and 1e-45."""
    draws = {name: np.asarray(value, dtype=np.float64) for name, value in posterior.draws.items()}
    plain = dataclasses.replace(posterior, draws={name: draws[name] for name in ("W", "sigma")})
    scaled = dataclasses.replace(plain, draws={name: draws[name] * size for name in ("W", "sigma")})
    for expected, interval in zip(
        plain.predict(data.test).interval(), scaled.predict(data.test).interval(), strict=True
    ):
        assert_allclose(interval / size, expected, rtol=1e-5, atol=1e-6)
