"""Tests of simulated numbers against exact ones, with a negligible probability of false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from studies.papers.verdicts import FAILS, HOLDS, Verdict

#: probability of a false alarm per verdict, by Student's t; all verdicts together stay below 1e-6
FALSE_ALARM = 1e-8
Row = dict[str, Any]


def far(looks: int, runs: int) -> float:
    """Return the critical value in standard errors for the farthest of ``looks`` means of ``runs`` runs each."""
    return float(stats.t(runs - 1).isf(FALSE_ALARM / (2 * looks)))


def measured(exact: float, sample: ArrayLike) -> Row:
    """Return the mean of independent numbers, with its standard error and the exact value."""
    values = np.asarray(sample, dtype=np.float64)
    return beside(exact, float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def beside(exact: float, mean: float, se: float) -> Row:
    """Return a number with its standard error and the exact value."""
    return {"exact": float(exact), "measured": float(mean), "s.e.": float(se)}


def z_score(row: Row) -> float:
    """Return the distance from the exact value in standard errors."""
    off = abs(row["measured"] - row["exact"])
    return off / row["s.e."] if row["s.e."] else (0.0 if off < 1e-9 else np.inf)


def agree(
    claim: str, statement: str, data: str, rows: Sequence[Row], runs: int, also: bool = True, why: str = ""
) -> Row:
    """Return the verdict that all measured numbers agree with exact ones, and that a further condition holds."""
    largest, critical = max(map(z_score, rows)), far(len(rows), runs)
    summary = (
        f"of {len(rows)} measured numbers the farthest lies {largest:.1f} standard errors from what is exact; "
        f"{critical:.1f} are allowed, which chance passes with a probability of {FALSE_ALARM:.0e}"
    )
    return verdict(
        claim,
        statement,
        data,
        largest <= critical and also,
        {"largest z": largest},
        "; ".join(filter(None, (why, summary))),
    )


def verdict(claim: str, statement: str, data: str, holds: bool, statistic: Row, why: str) -> Row:
    """Return a verdict as plain numbers and words."""
    return asdict(Verdict(claim, statement, data, HOLDS if holds else FAILS, statistic, f"{why}."))


def part(title: str, note: str, tables: Sequence[Sequence[Row]], verdicts: Sequence[Row]) -> Row:
    """Return a part of a report, with tables, whose rows have the same keys, and verdicts."""
    return {"title": title, "note": note, "tables": [list(rows) for rows in tables], "verdicts": list(verdicts)}
