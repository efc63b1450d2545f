"""How well it went, if owners want to say so: the mean of one number of every task, such as its error, with its own noise.

A report is a run like any other, of messages with one entry: the root of a number between 0 and 1, so that the second moment
is the numbers' sum. Trust, dropouts, accounts and ledgers are those of a release, and so is what is protected: one task.
Nobody reports unless somebody invites to it and owners answer.
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
    """What was reported. Public.

    Attributes:
        mean: of the tasks' numbers, with noise, in their units; noise may take it out of their range.
        error: standard deviation of that noise.
        tasks: how many are in it.
        guarantee: of the report alone; ledgers count it beside the release.
    """

    mean: float
    error: float
    tasks: int
    guarantee: Guarantee


def invite_report(epsilon: float, num_tasks: int, delta: float | None = None, **options: Any) -> Invitation:
    """The terms of a report: noise is Gaussian.

    Args:
        epsilon: > 0, of the report alone.
        num_tasks: how many there are at all sites together, at most.
        delta: in (0, 1); default 1 / (m log m).
        options: ``sites``, ``trust``, ``dropouts``, ``colluders``, ``partners``, ``adjacency`` of :func:`invite`.

    Raises:
        ValueError: an argument outside its range.
    """
    return invite(epsilon, num_tasks, (_NAME,), delta, mechanism="gaussian", scaling="none", message="clip", **options)


def report_message(values: ArrayLike, *, most: float = 1.0) -> FloatArray:
    """An owner's numbers as messages, (1, k), for its :class:`Site` in the place of rows.

    Args:
        values: one per task, (k,); what is below 0 or above ``most`` counts as that.
        most: the same for everybody, chosen without looking.

    Raises:
        ValueError: numbers that are not finite.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers)):
        raise ValueError(f"values: expected finite numbers, one per task, got shape {numbers.shape}")
    return np.sqrt(np.clip(numbers / positive("most", most), 0, 1))[None, :]


def read_report(release: Release, *, most: float = 1.0) -> Report:
    """What the release of such a run says.

    Raises:
        ValueError: a release of something else.
    """
    law = release.mechanisms[0]
    if release.features != (_NAME,) or release.message != "clip" or not isinstance(law, Gaussian | GaussianShares):
        raise ValueError("release: expected that of a report")
    m, scale = release.num_tasks, positive("most", most) / release.num_tasks
    return Report(float(release.sigma[0, 0, 0] * scale), float(np.sqrt(2) * law.sd * scale), m, release.guarantee)
