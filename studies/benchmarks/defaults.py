"""Does ``NoiseAware()`` with its defaults pass its own diagnosis, and what does it cost beside an earlier checkout?

    python studies/benchmarks/defaults.py [--before CHECKOUT] [--units FOLDER] [--json OUT]

A fit passes if neither the public posterior's ``diagnose()`` nor that of the owners advises anything. The panel is fixed:
the shapes of SHAPES and LARGE_SHAPES at several budgets, with made-up data whose rank, size, ragged rows and common mean
follow from the seed, and the tables of TABLES, which are not in the repository: they are looked for in the folder MPMTL_DATA
and in ../shared/data. The seed of a fit makes its data, its noise and its chains.

Every group of fits, those of a shape or a table, is a process of its own without a compilation cache, so that the first
fit of a shape pays for compiling. CPU seconds are those of ``fit``, of all threads. With ``--before``, every fourth group
(BEFORE) runs in that checkout too, right after. A finished group is a file in --units, and is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
EPSILONS: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0)
SEEDS = 2
#: features, tasks and rows of a task; two seeds at every eps
SHAPES = (
    (2, 12, 10), (2, 40, 4), (2, 100, 30), (2, 400, 10),
    (3, 12, 30), (3, 60, 10), (3, 150, 10), (3, 400, 100),
    (5, 12, 10), (5, 30, 20), (5, 139, 10), (5, 400, 4),
    (8, 12, 30), (8, 30, 10), (8, 100, 30), (8, 300, 10),
    (12, 12, 20), (12, 40, 30), (12, 120, 20), (10, 200, 10),
)  # fmt: skip
#: one seed at each of two eps
LARGE_SHAPES = ((20, 20, 30), (20, 139, 100), (30, 15, 20), (20, 60, 10), (30, 60, 30), (30, 400, 30))
LARGE_EPSILONS: tuple[float, ...] = (1.0, 10.0)
#: columns of task and target, then of features, made numbers where they are words
TABLES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "exam": ("school", "normexam", ("standLRT", "girl", "vrm", "vrb")),
    "radon": ("county", "log.radon", ("basement", "uranium")),
    "sleepstudy": ("Subject", "Reaction", ("Days", "Days_squared")),  # a direction takes two features
}
TABLE_SEEDS = 4
GROUPS: tuple[Any, ...] = (*SHAPES, *LARGE_SHAPES, *TABLES, "school")
#: Groups that an earlier checkout runs too.
BEFORE = GROUPS[3::4]

Group = tuple[int, int, int] | str


def fits(group: Group) -> list[tuple[float, int]]:
    """Return the eps and the seed of every fit of a group."""
    first = 1000 + 100 * GROUPS.index(group)
    if group in SHAPES:
        budgets, seeds = EPSILONS, SEEDS
    elif group in TABLES:
        budgets, seeds = EPSILONS, TABLE_SEEDS
    else:
        budgets, seeds = LARGE_EPSILONS, 1
    return [(epsilon, first + 10 * i + j) for i, epsilon in enumerate(budgets) for j in range(seeds)]


def made_up(shape: tuple[int, int, int], seed: int) -> tuple[Any, Any]:
    """Draw tasks of a shape, and return them with their weights (d, m)."""
    import mpmtl_prob as mp

    d, m, rows = shape
    rng = np.random.default_rng(seed)
    rank = min(int(rng.choice([1, 2, 5, d])), d, m)
    size, ragged, common = rng.choice([0.5, 2.0, 8.0, 32.0]), rng.random() < 0.5, rng.random() < 0.5
    directions = np.linalg.qr(rng.standard_normal((d, rank)))[0]
    W = directions @ rng.standard_normal((rank, m)) * np.sqrt(size / rank)
    if common:
        mean = rng.standard_normal((d, 1))
        W = (W + mean * np.sqrt(size) / np.linalg.norm(mean)) / np.sqrt(2)
    counts = np.clip(rng.geometric(1 / rows, m), 4, 4 * rows) if ragged else np.full(m, rows)
    X = [rng.standard_normal((n, d)) for n in counts]
    return mp.TaskData.from_lists(X, [x @ w + rng.standard_normal(len(x)) for x, w in zip(X, W.T, strict=True)]), W


def table(name: str) -> Any:
    """Return the tasks of a real table, with intercepts unless the columns add up to one."""
    import mpmtl_prob as mp

    if name == "school":  # as the papers have it: indicators that add up to one, and no intercept
        return mp.datasets.school()
    import pandas as pd

    folders = [Path(os.environ.get("MPMTL_DATA", "../shared/data")), HERE.parents[3] / "shared" / "data"]
    frame = pd.read_csv(next((f for x in folders if (f := x / f"{name}.csv").is_file()), folders[0] / f"{name}.csv"))
    if name == "exam":
        frame["girl"] = 1.0 * (frame["sex"] == "F")
        frame["vrm"], frame["vrb"] = (1.0 * (frame["intake"] == band) for band in ("mid 50%", "bottom 25%"))
    if name == "sleepstudy":
        frame["Days_squared"] = frame["Days"] ** 2
    task, target, features = TABLES[name]
    return mp.TaskData.from_pandas(frame, task=task, target=target, features=features, intercept=True)


def measure(group: Group) -> list[dict[str, Any]]:
    """Run every fit of a group, in this process and with the library that it imports."""
    import mpmtl_prob as mp

    warnings.simplefilter("ignore")  # of tasks with one row, which the radon table has
    return [measured(mp, group, epsilon, seed) for epsilon, seed in fits(group)]


def measured(mp: Any, group: Group, epsilon: float, seed: int) -> dict[str, Any]:
    """Run one fit, and return its diagnoses and its CPU seconds."""
    tasks, W = (table(group), None) if isinstance(group, str) else made_up(group, seed)
    begin = time.process_time()
    try:
        own = mp.NoiseAware(epsilon, seed=seed, unsafe_seed=seed, progress_bar=False).fit(tasks)
    except ValueError as refused:  # as 0.3.0 does where a task has one row beside an intercept
        return {"epsilon": epsilon, "seed": seed, "passed": False, "refused": str(refused), "seconds": 0.0}
    seconds = time.process_time() - begin
    public, owners = own.shared.diagnose(), own.diagnose()
    return {
        "epsilon": epsilon,
        "seed": seed,
        "passed": bool(public.sound and owners.sound),
        "advice": list(dict.fromkeys([*public.advice, *owners.advice])),
        "structure": own.shared.structure.name,
        "rounds": own.shared.release.rounds,
        "draws": public.draws,
        "divergences": public.divergences,
        "rhat": max(public.rhat.values()),
        "ess": min(public.ess.values()),
        "least": min(public.ess, key=public.ess.__getitem__),
        "error": None if W is None else float(np.sum((own.W - W) ** 2) / np.sum(W**2)),
        "seconds": seconds,
    }


def run(group: Group, checkout: Path) -> list[dict[str, Any]]:
    """Run a group in a process of its own with a checkout's library, without a compilation cache."""
    left_out = {"JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_X64"}
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    done = subprocess.run(
        [sys.executable, str(HERE), "--group", json.dumps(group)],
        env=environment | {"PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"group {group} in {checkout}:\n{done.stderr[-2000:]}")
    cells: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an earlier checkout of the repository")
    parser.add_argument("--units", type=Path, default=Path("out/benchmarks/defaults"), help="folder of finished groups")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file too")
    parser.add_argument("--group", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group is not None:
        group = tuple(options.group) if isinstance(options.group, list) else options.group
        print(json.dumps(measure(group)))
        return
    import record  # which imports the library of this checkout
    from speed import revision

    checkouts = {"now": HERE.parents[2]} | ({"before": options.before.resolve()} if options.before else {})
    options.units.mkdir(parents=True, exist_ok=True)
    groups: list[dict[str, Any]] = []
    for group in GROUPS:
        words = group if isinstance(group, str) else "-".join(map(str, group))
        entry: dict[str, Any] = {"group": group}
        for when, checkout in checkouts.items():
            if when == "before" and group not in BEFORE:
                continue
            path = options.units / f"{when}-{words}.json"
            if not path.is_file():
                path.write_text(json.dumps(run(group, checkout)))
            entry[when] = json.loads(path.read_text())
            passed = sum(each["passed"] for each in entry[when])
            cpu = sum(each["seconds"] for each in entry[when])
            print(f"{words:12s} {when:6s} {passed} of {len(entry[when])} passed, {cpu:.0f} CPU seconds", flush=True)
        groups.append(entry)
        before = revision(checkouts["before"]) if options.before else None
        record.write(options.json, {"before": before, "groups": groups})


if __name__ == "__main__":
    main()
