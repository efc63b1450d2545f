"""Command ``mpmtl-prob report``: a page for the board of a participant."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path

from mpmtl_prob.cli.options import on_terminal


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    writing = command("report", report, "a page for a board: what was shared, what is promised, and what was found")
    writing.add_argument(
        "--release", type=Path, required=True, help="file that publish, release or federated has written"
    )
    writing.add_argument("--study", type=Path, help="the study's file, whose words are used; default that of --model")
    writing.add_argument(
        "--model",
        type=Path,
        help="model.nc of one hospital, whose own results are then on the page, which is private to it (mode 0600)",
    )
    writing.add_argument("--contact", default="", help="whom to ask, in a sentence; default none")
    writing.add_argument(
        "--curator", default="", metavar="NAME", help="the curator's name; default none. The page bears today's date"
    )
    writing.add_argument(
        "--group", type=int, default=1, metavar="K",
        help="number of tasks that one owner has, who are promised less together than each; default 1",
    )  # fmt: skip
    writing.add_argument(
        "--ledger",
        type=Path,
        help="the curator's ledger, of which the page then says what is spent and left; default none",
    )
    writing.add_argument(
        "--draws",
        type=int,
        default=300,
        help="without --model: draws of NUTS per chain, where fit would take it too; default 300",
    )
    writing.add_argument("--out", type=Path, required=True, help="HTML file to write: one file, with nothing to load")


def report(options: argparse.Namespace) -> None:
    """Write the page."""
    from mpmtl_prob import Release, Schema, desk
    from mpmtl_prob._util.files import check_place, write_text
    from mpmtl_prob.inference import shared_effects
    from mpmtl_prob.privacy import Ledger

    check_place("--out", options.out)
    release = Release.load(options.release)
    study = None if options.study is None else Schema.read(options.study)
    model = None if options.model is None else desk.OwnModel.load(options.model)
    account = None
    if options.ledger is not None:
        if not options.ledger.is_file() or not options.ledger.stat().st_size:
            raise ValueError(f"--ledger: expected one that publish or release has charged, got {str(options.ledger)!r}")
        account = Ledger(options.ledger)
    shared = None
    if study is not None:
        desk.model.check_release(study, release)
    if model is None and release.effects is not None:
        progress = not options.quiet and on_terminal()
        shared = shared_effects(
            release, sampler="weighted", draws=options.draws, seed=options.seed, progress_bar=progress
        )
    today = datetime.date.today()
    page = desk.report(
        release, study, model=model, shared=shared, contact=options.contact, curator=options.curator, prepared=today,
        group=options.group, account=account,
    )  # fmt: skip
    write_text(options.out, page, private=model is not None)
    if options.json:
        import json

        print(json.dumps({"out": str(options.out), "private": model is not None}))
    else:
        print(f"written to {options.out}" + ("" if model is None else f", private to {model.participant}"))
