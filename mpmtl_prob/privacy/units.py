"""Units of privacy and neighbouring relations (adjacencies), with the words that explain them.

A unit says what changes between two neighbouring data sets, an adjacency says how. Both are strings, so that users may
write the name instead. Budgets of different units are never added.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from mpmtl_prob._util.checks import one_of


class _Named(StrEnum):
    @classmethod
    def of(cls, value: object, name: str = "") -> Self:
        """Return the member with this name. Raises ValueError for another name, as an error of the argument ``name``."""
        return cls(one_of(name or cls.__name__.lower(), value, tuple(member.value for member in cls)))

    def __repr__(self) -> str:
        return repr(self.value)


class Adjacency(_Named):
    """Neighbouring relation: how two data sets differ in one unit."""

    REPLACE = "replace"
    ZERO_OUT = "zero_out"

    @property
    def unknown(self) -> str:
        """The one thing that the strongest attacker does not know, in words."""
        return {
            Adjacency.REPLACE: "whether you or somebody else took part (they know the data of both)",
            Adjacency.ZERO_OUT: "whether you took part",
        }[self]


class Unit(_Named):
    """Unit of privacy: who or what is protected."""

    TASK = "task"
    ROW = "row"
    PERSON = "person"
    TARGET_RECORD = "target record"

    def protects(self, other: Unit) -> bool:
        """Return True if a guarantee for this unit holds for the other unit too, at the same eps and delta."""
        within = {Unit.TASK: (Unit.ROW,), Unit.PERSON: (Unit.ROW,)}
        return other == self or other in within.get(self, ())

    @property
    def any_one(self) -> str:
        """Words for any one unit, to follow "take any one"."""
        return {
            Unit.TASK: "task",
            Unit.ROW: "row of any one task",
            Unit.PERSON: "person, with all rows of that person in all tasks",
            Unit.TARGET_RECORD: "record of the target",
        }[self]

    def compared(self, adjacency: Adjacency) -> str:
        """Describe the neighbouring data set in words. Raises ValueError for a unit and an adjacency that do not combine."""
        neighbour = _NEIGHBOURS.get((self, adjacency))
        if neighbour is None:
            raise ValueError(f"adjacency: expected 'replace' for the unit {self!r}, got {adjacency!r}")
        return neighbour

    @property
    def alone(self) -> str:
        """The limits of a guarantee for one unit, in words."""
        return _ALONE[self]


_NEIGHBOURS = {
    (Unit.TASK, Adjacency.REPLACE): "had this task been any other task, with any other rows",
    (Unit.TASK, Adjacency.ZERO_OUT): "had this task not taken part",
    (Unit.ROW, Adjacency.REPLACE): "had one row of this task been another row",
    (Unit.PERSON, Adjacency.REPLACE): "had this person's rows been any other rows",
    (Unit.PERSON, Adjacency.ZERO_OUT): "had this person not taken part",
    (Unit.TARGET_RECORD, Adjacency.REPLACE): "had this record been another record",
}

_ALONE = {
    Unit.TASK: "It protects one task. Several tasks that belong together are protected less (group privacy).",
    Unit.ROW: (
        "It protects one row of one task and no more. Several rows that belong together, such as "
        "those of one person, are protected less (group privacy), and so is the task as a whole."
    ),
    Unit.PERSON: "It protects one person. Several persons, such as a family, are protected less (group privacy).",
    Unit.TARGET_RECORD: "It protects one record of the target and no more. The records of the sources are not protected.",
}
