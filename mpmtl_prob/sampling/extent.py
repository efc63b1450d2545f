"""Extent of a run of chains: its warm-up, stopping rules, and interrupts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob._util.former import FormerName

#: Default number of warm-up iterations. Up to it, NumPyro's schedule begins to estimate the mass matrix after 15 % of them,
#: and has one window for it. From 150 on, the first 75 iterations only adapt the step size, with the longest trajectories of
#: the run.
WARMUP = 140


class Interrupted(UserWarning):
    """Warning of an interrupted run, whose posterior has fewer draws than were asked for.

    In a loop over many fits, make it an error, so that an interrupt ends the loop:
    ``warnings.simplefilter("error", Interrupted)``.
    """


@contextmanager
def raise_on_interrupt() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt inside the block, where a run would otherwise return the draws so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Interrupted)
        try:
            yield
        except Interrupted:
            raise KeyboardInterrupt from None


@dataclass(frozen=True)
class Until:
    """Stopping rule of a run, which ends when all watched functionals satisfy every limit that is given.

    Attributes:
        ess: smallest number of effective draws, of all chains together.
        rhat: largest split r-hat.

    Raises:
        ValueError: numbers outside their range, or neither is given.

    Source: Vehtari et al. (2021), Bayesian Analysis 16(2), without ranks, because the watched functionals have no heavy
    tails.
    """

    ess: float | None = None
    rhat: float | None = None

    reached = FormerName("is_met")

    def __post_init__(self) -> None:
        if self.ess is None and self.rhat is None:
            raise ValueError("until: expected ess, rhat, or both")
        if self.ess is not None:
            positive("ess", self.ess)
        if self.rhat is not None:
            in_range("rhat", self.rhat, 1, np.inf)

    def is_met(self, ess: float, rhat: float) -> bool:
        """Return whether a number of effective draws and an r-hat are enough."""
        return (self.ess is None or ess >= self.ess) and (self.rhat is None or rhat <= self.rhat)
