"""The mixed model by weighted points and by short chains, beside NUTS, beside the truth, and where each takes over."""

from functools import lru_cache

import jax
import numpy as np
import pytest
from helpers.effort import effort
from test_shared_effects import LAWS, ranks_among, simulated

import mpmtl_prob as mp
from mpmtl_prob.inference import SharedEffects, Until, shared_effects, task_posteriors
from mpmtl_prob.inference.public.effects_draws import density_of, judged_of, start_of
from mpmtl_prob.sampling import short_chains as chains_module
from mpmtl_prob.sampling.calibration import uniformity
from mpmtl_prob.sampling.short_chains import short_chains
from mpmtl_prob.sampling.weighted import fitted, weighted_draws

#: How far two posteriors of some 700 effective draws each may be apart: means and ends of 90 % intervals, in standard
#: deviations, and logarithms of standard deviations. By chance alone differences of means have a standard deviation of .05,
#: those of ends .11: these are four or five times as much. Owners' rest on a hundred of the public draws.
APART = {"public": {"mean": 0.25, "log sd": 0.25, "ends": 0.5}, "owners": {"mean": 0.5, "log sd": 0.4, "ends": 0.9}}


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def study(d, m=30, n=100, seed=0):
    """Hospitals that differ, with rows that say a lot of each."""
    rng = np.random.default_rng([seed, d])
    names = [f"x{j}" for j in range(d)]
    beta = np.linspace(-0.5, 0.5, d + 2)[1:-1] + 0.4 / np.sqrt(d) * rng.standard_normal((m, d))
    X = [rng.standard_normal((n, d)) for _ in range(m)]
    y = [x @ b + 0.8 * rng.standard_normal(n) for x, b in zip(X, beta, strict=True)]
    return mp.TaskData.from_lists(X, y, features=names), mp.Reference.standard(names)


def compared(d, epsilon, draws=600, seed=0):
    """Return the largest differences from NUTS by kind, and what the weights said; None where NUTS had to take over."""
    tasks, reference = study(d, seed=seed)
    release = mp.release(tasks, epsilon, reference=reference, unsafe_seed=seed)
    points = shared_effects(release, sampler="weighted", draws=draws, progress_bar=False)
    if points.sampler == "nuts":
        return None, points.weights
    chains = shared_effects(release, draws=draws, progress_bar=False)
    assert chains.weights is None
    assert chains.sampler == "nuts"
    apart = {}
    for name, draws_of in (("public", public_draws), ("owners", lambda shared: owners_draws(tasks, shared, draws))):
        ours, theirs = draws_of(points), draws_of(chains)
        sd = theirs.std(axis=0)
        ends = [np.quantile(each, [0.05, 0.95], axis=0) for each in (ours, theirs)]
        apart[name] = {
            "mean": np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / sd,
            "log sd": np.abs(np.log(ours.std(axis=0) / sd)),
            "ends": np.abs(ends[0] - ends[1]) / sd,
        }
    return apart, points.weights


def over(apart):
    """Return the differences that are larger than chance explains."""
    return {
        (name, kind): values.max()
        for name, kinds in apart.items()
        for kind, values in kinds.items()
        if values.max() > APART[name][kind]
    }


def public_draws(shared):
    """Average effects and the logarithms of their spread, (S, 2 d)."""
    tau = np.sqrt(np.diagonal(shared.draws("Omega"), axis1=1, axis2=2))
    return np.hstack([shared.draws("mu"), np.log(tau)])


def owners_draws(tasks, shared, draws):
    """Coefficients of two owners, (S, 2 d)."""
    own = task_posteriors(tasks.take(range(2)), shared, leave_one_out="off", draws=draws)
    return own.to_arviz(pointwise=False)["posterior"]["W"].values.reshape(4 * draws, -1)


@pytest.mark.parametrize(
    ("d", "epsilon"),
    [
        (3, 3.0),
        *(
            pytest.param(d, epsilon, marks=pytest.mark.evidence)
            for d in (1, 3, 10)
            for epsilon in (0.3, 1.0, 3.0)
            if (d, epsilon) != (3, 3.0)
        ),
    ],
)
def test_weighted_points_are_those_of_chains(d, epsilon):
    apart, weights = compared(d, epsilon)
    if apart is None:
        assert not weights.bear(400)
        return
    assert over(apart) == {}


@lru_cache
def simulated_posteriors(replications):
    """Draws (replication, draw, ...) of simulated releases that weighted points will do for, and the truth behind these."""
    truths, data = simulated(LAWS["wishart"], replications)
    usable, true = [], []
    for seed, (seen, truth) in enumerate(zip(data, truths, strict=True)):
        density, rng = density_of("full", (seen, ()), start_of(seen, "full")), np.random.default_rng(seed)
        law = fitted(density, density.start, rng)
        draws, weights = weighted_draws(density, law, shape=(1, 19), wanted=100, rng=rng)
        if weights.bear(100):
            usable.append({name: values[0] for name, values in draws.items()})
            true.append(truth)
    return {k: np.stack([each[k] for each in usable]) for k in usable[0]}, true


def test_weighted_points_are_calibrated_where_weights_suffice():
    """Weighted points are calibrated wherever their weights are good enough to be used.

    The choice of these releases depends on the releases alone, so that ranks are uniform among them too.
    """
    posteriors, true = simulated_posteriors(effort(40, 400))
    assert len(true) > 0.3 * effort(40, 400)
    assert min(uniformity(rank) for rank in ranks_among(posteriors, true).values()) > 1e-3


def test_calibration_catches_points_that_lie_too_close_together():
    posteriors, true = simulated_posteriors(effort(40, 400))
    middle = posteriors["mu"].mean(axis=1, keepdims=True)
    ranks = ranks_among(posteriors | {"mu": middle + 0.3 * (posteriors["mu"] - middle)}, true)
    assert uniformity(ranks["mu"]) < 1e-3


@lru_cache
def posteriors_of_short_chains(replications):
    """Draws of short chains (replication, draw, ...) of simulated releases, and the truth behind these."""
    truths, data = simulated(LAWS["wishart"], replications)
    every, agreements = [], []
    for seed, seen in enumerate(data):
        density, rng = density_of("full", (seen, ()), start_of(seen, "full")), np.random.default_rng(seed)
        law = fitted(density, density.start, rng)
        draws, _, agreement = short_chains(
            density, law, judged_of, shape=(4, 38), wanted=150, rng=rng, progress_bar=False
        )
        every.append({name: values[:, ::8].reshape(-1, *values.shape[2:])[:19] for name, values in draws.items()})
        agreements.append(agreement)
    return {k: np.stack([each[k] for each in every]) for k in every[0]}, truths, agreements


def test_short_chains_are_calibrated():
    posteriors, true, agreements = posteriors_of_short_chains(effort(20, 200))
    assert np.mean([agreement.bear(100) for agreement in agreements]) > 0.9
    assert min(uniformity(rank) for rank in ranks_among(posteriors, true).values()) > 1e-3


def test_calibration_catches_short_chains_too_close_together():
    posteriors, true, _ = posteriors_of_short_chains(effort(20, 200))
    middle = posteriors["mu"].mean(axis=1, keepdims=True)
    ranks = ranks_among(posteriors | {"mu": middle + 0.3 * (posteriors["mu"] - middle)}, true)
    assert uniformity(ranks["mu"]) < 1e-3


@pytest.fixture(scope="module")
def points():
    tasks, reference = study(3, seed=4)  # its weights are far from the limits
    release = mp.release(tasks, 3.0, reference=reference, unsafe_seed=4)
    return shared_effects(release, sampler="weighted", draws=200, progress_bar=False)


def test_it_is_said_that_there_are_no_chains(points):
    diagnosis = points.diagnose()
    assert points.sampler == "weighted"
    assert diagnosis.sound
    assert diagnosis.khat == points.weights.khat
    assert "weighted points" in str(diagnosis)
    assert "no chains" in str(diagnosis)
    with pytest.raises(ValueError, match="holds no chains"):
        points.extend()


def test_a_file_keeps_what_the_weights_said(points, tmp_path):
    points.save(tmp_path / "shared.nc")
    loaded = SharedEffects.load(tmp_path / "shared.nc")
    assert (loaded.sampler, loaded.weights) == ("weighted", points.weights)
    assert np.allclose(loaded.draws("mu"), points.draws("mu"), rtol=1e-5)


@pytest.mark.parametrize("sampler", ["short chains", "nuts"])
def test_chains_take_over_where_weights_are_poor(sampler, monkeypatch, tmp_path):
    monkeypatch.setattr("mpmtl_prob.sampling.weighted.KHAT_LIMIT", -1.0)
    if sampler == "nuts":
        monkeypatch.setattr(chains_module, "RHAT_LIMIT_OF_MANY", -1.0)
    tasks, reference = study(1)
    release = mp.release(tasks, 1.0, reference=reference, unsafe_seed=0)
    shared = shared_effects(release, sampler="weighted", chains=2, warmup=200, draws=200, progress_bar=False)
    assert shared.sampler == sampler
    assert shared.draws("mu").shape == (400, 1)
    diagnosis = shared.diagnose()
    assert diagnosis.khat is None
    assert diagnosis.rhat
    assert f"weighted points would not do: {shared.weights}" in str(diagnosis)
    assert (shared.agreement is not None) == (sampler == "short chains")
    if shared.agreement is not None:
        assert (diagnosis.ess, diagnosis.rhat) == tuple({"short chains": value} for value in shared.agreement)
    shared.save(tmp_path / "shared.nc")
    loaded = SharedEffects.load(tmp_path / "shared.nc")
    assert loaded.sampler == sampler
    assert loaded.agreement == shared.agreement
    assert str(loaded.diagnose()) == str(diagnosis)


@pytest.mark.evidence
def test_short_chains_are_those_of_nuts(monkeypatch):
    """Short chains give what NUTS gives."""
    monkeypatch.setattr("mpmtl_prob.sampling.weighted.KHAT_LIMIT", -1.0)
    apart, _ = compared(3, 3.0, draws=300)
    assert over(apart) == {}


def test_what_goes_with_chains_alone_is_refused(points):
    with pytest.raises(ValueError, match="until: expected none with sampler='weighted'"):
        shared_effects(points.release, sampler="weighted", until=Until(ess=100), progress_bar=False)
    with pytest.raises(ValueError, match="sampler: expected one of 'nuts', 'weighted'"):
        shared_effects(points.release, sampler="laplace", progress_bar=False)
