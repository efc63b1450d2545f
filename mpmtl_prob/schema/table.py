"""Tables of a study: their columns, and the design matrix that the model takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mpmtl_prob.data.cells import label_text
from mpmtl_prob.schema.columns import EMPTY_CELLS, Column
from mpmtl_prob.schema.design import Design
from mpmtl_prob.schema.formula import Term, read_formula
from mpmtl_prob.schema.outcome import Outcome


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StudyTable:
    """Declaration of a study's tables.

    Attributes:
        task: the column with the task of every row, whose name is also the word for a task, such as "hospital".
        row: the word for a row, such as "patient".
        participants: their ids; empty if the study does not name them.
        target: the target.
        columns: the features' columns by name, in the order of the file.
        formula: the model's formula; None for all columns without interactions.
        person: column that identifies the person of a row; several rows of one person are refused.
        empty: texts that mark an empty cell.

    Raises:
        ValueError: an invalid column, or a column with two roles.
    """

    task: str
    row: str
    participants: tuple[str, ...]
    target: Outcome
    columns: Mapping[str, Column]
    formula: str | None = None
    person: str | None = None
    empty: tuple[str, ...] = EMPTY_CELLS

    def __post_init__(self) -> None:
        roles = [self.task, *self.target.used, *([] if self.person is None else [self.person])]
        for name in roles:
            if name in self.columns or roles.count(name) > 1:
                raise ValueError(
                    f"[columns.{name}]: expected a column of its own for every purpose, got {name!r} twice"
                )
        if "" in (*roles, *self.columns):
            raise ValueError('[columns.""]: expected a name of every column, got an empty one')
        if odd := [name for name in (*roles, *self.columns) if name != label_text(name)]:
            raise ValueError(
                f"{odd[0]!r}: expected names without blanks around them, in Unicode's normal form C, as those of tables are "
                f"read, got another; write {label_text(odd[0])!r}"
            )
        _ = self.design  # raises for an invalid file

    @cached_property
    def design(self) -> Design:
        """Design that turns columns of the table into those of the model."""
        terms: tuple[Term, ...] | None = None
        if self.formula is not None:
            terms = read_formula(self.formula, target=self.target.column, task=self.task)
        return Design(self.columns, terms)
