"""Noise without rounding errors: real random numbers, known to as many bits as their rounding needs.

What is published is a real number rounded to a public grid, and the rounding must be that of the *real* number: a sum of
two doubles shows in its last bits what was added (Mironov 2012). So a draw is a function of uniform numbers of which only
the leading bits are known. It is computed in interval arithmetic (FLINT's balls, whose radius bounds every error), and if an
interval holds two roundings or leaves a comparison open, the uniforms get more bits and it is computed again. The result
is the correctly rounded real number, always: the only assumption left is that the bits are random.

Source: Mironov (2012) for the attack; Johansson (2017) for the arithmetic.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from flint import arb, ctx

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import whole

#: Bytes i to j of the binary expansion of a uniform number: from its index, i and j. One that is asked again for bytes it
#: has given is not asked for the same ones.
Source = Callable[[int, int, int], bytes]

BYTES = 16  # of a uniform number at first: a rounding is open with probability 2^-80 or so
_GUARD = 64  # bits of working precision beyond those of the uniforms
_one_at_a_time = threading.RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """So many bits of working precision inside, and what was set before afterwards, whatever happens.

    FLINT has one precision for the whole process. Threads that compute here wait for each other: if one set it while another
    was at work, either might put back what the other had set for itself.
    """
    with _one_at_a_time:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def system(number: int, first: int, last: int) -> bytes:
    """The operating system's cryptographic generator: nobody, the curator included, can draw the same noise again."""
    return secrets.token_bytes(last - first)


def seeded(*seed: int) -> Source:
    """For demonstrations: the same bits for the same whole numbers, and so no protection."""
    return lambda number, first, last: hashlib.shake_256(repr((*seed, number)).encode()).digest(last)[first:]


def source(unsafe_seed: int | None, *which: int) -> Source:
    """The system's, unless there is a seed; ``which`` of the draws of a release then tells them apart.

    Raises ValueError for a seed that is not a whole number >= 0.
    """
    return system if unsafe_seed is None else seeded(whole("unsafe_seed", unsafe_seed, 0), *which)


class Undecided(Exception):
    """More bits are needed."""


class Draws:
    """Real random numbers, in the order in which they are asked for, each as an interval."""

    def __init__(self, source: Source, size: int = BYTES) -> None:
        self._source, self._size, self._next = source, size, 0
        self._known: list[int] = []

    @property
    def precision(self) -> int:
        """Bits of working precision."""
        return 8 * self._size + _GUARD

    def again(self) -> Draws:
        """From the first number on."""
        self._next = 0
        return self

    def refine(self) -> None:
        """Twice as many bits of every number."""
        more = self._size
        for number, known in enumerate(self._known):
            self._known[number] = known << 8 * more | int.from_bytes(self._source(number, more, 2 * more), "big")
        self._size *= 2

    def uniform(self) -> arb:
        """On (0, 1)."""
        if self._next == len(self._known):
            self._known.append(int.from_bytes(self._source(self._next, 0, self._size), "big"))
        known = self._known[self._next]
        self._next += 1
        return arb(2 * known + 1, 1) * arb(2) ** (-8 * self._size - 1)

    def normals(self, count: int) -> list[arb]:
        """Standard normal (Box and Muller)."""
        found: list[arb] = []
        while len(found) < count:
            length, angle = (-2 * self.uniform().log()).sqrt(), 2 * self.uniform()
            sine, cosine = angle.sin_cos_pi()
            found += [length * sine, length * cosine]
        return found[:count]

    def gamma(self, shape: float) -> arb:
        """Gamma(shape, 1), shape >= 1 (Marsaglia and Tsang 2000; exact, since every comparison is)."""
        d = arb(shape) - arb(1) / 3
        c = 1 / (9 * d).sqrt()
        while True:
            x, u = self.normals(1)[0], self.uniform()
            v = 1 + c * x
            if not certainly(v > 0, v <= 0):
                continue
            v = v**3
            bound = x * x / 2 + d - d * v + d * v.log()
            if certainly(u.log() < bound, u.log() >= bound):
                return d * v

    def discrete_normal(self, sd: arb) -> arb:
        """A whole number k with probability proportional to exp(-k^2 / 2 sd^2).

        By rejection from the discrete Laplace law, which is a rounded exponential number with a sign.

        Source: Canonne, Kamath and Steinke (2020), algorithm 3.
        """
        below = sd.floor().unique_fmpz()
        if below is None:
            raise Undecided
        t = int(below) + 1  # any t > 0 is exact; this one accepts most
        while True:
            size = (-t * self.uniform().log()).floor().unique_fmpz()
            if size is None:
                raise Undecided
            sign, u = self.uniform(), self.uniform()
            negative = certainly(sign < 0.5, sign > 0.5)
            if negative and size == 0:
                continue  # zero would count twice
            bound = -((arb(size) - sd * sd / t) ** 2) / (2 * sd * sd)
            if certainly(u.log() < bound, u.log() >= bound):
                return arb(-size if negative else size)


def certainly(yes: bool, no: bool) -> bool:
    """Which of two opposites is certain. Raises :class:`Undecided` if neither is."""
    if not (yes or no):
        raise Undecided
    return yes


def nearest(value: arb) -> int:
    """The whole number nearest to a real one. Raises :class:`Undecided` if the interval holds two."""
    found = (value + 0.5).floor().unique_fmpz()
    if found is None:
        raise Undecided
    return int(found)


def rounded(draw: Callable[[Draws], Iterable[arb]], source: Source, size: int = BYTES) -> list[int]:
    """The whole numbers nearest to the real ones that ``draw`` makes of random numbers."""
    draws = Draws(source, size)
    while True:
        try:
            with precision(draws.precision):
                return [nearest(value) for value in draw(draws.again())]
        except Undecided:
            draws.refine()


def exponential(utilities: Sequence[int], epsilon: float, source: Source) -> int:
    """An index drawn with probability proportional to exp(epsilon / 2 * utility), for whole utilities."""

    def draw(draws: Draws) -> Iterable[arb]:
        weights = [(arb(epsilon) / 2 * int(utility)).exp() for utility in utilities]
        target, below = draws.uniform() * sum(weights, arb(0)), arb(0)
        for index, weight in enumerate(weights[:-1]):
            below += weight
            if certainly(target < below, target >= below):
                return [arb(index)]
        return [arb(len(weights) - 1)]

    return rounded(draw, source)[0]


def symmetric(lower: Sequence[int], d: int) -> FloatArray:
    """(d, d) from its lower triangle, row by row. Raises OverflowError for numbers that doubles do not hold."""
    if max(map(abs, lower)) >= 2**52:
        raise OverflowError(
            "the noise left the lattice's range, which has next to no probability; nothing was published"
        )
    found = np.zeros((d, d))
    found[np.tril_indices(d)] = lower
    return found + np.tril(found, -1).T
