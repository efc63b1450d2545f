"""Exposure and weights of rows: how long each was at risk, and how much it counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array
from mpmtl_prob._util.hidden_arrays import shown


class Observations(NamedTuple):
    """Rows of one task, with exposure and weights.

    Attributes:
        X: features, (n, d).
        y: targets, (n,).
        exposure: time at risk or number of chances behind every count, (n,).
        weights: how much every row counts, (n,).
    """

    X: FloatArray
    y: FloatArray
    exposure: FloatArray
    weights: FloatArray

    def __repr__(self) -> str:
        return shown(self)


def of_every_row(name: str, values: Any, counts: NDArray[np.int64]) -> FloatArray:
    """Check that there is a positive number for every row, and return all of them, (N,).

    Args:
        name: name of the argument, for errors.
        values: the numbers, as one vector of all tasks' rows or as one vector per task.
        counts: number of rows of every task, (m,).

    Raises:
        ValueError: a wrong number of values, or values that are not positive and finite. The error says how many, not which.
    """
    parts = values if isinstance(values, list | tuple) or getattr(values, "ndim", 1) == 2 else []
    vectors = [as_float_array(name, value) for value in parts]
    if vectors and all(value.ndim == 1 for value in vectors):
        if [len(value) for value in vectors] != counts.tolist():
            raise ValueError(f"{name}: expected one vector per task, with a number for every row, got other lengths")
        flat = np.concatenate(vectors)
    else:
        flat = np.array(as_float_array(name, values))
    if flat.shape != (counts.sum(),):
        raise ValueError(f"{name}: expected {counts.sum()} numbers, one for every row, got shape {flat.shape}")
    if bad := int(np.sum(~((flat > 0) & np.isfinite(flat)))):
        raise ValueError(f"{name}: expected positive, finite numbers, got {bad} that are not; leave such rows out")
    return flat


def check_plain(name: str, exposure: Any, weights: Any) -> None:
    """Raise ValueError for exposure or weights where they would be ignored."""
    for what, given in (("exposure", exposure), ("weights", weights)):
        if given is not None:
            raise ValueError(
                f"{name}: expected rows without {what}, which mixed models alone take into account, those of a release with "
                f"reference values; got rows with {what}"
            )
