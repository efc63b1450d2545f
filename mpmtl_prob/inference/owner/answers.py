"""Owners' messages in later rounds: a draw from what they believe after the earlier ones."""

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
    """A simulating curator's ``respond`` of :func:`mpmtl_prob.release`: one posterior draw per task, in the message's units.

    Draws, not means: where Omega is right, the second moment of draws is Omega's own; that of means would be smaller, in
    the directions in which rows say little.

    Args:
        tasks: the owners' rows. Message i depends on task i's rows and on the release alone.
        seed: of the sampler and the draws; noise protects the messages whatever it is.
        likelihood: of the targets, as in :func:`task_posteriors`.

    Raises:
        ValueError: a likelihood that does not go with the targets, or none where these could be meant either way.
    """
    kind = likelihood_of(likelihood, tasks)

    def respond(release: Release) -> FloatArray:
        if release.effects is not None:
            raise ValueError("release: expected messages of directions or weights, got those of effects, of one round")
        # the default warm-up: the program is compiled already, or will be used again
        shared = shared_covariance(release, chains=2, draws=100, seed=seed, progress_bar=False)
        assert isinstance(shared, SharedPosterior)
        with np.errstate(all="ignore"):  # a warning would tell whoever runs the rounds of one task's rows
            scale = scales(tasks, release.scaling)
            answers = plug_in(tasks, *raised_shapes(shared, None, kind), scale, 1, seed + release.rounds, kind)
            V: FloatArray = answers.draws["W"][0, : scale.shape[1]] / scale.T  # an intercept is its owner's
        return np.where(np.isfinite(V).all(axis=0), V, 0.0)  # as in the first round: beyond double precision, silence

    respond.shape = tasks.slopes.num_features, tasks.num_tasks  # type: ignore[attr-defined] # before a round is paid for
    return respond
