"""The section of the benchmarks page about what a study is told to expect."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tables import Report, as_table


def plans(report: Report) -> Iterable[str]:
    """Expected and realised errors over that of being alone."""
    rows, tables = report["cells"], report["tables"]
    off = [abs(row["expected"] / row["realised"] - 1) for row in rows]
    wrong = [row for row in rows + tables if row["says"] == "worth it" and row["realised"] > 1]
    yield (
        "The error of a task's coefficients with the release, over that of ridge alone (by its own evidence): expected by "
        "`evaluation.plan_study` from public numbers and a guess that is right, and realised in cells of "
        "[the panel](mixed_models.md). The standard error is that of the realised ratio over seeds, as all tasks of a study "
        "share one release's noise. Plans know how unequal residual variances are "
        "(`residual_spread=`) and, where columns are correlated, those of the first data set (`example=`); both arguments "
        f"were added because plans without them missed here. They are within 15 % in {sum(each < 0.15 for each in off)} of "
        f"{len(rows)} cells; the median distance is {np.median(off):.0%}. They say {len(wrong)} times that a release is "
        "worth it where the error rose."
    )
    yield as_table(
        ("cell", "seeds", "expected", "realised", "standard error", "is it worth it?"),
        [(row["cell"], str(row["seeds"]), *_ratios(row), row["says"]) for row in rows],
    )
    near = sum(abs(row["expected"] / row["realised"] - 1) < 0.15 for row in tables)
    inside = sum(abs(row["expected"] - row["realised"]) < 2 * row["error"] for row in tables)
    yield (
        "On real tables, with a guess that is right as far as a mixed model of all rows tells, and errors of predictions "
        "less what no coefficient predicts of the same test rows, averaged over tasks. Plans know the columns of the "
        "first split's training rows, but not their targets: that columns go together, or are constant within a task as "
        "uranium is. The standard error is that over splits of one table; as splits share "
        f"rows it is too small. {near} of {len(tables)} plans are within 15 %, {inside} within two standard errors."
    )
    yield as_table(
        ("table", "eps", "splits", "expected", "realised", "standard error", "is it worth it?"),
        [(row["table"], f"{row['epsilon']:g}", str(row["splits"]), *_ratios(row), row["says"]) for row in tables],
    )


def _ratios(row: Report) -> tuple[str, str, str]:
    error = "" if row["error"] is None else f"{row['error']:.2f}"
    return f"{row['expected']:.2f}", f"{row['realised']:.2f}", error
