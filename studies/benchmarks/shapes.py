"""The default on data of many shapes: wins and losses against ridge, the trace norm and the papers' Algorithm 2.

    make evidence-shapes
    python studies/benchmarks/shapes.py [--shapes 24] [--epsilons 1 0.01] [--json OUT]

Every shape is drawn at random, once, from the ranges in SHAPES: tasks, features, rows, the rank of the weights, their size,
the law of the noise, rows equal or ragged, a common mean or none. The error is that of a test row's mean, over the
mean square of these means: zero weights have 1. NoiseAware is as it comes; ridge has every
task's penalty by cross-validation on its own rows; the trace norm, which is not private, and Algorithm 2 have their best
candidate on the test rows, which nobody has. Every shape is a file in --units, and is not run again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm.auto import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402
from alone import own_penalty  # noqa: E402

from mpmtl_prob._util.arrays import FloatArray  # noqa: E402
from mpmtl_prob._util.files import write_text  # noqa: E402
from mpmtl_prob.data.tasks import TaskData  # noqa: E402
from mpmtl_prob.estimators import ConvergenceWarning, LowRank, TraceNorm  # noqa: E402
from mpmtl_prob.evaluation import grids  # noqa: E402
from mpmtl_prob.inference import NoiseAware  # noqa: E402
from studies.papers.runner import digest  # noqa: E402

ARMS = ("noise-aware", "ridge, own penalty", "trace norm, best on test", "Algorithm 2, best on test")
SHAPES: dict[str, tuple[Any, ...]] = {
    "tasks": (20, 50, 139, 320, 1000),
    "features": (5, 10, 20, 30, 60, 100),
    "rows": (5, 10, 20, 50, 100, 200),
    "rank": (1, 2, 5, "d"),
    "size": (0.5, 2.0, 8.0, 32.0),
    "noise": ("normal", "Student t, 3 degrees of freedom"),
    "ragged": (False, True),
    "mean": (False, True),
}
LARGEST = 3_200_000  # tasks x features x rows
TEST_ROWS = 50


class Shape(NamedTuple):
    """A data set's shape; ``size`` is the variance of x'w over that of the noise, ``rank`` at most that of d x m."""

    tasks: int
    features: int
    rows: int
    rank: int
    size: float
    noise: str
    ragged: bool
    mean: bool


def shape(seed: int) -> Shape:
    """Draw the shape of a seed, the first that takes no more than a minute or two."""
    rng = np.random.default_rng([seed, 0])
    drawn: dict[str, Any] = {"tasks": LARGEST, "features": 1, "rows": 2}
    while drawn["tasks"] * drawn["features"] * drawn["rows"] > LARGEST:
        drawn = {name: values[rng.integers(len(values))] for name, values in SHAPES.items()}
    full = min(drawn["features"], drawn["tasks"])
    return Shape(**drawn | {"rank": full if drawn["rank"] == "d" else min(drawn["rank"], full)})


def data(of: Shape, seed: int) -> tuple[TaskData, FloatArray, FloatArray]:
    """Draw training rows, test rows X (m, n, d) and the weights (d, m)."""
    rng = np.random.default_rng([seed, 1])
    m, d = of.tasks, of.features
    U = np.linalg.qr(rng.standard_normal((d, of.rank)))[0]
    W = U @ rng.standard_normal((of.rank, m)) * np.sqrt(of.size / of.rank)
    if of.mean:
        shared = rng.standard_normal((d, 1))
        W = (W + shared * np.sqrt(of.size) / np.linalg.norm(shared)) / np.sqrt(2)
    rows = rng.geometric(1 / of.rows, m) if of.ragged else np.full(m, of.rows)
    X = [rng.standard_normal((n, d)) for n in np.clip(rows, 5, 4 * of.rows)]
    draw = rng.standard_normal if of.noise == "normal" else lambda n: rng.standard_t(3, n) / np.sqrt(3)
    train = TaskData.from_lists(X, [x @ w + draw(len(x)) for x, w in zip(X, W.T, strict=True)])
    return train, rng.standard_normal((m, TEST_ROWS, d)), W


def error(estimate: FloatArray, X: FloatArray, W: FloatArray) -> float:
    """Return the mean squared error of test rows' means, over the mean square of these means."""
    truth = np.einsum("tnj,jt->tn", X, W)
    return float(np.mean((np.einsum("tnj,jt->tn", X, estimate) - truth) ** 2) / np.mean(truth**2))


def errors(seed: int, epsilon: float) -> dict[str, float]:
    """Return the error of every arm, and the coverage of 90 % intervals of the weights."""
    train, X, W = data(shape(seed), seed)
    own = NoiseAware(epsilon, seed=seed, unsafe_seed=seed, progress_bar=False).fit(train)
    draws = own.to_arviz(pointwise=False)["posterior/W"].transpose("chain", "draw", "feature", "task").values
    low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    trace = grids.multi_task(TraceNorm(), train)
    algorithm_2 = grids.rounds(LowRank, train, epsilon=epsilon)
    of_arms = (
        error(own.W, X, W),
        error(own_penalty(train, seed), X, W),
        min(error(each.fit(train).W, X, W) for each in trace),
        min(error(each.fit(train).W, X, W) for each in algorithm_2),
    )
    return dict(zip(ARMS, of_arms, strict=True)) | {"coverage": float(np.mean((low <= W) & (high >= W)))}


def over_shapes(
    doc: str | None,
    name: str,
    arms: Sequence[Any],
    seeds: Callable[[int], Sequence[int]],
    measure: Callable[[int, float], Any],
    beside: Callable[[int, float], dict[str, Any]] = lambda seed, epsilon: {},
    *,
    shapes: int,
    epsilons: Sequence[float],
) -> None:
    """Run a command that measures shapes at several budgets; each result is a file, and is not computed again.

    Args:
        doc: of the command.
        name: of its folder.
        arms: what is measured; others have files of their own.
        seeds: of so many shapes.
        measure: errors of a seed at an eps.
        beside: what is worked out anew every time.
        shapes: default of ``--shapes``.
        epsilons: default of ``--epsilons``.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=shapes)
    parser.add_argument("--epsilons", type=float, nargs="+", default=epsilons)
    folder = Path("out/benchmarks") / name
    parser.add_argument("--units", type=Path, default=folder, help="folder of finished shapes")
    record.option(parser)
    options = parser.parse_args()
    options.units.mkdir(parents=True, exist_ok=True)
    cells: dict[str, list[Any]] = {f"{epsilon:g}": [] for epsilon in options.epsilons}
    for seed, epsilon in tqdm(list(product(seeds(options.shapes), options.epsilons)), desc="shapes"):
        of = shape(seed)._asdict()
        path = options.units / f"{digest({'arms': arms, 'epsilon': epsilon, **of})}-{seed}.json"
        if not path.is_file():
            write_text(path, json.dumps({"shape": of, "errors": measure(seed, epsilon)}))
        cells[f"{epsilon:g}"].append(json.loads(path.read_text()) | beside(seed, epsilon))
        record.write(options.json, {"arms": arms, "cells": cells})


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # candidates that do not converge are candidates
    over_shapes(__doc__, "shapes", ARMS, range, errors, shapes=24, epsilons=(1.0, 0.01))


if __name__ == "__main__":
    main()
