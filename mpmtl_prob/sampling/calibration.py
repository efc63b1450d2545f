"""Simulation-based calibration: on data from the model itself, the truth's rank among posterior draws is uniform.

Source: Talts et al. (2018), arXiv:1804.06788.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.models import penalised
from mpmtl_prob.models.noise import of_law
from mpmtl_prob.models.penalised import Model, ObservedTasks, ReleasedMoments
from mpmtl_prob.models.priors import PenaltyPrior
from mpmtl_prob.privacy.mechanisms import MatrixMechanism
from mpmtl_prob.sampling import chains as loop


class Setting(NamedTuple):
    """A small problem.

    Attributes:
        num_features: d.
        num_tasks: m.
        rows: of every task.
        sigma: prior of sigma, (median, log_sd).
        rate: prior of rate, and of rate_own.
        noise: of a release of W that the model observes as well, clipped to its ``clip``; None for no release.
    """

    num_features: int = 2
    num_tasks: int = 3
    rows: int = 4
    sigma: tuple[float, float] = (0.7, 0.4)
    rate: tuple[float, float] = (1.5, 0.5)
    noise: MatrixMechanism | None = None


def chain_for_each(
    kernel: MCMCKernel,
    data: Sequence[Any],
    *,
    start: Callable[[Any], Mapping[str, Any]] | None = None,
    warmup: int,
    draws: int,
    thin: int = 1,
    seed: int = 0,
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """One chain for each of many data sets of the same shape, by one program.

    Args:
        kernel: of a model of one pytree. Calls with the same one and the same shapes compile once.
        data: a pytree for every chain.
        start: unconstrained values of the model's sites, by data set; default: where the kernel likes to start.
        warmup: iterations of adaptation.
        draws: kept.
        thin: iterations per draw.
        seed: of the chains.

    Returns:
        Draws by site and whether they ended in a divergence, (data set, draw, ...).
    """
    check_not_forked()
    compiled = loop.program(kernel, warmup, thin)
    keys = loop.keys(seed, len(data))
    # in the order and the types of a fit's start: the same program
    begin = [None if start is None else {k: np.asarray(v) for k, v in start(one).items()} for one in data]

    def chain(i: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        state, args, kept = compiled.init(keys[i], begin[i], (data[i],)), (data[i],), []
        for steps in compiled.chunks(state, -(-warmup // thin)):
            state, _ = compiled.advance(state, args, steps)
        for steps in compiled.chunks(state, draws):
            state, found = compiled.advance(state, args, steps)
            kept.append(jax.tree.map(lambda x, steps=steps: np.asarray(x)[:steps], found))
        samples, statistics = jax.tree.map(lambda *parts: np.concatenate(parts), *kept)
        return samples, statistics.get("diverging", np.zeros(draws, dtype=bool))

    compiled.advance(compiled.init(keys[0], begin[0], (data[0],)), (data[0],), 0)  # compiles, once for all threads
    every = loop.each(chain, range(len(data)))
    found: tuple[dict[str, NDArray[Any]], NDArray[np.bool_]] = jax.tree.map(lambda *parts: np.stack(parts), *every)
    return found


def rank_statistics(
    model: Model,
    kernel: Callable[[Model], MCMCKernel],
    *,
    setting: Setting | None = None,
    precondition: bool = True,
    replications: int = 200,
    warmup: int = 200,
    draws: int = 19,
    thin: int = 10,
    seed: int = 0,
    sampled: Model | None = None,
) -> dict[str, NDArray[np.int64]]:
    """Ranks of the truth among posterior draws, 0..draws, by functional, (replications,). All replications run side by side.

    Args:
        model: of :mod:`mpmtl_prob.models.penalised`; the truth is drawn from its prior, and the data from its likelihood.
        kernel: from a model to a kernel.
        setting: the problem.
        precondition: sample in local coordinates.
        replications: number of simulated data sets.
        warmup: iterations of adaptation.
        draws: kept.
        thin: iterations per draw; ranks are uniform only if draws are nearly independent.
        seed: of everything.
        sampled: the model to sample from; default ``model``. Another one shows what the test can catch.
    """
    setting = setting or Setting()
    rng = np.random.default_rng(seed)
    truths, data = zip(*(_simulate(model, setting, precondition, rng) for _ in range(replications)), strict=True)
    instance = kernel(model if sampled is None else sampled)
    start = _near_zero if setting.noise is not None and not precondition else None
    found, _ = chain_for_each(instance, data, start=start, warmup=warmup, draws=draws, thin=thin, seed=seed)
    values = _functionals(found)
    truth = _functionals({k: np.stack([t[k] for t in truths])[:, None] for k in truths[0]})
    return {k: np.sum(values[k] < truth[k], axis=1) for k in truth}


def uniformity(ranks: NDArray[np.int64], draws: int = 19, bins: int = 10) -> float:
    """p-value of the chi-squared test that ranks 0..draws are uniform; ``bins`` must divide draws + 1."""
    if (draws + 1) % bins:
        raise ValueError(f"bins: expected a divisor of draws + 1 = {draws + 1}, got {bins}")
    from scipy.stats import chisquare  # which takes a second to import

    return float(chisquare(np.bincount(ranks * bins // (draws + 1), minlength=bins)).pvalue)


def _simulate(
    model: Model, setting: Setting, precondition: bool, rng: np.random.Generator
) -> tuple[dict[str, FloatArray], ObservedTasks]:
    shape = (setting.num_features, setting.num_tasks)
    lognormal = lambda prior: prior[0] * np.exp(prior[1] * rng.standard_normal())
    sigma = lognormal(setting.sigma)
    priors = penalised.PRIORS[model]
    rates = [lognormal(setting.rate) for _ in priors]
    key = jax.random.key(int(rng.integers(2**31)))
    parts = [
        _draw(prior, rate / sigma, shape, k)
        for prior, rate, k in zip(priors, rates, jax.random.split(key, len(priors)), strict=True)
    ]
    W = np.sum(parts, axis=0)
    X = rng.standard_normal((setting.num_tasks, setting.rows, setting.num_features))
    y = np.einsum("tnj,jt->tn", X, W) + sigma * rng.standard_normal((setting.num_tasks, setting.rows))
    tasks = TaskData.from_lists(list(X), list(y))
    # the smoothing and the coordinates may depend on the data; the posterior does not
    data = penalised.observe(
        model, tasks, rate=setting.rate, rate_own=setting.rate, sigma=setting.sigma, precondition=precondition
    )
    if (law := setting.noise) is not None:
        bounded = W / np.maximum(1.0, np.linalg.norm(W, axis=0) / law.clip)
        released = law.sample(rng, bounded @ bounded.T)
        ones = np.ones((setting.num_tasks, setting.num_features))
        data = data._replace(
            release=ReleasedMoments(
                released[None], (of_law(law, released),), np.asarray(law.clip), np.asarray(False), ones
            )
        )
    truth = {"W": W, "sigma": np.asarray(sigma), "rate": np.asarray(rates[0])}
    return truth | ({"rate_own": np.asarray(rates[1])} if len(rates) == 2 else {}), data


def _near_zero(data: ObservedTasks) -> dict[str, Any]:
    """Start where a release always allows W to be; far from 0 a chain may start where the density is 0, and stays there."""
    matrices, rates = (("W",), ("rate",)) if len(data.parts) == 1 else (("P", "Q"), ("rate", "rate_own"))
    small = 0.02 * np.random.default_rng(0).standard_normal(np.shape(data.centre)[::-1])
    return dict.fromkeys(matrices, small) | dict.fromkeys(("sigma", *rates), 0.0)


def _draw(prior: type[PenaltyPrior], rate: float, shape: tuple[int, int], key: Any) -> FloatArray:
    return np.asarray(_sampler(prior, shape)(key)) / rate  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _sampler(prior: type[PenaltyPrior], shape: tuple[int, int]) -> Callable[[Any], Any]:
    return jax.jit(lambda key: prior(1.0, shape).sample(key))


def _functionals(values: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Return functionals of arrays (replication, draw, ...): entries, size and shape of W, and the scales."""
    W = values["W"]
    singular = np.linalg.svd(W, compute_uv=False)
    shape = {"W_11": W[..., 0, 0], "size of W": singular.sum(-1), "share of s_1": singular[..., 0] / singular.sum(-1)}
    return shape | {k: v for k, v in values.items() if k in ("sigma", "rate", "rate_own")}
