"""NumPyro's NUTS on a model, from given starting values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mpmtl_prob._util.checks import whole
from mpmtl_prob.sampling.chains import Draws, join
from mpmtl_prob.sampling.flat import FlatNUTS
from mpmtl_prob.sampling.runs import Chunk, Sampling

Model = Callable[..., None]

#: Iterations of adaptation, the default: the most for which NumPyro's schedule has the scale of every number estimated in one
#: window, after 15 % of them. From 150 on it spends 75 before the first, with the longest trajectories of all.
WARMUP = 140


def run_nuts(
    model: Model,
    *args: Any,
    start: Mapping[str, Any],
    chains: int,
    warmup: int,
    draws: int,
    seed: int,
    progress_bar: bool,
    acceptance: float = 0.8,
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
        acceptance: that the step size aims at; more of it where a density has a narrow part in a wide one.

    Returns:
        Draws and sampler statistics by name; every array begins with (chain, draw).
    """
    for name, value in (("chains", chains), ("warmup", warmup), ("draws", draws)):
        whole(name, value)
    run, parts = Sampling(kernel(model, acceptance), args, warmup), list[Chunk]()
    run.extend(run.init(chains, seed, start), parts, draws, progress_bar=progress_bar)
    return join([samples for samples, _ in parts]), join([statistics for _, statistics in parts])


def kernel(model: Model, acceptance: float = 0.8) -> FlatNUTS:
    """NUTS with trajectories of at most 255 steps; the same object for the same model and acceptance."""
    return _kernel(model, acceptance)


@lru_cache(maxsize=16)
def _kernel(model: Model, acceptance: float) -> FlatNUTS:
    return FlatNUTS(model, acceptance=acceptance)
