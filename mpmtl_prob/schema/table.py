"""What a study says of its tables: which columns there are, what each becomes, and what of that is the model's."""

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
    """What a study says of its tables.

    Attributes:
        task: the column that says whose a row is, which also is what a task is called, such as "hospital".
        row: what a row is called, such as "patient".
        participants: their ids; empty where the study does not name them.
        target: what is explained.
        columns: by which, by name, in the order of the file.
        formula: how; None for all columns side by side.
        person: column of whom a row is about, where a person could have several rows, which is refused.
        empty: texts that mean that a cell is empty.

    Raises:
        ValueError: a column that nothing can be made of, or one for two purposes.
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
        if odd := [name for name in (*roles, *self.columns) if name != label_text(name)]:
            raise ValueError(
                f"{odd[0]!r}: expected names without blanks around them, in Unicode's normal form C, as those of tables are "
                f"read, got another; write {label_text(odd[0])!r}"
            )
        _ = self.design  # whose errors are the file's

    @cached_property
    def design(self) -> Design:
        """How columns of the table become those of the model."""
        terms: tuple[Term, ...] | None = None
        if self.formula is not None:
            terms = read_formula(self.formula, target=self.target.column, task=self.task)
        return Design(self.columns, terms)
