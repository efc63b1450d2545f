"""The public seat: from a release to the posterior of the covariance that tasks share."""

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

from mpmtl_prob._util.arrays import FloatArray
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
from mpmtl_prob.sampling.chains import Draws
from mpmtl_prob.sampling.diagnostics import Diagnosis, Remedies, diagnose
from mpmtl_prob.sampling.nuts import WARMUP, kernel
from mpmtl_prob.sampling.runs import Sampling, Until

if TYPE_CHECKING:
    import xarray as xr


#: What step sizes aim at: with NumPyro's .8 single transitions diverge in one posterior of ten.
ACCEPTANCE = 0.9
#: What a diagnosis of :func:`shared_covariance` advises.
REMEDIES = Remedies(
    "Call shared_covariance with more draws, or a longer warmup.",
    lambda more, draws: f"shared_covariance(..., draws={more + draws}) should do.",
    "Call shared_covariance with a longer warmup, or a simpler structure.",
    "call shared_covariance with a longer warmup.",
)


@dataclass(frozen=True, eq=False, repr=False)
class SharedPosterior(PublicPosterior[Structure]):
    """Posterior of the tasks' shared covariance given a release. Computed from public things alone, and public.

    Attributes:
        release: what it conditions on.
        structure: of Omega, as given to :func:`shared_covariance`.
        seconds: wall-clock time of the sampling.
    """

    _held = "public posterior"
    _groups = ("posterior", "sample_stats", "observed_data")
    _drawn = ("posterior", "sample_stats")
    if not TYPE_CHECKING:  # which knows them by itself
        __getattr__ = refused_names(NO_AVERAGES, "average_effects", "contrasts", "new_task", "sensitivity")

    def to_arviz(self) -> xr.DataTree:
        """A DataTree with groups ``posterior``, ``sample_stats``, ``observed_data`` and ``release``.

        ``posterior`` holds ``A``, the second moment behind the release (behind its last round); ``Omega``, the
        covariance of a task's weights (both over (chain, draw, feature, feature_other)); ``spectrum``, Omega's eigenvalues
        as shares of their sum, descending; ``log_phi``; and by structure ``inclusion`` (feature), ``kappa`` and
        ``prior_scale`` (feature), the diagonal of Phi: Omega | A ~ InverseWishart(kappa + m, Phi + A).
        """
        return self._tree.copy(deep=True)  # what is done to the tree is not done to the posterior

    @property
    def omega(self) -> FloatArray:
        """Posterior mean of Omega's shape, scaled to mean variance 1, (d, d)."""
        return self.shape()

    @former_arguments(sharpness="power")
    def shape(self, power: float = 1.0) -> FloatArray:
        """Posterior mean of the shape of Omega^p, p the power, scaled to mean variance 1, (d, d): what a plug-in needs.

        Messages are estimates, whose errors make their second moment flatter than that of the weights; p > 1 undoes it.
        The power is taken draw by draw, so that where the release says little the mean stays near the identity.

        Raises:
            ValueError: power that is not positive.
        """
        return self._shapes.shape(power)

    @former_arguments(sharpness="power")
    def shapes(self, power: ArrayLike) -> FloatArray:
        """Return as many draws of the shape, evenly spaced over the chains, as power has entries, (S, d, d)."""
        return self._shapes.shapes(power)

    @cached_property
    def _shapes(self) -> CovarianceDraws:
        posterior, structure = self._tree.children["posterior"].dataset, self.structure.resolve(self.release)
        conditional = law.given_second_moment(posterior, self.release.num_tasks)
        M = posterior["Omega"].values if conditional is None else conditional[0]  # E[Omega | A, phi] up to a factor
        eigenvalues, U = np.linalg.eigh(M.reshape(-1, *M.shape[-2:]))
        if not structure.rotation_invariant:
            return CovarianceDraws(eigenvalues, U)
        # Prior and noise favour no direction, so the posterior is the same when an axis of Sigma's eigenbasis is flipped:
        # in that basis the mean is diagonal, and it grows with Sigma's eigenvalues. What the draws say besides is noise.
        V = np.linalg.eigh(self.release.sigma[-1])[1]
        if type(structure) is not Full:
            return CovarianceDraws(eigenvalues, V.T @ U, V)
        # A is of rank m, and Phi the same in every direction
        m, floor = self.release.num_tasks, posterior["prior_scale"].values[..., 0].ravel()
        return CovarianceDraws(eigenvalues[:, -m:], V.T @ U[..., -m:], V, floor)

    without = FormerName("leave_one_out")

    def leave_one_out(self, message: ArrayLike) -> CovarianceDraws:
        """Roughly the shape as the release would tell it had one task not sent its message (d,): for that task's owner alone.

        What comes out is as private as the message; with the release it gives the message away.

        Some of the draws of A, tens of them, lose the share g of w~ w~', g = Var(w~' A w~ | Sigma) / Var(w~' E w~), by which
        the posterior mean follows the release (Kalman's gain): 1 without noise, next to 0 where noise hides a message.

        Raises:
            ValueError: another structure than "full", several rounds, or a message that is not d finite numbers.
        """
        if self._shapes.floor is None or self.release.rounds > 1:
            raise ValueError("without: expected a posterior of structure 'full' and of one round")
        w, d = as_float_array("message", message), self.release.num_features
        if w.shape != (d,) or not np.isfinite(w).all():
            raise ValueError(f"message: expected {d} finite numbers, one per feature, got an array of shape {w.shape}")
        share = self._share(w)
        return self._shapes.leave_one_out(w, share, np.linalg.eigh(self.release.sigma[-1] - share * np.outer(w, w))[1])

    def _share(self, w: FloatArray) -> float:
        """Compute how far the posterior mean of w' A w follows w' Sigma w: exact beside Gaussian noise, for small steps."""
        A = self._tree.children["posterior"].dataset["A"].values.reshape(-1, len(w), len(w))
        known, noise = np.var(np.einsum("i,sij,j->s", w, A, w)), self._noise_variance * np.dot(w, w) ** 2
        return float(min(1.0, known / noise)) if noise else 0.0

    @cached_property
    def _noise_variance(self) -> float:  # which a user's law may have to find by draws
        return self.release.mechanisms[-1].variance

    @cached_property
    def information(self) -> Information:
        """Information in the release: how wide intervals are, against those without its noise and those before it."""
        prior = self.structure.resolve(self.release).prior
        return information(self._tree["posterior"].to_dataset(), prior, self.release.num_tasks)

    def structure_in_words(self) -> str:
        """Say what is known of Omega's structure: of "auto", which one the release speaks for, and which features matter."""
        return self.structure.resolve(self.release).describe(self._tree["posterior"].to_dataset())

    def diagnose(self) -> Diagnosis:
        """r-hat and effective sample sizes, what they mean, and what the release says, in words.

        Judged is what the release identifies: the spectrum of Omega, its scale phi, kappa and the inclusion of features;
        never eigenvectors.
        """
        posterior = self._tree["posterior"].to_dataset()
        judged = {"log_phi": "log_phi", "the spectrum": "spectrum", "kappa": "kappa", "inclusion": "inclusion"}
        functionals = {name: posterior[site].values for name, site in judged.items() if site in posterior}
        if self._settled:
            del functionals["the spectrum"]
        statistics = {str(k): v.values for k, v in self._tree["sample_stats"].to_dataset().items()}
        remarks = [f"Structure: {self.structure_in_words()}.", str(self.information)]
        return diagnose(functionals, statistics, remedies=REMEDIES, remarks=[line for line in remarks if line])

    def settings(self) -> dict[str, Any]:
        """The name of the structure."""
        return {"structure": self.structure.name}

    @classmethod
    def load(cls, path: str | os.PathLike[str], structure: Structure | None = None) -> Self:
        """Read a posterior that :meth:`save` wrote. Raises ValueError for a file that holds none.

        ``structure`` is the one that it was made with, where that is none of this library's.
        """
        with holding("public posterior", path):
            return cls.from_tree(read_tree(path), structure)

    @classmethod
    def from_tree(cls, tree: xr.DataTree, structure: Structure | None = None) -> Self:
        """The posterior of a tree as :meth:`to_arviz` made it, by a structure as for :meth:`load`.

        Raises:
            KeyError, TypeError: another tree.
            ValueError: a tree of another structure.
        """
        name = tree.attrs["structure"]
        if structure is None:
            structure = structure_of(name)
        elif structure.name != name:
            raise ValueError(f"structure: expected {name!r} as in the tree, got {structure.name!r}")
        release, own = cls._own_tree(tree, name)
        return cls(release, structure, float(tree.attrs.get("seconds", 0.0)), own)

    @property
    def _settled(self) -> bool:
        """Return whether the structure leaves nothing of the spectrum open."""
        return not np.ptp(self._tree.children["posterior"].dataset["spectrum"].values, axis=(0, 1)).any()

    def _sampling(self) -> str:
        divergences = int(self._tree.children["sample_stats"].dataset["diverging"].sum())
        sites = ["log_phi"] if self._settled else ["spectrum", "log_phi"]
        from arviz_stats import rhat  # which takes two seconds to import

        worst = rhat(self._tree.children["posterior"].to_dataset()[sites])
        largest = max(float(v.max()) for v in worst.data_vars.values())
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
        release: with Wishart or Gaussian noise. Of several rounds the last is read, whose messages answer those before.
            One of messages of effects holds their average too: what comes out is then :func:`shared_effects`' posterior,
            whose ``subspace`` and ``omega`` are of the effects between tasks, and which has its own structures.
        structure: of Omega:

            - "full": none. The default, and the only one that treats all directions alike and fast.
            - "group_sparse": diagonal, few features matter. Where that is so it is worth a tenfold budget and more.
            - "auto": anything between these two. How diagonal Omega is (kappa) and which features matter (lambda) are
              learnt from the release with the rest, so the posterior averages over structures; it takes longer.
            - "low_rank": a few directions above a floor. Takes longer; :func:`structure_for` says where it pays.
            - "paper", "paper_group_sparse": the weights latent under the papers' trace norm or l2,1 penalty as a prior, of
              unknown scale; m d latent numbers, for small problems.

            With fewer tasks than features A is singular, and "full" and "auto" sample the weights behind it, "full" also with
            as many. Or a :class:`Structure` of your own.
        chains: number of chains.
        warmup: iterations of adaptation per chain.
        draws: kept iterations per chain; default 300, or as many as ``until`` takes, up to 10 000.
        until: stop as soon as there are enough, such as ``Until(ess=400, rhat=1.01)``: of log(phi), the three largest
            shares of A's eigenvalues, and the structure's log(kappa) and inclusion of features.
        seed: of the sampler. The result is a function of the arguments.
        progress_bar: show one, in effective draws, under a :func:`first_look` at the release.

    The papers' "paper" and "paper_group_sparse" are sampled as JAX is set, all others in double precision.

    Raises:
        ValueError: a structure that needs more tasks than the release has; noise of another kind than Wishart or Gaussian;
            or an argument outside its range.
        KeyboardInterrupt: during warm-up. Later an interrupt ends the run with a warning, and what was drawn is returned.

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
    asked = structure_of(structure)
    begin, most = time.perf_counter(), check_sampling(chains, warmup, draws, seed, until)
    chosen = asked.model_for(release)
    if progress_bar:
        tqdm.write(str(first_look(release)))
    run = Sampling(kernel(chosen.model, ACCEPTANCE), (observed(release),), int(warmup), watched=_watched)

    def posterior(
        drawn: Draws, statistics: Draws, seconds: float, extend: Callable[..., SharedPosterior]
    ) -> SharedPosterior:
        tree = as_tree(release, drawn, statistics, seed)
        tree.attrs |= {"seat": SharedPosterior.seat, "structure": asked.name}
        return SharedPosterior(release, asked, seconds, tree, extend)

    chains_of = Chains(run, asked.double, posterior)
    return chains_of.start(int(chains), seed, chosen.start, most, until, progress_bar, begin)


def _watched(draws: Draws) -> dict[str, FloatArray]:
    """log(phi), the three largest shares of A's eigenvalues and, if there are any, log(kappa) and features' inclusion."""
    eigenvalues = np.linalg.eigvalsh(draws["A"].astype(np.float64))[..., ::-1]
    watched = {"log_phi": draws["log_phi"], "shares": (eigenvalues / eigenvalues.sum(-1, keepdims=True))[..., :3]}
    if "kappa" in draws:
        watched["log_kappa"] = np.log(draws["kappa"])
    return watched | {name: draws[name] for name in ("inclusion",) if name in draws}
