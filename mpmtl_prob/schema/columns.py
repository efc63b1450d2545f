"""Columns that a study's file declares, and conversion of their cells to numbers.

Every cell is converted independently of the others, by the file alone, whatever levels, types or values other cells have. A
cell that cannot be converted is a problem with a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.cells import as_number, label_text
from mpmtl_prob.schema.sections import SETTLED, Section

#: Problems of a cell, in the words of errors.
EMPTY, TEXT, OUTSIDE, UNKNOWN = "empty", "no number", "out of range", "an unknown level"
NO_DATE = "no date such as 2024-05-31"
#: Texts that mark an empty cell, unless the study declares others.
EMPTY_CELLS = ("", "NA", "NaN", "nan", "null", "None")
DROP, ERROR, INDICATOR, CLIP = "drop", "error", "indicator", "clip"
#: Expected share of rows with a missing cell, unless the study declares another.
_MISSING_SHARE = 0.1
_DAYS = {"days": 1.0, "weeks": 7.0, "years": 365.25}


class Read(NamedTuple):
    """Converted cells of a column: values (n,), and the problem of every cell, "" if there is none."""

    values: FloatArray
    problems: NDArray[Any]

    def __repr__(self) -> str:  # without values, which are private
        return f"Read({len(self.values)} cells)"


def is_empty(cell: Any, empty: Iterable[str] = EMPTY_CELLS) -> bool:
    """Return True for an empty cell: None, NaN, pandas' NA and NaT, or a text that marks it."""
    if isinstance(cell, str):
        return cell.strip() in empty
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(cell != cell)
    except Exception:  # a cell may be any object, and the text of its error may reveal it
        return False


@dataclass(frozen=True)
class Number:
    """Numeric column of a study.

    Attributes:
        name: name of the column in every table.
        centre: a public guess of its average.
        scale: a public guess of its standard deviation.
        unit: the unit in words.
        range: the possible values, if declared.
        missing: treatment of a missing cell: "error", "drop" the row, "indicator", or a number to impute.
        out_of_range: "error", "drop", or "clip" to the nearer end.
        missing_share: expected share of missing cells, with missing = "indicator".
        effect: the column's effect in earlier studies.
    """

    name: str
    centre: float
    scale: float
    unit: str = ""
    range: tuple[float, float] | None = None
    missing: str | float = ERROR
    out_of_range: str = ERROR
    missing_share: float = _MISSING_SHARE
    effect: float | None = None

    kind = "number"
    wrong = TEXT

    @classmethod
    def of(cls, name: str, section: Section) -> Number:
        """Parse a column from its section. Raises ValueError for an invalid section."""
        where = f"in {section.text('unit')}" if "unit" in section else "in the units of the table"
        column = cls(name, **cls._parts(section, where))
        section.finish([SETTLED, "kind"])
        return column

    @classmethod
    def _parts(cls, section: Section, where: str) -> dict[str, Any]:
        centre = section.number("centre", what=f"a public guess of its average, {where}")
        scale = section.positive("scale", what=f"a public guess of its standard deviation, above 0, {where}")
        effect = section.number("effect") if "effect" in section else None
        bounds, missing = section.pair("range"), _missing(section)
        for key, value in (("centre", centre), ("missing", missing)):
            if bounds is not None and not isinstance(value, str) and not bounds[0] <= value <= bounds[1]:
                raise section.error(key, f"expected a number in the range {list(bounds)}, got {value!r}")
        return {
            "centre": centre,
            "scale": scale,
            "unit": section.take("unit", ""),
            "range": bounds,
            "missing": missing,
            "out_of_range": section.choice("out_of_range", ERROR, (ERROR, DROP, CLIP)),
            "missing_share": _share(section),
            "effect": effect,
        }

    @property
    def in_place(self) -> float:
        """The value that replaces a missing cell in a row that is not dropped."""
        return float(self.missing) if not isinstance(self.missing, str) else self.centre

    def read(self, cells: Iterable[Any], empty: tuple[str, ...]) -> Read:
        """Convert the cells to numbers, each independently of the others."""
        values, problems = [], []
        means_empty = {number for text in empty if math.isfinite(number := as_number(text))}
        for cell in cells:
            missing = is_empty(cell, empty) or as_number(cell) in means_empty  # -9, -9.0 and "-9" are the same number
            value, problem = (math.nan, EMPTY) if missing else self._cell(cell)
            values.append(value)
            problems.append(problem)
        numbers = np.array(values, dtype=np.float64)
        return Read(numbers, np.array(problems, dtype=object))

    def _cell(self, cell: Any) -> tuple[float, str]:
        value = self._number(cell)
        if not math.isfinite(value) or abs(value) > 1e150:
            return math.nan, self.wrong
        outside = self.range is not None and not self.range[0] <= value <= self.range[1]
        return value, OUTSIDE if outside else ""

    def _number(self, cell: Any) -> float:
        return as_number(cell)

    def resolved(self, read: Read) -> tuple[FloatArray, NDArray[Any], NDArray[Any]]:
        """Return values with missing and outside ones replaced, the rows to drop, and the rows with a missing cell."""
        values, empty, outside = read.values.copy(), read.problems == EMPTY, read.problems == OUTSIDE
        dropped = empty & (self.missing == DROP) | outside & (self.out_of_range == DROP)
        values[empty] = self.in_place
        if self.range is not None and self.out_of_range == CLIP:
            values[outside] = np.clip(values[outside], *self.range)
        return values, dropped, empty

    def refused(self) -> dict[str, str]:
        """Return the problems that are errors for this column, each with advice for the user."""
        wrong = {self.wrong: "correct these cells"}
        if self.missing == ERROR:
            wrong[EMPTY] = 'set missing = "drop", "indicator" or a number'
        if self.out_of_range == ERROR and self.range is not None:
            low, high = self.range
            wrong[OUTSIDE] = f'outside [{low:g}, {high:g}]; correct them, or set out_of_range = "drop" or "clip"'
        return wrong

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as a dict, with defaults."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"kind": self.kind, **values, "range": None if self.range is None else list(self.range)}


@dataclass(frozen=True)
class Date(Number):
    """Date column of a study, converted to days, weeks or years since an origin.

    Attributes:
        origin: the day that counts as 0.
    """

    origin: str = ""

    kind = "date"
    wrong = NO_DATE

    @classmethod
    def of(cls, name: str, section: Section) -> Date:
        """Parse a column from its section. Raises ValueError for an invalid section."""
        origin = section.take("origin")
        day = day_of(origin)
        if day is None:
            raise section.error("origin", f"expected the day that counts as 0, such as 2024-01-01, got {origin!r}")
        unit = section.choice("unit", "days", tuple(_DAYS))
        column = cls(
            name, **cls._parts(section, f"in {unit} since the origin") | {"unit": unit}, origin=day.isoformat()
        )
        section.finish([SETTLED, "kind"])
        return column

    def _number(self, cell: Any) -> float:
        day = day_of(cell)
        if day is None:
            return math.nan
        return (day - date.fromisoformat(self.origin)).days / _DAYS[self.unit]


@dataclass(frozen=True)
class Category:
    """Categorical column of a study. Every level except the reference has an effect, the difference to the reference.

    Attributes:
        name: name of the column in every table.
        levels: all levels, in the order of the effects.
        reference: the level to which the others are compared.
        shares: public guesses of the shares of the levels.
        missing: treatment of a missing cell: "error", "drop" the row, "indicator", or a level to impute.
        unknown: treatment of a cell with another level: "error", "drop" the row, or a level to replace it.
        missing_share: expected share of missing cells, with missing = "indicator".
    """

    name: str
    levels: tuple[str, ...]
    reference: str
    shares: tuple[float, ...]
    missing: str = ERROR
    unknown: str = ERROR
    missing_share: float = _MISSING_SHARE

    kind = "category"

    @classmethod
    def of(cls, name: str, section: Section) -> Category:
        """Parse a column from its section. Raises ValueError for an invalid section."""
        levels = section.names("levels", least=2)
        reference = section.take("reference", levels[0])
        if label_text(reference) not in levels:
            raise section.error("reference", f"expected one of the levels {list(levels)}, got {reference!r}")
        column = cls(
            name, levels, label_text(reference), _shares(section, levels),
            _level_or(section, "missing", levels, (ERROR, DROP, INDICATOR)),
            _level_or(section, "unknown", levels, (ERROR, DROP)), _share(section),
        )  # fmt: skip
        section.finish([SETTLED, "kind"])
        return column

    @property
    def others(self) -> tuple[str, ...]:
        """Levels that have an effect, which are all except the reference."""
        return tuple(level for level in self.levels if level != self.reference)

    def share(self, level: str) -> float:
        """Return the declared share of a level."""
        return self.shares[self.levels.index(level)]

    def read(self, cells: Iterable[Any], empty: tuple[str, ...]) -> Read:
        """Convert the cells to positions among the levels, each independently of the others."""
        place = {level: float(i) for i, level in enumerate(self.levels)}
        values, problems = [], []
        for cell in cells:
            level = text_of(cell)
            value = place.get(level, place.get(re.sub(r"^(-?\d+)\.0+$", r"\1", level)))  # 1.0, as text
            problem = "" if value is not None else EMPTY if is_empty(cell, empty) or level in empty else UNKNOWN
            values.append(math.nan if value is None else value)
            problems.append(problem)
        return Read(np.array(values, dtype=np.float64), np.array(problems, dtype=object))

    def resolved(self, read: Read) -> tuple[FloatArray, NDArray[Any], NDArray[Any]]:
        """Resolve problems as :meth:`Number.resolved` does, for positions of levels."""
        values, empty, unknown = read.values.copy(), read.problems == EMPTY, read.problems == UNKNOWN
        dropped = empty & (self.missing == DROP) | unknown & (self.unknown == DROP)
        for rows, setting in ((empty, self.missing), (unknown, self.unknown)):
            values[rows] = self.levels.index(setting if setting in self.levels else self.reference)
        return values, dropped, empty

    def refused(self) -> dict[str, str]:
        """Return the problems that are errors for this column, each with advice for the user."""
        wrong = {}
        if self.missing == ERROR:
            wrong[EMPTY] = 'set missing = "drop", "indicator" or a level'
        if self.unknown == ERROR:
            wrong[UNKNOWN] = f'levels are {", ".join(self.levels)}; correct them, or set unknown = "drop" or a level'
        return wrong

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as a dict, with defaults."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"kind": self.kind, **values, "levels": list(self.levels), "shares": list(self.shares)}


type Column = Number | Category
#: Kinds of columns by their words in the file.
KINDS: dict[str, Any] = {"number": Number, "category": Category, "date": Date}


def column_of(name: str, values: object) -> Column:
    """Return the column that ``[columns.name]`` declares. Raises ValueError for an invalid section."""
    section = Section(f"columns.{name}", values)
    column: Column = KINDS[section.choice("kind", None, tuple(KINDS))].of(name, section)
    return column


def _missing(section: Section) -> str | float:
    value = section.take("missing", ERROR)
    if isinstance(value, str):
        return section.choice("missing", ERROR, (ERROR, DROP, INDICATOR))
    return section.number("missing", what='"error", "drop", "indicator" or the number to take in its place')


def _share(section: Section) -> float:
    share = section.positive("missing_share", _MISSING_SHARE)
    if not share < 1:
        raise section.error("missing_share", f"expected a share of all rows, between 0 and 1, got {share!r}")
    return share


def _level_or(section: Section, key: str, levels: tuple[str, ...], words: tuple[str, ...]) -> str:
    value = section.take(key, ERROR)
    if not isinstance(value, str | int) or (value not in words and label_text(value) not in levels):
        raise section.error(key, f"expected {', '.join(map(repr, words))} or one of the levels, got {value!r}")
    return value if value in words and isinstance(value, str) else label_text(value)


def _shares(section: Section, levels: tuple[str, ...]) -> tuple[float, ...]:
    """Return the declared shares of the levels; by default all are equal."""
    value = section.take("shares")
    if value is None:
        return (1 / len(levels),) * len(levels)
    shares = (
        [share for share in value if isinstance(share, int | float) and 0 < share < 1]
        if isinstance(value, list)
        else []
    )
    if len(shares) != len(levels) or abs(math.fsum(shares) - 1) > 0.01:
        raise section.error(
            "shares", f"expected one number between 0 and 1 for each of {len(levels)} levels, 1 together, got {value!r}"
        )
    return tuple(map(float, shares))


def text_of(cell: Any) -> str:
    """Return a cell's text, by which it is compared with names; "" if it has none."""
    try:
        return label_text(cell)
    except Exception:  # a cell may be any object, and the text of its error may reveal it
        return ""


def day_of(cell: Any) -> date | None:
    """Return the date of a cell, or None if it is not a date."""
    try:
        if isinstance(cell, np.datetime64):
            cell = cell.astype("datetime64[D]").item()
        if isinstance(cell, datetime):
            return cell.date()
        if isinstance(cell, date):
            return cell
        if isinstance(cell, str):
            return datetime.fromisoformat(cell.strip()).date()
    except Exception:  # a cell may be any object, and the text of its error may reveal it
        return None
    return None
