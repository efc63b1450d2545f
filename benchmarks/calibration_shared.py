"""Simulation-based calibration of every structure of the shared covariance, at full length.

    python benchmarks/calibration_shared.py [--replications 1000] [--structures auto group_sparse ...] [--json OUT]

The tests run the same check with a few dozen replications. Prints, for every functional, the p-value of uniform ranks and
the coverage of central 90 % intervals (ranks 1 to 18 of 0 to 19).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.stats as st
from numpy.typing import NDArray

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import many  # noqa: E402
import record  # noqa: E402
import test_structures as structures  # noqa: E402

from mpmtl_prob.inference.simulation import uniformity  # noqa: E402
from mpmtl_prob.models import shared_covariance as model  # noqa: E402

FUNCTIONALS = ("trace", "second eigenvalue", "off-diagonal", "log phi")
D, DF, SCALE, PHI = structures.D, structures.DF, structures.SCALE, structures.PHI


STRUCTURES = {
    "full": (model.full, structures.draw_full, structures.T_START | {"z_kappa": 0.0}, structures.M)
} | structures.CALIBRATED


def ranks(name: str, replications: int, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """Ranks of the truth among 19 posterior draws, by functional, (replication,)."""
    function, draw, start, tasks = STRUCTURES[name]
    rng = np.random.default_rng(seed)
    truths, data = [], []
    for _ in range(replications):
        log_phi, A = draw(rng)
        sigma = A + st.wishart(DF, SCALE * np.eye(D)).rvs(random_state=rng)
        truths.append(functionals(A[None], np.array([log_phi])))
        data.append(model.observe(sigma, DF, SCALE, tasks, phi=PHI))
    draws, _ = many.chains(function, data, start=start, warmup=400, draws=19, thin=20)
    values = functionals(draws["A"], draws["log_phi"])
    truth = np.concatenate(truths, axis=1)
    return {k: (v < t[:, None]).sum(axis=1) for k, v, t in zip(FUNCTIONALS, values, truth, strict=True)}


def functionals(A: NDArray[Any], log_phi: NDArray[Any]) -> NDArray[Any]:
    """(functional, ...)."""
    return np.stack([np.trace(A, axis1=-2, axis2=-1), np.linalg.eigvalsh(A)[..., 1], A[..., 0, 1], log_phi])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    record.option(parser)
    options = parser.parse_args()
    cells = []
    for name in options.structures:
        print(name)
        for functional, found in ranks(name, options.replications).items():
            p, covered = uniformity(found), float(np.mean((found >= 1) & (found <= 18)))
            print(f"  {functional:18s} uniform ranks p = {p:.3f}, coverage {covered:.3f}", flush=True)
            cells.append({"structure": name, "functional": functional, "p": p, "coverage of 90 %": covered})
        record.write(options.json, {"replications": options.replications, "cells": cells})


if __name__ == "__main__":
    main()
