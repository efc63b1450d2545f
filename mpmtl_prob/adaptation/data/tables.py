"""Tables of public and private records as files, with errors that reveal nothing about private rows.

A record of the private table is one line of its file, which is parsed independently of the others. A blank line is a record
too, so that n is the number of lines below the header. A record becomes zeros if a cell is not a number or is empty, if the
line has another number of fields than the header, or if a quote stays open. Nobody is told, as an error, a warning or a count
would reveal one record. The names of the columns are public. But a table without a header has its first record in their
place, so that they are never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpmtl_prob._util import files
from mpmtl_prob.adaptation.data.domain import Domain, public_domain
from mpmtl_prob.data.cells import as_number
from mpmtl_prob.data.columns import chosen


def read(
    source: Sequence[Path], target: Path, label: str, *, exclude: Sequence[str] | None = None
) -> tuple[dict[str, Domain], Domain]:
    """Read public domains, by the names of their files, and the private target.

    Args:
        source: CSV files with the same columns. The features are the columns of the first file, without the label and the
            excluded ones.
        target: a CSV file with these columns, one record per line; other columns are left out.
        label: the column to predict.
        exclude: columns of the public files that are not features.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file cannot be read, columns are missing, or public cells are not numbers.
    """
    if not source:
        raise ValueError("source: expected at least one file, got none")
    domains: dict[str, Domain] = {}
    features: list[str] | None = None
    known: list[str] = []
    for path in source:
        if path.stem in domains:
            raise ValueError(f"source: expected files of different names, got two of the name {path.stem!r}")
        domains[path.stem], columns = _public(path, label, features, exclude)
        features = [str(name) for name in domains[path.stem].features]
        known += columns
    chosen(list(dict.fromkeys(known)), [label], None, exclude)  # an excluded column is in one of them
    return domains, _private(target, label, features or [])


def read_test(path: Path, label: str, features: Sequence[str]) -> Domain:
    """Read records that may be looked at: public ones, or such that their owner has held out. Errors may tell of rows.

    Args:
        path: a CSV file with these columns; other columns are left out.
        label: the column that is predicted.
        features: of the public files.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file cannot be read, columns are missing, there is no record, or a cell is not a number.
    """
    frame = files.read_table("test", path)
    meant = [*features, label]
    if missing := [name for name in meant if name not in frame.columns]:
        raise ValueError(f"test: expected the columns {missing} in {str(path)!r} too, got a table without")
    if text := [name for name in meant if frame[name].dtype.kind not in "iufb" or frame[name].isna().any()]:
        raise ValueError(
            f"test: expected a number in every cell, got something else in the columns {text} of {str(path)!r}"
        )
    return public_domain("test", Domain(frame[list(features)].astype(float), frame[label].astype(float)))


def _public(
    path: Path, label: str, features: list[str] | None, exclude: Sequence[str] | None
) -> tuple[Domain, list[str]]:
    """Read the records of a public file, and the names of all its columns."""
    frame = files.read_table("source", path)
    columns = list(frame.columns)
    if label not in columns:
        raise ValueError(f"label: expected one of the columns {columns} of {str(path)!r}, got {label!r}")
    if features is None:
        features = [name for name in columns if name not in (label, *(exclude or ()))]
    if missing := [name for name in features if name not in columns]:
        raise ValueError(f"source: expected the columns of the first file, {missing} are missing in {str(path)!r}")
    if more := [name for name in columns if name not in (*features, label, *(exclude or ()))]:
        raise ValueError(f"source: expected the columns of the first file alone, got also {more} in {str(path)!r}")
    meant = [*features, label]
    if text := [name for name in meant if frame[name].dtype.kind not in "iufb"]:
        raise ValueError(f"source: expected numbers, got something else in the columns {text} of {str(path)!r}")
    if incomplete := [name for name in meant if frame[name].isna().any()]:
        raise ValueError(f"source: expected a number in every cell, got none in some of {incomplete} of {str(path)!r}")
    return Domain(frame[features].astype(float), frame[label].astype(float)), columns


def _private(path: Path, label: str, features: list[str]) -> Domain:
    try:
        head, *lines = files.lines(path)
    except FileNotFoundError:
        raise
    except Exception:  # the error's text may quote a line, so it is not shown
        raise ValueError(f"target: cannot read {str(path)!r} as a table with one record a line") from None
    names = files.fields(head)
    files.check_separator("target", path, names)
    files.check_names("target", path, names, unnamed=True)
    for argument, columns in (("label", [label]), ("target", features)):
        if missing := [name for name in columns if name not in names]:
            raise ValueError(f"{argument}: expected the columns {missing} in {str(path)!r} too, got a table without")
    places = [names.index(name) for name in (*features, label)]
    numbers = np.full((len(lines), len(places)), np.nan)
    for record, line in zip(numbers, lines, strict=True):
        if len(cells := files.fields(line)) == len(names):
            record[:] = [as_number(cells[place]) for place in places]
    return Domain(numbers[:, :-1], numbers[:, -1], tuple(features))
