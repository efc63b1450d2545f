"""Share of the gap between single-task and pooled regression that one release closes: the numbers of the README.

    python studies/benchmarks/gap.py [--releases 20] [--epsilons 0.1 0.3 1 3 10] [--adjacency replace] [--mechanism wishart]

For every budget: the noise-aware posterior's error (mean and sd over releases) and coverage and, beside it, single-task
ridge, alone and with the penalty that is best on the test rows, and the non-private trace norm on the same split. With
--algorithms, Algorithm 2 too, with the hyper-parameters that cross-validation picked. Also --structure, --rounds, --data,
--chains, --draws.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402

from mpmtl_prob import datasets, evaluation, inference, release  # noqa: E402
from mpmtl_prob.data.prediction import linear_prediction  # noqa: E402
from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL  # noqa: E402
from mpmtl_prob.releases import default_delta  # noqa: E402
from mpmtl_prob.single_task import conjugate  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--adjacency", default="replace")
    parser.add_argument("--mechanism", default="wishart")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=200, help="per chain, after as many of warm-up")
    record.option(parser)
    parser.add_argument("--data", nargs="+", default=["school", "synthetic_low_rank"])
    parser.add_argument("--structure", default="full")
    parser.add_argument("--rounds", default="1")
    parser.add_argument("--algorithms", action="store_true")
    options = parser.parse_args()
    rounds = int(options.rounds) if options.rounds.isdigit() else options.rounds
    record.write(options.json, {data: _measured(data, rounds, options) for data in options.data})


def _measured(data: str, rounds: int | str, options: argparse.Namespace) -> dict[str, Any]:
    """Print what a data set's releases are worth, and return it."""
    metric = evaluation.nmse_within if data == "school" else evaluation.nmse
    train, test = datasets.school().split(0.3, seed=0) if data == "school" else getattr(datasets, data)()[:2]
    fits = evaluation.standard_fits(
        train, options.epsilons if options.algorithms else [], adjacency="zero_out", draws=50
    )
    best = min(
        metric(linear_prediction(conjugate.ridge(train.gram, penalty), test), test)
        for penalty in np.geomspace(1e-4, 30, 40)
    )
    score = {name: metric(fit.predict(test), test) for name, fit in fits.items()}
    alone, together = score[STL], score[NON_PRIVATE]
    print(f"\n{data}, {metric.__name__}, {options.adjacency}, {options.mechanism}, delta = 1/(m log m)")
    print(f"  {STL} {alone:.4f}, at best {best:.4f}; {ALONE} {score[ALONE]:.4f}; {NON_PRIVATE} {together:.4f}")
    gaps: dict[str, Any] = {
        "ridge": alone,
        "best ridge": best,
        "trace norm": together,
        "delta": default_delta(train.num_tasks),
    }
    for epsilon in options.epsilons:
        error, covered = [], []
        for _ in tqdm(range(options.releases), desc=f"eps = {epsilon:g}", leave=False):
            published = release(
                train,
                epsilon,
                adjacency=options.adjacency,
                mechanism=options.mechanism,
                rounds=rounds,
                respond=inference.posterior_draws(train),
            )
            shared = inference.shared_covariance(
                published,
                structure=options.structure,
                chains=options.chains,
                warmup=options.draws,
                draws=options.draws,
                progress_bar=False,
            )
            prediction = inference.task_posteriors(train, shared).predict(test)
            error.append(metric(prediction, test))
            covered.append(evaluation.coverage(prediction, test))
        proved = published.guarantee.proved
        assert proved is not None  # calibrated noise
        share = (alone - np.array(error)) / (alone - together)
        print(
            f"  eps = {epsilon:<5g} noise-aware {np.mean(error):.4f} (sd {np.std(error):.4f}), share of the gap "
            f"{share.mean():.2f} (sd {share.std():.2f}), coverage of 90 % intervals {np.mean(covered):.3f}"
            + (f"; Algorithm 2 {score[f'Algorithm 2, eps = {epsilon:g}']:.4f}" if options.algorithms else ""),
            flush=True,
        )
        gaps[f"{epsilon:g}"] = {
            "error": error,
            "coverage": covered,
            "share": share.tolist(),
            "proved": proved.delta,
        }
    return gaps


if __name__ == "__main__":
    main()
