"""Columns of a long table before tasks are made of it: which one is the task, the target or a feature, and what cannot be."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd


def check_columns(frame: pd.DataFrame, task: Hashable, target: Hashable, features: Sequence[Hashable]) -> None:
    """Raise ValueError for columns that are not there, or there twice, or meant twice, or that hold no real numbers."""
    every = list(frame.columns)
    for argument, wanted in (("task", [task]), ("target", [target]), ("features", features)):
        if missing := [name for name in wanted if name not in every]:
            # not which it has: of a table without a head they are the first record
            raise ValueError(f"{argument}: no column {missing[0]!r} among the frame's {len(every)}")
        if twice := [name for name in wanted if every.count(name) > 1 or list(wanted).count(name) > 1]:
            raise ValueError(f"{argument}: expected distinct columns, got {twice[0]!r} more than once")
    if task == target:
        raise ValueError(f"target: expected another column than that of the tasks, got {target!r} for both")
    for kind, name in (("task", task), ("target", target)):
        if name in features:
            raise ValueError(f"features: expected none that is the {kind}, got {name!r}")
    for argument, wanted in (("features", features), ("target", [target])):
        for kinds, what in (("mM", "dates or times"), ("c", "complex numbers")):
            if found := [name for name in wanted if frame[name].dtype.kind in kinds]:
                raise ValueError(f"{argument}: expected numbers, got {what} in {found}; make numbers of them first")
        for name in wanted:
            _check_finite(argument, frame[name], frame[task])


def _check_finite(argument: str, column: pd.Series[Any], task: pd.Series[Any]) -> None:
    """Raise ValueError for numbers that are not finite; says where, and shows none."""
    if column.dtype.kind in "fiu" and not (real := np.isfinite(column.to_numpy(np.float64, na_value=np.nan))).all():
        whose = task[~real].tolist()[0]
        raise ValueError(
            f"{argument}: expected finite numbers, got others in {column.name!r}, the first of task {whose!r}"
        )


def task_labels(task: ArrayLike) -> NDArray[Any]:
    """The task of every row, as it came. Raises ValueError where some rows have none, or labels cannot be sorted."""
    found = (
        np.asarray(task) if hasattr(task, "dtype") else np.asarray(task, dtype=object)
    )  # in a list of text nan is text
    if found.dtype.kind == "O":
        import pandas as pd  # nearly a second to import

        absent = pd.isna(found)
    else:
        absent = found != found  # nan, and no time
    if missing := int(np.sum(absent)):
        raise ValueError(f"task: expected a task for every row, got {missing} without")
    try:
        np.unique(found)
    except TypeError:
        raise ValueError("task: expected labels of one kind, such as numbers or text, got several") from None
    return found
