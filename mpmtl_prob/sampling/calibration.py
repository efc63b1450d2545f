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
    """Size, priors and release of a small simulated problem.

    Attributes:
        num_features: d.
        num_tasks: m.
        rows: number of rows of every task.
        sigma: prior of sigma, (median, log_sd).
        rate: prior of rate, and of rate_own.
        noise: mechanism of a release of W, clipped to its ``clip``, that the model observes too; None for no release.
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
    """Run one chain for each of many data sets of the same shape, all by one compiled program.

    Args:
        kernel: kernel of a model whose argument is one pytree. Calls with the same kernel and shapes compile once.
        data: a pytree for every chain.
        start: from a data set to unconstrained values of the model's sites; default: where the kernel starts by itself.
        warmup: iterations of adaptation.
        draws: number of draws of every chain.
        thin: iterations per draw.
        seed: seed of the chains.

    Returns:
        Draws by site, and whether each draw's last transition diverged, (data set, draw, ...).
    """
    check_not_forked()
    compiled = loop.program(kernel, warmup, thin)
    keys = loop.keys(seed, len(data))
    # starts have the order and the types of a fit's own, so that the program that a fit has compiled is used again
    begin = [None if start is None else {k: np.asarray(v) for k, v in start(one).items()} for one in data]

    def chain(i: int) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        args = (data[i],)
        state = compiled.init(keys[i], begin[i], args)
        for steps in compiled.chunks(state, -(-warmup // thin)):
            state, _ = compiled.advance(state, args, steps)
        chunks = []
        for steps in compiled.chunks(state, draws):
            state, padded = compiled.advance(state, args, steps)
            chunks.append(jax.tree.map(lambda x, steps=steps: np.asarray(x)[:steps], padded))
        samples, statistics = jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)
        return samples, statistics.get("diverging", np.zeros(draws, dtype=bool))

    compiled.advance(compiled.init(keys[0], begin[0], (data[0],)), (data[0],), 0)  # compiles, once for all threads
    of_chains = loop.map_in_threads(chain, range(len(data)))
    stacked: tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *of_chains)
    return stacked


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
    """Return the ranks of the truth among posterior draws, 0..draws, by functional, (replications,).

    All replications run side by side.

    Args:
        model: of :mod:`mpmtl_prob.models.penalised`; the truth is drawn from its prior, and the data from its likelihood.
        kernel: from a model to a kernel.
        setting: the problem; default ``Setting()``.
        precondition: sample in local coordinates.
        replications: number of simulated data sets.
        warmup: iterations of adaptation.
        draws: number of draws of every chain.
        thin: iterations per draw; ranks are uniform only if draws are nearly independent.
        seed: seed of the simulated data and of the chains.
        sampled: the model to sample from; default ``model``. A different model shows which mistakes the test can catch.
    """
    setting = setting or Setting()
    rng = np.random.default_rng(seed)
    truths, data = zip(*(_simulate(model, setting, precondition, rng) for _ in range(replications)), strict=True)
    instance = kernel(model if sampled is None else sampled)
    start = _near_zero if setting.noise is not None and not precondition else None
    samples, _ = chain_for_each(instance, data, start=start, warmup=warmup, draws=draws, thin=thin, seed=seed)
    values = _functionals(samples)
    truth = _functionals({k: np.stack([t[k] for t in truths])[:, None] for k in truths[0]})
    return {k: np.sum(values[k] < truth[k], axis=1) for k in truth}


def uniformity(ranks: NDArray[np.int64], draws: int = 19, bins: int = 10) -> float:
    """Return the p-value of the chi-squared test that ranks 0..draws are uniform.

    Raises:
        ValueError: ``bins`` does not divide draws + 1.
    """
    if (draws + 1) % bins:
        raise ValueError(f"bins: expected a divisor of draws + 1 = {draws + 1}, got {bins}")
    from scipy.stats import chisquare  # imported here because it takes a second

    return float(chisquare(np.bincount(ranks * bins // (draws + 1), minlength=bins)).pvalue)


def _simulate(
    model: Model, setting: Setting, precondition: bool, rng: np.random.Generator
) -> tuple[dict[str, FloatArray], ObservedTasks]:
    """Draw the truth, by site, from the model's prior, and data from its likelihood."""
    shape = (setting.num_features, setting.num_tasks)

    def lognormal(prior: tuple[float, float]) -> float:
        median, log_sd = prior
        return float(median * np.exp(log_sd * rng.standard_normal()))

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
    # smoothing and coordinates may depend on the data, because the posterior does not depend on them
    rate_own = setting.rate if len(priors) > 1 else None
    data = penalised.observe(
        model, tasks, rate=setting.rate, rate_own=rate_own, sigma=setting.sigma, precondition=precondition
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
    """Return a start near W = 0, where every release has a positive density.

    A chain that starts where the density is 0 stays there.
    """
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
