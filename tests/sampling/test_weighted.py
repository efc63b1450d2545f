"""Weighted points of a normal law, against laws in closed form, and where they must not be trusted."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy.stats import gamma, kstest, norm

from mpmtl_prob.sampling import weighted
from mpmtl_prob.sampling.compiled_density import CompiledDensity
from mpmtl_prob.sampling.importance import smoothed, systematic
from mpmtl_prob.sampling.weighted import Weights, fitted, weighted_draws

MEAN = np.array([3.0, -2.0, 0.5])
ROOT = np.array([[2.0, 0.0, 0.0], [0.9, 0.3, 0.0], [-1.0, 0.2, 0.1]])


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def normal():
    numpyro.sample("x", dist.MultivariateNormal(jnp.asarray(MEAN), scale_tril=jnp.asarray(ROOT)))
    numpyro.deterministic("twice", 2 * numpyro.sample("y", dist.Normal(1.0, 0.2)))


def skewed():
    numpyro.sample("x", dist.Gamma(4.0, 2.0).expand([5]))  # its logarithm is sampled


def heavy():
    numpyro.sample("x", dist.Cauchy(0.0, 1.0).expand([5]))


def funnel():
    size = numpyro.sample("size", dist.Normal(0, 3))
    numpyro.sample("x", dist.Normal(0, jnp.exp(0.5 * size)).expand([9]))


def drawn(model, start, *, keep=("x",), wanted=400, seed=0):
    density, rng = CompiledDensity(model, (), start, keep), np.random.default_rng(seed)
    return weighted_draws(density, fitted(density, density.start, rng), shape=(4, 300), wanted=wanted, rng=rng)


def test_a_normal_law_is_found_as_it_is():
    draws, weights = drawn(normal, {"x": np.zeros(3), "y": 0.0}, keep=("x", "twice"))
    assert weights.bear(1000)
    assert weights.points == 4096
    x = draws["x"].reshape(-1, 3)
    assert draws["twice"].shape == draws["lp"].shape == (4, 300)
    assert np.allclose(x.mean(axis=0), MEAN, atol=0.1 * np.sqrt((ROOT**2).sum(axis=1)))
    assert np.allclose(np.cov(x.T), ROOT @ ROOT.T, rtol=0.1, atol=0.02)
    assert np.allclose(draws["twice"].mean(), 2.0, atol=0.03)


def test_the_fit_finds_a_normal_law_whatever_its_widths():
    place, variance = np.array([0.5, 4.0]), np.array([1e-2, 9.0])
    law = fitted(lambda x: (None, (x - place) / variance, {}), np.zeros(2), np.random.default_rng(0))
    assert np.allclose(law.mean, place, atol=1e-3)
    assert np.allclose(law.root @ law.root.T, np.diag(variance), rtol=0.01, atol=1e-4)


def is_gamma(draws, limit=0.05):
    """Tell whether draws (4, 300, 5) are of Gamma(4, 2), by their ranks; resampled points are somewhat fewer."""
    return all(kstest(draws[..., j].ravel(), gamma(4.0, scale=0.5).cdf).statistic < limit for j in range(5))


def test_weights_mend_what_is_not_normal():
    draws, weights = drawn(skewed, {"x": np.zeros(5)})
    assert weights.bear(400)
    assert is_gamma(draws["x"])


@pytest.mark.parametrize("broken", ["the density is left out", "a change of volume is forgotten"])
def test_a_broken_weight_is_caught(broken, monkeypatch):
    right = weighted._weighed

    def wrong(density, law, u):
        ratio, values = right(density, law, u)
        if broken == "the density is left out":
            return np.zeros_like(ratio), values
        return ratio - (law.mean + u @ law.root.T).sum(axis=1), values  # of x and its logarithm

    monkeypatch.setattr(weighted, "_weighed", wrong)
    draws, weights = drawn(skewed, {"x": np.zeros(5)})
    assert not (weights.bear(400) and is_gamma(draws["x"]))


@pytest.mark.parametrize(("model", "sites"), [(heavy, {"x": np.zeros(5)}), (funnel, {"size": 0.0, "x": np.zeros(9)})])
def test_weights_of_a_law_that_is_far_from_normal_say_so(model, sites):
    for seed in range(3):
        _, weights = drawn(model, sites, seed=seed)
        assert not weights.bear(400), weights


def test_points_without_a_density_weigh_nothing():
    weight, said = weighted._judged(np.array([0.0, -np.inf, np.nan, -0.1] * 100), np.zeros(400))
    assert weight[1::4].max() == weight[2::4].max() == 0.0
    assert said.ess == pytest.approx(200, rel=0.1)
    assert not weighted._judged(np.full(400, -np.inf), np.zeros(400))[1].bear(1)


def test_equal_arguments_give_equal_draws_and_seeds_differ():
    """The same arguments give the same draws, and another seed gives others."""
    start = {"x": np.zeros(5)}
    (first, _), (again, _), (other, _) = drawn(skewed, start), drawn(skewed, start), drawn(skewed, start, seed=1)
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])


def test_weights_say_how_many_draws_they_are_worth():
    sound = Weights(0.512, 812.4, 4096, 1.1)
    assert str(sound) == "k-hat 0.51, 812 effective draws of 4096 weighted points"
    assert sound.bear(812)
    for worse in ({"ess": 399.0}, {"khat": 0.71}, {"khat": np.nan}, {"far_out": 2.1}):
        assert not sound._replace(**worse).bear(400)
    assert "do not reach far enough (2.1)" in str(sound._replace(far_out=2.1))


@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("number", [60, 1000])
def test_smoothed_weights_are_those_of_arviz(sd, number):
    import arviz_stats  # noqa: F401 - gives arrays their .azstats

    ratio = sd * np.random.default_rng(0).standard_normal((2, number))
    log_weight, khat = xr.DataArray(-ratio, dims=("task", "sample")).azstats.psislw(dim="sample")
    expected = np.exp(log_weight.transpose("task", "sample").values)
    ours, own_khat = smoothed(ratio)
    assert np.allclose(ours, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    assert np.allclose(own_khat, khat.values, rtol=1e-9)


def test_points_are_kept_as_often_as_they_weigh():
    weight = np.array([0.5, 0.25, 0.0, 0.25])
    assert np.bincount(systematic(weight, 8, 0.3), minlength=4).tolist() == [4, 2, 0, 2]


def test_fitted_points_have_one_in_every_stratum_of_a_coordinate():
    points = weighted._spread(128, 9, np.random.default_rng(0))
    strata = np.floor(128 * norm.cdf(points)).astype(int)
    assert np.array_equal(np.sort(strata, axis=0), np.tile(np.arange(128)[:, None], (1, 9)))
    assert np.abs(np.corrcoef(points.T) - np.eye(9)).max() < 0.4  # coordinates are in orders of their own
