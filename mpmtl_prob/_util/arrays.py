"""Array types, and the allocation of aligned arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
#: Draws by name, (chain, draw, ...).
Draws = dict[str, NDArray[Any]]

_ALIGNED = 64  # bytes


def aligned_zeros(*shape: int) -> FloatArray:
    """Return an array of zeros whose memory is aligned, so that JAX on a CPU can use it without a copy."""
    size = 8 * math.prod(shape)
    buffer = np.zeros(size + _ALIGNED, dtype=np.uint8)
    begin = -buffer.ctypes.data % _ALIGNED
    return buffer[begin : begin + size].view(np.float64).reshape(shape)
