"""Posterior of the target's X'X, from its noisy release and the second moment of the source (empirical Bayes).

In the source's principal axes X'X is a common factor times the source's, and every entry departs from that. The departures
have a mixture of scales that is learnt from all entries: most are small, a few are large. With a flat prior the weights would
shrink, to explain the noise. With one Gaussian for all entries no single axis could depart far. Without the common factor,
weights would be underestimated where the target's rows are shorter than the source's, and their intervals would miss them.

Source: Stephens (2017), False discovery rates: a new deal, for shrinkage by a learnt mixture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

#: sizes of departures, relative to the source's moments
SCALES = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0])
#: prior probabilities of the scales; under strong noise the features are then as near to the source's as in `shift_model`
_BEFORE = 1 / SCALES / np.sum(1 / SCALES)
_WORTH = 3.5  # weight of the prior probabilities, in entries
#: prior sd of the common factor around 1
FACTOR_SPREAD = 0.7
#: least size of departures, as a share of the source's mean variance, for axes along which the source hardly varies. Picked
#: from 0, .1, .3 and 1 on one split of School (pupils of mixed schools private, seed 7)
_UNSEEN = 0.3
_LEAST = 0.05  # least variance of the target, relative to the source's along the same axis


class Shape(NamedTuple):
    """Posterior of X'X.

    Attributes:
        mean: posterior mean, (d, d), positive definite.
        variance: posterior variances of its entries in the axes, (d, d).
        axes: the source's principal axes, (d, d).
    """

    mean: FloatArray
    variance: FloatArray
    axes: FloatArray

    def residual_covariance(self, square: FloatArray) -> FloatArray:
        """Return the covariance of (X'X - mean) delta where E delta delta' = ``square``, (..., d, d)."""
        Q = self.axes
        inside = np.swapaxes(Q, 0, 1) @ square @ Q
        covariance = self.variance * inside
        d = len(Q)
        index = np.arange(d)
        # On the diagonal it is sum_j Var(N_ij) E delta_j^2. Off it, the two components share one entry of X'X.
        covariance[..., index, index] = np.einsum("ij,...jj->...i", self.variance, inside)
        return Q @ covariance @ Q.T


def shape(xx: FloatArray, sd: float, n: int, source: FloatArray) -> Shape:
    """Compute the posterior of X'X given its noisy release.

    Args:
        xx: X'X + noise, (d, d).
        sd: of the noise off the diagonal; on the diagonal it is sqrt 2 times larger.
        n: number of records.
        source: second moment of the source's features, (d, d).
    """
    values, Q = np.linalg.eigh(source)
    values = np.maximum(values, 1e-6 * max(values[-1], 1e-12)) * max(n, 1)
    d, reach = len(values), np.maximum(values, _UNSEEN * values.mean())
    inside = Q.T @ xx @ Q
    N, V = np.zeros((d, d)), np.zeros((d, d))
    diagonal = Mixture.of(np.diag(inside), np.sqrt(2.0) * sd, np.sqrt(2.0) * reach, values)
    i, j = np.tril_indices(d, -1)
    others = Mixture.of(inside[i, j], sd, diagonal.factor * np.sqrt(reach[i] * reach[j]), np.zeros(len(i)))
    np.fill_diagonal(N, diagonal.mean)
    np.fill_diagonal(V, diagonal.variance)
    N[i, j] = N[j, i] = others.mean
    V[i, j] = V[j, i] = others.variance
    return Shape(Q @ above(N, _LEAST * diagonal.factor * np.diag(values)) @ Q.T, V, Q)


def above(N: FloatArray, least: FloatArray) -> FloatArray:
    """Return the matrix nearest to N whose difference from ``least`` is positive semidefinite, (d, d).

    The projection onto a convex set does not increase the distance to any matrix in it, such as X'X. The distance is
    Euclidean, which weights entries by their noise. In units of the source's variances a small change along a short axis
    would cause a large one along the longest axis.
    """
    a, U = np.linalg.eigh(N - least)
    projected: FloatArray = (U * np.maximum(a, 0.0)) @ U.T + least
    return projected


class Mixture(NamedTuple):
    """Posterior of numbers seen with noise, N(f a, (s b)^2), with the factor f and the mixture of scales s learnt from them.

    Attributes:
        mean: posterior means.
        variance: posterior variances, which include the uncertainty of the factor.
        factor: f.
    """

    mean: FloatArray
    variance: FloatArray
    factor: float

    @classmethod
    def of(cls, x: FloatArray, sd: float, scale: FloatArray, centre: FloatArray, steps: int = 40) -> Mixture:
        """Fit by EM to noisy numbers x, given the noise's sd, ``scale`` b and ``centre`` a. If a is zero, f is 1."""
        prior = (SCALES[:, None] * scale) ** 2
        total, share = prior + sd**2, _BEFORE
        f, factor_variance = 1.0, 0.0
        shrinkage = prior / total
        for _ in range(steps):
            log_density = -0.5 * (np.log(total) + (x - f * centre) ** 2 / total)
            weight = share[:, None] * np.exp(log_density - log_density.max(axis=0))
            weight /= weight.sum(axis=0)
            share = (weight.sum(axis=1) + _WORTH * _BEFORE) / (x.size + _WORTH)
            if np.any(centre):
                precise = (weight / total).sum(axis=0)
                factor_variance = float(1 / (precise @ centre**2 + 1 / FACTOR_SPREAD**2))
                f = max(factor_variance * float(precise @ (centre * x) + 1 / FACTOR_SPREAD**2), _LEAST)
        means = f * centre + shrinkage * (x - f * centre)
        mean = (weight * means).sum(axis=0)
        shrunk_share = (weight * (1 - shrinkage)).sum(axis=0)
        return cls(
            mean,
            (weight * (shrinkage * sd**2 + means**2)).sum(axis=0)
            - mean**2
            + factor_variance * (shrunk_share * centre) ** 2,
            f,
        )
