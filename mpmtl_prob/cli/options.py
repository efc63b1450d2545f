"""Options that several commands have."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpmtl_prob.data.reference import Reference
    from mpmtl_prob.privacy import Ledger

_REFERENCE = '{"features": {"age": [60, 15]}, "target": [7, 5], "effects": {"age": 0.05}}'


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


def exclude_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--exclude``."""
    parser.add_argument("--exclude", nargs="+", action="extend", metavar="COLUMN", help=text)


def tell_features(options: argparse.Namespace, features: Sequence[Any]) -> None:
    """Say once, beside what is printed, which columns were taken since nobody named any: an outcome may be among them."""
    print(
        f"mpmtl-prob {options.name}: features are all other columns, {len(features)}: {', '.join(map(str, features))}; "
        "--exclude leaves columns out that are no features, such as another outcome",
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
        help=f"JSON file with public centres and scales of columns and target, for a mixed model, such as {_REFERENCE}; "
        "effects, what earlier studies say of average effects, may be left out",
    )


def read_reference(options: argparse.Namespace) -> Reference | None:
    """Read the reference values, if any. Raises ValueError for a file that holds something else, by its key."""
    from mpmtl_prob.data.reference import Reference

    path = options.reference
    if path is None:
        return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--reference: {str(path)!r} is no JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError(f"--reference: expected an object such as {_REFERENCE}, got {type(said).__name__}")
    if others := [key for key in said if key not in ("features", "target", "effects")]:
        raise ValueError(f"--reference: {others[0]!r}: expected the keys features, target and effects, got this one")
    if missing := [key for key in ("features", "target") if key not in said]:
        raise ValueError(f"--reference: {missing[0]!r}: expected it, such as {_REFERENCE}, got none")
    if not isinstance(said.get("effects", {}), dict):
        raise ValueError(f"--reference: 'effects': expected numbers by column, got {said['effects']!r}")
    try:
        return Reference(said["features"], said["target"], said.get("effects"))
    except ValueError as error:
        raise ValueError(f"--reference: {error}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's pairs, of which JSON itself would keep the last of a name without a word."""
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"--reference: {twice[0]!r}: expected it once, got it twice")
    return dict(pairs)
