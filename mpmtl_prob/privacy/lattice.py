"""Public grid (lattice) for bounded messages and their noise, on which floating-point sums are exact.

Messages are truncated towards zero to multiples of h, a power of two. Their second moment is then a whole multiple of h^2,
and so is the noise. In double precision every sum of such numbers is exact, in any order. So the release is the rounded
release of the mechanism on real numbers, h^2 rint((A + E) / h^2) = A + h^2 rint(E / h^2), and rounding errors reveal nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

#: Largest error of truncating a message, relative to the clip norm. Very large noise needs a coarser grid than that.
ERROR = 1e-3
_BITS = 52  # doubles hold whole numbers of 53 bits; one bit is left as a reserve


def step(clip: float, num_features: int, num_tasks: int, laws: Sequence[Any]) -> float:
    """Return the lattice step h, which depends on public numbers alone.

    Args:
        clip: K, the largest norm of a message.
        num_features: d, the length of a message.
        num_tasks: m.
        laws: the noise of each round, with a ``mean`` (d, d) and an ``operator_norm``.

    Raises:
        ValueError: a clip norm whose square leaves the range of doubles.
    """
    if not 1e-100 <= clip <= 1e100:
        raise ValueError(f"clip: expected a norm between 1e-100 and 1e100, got {clip!r}")
    fine_enough = float(2.0 ** np.floor(np.log2(ERROR * clip / np.sqrt(num_features))))
    return max(fine_enough, finest(clip, num_tasks, laws))


def finest(clip: float, num_tasks: int, laws: Sequence[Any]) -> float:
    """Return the least h at which doubles add the second moments of all messages, and the noise, exactly.

    Arguments as for :func:`step`.
    """
    # The probability of noise further than 64 times its size from its mean is negligible.
    largest = num_tasks * clip**2 + max(
        (np.max(np.abs(law.mean)) + 64 * law.operator_norm for law in laws), default=0.0
    )
    return float(2.0 ** np.ceil((np.log2(largest) - _BITS) / 2))


def bound(clip: float, h: float) -> float:
    """Return K truncated to a multiple of h, so that no rounding error makes a truncated message longer than K.

    The squared norm of a truncated message is a whole multiple of h^2, and so is the square of this bound.
    """
    return float(np.floor(clip / h) * h)


def cut(W: Any, h: Any, xp: Any = np) -> Any:
    """Truncate W towards zero to multiples of h; entries that are not finite become zero. ``xp`` is NumPy or jax.numpy."""
    return xp.where(xp.isfinite(W), xp.trunc(W / h) * h, 0.0)


def unit_columns(W: FloatArray) -> FloatArray:
    """Scale the columns of W to Euclidean length 1; a zero column stays zero."""
    largest = np.abs(W).max(axis=0)  # dividing by it first keeps squares from overflow and underflow
    W = W / np.where(largest > 0, largest, 1.0)
    norm = _norms(W)
    return W / np.where(norm > 0, norm, 1.0)


def clipped(W: FloatArray, clip: float) -> FloatArray:
    """Clip the columns of W to Euclidean length at most ``clip`` (Algorithm 1, step 3)."""
    with np.errstate(all="ignore"):  # a warning would reveal something about one task
        return W / np.maximum(1.0, lengths(W) / clip)


def lengths(W: FloatArray) -> FloatArray:
    """Return the Euclidean lengths of the columns of W; infinite where they leave the range of doubles."""
    largest = np.abs(W).max(axis=0)  # dividing by it first keeps squares from overflow
    with np.errstate(all="ignore"):  # a warning would reveal something about one task
        return largest * _norms(W / np.where(largest > 0, largest, 1.0))


def sent(W: FloatArray, clip: float, h: float) -> FloatArray:
    """Return the messages as owners send them: clipped to length at most K exactly, and on the lattice."""
    return cut(clipped(W, bound(clip, h)), h)


def _norms(W: FloatArray) -> FloatArray:
    """Return the Euclidean lengths of the columns of W, (m,). The bits of each depend on its own column alone.

    ``np.linalg.norm`` adds the entries of a single column in another order than those of many columns. A message would then
    have different last bits at its owner, where it is alone, and at the curator, among all messages.
    """
    squares = np.zeros(W.shape[1])
    for entries in W:
        squares += entries * entries
    return np.sqrt(squares)
