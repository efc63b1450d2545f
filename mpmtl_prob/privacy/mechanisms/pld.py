"""Access to the two directions of a dp-accounting privacy-loss distribution (PLD), and to their masses on the grid.

The public interface of dp-accounting composes distributions, and answers for the worse direction only. This is the only
module that reads its private attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def directions(distribution: Any) -> tuple[Any, Any]:
    """Return the distributions of "remove" and of "add" in dense form, which composes fastest."""
    return distribution._pmf_remove.to_dense_pmf(), distribution._pmf_add.to_dense_pmf()


def on_grid(first: int, probabilities: np.ndarray, infinity_mass: float, interval: float, pessimistic: bool) -> Any:
    """Build one direction: the losses (first, first + 1, ...) * interval with their probabilities, and an infinite loss.

    dp-accounting's own function needs a dictionary of losses, which is slow.
    """
    from dp_accounting.pld import pld_pmf  # a second to import, and only composition needs it

    return pld_pmf.DensePLDPmf(interval, int(first), probabilities, float(infinity_mass), pessimistic)


def masses(pmf: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses of one direction, ascending with the infinite one last, and their probabilities."""
    loss = (pmf._lower_loss + np.arange(len(pmf._probs))) * pmf._discretization
    return np.append(loss, np.inf), np.append(pmf._probs, pmf._infinity_mass)


def cells(pmf: Any) -> tuple[int, np.ndarray, float]:
    """Return one direction on the grid: its first loss in steps, the probabilities from there on, and that of infinity.

    Negative probabilities, which rounding errors cause, become 0.
    """
    return int(pmf._lower_loss), np.maximum(pmf._probs, 0.0), float(pmf._infinity_mass)
