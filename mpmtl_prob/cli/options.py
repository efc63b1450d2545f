"""Options that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpmtl_prob.privacy import Ledger


def open_ledger(options: argparse.Namespace, **declared: Any) -> Ledger | None:
    """Open the ledger that pays, if one does. Raises ValueError for options that only a ledger could take."""
    from mpmtl_prob.privacy import Ledger

    adaptive = getattr(options, "adaptive", False)
    if options.ledger is None:
        if options.total is not None or adaptive:
            raise ValueError(f"--{'adaptive' if adaptive else 'total'}: expected it with --ledger alone, got none")
        return None
    new = {} if options.ledger.exists() else declared
    return Ledger(options.ledger, epsilon=options.total, adaptive=adaptive or None, **new)


def check_budgets(epsilons: Sequence[float]) -> None:
    """Raise ValueError for a budget that is not positive."""
    from mpmtl_prob._util.checks import positive

    for epsilon in epsilons:
        positive("--epsilon", epsilon)
