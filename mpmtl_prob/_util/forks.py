"""Detection of forked processes, in which JAX would hang: its threads do not survive a fork, and it waits for them."""

from __future__ import annotations

import os
import sys

_JAX = "jax._src.xla_bridge"  # only this private module tells whether JAX has started
_threads_are_gone = False


def _remember() -> None:
    """Remember, in a child process, whether its parent had started JAX."""
    global _threads_are_gone
    bridge = sys.modules.get(_JAX)
    _threads_are_gone = _threads_are_gone or (bridge is not None and bridge.backends_are_initialized())


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_remember)


def check_not_forked() -> None:
    """Raise RuntimeError in a process that was forked after JAX had started, as JAX would hang in it."""
    if _threads_are_gone:
        raise RuntimeError(
            "JAX had started before this process was forked, and cannot compute in it; start processes with "
            "multiprocessing.get_context('spawn'), for joblib with its backend 'loky'"
        )
