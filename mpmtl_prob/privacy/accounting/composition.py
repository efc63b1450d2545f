"""Composition of several releases: the sum of their privacy losses, from privacy-loss distributions on one grid.

The composition is pessimistic: its delta is never too small. :func:`delta_bracket` also returns the optimistic bound, which
shows the gap. Every law has a dominating pair of distributions under either adjacency, and the composition is the product
of the pairs of all rounds. So privacy losses add up, separately in each direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range
from mpmtl_prob._util.former import former_names
from mpmtl_prob._util.protocols import derives
from mpmtl_prob.privacy.accounting.convolution import Bracket, Losses, LossSum
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_pure
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile, smallest_epsilon
from mpmtl_prob.privacy.units import Adjacency

#: Grid cells across the width of the widest round's loss. Four times as many do not change the fourth digit of delta.
CELLS = 1000
#: Grid cells for the optimistic bound, whose error is of first order in the grid.
FINE_CELLS = 4000
#: Error in delta from the quadrature in a round's loss.
ROUND_OFF = 1e-12


@lru_cache(maxsize=32)
def profile(
    mechanisms: tuple[Mechanism, ...], adjacency: str, pessimistic: bool = True, cells: int | None = None
) -> PrivacyProfile:
    """Compute the privacy profile of composed mechanisms, one per round, in both directions.

    It is exact for Gaussian noise, for any number of rounds of the papers' noise (k = 1), and for one Wishart round with a
    zeroed task. Otherwise it is an upper bound.
    """
    for law in mechanisms:
        derives("mechanisms", law, Mechanism)
    with _in_doubles(mechanisms):
        closed_forms = (law.compose_closed_form(mechanisms, adjacency) for law in dict.fromkeys(mechanisms))
        if (closed_form := next(filter(None, closed_forms), None)) is not None:
            return closed_form
        remove, add = _compose(mechanisms, adjacency, pessimistic, cells or (CELLS if pessimistic else FINE_CELLS))
    quadrature_error = sum(law.by_quadrature for law in mechanisms) * ROUND_OFF
    max_losses = Counter(law.max_loss(adjacency) for law in mechanisms)
    total = sum(Fraction(loss) * times for loss, times in max_losses.items()) if max(max_losses) < np.inf else np.inf

    def read(losses: LossSum) -> Callable[[float], float]:
        def curve(epsilon: float) -> float:
            if epsilon >= total:  # the sum of the largest losses needs no grid
                return 0.0
            lower, upper = losses.delta(epsilon)
            if not pessimistic:
                return max(lower - quadrature_error, 0.0)
            bound = min(upper + quadrature_error, 1.0)
            if len(max_losses) == 1 and total < np.inf:
                bound = min(bound, delta_pure(epsilon, *next(iter(max_losses.items()))))
            return bound

        return curve

    return PrivacyProfile(read(add), read(remove))


def compute_delta(epsilon: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> float:
    """Compute the delta at which the mechanisms, one per round, are together (eps, delta)-private for one unit.

    Args:
        epsilon: >= 0.
        mechanisms: one, or one per round, in any mixture.
        adjacency: "zero_out" (the task's vector against zero) or "replace" (against any other vector).

    Raises:
        ValueError: an argument outside its range, or a mechanism without a proof.

    The papers' noise of eps = 1, with a task left out:

    >>> round(mp.privacy.compute_delta(1.0, mp.privacy.PaperWishart(4, 1.0), "zero_out"), 2)
    0.63
    """
    return _delta(epsilon, as_rounds(mechanisms), adjacency)


def delta_bracket(epsilon: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> Bracket:
    """Compute a lower bound on delta(eps), and the upper bound of :func:`compute_delta`; the difference is the grid's error.

    Arguments and errors as :func:`compute_delta`. Both numbers are the same where delta has a closed form.
    """
    rounds = as_rounds(mechanisms)
    upper = _delta(epsilon, rounds, adjacency)
    return Bracket(min(_delta(epsilon, rounds, adjacency, pessimistic=False), upper), upper)


def compute_epsilon(delta: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str = "replace") -> float:
    """Compute the smallest eps at which the composed mechanisms are (eps, delta)-private, to six digits; inf above 1e9.

    Arguments and errors as :func:`compute_delta`.

    >>> law = mp.privacy.calibrate(1.0, 1e-3, num_features=4)
    >>> [round(mp.privacy.compute_epsilon(1e-3, [law] * rounds), 1) for rounds in (1, 2, 4)]
    [1.0, 1.5, 2.3]
    """
    target = in_range("delta", delta, 0, 1)
    rounds = as_rounds(mechanisms)
    return smallest_epsilon(lambda value: _delta(value, rounds, adjacency), target)


def loss_when_there(mechanisms: Mechanism | Sequence[Mechanism], adjacency: str) -> tuple[FloatArray, FloatArray]:
    """Return the total privacy loss of all rounds if the unit took part: its ascending values, and their probabilities."""
    rounds = as_rounds(mechanisms)
    with _in_doubles(rounds):
        return _compose(rounds, adjacency, True, CELLS)[0].masses()


def loss_above(epsilon: float, mechanisms: Mechanism | Sequence[Mechanism], adjacency: str) -> float:
    """Compute the probability that the total privacy loss of all rounds exceeds eps if the unit took part.

    As delta = P(loss > eps) - e^eps Q(loss > eps), this probability is delta minus its derivative. The right-hand derivative
    is used, as a loss of exactly eps does not exceed it. It is computed from three points; masses on the grid would have an
    error of one cell's mass.
    """
    rounds = as_rounds(mechanisms)
    remove = profile(rounds, Adjacency.of(adjacency), cells=4 * CELLS).remove
    step = max(law.loss_spread for law in rounds) / (2 * CELLS)  # two cells
    here, near, far = (remove(epsilon + i * step) for i in range(3))
    slope = (4 * near - 3 * here - far) / (2 * step)
    return float(np.clip(here - slope, here, 1.0))


def as_rounds(mechanisms: Mechanism | Sequence[Mechanism]) -> tuple[Mechanism, ...]:
    """Return a tuple with one mechanism per round. Raises ValueError for none, or for a mechanism without a proof."""
    rounds = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
    if not rounds:
        raise ValueError("mechanisms: expected at least one round, got none")
    for mechanism in rounds:
        derives("mechanisms", mechanism, Mechanism)
    if unproved := next((mechanism for mechanism in rounds if mechanism.unproved), None):
        raise ValueError(f"mechanisms: expected mechanisms with a proof, got {unproved.kind}. {unproved.unproved}")
    return rounds


def _delta(epsilon: float, rounds: tuple[Mechanism, ...], adjacency: str, pessimistic: bool = True) -> float:
    epsilon = in_range("epsilon", epsilon, 0, np.inf, left_closed=True)
    return float(profile(rounds, Adjacency.of(adjacency), pessimistic).delta(epsilon))


def _compose(
    mechanisms: tuple[Mechanism, ...], adjacency: str, pessimistic: bool, num_cells: int
) -> tuple[LossSum, LossSum]:
    """Return the sums of all rounds' losses, for "remove" and for "add"."""
    counted = Counter(mechanisms)
    step = max(law.loss_spread for law in counted) / num_cells
    if not 0 < step < np.inf:
        raise ArithmeticError
    rounds = [
        (LossDistribution.of(law.loss_distribution(adjacency, interval=step, pessimistic=pessimistic)), times)
        for law, times in counted.items()
    ]
    remove = LossSum([Losses(*one.remove, times) for one, times in rounds], step)
    if all(one.remove is one.add for one, _ in rounds):  # the loss has the same law in both directions
        return remove, remove
    return remove, LossSum([Losses(*one.add, times) for one, times in rounds], step)


@contextmanager
def _in_doubles(mechanisms: Sequence[Mechanism]) -> Iterator[None]:
    """Raise a named ValueError for noise of a size at which doubles overflow or have no digits left."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            yield
    except (ArithmeticError, MemoryError, ValueError):
        kinds = ", ".join(dict.fromkeys(map(repr, mechanisms)))
        raise ValueError(
            f"mechanisms: expected noise whose privacy loss can be computed in doubles, got {kinds:.400}: the noise is too "
            "small or too large for its sensitivity, or its sizes differ too much, or there are too many rounds"
        ) from None


__getattr__ = former_names(__name__, {"delta": "compute_delta", "epsilon": "compute_epsilon"})
