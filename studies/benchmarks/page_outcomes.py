"""The section of the benchmarks page about mixed models of binary outcomes and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tables import Report, as_table

_ARMS = ("pooled", "eps = 1", "eps = 3", "mixed")


def outcomes(report: Report) -> Iterable[str]:
    """Log scores beside alone, errors and coverage of effects, bias and coverage of average effects."""
    yield (
        "Tasks with labels or counts, three columns and an intercept. Average effects are .5, -.3 and 0 and vary by .15 "
        "between tasks, intercepts by .4. A cell's name has the outcome, how often it happens where columns are 0, the "
        "number of tasks, and the rows of each. Declared baselines are half as high again as the truth. *alone* is a task's "
        "posterior without a release, *pooled* one model of all rows, *mixed* the mixed model of all rows by NUTS, without "
        "privacy; *eps* is that of a release, delta = 1 / (m log m). The table has log scores of new rows less that of "
        "alone, with standard errors over seeds: more is better. The form of the messages was chosen on simulated logistic "
        "regressions of the same kind, with events in 1 to 50 % of rows, not on the tables."
    )
    head = ("", "seeds", "alone", *(f"{arm}, gain" for arm in _ARMS))
    for kind in ("cells", "tables"):
        rows = [
            (name, str(len(seeds)), f"{_mean(seeds, 'alone', 'log score'):.4f}", *(_gain(seeds, arm) for arm in _ARMS))
            for name, seeds in report[kind].items()
        ]
        if rows:
            if kind == "tables":
                yield "Real tables, half of every task's rows for training; a baseline that is a round number:"
            yield as_table(head, rows)
    cells = report["cells"]
    if not cells:
        return
    yield "Errors of effects, and what 90 % intervals cover of them, all coefficients together:"
    arms = ("alone", "eps = 1", "eps = 3", "mixed")
    rows = [(name, *(_error(seeds, arm) for arm in arms)) for name, seeds in cells.items()]
    yield as_table(("cell", *arms), rows)
    yield (
        "Average effects: the mean of estimate less truth over seeds, effect by effect, and how many of their 90 % intervals "
        "hold the truth:"
    )
    rows = [(name, *(_average(seeds, arm) for arm in ("eps = 1", "eps = 3", "mixed"))) for name, seeds in cells.items()]
    yield as_table(("cell: x1, x2, x3, intercept", "eps = 1", "eps = 3", "mixed"), rows)
    private = [
        seed[arm]
        for kind in ("cells", "tables")
        for seeds in report[kind].values()
        for seed in seeds
        for arm in ("eps = 1", "eps = 3")
    ]
    passed, failing = np.mean([fit["passed"] for fit in private]), sum(fit["worst k-hat"] > 0.7 for fit in private)
    yield (
        f"Of {len(private)} releases, {passed:.0%} have a public posterior that passes its own diagnosis with 1200 draws; in "
        f"{failing} an owner's approximation is too far off to be corrected (k-hat above .7), and says so."
    )


def _mean(seeds: Sequence[Any], arm: str, name: str) -> float:
    return float(np.mean([seed[arm][name] for seed in seeds]))


def _gain(seeds: Sequence[Any], arm: str) -> str:
    gains = np.array([seed[arm]["log score"] - seed["alone"]["log score"] for seed in seeds])
    error = f" ({gains.std(ddof=1) / np.sqrt(len(gains)):.4f})" if len(gains) > 1 else ""
    return f"{gains.mean():+.4f}{error}"


def _error(seeds: Sequence[Any], arm: str) -> str:
    covered = np.mean([seed[arm]["covered"] for seed in seeds])
    return f"{_mean(seeds, arm, 'error'):.3f}; {covered:.0%}"


def _average(seeds: Sequence[Any], arm: str) -> str:
    bias = np.mean([seed[arm]["average"] for seed in seeds], axis=0)
    covered = np.array([seed[arm]["average covered"] for seed in seeds])
    return f"{', '.join(f'{value:+.2f}' for value in bias)}; {int(covered.sum())} of {covered.size}"
