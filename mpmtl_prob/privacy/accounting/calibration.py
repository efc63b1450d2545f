"""Calibration: the least noise that satisfies a given (eps, delta)."""

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

#: Values of k in the search. Beyond the largest one the noise is nearly Gaussian: its fluctuation could decrease by at most
#: another per cent under replacement (``python -m mpmtl_prob.privacy`` prints this), and the density would lose digits.
SHAPES = tuple(np.geomspace(1.5, 3072.0, 23).tolist())
#: Largest log of a noise scale in the search; more noise does not reduce delta any further.
LOUDEST = 300.0
#: Cells of the loss grid while k is being chosen. The scale at the chosen k is computed on the grid of the guarantee itself.
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
    """Calibrate Wishart noise: the least fluctuation with which T releases together are (eps, delta)-private.

    More degrees of freedom give a smoother likelihood, and less fluctuation around a larger, known mean. The result is exact
    for one release, and slightly pessimistic for more.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        num_features: d.
        rounds: T; default 1, or the length of the schedule.
        schedule: a positive weight per round, (T,), such as the budgets of :func:`mpmtl_prob.privacy.schedule`. As in the
            papers, a round's noise scale is inversely proportional to its weight.
        clip: K, the largest norm of a message.
        adjacency: "replace" or "zero_out".
        composed_with: other mechanisms that share the same (eps, delta), such as the law of :func:`private_clip_norm`.
        max_shape: the largest k to consider, >= 1.5; the degrees of freedom are d - 1 + 2k.

    Returns:
        One law that all rounds use, or with a schedule a tuple with one law per round.

    Raises:
        ValueError: an argument outside its range, or a delta below about 1e-18, which no noise reaches.

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
    least = _least_noise(epsilon, delta, d, tuple(weights.tolist()), clip, adjacency, tuple(composed_with), shapes)
    return least if schedule is not None else least[0]


@lru_cache(maxsize=256)  # experiments calibrate the same noise many times
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

    guess = float(np.log(len(weights)) / 2)
    best = (np.inf, shapes[-1], 0.0)
    for shape in reversed(shapes):  # a rough search suffices, as the fluctuation has one minimum and is flat around it
        guess = crossing(excess(shape, ROUGH_CELLS), guess, 1e-3)
        fluctuation = sum(law.operator_norm for law in laws(shape, guess))
        if fluctuation > best[0]:
            break
        best = (fluctuation, shape, guess)
    _, shape, guess = best
    return laws(shape, crossing(excess(shape), guess, 1e-10, width=1e-2))


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


@former_arguments(besides="composed_with")
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
    """Calibrate Gaussian noise with which T releases together are (eps, delta)-private, exactly.

    Arguments as :func:`calibrate`. With a schedule, a round's standard deviation is inversely proportional to its weight.
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
    """Raise ValueError for other mechanisms that use up all of (epsilon, delta)."""
    if composed_with and composition.compute_delta(epsilon, tuple(composed_with), adjacency) >= delta:
        raise ValueError(
            "composed_with: expected mechanisms that leave some of (epsilon, delta), got mechanisms that use all of it"
        )


def _weights(rounds: int | None, schedule: ArrayLike | None) -> FloatArray:
    """Return one positive weight per round, with mean 1."""
    if schedule is None:
        return np.ones(whole("rounds", 1 if rounds is None else rounds))
    weights = np.asarray(schedule, dtype=np.float64)
    if weights.ndim != 1 or weights.size == 0 or not np.all(np.isfinite(weights) & (weights > 0)):
        raise ValueError("schedule: expected one positive number per round")
    if rounds is not None and whole("rounds", rounds) != len(weights):
        raise ValueError(f"schedule: expected {rounds} weights, one per round, got {len(weights)}")
    return weights / weights.mean()


def crossing(excess: Callable[[float], float], guess: float, tolerance: float, width: float = 0.5) -> float:
    """Return a point just beyond the zero of a decreasing function, where it is negative.

    Args:
        excess: log of delta over the wanted delta, as a function of the log of the noise.
        guess: a number near the zero.
        tolerance: of the zero.
        width: half the width of the first interval around the guess; the interval grows until it contains the zero.

    Raises:
        ValueError: there is no zero, as the wanted delta is below what composition in doubles can prove.
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
    zero = brentq(excess, low, high, xtol=tolerance)
    while excess(zero) > -1e-12:
        zero += tolerance
    return zero
