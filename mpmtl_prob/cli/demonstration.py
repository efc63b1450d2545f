"""Commands ``demo`` and ``example`` of ``mpmtl-prob``: a demonstration on one data set, and an example study."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from mpmtl_prob.cli.options import check_budgets, print_json, shows_progress


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the two commands and their options."""
    parser = command("demo", run, "run the whole product on one data set and write figures, numbers and a posterior")
    parser.add_argument(
        "--data", default="synthetic_low_rank", help="synthetic_low_rank, the default, synthetic_group_sparse or school"
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0], help="budgets; default .1 1 10")
    parser.add_argument(
        "--draws", type=int, default=300, help="draws of NUTS per chain; warmup takes as many, up to 140; default 300"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for figures, NetCDF and JSON; default out"
    )
    making = command(
        "example", example, "a simulated study of thirty hospitals, as files of many sites, with the true effects"
    )
    making.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write, new or empty")


def example(options: argparse.Namespace) -> None:
    """Write the example study."""
    from mpmtl_prob.datasets import example_study

    study = example_study(seed=options.seed)
    written = study.write(options.folder)
    if options.json:
        print_json({"folder": str(options.folder), "written": [str(path) for path in written]})
        return
    hospitals, newcomer = study.patients["hospital"].nunique(), study.newcomer["hospital"].iloc[0]
    lines = [
        f"written to {options.folder}/: {', '.join(study.files)}",
        f"  the tables of {hospitals} hospitals, in a folder each, and of a newcomer, {newcomer}; an empty inbox",
        "  example.csv, to draft a study's file from; truth.json, which nobody has in a study",
    ]
    print("\n".join(lines))


def run(options: argparse.Namespace) -> None:
    """Run the demonstration and print its table."""
    from mpmtl_prob.cli import demo

    if options.data not in demo.DATA:
        raise ValueError(f"--data: expected one of {', '.join(demo.DATA)}, got {options.data!r}")
    check_budgets(options.epsilon)
    options.out.mkdir(parents=True, exist_ok=True)  # before minutes of work
    comparison, headline = demo.run(
        options.data,
        options.epsilon,
        options.out,
        draws=options.draws,
        seed=options.seed,
        progress_bar=shows_progress(options),
    )
    if options.json:
        print((options.out / "comparison.json").read_text(), end="")
        return
    print(
        f"\n{options.data}: test error, honesty of the 90 % intervals, and what protects a task (zero-out adjacency)\n"
    )
    print(comparison)
    print(f"\n{demo.NOT_COVERED}\n\nthe noise-aware posterior")
    for name, value in headline.items():
        print(f"  {name}: {value:.3f}")
    written = sorted(path.name for path in options.out.iterdir())
    print(f"\nwritten to {options.out}/: {', '.join(written)}")
