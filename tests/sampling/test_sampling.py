"""Every sampler against laws known in closed form or by quadrature, and calibration on data from the model."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from helpers.effort import effort
from helpers.quickly import quickly
from numpyro.infer import NUTS
from scipy.integrate import quad

from mpmtl_prob import TaskData
from mpmtl_prob.inference import ProximalLangevin
from mpmtl_prob.models import GroupLaplace, TraceNormPrior, group_sparse, low_rank, penalised
from mpmtl_prob.privacy import Wishart
from mpmtl_prob.sampling import calibration as simulation
from mpmtl_prob.sampling import chains
from mpmtl_prob.sampling._threefry import keys
from mpmtl_prob.sampling.calibration import Setting, rank_statistics, uniformity
from mpmtl_prob.sampling.diagnostics import Remedies, diagnose
from mpmtl_prob.sampling.flat import FlatNUTS

CHAINS = 64
#: Of a sampler that the other laws test in `make test`: each compiles a program of its own.
LONG = pytest.mark.evidence


def sample(kernel, *args, warmup=200, draws=200, thin=1, count=CHAINS):
    """Many short chains: their means are independent, which gives an honest standard error."""
    compiled = chains.program(kernel, warmup, thin)
    reached = chains.init(compiled, args, chains=count, seed=1)
    steps = chains.advance(compiled, kernel, args, reached, warmup=warmup, draws=draws, thin=thin, progress_bar=False)
    return chains.join([part for _, part, _ in steps if part is not None])


def agrees(values, expected, sigmas=4.5, room=0.0):
    """Tell whether the mean over chains and draws is the expectation, within its standard error over chains and some room."""
    means = values.reshape(len(values), -1).mean(1)
    return abs(means.mean() - expected) < room + sigmas * means.std(ddof=1) / np.sqrt(len(means))


def lasso(y, rate, smoothing, prior=TraceNormPrior):
    """d = m = 1: the Bayesian lasso, y ~ N(w, 1), w ~ Laplace."""
    W = numpyro.sample("W", prior(rate, (1, 1), smoothing=smoothing))
    numpyro.sample("y", dist.Normal(W[0, 0], 1.0), obs=y)


#: With data of four tasks of six rows and two features, a program of test_kernels.py.
SHALLOW = partial(NUTS, max_tree_depth=4)
SAMPLERS = {
    "NUTS, plain gradients": (NUTS, {"smoothing": None}, {}),
    "NUTS, proximal gradients": (SHALLOW, {"smoothing": 0.5}, {"warmup": 60, "draws": 100, "thin": 3}),
    "adjusted Langevin": (ProximalLangevin, {"smoothing": 0.5, "prior": GroupLaplace}, {"thin": 8}),
}


def orthogonal():
    """Tasks whose features are orthonormal, as the model reads them, and the weights that fit each alone (feature, task)."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((4, 6, 2)))[0]
    y = X @ np.array([1.5, 0.4]) + 0.7 * rng.standard_normal((4, 6, 1))[..., 0]
    data = penalised.observe(
        group_sparse, TaskData.from_lists(list(X), list(y)), rate=1.0, sigma=0.7, precondition=False
    )
    return data, np.einsum("tni,tn->it", X, y)


@pytest.mark.parametrize("warmup", [pytest.param(5, marks=LONG), 60, pytest.param(0, marks=LONG)])
def test_a_first_state_of_nuts_is_numpyros_own(warmup):
    kernel = SHALLOW(group_sparse)
    args = (orthogonal()[0],)
    start = {"W": np.full((2, 4), 0.3)}
    (key,) = keys(0, 1)
    state = chains.program(kernel, warmup).init(key, start, args)
    init = quickly(lambda key, start, args: kernel.init(key, warmup, start, args, {}))
    expected = init(key, start, args)
    for name in ("z", "z_grad", "potential_energy", "rng_key", "adapt_state"):
        jax.tree.map(same, getattr(state, name), getattr(expected, name))


def test_group_sparse_weights_are_a_scale_mixture_of_gaussians():
    """Group-sparse weights drawn by NUTS are a scale mixture of Gaussians."""
    # w | v ~ N(0, v I_m), v ~ Gamma((m + 1)/2, rate^2/2): given v all is conjugate, and v is integrated on the line
    data, alone = orthogonal()
    W = sample(SHALLOW(group_sparse), data, warmup=60, draws=effort(100, 300))["W"]
    variance, prior = 0.7**2, st.gamma(5 / 2, scale=2 * 0.7**2)
    for j in range(2):
        evidence = lambda v, j=j: prior.pdf(v) * np.prod(st.norm(0, np.sqrt(v + variance)).pdf(alone[j]))
        total = quad(evidence, 0, 80)[0]
        average = lambda f, evidence=evidence, total=total: quad(lambda v: f(v) * evidence(v), 0, 80)[0] / total
        share = average(lambda v: v / (v + variance))
        square = average(lambda v: (v / (v + variance)) ** 2)
        for i in range(4):
            assert agrees(W[:, :, j, i], share * alone[j, i], sigmas=6.0)
            assert agrees(W[:, :, j, i] ** 2, square * alone[j, i] ** 2 + share * variance, sigmas=6.0)


def test_nuts_of_one_vector_starts_as_told_and_constrains_draws():
    """NUTS of one vector starts where it is told, and returns constrained draws."""

    def normal(y):
        W = numpyro.sample("W", dist.Normal(0.0, 2.0).expand([2, 3]).to_event(2))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.deterministic("size", jnp.sum(W**2))
        numpyro.sample("y", dist.Normal(W, scale).to_event(2), obs=y)

    args, start = (np.arange(6.0).reshape(2, 3),), {"W": np.full((2, 3), 0.5), "scale": np.array(0.2)}
    kernel = FlatNUTS(normal, depth=5)
    compiled, key = chains.program(kernel, 20), keys(0, 2)[1]
    state = compiled.first(key, start, args)  # the gradient is tested in test_shared_covariance.py
    expected = quickly(lambda key: kernel.init(key, 20, start, args, {}))(key)
    for name in ("z", "rng_key", "adapt_state"):
        jax.tree.map(same, getattr(state, name), getattr(expected, name))
    draws = compiled.constrain(jax.tree.map(lambda x: x[None], state.z), args)
    jax.tree.map(same, draws, {"W": start["W"][None], "scale": np.exp(start["scale"])[None], "size": np.array([1.5])})
    assert chains.most_steps(FlatNUTS(normal)) == 255
    assert chains.most_steps(kernel) is None  # chosen for the model, so that reaching it is no warning


def same(a, b):
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    "name", [each if each == "adjusted Langevin" else pytest.param(each, marks=LONG) for each in SAMPLERS]
)
def test_bayesian_lasso_of_one_weight(name):
    make, options, how = SAMPLERS[name]
    y, rate = 0.8, 1.7
    density = lambda w, k=0: w**k * np.exp(-0.5 * (y - w) ** 2 - rate * abs(w))
    integral = [sum(quad(density, *ends, args=(k,))[0] for ends in ((-15, 0), (0, 15))) for k in range(3)]
    W = sample(make(partial(lasso, **options)), y, rate, **how)["W"]
    assert agrees(W, integral[1] / integral[0])
    assert agrees(W**2, integral[2] / integral[0])
    negative = quad(density, -15, 0)[0] / integral[0]
    assert agrees((W < 0).astype(float), negative)


def test_unadjusted_langevin_samples_the_moreau_envelope():
    """Unadjusted Langevin samples the Moreau envelope, up to the error of its step."""
    # MYULA's target as the step vanishes: exp(-f - envelope), the envelope of rate |w| being Huber's function
    y, rate, gamma = 0.8, 1.7, 0.5
    huber = lambda w: rate * abs(w) - gamma * rate**2 / 2 if abs(w) > gamma * rate else w**2 / (2 * gamma)
    density = lambda w, k=0: w**k * np.exp(-0.5 * (y - w) ** 2 - huber(w))
    integral = [quad(density, -15, 15, args=(k,), limit=200)[0] for k in range(3)]
    exact = quad(lambda w: w * np.exp(-0.5 * (y - w) ** 2 - rate * abs(w)), -15, 15, points=[0])[0] / sum(
        quad(lambda w: np.exp(-0.5 * (y - w) ** 2 - rate * abs(w)), *e)[0] for e in ((-15, 0), (0, 15))
    )
    model = partial(lasso, smoothing=gamma, prior=GroupLaplace)  # the same law, without decompositions
    kernel = ProximalLangevin(model, adjusted=False, step_size=0.15, adapt_step_size=False, adapt_mass_matrix=False)
    W = sample(kernel, y, rate, thin=80, draws=effort(100, 800), count=128)["W"]
    # a step of .15 moves moments by up to .01; the smoothing moves the mean by .06, ten standard errors and more
    assert agrees(W, integral[1] / integral[0], sigmas=5.5, room=0.01)
    assert agrees(W**2, integral[2] / integral[0], sigmas=5.5, room=0.01)
    assert abs(W.mean() - exact) > 0.02


def rows(X, y, rate, smoothing):
    W = numpyro.sample("W", GroupLaplace(rate, (1, 3), smoothing=smoothing))
    numpyro.sample("y", dist.Normal(X * W[0], 1.0).to_event(1), obs=y)


def mean_square(mean, variance):
    return lambda v: mean(v) ** 2 + variance(v)


@pytest.mark.evidence
@pytest.mark.parametrize("make", [NUTS, ProximalLangevin])
def test_group_laplace_is_a_scale_mixture_of_gaussians(make):
    # w | v ~ N(0, v I_m), v ~ Gamma((m + 1)/2, rate^2/2): given v all is conjugate, and v is integrated on the line
    X = np.array([1.0, 2.0, 0.3])
    y = np.array([0.5, -1.0, 2.0])
    rate = 1.3
    m = 3
    prior = st.gamma((m + 1) / 2, scale=2 / rate**2)
    evidence = lambda v: prior.pdf(v) * np.prod(st.norm(0, np.sqrt(1 + v * X**2)).pdf(y))
    total = quad(evidence, 0, 80)[0]
    average = lambda f: quad(lambda v: f(v) * evidence(v), 0, 80)[0] / total
    W = sample(make(partial(rows, smoothing=0.3)), X, y, rate, thin=1 if make is NUTS else 8)["W"][..., 0, :]
    for i in range(m):
        variance = lambda v, i=i: v / (1 + v * X[i] ** 2)
        mean = lambda v, i=i: v * X[i] * y[i] / (1 + v * X[i] ** 2)
        assert agrees(W[..., i], average(mean))
        assert agrees(W[..., i] ** 2, average(mean_square(mean, variance)))


def trace(rate, smoothing):
    W = numpyro.sample("W", TraceNormPrior(rate, (2, 2), smoothing=smoothing))
    numpyro.factor("tilt", -jnp.sum(W**2))


@LONG
@pytest.mark.parametrize("make", [NUTS, ProximalLangevin])
def test_trace_norm_of_two_by_two_agrees_with_quadrature(make):
    # exp(-rate (a + b) - a^2 - b^2) |a^2 - b^2| over singular values a, b
    rate, grid = 1.2, np.linspace(0, 6, 1201)
    a, b = np.meshgrid(grid, grid)
    weight = np.exp(-rate * (a + b) - a**2 - b**2) * np.abs(a**2 - b**2)
    average = lambda f: np.sum(f * weight) / np.sum(weight)
    W = sample(make(partial(trace, smoothing=0.4)), rate, thin=1 if make is NUTS else 8)["W"]
    s = np.linalg.svd(W, compute_uv=False)
    assert agrees(s.sum(-1), average(a + b))
    assert agrees(s[..., 1], average(np.minimum(a, b)))
    assert agrees((s**2).sum(-1), average(a**2 + b**2))


class HalfTheNoise(ProximalLangevin):
    """Accepts everything, with half the noise that its step size calls for."""

    def sample(self, state, model_args, model_kwargs):
        new = super().sample(state, model_args, model_kwargs)
        return new._replace(z=jax.tree.map(lambda a, b: a + 0.5 * (b - a), state.z, new.z))


class NoAsymmetry(ProximalLangevin):
    """Accepts by the potential alone, as if its proposal were symmetric."""

    def sample(self, state, model_args, model_kwargs):
        rng_key, key = jax.random.split(state.rng_key)
        h = state.adapt_state.step_size**2
        noise = jnp.sqrt(h) * jax.random.normal(key, state.z["W"].shape)
        z = {"W": state.z["W"] - 0.5 * h * state.z_grad["W"] + noise}
        energy, gradient = jax.value_and_grad(self._potential(model_args, model_kwargs))(z)
        accept = jnp.log(jax.random.uniform(jax.random.fold_in(key, 1))) < state.potential_energy - energy
        pick = lambda a, b: jnp.where(accept, a, b)
        return state._replace(
            i=state.i + 1,
            rng_key=rng_key,
            z={"W": pick(z["W"], state.z["W"])},
            z_grad={"W": pick(gradient["W"], state.z_grad["W"])},
            potential_energy=pick(energy, state.potential_energy),
        )


@LONG
@pytest.mark.parametrize("broken", [HalfTheNoise, NoAsymmetry])
def test_the_same_tests_catch_a_broken_sampler(broken):
    kernel = broken(partial(trace, smoothing=0.4), step_size=0.7, adapt_step_size=False, adapt_mass_matrix=False)
    with pytest.raises(AssertionError):
        test_trace_norm_of_two_by_two_agrees_with_quadrature(lambda _: kernel)


# -- calibration: the full version is studies/benchmarks/calibration.py ------------------------------------------------


@pytest.mark.evidence
def test_low_rank_posterior_with_a_release_is_calibrated():
    setting = Setting(noise=Wishart(2, 6.0, 0.1, 1.5))
    ranks_by_name = rank_statistics(low_rank, partial(NUTS, max_tree_depth=5), setting=setting, replications=150)
    assert min(uniformity(ranks) for ranks in ranks_by_name.values()) > 1e-7  # a false alarm


def test_chains_in_plain_coordinates_start_where_allowed():
    """Chains in plain coordinates start where a release allows them to be."""
    setting, rng = Setting(noise=Wishart(2, 6.0, 0.1, 1.5)), np.random.default_rng(0)
    for _ in range(10):
        truth, data = simulation._simulate(group_sparse, setting, False, rng)
        start = simulation._near_zero(data)
        assert {name: np.shape(value) for name, value in start.items()} == {k: v.shape for k, v in truth.items()}
        for W, allowed in ((start["W"], True), (5 + start["W"], False)):
            bounded = W / np.maximum(1, np.linalg.norm(W, axis=0) / 1.5)
            assert (np.linalg.eigvalsh(data.release.sigma[0] - bounded @ bounded.T)[0] > 0) == allowed


LANGEVIN = {"replications": effort(80, 150), "warmup": effort(500, 1000), "thin": 60}


def test_group_sparse_posterior_by_langevin_is_calibrated():
    """The group-sparse posterior by adjusted Langevin is calibrated."""
    ranks_by_name = rank_statistics(group_sparse, ProximalLangevin, **LANGEVIN)
    assert min(uniformity(ranks) for ranks in ranks_by_name.values()) > 1e-7  # a false alarm


def half_the_residual(data):
    """Halve the residual, as if the rows fitted better than they do."""
    return data._replace(residual=0.5 * data.residual)


def test_calibration_catches_a_wrong_posterior(monkeypatch):
    simulate = simulation._simulate

    def believed(*args):
        truth, data = simulate(*args)
        return truth, half_the_residual(data)

    monkeypatch.setattr(simulation, "_simulate", believed)  # and the sampler of the test above: one program for both
    ranks_by_name = rank_statistics(group_sparse, ProximalLangevin, **LANGEVIN)
    assert min(uniformity(ranks) for ranks in ranks_by_name.values()) < 1e-6


@pytest.mark.evidence
def test_calibration_catches_a_model_that_is_not_the_datas():
    ranks_by_name = rank_statistics(
        low_rank, ProximalLangevin, sampled=lambda data: low_rank(half_the_residual(data)), **LANGEVIN
    )
    assert min(uniformity(ranks) for ranks in ranks_by_name.values()) < 1e-6


WORDS = Remedies("SETTLE.", lambda more, draws: f"MORE {more} BESIDE {draws}.", "SMALLER.", "SCALE.")


def test_a_diagnosis_advises_in_the_words_of_whoever_drew():
    """Chains that disagree, diverge and reach their limit: all four sentences are those of the caller, and no other's."""
    rng = np.random.default_rng(0)
    apart = rng.standard_normal((4, 100)) + 3.0 * np.arange(4)[:, None]
    yes = np.ones((4, 100), dtype=bool)
    trouble = {"diverging": yes, "reached_max_treedepth": yes, "n_steps": np.full((4, 100), 255)}
    lines = diagnose({"x": apart}, trouble, remedies=WORDS).advice
    assert [line.split(" ")[-1] for line in lines] == ["SETTLE.", "100.", "SMALLER.", "SCALE."]
    assert "MORE " in lines[1]
    said = " ".join(lines)
    assert not any(word in said for word in ("extend", "shared_covariance", "task_posteriors", "precondition"))
    with pytest.raises(TypeError, match="remedies"):
        diagnose({"x": apart}, {})


def test_the_tails_of_a_diagnosis_are_the_same_for_every_user():
    import arviz_base

    rng = np.random.default_rng(0)
    slow = np.cumsum(rng.standard_normal((4, 300)) / 5, axis=1)
    wild = np.exp(slow) * rng.standard_normal(slow.shape)  # its tails are known worst
    usual = diagnose({"x": wild}, {}, remedies=WORDS)
    with arviz_base.rc_context({"stats.ci_prob": 0.5}):
        assert diagnose({"x": wild}, {}, remedies=WORDS).ess == usual.ess
