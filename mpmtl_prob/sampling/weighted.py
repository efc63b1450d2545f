"""Draws without chains: points of a normal law that is fitted to a density, counted as often as the density asks.

The law N(m, L L') is the one whose energy has, on average over itself, the gradient and the curvature of the density's. In
its own coordinates u, x = m + L u, that is E[grad U] = 0 and E[grad^2 U] = I, with U = -log density. A step regresses the
gradients at spread points on u: the constant says where the law belongs, the slope how wide it is.

Points of two such laws, the second a little wider, are then weighted by the density over that of their mixture. The weights'
own measures say whether the density is near enough to normal: their effective number, and the Pareto k of their tail. Where
it is not, chains are needed. They tell of where points are: of a second mode, or of the neck of a funnel that the fit never
came near, they cannot, so that what they are used for is to be compared with chains once.

Source: Opper and Archambeau (2009), Neural Computation 21, for the law; Vehtari et al. (2024), JMLR 25(72), for the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from scipy.special import ndtr, ndtri

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.sampling import _numpyro
from mpmtl_prob.sampling.chains import Draws, each
from mpmtl_prob.sampling.flat import Sites
from mpmtl_prob.sampling.importance import KHAT_LIMIT, smoothed, systematic

#: Points that are worked on at a time, by one compiled program: more leave a processor's cache.
_BATCH = 16
#: Points of a step of the fit, at least, in all and for every number.
_LEAST, _POINTS_PER_NUMBER = 128, 2
#: Steps of the fit at most, the standard deviation it begins with, the most that one may grow by in a step, and how far
#: slopes are pulled to zero change, as by a share of the points.
_STEPS, _FIRST, _WIDER, _PULL = 20, 0.3, 2.0, 0.03
#: A fit has settled where a step is shorter than this, in standard deviations of every number, and no curvature changes by
#: this factor; then comes one last step, with so many times the points.
_SETTLED, _SAME, _LAST_STEP = 0.05, 2.0, 8
#: How far a step may go, in standard deviations of every number.
_FARTHEST = 1.0
#: Points that are weighted at first, and at most.
_FEWEST, _MOST = 4096, 16384
#: No more are made where the effective draws of those there are, times as many as there may be, are this far from enough.
_HOPELESS = 0.5
#: Standard deviations beyond which numbers are far out, and how many may be, over how many would be of a normal law.
_FAR, _FAR_OUT_LIMIT = 2.5, 2.0
_TINY, _STEEPEST = 1e-300, 1e100
_NOTHING = 1e6  # the log of what is left of such a weight, less


class Weights(NamedTuple):
    """Diagnosis of importance weights.

    Attributes:
        khat: the Pareto k of their tail.
        ess: how many draws they are worth.
        points: that were weighted.
        far_out: how many numbers are farther than 2.5 standard deviations from the fitted law's mean, under the weights, over
            how many are in that law. Where it is large the density goes on where points do not reach.
    """

    khat: float
    ess: float
    points: int
    far_out: float

    def bear(self, wanted: float) -> bool:
        """Return whether averages under them can be trusted, as of so many draws."""
        return self.khat <= KHAT_LIMIT and self.far_out <= _FAR_OUT_LIMIT and self.ess >= wanted

    def __str__(self) -> str:
        reach = f", which do not reach far enough ({self.far_out:.1f})" if self.far_out > _FAR_OUT_LIMIT else ""
        return f"k-hat {self.khat:.2f}, {self.ess:.0f} effective draws of {self.points} weighted points{reach}"


class Normal(NamedTuple):
    """A normal law of unconstrained numbers.

    Attributes:
        mean: m, (n,).
        root: L, (n, n).
    """

    mean: FloatArray
    root: FloatArray


def weighted_draws(
    model: Callable[..., None],
    args: tuple[Any, ...],
    *,
    start: Mapping[str, Any],
    keep: Sequence[str],
    shape: tuple[int, int],
    wanted: float,
    seed: int,
) -> tuple[Draws, Weights]:
    """Draws of a NumPyro model's posterior, each a point that was kept as often as its weight says.

    Args:
        model: of continuous sites; its arguments are traced.
        args: of the model, pytrees of arrays.
        start: unconstrained values of its sites, where the fit begins: a few units at most from where the mass is.
        keep: names of the sites, deterministic ones too, whose values are wanted.
        shape: (chains, draws), into which the draws are laid out. They are in no order.
        wanted: effective draws; more points are weighted until there are as many.
        seed: of the points.

    Returns:
        Draws by name, (chain, draw, ...), with ``lp``, the log density; and what the weights say of themselves. Where they
        do not bear what is wanted the draws are not to be used.
    """
    check_not_forked()
    density = _Density(model, args, start, tuple(keep))
    rng = np.random.default_rng(seed)
    law = fitted(density, density.start, rng)
    log_ratio, far, values = np.empty(0), np.empty(0), list[Draws]()
    points = _spread(len(law.mean), rng)
    while len(log_ratio) < _MOST:
        u = _of_both_widths(points(_FEWEST))
        ratio, of_points = _weighed(density, law, u)
        log_ratio = np.concatenate([log_ratio, ratio])
        far = np.concatenate([far, (np.abs(u) > _FAR).mean(axis=1)])
        values.append(of_points)
        weight, said = _judged(log_ratio, far)
        if said.bear(wanted) or said.ess < _HOPELESS * wanted * said.points / _MOST:
            break
    # every so many along a sequence of Sobol would be points of a pattern
    order = rng.permutation(len(weight))
    index = rng.permutation(order[systematic(weight[order], shape[0] * shape[1], rng.random())])
    joined = {name: np.concatenate([part[name] for part in values])[index] for name in values[0]}
    return {name: drawn.reshape(*shape, *drawn.shape[1:]) for name, drawn in joined.items()}, said


def fitted(density: Callable[[FloatArray], Any], start: FloatArray, rng: np.random.Generator) -> Normal:
    """Fit a normal law to a density.

    Args:
        density: from points (N, n) to energies (N,), gradients (N, n) and whatever else.
        start: where to begin, (n,).
        rng: of the points.
    """
    n = len(start)
    law, number, points = Normal(np.array(start), np.eye(n) * _FIRST), _LEAST, _spread(n, rng)
    while number < _POINTS_PER_NUMBER * n:
        number *= 2
    for _ in range(_STEPS):
        law, length, narrowed = _step(density, law, points(number))
        if length < _SETTLED and max(narrowed, 1 / narrowed) < _SAME:
            break
    return _step(density, law, points(_LAST_STEP * number))[0]


def _step(density: Callable[[FloatArray], Any], law: Normal, u: FloatArray) -> tuple[Normal, float, float]:
    """The law after a step from points u (N, n), how far its mean went, and by how much the most changed width changed."""
    number, n = u.shape
    gradient = np.clip(np.nan_to_num(density(law.mean + u @ law.root.T)[1]), -_STEEPEST, _STEEPEST)
    beyond = gradient @ law.root - u  # of N(0, I) it would be zero
    # a few points far out have gradients beyond all others, and say little of where the mass is
    size = np.linalg.norm(beyond, axis=1)
    trust = 1 / np.maximum(1.0, size / (2 * np.median(size) + _TINY)) ** 2
    columns = np.column_stack([np.ones(number), u])
    pull = np.diag([0.0] + [_PULL * number] * n)
    found = np.linalg.solve((columns.T * trust) @ columns + pull, (columns.T * trust) @ beyond)
    curvature, axes = np.linalg.eigh(np.eye(n) + 0.5 * (found[1:] + found[1:].T))
    curvature = np.maximum(curvature, _WIDER**-2)
    step = -(axes / curvature) @ (axes.T @ found[0])
    length = float(np.linalg.norm(step) / np.sqrt(n))
    mean = law.mean + law.root @ step / max(1.0, length / _FARTHEST)
    most = curvature[np.abs(np.log(curvature)).argmax()]
    return Normal(mean, law.root @ (axes / np.sqrt(curvature))), length, float(most)


def _of_both_widths(u: FloatArray) -> FloatArray:
    """Points (N, n) of N(0, I), of which the second half are made a little wider.

    Half of a sequence of Sobol is as evenly spread; every other point of it is not, and on one side.
    """
    return u * np.repeat(_widths(u.shape[1]), len(u) // 2)[:, None]


def _widths(n: int) -> FloatArray:
    """Return the widths of the two laws. A normal law of n numbers lies in a shell, which the wider law's has to overlap."""
    return np.array([1.0, 1 + 1 / np.sqrt(n)])


def _weighed(density: _Density, law: Normal, u: FloatArray) -> tuple[FloatArray, Draws]:
    """Log ratios (N,) of the density to the mixture of both laws at points u (N, n), and the sites' values there."""
    energy, _, values = density(law.mean + u @ law.root.T)
    n, square = len(law.mean), (u**2).sum(axis=1)
    mixture = np.logaddexp.reduce([-0.5 * square / c**2 - n * np.log(c) for c in _widths(n)])
    return -energy - mixture, values | {"lp": -energy}


def _judged(log_ratio: FloatArray, far: FloatArray) -> tuple[FloatArray, Weights]:
    """Weights (N,) of log ratios, and what they say of themselves; points without a density weigh nothing.

    ``far`` (N,) is the share of a point's numbers that are far out.
    """
    known = np.isfinite(log_ratio)
    if known.sum() < 2:
        return np.full(len(log_ratio), 1 / len(log_ratio)), Weights(np.inf, 0.0, len(log_ratio), np.inf)
    (weight,), (khat,) = smoothed(np.where(known, log_ratio, log_ratio[known].max() - _NOTHING)[None])
    far_out = float(weight @ far / (2 * ndtr(-_FAR)))
    return weight, Weights(float(khat), float(1 / (weight**2).sum()), len(weight), far_out)


def _spread(n: int, rng: np.random.Generator) -> Callable[[int], FloatArray]:
    """Return what makes the next so many points of N(0, I), (N, n), evenly spread."""
    from scipy.stats import qmc  # half a second to import

    sequence = qmc.Sobol(n, rng=rng)

    def points(number: int) -> FloatArray:
        out: FloatArray = ndtri(np.clip(sequence.random(number), 1e-10, 1 - 1e-10))
        return out

    return points


class _Density:
    """A model's energy, gradient and sites at many points, some at a time, in threads."""

    def __init__(
        self, model: Callable[..., None], args: tuple[Any, ...], start: Mapping[str, Any], keep: tuple[str, ...]
    ) -> None:
        shapes = tuple((name, np.shape(value)) for name, value in start.items())
        self.start = np.concatenate([np.ravel(value) for value in start.values()]).astype(np.float64)
        self._compiled, self._args = _program(model, shapes, keep), jax.device_put(args)

    def __call__(self, points: FloatArray) -> tuple[FloatArray, FloatArray, Draws]:
        batches = [points[i : i + _BATCH] for i in range(0, len(points), _BATCH)]
        first = self._one(batches[0])  # compiles, once for all threads
        found = [first, *(each(self._one, batches[1:]) if len(batches) > 1 else [])]
        out: tuple[FloatArray, FloatArray, Draws] = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        return out

    def _one(self, batch: FloatArray) -> Any:
        return jax.tree.map(np.asarray, self._compiled(batch, self._args))


@lru_cache(maxsize=16)
def _program(model: Callable[..., None], shapes: Any, keep: tuple[str, ...]) -> Any:
    """Compile a model's energies, gradients and sites of a batch of points."""

    def energy(vector: Any, args: Any) -> Any:
        with numpyro.validation_enabled(False):
            return _numpyro.energy_and_sites(model, args, Sites(vector, shapes).by_name(), keep)

    def one(vector: Any, args: Any) -> Any:
        (value, sites), gradient = jax.value_and_grad(energy, has_aux=True)(vector, args)
        return value, gradient, sites

    return jax.jit(jax.vmap(one, in_axes=(0, None)), compiler_options={"xla_backend_optimization_level": 1})
