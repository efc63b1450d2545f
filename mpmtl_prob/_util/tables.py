"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence


def percent(probability: float, places: int = 0) -> str:
    """Write a probability in percent, with so many decimals, or as many more as it takes not to round up to 100 %.

    One that is nearer to 1 than 1e-9, of which as much is true as of 99.9999999 %, is written as that.
    """
    for decimals in range(places, 8):
        text = f"{probability:.{decimals}%}"
        if not text.startswith("100"):
            return text
    return "99.9999999%"


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Return a head and rows as lines of text, with the first column aligned left and the others right."""
    width = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
    lines = [
        "  ".join(c.ljust(w) if j == 0 else c.rjust(w) for j, (c, w) in enumerate(zip(row, width, strict=True)))
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
