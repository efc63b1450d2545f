"""Command ``mpmtl-prob adapt``: a private model with the help of public data."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from mpmtl_prob.cli.options import exclude_option, open_ledger, tell_features


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command(
        "adapt",
        run,
        "a private model with the help of public data, from one release of a private table",
    )
    parser.add_argument(
        "--source", type=Path, nargs="+", required=True, help="public tables; every file is a domain of its own"
    )
    parser.add_argument(
        "--target",
        type=Path,
        required=True,
        help="private table with the same columns, one record a line; one record is protected",
    )
    parser.add_argument("--label", required=True, help="the column to predict; all others of --source are features")
    exclude_option(parser, "columns of --source that are not features, such as another outcome")
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=None, help="default 1 / n^1.1 of n private records")
    parser.add_argument(
        "--no-intercept", action="store_true", help="a model through the origin; default with intercept"
    )
    parser.add_argument(
        "--ledger", type=Path, help="ledger file that pays for it, and refuses it if that exceeds the total"
    )
    parser.add_argument("--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta")
    parser.add_argument("--out", type=Path, help="folder for model.json and a picture; default none")


def run(options: argparse.Namespace) -> None:
    """Pay, release, fit, print the report and write its files."""
    from mpmtl_prob.adaptation import adapt as report
    from mpmtl_prob.adaptation.data import tables
    from mpmtl_prob.adaptation.paper import accounting

    sources, target = tables.read(options.source, options.target, options.label, exclude=options.exclude)
    tell_features(options, target.features)
    delta = accounting.default_delta(target.num_records) if options.delta is None else options.delta
    if options.out and (report.folder(options.out) / report.MODEL).exists():  # checked before anything is paid for
        raise ValueError(
            f"--out: expected a folder without {report.MODEL}, which may be paid for, got {str(options.out)!r}"
        )
    ledger = open_ledger(options, delta=delta, unit="target record")
    adapted = report.adapt(
        sources, target, label=options.label, epsilon=options.epsilon, delta=delta,
        intercept=not options.no_intercept, ledger=ledger, seed=options.seed,
    )  # fmt: skip
    try:
        written = adapted.save(options.out) if options.out else []
    finally:  # it is paid for, so it is printed even if the files cannot be written
        print(json.dumps(adapted.to_dict(), indent=2) if options.json else adapted, flush=True)
    if ledger is not None and not options.json:
        print(f"\n{ledger}")
    if options.out:
        if not options.json:
            print(f"\nwritten to {options.out}/: {', '.join(written)}")
        if report.PICTURE not in written:
            print(
                "mpmtl-prob adapt: no picture: pictures need matplotlib: pip install 'mpmtl-prob[plots]'",
                file=sys.stderr,
            )
