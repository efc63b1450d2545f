"""Rows of a private table, converted for a study's model, with errors that reveal no cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.cells import cells_of, frame_columns, label_text
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.schema.columns import Read, is_empty, text_of
from mpmtl_prob.schema.table import StudyTable

_SHOWN = 5


class Problem(NamedTuple):
    """Problem of one kind in the cells of one column."""

    column: str
    kind: str
    rows: NDArray[np.int64]
    advice: str

    def words(self, number: int, row: str) -> str:
        """Describe the problem in a line, without the content of any cell."""
        return (
            f"{self.column}: {len(self.rows)} of {number} {plural(row)}: {self.kind} (the first is row {self.rows[0] + 1}); "
            f"{self.advice}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class StudyRows:
    """Rows of one participant, converted for the model.

    Attributes:
        participant: the participant's id.
        X: design matrix, (n, k), without the intercept.
        y: targets, (n,); NaN if targets were not needed.
        exposure: exposures of counts, (n,), also for prediction; ones if the study has none.
        kept: positions of the rows in the table, (n,).
        places: positions of all rows of this participant, with those that were dropped.
        told: notes for the data owner, in sentences.
    """

    participant: str
    X: FloatArray
    y: FloatArray
    exposure: FloatArray
    kept: NDArray[np.int64]
    places: NDArray[np.int64]
    told: tuple[str, ...]

    def __repr__(self) -> str:
        return f"StudyRows({len(self.kept)} rows of {self.participant!r})"

    def tasks(self, schema: StudyTable) -> TaskData:
        """Return the rows as one task. Raises ValueError if no row is left."""
        return _as_tasks(schema, [self])


def task_data(schema: StudyTable, frame: Any, participant: str | Sequence[str] | None) -> TaskData:
    """Convert a table to tasks, as :meth:`mpmtl_prob.Schema.tasks` does."""
    columns = _columns(schema, frame, targets=True)
    known = participant is not None
    if participant is None:
        participant = list(dict.fromkeys(_ids(schema, columns)))
    ids: list[str | None] = [participant] if isinstance(participant, str) else [*participant]
    if schema.participants and not known and (others := set(ids) - {None, *schema.participants}):
        raise ValueError(
            f"{schema.task}: expected the study's {len(schema.participants)} participants, got {len(others)} other names"
        )
    parts = [_of_one(schema, columns, name, schema.participants, targets=True) for name in ids or [None]]
    return _as_tasks(schema, parts)


def example_tasks(schema: StudyTable, frame: Any) -> TaskData:
    """Convert a table to tasks without targets, whatever their names; without a column of them the table is one task.

    Raises:
        ValueError: missing columns, or cells that the study does not allow.
    """
    columns = _columns(schema, frame, targets=False)
    names: list[str] = list(dict.fromkeys(_ids(schema, columns))) or ["example"]
    return _as_tasks(schema, [_of_one(schema, columns, name, (), targets=False) for name in names])


def read_rows(
    schema: StudyTable, frame: Any, participant: str | None = None, *, targets: bool = True, newcomer: bool = False
) -> StudyRows:
    """Convert the rows of one participant.

    Args:
        schema: the study's schema.
        frame: a data frame of any kind that narwhals reads.
        participant: the participant's id; default the only one in the table.
        targets: True if targets are needed.
        newcomer: True if it need not be one of the study's participants.

    Raises:
        ValueError: missing columns, rows of several participants, or cells that the study does not allow.
    """
    known = () if newcomer else schema.participants
    return _of_one(schema, _columns(schema, frame, targets=targets), participant, known, targets=targets)


def _as_tasks(schema: StudyTable, parts: Sequence[StudyRows]) -> TaskData:
    if without_rows := [part.participant for part in parts if not len(part.kept)]:
        raise ValueError(
            f"frame: expected rows of every {schema.task} that the study keeps, got none of {without_rows[0]!r}"
        )
    names, ids = [column.name for column in schema.design.built], [part.participant for part in parts]
    targets = None if any(np.isnan(part.y).any() for part in parts) else [part.y for part in parts]
    tasks = TaskData.from_lists([part.X for part in parts], targets, tasks=ids, features=names).with_intercept()
    return tasks if schema.target.exposure is None else tasks.with_exposure([part.exposure for part in parts])


def _columns(schema: StudyTable, frame: Any, *, targets: bool) -> dict[str, Any]:
    """Return the table's columns by name. Raises ValueError if one that the study needs is missing, or there twice."""
    cells_by_name = [(label_text(name), cells_of(column)) for name, column in frame_columns(frame)]
    names = [name for name, _ in cells_by_name]
    needed = [*schema.design.used, *(schema.target.used if targets else schema.target.used[1:])]
    needed += [schema.person] if targets and schema.person is not None else []
    if missing := [name for name in needed if name not in names]:
        # The table's names are not shown: in a table without a header they are its first record.
        raise ValueError(
            f"columns: expected {', '.join(needed)}, got none called {' or '.join(missing)} among {len(names)}; rename "
            "the table's columns to what the study's file calls them"
        )
    if twice := [name for name in (*needed, schema.task) if names.count(name) > 1]:
        raise ValueError(
            f"columns: expected {twice[0]!r} once, got it {names.count(twice[0])} times; take out the others"
        )
    return dict(cells_by_name)


def _ids(schema: StudyTable, columns: dict[str, Any]) -> list[str]:
    """Return the participant of every row; empty if the table has no such column."""
    if schema.task not in columns:
        return []
    cells = list(columns[schema.task])
    if empty := [i for i, cell in enumerate(cells) if is_empty(cell)]:
        raise ValueError(
            f"{schema.task}: {len(empty)} of {len(cells)} {plural(schema.row)} have none, the first is row {empty[0] + 1}"
        )
    return [text_of(cell) for cell in cells]


def _of_one(
    schema: StudyTable, columns: dict[str, Any], participant: str | None, known: Sequence[str], *, targets: bool
) -> StudyRows:
    first = columns[(*schema.design.used, schema.target.column)[0]]
    ids, number = _ids(schema, columns), len(list(first))
    who, places = _whose(schema.task, known, ids, number, participant)
    is_own = np.isin(np.arange(number), places)

    def pick(name: str) -> list[Any]:
        return [cell for cell, own in zip(columns[name], is_own, strict=True) if own]

    told = []
    if len(places) < number:
        told.append(f"{number - len(places)} of {number} rows are of others, and are left out")
    if targets and schema.person is not None:
        _check_persons(schema, pick(schema.person))
    cells = _Cells(schema, len(places), places)
    for name in schema.design.used:
        cells.column(name, schema.columns[name], schema.columns[name].read(pick(name), schema.empty))
    outcome = schema.target
    y, exposure = np.full(len(places), np.nan), np.ones(len(places))
    if targets:
        y = outcome.numbers(cells.target(outcome.read(pick(outcome.column), schema.empty)))
    if outcome.exposure is not None:
        name = outcome.exposure.name
        cells.column(name, outcome.exposure, outcome.exposure.read(pick(name), schema.empty))
        exposure = cells.values[name]
    cells.refuse()
    X = schema.design.rows(cells.values, cells.absent, len(places))
    keep = ~cells.dropped
    _check_built(schema, X[keep], places[keep])
    told += cells.told
    return StudyRows(who, X[keep], y[keep], exposure[keep], places[keep], places, tuple(told))


class _Cells:
    """Converted cells of one participant, with their problems."""

    def __init__(self, schema: StudyTable, number: int, places: NDArray[np.int64]) -> None:
        self.schema, self.number, self.places = schema, number, places
        self.values: dict[str, FloatArray] = {}
        self.absent: dict[str, FloatArray] = {}
        self.dropped = np.zeros(number, dtype=bool)
        self.problems: list[Problem] = []
        self.told: list[str] = []

    def column(self, name: str, column: Any, read: Read) -> None:
        """Add a column."""
        self._judge(name, read, column.refused())
        self.values[name], dropped, empty = column.resolved(read)
        self.absent[name] = empty.astype(float)
        self._drop(name, dropped)

    def target(self, read: Read) -> FloatArray:
        """Add the target, and return its values."""
        outcome = self.schema.target
        self._judge(outcome.column, read, outcome.refused())
        values, dropped, _ = outcome.values.resolved(read)
        self._drop(outcome.column, dropped)
        return values

    def _judge(self, name: str, read: Read, refused: dict[str, str]) -> None:
        for kind, advice in refused.items():
            if len(rows := np.flatnonzero(read.problems == kind)):
                self.problems.append(Problem(name, kind, self.places[rows], advice))

    def _drop(self, name: str, rows: NDArray[Any]) -> None:
        self.dropped |= rows
        if rows.any():
            self.told.append(
                f"{int(rows.sum())} of {self.number} {plural(self.schema.row)} are dropped for their {name}"
            )

    def refuse(self) -> None:
        """Raise ValueError with all problems, if there are any."""
        if self.problems:
            lines = [problem.words(self.number, self.schema.row) for problem in self.problems]
            raise ValueError("rows: expected cells as the study's file says:\n  " + "\n  ".join(lines))


def _whose(
    task: str, known: Sequence[str], ids: list[str], number: int, participant: str | None
) -> tuple[str, NDArray[np.int64]]:
    """Return the participant, and the positions of its rows. Raises ValueError if they are not clear."""
    if participant is not None:
        who = label_text(participant)
        if known and who not in known:
            raise ValueError(f"participant: expected one of the study's {len(known)}, got {who!r}")
        if not ids:
            return who, np.arange(number)
        places = np.flatnonzero(np.array(ids, dtype=object) == who)
        if number and not len(places):
            others = [name for name in dict.fromkeys(ids) if name in known]
            got = f"those of {', '.join(others[:_SHOWN])}" if others else "others"
            raise ValueError(f"{task}: expected rows of {who!r}, got {got}; is it another participant's table?")
        return who, places
    there = list(dict.fromkeys(ids))
    if len(there) != 1:
        got = f"those of {len(there)}" if there else f"no column {task!r} that says whose they are"
        raise ValueError(f"participant: expected rows of one {task}, got {got}; say which one is meant (--participant)")
    if known and there[0] not in known:
        raise ValueError(f"{task}: expected one of the study's {len(known)} participants, got another name")
    return there[0], np.arange(number)


def _check_persons(schema: StudyTable, cells: Sequence[Any]) -> None:
    """Raise ValueError if a person has several rows, as messages do not describe nested groups."""
    names = Counter(text_of(cell) for cell in cells if not is_empty(cell, schema.empty))
    if several := sum(count > 1 for name, count in names.items() if name not in schema.empty):
        raise ValueError(
            f"{schema.person}: expected one {schema.row} a person, got {several} persons with more: such rows are nested, "
            f"which no message describes; summarise them per person, or take the person as the {schema.task}"
        )


def _check_built(schema: StudyTable, X: FloatArray, places: NDArray[np.int64]) -> None:
    """Raise ValueError if a column of the design is not finite."""
    for built, column in zip(schema.design.built, X.T, strict=True):
        if len(rows := np.flatnonzero(~(np.abs(column) < 1e150))):
            raise ValueError(
                f"{built.name}: {len(rows)} of {len(column)} {plural(schema.row)}: no finite number (the first is row "
                f"{places[rows[0]] + 1}); give its columns a range in which it can be computed"
            )
