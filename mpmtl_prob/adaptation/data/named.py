"""Pairs of a public source and a private target by name: the paper's, from files that a user has, and stand-ins at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob.adaptation.data import paper_files, problems, real
from mpmtl_prob.adaptation.data.problems import Pair


class Named(NamedTuple):
    """A data set that a command can load.

    Attributes:
        load: function of ``seed``, ``records`` if they are given, and ``path`` where a file is needed.
        text: what it is.
        file: the file that is wanted, and where it comes from; "" where none is.
        classification: whether labels are classes.
    """

    load: Callable[..., Pair]
    text: str
    file: str = ""
    classification: bool = False


DATA: dict[str, Named] = {
    "two_sources": Named(problems.two_sources, "simulated, 70 % of the source like the target"),
    "shifted": Named(problems.shifted, "simulated, a source whose weights are off"),
    "school": Named(
        real.school, "pupils of mixed schools private", "school.mat, from MALSAR (github.com/jiayuzhou/MALSAR, data/)"
    ),
    "digits": Named(real.digits, "handwritten digits, 0 to 4 against 5 to 9", classification=True),
    "flights": Named(real.flights, "flights from JFK, the evening's private; with the extra 'flights'"),
    "wind": Named(paper_files.wind, "wind in Ireland, one month private", "wind.data, from lib.stat.cmu.edu/datasets"),
    "airline": Named(
        paper_files.airline,
        "delays from one airport, some hours private",
        "2008.csv, from the Data Expo 2009 (doi:10.7910/DVN/HG7NV7)",
    ),
    "gas": Named(
        paper_files.gas,
        "concentrations by drifting sensors, one batch private",
        "the folder with batch1.dat to batch10.dat, from UCI, Gas Sensor Array Drift at Different Concentrations "
        "(research only)",
    ),
    "news": Named(
        paper_files.news,
        "shares of articles, Sunday's private",
        "OnlineNewsPopularity.csv, from UCI, Online News Popularity",
    ),
    "slices": Named(
        paper_files.slices,
        "positions of CT slices, some patients' private",
        "slice_localization_data.csv, from UCI, Relative Location of CT Slices on Axial Axis",
    ),
}


def load(
    name: str, path: str | os.PathLike[str] | None = None, *, records: tuple[int, int] | None = None, seed: int = 0
) -> Pair:
    """Load a data set by name.

    Args:
        name: one of :data:`DATA`.
        path: of its file or folder, where one is wanted; School is also looked for where
            :func:`mpmtl_prob.datasets.school` does.
        records: (m, n); default the data set's own, which for the paper's are the paper's.
        seed: of the choice of records.

    Raises:
        FileNotFoundError: the file is not there; the message says which one is wanted, and where it comes from.
        ImportError: a package that reads it is not installed.
        ValueError: an argument outside its range, or a file of another form.
    """
    kind = DATA[one_of("data", name, tuple(DATA))]
    options: dict[str, Any] = {"seed": whole("seed", seed, 0)}
    if records is not None:
        options["records"] = tuple(whole("records", number) for number in records)
    if path is not None:
        if not kind.file:
            raise ValueError(f"path: expected none with {name}, which needs no file, got {os.fspath(path)!r}")
        if not Path(path).exists():
            raise FileNotFoundError(f"path: no file {os.fspath(path)!r}; {name} wants {kind.file}")
        options["path"] = path
    elif kind.file and name != "school":
        raise FileNotFoundError(f"path: {name} wants {kind.file}; give its place as path (--path)")
    return kind.load(**options)
