"""Posterior of an owner given a public prior of its coefficients, averaged over the parameters that it does not know.

Each prior is N(mu, scale Omega). The posterior averages over priors, scales and residual variances, each weighed by the
owner's evidence, the density of its own targets, so that no other task's rows take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from random_effects.mixed import Statistics

RESIDUALS = np.geomspace(0.02, 2, 22)  #: residual variances, relative to the declared mean square of the targets
SCALES = np.geomspace(0.003, 10, 12)  #: of a prior's covariance where no scale is told


class Prior(NamedTuple):
    """A law N(mu, scale Omega) of an owner's coefficients, with its scales equally likely.

    Attributes:
        mu: (d,).
        Omega: (d, d), positive definite.
        scales: (k,).
        weight: of this prior beside others.
    """

    mu: np.ndarray
    Omega: np.ndarray
    scales: np.ndarray
    weight: float = 1.0


def posteriors(
    data: Statistics, priors: Sequence[Prior], residuals: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return means (d, m) and variances (d, m) of every owner's coefficients.

    Args:
        data: of the tasks; each column of the result is made of its own task's part.
        priors: at least one.
        residuals: residual variances, (k,), equally likely; or one list an owner, (m, k).
        weights: prior probabilities of the residual variances, (k,).
    """
    m, d = data.cross.shape
    s2 = np.broadcast_to(residuals, (m, np.shape(residuals)[-1]))
    log_weights = np.zeros(s2.shape[1]) if weights is None else np.log(weights)
    logs, means, squares = [], [], []
    for mu, Omega, scales, weight in priors:
        root = np.linalg.cholesky(Omega)
        e, U = np.linalg.eigh(root.T @ data.gram @ root)
        e, F = np.maximum(e, 0), root @ U  # beta = mu + F z, z ~ N(0, scale I), and F'X'X F = diag(e)
        r = np.einsum("mij,mi->mj", F, data.cross - data.gram @ mu)
        rest = data.square - 2 * data.cross @ mu + np.einsum("i,mij,j->m", mu, data.gram, mu)
        ratio = (scales[None, :, None] / s2[:, None, :])[..., None]  # (owner, scale, residual, 1)
        q = 1 + ratio * e[:, None, None]
        z = ratio * r[:, None, None] / q
        fit = rest[:, None, None] - (z * r[:, None, None]).sum(axis=-1)
        log = -0.5 * (data.rows[:, None, None] * np.log(s2)[:, None] + np.log(q).sum(-1) + fit / s2[:, None])
        logs.append((log + log_weights + np.log(weight / len(scales))).reshape(m, -1))
        means.append(mu + np.einsum("mij,mkj->mki", F, z.reshape(m, -1, d)))
        spread = (scales[None, :, None, None] / q).reshape(m, -1, d)
        squares.append(np.einsum("mij,mkj->mki", F**2, spread))
    log = np.concatenate(logs, axis=1)
    share = np.exp(log - log.max(axis=1, keepdims=True))
    share = share / share.sum(axis=1, keepdims=True)
    b, v = np.concatenate(means, axis=1), np.concatenate(squares, axis=1)
    mean = np.einsum("mk,mki->mi", share, b)
    variance = np.einsum("mk,mki->mi", share, v + (b - mean[:, None]) ** 2)
    return mean.T, variance.T


def told(data: Statistics, mu: np.ndarray, Omega: np.ndarray, sigma2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances (d, m) of owners who are told the truth; no method has a smaller error on average."""
    return posteriors(data, [Prior(mu, Omega, np.ones(1))], sigma2[:, None])
