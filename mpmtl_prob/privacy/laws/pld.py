"""What dp-accounting keeps to itself: the two directions of a privacy-loss distribution, and their masses.

It composes, and answers for the worse direction; nothing public of it tells the directions apart. The only place that reads
its private attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def directions(distribution: Any) -> tuple[Any, Any]:
    """The distributions of "remove" and of "add", dense, as they compose fastest."""
    return distribution._pmf_remove.to_dense_pmf(), distribution._pmf_add.to_dense_pmf()


def masses(pmf: Any) -> tuple[np.ndarray, np.ndarray]:
    """The losses of one direction, ascending, the last infinite, and their probabilities."""
    loss = (pmf._lower_loss + np.arange(len(pmf._probs))) * pmf._discretization
    return np.append(loss, np.inf), np.append(pmf._probs, pmf._infinity_mass)


def dense(distribution: Any) -> Any:
    """The same distribution, in the form that composes by Fourier transforms whatever its size."""
    from dp_accounting.pld import privacy_loss_distribution

    both = directions(distribution)
    return privacy_loss_distribution.PrivacyLossDistribution(*both[: 1 if distribution._symmetric else 2])
