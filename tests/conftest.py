"""The suite runs in float64; what claims to work in float32 is tested there explicitly.

Most of the suite's time is compilation. A compiled sampler is kept on disk and found again where features, chains and warm-up
are the same, so tests of a public posterior take two chains and 200 iterations of warm-up unless there is a reason not to.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

jax.config.update("jax_enable_x64", True)
gc.set_threshold(20_000, 50, 100)  # tracing leaves a million objects that live on: visit them less often


@pytest.fixture(autouse=True, scope="module")
def _few_programs() -> Iterator[None]:
    """Forget compiled programs, which are on disk, before they use up the memory maps that a process may have."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 15_000:
        jax.clear_caches()
        gc.collect()
