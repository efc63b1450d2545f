"""Time that a user waits, today and in an earlier checkout, in one run.

    python studies/benchmarks/speed.py [--before CHECKOUT] [--repeats 1] [--cells CELL ...] [--json OUT]

Every cell is a process of its own without a compilation cache, and the checkouts take turns. Installation is what `make`
does in a new clone before the demonstration runs, with nothing in pip's cache; the demonstration is `mpmtl-prob demo`. What
compiling costs is the first call, for one chain of four draws, less the second. For draws the public posterior is sampled
with four seeds as it comes, 4 chains of 300 draws after as much warm-up as that checkout takes: all calls but the first
give CPU seconds for 400 effective draws of the least of log(phi) and the three largest shares of A's eigenvalues, the
effective draws of all of them added. All of it is in units of 20 000 eigendecompositions of a 28 x 28 matrix by NumPy in
one thread, measured in the same process; the medians of the repeats are shown. LSOA II, with 293 features, takes minutes a
call: one seed; and how long it takes with ``until=Until(rhat=1.02)``, the mean of three. The
acceptance rate of "low_rank" was chosen on the synthetic data of seed 0, and the length of its trajectories on those of seeds
1 to 3; those of other seeds played no part in it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve()
CELLS = {
    "import, to release": ("release", 0.0),
    "import, to read a release": ("shared_covariance", 0.0),
    "installation": ("", 0.0),
    "demonstration": ("synthetic_low_rank", 0.0),
    "School, eps 1": ("full", 1.0),
    "School, eps 10": ("full", 10.0),
    "auto": ("auto", 1.0),
    "full": ("full", 1.0),
    "low_rank": ("low_rank", 1.0),
    **{
        f"{structure}, data of seed {seed}": (structure, 1.0)
        for seed in (4, 5, 6)
        for structure in ("full", "low_rank")
    },
    "group_sparse": ("group_sparse", 1.0),
    "LSOA II": ("full", 1.0),
    "LSOA II, to r-hat 1.02": ("full", 1.0),
    "School, compilation": ("full", 1.0),
    "auto, compilation": ("auto", 1.0),
    "low_rank, compilation": ("low_rank", 1.0),
    "group_sparse, compilation": ("group_sparse", 1.0),
}
SHORT = {"chains": 1, "warmup": 4, "draws": 4, "progress_bar": False}
#: What the earlier checkout had no way to ask for, or is not compared with it.
NEW = {"LSOA II, to r-hat 1.02", "full", *(name for name in CELLS if "data of seed" in name)}
RUN = {"chains": 4, "draws": 300, "progress_bar": False}


def unit() -> float:
    """Return the median CPU seconds of 20 000 eigendecompositions in nine tries, as a processor's speed changes."""
    import numpy as np

    M, tries = np.cov(np.random.default_rng(0).standard_normal((28, 100))), []
    for _ in range(9):
        begin = time.process_time()
        for _ in range(1000):
            np.linalg.eigh(M)
        tries.append(20 * (time.process_time() - begin))
    return median(tries)


def measure(name: str) -> dict[str, float]:
    """Measure one cell in this process."""
    structure, epsilon = CELLS[name]
    if name == "installation":
        return install(Path.cwd()) | {"unit": unit()}
    begin = time.process_time()
    import mpmtl_prob as mp

    if name.startswith("import"):
        getattr(mp if structure == "release" else mp.inference, structure)  # what is not asked for is not imported
        return {"CPU seconds": time.process_time() - begin, "unit": unit()}
    if name == "demonstration":
        from mpmtl_prob.cli import main

        started = time.perf_counter()
        with TemporaryDirectory() as out:
            main(["demo", "--data", structure, "--out", out])
        clock = time.perf_counter() - started
        return {"CPU seconds": time.process_time() - begin, "seconds of the clock": clock, "unit": unit()}
    import numpy as np
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    if name.startswith("School"):
        train = mp.datasets.school().split(0.3, seed=0)[0]
    elif name.startswith("LSOA II"):
        train = mp.datasets.lsoa2().split(0.3, seed=0)[0]
    else:
        train = mp.datasets.synthetic_low_rank(seed=int(name.partition("data of seed ")[2] or 0)).train
    release = mp.release(train, epsilon, unsafe_seed=0)
    if name.endswith("compilation"):
        import arviz_base  # noqa: F401 # what is imported late is not compiled

        first, second = (_spent(release, structure, seed, SHORT)[0] for seed in range(2))
        return {"CPU seconds": first - second, "unit": unit()}
    run: dict[str, Any] = RUN
    if name in NEW:
        run = RUN | {"draws": 1000, "until": mp.inference.Until(rhat=1.02)}
    spent, effective, steps, rhat = [], [], [], []
    for seed in range(2 if name == "LSOA II" else 4):
        seconds, shared = _spent(release, structure, seed, run)
        spent.append(seconds)
        posterior = shared.to_arviz()["posterior"]
        eigenvalues = np.linalg.eigvalsh(posterior["A"].values)[..., ::-1]
        shares = (eigenvalues / eigenvalues.sum(axis=-1, keepdims=True))[..., :3]
        effective.append(min(*effective_sample_size(shares), effective_sample_size(posterior["log_phi"].values)))
        rhat.append(max(*split_gelman_rubin(shares), split_gelman_rubin(posterior["log_phi"].values)))
        steps.append(shared.to_arviz()["sample_stats/n_steps"].mean())
    seconds, ess = np.mean(spent[1:]), np.mean(effective[1:])
    return {
        "400 effective draws": float(seconds * 400 / ess),
        "ESS": float(ess),
        "a run": float(seconds),
        "r-hat": float(np.max(rhat[1:])),
        "leapfrog steps a draw": float(np.mean(steps[1:])),
        "unit": unit(),
    }


def install(checkout: Path) -> dict[str, float]:
    """Measure how long a user waits before the demonstration starts, in a new clone of a checkout."""
    with TemporaryDirectory() as clone:
        subprocess.run(["git", "clone", "-q", str(checkout), clone], check=True)
        needed = ".venv/.demo" if ".venv/.demo:" in (Path(clone) / "Makefile").read_text() else ".venv/.ready"
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run(["make", "-s", "-C", clone, needed], env=own | {"PIP_NO_CACHE_DIR": "1"}, check=True)
        clock, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"CPU seconds": seconds, "seconds of the clock": clock}


def _spent(release: Any, structure: str, seed: int, run: dict[str, Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a posterior, and the posterior."""
    from mpmtl_prob.inference import shared_covariance

    begin = time.process_time()
    shared = shared_covariance(release, structure=structure, seed=seed, **run)
    return time.process_time() - begin, shared


def elsewhere(name: str, checkout: Path) -> dict[str, float]:
    """Measure one cell in a new process that imports a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1", "JAX_ENABLE_X64": "0"}
    environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, str(HERE), "--cell", name]
    ran = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an earlier checkout of the repository")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cells", nargs="+", choices=CELLS, help="some of them; --json keeps all others of its own")
    parser.add_argument("--cell", choices=CELLS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file too")
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(measure(options.cell)))
        return
    import record

    checkouts = {"now": HERE.parents[2]} | ({"before": options.before.resolve()} if options.before else {})
    before = options.before and revision(checkouts["before"])
    report = kept(options.json, before) if options.cells else {}
    cells: dict[str, Any] = dict(report.get("cells", {}))
    for name in options.cells or CELLS:
        runs: dict[str, list[dict[str, float]]] = {when: [] for when in checkouts}
        for _ in range(options.repeats):
            for when, checkout in checkouts.items():
                if when == "now" or name not in NEW:
                    runs[when].append(elsewhere(name, checkout))
        cells[name] = {
            when: {k: median(run[k] for run in each) for k in each[0]} for when, each in runs.items() if each
        }
        for when, measured in cells[name].items():
            print(f"{name}, {when}: " + ", ".join(f"{k} {v:.3g}" for k, v in measured.items()), flush=True)
        asked = {"command": report["command"]} if report else {}
        record.write(options.json, {"before": before, "cells": cells} | asked)


def kept(path: Path | None, before: str | None) -> dict[str, Any]:
    """Return an earlier report. Raises ValueError if it compares with another commit."""
    if path is None or not path.exists():
        return {}
    report = dict(json.loads(path.read_text()))
    if report["before"] != before:
        raise ValueError(f"{path}: expected a comparison with {before}, got {report['before']}")
    return report


def revision(checkout: Path) -> str:
    """Return the commit that is checked out."""
    asked = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
