"""The target of a study, as its file declares it: a number, one of two labels, or a count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.schema.columns import DROP, EMPTY, ERROR, OUTSIDE, TEXT, UNKNOWN, Category, Number, Read
from mpmtl_prob.schema.sections import SETTLED, Section

KINDS = ("number", "binary", "count")
NO_COUNT = "no whole number of at least 0"


@dataclass(frozen=True)
class Exposure(Number):
    """A column of how long, or of how many, something was counted."""

    def refused(self) -> dict[str, str]:
        """Return the problems that are errors here, each with what to do about it."""
        wrong = {
            TEXT: "correct these cells",
            OUTSIDE: "an exposure is above 0; correct these cells, or take the rows out",
        }
        return wrong | ({EMPTY: 'set missing = "drop" in [target]'} if self.missing == ERROR else {})


@dataclass(frozen=True)
class Outcome:
    """The target.

    Attributes:
        kind: "number", "binary" or "count".
        column: that holds it in every table.
        values: how cells are read: numbers, or labels, of which the second is what probabilities are of.
        baseline: of labels the probability of the second, of counts the rate, where every column is at its centre.
        exposure: column of how long, or of how many, was counted, if any; of counts.
    """

    kind: str
    column: str
    values: Number | Category
    baseline: float | None = None
    exposure: Exposure | None = None

    @classmethod
    def of(cls, values: object) -> Outcome:
        """The target that ``[target]`` declares. Raises ValueError for a section that does not."""
        section = Section("target", values)
        column, kind = (
            section.text("column", what="the name of the target's column"),
            section.choice("kind", None, KINDS),
        )
        known = [SETTLED, "column", "kind"]
        missing = section.choice("missing", ERROR, (ERROR, DROP))
        if kind == "binary":
            labels = section.names("labels", least=2)
            if len(labels) != 2:
                raise section.error("labels", f"expected two, the second of which is predicted, got {len(labels)}")
            base = section.positive("baseline", what="a public guess of how often the second label occurs, in (0, 1)")
            if not base < 1:
                raise section.error("baseline", f"expected a probability in (0, 1), got {base!r}")
            found = cls(kind, column, Category(column, labels, labels[0], (1 - base, base), missing), base)
        elif kind == "count":
            base = section.positive("baseline", what="a public guess of the rate, above 0")
            place = section.take("exposure")
            exposure = (
                None
                if place is None
                else Exposure(section.text("exposure"), 1.0, 1.0, range=(1e-9, 1e9), missing=missing)
            )
            found = cls(kind, column, Number(column, base, 1.0, range=(0, 1e9), missing=missing), base, exposure)
        else:
            given = {key: section.take(key) for key in ("unit", "centre", "scale", "range", "out_of_range")}
            inner = Section(
                "target", {key: value for key, value in given.items() if value is not None} | {"missing": missing}
            )
            found = cls(kind, column, Number.of(column, inner))
        section.finish(known)
        return found

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the columns that it is read from."""
        return (self.column,) if self.exposure is None else (self.column, self.exposure.name)

    @property
    def unit(self) -> str:
        """What coefficients are in, in words."""
        if isinstance(self.values, Category):
            return f"log odds of {self.values.levels[1]}"
        return "log rate" if self.kind == "count" else self.values.unit

    def read(self, cells: Iterable[Any], empty: tuple[str, ...]) -> Read:
        """Return the cells as the model takes them, each read by itself: numbers, -1 and 1, or counts."""
        read = self.values.read(cells, empty)
        if self.kind == "count":
            counts = (read.values == np.floor(read.values)) & (read.problems == "")
            read.problems[(read.problems != EMPTY) & ~counts] = NO_COUNT
        return read

    def numbers(self, values: FloatArray) -> FloatArray:
        """Targets as the model takes them: of labels -1 and 1."""
        return 2 * values - 1 if self.kind == "binary" else values

    def refused(self) -> dict[str, str]:
        """Return the problems that are errors here, each with what to do about it."""
        wrong = {EMPTY: 'set missing = "drop" in [target]'} if self.values.missing == ERROR else {}
        if isinstance(self.values, Category):
            return wrong | {UNKNOWN: f"labels are {' and '.join(self.values.levels)}; correct these cells"}
        if self.kind == "count":
            return wrong | {NO_COUNT: "correct these cells"}
        return wrong | {problem: advice for problem, advice in self.values.refused().items() if problem != EMPTY}

    def to_dict(self) -> dict[str, Any]:
        """All that the file says of it, with defaults."""
        exposure = None if self.exposure is None else self.exposure.name
        return {
            "kind": self.kind,
            "column": self.column,
            "values": self.values.to_dict(),
            "baseline": self.baseline,
            "exposure": exposure,
        }
