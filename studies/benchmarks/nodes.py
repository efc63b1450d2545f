"""A table in shards over several nodes of the Flower app on this machine: seconds and memory by their number.

    python studies/benchmarks/nodes.py [--m 1000000] [--nodes 1 2 4] [--json OUT]

Parquet files as in studies/benchmarks/streamed.py are written first, which is not measured, to a folder that is deleted
afterwards. Then a link and its nodes are started, each a process as it would be on a machine of its own, and the app
runs once for every number of nodes: with a curator, where one does what another has lost, and with most nodes once more
as a secure sum. The same release is made on one machine, by one process, and every run has to give it bit for bit, by
the same seed of the noise.

Memory is the largest that a node's processes together had resident, looked at ten times a second, pages that several of
them share counted for each. Seconds are from the first message to the release; nodes share the cores of this machine.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import record
from streamed import PART, D, N, write

import mpmtl_prob as mp
from mpmtl_prob.federated.flower.sites import Sites

SEED = 3


def central(folder: Path) -> tuple[Any, float]:
    """Return the release of one process, and its seconds."""
    begin = time.perf_counter()
    shards = mp.TaskShards.from_parquet(folder, task="task", target="y", progress_bar=False)
    return mp.release(shards, 1.0, unsafe_seed=SEED), time.perf_counter() - begin


def measured(rows: Path, m: int, nodes: int, trust: str, scratch: Path, timeout: float) -> dict[str, Any]:
    """Measure one run."""
    shared = trust == "curator"
    own = [
        {"data": str(rows), "task": "task", "target": "y", "trust": trust}
        | ({} if shared else {"part": i, "parts": nodes})
        for i in range(nodes)
    ]
    config: dict[str, str | int | float | bool] = {
        "trust": trust, "shards": shared, "num-tasks": m, "features": ",".join(f"x{j}" for j in range(D)), "dropouts": 0,
        "unsafe-seed": SEED, "timeout": timeout,
    }  # fmt: skip
    with Sites(scratch, own, tls=False) as sites, Memory(sites) as memory:
        outcome = sites.run(config)
    release = mp.Release.load(scratch / "out" / "release.nc")
    return {
        "nodes": nodes,
        "trust": trust,
        "seconds": outcome["seconds"],
        "GB a node": memory.largest / 2**30,
        "kB moved": sum(outcome["moved"].values()) / 1000,
        "release": release,
    }


class Memory:
    """The largest sum of what one node's processes had resident, in bytes, for as long as a ``with`` lasts."""

    def __init__(self, sites: Sites) -> None:
        self._groups = {p.pid for name, p in sites.processes.items() if name != "link"}
        self._over, self.largest = threading.Event(), 0

    def __enter__(self) -> Memory:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            held = dict.fromkeys(self._groups, 0)
            for path in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = path.read_text().rpartition(")")[2].split()
                except OSError:  # it has ended
                    continue
                if (session := int(fields[3])) in held:
                    held[session] += int(fields[21]) * 4096
            self.largest = max(self.largest, *held.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=int, default=1_000_000, help="tasks")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds of a stage")
    parser.add_argument("--remark", default="", help="for the page, as of other work on the machine")
    parser.add_argument("--scratch", help="where files are written; default the system's folder for such")
    record.option(parser)
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(dir=options.scratch))
    try:
        (rows := scratch / "rows").mkdir()
        size = write(rows, options.m)
        release, seconds = central(rows)
        print(f"one process: {seconds:.1f} s", flush=True)
        lines: list[dict[str, Any]] = []
        for nodes, trust in [*((k, "curator") for k in options.nodes), (max(options.nodes), "secure_sum")]:
            line = measured(rows, options.m, nodes, trust, scratch / f"{trust}-{nodes}", options.timeout)
            line["same release"] = bool(np.array_equal(line.pop("release").sigma, release.sigma))
            lines.append(line)
            print(line, flush=True)
            sizes = {"m": options.m, "n": N, "d": D, "part": PART, "GB of files": size}
            report = {"sizes": sizes, "one process": seconds, "lines": lines, "remark": options.remark}
            record.write(options.json, report, "flwr")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
