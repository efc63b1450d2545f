"""Errors and coverage of owners with their own messages in the release, and without them.

    python studies/benchmarks/own_message.py [--replications 5] [--json OUT]

Every cell is a number of tasks and features, and an eps (zero-out). Owners use one release three times: with their own
messages in it, by default, and, in the first shape, exactly without them, which takes a public posterior for every owner.
"""

from __future__ import annotations

import argparse
from statistics import mean

import jax
from tqdm import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob import datasets, evaluation, inference, release  # noqa: E402

SHAPES = ((20, 30), (40, 30), (80, 30), (120, 30), (20, 60))
EPSILONS = (1.0, 10.0, 100.0, 1000.0)
ARMS = {"with": "off", "default": "auto", "exact": "exact"}


def scores(num_tasks: int, num_features: int, epsilon: float, seed: int, exact: bool) -> dict[str, tuple[float, float]]:
    """Return the error (nmse) and the coverage of 90 % intervals by arm."""
    made = datasets.synthetic_low_rank(num_tasks=num_tasks, num_features=num_features, seed=seed)
    published = release(made.train, epsilon, adjacency="zero_out")
    shared = inference.shared_covariance(published, chains=2, warmup=150, draws=150, seed=seed, progress_bar=False)
    by_arm = {}
    for arm, leave_one_out in ARMS.items():
        if arm == "exact" and not exact:
            continue
        own = inference.task_posteriors(
            made.train, shared, leave_one_out=leave_one_out, draws=250, seed=seed, progress_bar=False
        ).predict(made.test)
        by_arm[arm] = (evaluation.nmse(own, made.test), evaluation.coverage(own, made.test))
    return by_arm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=5)
    record.option(parser)
    options = parser.parse_args()
    cells = []
    for shape in SHAPES:
        for epsilon in EPSILONS:
            replications = [
                scores(*shape, epsilon, seed, shape == SHAPES[0])
                for seed in tqdm(range(options.replications), desc=f"{shape}, eps = {epsilon:g}", leave=False)
            ]
            arms = {}
            for arm in replications[0]:
                error = mean(by_arm[arm][0] / by_arm["with"][0] for by_arm in replications)
                covered = mean(by_arm[arm][1] for by_arm in replications)
                arms[arm] = {"error": error, "coverage": covered}
                print(f"{shape}, eps = {epsilon:g}, {arm}: error {error:.3f}, coverage {covered:.3f}", flush=True)
            cells.append({"tasks": shape[0], "features": shape[1], "epsilon": epsilon, "arms": arms})
    record.write(options.json, {"replications": options.replications, "cells": cells})


if __name__ == "__main__":
    main()
