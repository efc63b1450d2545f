"""A release of tasks on disk, read part by part: how its cost grows with the number of tasks.

    python studies/benchmarks/streamed.py [--m 1000 10000 100000] [--workers 2] [--json OUT]

Parquet files of n rows of d features a task are written first, which is not measured, to a folder that is deleted afterwards:
8 GB for a million. Every size is released in a process of its own with so many workers. Work is CPU seconds of all processes
after start-up, that is beyond what a release of one part takes; memory is the peak of the first process and of its largest
worker, times their number.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import record
from scaling import exponent

N, D, PART = 30, 32, 2_000
_UNIT = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, kilobytes on Linux


def write(folder: Path, m: int) -> float:
    """Write parts of m tasks, similar in groups; return gigabytes on disk."""
    import pyarrow as pa
    from pyarrow import parquet

    common = np.random.default_rng(0).standard_normal((D, 8))
    for first in range(0, m, PART):
        rng, k = np.random.default_rng([1, first]), min(PART, m - first)
        w = common @ rng.standard_normal((8, k)) + 0.5 * rng.standard_normal((D, k))
        X = rng.standard_normal((k, N, D))
        y = np.einsum("tnj,jt->tn", X, w) + 3 * rng.standard_normal((k, N))
        columns = {f"x{j}": X[..., j].ravel() for j in range(D)}
        table = pa.table(columns | {"task": np.repeat(np.arange(first, first + k), N), "y": y.ravel()})
        parquet.write_table(table, folder / f"{first:09d}.parquet", compression="none", use_dictionary=["task"])
    return sum(path.stat().st_size for path in folder.iterdir()) / 2**30


def one(folder: str, workers: int) -> dict[str, float]:
    """Measure seconds of the clock and of the processors, and peak gigabytes, of a release in this process."""
    import mpmtl_prob as mp

    begin, opened = time.perf_counter(), _cpu()
    shards = mp.TaskShards.from_parquet(folder, task="task", target="y", workers=workers, progress_bar=False)
    opened = _cpu() - opened
    start = _cpu()
    release = mp.release(shards, 1.0)
    assert release.num_tasks == shards.num_tasks
    peak = [resource.getrusage(who).ru_maxrss / _UNIT for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": time.perf_counter() - begin,
        "CPU of opening": opened,
        "CPU": _cpu() - start,
        "peak GB": peak[0] + (workers * peak[1] if workers > 1 else 0.0),
    }


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(m: int, workers: int, scratch: str | None) -> dict[str, float]:
    """Measure one size in a process of its own."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    try:
        size = write(folder, m)
        command = [sys.executable, __file__, "--one", str(folder), "--workers", str(workers)]
        of_process = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        shutil.rmtree(folder)
    return {"size": m, "GB of files": size} | of_process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="tasks, at least two sizes")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--scratch", help="where files are written; default the system's folder for such")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    record.option(parser)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.workers)))
        return
    start = min(measured(2, options.workers, options.scratch)["CPU"] for _ in range(3))
    lines, grows = [], float("nan")
    for m in options.m:
        lines.append(measured(m, options.workers, options.scratch))
        lines[-1]["work"] = lines[-1]["CPU"] - start
        words = (f"{key} {value:.2f}" for key, value in lines[-1].items() if key != "size")
        print(f"  m = {m:<8d}", ", ".join(words), flush=True)
        telling = [line for line in lines if line["work"] > start]  # of others work is what start-up varies by
        if len(telling) > 1:  # the largest size takes long: what is known by then is kept
            grows = exponent([int(line["size"]) for line in telling], [line["work"] for line in telling])
            sizes = {"n": N, "d": D, "part": PART, "workers": options.workers}
            record.write(options.json, {"sizes": sizes, "start": start, "lines": lines, "exponent": grows})
    print(f"  exponent {grows:.2f}; start-up {start:.1f} CPU seconds")


if __name__ == "__main__":
    main()
