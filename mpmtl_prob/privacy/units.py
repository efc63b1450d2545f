"""What a promise is about: who is protected, and what the data are compared with.

A unit is what changes, an adjacency how. Both are their own names as text, so that a string says as much; budgets of
different units are never added.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from mpmtl_prob._util.checks import one_of


class _Named(StrEnum):
    @classmethod
    def of(cls, value: object, name: str = "") -> Self:
        """The member of this name. Raises ValueError for another, in the words of the argument ``name``."""
        return cls(one_of(name or cls.__name__.lower(), value, tuple(member.value for member in cls)))

    def __repr__(self) -> str:
        return repr(self.value)


class Adjacency(_Named):
    """How two neighbouring data sets differ in one unit."""

    REPLACE = "replace"
    ZERO_OUT = "zero_out"

    @property
    def unknown(self) -> str:
        """What an attacker who knows all else does not know."""
        return {
            Adjacency.REPLACE: "whether it was you or somebody else, whose data they know as well, that took part",
            Adjacency.ZERO_OUT: "whether you took part",
        }[self]


class Unit(_Named):
    """Who or what is protected."""

    TASK = "task"
    ROW = "row"
    PERSON = "person"
    TARGET_RECORD = "target record"

    def protects(self, other: Unit) -> bool:
        """A promise for this unit is one for the other too, at the same eps and delta."""
        within = {Unit.TASK: (Unit.ROW,), Unit.PERSON: (Unit.ROW,)}
        return other == self or other in within.get(self, ())

    @property
    def any_one(self) -> str:
        """As in "take any one ..."."""
        return {
            Unit.TASK: "task",
            Unit.ROW: "row of any one task",
            Unit.PERSON: "person, with all rows of that person in all tasks",
            Unit.TARGET_RECORD: "record of the target",
        }[self]

    def compared(self, adjacency: Adjacency) -> str:
        """How things might have been otherwise. Raises ValueError where the two do not go together."""
        otherwise = _OTHERWISE.get((self, adjacency))
        if otherwise is None:
            raise ValueError(f"adjacency: expected 'replace' for the unit {self!r}, got {adjacency!r}")
        return otherwise

    @property
    def alone(self) -> str:
        """What it does not protect."""
        return _ALONE[self]


_OTHERWISE = {
    (Unit.TASK, Adjacency.REPLACE): "had this task been any other task, with any other rows",
    (Unit.TASK, Adjacency.ZERO_OUT): "had this task not taken part",
    (Unit.ROW, Adjacency.REPLACE): "had one row of this task been another row",
    (Unit.PERSON, Adjacency.REPLACE): "had this person's rows been any other rows",
    (Unit.PERSON, Adjacency.ZERO_OUT): "had this person not taken part",
    (Unit.TARGET_RECORD, Adjacency.REPLACE): "had this record been another record",
}

_ALONE = {
    Unit.TASK: "It protects one task; k tasks that belong together are protected less.",
    Unit.ROW: (
        "It protects one row of one task and no more; k rows that belong together, such as "
        "those of one person, are protected less, and so is the task as a whole."
    ),
    Unit.PERSON: "It protects one person; k persons that belong together, such as a family, are protected less.",
    Unit.TARGET_RECORD: "It protects one record of the target and no more; what is said of the sources is not covered.",
}
