"""Growth of the cost of a release and of Algorithm 2 with tasks m, rows n, features d and rounds T, one at a time.

    python studies/benchmarks/scaling.py [--m 1000 4000 16000] [--n 30 60 120] [--d 16 32 64] [--T 10 40 160] [--json OUT]

Every size runs in a process of its own, the others as in BASE. Work is CPU seconds of all threads, which a busy machine
does not lengthen as it does the clock, after one call that compiles and leaves Algorithm 2 its Gram matrices; memory is
the peak of the process, with the making of the data. `--m 1000 10000 100000` goes to a hundred thousand tasks.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import record

BASE = {"m": 4_000, "n": 30, "d": 32, "T": 20}
SIZES = {"m": [1_000, 4_000, 16_000], "n": [30, 60, 120], "d": [16, 32, 64], "T": [10, 40, 160]}
NAMES = {"m": "tasks", "n": "rows of a task", "d": "features", "T": "rounds"}
#: what the cost is made of; where tasks have fewer rows than features, min(n, d) stands for d in the release
BOUND = {
    "m": "every task's Gram matrix is decomposed once, and read in every round: linear",
    "n": "rows enter a release through the Gram matrices alone, once (n d^2, under what does not know them: d^3 and the "
    "posterior's grid), and the rounds of Algorithm 2 not at all",
    "d": "d x d matrices: a round reads m d^2 numbers, a release decomposes m of them in d^3 steps, above the .2 ms that a "
    "task costs whatever its size, for each is worked out by itself",
    "T": "a round reads all Gram matrices once, from memory: linear, above a set-up that does not know T (every task's step "
    "size); a release has one round",
}


def one(m: int, n: int, d: int, T: int) -> dict[str, float]:
    """Measure CPU seconds and peak gigabytes of a release and of Algorithm 2, in this process."""
    from mpmtl_prob import datasets, release
    from mpmtl_prob.estimators import LowRank

    tasks = datasets.synthetic_low_rank(m, d, n, 1).train
    algorithm = LowRank(penalty=1.0, epsilon=1.0, rounds=T, clip=10.0, record=False)
    algorithm.fit(tasks)  # compiles
    measured: dict[str, float] = {}
    for name, run in (("release", lambda: release(tasks, 1.0)), ("Algorithm 2", lambda: algorithm.fit(tasks))):
        begin = time.process_time()
        run()
        measured[name] = time.process_time() - begin
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, kilobytes on Linux
    measured["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    measured["GB of rows"] = tasks.X.nbytes / 2**30
    return measured


def sweep(axis: str, sizes: list[int]) -> dict[str, Any]:
    """Measure all sizes of one axis, and fit exponents to them."""
    print(f"\n{axis}, {NAMES[axis]}; else {', '.join(f'{k} = {v}' for k, v in BASE.items() if k != axis)}; CPU seconds")
    lines = []
    for size in sizes:
        command = [sys.executable, __file__, "--one", json.dumps(BASE | {axis: size})]
        line = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        lines.append({"size": size} | line)
        print(
            f"  {axis} = {size:<7d} release {line['release']:7.2f}   Algorithm 2 {line['Algorithm 2']:7.2f}   "
            f"peak {line['peak GB']:.2f} GB",
            flush=True,
        )
    exponents = {name: exponent(sizes, [line[name] for line in lines]) for name in ("release", "Algorithm 2")}
    print("  exponents:", "; ".join(f"{name} {value:.2f}" for name, value in exponents.items()))
    print(f"  {BOUND[axis]}")
    return {"lines": lines, "exponents": exponents}


def exponent(sizes: list[int], work: list[float]) -> float:
    """Return b of the least-squares fit log work = a + b log size."""
    return float(np.polyfit(np.log(sizes), np.log(work), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, sizes in SIZES.items():
        parser.add_argument(f"--{axis}", type=int, nargs="*", default=sizes, help=f"{NAMES[axis]}; none skips them")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    record.option(parser)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(**options.one)))
        return
    sweeps = {axis: sweep(axis, sizes) for axis in SIZES if (sizes := getattr(options, axis))}
    record.write(options.json, {"base": BASE, "sweeps": sweeps})


if __name__ == "__main__":
    main()
