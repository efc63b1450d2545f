"""Schools that did not take part: their error beside that of schools that did, and what Theorem 3.2 allows.

    python studies/benchmarks/newcomers.py [--runs 20] [--epsilons 0.1 1 10] [--share 0.2] [--json OUT]

Every run leaves other schools out at random, lets out a release of the rest, and both read it with their own training rows.
Loss is the squared error on unseen students in units of 20 marks (of 70), at most 1, which no data had a part in choosing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob import datasets  # noqa: E402
from mpmtl_prob._util.arrays import FloatArray  # noqa: E402
from mpmtl_prob.data.prediction import Prediction, linear_prediction  # noqa: E402
from mpmtl_prob.data.tasks import TaskData  # noqa: E402
from mpmtl_prob.inference import OwnerPosteriors  # noqa: E402
from mpmtl_prob.releases import default_delta  # noqa: E402
from mpmtl_prob.single_task import posterior_means as evidence  # noqa: E402
from mpmtl_prob.threat_models import BillboardRelease, metalearning, to_metalearner  # noqa: E402

MARKS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--share", type=float, default=0.2, help="of the schools that are left out")
    parser.add_argument("--draws", type=int, default=200, help="per chain, after as many of warm-up, two chains")
    record.option(parser)
    options = parser.parse_args()
    train, test = datasets.school().split(0.3, seed=0)
    took_part = train.num_tasks - round(options.share * train.num_tasks)
    delta = default_delta(took_part)
    numbers: dict[str, Any] = {
        "runs": options.runs,
        "schools": train.num_tasks,
        "taking part": took_part,
        "delta": delta,
        "marks": MARKS,
    }
    play = lambda algorithm: metalearning.leave_out(
        to_metalearner(algorithm), train, test, _loss, share=options.share, runs=options.runs
    )
    alone, cells = play(Alone()), []
    print(f"{took_part} schools take part, {train.num_tasks - took_part} do not")
    for epsilon in options.epsilons:
        release = BillboardRelease(epsilon, delta, chains=2, warmup=options.draws, draws=options.draws)
        cells.append(summary(play(release), alone, epsilon, delta))
        print("  " + ", ".join(f"{name} {value:.4f}" for name, value in cells[-1].items()), flush=True)
    record.write(options.json, numbers | {"cells": cells})


class Alone:
    """Nobody reads anything: the same schools' losses without a release, as the same seed leaves the same ones out."""

    def learn(self, data: TaskData, seed: int) -> None:
        """Learn nothing from other schools."""

    def personalise(self, h: None, own: TaskData) -> Callable[[TaskData], Prediction]:
        """Fit each school's own ridge, with its penalty averaged over its own evidence."""
        W = evidence.posterior_means(own).W
        return lambda test: linear_prediction(W, test)


def _loss(made: Any, test: TaskData) -> FloatArray:
    prediction = made.predict(test) if isinstance(made, OwnerPosteriors) else made(test)
    return metalearning.clipped_loss(prediction, test, MARKS)


def summary(
    fitted: metalearning.LeftOut, alone: metalearning.LeftOut, epsilon: float, delta: float
) -> dict[str, float]:
    """Return mean losses, the gain of each side over being alone, with standard errors over runs, and the theorem's bound."""
    gains = {name: getattr(alone, name) - getattr(fitted, name) for name in ("participants", "newcomers")}
    error = lambda values: float(values.std(ddof=1) / np.sqrt(len(values)))
    return {
        "epsilon": epsilon,
        "participants": float(fitted.participants.mean()),
        "newcomers": float(fitted.newcomers.mean()),
        "participants gain": float(gains["participants"].mean()),
        "newcomers gain": float(gains["newcomers"].mean()),
        "gain of taking part": float((gains["participants"] - gains["newcomers"]).mean()),
        "its standard error": error(gains["participants"] - gains["newcomers"]),
        "allowed": fitted.allowed(epsilon, delta),
        "eps at least": fitted.gap(delta).lower,
    }


if __name__ == "__main__":
    main()
