"""How probable a release is under each structure: its marginal likelihood, by bridge sampling.

p(Sigma | structure) is public: it uses the release and nothing else. It is estimated from the posterior's own draws and a
normal fitted to one half of them, in the coordinates in which the posterior is nearly normal.

Source: Meng and Wong (1996), Statistica Sinica 6, equation (4.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.infer.util import log_density
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, multigammaln

from mpmtl_prob.inference.nuts import Draws
from mpmtl_prob.models.shared_covariance import prior_degrees_of_freedom
from mpmtl_prob.tasks import FloatArray


class Evidence(NamedTuple):
    """log p(Sigma | structure), up to a constant that structures share, and its Monte Carlo error."""

    log: float
    error: float


def log_evidence(model: Callable[..., None], observed: Any, found: Draws, sites: tuple[str, ...], seed: int) -> Evidence:
    """The marginal likelihood of one model of one release, but for the constants of its prior: see :func:`constant`.

    Args:
        model: the NumPyro model; every site in ``sites`` is unconstrained.
        observed: its argument.
        found: draws by site, leading axes (chain, draw).
        sites: the sampled ones.
        seed: of the normal's draws.
    """
    chains, draws = found[sites[0]].shape[:2]
    flat = np.concatenate([found[name].reshape(chains, draws, -1).astype(np.float64) for name in sites], axis=-1)
    shapes = tuple((name, found[name].shape[2:]) for name in sites)
    half = draws // 2
    fit, use = (part.reshape(-1, flat.shape[-1]) for part in (flat[:, :half], flat[:, half:]))
    mean, root = fit.mean(axis=0), np.linalg.cholesky(_shrunk_covariance(fit))
    rng = np.random.default_rng(seed)
    proposed = mean + rng.standard_normal(use.shape) @ root.T

    def log_normal(x: FloatArray) -> FloatArray:
        z = solve_triangular(root, (x - mean).T, lower=True)
        return -0.5 * np.sum(z**2, axis=0) - np.sum(np.log(np.diag(root))) - 0.5 * len(mean) * np.log(2 * np.pi)

    target = _batched(model, shapes)
    ratio = np.asarray(target(observed, use), dtype=np.float64) - log_normal(use)
    other = np.asarray(target(observed, proposed), dtype=np.float64) - log_normal(proposed)
    return _bridge(ratio, np.where(np.isfinite(other), other, -1e300))


def constant(structure: str, num_features: int, num_tasks: int) -> float:
    """What the priors of A under "full" and "group_sparse" leave out, log."""
    d, m = num_features, num_tasks
    if structure == "full":
        kappa = prior_degrees_of_freedom(d)
        normaliser = multigammaln(0.5 * (m + kappa), d) - multigammaln(0.5 * m, d) - multigammaln(0.5 * kappa, d)
        return float(normaliser)
    return float(-0.5 * m * d * np.log(2) - multigammaln(0.5 * m, d) + d * np.log(2 / np.pi))


def _bridge(ratio: FloatArray, other: FloatArray) -> Evidence:
    """The optimal bridge's fixed point. ratio, other: log(target / normal) at draws of either."""
    n = len(ratio)
    log_z = float(np.median(ratio))
    for _ in range(500):
        # r = mean_normal[l2 / (l2 + r)] / mean_posterior[1 / (l1 + r)], with equal sample sizes
        top = logsumexp(other - np.logaddexp(other, log_z)) - np.log(len(other))
        bottom = logsumexp(-np.logaddexp(ratio, log_z)) - np.log(n)
        step = top - bottom - log_z
        log_z += step
        if abs(step) < 1e-8:
            break
    # delta method, each sample on its own
    f, g = np.exp(other - np.logaddexp(other, log_z)), np.exp(log_z - np.logaddexp(ratio, log_z))
    variance = np.var(f) / np.mean(f) ** 2 / len(f) + np.var(g) / np.mean(g) ** 2 / n
    return Evidence(log_z, float(np.sqrt(variance)))


def _shrunk_covariance(x: FloatArray) -> FloatArray:
    """Ledoit-Wolf: the sample covariance shrunk to its diagonal, as far as its own noise asks."""
    n, p = x.shape
    sd = x.std(axis=0)
    z = (x - x.mean(axis=0)) / sd
    R = z.T @ z / n
    off = ~np.eye(p, dtype=bool)
    noise = ((z**2).T @ z**2 / n - R**2)[off].sum() / n
    share = min(1.0, noise / max(float(np.sum(R[off] ** 2)), 1e-300))
    return ((1 - share) * R + share * np.eye(p)) * np.outer(sd, sd)


@lru_cache(maxsize=16)
def _batched(model: Callable[..., None], shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Callable[..., Any]:
    def one(observed: Any, flat: Any) -> Any:
        params, at = {}, 0
        for name, shape in shapes:
            size = int(np.prod(shape))
            params[name] = flat[at : at + size].reshape(shape)
            at += size
        return log_density(model, (observed,), {}, params)[0]

    return jax.jit(lambda observed, x: jax.lax.map(lambda flat: one(observed, flat), x, batch_size=64))
