"""The second moment of tasks that do not fit in memory, part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.releases.effects import RowWarnings, row_warnings, warn_owner
from mpmtl_prob.releases.silent import silent_tasks, tell
from mpmtl_prob.releases.spec import Terms, quiet_message

_DIGEST = 32  # bytes of SHA-256


def second_moment(shards: TaskShards, terms: Terms) -> tuple[FloatArray, NDArray[np.uint8]]:
    """The sum of v v' over all messages, (d, d), and what tells these rows from others, whatever their order.

    Messages lie on the grid of the terms, on which sums of m of them are exact: in any order, and over any parts.
    Only a d x d matrix of every part is kept, and the names of tasks that say nothing, of which a warning tells.
    """
    A, seen, silent, odd = np.zeros((len(terms.features),) * 2), 0, list[Hashable](), list[RowWarnings]()
    for own, digest, without, of_part in shards.each(partial(_of_part, terms)):
        A += own
        seen += digest
        silent += without
        odd.append(of_part)
    tell(silent, A, terms.features, terms.message)
    if terms.effects is not None:
        warn_owner(odd, terms.effects.outcome)
    return A, np.frombuffer((seen % 2 ** (8 * _DIGEST)).to_bytes(_DIGEST), dtype=np.uint8)


def _of_part(terms: Terms, tasks: TaskData) -> tuple[FloatArray, int, list[Hashable], RowWarnings]:
    """Return the second moment and the digest of one part, and of whom to tell, by whichever process."""
    v = quiet_message(tasks, terms)
    odd = RowWarnings({}, []) if terms.effects is None else row_warnings(tasks, terms.effects)
    return v @ v.T, sum(_digest(tasks, i) for i in range(tasks.num_tasks)), silent_tasks(v, tasks), odd


def _digest(tasks: TaskData, i: int) -> int:
    """Of one task's rows, and what stands beside them; a sum of such numbers does not depend on the order of tasks."""
    own = tasks.observations_of(i)
    beside = [
        each.tobytes()
        for each, given in ((own.exposure, tasks.exposure), (own.weights, tasks.weights))
        if given is not None
    ]
    parts = [str(own.X.shape).encode(), own.X.tobytes(), own.y.tobytes(), *beside]
    return int.from_bytes(hashlib.sha256(b"".join(parts)).digest())
