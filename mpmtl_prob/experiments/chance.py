"""How far from what is exact a simulated number may lie: so far that chance alone hardly ever takes it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from mpmtl_prob.experiments.verdicts import FAILS, HOLDS, Verdict

#: of a verdict, if means were normal; they nearly are, and all verdicts of a report together stay below 1e-6
FALSE_ALARM = 1e-8
Row = dict[str, Any]


def far(looks: int = 1) -> float:
    """The z-score that the farthest of so many numbers passes by chance, on either side, with :data:`FALSE_ALARM`."""
    return float(-ndtri(FALSE_ALARM / (2 * looks)))


def measured(exact: float, sample: ArrayLike) -> Row:
    """The mean of independent numbers beside what it should be."""
    values = np.asarray(sample, dtype=np.float64)
    return beside(exact, float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def beside(exact: float, mean: float, se: float) -> Row:
    """A number with its standard error beside what it should be."""
    return {"exact": float(exact), "measured": float(mean), "s.e.": float(se)}


def z_score(row: Row) -> float:
    """How many standard errors from what is exact."""
    off = abs(row["measured"] - row["exact"])
    return off / row["s.e."] if row["s.e."] else (0.0 if off < 1e-9 else np.inf)


def agree(claim: str, statement: str, data: str, rows: Sequence[Row], also: bool = True, why: str = "") -> Row:
    """The verdict that all measured numbers are what is exact, and that something else is so."""
    most, room = max(map(z_score, rows)), far(len(rows))
    said = (
        f"of {len(rows)} measured numbers the farthest lies {most:.1f} standard errors from what is exact; {room:.1f} are "
        f"allowed, which chance passes with a probability of {FALSE_ALARM:.0e}"
    )
    return verdict(
        claim, statement, data, most <= room and also, {"largest z": most}, "; ".join(filter(None, (why, said)))
    )


def verdict(claim: str, statement: str, data: str, holds: bool, statistic: Row, why: str) -> Row:
    """A verdict as plain numbers and words."""
    return asdict(Verdict(claim, statement, data, HOLDS if holds else FAILS, statistic, f"{why}."))


def part(title: str, note: str, tables: Sequence[Sequence[Row]], verdicts: Sequence[Row]) -> Row:
    """A part of a report: tables, whose rows have the same keys, and what they say."""
    return {"title": title, "note": note, "tables": [list(rows) for rows in tables], "verdicts": list(verdicts)}
