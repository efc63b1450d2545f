r"""Sums of many independent privacy losses on one grid, with a proved bound on all rounding errors.

A round's loss takes the values (first, first + 1, ...) h with masses p_j, or is infinite. The masses of a sum of losses are
the inverse transform of the product of their Fourier transforms. In doubles this has an error of about 1e-16 of the *largest*
mass for every round. After 300 000 rounds the error is larger than a delta of 1e-11. So masses are tilted first,

    q_j = p_j e^(s l_j) / M(s),      M(s) = sum_j p_j e^(s l_j),

by an order s >= 0 at which a sum of losses is likely to be near eps. The sum of T losses is l with probability
q_T(l) = p_T(l) e^(s l) / M(s)^T, so

    delta(eps) = sum_{l > eps} p_T(l) (1 - e^(eps - l)) = A sum_{l > eps} q_T(l) w(l - eps),
    A = M(s)^T e^(-s eps),      w(x) = e^(-s x) (1 - e^-x) <= 1.

A is Chernoff's bound on the probability of a loss above eps, and at the best s it is not far above delta. So the error of q_T
counts relative to delta, not to 1.

**Transforms.** N is a power of two, u = 2^-53. The error of a fast transform is at most c = 8 u log2(N) of the result in
Euclidean norm (Higham 2002, theorem 24.2, with 8 for 6.7). So the transform of q has an error of at most c sqrt(N) |q|, and
none of its elements is larger than 1. In a product of T transforms every error counts at most (1 + c sqrt(N) |q|)^T times,
and every multiplication adds 3 u. After the inverse transform, the error of q_T is at most

    e = ((c + 3 u) sum_t |q_t| + c max_t |q_t|) exp(c sqrt(N) sum_t |q_t|),

again in Euclidean norm, and that of sum q_T w at most e |w| (Cauchy and Schwarz).

**Windows.** Mass outside the N cells wraps around and appears at the other end. For any s' above s, the mass of q_T above x
is at most M(s')^T / M(s)^T e^(-(s' - s) x), and likewise below x for s' < s. The window is so wide that at most e^-46 is
outside on either side.

**Other errors.** The relative errors of q_j and M(s) are at most u (4 + 2 s h cells), that of the sum N u. The masses of a
round have an error of at most :data:`MASS` of the round's tail. This changes the delta of T rounds by a relative error of at
most T times as much: after integration by parts, every round enters by its tail with a positive weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

U = 2.0**-53
#: Relative error of the tail of a round's loss: twice that of SciPy's incomplete gamma functions.
MASS = 5e-13
_OUTSIDE = float(np.exp(-46.0))  # largest tilted mass outside either end of a window
#: Orders s to choose from, in units of one over the standard deviation of the sum.
_ORDERS = 2.0 ** np.arange(-6, 6.5, 0.5)
#: Total cells of the tilted sums in a cache.
_CACHED = 2**22
#: Cells of the largest transform, which takes a second and half a gigabyte.
_LARGEST = 2**25


class Losses(NamedTuple):
    """Privacy loss of one round in one direction, with the number of such rounds.

    Attributes:
        first: the least loss, in steps of the grid.
        mass: probabilities of first, first + 1, ..., (n,), none below 0.
        infinite: the probability of an infinite loss.
        times: number of rounds.
    """

    first: int
    mass: FloatArray
    infinite: float
    times: int


class Bracket(NamedTuple):
    """Lower and upper bound of a number."""

    lower: float
    upper: float


class _Tilted(NamedTuple):
    """Tilted sum from cell ``first`` on: its masses, their error in Euclidean norm, and their other errors, relative."""

    first: int
    mass: FloatArray
    error: float
    relative: float


class LossSum:
    """Sum of independent privacy losses in one direction.

    Args:
        parts: the losses of the rounds, on one grid.
        step: h of the grid.

    Raises:
        MemoryError: a sum that needs a larger transform than the limit.
    """

    def __init__(self, parts: Sequence[Losses], step: float) -> None:
        self.step = step
        self.infinite = float(-np.expm1(sum(part.times * np.log1p(-part.infinite) for part in parts)))
        self._parts = [_trimmed(part) for part in parts]
        self._bottom = sum(part.times * part.first for part in self._parts)
        self._top = sum(part.times * (part.first + len(part.mass) - 1) for part in self._parts)
        self._nothing = any(len(part.mass) == 0 for part in self._parts)
        if self._nothing:
            return
        with np.errstate(divide="ignore"):
            self._logs = [np.log(part.mass) for part in self._parts]
        orders = _ORDERS / max(self._deviation(), step)
        self._orders = np.concatenate([-orders[::-1], [0.0], orders])
        self._zero = len(orders)
        self._moments = np.array([self._log_moment(order) for order in self._orders])
        size = self._size(*self._window(self._zero))
        if size > _LARGEST:
            raise MemoryError(f"a sum of privacy losses on a grid of {size} cells")
        self._tilted = lru_cache(maxsize=max(2, _CACHED // size))(self._tilt)

    def delta(self, epsilon: float) -> Bracket:
        """Compute a lower and an upper bound on delta(eps)."""
        finite = (
            Bracket(0.0, 0.0)
            if self._nothing or epsilon > self._top * self.step * (1 + 4 * U)
            else self._finite(epsilon)
        )
        low, high = self.infinite * (1 - MASS) + finite.lower, self.infinite * (1 + MASS) + finite.upper
        return Bracket(float(np.clip(low, 0.0, 1.0)), float(np.clip(high, 0.0, 1.0)))

    def masses(self) -> tuple[FloatArray, FloatArray]:
        """Return the values of the sum, ascending with the infinite one last, and their probabilities."""
        if self._nothing:
            return np.array([np.inf]), np.array([1.0])
        tilted = self._tilted(self._zero)
        losses = (tilted.first + np.arange(len(tilted.mass))) * self.step
        mass = np.maximum(tilted.mass, 0.0) * np.exp(self._moments[self._zero])
        return np.append(losses, np.inf), np.append(mass, self.infinite)

    def _finite(self, epsilon: float) -> Bracket:
        """Compute bounds on the part of delta that comes from finite losses."""
        exponents = self._moments[self._zero :] - self._orders[self._zero :] * epsilon
        best = self._zero + int(np.argmin(exponents))
        order, tilted = self._orders[best], self._tilted(best)
        first = min(max(int(np.floor(epsilon / self.step)) + 1 - tilted.first, 0), len(tilted.mass))
        x = np.maximum((tilted.first + np.arange(first, len(tilted.mass))) * self.step - epsilon, 0.0)
        weight = np.exp(-order * x) * -np.expm1(-x)
        value = float(tilted.mass[first:] @ weight)
        size = abs(epsilon) + abs(tilted.first + len(tilted.mass)) * self.step
        error = float(np.linalg.norm(weight)) * tilted.error + 2 * _OUTSIDE + 4 * U * size
        relative = tilted.relative + 4 * U * (abs(self._moments[best]) + order * abs(epsilon))
        chernoff = float(np.exp(min(exponents[best - self._zero], 700.0)))
        upper = chernoff * (max(value, 0.0) + error) * (1 + relative)
        return Bracket(chernoff * (value - error) * (1 - relative), float(np.nextafter(upper, np.inf)))  # never 0

    def _tilt(self, which: int) -> _Tilted:
        """Compute the sum tilted by the order with this index."""
        low, high = self._window(which)
        size = self._size(low, high)
        transform_error, order = 8 * U * np.log2(size), self._orders[which]
        together, norms, relative = np.ones(1), [], size * U
        for part, logs in zip(self._parts, self._logs, strict=True):
            tilted = logs + order * self.step * np.arange(len(logs))
            tilted = np.exp(tilted - tilted.max())
            tilted /= tilted.sum()
            together = together * _power(np.fft.rfft(tilted, size), part.times)
            norms.append(float(np.linalg.norm(tilted)))
            reach = abs(order) * self.step * (abs(part.first) + len(logs))
            relative += part.times * (MASS + (8 + 4 * reach) * U)
        mass = np.roll(np.fft.irfft(together, size), (self._bottom - low) % size)[: high - low + 1]
        summed = sum(part.times * norm for part, norm in zip(self._parts, norms, strict=True))
        growth = np.exp(min(transform_error * np.sqrt(size) * summed, 700.0))
        error = ((transform_error + 3 * U) * summed + transform_error * max(norms)) * growth
        return _Tilted(low, mass, float(error), float(relative))

    def _window(self, which: int) -> tuple[int, int]:
        """Return the first and the last cell of a window, outside of which the tilted sum has negligible mass."""
        log_ratio = self._moments - self._moments[which] - np.log(_OUTSIDE)
        with np.errstate(divide="ignore", invalid="ignore"):
            edges = log_ratio / (self._orders - self._orders[which]) / self.step
        highs, lows = edges[which + 1 :], edges[:which]
        high = min(self._top, int(np.ceil(highs.min())) if highs.size else self._top)
        low = max(self._bottom, int(np.floor(lows.max())) if lows.size else self._bottom)
        return low, max(high, low)

    def _size(self, low: int, high: int) -> int:
        longest = max(high - low + 1, *(len(part.mass) for part in self._parts))
        return 2 ** int(np.ceil(np.log2(max(longest, 2))))

    def _deviation(self) -> float:
        """Compute the standard deviation of the sum of finite losses."""
        variance = 0.0
        for part in self._parts:
            index, mass = np.arange(len(part.mass)), part.mass / part.mass.sum()
            variance += part.times * float(mass @ (index - mass @ index) ** 2)
        return float(self.step * np.sqrt(variance))

    def _log_moment(self, order: float) -> float:
        """Compute log M(s) of all rounds together."""
        total = 0.0
        for part, logs in zip(self._parts, self._logs, strict=True):
            tilted = logs + order * self.step * np.arange(len(logs))
            top = float(tilted.max())
            total += part.times * (top + float(np.log(np.exp(tilted - top).sum())) + order * self.step * part.first)
        return total


def _trimmed(part: Losses) -> Losses:
    """Remove the empty cells at either end."""
    inside = np.flatnonzero(part.mass > 0)
    if inside.size == 0:
        return part._replace(mass=np.zeros(0))
    start, stop = int(inside[0]), int(inside[-1]) + 1
    return part._replace(first=part.first + start, mass=part.mass[start:stop])


def _power(base: np.ndarray, times: int) -> np.ndarray:
    """Compute base**times by multiplications alone, for which rounding errors are known to add up."""
    result = np.ones_like(base) if times % 2 == 0 else base
    while times := times // 2:
        base = base * base
        if times % 2:
            result = result * base
    return result
