"""NumPyro's NUTS on a model, from given starting values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from numpyro.infer import NUTS

from mpmtl_prob._check import whole
from mpmtl_prob.inference.sampling.chains import Draws, advance, begin, join, program

Model = Callable[..., None]


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
        chains: number of chains, each in a thread of its own.
        warmup: iterations of adaptation.
        draws: kept iterations.
        seed: of the chains.
        progress_bar: show one.

    Returns:
        Draws and sampler statistics by name; every array begins with (chain, draw).
    """
    for name, value in (("chains", chains), ("warmup", warmup), ("draws", draws)):
        whole(name, value)
    compiled = program(_kernel(model), warmup)
    reached = begin(compiled, args, chains=chains, seed=seed, start=start)
    steps = advance(
        compiled, _kernel(model), args, reached, warmup=warmup, draws=draws, thin=1, progress_bar=progress_bar
    )
    kept = [found for found in steps if found[1] is not None]
    return join([part[1] for part in kept]), join([part[2] for part in kept])  # type: ignore[misc]


@lru_cache(maxsize=16)
def _kernel(model: Model) -> NUTS:
    return NUTS(model, max_tree_depth=8)
