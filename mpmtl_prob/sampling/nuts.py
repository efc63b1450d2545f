"""Runs of NumPyro's NUTS on a model, from given starting values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mpmtl_prob._util.arrays import Draws
from mpmtl_prob._util.checks import whole
from mpmtl_prob.sampling.chains import join
from mpmtl_prob.sampling.flat import DEPTH, FlatNUTS
from mpmtl_prob.sampling.runs import Chunk, Sampling

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
    acceptance: float = 0.8,
) -> tuple[Draws, Draws]:
    """Run several chains of NUTS on a NumPyro model.

    Args:
        model: the NumPyro model; its arguments are traced.
        args: arguments of the model, pytrees of arrays.
        start: unconstrained values of the model's sites. Chains start at these plus normal numbers with a standard deviation
            of 0.1.
        chains: number of chains, each in its own thread.
        warmup: iterations of adaptation.
        draws: number of draws of every chain.
        seed: seed of the chains.
        progress_bar: show one.
        acceptance: the acceptance probability that the step size aims at. A density that is narrow in one place and wide in
            another needs more.

    Returns:
        Draws and sampler statistics by name; every array begins with (chain, draw).
    """
    for name, value in (("chains", chains), ("warmup", warmup), ("draws", draws)):
        whole(name, value)
    run = Sampling(kernel(model, acceptance), args, warmup)
    parts: list[Chunk] = []
    run.extend(run.init(chains, seed, start), parts, draws, progress_bar=progress_bar)
    return join([samples for samples, _ in parts]), join([statistics for _, statistics in parts])


def kernel(model: Model, acceptance: float = 0.8, depth: int = DEPTH) -> FlatNUTS:
    """Return NUTS with trajectories of at most 2^depth - 1 steps: the same object for the same arguments.

    A program is compiled once for every kernel object.
    """
    return _kernel(model, acceptance, depth)


@lru_cache(maxsize=16)
def _kernel(model: Model, acceptance: float, depth: int) -> FlatNUTS:
    return FlatNUTS(model, acceptance=acceptance, depth=depth)
