"""What several releases give away together: privacy-loss distributions, composed with dp-accounting.

The composition is pessimistic: its delta is never too small. :func:`delta_bracket` puts the optimistic bound beside it,
so that the gap is visible. Both directions of zero-out adjacency are composed on their own; a replacement is two hops
through the zeroed task, on the composed mechanism, unless the loss of replacing is known by itself in every round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from mpmtl_prob._check import in_range, one_of
from mpmtl_prob.privacy.accounting import ADJACENCIES, delta_add, delta_gaussian, delta_pure, delta_remove
from mpmtl_prob.privacy.mechanisms import Gaussian, Mechanism, Wishart
from mpmtl_prob.privacy.vectors import VectorLaplace

#: Cells on the width of the widest round's loss. Eight times as many change nothing in the third digit of delta.
CELLS = 400
#: Cells for the optimistic side, whose error is of first order in the grid.
FINE_CELLS = 4000
#: Added to every composed delta: the Fourier transforms of the composition are exact to about 1e-16 per cell.
ROUND_OFF = 1e-12


class Bracket(NamedTuple):
    """A number known from both sides."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Profile:
    """delta as a function of eps for zero-out adjacency, in the two directions."""

    add: Callable[[float], float]
    remove: Callable[[float], float]

    def zero_out(self, epsilon: float) -> float:
        """The worse direction."""
        return max(self.add(epsilon), self.remove(epsilon))

    def replace(self, epsilon: float) -> float:
        """Two hops through the zeroed task: delta(eps) <= min_a delta_remove(a) + e^a delta_add(eps - a), a in [0, eps]."""

        def two_hops(a: float) -> float:
            return self.remove(a) + np.exp(min(a, 700.0)) * self.add(epsilon - a)

        # any a gives a valid bound; where `remove` vanishes is often the best
        grid = np.sort(np.append(np.linspace(0, epsilon, 33), _first_zero(self.remove, epsilon)))
        values = [two_hops(a) for a in grid]
        best = int(np.argmin(values))
        around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
        refined = minimize_scalar(two_hops, bounds=around, method="bounded", options={"xatol": 1e-6 * epsilon}).fun
        return float(min(1.0, *values, refined))


@lru_cache(maxsize=32)
def profile(mechanisms: tuple[Mechanism, ...], pessimistic: bool = True, cells: int = CELLS) -> Profile:
    """delta(eps) of the mechanisms composed, one per round, in the two directions of zero-out adjacency.

    Exact for one round, for any number of rounds of the papers' noise (k = 1), whose loss takes one finite value so that
    the composition is that of one round with 1/theta = sum 1/theta_t, and for Gaussian noise; a bound otherwise.
    """
    if (mu := _gaussian_mu(mechanisms, "zero_out")) is not None:
        return Profile(*2 * (lambda epsilon: delta_gaussian(epsilon, mu),))
    if (gamma := _one_gamma(mechanisms)) is not None:
        return Profile(lambda epsilon: delta_add(epsilon, *gamma), lambda epsilon: delta_remove(epsilon, *gamma))
    if (vectors := _vector_curve(mechanisms, "zero_out", pessimistic, cells)) is not None:
        return Profile(vectors, vectors)
    composed = _compose(mechanisms, "zero_out", pessimistic, cells)
    allowance = ROUND_OFF if pessimistic else -ROUND_OFF

    def read(pmf: Any) -> Callable[[float], float]:
        return lambda epsilon: float(np.clip(pmf.get_delta_for_epsilon(float(epsilon)) + allowance, 0.0, 1.0))

    return Profile(read(composed._pmf_add), read(composed._pmf_remove))


def delta(epsilon: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> float:
    """The delta at which the mechanisms, one per round, are together (eps, delta)-private for one task.

    Args:
        epsilon: >= 0.
        mechanisms: one, or one per round, in any mixture.
        adjacency: "zero_out" (the task's vector against zero) or "replace" (against any other vector): two hops through
            the zeroed task, on the composed mechanism.

    Raises:
        ValueError: an argument outside its range, or a mechanism of which nothing is proved.
    """
    return _delta(epsilon, as_rounds(mechanisms), adjacency)


def delta_bracket(epsilon: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> Bracket:
    """delta(eps) with every loss rounded down, and as :func:`delta` has it; they differ by the grid's error only.

    Arguments and errors as :func:`delta`. For a closed form both are the same number.
    """
    rounds = as_rounds(mechanisms)
    upper = _delta(epsilon, rounds, adjacency)
    return Bracket(min(_delta(epsilon, rounds, adjacency, pessimistic=False), upper), upper)


def epsilon(delta: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> float:
    """The smallest eps at which the mechanisms composed are (eps, delta)-private, to six digits; inf if there is none.

    Arguments and errors as :func:`delta`.
    """
    target = in_range("delta", delta, 0, 1)
    rounds = as_rounds(mechanisms)

    def excess(value: float) -> float:
        return _delta(value, rounds, adjacency) - target

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > 1e4:
            return float(np.inf)
    found = brentq(excess, 0.0 if high == 1 else high / 2, high, xtol=1e-9, rtol=1e-7)
    while excess(found) > 0:  # on the private side of the root
        found *= 1 + 1e-7
    return float(found)


def as_rounds(mechanisms: Mechanism | Sequence[Mechanism]) -> tuple[Mechanism, ...]:
    """One mechanism per round. Raises ValueError for none, or for one of which nothing is proved."""
    rounds = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
    if not rounds:
        raise ValueError("mechanisms: expected at least one round, got none")
    if unproved := next((mechanism for mechanism in rounds if mechanism.unproved), None):
        raise ValueError(f"mechanisms: expected mechanisms with a proof, got {unproved.kind}. {unproved.unproved}")
    return rounds


def _delta(epsilon: float, rounds: tuple[Mechanism, ...], adjacency: str, pessimistic: bool = True) -> float:
    one_of("adjacency", adjacency, ADJACENCIES)
    in_range("epsilon", epsilon, 0, np.inf, left_closed=True)
    if adjacency == "replace" and (mu := _gaussian_mu(rounds, "replace")) is not None:
        return delta_gaussian(epsilon, mu)
    cells = CELLS if pessimistic else FINE_CELLS
    if adjacency == "replace" and (direct := _vector_curve(rounds, "replace", pessimistic, cells)) is not None:
        return direct(epsilon)
    return float(getattr(profile(rounds, pessimistic, cells), adjacency)(epsilon))


def _gaussian_mu(mechanisms: tuple[Mechanism, ...], adjacency: str) -> float | None:
    """mu of Gaussian rounds together, None if there are others."""
    squares = [mechanism.mu(adjacency) ** 2 for mechanism in mechanisms if isinstance(mechanism, Gaussian)]
    return float(np.sqrt(sum(squares))) if len(squares) == len(mechanisms) else None


def _one_gamma(mechanisms: tuple[Mechanism, ...]) -> tuple[float, float] | None:
    """(k, theta) of the one round that all are together, None if there is none."""
    laws = [mechanism for mechanism in mechanisms if isinstance(mechanism, Wishart)]
    if len(laws) < len(mechanisms) or (len(laws) > 1 and any(law.shape != 1 for law in laws)):
        return None
    return laws[0].shape, 1 / sum(1 / law.theta for law in laws)


@lru_cache(maxsize=32)
def _vector_curve(
    mechanisms: tuple[Mechanism, ...], adjacency: str, pessimistic: bool, cells: int
) -> Callable[[float], float] | None:
    """delta(eps) of rounds of noise on vectors, the same in both directions; None if there are others."""
    losses = [mechanism.pure(adjacency) for mechanism in mechanisms if isinstance(mechanism, VectorLaplace)]
    if len(losses) < len(mechanisms):
        return None
    total = float(np.sum(losses)) * (1 - 1e-14)  # budgets that add up to eps may miss it by a rounding error
    composed = _compose(mechanisms, adjacency, pessimistic, cells)
    allowance = len(losses) * (ROUND_OFF if pessimistic else -ROUND_OFF)  # the quadrature of a round is as exact

    def curve(epsilon: float) -> float:
        if epsilon >= total:  # plain addition needs no grid
            return 0.0
        found = float(np.clip(composed.get_delta_for_epsilon(float(epsilon)) + allowance, 0.0, 1.0))
        return min(found, delta_pure(epsilon, losses[0], len(losses))) if len(set(losses)) == 1 else found

    return curve


def _compose(mechanisms: tuple[Mechanism, ...], adjacency: str, pessimistic: bool, cells: int) -> Any:
    interval = max(mechanism.loss_spread for mechanism in mechanisms) / cells
    tail = 1e-14 if pessimistic else 0.0  # what dp-accounting may move to infinity at every step

    def one(mechanism: Mechanism, times: int) -> Any:
        distribution = mechanism.loss_distribution(adjacency, interval=interval, pessimistic=pessimistic)
        return distribution if times == 1 else distribution.self_compose(times, tail)

    with np.errstate(over="ignore"):  # in the Chernoff bounds that dp-accounting tries and then discards
        parts = [one(mechanism, times) for mechanism, times in Counter(mechanisms).items()]
        return reduce(lambda left, right: left.compose(right, tail), parts)


def _first_zero(falling: Callable[[float], float], end: float) -> float:
    """Where a falling function reaches zero in [0, end], from the right; ``end`` if it does not."""
    low, high = 0.0, end
    if falling(high) > 0:
        return end
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
