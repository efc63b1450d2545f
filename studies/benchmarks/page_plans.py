"""The section of the benchmarks page about what a study is told to expect."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tables import Report, as_table


def plans(report: Report) -> Iterable[str]:
    """Expected and realised errors over that of being alone."""
    rows = report["cells"]
    near = sum(abs(row["expected"] / row["realised"] - 1) < 0.15 for row in rows)
    wrong = [row for row in rows if row["says"] == "worth it" and row["realised"] > 1]
    yield (
        "The error of a task's coefficients with the release, relative to ridge alone (by its own evidence): expected by "
        "`evaluation.plan_study` from public numbers and a guess that is right, and realised in "
        "[the panel](mixed_models.md), whose fits are those of its commit. The plan takes columns as independent and "
        "residual variances as equal: it is farthest off in cells whose names say otherwise. It is within 15 % in "
        f"{near} of {len(rows)} cells; the median distance is "
        f"{np.median([abs(row['expected'] / row['realised'] - 1) for row in rows]):.0%}. In {len(wrong)} cells it "
        "says that a release is worth it where the error rose."
    )
    yield as_table(
        ("cell", "seeds", "expected", "realised", "the plan says"),
        [
            (row["cell"], str(row["seeds"]), f"{row['expected']:.2f}", f"{row['realised']:.2f}", row["says"])
            for row in rows
        ],
    )
    tables = report["tables"]
    yield (
        "On real tables, with a guess that is right as far as a mixed model of all rows tells. Errors are those of the "
        "panel's table, less the residual variance of that model, which is most of them and which no model predicts; where "
        "little is left, the realised ratio is rough. It is within 15 % in "
        f"{sum(abs(row['expected'] / row['realised'] - 1) < 0.15 for row in tables)} of {len(tables)}."
    )
    yield as_table(
        ("table", "eps", "splits", "expected", "realised", "the plan says"),
        [
            (
                row["table"], f"{row['epsilon']:g}", str(row["splits"]), f"{row['expected']:.2f}", f"{row['realised']:.2f}",
                row["says"],
            )
            for row in tables
        ],
    )  # fmt: skip
