"""Simulation-based calibration of every structure of the shared covariance, at full length.

    python benchmarks/calibration_shared.py [--replications 1000] [--structures auto group_sparse ...]

The tests run the same check with a few dozen replications. Prints, for every functional, the p-value of uniform ranks and
the coverage of central 90 % intervals (ranks 1 to 18 of 0 to 19).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import test_structures as structures  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--structures", nargs="+", default=list(structures.CALIBRATED))
    options = parser.parse_args()
    for name in options.structures:
        ranks = structures.ranks(*structures.CALIBRATED[name], options.replications)
        print(name)
        for j, functional in enumerate(("trace", "second eigenvalue", "off-diagonal", "log phi")):
            covered = np.mean((ranks[:, j] >= 1) & (ranks[:, j] <= 18))
            print(
                f"  {functional:18s} uniform ranks p = {structures.uniformity(ranks[:, j]):.3f}, coverage {covered:.3f}"
            )


if __name__ == "__main__":
    main()
