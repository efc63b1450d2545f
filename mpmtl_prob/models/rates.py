"""Partial pooling of many yes-or-no questions, given a noisy mean of each: the public seat's model of a billboard.

q_j = (1 + p_j) / 2 ~ Beta(k phi, k (1 - phi)), phi ~ U(0, 1), log k ~ N(log 8, 1.5^2). Given q_j, the number of positive
answers is binomial, and the released mean has noise with a known distribution. Therefore q_j is summed out on a grid of
nodes, and only phi and k are sampled. k is sampled by its logarithm, because chains that reach a large k would stay there
otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

#: Prior mean of log k, that is log 8, with which the means of different questions have a standard deviation of about .6.
LOG_K_MEAN = 2.0794415416798357
#: Prior standard deviation of log k.
LOG_K_SD = 1.5


class Seen(NamedTuple):
    """Noisy mean of every question, at every node.

    Attributes:
        likelihood: of q_j at the nodes, each row divided by its maximum, (features, nodes).
        log_odds: log q and log (1 - q) of the nodes, (2, nodes).
        log_width: log of the interval of q that a node stands for, (nodes,).
    """

    likelihood: ArrayLike
    log_odds: ArrayLike
    log_width: ArrayLike


def population(seen: Seen) -> None:
    """Sample phi and k given noisy means.

    Sites: ``phi``, ``log_k``, and the factor ``answers``.
    """
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    log_k = numpyro.sample("log_k", dist.Normal(LOG_K_MEAN, LOG_K_SD))
    evidence = jnp.asarray(seen.likelihood) @ jnp.exp(log_prior(phi, log_k, seen))
    # where phi and k contradict the means the sum underflows to zero, whose logarithm must stay finite
    numpyro.factor("answers", jnp.sum(jnp.log(evidence + jnp.finfo(evidence.dtype).tiny)))


@jax.jit
def log_prior(phi: ArrayLike, log_k: ArrayLike, seen: Seen) -> Array:
    """Return the log of the Beta distribution at the nodes, normalised over them, (..., nodes)."""
    k = jnp.exp(jnp.asarray(log_k))
    a = k * phi
    b = k * (1 - jnp.asarray(phi))
    log_q, log_complement = jnp.asarray(seen.log_odds)
    log_mass = (a[..., None] - 1) * log_q + (b[..., None] - 1) * log_complement + seen.log_width
    return log_mass - logsumexp(log_mass, axis=-1, keepdims=True)
