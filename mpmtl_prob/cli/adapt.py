"""Command ``mpmtl-prob adapt``: a private model with the help of public data."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mpmtl_prob.cli.options import exclude_option, open_ledger, print_json, tell_features

if TYPE_CHECKING:
    from mpmtl_prob.adaptation import Domain
    from mpmtl_prob.adaptation.arms import Arms
    from mpmtl_prob.privacy import Ledger

_OF_ARMS = ("random_features", "classification", "steps", "source_weight", "accounting", "not_private")
_PUBLIC = (
    "They are computed without noise from --test, which was given as public records: the guarantee does not cover them."
)
_OF_DATA = (
    "They are computed without noise from other records of a published data set: the guarantee does not cover them."
)
_HELD_OUT = (
    "They are computed without noise from private records that their owner held out (--held-out): the guarantee does not "
    "cover them, and they are for the owner alone."
)


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command(
        "adapt",
        run,
        "a private model with the help of public data, from one release of a private table; or several methods side by side",
    )
    _add_records(parser)
    parser.add_argument("--epsilon", type=float, required=True, help="of the release; with --arms, of every arm")
    parser.add_argument("--delta", type=float, default=None, help="default 1 / n^1.1 of n private records")
    parser.add_argument(
        "--no-intercept", action="store_true", help="a model through the origin; default with intercept"
    )
    parser.add_argument(
        "--ledger", type=Path, help="ledger file that pays for it, and refuses it if that exceeds the total"
    )
    parser.add_argument("--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta")
    parser.add_argument(
        "--out", type=Path, help="folder for model.json and a picture, or for arms.json with --arms; default none"
    )
    _add_arms(parser)


def _add_records(parser: argparse.ArgumentParser) -> None:
    """Add the options for public, private and test records."""
    parser.add_argument("--source", type=Path, nargs="+", help="public tables; every file is a domain of its own")
    parser.add_argument(
        "--target",
        type=Path,
        help="private table with the same columns, one record a line; one record is protected",
    )
    parser.add_argument("--label", help="the column to predict; all others of --source are features")
    exclude_option(parser, "columns of --source that are not features, such as another outcome")
    known = parser.add_argument_group("a data set by name, in the place of --source, --target, --label and --test")
    known.add_argument(
        "--data",
        help="simulated: two_sources, shifted; at hand: school, digits, flights; the paper's, whose files you have: wind, "
        "airline, gas, news, slices",
    )
    known.add_argument(
        "--path", type=Path, help="its file or folder; without it you are told which one, and where from"
    )
    known.add_argument(
        "--records", type=int, nargs=2, metavar=("M", "N"), help="public and private records; default its own"
    )
    parser.add_argument(
        "--test",
        type=Path,
        help="table of records that may be looked at, for errors, which no guarantee covers; public records, or --held-out",
    )
    parser.add_argument(
        "--held-out", action="store_true", help="--test has private records that their owner held out and may look at"
    )


def _add_arms(parser: argparse.ArgumentParser) -> None:
    """Add the options for several methods side by side."""
    arms = parser.add_argument_group("several methods side by side, each a release of its own that is paid for")
    arms.add_argument(
        "--arms",
        nargs="+",
        metavar="ARM",
        help="of numbers: source, moments, adassp, noisy_gradient, cnvx, cnvx_frozen, cnvx_rescaled, cnvx_printed, "
        "cnvx_source, warm, dm; with --not-private target, pooled, kmm, dm_not_private, cnvx_not_private. With "
        "--classification: source, ncnvx, ncnvx_printed, network; with --not-private ncnvx_not_private, network_not_private",
    )
    arms.add_argument(
        "--classification", action="store_true", help="labels are classes, numbers as in the public tables"
    )
    arms.add_argument(
        "--random-features",
        type=int,
        metavar="D",
        help="a kernel: put D public random directions, as 2 D features, in the place of the columns; default none",
    )
    arms.add_argument("--steps", type=int, help="steps of every descent; default 300, and 100 of a network")
    arms.add_argument(
        "--source-weight", type=float, help="alpha of CnvxAdap and NCnvxAdap, the share of public records; default .5"
    )
    arms.add_argument("--accounting", help="exact, the default; or printed, the paper's noise and claim")
    arms.add_argument(
        "--not-private", action="store_true", help="allow arms that look at private records without any noise"
    )


def run(options: argparse.Namespace) -> None:
    """Pay, release, fit, print the report and write its files."""
    from mpmtl_prob.adaptation import adapt as report
    from mpmtl_prob.adaptation import arms
    from mpmtl_prob.adaptation.paper import accounting

    if options.arms is None and (given := [name for name in _OF_ARMS if getattr(options, name) not in (None, False)]):
        raise ValueError(f"--{given[0].replace('_', '-')}: expected it with --arms alone, got no arms")
    if options.held_out and options.test is None:
        raise ValueError("--held-out: expected it with --test alone, got no test records")
    sources, target, test = _read(options)
    if options.random_features is not None:
        sources, target, test = _mapped(options, sources, target, test)
    delta = accounting.default_delta(target.num_records) if options.delta is None else options.delta
    name = report.MODEL if options.arms is None else arms.FILE
    if options.out and (report.folder(options.out) / name).exists():  # checked before anything is paid for
        raise ValueError(f"--out: expected a folder without {name}, which may be paid for, got {str(options.out)!r}")
    ledger = open_ledger(options, delta=delta, unit="target record")
    ways = _one_release if options.arms is None else _side_by_side
    ways(options, sources, target, test, delta, ledger)


def _read(options: argparse.Namespace) -> tuple[dict[str, Domain], Domain, Domain | None]:
    """Read the public domains, the private target and the test records. Raises ValueError for contradictory options."""
    from mpmtl_prob.adaptation.data import named, tables

    if options.data is None:
        if missing := [name for name in ("source", "target", "label") if getattr(options, name) is None]:
            raise ValueError(f"--{missing[0]}: expected it, or --data with a data set by name, got none")
        if given := [name for name in ("path", "records") if getattr(options, name) is not None]:
            raise ValueError(f"--{given[0]}: expected it with --data alone, got tables")
        sources, target = tables.read(options.source, options.target, options.label, exclude=options.exclude)
        tell_features(options, target.features)
        if options.test is None:
            return sources, target, None
        return sources, target, tables.read_test(options.test, options.label, list(map(str, target.features)))
    if given := [
        name for name in ("source", "target", "label", "exclude", "test") if getattr(options, name) is not None
    ]:
        raise ValueError(f"--{given[0]}: expected none with --data, which has its own, got some")
    data = named.load(options.data, options.path, records=options.records, seed=options.seed)
    options.label = "label"
    options.no_intercept = options.no_intercept or "intercept" in data.source.features
    options.classification = options.classification or named.DATA[options.data].classification
    if options.classification and options.arms is None:
        raise ValueError(f"--arms: expected some for classes, as {options.data} has, such as ncnvx, got none")
    return data.sources, data.target, data.test


def _mapped(
    options: argparse.Namespace, sources: dict[str, Domain], target: Domain, test: Domain | None
) -> tuple[dict[str, Domain], Domain, Domain | None]:
    """Return all records after a public map by random features, from columns in public units."""
    from dataclasses import replace

    from mpmtl_prob.adaptation import Domain, RandomFeatures
    from mpmtl_prob.adaptation.data.domain import several, stacked
    from mpmtl_prob.adaptation.data.scaling import Scaling

    public = stacked(several(sources))
    units = replace(Scaling.of(public), intercept=False)

    def scaled(records: Domain) -> Domain:
        return Domain(units.scaled(records).X, records.y)

    see = RandomFeatures.of(scaled(public), options.random_features, seed=options.seed)
    return (
        {name: see(scaled(records)) for name, records in sources.items()},
        see(scaled(target)),
        None if test is None else see(scaled(test)),
    )


def _one_release(
    options: argparse.Namespace,
    sources: dict[str, Domain],
    target: Domain,
    test: Domain | None,
    delta: float,
    ledger: Ledger | None,
) -> None:
    """Pay for one release, and report what follows from it."""
    from mpmtl_prob._util.tables import aligned
    from mpmtl_prob.adaptation import adapt as report

    adapted = report.adapt(
        sources, target, label=options.label, epsilon=options.epsilon, delta=delta,
        intercept=not options.no_intercept, ledger=ledger, seed=options.seed,
    )  # fmt: skip
    errors = None if test is None else adapted.errors_on(test)
    try:
        written = adapted.save(options.out) if options.out else []
    finally:  # it is paid for, so it is printed even if the files cannot be written
        if options.json:
            on_test = {} if errors is None else {"test": {"errors": errors, "said": _said(options)}}
            print(json.dumps(adapted.to_dict() | on_test, indent=2), flush=True)
        else:
            print(adapted, flush=True)
            if errors is not None:
                cells = [("arm", "error on test"), *((name, f"{error:.4f}") for name, error in errors.items())]
                print(f"\n{aligned(cells)}\n\nMean squared errors, variance of public labels = 1. {_said(options)}")
    _tell(options, ledger, written)
    if options.out and report.PICTURE not in written:
        print(
            "mpmtl-prob adapt: no picture: pictures need matplotlib: pip install 'mpmtl-prob[plots]'",
            file=sys.stderr,
        )


def _side_by_side(
    options: argparse.Namespace,
    sources: dict[str, Domain],
    target: Domain,
    test: Domain | None,
    delta: float,
    ledger: Ledger | None,
) -> None:
    """Pay for every arm, after a rehearsal on public records, and print them side by side."""
    from mpmtl_prob.adaptation.arms import fit_arms

    try:
        fitted = fit_arms(
            options.arms, sources, target, label=options.label, epsilon=options.epsilon, delta=delta,
            classification=options.classification, intercept=not options.no_intercept, steps=options.steps,
            source_weight=options.source_weight, accounting=options.accounting or "exact",
            not_private=options.not_private, test=test, test_is=_said(options), ledger=ledger, seed=options.seed,
        )  # fmt: skip
    except BaseException as stopped:
        if (paid := getattr(stopped, "arms", None)) is not None:  # they are paid for, so they are printed
            _print_arms(options, paid)
        raise
    try:
        written = fitted.save(options.out) if options.out else []
    finally:
        _print_arms(options, fitted)
    _tell(options, ledger, written)


def _print_arms(options: argparse.Namespace, fitted: Arms) -> None:
    if options.json:
        print_json(fitted.to_dict())
    else:
        print(fitted, flush=True)


def _said(options: argparse.Namespace) -> str:
    """Return what the test records are, in words."""
    if options.data is not None:
        return _OF_DATA
    return _HELD_OUT if options.held_out else _PUBLIC


def _tell(options: argparse.Namespace, ledger: Ledger | None, written: list[str]) -> None:
    """Print the ledger, and the files that were written."""
    if options.json:
        return
    if ledger is not None:
        print(f"\n{ledger}")
    if options.out:
        print(f"\nwritten to {options.out}/: {', '.join(written)}")
