"""Posterior of the covariance that tasks share, given a release: the public seat."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.checks import as_float_array, one_of
from mpmtl_prob._util.files import holding, read_tree
from mpmtl_prob._util.former import FormerName, former_arguments
from mpmtl_prob.inference.public import inverse_wishart as law
from mpmtl_prob.inference.public.covariance_draws import CovarianceDraws
from mpmtl_prob.inference.public.datatree import as_tree
from mpmtl_prob.inference.public.effects import STRUCTURES, SharedEffects, shared_effects
from mpmtl_prob.inference.public.information import Information, information
from mpmtl_prob.inference.public.init import observed
from mpmtl_prob.inference.public.moment_estimate import first_look
from mpmtl_prob.inference.public.posterior import NO_AVERAGES, Chains, PublicPosterior, check_sampling, refused_names
from mpmtl_prob.inference.public.structures import Full, Structure, structure_of
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.diagnostics import Diagnosis, Remedies, diagnose
from mpmtl_prob.sampling.extent import WARMUP, Until
from mpmtl_prob.sampling.nuts import kernel
from mpmtl_prob.sampling.runs import Sampling

if TYPE_CHECKING:
    import xarray as xr


#: Advice of a diagnosis of :func:`shared_covariance`.
REMEDIES = Remedies(
    "Call shared_covariance with more draws, or a longer warmup.",
    lambda more, draws: f"shared_covariance(..., draws={more + draws}) should do.",
    "Call shared_covariance with a longer warmup, or a simpler structure.",
    "call shared_covariance with a longer warmup.",
)


@dataclass(frozen=True, eq=False, repr=False)
class SharedPosterior(PublicPosterior[Structure]):
    """Posterior of the tasks' shared covariance given a release. It is computed from public information alone, and so public.

    Attributes:
        release: the release that it conditions on.
        structure: structure of Omega, as given to :func:`shared_covariance`.
        seconds: wall-clock time of the sampling.
    """

    _contents = "public posterior"
    _groups = ("posterior", "sample_stats", "observed_data")
    _drawn = ("posterior", "sample_stats")
    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = refused_names(NO_AVERAGES, "average_effects", "contrasts", "new_task", "sensitivity")

    def to_arviz(self) -> xr.DataTree:
        """Return a DataTree with groups ``posterior``, ``sample_stats``, ``observed_data`` and ``release``.

        ``posterior`` has ``A``, the second moment of the last round's messages, and ``Omega``, the covariance of a task's
        weights, both over (chain, draw, feature, feature_other); ``spectrum``, Omega's eigenvalues as shares of their sum,
        descending; ``log_phi``; and by structure ``inclusion`` (feature), ``kappa`` and ``prior_scale`` (feature), the
        diagonal of Phi: Omega | A ~ InverseWishart(kappa + m, Phi + A).
        """
        return self._tree.copy(deep=True)  # so that changes of the tree do not change the posterior

    @property
    def omega(self) -> FloatArray:
        """Posterior mean of Omega's shape, scaled to mean variance 1, (d, d)."""
        return self.shape()

    @former_arguments(sharpness="power")
    def shape(self, power: float = 1.0) -> FloatArray:
        """Return the posterior mean of the shape of Omega^p, scaled to mean variance 1, (d, d), for plug-in estimates.

        Messages are estimates, whose errors make their second moment flatter than that of the weights; a power p > 1 corrects
        this. The power is taken of every draw, so that the mean stays near the identity where the release says little.

        Raises:
            ValueError: power that is not positive.
        """
        return self._shapes.shape(power)

    @former_arguments(sharpness="power")
    def shapes(self, power: ArrayLike) -> FloatArray:
        """Return draws of the shape of Omega^p, evenly spaced over the chains, one for each p in ``power``, (S, d, d)."""
        return self._shapes.shapes(power)

    @cached_property
    def _shapes(self) -> CovarianceDraws:
        posterior = self._tree.children["posterior"].dataset
        structure = self.structure.resolve(self.release)
        conditional = law.given_second_moment(posterior, self.release.num_tasks)
        M = posterior["Omega"].values if conditional is None else conditional[0]  # E[Omega | A, phi] up to a factor
        eigenvalues, U = np.linalg.eigh(M.reshape(-1, *M.shape[-2:]))
        if not structure.rotation_invariant:
            return CovarianceDraws(eigenvalues, U)
        # Prior and noise are invariant to rotations, so that the posterior does not change when an axis of Sigma's eigenbasis
        # is reflected. In that basis the mean is therefore diagonal, and it grows with Sigma's eigenvalues. Whatever differs
        # from this in the draws is Monte Carlo error.
        V = np.linalg.eigh(self.release.sigma[-1])[1]
        if type(structure) is not Full:
            return CovarianceDraws(eigenvalues, V.T @ U, V)
        # A has rank m, and Phi is a multiple of the identity, which is the floor
        m = self.release.num_tasks
        floor = posterior["prior_scale"].values[..., 0].ravel()
        return CovarianceDraws(eigenvalues[:, -m:], V.T @ U[..., -m:], V, floor)

    without = FormerName("leave_one_out")

    def leave_one_out(self, message: ArrayLike) -> CovarianceDraws:
        """Return approximate draws of the shape given the release without one task's message (d,), for that task's owner.

        The result is as private as the message, which can be computed from it and the release.

        Some tens of the draws of A are reduced by g w~ w~', where g = Var(w~' A w~ | Sigma) / Var(w~' E w~) is the share by
        which the posterior mean follows the release (the Kalman gain): 1 without noise, and near 0 where noise dominates.

        Raises:
            ValueError: another structure than "full", several rounds, or a message that is not d finite numbers.
        """
        if self._shapes.floor is None or self.release.rounds > 1:
            raise ValueError("leave_one_out: expected a posterior of structure 'full' and of one round")
        w = as_float_array("message", message)
        d = self.release.num_features
        if w.shape != (d,) or not np.isfinite(w).all():
            raise ValueError(f"message: expected {d} finite numbers, one per feature, got an array of shape {w.shape}")
        share = self._share(w)
        return self._shapes.leave_one_out(w, share, np.linalg.eigh(self.release.sigma[-1] - share * np.outer(w, w))[1])

    def _share(self, w: FloatArray) -> float:
        """Return the derivative of the posterior mean of w' A w in w' Sigma w, which is exact for Gaussian noise."""
        A = self._tree.children["posterior"].dataset["A"].values.reshape(-1, len(w), len(w))
        posterior_variance = np.var(np.einsum("i,sij,j->s", w, A, w))
        noise_variance = self._noise_variance * np.dot(w, w) ** 2
        return float(min(1.0, posterior_variance / noise_variance)) if noise_variance else 0.0

    @cached_property
    def _noise_variance(self) -> float:
        return self.release.mechanisms[-1].variance  # cached, as a user's mechanism may estimate it by draws

    @cached_property
    def information(self) -> Information:
        """Information in the release, as widths of intervals relative to those without noise and before the release."""
        prior = self.structure.resolve(self.release).prior
        return information(self._tree["posterior"].to_dataset(), prior, self.release.num_tasks)

    def structure_in_words(self) -> str:
        """Describe Omega's structure: for "auto", which one the release supports, and which features matter."""
        return self.structure.resolve(self.release).describe(self._tree["posterior"].to_dataset())

    def diagnose(self) -> Diagnosis:
        """Return r-hat and effective sample sizes, what they mean, and what the release says, in words.

        They refer to identified functionals: the spectrum of Omega, its scale phi, kappa and the inclusion of features, but
        not eigenvectors.
        """
        posterior = self._tree["posterior"].to_dataset()
        judged = {"log_phi": "log_phi", "the spectrum": "spectrum", "kappa": "kappa", "inclusion": "inclusion"}
        functionals = {name: posterior[site].values for name, site in judged.items() if site in posterior}
        if self._constant_spectrum:
            del functionals["the spectrum"]
        statistics = {str(k): v.values for k, v in self._tree["sample_stats"].to_dataset().items()}
        remarks = [f"Structure: {self.structure_in_words()}.", str(self.information)]
        return diagnose(functionals, statistics, remedies=REMEDIES, remarks=[line for line in remarks if line])

    def settings(self) -> dict[str, Any]:
        """Return the name of the structure."""
        return {"structure": self.structure.name}

    @classmethod
    def load(cls, path: str | os.PathLike[str], structure: Structure | None = None) -> Self:
        """Read a posterior that :meth:`save` wrote.

        Args:
            path: the file.
            structure: the structure that it was made with, if that is the user's own.

        Raises:
            ValueError: a file without a posterior, or with one of another structure.
        """
        with holding("public posterior", path):
            return cls.from_tree(read_tree(path), structure)

    @classmethod
    def from_tree(cls, tree: xr.DataTree, structure: Structure | None = None) -> Self:
        """Make the posterior from a tree as :meth:`to_arviz` returns it, with a structure as in :meth:`load`.

        Raises:
            KeyError, TypeError: another tree.
            ValueError: a tree of another structure.
        """
        name = tree.attrs["structure"]
        if structure is None:
            structure = structure_of(name)
        elif structure.name != name:
            raise ValueError(f"structure: expected {name!r} as in the tree, got {structure.name!r}")
        release, unpacked_tree = cls._release_and_tree(tree, name)
        return cls(release, structure, float(tree.attrs.get("seconds", 0.0)), unpacked_tree)

    @property
    def _constant_spectrum(self) -> bool:
        """Return whether the structure allows only one spectrum, as with one feature."""
        return not np.ptp(self._tree.children["posterior"].dataset["spectrum"].values, axis=(0, 1)).any()

    def _sampling(self) -> str:
        divergences = int(self._tree.children["sample_stats"].dataset["diverging"].sum())
        sites = ["log_phi"] if self._constant_spectrum else ["spectrum", "log_phi"]
        from arviz_stats import rhat  # imported here because it takes two seconds

        with np.errstate(invalid="ignore", divide="ignore"):  # of a coordinate that never moves, which is told as nan
            worst = rhat(self._tree.children["posterior"].to_dataset()[sites])
        # a coordinate that is the same in all draws has no r-hat, and nan must not hide behind the others' numbers
        largest = np.max([float(v.max(skipna=False)) for v in worst.data_vars.values()])
        sizes = self._tree.children["posterior"].sizes
        return (
            f"{sizes['chain']} chains of {sizes['draw']} draws, {self.seconds:.3g} s; largest r-hat {largest:.3f}, "
            f"{divergences} divergences"
        )

    def __repr__(self) -> str:
        return (
            f"SharedPosterior({self.release.num_features} features, {self._sampling()})\n"
            f"  structure: {self.structure_in_words()}\n  {self.guarantee}"
        )

    def _facts(self) -> Mapping[str, object]:
        return {
            "features": self.release.num_features,
            "seat": self.seat,
            "structure": self.structure_in_words(),
            "sampling": self._sampling(),
        }


def shared_covariance(
    release: Release,
    *,
    structure: str | Structure = "full",
    chains: int = 4,
    warmup: int = WARMUP,
    draws: int | None = None,
    until: Until | None = None,
    seed: int = 0,
    progress_bar: bool = True,
) -> SharedPosterior | SharedEffects:
    """Sample the posterior of the shared covariance given a release, with NUTS.

    Args:
        release: a release with Wishart or Gaussian noise. Of several rounds the last is used, whose messages have used those
            before. For messages of effects, which have an average too, the result is the posterior of :func:`shared_effects`.
            Its ``subspace`` and ``omega`` are of effects between tasks, and it has its own structures.
        structure: structure of Omega, or a :class:`Structure` of your own:

            - "full": none. The default, fast, and without preferred directions.
            - "group_sparse": diagonal, few features matter. If that is true, it is worth a budget ten times as large.
            - "auto": any degree between these two. How diagonal Omega is (kappa) and which features matter (lambda) are
              learnt from the release, so that the posterior averages over structures. It takes longer.
            - "low_rank": a few directions above a floor. It takes longer; :func:`structure_for` says where it is better.
            - "paper", "paper_group_sparse": latent weights under the papers' trace norm or l2,1 penalty as a prior of unknown
              scale. They have m d latent numbers, and suit small problems.

            With fewer tasks than features A is singular; then "full" and "auto" sample latent weights. "full" does so with
            equal numbers too.
        chains: number of chains.
        warmup: iterations of adaptation per chain.
        draws: number of draws of every chain; default: 300, or as many as ``until`` takes, up to 10 000.
        until: stop as soon as there are enough, such as ``Until(ess=400, rhat=1.01)``. It watches log(phi), the three largest
            shares of A's eigenvalues, and the structure's log(kappa) and inclusion of features.
        seed: seed of the sampler. The result is a function of the arguments.
        progress_bar: show one, with effective draws, under a :func:`first_look` at the release.

    "paper" and "paper_group_sparse" are sampled in JAX's precision, all others in double precision.

    Raises:
        ValueError: a structure that needs more tasks than the release has; noise of another kind than Wishart or Gaussian;
            or an argument outside its range.
        KeyboardInterrupt: an interrupt during warm-up. A later one ends the run with a warning, and the draws so far are
            returned.

    Models: :mod:`mpmtl_prob.models.shared_covariance`, :mod:`mpmtl_prob.models.latent_weights`.

    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> release = mp.release(train, epsilon=1.0)
    >>> shared = mp.inference.shared_covariance(release, chains=2, warmup=200, draws=200, progress_bar=False)
    >>> shared.shape().shape  # of Omega up to a factor, the posterior mean
    (3, 3)
    """
    if not isinstance(release, Release):
        raise ValueError(f"release: expected a Release, got {type(release).__name__}; make one with mpmtl_prob.release")
    if release.effects is not None:
        return shared_effects(
            release, structure=one_of("structure", structure, STRUCTURES), chains=chains, warmup=warmup, draws=draws,
            until=until, seed=seed, progress_bar=progress_bar,
        )  # fmt: skip
    requested = structure_of(structure)
    begin = time.perf_counter()
    most = check_sampling(chains, warmup, draws, seed, until)
    model_and_init = requested.model_for(release)
    if progress_bar:
        tqdm.write(str(first_look(release)))
    sampler = kernel(model_and_init.model, requested.acceptance, requested.depth)
    run = Sampling(sampler, (observed(release),), int(warmup), watched=_watched)

    def posterior(
        drawn: Draws, statistics: Draws, seconds: float, extend: Callable[..., SharedPosterior]
    ) -> SharedPosterior:
        tree = as_tree(release, drawn, statistics, seed)
        tree.attrs |= {"seat": SharedPosterior.seat, "structure": requested.name}
        return SharedPosterior(release, requested, seconds, tree, extend)

    of_release = Chains(run, requested.double, posterior)
    return of_release.start(int(chains), seed, model_and_init.start, most, until, progress_bar, begin)


def _watched(draws: Draws) -> dict[str, FloatArray]:
    """Return log(phi), the three largest shares of A's eigenvalues and, if there are any, log(kappa) and inclusion."""
    eigenvalues = np.linalg.eigvalsh(draws["A"].astype(np.float64))[..., ::-1]
    watched = {"log_phi": draws["log_phi"], "shares": (eigenvalues / eigenvalues.sum(-1, keepdims=True))[..., :3]}
    if "kappa" in draws:
        watched["log_kappa"] = np.log(draws["kappa"])
    return watched | {name: draws[name] for name in ("inclusion",) if name in draws}
