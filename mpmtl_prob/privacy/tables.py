"""Tables of results with their guarantees, as text, HTML, plain numbers or a data frame."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from mpmtl_prob._util.tables import aligned
from mpmtl_prob.privacy.guarantee import Bound

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Table:
    """Table of named rows with a claimed and a proved guarantee each. Subclasses define the text of the cells.

    Attributes:
        rows: one mapping per row: ``name``, numbers, and ``claimed`` and ``proved`` (:class:`Bound` or None).
    """

    rows: tuple[Mapping[str, Any], ...]

    def _cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of the head, then those of every row."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with one row per name, and the epsilon and delta of each bound in columns."""
        import pandas as pd

        return pd.DataFrame(self.to_dicts()).set_index("name")

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as plain numbers and strings, for JSON. A missing number is None."""
        records = []
        for row in self.rows:
            flat = {k: v for k, v in row.items() if k not in ("claimed", "proved")}
            flat = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in flat.items()}
            for key in ("claimed", "proved"):
                bound: Bound | None = row[key]
                flat[f"{key}_epsilon"] = None if bound is None else bound.epsilon
                flat[f"{key}_delta"] = None if bound is None else bound.delta
                flat[f"{key}_adjacency"] = None if bound is None else bound.adjacency
            records.append(flat)
        return records

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        """Return the row with this name. Raises KeyError where there is none."""
        for row in self.rows:
            if row["name"] == name:
                return row
        raise KeyError(name)

    def __str__(self) -> str:
        return aligned(list(self._cells()))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = "".join(f"<tr>{_html_cells('td', row)}</tr>" for row in body)
        return f"<table><thead><tr>{_html_cells('th', head)}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cells(tag: str, row: tuple[str, ...]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)


def pair(bound: Bound | None) -> str:
    """Return the text of a bound for a table's cell."""
    return "none" if bound is None else f"({bound.epsilon:.3g}, {bound.delta:.2g})"
