"""Data that the model does not mean: errors and coverage where its assumptions fail, one at a time.

    make evidence-misfit
    python studies/benchmarks/misfit.py [--replications 10] [--epsilon 1] [--json OUT]

139 tasks of 20 rows and 10 features, weights of rank two with four times the noise's variance, and one thing that is not as
modelled. Errors are of a test row's mean, over the mean square of these means, as in shapes.py; ridge has every task's
penalty by cross-validation on its own rows. Owners read one release twice: with normal errors, the default, and with
`likelihood="student_t"`; and a second release, with `scaling="unit_variance"`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402
from alone import own_penalty  # noqa: E402

from mpmtl_prob import evaluation  # noqa: E402
from mpmtl_prob._util.arrays import FloatArray  # noqa: E402
from mpmtl_prob.data.tasks import TaskData  # noqa: E402
from mpmtl_prob.inference import NoiseAware, task_posteriors  # noqa: E402

M, D, ROWS, TEST_ROWS, RANK, SIZE = 139, 10, 20, 50, 2, 4.0


class Data:
    """Rows (m, n, d), weights (d, m) and what is added to X w, (m, n), as the model has them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        n = ROWS + TEST_ROWS
        self.X = self.rng.standard_normal((M, n, D))
        U = np.linalg.qr(self.rng.standard_normal((D, RANK)))[0]
        self.W = U @ self.rng.standard_normal((RANK, M)) * np.sqrt(SIZE / RANK)
        self.noise = self.rng.standard_normal((M, n))

    def as_modelled(self) -> None:
        """Leave data as the model assumes them."""

    def heavy_tails(self) -> None:
        """Draw errors from Student's t with three degrees of freedom, scaled to variance one."""
        self.noise = self.rng.standard_t(3, self.noise.shape) / np.sqrt(3)

    def outlying_rows(self) -> None:
        """Make one row in twenty ten times as noisy."""
        self.noise *= np.where(self.rng.random(self.noise.shape) < 0.05, 10.0, 1.0)

    def unequal_noise(self) -> None:
        """Let the noise grow with the first feature as exp(x_1), with variance one on average."""
        self.noise *= np.exp(self.X[..., 0]) / np.e

    def outlying_tasks(self) -> None:
        """Give one task in ten unrelated weights, in all directions and three times as large."""
        odd = self.rng.random(M) < 0.1
        own = self.rng.standard_normal((D, M)) * 3 * np.sqrt(SIZE / D)
        self.W = np.where(odd, own, self.W)

    def two_populations(self) -> None:
        """Give half of the tasks other directions than the other half."""
        V = np.linalg.qr(self.rng.standard_normal((D, RANK)))[0]
        self.W[:, M // 2 :] = V @ self.rng.standard_normal((RANK, M - M // 2)) * np.sqrt(SIZE / RANK)

    def wild_scales(self) -> None:
        """Change features' units by factors from a hundredth to a hundred, the same for all tasks, and weights inversely."""
        units = 10.0 ** self.rng.uniform(-2, 2, D)
        self.X *= units
        self.W /= units[:, None]

    def skewed_features(self) -> None:
        """Make features log-normal with a common factor, without subtracting means."""
        common = self.rng.standard_normal((*self.X.shape[:2], 1))
        self.X = np.exp(0.7 * (self.X + common) / np.sqrt(2))

    def tasks(self) -> tuple[TaskData, TaskData, FloatArray]:
        """Return training rows, test rows, and the test rows' means (m, t)."""
        truth = np.einsum("tnj,jt->tn", self.X, self.W)
        y = truth + self.noise
        fit, rest = slice(ROWS), slice(ROWS, None)
        train, test = (TaskData.from_lists(list(self.X[:, part]), list(y[:, part])) for part in (fit, rest))
        return train, test, truth[:, rest]


MISFITS: dict[str, Callable[[Data], None]] = {
    "as modelled": Data.as_modelled,
    "noise with heavy tails": Data.heavy_tails,
    "outlying rows": Data.outlying_rows,
    "noise that grows with a feature": Data.unequal_noise,
    "outlying tasks": Data.outlying_tasks,
    "two populations of tasks": Data.two_populations,
    "features in wild units": Data.wild_scales,
    "skewed, tied features": Data.skewed_features,
}


def scores(misfit: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return errors by arm, and the coverage of the posterior's 90 % intervals of weights and of new targets."""
    made = Data(seed)
    MISFITS[misfit](made)
    train, test, truth = made.tasks()
    of = lambda W: float(np.mean((np.einsum("tnj,jt->tn", test.X, W) - truth) ** 2) / np.mean(truth**2))
    fit = NoiseAware(epsilon, seed=seed, chains=2, progress_bar=False)
    normal, unit = fit.fit(train), replace(fit, scaling="unit_variance").fit(train)
    student = task_posteriors(train, normal.shared, likelihood="student_t", seed=seed)
    errors = {"ridge, own penalty": of(own_penalty(train, seed))}
    for name, own in (("normal errors", normal), ("unit", unit), ("Student t", student)):
        draws = own.to_arviz(pointwise=False)["posterior/W"].transpose("chain", "draw", "feature", "task").values
        low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
        errors |= {
            name: of(own.W),
            f"{name}, weights covered": float(np.mean((low <= made.W) & (high >= made.W))),
            f"{name}, targets covered": float(evaluation.coverage(own.predict(test), test)),
        }
    khat = np.asarray(student.to_arviz(pointwise=False)["constant_data"]["khat_draws"])
    return errors | {"khat above .7": float(np.mean(khat > 0.7))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    record.option(parser)
    options = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for misfit in tqdm(MISFITS, desc="misfits"):
        replications = [scores(misfit, options.epsilon, seed) for seed in range(options.replications)]
        means = {name: float(np.mean([of_one[name] for of_one in replications])) for name in replications[0]}
        sd = {name: float(np.std([of_one[name] for of_one in replications], ddof=1)) for name in means}
        error = {name: float(value / np.sqrt(len(replications))) for name, value in sd.items()}
        cells.append({"misfit": misfit, "mean": means, "standard error": error})
        record.write(options.json, {"epsilon": options.epsilon, "replications": options.replications, "cells": cells})
        print(misfit, {name: round(value, 3) for name, value in means.items()}, flush=True)


if __name__ == "__main__":
    main()
