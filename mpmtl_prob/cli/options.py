"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

#: That of mpmtl_prob.data.reference, repeated here so that --help does not import JAX.
REFERENCE = '{"features": {"age": [60, 15]}, "target": [7, 5], "effects": {"age": 0.05}}'

if TYPE_CHECKING:
    from mpmtl_prob.data.reference import Reference
    from mpmtl_prob.privacy import Ledger


def open_ledger(options: argparse.Namespace, **declared: Any) -> Ledger | None:
    """Open the ledger that pays, if one is given. Raises ValueError for options that need a ledger."""
    from mpmtl_prob.privacy import Ledger

    adaptive = getattr(options, "adaptive", False)
    if options.ledger is None:
        if options.total is not None or adaptive:
            raise ValueError(f"--{'adaptive' if adaptive else 'total'}: expected it with --ledger alone, got none")
        return None
    new = {} if options.ledger.exists() else declared
    return Ledger(options.ledger, epsilon=options.total, adaptive=adaptive or None, **new)


def exclude_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--exclude``."""
    parser.add_argument("--exclude", nargs="+", action="extend", metavar="COLUMN", help=text)


def tell_features(options: argparse.Namespace, features: Sequence[Any]) -> None:
    """Print which columns became features when nobody named any, as an outcome may be among them."""
    print(
        f"mpmtl-prob {options.name}: features are all other columns, {len(features)}: {', '.join(map(str, features))}; "
        "--exclude leaves out columns that are not features, such as another outcome",
        file=sys.stderr,
    )


def check_budgets(epsilons: Sequence[float]) -> None:
    """Raise ValueError for a budget that is not positive."""
    from mpmtl_prob._util.checks import positive

    for epsilon in epsilons:
        positive("--epsilon", epsilon)


def reference_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--reference``."""
    parser.add_argument(
        "--reference",
        type=Path,
        help=f"JSON file with public centres and scales of columns and target, for a mixed model, such as "
        f"{REFERENCE}; effects, what earlier studies say of average effects, may be left out",
    )


def read_reference(options: argparse.Namespace) -> Reference | None:
    """Read the reference values, if any. Raises ValueError for an invalid file, with the key at fault."""
    from mpmtl_prob.data import reference

    return None if options.reference is None else reference.read_reference(options.reference, "--reference")


def on_terminal() -> bool:
    """Return whether standard error is a terminal; a service may have closed it."""
    return sys.stderr is not None and sys.stderr.isatty()


def shows_progress(options: argparse.Namespace) -> bool:
    """Return True on a terminal; elsewhere print one line in place of the hundreds that a bar would print."""
    if options.quiet:
        return False
    if on_terminal():
        return True
    print(f"mpmtl-prob {options.name}: at work; progress bars are shown on a terminal only", file=sys.stderr)
    return False


def print_json(said: Any) -> None:
    """Print one valid JSON document; nan and infinite numbers become null."""
    print(json.dumps(_plain(said), indent=2, allow_nan=False, default=str), flush=True)


def _plain(said: Any) -> Any:
    if isinstance(said, dict):
        return {str(key): _plain(value) for key, value in said.items()}
    if isinstance(said, list | tuple):
        return [_plain(value) for value in said]
    if isinstance(said, float) and not math.isfinite(said):
        return None
    return said
