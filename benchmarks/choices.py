"""What is chosen for a user: does a second round pay where it is taken, and what does another structure give?

    python benchmarks/choices.py [--shapes 12] [--epsilons 1 10] [--json OUT]

Data sets of benchmarks/shapes.py, other ones than its table shows: of at least as many tasks as features, and half of them
with fewer rows than features, where a first message is mostly its own prior. Every arm has the whole budget. Every shape is
a file in --units, and is not run again. "auto" is how many rounds rounds="auto" takes there.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import record
from shapes import data, error, shape
from tqdm.auto import tqdm

from mpmtl_prob._files import write_text
from mpmtl_prob.experiments.runner import digest
from mpmtl_prob.inference import NoiseAware
from mpmtl_prob.privacy import calibrate
from mpmtl_prob.releases import default_delta
from mpmtl_prob.releases.rounds import how_many

#: structure and rounds; what the others stand beside comes first
ARMS = (("full", 1), ("full", 2), ("low_rank", 1))
FIRST_SEED = 200  # the other table's are below
MOST_FEATURES = 20


def seeds(count: int) -> list[int]:
    """Of shapes by turns with fewer rows than features and with at least as many."""
    few, more = [], []
    for seed in itertools.count(FIRST_SEED):
        of = shape(seed)
        if of.features <= min(of.tasks, MOST_FEATURES):
            (few if of.rows < of.features else more).append(seed)
        if 2 * min(len(few), len(more)) >= count:
            return [seed for pair in zip(few, more, strict=False) for seed in pair][:count]
    raise AssertionError  # itertools.count does not end


def auto(seed: int, epsilon: float) -> int:
    """Rounds that rounds="auto" takes."""
    m, d = shape(seed).tasks, shape(seed).features
    return how_many("auto", m, True, lambda: calibrate(epsilon, default_delta(m), d))


def unit(seed: int, epsilon: float, folder: Path) -> dict[str, Any]:
    """A shape and the error of every arm, of its file where there is one."""
    of = shape(seed)
    path = folder / f"{digest({'arms': ARMS, 'epsilon': epsilon, **of._asdict()})}-{seed}.json"
    if not path.is_file():
        train, X, W = data(of, seed)
        fit = lambda structure, rounds: NoiseAware(
            epsilon, structure=structure, rounds=rounds, chains=2, seed=seed, unsafe_seed=seed, progress_bar=False
        ).fit(train)
        found = [error(fit(*arm).W, X, W) for arm in ARMS]
        write_text(path, json.dumps({"shape": of._asdict(), "errors": found}))
    return dict(json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=12)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--units", type=Path, default=Path("out/benchmarks/choices"), help="folder of finished shapes")
    record.option(parser)
    options = parser.parse_args()
    options.units.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = {f"{epsilon:g}": [] for epsilon in options.epsilons}
    for seed, epsilon in tqdm(list(itertools.product(seeds(options.shapes), options.epsilons)), desc="shapes"):
        found[f"{epsilon:g}"].append(unit(seed, epsilon, options.units) | {"auto": auto(seed, epsilon)})
        record.write(options.json, {"arms": ARMS, "cells": found})


if __name__ == "__main__":
    main()
