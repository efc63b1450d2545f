"""Speed of the public posterior beside a NumPyro model with latent weights W, and of the owners' posteriors.

    python studies/benchmarks/public.py [--draws 300] [--limit 120] [--json OUT]

One release of School at eps = 1 (30 % split), one posterior, two ways to NUTS: this library's, in which W and Omega are
integrated out, and W latent (d x m numbers) as one would write it well: scaled by phi, Omega integrated out, and
`ShiftedWishart` as the likelihood of the release. Both are compiled before the clock starts. Either reports the smallest
bulk effective sample size of the same functionals of A, their largest r-hat, and the former by CPU seconds of sampling (two
chains, side by side), which a busy machine lengthens less than those of the clock. W latent stops when its time is up, and
then has the draws that it has; where its r-hat is far from 1, its effective sample size is not one.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.infer import NUTS

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob import datasets, inference, release  # noqa: E402
from mpmtl_prob.inference.public import init as starts  # noqa: E402
from mpmtl_prob.inference.public import structures  # noqa: E402
from mpmtl_prob.models import shared_covariance as model  # noqa: E402
from mpmtl_prob.models.observed import LOG_PHI_SD, Observed  # noqa: E402
from mpmtl_prob.models.triangles import log_det  # noqa: E402
from mpmtl_prob.sampling import chains  # noqa: E402

CHAINS = 2


def weights_latent(observed: Observed, sigma: Any, m: int) -> None:
    """Model as `full` with W latent: W = sqrt(Phi) V, V matrix-t, which integrating Omega out gives."""
    d = len(sigma)
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    log_phi = numpyro.deterministic("log_phi", observed.log_phi_mean + LOG_PHI_SD * z)
    V = numpyro.sample("V", dist.ImproperUniform(constraints.real_matrix, (), (d, m)))
    S, kappa = V @ V.T, model.degrees_of_freedom(d)
    log_prior = -0.5 * (m + kappa) * log_det(jnp.linalg.cholesky(jnp.eye(d) + S))
    numpyro.factor("prior", log_prior + model.log_normaliser(kappa, m, d))
    A = numpyro.deterministic("A", kappa * jnp.exp(log_phi) * S)
    numpyro.factor("known_trace", -0.5 * observed.trace_precision * (jnp.trace(A) - observed.trace) ** 2)
    numpyro.sample("sigma", observed.noise.sampling_distribution(A), obs=sigma)


def functionals(draws: chains.Draws) -> dict[str, Any]:
    """Return functionals that readers of the posterior look at, (chain, draw) each."""
    eigenvalues = np.linalg.eigvalsh(draws["A"])[..., ::-1]
    shares = eigenvalues / eigenvalues.sum(axis=-1, keepdims=True)
    return {f"share_{j + 1}": shares[..., j] for j in range(3)} | {"log_phi": draws["log_phi"]}


def arm(name: str, kernel: NUTS, args: tuple[Any, ...], start: dict[str, Any], warmup: int, draws: int, limit: float):
    """Run two chains until they have their draws or their time is over; return a dictionary of measures."""
    import arviz as az

    compiled = chains.program(kernel, warmup)
    reached = chains.init(compiled, args, chains=CHAINS, seed=0, start=start)
    jax.block_until_ready(compiled.advance(reached.state[0], args, 1)[0])  # compiles
    kept = []
    spent = [(0.0, 0.0)]
    begin = time.perf_counter()
    for now, samples, statistics in chains.advance(
        compiled, kernel, args, reached, warmup=warmup, draws=draws, thin=1, progress_bar=False
    ):
        jax.block_until_ready(now.state)
        if samples is None or statistics is None:
            warm = time.process_time(), time.perf_counter()
        else:
            kept.append((samples, statistics))
            spent.append((time.process_time() - warm[0], time.perf_counter() - warm[1]))
        if time.perf_counter() - begin > limit and len(kept) > 1:
            break
    values = functionals(chains.join([samples for samples, _ in kept]))
    ess = {k: float(az.ess(v)) for k, v in values.items()}
    rhat = max(float(az.rhat(v)) for v in values.values())
    cpu, wall = spent[-1]
    steps = chains.join([statistics for _, statistics in kept])["n_steps"]
    out = {
        "warm-up": now.warmed,
        "draws": now.drawn,
        "cut short": now.drawn < draws,
        "latent numbers": int(sum(np.size(v) for v in start.values())),
        "leapfrog steps a draw": float(steps.mean()),
        "CPU seconds": cpu,
        "seconds": wall,
        "largest r-hat": rhat,
        "means": {k: float(v.mean()) for k, v in values.items()},
        "ESS": ess,
        "smallest ESS": min(ess.values()),
        "ESS per CPU second": min(ess.values()) / cpu,
    }
    print(
        f"{name}: {CHAINS} x {now.drawn} draws after {now.warmed}, {cpu:.1f} CPU s, {out['leapfrog steps a draw']:.0f} "
        f"leapfrog steps, smallest ESS {out['smallest ESS']:.0f}, r-hat {rhat:.3f}, {out['ESS per CPU second']:.3g} a second",
        flush=True,
    )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300, help="and as many for warm-up")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of the arm with W latent")
    record.option(parser)
    options = parser.parse_args()
    train, _ = datasets.school().split(0.3, seed=0)
    published = release(train, 1.0, adjacency="zero_out", unsafe_seed=0)
    observed, d, m = starts.observed(published), train.num_features, train.num_tasks
    full = structures.model_for("full", published)
    small = np.sqrt(0.1 / m) * np.random.default_rng(0).standard_normal((d, m))
    draws = options.draws
    arms = {
        "library": arm(
            "library", NUTS(full.model, max_tree_depth=8), (observed,), dict(full.start), draws, draws, np.inf
        )
    }
    kernel = NUTS(partial(weights_latent, m=m), max_tree_depth=8)
    start = {"z": 0.0, "z_kappa": 0.0, "V": small}
    arms["W latent"] = arm("W latent", kernel, (observed, published.sigma[0]), start, draws, draws, options.limit)
    speed = {name: each["ESS per CPU second"] for name, each in arms.items()}
    ratios = {name: speed["library"] / each for name, each in speed.items() if name != "library"}
    print("library over", "; ".join(f"{name}: {ratio:.3g}" for name, ratio in ratios.items()))

    shared = inference.shared_covariance(published, chains=2, progress_bar=False)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        inference.task_posteriors(train, shared, chains=4, draws=500)
        seconds.append(time.perf_counter() - begin)
    owners = {"tasks": m, "draws": 2000, "seconds": min(seconds[1:])}
    print(f"owners' posteriors: {m} tasks x 2000 draws in {owners['seconds']:.2f} s, warm")
    record.write(options.json, {"arms": arms, "ratios": ratios, "limit": options.limit, "owners": owners})


if __name__ == "__main__":
    main()
