"""How far from what is exact a simulated number may lie: so far that chance alone hardly ever takes it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from studies.papers.verdicts import FAILS, HOLDS, Verdict

#: of a verdict, by Student's t; means of many are nearly normal, so that all verdicts together stay below 1e-6
FALSE_ALARM = 1e-8
Row = dict[str, Any]


def far(looks: int, runs: int) -> float:
    """How many standard errors the farthest of so many means, each of so many runs, passes with :data:`FALSE_ALARM`."""
    return float(stats.t(runs - 1).isf(FALSE_ALARM / (2 * looks)))


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


def agree(
    claim: str, statement: str, data: str, rows: Sequence[Row], runs: int, also: bool = True, why: str = ""
) -> Row:
    """The verdict that all measured numbers, of as many runs or more, are what is exact, and that something else is so."""
    most, room = max(map(z_score, rows)), far(len(rows), runs)
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
