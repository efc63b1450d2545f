"""Full Bayesian model of one release for NUTS: the features' second moment, the shift and the noise are all sampled.

    X'X = n f L A A'L'                    L L' = C_s of the source, A lower triangular near I, log f ~ N(0, .7^2)
    delta ~ mixture over domains k and sizes tau of N(w_k - w_0, V_k + tau^2 T_k / d)
    log sigma ~ N(log of the public residuals' scale, .6^2)
    S_xx ~ N(X'X, noise),  (S_xr, S_rr) | X'X, delta, sigma ~ N(.), as in :mod:`mpmtl_prob.adaptation.moments.clipping`

The prior is that of :mod:`mpmtl_prob.adaptation.moments.grid_posterior`. The mixture over tau is summed over its grid, which
avoids a funnel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.stats import norm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.adaptation.moments.clipping import moments
from mpmtl_prob.adaptation.moments.feature_moment import FACTOR_SPREAD
from mpmtl_prob.adaptation.moments.grid_posterior import SIGMA_SPREAD, TAUS, Grid
from mpmtl_prob.adaptation.moments.release import MomentRelease
from mpmtl_prob.models import triangles
from mpmtl_prob.sampling.nuts import run_nuts

#: scale of the half-normal prior on the departures of A from I, times sqrt d
BEND = 0.5


class Observed(NamedTuple):
    """Data and prior of the model, as traced arrays.

    Attributes:
        xx: X'X + noise; rescaled to r = 1, as are all others.
        xr: X'rho + noise.
        rr: rho'rho + noise.
        sd: s.
        n: number of records.
        c: residual bound.
        unit: u, the unit of a residual in the release.
        root: L.
        means: w_k - w_0, (K + 1, d).
        axes: eigenvectors of V_k + tau^2 T_k / d, (K + 1, G, d, d).
        values: its eigenvalues, (K + 1, G, d).
        log_odds: log prior probabilities of domains and tau, (K + 1, G).
        sigma: scale of the public residuals.
        centre: delta is centre + coordinates @ shift, (d,).
        coordinates: (d, d).
    """

    xx: Any
    xr: Any
    rr: Any
    sd: Any
    n: Any
    c: Any
    unit: Any
    root: Any
    means: Any
    axes: Any
    values: Any
    log_odds: Any
    sigma: Any
    centre: Any
    coordinates: Any


def observe(release: MomentRelease, grid: Grid) -> Observed:
    """Return the model's data. The conditional posterior ``grid`` has its prior, and gives coordinates of delta."""
    r, d, prior = release.row_bound, len(release.centre), grid.prior
    tau2 = (prior.scales[:, None] * TAUS)[..., None, None] ** 2
    values, axes = np.linalg.eigh(prior.covariances[:, None] + tau2 * prior.shapes[:, None] / d)
    log_odds = prior.log_odds[:, None] + prior.log_tau
    mean = grid.mean
    off = grid.means - mean
    square = np.einsum("kgh,kghij->ij", grid.weights, grid.covariances) + np.einsum(
        "kgh,kghi,kghj->ij", grid.weights, off, off
    )
    jitter = 1e-9 * np.trace(square) / d * np.eye(d)
    source = prior.second_moment / r**2
    return Observed(
        release.xx / r**2,
        release.xr / r,
        release.rr,
        release.sd,
        float(release.num_records),
        release.residual_bound,
        release.residual_unit,
        np.linalg.cholesky(source + 1e-9 * np.trace(source) / d * np.eye(d)),
        (prior.means - release.centre) * r,
        axes,
        np.maximum(values, 1e-12 * values.max()) * r**2,
        log_odds,
        prior.sigma,
        (mean - release.centre) * r,
        np.linalg.cholesky(square + jitter) * r,
    )


def model(data: Observed) -> None:
    """Define the NumPyro model of one release. Sites: factor, bend, diagonal, below, shift, log_sigma."""
    d = data.xr.shape[0]
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (d,))
    f = jnp.exp(FACTOR_SPREAD * numpyro.sample("factor", dist.Normal(0.0, 1.0)))
    bend = numpyro.sample("bend", dist.HalfNormal(BEND)) / jnp.sqrt(d)
    diagonal = numpyro.sample("diagonal", dist.StudentT(4.0, 0.0, 1.0).expand([d]).to_event(1))
    A = triangles.diagonal(jnp.exp(bend * diagonal))
    if d > 1:
        below = numpyro.sample("below", dist.Normal(0.0, 1.0).expand([d * (d - 1) // 2]).to_event(1))
        A += bend * triangles.strictly_lower(below, d)
    half = data.root @ A
    N = data.n * f * half @ half.T
    shift = numpyro.sample("shift", flat)
    delta = numpyro.deterministic("delta", data.centre + data.coordinates @ shift)
    size = numpyro.sample("log_sigma", dist.Normal(0.0, SIGMA_SPREAD))
    sigma = numpyro.deterministic("sigma", data.sigma * jnp.exp(size))
    numpyro.factor("prior", jax.nn.logsumexp(log_prior(data, delta)))
    sd = np.where(np.eye(d) > 0, np.sqrt(2.0), 1.0) * data.sd
    numpyro.factor("features", jnp.where(np.tri(d, dtype=bool), norm.logpdf(data.xx, N, sd), 0).sum())
    numpyro.factor("residuals", log_residuals(data, N, delta, sigma))


def log_prior(data: Observed, delta: Any) -> Any:
    """Return the log density of delta jointly with every domain and tau, (K + 1, G)."""
    inside = jnp.einsum("kgij,ki->kgj", data.axes, delta - data.means)
    return data.log_odds - 0.5 * (inside**2 / data.values + jnp.log(2 * jnp.pi * data.values)).sum(-1)


def log_residuals(data: Observed, N: Any, delta: Any, sigma: Any) -> Any:
    """Return log p(S_xr, S_rr | X'X, delta, sigma), a normal with the exact second moments for normal features."""
    d, n = delta.shape[0], jnp.maximum(data.n, 1.0)
    Nd = N @ delta
    q = delta @ Nd / n
    psi = moments(jnp.sqrt(q + sigma**2), data.c, jnp, jax.scipy.special.ndtr)
    rr = data.n * psi.spread(q) + 2 * (data.sd * data.unit**2) ** 2
    between = psi.common(q) * Nd
    xr = psi.along(q) * N + psi.across(q) / n * jnp.outer(Nd, Nd) + (data.sd * data.unit) ** 2 * jnp.eye(d)
    rr_residual = data.rr - data.n * psi.square
    inverse, log_det = triangles.inverse_and_log_det(xr - jnp.outer(between, between) / rr)
    residual = data.xr - psi.kept * Nd - between / rr * rr_residual
    return -0.5 * (residual @ inverse @ residual + log_det + rr_residual**2 / rr + jnp.log(rr))


def start(data: Observed) -> dict[str, FloatArray]:
    """Return unconstrained starting values: A = I, and the conditional posterior's mean."""
    d = len(data.xr)
    values = {"factor": np.zeros(()), "bend": np.array(np.log(0.3)), "diagonal": np.zeros(d), "shift": np.zeros(d)}
    values["log_sigma"] = np.zeros(())
    return values | ({"below": np.zeros(d * (d - 1) // 2)} if d > 1 else {})


def sample(
    release: MomentRelease,
    grid: Grid,
    *,
    chains: int,
    warmup: int,
    draws: int,
    seed: int,
    progress_bar: bool,
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Sample w, tau, sigma and domain, (S, ...); return them with the sampler's statistics, (chain, draw)."""
    check_not_forked()
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, observe(release, grid))
        samples, statistics = run_nuts(
            model, data,
            start=start(data), chains=chains, warmup=warmup, draws=draws, seed=seed, progress_bar=progress_bar,
            acceptance=0.95,  # the prior of the shift has a spike at zero
        )  # fmt: skip
        delta = samples["delta"].reshape(-1, len(release.centre))
        cells = np.asarray(_cells()(data, jnp.asarray(delta), jax.random.key(seed)))
    k, g = np.divmod(cells, len(TAUS))
    w = release.centre + delta / release.row_bound
    return {"w": w, "tau": grid.tau[k, g], "sigma": samples["sigma"].ravel(), "domain": grid.domains[k]}, statistics


@lru_cache(maxsize=1)
def _cells() -> Any:
    """Return a compiled function that draws a domain and a tau for every delta, from their conditional distribution."""

    def draw(data: Observed, delta: Any, key: Any) -> Any:
        logits = jax.vmap(lambda row: log_prior(data, row).ravel())(delta)
        return jax.random.categorical(key, logits)

    return jax.jit(draw)
