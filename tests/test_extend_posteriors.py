"""Toys written outside the package as docs/extend.md says, taken all the way."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior, Structure
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
