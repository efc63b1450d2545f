"""Kinds of outcomes: numbers, whether something happened, and how often.

A row's expected target depends on its linear predictor, the sum of its columns times effects: a number is the predictor
itself, of a binary outcome it is the log odds, and of a count the logarithm of the rate for one unit of exposure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray

OUTCOMES = ("number", "binary", "count")


def link(name: str, outcome: str, baseline: float) -> float:
    """Return the linear predictor of a probability or a rate. Raises ValueError for a number that is neither."""
    if outcome == "binary":
        if not 0 < baseline < 1:
            raise ValueError(f"{name}: expected a probability strictly between 0 and 1, got {baseline!r}")
        return float(np.log(baseline) - np.log1p(-baseline))
    if not baseline > 0:
        raise ValueError(f"{name}: expected a rate above 0, got {baseline!r}")
    return float(np.log(baseline))


def targets_of(outcome: str, y: FloatArray) -> FloatArray:
    """Return targets (n,) as an outcome's law takes them: of "binary" 0 and 1, whether they came as these or as -1 and 1."""
    return np.where(y > 0, 1.0, 0.0) if outcome == "binary" else y


def impossible(outcome: str, y: FloatArray) -> NDArray[np.bool_]:
    """Return which targets (n,) an outcome cannot have; of a binary one all where both 0 and -1 are among them."""
    return _IMPOSSIBLE[outcome](y)


def _no_labels(y: FloatArray) -> NDArray[np.bool_]:
    three = bool((y == 0).any() and (y == -1).any())
    return np.full(y.shape, fill_value=True) if three else ~((y == 1) | (y == 0) | (y == -1))


_IMPOSSIBLE: dict[str, Callable[[FloatArray], NDArray[np.bool_]]] = {
    "number": lambda y: np.zeros(y.shape, dtype=bool),
    "binary": _no_labels,
    "count": lambda y: ~((y >= 0) & (y == np.floor(y)) & (y <= 2.0**53)),
}
