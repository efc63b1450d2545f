"""Similarity of the answers to many questions, given a noisy mean of each: the public seat's model of a billboard.

q_j = (1 + p_j) / 2 ~ Beta(k phi, k (1 - phi)), phi ~ U(0, 1), log k ~ N(log 8, 1.5^2). Given q_j the number of positive
answers is binomial and the mean that is seen has noise of a known law, so that q_j is summed out on a grid of nodes, and two
numbers are left to sample. k is sampled by its logarithm: chains that reach a large k would stay there otherwise.
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

#: of log k: a priori the means of different questions have a standard deviation of .6 or so, with room on either side
LOG_K_MEAN, LOG_K_SD = 2.0794415416798357, 1.5


class Seen(NamedTuple):
    """Noisy mean of every question, at every node.

    Attributes:
        likelihood: of q_j at the nodes, each row over its maximum, (features, nodes).
        log_odds: log q and log (1 - q) of the nodes, (2, nodes).
        log_width: log of what a node stands for, (nodes,).
    """

    likelihood: ArrayLike
    log_odds: ArrayLike
    log_width: ArrayLike


def population(seen: Seen) -> None:
    """Sites: ``phi``, ``log_k``, and the factor ``answers``."""
    phi = numpyro.sample("phi", dist.Uniform(0, 1))
    log_k = numpyro.sample("log_k", dist.Normal(LOG_K_MEAN, LOG_K_SD))
    evidence = jnp.asarray(seen.likelihood) @ jnp.exp(log_prior(phi, log_k, seen))
    # far from all that is seen a sum underflows, and is as good as nothing
    numpyro.factor("answers", jnp.sum(jnp.log(evidence + jnp.finfo(evidence.dtype).tiny)))


@jax.jit
def log_prior(phi: ArrayLike, log_k: ArrayLike, seen: Seen) -> Array:
    """log of the Beta law at the nodes, normalised over them, (..., nodes)."""
    k = jnp.exp(jnp.asarray(log_k))
    a, b = k * phi, k * (1 - jnp.asarray(phi))
    log_q, log_rest = jnp.asarray(seen.log_odds)
    at = (a[..., None] - 1) * log_q + (b[..., None] - 1) * log_rest + seen.log_width
    return at - logsumexp(at, axis=-1, keepdims=True)
