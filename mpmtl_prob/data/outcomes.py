"""Kinds of outcomes: numbers, binary outcomes (events) and counts.

The expected target of a row depends on its linear predictor, the sum of its columns times effects. The predictor is the
expected value of a number, the log odds of a binary outcome, and the log rate of a count per unit of exposure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray

OUTCOMES = ("number", "binary", "count")


def link(name: str, outcome: str, baseline: float) -> float:
    """Return the linear predictor of a baseline probability or rate. Raises ValueError for an impossible baseline."""
    if outcome == "binary":
        if not 0 < baseline < 1:
            raise ValueError(f"{name}: expected a probability strictly between 0 and 1, got {baseline!r}")
        return float(np.log(baseline) - np.log1p(-baseline))
    if not baseline > 0:
        raise ValueError(f"{name}: expected a rate above 0, got {baseline!r}")
    return float(np.log(baseline))


def targets_of(outcome: str, y: FloatArray) -> FloatArray:
    """Return targets (n,) in the coding of the outcome's likelihood: binary ones as 0 and 1, also if given as -1 and 1."""
    return np.where(y > 0, 1.0, 0.0) if outcome == "binary" else y


def impossible(outcome: str, y: FloatArray) -> NDArray[np.bool_]:
    """Return which targets (n,) are impossible for an outcome; all of a binary one if both 0 and -1 occur."""
    return _IMPOSSIBLE[outcome](y)


def _no_labels(y: FloatArray) -> NDArray[np.bool_]:
    three = bool((y == 0).any() and (y == -1).any())
    return np.full(y.shape, fill_value=True) if three else ~((y == 1) | (y == 0) | (y == -1))


_IMPOSSIBLE: dict[str, Callable[[FloatArray], NDArray[np.bool_]]] = {
    "number": lambda y: np.zeros(y.shape, dtype=bool),
    "binary": _no_labels,
    "count": lambda y: ~((y >= 0) & (y == np.floor(y)) & (y <= 2.0**53)),
}
