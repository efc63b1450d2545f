"""Was this task in it? What somebody learns who knows a task's message, and of the others what the release says.

The strongest attacker, who knows all other messages too, is in :mod:`mpmtl_prob.privacy.accounting.curves`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, logsumexp

from mpmtl_prob._check import in_range
from mpmtl_prob.inference.public.shared import SharedPosterior
from mpmtl_prob.tasks import FloatArray


class Membership(NamedTuple):
    """What a release says of tasks with known messages.

    Attributes:
        probability: that each is in it, (n,).
        log_factor: the log Bayes factor behind it, (n,).
        ess: effective draws of the public posterior behind each factor, (n,).
    """

    probability: FloatArray
    log_factor: FloatArray
    ess: FloatArray


def membership(shared: SharedPosterior, messages: ArrayLike, prior: float = 0.5) -> Membership:
    """Posterior probabilities that tasks with these messages are in a release, for somebody who does not know the others.

    In the alternative their place is taken by a task drawn from the same prior. Given the second moment A of m tasks that
    are normal round zero, the direction u of one of them has the angular density |A|^{-1/2} (u'A^{-1}u)^{-d/2}, relative to
    the uniform one (Tyler 1987); averaged over the public posterior of A that is the Bayes factor.

    Args:
        shared: of one round, of a structure that favours no direction.
        messages: or multiples of them, (d, n); only directions count.
        prior: the probability before the release, in (0, 1).

    Raises:
        ValueError: another structure or several rounds; fewer tasks than features; messages of another shape.
    """
    in_range("prior", prior, 0, 1)
    U, release = np.asarray(messages, dtype=np.float64), shared.release
    d = release.num_features
    if not shared.structure.rotation_invariant or release.rounds > 1:
        raise ValueError("shared: expected the posterior of one round, of a structure that favours no direction")
    if release.num_tasks < d:
        raise ValueError(f"shared: expected a release of at least {d} tasks, one per feature, got {release.num_tasks}")
    if U.ndim != 2 or len(U) != d:
        raise ValueError(f"messages: expected {d} rows, one per feature, got shape {U.shape}")
    A = shared.to_arviz()["posterior"].to_dataset()["A"].values.reshape(-1, d, d)
    log_factor, ess = log_factors(A, U)
    return Membership(expit(logit(prior) + log_factor), log_factor, ess)


def log_factors(A: FloatArray, U: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log Bayes factors of directions U (d, n) over draws of A (S, d, d), and their effective sample sizes, (n,) each."""
    d = len(U)
    L = np.linalg.cholesky(A)
    whitened = np.linalg.solve(L, np.broadcast_to(U / np.linalg.norm(U, axis=0), (len(A), *U.shape)))
    each = -np.log(np.einsum("sii->si", L)).sum(axis=1)[:, None] - d / 2 * np.log(np.sum(whitened**2, axis=1))  # (S, n)
    total = logsumexp(each, axis=0)
    return total - np.log(len(A)), np.exp(2 * total - logsumexp(2 * each, axis=0))
