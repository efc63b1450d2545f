"""HTML cards that notebooks show for an object: a title, a few facts, a note; never rows, weights or noise."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_STYLE = "border:1px solid #9995;border-radius:6px;padding:.5em .9em;display:inline-block;max-width:60em"


def card(title: str, facts: Mapping[str, object], note: str = "") -> str:
    """Return HTML with the facts as a table of two columns. Everything is escaped."""
    rows = "".join(
        f"<tr><td style='text-align:left;opacity:.7'>{escape(str(name))}</td>"
        f"<td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    below = f"<div style='opacity:.7'>{escape(note)}</div>" if note else ""
    return f"<div style='{_STYLE}'><b>{escape(title)}</b><table>{rows}</table>{below}</div>"
