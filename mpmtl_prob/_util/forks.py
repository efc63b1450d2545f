"""Forked processes: JAX computes in threads, which a fork leaves behind, so that a child waits for them for ever."""

from __future__ import annotations

import os
import sys

_JAX = "jax._src.xla_bridge"  # only under a private name does JAX say whether it has started
_threads_are_gone = False


def _remember() -> None:
    """Keep, in a child, whether its parent had started JAX."""
    global _threads_are_gone
    bridge = sys.modules.get(_JAX)
    _threads_are_gone = _threads_are_gone or (bridge is not None and bridge.backends_are_initialized())


if hasattr(os, "register_at_fork"):  # on Windows nothing forks
    os.register_at_fork(after_in_child=_remember)


def check_not_forked() -> None:
    """Raise RuntimeError in a process that was forked after JAX had started: what JAX computes there would never end."""
    if _threads_are_gone:
        raise RuntimeError(
            "JAX had started before this process was forked, and cannot compute in it; start processes with "
            "multiprocessing.get_context('spawn'), for joblib with its backend 'loky'"
        )
