"""Mixed models of binary outcomes and counts beside every task alone, all rows pooled, and a mixed model without privacy.

    python studies/benchmarks/outcomes.py [--seeds 5] [--tables NAME ...] [--cells NAME ...] [--units FOLDER] [--finished]
        [--json OUT]

Simulated: three standard normal columns and an intercept, average effects .5, -.3 and 0, which differ between tasks by .15,
levels by .4; declared baselines are half as high again as the truth. 200 new rows of every task are predicted. Real tables
are those of Rdatasets, and are looked for as those of the panel; half of every task's rows are for training.

alone         one task's posterior, as owners' tables have it: no release, wide priors
pooled        one model of all rows; its mode
mixed         all tasks' effects latent, by NUTS; not private
eps = 1, 3    one release each, (eps, 1 / (m log m)), replacement

Scores are mean log predictive probabilities of a row, less those of alone: more is better. Finished units are files in
--units, and are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpyro  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
import record  # noqa: E402
from random_effects.real import locate  # noqa: E402
from scipy.special import expit, logsumexp  # noqa: E402
from tqdm.auto import tqdm  # noqa: E402

import mpmtl_prob as mp  # noqa: E402
from mpmtl_prob.data.outcomes import targets_of  # noqa: E402
from mpmtl_prob.single_task.families import Bernoulli, NegativeBinomial  # noqa: E402

EPSILONS = (1.0, 3.0)
MU, TAU = np.array([0.5, -0.3, 0.0, 0.0]), np.array([0.15, 0.15, 0.15, 0.4])
DRAWS: dict[str, Any] = {"chains": 4, "warmup": 300, "draws": 300, "progress_bar": False}
NEW_ROWS, DISPERSION, SHARE = 200, 0.3, 0.5


@dataclass(frozen=True)
class Cell:
    """A simulated study: what is counted, how often it happens where columns are 0, tasks, and rows of each."""

    outcome: str
    rate: float
    tasks: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.outcome}-{self.rate:g}-m{self.tasks}-n{self.rows}"


KINDS = (("binary", 0.3, 60), ("binary", 0.05, 200), ("binary", 0.01, 500), ("count", 0.5, 60), ("count", 0.05, 200))
CELLS = {cell.name: cell for kind in KINDS for m in (12, 30, 60) for cell in [Cell(*kind[:2], m, kind[2])]}


@dataclass(frozen=True)
class Study:
    """Rows to fit, rows to predict, the declared reference, and true effects (d, m) where these are known."""

    train: mp.TaskData
    test: mp.TaskData
    reference: mp.Reference
    truth: np.ndarray | None = None


def simulated(cell: Cell, seed: int) -> Study:
    rng = np.random.default_rng([seed, cell.tasks, cell.rows])
    m, n = cell.tasks, cell.rows + NEW_ROWS
    level = np.log(cell.rate / (1 - cell.rate)) if cell.outcome == "binary" else np.log(cell.rate)
    beta = MU + TAU * rng.standard_normal((m, 4)) + [0, 0, 0, level]
    X = rng.standard_normal((m, n, 3))
    eta = np.einsum("ind,id->in", X, beta[:, :3]) + beta[:, 3:]
    exposure = rng.uniform(0.5, 4, (m, n))
    if cell.outcome == "binary":
        y = (rng.random((m, n)) < expit(eta)).astype(float)
    else:
        y = rng.poisson(exposure * np.exp(eta) * rng.gamma(1 / DISPERSION, DISPERSION, (m, n))).astype(float)
    parts = []
    for own in (slice(0, cell.rows), slice(cell.rows, n)):
        tasks = mp.TaskData.from_lists(
            list(X[:, own]), list(y[:, own]), tasks=[f"task {i}" for i in range(m)]
        ).with_intercept()
        parts.append(tasks.with_exposure(exposure[:, own]) if cell.outcome == "count" else tasks)
    declared = min(1.5 * cell.rate, 0.5 * (1 + cell.rate))
    train, test = parts
    return Study(train, test, mp.Reference.standard(3, outcome=cell.outcome, baseline=declared), beta.T)


@dataclass(frozen=True)
class Table:
    """A real table: its file, the column of tasks, how its rows are read, the outcome and a round baseline."""

    file: str
    task: str
    columns: tuple[str, ...]
    read: Callable[[Any], Any]
    outcome: str
    baseline: float
    exposure: str | None = None


TABLES = {
    "toenail": Table(
        "toenail.csv", "patientID", ("months", "terbinafine"),
        lambda f: f.assign(
            y=1.0 * (f["outcome"] != "none or mild"), months=f["time"], terbinafine=f["treatment"] == "terbinafine"
        ),
        "binary", 0.2,
    ),
    "guImmun": Table(
        "guImmun.csv", "comm", ("older", "mother", "primary", "secondary", "indigenous"),
        lambda f: f.assign(
            y=1.0 * (f["immun"] == "Y"), older=f["kid2p"] == "Y", mother=f["mom25p"] == "Y", primary=f["momEd"] == "P",
            secondary=f["momEd"] == "S", indigenous=f["pcInd81"],
        ),
        "binary", 0.4,
    ),
    "epil": Table(
        "epil.csv", "subject", ("last", "period"), lambda f: f.assign(last=f["V4"]), "count", 5.0
    ),
    "grouseticks": Table(
        "grouseticks.csv", "LOCATION", ("height", "y96", "y97"),
        lambda f: f.assign(y=f["TICKS"], height=f["HEIGHT"], y96=f["YEAR"] == 96, y97=f["YEAR"] == 97),
        "count", 3.0,
    ),
    "Mmmec": Table(
        "Mmmec.csv", "region", ("uvb",), lambda f: f.assign(y=f["deaths"]), "count", 1.0, "expected"
    ),
}  # fmt: skip


def real(name: str, number: int, folder: Path | None) -> Study:
    """Centres and scales are the pooled ones, as of the panel; baselines are round numbers."""
    import pandas as pd

    of = TABLES[name]
    frame = of.read(pd.read_csv(locate(of.file, folder))).dropna(subset=[of.task, "y", *of.columns])
    frame[list(of.columns)] = frame[list(of.columns)].astype(float)
    frame = frame[frame.groupby(of.task)["y"].transform("size") >= 4].reset_index(drop=True)
    tasks = mp.TaskData.from_pandas(
        frame.assign(**{of.task: frame[of.task].astype(str)}), task=of.task, target="y", features=list(of.columns),
        exposure=of.exposure, intercept=True,
    )  # fmt: skip
    scales: dict[Any, tuple[float, float]] = {c: (float(frame[c].mean()), float(frame[c].std())) for c in of.columns}
    train, test = tasks.split(SHARE, seed=number)
    return Study(train, test, mp.Reference(scales, outcome=of.outcome, baseline=of.baseline))


def log_scores(study: Study, W: np.ndarray, dispersion: np.ndarray | None) -> float:
    """Return the mean log predictive probability of the test rows, from draws W (S, d, m) and counts' dispersion (S, m)."""
    test, total = study.test, 0.0
    exposure = np.ones(test.num_rows) if test.exposure is None else test.exposure
    for i in range(test.num_tasks):
        own = slice(*test.offsets[i : i + 2])
        eta = W[:, :, i] @ test.rows[own].T + np.log(exposure[own])
        y = test.targets[own]
        if study.reference.outcome == "binary":
            each = Bernoulli().log_density(targets_of("binary", y), eta)
        else:
            assert dispersion is not None
            each = np.array([
                NegativeBinomial(float(a)).log_density(y, row) for a, row in zip(dispersion[:, i], eta, strict=True)
            ])  # fmt: skip
        total += float((logsumexp(each, axis=0) - np.log(len(each))).sum())
    return total / test.num_rows


def hierarchical(study: Study) -> Callable[[], None]:
    """Model all effects as latent, in declared units: the mixed model without privacy."""
    units, train = study.reference.units(study.train.features), study.train
    X, task = units.rows(train.rows), train.task_of_rows
    d, m = X.shape[1], train.num_tasks
    offset = units.target_centre + (0 if train.exposure is None else np.log(train.exposure))

    def model() -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([d]))
        tau = numpyro.sample("tau", dist.HalfNormal(0.5).expand([d]))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([m, d]))
        beta = numpyro.deterministic("beta", mu + tau * z)
        eta = offset + jnp.einsum("nd,nd->n", jnp.asarray(X), beta[task])
        if study.reference.outcome == "binary":
            numpyro.sample("y", dist.BernoulliLogits(eta), obs=(train.targets > 0) * 1)
        else:
            a = numpyro.sample("dispersion", dist.HalfNormal(1))
            numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), 1 / (a + 1e-3)), obs=train.targets)

    return model


def mixed(study: Study, seed: int) -> dict[str, Any]:
    run = numpyro.infer.MCMC(
        numpyro.infer.NUTS(hierarchical(study), target_accept_prob=0.9),
        num_warmup=300,
        num_samples=300,
        progress_bar=False,
    )
    run.run(jax.random.PRNGKey(seed))
    drawn = {name: np.asarray(value) for name, value in run.get_samples().items()}
    units = study.reference.units(study.train.features)
    W = np.swapaxes(units.to_table(drawn["beta"]), 1, 2)
    a = np.repeat(drawn["dispersion"][:, None], W.shape[2], axis=1) if "dispersion" in drawn else None
    average = drawn["mu"] + [*np.zeros(W.shape[1] - 1), units.target_centre]
    return scored(study, W, a, in_reference(study, np.swapaxes(drawn["beta"], 1, 2)), average)


def pooled(study: Study) -> dict[str, Any]:
    from scipy.optimize import minimize

    units, train = study.reference.units(study.train.features), study.train
    X = units.rows(train.rows)
    offset = units.target_centre + (0 if train.exposure is None else np.log(train.exposure))
    binary = study.reference.outcome == "binary"

    def loss(b: np.ndarray) -> float:
        law = Bernoulli() if binary else NegativeBinomial(float(np.exp(np.clip(b[-1], -8, 5))))
        y = targets_of(study.reference.outcome, train.targets)
        return -float(law.log_density(y, offset + X @ b[: X.shape[1]]).sum()) + 1e-4 * float(b @ b)

    best = minimize(loss, np.zeros(X.shape[1] + (not binary)), method="BFGS").x
    m = train.num_tasks
    W = np.repeat(units.to_table(best[: X.shape[1]])[None, :, None], m, axis=2)
    a = None if binary else np.full((1, m), np.exp(np.clip(best[-1], -8, 5)))
    return scored(study, W, a, None, None)


def in_reference(study: Study, effects: np.ndarray) -> np.ndarray:
    """Return effects (S, d, m) in reference units with the intercept on the linear predictor, as a simulation's truth."""
    shift = study.reference.units(study.train.features).target_centre
    return np.concatenate([effects[:, :-1], effects[:, -1:] + shift], axis=1)


def scored(
    study: Study, W: np.ndarray, dispersion: np.ndarray | None, effects: np.ndarray | None, average: np.ndarray | None
) -> dict[str, Any]:
    """Return the log score of draws, and in a simulation errors and coverage of effects and of average effects."""
    out: dict[str, Any] = {"log score": log_scores(study, W, dispersion)}
    if study.truth is not None and effects is not None:
        lower, upper = np.quantile(effects, [0.05, 0.95], axis=0)
        out["error"] = float(((effects.mean(axis=0) - study.truth) ** 2).sum(axis=0).mean())
        out["covered"] = ((lower <= study.truth) & (study.truth <= upper)).mean(axis=1).tolist()
    if study.truth is not None and average is not None:
        level = study.truth[-1].mean()
        truth = np.append(MU[:3], level)  # levels: of the tasks at hand, whose average is what a simulation knows
        lower, upper = np.quantile(average, [0.05, 0.95], axis=0)
        out["average"] = (average.mean(axis=0) - truth).tolist()
        out["average covered"] = ((lower <= truth) & (truth <= upper)).astype(float).tolist()
    return out


def private(study: Study, epsilon: float, seed: int) -> dict[str, dict[str, Any]]:
    """Measure the owners with the release, and alone."""
    begin = time.process_time()
    release = mp.release(study.train, epsilon, reference=study.reference)
    shared = mp.inference.shared_effects(release, **DRAWS, seed=seed)
    public = time.process_time() - begin
    own = mp.inference.task_posteriors(study.train, shared, seed=seed)
    tree = own.to_arviz(pointwise=False)
    posterior, constants = (tree[name].to_dataset() for name in ("posterior", "constant_data"))
    flat = lambda name: posterior[name].values.reshape(-1, *posterior[name].shape[2:])
    a = flat("dispersion") if "dispersion" in posterior else None
    average = shared.to_arviz()["posterior"].to_dataset()["average_effect"].values.reshape(-1, own.W.shape[0])
    standard = study.truth is not None
    out = scored(study, flat("W"), a, flat("effect") if standard else None, average if standard else None)
    khat = constants["khat_draws"].values
    out |= {"public CPU seconds": public, "owners CPU seconds": time.process_time() - begin - public}
    out |= {"passed": shared.diagnose().sound, "worst k-hat": float(khat.max())}
    alone = flat("alone")
    units = study.reference.units(study.train.features)
    # the table of owners has the intercept at the reference's centres: back to where columns are 0
    W = alone.copy()
    W[:, -1] -= np.einsum("j,sjm->sm", units.centre[:-1], alone[:, :-1])
    return {f"eps = {epsilon:g}": out, "alone": scored(study, W, a, alone if standard else None, None)}


def arms(study: Study, seed: int) -> dict[str, Any]:
    out: dict[str, Any] = {"pooled": pooled(study), "mixed": mixed(study, seed)}
    for epsilon in EPSILONS:
        out = private(study, epsilon, seed) | out
    return out


def units_of(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], Study]]]:
    for seed in range(options.seeds):
        for name in options.cells:
            yield name, seed, partial(simulated, CELLS[name], seed)
        for name in options.tables:
            yield name, seed, partial(real, name, seed, options.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", nargs="*", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--units", type=Path, default=Path("outcomes-units"))
    parser.add_argument("--finished", action="store_true", help="run nothing: show what is in --units")
    record.option(parser)
    options = parser.parse_args()
    options.units.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"cells": {}, "tables": {}}
    for name, seed, study in tqdm(list(units_of(options)), file=sys.stderr):
        path = options.units / f"{name}_{seed}.json"
        if not path.exists():
            if options.finished:
                continue
            path.write_text(json.dumps(arms(study(), seed)))
        kind = "cells" if name in CELLS else "tables"
        report[kind].setdefault(name, []).append(json.loads(path.read_text()))
        report["simulated"] = {name: asdict(cell) for name, cell in CELLS.items()}
        record.write(options.json, report)
    for kind in ("cells", "tables"):
        for name, seeds in report[kind].items():
            gains = {
                arm: np.mean([s[arm]["log score"] - s["alone"]["log score"] for s in seeds])
                for arm in seeds[0]
                if arm != "alone"
            }
            print(f"{name:24s}", "  ".join(f"{arm} {gain:+.4f}" for arm, gain in gains.items()))


if __name__ == "__main__":
    main()
