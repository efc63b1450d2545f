"""Simulation-based calibration of every curator's model with every exact kernel, at full length.

    python studies/benchmarks/calibration.py [--replications 1000] [--models low_rank ...] [--json OUT]

Prints, for each pair, the p-values that ranks are uniform. Under a correct sampler they are uniform themselves: of the
hundred or so, expect one below .01. The fast version is in tests/sampling/test_sampling.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import jax
from numpyro.infer import NUTS
from numpyro.infer.mcmc import MCMCKernel

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob.inference import ProximalLangevin  # noqa: E402
from mpmtl_prob.models import group_sparse, low_rank, low_rank_sparse  # noqa: E402
from mpmtl_prob.privacy import Gaussian, Wishart  # noqa: E402
from mpmtl_prob.sampling.calibration import Setting, rank_statistics, uniformity  # noqa: E402

MODELS = {model.__name__: model for model in (low_rank, group_sparse, low_rank_sparse)}
KERNELS: dict[str, tuple[Callable[..., MCMCKernel], int, int]] = {  # with its warm-up and how it is thinned
    "NUTS": (partial(NUTS, max_tree_depth=7), 500, 15),
    "adjusted Langevin": (ProximalLangevin, 3000, 1200),  # at 150 ranks pile up at both ends
}
SETTINGS = {
    "rows alone": Setting(),
    "with a release": Setting(noise=Wishart(2, 6.0, 0.1, 1.5)),
    "with a Gaussian release": Setting(noise=Gaussian(2, 0.3, 1.5)),
    "more features than tasks": Setting(num_features=4, num_tasks=2, rows=3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    record.option(parser)
    options = parser.parse_args()
    cells = []
    for model in options.models:
        for where, setting in SETTINGS.items():
            for name in options.kernels:
                kernel, warmup, thin = KERNELS[name]
                for coordinates in ("local", "plain"):
                    start = time.perf_counter()
                    ranks = rank_statistics(
                        MODELS[model],
                        kernel,
                        setting=setting,
                        precondition=coordinates == "local",
                        replications=options.replications,
                        warmup=warmup,
                        thin=thin,
                    )
                    values = {k: uniformity(v) for k, v in ranks.items()}
                    shown = ", ".join(f"{k} {p:.3f}" for k, p in values.items())
                    seconds = time.perf_counter() - start
                    print(f"{model}, {where}, {name}, {coordinates}: {shown} ({seconds:.0f} s)", flush=True)
                    place = {"model": model, "setting": where, "kernel": name, "coordinates": coordinates}
                    cells += [place | {"functional": k, "p": p} for k, p in values.items()]
                    record.write(options.json, {"replications": options.replications, "cells": cells})


if __name__ == "__main__":
    main()
