"""Command ``mpmtl-prob reproduce``: the papers' experiments."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

#: Keys of studies.papers.EXPERIMENTS, repeated here so that --help does not import JAX.
EXPERIMENTS = (
    *(f"fig{k}" for k in range(2, 11)), "non-private", "noise-2018", "noise-2018-synthetic",
    "noise-2018-lsoa2", "training", "training-lsoa2", "threat-models", "adaptation",
)  # fmt: skip


def papers() -> ModuleType:
    """Import the papers' experiments, which stand next to the package in a clone of the repository.

    Raises:
        ImportError: the package was installed without them.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "studies" / "papers").is_dir():
        raise ImportError(
            "the papers' experiments stand next to the package in its repository and are not installed with it: clone the "
            "repository, run `pip install --editable .` in it, and type this command again"
        )
    if str(root) not in sys.path:  # needed if the package was imported from another folder
        sys.path.append(str(root))
    return import_module("studies.papers")


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command("reproduce", run, "the papers' experiments; a run that was interrupted goes on where it stopped")
    parser.add_argument(
        "experiment", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, all, or page: write the results pages"
    )
    parser.add_argument(
        "--fast",
        action="store_true",
        help="fewer replications, candidates and budgets: under half an hour for all, on two cores, instead of hours",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that compute side by side; default 2")
    parser.add_argument("--replications", type=int, help="number of replications, instead of that of the settings")
    parser.add_argument(
        "--data", nargs="+", metavar="KIND", help="only these data sets of an experiment, such as 'low rank'"
    )
    parser.add_argument(
        "--each",
        action="store_true",
        help="tune on the training rows of every replication, instead of those of the first",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/experiments"),
        help="folder for NetCDF, JSON and figures; default out/experiments",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("docs/results.md"),
        help="where NAME page writes the overview, with a folder of the same name for the others; default docs/results.md",
    )


def run(options: argparse.Namespace) -> None:
    """Run one experiment, all of them, or write the page. Raises ValueError for another name."""
    experiments = papers()
    if options.experiment == "page":
        experiments.page.write(options.out, options.page)
        print(f"written to {options.page} and {options.page.with_suffix('')}")
        return
    names = EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    if names[0] not in experiments.EXPERIMENTS:
        raise ValueError(f"NAME: expected one of {', '.join(EXPERIMENTS)}, all or page, got {names[0]!r}")
    with experiments.Workers(options.workers) if options.workers != 1 else nullcontext() as workers:
        for name in names:
            try:
                results = _experiment(name, options, workers)
            except FileNotFoundError as error:  # the other experiments do not need that file
                if len(names) == 1:
                    raise
                print(f"mpmtl-prob reproduce: {name} left out. {error}", file=sys.stderr)
                continue
            print(json.dumps(results) if options.json else experiments.page.brief(results), flush=True)


def _experiment(name: str, options: argparse.Namespace, workers: Any) -> dict[str, Any]:
    from dataclasses import replace

    from mpmtl_prob._util.checks import whole

    experiments = papers()
    whole_way = experiments.EXPERIMENTS[name]
    study = whole_way.fast() if options.fast else whole_way
    typed = f"mpmtl-prob reproduce {name}" + (" --fast" if options.fast else "")
    if options.replications is not None:
        study = replace(study, replications=whole("replications", options.replications))
        typed += f" --replications {options.replications}"
    if options.data:
        asked = ", ".join(options.data)
        if not isinstance(study, experiments.Study):
            raise ValueError(f"--data: expected none for {name}, got {asked}")
        kinds = dict.fromkeys(data.kind for data in study.data)
        if not kinds.keys() >= set(options.data):
            raise ValueError(f"--data: expected some of {', '.join(kinds)}, got {asked}")
        study = replace(study, data=tuple(data for data in study.data if data.kind in options.data))
        typed += " --data " + " ".join(map(shlex.quote, options.data))
    if options.each:
        if not isinstance(study, experiments.Study):
            raise ValueError(f"--each: expected it for an experiment whose arms are tuned, got it for {name}")
        study = replace(study, effort=replace(study.effort, each=True))
        typed += " --each"
    return experiments.reproduce(
        study, options.out, fast=options.fast, command=typed, workers=workers, progress_bar=not options.quiet
    )
