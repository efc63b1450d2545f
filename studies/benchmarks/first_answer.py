"""Time that a hospital waits for its coefficients: from its CSV file to the table, in a new process.

    python studies/benchmarks/first_answer.py [--before CHECKOUT] [--repeats 3] [--json OUT]

One hospital of 100 patients that was not in the release, 30 others in it, 11 columns and an intercept, eps = 3: the command
`mpmtl-prob fit --study ... --newcomer`, with JAX's compilation cache empty and full, with NUTS too, and in an earlier
checkout, in turns. The clock starts before Python does and stops when the table is printed. CPU seconds are those of all
threads by then, and by the end, with the picture. What they go to: modules that are imported (`-X importtime`, in a run of
its own), Python tracing the model and lowering it, XLA compiling or reading its cache (as JAX reports both), and the rest.
Every checkout reads a release that it made itself, and has been run before, so that its bytecode is there, as in an
installed package. Numbers are medians of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve()
HOSPITALS, PATIENTS, COLUMNS = 30, 100, 11
TABLE = "Average effects over"  #: what is printed right after the table of coefficients
_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "tracing",
    "/jax/core/compile/backend_compile_duration": "compilation",
}


def case(folder: Path) -> None:
    """Write a study, a release of it and one newcomer's rows, with this checkout."""
    import numpy as np
    import pandas as pd

    from mpmtl_prob import desk
    from mpmtl_prob.schema import Schema

    hospitals, columns = [f"H{i:02d}" for i in range(HOSPITALS)], [f"x{j}" for j in range(COLUMNS)]
    numbers = 'kind = "number"\nunit = "units"\ncentre = {}\nscale = {}\nmissing = "drop"\n'
    parts = [
        f'[study]\ntitle = "Stays"\ntask = "hospital"\nrow = "patient"\nparticipants = {json.dumps(hospitals)}\n',
        '[target]\ncolumn = "stay"\n' + numbers.format(7, 5),
        *(f"[columns.{column}]\n" + numbers.format(60, 15) for column in columns),
        "[release]\nepsilon = 3\ndelta = 0.01\n",
    ]
    (folder / "study.toml").write_text("\n".join(parts))

    def patients(number: int) -> Any:
        rng = np.random.default_rng([0, number])
        frame = pd.DataFrame(rng.normal(60, 15, (PATIENTS, COLUMNS)).round(), columns=columns)
        effects = np.linspace(-0.1, 0.15, COLUMNS) + rng.normal(0, 0.05, COLUMNS)
        stay = 7 + rng.normal(0, 0.7) + (frame.to_numpy() - 60) @ effects + rng.normal(0, 3, PATIENTS)
        return frame.assign(stay=stay.round(1), hospital=f"H{number:02d}")

    study, inbox = Schema.read(folder / "study.toml"), folder / "inbox"
    inbox.mkdir()
    for number in range(HOSPITALS):
        desk.make_message(study, patients(number).astype(str)).save(inbox / f"{number}.json")
    desk.publish(desk.collect(study, inbox)).save(folder / "release.nc")
    patients(HOSPITALS).to_csv(folder / "mine.csv", index=False)


def measure(folder: Path, more: list[str]) -> dict[str, float]:
    """Run the command in this process, whose environment says when it was started."""
    measured = dict.fromkeys(_EVENTS.values(), 0.0)
    began = float(os.environ["BEGAN"])

    class Printed:
        """Stream that notes when the table is printed, and discards the text."""

        def write(self, text: str) -> int:
            if text.startswith(("\n" + TABLE, TABLE)) and "seconds" not in measured:
                measured.update({"seconds": time.time() - began, "CPU seconds": time.process_time()})
                print(TABLE, file=sys.stderr)  # modules that are imported later are not counted
            return len(text)

        def flush(self) -> None:
            pass

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event in _EVENTS:
            measured[_EVENTS[event]] += duration_secs

    def register() -> None:
        import jax.monitoring

        jax.monitoring.register_event_duration_secs_listener(listen)

    from mpmtl_prob.cli import main

    try:  # the command imports JAX where it needs it
        from mpmtl_prob._util.jax_later import once_jax_is_imported
    except ImportError:  # in earlier versions always
        register()
    else:
        once_jax_is_imported(register)

    out, sys.stdout = sys.stdout, Printed()
    status = main([
        "fit", "--study", str(folder / "study.toml"), "--csv", str(folder / "mine.csv"), "--newcomer", "--quiet",
        "--release", str(folder / "release.nc"), "--out", str(folder / f"out {time.time_ns()}"), *more,
    ])  # fmt: skip
    sys.stdout = out
    assert status == 0
    return measured | {"seconds to the end": time.time() - began, "CPU seconds to the end": time.process_time()}


def in_process(checkout: Path, words: list[str], *, cache: Path | None = None, python: tuple[str, ...] = ()) -> Any:
    """Run this file in a new process that imports a checkout; return its output and errors."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTHONDONTWRITEBYTECODE"))}
    environment |= {"PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1", "BEGAN": repr(time.time())}
    if cache is not None:
        environment |= {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
    command = [sys.executable, *python, str(HERE), *words]
    return subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=True)


def imports(checkout: Path, folder: Path, more: list[str]) -> float:
    """Return the seconds that importing modules takes until the table is printed."""
    said = in_process(checkout, ["--cell", str(folder), *more], python=("-X", "importtime")).stderr.split(TABLE)[0]
    return sum(int(own) for own in re.findall(r"^import time:\s+(\d+) \|", said, re.MULTILINE)) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an earlier checkout of the repository")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file too")
    options, more = parser.parse_known_args()
    if options.case:
        case(options.case)
        return
    if options.cell:
        print(json.dumps(measure(options.cell, more)))
        return
    import record
    from speed import revision

    now, before = HERE.parents[2], options.before.resolve() if options.before else None
    arms: dict[str, tuple[Path, list[str]]] = {"before": (before, [])} if before else {}
    arms |= {"now, NUTS": (now, ["--sampler", "nuts"]), "now": (now, [])}
    runs: dict[str, dict[str, list[dict[str, float]]]] = {"cold": {}, "cached": {}}
    with TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in arms}
        for name, (checkout, extra) in arms.items():
            folders[name].mkdir()
            in_process(checkout, ["--case", str(folders[name])])
            in_process(checkout, ["--cell", str(folders[name]), *extra], cache=folders[name] / "cache")
        for _ in range(options.repeats):
            for name, (checkout, extra) in arms.items():
                folder, took = folders[name], imports(checkout, folders[name], extra)
                for when, cache in (("cold", None), ("cached", folder / "cache")):
                    said = in_process(checkout, ["--cell", str(folder), *extra], cache=cache).stdout
                    runs[when].setdefault(name, []).append(json.loads(said.splitlines()[-1]) | {"imports": took})
    cells = {
        when: {name: {k: median(run[k] for run in each) for k in each[0]} for name, each in of.items()}
        for when, of in runs.items()
    }
    for when, of in cells.items():
        for name, measured in of.items():
            print(f"{when}, {name}: " + ", ".join(f"{k} {v:.2f}" for k, v in measured.items()), flush=True)
    sizes = {"hospitals": HOSPITALS, "patients": PATIENTS, "columns": COLUMNS, "repeats": options.repeats}
    record.write(options.json, {"before": before and revision(before), "sizes": sizes, "cells": cells})


if __name__ == "__main__":
    main()
