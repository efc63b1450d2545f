"""Change the type, text, unit or container of one record's or one task's cells, and compare all that is public.

It is compared in bits: what is read of all other records or tasks, their messages, their number, the names of features,
errors and warnings. A pair of tables of which one is refused by a named error has held: nothing is published then.
"""

from __future__ import annotations

import decimal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import mpmtl_prob as mp
from attacks import Case
from mpmtl_prob.adaptation import AdaSSP, Domain
from mpmtl_prob.adaptation.data.domain import pair
from mpmtl_prob.releases import message, terms

RECORD = "one record's cell decides how other records are read (private tables in adaptation)"
RAGGED = "one record with too few or too many cells is an error, or changes others"
RELEASED = "a release of adaptation tells one record's odd label from the other records' statistics"
TASK = "one task's cells decide how other tasks' rows are read (frames, arrays, lists, CSV and parquet files)"
ALONE = "a message is not the same in bits alone, at its owner's, as among others, at the curator's"
NAMES = "one task becomes two because its name is spelled in two ways (tables, shards of one folder)"
ERRORS = "an error or a warning shows a private value, or tells of one record"
WAYS = (RECORD, RAGGED, RELEASED, TASK, ALONE, NAMES, ERRORS)

SECRET = "4711 Main Street"
#: What a column may hold before anybody changes a cell, n values each.
COLUMNS: dict[str, Callable[[np.random.Generator, int], list[Any]]] = {
    "floats": lambda rng, n: rng.standard_normal(n).tolist(),
    "single precision": lambda rng, n: list(rng.standard_normal(n).astype(np.float32)),
    "half precision": lambda rng, n: list(rng.standard_normal(n).astype(np.float16)),
    "whole numbers": lambda rng, n: rng.integers(-5, 5, n).tolist(),
    "large whole numbers": lambda rng, n: (2**53 + rng.integers(0, 99, n)).tolist(),
    "truth values": lambda rng, n: (rng.random(n) < 0.5).tolist(),
    "durations": lambda rng, n: [timedelta(days=int(k)) for k in rng.integers(200, 300, n)],
    "NumPy's durations": lambda rng, n: list(rng.integers(200, 300, n).astype("m8[ns]")),
    "dates": lambda rng, n: [datetime(2020, 1, 1) + timedelta(days=int(k)) for k in rng.integers(0, 300, n)],
    "pandas' times": lambda rng, n: list(pd.Timestamp(2020, 1, 1) + pd.to_timedelta(rng.integers(0, 300, n), "D")),
    "numbers as text": lambda rng, n: [f"{v:.17g}" for v in rng.standard_normal(n)],
    "decimals": lambda rng, n: [decimal.Decimal(str(v)) for v in rng.standard_normal(n)],
    "complex": lambda rng, n: [complex(v) for v in rng.standard_normal(n)],
}
#: What one record's cell may become.
CELLS: list[Any] = [
    "unknown", "", "1.5", " 7 ", "1_000", "0x10", "True", "nan", "inf", "１２", "1,5", SECRET, None, pd.NA, pd.NaT, np.nan,
    np.inf, True, 7, 2**70, -(10**400), 0.1, np.float32(0.1), np.float16(0.1), np.longdouble("0.1"), 1 + 2j, np.complex64(1),
    b"1", decimal.Decimal("0.1"), Fraction(1, 3), timedelta(days=3), np.timedelta64(3, "ns"), np.timedelta64(3, "D"),
    date(2020, 1, 2), datetime(2020, 1, 2), np.datetime64("2020-01-02"), pd.Timestamp("2020-01-02", tz="UTC"),
    pd.Timedelta("3D"), pd.Period("2020"), [1.0], {}, (), object(), np.ma.masked,
]  # fmt: skip


def _objects(cells: list[list[Any]]) -> np.ndarray:
    table = np.empty((len(cells), len(cells[0])), dtype=object)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            table[i, j] = cell
    return table


def _frame(cells: list[list[Any]]) -> pd.DataFrame:
    return pd.DataFrame({f"c{j}": pd.Series([row[j] for row in cells], dtype=object) for j in range(len(cells[0]))})


#: Containers that a table of cells may be in; each finds types as its users' tools do.
CONTAINERS: dict[str, Callable[[list[list[Any]]], Any]] = {
    "list of rows": lambda cells: [list(row) for row in cells],
    "array of objects": _objects,
    "array": lambda cells: np.array(cells) if len({type(c) for row in cells for c in row}) == 1 else _objects(cells),
    "frame of objects": _frame,
    "frame": lambda cells: pd.DataFrame({f"c{j}": [row[j] for row in cells] for j in range(len(cells[0]))}),
    "frame with inferred types": lambda cells: _frame(cells).infer_objects(),
    "frame of pandas' own types": lambda cells: _frame(cells).convert_dtypes(),
    "frame of categories": lambda cells: _frame(cells).astype("category"),
}


def _held(make: Callable[[Any], Any], compare: Callable[[Any, Any], bool], clean: Any, spoilt: Any) -> tuple[bool, str]:
    """Check that two neighbouring inputs look alike; an input that the user's own tools cannot build counts as alike."""
    outcomes = []
    for table in (clean, spoilt):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcomes.append(make(table))
            except ValueError as error:
                return SECRET not in str(error), f"{type(error).__name__}: {error}"
        if told := [str(warning.message) for warning in caught if "mpmtl_prob" in warning.filename]:
            return False, f"a warning: {told[0][:80]}"
    return compare(*outcomes), ""


def _tables(rng: np.random.Generator, container: str, kind: str, cell: Any, n: int = 6) -> tuple[Any, Any, int] | None:
    """Two tables that differ in one cell of one record, and which; None where the container cannot hold such cells."""
    columns = [COLUMNS[kind](rng, n), COLUMNS["floats"](rng, n)]
    clean = [list(row) for row in zip(*columns, strict=True)]
    changed = int(rng.integers(n))
    spoilt = [list(row) for row in clean]
    spoilt[changed][0] = cell
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return CONTAINERS[container](clean), CONTAINERS[container](spoilt), changed
    except Exception:  # of NumPy or pandas, on the user's side
        return None


def _features(others: np.ndarray, table: Any) -> np.ndarray:
    """Read the features of the other records."""
    return Domain(table, np.ones(6)).bounded(1e30, 1.0).X[others]


def _labels(others: np.ndarray, table: Any) -> np.ndarray:
    """Read the labels of the other records, which are the table's first column."""
    first = table.iloc[:, 0] if hasattr(table, "iloc") else [row[0] for row in table]
    return Domain(np.ones((6, 2)), first).bounded(1.0, 1e30).y[others]


def records(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Vary one record of a private table of adaptation: features and labels, every kind of cell and container."""
    for repetition in range(max(1, round(8 * effort))):
        for container in CONTAINERS:
            for kind in COLUMNS:
                cells = (
                    CELLS
                    if effort >= 0.5 or repetition
                    else [CELLS[i] for i in rng.permutation(len(CELLS))[:3]] + ["unknown"]
                )
                for cell in cells:
                    tables = _tables(rng, container, kind, cell)
                    if tables is None:
                        continue
                    clean, spoilt, changed = tables
                    others = np.arange(6) != changed
                    for what, read in (("feature", _features), ("label", _labels)):
                        held, why = _held(partial(read, others), np.array_equal, clean, spoilt)
                        # here an error tells of one record: it is as good as a value
                        yield Case(RECORD, held and not why, f"{what} of {kind}, {container}, {cell!r}. {why}")


def ragged(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Give one record another number of cells, or no cells at all, with a public source whose features are known."""
    rows: list[Any] = [[], [1.0], [1.0, 2.0, 3.0], [1.0, 2.0, SECRET], 7.0, None, "ab", SECRET, [[1.0, 2.0]], ["x"] * 9]
    for _ in range(max(1, round(40 * effort))):
        source = Domain(rng.standard_normal((9, 2)), rng.standard_normal(9))
        for row in rows:
            n = int(rng.integers(2, 7))
            X = rng.standard_normal((n, 2)).tolist()
            y = rng.standard_normal(n)
            changed = int(rng.integers(n))
            spoilt = [*X[:changed], row, *X[changed + 1 :]]
            others = np.arange(n) != changed
            read = lambda rows, y=y, source=source, others=others: pair(source, (rows, y))[1].X[others]
            held, why = _held(read, np.array_equal, X, spoilt)
            yield Case(RAGGED, held and not why, f"{row!r} among {n} rows. {why}")


def released(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Release a table whose labels are durations, and the same with one text among them."""
    n = 20
    source = Domain(rng.standard_normal((50, 2)), rng.standard_normal(50))
    for _ in range(max(1, round(20 * effort))):
        X = rng.standard_normal((n, 2))
        y = rng.integers(200, 300, n).astype("m8[D]")
        odd = y.astype(object)
        odd[int(rng.integers(n))] = "unknown"
        weights = []
        for labels in (y, odd):
            model = AdaSSP(epsilon=1.0, row_bound=3.0, target_bound=300.0, unsafe_seed=1, residuals=False)
            weights.append(model.fit(source, (X, labels)).coef_)
        # The noise is the same, and neither a duration nor a text is a number: so the two are equal.
        yield Case(RELEASED, np.array_equal(*weights), f"weights {weights[0]} and {weights[1]} with the same noise")


def _long(rng: np.random.Generator, kind: str, cell: Any, m: int) -> tuple[list[list[Any]], list[list[Any]], int]:
    """Rows (task, x0, x1, y) of m tasks, and the same with one cell of one task's changed."""
    sizes = rng.integers(2, 6, m)
    n = int(sizes.sum())
    task = np.repeat(np.arange(m), sizes)
    columns = [[f"t{i}" for i in task], COLUMNS[kind](rng, n), COLUMNS["floats"](rng, n), COLUMNS["floats"](rng, n)]
    clean = [list(row) for row in zip(*columns, strict=True)]
    spoilt = [list(row) for row in clean]
    at = int(rng.integers(n))
    spoilt[at][int(rng.integers(1, 4))] = cell
    return clean, spoilt, int(task[at])


NAMED = ["task", "x0", "x1", "y"]


def _csv(rows: list[list[Any]], folder: Path) -> mp.TaskData:
    """Read a table from a CSV file as the command line does."""
    from mpmtl_prob.cli.tasks import read_tasks

    path = folder / "table.csv"
    path.write_text("\n".join([",".join(NAMED), *(",".join(map(str, row)) for row in rows)]) + "\n")
    names = {"data": None, "csv": path, "task": "task", "target": "y", "features": NAMED[1:3], "exclude": None}
    names |= {"exposure": None, "weights": None}
    return read_tasks(type("Options", (), names | {"intercept": False})())


def _parquet(rows: list[list[Any]], folder: Path) -> mp.TaskData:
    path = folder / "parquet"
    path.mkdir(exist_ok=True)
    try:
        pd.DataFrame(rows, columns=NAMED).to_parquet(path / "part.parquet", index=False)
    except Exception as error:  # of Arrow, on the user's side
        raise ValueError("no such file") from error
    return next(iter(mp.TaskShards.from_parquet(path, task="task", target="y", progress_bar=False)))


def _rows(rows: list[list[Any]], folder: Path) -> mp.TaskData:
    return mp.TaskData.from_rows([row[1:3] for row in rows], [row[3] for row in rows], [row[0] for row in rows])


#: The entrances of tables of tasks.
ENTRANCES: dict[str, Callable[[list[list[Any]], Path], mp.TaskData]] = {
    "frame of objects": lambda rows, folder: mp.TaskData.from_pandas(
        pd.DataFrame(rows, columns=NAMED, dtype=object), task="task", target="y"
    ),
    "frame": lambda rows, folder: mp.TaskData.from_pandas(pd.DataFrame(rows, columns=NAMED), task="task", target="y"),
    "frame of pandas' own types": lambda rows, folder: mp.TaskData.from_pandas(
        pd.DataFrame(rows, columns=NAMED).convert_dtypes(), task="task", target="y"
    ),
    "rows": _rows,
    "CSV file": _csv,
    "parquet file": _parquet,
}


def _estimated(others: np.ndarray, rows: list[list[Any]]) -> np.ndarray:
    """Fit every task alone inside scikit-learn; return the other tasks' weights."""
    from mpmtl_prob.scikit import MultiTaskRegressor

    frame = pd.DataFrame([[int(row[0][1:]), *row[1:]] for row in rows], columns=NAMED)
    try:
        model = MultiTaskRegressor(task=0, fit_intercept=False).fit(frame[NAMED[:3]], frame["y"])
    except (TypeError, OverflowError) as error:  # of scikit-learn, about a column's type
        raise ValueError("refused") from error
    return np.asarray(model.fitted_.W)[:, others]


def tasks(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Change one task's cells, and compare the messages and rows of all others, and what is public of all."""
    with tempfile.TemporaryDirectory() as name:
        for _ in range(max(1, round(30 * effort))):
            for entrance, read in ENTRANCES.items():
                for kind in COLUMNS:
                    cell = CELLS[int(rng.integers(len(CELLS)))]
                    clean, spoilt, changed = _long(rng, kind, cell, m=4)
                    others = np.arange(4) != changed

                    def public(rows: Any, read: Any = read, others: Any = others) -> tuple[Any, ...]:
                        data = read(rows, Path(name))
                        V = message(data, terms(1.0, data.num_tasks, data.features))
                        own = [part for i in np.flatnonzero(others) for part in data.rows_of(int(i))]
                        return (
                            data.num_tasks,
                            data.features,
                            data.tasks,
                            V[:, others].tobytes(),
                            *(a.tobytes() for a in own),
                        )

                    held, why = _held(public, lambda a, b: a == b, clean, spoilt)
                    yield Case(TASK, held, f"{entrance}, {kind}, {cell!r}. {why}")
                    if entrance == "frame":
                        held, why = _held(partial(_estimated, others), np.array_equal, clean, spoilt)
                        yield Case(TASK, held, f"scikit-learn, {kind}, {cell!r}. {why}")


def alone(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Make one task's message alone and among others, from rows and from vectors, of any size and number of features."""
    for _ in range(max(6, round(1500 * effort))):
        d, m = int(rng.integers(1, 40)), int(rng.integers(2, 8))
        i = int(rng.integers(m))
        options = [{}, {"message": "clip", "clip": float(rng.uniform(0.1, 5))}][int(rng.integers(2))]
        W = rng.standard_normal((d, m)) * np.exp(3 * rng.standard_normal(m))
        if "clip" in options and d > 2:  # steps of the grid of the clip norm's length: its last bit decides
            half = rng.integers(1, 40, d - 1)
            steps = np.append(2 * half, np.sum(half**2) - 1)
            W = np.stack([rng.permutation(steps) for _ in range(m)], axis=1) / 4096
            options = {"message": "clip", "clip": float(np.sum(half**2) + 1) / 4096}
        agreed = terms(1.0, m, d, 1e-3, scaling="none", **options)
        same = np.array_equal(message(W, agreed)[:, i], message(W[:, [i]], agreed)[:, 0])
        yield Case(ALONE, same, f"vectors of {d} entries, {options or 'directions'}")
        if rng.random() < 0.15:
            rows = [rng.standard_normal((int(rng.integers(1, 30)), min(d, 8))) for _ in range(m)]
            y = [rng.standard_normal(len(x)) for x in rows]
            agreed = terms(
                1.0, m, min(d, 8), 1e-3, scaling=["pareto", "unit_variance", "none"][int(rng.integers(3))], **options
            )
            every = message(mp.TaskData.from_lists(rows, y), agreed)[:, i]
            single = message(mp.TaskData.from_lists([rows[i]], [y[i]]), agreed)[:, 0]
            yield Case(ALONE, np.array_equal(every, single), f"rows of {m} tasks, {options or 'directions'}")


SPELLINGS: list[tuple[Any, Any]] = [
    (7, "7"), ("7", " 7"), ("7", "7 "), (7, 7.0), ("Zoë", "Zoe\u0308"), (2**53, float(2**53)),
    (date(2020, 1, 2), "2020-01-02"),
    (np.datetime64("2020-01-02"), datetime(2020, 1, 2)), ("Ångström", "A\u030angstro\u0308m"), (np.int8(7), np.uint64(7)),
    (True, "True"), ("a\u00a0", "a"), (-3, "-3"),
]  # fmt: skip


def names(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Spell one task's name in two ways: in one table, or in two files of one folder; it must be one task, or refused."""
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(max(1, round(10 * effort))):
            for j, (one, other) in enumerate(SPELLINGS):
                X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
                labels = np.empty(6, dtype=object)
                labels[:] = [one, one, other, other, one, other]
                for entrance in ("lists", "rows"):
                    try:
                        if entrance == "lists":
                            parts = [X[:3], X[3:]], [y[:3], y[3:]]
                            m = mp.TaskData.from_lists(*parts, tasks=[one, other]).num_tasks
                        else:
                            m = mp.TaskData.from_rows(X, y, labels).num_tasks
                    except ValueError:
                        m = 1
                    yield Case(NAMES, m == 1, f"{entrance}: {one!r} and {other!r} are {m} tasks")
                files = Path(folder) / f"{repetition}-{j}"
                files.mkdir()
                for part, label in enumerate((one, other)):
                    frame = pd.DataFrame({"task": [label] * 3, "x": X[:3, 0], "z": X[:3, 1], "y": y[:3]})
                    frame.to_parquet(files / f"{part}.parquet", index=False)
                try:
                    m = mp.TaskShards.from_parquet(files, task="task", target="y", progress_bar=False).num_tasks
                except ValueError:
                    m = 1
                yield Case(NAMES, m == 1, f"parquet: {one!r} and {other!r} are {m} tasks")


def errors(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Give tables without a head, of other features and of odd numbers, and read every error and warning."""
    for _ in range(max(1, round(20 * effort))):
        source = pd.DataFrame(rng.standard_normal((9, 2)), columns=["age", "dose"])
        headless = pd.DataFrame(rng.standard_normal((5, 2)), columns=[SECRET, "0.25"])
        for private in (headless, headless.assign(more=1.0), headless.rename(columns={"0.25": "dose"})):
            try:
                pair((source, np.ones(9)), (private, np.ones(5)))
                told = ""
            except ValueError as error:
                told = str(error)
            yield Case(ERRORS, SECRET not in told, f"a table without a head: {told}")
        yield from _second_round(rng)


def _second_round(rng: np.random.Generator) -> Iterator[Case]:
    """Answer a second round with one task of extreme rows; nobody but its owner may be told."""
    import jax

    from mpmtl_prob.inference.owner.answers import posterior_draws

    with jax.enable_x64(True):
        rows = [rng.standard_normal((8, 3)) for _ in range(8)]
        y = [x @ np.ones(3) + rng.standard_normal(8) for x in rows]
        scaling = ["pareto", "unit_variance", "none"][int(rng.integers(3))]
        release = mp.release(mp.TaskData.from_lists(rows, y), 3.0, scaling=scaling)
        likelihood = ["gaussian", "bernoulli"][int(rng.integers(2))]
        for exponents in (rng.choice([-323.3, -310.0, -160.0, -150.0, 0.0, 149.0], 2), (-160.0, 149.0)):
            extreme = list(rows)
            extreme[4] = np.clip(rows[4] * 10.0 ** exponents[0], -1e149, 1e149)
            answers = list(y)
            answers[4] = np.clip(y[4] * 10.0 ** exponents[1], -1e149, 1e149)
            if likelihood == "bernoulli":
                answers = [np.where(v > 0, 1.0, -1.0) for v in answers]
            data = mp.TaskData.from_lists(extreme, answers)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                posterior_draws(data, likelihood=likelihood)(release)
            told = [str(warning.message) for warning in caught]
            what = f"a second round, {scaling}, {likelihood}, sizes 1e{exponents[0]:g} and 1e{exponents[1]:g}"
            yield Case(ERRORS, not told, f"{what}: {told[:1]}")


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Yield every attempt."""
    for way in (records, ragged, released, tasks, alone, names, errors):
        yield from way(rng, effort)
