"""Columns of a data frame of any kind before tasks are made of it: the task, the target and the features."""

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
    """Return the feature columns: those that are named, or all but the others and those that are excluded.

    Args:
        every: the names of the frame's columns.
        others: the columns of tasks and targets.
        features: those that a user named; None for all.
        exclude: those that a user leaves out.

    Raises:
        ValueError: text in the place of a list of names; an excluded column that is not there, is one of the others, or is
            among the features.
    """
    for argument, given in (("features", features), ("exclude", exclude)):
        if isinstance(given, str):
            raise ValueError(f"{argument}: expected a list of names, got the text {given!r}; write [{given!r}]")
    out = list(exclude or ())
    if missing := [name for name in out if name not in every]:
        raise ValueError(f"exclude: no column {missing[0]!r} among the frame's {len(every)}")
    if meant := [name for name in out if name in others]:
        raise ValueError(
            f"exclude: expected columns that would be features, got {meant[0]!r}, the task's or the target's"
        )
    if features is None:
        return [name for name in every if name not in (*others, *out)]
    if both := [name for name in features if name in out]:
        raise ValueError(f"exclude: expected none of the features that are named, got {both[0]!r} in both")
    return list(features)


def check_columns(
    every: Sequence[Hashable],
    task: Hashable,
    target: Hashable | None,
    features: Sequence[Hashable],
    others: Mapping[str, Hashable] | None = None,
) -> None:
    """Raise ValueError for columns that are not there, or there twice, or meant twice.

    Args:
        every: the names of the frame's columns.
        task: the column of the tasks.
        target: that of the targets, if any.
        features: those of the features.
        others: further columns, by the names of the arguments that say them.
    """
    further = {argument: [name] for argument, name in (others or {}).items()}
    targets = [] if target is None else [target]
    for argument, wanted in (("task", [task]), ("target", targets), ("features", features), *further.items()):
        if missing := [name for name in wanted if name not in every]:
            # not which it has: of a table without a head they are the first record
            advice = "; in Python, rows to predict alone take target=None" if argument == "target" else ""
            raise ValueError(f"{argument}: no column {missing[0]!r} among the frame's {len(every)}{advice}")
        if twice := [name for name in wanted if every.count(name) > 1 or list(wanted).count(name) > 1]:
            raise ValueError(f"{argument}: expected distinct columns, got {twice[0]!r} more than once")
    if task == target:
        raise ValueError(f"target: expected another column than that of the tasks, got {target!r} for both")
    known = [("task", task), *(("target", name) for name in targets)]
    for argument, (name,) in further.items():
        if meant := [kind for kind, other in known if other == name]:
            raise ValueError(f"{argument}: expected another column than that of the {meant[0]}, got {name!r} for both")
        known.append((argument, name))
    for kind, name in known:
        if name in features:
            raise ValueError(f"features: expected none that is the {kind}, got {name!r}")


def numeric_columns(
    argument: str, frame: Mapping[Hashable, Any], columns: Sequence[Hashable], task: NDArray[Any]
) -> NDArray[np.float64]:
    """Return columns of a frame as doubles, (rows, columns), every cell read by itself.

    Args:
        argument: the name of the argument that chose them, for the error.
        frame: the columns by their names.
        columns: which of them.
        task: the task of every row, for the error.

    Raises:
        ValueError: a cell that is no finite number; the error names its column and its task, and shows no value.
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
    """The task of every row, as it came. Raises ValueError where some rows have none, or labels cannot be sorted."""
    task = cells_of(task)
    # with the type of its own, since in an array made of a list of text nan is text
    found = np.asarray(task) if hasattr(task, "dtype") else np.asarray(task, dtype=object)
    if found.dtype.kind == "O":
        import pandas as pd  # nearly a second to import

        absent = pd.isna(found)
    else:
        absent = found != found  # nan, and no time
    if missing := int(np.sum(absent)):
        raise ValueError(f"task: expected a task for every row, got {missing} without")
    if found.dtype.kind == "M":  # as days or times of Python's, of which a list of labels is made
        short = found.astype("datetime64[us]")
        found = short.astype(object) if np.array_equal(short, found) else np.datetime_as_string(found).astype(object)
    try:
        np.unique(found)
    except TypeError:
        raise ValueError("task: expected labels of one kind, such as numbers or text, got several") from None
    return found


def by_appearance(task: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the tasks in the order in which they first appear, and the place of every row's among them, (n,)."""
    labels, first, code = np.unique(task, return_index=True, return_inverse=True)
    order = np.argsort(first)
    tasks = [label.item() if isinstance(label, np.generic) else label for label in labels[order]]
    return tasks, np.argsort(order)[code]


class Table(NamedTuple):
    """Columns of a frame as tasks are made of them.

    Attributes:
        X: features, (n, d).
        y: targets, (n,); None where there are none.
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
    """Return the columns of a data frame that tasks are made of, in numbers.

    Args:
        frame: of any kind that narwhals knows.
        task: the column of the tasks.
        target: that of the targets, if any.
        features: those of the features; None for all others.
        exclude: those that are left out.
        further: columns that are no features, by the names of the arguments that say them.

    Raises:
        ValueError: no data frame, a column that is not there or means two things, or a cell that is no number.
    """
    if not is_frame(frame):
        raise ValueError(f"frame: expected a data frame, of pandas, polars or Arrow, got {type(frame).__name__}")
    named = frame_columns(frame)
    every = [name for name, _ in named]
    columns = chosen(every, (task, *([] if target is None else [target]), *further.values()), features, exclude)
    check_columns(every, task, target, columns, further)
    table = dict(named)
    labels = task_labels(table[task])
    numbers = lambda argument, names: numeric_columns(argument, table, names, labels)
    X, y = numbers("features", columns), None if target is None else numbers("target", [target])[:, 0]
    return Table(X, y, labels, columns, {name: numbers(name, [column])[:, 0] for name, column in further.items()})
