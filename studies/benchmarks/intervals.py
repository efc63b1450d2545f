"""Coverage of intervals on data from the model: every budget, every mechanism, weights and test targets.

    python studies/benchmarks/intervals.py [--replications 30] [--json OUT]

Three simulations. In each Omega has its prior, an owner's weights are N(0, c Omega) with the signal-to-noise ratio from its
prior, and its rows are normal.

- *model*: the messages are what the public model says, Gaussian with Omega (their mean square kept to 1 as the model keeps
  it), of other tasks. Nothing is approximated but by the owner's method. "exact" weights draws of Omega itself by the owner's
  evidence for them, which is the posterior; it has to cover, or something is wrong.
- *directions*: the messages are the owners' own true directions, of length 1, which are not quite Gaussian, and each owner's
  is in the release that it reads.
- *estimates*: the messages are the owners' own estimates, and the plug-in averages over power, as it does by
  default: the product as it is used.

Coverage is by ranks among 399 draws, which has no error of quantiles. An oracle that knows Omega covers exactly as often as
it says; on the same data and random numbers it is the control variate, so that what is reported is the nominal level and
what the method covers more or less often than the oracle. Standard errors are over replications.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.stats as st
from tqdm import tqdm

jax.config.update("jax_enable_x64", True)

import record  # noqa: E402
from numpyro.infer import NUTS  # noqa: E402

from mpmtl_prob import TaskData, release  # noqa: E402
from mpmtl_prob._util.arrays import FloatArray  # noqa: E402
from mpmtl_prob.inference import SharedPosterior  # noqa: E402
from mpmtl_prob.inference.owner import methods  # noqa: E402
from mpmtl_prob.inference.public import datatree as trees  # noqa: E402
from mpmtl_prob.inference.public import init as starts  # noqa: E402
from mpmtl_prob.inference.public import structures  # noqa: E402
from mpmtl_prob.models import shared_covariance as model  # noqa: E402
from mpmtl_prob.models.observed import LOG_PHI_SD  # noqa: E402
from mpmtl_prob.privacy import PaperWishart, calibrate, calibrate_gaussian, lattice  # noqa: E402
from mpmtl_prob.privacy.lattice import unit_columns  # noqa: E402
from mpmtl_prob.privacy.mechanisms import MatrixMechanism  # noqa: E402
from mpmtl_prob.releases import Release, Terms, default_delta  # noqa: E402
from mpmtl_prob.releases.publish import publish_rounds  # noqa: E402
from mpmtl_prob.sampling.calibration import chain_for_each  # noqa: E402
from mpmtl_prob.single_task import conjugate  # noqa: E402

FULL = structures.structure_of("full")
D, M, ROWS, TEST_ROWS = 5, 50, 12, 4
OWNERS = 25  # where they are not those who send messages
DRAWS, WARMUP, PUBLIC_DRAWS = 399, 150, 150
LEVELS = (0.5, 0.8, 0.95)
KERNEL = NUTS(model.full, max_tree_depth=7)
METHODS = {
    "model": ("exact", "plug_in"),
    "directions": ("plug_in",),
    "estimates": ("plug_in",),
}


class Truth(NamedTuple):
    """One simulated problem."""

    train: TaskData
    X: FloatArray  #: test rows, (m, t, d)
    y: FloatArray  #: test targets, (m, t)
    W: FloatArray  #: (d, m)
    omega: FloatArray  #: (d, d)
    A: FloatArray  #: the second moment of other tasks' messages, as the public model has it, (d, d)


def simulate(rng: np.random.Generator, count: int) -> Truth:
    """Draw Omega, the messages of M tasks and `count` owners from the model of `mpmtl_prob.models`, with sigma = 1."""
    while True:  # the model's factor for tr(A) = m, by rejection
        phi = np.exp(-np.log(D) + LOG_PHI_SD * rng.standard_normal())
        kappa = D + 1 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * rng.standard_normal())
        omega = st.invwishart(kappa, kappa * phi * np.eye(D)).rvs(random_state=rng)
        A = st.wishart(M, omega).rvs(random_state=rng)
        if np.log(rng.random()) < -0.5 * ((np.trace(A) / M - 1) / 0.1) ** 2:
            break
    X = rng.standard_normal((count, ROWS + TEST_ROWS, D))
    snr = np.exp(np.log(conjugate.SNR_MEDIAN) + conjugate.SNR_LOG_SD * rng.standard_normal(count))
    c = snr * ROWS / np.einsum("tni,ij,tnj->t", X[:, :ROWS], omega, X[:, :ROWS])
    W = np.linalg.cholesky(omega) @ rng.standard_normal((D, count)) * np.sqrt(c)
    y = np.einsum("tni,it->tn", X, W) + rng.standard_normal(X.shape[:2])
    train = TaskData.from_lists(list(X[:, :ROWS]), list(y[:, :ROWS]))
    return Truth(train, X[:, ROWS:], y[:, ROWS:], W, omega, A)


def released(kind: str, truth: Truth, law: MatrixMechanism, epsilon: float, seed: int) -> Release:
    """Return the release of a data set, with the noise of a mechanism."""
    if kind == "model":
        h = lattice.step(1.0, D, M, [law])
        A = lattice.cut(truth.A, h**2)
        return publish_rounds(
            lambda noise: (A + noise, None),
            Terms((law,), epsilon, "zero_out", M, tuple(range(D)), h, message="direction"),
            unsafe_seed=seed,
        )[0]
    source = truth.train if kind == "estimates" else unit_columns(truth.W)
    return release(source, epsilon, mechanism=law, adjacency="zero_out", scaling="none", unsafe_seed=seed)


def owner_draws(kind: str, method: str, truth: Truth, public: SharedPosterior, seed: int):
    """Return 399 draws of W (S, d, m) and sigma (S, m)."""
    if method == "oracle":
        results = methods.plug_in(truth.train, truth.omega[None], np.ones(1), None, DRAWS, seed)
    elif method == "plug_in":
        shapes, prior = methods.raised_shapes(public, None if kind == "estimates" else 1.0)
        results = methods.plug_in(truth.train, shapes, prior, None, DRAWS, seed)
    else:
        omegas = np.asarray(public.to_arviz()["posterior"]["Omega"]).reshape(-1, D, D)
        results = methods.mixture(truth.train, omegas, None, DRAWS, seed)
    return results.draws["W"], results.draws["sigma"]


def covered(truth: FloatArray, draws: FloatArray) -> list[float]:
    """Return the share of truths (...) whose rank among draws (S, ...), 0..S, is central, at every level."""
    share = (np.sum(draws < truth, axis=0) + 0.5) / (len(draws) + 1)
    return [float(np.mean(np.abs(share - 0.5) < level / 2)) for level in LEVELS]


def posteriors(releases: list[Release]) -> list[SharedPosterior]:
    """Return the public posteriors of all releases, as `shared_covariance` makes them one by one."""
    start = structures.model_for(FULL, releases[0]).start
    observed = [starts.observed(public) for public in releases]
    draws, diverging = chain_for_each(KERNEL, observed, start=lambda _: start, warmup=WARMUP, draws=PUBLIC_DRAWS)
    out = []
    for i, public in enumerate(releases):
        drawn = {k: v[i][None] for k, v in draws.items()}
        tree = trees.as_tree(public, drawn, {"diverging": diverging[i][None]}, seed=i)
        out.append(SharedPosterior(public, FULL, 0.0, tree))
    return out


def cell(kind: str, law: MatrixMechanism, epsilon: float, replications: int) -> dict[str, FloatArray]:
    """Return coverage by method, (replication, weights or targets, level), less the oracle's excess."""
    seeds = range(replications)
    truths = [simulate(np.random.default_rng(seed), OWNERS if kind == "model" else M) for seed in seeds]
    public = posteriors([released(kind, truth, law, epsilon, seed) for seed, truth in zip(seeds, truths, strict=True)])
    coverages: dict[str, list[Any]] = {method: [] for method in ("oracle", *METHODS[kind])}
    for seed, truth, posterior in zip(tqdm(seeds, leave=False), truths, public, strict=True):
        for method, of_method in coverages.items():
            rng = np.random.default_rng((seed, 1))
            W, sigma = owner_draws(kind, method, truth, posterior, seed)
            y = np.einsum("tni,sit->stn", truth.X, W)
            y += sigma[..., None] * rng.standard_normal(y.shape)
            of_method.append([covered(truth.W, W), covered(truth.y, y)])
    surplus = np.array(coverages.pop("oracle")) - LEVELS
    return {method: np.array(of_method) - surplus for method, of_method in coverages.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=30)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--simulations", nargs="+", choices=METHODS, default=list(METHODS))
    record.option(parser)
    options = parser.parse_args()
    cells = []
    sizes = {"d": D, "m": M, "rows": ROWS, "replications": options.replications}
    print(
        f"d = {D}, m = {M}, {ROWS} rows, {options.replications} replications; coverage of {LEVELS}, weights | targets"
    )
    for kind in options.simulations:
        for epsilon in options.epsilons:
            laws = {
                "calibrated": calibrate(epsilon, default_delta(M), D, adjacency="zero_out"),
                "gaussian": calibrate_gaussian(epsilon, default_delta(M), D, adjacency="zero_out"),
                "paper": PaperWishart(D, epsilon),
            }
            for mechanism, law in laws.items():
                for method, every in cell(kind, law, epsilon, options.replications).items():
                    mean, error = every.mean(axis=0), every.std(axis=0, ddof=1) / np.sqrt(len(every))
                    numbers = [
                        {"coverage": p.tolist(), "standard error": e.tolist()} for p, e in zip(mean, error, strict=True)
                    ]
                    cells.append(
                        {"simulation": kind, "method": method, "mechanism": mechanism, "epsilon": epsilon}
                        | dict(zip(("weights", "targets"), numbers, strict=True))
                    )
                    shown = " | ".join(" ".join(f"{p:.3f}" for p in row) for row in mean)
                    print(
                        f"  {kind:10s} {mechanism:10s} eps {epsilon:<4g} {method:8s} {shown}  (se up to {error.max():.3f})",
                        flush=True,
                    )
                # after every cell: what is there when somebody loses patience is whole
                record.write(options.json, {"levels": LEVELS, "sizes": sizes, "cells": cells})


if __name__ == "__main__":
    main()
