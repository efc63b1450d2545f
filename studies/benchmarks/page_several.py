"""The section of the benchmarks page about one posterior of several releases."""

from __future__ import annotations

from collections.abc import Iterable

from tables import Report, as_table


def several(report: Report) -> Iterable[str]:
    """Errors with one release, with two of half the budget, and with another consortium's."""
    yield (
        f"{report['sets']} data sets of {report['tasks']} tasks with 3 features and 30 rows each, |mu| = .7 and tau = .2; "
        f"eps = {report['epsilon']:g} and delta = 1/(m log m), of half the budget half of both. Squared errors of the "
        "average effects and of the first consortium's coefficients, with standard errors over data sets, and how many "
        "average effects lie in their 90 % intervals. Noise of half the eps is twice as large, and two of it average to "
        "sqrt 2 times the noise of one release: where there is a choice, there is one."
    )
    yield as_table(
        ("", "average effects", "coefficients", "covered"),
        [
            (
                row["arm"],
                *(_with_error(row, name) for name in ("average effects", "coefficients")),
                f"{row['covered']:.2f}",
            )
            for row in report["cells"]
        ],
    )


def _with_error(row: Report, name: str) -> str:
    return f"{row[name]:.4f} ({row[f'{name}, standard error']:.4f})"
