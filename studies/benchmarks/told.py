"""Gain of owners who are told how much the features explain, the tasks' signal-to-noise ratio.

    python studies/benchmarks/told.py [--replications 10] [--epsilons 0.001 0.1 0.3 1 10] [--json OUT]

Every replication is a new draw of a synthetic set, with releases of its own. An owner learns its ratio from its own rows,
under a wide prior that is everybody's. *Told* owners have the prior that the true ratios of all tasks would give, their
median and spread, which nobody has. Beside both "low_rank" after one round, where NoiseAware chooses both by itself.
Shares are of the gap between single-task ridge and the non-private trace norm, with penalties that cross-validation picks.
"""

from __future__ import annotations

import argparse
from itertools import product

import jax
import numpy as np
from tqdm import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob import datasets, evaluation, inference, release  # noqa: E402
from mpmtl_prob.datasets import Synthetic  # noqa: E402
from mpmtl_prob.evaluation.comparison import NON_PRIVATE, STL  # noqa: E402
from mpmtl_prob.inference import NormalErrors, SnrPrior  # noqa: E402

#: structure, None as NoiseAware chooses it, and rounds
READ: dict[str, tuple[str | None, int | str]] = {"as it comes": (None, "auto"), "low_rank, one round": ("low_rank", 1)}
KNOWN = ("own rows", "told")


def ratios(made: Synthetic) -> SnrPrior:
    """Return the prior that the true ratios of all tasks would give; the noise has sd 1."""
    log = np.log(np.mean((made.train.X @ made.W.T[..., None])[..., 0] ** 2, axis=1))
    return SnrPrior(float(np.exp(log.mean())), float(log.std()))


def scores(made: Synthetic, epsilons: list[float], seed: int) -> dict[str, dict[str, float]]:
    """Return errors and coverage of 90 % intervals by budget, and those of "nothing shared" and "trace norm"."""
    fits = evaluation.standard_fits(made.train, [], seed=seed, progress_bar=False)
    alone, together = (evaluation.nmse(fits[name].predict(made.test), made.test) for name in (STL, NON_PRIVATE))
    out = {"nothing shared": {"error": alone}, "trace norm": {"error": together}}
    for epsilon, (read, (structure, rounds)) in product(epsilons, READ.items()):
        published = release(
            made.train,
            epsilon,
            adjacency="zero_out",
            rounds=rounds,
            respond=inference.posterior_draws(made.train, seed),
        )
        shared = inference.shared_covariance(
            published,
            structure=structure or inference.structure_for(published),
            chains=2,
            draws=150,
            seed=seed,
            progress_bar=False,
        )
        for known, likelihood in zip(KNOWN, (None, NormalErrors(ratios(made))), strict=True):
            own = inference.task_posteriors(made.train, shared, likelihood=likelihood, draws=250, seed=seed)
            prediction = own.predict(made.test)
            error = evaluation.nmse(prediction, made.test)
            out[f"{epsilon:g}, {read}, {known}"] = {
                "error": error,
                "share": (alone - error) / (alone - together),
                "coverage": evaluation.coverage(prediction, made.test),
            }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.001, 0.1, 0.3, 1.0, 10.0])
    parser.add_argument("--data", nargs="+", default=["synthetic_low_rank", "synthetic_group_sparse"])
    record.option(parser)
    options = parser.parse_args()
    report = {}
    for name in options.data:
        runs = [
            scores(getattr(datasets, name)(seed=seed), options.epsilons, seed)
            for seed in tqdm(range(options.replications), desc=name, leave=False)
        ]
        arms = {arm: {k: [run[arm][k] for run in runs] for k in runs[0][arm]} for arm in runs[0]}
        report[name] = arms
        print(f"\n{name}, {len(runs)} replications")
        for arm, measured in arms.items():
            print(f"  {arm:40s} " + ", ".join(f"{k} {np.mean(v):.3f}" for k, v in measured.items()), flush=True)
    about = {"epsilons": options.epsilons, "read": list(READ), "known": KNOWN, "replications": options.replications}
    record.write(options.json, about | {"data": report})


if __name__ == "__main__":
    main()
