"""Covariates of tasks: public numbers, such as a hospital's size, by which average effects may differ."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from narwhals import dependencies
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.cells import as_numbers, check_spelling, file_name, label_text

#: Values more than so many scales from the centre are as good as in other units.
_FAR = 20.0
#: Of singular values: below this share of the largest, one covariate follows from the others.
_DEPENDENT = 1e-6
#: Groups of tasks with values next to each other: so many for every covariate, and no more altogether.
GROUPS_PER_COVARIATE, _MOST_GROUPS = 16, 64
_SHOWN = 5
_EXAMPLE = "a pandas data frame with a row for every task, its index their names, or {'north': {'beds': 300}, ...}"


@dataclass(frozen=True, repr=False)
class Covariates:
    """Values of covariates by task, in the units that people use. Public, and part of the release.

    Attributes:
        names: of the covariates, q of them.
        tasks: names of the tasks, m of them, as text.
        values: of every task, (m, q).

    Raises:
        ValueError: names or tasks twice, or numbers of another shape or that are not finite.
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
            if twice := [name for i, name in enumerate(names) if name in names[:i]]:
                raise ValueError(f"covariates: expected every {what} once, got {twice[0]!r} twice")
        if len(self.values) != len(self.tasks) or any(len(row) != len(self.names) for row in self.values):
            raise ValueError(f"covariates: expected {len(self.names)} numbers of each of {len(self.tasks)} tasks")
        for task, row in zip(self.tasks, self.values, strict=True):
            for name, value in zip(self.names, row, strict=True):
                if not np.isfinite(value):
                    raise ValueError(f"covariates: expected finite numbers, got {value!r} as {name!r} of {task!r}")

    @classmethod
    def of_table(cls, table: Any, names: Sequence[Hashable]) -> Covariates:
        """Return the values of these covariates in a table of tasks; other columns are left out.

        Args:
            table: a pandas data frame whose index are the tasks' names, a mapping from tasks to numbers by name, or
                Covariates.
            names: of the covariates.

        Raises:
            ValueError: no such table, a covariate that is not in it, one that is there twice, or a number that is none.
        """
        known = tuple(file_name(name) for name in names)
        if isinstance(table, Covariates):
            if table.names != known:
                raise ValueError(f"covariates: expected those of the reference, {list(known)}, got {list(table.names)}")
            return table
        if isinstance(table, Mapping) and all(isinstance(row, Mapping) for row in table.values()):
            tasks, rows = (
                list(table),
                [{file_name(name): value for name, value in row.items()} for row in table.values()],
            )
            for task, row in zip(tasks, rows, strict=True):
                if missing := [name for name in known if name not in row]:
                    raise ValueError(f"covariates: expected {missing[0]!r} of every task, got none of {task!r}")
            cells = [[row[name] for row in rows] for name in known]
        elif dependencies.is_pandas_dataframe(table):
            tasks, columns = table.index.tolist(), [file_name(name) for name in table.columns]
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
        """Return those of these tasks alone, in the order of this table: that of rows is private.

        Raises:
            ValueError: a task that has none.
        """
        places = np.sort(self._places(tasks)).tolist()
        return Covariates(self.names, tuple(self.tasks[i] for i in places), tuple(self.values[i] for i in places))

    def of(self, tasks: Sequence[Hashable]) -> FloatArray:
        """Return the values (k, q) of k tasks by their names. Raises ValueError for a task that has none."""
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
        """As JSON holds it."""
        return {"names": list(self.names), "tasks": list(self.tasks), "values": [list(row) for row in self.values]}

    @classmethod
    def from_dict(cls, meta: Mapping[str, Any]) -> Covariates:
        """Those that :meth:`to_dict` turned into ``meta``. Raises ValueError, KeyError or TypeError for others."""
        return cls(tuple(meta["names"]), tuple(meta["tasks"]), tuple(map(tuple, meta["values"])))

    def __repr__(self) -> str:
        return f"Covariates({', '.join(map(str, self.names))} of {len(self.tasks)} tasks)"


def standardised(values: FloatArray, units: Mapping[Hashable, tuple[float, float]]) -> FloatArray:
    """Return z, (k, 1 + q), a one and values (k, q) in units of their centres and scales, in the order of these."""
    centre, scale = np.array(list(units.values())).reshape(-1, 2).T
    with np.errstate(over="ignore"):  # what leaves double precision is refused as far from the centre
        return np.column_stack([np.ones(len(values)), (values - centre) / scale])


def check_varying(covariates: Covariates, Z: FloatArray) -> None:
    """Raise ValueError for covariates of a release that cannot be told from the average, or from each other.

    Args:
        covariates: of the release's tasks.
        Z: the same in common units, (m, 1 + q).
    """
    for j, name in enumerate(covariates.names):
        column = Z[:, j + 1]
        if not np.abs(column).max() <= _FAR:
            far = covariates.tasks[int(np.abs(column).argmax())]
            raise ValueError(
                f"covariates: expected values within {_FAR:g} scales of the reference's centre, got {name!r} of {far!r} "
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
        values: z of every group, (G, 1 + q).
        counts: tasks of every group, (G,).
        members: the group of every task, (m,).
    """

    values: FloatArray
    counts: FloatArray
    members: NDArray[np.int64]


def grouped(Z: FloatArray, most: int | None = None) -> Groups:
    """Group tasks with the same z, (m, 1 + q), or, where more than ``most`` differ, neighbouring ones, by a public rule.

    Default are 16 groups for every covariate, and no more than 64. The group within which z varies most is split at its mean,
    along the covariate that varies most in it, until there are enough. Groups' means vary less than their tasks: they are
    then moved apart, so that the mean and the covariance of z are those of the tasks.
    """
    most = min(GROUPS_PER_COVARIATE * (Z.shape[1] - 1), _MOST_GROUPS) if most is None else most
    values, members = np.unique(Z, axis=0, return_inverse=True)
    members = members.ravel()
    if len(values) > most:
        members = np.zeros(len(Z), dtype=np.int64)
        for number in range(1, most):
            sizes = [len(own) * own.var(axis=0) for own in (Z[members == group] for group in range(number))]
            widest = int(np.argmax([size.sum() for size in sizes]))
            along = int(np.argmax(sizes[widest]))
            own = members == widest
            members[own & (Z[:, along] > Z[own, along].mean())] = number
        values = np.stack([Z[members == group].mean(axis=0) for group in range(most)])
        values = _as_wide(values, np.bincount(members), Z)
    return Groups(values, np.bincount(members).astype(float), members)


def _as_wide(values: FloatArray, counts: NDArray[np.int64], Z: FloatArray) -> FloatArray:
    """Groups' values (G, 1 + q), moved from their mean so that their covariance is that of the tasks."""
    mean = Z[:, 1:].mean(axis=0)
    away = values[:, 1:] - mean
    of_groups, of_tasks = (away.T * counts) @ away, (Z[:, 1:] - mean).T @ (Z[:, 1:] - mean)
    try:
        stretch = np.linalg.solve(np.linalg.cholesky(of_groups), away.T).T @ np.linalg.cholesky(of_tasks).T
    except np.linalg.LinAlgError:  # more covariates than the groups can tell apart
        return values
    return np.column_stack([np.ones(len(values)), mean + stretch])
