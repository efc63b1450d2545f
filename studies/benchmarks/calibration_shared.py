"""Simulation-based calibration of every structure of the shared covariance, at full length.

    python studies/benchmarks/calibration_shared.py [--replications 1000] [--structures auto ...] [--noise gaussian]
        [--json OUT]

The tests run the same check with a few dozen replications. Prints, for every functional, the p-value of uniform ranks and
the coverage of central 90 % intervals (ranks 1 to 18 of 0 to 19).
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("tests", "tests/inference")]

import record  # noqa: E402
import test_structures as structures  # noqa: E402

from mpmtl_prob.inference.public.init import start_full  # noqa: E402
from mpmtl_prob.models import shared_covariance as model  # noqa: E402
from mpmtl_prob.sampling.calibration import uniformity  # noqa: E402

STRUCTURES: dict[str, tuple[Any, Any, Any, int]] = {
    "full": (model.full, structures.draw_full, start_full, structures.M),
    **structures.CALIBRATED,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument("--noise", nargs="+", choices=structures.LAWS, default=list(structures.LAWS))
    record.option(parser)
    options = parser.parse_args()
    cells = []
    for name, noise in product(options.structures, options.noise):
        print(f"{name}, {noise} noise")
        posterior, law = STRUCTURES[name], structures.LAWS[noise]
        ranks = structures.ranks(*posterior, replications=options.replications, warmup=400, thin=20, law=law)
        for functional, of_functional in ranks.items():
            p, covered = uniformity(of_functional), float(np.mean((of_functional >= 1) & (of_functional <= 18)))
            print(f"  {functional:18s} uniform ranks p = {p:.3f}, coverage {covered:.3f}", flush=True)
            cells.append(
                {"structure": name, "noise": noise, "functional": functional, "p": p, "coverage of 90 %": covered}
            )
        record.write(options.json, {"replications": options.replications, "cells": cells})


if __name__ == "__main__":
    main()
