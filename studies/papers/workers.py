"""Processes side by side, each configured as the one that starts them."""

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
    """Spawned processes, to be used in a ``with``; the first work starts them.

    They have the precision of this process, one BLAS thread each, and what one has compiled the others
    read. An exception that leaves the ``with``, or the end of this process, however it comes, ends them at once.

    Args:
        count: of processes, >= 1.

    Raises:
        ValueError: a count that is not a whole number >= 1.
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
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when a worker imports numpy; matrices are small
        return self

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have a process compute function(*args), all of which can be pickled."""
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
    """Jobs and function(*job), as they are done: one after another, or by workers side by side."""
    if workers is None:
        yield from ((job, function(*job)) for job in jobs)
    else:
        running = {workers.submit(function, *job): job for job in jobs}
        yield from ((running[future], future.result()) for future in as_completed(running))


def _begin(lifeline: Connection, double: bool, compiled: str) -> None:
    """What a process does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key pressed interrupts the parent, which ends its workers
    threading.Thread(target=_die_with, args=(lifeline,), daemon=True).start()
    jax.config.update("jax_enable_x64", double)
    jax.config.update("jax_compilation_cache_dir", compiled)


def _die_with(lifeline: Connection) -> None:
    """End this process, in the middle of whatever it does, when the other end closes."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
