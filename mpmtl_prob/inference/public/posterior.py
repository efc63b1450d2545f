"""Base class of posteriors given a release: draws in a tree, chains that can be extended, files, and cards."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.checks import MANY, whole
from mpmtl_prob._util.files import holding, read_tree, write_netcdf
from mpmtl_prob._util.html import card
from mpmtl_prob.inference.subspace import Subspace, subspace
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.diagnostics import Diagnosis
from mpmtl_prob.sampling.extent import Until
from mpmtl_prob.sampling.stored import packed, unpacked

if TYPE_CHECKING:
    import xarray as xr

    from mpmtl_prob.sampling.chains import ChainStates
    from mpmtl_prob.sampling.runs import Chunk, Sampling

#: Largest number of draws per chain of :func:`extend_until_sound`.
MOST_DRAWS = 2000
#: Draws per chain that it adds between two diagnoses.
_MORE = 100


@dataclass(frozen=True, eq=False, repr=False)
class PublicPosterior[S](ABC):
    """Posterior given a release, computed from public information alone, and so public.

    Attributes:
        release: the release that it conditions on.
        structure: structure of the covariance between tasks, as requested.
        seconds: wall-clock time of the sampling.
    """

    release: Release
    structure: S
    seconds: float
    _tree: xr.DataTree
    _extend: Callable[[int, Until | None, bool], Any] | None = None

    seat = "public"
    #: Name of its files' contents in errors.
    _contents: ClassVar[str]
    #: Groups of its tree.
    _groups: ClassVar[tuple[str, ...]]
    #: Those of the groups that have draws.
    _drawn: ClassVar[tuple[str, ...]]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_extend": None}  # chains are compiled programs, which cannot be pickled

    @property
    def num_draws(self) -> int:
        """Number of draws of every chain."""
        return int(self._tree.children["posterior"].sizes["draw"])

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release, which holds for the posterior too (post-processing)."""
        return self.release.guarantee

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases that it conditions on, each with its own guarantee."""
        return (self.release,)

    def draws(self, name: str) -> FloatArray:
        """Return all draws of a variable of the group ``posterior``, (S, ...), one chain after another."""
        values: FloatArray = self._tree.children["posterior"].dataset[name].values
        return values.reshape(-1, *values.shape[2:])

    @property
    @abstractmethod
    def omega(self) -> FloatArray:
        """Posterior mean of Omega's shape, scaled to mean variance 1, (d, d)."""

    @property
    def _varying(self) -> Sequence[Hashable]:
        """Names of the d rows of Omega."""
        return self.release.features

    def subspace(self, rank: int, reference: ArrayLike | None = None) -> Subspace:
        """Return the posterior of the leading subspace of Omega; arguments as :func:`mpmtl_prob.inference.subspace`."""
        draws = self._tree.children["posterior"].dataset["Omega"].values
        return subspace(draws, rank, features=self._varying, reference=reference)

    @abstractmethod
    def to_arviz(self) -> xr.DataTree:
        """Return a copy of the tree with all draws, statistics and data."""

    @abstractmethod
    def diagnose(self) -> Diagnosis:
        """Return r-hat and effective sample sizes, what they mean, and what the release says, in words."""

    def extend(self, draws: int | None = None, *, until: Until | None = None, progress_bar: bool = True) -> Self:
        """Return the posterior with more draws, from where its chains stopped or were interrupted.

        Args:
            draws: number of further draws per chain; default: 300, or as many as ``until`` takes.
            until: stop as soon as there are enough.
            progress_bar: show one.

        Raises:
            ValueError: a posterior that was loaded from a file.
        """
        if self._extend is None:
            raise ValueError("extend: this posterior holds no chains to go on from; sample it anew")
        more: Self = self._extend(_most(draws, until), until, progress_bar)
        return more

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a NetCDF file, from which :meth:`load` makes an equal posterior.

        The file is as public as the release. If nothing is proved about a release, only the file's owner may read it (mode
        0600). Draws are stored in single precision, around their medians (:mod:`mpmtl_prob.sampling.stored`).
        """
        unproved = any(release.guarantee.proved is None for release in self.releases)
        write_netcdf(self.as_stored(), path, private=unproved)

    def as_stored(self) -> xr.DataTree:
        """Return the tree as :meth:`save` writes it, from which :meth:`from_tree` makes an equal posterior."""
        tree = self._tree.copy()
        for group in self._drawn:
            tree[group] = packed(tree[group].to_dataset())
        tree.attrs |= {"seconds": self.seconds} | self.settings()
        return tree

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings that make an equal posterior, with the groups of the tree and the seconds."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a posterior that :meth:`save` wrote. Raises ValueError for a file that holds none."""
        with holding(cls._contents, path):
            return cls.from_tree(read_tree(path))

    @classmethod
    @abstractmethod
    def from_tree(cls, tree: xr.DataTree) -> Self:
        """Make the posterior from a tree as :meth:`save` wrote it.

        Raises:
            KeyError, TypeError, ValueError: another tree.
        """

    @classmethod
    def _release_and_tree(cls, tree: xr.DataTree, structure: str) -> tuple[Release, xr.DataTree]:
        """Return the release of a stored tree, and the tree with draws in double precision."""
        import xarray as xr  # imported here because it takes nearly a second, with pandas

        groups = {k: unpacked(tree[k].to_dataset()) for k in (*cls._groups, "release")}
        unpacked_tree = xr.DataTree.from_dict(groups)
        unpacked_tree.attrs |= {"seat": cls.seat, "structure": structure}
        return Release.from_xarray(groups["release"]), unpacked_tree

    @abstractmethod
    def _facts(self) -> Mapping[str, object]:
        """Facts that a notebook shows beside the guarantee."""

    def _repr_html_(self) -> str:
        return card(type(self).__name__, dict(self._facts()) | self.guarantee.facts(), self.guarantee.reason)


@dataclass(frozen=True, eq=False)
class Chains[P]:
    """Chains behind a posterior, by which it can be extended.

    Attributes:
        run: settings of the run.
        double: whether to sample in double precision, even where JAX is set to single.
        posterior: makes a posterior from draws, statistics, the seconds that they took, and a function that extends it.
    """

    run: Sampling
    double: bool
    posterior: Callable[[Draws, Draws, float, Callable[[int, Until | None, bool], P]], P]

    def start(
        self, chains: int, seed: int, start: Any, most: int, until: Until | None, progress_bar: bool, begin: float
    ) -> P:
        """Run new chains, and return their posterior; ``begin`` is the time on the clock when its computation began."""
        with self._precision():
            reached = self.run.init(chains, seed, start)
        return self._extend(reached, [], most, until, progress_bar, time.perf_counter() - begin)

    def _extend(
        self,
        reached: ChainStates,
        parts: list[Chunk],
        most: int,
        until: Until | None,
        progress_bar: bool,
        seconds: float,
    ) -> P:
        """Run the chains up to ``most`` draws of each, or until there are enough; ``seconds`` is the time so far."""
        from mpmtl_prob.sampling.chains import join

        begin = time.perf_counter()
        with self._precision():
            reached = self.run.extend(reached, parts, most, until=until, progress_bar=progress_bar)
        drawn = join([samples for samples, _ in parts])
        statistics = join([of_chunk for _, of_chunk in parts])
        seconds += time.perf_counter() - begin

        def extend(more: int, until: Until | None, progress_bar: bool) -> P:
            return self._extend(reached, list(parts), reached.drawn + more, until, progress_bar, seconds)

        return self.posterior(drawn, statistics, seconds, extend)

    def _precision(self) -> AbstractContextManager[Any]:
        import jax

        return jax.enable_x64(self.double or bool(jax.config.jax_enable_x64))


def refused_names(reason: str, *names: str) -> Callable[[Any, str], Any]:
    """Return a ``__getattr__`` that says why an object lacks these names, which others of its kind have."""

    def missing(self: Any, name: str) -> Any:
        plain = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(f"{plain}: {reason}" if name in names else plain)

    return missing


#: The reason why posteriors given messages of directions or weights have no tables of effects.
NO_AVERAGES = (
    "the release is of messages of directions or weights, which hold no average effects; with "
    "mpmtl_prob.release(tasks, epsilon, reference=...) it does, and shared_effects reads it"
)


def extend_until_sound[P: PublicPosterior[Any]](shared: P, *, most: int = MOST_DRAWS, progress_bar: bool = True) -> P:
    """Extend a posterior until its diagnosis asks for no more draws, or there are ``most`` draws per chain.

    It is not extended after divergences, which more draws do not mend, nor after an interrupt.
    """
    drawn = shared.num_draws
    while drawn < most and shared.diagnose().asks_for_draws:
        shared = shared.extend(min(_MORE, most - drawn), progress_bar=progress_bar)
        if shared.num_draws < min(drawn + _MORE, most):  # interrupted
            break
        drawn = shared.num_draws
    return shared


def check_sampling(chains: int, warmup: int, draws: int | None, seed: int, until: Until | None = None) -> int:
    """Return the largest number of draws per chain.

    Raises:
        ValueError: an argument outside its range.
    """
    whole("warmup", warmup, upto=MANY - 1)  # so that compiled programs can count it
    whole("seed", seed, 0)
    most = _most(draws, until)
    whole("chains", chains, upto=max(MANY // most, 1))
    return most


def _most(draws: int | None, until: Until | None) -> int:
    """Return the largest number of draws per chain, by default one that depends on the stopping rule."""
    if until is not None and not isinstance(until, Until):
        raise ValueError(f"until: expected Until(ess=..., rhat=...), got {type(until).__name__}")
    return whole("draws", (300 if until is None else 10_000) if draws is None else draws, upto=MANY)
