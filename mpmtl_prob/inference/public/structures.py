"""Structures of Omega: priors, models of a release under them, and descriptions of the posterior in words.

Users name one of :data:`STRUCTURES`, or write a :class:`Structure` of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import FormerName, accept_former_methods, former_names
from mpmtl_prob._util.protocols import named
from mpmtl_prob.inference.public import inverse_wishart as law
from mpmtl_prob.inference.public.init import (
    noise_dominated,
    observed,
    start_adaptive,
    start_full,
    start_group_sparse,
    start_low_rank,
    start_noise_dominated,
)
from mpmtl_prob.models import latent_weights
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.rounds import MANY_TASKS
from mpmtl_prob.sampling.flat import DEPTH

if TYPE_CHECKING:
    import xarray as xr


class ModelAndInit(NamedTuple):
    """Model of a release, and where its chains start.

    Attributes:
        model: a NumPyro model of :class:`~mpmtl_prob.models.shared_covariance.Observed` with the deterministic sites ``A``
            (d, d), ``log_phi`` and ``Omega`` (d, d). Instead of Omega it may have its diagonal ``omega`` (d,), or ``kappa``
            and ``prior_scale`` (d,), given which Omega is InverseWishart(kappa + m, diag(prior_scale) + A). It may also have
            ``inclusion`` (d,). It should be the same function for every release, because each function is compiled anew.
        start: unconstrained values of its sites.
    """

    model: Callable[..., Any]
    start: Mapping[str, FloatArray | float]


class Structure(ABC):
    """Prior on Omega, with a model of a release. A subclass needs ``name`` and :meth:`model_for`.

    Attributes:
        name: its name in tables, files and words.
        rotation_invariant: whether the prior is invariant to rotations.
        double: whether to sample in double precision always. In single precision a floor is lost beside a large direction.
        acceptance: acceptance probability that step sizes aim at. With NumPyro's .8 single transitions of the other
            structures diverge in one posterior of ten.
        depth: depth of the largest tree of NUTS. A trajectory has at most 2^depth - 1 steps.
    """

    name: ClassVar[str]
    rotation_invariant: ClassVar[bool] = False
    double: ClassVar[bool] = False
    acceptance: ClassVar[float] = 0.9
    depth: ClassVar[int] = DEPTH

    reading = FormerName("model_for")
    given = FormerName("resolve")

    def check(self, num_tasks: int, num_features: int) -> None:
        """Check, before there is a release, whether the structure can read one of these sizes.

        Raises:
            ValueError: it cannot.
        """
        return None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_former_methods(cls, reading="model_for", given="resolve")

    @abstractmethod
    def model_for(self, release: Release) -> ModelAndInit:
        """Return the model of a release.

        Raises:
            ValueError: a release that the structure cannot read.
        """

    def prior(self, num_features: int, num_draws: int, seed: int) -> FloatArray | None:
        """Draw Omega before any release, up to its scale, (S, d, d); None where the prior cannot be drawn from."""
        return None

    def describe(self, posterior: xr.Dataset) -> str:
        """Describe the structure in words, given the group ``posterior`` of :meth:`SharedPosterior.to_arviz`."""
        return f"{self.name}, as asked for"

    def resolve(self, release: Release) -> Structure:
        """Return the structure that replaces this one where a release has fewer tasks than features."""
        return self

    def __str__(self) -> str:
        return self.name


class Full(Structure):
    """No structure: any Omega, without preferred directions."""

    name = "full"
    rotation_invariant = True
    double = True

    def model_for(self, release: Release) -> ModelAndInit:
        if (
            release.num_tasks > release.num_features
        ):  # with equal numbers the density of A is infinite where A is singular
            return ModelAndInit(model.full, start_full(observed(release)))
        if noise_dominated(release):
            return ModelAndInit(
                latent_weights.noise_dominated_weights(release.num_tasks), start_noise_dominated(observed(release))
            )
        return _latent(release, "matrix_t", {"z": 0.0, "z_kappa": 0.0})

    def prior(self, num_features: int, num_draws: int, seed: int) -> FloatArray:
        return law.draw_prior_omega(np.random.default_rng(seed), np.ones((num_draws, num_features)))

    def describe(self, posterior: xr.Dataset) -> str:
        return "none assumed"


class Diagonal(Structure):
    """Diagonal Omega of which few features matter (group sparsity)."""

    name = "group_sparse"
    double = True

    def check(self, num_tasks: int, num_features: int) -> None:
        _as_many_tasks(self, num_tasks, num_features)

    def model_for(self, release: Release) -> ModelAndInit:
        self.check(release.num_tasks, release.num_features)
        return ModelAndInit(model.few_features, start_group_sparse(observed(release)))

    def prior(self, num_features: int, num_draws: int, seed: int) -> FloatArray:
        s = law.above_a_floor(np.random.default_rng(seed), (num_draws, num_features))
        return s[..., None] * np.eye(num_features)

    def describe(self, posterior: xr.Dataset) -> str:
        return f"diagonal, as asked for; {_features(posterior)}"


class Adaptive(Structure):
    """Any degree between no structure and group sparsity, learnt from the release."""

    name = "auto"
    double = True

    def resolve(self, release: Release) -> Structure:
        return self if release.num_tasks >= release.num_features else STRUCTURES["full"]

    def model_for(self, release: Release) -> ModelAndInit:
        if (other := self.resolve(release)) is not self:
            return other.model_for(release)
        return ModelAndInit(model.adaptive, start_adaptive(observed(release)))

    def prior(self, num_features: int, num_draws: int, seed: int) -> FloatArray:
        rng = np.random.default_rng(seed)
        return law.draw_prior_omega(rng, law.above_a_floor(rng, (num_draws, num_features)))

    def describe(self, posterior: xr.Dataset) -> str:
        """Say which structure the release supports.

        Under Omega ~ InverseWishart(kappa, diagonal) correlations have mean 0 and variance 1 / (kappa - d + 2). The words
        depend on the correlation, because the meaning of kappa depends on d.
        """
        low, kappa, high = np.quantile(posterior["kappa"].values, [0.05, 0.5, 0.95])
        correlation = 1 / np.sqrt(kappa - posterior.sizes["feature"] + 2)
        verdict = "between full and diagonal: weights of different features go together, but little"
        if correlation < _DIAGONAL:
            verdict = "diagonal: every feature for itself"
        elif correlation > _FULL:
            verdict = "full: weights of different features go together"
        return (
            f"found to be {verdict} (kappa {kappa:.0f}, {low:.0f} to {high:.0f}: correlations near {correlation:.2f}); "
            f"{_features(posterior)}"
        )


class LowRankStructure(Structure):
    """Few directions above a floor (low rank plus a multiple of the identity)."""

    name = "low_rank"
    rotation_invariant = True
    double = True
    #: Left alone, its trajectories have 127 steps, four times those of "full". With at most 31 as many effective draws cost
    #: the same on the data of one seed, and a third and two thirds less on those of two others. With an acceptance of .9
    #: trajectories had more steps and fewer effective draws.
    acceptance = 0.8
    depth = 5

    def check(self, num_tasks: int, num_features: int) -> None:
        _as_many_tasks(self, num_tasks, num_features)

    def model_for(self, release: Release) -> ModelAndInit:
        self.check(release.num_tasks, release.num_features)
        rank = min(model.MAX_RANK, release.num_features)
        return ModelAndInit(_of_rank(rank), start_low_rank(observed(release), rank))

    def prior(self, num_features: int, num_draws: int, seed: int) -> FloatArray:
        rng = np.random.default_rng(seed)
        rank = min(model.MAX_RANK, num_features)
        H = rng.standard_normal((num_draws, num_features, rank)) * law.half_cauchy(rng, (num_draws, 1, rank))
        return np.eye(num_features) + H @ np.swapaxes(H, -1, -2) / num_features

    def describe(self, posterior: xr.Dataset) -> str:
        return "low rank: a few directions above a floor"


class TraceNormWeights(Structure):
    """The papers' trace norm as a prior on latent weights."""

    name = "paper"
    rotation_invariant = True

    def model_for(self, release: Release) -> ModelAndInit:
        return _latent(release, "trace_norm", {"z": 0.0})

    def describe(self, posterior: xr.Dataset) -> str:
        return "the papers' trace norm as a prior, as asked for"


class RowNormWeights(Structure):
    """The papers' l2,1 norm as a prior on latent weights."""

    name = "paper_group_sparse"

    def model_for(self, release: Release) -> ModelAndInit:
        return _latent(release, "group_laplace", {"z": 0.0})

    def describe(self, posterior: xr.Dataset) -> str:
        return "the papers' l2,1 norm as a prior, as asked for"


STRUCTURES: dict[str, Structure] = {
    structure.name: structure
    for structure in (Adaptive(), Full(), LowRankStructure(), Diagonal(), TraceNormWeights(), RowNormWeights())
}


def structure_for(release: Release) -> Structure:
    """Return the structure with which owners' errors are smallest, the default of :class:`NoiseAware`.

    It is "low_rank" with at least 100 tasks and 16 to 50 features, if the noise moves the second moment by less than its
    average eigenvalue, as estimated from the release. Otherwise it is "full", which is faster and has about the same errors.
    With fewer tasks or features chains of "low_rank" diverge, and with more features they take minutes.

    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=120, num_features=20, rows=10)
    >>> [mp.inference.structure_for(mp.release(train, epsilon)).name for epsilon in (0.01, 30.0)]
    ['full', 'low_rank']
    """
    fits = release.num_tasks >= MANY_TASKS and _FEWEST_FEATURES <= release.num_features <= _MOST_FEATURES
    return STRUCTURES["low_rank" if fits and _relative_noise(release) <= 1 else "full"]


def _relative_noise(release: Release) -> float:
    """Estimate from a release how far noise moves the second moment, in units of its average eigenvalue."""
    law = release.mechanisms[-1]
    average = float(np.trace(release.sigma[-1] - law.mean)) / release.num_features
    return law.operator_norm / average if average > 0 else np.inf


def structure_of(structure: str | Structure) -> Structure:
    """Return the structure with a name, or a user's own.

    Raises:
        ValueError: neither.
    """
    chosen: Structure = named("structure", structure, STRUCTURES, Structure)
    return chosen


def model_for(structure: str | Structure, release: Release) -> ModelAndInit:
    """Return the model of a release under a structure.

    Raises:
        ValueError: a structure that needs more tasks than the release has.
    """
    return structure_of(structure).model_for(release)


def _as_many_tasks(structure: Structure, m: int, d: int) -> None:
    if m < d:
        raise ValueError(
            f"structure: {structure.name!r} needs at least as many tasks as features, got {m} tasks and {d} features; "
            "use 'full' or 'paper'"
        )


def _latent(release: Release, prior: str, scales: Mapping[str, float]) -> ModelAndInit:
    """Return the model of latent weights under a prior of :mod:`mpmtl_prob.models.latent_weights`."""
    return ModelAndInit(latent_weights.latent_weights(release.num_tasks, prior), {**scales, "Z": _weights(release)})


def _weights(release: Release) -> FloatArray:
    return np.random.default_rng(0).standard_normal((release.num_features, release.num_tasks))


@lru_cache
def _of_rank(rank: int) -> Callable[..., None]:
    return partial(model.few_directions, rank=rank)


#: Numbers of features for which :func:`structure_for` may return "low_rank".
_FEWEST_FEATURES, _MOST_FEATURES = 16, 50
#: Typical correlation of two features' weights, below which Omega is called diagonal.
_DIAGONAL = 0.1
#: Typical correlation above which Omega is called full.
_FULL = 0.3
#: Inclusion, the share of omega_j above the floor, above which a feature stands out. Before the release it is .5.
_STANDS_OUT = 0.9
#: Largest number of features that are named.
_SHOWN = 8


def _features(posterior: xr.Dataset) -> str:
    """Name the features that stand out."""
    inclusion = posterior["inclusion"].mean(("chain", "draw"))
    order = np.argsort(-inclusion.values, kind="stable")
    out = [str(inclusion["feature"].values[j]) for j in order if inclusion.values[j] > _STANDS_OUT]
    if not out:
        return f"none of {inclusion.size} features stands out"
    names = ", ".join(out[:_SHOWN]) + (", ..." if len(out) > _SHOWN else "")
    stand = "stands" if len(out) == 1 else "stand"
    return f"{len(out)} of {inclusion.size} features {stand} out (inclusion above .9): {names}"


__getattr__ = former_names(
    __name__, {"Directions": "LowRankStructure", "Reading": "ModelAndInit", "reading": "model_for"}
)
