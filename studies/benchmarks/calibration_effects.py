"""Simulation-based calibration of the public posterior of average effects and their spread.

    python studies/benchmarks/calibration_effects.py [--replications 400] [--structures full ...] [--noise gaussian ...]
        [--tasks 12 30] [--json OUT]

Truths are drawn from the stated prior, two effects, and tasks' messages and the noise from the model. The tests run the same
check with a few dozen replications. Prints, for every functional, the p-value of uniform ranks and the coverage of central
90 % intervals (ranks 1 to 18 of 0 to 19).
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("tests", "tests/inference")]

import record  # noqa: E402
import test_shared_effects as effects  # noqa: E402

from mpmtl_prob.inference.public.effects import STRUCTURES  # noqa: E402
from mpmtl_prob.sampling.calibration import uniformity  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument("--noise", nargs="+", choices=effects.LAWS, default=list(effects.LAWS))
    parser.add_argument("--tasks", nargs="+", type=int, default=[12, effects.M])
    record.option(parser)
    options = parser.parse_args()
    cells = []
    for structure, noise, m in product(options.structures, options.noise, options.tasks):
        print(f"{structure}, {noise}, {m} tasks")
        ranks = effects.ranks(effects.LAWS[noise], options.replications, structure=structure, m=m)
        for functional, of_functional in ranks.items():
            p, covered = uniformity(of_functional), float(np.mean((of_functional >= 1) & (of_functional <= 18)))
            print(f"  {functional:18s} uniform ranks p = {p:.3f}, coverage {covered:.3f}", flush=True)
            cell = {"structure": structure, "noise": noise, "tasks": str(m), "functional": functional}
            cells.append(cell | {"p": p, "coverage of 90 %": covered})
        record.write(options.json, {"replications": options.replications, "cells": cells})


if __name__ == "__main__":
    main()
