"""Types of arrays, and how large ones are made."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_ALIGNED = 64  # bytes


def aligned_zeros(*shape: int) -> FloatArray:
    """Return zeros at an address at which JAX on a processor reads them where they are, instead of from a copy."""
    size = 8 * math.prod(shape)
    room = np.zeros(size + _ALIGNED, dtype=np.uint8)
    begin = -room.ctypes.data % _ALIGNED
    return room[begin : begin + size].view(np.float64).reshape(shape)
