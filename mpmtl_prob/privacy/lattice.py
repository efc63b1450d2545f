"""Vectors of bounded length, and the grid that they and their releases lie on: sums are exact, rounding tells nothing.

Messages are cut towards zero to multiples of h, a power of two, so that their second moment is a whole multiple of h^2, and
so is the noise. In double precision every sum of such numbers is then exact, in whatever order it is taken, and the release
is the real mechanism's, rounded: h^2 rint((A + E) / h^2) = A + h^2 rint(E / h^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

#: How far cutting moves a message at most, relative to the clip norm; farther where noise is so large that doubles need room.
ERROR = 1e-3
_ROOM = 52  # bits of a whole number that doubles hold, and one to spare


def step(clip: float, num_features: int, num_tasks: int, laws: Sequence[Any]) -> float:
    """h, from public numbers alone.

    Args:
        clip: K, the largest norm of a message.
        num_features: d, the length of a message.
        num_tasks: m.
        laws: of the noise, each with a ``mean`` (d, d) and an ``operator_norm``.

    Raises:
        ValueError: a clip norm whose square leaves the range of doubles.
    """
    if not 1e-100 <= clip <= 1e100:
        raise ValueError(f"clip: expected a norm between 1e-100 and 1e100, got {clip!r}")
    fine_enough = float(2.0 ** np.floor(np.log2(ERROR * clip / np.sqrt(num_features))))
    return max(fine_enough, finest(clip, num_tasks, laws))


def finest(clip: float, num_tasks: int, laws: Sequence[Any]) -> float:
    """The least h on which doubles add the second moments of so many messages, and their noise, exactly.

    Arguments as for :func:`step`.
    """
    # 64 times its size away from its mean noise has next to no probability
    largest = num_tasks * clip**2 + max(
        (np.max(np.abs(law.mean)) + 64 * law.operator_norm for law in laws), default=0.0
    )
    return float(2.0 ** np.ceil((np.log2(largest) - _ROOM) / 2))


def bound(clip: float, h: float) -> float:
    """K cut to a multiple of h: a message of that norm cannot be longer than K by a rounding error once it is cut.

    Its squared norm over h^2 is a whole number, and so is that of the bound.
    """
    return float(np.floor(clip / h) * h)


def cut(W: Any, h: Any, xp: Any = np) -> Any:
    """W towards zero to multiples of h; what is not finite counts as zero. ``xp`` is NumPy or jax.numpy."""
    return xp.where(xp.isfinite(W), xp.trunc(W / h) * h, 0.0)


def unit_columns(W: FloatArray) -> FloatArray:
    """Columns of W scaled to Euclidean length 1; a zero column stays zero."""
    largest = np.abs(W).max(axis=0)  # first, so that squaring neither overflows nor underflows
    W = W / np.where(largest > 0, largest, 1.0)
    norm = _norms(W)
    return W / np.where(norm > 0, norm, 1.0)


def clipped(W: FloatArray, clip: float) -> FloatArray:
    """Columns of W shortened to Euclidean length at most clip (Algorithm 1, step 3)."""
    with np.errstate(all="ignore"):  # a warning would tell of one task
        return W / np.maximum(1.0, lengths(W) / clip)


def lengths(W: FloatArray) -> FloatArray:
    """Euclidean lengths of the columns of W; infinite where they leave the range of doubles."""
    largest = np.abs(W).max(axis=0)  # first, so that squaring does not overflow
    with np.errstate(all="ignore"):  # a warning would tell of one task
        return largest * _norms(W / np.where(largest > 0, largest, 1.0))


def sent(W: FloatArray, clip: float, h: float) -> FloatArray:
    """Bounded messages as they leave their owners: on the lattice, and not longer than K, exactly."""
    return cut(clipped(W, bound(clip, h)), h)


def _norms(W: FloatArray) -> FloatArray:
    """Return the Euclidean lengths of the columns of W, (m,), each in the same bits whatever the other columns are.

    ``np.linalg.norm`` adds up the entries of one column in another order than those of many, and a message would have other
    last bits alone, at its owner's, than among all messages, at the curator's.
    """
    squares = np.zeros(W.shape[1])
    for entries in W:
        squares += entries * entries
    return np.sqrt(squares)
