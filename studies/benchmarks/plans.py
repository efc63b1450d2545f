"""What a study was told to expect before it spent anything, beside what it got.

    python studies/benchmarks/plans.py [--json OUT]

For every cell of the panel in docs/benchmarks/panel.json: `plan_study` with the cell's own public numbers and a guess that is
right, and the error of the library's fits over that of every task alone, as the panel has it. The plan knows neither
correlated columns, nor unequal residual variances, nor the law of unequal rows beyond its bounds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import record
from random_effects import arms, cells
from tqdm.auto import tqdm

from mpmtl_prob.evaluation import plan_study

PANEL = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "panel.json"
ALONE = "alone, evidence"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    record.option(parser)
    options = parser.parse_args()
    panel = json.loads(PANEL.read_text())
    rows = []
    for measured in tqdm(panel["cells"]):
        if arms.NOW not in measured["errors"]:
            continue
        cell = cells.cells(names=[measured["cell"]["name"]])[0]
        square, spread = cells.declared_square(cell), _spread(cell)
        plan = plan_study(
            cell.epsilon, cell.m, cell.d, cell.row_range, epsilons=[cell.epsilon], progress_bar=False,
            delta=1 / (cell.m * np.log(cell.m)), explained=(cell.mean**2 + spread) / square,
            common=cell.mean**2 / (cell.mean**2 + spread),
        )  # fmt: skip
        expected, errors = plan.by_epsilon[0], measured["errors"]
        rows.append(
            {
                "cell": cell.name,
                "seeds": errors[arms.NOW]["count"],
                "expected": expected.ratio,
                "realised": errors[arms.NOW]["mean"] / errors[ALONE]["mean"],
                "says": expected.says,
            }
        )
        print(
            f"{cell.name:52s} expected {rows[-1]['expected']:.2f} realised {rows[-1]['realised']:.2f} {expected.says}"
        )
    near = np.mean([abs(row["expected"] / row["realised"] - 1) < 0.15 for row in rows])
    print(f"within 15 %: {near:.0%} of {len(rows)}")
    record.write(options.json, {"panel": panel["now"], "cells": rows})


def _spread(cell: cells.Cell) -> float:
    """The trace of Omega."""
    return float(np.trace(cells.truth(cell, np.random.default_rng(0))[1]))


if __name__ == "__main__":
    main()
