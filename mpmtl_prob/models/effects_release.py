"""Release, priors and quadrature points of the mixed model.

Nothing here needs JAX, so that a density in NumPy reads the same: :mod:`mpmtl_prob.models.effects_density`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri

from mpmtl_prob._util.arrays import FloatArray

if TYPE_CHECKING:
    from jax.typing import ArrayLike

#: Gauss-Hermite quadrature over z_i.
NODES, _UNNORMALISED = np.polynomial.hermite_e.hermegauss(3)
WEIGHTS = _UNNORMALISED / _UNNORMALISED.sum()
#: Smallest number of points that represent the distribution of u at a node.
_POINTS = 128
#: Smallest number of these points per effect; the larger of the two numbers is rounded up to a power of two.
_POINTS_PER_EFFECT = 4
#: Lengths of mu over which its prior is averaged, in units of the prior's scale.
LENGTHS = np.geomspace(0.03, 2.5, 24)
#: Largest number of directions of a low-rank Omega.
MAX_RANK = 5
#: Gaps between eigenvalues below this share of the largest one damp the derivative of their eigenvectors.
NEAR = 0.01
#: This share of m is added to variances, so that a release without noise has no singular covariance.
FLOOR = 1e-5
#: Smallest variance that one task contributes to an entry of A off the diagonal.
SMALLEST_VARIANCE = 1e-2 * FLOOR
#: Length of messages up to which the likelihood has the covariance of all entries of A; only the NumPyro model computes it.
#: The fewer effects there are, the more lengths of messages vary, and the more their entries are correlated in every basis.
FEW_NUMBERS = 5
#: Prior standard deviation of the logits of the correlation and of p.
LOGIT_SD = 1.5
#: Scale of the half-normal priors of differences in p, between effects and between tasks.
ACCURACY_SCALE = 0.5
#: Largest share of (d - 1) c^2 in its upper limit, 1.
LARGEST_SHARE = 0.95


class EffectsPrior(NamedTuple):
    """Priors of the average effects and the spread between tasks, in the study's units.

    Attributes:
        average: scale of the half-normal prior of L, in scales of the target; given L, mu is N(0, L^2 / d I). L is the root
            of the mean of |mu|^2.
        spread: median of tau, the standard deviation between tasks of a group of effects, which is log-normal. One group is
            that of all columns, the other the intercept. The default was raised from .22 after two cells of the panel had
            been looked at, with tau of .4 and .6 in these units.
        spread_factor: factor by which tau is farther from its median, up or down, with probability .32.
        correlation: median of the correlation of effects and of their differences in size, as a share of the largest that is
            possible; it is logit-normal.
        determined: median of p, how far a task's rows determine an effect.
        slope: as ``average``, for the change of all effects with one unit of a covariate of tasks.
        errors: prior standard deviation of log c, divided by 1 - p. c is the variance of estimates' errors over the variance
            that p implies. A task with few rows does not know its residual variance, and errs about it in the same direction
            as the other tasks of its study. In studies whose residual variance and effects were drawn from their priors this
            was .5 with 27 columns, .6 with 10 and 1 with 3. The default was set after six cells of the panel with few rows
            had been looked at; its errors there are within 3 % of those at .3 and at .6.
    """

    average: float = 1.0
    spread: float = 0.3
    spread_factor: float = 2.5
    correlation: float = 0.5
    determined: float = 0.73
    slope: float = 0.5
    errors: float = 0.5


class CovariateGroups(NamedTuple):
    """Tasks of a release in groups by their covariates, as the model reads them."""

    z: ArrayLike  #: covariates of every group after a one, (G, 1 + q)
    counts: ArrayLike  #: number of tasks in every group, (G,)
    start: ArrayLike  #: rough estimate of p o slopes, the origin of their coordinates, (d, q)
    start_scale: ArrayLike  #: unit of these coordinates, (q,)


class EffectsRelease(NamedTuple):
    """Release of messages of effects as the model reads it. Its leaves are traced arrays."""

    sigma: ArrayLike  #: Sigma less the mean of its noise, (D, D)
    num_tasks: ArrayLike  #: m
    noise_variance: ArrayLike  #: variance of an entry of the noise off the diagonal; on it, twice as much
    averages: ArrayLike  #: matrix from p of d effects to the averages of p that messages have, (groups, d)
    effect_size: ArrayLike  #: g
    determined_size: ArrayLike  #: k
    prior_variance: ArrayLike  #: v
    start: ArrayLike  #: rough estimate of p o mu, the origin of its coordinates, (d,)
    start_scale: ArrayLike  #: unit of these coordinates
    prior: EffectsPrior = EffectsPrior()
    covariates: CovariateGroups | None = None  #: None where tasks have no covariates


#: Names of the sites of the fields of :class:`Accuracy`, in their order.
ACCURACY = ("determined", "determined_spread", "errors")


def other_site(number: int) -> str:
    """Return the prefix of the names of sites that belong to another release than the first."""
    return f"other_{number}"


@lru_cache
def points_of(d: int, groups: int = 1) -> FloatArray:
    """Return points (K, d) of a standard normal distribution with exactly its mean and covariance.

    They are evenly spread, in pairs of opposite signs. Of one point of each pair, the first coordinate is the mean of one of
    K / 2 equally likely strata above 0, and the others are quantiles of a Kronecker sequence, which are multiples of the
    powers of a generalised golden ratio, modulo one. Errors of averages of clipped vectors are .06, .14, .32, .53 and .85
    times those with as many random points of that mean and covariance, for d = 1, 2, 3, 4 and 12 (in
    tests/models/test_effects_density.py). Several groups of tasks need fewer points, because the errors of groups average
    out.
    """
    least = _POINTS if groups == 1 else _POINTS // 4
    pairs = 2 ** int(np.ceil(np.log2(max(least, _POINTS_PER_EFFECT * d) / 2)))
    edges = ndtri(0.5 + np.arange(pairs + 1) / (2 * pairs))
    first = -2 * pairs * np.diff(np.exp(-0.5 * edges**2)) / np.sqrt(2 * np.pi)
    ratio = 2.0  # the root of x^d = x + 1, by iteration; for d = 2 the golden ratio
    for _ in range(100):
        ratio = (1 + ratio) ** (1 / d)
    others = ndtri((0.5 + np.outer(np.arange(pairs) + 0.5, ratio ** -np.arange(1.0, d))) % 1)
    half = np.column_stack([first, others])
    half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / pairs)).T
    return np.concatenate([half, -half])
