"""Command ``mpmtl-prob ledger``: what is spent of a budget, and what it would still pay for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from mpmtl_prob.cli.options import print_json


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its option."""
    reading = command("ledger", show, "what is spent of a ledger's total, and what it would still pay for")
    reading.add_argument("ledger", type=Path, help="file that publish or release has charged")


def show(options: argparse.Namespace) -> None:
    """Print the ledger, and the times of its charges."""
    from mpmtl_prob.privacy import Ledger

    if not options.ledger.is_file() or not options.ledger.stat().st_size:
        raise ValueError(f"ledger: expected a file that publish or release has charged, got {str(options.ledger)!r}")
    ledger = Ledger(options.ledger)
    spent = ledger.spent_adaptively if ledger.adaptive else ledger.spent
    left = ledger.left
    charges = ledger.charges()
    if options.json:
        facts = {name: getattr(ledger, name) for name in ("epsilon", "delta", "adjacency", "unit", "adaptive")}
        facts |= {"spent": spent.epsilon, "left": None if left is None else left.epsilon}
        listed = [{"time": charge.time, "rounds": len(charge.mechanisms)} for charge in charges]
        print_json(facts | {"charges": listed})
        return
    print(ledger)
    for charge in charges:
        rounds = "one round" if len(charge.mechanisms) == 1 else f"{len(charge.mechanisms)} rounds"
        print(f"  charged {charge.time:%Y-%m-%d %H:%M} UTC: {rounds}")
