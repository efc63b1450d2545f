"""``mpmtl-prob demo``: the whole product on one data set."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from mpmtl_prob.cli.options import check_budgets, shows_progress


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command("demo", run, "run the whole product on one data set and write figures, numbers and a posterior")
    parser.add_argument(
        "--data", default="synthetic_low_rank", help="synthetic_low_rank, synthetic_group_sparse or school"
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0], help="budgets")
    parser.add_argument("--draws", type=int, default=300, help="of NUTS per chain, and as many to adapt, up to 140")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for figures, NetCDF and JSON")


def run(options: argparse.Namespace) -> None:
    """Run the demonstration and print its table."""
    from mpmtl_prob.cli import demo

    if options.data not in demo.DATA:
        raise ValueError(f"--data: expected one of {', '.join(demo.DATA)}, got {options.data!r}")
    check_budgets(options.epsilon)
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
