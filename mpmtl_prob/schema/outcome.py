"""Target of a study, as its file declares it: a number, one of two labels, or a count."""

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
    """Exposure column: the time or the number of units over which something was counted."""

    def refused(self) -> dict[str, str]:
        """Return the problems that are errors for this column, each with advice for the user."""
        wrong = {
            TEXT: "correct these cells",
            OUTSIDE: "an exposure is above 0; correct these cells, or take the rows out",
        }
        return wrong | ({EMPTY: 'set missing = "drop" in [target]'} if self.missing == ERROR else {})


@dataclass(frozen=True)
class Outcome:
    """Target of a study, with the conversion of its cells.

    Attributes:
        kind: "number", "binary" or "count".
        column: its column in every table.
        values: conversion of the cells: numbers, or labels, of which the second is the event of probabilities.
        baseline: for labels the probability of the second, for counts the rate, with every column at its centre.
        exposure: the exposure column of counts, if any.
    """

    kind: str
    column: str
    values: Number | Category
    baseline: float | None = None
    exposure: Exposure | None = None

    @classmethod
    def of(cls, values: object) -> Outcome:
        """Parse the target from ``[target]``. Raises ValueError for an invalid section."""
        section = Section("target", values)
        column, kind = (
            section.text("column", what="the name of the target's column"),
            section.choice("kind", None, KINDS),
        )
        known_keys = [SETTLED, "column", "kind"]
        missing = section.choice("missing", ERROR, (ERROR, DROP))
        if kind == "binary":
            labels = section.names("labels", least=2)
            if len(labels) != 2:
                raise section.error("labels", f"expected two, the second of which is predicted, got {len(labels)}")
            baseline = section.positive(
                "baseline", what="a public guess of how often the second label occurs, in (0, 1)"
            )
            if not baseline < 1:
                raise section.error("baseline", f"expected a probability in (0, 1), got {baseline!r}")
            outcome = cls(
                kind, column, Category(column, labels, labels[0], (1 - baseline, baseline), missing), baseline
            )
        elif kind == "count":
            baseline = section.positive("baseline", what="a public guess of the rate, above 0")
            exposure_name = section.take("exposure")
            exposure = (
                None
                if exposure_name is None
                else Exposure(section.text("exposure"), 1.0, 1.0, range=(1e-9, 1e9), missing=missing)
            )
            outcome = cls(
                kind, column, Number(column, baseline, 1.0, range=(0, 1e9), missing=missing), baseline, exposure
            )
        else:
            number_keys = {key: section.take(key) for key in ("unit", "centre", "scale", "range", "out_of_range")}
            inner = Section(
                "target", {key: value for key, value in number_keys.items() if value is not None} | {"missing": missing}
            )
            outcome = cls(kind, column, Number.of(column, inner))
        section.finish(known_keys)
        return outcome

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the table's columns that it needs."""
        return (self.column,) if self.exposure is None else (self.column, self.exposure.name)

    @property
    def unit(self) -> str:
        """Unit of the coefficients, in words."""
        if isinstance(self.values, Category):
            return f"log odds of {self.values.levels[1]}"
        return "log rate" if self.kind == "count" else self.values.unit

    def read(self, cells: Iterable[Any], empty: tuple[str, ...]) -> Read:
        """Convert the cells, each independently of the others: numbers, positions of labels, or counts."""
        read = self.values.read(cells, empty)
        if self.kind == "count":
            counts = (read.values == np.floor(read.values)) & (read.problems == "")
            read.problems[(read.problems != EMPTY) & ~counts] = NO_COUNT
        return read

    def numbers(self, values: FloatArray) -> FloatArray:
        """Return targets for the model; positions of labels become -1 and 1."""
        return 2 * values - 1 if self.kind == "binary" else values

    def refused(self) -> dict[str, str]:
        """Return the problems that are errors for this column, each with advice for the user."""
        wrong = {EMPTY: 'set missing = "drop" in [target]'} if self.values.missing == ERROR else {}
        if isinstance(self.values, Category):
            return wrong | {UNKNOWN: f"labels are {' and '.join(self.values.levels)}; correct these cells"}
        if self.kind == "count":
            return wrong | {NO_COUNT: "correct these cells"}
        return wrong | {problem: advice for problem, advice in self.values.refused().items() if problem != EMPTY}

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as a dict, with defaults."""
        exposure = None if self.exposure is None else self.exposure.name
        return {
            "kind": self.kind,
            "column": self.column,
            "values": self.values.to_dict(),
            "baseline": self.baseline,
            "exposure": exposure,
        }
