"""NumPy over many tasks, a chunk at a time: small temporaries stay in the cache, and a few threads share the chunks."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_BYTES = 2**21  # of rows; temporaries beyond a few times this are new pages each time, which costs as much as the work
_THREADS = 4  # NumPy's linear algebra releases the interpreter


def in_chunks(work: Callable[[slice], None], tasks: int, *, bytes_per_task: int = 0, size: int | None = None) -> None:
    """Call ``work`` on slices that cover range(tasks), a few at the same time.

    Args:
        work: on one slice; two of them may run at once.
        tasks: how many there are.
        bytes_per_task: of the rows; decides how many go together.
        size: or this many.
    """
    size = size or max(1, _BYTES // max(1, bytes_per_task))
    parts = [slice(start, min(start + size, tasks)) for start in range(0, tasks, size)]
    with ThreadPoolExecutor(min(_THREADS, len(parts), os.cpu_count() or 1)) as pool:
        list(pool.map(work, parts))  # a list, so that errors come out
