"""Was this task in it? What somebody learns who knows a task's message, and of the others what the release says.

The strongest attacker, who knows all other messages too, is in :mod:`mpmtl_prob.privacy.accounting.curves`.
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
    """Membership inference: what a release says of tasks with known messages.

    Attributes:
        probability: that each is in it, (n,).
        log_factor: the log Bayes factor behind it, (n,).
        ess: effective draws of the public posterior behind each factor, of A or of Omega, whichever are fewer, (n,).
    """

    probability: FloatArray
    log_factor: FloatArray
    ess: FloatArray


def membership(shared: SharedPosterior, messages: ArrayLike, prior: float = 0.5) -> Membership:
    """Posterior probabilities that tasks with these messages are in a release, for somebody who does not know the others.

    In the alternative another task of the same population stands in the place, and a message with direction u still says
    something of the population. Given the second moment A of tasks that are normal round zero, the direction of one of them
    has the angular density |A|^{-1/2} (u'A^{-1}u)^{-d/2}, relative to the uniform one (Tyler 1987); that of a task that is
    not in A has the same with their covariance Omega. Both are averaged over the public posterior, and the ratio is the Bayes
    factor: what tells the two apart is how A differs from Omega, which is little where there are many tasks.

    Messages of unit length are not normal, and a release of such says somewhat more than this finds: with 3 features and
    6 tasks and no noise, 65 of a hundred are in it where it says 58, with 30 tasks nothing of the kind is seen.

    Args:
        shared: of one round, of a structure that favours no direction and has a law of new tasks ("paper" has none).
        messages: or multiples of them, (d, n); only directions count.
        prior: the probability before the release, in (0, 1).

    Raises:
        ValueError: another structure or several rounds; fewer tasks than features; messages of another shape, or without a
            direction.
    """
    in_range("prior", prior, 0, 1)
    U, release = np.asarray(messages, dtype=np.float64), shared.release
    d, structure = release.num_features, shared.structure
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
    inside, outside = (log_densities(posterior[name].values.reshape(-1, d, d), U) for name in ("A", "Omega"))
    log_factor = inside[0] - outside[0]
    return Membership(expit(logit(prior) + log_factor), log_factor, np.minimum(inside[1], outside[1]))


def log_densities(A: FloatArray, U: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log angular densities of directions U (d, n), averaged over draws of A (S, d, d), and effective draws, (n,) each."""
    d = len(U)
    L = np.linalg.cholesky(A)
    whitened = np.linalg.solve(L, np.broadcast_to(U / np.linalg.norm(U, axis=0), (len(A), *U.shape)))
    each = -np.log(np.einsum("sii->si", L)).sum(axis=1)[:, None] - d / 2 * np.log(np.sum(whitened**2, axis=1))  # (S, n)
    total = logsumexp(each, axis=0)
    return total - np.log(len(A)), np.exp(2 * total - logsumexp(2 * each, axis=0))
