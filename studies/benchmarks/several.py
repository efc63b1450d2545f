"""One posterior of several releases: two of half the budget beside one of all of it, and a second consortium.

    python studies/benchmarks/several.py [--sets 8] [--tasks 60] [--epsilon 1] [--json OUT]

Data sets of beta_i ~ N(mu, Omega) with 3 features and 30 rows a task, mu of length .7 in any direction and tau = .2. The
other consortium's tasks have effects of the same law. Prints squared errors of the average effects and of the first
consortium's coefficients, in units of the residual variance, and how many average effects lie in their 90 % intervals.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import jax
import numpy as np
import record
from tqdm.auto import tqdm

jax.config.update("jax_enable_x64", True)

import mpmtl_prob as mp  # noqa: E402

D, ROWS, LENGTH, TAU = 3, 30, 0.7, 0.2
SCALE = np.sqrt(LENGTH**2 + TAU**2 + 1)  #: of the targets, which the reference values take for one


def study(rng: np.random.Generator, m: int, mu: np.ndarray) -> tuple[mp.TaskData, np.ndarray]:
    """Draw tasks of one consortium, and return them with their coefficients (m, d)."""
    beta = mu + TAU / np.sqrt(D) * rng.standard_normal((m, D))
    X = rng.standard_normal((m, ROWS, D))
    y = np.einsum("mnd,md->mn", X, beta) + rng.standard_normal((m, ROWS))
    return mp.TaskData.from_lists(list(X), list(y / SCALE)), beta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--epsilon", type=float, default=1.0)
    record.option(parser)
    options = parser.parse_args()
    m, epsilon, results = options.tasks, options.epsilon, defaultdict(list)
    for number in tqdm(range(options.sets)):
        rng = np.random.default_rng(number)
        mu = rng.standard_normal(D)
        mu *= LENGTH / np.linalg.norm(mu)
        (here, beta), (there, _) = study(rng, m, mu), study(rng, m, mu)
        reference = mp.Reference.standard(here.features)
        delta = 1 / (m * np.log(m))
        release = lambda tasks, share, seed, delta=delta, reference=reference, number=number: mp.release(
            tasks, share * epsilon, share * delta, reference=reference, unsafe_seed=10 * number + seed
        )
        arms = {
            "one release of the whole budget": [release(here, 1.0, 1)],
            "one release of half of it": [release(here, 0.5, 2)],
            "two releases of half of it": [release(here, 0.5, 2), release(here, 0.5, 3)],
            "a second consortium's as well": [release(here, 1.0, 1), release(there, 1.0, 4)],
        }
        for arm, releases in arms.items():
            shared = mp.inference.shared_effects(releases, progress_bar=False)
            table, own = shared.average_effects(), mp.inference.task_posteriors(here, shared).coefficients()
            average, each = SCALE * table["mean"].to_numpy(), SCALE * own["mean"].to_numpy().reshape(m, D)
            low, high = (SCALE * table[name].to_numpy() for name in ("lower", "upper"))
            results[arm].append(
                {
                    "average effects": float(((average - mu) ** 2).sum()),
                    "coefficients": float(((each - beta) ** 2).sum(axis=1).mean()),
                    "covered": float(((low <= mu) & (mu <= high)).mean()),
                }
            )
    cells = []
    for arm, runs in results.items():
        values = {name: [run[name] for run in runs] for name in runs[0]}
        error = {f"{name}, standard error": np.std(of) / np.sqrt(len(of)) for name, of in values.items()}
        cells.append({"arm": arm} | {name: np.mean(of) for name, of in values.items()} | error)
        print(f"{arm:34s}", *(f"{name} {np.mean(of):.4f}" for name, of in values.items()))
    sizes = {"sets": options.sets, "tasks": m, "epsilon": epsilon}
    record.write(options.json, sizes | {"cells": cells})


if __name__ == "__main__":
    main()
