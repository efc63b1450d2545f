"""How much one release is worth, over draws of its noise: the numbers of the README.

    python benchmarks/gap.py [--releases 10] [--epsilons 0.1 0.3 1 3 10]

For every budget: the noise-aware posterior's error (mean and sd over releases) and, beside it, Algorithm 2 with the
hyper-parameters that cross-validation picked, single-task ridge and the non-private trace norm on the same split.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import numpyro
from tqdm import tqdm

numpyro.set_host_device_count(4)
jax.config.update("jax_enable_x64", True)

from mpmtl_prob import datasets, evaluation, inference, release  # noqa: E402
from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0, 10.0])
    options = parser.parse_args()
    for data, metric in (("synthetic_low_rank", evaluation.nmse), ("school", evaluation.nmse_within)):
        train, test = datasets.school().split(0.3, seed=0) if data == "school" else datasets.synthetic_low_rank()[:2]
        fits = evaluation.standard_fits(train, options.epsilons, draws=50)
        score = {name: metric(fit.predict(test), test) for name, fit in fits.items()}
        alone, together = score[STL], score[NON_PRIVATE]
        print(f"\n{data}, {metric.__name__}, zero-out adjacency, delta = 1/(m log m)")
        print(f"  {STL} {alone:.4f}; {ALONE} {score[ALONE]:.4f}; {NON_PRIVATE} {together:.4f}")
        for epsilon in options.epsilons:
            error, covered = [], []
            for _ in tqdm(range(options.releases), desc=f"eps = {epsilon:g}", leave=False):
                shared = inference.shared_covariance(release(train, epsilon, adjacency="zero_out"), progress_bar=False)
                prediction = inference.task_posteriors(train, shared).predict(test)
                error.append(metric(prediction, test))
                covered.append(evaluation.coverage(prediction, test))
            share = (alone - np.array(error)) / (alone - together)
            print(
                f"  eps = {epsilon:<5g} noise-aware {np.mean(error):.4f} (sd {np.std(error):.4f}), share of the gap "
                f"{share.mean():.2f} (sd {share.std():.2f}), coverage of 90 % intervals {np.mean(covered):.3f}; "
                f"Algorithm 2 {score[f'Algorithm 2, eps = {epsilon:g}']:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
