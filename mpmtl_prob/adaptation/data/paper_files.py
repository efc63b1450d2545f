"""Loaders of the paper's regression data (Table 4), from files that a user has, as none of them may be shipped.

Every loader says where to get the file, which format it has, and what the licence is. The default numbers of records are the
paper's. The paper does not say which month, patients or batch are the target, nor which columns are features. Where a loader
makes such a choice, its documentation says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.data.problems import Pair
from mpmtl_prob.adaptation.data.real import split

STATIONS = ("RPT", "VAL", "ROS", "KIL", "SHA", "BIR", "DUB", "CLA", "MUL", "CLO", "BEL", "MAL")
_CARRIED = ("Month", "DayofMonth", "DayOfWeek", "CRSDepTime", "CRSArrTime", "CRSElapsedTime", "Distance")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_GASES, _SENSED = 6, 128
_SLICE = 384
FilePath = str | os.PathLike[str]


def wind(
    path: FilePath, *, month: int = 1, station: str = "MAL", records: tuple[int, int] = (6016, 158), seed: int = 0
) -> Pair:
    """Load wind in Ireland, 1961 to 1978: predict one station from the eleven others, with one month private.

    Args:
        path: of wind.data, as in StatLib and R's gstat: 6,574 lines of 15 numbers, year, month, day and 12 stations.
        month: the target's month, 1 to 12. The paper's target has 558 days, as a month of 31 days has.
        station: the station whose wind is the label, one of :data:`STATIONS`. The paper does not say which.
        records: (m, n).
        seed: of the choice of records.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an argument outside its range, or a file of another form.

    Source: Haslett and Raftery (1989), lib.stat.cmu.edu/datasets/wind.data.
    """
    one_of("station", station, STATIONS)
    _one_to("month", month, 12)
    table = _table(path, 3 + len(STATIONS), "year, month, day and the wind at 12 stations in every line")
    label = 3 + STATIONS.index(station)
    columns = [k for k in range(3, 3 + len(STATIONS)) if k != label]
    every = Domain(table[:, columns], table[:, label], tuple(STATIONS[k - 3] for k in columns))
    return split(every, table[:, 1] == month, records, seed)


def airline(
    path: FilePath,
    *,
    origin: str = "ORD",
    hours: tuple[int, int] = (18, 24),
    records: tuple[int, int] = (16_000, 200),
    seed: int = 0,
) -> Pair:
    """Load delays on arrival of flights from one airport in 2008, with the flights of some hours private.

    Args:
        path: of 2008.csv of the Data Expo 2009 of the American Statistical Association, with its header; may be compressed.
        origin: the airport.
        hours: the target's hours of scheduled departure, from and before; the paper splits by hour and does not say which.
        records: (m, n).
        seed: of the choice of records.

    Raises:
        FileNotFoundError: no such file.
        ImportError: pandas, of the extra ``data``, is not installed.
        ValueError: an argument outside its range, or a file of another form.

    Source: US Bureau of Transportation Statistics; Ikonomovska (2009) for its use.
    """
    table = _csv(path, ("Origin", "ArrDelay", *_CARRIED))
    table = table[(table.Origin == origin) & table[["ArrDelay", *_CARRIED]].notna().all(axis=1)]
    every = Domain(table[list(_CARRIED)].to_numpy(float), table.ArrDelay.to_numpy(float), _CARRIED)
    hour = table.CRSDepTime.to_numpy(float) // 100
    return split(every, (hour >= hours[0]) & (hour < hours[1]), records, seed)


def gas(path: FilePath, *, batch: int = 7, records: tuple[int, int] = (7297, 613), seed: int = 0) -> Pair:
    """Load gas concentrations with 128 readings of drifting sensors, with one of ten batches private.

    Args:
        path: of the folder with batch1.dat to batch10.dat; every line is "gas;concentration 1:number 2:number ...".
        batch: the target's batch; the paper's counts are those of the seventh.
        records: (m, n).
        seed: of the choice of records.

    Raises:
        FileNotFoundError: no such folder, or a batch's file is missing.
        ValueError: an argument outside its range, or a file of another form.

    Source: Rodriguez-Lujan et al. (2014), UCI, Gas Sensor Array Drift at Different Concentrations. For research alone: no
    commercial use.
    """
    _one_to("batch", batch, 10)
    files = [Path(path) / f"batch{k}.dat" for k in range(1, 11)]
    parts = [_lines_of_gas(file) for file in files]
    batches = np.concatenate([np.full(len(part), k) for k, part in enumerate(parts, 1)])
    table = np.concatenate(parts)
    kind = table[:, :1] == np.arange(2, _GASES + 1)  # indicators: five columns for six gases
    names = (*(f"sensor_{k}" for k in range(1, _SENSED + 1)), *(f"gas_{k}" for k in range(2, _GASES + 1)))
    return split(Domain(np.column_stack([table[:, 2:], kind]), table[:, 1], names), batches == batch, records, seed)


def news(path: FilePath, *, records: tuple[int, int] = (3000, 737), seed: int = 0) -> Pair:
    """Load how often news articles were shared, with Sunday's articles private. The label is log(1 + shares).

    Args:
        path: of OnlineNewsPopularity.csv, with its header; the eight columns that tell the day are left out, and 50 remain.
        records: (m, n).
        seed: of the choice of records.

    Raises:
        FileNotFoundError: no such file.
        ImportError: pandas, of the extra ``data``, is not installed.
        ValueError: an argument outside its range, or a file of another form.

    Source: Fernandes, Vinagre and Cortez (2015), UCI, Online News Popularity (CC BY 4.0).
    """
    days = [f"weekday_is_{day}" for day in _DAYS]
    table = _csv(path, ("url", "timedelta", "is_weekend", "shares", *days))
    columns = [name for name in table.columns if name not in {"url", "timedelta", "is_weekend", "shares", *days}]
    every = Domain(table[columns].to_numpy(float), np.log1p(table.shares.to_numpy(float)), tuple(columns))
    return split(every, table["weekday_is_sunday"].to_numpy(float) > 0, records, seed)


def slices(
    path: FilePath, *, patients: Sequence[int] | None = None, records: tuple[int, int] = (7803, 1077), seed: int = 0
) -> Pair:
    """Load positions of CT slices along the body, with 384 features, and with some patients' slices private.

    The unit of privacy is one slice, not a patient. Slices of one patient are similar.

    Args:
        path: of slice_localization_data.csv, with its header: patientId, value0 to value383, reference.
        patients: the target patients' identifiers; default the multiples of 30. The paper does not say which.
        records: (m, n).
        seed: of the choice of records.

    Raises:
        FileNotFoundError: no such file.
        ImportError: pandas, of the extra ``data``, is not installed.
        ValueError: an argument outside its range, or a file of another form.

    Source: Graf et al. (2011), UCI, Relative Location of CT Slices on Axial Axis (CC BY 4.0).
    """
    names = tuple(f"value{k}" for k in range(_SLICE))
    table = _csv(path, ("patientId", *names, "reference"))
    patient = table.patientId.to_numpy()
    private = patient % 30 == 0 if patients is None else np.isin(patient, [whole("patients", p, 0) for p in patients])
    return split(
        Domain(table[list(names)].to_numpy(float), table.reference.to_numpy(float), names), private, records, seed
    )


def _one_to(name: str, value: int, most: int) -> None:
    if whole(name, value) > most:
        raise ValueError(f"{name}: expected one of 1 to {most}, got {value}")


def _table(path: FilePath, width: int, form: str) -> FloatArray:
    """Read a table of numbers separated by blanks. Raises ValueError for another width."""
    try:
        table = np.loadtxt(_there(path), ndmin=2)
    except ValueError:
        table = np.zeros((0, 0))
    if table.shape[1] != width:
        raise ValueError(f"path: expected {form}, got something else in {os.fspath(path)!r}")
    return table


def _csv(path: FilePath, columns: Sequence[str]) -> Any:
    """Read a CSV file with at least these columns; blanks around their names are dropped."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("this file needs pandas: install the extra 'data' (pip install 'mpmtl-prob[data]')") from None
    table = pd.read_csv(_there(path), low_memory=False).rename(columns=str.strip)
    if absent := [name for name in columns if name not in table.columns]:
        raise ValueError(
            f"path: expected the columns {absent[:3]} in {os.fspath(path)!r}, got {len(table.columns)} others"
        )
    return table


def _lines_of_gas(file: Path) -> FloatArray:
    """Parse a batch: gas, concentration and the sensors' readings, one row per line."""
    rows = []
    for number, line in enumerate(_there(file).read_text().splitlines(), 1):
        first, *readings = line.split()
        try:
            values = [float(word.split(":")[1]) for word in readings]
            gas, concentration = map(float, first.split(";"))
        except (ValueError, IndexError):
            values = []
        if len(values) != _SENSED:
            raise ValueError(
                f"path: expected 'gas;concentration 1:number ... {_SENSED}:number' in line {number} of {str(file)!r}"
            )
        rows.append([gas, concentration, *values])
    return np.array(rows).reshape(-1, 2 + _SENSED)


def _there(path: FilePath) -> Path:
    if not Path(path).is_file():
        raise FileNotFoundError(f"path: no file {os.fspath(path)}")
    return Path(path)
