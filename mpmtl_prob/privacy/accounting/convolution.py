r"""Sums of many independent privacy losses on one grid, with a proved bound on what rounding errors hide.

A round's loss takes the values (first, first + 1, ...) h with masses p_j, or is infinite. The masses of a sum of losses are
what the product of their Fourier transforms goes back to. In doubles that is right to some 1e-16 of the *largest* mass for
every round, which of 300 000 rounds leaves nothing of a delta of 1e-11. So masses are tilted before,

    q_j = p_j e^(s l_j) / M(s),      M(s) = sum_j p_j e^(s l_j),

by an order s >= 0 at which a sum of losses is likely to be near eps. The sum of T losses is l with probability
q_T(l) = p_T(l) e^(s l) / M(s)^T, so

    delta(eps) = sum_{l > eps} p_T(l) (1 - e^(eps - l)) = A sum_{l > eps} q_T(l) w(l - eps),
    A = M(s)^T e^(-s eps),      w(x) = e^(-s x) (1 - e^-x) <= 1.

A is Chernoff's bound on the probability of a loss above eps, and not far above delta at the best s: what is wrong with q_T
counts relative to delta, not to 1.

**Transforms.** N is a power of two, u = 2^-53. A fast transform's error is at most c = 8 u log2(N) of the result in Euclidean
norm (Higham 2002, theorem 24.2, where 8 stands for 6.7), so that of q has an error of at most c sqrt(N) |q|, and no element
of it is larger than 1. In a product of T of them every error counts at most (1 + c sqrt(N) |q|)^T times, and every
multiplication adds 3 u. Back on the grid, q_T is wrong by at most

    e = ((c + 3 u) sum_t |q_t| + c max_t |q_t|) exp(c sqrt(N) sum_t |q_t|),

again in Euclidean norm, and sum q_T w by at most e |w| (Cauchy and Schwarz).

**Windows.** What lies outside of N cells comes back inside at the other end. For any s' above s, of q_T a share of at most
M(s')^T / M(s)^T e^(-(s' - s) x) lies above x, and likewise below for s' < s: the window is as wide as leaves e^-46 on
either side.

**The rest**: q_j and M(s) are right to u (4 + 2 s h cells) relatively, the sum to N u, and masses of a round are right to
:data:`MASS` of the round's tail, which moves the deltas of T rounds by no more than that T times, relatively: integrated by
parts, every round enters by its tail with a positive weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

U = 2.0**-53
#: By how much the tail of a round's loss may be wrong, relatively: twice what SciPy's incomplete gamma functions are.
MASS = 5e-13
_OUTSIDE = float(np.exp(-46.0))  # of what is tilted, at either end of a window
#: Orders to choose from, in units of one over the standard deviation of the sum.
_ORDERS = 2.0 ** np.arange(-6, 6.5, 0.5)
#: Cells of all transforms that are kept.
_KEPT = 2**22
#: Cells of the largest transform: a second, and half a gigabyte.
_LARGEST = 2**25


class Losses(NamedTuple):
    """The loss of one round in one direction, and how many such rounds there are.

    Attributes:
        first: the least loss, in steps of the grid.
        mass: probabilities of first, first + 1, ..., (n,), none below 0.
        infinite: the probability of an infinite loss.
        times: rounds.
    """

    first: int
    mass: FloatArray
    infinite: float
    times: int


class Bracket(NamedTuple):
    """A number known from both sides."""

    lower: float
    upper: float


class _Tilted(NamedTuple):
    """Masses of the tilted sum from cell ``first`` on, what they are wrong by in Euclidean norm, and the rest relatively."""

    first: int
    mass: FloatArray
    error: float
    relative: float


class LossSum:
    """The sum of independent losses in one direction.

    Args:
        parts: whose losses, on one grid.
        step: h of the grid.

    Raises:
        MemoryError: a sum that needs a larger transform than this machine should do.
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
        self._tilted = lru_cache(maxsize=max(2, _KEPT // size))(self._tilt)

    def delta(self, epsilon: float) -> Bracket:
        """delta(eps) of these losses, from both sides."""
        finite = (
            Bracket(0.0, 0.0)
            if self._nothing or epsilon > self._top * self.step * (1 + 4 * U)
            else self._finite(epsilon)
        )
        low, high = self.infinite * (1 - MASS) + finite.lower, self.infinite * (1 + MASS) + finite.upper
        return Bracket(float(np.clip(low, 0.0, 1.0)), float(np.clip(high, 0.0, 1.0)))

    def masses(self) -> tuple[FloatArray, FloatArray]:
        """The losses, ascending, the last infinite, and their probabilities."""
        if self._nothing:
            return np.array([np.inf]), np.array([1.0])
        tilted = self._tilted(self._zero)
        losses = (tilted.first + np.arange(len(tilted.mass))) * self.step
        mass = np.maximum(tilted.mass, 0.0) * np.exp(self._moments[self._zero])
        return np.append(losses, np.inf), np.append(mass, self.infinite)

    def _finite(self, epsilon: float) -> Bracket:
        """The part of delta that is due to finite losses."""
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
        """The sum tilted by the order of this number."""
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
        """The cells between which the tilted sum lies, but for next to nothing."""
        gained = self._moments - self._moments[which] - np.log(_OUTSIDE)
        with np.errstate(divide="ignore", invalid="ignore"):
            edges = gained / (self._orders - self._orders[which]) / self.step
        highs, lows = edges[which + 1 :], edges[:which]
        high = min(self._top, int(np.ceil(highs.min())) if highs.size else self._top)
        low = max(self._bottom, int(np.floor(lows.max())) if lows.size else self._bottom)
        return low, max(high, low)

    def _size(self, low: int, high: int) -> int:
        longest = max(high - low + 1, *(len(part.mass) for part in self._parts))
        return 2 ** int(np.ceil(np.log2(max(longest, 2))))

    def _deviation(self) -> float:
        """The standard deviation of the sum of finite losses."""
        variance = 0.0
        for part in self._parts:
            index, mass = np.arange(len(part.mass)), part.mass / part.mass.sum()
            variance += part.times * float(mass @ (index - mass @ index) ** 2)
        return float(self.step * np.sqrt(variance))

    def _log_moment(self, order: float) -> float:
        """log M(s) of all rounds together."""
        total = 0.0
        for part, logs in zip(self._parts, self._logs, strict=True):
            tilted = logs + order * self.step * np.arange(len(logs))
            top = float(tilted.max())
            total += part.times * (top + float(np.log(np.exp(tilted - top).sum())) + order * self.step * part.first)
        return total


def _trimmed(part: Losses) -> Losses:
    """The same without the empty cells at either end."""
    inside = np.flatnonzero(part.mass > 0)
    if inside.size == 0:
        return part._replace(mass=np.zeros(0))
    start, stop = int(inside[0]), int(inside[-1]) + 1
    return part._replace(first=part.first + start, mass=part.mass[start:stop])


def _power(base: np.ndarray, times: int) -> np.ndarray:
    """The same as base**times, by multiplications alone, whose errors add up."""
    result = np.ones_like(base) if times % 2 == 0 else base
    while times := times // 2:
        base = base * base
        if times % 2:
            result = result * base
    return result
