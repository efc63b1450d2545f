"""Simulation-based calibration of every curator's model with every exact kernel, at full length.

    python benchmarks/calibration.py [replications]

Prints, for each pair, the p-values that ranks are uniform. Under a correct sampler they are uniform themselves: of the
hundred or so, expect one below .01. The fast version is in tests/test_sampling.py.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import jax
from numpyro.infer import NUTS

from mpmtl_prob.inference import ProximalLangevin
from mpmtl_prob.inference.simulation import Setting, rank_statistics, uniformity
from mpmtl_prob.models import group_sparse, low_rank, low_rank_sparse
from mpmtl_prob.privacy import Wishart

KERNELS = {
    "NUTS": (partial(NUTS, max_tree_depth=7), {"warmup": 500, "thin": 15}),
    "adjusted Langevin": (ProximalLangevin, {"warmup": 3000, "thin": 150}),
}
SETTINGS = {
    "rows alone": Setting(),
    "with a release": Setting(noise=Wishart(2, 6.0, 0.1, 1.5)),
    "more features than tasks": Setting(num_features=4, num_tasks=2, rows=3),
}


def main(replications: int = 1000) -> None:
    jax.config.update("jax_enable_x64", True)
    for model in (low_rank, group_sparse, low_rank_sparse):
        for where, setting in SETTINGS.items():
            for name, (kernel, length) in KERNELS.items():
                for precondition in (True, False):
                    start = time.perf_counter()
                    ranks = rank_statistics(
                        model,
                        kernel,
                        setting=setting,
                        precondition=precondition,
                        replications=replications,
                        **length,
                    )
                    values = ", ".join(f"{k} {uniformity(v):.3f}" for k, v in ranks.items())
                    coordinates = "local" if precondition else "plain"
                    seconds = time.perf_counter() - start
                    print(f"{model.__name__}, {where}, {name}, {coordinates}: {values} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
