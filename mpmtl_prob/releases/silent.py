"""Warnings of tasks without information, for the data owner only.

Which tasks these are depends on private rows. An error would end the release for all tasks, and leaving a task out would
publish another number of tasks. So such a task is counted and sends the zero vector, and the release continues.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.tasks import TaskData

_SHOWN = 5
#: Share of the total power below which an entry of directions is rounding error.
_ROUNDING = 1e-12


def silent_tasks(W: FloatArray, source: object) -> list[Hashable]:
    """Return the names of tasks whose messages, the columns of W (d, m), are zero; none for messages without rows."""
    return [source.tasks[i] for i in np.flatnonzero(~W.any(axis=0))] if isinstance(source, TaskData) else []


def tell(silent: Sequence[Hashable], A: FloatArray, features: Sequence[Hashable], message: str) -> None:
    """Warn the data owner of tasks without information, and of directions that only say which feature varies.

    Args:
        silent: names of the tasks whose messages are zero.
        A: the second moment of the messages, (d, d).
        features: names, d of them.
        message: "direction" or "clip".
    """
    if silent:
        shown = ", ".join(map(repr, silent[:_SHOWN])) + (f" and {len(silent) - _SHOWN} more" if silent[_SHOWN:] else "")
        warnings.warn(
            f"tasks: {len(silent)} of them send the zero vector, as their rows say nothing of weights, such as one row "
            f"beside an intercept, or features or targets that do not vary: {shown}. They are counted as declared",
            UserWarning,
            stacklevel=3,
        )
    power = np.diag(A)
    varying = np.flatnonzero(power > _ROUNDING * power.sum())
    if message == "direction" and len(varying) == 1 < len(power):
        warnings.warn(
            f"features: {features[varying[0]]!r} alone varies within these tasks, so that all directions are the same, "
            "whatever the weights. Take message='clip' with a clip norm",
            UserWarning,
            stacklevel=3,
        )
