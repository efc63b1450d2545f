"""NumPyro's NUTS, run so that a second call with new numbers does not compile again.

``numpyro.infer.MCMC`` compiles its loop on every run; here the kernel is NumPyro's and the loop, chunked for the progress
bar, is traced once per model and shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.infer import NUTS
from tqdm.auto import tqdm

from mpmtl_prob._check import whole

Draws = dict[str, NDArray[Any]]
Model = Callable[..., None]

#: What is kept of every iteration beside the draws: ArviZ's name, NumPyro's name.
STATISTICS = {
    "diverging": "diverging",
    "n_steps": "num_steps",
    "acceptance_rate": "accept_prob",
    "energy": "energy",
    "lp": "potential_energy",
}
_CHUNK = 25  # iterations between two updates of the progress bar


def run_nuts(
    model: Model,
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
    for name, value in (("chains", chains), ("warmup", warmup), ("draws", draws)):
        whole(name, value)
    program = _program(model, warmup, jax.local_device_count() >= chains > 1)
    rng = np.random.default_rng(seed)
    begin = {k: jnp.asarray(v + 0.1 * rng.standard_normal((chains, *np.shape(v)))) for k, v in start.items()}
    state = program.init(jax.random.split(jax.random.key(seed), chains), begin, args)
    kept = []
    with tqdm(total=warmup + draws, desc="warm-up", disable=not progress_bar) as bar:
        for phase, total in (("warm-up", warmup), ("sampling", draws)):
            bar.set_description(phase)
            for done in range(0, total, _CHUNK):
                steps = min(_CHUNK, total - done)
                state, found = program.advance(state, args, steps)
                if phase == "sampling":
                    kept.append(jax.tree.map(np.asarray, found))
                bar.update(steps)
    samples, statistics = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)
    return samples, statistics | {"lp": -statistics["lp"]}


class _Program(NamedTuple):
    init: Callable[..., Any]  # keys (chain,), unconstrained values (chain, ...), model arguments -> state
    advance: Callable[..., Any]  # state, model arguments, number of steps -> state, (draws, statistics)


@lru_cache(maxsize=16)
def _program(model: Model, warmup: int, parallel: bool) -> _Program:
    kernel = NUTS(model, max_tree_depth=8)

    def init(key: Any, params: Any, args: Any) -> Any:
        return kernel.init(key, warmup, params, model_args=args, model_kwargs={})

    def advance(state: Any, args: Any, steps: int) -> Any:
        constrain = kernel.postprocess_fn(args, {})

        def step(state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, args, {})
            return state, (constrain(state.z), {k: getattr(state, v) for k, v in STATISTICS.items()})

        return jax.lax.scan(step, state, length=steps)

    if parallel:
        return _Program(
            jax.pmap(init, in_axes=(0, 0, None)),
            jax.pmap(advance, in_axes=(0, None, None), static_broadcasted_argnums=2),
        )

    @jax.jit
    def init_all(keys: Any, params: Any, args: Any) -> Any:
        return jax.vmap(init, in_axes=(0, 0, None))(keys, params, args)

    def advance_all(state: Any, args: Any, steps: int) -> Any:
        return jax.vmap(advance, in_axes=(0, None, None))(state, args, steps)

    return _Program(init_all, jax.jit(advance_all, static_argnums=2))
