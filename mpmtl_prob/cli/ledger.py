"""``mpmtl-prob ledger``: what is spent of a budget, and what it would still pay for."""

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
    """Print the ledger, and when it was charged."""
    from mpmtl_prob.privacy import Ledger

    if not options.ledger.is_file():
        raise ValueError(f"ledger: expected a file that publish or release has charged, got {str(options.ledger)!r}")
    ledger = Ledger(options.ledger)
    spent, left, charges = ledger.spent_adaptively if ledger.adaptive else ledger.spent, ledger.left, ledger.charges()
    if options.json:
        said = {name: getattr(ledger, name) for name in ("epsilon", "delta", "adjacency", "unit", "adaptive")}
        said |= {"spent": spent.epsilon, "left": None if left is None else left.epsilon}
        print_json(said | {"charges": [{"time": one.time, "rounds": len(one.mechanisms)} for one in charges]})
        return
    print(ledger)
    for one in charges:
        rounds = "one round" if len(one.mechanisms) == 1 else f"{len(one.mechanisms)} rounds"
        print(f"  charged {one.time:%Y-%m-%d %H:%M} UTC: {rounds}")
