"""Worker processes with the configuration of the process that starts them."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import jax

from mpmtl_prob._util.checks import whole


class Workers:
    """Pool of spawned processes, a context manager; the first job starts them.

    They have the JAX precision of this process, one BLAS thread each, and a common compilation cache. An exception that
    leaves the ``with`` block, or any end of this process, ends them at once.

    Args:
        count: number of processes, >= 1.

    Raises:
        ValueError: the count is not a whole number >= 1.
    """

    def __init__(self, count: int) -> None:
        self.count = whole("workers", count)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        spawn = get_context("spawn")
        ours = self._open.enter_context(tempfile.TemporaryDirectory(prefix="mpmtl-prob-", ignore_cleanup_errors=True))
        theirs, self._lifeline = spawn.Pipe(duplex=False)
        self._open.callback(theirs.close)
        compiled = jax.config.jax_compilation_cache_dir or ours
        self._pool = ProcessPoolExecutor(
            self.count, spawn, _begin, (theirs, bool(jax.config.jax_enable_x64), str(compiled))
        )
        self._threads = os.environ.get("OPENBLAS_NUM_THREADS")
        # Takes effect when a worker imports NumPy; the matrices are small.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        return self

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Compute function(*args) in a process. Function and arguments must be picklable."""
        return self._pool.submit(function, *args)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._lifeline.close()
        self._pool.shutdown(cancel_futures=True)
        self._lifeline.close()
        if self._threads is None:
            os.environ.pop("OPENBLAS_NUM_THREADS", None)
        self._open.close()


def as_done[R](
    function: Callable[..., R], jobs: Iterable[tuple[Any, ...]], workers: Workers | None
) -> Iterator[tuple[tuple[Any, ...], R]]:
    """Yield jobs with function(*job) as they finish, one after another or in parallel by workers."""
    if workers is None:
        yield from ((job, function(*job)) for job in jobs)
    else:
        running = {workers.submit(function, *job): job for job in jobs}
        yield from ((running[future], future.result()) for future in as_completed(running))


def _begin(lifeline: Connection, double: bool, compiled: str) -> None:
    """Initialise a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt reaches the parent too, which ends its workers
    threading.Thread(target=_die_with, args=(lifeline,), daemon=True).start()
    jax.config.update("jax_enable_x64", double)
    jax.config.update("jax_compilation_cache_dir", compiled)


def _die_with(lifeline: Connection) -> None:
    """End this process at once when the other end of the pipe closes."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
