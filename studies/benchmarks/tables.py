"""Tables of the benchmarks page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]


def as_ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def as_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    clean = lambda cells: "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([clean(head), "|" + "---|" * len(head), *map(clean, rows)])
