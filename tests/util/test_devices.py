"""One device or two: the same numbers, to the last bit. Devices are emulated, in a process of its own."""

import os
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import os, sys, warnings
from typing import NamedTuple
import jax, jax.numpy as jnp, numpy as np
from numpyro.infer.mcmc import MCMCKernel
warnings.simplefilter("error")
jax.config.update("jax_enable_x64", True)
import numpyro, numpyro.distributions as dist
import mpmtl_prob as mp
from mpmtl_prob._util import devices
from mpmtl_prob.sampling.nuts import run_nuts
from mpmtl_prob.sampling import chains

every = jax.local_devices()
train = mp.datasets.synthetic_low_rank(13, 3, 12, 1, group=5).train
labels = mp.TaskData.from_lists(*zip(*((X, np.sign(y)) for X, y in map(train.rows_of, range(13)))))

class State(NamedTuple):
    i: jax.Array
    w: jax.Array
    rng_key: jax.Array

class Walk(MCMCKernel):
    sample_field, model = "w", None

    def init(self, key, warmup, start, args, kwargs):
        return State(jnp.zeros((), int), jax.random.normal(key, (3,)), key)

    def sample(self, state, args, kwargs):
        key, now = jax.random.split(state.rng_key)
        return State(state.i + 1, 0.9 * state.w + args[0] * jax.random.normal(now, (3,)), key)

    def postprocess_fn(self, args, kwargs):
        return lambda w: {"w": w}

kernel, y = Walk(), (jnp.arange(3.0),)
compiled = chains.program(kernel, 30)

def model(y):  # sites whose names are in another order than they come in
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("a", dist.Normal(z.sum() + y[1], 1))

def found(count):
    jax.local_devices = lambda: every[:count]
    W = {"lasso": mp.estimators.Lasso(0.1).fit(train).W}
    if os.environ.get("MPMTL_EVIDENCE"):  # of the same solver, which spreads any loss
        W["logistic"] = mp.estimators.RidgeLogistic(1.0).fit(labels).W
    first = chains.init(compiled, y, chains=3, seed=0)
    steps = list(chains.advance(compiled, kernel, y, first, warmup=30, draws=30, thin=1, progress_bar=False))
    drawn = chains.join([drawn for _, drawn, _ in steps if drawn])["w"]
    start = {"z": np.zeros(2), "a": np.zeros(())}
    options = {"chains": 3, "warmup": 30, "draws": 30, "seed": 0, "progress_bar": False}
    nuts = run_nuts(model, *y, start=start, **options)[0]["z"]
    # where each is: a chain's state, a task's rows
    used = [next(iter(state.i.devices())).id for state in steps[-1][0].state]
    spread = len(jnp.asarray(devices.by_task(train.X)).devices())
    np.savez(f"{sys.argv[1]}/{count}.npz", chains=drawn, nuts=nuts, used=used, spread=spread, **W)

for count in (1, 2):
    found(count)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], check=True, env=environment)
    return {count: dict(np.load(folder / f"{count}.npz")) for count in (1, 2)}


@pytest.mark.parametrize("what", ["lasso", pytest.param("logistic", marks=pytest.mark.evidence), "chains"])
def test_numbers_do_not_depend_on_how_many_devices_there_are(runs, what):
    assert runs[1][what].size
    np.testing.assert_array_equal(runs[2][what], runs[1][what])


def test_nuts_draws_the_same_on_several_devices(runs):
    """JAX sorts what it moves to a device by names, and random numbers would meet other sites of the model."""
    assert np.ptp(runs[1]["nuts"]) > 0
    np.testing.assert_array_equal(runs[2]["nuts"], runs[1]["nuts"])


def test_tasks_are_spread_and_chains_take_turns(runs):
    assert (runs[1]["spread"], runs[2]["spread"]) == (1, 2)
    assert runs[1]["used"].tolist() == [0, 0, 0]
    assert runs[2]["used"].tolist() == [0, 1, 0]
