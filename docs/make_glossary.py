"""Write docs/glossary.md from the table docs/glossary.csv: a term, what others call it, and what it means.

    python docs/make_glossary.py

The tests ask that every term is used on some other page.
"""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).with_name("glossary.md")
TABLE = PAGE.with_suffix(".csv")

HEAD = "Words of mixed models, of differential privacy, and of this library, with what others call the same thing."


def terms() -> list[dict[str, str]]:
    """Return the rows of the table."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page() -> str:
    """Return the glossary as Markdown."""
    parts = ["# Glossary", HEAD]
    for group, rows in groupby(terms(), lambda row: row["group"]):
        lines = [f"| **{row['term']}** | {row['meaning']} | {row['also']} |" for row in rows]
        parts += [f"## {group}", "\n".join(["| term | meaning | also |", "|---|---|---|", *lines])]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
