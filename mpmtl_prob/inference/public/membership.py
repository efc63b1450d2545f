"""Membership inference by an attacker who knows a task's message, and about other tasks only the release.

:mod:`mpmtl_prob.privacy.accounting.curves` has the strongest attacker, who knows all other messages too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, logsumexp

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range
from mpmtl_prob.inference.public.shared import SharedPosterior
from mpmtl_prob.inference.public.structures import TraceNormWeights


class Membership(NamedTuple):
    """Membership inference for tasks with known messages.

    Attributes:
        probability: posterior probability that each task is in the release, (n,).
        log_factor: its log Bayes factor, (n,).
        ess: effective number of draws behind each factor, of A or of Omega, whichever is smaller, (n,).
    """

    probability: FloatArray
    log_factor: FloatArray
    ess: FloatArray


def membership(shared: SharedPosterior, messages: ArrayLike, prior: float = 0.5) -> Membership:
    """Return the posterior probabilities that tasks with known messages are in a release.

    The attacker does not know the other messages. In the alternative, another task of the same population has the place.
    Given the second moment A of tasks that are normal with mean zero, the direction u of one of them has the angular density
    |A|^{-1/2} (u'A^{-1}u)^{-d/2}, relative to the uniform one (Tyler 1987). The direction of a task that is not in A has the
    same density with their covariance Omega. Both are averaged over the public posterior, and their ratio is the Bayes
    factor. It is near 1 where A is near Omega, as with many tasks.

    Messages of unit length are not normal, and a release of them says somewhat more: with 3 features, 6 tasks and no noise,
    65 of a hundred are in the release where this probability is .58; with 30 tasks no difference is seen.

    Args:
        shared: posterior of one round, by a structure that is invariant to rotations and has a distribution of new tasks
            ("paper" has none).
        messages: messages or multiples of them, (d, n); only directions matter.
        prior: the probability before the release, in (0, 1).

    Raises:
        ValueError: another structure or several rounds; fewer tasks than features; messages of another shape, or without a
            direction.
    """
    in_range("prior", prior, 0, 1)
    U = np.asarray(messages, dtype=np.float64)
    release = shared.release
    structure = shared.structure
    d = release.num_features
    if not structure.rotation_invariant or isinstance(structure, TraceNormWeights) or release.rounds > 1:
        raise ValueError(
            "shared: expected the posterior of one round, of a structure that favours no direction and has a law of tasks"
        )
    if release.num_tasks < d:
        raise ValueError(f"shared: expected a release of at least {d} tasks, one per feature, got {release.num_tasks}")
    if U.ndim != 2 or len(U) != d:
        raise ValueError(f"messages: expected {d} rows, one per feature, got shape {U.shape}")
    if not (np.isfinite(U).all() and U.any(axis=0).all()):
        raise ValueError("messages: expected finite numbers, not all zero in any column")
    posterior = shared.to_arviz()["posterior"].to_dataset()
    log_inside, ess_inside = log_densities(posterior["A"].values.reshape(-1, d, d), U)
    log_outside, ess_outside = log_densities(posterior["Omega"].values.reshape(-1, d, d), U)
    log_factor = log_inside - log_outside
    return Membership(expit(logit(prior) + log_factor), log_factor, np.minimum(ess_inside, ess_outside))


def log_densities(A: FloatArray, U: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log angular densities of directions, averaged over draws of A, and the effective number of draws, (n,) each.

    Args:
        A: draws of a covariance, (S, d, d).
        U: directions, (d, n).
    """
    d = len(U)
    L = np.linalg.cholesky(A)
    whitened = np.linalg.solve(L, np.broadcast_to(U / np.linalg.norm(U, axis=0), (len(A), *U.shape)))
    # log |A|^{-1/2} (u'A^{-1}u)^{-d/2}, (S, n)
    of_draws = -np.log(np.einsum("sii->si", L)).sum(axis=1)[:, None] - d / 2 * np.log(np.sum(whitened**2, axis=1))
    total = logsumexp(of_draws, axis=0)
    return total - np.log(len(A)), np.exp(2 * total - logsumexp(2 * of_draws, axis=0))
