"""Memory of every way in, where one task has many more rows than the others.

    python studies/benchmarks/memory.py [--before CHECKOUT] [--m 1000 10000] [--cells NAME ...] [--fast] [--json OUT]

m tasks of 20 rows and 10 features, of which one has 1, 100 or 1000 times as many. Every cell is a process of its own, whose
peak is what it ever held in memory. What the same call takes on 200 tasks of 20 rows, most of it libraries and compiled
programs, is subtracted, and the rest is told in units of the data: eight bytes for every feature and target of every row. A
process may take 7 GiB; what needs more ends there, and is "more than 7 GiB". `--before` measures an earlier checkout
beside this one, in turns. Have JAX_COMPILATION_CACHE_DIR name a folder: what the compiler takes is then left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

D, ROWS, LONGER = 10, 20, (1, 100, 1000)
LIMIT = 7 * 2**30
ALLOWED = 4.0  #: times the data
_MOMENT: dict[str, Any] = {"chains": 2, "warmup": 100, "draws": 50, "progress_bar": False}
_NO_ROOM = ("MemoryError", "Unable to allocate", "out of memory", "Out of memory", "bad_alloc", "RESOURCE_EXHAUSTED")


def frame(m: int, longer: int, labels: bool = False) -> Any:
    """Return the rows of all tasks as one long table."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    counts = np.full(m, ROWS)
    counts[m // 2] *= longer
    w = rng.standard_normal((3, m)).T @ rng.standard_normal((3, D))
    X, ends = rng.standard_normal((counts.sum(), D)), counts.cumsum()
    target = rng.standard_normal(len(X))
    for i, end in enumerate(ends):  # a task at a time: what makes the table should not be what is measured
        target[end - counts[i] : end] += X[end - counts[i] : end] @ w[i]
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)], copy=False)
    table["task"], table["y"] = np.repeat(np.arange(m), counts), np.where(target > 0, 1.0, -1.0) if labels else target
    return table


def tasks(m: int, longer: int, **options: Any) -> Any:
    """Return the table as tasks."""
    import mpmtl_prob as mp

    labels = options.pop("labels", False)
    return mp.TaskData.from_pandas(frame(m, longer, labels), task="task", target="y", **options)


def from_csv(m: int, longer: int) -> None:
    try:
        from mpmtl_prob.cli import tasks as command

        given, read = command.data_options, command.read_tasks
    except ImportError:  # version 0.3.0
        from mpmtl_prob import cli as earlier

        given, read = earlier._data_options, earlier._tasks  # type: ignore[attr-defined]
    parser = argparse.ArgumentParser()
    given(parser)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        written(path, m, longer)
        features = [f"x{j}" for j in range(D)]
        words = ["--csv", str(path), "--task", "task", "--target", "y", "--features", *features]
        assert read(parser.parse_args(words)).num_tasks == m


def from_parquet(m: int, longer: int) -> None:
    import mpmtl_prob as mp

    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder) / "rows.parquet", m, longer)
        (part,) = mp.TaskShards.from_parquet(folder, task="task", target="y", progress_bar=False)
        assert part.num_tasks == m


def written(path: Path, m: int, longer: int) -> None:
    """Write the table, in another process, whose memory is not counted."""
    name = {".csv": "to_csv", ".parquet": "to_parquet"}[path.suffix]
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import memory; "
    code += f"memory.frame({m}, {longer}).{name}({str(path)!r}, index=False)"
    subprocess.run([sys.executable, "-c", code], check=True)


def fitted(name: str, labels: bool = False, **options: Any) -> Callable[[int, int], None]:
    def fit(m: int, longer: int) -> None:
        from mpmtl_prob import estimators

        data = tasks(m, longer, labels=labels)
        settings = {k: v() if callable(v) else v for k, v in options.items()}
        getattr(estimators, name)(**settings).fit(data).predict(data)

    return fit


def logistic() -> Any:
    from mpmtl_prob.estimators import Logistic

    return Logistic()


def trace_norm() -> Any:
    from mpmtl_prob.estimators import TraceNorm

    return TraceNorm()


def released(m: int, longer: int, **options: Any) -> tuple[Any, Any]:
    import mpmtl_prob as mp

    data = tasks(m, longer, **options)
    return data, mp.release(data, epsilon=1.0)


def release(m: int, longer: int) -> None:
    released(m, longer)


def intercept(m: int, longer: int) -> None:
    released(m, longer, intercept=True)


def owners(kind: str = "gaussian", **options: Any) -> Callable[[int, int], Any]:
    def posteriors(m: int, longer: int) -> Any:
        import mpmtl_prob as mp

        data, out = released(m, longer, labels=kind == "bernoulli", **options)
        shared = mp.inference.shared_covariance(out, **_MOMENT)
        return data, mp.inference.task_posteriors(data, shared, likelihood=kind, chains=1, draws=50, progress_bar=False)

    return posteriors


def effects(kind: str = "gaussian") -> Callable[[int, int], Any]:
    """Fit a mixed model, with messages of effects in public units."""

    def posteriors(m: int, longer: int) -> Any:
        import mpmtl_prob as mp

        data = tasks(m, longer, intercept=True)
        reference = mp.Reference.standard([f"x{j}" for j in range(D)])
        shared = mp.inference.shared_effects(mp.release(data, epsilon=1.0, reference=reference), **_MOMENT)
        return data, mp.inference.task_posteriors(data, shared, likelihood=kind, chains=1, draws=50, progress_bar=False)

    return posteriors


def noise_aware(m: int, longer: int) -> Any:
    import mpmtl_prob as mp

    data = tasks(m, longer)
    return data, mp.NoiseAware(epsilon=1.0, **_MOMENT).fit(data)


def scikit(m: int, longer: int) -> None:
    from mpmtl_prob.scikit import MultiTaskRegressor

    table = frame(m, longer)
    X, y = table.drop(columns="y").to_numpy(), table["y"].to_numpy()
    del table
    MultiTaskRegressor(task=D).fit(X, y).predict(X)


def curator(m: int, longer: int) -> Any:
    import mpmtl_prob as mp

    data = tasks(m, longer)
    return data, mp.inference.fit(mp.models.low_rank, data, chains=1, warmup=5, draws=10, progress_bar=False)


def predicted(posteriors: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    def predict(m: int, longer: int) -> Any:
        data, fit = posteriors(m, longer)
        table = fit.predict(data).to_pandas()
        assert len(table) == data.num_rows
        return data, fit

    return predict


def saved(posteriors: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    def save_and_load(m: int, longer: int) -> Any:
        data, own = posteriors(m, longer)
        with tempfile.TemporaryDirectory() as folder:
            own.save(Path(folder) / "own.nc")
            load, own = type(own).load, None
            gc.collect()  # what is read is a result of its own, not beside the one that was written
            own = load(Path(folder) / "own.nc")
        return data, own

    return save_and_load


def compared(m: int, longer: int) -> None:
    import mpmtl_prob as mp

    train, test = tasks(m, longer).split(0.5, seed=0)
    mp.evaluation.compare({"ridge": mp.estimators.Ridge().fit(train)}, test)


def validated(m: int, longer: int) -> None:
    import mpmtl_prob as mp
    from mpmtl_prob.evaluation import cross_validate

    cross_validate(
        [mp.estimators.Ridge(penalty) for penalty in (0.1, 1.0)], tasks(m, longer), folds=5, progress_bar=False
    )


def federated(m: int, longer: int) -> None:
    from mpmtl_prob import federated

    invitation = federated.invite(1.0, num_tasks=m, features=D, sites=4, trust="secure_sum", dropouts=1)
    data = tasks(m, longer)
    of_sites = [data.take(range(i, m, 4)) if hasattr(data, "take") else _some(data, range(i, m, 4)) for i in range(4)]
    federated.run(invitation, [federated.Site(i, own) for i, own in enumerate(of_sites)], progress_bar=False)


def _some(data: Any, places: range) -> Any:
    """Take some of the tasks in version 0.3.0, which has no method for it."""
    rows = [data.own(i) for i in places]
    names = [data.tasks[i] for i in places]
    return type(data).from_lists([X for X, _ in rows], [y for _, y in rows], tasks=names)


def filed(m: int, d: int) -> float:
    """Return the bytes of a file of owners' posteriors of m tasks with d features, which has the public posterior too."""
    import mpmtl_prob as mp

    made = mp.datasets.synthetic_low_rank(num_tasks=m, num_features=d, rows=ROWS)
    shared = mp.inference.shared_covariance(mp.release(made.train, epsilon=1.0), progress_bar=False)
    own = mp.inference.task_posteriors(made.train, shared, progress_bar=False)
    with tempfile.TemporaryDirectory() as folder:
        own.save(path := Path(folder) / "own.nc")
        return float(path.stat().st_size)


#: Of which sizes are told: tasks and features.
FILES = {"owners, 320 tasks of 30 features": (320, 30), "owners, 10 000 tasks of 5 features": (10_000, 5)}

CELLS: dict[str, Callable[[int, int], Any]] = {
    "data frame": tasks,
    "CSV file": from_csv,
    "parquet file": from_parquet,
    "release": release,
    "release, with intercepts": intercept,
    "Ridge": fitted("Ridge"),
    "RidgeLogistic(0.3)": fitted("RidgeLogistic", True, penalty=0.3),
    "RidgeLogistic()": fitted("RidgeLogistic", True),
    "Lasso": fitted("Lasso", penalty=1.0),
    "MultiTask, trace norm": fitted("MultiTask", norm=trace_norm, penalty=1.0, max_iterations=50),
    "LowRank": fitted("LowRank", penalty=0.5, clip=1.0, rounds=3),
    "LowRank, logistic": fitted("LowRank", True, penalty=0.5, clip=1.0, rounds=3, loss=logistic, start="zero"),
    "LowRankSparse": fitted("LowRankSparse", penalty=(0.5, 0.5), clip=1.0, rounds=3),
    "GroupSparse": fitted("GroupSparse", penalty=0.5, clip=1.0, rounds=3),
    "DPAggr": fitted("DPAggr", penalty=1.0),
    "DPMTRL": fitted("DPMTRL", ridge=0.1, relation=0.1),
    "owners' posteriors": owners(),
    "owners' posteriors, with intercepts": owners(intercept=True),
    "owners' posteriors, labels": owners("bernoulli"),
    "owners' posteriors, Student": owners("student_t"),
    "and their predictions": predicted(owners()),
    "and of labels": predicted(owners("bernoulli")),
    "and their file": saved(owners()),
    "owners' effects": effects(),
    "owners' effects, Student": effects("student_t"),
    "and effects' predictions": predicted(effects()),
    "and effects' file": saved(effects()),
    "NoiseAware": noise_aware,
    "and NoiseAware's predictions": predicted(noise_aware),
    "scikit-learn's wrapper": scikit,
    "curator's posterior": curator,
    "and its predictions": predicted(curator),
    "compare": compared,
    "cross_validate": validated,
    "federated.run": federated,
}
QUICK = ("data frame", "release", "Ridge", "compare")
TRACED = ("data frame", "CSV file", "parquet file")  #: which leave nothing to JAX


def one(name: str, m: int, longer: int) -> dict[str, float]:
    """Measure a cell in this process: CPU seconds, bytes at its peak, and bytes of the posterior that it returns, if any."""
    import mpmtl_prob  # noqa: F401 - is not what is timed

    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    begin = time.process_time()  # which a busy machine does not lengthen
    result = CELLS[name](m, longer)
    told = {"seconds": time.process_time() - begin, "peak": peak()}
    if isinstance(result, tuple):
        told["result"] = size(result[1])
    return told


def traced(name: str, m: int, longer: int) -> float:
    """Return the peak bytes that Python and NumPy allocate in a second call of a cell, without libraries' own memory."""
    CELLS[name](50, 1)
    tracemalloc.start()
    CELLS[name](m, longer)
    return float(tracemalloc.get_traced_memory()[1])


def size(posterior: Any) -> float:
    """Return the bytes of a posterior's arrays, without groups with a number per row, which are made on request."""
    if posterior.seat == "curator":
        return float(
            sum(array.nbytes for arrays in (posterior.draws, posterior.statistics) for array in arrays.values())
        )
    # an argument that version 0.3.0, which is measured too, does not know, and which has no such groups
    pointwise = {"pointwise": False} if "pointwise" in signature(posterior.to_arviz).parameters else {}
    tree = posterior.to_arviz(**pointwise)
    return float(sum(group.to_dataset().nbytes for group in tree.subtree))


def peak() -> float:
    """Return the peak bytes of this process; on Linux without its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024.0 * int(
            next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1]
        )
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def measured(checkout: Path, name: str, m: int, longer: int) -> dict[str, float] | None:
    """Measure a cell in a process of its own that imports a checkout; None if it needs more memory than is allowed.

    Again where it compiled something, which JAX then finds in its folder: the compiler takes tens of megabytes, whatever the
    data are.
    """
    while True:
        known = _compiled()
        done = _asked(checkout, "--one", name, str(m), str(longer))
        if done.returncode:
            if any(word in done.stderr for word in _NO_ROOM):
                return None
            raise RuntimeError(f"{name}, m = {m}: {done.stderr[-2000:]}")
        if _compiled() == known:
            line: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
            return line


def _compiled() -> set[str]:
    """Return the names of programs in JAX's compilation cache."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return {path.name for path in Path(folder).glob("*-cache")} if folder else set()


def _asked(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this file in a process of its own that imports a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "JAX_ENABLE_X64": "0", "PYTHONDONTWRITEBYTECODE": ""}
    environment |= {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, __file__, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an earlier checkout of the repository")
    parser.add_argument("--m", type=int, nargs="+", default=[1_000, 10_000], help="tasks")
    parser.add_argument(
        "--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="CELL", help="not all of them"
    )
    parser.add_argument("--fast", action="store_true", help="a few cells of 1000 tasks: a minute")
    parser.add_argument(
        "--longer", type=int, nargs="+", default=list(LONGER), help="how many times as long one task is"
    )
    parser.add_argument("--files", action="store_true", help="sizes of files too: minutes")
    parser.add_argument(
        "--traced", action="store_true", help="what Python and NumPy allocate themselves, too: a minute"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--trace", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--file", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file too")
    options = parser.parse_args()
    if options.one:
        name, m, longer = options.one
        print(json.dumps(one(name, int(m), int(longer))))
        return
    if options.trace:
        name, m, longer = options.trace
        print(traced(name, int(m), int(longer)))
        return
    if options.file:
        print(filed(*options.file))
        return
    import record

    here = Path(__file__).resolve().parents[2]
    checkouts = {"now": here} | ({"before": options.before.resolve()} if options.before else {})
    report = json.loads(options.json.read_text()) if options.json and options.json.is_file() else {}
    cells, files, allocated = (report.get(each, {}) for each in ("cells", "files", "allocated"))
    numbers: dict[str, Any] = {"rows": ROWS, "features": D, "limit": LIMIT, "allowed": ALLOWED}
    numbers["before"] = _revision(options.before) if options.before else report.get("before")
    if report:  # put together of several runs
        numbers["command"] = "python studies/benchmarks/memory.py --before CHECKOUT"

    def write() -> None:
        ordered = {each: cells[each] for each in CELLS if each in cells}
        record.write(options.json, numbers | {"cells": ordered, "files": files, "allocated": allocated})

    sizes = [(m, longer) for m in ([1_000] if options.fast else options.m) for longer in options.longer]
    for name in QUICK if options.fast else options.cells:
        for when, checkout in checkouts.items():
            _least(cells.setdefault(name, {}), when, measured(checkout, name, 200, 1))
        for size in sizes:
            for when, checkout in checkouts.items():  # in turns: a machine is not as quiet from hour to hour
                _line(cells[name][when], name, when, size, measured(checkout, name, *size))
            if options.before:
                _compare(cells[name], size)
            write()
    if options.traced:
        for name in TRACED:
            for m, longer in sizes:
                traces = _asked(here, "--trace", name, str(m), str(longer))
                allocated.setdefault(name, {})[f"{m}, 1 : {longer}"] = float(traces.stdout) / _data(m, longer)
            print(f"  {name}: {allocated[name]}", flush=True)
            write()
    if options.files:
        for name, size in FILES.items():
            sizes_of = {when: _asked(checkout, "--file", *map(str, size)) for when, checkout in checkouts.items()}
            files[name] = {when: float(each.stdout.splitlines()[-1]) for when, each in sizes_of.items()}
            print(f"  {name}: {files[name]}", flush=True)
            write()


def _least(cell: dict[str, Any], when: str, least: dict[str, float] | None) -> None:
    """Record what a call takes on few tasks."""
    cell[when] = {"least": least, "lines": cell.get(when, {"lines": []})["lines"]}


def _line(cell: dict[str, Any], name: str, when: str, size: tuple[int, int], measured: dict[str, float] | None) -> None:
    """Record what a call takes on a size, instead of an earlier record of the size."""
    m, longer = size
    data, least = _data(m, longer), cell["least"]
    line: dict[str, Any] = {"m": m, "longer": longer, "data": data, "found": measured}
    if measured and least:
        line["times the data"] = (measured["peak"] - least["peak"]) / data
        if "result" in measured:
            line["of which the result"] = measured["result"] / data
    print(f"  {name:36s} {when:6s} m = {m:<6d} 1 : {longer:<5d}", _words(line), flush=True)
    others = [each for each in cell["lines"] if (each["m"], each["longer"]) != size]
    cell["lines"] = sorted([*others, line], key=lambda each: (each["m"], each["longer"]))


def _compare(cell: dict[str, Any], size: tuple[int, int]) -> None:
    """Record the ratio of seconds, now over before, of this run; another run may have had another machine."""
    lines = (line for when in ("now", "before") for line in cell[when]["lines"] if (line["m"], line["longer"]) == size)
    now, before = (line["found"] for line in lines)
    if now and before:
        cell.setdefault("seconds, now over before", {})[f"{size[0]}, 1 : {size[1]}"] = (
            now["seconds"] / before["seconds"]
        )


def _data(m: int, longer: int) -> float:
    """Return the bytes of m tasks of which one is longer."""
    return 8.0 * (D + 1) * ROWS * (m - 1 + longer)


def _words(line: dict[str, Any]) -> str:
    measured = line["found"]
    if measured is None:
        return f"more than {LIMIT / 2**30:.0f} GiB"
    times = line.get("times the data", float("nan"))
    result = f", {line['of which the result']:.1f} of them the result" if "of which the result" in line else ""
    return f"{measured['peak'] / 2**30:.2f} GiB, {times:.1f} times the data{result}, {measured['seconds']:.1f} s"


def _revision(checkout: Path | None) -> str | None:
    if checkout is None:
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
