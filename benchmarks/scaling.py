"""How the cost of a release and of Algorithm 2 grows with the number of tasks: each m in a process of its own.

python benchmarks/scaling.py [--tasks 1000 10000 100000]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

FEATURES, ROWS, ROUNDS = 64, 30, 20


def one(num_tasks: int) -> dict[str, float]:
    """Seconds, and gigabytes at the peak, of a release and of Algorithm 2, in this process."""
    from mpmtl_prob import datasets, release
    from mpmtl_prob.estimators import LowRank

    tasks = datasets.synthetic_low_rank(num_tasks, FEATURES, ROWS, 1).train
    algorithm = LowRank(penalty=1.0, epsilon=1.0, rounds=ROUNDS, clip=10.0, record=False)
    found = {"m": float(num_tasks)}
    for name, run in (("release", lambda: release(tasks, 1.0)), ("Algorithm 2", lambda: algorithm.fit(tasks))):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        found[name] = time.perf_counter() - wall
        found[f"{name}, cpu"] = time.process_time() - cpu
    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, kilobytes on Linux
    found["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return
    report(options.tasks)


def report(sizes: list[int]) -> None:
    """A line for each m, and the exponent between neighbours."""
    print(
        f"\nm tasks, d = {FEATURES}, n = {ROWS}: a release, and {ROUNDS} rounds of Algorithm 2 with compilation; seconds"
    )
    print(
        "(work: CPU seconds of all threads, which a busy machine does not lengthen; memory with the making of the data)"
    )
    lines = []
    for m in sizes:
        command = [sys.executable, __file__, "--one", str(m)]
        lines.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        line = lines[-1]
        total, work = (line[f"release{what}"] + line[f"Algorithm 2{what}"] for what in ("", ", cpu"))
        print(
            f"  m = {m:<7d} release {line['release']:7.2f}   Algorithm 2 {line['Algorithm 2']:7.2f}   "
            f"together {total:7.2f}   work {work:7.2f}   peak {line['peak GB']:.2f} GB",
            flush=True,
        )
    work = [line["release, cpu"] + line["Algorithm 2, cpu"] for line in lines]
    slopes = np.diff(np.log(work)) / np.diff(np.log(sizes))
    print("  exponent of the work in m, from each m to the next:", *(f"{slope:.2f}" for slope in slopes))


if __name__ == "__main__":
    main()
