"""Tasks on disk: more rows than fit in memory, read in parts of whole tasks (out of core)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from tqdm.auto import tqdm

from mpmtl_prob._util.checks import whole
from mpmtl_prob.data.cells import check_labels, label_text
from mpmtl_prob.data.columns import check_columns, chosen, numeric_columns, task_labels
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.observations import of_every_row
from mpmtl_prob.data.tasks import TaskData

_ROWS = 2**13  # rows of a parquet file that are read at a time
_BUFFER = 2**18  # bytes of a column's pages that are buffered


class Part(NamedTuple):
    """Part of the tasks, on disk.

    Attributes:
        name: name for errors, such as the file's.
        tasks: names of the tasks, in the order in which they are read.
        features: names of the features in this part.
        read: function that reads the rows; it can be pickled for another process.
        scaling: as in :class:`TaskData`, "unit_variance" for a table in a parquet file.
    """

    name: str
    tasks: tuple[Hashable, ...]
    features: tuple[Hashable, ...]
    read: Callable[[], TaskData]
    scaling: str = "pareto"

    def load(self) -> TaskData:
        """Read the rows. Raises ValueError, with the part's name, for rows that :class:`TaskData` refuses."""
        try:
            tasks = self.read()
        except ValueError as error:
            raise ValueError(f"shards: {self.name}: {error}") from error
        if (tasks.tasks, tasks.features) != (self.tasks, self.features):
            raise ValueError(f"shards: {self.name}: other tasks or features than when it was opened")
        return tasks


@dataclass(frozen=True, eq=False, repr=False)
class TaskShards:
    """m tasks on disk with d common features, in parts; iterating gives the :class:`TaskData` of one part after another.

    :func:`mpmtl_prob.release` accepts it in the place of a :class:`TaskData`, and makes the same release, bit for bit,
    however the tasks are divided into parts: a message depends on its own task's rows only, and the sum of their second
    moments is exact. Opening it reads names, but no rows. The names and features are public. A task may not be in two
    parts, as its data would then count as two tasks and be half as well protected.

    Attributes:
        parts: in the order in which they are read.
        workers: number of processes that work on parts at the same time, each with one part in memory. With more than one, a
            script needs ``if __name__ == "__main__"``.
        progress_bar: show one while parts are worked on.
        intercept: True if the last feature is every task's own intercept.

    Raises:
        ValueError: no parts, parts with different features, or a task in two parts, also by different spellings of its name.
    """

    parts: tuple[Part, ...]
    workers: int = 1
    progress_bar: bool = True
    intercept: bool = False

    def __post_init__(self) -> None:
        whole("workers", self.workers)
        if not self.parts:
            raise ValueError("shards: expected at least one part with tasks, got none")
        if other := next((part for part in self.parts if part.features != self.features), None):
            raise ValueError(
                f"shards: {other.name}: expected the features of {self.parts[0].name}, {list(self.features)}, "
                f"got {list(other.features)}"
            )
        if other := next((part for part in self.parts if part.scaling != self.scaling), None):
            raise ValueError(f"shards: {other.name}: expected scaling {self.scaling!r} as in {self.parts[0].name}")
        count = Counter(label_text(task) for task in chain.from_iterable(part.tasks for part in self.parts))
        if len(count) < self.num_tasks:
            where = [part.name for part in self.parts if any(count[label_text(task)] > 1 for task in part.tasks)]
            raise ValueError(f"shards: expected every task in one part, got tasks in several, among them {where[:4]}")

    @classmethod
    def from_parquet(
        cls,
        folder: str | os.PathLike[str],
        *,
        task: str,
        target: str,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        intercept: bool = False,
        exposure: str | None = None,
        weights: str | None = None,
        workers: int = 1,
        progress_bar: bool = True,
    ) -> Self:
        """Open a folder as one part per file ``*.parquet``; needs pyarrow, from the extra ``shards``.

        Args:
            folder: folder of the files.
            task: as in :meth:`TaskData.from_pandas`, like the next four.
            target: the column to predict.
            features: feature columns; default every other column of each file.
            exclude: columns that are not features.
            intercept: give every task an intercept of its own.
            exposure: the column of :meth:`TaskData.with_exposure`, which is not a feature.
            weights: the column of :meth:`TaskData.with_weights`, which is not a feature.
            workers: number of processes.
            progress_bar: show one.

        Raises:
            ImportError: pyarrow is not installed.
            ValueError: a missing column, and as for any :class:`TaskShards`.
        """
        try:
            from pyarrow import parquet  # optional, and slow to import
        except ImportError:
            raise ImportError("parquet files need pyarrow: pip install 'mpmtl-prob[shards]'") from None

        extra_columns = {
            name: given for name, given in (("exposure", exposure), ("weights", weights)) if given is not None
        }
        parts, types = [], {}
        for path in sorted(Path(folder).glob("*.parquet")):
            schema = parquet.read_schema(path)
            index = (schema.pandas_metadata or {}).get("index_columns", [])  # pandas stored row numbers here
            columns = [c for c in schema.names if c not in index or c in (task, target, *extra_columns.values())]
            feature_columns = tuple(
                map(str, chosen(columns, (task, target, *extra_columns.values()), features, exclude))
            )
            further = ((argument, [name]) for argument, name in extra_columns.items())
            for argument, named in (("task", [task]), ("target", [target]), ("features", feature_columns), *further):
                if missing := [c for c in named if c not in columns]:
                    raise ValueError(f"{argument}: no column {missing[0]!r} in {path.name}, among its {len(columns)}")
            types[path.name] = _label_type(schema.field(task).type)
            names = _names(path, task)
            check_labels("task", names)
            read = partial(_parquet, str(path), task, target, feature_columns, intercept, extra_columns)
            parts.append(
                Part(
                    path.name,
                    tuple(names),
                    (*feature_columns, NAME) if intercept else feature_columns,
                    read,
                    scaling="unit_variance",
                )
            )
        if other := next((name for name, kind in types.items() if kind != next(iter(types.values()))), None):
            first, kind = next(iter(types.items()))
            raise ValueError(
                f"task: expected one type of the column {task!r} in all files, got {types[other]} in {other} and {kind} in "
                f"{first}; the same task might be spelled in two ways"
            )
        return cls(tuple(parts), workers, progress_bar, intercept)

    @classmethod
    def from_xarray(
        cls,
        path: str | os.PathLike[str],
        *,
        task: str = "task",
        target: str = "y",
        features: str = "X",
        per_part: int = 1000,
        workers: int = 1,
        progress_bar: bool = True,
    ) -> Self:
        """Open one store of xarray in parts: NetCDF or, with the package zarr, Zarr.

        Args:
            path: path of the store, whose variables are as in :meth:`TaskData.from_xarray`, like the next three. The rows
                of a task have to be contiguous.
            task: the variable with the task of every row.
            target: the variable to predict.
            features: the variable of features.
            per_part: number of tasks in a part.
            workers: number of processes.
            progress_bar: show one.

            Raises:
                ValueError: a missing variable, rows of a task that are not contiguous, and as for any :class:`TaskShards`.
        """
        import xarray as xr  # with pandas, nearly a second to import

        whole("per_part", per_part)
        with xr.open_dataset(path) as data:
            for argument, name in (("task", task), ("target", target), ("features", features)):
                if name not in data.variables:
                    raise ValueError(f"{argument}: no variable {name!r} in the store; it has {list(data.variables)}")
            row, labels = str(data[target].dims[0]), task_labels(data[task].values)
            first = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
            names, column = labels[first].tolist(), next(str(dim) for dim in data[features].dims if dim != row)
            columns = tuple(data[column].values.tolist() if column in data.coords else range(data.sizes[column]))
        if len(set(names)) < len(names):
            raise ValueError(f"task: expected the rows of a task one after another in {os.fspath(path)!r}")
        check_labels("task", names)
        parts, edges = [], np.append(first, len(labels)).tolist()
        for begin in range(0, len(names), per_part):
            of_part = tuple(names[begin : begin + per_part])
            rows = edges[begin], edges[begin + len(of_part)]
            read = partial(_stored, os.fspath(path), row, rows, {"task": task, "target": target, "features": features})
            parts.append(Part(f"rows {rows[0]} to {rows[1]}", of_part, columns, read))
        return cls(tuple(parts), workers, progress_bar)

    @property
    def num_tasks(self) -> int:
        """Number of tasks, m."""
        return sum(len(part.tasks) for part in self.parts)

    @property
    def features(self) -> tuple[Hashable, ...]:
        """Names of the features, d of them."""
        return self.parts[0].features

    @property
    def scaling(self) -> str:
        """Default scaling of features in messages, as in :class:`TaskData`."""
        return self.parts[0].scaling

    @property
    def slopes(self) -> tuple[Hashable, ...]:
        """Features that a message is about: all but an intercept, which stays with its data owner."""
        return self.features[: len(self.features) - self.intercept]

    def __iter__(self) -> Iterator[TaskData]:
        return (part.load() for part in self.parts)

    def each[T](self, function: Callable[[TaskData], T]) -> Iterator[T]:
        """Yield a function's results for all parts, in any order; with several workers it has to be picklable."""
        work = partial(_worked, function)
        with tqdm(total=self.num_tasks, unit="task", disable=not self.progress_bar) as bar:
            if self.workers == 1:
                for part in self.parts:
                    yield work(part)
                    bar.update(len(part.tasks))
                return
            # Processes are spawned, as a fork does not copy the threads of JAX.
            pool = ProcessPoolExecutor(min(self.workers, len(self.parts)), get_context("spawn"))
            try:
                running = {pool.submit(work, part): len(part.tasks) for part in self.parts}
                for done in as_completed(running):
                    yield done.result()
                    bar.update(running[done])
            finally:
                pool.shutdown(cancel_futures=True)

    def __repr__(self) -> str:
        return f"TaskShards({len(self.parts)} parts, {self.num_tasks} tasks, {len(self.features)} features)"


def _worked[T](function: Callable[[TaskData], T], part: Part) -> T:
    return function(part.load())


def _label_type(kind: Any) -> str:
    """Return an Arrow type in words, the same for plain, large and dictionary-encoded columns with the same values."""
    return str(getattr(kind, "value_type", kind)).removeprefix("large_")


def _names(path: Path, task: str) -> list[Any]:
    """Return the names of the tasks in a parquet file, in the order of their first rows."""
    from pyarrow import parquet

    names = dict[Any, None]()
    with parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
        for _, batch in _batches(file, task):
            names |= dict.fromkeys(batch.unique().to_pylist())
    return list(names)


def _parquet(
    path: str, task: str, target: str, features: tuple[str, ...], intercept: bool, extra_columns: Mapping[str, str]
) -> TaskData:
    """Read the rows of one file, a column and a few rows at a time, so that they are in memory only once."""
    from pyarrow import parquet

    # Columns are read as they are needed: pages that were read ahead would need as much memory as the rows.
    with parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
        every = [name for name in file.schema_arrow.names if name in (task, target, *features, *extra_columns.values())]
        check_columns(every, task, target, features, extra_columns)
        number, known = file.metadata.num_rows, dict[Any, int]()
        place = np.empty(number, dtype=np.int64)
        for now, batch in _batches(file, task):
            # Converted by Arrow, as the names were when the file was opened; pandas changes some types.
            place[now] = [known.setdefault(name, len(known)) for name in batch.to_pylist()]
        names = np.fromiter(known, dtype=object, count=len(known))
        task_labels(names if None not in known else names[place])
        X, y = np.empty((number, len(features))), np.empty(number)
        columns = [("features", name, X[:, j]) for j, name in enumerate(features)]
        further = {argument: np.empty(number) for argument in extra_columns}
        others = [(argument, name, further[argument]) for argument, name in extra_columns.items()]
        for argument, name, column in (*columns, ("target", target, y), *others):
            for now, batch in _batches(file, name):
                column[now] = numeric_columns(argument, {name: batch.to_pandas()}, [name], names[place[now]])[:, 0]
    tasks = replace(TaskData._of_places(X, y, list(known), place, features or None, own=True), scaling="unit_variance")
    del X, y
    if further:
        order, counts = np.argsort(place, kind="stable"), tasks.row_counts
        arrays: dict[str, Any] = {name: of_every_row(name, flat[order], counts) for name, flat in further.items()}
        tasks = replace(tasks, **arrays)
    return tasks.with_intercept() if intercept else tasks


def _batches(file: Any, column: str) -> Iterator[tuple[slice, Any]]:
    """Yield a column of a parquet file, a few rows at a time, with their positions."""
    at = 0
    for batch in file.iter_batches(_ROWS, columns=[column]):
        yield slice(at, at + len(batch)), batch.column(0)
        at += len(batch)


def _stored(path: str, row: str, rows: tuple[int, int], names: dict[str, str]) -> TaskData:
    import xarray as xr

    with xr.open_dataset(path) as data:
        return TaskData.from_xarray(data.isel({row: slice(*rows)}).load(), **names)
