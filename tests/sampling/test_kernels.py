"""One battery for every kernel, and what is particular to the private one."""

import pickle
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.quickly import quickly
from helpers.tolerances import FAR
from numpy.testing import assert_allclose, assert_array_equal
from numpyro.infer import HMC, MCMC, NUTS, Gibbs
from numpyro.infer.mcmc import MCMCKernel

import mpmtl_prob as mp
from mpmtl_prob.convex.penalties import TraceNorm
from mpmtl_prob.estimators.framework import Noise, Proximal
from mpmtl_prob.inference import MPMTLKernel, ProximalLangevin, private_langevin
from mpmtl_prob.inference.curator.private import Rounds
from mpmtl_prob.models import group_sparse, penalised
from mpmtl_prob.privacy import BudgetExceeded, Ledger
from mpmtl_prob.sampling import chains

T = 12


@pytest.fixture(scope="module")
def tasks():
    return mp.datasets.synthetic_low_rank(4, 2, 6, 5, variance=4.0, seed=0).train


def rounds(tasks, temperature=1.0):
    estimator = mp.estimators.LowRank(1.0, epsilon=2.0, clip=4.0, rounds=T)
    plan = estimator.plan(tasks)
    rng = np.random.default_rng(1)
    noise = np.stack([law.sample(rng, np.zeros((2, 2))) for law in plan.mechanisms])
    return Rounds(plan.run, plan.W0, Noise(noise), np.float64(temperature))


def case(name, tasks, *, precondition=False):
    """A kernel and its model's arguments."""
    local = penalised.observe(group_sparse, tasks, rate=1.0, sigma=0.7, precondition=precondition)
    kernels = {
        "NUTS, proximal gradients": (lambda: NUTS(group_sparse, max_tree_depth=4), local),
        "NUTS, local coordinates": (lambda: NUTS(group_sparse, max_tree_depth=4), None),
        "MYULA": (lambda: ProximalLangevin(group_sparse, adjusted=False), local),
        "adjusted Langevin": (lambda: ProximalLangevin(group_sparse), local),
        "private rounds": (lambda: MPMTLKernel(Proximal(TraceNorm())), rounds(tasks)),
    }
    make, data = kernels[name]
    if data is None:
        data = penalised.observe(group_sparse, tasks, rate=1.0, sigma=0.7, precondition=True)
    return make(), (data,)


KERNELS = ("NUTS, proximal gradients", "NUTS, local coordinates", "MYULA", "adjusted Langevin", "private rounds")


def shortly(*names):
    """The kernels, of which only these are tried in `make test`: the others compile for seconds to show the same."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.evidence) for name in KERNELS]


def warmup_of(kernel):
    """Return the length of a warm-up: for NUTS as many iterations as a run can be stopped in."""
    return 60 if isinstance(kernel, NUTS) else 4


def run(kernel, args, *, draws=8, count=2, thin=1, reached=None, progress_bar=False):
    warmup = warmup_of(kernel)
    compiled = chains.program(kernel, warmup, thin)
    if reached is None:
        reached = chains.init(compiled, args, chains=count, seed=0)
    kept = []
    for now, part, statistics in chains.advance(
        compiled, kernel, args, reached, warmup=warmup, draws=draws, thin=thin, progress_bar=progress_bar
    ):
        reached = now
        if part is not None:
            kept.append((part, statistics))
    return reached, chains.join([k[0] for k in kept]), chains.join([k[1] for k in kept])


@pytest.fixture(scope="module")
def tried(tasks):
    """By name (kernel, arguments, state and draws of two chains), every kernel compiled once."""

    @cache
    def of(name):
        kernel, args = case(name, tasks)
        return kernel, args, *run(kernel, args)

    return of


@pytest.fixture(scope="module", params=shortly("NUTS, proximal gradients", "adjusted Langevin", "private rounds"))
def battery(request, tried):
    return tried(request.param)


def test_chains_are_finite_and_differ(battery):
    kernel, _, _, draws, statistics = battery
    assert kernel.sample_field in kernel.default_fields  # what NumPyro's own MCMC keeps
    assert draws["W"].shape == (2, 8, 2, 4)
    assert all(np.isfinite(v).all() for v in (draws | statistics).values())
    assert (draws["W"][0, -1] != draws["W"][1, -1]).all()


def test_resumed_chain_is_the_one_that_was_not_stopped(battery):
    kernel, args, _, draws, _ = battery
    half, first, _ = run(kernel, args, draws=5)
    _, second, _ = run(kernel, args, reached=half)
    assert_array_equal(np.concatenate([first["W"], second["W"]], axis=1), draws["W"])


def test_a_run_that_stops_in_warm_up_is_the_one_that_did_not(tried):
    kernel, args, _, whole, _ = tried("NUTS, proximal gradients")
    compiled = chains.program(kernel, 60)
    for stop in (1, 3):  # chunks: in the middle of warm-up, and when it is done
        steps = chains.advance(
            compiled, kernel, args, chains.init(compiled, args, chains=2, seed=0),
            warmup=60, draws=8, thin=1, progress_bar=False,
        )  # fmt: skip
        for _ in range(stop):
            now, *_ = next(steps)
        _, rest, _ = run(kernel, args, reached=now)
        assert_array_equal(rest["W"], whole["W"])


class Count(NamedTuple):
    z: Any


class Counting(MCMCKernel):
    """Kernel whose draws are the numbers of its steps."""

    sample_field = "z"

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        return Count({"W": jnp.array(0)})

    def sample(self, state, model_args, model_kwargs):
        return Count({"W": state.z["W"] + 1})


def test_thinned_chain_keeps_every_second_draw():
    _, thinned, _ = run(Counting(), (), draws=4, count=1, thin=2)
    assert thinned["W"].tolist() == [[6, 8, 10, 12]]  # after four of warm-up


@pytest.mark.evidence  # the package runs compiled steps alone, and NumPyro's own MCMC, below, starts without
def test_one_step_compiled_is_the_same_step(battery):
    kernel, args, *_ = battery
    if isinstance(kernel, NUTS):
        pytest.skip("seconds of compilation; NumPyro tests its own kernel")
    state = jax.jit(partial(kernel.init, num_warmup=0, init_params=None, model_kwargs={}))(
        jax.random.key(3), model_args=args
    )
    steps = [
        step(state, args)
        for step in (partial(kernel.sample, model_kwargs={}), jax.jit(partial(kernel.sample, model_kwargs={})))
    ]
    for one, other in zip(*(jax.tree.leaves(s.z) for s in steps), strict=True):
        assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("name", shortly("adjusted Langevin", "private rounds"))
def test_kernel_and_state_survive_pickling(name, tried):
    kernel, args, reached, _, _ = tried(name)
    copy = pickle.loads(pickle.dumps(kernel))
    data = [np.asarray(x) for x in jax.tree.leaves(reached.state) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    assert all((a == b).all() for a, b in zip(data, pickle.loads(pickle.dumps(data)), strict=True))
    start = lambda one: chains.init(chains.program(one, warmup_of(kernel)), args, chains=1, seed=3).state[0].z
    for one, other in zip(jax.tree.leaves(start(copy)), jax.tree.leaves(start(kernel)), strict=True):
        assert_allclose(one, other)


def test_diagnostics_and_progress_bar_say_something(battery, capsys):
    kernel, args, reached, _, _ = battery
    text = kernel.get_diagnostics_str(reached.state[0])
    assert any(word in text for word in ("acc. prob=", "round 12 of 12"))
    run(kernel, args, progress_bar=True)
    shown = capsys.readouterr().err
    assert f"{warmup_of(kernel) + 8}/{warmup_of(kernel) + 8}" in shown
    assert text.split()[-1] in shown


@pytest.mark.parametrize("name", shortly("adjusted Langevin"))  # the private rounds in its Gibbs, below
def test_kernel_runs_in_numpyros_own_mcmc(name, tasks):
    kernel, args = case(name, tasks)

    def sampled(key, args):
        mcmc = MCMC(kernel, num_warmup=3, num_samples=6, num_chains=1, progress_bar=False)
        mcmc.run(key, *args)
        return mcmc.get_samples()["W"]

    # start and loop in one program, or every operation of the start is one; that of the private rounds is short
    draws = (sampled if name == "private rounds" else quickly(sampled))(jax.random.key(0), args)
    assert draws.shape == (6, 2, 4)
    assert jnp.isfinite(draws).all()


@pytest.mark.parametrize("name", shortly("private rounds"))
def test_kernel_is_a_block_of_gibbs(name, tasks):
    data = penalised.observe(group_sparse, tasks, rate=1.0, precondition=False)
    kernel = MPMTLKernel(Proximal(TraceNorm()), rounds(tasks)) if name == "private rounds" else case(name, tasks)[0]

    @quickly  # start and loop in one program, or every operation of the start is one
    def sampled(key, data):
        blocks = Gibbs([(kernel, ["W"]), (HMC(group_sparse, num_steps=2, trajectory_length=None), None)])
        mcmc = MCMC(blocks, num_warmup=4, num_samples=6, progress_bar=False)
        mcmc.run(key, data)
        return mcmc.get_samples()

    draws = sampled(jax.random.key(0), data)
    assert jnp.isfinite(draws["W"]).all()
    assert (jnp.diff(draws["sigma"]) != 0).any()
    assert (jnp.diff(draws["W"], axis=0) != 0).any()


def test_langevin_block_of_gibbs_sees_the_other_block_move(tasks):
    # its cached potential is that of the current sigma: refresh gives what a fresh start would have
    kernel = ProximalLangevin(group_sparse)
    data = [(penalised.observe(group_sparse, tasks, rate=1.0, sigma=s, precondition=False),) for s in (0.5, 2.0)]
    start = quickly(lambda key, args: kernel.init(key, 0, {"W": np.ones((2, 4))}, args, {}))
    states = [start(jax.random.key(0), args) for args in data]
    refreshed = quickly(lambda state, args: kernel.refresh(state, args, {}))(states[0], data[1])
    assert_allclose(refreshed.potential_energy, states[1].potential_energy)
    assert_allclose(refreshed.z_grad["W"], states[1].z_grad["W"])


@pytest.mark.parametrize("name", shortly("private rounds"))
def test_kernel_runs_in_single_precision(name, tasks):
    with jax.enable_x64(False):
        kernel, args = case(name, tasks)
        args = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, dtype=np.float32)), args)
        _, draws, _ = run(kernel, args, draws=4)
    assert draws["W"].dtype == np.float32
    assert np.isfinite(draws["W"]).all()


# -- the papers' rounds -----------------------------------------------------------------------------------------------

ALGORITHMS = {
    "Algorithm 2": partial(mp.estimators.LowRank, 0.8),
    "Algorithm 3": partial(mp.estimators.GroupSparse, 0.8),
    "Algorithm 4": partial(mp.estimators.LowRankSparse, penalty=(0.8, 0.3)),
}


@pytest.mark.parametrize(
    "name", ["Algorithm 2", pytest.param("Algorithm 3", marks=pytest.mark.evidence), "Algorithm 4"]
)  # the third differs from the second by its penalty alone
def test_private_rounds_at_temperature_zero_are_the_algorithm(name, tasks):
    estimator = ALGORITHMS[name](epsilon=2.0, clip=4.0, rounds=T, unsafe_seed=5)
    fitted = estimator.fit(tasks)
    sampled = private_langevin(estimator, tasks, temperature=0.0, progress_bar=False)
    assert_allclose(sampled.draws["W"][0], fitted.history["W"], rtol=0, atol=1e-10)
    assert_allclose(sampled.release.sigma, fitted.release.sigma, rtol=0, atol=1e-10)
    assert sampled.guarantee == fitted.guarantee


def test_private_rounds_pay_for_every_round_before_drawing(tasks, tmp_path):
    """Private rounds spend the budget of every round before any noise is drawn."""
    options = {"clip": 4.0, "rounds": T, "mechanism": "calibrated", "delta": 1e-3, "curvature": 100.0}
    estimator = partial(mp.estimators.LowRank, 0.8, **options)
    spent = {}
    for name, use in (
        ("fit", lambda e: e.fit(tasks)),
        ("sample", lambda e: private_langevin(e, tasks, progress_bar=False)),
    ):
        ledger = Ledger(tmp_path / name, epsilon=1.5, delta=1e-3)
        use(estimator(epsilon=1.0, ledger=ledger))
        spent[name] = [charge.mechanisms for charge in ledger.charges()]
        assert len(spent[name][0]) == T
        with pytest.raises(BudgetExceeded):
            use(estimator(epsilon=1.0, ledger=ledger))
    assert spent["fit"] == spent["sample"]


def test_private_rounds_without_noise_sample_the_posterior(tasks):
    # one feature of one task each, no penalty to speak of: W given y is normal, with moments that are known
    rng, precision = np.random.default_rng(0), np.array([4.0, 8.0, 12.0])
    X, y = rng.standard_normal((3, 5, 1)), rng.standard_normal((3, 5))
    X *= np.sqrt(precision / np.sum(X[..., 0] ** 2, axis=1))[:, None, None]
    one = mp.TaskData.from_lists(list(X), list(y))
    estimator = mp.estimators.LowRank(1e-9, epsilon=None, rounds=6000, acceleration=False, step_size=0.1)
    W = private_langevin(estimator, one, temperature=0.5, skip=100, progress_bar=False).draws["W"][0, :, 0]
    # Langevin with step eta: variance (tau / precision) / (1 - eta precision / 2), before its last gradient step and noise,
    # and draws that are an autoregression, whose moments have errors that are known too
    variance, rho = 0.5 / precision / (1 - 0.05 * precision), 1 - 0.1 * precision
    error = np.sqrt(variance * (1 + rho) / (1 - rho) / len(W))
    assert (np.abs(W.mean(0) - np.sum(X[..., 0] * y, axis=1) / precision) < FAR * error).all()
    assert (np.abs(W.var(0) / variance - 1) < FAR * np.sqrt(2 * (1 + rho**2) / (1 - rho**2) / len(W))).all()


def test_private_rounds_name_bad_arguments(tasks):
    estimator = mp.estimators.LowRank(1.0, epsilon=1.0, clip=1.0, rounds=3, unsafe_seed=0)
    with pytest.raises(ValueError, match=r"temperature: expected a number in \[0, inf\), got -1"):
        private_langevin(estimator, tasks, temperature=-1)
    with pytest.raises(ValueError, match="skip: expected fewer than the 3 rounds, got 3"):
        private_langevin(estimator, tasks, skip=3)
