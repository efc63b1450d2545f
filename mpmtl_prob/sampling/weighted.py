"""Importance sampling without chains, from a normal distribution that is fitted to a posterior density.

The fitted distribution N(m, L L') is the Gaussian variational approximation: in its coordinates u, x = m + L u, the energy
U = -log density satisfies E[grad U] = 0 and E[grad^2 U] = I. A step of the fit regresses gradients at spread-out points on u.
The regression's constant moves m, and its slope changes L. Steps go half of the way, because where curvature grows with
width, as of logarithms of variances, whole ones swing between too narrow and too wide. Only while nothing swings they widen
the whole way, as prior widths are far from where the fit begins.

The proposals are a mixture of this distribution and a slightly wider one. Each point's weight is the density over that of the
mixture. The weights' effective sample size, the Pareto k of their tail and their mass far from m show whether the density is
near enough to normal; where it is not, chains are needed (:mod:`mpmtl_prob.sampling.short_chains`). Weights only know the
density where points are. They do not show a second mode, or the neck of a funnel, that the fit never came near, so that for
every new kind of model the result must be compared with that of chains.

Source: Opper and Archambeau (2009), Neural Computation 21, for the fit; Vehtari et al. (2024), JMLR 25(72), for the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.threads import one_thread
from mpmtl_prob.sampling.importance import KHAT_LIMIT, smoothed, systematic

#: Density of unconstrained numbers, known up to a constant: the argument of :func:`weighted_draws`.
Density = Callable[..., tuple[FloatArray, Any, Draws]]

#: Smallest number of points in a step of the fit.
_LEAST = 128
#: Smallest number of points in a step of the fit, per unconstrained number.
_POINTS_PER_NUMBER = 2
#: Largest number of steps of the fit, and how far they go of the way to what the regression says.
_STEPS, _SHARE = 24, 0.5
#: A fit swings if a step is longer than this, or if it narrows a direction by more than a factor of this in precision.
_LONG, _NARROWER = 0.5, 2.0
#: Standard deviation with which the fit begins.
_FIRST = 0.3
#: Largest factor by which a standard deviation may grow in one step.
_WIDER = 2.0
#: Ridge penalty of the slopes, as a share of the number of points.
_PULL = 0.03
#: A fit has converged when a step is shorter than this, as root mean square in standard deviations,
_CONVERGED = 0.05
#: and every precision changes by less than this factor.
_SAME = 1.6
#: The last step, after that, goes the whole way and has this many times the points.
_LAST_STEP = 8
#: Largest length of a step, as root mean square in standard deviations.
_FARTHEST = 1.0
#: Number of points that are weighted at first. It doubles, to the largest number, as long as that may suffice.
_GLANCE, _MOST = 1024, 16384
#: Smallest number of weighted points whose weights can be trusted.
_FEWEST = 4096
#: Standard deviations beyond which a number is far out.
_FAR = 2.5
#: Largest sound ratio of the share of numbers far out to that of a normal distribution.
_FAR_OUT_LIMIT = 2.0
#: Avoids a division by zero.
_TINY = 1e-300
#: Bound on gradients, which may be infinite.
_STEEPEST = 1e100
#: Log weights of points without a density are this much less than the largest.
_NOTHING = 1e6


class Weights(NamedTuple):
    """Diagnosis of importance weights.

    Attributes:
        khat: the Pareto k of their tail.
        ess: effective number of draws.
        points: number of weighted points.
        far_out: the weighted share of numbers that are farther than 2.5 standard deviations from the fitted mean, over the
            share under a normal distribution. Where it is large, the density has mass that the points do not reach.
    """

    khat: float
    ess: float
    points: int
    far_out: float

    def bear(self, wanted: float) -> bool:
        """Return whether averages under the weights can be trusted as those of ``wanted`` draws."""
        return self.khat <= KHAT_LIMIT and self.far_out <= _FAR_OUT_LIMIT and self.ess >= wanted

    def __str__(self) -> str:
        reach = f", which do not reach far enough ({self.far_out:.1f})" if self.far_out > _FAR_OUT_LIMIT else ""
        return f"k-hat {self.khat:.2f}, {self.ess:.0f} effective draws of {self.points} weighted points{reach}"


class Normal(NamedTuple):
    """Normal distribution of unconstrained numbers.

    Attributes:
        mean: m, (n,).
        root: L, (n, n).
    """

    mean: FloatArray
    root: FloatArray


@one_thread
def weighted_draws(
    density: Density, law: Normal, *, shape: tuple[int, int], wanted: float, rng: np.random.Generator
) -> tuple[Draws, Weights]:
    """Draw from a density by importance resampling.

    Args:
        density: from points (N, n) to energies (N,), which are minus log densities, gradients (N, n) and sites by name. It
            is called with ``gradient=False`` where gradients are not used: a NumPyro model's,
            :class:`mpmtl_prob.sampling.compiled_density.CompiledDensity`, or one that needs no compilation.
        law: a normal distribution near the density: :func:`fitted`.
        shape: (chains, draws) of the returned arrays. The draws are in random order.
        wanted: effective draws; points are added until there are as many, or until there are 16384 points.
        rng: generator of the points.

    Returns:
        Sites of the draws by name, (chain, draw, ...), with ``lp``, the log density; and the diagnosis of the weights. Unless
        ``weights.bear(wanted)``, the draws must not be used.
    """
    log_ratio = np.empty(0)
    far = np.empty(0)
    values: list[Draws] = []
    while len(log_ratio) < _MOST:
        u = _of_both_widths(max(_GLANCE, len(log_ratio)), len(law.mean), rng)
        ratio, of_points = _weighed(density, law, u)
        log_ratio = np.concatenate([log_ratio, ratio])
        far = np.concatenate([far, (np.abs(u) > _FAR).mean(axis=1)])
        values.append(of_points)
        weight, diagnosis = _judged(log_ratio, far)
        # no further points are drawn where even _MOST of them would be worth too few effective draws
        enough = diagnosis.points >= _FEWEST and diagnosis.bear(wanted)
        if enough or diagnosis.ess < wanted * diagnosis.points / _MOST:
            break
    index = rng.permutation(systematic(weight, shape[0] * shape[1], rng.random()))
    joined = {name: np.concatenate([part[name] for part in values])[index] for name in values[0]}
    return {name: drawn.reshape(*shape, *drawn.shape[1:]) for name, drawn in joined.items()}, diagnosis


@one_thread
def fitted(density: Callable[[FloatArray], Any], start: FloatArray, rng: np.random.Generator) -> Normal:
    """Fit a normal distribution to a density.

    Args:
        density: from points (N, n) to a tuple that begins with energies (N,) and gradients (N, n).
        start: where the mean begins, (n,); at most a few units from the density's mass.
        rng: generator of the points.
    """
    n = len(start)
    law = Normal(np.array(start), np.eye(n) * _FIRST)
    number = _LEAST
    while number < _POINTS_PER_NUMBER * n:
        number *= 2
    widening = 1.0
    for _ in range(_STEPS):
        law, length, factor = _step(density, law, _spread(number, n, rng), _SHARE, widening)
        if length < _CONVERGED and max(factor, 1 / factor) < _SAME:
            break
        if length > _LONG or factor > _NARROWER:
            widening = _SHARE
    return _step(density, law, _spread(_LAST_STEP * number, n, rng), 1.0, 1.0)[0]


def _step(
    density: Callable[[FloatArray], Any], law: Normal, u: FloatArray, share: float, widening: float
) -> tuple[Normal, float, float]:
    """Make a step of the fit.

    Args:
        density: as in :func:`fitted`.
        law: the distribution so far.
        u: points in its coordinates, (N, n).
        share: of the way to what the regression says, in the mean and in logarithms of precisions that grow.
        widening: the same in logarithms of precisions that become less.

    Returns:
        The distribution after the step, the length of the mean's step, and the largest factor of a precision.
    """
    number, n = u.shape
    gradient = np.clip(np.nan_to_num(density(law.mean + u @ law.root.T)[1]), -_STEEPEST, _STEEPEST)
    residual = gradient @ law.root - u  # zero if the density is that of ``law``
    # a few points far out have much larger gradients than all others, but tell little about where the mass is
    size = np.linalg.norm(residual, axis=1)
    trust = 1 / np.maximum(1.0, size / (2 * np.median(size) + _TINY)) ** 2
    columns = np.column_stack([np.ones(number), u])
    ridge = np.diag([0.0] + [_PULL * number] * n)
    coefficients = np.linalg.solve((columns.T * trust) @ columns + ridge, (columns.T * trust) @ residual)
    constant, slope = coefficients[0], coefficients[1:]
    # E[grad U] = constant and E[grad^2 U] = I + slope, in the coordinates u
    curvature, axes = np.linalg.eigh(np.eye(n) + 0.5 * (slope + slope.T))
    curvature = np.maximum(curvature, _WIDER**-2)
    curvature **= np.where(curvature < 1, widening, share)
    step = -share * (axes / curvature) @ (axes.T @ constant)
    length = float(np.linalg.norm(step) / np.sqrt(n))
    mean = law.mean + law.root @ step / max(1.0, length / _FARTHEST)
    most = curvature[np.abs(np.log(curvature)).argmax()]
    return Normal(mean, law.root @ (axes / np.sqrt(curvature))), length, float(most)


def _of_both_widths(number: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Return evenly spread points of N(0, I), (N, n), with the second half multiplied by the larger of the two widths."""
    return np.concatenate([width * _spread(number // 2, n, rng) for width in _widths(n)])


def _widths(n: int) -> FloatArray:
    """Return the widths of the two distributions in the mixture.

    A normal distribution of n numbers lies near a sphere. The shells of the two must overlap, so that the second one is wider
    by 1 / sqrt(n) only.
    """
    return np.array([1.0, 1 + 1 / np.sqrt(n)])


def _weighed(density: Density, law: Normal, u: FloatArray) -> tuple[FloatArray, Draws]:
    """Return the log ratios (N,) of the density to the mixture at points u (N, n), and the sites' values there."""
    energy, _, values = density(law.mean + u @ law.root.T, gradient=False)
    n = len(law.mean)
    square = (u**2).sum(axis=1)
    mixture = np.logaddexp.reduce([-0.5 * square / c**2 - n * np.log(c) for c in _widths(n)])
    return -energy - mixture, values | {"lp": -energy}


def _judged(log_ratio: FloatArray, far: FloatArray) -> tuple[FloatArray, Weights]:
    """Return the weights (N,) of log ratios and their diagnosis. Points without a density have no weight.

    ``far`` (N,) is the share of a point's numbers that are far out.
    """
    known = np.isfinite(log_ratio)
    if known.sum() < 2:
        return np.full(len(log_ratio), 1 / len(log_ratio)), Weights(np.inf, 0.0, len(log_ratio), np.inf)
    (weight,), (khat,) = smoothed(np.where(known, log_ratio, log_ratio[known].max() - _NOTHING)[None])
    far_out = float(weight @ far / (2 * ndtr(-_FAR)))
    return weight, Weights(float(khat), float(1 / (weight**2).sum()), len(weight), far_out)


def _spread(number: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Return evenly spread points of N(0, I), (N, n): one in every N-th of each coordinate (a Latin hypercube)."""
    places = rng.permuted(np.tile(np.arange(number), (n, 1)), axis=1).T
    out: FloatArray = ndtri(np.clip((places + rng.random((number, n))) / number, 1e-10, 1 - 1e-10))
    return out
