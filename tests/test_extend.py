"""Examples of docs/extend.md: they work as printed, in files outside the package, all the way."""

import importlib
import re
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers.conformance import conforms
from helpers.quickly import quickly
from helpers.stored import said_alike
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density, potential_energy
from scipy import stats

import mpmtl_prob as mp
from mpmtl_prob import TaskData, estimators, evaluation, inference, privacy
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior
from mpmtl_prob.inference.owner.likelihoods import GAUSSIAN
from mpmtl_prob.inference.public.init import observed
from mpmtl_prob.inference.public.structures import model_for
from mpmtl_prob.models import penalised, shared_covariance
from mpmtl_prob.privacy import audit
from mpmtl_prob.privacy.mechanisms import mechanism as law

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"
D, M = 3, 12
QUICK = {"chains": 2, "warmup": 200, "progress_bar": False}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Every file of the page, importable by its name."""
    folder = tmp_path_factory.mktemp("outside")
    for name, text in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    before = set(law._registered)
    yield importlib.import_module
    sys.path.remove(str(folder))
    for name in set(law._registered) - before:
        del law._registered[name]


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((D, 1)) + 0.3 * rng.standard_normal((D, M))
    X = rng.standard_normal((M, 10, D))
    return TaskData.from_lists(list(X), list(np.einsum("tnj,jt->tn", X, W) + 0.5 * rng.standard_normal((M, 10))))


def test_a_users_law_goes_all_the_way(written, tasks, tmp_path):
    """A user's noise law is charged, composed, released, saved, read back and audited."""
    noise = written("laplace_matrix").LaplaceMatrix(D, 9.0)
    book = privacy.Ledger(tmp_path / "book", epsilon=1.0, delta=1e-3)
    release = mp.release(tasks, 0.9, 1e-3, mechanism=noise, ledger=book)
    assert release.guarantee.proved.delta == 0  # 0.9 is more than its pure eps, 8 / 9
    assert "comes or goes" in release.guarantee.explain()
    assert [charge.mechanisms for charge in privacy.Ledger(tmp_path / "book").charges()] == [(noise,)]
    assert book.spent.epsilon <= noise.max_loss("replace") + 1e-9
    assert privacy.compute_delta(0.5, (noise, noise)) <= privacy.compute_delta(0.25, noise) * 2
    release.save(tmp_path / "release.nc")
    again = mp.Release.load(tmp_path / "release.nc")
    assert again.mechanisms == (noise,)
    assert again.guarantee.proved == release.guarantee.proved
    loud = type(noise)(D, 1.0)
    claim = audit.own_claim(loud, delta=1e-3, adjacency="replace")
    assert not audit.likelihood_ratio(loud, claim, trials=2000, progress_bar=False).broken
    assert audit.likelihood_ratio(loud, privacy.Bound(0.1, 1e-3, "replace"), trials=2000, progress_bar=False).broken


def test_an_unregistered_law_is_refused_before_a_charge(written, tasks):
    """A law that is not registered is refused before it is charged."""

    class Other(written("laplace_matrix").LaplaceMatrix):
        pass

    book = privacy.Ledger(epsilon=1.0, delta=1e-3)
    with pytest.raises(ValueError, match=r"^mechanisms: expected laws that a ledger can read again, got Other"):
        mp.release(tasks, 0.9, 1e-3, mechanism=Other(D, 9.0), ledger=book)
    assert book.charges() == []


def test_a_public_posterior_reads_a_law_of_ones_own(written, tasks):
    noise = written("laplace_matrix").LaplaceMatrix(D, 0.5)
    release = mp.release(tasks, 20.0, 1e-3, mechanism=noise, unsafe_seed=3)
    with pytest.raises(ValueError, match="whose density the model knows, got LaplaceMatrix"):
        inference.shared_covariance(release, chains=1, warmup=2, draws=2, progress_bar=False)
    likelihood = written("laplace_likelihood").LaplaceNoise(release.sigma[0], noise.scale)
    A, B = np.eye(D), np.diag([1.0, 2.0, 3.0])
    expected = noise.log_prob(release.sigma[0], A) - noise.log_prob(release.sigma[0], B)
    with jax.enable_x64(True):
        density = quickly(likelihood.log_density)
        assert_allclose(density(A, 0.0) - density(B, 0.0), expected, rtol=1e-10)
        given = quickly(lambda A: likelihood.sampling_distribution(A).log_prob(release.sigma[0]))(A)
    assert_allclose(given, noise.log_prob(release.sigma[0], A), rtol=1e-10)
    public = observed(release)
    start = model_for("full", release).start
    slope = quickly(jax.grad(lambda site: potential_energy(shared_covariance.full, (public,), {}, site)))(start)
    assert all(np.isfinite(each).all() for each in slope.values())


@pytest.mark.evidence
def test_owners_use_a_law_of_ones_own(written, tasks):
    noise = written("laplace_matrix").LaplaceMatrix(D, 0.5)
    written("laplace_likelihood")
    release = mp.release(tasks, 20.0, 1e-3, mechanism=noise, unsafe_seed=3)
    shared = inference.shared_covariance(release, chains=1, warmup=40, draws=20, progress_bar=False)
    own = inference.task_posteriors(tasks, shared)
    assert own.shared.release.mechanisms == (noise,)
    assert mp.evaluation.nmse(own.predict(tasks), tasks) < 1  # better than no model


def test_a_penalty_is_solved_and_goes_through_algorithm_1(written):
    WeightedGroupLasso = written("weighted_group_lasso").WeightedGroupLasso
    tasks = mp.datasets.synthetic_low_rank(12, 4, 9, 4, variance=30.0, group=3, seed=0).train
    # a feature that is hardly trusted counts for as little as one of zeros
    zeros = TaskData.from_lists(list(tasks.X * [1.0, 0.0, 1.0, 1.0]), list(tasks.y))
    left_out, known = (
        estimators.MultiTask(penalty, 3.0, tolerance=1e-10).fit(data).W
        for penalty, data in ((WeightedGroupLasso((1.0, 1e4, 1.0, 1.0)), tasks), (estimators.GroupLasso(), zeros))
    )
    assert_allclose(left_out, known, atol=1e-6)
    assert not left_out[1].any()
    assert left_out[[0, 2, 3]].all()
    options = {"penalty": 0.5, "epsilon": 5.0, "rounds": 3, "clip": 5.0, "curvature": 30.0, "unsafe_seed": 1}
    penalties = WeightedGroupLasso((1.0,) * 4), estimators.GroupLasso()
    runs = [estimators.MPMTL(estimators.Proximal(penalty), **options).fit(tasks).W for penalty in penalties]
    assert_allclose(*runs, atol=1e-8)


def test_a_users_estimator_works_with_evaluation_and_scikit(written, tasks):
    """A user's estimator is compared, cross-validated and used in scikit-learn."""
    scikit = pytest.importorskip("mpmtl_prob.scikit")
    Pooled = written("pooled").Pooled
    train, test = tasks.split(0.6, seed=0)
    table = evaluation.compare({"pooled": Pooled().fit(train), "ridge": estimators.Ridge().fit(train)}, test)
    assert [row["name"] for row in table.to_dicts()] == ["pooled", "ridge"]
    picked = evaluation.cross_validate([Pooled(0.1), Pooled(1e6)], train, folds=2, progress_bar=False)
    assert picked.best == Pooled(0.1)
    rows = np.concatenate([np.full((10, 1), i) for i in range(M)]), tasks.X.reshape(-1, D), tasks.y.ravel()
    model = scikit.MultiTaskRegressor(Pooled(), task=0, fit_intercept=False).fit(np.hstack(rows[:2]), rows[2])
    assert_allclose(model.fitted_.W, Pooled().fit(tasks).W)


@pytest.mark.evidence
def test_a_kernel_samples_the_posterior_that_nuts_does(written, tasks):
    RandomWalk = written("random_walk").RandomWalk
    options = {"rate": 1.0, "sigma": 0.5, "chains": 2, "progress_bar": False}
    walk = inference.fit(
        penalised.group_sparse,
        tasks,
        kernel=RandomWalk(penalised.group_sparse, 0.08),
        warmup=500,
        draws=16000,
        **options,
    )
    nuts = inference.fit(penalised.group_sparse, tasks, warmup=200, draws=200, **options)
    of_walk, sd = (each.to_arviz()["posterior/W"].std(("chain", "draw")).values for each in (walk, nuts))
    assert np.abs(walk.W - nuts.W).max() < 2 * sd.max()
    assert 0.7 < np.median(of_walk / sd) < 1.4  # a posterior of twice the temperature has 1.4, of half .7


def test_a_law_of_ones_own_conforms(written):
    conforms(written("laplace_matrix").LaplaceMatrix(2, 1.0))


def test_a_structure_of_ones_own_goes_all_the_way(written, tasks, tmp_path):
    AllAlike = written("all_alike").AllAlike
    release = mp.release(tasks, epsilon=5.0)
    shared = mp.inference.shared_covariance(release, structure=AllAlike(), draws=100, **QUICK)
    assert shared.structure_in_words() == "all alike, as asked for"
    assert "Structure: all alike" in str(shared.diagnose())
    assert_allclose(shared.shape(), np.eye(D), atol=1e-12)
    assert mp.inference.membership(shared, np.eye(D)).probability.shape == (D,)
    own = mp.inference.task_posteriors(tasks, shared, draws=20)
    assert own.predict(tasks).mean.shape == tasks.y.shape
    assert "all alike" in repr(shared)
    assert own.to_arviz().attrs["seat"] == "owner"

    for kept in (shared, own):
        kept.save(tmp_path / "kept.nc")
        back = type(kept).load(tmp_path / "kept.nc", structure=AllAlike())
        said_alike(repr(back), repr(kept))
        with pytest.raises(ValueError, match=r"structure: expected one of 'auto', .*, got 'all alike'"):
            type(kept).load(tmp_path / "kept.nc")

    whole = mp.NoiseAware(structure=AllAlike(), draws=20, **QUICK).fit(tasks)
    assert isinstance(whole, OwnerPosteriors)
    assert isinstance(whole.shared, SharedPosterior)
    with pytest.raises(ValueError, match="structure: expected one of"):
        mp.inference.shared_covariance(release, structure=AllAlike)


def test_a_structure_of_ones_own_has_the_density_that_it_says(written):
    rng, m = np.random.default_rng(1), 6
    release = mp.release(rng.standard_normal((1, m)), 20.0, 1e-3, message="clip", clip=2.0)
    read = written("all_alike").AllAlike().model_for(release)
    public = observed(release)
    noise = release.mechanisms[0]

    @jax.jit
    @partial(jax.jacfwd, has_aux=True)
    def evaluate(flat):
        site = {"z": flat[0], "log_diagonal": flat[1:], "off_diagonal": np.zeros(0)}
        value, trace = log_density(read.model, (public,), {}, site)
        unconstrained = jax.numpy.stack([flat[0], trace["A"]["value"][0, 0]])
        return unconstrained, (value, trace["log_phi"]["value"], unconstrained[1])

    difference = []
    for flat in rng.standard_normal((4, 2)):
        jacobian, (value, log_phi, a) = jax.tree.map(np.asarray, evaluate(flat))
        assert_allclose(log_phi, np.log(noise.clip**2) + 2 * flat[0])
        expected = stats.norm.logpdf(flat[0]) + stats.gamma(m / 2, scale=2 * np.exp(log_phi)).logpdf(a)
        expected += stats.gamma(noise.df / 2, scale=2 * noise.scale).logpdf(release.sigma[0, 0, 0] - a)
        difference.append(value - expected - np.linalg.slogdet(jacobian)[1])
    assert_allclose(difference, difference[0], atol=1e-8)


@pytest.mark.evidence
def test_a_users_structure_has_the_posterior_of_quadrature(written):
    """The posterior of a user's own structure is that of quadrature."""
    AllAlike = written("all_alike").AllAlike
    W = np.random.default_rng(1).standard_normal((1, 6))
    release = mp.release(W, 20.0, 1e-3, message="clip", clip=2.0)
    shared = mp.inference.shared_covariance(release, structure=AllAlike(), draws=1000, **QUICK)
    draws = shared.to_arviz()["posterior/log_phi"].values

    law, sigma, m = release.mechanisms[0], release.sigma[0, 0, 0], 6
    z = np.linspace(-6, 6, 801)[:, None]
    log_phi = np.log(law.clip**2) + 2 * z
    a = sigma * (np.arange(2000) + 0.5) / 2000
    noise = stats.gamma(law.df / 2, scale=2 * law.scale).logpdf(sigma - a)
    log_p = stats.norm.logpdf(z) + stats.gamma(m / 2, scale=2 * np.exp(log_phi)).logpdf(a) + noise
    p = np.exp(log_p - log_p.max()).sum(axis=1)
    mean = np.sum(p * log_phi[:, 0]) / p.sum()
    sd = np.sqrt(np.sum(p * (log_phi[:, 0] - mean) ** 2) / p.sum())
    # 2000 draws are worth far more than a hundred independent ones
    assert_allclose(draws.mean(), mean, atol=6 * sd / np.sqrt(100))
    assert_allclose(draws.std(), sd, rtol=0.5)


def test_a_likelihood_of_ones_own_goes_all_the_way(written, tasks, tmp_path, monkeypatch):
    release = mp.release(tasks, epsilon=5.0)
    shared = mp.inference.shared_covariance(release, draws=100, **QUICK)
    mine = written("known_error").KnownError(0.5)
    own = mp.inference.task_posteriors(
        tasks, shared, likelihood=mine, power=1.0, draws=2500, leave_one_out="not_in_release"
    )

    gram, scale = tasks.gram, np.mean(tasks.X**2, axis=1) ** -0.25  # Pareto's, by which messages are scaled
    for i in range(tasks.num_tasks):
        prior = np.diag(scale[i]) @ shared.shape() @ np.diag(scale[i])
        w = np.linalg.solve(gram.xx[i] / 0.25 + np.linalg.inv(prior), gram.xy[i] / 0.25)
        assert_allclose(own.W[:, i], w, rtol=1e-8)
    drawn = own.to_arviz()["posterior/W"]
    assert drawn.dims == ("chain", "draw", "feature", "task")
    sd = drawn.std(("chain", "draw")).values
    assert np.abs(drawn.mean(("chain", "draw")).values - own.W).max() < 6 * sd.max() / 100  # of 10,000 draws
    assert 0.7 < mp.evaluation.coverage(own.predict(tasks), tasks) <= 1

    mixed = mp.inference.task_posteriors(tasks, shared, likelihood=mine, method="mixture", draws=20, progress_bar=False)
    assert np.isfinite(mixed.W).all()
    with pytest.raises(ValueError, match="method: 'joint' has no model for the likelihood 'known error'"):
        mp.inference.task_posteriors(tasks, shared, likelihood=mine, method="joint", power=1.0, progress_bar=False)

    assert "known error" in repr(own)
    assert own.diagnose().draws == shared.diagnose().draws
    mixed.save(tmp_path / "own.nc")
    back = OwnerPosteriors.load(tmp_path / "own.nc", likelihood=mine)
    assert_allclose(back.predict(tasks, 3).draws, mixed.predict(tasks, 3).draws, atol=1e-6)  # files: single precision
    with pytest.raises(ValueError, match=r"likelihood: expected one of 'gaussian', .*'poisson', got 'known error'"):
        OwnerPosteriors.load(tmp_path / "own.nc")
    with pytest.raises(ValueError, match="likelihood: expected 'known error' as in the file, got 'gaussian'"):
        OwnerPosteriors.load(tmp_path / "own.nc", likelihood=GAUSSIAN)
    monkeypatch.setattr("mpmtl_prob.inference.owner.answers.shared_covariance", lambda *_, **__: shared)
    again = mp.inference.posterior_draws(tasks, likelihood=mine)(release)
    assert again.shape == own.W.shape
    assert mp.NoiseAware(likelihood=mine, draws=20, **QUICK).fit(tasks).likelihood == mine


def test_a_likelihood_without_intercepts_says_so(written, tasks):
    constant = tasks.with_intercept()
    with pytest.raises(ValueError, match="likelihood: 'known error' knows no intercept"):
        mp.inference.posterior_draws(constant, likelihood=written("known_error").KnownError(0.5))
