"""What dp-accounting keeps to itself: the two directions of a privacy-loss distribution, and their masses on the grid.

It composes, and answers for the worse direction; nothing public of it tells the directions apart. The only place that reads
its private attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def directions(distribution: Any) -> tuple[Any, Any]:
    """The distributions of "remove" and of "add", dense, as they compose fastest."""
    return distribution._pmf_remove.to_dense_pmf(), distribution._pmf_add.to_dense_pmf()


def on_grid(first: int, probabilities: np.ndarray, infinity_mass: float, interval: float, pessimistic: bool) -> Any:
    """One direction: the losses (first, first + 1, ...) * interval with their probabilities, and an infinite one.

    What dp-accounting makes of a dictionary of the same, without the dictionary.
    """
    from dp_accounting.pld import pld_pmf  # a second to import, and only composition needs it

    return pld_pmf.DensePLDPmf(interval, int(first), probabilities, float(infinity_mass), pessimistic)


def masses(pmf: Any) -> tuple[np.ndarray, np.ndarray]:
    """The losses of one direction, ascending, the last infinite, and their probabilities."""
    loss = (pmf._lower_loss + np.arange(len(pmf._probs))) * pmf._discretization
    return np.append(loss, np.inf), np.append(pmf._probs, pmf._infinity_mass)


def cells(pmf: Any) -> tuple[int, np.ndarray, float]:
    """One direction as whole numbers of the grid's steps: the first loss, probabilities from there on, and that of infinity.

    What a rounding error took below 0 is 0.
    """
    return int(pmf._lower_loss), np.maximum(pmf._probs, 0.0), float(pmf._infinity_mass)
