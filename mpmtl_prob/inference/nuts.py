"""NumPyro's NUTS, run so that a second call with new numbers does not compile again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.infer import MCMC, NUTS

from mpmtl_prob._check import whole

Draws = dict[str, NDArray[Any]]

#: What is kept of every iteration beside the draws, under ArviZ's names.
STATISTICS = {
    "diverging": "diverging",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
    "energy": "energy",
    "potential_energy": "lp",
}


def run_nuts(
    model: Callable[..., None],
    *args: Any,
    start: Mapping[str, Any],
    chains: int,
    warmup: int,
    draws: int,
    seed: int,
    progress_bar: bool,
) -> tuple[Draws, Draws]:
    """Several chains of NUTS on a NumPyro model.

    Args:
        model: the NumPyro model; its arguments are traced.
        args: of the model, pytrees of arrays.
        start: unconstrained values of the model's sites; chains start round them, a tenth apart.
        chains: number of chains. They run on one host device each where there are enough, else vectorised on one.
        warmup: iterations of adaptation.
        draws: kept iterations.
        seed: of the chains.
        progress_bar: show one.

    Returns:
        Draws and sampler statistics by name; every array begins with (chain, draw).
    """
    for name, value, least in (("chains", chains, 1), ("warmup", warmup, 1), ("draws", draws, 1)):
        whole(name, value, least)
    shape = tuple((name, np.shape(value)) for name, value in sorted(start.items()))
    sampler = _sampler(model, shape, chains, warmup, draws, progress_bar, jax.config.read("jax_enable_x64"))
    rng = np.random.default_rng(seed)
    begin = {k: jnp.asarray(v + 0.1 * rng.standard_normal((chains, *np.shape(v)))) for k, v in start.items()}
    if chains == 1:
        begin = {k: v[0] for k, v in begin.items()}
    sampler.run(jax.random.key(seed), *args, init_params=begin, extra_fields=tuple(STATISTICS))
    found = {k: np.asarray(v) for k, v in sampler.get_samples(group_by_chain=True).items()}
    extra = {STATISTICS[k]: np.asarray(v) for k, v in sampler.get_extra_fields(group_by_chain=True).items()}
    extra["lp"] = -extra["lp"]
    return found, extra


@lru_cache(maxsize=16)
def _sampler(
    model: Callable[..., None],
    shape: tuple[Any, ...],  # part of the key: one compilation per shape
    chains: int,
    warmup: int,
    draws: int,
    progress_bar: bool,
    x64: bool,
) -> MCMC:
    return MCMC(
        NUTS(model, max_tree_depth=8, target_accept_prob=0.8),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="parallel" if jax.local_device_count() >= chains else "vectorized",
        progress_bar=progress_bar,
        jit_model_args=True,
    )
