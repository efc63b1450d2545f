"""Coverage of one-release adaptation on data from its own model, for a prior that a public source sets.

    python studies/benchmarks/calibration_adaptation.py [--replications 400] [--json OUT]

Shift, noise and features of every private target are drawn from the prior, and records from these. The study counts how
often intervals contain the weights, the noise's sd and new targets. Over all data sets, 90 % intervals should contain 90 %.
Data sets without and with a shift are counted separately too, for which nothing is promised. Rows are normal, as the model
assumes, or so long that many are clipped.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import record
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.adaptation import Domain, MomentAdaptation
from mpmtl_prob.adaptation.moments.grid_posterior import SIGMA_SPREAD, TAUS, Prior

RECORDS, BUDGETS, FEATURES, TESTS = (60, 500, 2000), (1.0, 4.0), 8, 200
#: length of rows, of which the bound is 1: half of it, where they are normal, and most of it, where many are cut
LENGTHS = {"normal": 0.5, "cut": 0.9}


class Truth(NamedTuple):
    """Parameters of a target, drawn from the prior.

    Attributes:
        w: weights, (d,).
        sigma: sd of the targets' noise.
        shift: whether there is a shift.
        root: root of the features' second moment, (d, d).
    """

    w: FloatArray
    sigma: float
    shift: bool
    root: FloatArray


def truth(rng: np.random.Generator, prior: Prior) -> Truth:
    """Draw a target's parameters from the prior, with no shift shorter than the shortest on the posterior's grid."""
    sigma = float(prior.sigma * np.exp(SIGMA_SPREAD * rng.standard_normal()))
    prior = prior.rescaled(sigma)
    k = rng.choice(len(prior.means), p=np.exp(prior.log_odds))
    shift = bool(rng.random() >= prior.same[k])
    d = prior.means.shape[1]
    tau = prior.scales[k] * (max(abs(rng.standard_t(3)), TAUS[0]) if shift else TAUS[0])
    spread = prior.covariances[k] + tau**2 * prior.shapes[k] / d
    w = prior.means[k] + np.linalg.cholesky(spread) @ rng.standard_normal(d)
    turned = np.eye(d) + np.tril(0.2 * rng.standard_normal((d, d)) / np.sqrt(d))
    return Truth(w, sigma, shift, np.linalg.cholesky(prior.second_moment) @ turned)


def records(rng: np.random.Generator, of: Truth, n: int) -> tuple[FloatArray, FloatArray]:
    """Draw rows in the unit ball, and their targets."""
    X = rng.standard_normal((n, len(of.w))) @ of.root.T
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return X, X @ of.w + of.sigma * rng.standard_normal(n)


def one(length: float, n: int, epsilon: float, seed: int) -> dict[str, float]:
    """Return the share of each kind of truths in 90 % intervals, on one data set."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(FEATURES)
    public = Truth(0.9 * w / np.linalg.norm(w), 0.15, False, length / np.sqrt(FEATURES) * np.eye(FEATURES))
    source = Domain(*records(rng, public, 1000))
    bounds: dict[str, Any] = {
        "row_bound": 1.0,
        "target_bound": 100.0,
    }  # named, so that the prior is in the units of the truths
    model = MomentAdaptation(epsilon=epsilon, delta=0.01, draws=500, unsafe_seed=seed, seed=seed, **bounds)
    known = model.fit(source, Domain(np.zeros((n, FEATURES)), np.zeros(n))).prior_  # of public data and sizes alone
    of = truth(rng, known)
    posterior = model.fit(source, Domain(*records(rng, of, n))).posterior_
    X, y = records(rng, of, TESTS)
    held = lambda between, value: float(np.mean((between[0] <= value) & (value <= between[1])))
    return {
        "shift": of.shift,
        "weights": held(posterior.interval(), of.w),
        "sigma": held(np.quantile(posterior.sigma, [0.05, 0.95]), of.sigma),
        "targets": held(posterior.predictive(X, seed=seed), y),
    }


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the mean coverage of each kind and its standard error, over data sets."""
    kinds = ("weights", "sigma", "targets")
    every = {kind: np.array([run[kind] for run in runs]) for kind in kinds}
    return {k: {"mean": v.mean(), "standard error": v.std(ddof=1) / np.sqrt(len(v))} for k, v in every.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=300)
    record.option(parser)
    options = parser.parse_args()
    cells = []
    for rows, n, epsilon in product(LENGTHS, RECORDS, BUDGETS):
        where = f"{rows} rows, n = {n}, eps = {epsilon:g}"
        runs = [one(LENGTHS[rows], n, epsilon, seed) for seed in tqdm(range(options.replications), desc=where)]
        parts = {
            "all": runs,
            "no shift": [run for run in runs if not run["shift"]],
            "a shift": [run for run in runs if run["shift"]],
        }
        for part, some in parts.items():
            if len(some) > 1:
                of = {"rows": rows, "n": n, "epsilon": epsilon, "data sets": part, "number": len(some)}
                covered = summary(some)
                cells.append(of | covered)
                shown = ", ".join(f"{k} {covered[k]['mean']:.3f}" for k in ("weights", "sigma", "targets"))
                print(f"{where}, {part}: {shown}", flush=True)
    record.write(options.json, {"replications": options.replications, "cells": cells})


if __name__ == "__main__":
    main()
