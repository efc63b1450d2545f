"""Toys written outside the package as docs/extend.md says, taken all the way."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import mpmtl_prob as mp
from mpmtl_prob import Prediction, TaskData
from mpmtl_prob.inference import Likelihood, OwnerPosteriors, SharedPosterior, Structure
from mpmtl_prob.inference.owner.likelihoods import GAUSSIAN
from mpmtl_prob.inference.public.structures import Reading
from mpmtl_prob.models import shared_covariance as model

QUICK = {"chains": 2, "warmup": 200, "progress_bar": False}


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((2, 12))
    X = rng.standard_normal((12, 10, 2))
    return TaskData.from_lists(list(X), list(np.einsum("tnj,jt->tn", X, W) + 0.5 * rng.standard_normal((12, 10))))


# -- a structure -----------------------------------------------------------------------------------------------------


def all_alike(observed):
    """w_i ~ N(0, phi I): A ~ Wishart(m, phi I) behind the release."""
    d, m = jnp.shape(observed.precision)[-1], observed.num_tasks
    log_phi = numpyro.deterministic("log_phi", observed.log_phi_mean + 2 * numpyro.sample("z", dist.Normal(0, 1)))
    numpyro.deterministic("Omega", jnp.exp(log_phi) * jnp.eye(d))
    log_root = 0.5 * (log_phi + jnp.log(m))
    root = jnp.exp(log_root) * jnp.swapaxes(jnp.asarray(observed.eigenvectors), -1, -2)
    found = model.second_moment(observed, model.triangular(observed, observed.hidden), root, d * log_root)
    scaled = jnp.trace(found.A) * jnp.exp(-log_phi)
    numpyro.factor("A_prior", 0.5 * ((m - d - 1) * found.log_det - m * d * log_phi - scaled))


class AllAlike(Structure):
    """Every feature for itself, and all of the same variance."""

    name = "all alike"
    rotation_invariant = True

    def reading(self, release):
        d = release.num_features
        return Reading(all_alike, {"z": 0.0, "log_diagonal": np.zeros(d), "off_diagonal": np.zeros(d * (d - 1) // 2)})

    def prior(self, num_features, num_draws, seed):
        return np.broadcast_to(np.eye(num_features), (num_draws, num_features, num_features))


def test_a_structure_of_ones_own_goes_all_the_way(tasks, tmp_path):
    release = mp.release(tasks, epsilon=5.0)
    shared = mp.inference.shared_covariance(release, structure=AllAlike(), draws=100, **QUICK)
    assert shared.structure_in_words() == "all alike, as asked for"
    assert "Structure: all alike" in str(shared.diagnose())
    assert_allclose(shared.shape(), np.eye(2), atol=1e-12)
    assert mp.inference.membership(shared, np.eye(2)).probability.shape == (2,)
    own = mp.inference.task_posteriors(tasks, shared, draws=20)
    assert own.predict(tasks).mean.shape == tasks.y.shape
    assert "all alike" in repr(shared)
    assert own.to_arviz().attrs["seat"] == "owner"

    for kept in (shared, own):
        kept.save(tmp_path / "kept.nc")
        back = type(kept).load(tmp_path / "kept.nc", structure=AllAlike())
        assert repr(back) == repr(kept)
        with pytest.raises(ValueError, match=r"structure: expected one of 'auto', .*, got 'all alike'"):
            type(kept).load(tmp_path / "kept.nc")

    whole = mp.NoiseAware(structure=AllAlike(), draws=20, **QUICK).fit(tasks)
    assert isinstance(whole, OwnerPosteriors)
    assert isinstance(whole.shared, SharedPosterior)
    with pytest.raises(ValueError, match="structure: expected one of"):
        mp.inference.shared_covariance(release, structure=AllAlike)


def test_its_posterior_is_that_of_quadrature():
    W = np.random.default_rng(1).standard_normal((1, 6))
    release = mp.release(W, 20.0, 1e-3, message="clip", clip=2.0)
    shared = mp.inference.shared_covariance(release, structure=AllAlike(), draws=1000, **QUICK)
    found = shared.to_arviz()["posterior/log_phi"].values

    law, sigma, m = release.mechanisms[0], release.sigma[0, 0, 0], 6
    z = np.linspace(-6, 6, 801)[:, None]
    log_phi = np.log(law.clip**2) + 2 * z
    a = sigma * (np.arange(2000) + 0.5) / 2000
    noise = stats.gamma(law.df / 2, scale=2 * law.scale).logpdf(sigma - a)
    log_p = stats.norm.logpdf(z) + stats.gamma(m / 2, scale=2 * np.exp(log_phi)).logpdf(a) + noise
    p = np.exp(log_p - log_p.max()).sum(axis=1)
    mean = np.sum(p * log_phi[:, 0]) / p.sum()
    sd = np.sqrt(np.sum(p * (log_phi[:, 0] - mean) ** 2) / p.sum())
    assert_allclose(
        found.mean(), mean, atol=6 * sd / np.sqrt(100)
    )  # of 2000 draws, far more than a hundred are worth one
    assert_allclose(found.std(), sd, rtol=0.5)


# -- a likelihood ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfKnownError:
    """w_i ~ N(mean_i, C_i C_i') for every task."""

    mean: np.ndarray
    roots: list
    log_evidence: np.ndarray

    def sample(self, rng, num_samples):
        each = [rng.standard_normal((num_samples, len(C))) @ C.T for C in self.roots]
        return {"W": self.mean + np.stack(each, axis=-1)}


@dataclass(frozen=True)
class KnownError(Likelihood):
    """y ~ N(X w, sd^2), w ~ N(0, S Omega S), with nothing to learn beside w."""

    sd: float
    name = "known error"

    def given(self, tasks, omega, scale):
        means, roots, evidence = [], [], []
        for i in range(tasks.num_tasks):
            X, y = tasks.own(i)
            S = np.eye(X.shape[1]) if scale is None else np.diag(scale[i])
            prior = S @ (np.eye(len(S)) if omega is None else omega) @ S
            V = np.linalg.inv(X.T @ X / self.sd**2 + np.linalg.inv(prior))
            means.append(V @ X.T @ y / self.sd**2)
            roots.append(np.linalg.cholesky(V))
            evidence.append(stats.multivariate_normal(cov=X @ prior @ X.T + self.sd**2 * np.eye(len(y))).logpdf(y))
        return OfKnownError(np.stack(means, axis=1), roots, np.array(evidence))

    def predict(self, tasks, W, draws, pick, seed):
        mean = np.einsum("tnj,sjt->stn", tasks.X, draws["W"][pick])
        found = mean + self.sd * np.random.default_rng(seed).standard_normal(mean.shape)
        return Prediction(np.einsum("tnj,jt->tn", tasks.X, W), tasks.mask, tasks.tasks, found)


def test_a_likelihood_of_ones_own_goes_all_the_way(tasks, tmp_path):
    release = mp.release(tasks, epsilon=5.0)
    shared = mp.inference.shared_covariance(release, draws=100, **QUICK)
    mine = KnownError(0.5)
    own = mp.inference.task_posteriors(tasks, shared, likelihood=mine, sharpness=1.0, draws=2500, progress_bar=False)

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
        mp.inference.task_posteriors(tasks, shared, likelihood=mine, method="joint", sharpness=1.0, progress_bar=False)

    assert "known error" in repr(own)
    assert own.diagnose().draws == shared.diagnose().draws
    own.save(tmp_path / "own.nc")
    back = OwnerPosteriors.load(tmp_path / "own.nc", likelihood=mine)
    assert_allclose(back.predict(tasks, 3).draws, own.predict(tasks, 3).draws)
    with pytest.raises(ValueError, match="likelihood: expected one of 'gaussian', 'bernoulli', got 'known error'"):
        OwnerPosteriors.load(tmp_path / "own.nc")
    with pytest.raises(ValueError, match="likelihood: expected 'known error' as in the file, got 'gaussian'"):
        OwnerPosteriors.load(tmp_path / "own.nc", likelihood=GAUSSIAN)
    again = mp.inference.posterior_draws(tasks, likelihood=mine)(release)
    assert again.shape == own.W.shape
    assert mp.NoiseAware(likelihood=mine, draws=20, **QUICK).fit(tasks).likelihood == mine


def test_a_likelihood_without_intercepts_says_so(tasks):
    constant = tasks.with_intercept()
    with pytest.raises(ValueError, match="likelihood: 'known error' knows no intercept"):
        mp.inference.posterior_draws(constant, likelihood=KnownError(0.5))
