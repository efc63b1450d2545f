"""Time, memory and error of mixed models by other tools, which pool all rows, beside one release and owners' own fits.

    python studies/benchmarks/pooled_mixed_models.py [--pymc PYTHON] [--limit 1800] [--sizes M ...] [--json OUT]

m hospitals of 100 patients, an intercept and ten columns, y_ij = x_ij'beta_i + e_ij, beta_i ~ N(mu, Omega), e_ij ~ N(0, 1):
mu has length .7, and Omega = .5^2 / 11 * .5^|j - k|. Every tool fits this model in a new process, from a CSV file of the rows
to a CSV file of hospitals' coefficients and average effects with 90 % intervals; imports and compilation count, and nothing
compiled is kept from one process to the next. CPU seconds, of a process and those that it started, are what is compared,
as the clock says how busy the machine is; --limit is in CPU seconds. A tool that was over it is not run again, neither at
that size nor at a larger one. What --json has already is not run again, unless it was stopped by a lower limit.

"lme4" needs R with its package (Debian: `apt-get install r-cran-lme4`), "statsmodels" and "NumPyro" come with `make test`'s
environment, "PyMC" and "bambi" want an environment of their own (`python -m venv E && E/bin/pip install bambi`, then
`--pymc E/bin/python`). What is missing is named and left out. DLMM of the R package pda is on CRAN alone, and is not here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve()
PATIENTS, COLUMNS = 100, 11
LENGTH, SPREAD, CORRELATION = 0.7, 0.5, 0.5  #: of mu, of beta_i - mu, and of neighbouring coefficients
SIZES = (12, 30, 300, 3000)
OURS = ("ours, eps = 1", "ours, eps = 3")
ARMS = (
    "alone",
    "lme4",
    "lme4, uncorrelated",
    "statsmodels",
    "statsmodels, uncorrelated",
    "bambi, uncorrelated",
    "PyMC, not centred",
    "NumPyro, centred",
    "NumPyro, not centred",
    *OURS,
)


class Study(NamedTuple):
    """A made-up study, all hospitals of equal size.

    Attributes:
        X: rows, the first column constant, (m, n, d).
        y: targets, (m, n).
        beta: true coefficients, (m, d).
        mu: their mean, (d,).
    """

    X: np.ndarray
    y: np.ndarray
    beta: np.ndarray
    mu: np.ndarray


def covariance(d: int) -> np.ndarray:
    """Omega (d, d), whose trace is SPREAD^2."""
    return SPREAD**2 / d * CORRELATION ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))


def draw(m: int, seed: int, patients: int = PATIENTS, d: int = COLUMNS) -> Study:
    """Simulate the study of m hospitals."""
    rng = np.random.default_rng([seed, m])
    mu = rng.standard_normal(d)
    mu *= LENGTH / np.linalg.norm(mu)
    beta = mu + rng.standard_normal((m, d)) @ np.linalg.cholesky(covariance(d)).T
    X = np.concatenate([np.ones((m, patients, 1)), rng.standard_normal((m, patients, d - 1))], axis=2)
    return Study(X, np.einsum("mni,mi->mn", X, beta) + rng.standard_normal((m, patients)), beta, mu)


def write(folder: Path, m: int, seed: int) -> None:
    """Write a study's rows as rows.csv and its truth as truth.npz."""
    study = draw(m, seed)
    m, n, d = study.X.shape
    numbers = np.concatenate([study.y[..., None], study.X[..., 1:]], axis=2).reshape(m * n, d)
    with (folder / "rows.csv").open("w") as file:
        file.write(",".join(["hospital", "y", *(f"x{j}" for j in range(1, d))]) + "\n")
        for row, line in enumerate(numbers):
            file.write(f"H{row // n:04d}," + ",".join(f"{value:.6f}" for value in line) + "\n")
    np.savez(folder / "truth.npz", beta=study.beta, mu=study.mu)


def score(estimates: np.ndarray, low: np.ndarray, high: np.ndarray, truth: np.ndarray) -> dict[str, float | None]:
    """Root mean squared error, and the share of intervals in which the truth is; all arrays have one shape.

    The share is None where some intervals are missing.
    """
    covered = float(((low <= truth) & (truth <= high)).mean()) if np.isfinite(high - low).all() else None
    return {"error": float(np.sqrt(((estimates - truth) ** 2).mean())), "covered": covered}


def judged(table: Path, truth: Mapping[str, np.ndarray]) -> dict[str, dict[str, float | None]]:
    """Scores of a tool's CSV file: of the hospitals' coefficients and of the average effects."""
    numbers = np.genfromtxt(table, delimiter=",", skip_header=1)[:, 2:].reshape(-1, COLUMNS, 3)
    estimates, low, high = np.moveaxis(numbers, 2, 0)
    return {
        "coefficients": score(estimates[:-1], low[:-1], high[:-1], truth["beta"]),
        "averages": score(estimates[-1], low[-1], high[-1], truth["mu"]),
    }


def command(arm: str, pymc: str | None) -> list[str] | None:
    """What starts a tool, or None where it is missing."""
    if arm.startswith("lme4"):
        result = shutil.which("Rscript")
        return [result, str(HERE.with_suffix(".R")), arm] if result and _runs([result, "-e", "library(lme4)"]) else None
    tool = arm.partition(",")[0]
    python = pymc if tool in ("PyMC", "bambi") else sys.executable
    modules = {"PyMC": "pymc", "bambi": "bambi", "statsmodels": "statsmodels", "NumPyro": "numpyro"}
    if python is None or (tool in modules and not _runs([python, "-c", f"import {modules[tool]}"])):
        return None
    return [python, str(HERE.with_name("pooled_mixed_models_fits.py")), arm]


def _runs(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def fit(words: list[str], folder: Path, seed: int, limit: float) -> dict[str, Any]:
    """One fit in a process of its own: what it took, how wrong it was, and what it said.

    Memory is the largest resident set of the process; that of this one, which is small, is its lower limit.
    """
    rows, estimates = folder / "rows.csv", folder / "estimates.csv"
    estimates.unlink(missing_ok=True)
    more = [] if words[1].endswith(".R") else ["--seed", str(seed)]
    limited = [
        "sh",
        "-c",
        'ulimit -S -t "$0"; exec "$@"',
        str(math.ceil(limit)),
        *words,
        *map(str, (rows, estimates)),
        *more,
    ]
    cache = folder / "compiled"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTENSOR_"))}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTENSOR_FLAGS": f"base_compiledir={cache}"}
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        begin = time.perf_counter()
        process = subprocess.Popen(limited, stdout=out, stderr=err, env=environment, cwd=HERE.parents[2])
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said, wrong = out.read(), err.read()
    shutil.rmtree(cache, ignore_errors=True)
    took = {"seconds": seconds, "CPU seconds": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss * 1024}
    if process.returncode == 0:
        with np.load(folder / "truth.npz") as truth:
            return took | judged(estimates, truth) | {"said": json.loads(said.splitlines()[-1])}
    if process.returncode == -signal.SIGXCPU:
        return took | {"over": limit}
    return took | {"failed": (wrong.strip().splitlines() or [f"ended with {process.returncode}"])[-1][:300]}


def missing(options: argparse.Namespace, done: list[dict[str, Any]]) -> Iterator[tuple[int, int, str]]:
    """Sizes, seeds and arms that are yet to be run: one seed of every size, the small ones first, then the next seed."""
    for seed in range(options.seeds):
        for m in options.sizes if seed == 0 else [m for m in options.sizes if m < SIZES[-1]]:
            for arm in options.arms:
                known = [
                    each for each in done if each["arm"] == arm and each.get("over", options.limit) >= options.limit
                ]
                if not any(
                    (each["m"], each["seed"]) == (m, seed) or ("over" in each and each["m"] <= m) for each in known
                ):
                    yield m, seed, arm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pymc", help="an interpreter that has PyMC and bambi")
    parser.add_argument("--limit", type=float, default=1800.0, help="CPU seconds of a fit")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="hospitals")
    parser.add_argument("--seeds", type=int, default=2, help="of every size but the largest, which has one")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM", help="only these")
    parser.add_argument("--draw", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file; what it has is kept")
    options = parser.parse_args()
    if options.draw:
        write(Path(options.draw[0]), *map(int, options.draw[1:]))
        return
    done: list[dict[str, Any]] = []
    if options.json and options.json.is_file():
        done = [each for each in json.loads(options.json.read_text())["fits"] if each["arm"] in ARMS]
    starts = {arm: command(arm, options.pymc) for arm in options.arms}
    absent = [arm for arm, words in starts.items() if words is None]
    for arm in absent:
        print(f"{arm}: not installed, left out; --help says how to get it", file=sys.stderr)
    options.arms = [arm for arm in options.arms if arm not in absent]
    with TemporaryDirectory() as place:
        drawn = None
        while (following := next(missing(options, done), None)) is not None:
            m, seed, arm = following
            if drawn != (m, seed):
                subprocess.run([sys.executable, str(HERE), "--draw", place, str(m), str(seed)], check=True)
                drawn = (m, seed)
            result = fit(starts[arm] or [], Path(place), seed, options.limit)
            unit = {"arm": arm, "m": m, "seed": seed}
            done = [each for each in done if not unit.items() <= each.items()] + [unit | result]
            print(f"{m:5d} {seed} {arm:26s} {_words(result)}", flush=True)
            save(options, done)
    save(options, done)


def save(options: argparse.Namespace, done: list[dict[str, Any]]) -> None:
    """Write what is known, by a process of its own: this one stays small, as its memory counts to that of the tools."""
    if options.json is None:
        return
    numbers = {
        "command": f"python studies/benchmarks/pooled_mixed_models.py --pymc PYTHON --limit {options.limit:g}",
        "patients": PATIENTS,
        "columns": COLUMNS,
        "processor": _processor(),
        "fits": sorted(done, key=lambda each: (each["m"], each["seed"], ARMS.index(each["arm"]))),
    }
    code = "import json, pathlib, sys, record; record.write(pathlib.Path(sys.argv[1]), json.load(sys.stdin), 'statsmodels')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE.parents[2])])}
    words = [sys.executable, "-c", code, str(options.json)]
    subprocess.run(words, input=json.dumps(numbers), text=True, env=environment, check=True)


def _processor() -> str:
    """The processor's name, as Linux has it."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _words(result: Mapping[str, Any]) -> str:
    took = f"{result['CPU seconds']:.1f} CPU s, {result['seconds']:.1f} s, {result['memory'] / 2**20:.0f} MiB"
    if "over" in result or "failed" in result:
        return f"{took}: {result.get('failed', 'over the limit')}"
    return f"{took}, {result['coefficients']}, {result['averages']}, {result['said']}"


if __name__ == "__main__":
    main()
