"""Three ways for an owner to use the public posterior: plug in its mean, mix over its draws, or sample both at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import arviz as az
import numpy as np
import scipy.stats as st
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

from mpmtl_prob import conjugate
from mpmtl_prob._check import positive
from mpmtl_prob.conjugate import TaskPosteriors
from mpmtl_prob.inference.nuts import Draws, run_nuts
from mpmtl_prob.inference.shared import SharedPosterior, shared_covariance
from mpmtl_prob.inference.structures import observed
from mpmtl_prob.models import task as model
from mpmtl_prob.privacy.messages import unit_columns
from mpmtl_prob.privacy.release import Release
from mpmtl_prob.tasks import FloatArray, Gram, TaskData

#: Draws of the public posterior that "mixture" mixes over.
MIXED = 64
#: Prior of the sharpness p of :meth:`SharedPosterior.shape`, log-normal: how much sharper the weights' covariance is than
#: that of the messages, which are estimates (p > 1) or say more than the weights do (p < 1). 0.55 to 4.1 with 95 %.
SHARPNESS_MEDIAN = 1.5
SHARPNESS_LOG_SD = 0.5
_GRID = np.linspace(-2.0, 2.0, 7)  # of log p, in prior standard deviations


class Found(NamedTuple):
    """Posterior means W (d, m), draws by name (S, ..., m), and by task the Pareto k of weights or the chains' divergences."""

    W: FloatArray
    draws: Draws
    khat: FloatArray | None = None
    divergences: NDArray[np.int64] | None = None


def sharpened(shared: SharedPosterior, sharpness: float | None) -> tuple[FloatArray, FloatArray]:
    """The mean of Omega's shape at one sharpness, or at a grid of it, (S, d, d), and the prior weights (S,)."""
    if sharpness is not None:
        return shared.shape(sharpness)[None], np.ones(1)
    p = SHARPNESS_MEDIAN * np.exp(SHARPNESS_LOG_SD * _GRID)
    return np.stack([shared.shape(each) for each in p]), np.exp(-0.5 * _GRID**2)


def drawn(shared: SharedPosterior, sharpness: float | None) -> FloatArray:
    """Draws of Omega's shape, each at one sharpness or at a draw of it, (S, d, d)."""
    if sharpness is not None:
        return shared.shapes(np.full(MIXED, positive("sharpness", sharpness)))
    quantiles = st.norm.ppf((np.arange(MIXED) + 0.5) / MIXED)
    p = SHARPNESS_MEDIAN * np.exp(SHARPNESS_LOG_SD * np.random.default_rng(0).permutation(quantiles))
    return shared.shapes(p)


def plug_in(
    gram: Gram, omegas: FloatArray, prior: FloatArray, scale: FloatArray | None, num_draws: int, seed: int | tuple[int, ...]
) -> Found:
    """Omega one of a few matrices (S, d, d) with prior weights (S,): :mod:`mpmtl_prob.conjugate` by each task's own evidence."""
    posteriors = [conjugate.task_posteriors(gram, omega, scale) for omega in omegas]
    return _blend(posteriors, np.log(prior) + _evidence(posteriors), num_draws, seed)


def mixture(gram: Gram, omegas: FloatArray, scale: FloatArray | None, num_draws: int, seed: int) -> Found:
    """Every draw of Omega's shape (S, d, d) weighted by each task's own evidence for it, Pareto-smoothed.

    Source: Vehtari et al. (2024), JMLR 25(72).
    """
    posteriors = [conjugate.task_posteriors(gram, omega, scale) for omega in omegas]
    # ArviZ takes minus the log of the weights, as leave-one-out hands them over
    smoothed = xr.DataArray(-_evidence(posteriors), dims=("task", "sample")).azstats.psislw(dim="sample")
    log_weight, khat = smoothed[0].transpose("task", "sample").values, smoothed[1].values
    return _blend(posteriors, log_weight, num_draws, seed)._replace(khat=khat)


def _evidence(posteriors: Sequence[TaskPosteriors]) -> FloatArray:
    """(m, S)."""
    return np.stack([posterior.log_evidence for posterior in posteriors], axis=1)


def _blend(posteriors: Sequence[TaskPosteriors], log_weight: FloatArray, num_draws: int, seed: int | tuple[int, ...]) -> Found:
    """The mixture of S posteriors of every task, log_weight (m, S) up to a constant of the task."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    W = np.sum([w * posterior.mean for w, posterior in zip(weight.T, posteriors, strict=True)], axis=0)

    rng = np.random.default_rng(seed)
    u = rng.random((num_draws, len(weight), 1))
    pick = np.minimum((u > np.cumsum(weight, axis=1)).sum(axis=2), len(posteriors) - 1)  # (draw, task)
    draws: Draws = {}
    for s, posterior in enumerate(posteriors):
        draw, task = np.nonzero(pick == s)
        if len(draw) == 0:
            continue
        order = np.zeros_like(draw)  # the how-manieth draw of its task from this Omega
        for t in np.unique(task):
            order[task == t] = np.arange(np.sum(task == t))
        for name, value in posterior.sample(rng, int(order.max()) + 1).items():
            draws.setdefault(name, np.empty((num_draws, *value.shape[1:])))[draw, ..., task] = value[order, ..., task]
    return Found(W, draws)


def joint(
    tasks: TaskData, release: Release, scale: FloatArray | None, chains: int, num_draws: int, seed: int, progress_bar: bool
) -> Found:
    """NUTS on an owner's model and the public one together, one owner at a time: exact, and slow."""
    d, public = tasks.num_features, observed(release)
    start = {
        "z": 0.0,
        "log_diagonal": np.zeros(d),
        "off_diagonal": np.zeros(d * (d - 1) // 2),
        "log_snr": np.log(conjugate.SNR_MEDIAN),
        "u": np.zeros(d),
    }
    S = np.ones((tasks.num_tasks, d)) if scale is None else scale
    kept: list[Draws] = []
    divergences = np.zeros(tasks.num_tasks, dtype=np.int64)
    for i in tqdm(range(tasks.num_tasks), desc="owners", disable=not progress_bar):
        rows = (tasks.X[i], tasks.y[i], tasks.mask[i].astype(float), S[i])
        begin = start | {"log_sigma": np.log(tasks.y[i][tasks.mask[i]].std() + 1e-3)}
        per_chain = -(-num_draws // chains)
        found, statistics = run_nuts(
            model.joint, public, *rows, start=begin, chains=chains, warmup=300, draws=per_chain, seed=seed + i, progress_bar=False
        )
        divergences[i] = statistics["diverging"].sum()
        flat = {k: found[k].reshape(-1, *found[k].shape[2:])[:num_draws] for k in ("w", "sigma", "log_snr")}
        kept.append(flat)
    draws = {"W" if k == "w" else k: np.stack([each[k] for each in kept], axis=-1) for k in ("w", "sigma", "log_snr")}
    return Found(draws["W"].mean(axis=0), draws, divergences=divergences)


def without(release: Release, message: FloatArray) -> Release:
    """The release as if one task had not sent its message: Sigma - w~ w~' by m - 1 tasks, which has exactly that law.

    Only the owner can compute it, who knows w~ (d,); what follows from it is its own.

    Raises:
        ValueError: a release of several rounds, or a message that cannot be in it.
    """
    if release.rounds != 1:
        raise ValueError(f"release: expected one round, whose message the owner can recompute, got {release.rounds}")
    rest = release.sigma[0] - np.outer(message, message)
    if np.linalg.eigvalsh(rest)[0] <= 0:
        raise ValueError("message: expected the message behind the release; without it Sigma is not positive definite")
    return Release(
        sigma=rest[None],
        mechanisms=release.mechanisms,
        num_tasks=release.num_tasks - 1,
        features=release.features,
        guarantee=release.guarantee,
        message=release.message,
        scaling=release.scaling,
        library_version=release.library_version,
        besides=release.besides,
    )


def excluding(
    tasks: TaskData, shared: SharedPosterior, scale: FloatArray | None, sharpness: float | None, num_draws: int, seed: int, progress_bar: bool
) -> Found:
    """Plug-in posteriors that do not count an owner's rows twice: each from the release without its own message."""
    own = unit_columns(conjugate.task_posteriors(tasks.gram, None, scale).scaled_mean)
    kept = []
    for i in tqdm(range(tasks.num_tasks), desc="owners", disable=not progress_bar):
        rest = without(shared.release, own[:, i])
        public = shared_covariance(rest, structure=shared.structure, chains=2, seed=seed, progress_bar=False)
        xx, xy, yy, n = tasks.gram
        one = Gram(xx[i : i + 1], xy[i : i + 1], yy[i : i + 1], n[i : i + 1])
        kept.append(plug_in(one, *sharpened(public, sharpness), None if scale is None else scale[i : i + 1], num_draws, seed + i))
    draws = {k: np.concatenate([each.draws[k] for each in kept], axis=-1) for k in kept[0].draws}
    return Found(np.concatenate([each.W for each in kept], axis=1), draws)
