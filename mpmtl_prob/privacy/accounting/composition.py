"""What several releases give away together: privacy-loss distributions, composed with dp-accounting.

The composition is pessimistic: its delta is never too small. :func:`delta_bracket` puts the optimistic bound beside it,
so that the gap is visible. Every law has a dominating pair under either adjacency, and the pairs of all rounds multiply:
privacy losses add up, in each direction on its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from mpmtl_prob._check import in_range, one_of
from mpmtl_prob.privacy.laws.closed_forms import ADJACENCIES, delta_add, delta_gaussian, delta_pure, delta_remove
from mpmtl_prob.privacy.laws.loss_distributions import dense, directions, masses
from mpmtl_prob.privacy.laws.mechanisms import Gaussian, Mechanism, Wishart
from mpmtl_prob.privacy.laws.vectors import VectorLaplace
from mpmtl_prob.tasks import FloatArray

#: Cells on the width of the widest round's loss. Four times as many change nothing in the fourth digit of delta.
CELLS = 1000
#: Cells for the optimistic side, whose error is of first order in the grid.
FINE_CELLS = 4000
#: Added to every composed delta: the Fourier transforms of the composition are exact to about 1e-16 per cell.
ROUND_OFF = 1e-12


#: Where a trade-off curve is supported by lines; each bounds it everywhere.
LARGEST = 20.0
_EPSILONS = np.concatenate([np.linspace(0, 3, 121), np.linspace(3, LARGEST, 69)[1:]])


class Bracket(NamedTuple):
    """A number known from both sides."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Profile:
    """delta as a function of eps, in the two directions of an adjacency; of a replacement they are the same."""

    add: Callable[[float], float]
    remove: Callable[[float], float]

    def delta(self, epsilon: float) -> float:
        """The worse direction."""
        return max(self.add(epsilon), self.remove(epsilon))

    def power(self, false_alarms: ArrayLike) -> FloatArray:
        """The largest probability of recognising that "add" is true at given false-alarm rates, from all eps at once."""
        a = np.asarray(false_alarms, dtype=np.float64)
        power = np.ones_like(a)
        for epsilon in _EPSILONS:
            power = np.minimum(power, np.exp(epsilon) * a + self.add(epsilon))
            power = np.minimum(power, 1 - np.exp(-epsilon) * (1 - a - self.remove(epsilon)))
        return np.clip(power, 0.0, 1.0)


@lru_cache(maxsize=32)
def profile(
    mechanisms: tuple[Mechanism, ...], adjacency: str, pessimistic: bool = True, cells: int | None = None
) -> Profile:
    """delta(eps) of the mechanisms composed, one per round, in the two directions.

    Exact for Gaussian noise, for any number of rounds of the papers' noise (k = 1), and for one Wishart round when a task
    is zeroed; a bound otherwise.
    """
    if (mu := gaussian_mu(mechanisms, adjacency)) is not None:
        return Profile(*2 * (lambda epsilon: delta_gaussian(epsilon, mu),))
    if (gamma := _closed_form(mechanisms, adjacency)) is not None:
        return gamma
    cells = cells or (CELLS if pessimistic else FINE_CELLS)
    if (vectors := _vector_curve(mechanisms, adjacency, pessimistic, cells)) is not None:
        return Profile(vectors, vectors)
    composed = _compose(mechanisms, adjacency, pessimistic, cells)
    allowance = ROUND_OFF if pessimistic else -ROUND_OFF

    def read(pmf: Any) -> Callable[[float], float]:
        return lambda epsilon: float(np.clip(pmf.get_delta_for_epsilon(float(epsilon)) + allowance, 0.0, 1.0))

    remove, add = directions(composed)
    return Profile(read(add), read(remove))


def delta(epsilon: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> float:
    """The delta at which the mechanisms, one per round, are together (eps, delta)-private for one task.

    Args:
        epsilon: >= 0.
        mechanisms: one, or one per round, in any mixture.
        adjacency: "zero_out" (the task's vector against zero) or "replace" (against any other vector).

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


def loss_when_there(mechanisms: Mechanism | Sequence[Mechanism], adjacency: str) -> tuple[FloatArray, FloatArray]:
    """The privacy loss of all rounds when the unit is there: its values, ascending, and their probabilities."""
    return masses(directions(_compose(as_rounds(mechanisms), adjacency, True, CELLS))[0])


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
    return float(profile(rounds, adjacency, pessimistic).delta(epsilon))


def gaussian_mu(mechanisms: tuple[Mechanism, ...], adjacency: str) -> float | None:
    """mu of Gaussian rounds together, None if there are others."""
    squares = [mechanism.mu(adjacency) ** 2 for mechanism in mechanisms if isinstance(mechanism, Gaussian)]
    return float(np.sqrt(sum(squares))) if len(squares) == len(mechanisms) else None


def _closed_form(mechanisms: tuple[Mechanism, ...], adjacency: str) -> Profile | None:
    """One Wishart round when a task is zeroed, or any number of the papers' rounds; None for others.

    The loss of the papers' noise (k = 1) takes one finite value, so that rounds are together one with
    1/theta = sum 1/theta_t; of a replacement that value is 0, and delta is the same at every eps.
    """
    laws = [mechanism for mechanism in mechanisms if isinstance(mechanism, Wishart)]
    papers = all(law.shape == 1 for law in laws)
    if len(laws) < len(mechanisms) or not (papers or (len(laws) == 1 and adjacency == "zero_out")):
        return None
    shape, theta = laws[0].shape, 1 / sum(1 / law.theta for law in laws)
    if adjacency == "replace":
        certain = float(-np.expm1(-1 / theta))
        return Profile(*2 * (lambda epsilon: certain if epsilon >= 0 else float(1 - np.exp(epsilon) * (1 - certain)),))
    return Profile(
        lambda epsilon: delta_add(epsilon, shape, theta), lambda epsilon: delta_remove(epsilon, shape, theta)
    )


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
        distribution = dense(mechanism.loss_distribution(adjacency, interval=interval, pessimistic=pessimistic))
        return distribution if times == 1 else distribution.self_compose(times, tail)

    with np.errstate(over="ignore"):  # in the Chernoff bounds that dp-accounting tries and then discards
        parts = [one(mechanism, times) for mechanism, times in Counter(mechanisms).items()]
        return reduce(lambda left, right: left.compose(right, tail), parts)
