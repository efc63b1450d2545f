"""Leave-one-out: condition an owner on the release without its own message, so that its rows are not counted twice."""

from __future__ import annotations

import numpy as np
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.likelihoods import GAUSSIAN, Likelihood
from mpmtl_prob.inference.owner.methods import Results, ResultsByTurns, plug_in, raised_shapes
from mpmtl_prob.inference.owner.sent_messages import as_sent
from mpmtl_prob.inference.public.covariance_draws import CovarianceDraws
from mpmtl_prob.inference.public.shared import SharedPosterior, shared_covariance
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.extent import raise_on_interrupt


def leave_one_out(release: Release, message: FloatArray) -> Release:
    """Return the release without one task's message: Sigma - w~ w~' of m - 1 tasks.

    It has exactly the distribution of a release to which the task has not sent anything. Only the owner, who knows w~ (d,),
    can compute it, and the result is as private as the message.

    Raises:
        ValueError: a release of several rounds, or of one task, or a message that cannot be in it.
    """
    if release.rounds != 1:
        raise ValueError(f"release: expected one round, whose message the owner can recompute, got {release.rounds}")
    if release.num_tasks == 1:
        raise ValueError("release: expected more tasks than the one whose message is left out")
    sigma = release.sigma[0] - np.outer(message, message)
    if release.mechanisms[0].positive_definite and np.linalg.eigvalsh(sigma)[0] <= 0:
        raise ValueError("message: expected the message behind the release; without it Sigma is not positive definite")
    return Release(
        sigma=sigma[None],
        mechanisms=release.mechanisms,
        num_tasks=release.num_tasks - 1,
        features=release.features,
        guarantee=Guarantee(
            None, None, "It is the release without one owner's message, which that owner alone can make."
        ),
        message=release.message,
        scaling=release.scaling,
        library_version=release.library_version,
        composed_with=release.composed_with,
        lattice=release.lattice,
    )


def leave_one_out_posteriors(
    tasks: TaskData,
    shared: SharedPosterior,
    scale: FloatArray | None,
    power: float | None,
    num_draws: int,
    seed: int,
    progress_bar: bool,
    likelihood: Likelihood = GAUSSIAN,
    *,
    exactly: bool = True,
) -> Results:
    """Return plug-in posteriors that count an owner's rows once, each given the release without the owner's message.

    With ``exactly`` new chains are run for every owner. Otherwise draws of ``shared`` are corrected by
    :meth:`SharedPosterior.leave_one_out`.
    """
    sent = as_sent(tasks, shared.release)

    def without(i: int) -> SharedPosterior | CovarianceDraws:
        if not exactly:
            return shared.leave_one_out(sent[:, i])
        with raise_on_interrupt():
            others = leave_one_out(shared.release, sent[:, i])
            posterior = shared_covariance(others, structure=shared.structure, chains=2, seed=seed, progress_bar=False)
            assert isinstance(posterior, SharedPosterior)
            return posterior

    results = ResultsByTurns(tasks.num_tasks)
    for i in tqdm(range(tasks.num_tasks), desc="owners", disable=not progress_bar, delay=1):
        one = tasks.take([i])
        S = None if scale is None else scale[i : i + 1]
        omegas, prior = raised_shapes(without(i), power, likelihood)
        results.put(slice(i, i + 1), plug_in(one, omegas, prior, S, num_draws, seed + i, likelihood))
    return results.all
