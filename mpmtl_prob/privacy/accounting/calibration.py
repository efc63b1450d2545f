"""The least noise that keeps a promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, positive, whole
from mpmtl_prob._util.former import former_arguments
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.mechanisms import Gaussian, Mechanism, Wishart
from mpmtl_prob.privacy.units import Adjacency

#: The grid of k that is searched. Beyond its end the noise is nearly Gaussian, and its fluctuation could fall by no more
#: than another per cent under replacement (``python -m mpmtl_prob.privacy`` prints how much), while the density would
#: lose digits.
SHAPES = tuple(np.geomspace(1.5, 3072.0, 23).tolist())
#: Of the log of a noise scale: louder noise changes no promise any more.
LOUDEST = 300.0
#: Cells of the loss grid while k is being chosen; the scale at the chosen k is found on the grid of the guarantee itself.
ROUGH_CELLS = 200


@overload
def calibrate(
    epsilon: float,
    delta: float,
    num_features: int,
    rounds: int = ...,
    *,
    schedule: None = ...,
    clip: float = ...,
    adjacency: str = ...,
    composed_with: Sequence[Mechanism] = ...,
    max_shape: float = ...,
) -> Wishart: ...
@overload
def calibrate(
    epsilon: float,
    delta: float,
    num_features: int,
    rounds: int | None = ...,
    *,
    schedule: ArrayLike,
    clip: float = ...,
    adjacency: str = ...,
    composed_with: Sequence[Mechanism] = ...,
    max_shape: float = ...,
) -> tuple[Wishart, ...]: ...


@former_arguments(besides="composed_with")
def calibrate(
    epsilon: float,
    delta: float,
    num_features: int,
    rounds: int | None = None,
    *,
    schedule: ArrayLike | None = None,
    clip: float = 1.0,
    adjacency: str = "replace",
    composed_with: Sequence[Mechanism] = (),
    max_shape: float = SHAPES[-1],
) -> Wishart | tuple[Wishart, ...]:
    """The Wishart noise with the least fluctuation whose T releases are together (eps, delta)-private.

    More degrees of freedom give a smoother likelihood and less fluctuation round a larger, known mean. Exact for one
    release; composed pessimistically for more.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        num_features: d.
        rounds: T; default 1, or the length of the schedule.
        schedule: a positive weight per round, (T,), such as the budgets of :func:`mpmtl_prob.privacy.schedule`: as in the
            papers, a round's noise scale is inversely proportional to its weight.
        clip: K, the largest norm of a message.
        adjacency: "replace" or "zero_out".
        composed_with: other mechanisms that share the same (eps, delta), such as the law of :func:`private_clip_norm`.
        max_shape: the largest k to consider, >= 1.5; the degrees of freedom are d - 1 + 2k.

    Returns:
        The law of every round, or with a schedule one law per round.

    Raises:
        ValueError: an argument outside its range, or a delta so small that no noise reaches it: about 1e-18.

    >>> law = mp.privacy.calibrate(1.0, 1e-3, num_features=4)
    >>> print(f"{mp.privacy.compute_delta(1.0, law):.4f}, noise of norm {law.operator_norm:.0f}, messages of {law.clip:g}")
    0.0010, noise of norm 10, messages of 1
    """
    epsilon, delta = positive("epsilon", epsilon), fraction("delta", delta)
    d = whole("num_features", num_features)
    clip = positive("clip", clip)
    adjacency = Adjacency.of(adjacency)
    weights = _weights(rounds, schedule)
    _check_price(epsilon, delta, composed_with, adjacency)
    shapes = tuple(shape for shape in SHAPES if shape <= max_shape * (1 + 1e-9))
    if not shapes:
        raise ValueError(f"max_shape: expected a number >= {SHAPES[0]}, got {max_shape!r}")
    found = _least_noise(epsilon, delta, d, tuple(weights.tolist()), clip, adjacency, tuple(composed_with), shapes)
    return found if schedule is not None else found[0]


@lru_cache(maxsize=256)  # an experiment asks for the same noise again and again
def _least_noise(
    epsilon: float,
    delta: float,
    d: int,
    weights: tuple[float, ...],
    clip: float,
    adjacency: str,
    composed_with: tuple[Mechanism, ...],
    shapes: tuple[float, ...],
) -> tuple[Wishart, ...]:
    def laws(shape: float, log_theta: float) -> tuple[Wishart, ...]:
        thetas = np.exp(log_theta) / np.array(weights)
        return tuple(Wishart(d, float(d - 1 + 2 * shape), float(clip**2 * theta / 2), clip) for theta in thetas)

    def excess(shape: float, cells: int | None = None) -> Callable[[float], float]:
        def at(log_theta: float) -> float:
            together = composition.profile((*laws(shape, log_theta), *composed_with), adjacency, cells=cells)
            return float(np.log(max(together.delta(epsilon), 1e-300)) - np.log(delta))

        return at

    guess, best = float(np.log(len(weights)) / 2), (np.inf, shapes[-1], 0.0)
    for shape in reversed(shapes):  # roughly: the fluctuation has one minimum, and is flat round it
        guess = crossing(excess(shape, ROUGH_CELLS), guess, 1e-3)
        fluctuation = sum(law.operator_norm for law in laws(shape, guess))
        if fluctuation > best[0]:
            break
        best = (fluctuation, shape, guess)
    _, shape, guess = best
    return laws(shape, crossing(excess(shape), guess, 1e-10, width=1e-2))


@former_arguments(besides="composed_with")
@overload
def calibrate_gaussian(
    epsilon: float,
    delta: float,
    num_features: int,
    rounds: int | None = ...,
    *,
    schedule: None = ...,
    clip: float = ...,
    adjacency: str = ...,
    composed_with: Sequence[Mechanism] = ...,
) -> Gaussian: ...
@overload
def calibrate_gaussian(
    epsilon: float,
    delta: float,
    num_features: int,
    rounds: int | None = ...,
    *,
    schedule: ArrayLike,
    clip: float = ...,
    adjacency: str = ...,
    composed_with: Sequence[Mechanism] = ...,
) -> tuple[Gaussian, ...]: ...


def calibrate_gaussian(
    epsilon: float,
    delta: float,
    num_features: int,
    rounds: int | None = None,
    *,
    schedule: ArrayLike | None = None,
    clip: float = 1.0,
    adjacency: str = "replace",
    composed_with: Sequence[Mechanism] = (),
) -> Gaussian | tuple[Gaussian, ...]:
    """The Gaussian noise whose T releases are together (eps, delta)-private, exactly. Arguments as :func:`calibrate`.

    Of a schedule the weights are budgets too: a round's standard deviation is inversely proportional to its weight.
    """
    epsilon, delta = positive("epsilon", epsilon), fraction("delta", delta)
    d, clip = whole("num_features", num_features), positive("clip", clip)
    weights = _weights(rounds, schedule)
    _check_price(epsilon, delta, composed_with, adjacency)

    def laws(log_sd: float) -> tuple[Gaussian, ...]:
        return tuple(Gaussian(d, float(clip**2 * sd), clip) for sd in np.exp(log_sd) / weights)

    def excess(log_sd: float) -> float:
        true = composition.compute_delta(epsilon, laws(log_sd) + tuple(composed_with), adjacency)
        return float(np.log(max(true, 1e-300)) - np.log(delta))

    least = laws(crossing(excess, float(np.log(len(weights)) / 2), 1e-10))
    return least if schedule is not None else least[0]


def _check_price(epsilon: float, delta: float, composed_with: Sequence[Mechanism], adjacency: str) -> None:
    """Raise ValueError for other mechanisms that leave nothing of (epsilon, delta)."""
    if composed_with and composition.compute_delta(epsilon, tuple(composed_with), adjacency) >= delta:
        raise ValueError(
            "composed_with: expected something left of (epsilon, delta) after it, got a price that spends all"
        )


def _weights(rounds: int | None, schedule: ArrayLike | None) -> FloatArray:
    """One positive weight per round, with mean 1."""
    if schedule is None:
        return np.ones(whole("rounds", 1 if rounds is None else rounds))
    weights = np.asarray(schedule, dtype=np.float64)
    if weights.ndim != 1 or weights.size == 0 or not np.all(np.isfinite(weights) & (weights > 0)):
        raise ValueError("schedule: expected one positive number per round")
    if rounds is not None and whole("rounds", rounds) != len(weights):
        raise ValueError(f"schedule: expected {rounds} weights, one per round, got {len(weights)}")
    return weights / weights.mean()


def crossing(excess: Callable[[float], float], guess: float, tolerance: float, width: float = 0.5) -> float:
    """Where a falling function crosses zero, to the tolerance, and on the side where it is below.

    Args:
        excess: of a promise by the log of its noise: log of its delta over the one that is wanted.
        guess: near it.
        tolerance: of what is found.
        width: of the interval round the guess that is tried first; it grows.

    Raises:
        ValueError: it does not cross, for a delta below what rounds that are composed in doubles, or doubles, can promise.
    """
    from scipy.optimize import brentq  # a quarter of a second to import

    low, high = guess - width, guess + width
    while (above := excess(high)) > -1e-12:
        if high > LOUDEST:
            raise ValueError(f"delta: expected one that is larger by more than a factor of {np.exp(above):.7g}, as no noise "
                             "brings it lower: that much of the privacy loss is rounded up to infinity")  # fmt: skip
        low, high = high, min(high + 2 * (high - low), LOUDEST + 1)
    while excess(low) <= 0:
        low, high = low - 2 * (high - low), low
    found = brentq(excess, low, high, xtol=tolerance)
    while excess(found) > -1e-12:
        found += tolerance
    return found
