"""Covariates of tasks: public numbers, such as a hospital's size, with which average effects may differ."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from narwhals import dependencies
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.cells import as_numbers, check_spelling, file_name, label_text

#: Values more than so many scales from the centre are probably in other units, and are refused.
FAR = 20.0
#: Share of the largest singular value: below it, one covariate counts as a combination of the others.
_DEPENDENT = 1e-6
#: Numbers of groups of tasks with neighbouring values: per covariate, and at most altogether.
GROUPS_PER_COVARIATE, _MOST_GROUPS = 16, 64
_SHOWN = 5
_EXAMPLE = "a pandas data frame with a row for every task, its index their names, or {'north': {'beds': 300}, ...}"


@dataclass(frozen=True, repr=False)
class Covariates:
    """Values of covariates by task, in the units of the user's table: public, and part of the release.

    Attributes:
        names: names of the covariates, q of them.
        tasks: names of the tasks, m of them, as text.
        values: one row per task, (m, q).

    Raises:
        ValueError: a name or a task that occurs twice, or numbers of a wrong shape or that are not finite.
    """

    names: tuple[Hashable, ...]
    tasks: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(file_name(name) for name in self.names))
        object.__setattr__(self, "tasks", tuple(label_text(task) for task in self.tasks))
        object.__setattr__(self, "values", tuple(tuple(map(float, row)) for row in self.values))
        for what, names in (("covariate", self.names), ("task", self.tasks)):
            check_spelling("covariates", what, names)
            if len(set(names)) < len(names):
                twice = next(name for i, name in enumerate(names) if name in names[:i])
                raise ValueError(f"covariates: expected every {what} once, got {twice!r} twice")
        if len(self.values) != len(self.tasks) or any(len(row) != len(self.names) for row in self.values):
            raise ValueError(f"covariates: expected {len(self.names)} numbers of each of {len(self.tasks)} tasks")
        for task, row in zip(self.tasks, self.values, strict=True):
            for name, value in zip(self.names, row, strict=True):
                if not np.isfinite(value):
                    raise ValueError(f"covariates: expected finite numbers, got {value!r} as {name!r} of {task!r}")

    @classmethod
    def of_table(cls, table: Any, names: Sequence[Hashable]) -> Covariates:
        """Read the values of these covariates from a table of tasks, whose other columns are ignored.

        Args:
            table: a pandas data frame whose index holds the tasks' names, a mapping from tasks to numbers by name, or
                Covariates.
            names: names of the covariates.

        Raises:
            ValueError: another type of table, a covariate that is missing or occurs twice, or a cell that is not a number.
        """
        known = tuple(file_name(name) for name in names)
        if isinstance(table, Covariates):
            if table.names != known:
                raise ValueError(f"covariates: expected those of the reference, {list(known)}, got {list(table.names)}")
            return table
        if isinstance(table, Mapping) and all(isinstance(row, Mapping) for row in table.values()):
            tasks = list(table)
            rows = [{file_name(name): value for name, value in row.items()} for row in table.values()]
            for task, row in zip(tasks, rows, strict=True):
                if missing := [name for name in known if name not in row]:
                    raise ValueError(f"covariates: expected {missing[0]!r} of every task, got none of {task!r}")
            cells = [[row[name] for row in rows] for name in known]
        elif dependencies.is_pandas_dataframe(table):
            tasks = table.index.tolist()
            columns = [file_name(name) for name in table.columns]
            for name in known:
                if columns.count(name) != 1:
                    got = "none of this name" if name not in columns else "it twice"
                    raise ValueError(f"covariates: expected a column {name!r}, which the reference declares, got {got}")
            cells = [table.iloc[:, columns.index(name)] for name in known]
        else:
            raise ValueError(f"covariates: expected {_EXAMPLE}, got {type(table).__name__}")
        values = np.column_stack([as_numbers(column) for column in cells])
        return cls(known, tuple(map(label_text, tasks)), tuple(map(tuple, values.tolist())))

    def among(self, tasks: Sequence[Hashable]) -> Covariates:
        """Return the covariates of these tasks alone, in the order of this table, since the order of the rows is private.

        Raises:
            ValueError: a task that is not in this table.
        """
        places = np.sort(self._places(tasks)).tolist()
        return Covariates(self.names, tuple(self.tasks[i] for i in places), tuple(self.values[i] for i in places))

    def of(self, tasks: Sequence[Hashable]) -> FloatArray:
        """Return the values (k, q) of k tasks by name. Raises ValueError for a task that is not in this table."""
        return np.array(self.values)[self._places(tasks)]

    def _places(self, tasks: Sequence[Hashable]) -> NDArray[np.int64]:
        place = {task: i for i, task in enumerate(self.tasks)}
        if missing := [task for task in tasks if label_text(task) not in place]:
            more = f" and {len(missing) - _SHOWN} more" if missing[_SHOWN:] else ""
            raise ValueError(
                f"covariates: expected a row for every task, by its name, got none for "
                f"{', '.join(map(repr, missing[:_SHOWN]))}{more}"
            )
        return np.array([place[label_text(task)] for task in tasks], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the covariates in types that JSON can hold."""
        return {"names": list(self.names), "tasks": list(self.tasks), "values": [list(row) for row in self.values]}

    @classmethod
    def from_dict(cls, meta: Mapping[str, Any]) -> Covariates:
        """Restore covariates from what :meth:`to_dict` returns. Raises ValueError, KeyError or TypeError otherwise."""
        return cls(tuple(meta["names"]), tuple(meta["tasks"]), tuple(map(tuple, meta["values"])))

    def __repr__(self) -> str:
        return f"Covariates({', '.join(map(str, self.names))} of {len(self.tasks)} tasks)"


def standardised(values: FloatArray, units: Mapping[Hashable, tuple[float, float]]) -> FloatArray:
    """Return Z (k, 1 + q): a column of ones, then values (k, q) minus their centres and divided by their scales."""
    centre, scale = np.array(list(units.values())).reshape(-1, 2).T
    with np.errstate(over="ignore"):  # infinite values are refused later, as too far from the centre
        return np.column_stack([np.ones(len(values)), (values - centre) / scale])


def check_varying(covariates: Covariates, Z: FloatArray) -> None:
    """Raise ValueError for covariates that vary too little, lie too far from their centres, or are collinear.

    Args:
        covariates: the covariates of the release's tasks.
        Z: the same in common units, as :func:`standardised` returns them, (m, 1 + q).
    """
    for j, name in enumerate(covariates.names):
        column = Z[:, j + 1]
        if not np.abs(column).max() <= FAR:
            far = covariates.tasks[int(np.abs(column).argmax())]
            raise ValueError(
                f"covariates: expected values within {FAR:g} scales of the reference's centre, got {name!r} of {far!r} "
                f"{np.abs(column).max():.3g} scales away; declare a centre and a scale of the size of the values"
            )
        if not np.ptp(column) > _DEPENDENT:
            raise ValueError(
                f"covariates: expected {name!r} to differ between tasks, got the same in all; leave it out"
            )
    sizes = np.linalg.svd(Z / np.linalg.norm(Z, axis=0), compute_uv=False)
    if len(Z) < Z.shape[1] or sizes[-1] < _DEPENDENT * sizes[0]:
        raise ValueError(
            f"covariates: expected none of {list(covariates.names)} to follow from the others, got {len(covariates.tasks)} "
            "tasks of which one does; leave it out"
        )


class Groups(NamedTuple):
    """Tasks in groups by their covariates.

    Attributes:
        values: standardised covariates of every group, (G, 1 + q).
        counts: number of tasks in every group, (G,).
        members: the group of every task, (m,).
    """

    values: FloatArray
    counts: FloatArray
    members: NDArray[np.int64]


def grouped(Z: FloatArray, most: int | None = None) -> Groups:
    """Group tasks whose standardised covariates Z (m, 1 + q) are equal, or neighbouring where more than ``most`` differ.

    The rule uses public numbers alone. By default there are 16 groups per covariate, and at most 64. The group within which Z
    varies most is split at its mean, along the covariate that varies most in it, until there are enough groups. Groups' means
    vary less than tasks do, so they are then spread out until the mean and the covariance of Z are those of the tasks.
    """
    most = min(GROUPS_PER_COVARIATE * (Z.shape[1] - 1), _MOST_GROUPS) if most is None else most
    values, members = np.unique(Z, axis=0, return_inverse=True)
    members = members.ravel()
    if len(values) > most:
        members = np.zeros(len(Z), dtype=np.int64)
        for number in range(1, most):
            groups = (Z[members == group] for group in range(number))
            sizes = [len(group) * group.var(axis=0) for group in groups]
            widest = int(np.argmax([size.sum() for size in sizes]))
            along = int(np.argmax(sizes[widest]))
            of_widest = members == widest
            members[of_widest & (Z[:, along] > Z[of_widest, along].mean())] = number
        values = np.stack([Z[members == group].mean(axis=0) for group in range(most)])
        values = _as_wide(values, np.bincount(members), Z)
    return Groups(values, np.bincount(members).astype(float), members)


def _as_wide(values: FloatArray, counts: NDArray[np.int64], Z: FloatArray) -> FloatArray:
    """Move groups' values (G, 1 + q) away from their mean, so that their covariance is that of the tasks."""
    mean = Z[:, 1:].mean(axis=0)
    away = values[:, 1:] - mean
    of_groups, of_tasks = (away.T * counts) @ away, (Z[:, 1:] - mean).T @ (Z[:, 1:] - mean)
    try:
        stretch = np.linalg.solve(np.linalg.cholesky(of_groups), away.T).T @ np.linalg.cholesky(of_tasks).T
    except np.linalg.LinAlgError:  # there are more covariates than the groups can distinguish
        return values
    return np.column_stack([np.ones(len(values)), mean + stretch])
