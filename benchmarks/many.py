"""One chain of NUTS for each of many data sets of the same shape, side by side in one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from numpyro.infer import NUTS


def chains(
    model: Callable[..., None],
    data: Sequence[Any],
    *,
    start: Mapping[str, Any],
    warmup: int,
    draws: int,
    thin: int = 1,
    seed: int = 0,
) -> tuple[dict[str, Any], Any]:
    """Draws by site and divergences, (data set, draw, ...). The same model and shapes compile once.

    Args:
        model: a NumPyro model of one pytree.
        data: a pytree for every chain.
        start: unconstrained values of the model's sites.
        warmup: iterations of adaptation.
        draws: kept.
        thin: iterations per draw.
        seed: of the chains.
    """
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf, dtype=float) for leaf in leaves]), *data)
    keys = jax.random.split(jax.random.key(seed), len(data))
    return jax.device_get(_run(keys, stacked, dict(start), model=model, warmup=warmup, draws=draws, thin=thin))


@partial(jax.jit, static_argnames=("model", "warmup", "draws", "thin"))
def _run(keys: Any, data: Any, start: Any, *, model: Any, warmup: int, draws: int, thin: int) -> Any:
    kernel = NUTS(model, max_tree_depth=7)

    def chain(key: Any, one: Any) -> Any:
        state = kernel.init(key, warmup, start, (one,), {})
        step = lambda _, state: kernel.sample(state, (one,), {})
        state = jax.lax.fori_loop(0, warmup, step, state)
        constrain = kernel.postprocess_fn((one,), {})

        def keep(state: Any, _: None) -> Any:
            state = jax.lax.fori_loop(0, thin, step, state)
            return state, (constrain(state.z), state.diverging)

        return jax.lax.scan(keep, state, length=draws)[1]

    return jax.vmap(chain)(keys, data)
