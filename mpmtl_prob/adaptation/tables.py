"""Tables of public and private records, as files: what is wrong with a private one is said without a word of its rows.

A cell of the private table that is no number, or none, makes its record one of zeros, and nobody is told: an error, a
warning or a count would tell of one record. Names of its columns are public, but a table without a head has its first record
in their place, so that none of them is ever shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpmtl_prob.adaptation.domain import Domain

_TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}


def read(source: Sequence[Path], target: Path, label: str) -> tuple[dict[str, Domain], Domain]:
    """Public domains by the names of their files, and the private target.

    Args:
        source: CSV files of one head each; columns of the first but the label are the features.
        target: a CSV file with these columns; others are left out.
        label: the column to predict.

    Raises:
        FileNotFoundError: a file that is not there.
        ValueError: a file that cannot be read, columns that are missing, or public cells that are no numbers.
    """
    if not source:
        raise ValueError("source: expected at least one file, got none")
    found: dict[str, Domain] = {}
    features: list[str] | None = None
    for path in source:
        if path.stem in found:
            raise ValueError(f"source: expected files of different names, got two of the name {path.stem!r}")
        found[path.stem] = each = _public(path, label, features)
        features = [str(name) for name in each.features]
    return found, _private(target, label, features or [])


def _public(path: Path, label: str, features: list[str] | None) -> Domain:
    try:
        frame = _frame(path)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"source: cannot read {str(path)!r} as a table: {str(error).strip()}") from None
    columns = list(frame.columns)
    if label not in columns:
        raise ValueError(f"label: expected one of the columns {columns} of {str(path)!r}, got {label!r}")
    features = [name for name in columns if name != label] if features is None else features
    if missing := [name for name in features if name not in columns]:
        raise ValueError(f"source: expected the columns of the first file, {missing} are missing in {str(path)!r}")
    if more := [name for name in columns if name not in (*features, label)]:
        raise ValueError(f"source: expected the columns of the first file alone, got also {more} in {str(path)!r}")
    if text := [name for name in columns if frame[name].dtype.kind not in "iufb"]:
        raise ValueError(f"source: expected numbers, got something else in the columns {text} of {str(path)!r}")
    if holes := [name for name in columns if frame[name].isna().any()]:
        raise ValueError(f"source: expected a number in every cell, got none in some of {holes} of {str(path)!r}")
    return Domain(frame[features].astype(float), frame[label].astype(float))


def _private(path: Path, label: str, features: list[str]) -> Domain:
    import pandas as pd

    try:
        frame = _frame(path, dtype=str)
    except FileNotFoundError:
        raise
    except (OSError, ValueError):  # whose text may quote a line
        raise ValueError(f"target: cannot read {str(path)!r} as a table with one record a line") from None
    for argument, wanted in (("label", [label]), ("target", features)):
        if missing := [name for name in wanted if name not in frame.columns]:
            raise ValueError(f"{argument}: expected the columns {missing} in {str(path)!r} too, got a table without")
    number = lambda name: pd.to_numeric(frame[name].replace(_TRUTH), errors="coerce").astype(float)
    return Domain(pd.DataFrame({name: number(name) for name in features}), number(label))


def _frame(path: Path, **options: Any) -> Any:
    import pandas as pd

    return pd.read_csv(path, **options)
