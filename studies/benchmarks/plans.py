"""What a study was told to expect before it spent anything, beside what it got.

    python studies/benchmarks/plans.py [--data FOLDER] [--json OUT]

For every cell of the panel in docs/benchmarks/panel.json: `plan_study` with the cell's own public numbers and a guess that is
right, and the error of the library's fits over that of every task alone, as the panel has it. The plan knows neither
correlated columns, nor unequal residual variances, nor the law of unequal rows beyond its bounds.

For every real table of the panel whose file is at hand: the same with a guess that is right as far as a mixed model of all
rows tells, and errors less the residual variance that this model has, since no model predicts that part of a test row.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import record
from random_effects import arms, cells, mixed, real
from tqdm.auto import tqdm

from mpmtl_prob.evaluation import plan_study

PANEL = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "panel.json"
ALONE = "alone, evidence"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of the real tables")
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
    tables = [row for measured in panel["tables"] if (row := on_table(measured, options.data)) is not None]
    record.write(options.json, {"panel": panel["now"], "cells": rows, "tables": tables})


def on_table(measured: dict[str, Any], folder: Path | None) -> dict[str, Any] | None:
    """Expected and realised ratio of a real table; None where its file is not at hand."""
    name, epsilon = measured["table"], measured["epsilon"]
    try:
        every = real.rows(name, folder)
    except FileNotFoundError as error:
        print(error)
        return None
    X = [np.column_stack([np.ones(len(task)), task[:, :-1]]) for task in every]
    fitted = mixed.fit(mixed.statistics(X, [task[:, -1] for task in every]))
    common, spread = float(fitted.mu @ fitted.mu), float(np.trace(fitted.Omega))
    splits = [real.split(name, number, epsilon, folder) for number in range(measured["splits"])]
    # of a test row's squared deviation from its task's mean, as errors are shares of it, what no coefficient explains
    residual = np.mean([fitted.sigma2 / _deviation(each) for each in splits])
    public = splits[0].public
    plan = plan_study(
        epsilon, public.m, X[0].shape[1], public.row_range, epsilons=[epsilon], progress_bar=False, delta=public.delta,
        explained=(common + spread) / (common + spread + fitted.sigma2), common=common / (common + spread),
    )  # fmt: skip
    expected, errors = plan.by_epsilon[0], measured["errors"]
    realised = (errors[arms.NOW]["mean"] - residual) / (errors[ALONE]["mean"] - residual)
    print(f"{name}, eps = {epsilon:g}: expected {expected.ratio:.2f} realised {realised:.2f} {expected.says}")
    row = {"table": name, "epsilon": epsilon, "splits": measured["splits"], "residual": float(residual)}
    return row | {"expected": expected.ratio, "realised": float(realised), "says": expected.says}


def _deviation(split: real.Split) -> float:
    """Mean squared deviation of test rows from their task's mean."""
    return float(np.mean(np.concatenate([(v - v.mean()) ** 2 for _, v in split.test])))


def _spread(cell: cells.Cell) -> float:
    """The trace of Omega."""
    return float(np.trace(cells.truth(cell, np.random.default_rng(0))[1]))


if __name__ == "__main__":
    main()
