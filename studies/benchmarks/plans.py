"""Errors that a study was told to expect before it spent anything, beside those that it got.

    python studies/benchmarks/plans.py [--seeds N] [--splits N] [--data FOLDER] [--json OUT]

For every cell of the panel (random_effects/cells.csv) that docs/benchmarks/panel.json shows: `plan_study` with the cell's own
public numbers and a guess that is right, and the error of the library's fits over that of every task alone. If columns are
correlated, those of the first data set are its example.

For every real table of the panel whose file is at hand: the same with a guess that is right as far as a mixed model of all
rows tells, and with the columns of the first split's training rows as the example. From the squared errors of predicted test
rows is taken what no coefficient predicts of these rows: the squared residuals of that mixed model, each over one minus its
leverage.

All tasks share the noise of a release, so that a ratio of errors differs between seeds; its standard error is given with it.
Finished seeds and splits are files in --units and are not run again; all that are there are counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import record
from random_effects import arms, cells, limits, mixed, real
from scipy.special import polygamma
from tqdm.auto import tqdm

from mpmtl_prob import Reference, ReleaseSpec, TaskData
from mpmtl_prob._util.files import write_text
from mpmtl_prob.evaluation import plan_study

PANEL = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "panel.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=8, metavar="N", help="data sets and releases of a cell (default 8)"
    )
    parser.add_argument("--splits", type=int, default=40, metavar="N", help="splits of a real table (default 40)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of the real tables")
    parser.add_argument("--units", type=Path, default=Path("out/benchmarks/plans"), help="folder of finished seeds")
    record.option(parser)
    options = parser.parse_args()
    panel = json.loads(PANEL.read_text())
    names = [measured["cell"]["name"] for measured in panel["cells"] if arms.NOW in measured["errors"]]
    rows, tables = [], []
    for name in tqdm(names, desc="cells"):
        rows.append(_of_cell(cells.cells(names=[name])[0], options))
        _tell(name, rows[-1])
    for measured in tqdm(panel["tables"], desc="real tables"):
        row = _of_table(measured["table"], measured["epsilon"], options)
        if row is not None:
            tables.append(row)
            _tell(f"{row['table']}, eps = {row['epsilon']:g}", row)
    near = np.mean([abs(row["expected"] / row["realised"] - 1) < 0.15 for row in rows])
    print(f"within 15 %: {near:.0%} of {len(rows)}")
    record.write(options.json, {"cells": rows, "tables": tables})


def _tell(name: str, row: dict[str, Any]) -> None:
    error = "?" if row["error"] is None else f"{row['error']:.2f}"
    ratios = f"expected {row['expected']:.2f} realised {row['realised']:.2f} +- {error}"
    tqdm.write(f"{name:52s} {ratios} {row['says']}")


def _of_cell(cell: cells.Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Return the expected and the realised ratio of errors of a cell."""
    example: TaskData | None = None
    rows: tuple[int, int] | None = cell.row_range
    if cell.columns != "independent":
        example, rows = TaskData.from_lists(cells.draw(cell, 0).X, None), None
    square, spread = cells.declared_square(cell), float(np.trace(cells.truth(cell, np.random.default_rng(0))[1]))
    spec = ReleaseSpec(cell.epsilon, reference=Reference.standard(range(cell.d)))
    plan = plan_study(
        spec, cell.m, range(cell.d), rows, epsilons=[cell.epsilon], progress_bar=False,
        delta=1 / (cell.m * np.log(cell.m)), explained=(cell.mean**2 + spread) / square,
        common=cell.mean**2 / (cell.mean**2 + spread), example=example,
        residual_spread=cells.RESIDUAL_SPREAD * (cell.residual == "unequal"),
    )  # fmt: skip

    def measure(seed: int) -> list[float]:
        draw = cells.draw(cell, seed)
        train, public = arms.Train(draw.X, draw.y), limits.public(cell)
        fits = (arms.alone_evidence(train, public, seed), arms.library(train, public, seed))
        return [cells.error(cell, fit.beta, draw.beta) for fit in fits]

    measured = _finished(options.units / f"{cell.name}.json", options.seeds, measure)
    expected = plan.by_epsilon[0]
    return {"cell": cell.name, "seeds": len(measured), "expected": expected.ratio, "says": expected.says} | ratio(
        measured
    )


def _of_table(name: str, epsilon: float, options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the expected and the realised ratio of a real table; None where its file is not at hand."""
    try:
        every = real.rows(name, options.data)
    except FileNotFoundError as error:
        tqdm.write(str(error))
        return None
    X = [np.column_stack([np.ones(len(task)), task[:, :-1]]) for task in every]
    data = mixed.statistics(X, [task[:, -1] for task in every])
    fitted = mixed.fit(data)
    covariance = mixed.expected(data, fitted.Omega, fitted.sigma2).beta_covariance
    # Columns have the variance 1 in all rows together, and the intercept comes first.
    common, spread = float(fitted.mu[1:] @ fitted.mu[1:]), float(np.trace(fitted.Omega[1:, 1:]))
    between = float(fitted.Omega[0, 0] / (fitted.Omega[0, 0] + common + spread + fitted.sigma2))
    logs, freedom = log_residuals(X, [task[:, -1] for task in every])
    # The logarithm of a mean square of k independent residuals has the variance trigamma(k / 2).
    residual_spread = np.sqrt(max(logs.var() - polygamma(1, freedom / 2).mean(), 0.0))

    def measure(number: int) -> list[float]:
        split = real.split(name, number, epsilon, options.data)
        unexplained = residual(split.test, fitted.beta, covariance, fitted.sigma2)
        fits = (arms.alone_evidence(split.train, split.public, number), arms.library(split.train, split.public, number))
        return [squared_error(split.test, fit.beta) - unexplained for fit in fits]

    measured = _finished(options.units / f"{name}, eps = {epsilon:g}.json", options.splits, measure)
    first = real.split(name, 0, epsilon, options.data)
    example = TaskData.from_lists([x[:, 1:] for x in first.train.X], None)
    plan = plan_study(
        epsilon, first.public.m, [*example.features, "intercept"], example=example, epsilons=[epsilon],
        delta=first.public.delta, explained=(common + spread) / (common + spread + fitted.sigma2),
        common=common / (common + spread), between=between, residual_spread=residual_spread, progress_bar=False,
    )  # fmt: skip
    expected = plan.by_epsilon[0]
    row = {
        "table": name,
        "epsilon": epsilon,
        "splits": len(measured),
        "expected": expected.ratio,
        "says": expected.says,
    }
    return row | ratio(measured)


def log_residuals(X: list[np.ndarray], y: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms of residual variances of least squares, and their degrees of freedom, of tasks with at least 3."""
    logs, freedom = [], []
    for x, target in zip(X, y, strict=True):
        beta, _, rank, _ = np.linalg.lstsq(x, target, rcond=None)
        if len(target) > rank + 2:
            logs.append(np.log(((target - x @ beta) ** 2).sum() / (len(target) - rank)))
            freedom.append(len(target) - rank)
    return np.array(logs), np.array(freedom)


def squared_error(test: list[tuple[np.ndarray, np.ndarray]], beta: np.ndarray) -> float:
    """Return the mean squared error of predictions of a task's test rows by coefficients (d, m), averaged over tasks."""
    return float(np.mean([((y - x @ b) ** 2).mean() for (x, y), b in zip(test, beta.T, strict=True)]))


def residual(
    test: list[tuple[np.ndarray, np.ndarray]], beta: np.ndarray, covariance: np.ndarray, sigma2: float
) -> float:
    """Estimate what no coefficient predicts of a task's test rows, averaged over tasks, from a mixed model of all rows.

    A residual of a row that was fitted has the variance sigma^2 (1 - h), h = x' Cov(beta | y) x / sigma^2.

    Args:
        test: (X, y) of every task.
        beta: fitted coefficients, (d, m).
        covariance: their posterior covariances, (m, d, d).
        sigma2: residual variance.
    """
    squares = [
        (y - x @ b) ** 2 / (1 - np.einsum("ni,ij,nj->n", x, C, x) / sigma2)
        for (x, y), b, C in zip(test, beta.T, covariance, strict=True)
    ]
    return float(np.mean([square.mean() for square in squares]))


def ratio(measured: list[list[float]]) -> dict[str, float | None]:
    """Return the ratio of mean errors, with the release over alone, and its standard error over seeds (linearised).

    The standard error of a single seed is unknown: None.
    """
    alone, release = np.array(measured).T
    realised = release.mean() / alone.mean()
    away = release - realised * alone
    n = len(away)
    error = float(np.sqrt((away**2).sum() / (n - 1) / n) / alone.mean()) if n > 1 else None
    return {"realised": float(realised), "error": error}


def _finished(file: Path, number: int, measure: Callable[[int], list[float]]) -> list[list[float]]:
    """Return errors of every seed in the file, after those that are missing have been measured."""
    done = json.loads(file.read_text()) if file.is_file() else {}
    for seed in range(number):
        if str(seed) not in done:
            done[str(seed)] = measure(seed)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(done))
    return [done[seed] for seed in sorted(done, key=int)]


if __name__ == "__main__":
    main()
