"""Messages of tasks as a release has them, which an owner computes anew from its rows to leave its own out."""

from __future__ import annotations

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.privacy.lattice import clipped, sent, unit_columns
from mpmtl_prob.releases.effects import effect_messages
from mpmtl_prob.releases.messages import OF_LENGTH_ONE, messages
from mpmtl_prob.releases.release import Release


def as_sent(tasks: TaskData | Estimates, release: Release) -> FloatArray:
    """Return the tasks' messages as a release of one round has them, (d, m), to the last bit."""
    W = messages(tasks, release.scaling)[0] if release.effects is None else effect_messages(tasks, release.effects)
    K = release.mechanisms[0].clip
    W = unit_columns(W) if release.message in OF_LENGTH_ONE else clipped(W, K)
    return W if release.lattice is None else sent(W, K, release.lattice)
