"""Private report on a release: the noisy mean of one number per task, such as its prediction error.

A report is a federated run whose messages have one entry, the square root of a number between 0 and 1. Their second moment
is then the sum of these numbers. Trust models, dropouts, run logs and ledgers work as for a release, and the unit of privacy
is the same: one task. There is no report unless somebody invites the sites to one and they answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob.federated.invitation import Invitation, invite
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.mechanisms import Gaussian, GaussianShares
from mpmtl_prob.releases.release import Release

_NAME = "report"


@dataclass(frozen=True)
class Report:
    """Noisy mean over the tasks, which is public.

    Attributes:
        mean: the mean of the tasks' numbers with noise, in their units; the noise may take it out of their range.
        error: standard deviation of that noise.
        tasks: the number of tasks in the mean.
        guarantee: the guarantee of the report alone; ledgers count it in addition to the release.
    """

    mean: float
    error: float
    tasks: int
    guarantee: Guarantee


def invite_report(epsilon: float, num_tasks: int, delta: float | None = None, **options: Any) -> Invitation:
    """Invite sites to a report, with Gaussian noise.

    Args:
        epsilon: > 0, for the report alone.
        num_tasks: the number of tasks at all sites together, at most.
        delta: in (0, 1); default 1 / (m log m).
        options: ``sites``, ``trust``, ``dropouts``, ``colluders``, ``partners``, ``adjacency`` of :func:`invite`.

    Raises:
        ValueError: an argument outside its range.
    """
    return invite(epsilon, num_tasks, (_NAME,), delta, mechanism="gaussian", scaling="none", message="clip", **options)


def report_message(values: ArrayLike, *, most: float = 1.0) -> FloatArray:
    """Return a data owner's numbers as messages, (1, k), which its :class:`Site` takes in place of rows.

    Args:
        values: one number per task, (k,), clipped to [0, ``most``].
        most: the largest possible number, the same at all sites, chosen without looking at the data.

    Raises:
        ValueError: numbers that are not finite.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
        raise ValueError(f"values: expected finite numbers, one per task, got shape {numbers.shape}")
    return np.sqrt(np.clip(numbers / positive("most", most), 0, 1))[None, :]


def read_report(release: Release, *, most: float = 1.0) -> Report:
    """Read the report off the release of its run.

    Raises:
        ValueError: the release is not that of a report.
    """
    law = release.mechanisms[0]
    if release.features != (_NAME,) or release.message != "clip" or not isinstance(law, Gaussian | GaussianShares):
        raise ValueError("release: expected that of a report")
    m, scale = release.num_tasks, positive("most", most) / release.num_tasks
    return Report(float(release.sigma[0, 0, 0] * scale), float(np.sqrt(2) * law.sd * scale), m, release.guarantee)
