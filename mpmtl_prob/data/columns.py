"""Columns of a data frame, before tasks are made of it: the task, the target and the features."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.cells import as_numbers, cells_of, frame_columns, is_frame
from mpmtl_prob.data.padding import ENCODE


def chosen(
    every: Sequence[Hashable],
    others: Sequence[Hashable],
    features: Sequence[Hashable] | None,
    exclude: Sequence[Hashable] | None,
) -> list[Hashable]:
    """Return the feature columns: the named ones, or all that are neither other columns nor excluded.

    Args:
        every: names of all columns of the frame.
        others: the columns of tasks and targets.
        features: the columns that a user named; None for all.
        exclude: the columns that a user leaves excluded.

    Raises:
        ValueError: text in the place of a list of names; an excluded column that does not exist, is one of the others, or is
            among the features.
    """
    for argument, given in (("features", features), ("exclude", exclude)):
        if isinstance(given, str):
            raise ValueError(f"{argument}: expected a list of names, got the text {given!r}; write [{given!r}]")
    excluded = list(exclude or ())
    if missing := [name for name in excluded if name not in every]:
        raise ValueError(f"exclude: no column {missing[0]!r} among the frame's {len(every)}")
    if reserved := [name for name in excluded if name in others]:
        raise ValueError(
            f"exclude: expected columns that would be features, got {reserved[0]!r}, the task's or the target's"
        )
    if features is None:
        return [name for name in every if name not in (*others, *excluded)]
    if both := [name for name in features if name in excluded]:
        raise ValueError(f"exclude: expected none of the features that are named, got {both[0]!r} in both")
    return list(features)


def check_columns(
    every: Sequence[Hashable],
    task: Hashable,
    target: Hashable | None,
    features: Sequence[Hashable],
    others: Mapping[str, Hashable] | None = None,
) -> None:
    """Raise ValueError for a column that is missing, occurs twice, or is given two meanings.

    Args:
        every: names of all columns of the frame.
        task: the column of the tasks.
        target: the column of the targets, if any.
        features: the feature columns.
        others: further columns, by the names of the arguments that name them.
    """
    further = {argument: [name] for argument, name in (others or {}).items()}
    targets = [] if target is None else [target]
    for argument, names in (("task", [task]), ("target", targets), ("features", features), *further.items()):
        if missing := [name for name in names if name not in every]:
            # The message does not list the columns: in a table without a header they are the first record.
            advice = "; in Python, rows to predict alone take target=None" if argument == "target" else ""
            raise ValueError(f"{argument}: no column {missing[0]!r} among the frame's {len(every)}{advice}")
        if twice := [name for name in names if every.count(name) > 1 or list(names).count(name) > 1]:
            raise ValueError(f"{argument}: expected distinct columns, got {twice[0]!r} more than once")
    if task == target:
        raise ValueError(f"target: expected another column than that of the tasks, got {target!r} for both")
    known = [("task", task), *(("target", name) for name in targets)]
    for argument, (name,) in further.items():
        if taken := [kind for kind, other in known if other == name]:
            raise ValueError(f"{argument}: expected another column than that of the {taken[0]}, got {name!r} for both")
        known.append((argument, name))
    for kind, name in known:
        if name in features:
            raise ValueError(f"features: expected none that is the {kind}, got {name!r}")


def numeric_columns(
    argument: str, frame: Mapping[Hashable, Any], columns: Sequence[Hashable], task: NDArray[Any]
) -> NDArray[np.float64]:
    """Return columns of a frame as doubles, (rows, columns), with every cell read by itself.

    Args:
        argument: the name of the argument that chose them, for the error.
        frame: columns by name.
        columns: names of the columns to return.
        task: the task of every row, for the error.

    Raises:
        ValueError: a cell is not a finite number. The error names its column and its task, and shows no value.
    """
    values = np.empty((len(task), len(columns)))
    for j, name in enumerate(columns):
        values[:, j] = as_numbers(frame[name])
        if len(bad := np.flatnonzero(~np.isfinite(values[:, j]))):
            (first,) = task[bad[:1]].tolist()
            raise ValueError(
                f"{argument}: expected finite numbers, got others in {name!r}, the first of task {first!r}; {ENCODE}"
            )
    return values


def task_labels(task: ArrayLike) -> NDArray[Any]:
    """Return the task of every row, as it was given. Raises ValueError for missing or unsortable labels."""
    task = cells_of(task)
    # A list becomes an array of objects: as an array of text it would turn nan into the text "nan".
    labels = np.asarray(task) if hasattr(task, "dtype") else np.asarray(task, dtype=object)
    if labels.dtype.kind == "O":
        import pandas as pd  # nearly a second to import

        absent = pd.isna(labels)
    else:
        absent = labels != labels  # true for nan and for NaT
    if missing := int(np.sum(absent)):
        raise ValueError(f"task: expected a task for every row, got {missing} without")
    if labels.dtype.kind == "M":  # converted to Python's dates and times, so that labels are Python objects
        short = labels.astype("datetime64[us]")
        labels = short.astype(object) if np.array_equal(short, labels) else np.datetime_as_string(labels).astype(object)
    try:
        np.unique(labels)
    except TypeError:
        raise ValueError("task: expected labels of one kind, such as numbers or text, got several") from None
    return labels


def by_appearance(task: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the tasks in the order of their first appearance, and every row's position among them, (n,)."""
    labels, first, code = np.unique(task, return_index=True, return_inverse=True)
    order = np.argsort(first)
    tasks = [label.item() if isinstance(label, np.generic) else label for label in labels[order]]
    return tasks, np.argsort(order)[code]


class Table(NamedTuple):
    """Columns of a data frame, converted to what tasks are made of.

    Attributes:
        X: features, (n, d).
        y: targets, (n,); None if there are none.
        task: labels, (n,).
        features: names, d of them.
        further: other columns, (n,), by the arguments that named them.
    """

    X: FloatArray
    y: FloatArray | None
    task: NDArray[Any]
    features: list[Any]
    further: dict[str, FloatArray]

    def __repr__(self) -> str:
        return shown(self)


def of_frame(
    frame: Any,
    task: Hashable,
    target: Hashable | None,
    features: Sequence[Hashable] | None,
    exclude: Sequence[Hashable] | None,
    further: Mapping[str, Hashable],
) -> Table:
    """Read the columns of a data frame that tasks are made of, as numbers.

    Args:
        frame: a data frame of any kind that narwhals knows.
        task: the column of the tasks.
        target: the column of the targets, if any.
        features: the feature columns; None for all others.
        exclude: columns that are left out.
        further: columns that are not features, by the names of the arguments that name them.

    Raises:
        ValueError: not a data frame, a column that is missing or has two meanings, or a cell that is not a number.
    """
    if not is_frame(frame):
        raise ValueError(f"frame: expected a data frame, of pandas, polars or Arrow, got {type(frame).__name__}")
    named = frame_columns(frame)
    every = [name for name, _ in named]
    columns = chosen(every, (task, *([] if target is None else [target]), *further.values()), features, exclude)
    check_columns(every, task, target, columns, further)
    table = dict(named)
    labels = task_labels(table[task])

    def numbers(argument: str, names: Sequence[Hashable]) -> NDArray[np.float64]:
        return numeric_columns(argument, table, names, labels)

    X = numbers("features", columns)
    y = None if target is None else numbers("target", [target])[:, 0]
    return Table(X, y, labels, columns, {name: numbers(name, [column])[:, 0] for name, column in further.items()})
