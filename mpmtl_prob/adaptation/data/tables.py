"""Tables of public and private records, as files: what is wrong with a private one is said without a word of its rows.

A record of the private table is one line of its file, read by itself, and a blank line is one too: n is the number of lines
below the head. A cell that is no number, or none, or a line with another number of fields than the head, or a quote that
stays open, makes its record one of zeros, and nobody is told: an error, a warning or a count would tell of one record. Names
of its columns are public, but a table without a head has its first record in their place, so that none of them is ever shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpmtl_prob._util import files
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.data.cells import as_number
from mpmtl_prob.data.columns import chosen


def read(
    source: Sequence[Path], target: Path, label: str, *, exclude: Sequence[str] | None = None
) -> tuple[dict[str, Domain], Domain]:
    """Public domains by the names of their files, and the private target.

    Args:
        source: CSV files of one head each; columns of the first but the label and the excluded ones are the features.
        target: a CSV file with these columns, one record a line; others are left out.
        label: the column to predict.
        exclude: columns of the public files that are no features.

    Raises:
        FileNotFoundError: a file that is not there.
        ValueError: a file that cannot be read, columns that are missing, or public cells that are no numbers.
    """
    if not source:
        raise ValueError("source: expected at least one file, got none")
    found: dict[str, Domain] = {}
    features: list[str] | None = None
    known: list[str] = []
    for path in source:
        if path.stem in found:
            raise ValueError(f"source: expected files of different names, got two of the name {path.stem!r}")
        found[path.stem], columns = _public(path, label, features, exclude)
        features = [str(name) for name in found[path.stem].features]
        known += columns
    chosen(list(dict.fromkeys(known)), [label], None, exclude)  # an excluded column is in one of them
    return found, _private(target, label, features or [])


def _public(
    path: Path, label: str, features: list[str] | None, exclude: Sequence[str] | None
) -> tuple[Domain, list[str]]:
    """The records of a public file, and the names of all its columns."""
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
    if holes := [name for name in meant if frame[name].isna().any()]:
        raise ValueError(f"source: expected a number in every cell, got none in some of {holes} of {str(path)!r}")
    return Domain(frame[features].astype(float), frame[label].astype(float)), columns


def _private(path: Path, label: str, features: list[str]) -> Domain:
    try:
        head, *lines = files.lines(path)
    except FileNotFoundError:
        raise
    except Exception:  # of whatever opens it, whose text may quote a line
        raise ValueError(f"target: cannot read {str(path)!r} as a table with one record a line") from None
    names = files.fields(head)
    files.check_separator("target", path, names)
    files.check_names("target", path, names, unnamed=True)
    for argument, wanted in (("label", [label]), ("target", features)):
        if missing := [name for name in wanted if name not in names]:
            raise ValueError(f"{argument}: expected the columns {missing} in {str(path)!r} too, got a table without")
    places = [names.index(name) for name in (*features, label)]
    found = np.full((len(lines), len(places)), np.nan)
    for record, line in zip(found, lines, strict=True):
        if len(cells := files.fields(line)) == len(names):
            record[:] = [as_number(cells[place]) for place in places]
    return Domain(found[:, :-1], found[:, -1], tuple(features))
