"""Errors of owners where the release says nothing: the noise-aware posterior at eps = .001 beside single-task methods.

    python studies/benchmarks/alone.py [--replications 10] [--epsilon 0.001] [--json OUT]

Every replication is a new split of School, or a new draw of a synthetic set, and a new release. *Local* arms use a task's
own rows only. The pooled ones choose a penalty, or a number of steps, on all tasks' rows. No owner could do so, and no
mechanism could release the choice at this eps. Differences are relative to the arm, paired by replication, with standard
errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import jax
import numpy as np
from tqdm import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob import datasets, evaluation, inference, release  # noqa: E402
from mpmtl_prob._util.arrays import FloatArray  # noqa: E402
from mpmtl_prob.data.prediction import linear_prediction  # noqa: E402
from mpmtl_prob.data.tasks import TaskData  # noqa: E402
from mpmtl_prob.evaluation import grids  # noqa: E402
from mpmtl_prob.single_task import conjugate  # noqa: E402
from mpmtl_prob.single_task import posterior_means as evidence  # noqa: E402

POSTERIOR = "noise-aware posterior"
LOCAL = {
    "own penalty": "ridge, each task's penalty by cross-validation on its own rows",
    "evidence": "ridge, penalty averaged over each task's evidence",
    "evidence, Pareto": "the same on Pareto-scaled features, the posterior's own limit",
}
POOLED = {
    "one penalty": "ridge, one penalty by cross-validation on all tasks' rows",
    "M = I": "Algorithm 2 with M = I, its steps by cross-validation on all tasks' rows",
    "best on test": "ridge, one penalty, picked on the test rows",
}
PENALTIES = np.geomspace(1e-4, 30, 40)


def own_penalty(train: TaskData, seed: int, folds: int = 5) -> FloatArray:
    """Fit ridge regression (d, m) with the penalty of every task chosen by cross-validation on its own rows."""
    error = np.zeros((len(PENALTIES), train.num_tasks))
    for fit, held in train.folds(folds, seed):
        for k, penalty in enumerate(PENALTIES):
            residual = linear_prediction(conjugate.ridge(fit.gram, penalty), held).mean - held.y
            error[k] += np.sum(residual**2 * held.mask, axis=1)
    every = np.stack([conjugate.ridge(train.gram, penalty) for penalty in PENALTIES])
    return every[np.argmin(error, axis=0), :, np.arange(train.num_tasks)].T


def scores(
    train: TaskData, test: TaskData, metric: Callable[..., float], epsilon: float, seed: int
) -> dict[str, float]:
    """Return errors by arm, and the coverage of the posterior's 90 % intervals."""
    of = lambda W: metric(linear_prediction(W, test), test)
    tuned = lambda candidates: evaluation.cross_validate(candidates, train, seed=seed, progress_bar=False).fit(train).W
    shared = inference.shared_covariance(
        release(train, epsilon, adjacency="zero_out"), chains=2, warmup=150, draws=150, seed=seed, progress_bar=False
    )
    own = inference.task_posteriors(train, shared, draws=250, seed=seed)
    return {
        POSTERIOR: of(own.W),
        "own penalty": of(own_penalty(train, seed)),
        "evidence": of(conjugate.gaussian_posteriors(train.gram).mean),
        "evidence, Pareto": of(evidence.posterior_means(train).W),
        "one penalty": of(tuned(grids.ridge(train))),
        "M = I": of(tuned(grids.alone(train))),
        "best on test": min(of(conjugate.ridge(train.gram, penalty)) for penalty in PENALTIES),
        "coverage": evaluation.coverage(own.predict(test), test),
    }


def summary(replications: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the mean error of every arm, and the relative excess of the posterior's error, with standard errors."""
    values = {name: np.array([of_one[name] for of_one in replications]) for name in replications[0]}
    error = lambda x: float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else np.nan
    out = {}
    for name, value in values.items():
        out[name] = {"mean": float(value.mean()), "standard error": error(value)}
        if name in LOCAL or name in POOLED:
            excess = values[POSTERIOR] / value - 1
            out[name] |= {"excess": float(excess.mean()), "its standard error": error(excess)}
    return out


def data(name: str, seed: int) -> tuple[TaskData, TaskData]:
    """Return the training and test rows of a replication."""
    return datasets.school().split(0.3, seed=seed) if name == "school" else getattr(datasets, name)(seed=seed)[:2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=0.001)
    parser.add_argument("--data", nargs="+", default=["school", "synthetic_low_rank", "synthetic_group_sparse"])
    record.option(parser)
    options = parser.parse_args()
    report = {}
    for name in options.data:
        metric = evaluation.nmse_within if name == "school" else evaluation.nmse
        replications = [
            scores(*data(name, seed), metric, options.epsilon, seed)
            for seed in tqdm(range(options.replications), desc=name, leave=False)
        ]
        arms = summary(replications)
        report[name] = {"metric": metric.__name__, "replications": len(replications), "arms": arms}
        print(f"\n{name}, {metric.__name__}, eps = {options.epsilon:g}, {len(replications)} replications")
        print(f"  {POSTERIOR} {arms[POSTERIOR]['mean']:.4f}, coverage of 90 % intervals {arms['coverage']['mean']:.3f}")
        for arm, words in (LOCAL | POOLED).items():
            a = arms[arm]
            print(
                f"  {'local' if arm in LOCAL else 'pooled':6s} {a['mean']:.4f}   the posterior is {a['excess']:+.2%} "
                f"(se {a['its standard error']:.2%})   {words}",
                flush=True,
            )
    record.write(options.json, {"epsilon": options.epsilon, "local": LOCAL, "pooled": POOLED, "data": report})


if __name__ == "__main__":
    main()
