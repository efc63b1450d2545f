"""Speed of samplers on the posterior of low-rank regression, on the School data (30 % split), as ratios in one run.

    python studies/benchmarks/samplers.py [--schools N] [--draws N] [--cuqi PYTHON] [--json OUT]

Each arm reports the smallest bulk effective sample size over functionals (sigma, rate, singular values of W, some entries),
per second of sampling after warm-up and compilation, from one chain. Arms: this library's default (NUTS, proximal gradients,
local coordinates), NUTS with plain gradients and no preconditioning, and adjusted Langevin steps. With --cuqi, a Python that
has CUQIpy (its own environment: it needs older versions of ArviZ and NumPy), its MYULA samples the same posterior at fixed
sigma and rate, and so does the default.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def functionals(W, scales):
    """Return functionals of W by name, (draw,)."""
    singular = np.linalg.svd(W, compute_uv=False)
    d, m = W.shape[1:]
    by_name = {f"s_{j + 1}": singular[:, j] for j in (0, 1, min(d, m) // 2, min(d, m) - 1)}
    by_name |= {f"w_{j},{i}": W[:, j, i] for j in (0, d // 4, d // 2) for i in (0, m // 3, 2 * m // 3)}
    return by_name | {k: v for k, v in scales.items() if np.ptp(v) > 0}


def report(name, W, scales, seconds, steps=None):
    import arviz as az

    ess = {k: float(az.ess(v[None])) for k, v in functionals(W, scales).items()}
    worst = min(ess, key=ess.__getitem__)
    extra = "" if steps is None else f", {steps:.0f} leapfrog steps a draw"
    print(
        f"{name}: {len(W)} draws in {seconds:.1f} s, smallest ESS {ess[worst]:.1f} ({worst}), "
        f"{ess[worst] / seconds:.3g} a second{extra}",
        flush=True,
    )
    return {"draws": len(W), "smallest ESS": ess[worst], "seconds": seconds, "ESS a second": ess[worst] / seconds}


def arm(name, kernel, observed, warmup, draws, thin=1):
    import jax

    from mpmtl_prob.sampling import chains

    compiled = chains.program(kernel, warmup, thin)
    reached = chains.init(compiled, (observed,), chains=1, seed=0)
    kept, begin = [], 0.0
    for now, samples, statistics in chains.advance(
        compiled, kernel, (observed,), reached, warmup=warmup, draws=draws, thin=thin, progress_bar=False
    ):
        if samples is not None and statistics is not None:
            kept.append((samples, statistics))
        else:
            jax.block_until_ready(now.state)
            begin = time.perf_counter()
    seconds = time.perf_counter() - begin
    samples, statistics = (chains.join([k[i] for k in kept]) for i in (0, 1))
    steps = statistics["n_steps"].mean() if "n_steps" in statistics else None
    scales = {k: samples[k][0] for k in ("sigma", "rate")}
    return report(name, samples["W"][0], scales, seconds, steps), {k: float(v.mean()) for k, v in scales.items()}


def cuqi(file, draws):
    """Run MYULA at fixed sigma and rate in CUQIpy's environment, and write the draws to the file."""
    import cuqi

    given = np.load(file)
    xx, xy, sigma, rate = given["xx"], given["xy"], float(given["sigma"]), float(given["rate"])
    m, d, _ = xx.shape
    gamma = sigma**2 / np.linalg.eigvalsh(xx)[:, -1].max()

    def restore(x, restoration_strength):
        U, s, Vt = np.linalg.svd(x.reshape(d, m), full_matrices=False)
        return ((U * np.maximum(s - restoration_strength * rate / sigma, 0)) @ Vt).ravel(), True

    # the likelihood through its Gram matrices: R_i w_i = R_i^{-T} X_i'y_i with R_i'R_i = X_i'X_i, exactly as good
    values, U = np.linalg.eigh(xx)
    root = np.sqrt(np.maximum(values, 0))[..., None] * np.swapaxes(U, 1, 2)
    target = np.einsum("tij,tj->ti", np.linalg.pinv(np.swapaxes(root, 1, 2)), xy)
    model = cuqi.model.LinearModel(
        lambda w: np.einsum("tij,jt->ti", root, w.reshape(d, m)).ravel(),
        adjoint=lambda r: np.einsum("tij,ti->jt", root, r.reshape(m, d)).ravel(),
        range_geometry=m * d,
        domain_geometry=m * d,
    )
    x = cuqi.implicitprior.RestorationPrior(restore, geometry=cuqi.geometry.Continuous1D(m * d), name="x")
    y = cuqi.distribution.Gaussian(model(x), sigma**2, name="y")
    posterior = cuqi.distribution.JointDistribution(x, y)(y=target.ravel())
    sampler = cuqi.sampler.MYULA(
        posterior, scale=0.49 * gamma, smoothing_strength=gamma, initial_point=given["start"].ravel()
    )
    sampler.warmup(draws // 4)
    begin = time.perf_counter()
    sampler.sample(draws)
    seconds = time.perf_counter() - begin
    W = sampler.get_samples().samples.T[-draws:].reshape(draws, d, m)
    np.savez(file, W=W[:: max(1, draws // 2000)], seconds=seconds, draws=draws)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schools", type=int, default=139, help="the first so many")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--cuqi", help="a Python with CUQIpy")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the ratios to this file too")
    parser.add_argument("--cuqi-file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cuqi_file:
        return cuqi(options.cuqi_file, options.draws)

    import jax
    import record
    from numpyro.infer import NUTS

    import mpmtl_prob as mp
    from mpmtl_prob.inference import ProximalLangevin
    from mpmtl_prob.models import low_rank, penalised

    jax.config.update("jax_enable_x64", True)
    school = mp.datasets.school()
    keep = slice(options.schools)
    tasks = mp.TaskData(school.X[keep], school.y[keep], school.mask[keep], school.tasks[keep], school.features)
    train, _ = tasks.split(0.3, seed=0)
    draws = options.draws
    default, scales = arm(
        "default: NUTS, proximal gradients, local coordinates",
        NUTS(low_rank, max_tree_depth=8),
        penalised.observe(low_rank, train),
        draws,
        draws,
    )
    plain, _ = arm(
        "NUTS, plain gradients, no preconditioning",
        NUTS(low_rank),
        penalised.observe(low_rank, train, smoothing=None, precondition=False),
        draws,
        draws,
    )
    langevin, _ = arm(
        "adjusted Langevin, local coordinates",
        ProximalLangevin(low_rank),
        penalised.observe(low_rank, train),
        10 * draws,
        draws,
        thin=20,
    )
    arms = {
        "default": default,
        "NUTS, plain gradients, no preconditioning": plain,
        "adjusted Langevin, local coordinates": langevin,
    }
    beside = {name: "default" for name in arms if name != "default"}
    if options.cuqi:
        fixed = penalised.observe(low_rank, train, **scales)
        ours, _ = arm("default, fixed sigma and rate", NUTS(low_rank, max_tree_depth=8), fixed, draws, draws)
        gram = train.gram
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cuqi.npz"
            np.savez(file, xx=gram.xx, xy=gram.xy, start=np.asarray(fixed.centre).T, **scales)
            command = [options.cuqi, __file__, "--cuqi-file", str(file), "--draws", str(50 * draws)]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)  # its progress bars go there
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            theirs_draws = np.load(file)
            theirs = report(
                "CUQIpy's MYULA, thinned for the ESS", theirs_draws["W"], {}, float(theirs_draws["seconds"])
            )
        fixed_default, fixed_theirs = "default, sigma and rate fixed", "CUQIpy's MYULA, sigma and rate fixed"
        arms |= {fixed_default: ours, fixed_theirs: theirs}
        beside[fixed_theirs] = fixed_default
    ratios = {name: arms[other]["ESS a second"] / arms[name]["ESS a second"] for name, other in beside.items()}
    for name, ratio in ratios.items():
        print(f"{beside[name]} over {name}: {ratio:.3g}")
    record.write(options.json, {"schools": train.num_tasks, "draws": draws, "arms": arms, "ratios": ratios})


if __name__ == "__main__":
    main()
