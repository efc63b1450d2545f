"""Many short chains, against distributions in closed form, and where they must not be trusted."""

import arviz_stats as az
import jax
import numpy as np
import pytest
import xarray as xr
from test_weighted import MEAN, ROOT, funnel, is_gamma, normal, skewed

from mpmtl_prob.sampling import short_chains as module
from mpmtl_prob.sampling.compiled_density import CompiledDensity
from mpmtl_prob.sampling.short_chains import Agreement, short_chains
from mpmtl_prob.sampling.weighted import Normal, fitted

#: Limit of the statistic of Kolmogorov and Smirnov, which 800 independent draws exceed with a probability of .001.
LIMIT = 1.95 / np.sqrt(800)


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def drawn(model, start, *, keep=("x",), seed=0, law=None, wanted=800):
    density, rng = CompiledDensity(model, (), start, keep), np.random.default_rng(seed)
    watched = lambda sites: {name: sites[name] for name in keep}
    law = fitted(density, density.start, rng) if law is None else law
    return short_chains(density, law, watched, shape=(4, 300), wanted=wanted, rng=rng, progress_bar=False)


def test_a_normal_distribution_is_sampled_as_it_is():
    draws, statistics, agreement = drawn(normal, {"x": np.zeros(3), "y": 0.0}, keep=("x", "twice"))
    assert agreement.bear(800)
    x = draws["x"].reshape(-1, 3)
    assert draws["twice"].shape == statistics["lp"].shape == statistics["diverging"].shape == (4, 300)
    assert not statistics["diverging"].any()
    assert np.allclose(x.mean(axis=0), MEAN, atol=0.12 * np.sqrt((ROOT**2).sum(axis=1)))
    assert np.allclose(np.cov(x.T), ROOT @ ROOT.T, rtol=0.15, atol=0.02)
    assert np.allclose(draws["twice"].mean(), 2.0, atol=0.05)


def test_chains_leave_a_fit_that_is_off():
    """Chains find the distribution from a start that is several standard deviations away and has other widths."""
    far = Normal(np.log(np.full(5, 2.0)) + 2.0, 0.5 * np.eye(5))
    draws, _, agreement = drawn(skewed, {"x": np.zeros(5)}, law=far)
    assert agreement.bear(400)
    assert is_gamma(draws["x"], LIMIT)


@pytest.mark.parametrize("broken", ["every trajectory is accepted", "energies are those of other chains"])
def test_a_broken_transition_is_caught(broken, monkeypatch):
    if broken == "every trajectory is accepted":
        monkeypatch.setattr(module._State, "where", lambda self, accepted, other: self)
        monkeypatch.setattr(module, "_ACCEPTANCE", 0.6)
    else:
        right = module._at

        def wrong(density, law, u):
            state = right(density, law, u)
            return state._replace(energy=np.zeros_like(state.energy))

        monkeypatch.setattr(module, "_at", wrong)
        monkeypatch.setattr(module, "_STRIDES", (0.0, 0.0, 0.0))  # as if the step size were still fine
    draws, _, agreement = drawn(skewed, {"x": np.zeros(5)})
    assert not (agreement.bear(400) and is_gamma(draws["x"], LIMIT))


def test_chains_in_the_neck_of_a_funnel_do_not_agree():
    for seed in range(3):
        _, statistics, agreement = drawn(funnel, {"size": 0.0, "x": np.zeros(9)}, keep=("size",), seed=seed)
        assert not agreement.bear(400) or statistics["diverging"].any()


def test_chains_that_stay_where_they_began_are_not_trusted(monkeypatch):
    monkeypatch.setattr(module._State, "where", lambda self, accepted, other: other)
    _, _, agreement = drawn(skewed, {"x": np.zeros(5)})
    assert not agreement.bear(1)


def test_hopeless_chains_end_after_three_rounds(monkeypatch):
    """At the pace of the first three rounds, twelve would have a few of the draws that are wanted."""
    rounds = []
    judged = module._agreement
    monkeypatch.setattr(module, "_agreement", lambda *given: rounds.append(0) or judged(*given))
    assert not drawn(normal, {"x": np.zeros(3), "y": 0.0}, wanted=1e6)[2].bear(1e6)
    assert len(rounds) == 3


def test_effective_draws_follow_from_autocorrelations():
    """Autoregressive chains of coefficient .6 have a quarter of their draws as effective ones: (1 - .6) / (1 + .6)."""
    rng = np.random.default_rng(0)
    chains = np.empty((400, 200))
    chains[:, 0] = rng.standard_normal(400)
    for t in range(1, 200):
        chains[:, t] = 0.6 * chains[:, t - 1] + 0.8 * rng.standard_normal(400)
    agreement = module._agreement({"x": chains}, 4)
    assert agreement.ess == pytest.approx(0.25 * chains.size, rel=0.1)
    whole = xr.Dataset({"x": (("chain", "draw"), chains)})
    assert agreement.ess == pytest.approx(float(az.ess(whole, method="mean")["x"]), rel=0.1)
    assert agreement.rhat < 1.001
    shorter = module._agreement({"x": chains[:32, :25]}, 4)  # as many as a first round has
    assert shorter.ess == pytest.approx(0.25 * 800, rel=0.5)
    apart = chains + np.repeat([0.0, 0.0, 0.0, 1.0], 100)[:, None]
    assert module._agreement({"x": apart}, 4).rhat > 1.1


def test_equal_arguments_give_equal_draws():
    start = {"x": np.zeros(5)}
    assert np.array_equal(drawn(skewed, start)[0]["x"], drawn(skewed, start)[0]["x"])


@pytest.mark.parametrize("worse", [Agreement(399.0, 1.0), Agreement(500.0, 1.06), Agreement(np.nan, 1.0)])
def test_what_is_not_enough(worse):
    assert Agreement(400.0, 1.01).bear(400)
    assert not worse.bear(400)
