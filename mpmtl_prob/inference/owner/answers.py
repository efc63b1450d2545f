"""Owners' messages in later rounds: draws from their posteriors given the earlier rounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.likelihoods import Likelihood, likelihood_of
from mpmtl_prob.inference.owner.methods import plug_in, raised_shapes, scales
from mpmtl_prob.inference.public.shared import SharedPosterior, shared_covariance
from mpmtl_prob.releases.release import Release


def posterior_draws(
    tasks: TaskData, seed: int = 0, likelihood: str | Likelihood | None = None
) -> Callable[[Release], FloatArray]:
    """Return the ``respond`` of :func:`mpmtl_prob.release` for a simulation: one posterior draw per task, in messages' units.

    The messages are draws, because the second moment of draws is Omega's where Omega is right. The second moment of means
    would be smaller, in directions in which rows say little.

    Args:
        tasks: the owners' rows. Message i depends on task i's rows and on the release alone.
        seed: seed of the sampler and the draws. The noise protects the messages whatever the seed is.
        likelihood: of the targets, as in :func:`task_posteriors`.

    Raises:
        ValueError: a likelihood that does not suit the targets, or none where targets may be numbers or labels.
    """
    kind = likelihood_of(likelihood, tasks)

    def respond(release: Release) -> FloatArray:
        if release.effects is not None:
            raise ValueError("release: expected messages of directions or weights, got those of effects, of one round")
        # the default warm-up, so that a program is used that has been compiled already or will be used again
        shared = shared_covariance(release, chains=2, draws=100, seed=seed, progress_bar=False)
        assert isinstance(shared, SharedPosterior)
        # a warning would tell whoever runs the rounds about one task's rows
        with np.errstate(all="ignore"):
            scale = scales(tasks, release.scaling)
            answers = plug_in(tasks, *raised_shapes(shared, None, kind), scale, 1, seed + release.rounds, kind)
            V: FloatArray = (
                answers.draws["W"][0, : scale.shape[1]] / scale.T
            )  # without the intercept, which stays private
        # a task beyond double precision sends zeros, as in the first round
        return np.where(np.isfinite(V).all(axis=0), V, 0.0)

    # so that the shape can be checked before a round is paid for
    respond.shape = tasks.slopes.num_features, tasks.num_tasks  # type: ignore[attr-defined]
    return respond
