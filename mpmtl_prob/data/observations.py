"""What rows have beside features and a target: how long each was exposed, and how much it counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array
from mpmtl_prob._util.hidden_arrays import shown


class Observations(NamedTuple):
    """One task's rows.

    Attributes:
        X: features, (n, d).
        y: targets, (n,).
        exposure: of counts, (n,).
        weights: how much every row counts, (n,).
    """

    X: FloatArray
    y: FloatArray
    exposure: FloatArray
    weights: FloatArray

    def __repr__(self) -> str:
        return shown(self)


def of_every_row(name: str, values: Any, counts: NDArray[np.int64]) -> FloatArray:
    """Return a positive number for every row, (N,), given one after another or as one vector per task.

    Args:
        name: of the argument, for errors.
        values: the numbers.
        counts: rows of every task, (m,).

    Raises:
        ValueError: another number of them, or numbers that are not positive and finite; how many, and not which.
    """
    parts = values if isinstance(values, list | tuple) or getattr(values, "ndim", 1) == 2 else []
    each = [as_float_array(name, value) for value in parts]
    if each and all(value.ndim == 1 for value in each):
        if [len(value) for value in each] != counts.tolist():
            raise ValueError(f"{name}: expected one vector per task, with a number for every row, got other lengths")
        flat = np.concatenate(each)
    else:
        flat = np.array(as_float_array(name, values))
    if flat.shape != (counts.sum(),):
        raise ValueError(f"{name}: expected {counts.sum()} numbers, one for every row, got shape {flat.shape}")
    if bad := int(np.sum(~((flat > 0) & np.isfinite(flat)))):
        raise ValueError(f"{name}: expected positive, finite numbers, got {bad} that are not; leave such rows out")
    return flat


def check_plain(name: str, exposure: Any, weights: Any) -> None:
    """Raise ValueError for rows with exposure or weights where these would be passed over without a word."""
    for what, given in (("exposure", exposure), ("weights", weights)):
        if given is not None:
            raise ValueError(
                f"{name}: expected rows without {what}, which mixed models alone take into account, those of a release with "
                f"reference values; got rows with {what}"
            )
