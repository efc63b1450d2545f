"""A panel for mixed models with privacy: simulated cells and real tables, and every arm's errors on them.

    python studies/benchmarks/panel.py [--fast] [--seeds N] [--before CHECKOUT] [--json OUT]
    python studies/benchmarks/panel.py --list
    python studies/benchmarks/panel.py --arms "average released" mixed --cells d3-m20-n30-mean.7-tau.2-eps3

The cells are the rows of random_effects/cells.csv, 20 seeds each; --fast has ten cells, three seeds and two splits of the
real tables. A task's data are replaced by any other at (eps, 1 / (m log m)). Finished units, one arm on one data set, are
files in --units and are not run again, so that a run can be interrupted at any time and goes on where it was. The arm
"0.3.0" is that version of the library, from a checkout of its commit: `git clone . CHECKOUT && git -C CHECKOUT checkout
c1158eb`; where none is given, what the folder has of it is shown. Real tables are looked for in --data, in MPMTL_DATA and in
../shared/data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import record
from random_effects import arms, cells, limits, real, units
from tqdm.auto import tqdm

from mpmtl_prob._util.files import write_text

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "c1158eb"  #: the commit of version 0.3.0
FAST_SPLITS, FAST_RELEASES = 2, 1
BOOTSTRAPS = 2000
BESIDE = (arms.BEFORE, "alone", "alone, evidence", "average released")  #: what the library must not be worse than


def planned(options: argparse.Namespace) -> list[units.Unit]:
    """Return the requested units, cheap arms first."""
    asked = []
    seeds = options.seeds or (cells.FAST_SEEDS if options.fast else cells.SEEDS)
    splits = options.splits or (FAST_SPLITS if options.fast else real.SPLITS)
    releases = options.releases or (FAST_RELEASES if options.fast else real.RELEASES)
    for arm in options.arms:
        for cell in chosen(options):
            asked += units.of_cell(cell, arm, version(arm), seeds)
        for name in options.tables if arm != arms.TOLD else ():
            for epsilon in real.EPSILONS:
                asked += units.of_table(name, arm, version(arm), epsilon, splits, releases)
    return list(dict.fromkeys(asked))


def chosen(options: argparse.Namespace) -> list[cells.Cell]:
    """Return the requested cells."""
    return [] if options.cells == ["none"] else cells.cells(options.fast, options.cells or ())


@cache
def version(arm: str) -> str:
    """Return the version of an arm's code; of the library as it is now, a hash of its files."""
    if arm != arms.NOW:
        return BEFORE if arm == arms.BEFORE else ""
    files = sorted((ROOT / "mpmtl_prob").rglob("*.py"))
    contents = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
    return hashlib.sha256(contents).hexdigest()[:8]


def run(missing: Sequence[units.Unit], folder: Path, before: Path | None, data: Path | None, bar: Any) -> None:
    """Run units and write each down as it is finished."""
    for group in units.side(missing):
        first = group[0]
        bar.set_postfix_str(f"{first.arm}, {first.problem}")
        if first.arm == arms.BEFORE:
            assert before is not None
            results = _elsewhere(group, before, data)
        elif first.arm == arms.NOW:
            results = _elsewhere(group, ROOT, data)
        else:
            results = (units.run(unit, data) for unit in group)
        for unit, result in zip(group, results, strict=True):
            file = units.path(folder, unit)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(result))
            bar.update()


def _elsewhere(group: Sequence[units.Unit], checkout: Path, data: Path | None) -> Iterator[dict[str, Any]]:
    """Yield results of a process whose library is that of a checkout.

    Raises:
        RuntimeError: the process failed; the message has its last words.
    """
    worker = Path(__file__).parent / "random_effects" / "worker.py"
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONWARNINGS": "ignore"}
    given = {
        "checkout": str(checkout),
        "data": None if data is None else str(data),
        "units": [asdict(unit) for unit in group],
    }
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [sys.executable, str(worker)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(given))
            process.stdin.close()
            for line in process.stdout:
                yield json.loads(line)
            if process.wait():
                said.seek(0)
                last = said.read().strip().splitlines()[-1:]
                raise RuntimeError(
                    f"{group[0].arm}, {group[0].problem}: expected results, but its process ended with {last}"
                )
        finally:
            process.kill()


def gone(before: Sequence[float], new: Sequence[float], ideal: Sequence[float]) -> dict[str, float]:
    """Return the share of one arm's distance to a mixed model that another closes, with a 90 % bootstrap interval.

    In cells the first is version 0.3.0, on real tables every task alone. Errors are averaged over seeds, or splits, which
    are drawn with replacement, the same for all three.
    """
    return _bootstrapped(lambda mean: (mean[0] - mean[1]) / (mean[0] - mean[2]), before, new, ideal)


def ratio(new: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """Return an arm's error over another's, with the same interval."""
    return _bootstrapped(lambda mean: mean[0] / mean[1], new, other)


def _bootstrapped(of_means: Callable[[np.ndarray], Any], *errors: Sequence[float]) -> dict[str, float]:
    every = np.array(errors)
    picked = np.random.default_rng(0).integers(every.shape[1], size=(BOOTSTRAPS, every.shape[1]))
    with np.errstate(all="ignore"):
        low, high = np.nanquantile(of_means(every[:, picked].mean(axis=2)), (0.05, 0.95))
        return {"value": float(of_means(every.mean(axis=1))), "low": float(low), "high": float(high)}


def report(done: dict[units.Unit, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Report the results so far, cell by cell and table by table."""
    rows = [_row(cell, done) for cell in chosen(options)]
    tables = [_on_table(name, epsilon, done, options.data) for name in options.tables for epsilon in real.EPSILONS]
    return {
        "before": BEFORE,
        "now": version(arms.NOW),
        "cells": [row for row in rows if row["errors"]],
        "tables": [row for row in tables if row["errors"]],
    }


def _row(cell: cells.Cell, done: dict[units.Unit, dict[str, Any]]) -> dict[str, Any]:
    """Report a cell over the seeds that all of its arms have finished."""
    every: dict[str, dict[int, dict[str, Any]]] = {}
    missing = {}
    for unit, result in done.items():
        if unit.problem == cell.name and "missing" in result:
            missing[unit.arm] = result["missing"]
        elif unit.problem == cell.name:
            every.setdefault(unit.arm, {})[unit.seed] = result
    common = sorted(set.intersection(*map(set, every.values()))) if every else []
    if not common:
        return {"errors": {}}
    of = {arm: [of_arm[seed] for seed in common] for arm, of_arm in every.items()}
    errors = {arm: [each["error"] for each in of_arm] for arm, of_arm in of.items()}
    row: dict[str, Any] = {"cell": asdict(cell), "seeds": len(common), "missing": missing}
    row["errors"] = {arm: _summary(of_arm) for arm, of_arm in of.items()}
    if arms.TOLD in of:
        row["noise of mu adds"] = float(np.mean([each["noise of mu adds"] for each in of[arms.TOLD]]))
        if "mixed" in of:
            row["linear"] = row["errors"]["mixed"]["mean"] + row["noise of mu adds"]
    if arms.BEFORE in of and "mixed" in of:
        private = [arm for arm in arms.PRIVATE if arm in of and arm != arms.BEFORE]
        row["shares"] = {arm: gone(errors[arms.BEFORE], errors[arm], errors["mixed"]) for arm in private}
    if arms.NOW in of:
        row["ratios"] = {arm: ratio(errors[arms.NOW], errors[arm]) for arm in BESIDE if arm in of}
    return row


def _summary(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise one arm in one cell over seeds."""
    out: dict[str, Any] = _mean([each["error"] for each in values])
    for name in ("error of mu", "mu covered", "tau covered", "sound"):
        if name in values[0]:
            out[name] = float(np.mean([each[name] for each in values]))
    if "covered" in values[0]:
        every = np.mean([each["covered"] for each in values], axis=0)
        out |= {
            "covered": float(every.mean()),
            "covered, least": float(every.min()),
            "covered, most": float(every.max()),
        }
    return out | {"seconds": float(np.mean([each["seconds"] for each in values]))}


def _on_table(name: str, epsilon: float, done: dict[units.Unit, dict[str, Any]], data: Path | None) -> dict[str, Any]:
    """Report a real table at a budget, over the splits that all of its arms have begun, with releases averaged."""
    every: dict[str, dict[int, list[float]]] = {}
    for unit, result in done.items():
        if unit.problem == name and unit.epsilon in (None, epsilon) and "missing" not in result:
            every.setdefault(unit.arm, {}).setdefault(unit.seed, []).append(result["error"])
    common = sorted(set.intersection(*map(set, every.values()))) if every else []
    if not common:
        return {"errors": {}}
    errors = {arm: [float(np.mean(splits[number])) for number in common] for arm, splits in every.items()}
    row: dict[str, Any] = {"table": name, "epsilon": epsilon, "splits": len(common)}
    row["errors"] = {arm: _mean(each) for arm, each in errors.items()}
    if "alone" in errors and "mixed" in errors:
        private = [arm for arm in arms.PRIVATE if arm in errors]
        row["gains"] = {arm: gone(errors["alone"], errors[arm], errors["mixed"]) for arm in private}
        added = [limits.added_on_table(real.split(name, number, epsilon, data)) for number in common]
        row["linear"] = row["errors"]["mixed"]["mean"] + float(np.mean(added))
    return row


def _mean(values: Sequence[float]) -> dict[str, Any]:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return {"mean": float(np.mean(values)), "standard error": float(error), "count": len(values)}


def show(numbers: dict[str, Any]) -> None:
    """Print the errors, a line for every cell and table."""
    for row in numbers["cells"]:
        errors = ", ".join(f"{arm} {each['mean']:.3f}" for arm, each in row["errors"].items())
        linear = f"; linear {row['linear']:.3f}" if "linear" in row else ""
        print(f"{row['cell']['name']}: {errors}{linear}")
    for row in numbers["tables"]:
        errors = ", ".join(f"{arm} {each['mean']:.3f}" for arm, each in row["errors"].items())
        print(f"{row['table']}, eps {row['epsilon']:g}: {errors}")


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command; a wrong one ends it with a message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="ten cells, three seeds, two splits")
    parser.add_argument("--list", action="store_true", help="print the names of cells, arms and tables, and stop")
    parser.add_argument("--arms", nargs="+", default=list(arms.ALL), metavar="ARM", help="only these")
    parser.add_argument("--seeds", type=int, metavar="N", help="of every cell; default 20, or 3 of --fast")
    parser.add_argument("--splits", type=int, metavar="N", help="of every real table; default 10, or 2 of --fast")
    parser.add_argument("--releases", type=int, metavar="N", help="of every split; default 5, or 1 of --fast")
    parser.add_argument("--cells", nargs="+", metavar="CELL", help="only these; none: real tables alone")
    parser.add_argument(
        "--tables", nargs="*", default=list(real.TABLES), metavar="TABLE", help="only these real tables"
    )
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help=f"of version 0.3.0, commit {BEFORE}")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of the real tables")
    parser.add_argument("--units", type=Path, default=Path("out/benchmarks/panel"), help="folder of finished units")
    record.option(parser)
    options = parser.parse_args(argv)
    for name, asked, known in (("--arms", options.arms, arms.ALL), ("--tables", options.tables, tuple(real.TABLES))):
        if unknown := [each for each in asked if each not in known]:
            parser.error(f"{name}: expected some of {', '.join(map(repr, known))}, got {', '.join(map(repr, unknown))}")
    for name in ("seeds", "splits", "releases"):
        if (number := getattr(options, name)) is not None and number < 1:
            parser.error(f"--{name}: expected a number of at least 1, got {number}")
    if options.before is not None:
        if not (options.before / "mpmtl_prob").is_dir():
            parser.error(
                f"--before: expected a checkout of commit {BEFORE}, got {options.before}, which has no mpmtl_prob"
            )
        options.before = options.before.resolve()
        head = subprocess.run(
            ["git", "-C", str(options.before), "rev-parse", "--short=7", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
        if head != BEFORE:
            parser.error(f"--before: expected commit {BEFORE}, got a checkout of {head or 'no commit'}")
    try:
        chosen(options)
        for name in options.tables:
            real.locate(real.TABLES[name].file, options.data)
    except (ValueError, FileNotFoundError) as error:
        parser.error(
            f"{error}; --tables without a name leaves the real tables out" if isinstance(error, OSError) else str(error)
        )
    return options


def main() -> None:
    options = parsed()
    if options.list:
        print(*(cell.name for cell in cells.cells()), *map(repr, arms.ALL), *map(repr, real.TABLES), sep="\n")
        return
    asked = planned(options)
    missing = [unit for unit in asked if not units.path(options.units, unit).is_file()]
    able = [unit for unit in missing if unit.arm != arms.BEFORE or options.before is not None]
    if len(able) < len(missing):
        print(f"{len(missing) - len(able)} units of version 0.3.0 are missing and need --before CHECKOUT")
    try:
        with tqdm(total=len(asked), initial=len(asked) - len(missing), desc="panel") as bar:
            run(able, options.units, options.before, options.data, bar)
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here", file=sys.stderr)
    finally:
        done = {unit: result for unit in asked if (result := units.read(options.units, unit)) is not None}
        numbers = report(done, options)
        show(numbers)
        record.write(options.json, numbers)


if __name__ == "__main__":
    main()
