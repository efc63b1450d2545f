"""Exact sampling of noise: real random numbers, computed to as many bits as their correct rounding needs.

A release is a real number rounded to a public grid, and the *real* number must be rounded: the last bits of a sum of two
doubles may reveal what was added (Mironov 2012). So a draw is a function of uniform numbers, of which only the leading bits
are known. It is computed in interval arithmetic (FLINT's balls, whose radius bounds every error). If an interval contains
two possible roundings, or leaves a comparison open, the uniform numbers get more bits and the draw is computed again. The
result is always the correctly rounded real number. The only remaining assumption is that the bits are random.

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

#: Function that returns bytes i to j of the binary expansion of a uniform number, given the number's index, i and j. The
#: same bytes are never requested twice.
Source = Callable[[int, int, int], bytes]

BYTES = 16  # known bytes of a uniform number at first; a rounding is then open with a probability of about 2^-80
_GUARD = 64  # bits of working precision in addition to those of the uniform numbers
_one_at_a_time = threading.RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Set FLINT's working precision inside a ``with`` block, and restore the old one afterwards, also after an error.

    FLINT has one precision for the whole process. So threads wait for each other here: otherwise one thread could change or
    restore the precision while another computes.
    """
    with _one_at_a_time:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def system(number: int, first: int, last: int) -> bytes:
    """Return bytes of the operating system's cryptographic generator. Nobody, also no curator, can draw them again."""
    return secrets.token_bytes(last - first)


def seeded(*seed: int) -> Source:
    """Return a source of the same bits for the same seed, for demonstrations. Such noise protects nobody."""

    def bytes_of(number: int, first: int, last: int) -> bytes:
        return hashlib.shake_256(repr((*seed, number)).encode()).digest(last)[first:]

    return bytes_of


def source(unsafe_seed: int | None, *which: int) -> Source:
    """Return the system's source of bits, or a seeded one for a seed; ``which`` then numbers the draws of a release.

    Raises ValueError for a seed that is not a whole number >= 0.
    """
    return system if unsafe_seed is None else seeded(whole("unsafe_seed", unsafe_seed, 0), *which)


class Undecided(Exception):
    """Signal that a rounding or a comparison needs more bits."""


class Draws:
    """Stream of real random numbers, each as an interval that contains it."""

    def __init__(self, source: Source, size: int = BYTES) -> None:
        self._source, self._size, self._next = source, size, 0
        self._known: list[int] = []

    @property
    def precision(self) -> int:
        """Bits of working precision that these draws need."""
        return 8 * self._size + _GUARD

    def again(self) -> Draws:
        """Start again from the first number, and return self."""
        self._next = 0
        return self

    def refine(self) -> None:
        """Double the known bits of every number."""
        more = self._size
        for number, known in enumerate(self._known):
            self._known[number] = known << 8 * more | int.from_bytes(self._source(number, more, 2 * more), "big")
        self._size *= 2

    def uniform(self) -> arb:
        """Draw a uniform number on (0, 1)."""
        if self._next == len(self._known):
            self._known.append(int.from_bytes(self._source(self._next, 0, self._size), "big"))
        known = self._known[self._next]
        self._next += 1
        return arb(2 * known + 1, 1) * arb(2) ** (-8 * self._size - 1)

    def normals(self, count: int) -> list[arb]:
        """Draw standard normal numbers (Box and Muller)."""
        normals: list[arb] = []
        while len(normals) < count:
            length = (-2 * self.uniform().log()).sqrt()
            angle = 2 * self.uniform()
            sine, cosine = angle.sin_cos_pi()
            normals += [length * sine, length * cosine]
        return normals[:count]

    def gamma(self, shape: float) -> arb:
        """Draw from Gamma(shape, 1), shape >= 1 (Marsaglia and Tsang 2000; exact, as every comparison is exact)."""
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
        """Draw a whole number k with probability proportional to exp(-k^2 / 2 sd^2) (discrete Gaussian).

        It is drawn by rejection from the discrete Laplace law, which is a rounded exponential number with a random sign.

        Source: Canonne, Kamath and Steinke (2020), algorithm 3.
        """
        below = sd.floor().unique_fmpz()
        if below is None:
            raise Undecided
        t = int(below) + 1  # any t > 0 gives exact draws; this one rejects few
        while True:
            size = (-t * self.uniform().log()).floor().unique_fmpz()
            if size is None:
                raise Undecided
            sign, u = self.uniform(), self.uniform()
            negative = certainly(sign < 0.5, sign > 0.5)
            if negative and size == 0:
                continue  # otherwise zero would have twice its probability
            bound = -((arb(size) - sd * sd / t) ** 2) / (2 * sd * sd)
            if certainly(u.log() < bound, u.log() >= bound):
                return arb(-size if negative else size)


def certainly(yes: bool, no: bool) -> bool:
    """Return True if ``yes`` is certain, False if its opposite ``no`` is. Raises :class:`Undecided` if neither is."""
    if not (yes or no):
        raise Undecided
    return yes


def nearest(value: arb) -> int:
    """Return the whole number nearest to a real one. Raises :class:`Undecided` if the interval leaves two choices."""
    whole_number = (value + 0.5).floor().unique_fmpz()
    if whole_number is None:
        raise Undecided
    return int(whole_number)


def rounded(draw: Callable[[Draws], Iterable[arb]], source: Source, size: int = BYTES) -> list[int]:
    """Round the real numbers that ``draw`` computes from random numbers to the nearest whole numbers, correctly."""
    draws = Draws(source, size)
    while True:
        try:
            with precision(draws.precision):
                return [nearest(value) for value in draw(draws.again())]
        except Undecided:
            draws.refine()


def exponential(utilities: Sequence[int], epsilon: float, source: Source) -> int:
    """Draw an index with probability proportional to exp(epsilon / 2 * utility), for whole utilities, exactly."""

    def draw(draws: Draws) -> Iterable[arb]:
        weights = [(arb(epsilon) / 2 * int(utility)).exp() for utility in utilities]
        target = draws.uniform() * sum(weights, arb(0))
        below = arb(0)
        for index, weight in enumerate(weights[:-1]):
            below += weight
            if certainly(target < below, target >= below):
                return [arb(index)]
        return [arb(len(weights) - 1)]

    return rounded(draw, source)[0]


def symmetric(lower: Sequence[int], d: int) -> FloatArray:
    """Return a symmetric matrix (d, d) from its lower triangle, row by row.

    Raises OverflowError for numbers that are too large for exact sums in doubles.
    """
    if max(map(abs, lower)) >= 2**52:
        raise OverflowError(
            "the noise left the lattice's range, which has a negligible probability; nothing was published"
        )
    triangle = np.zeros((d, d))
    triangle[np.tril_indices(d)] = lower
    return triangle + np.tril(triangle, -1).T
