"""Second moment of tasks that do not fit in memory, summed part by part."""

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
    """Sum v v' over all messages, (d, d), and compute a fingerprint of all rows that does not depend on their order.

    Messages lie on the grid of the terms, on which sums of m of them are exact: in any order, and over any parts. Of every
    part only a d x d matrix is kept, and the names of tasks without information, of which a warning tells.
    """
    A = np.zeros((len(terms.features),) * 2)
    seen = 0
    silent = list[Hashable]()
    unusual = list[RowWarnings]()
    for of_part, digest, silent_in_part, unusual_in_part in shards.each(partial(_of_part, terms)):
        A += of_part
        seen += digest
        silent += silent_in_part
        unusual.append(unusual_in_part)
    tell(silent, A, terms.features, terms.message)
    if terms.effects is not None:
        warn_owner(unusual, terms.effects.outcome)
    return A, np.frombuffer((seen % 2 ** (8 * _DIGEST)).to_bytes(_DIGEST), dtype=np.uint8)


def _of_part(terms: Terms, tasks: TaskData) -> tuple[FloatArray, int, list[Hashable], RowWarnings]:
    """Return the second moment and the digest of one part, and the tasks to warn of; may run in another process."""
    v = quiet_message(tasks, terms)
    unusual = RowWarnings({}, []) if terms.effects is None else row_warnings(tasks, terms.effects)
    return v @ v.T, sum(_digest(tasks, i) for i in range(tasks.num_tasks)), silent_tasks(v, tasks), unusual


def _digest(tasks: TaskData, i: int) -> int:
    """Hash one task's rows with exposure and weights; a sum of such numbers does not depend on the order of tasks."""
    own = tasks.observations_of(i)
    optional = ((own.exposure, tasks.exposure), (own.weights, tasks.weights))
    further = [values.tobytes() for values, given in optional if given is not None]
    parts = [str(own.X.shape).encode(), own.X.tobytes(), own.y.tobytes(), *further]
    return int.from_bytes(hashlib.sha256(b"".join(parts)).digest())
