"""Public source, private target: every arm at the same budget, on two generators and on School.

    python studies/benchmarks/adaptation.py [--seeds 20] [--splits 10] [--data two_sources shifted school] [--again ARM ...]
        [--only ARM ...] [--json OUT]

Test errors of a cell (data, sizes, shift or target, budget) are means over seeds, each with data, a split and noise of its
own. Descents are tuned for every data set on its public records alone, and once more with the test rows: the oracle. Every
seed of a cell is a file in --units, and is not run again but for the arms after --again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import record
from tqdm.auto import tqdm

from studies.papers.adaptation_arms import CANDIDATES, NAMES, Cell, unit

SMALL, LARGE = (300, 60), (2000, 500)
CELLS = (
    *(Cell("two_sources", SMALL, None, e) for e in (0.5, 1.0)),
    *(Cell("two_sources", LARGE, None, e) for e in (0.5, 1.0, 4.0, 10.0)),
    Cell("two_sources", (2000, 2000), None, 0.5),
    *(Cell("shifted", SMALL, shift, e) for shift in (0.0, 0.5, 1.2) for e in (1.0, 10.0)),
    *(Cell("shifted", LARGE, shift, e) for shift in (0.0, 0.5, 1.2) for e in (0.5, 1.0, 4.0, 10.0)),
    *(
        Cell("school", (6000, 1000), target, e)
        for target in ("mixed", "boys", "girls", "1987", "vr_band_1")
        for e in (0.5, 1.0, 4.0, 10.0)
    ),
)


def summary(cell: Cell, runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return means over seeds, with standard errors."""
    every = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    spread = lambda values: float(values.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else None
    means = {name: {"mean": float(v.mean()), "standard error": spread(v)} for name, v in every.items()}
    coverage = means.pop("coverage", {"mean": None})["mean"]
    return cell.to_dict() | {"seeds": len(runs), "coverage": coverage, "arms": means}


def kept(path: Path, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report in a file with new cells. Raises ValueError if its cells have other seeds."""
    report: dict[str, Any] = json.loads(path.read_text())
    about = lambda cell: {k: v for k, v in cell.items() if k not in ("arms", "coverage")}
    for cell in cells:
        old = next((old for old in report["cells"] if about(old) == about(cell)), None)
        if old is None:
            raise ValueError(f"{path}: expected a cell {about(cell)}")
        old["arms"] |= cell["arms"]
        old["coverage"] = old["coverage"] if cell["coverage"] is None else cell["coverage"]
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="of made-up data")
    parser.add_argument("--splits", type=int, default=10, help="of School")
    parser.add_argument("--data", nargs="+", default=["two_sources", "shifted", "school"], help="which of them")
    parser.add_argument("--again", nargs="+", default=[], metavar="ARM", help="arms that are measured anew")
    parser.add_argument(
        "--only", nargs="+", default=NAMES, metavar="ARM", help="arms; --json keeps all others of its own"
    )
    parser.add_argument(
        "--units", type=Path, default=Path("out/benchmarks/adaptation"), help="folder of finished seeds"
    )
    record.option(parser)
    options = parser.parse_args()
    options.units.mkdir(parents=True, exist_ok=True)
    cells = [cell for cell in CELLS if cell.data in options.data]
    done: dict[Cell, list[dict[str, float]]] = {cell: [] for cell in cells}
    seeds = {cell: options.splits if cell.data == "school" else options.seeds for cell in cells}
    with tqdm(total=sum(seeds.values()), desc="adaptation") as bar:
        for seed in range(max(seeds.values())):  # cells have as many seeds whenever it is stopped
            for cell in [cell for cell in cells if seed < seeds[cell]]:
                bar.set_postfix_str(f"{cell.data} {cell.records} {cell.shift} eps {cell.epsilon:g}, seed {seed}")
                done[cell].append(unit(cell, seed, options.units, options.only, options.again))
                bar.update()
            summaries = [summary(cell, runs) for cell, runs in done.items()]
            candidates = {name: len(tried) for name, tried in CANDIDATES.items()}
            if options.only is NAMES:
                record.write(options.json, {"candidates": candidates, "cells": summaries})
    if options.only is not NAMES and options.json is not None:  # all seeds or none: arms are compared seed by seed
        record.write(options.json, kept(options.json, summaries))


if __name__ == "__main__":
    main()
