"""Tables of results with their guarantees: the same rows as text, as HTML, as plain numbers and as a data frame."""

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
    """Rows by name, each with what is claimed and what is proved of it. Subclasses say how cells read.

    Attributes:
        rows: one mapping per row: ``name``, numbers, and ``claimed`` and ``proved`` (:class:`Bound` or None).
    """

    rows: tuple[Mapping[str, Any], ...]

    def _cells(self) -> Iterator[tuple[str, ...]]:
        """The head, then the rows."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """One row per name; each bound as its epsilon and delta."""
        import pandas as pd

        return pd.DataFrame(self.to_dicts()).set_index("name")

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain numbers and strings, for JSON. A missing number is None."""
        out = []
        for row in self.rows:
            flat = {k: v for k, v in row.items() if k not in ("claimed", "proved")}
            flat = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in flat.items()}
            for key in ("claimed", "proved"):
                bound: Bound | None = row[key]
                flat[f"{key}_epsilon"] = None if bound is None else bound.epsilon
                flat[f"{key}_delta"] = None if bound is None else bound.delta
                flat[f"{key}_adjacency"] = None if bound is None else bound.adjacency
            out.append(flat)
        return out

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        """The row of a name. Raises KeyError for one that is not there."""
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
        cell = lambda tag, row: "".join(f"<{tag}>{escape(c)}</{tag}>" for c in row)
        rows = "".join(f"<tr>{cell('td', row)}</tr>" for row in body)
        return f"<table><thead><tr>{cell('th', head)}</tr></thead><tbody>{rows}</tbody></table>"


def pair(bound: Bound | None) -> str:
    """A bound in a cell."""
    return "none" if bound is None else f"({bound.epsilon:.3g}, {bound.delta:.2g})"
