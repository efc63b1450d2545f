"""The section of the benchmarks page about messages under a weaker prior."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tables import Report, as_table


def message(report: Report) -> Iterable[str]:
    """Errors with messages as they were and as they are, on the same data sets and seeds of the noise."""
    rows = report["cells"]
    yield (
        "The panel above was run with messages that estimate coefficients under the declared prior. Those of today "
        "estimate them under a weaker one, with a larger prior variance and larger effects. Errors of the default on "
        "the same data sets, with the same seeds; alone and mixed of the same as well. Seed 0 of some cells was in view "
        "when the constants were set (`mpmtl_prob/releases/effects.py` says of which). Not all cells were run again."
    )
    yield as_table(
        ("cell", "seeds", "alone, evidence", "0.3.0", "then", "now", "mixed"),
        [
            (row["cell"], str(row["seeds"]), *(_number(row, arm) for arm in ("alone", "0.3.0", "then", "now", "mixed")))
            for row in rows
        ],
    )
    both = [row for row in rows if row["then"] is not None]
    ratios = np.array([row["now"] / row["then"] for row in both])
    yield (
        f"Over {len(both)} cells the error is {np.exp(np.log(ratios).mean()):.2f} times what it was, from "
        f"{ratios.min():.2f} to {ratios.max():.2f}."
    )


def _number(row: Report, arm: str) -> str:
    return "-" if row[arm] is None else f"{row[arm]:.3f}"
