"""Base class of posteriors given a release: draws in a tree, chains that go on, files, and cards."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, whole
from mpmtl_prob._util.files import holding, read_tree, write_netcdf
from mpmtl_prob._util.html import card
from mpmtl_prob.inference.subspace import Subspace, subspace
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.chains import ChainStates, Draws, join
from mpmtl_prob.sampling.diagnostics import Diagnosis
from mpmtl_prob.sampling.runs import Chunk, Sampling, Until
from mpmtl_prob.sampling.stored import packed, unpacked

if TYPE_CHECKING:
    import xarray as xr

#: Of :func:`settled`: draws per chain, at most and between two looks.
MOST_DRAWS, _MORE = 2000, 100


@dataclass(frozen=True, eq=False, repr=False)
class PublicPosterior[S](ABC):
    """A posterior given a release, computed from public things alone, and public.

    Attributes:
        release: what it conditions on.
        structure: of the covariance between tasks, as it was asked for.
        seconds: wall-clock time of the sampling.
    """

    release: Release
    structure: S
    seconds: float
    _tree: xr.DataTree
    _extend: Callable[[int, Until | None, bool], Any] | None = None

    seat = "public"
    #: What a file of it is called in errors; groups of its tree, and those of them that hold draws.
    _held: ClassVar[str]
    _groups: ClassVar[tuple[str, ...]]
    _drawn: ClassVar[tuple[str, ...]]

    def __getstate__(self) -> dict[str, Any]:  # chains are compiled programs: as in a file, there are none
        return self.__dict__ | {"_extend": None}

    @property
    def num_draws(self) -> int:
        """Draws kept of every chain."""
        return int(self._tree.children["posterior"].sizes["draw"])

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release: everything after it is post-processing."""
        return self.release.guarantee

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases that it conditions on, each with a guarantee of its own."""
        return (self.release,)

    def draws(self, name: str) -> FloatArray:
        """All draws of a variable of the group ``posterior``, (S, ...), chains one after the other."""
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
        """The posterior of the leading subspace of Omega; arguments as :func:`mpmtl_prob.inference.subspace`."""
        draws = self._tree.children["posterior"].dataset["Omega"].values
        return subspace(draws, rank, features=self._varying, reference=reference)

    @abstractmethod
    def to_arviz(self) -> xr.DataTree:
        """A copy of the tree of all draws, and of what goes with them."""

    @abstractmethod
    def diagnose(self) -> Diagnosis:
        """r-hat and effective sample sizes, what they mean, and what the release says, in words."""

    def extend(self, draws: int | None = None, *, until: Until | None = None, progress_bar: bool = True) -> Self:
        """The posterior with more draws, from where the chains stopped, also of a run that was interrupted.

        Args:
            draws: more per chain; default 300, or as many as ``until`` takes.
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
        """Write everything to a NetCDF file, of which :meth:`load` makes an equal posterior; as public as the release.

        Draws are kept in single precision, round their medians (:mod:`mpmtl_prob.sampling.stored`).

        Where nothing is proved of a release, the file is for its owner alone (mode 0600).
        """
        unproved = any(each.guarantee.proved is None for each in self.releases)
        write_netcdf(self.as_stored(), path, private=unproved)

    def as_stored(self) -> xr.DataTree:
        """The tree as :meth:`save` writes it, of which :meth:`from_tree` makes an equal posterior."""
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
        with holding(cls._held, path):
            return cls.from_tree(read_tree(path))

    @classmethod
    @abstractmethod
    def from_tree(cls, tree: xr.DataTree) -> Self:
        """The posterior of a tree as :meth:`save` wrote it. Raises KeyError, TypeError or ValueError for another tree."""

    @classmethod
    def _own_tree(cls, tree: xr.DataTree, structure: str) -> tuple[Release, xr.DataTree]:
        """The release of a tree, and the tree as the posterior holds it."""
        import xarray as xr  # with pandas, nearly a second to import

        groups = {k: unpacked(tree[k].to_dataset()) for k in (*cls._groups, "release")}
        own = xr.DataTree.from_dict(groups)
        own.attrs |= {"seat": cls.seat, "structure": structure}
        return Release.from_xarray(groups["release"]), own

    @abstractmethod
    def _facts(self) -> Mapping[str, object]:
        """Facts that a notebook shows beside the guarantee."""

    def _repr_html_(self) -> str:
        return card(type(self).__name__, dict(self._facts()) | self.guarantee.facts(), self.guarantee.reason)


@dataclass(frozen=True, eq=False)
class Chains[P]:
    """The chains behind a posterior.

    Attributes:
        run: of the sampler.
        double: whether in double precision whatever JAX is set to.
        posterior: makes one of draws, statistics, the seconds that they took, and a function that draws more.
    """

    run: Sampling
    double: bool
    posterior: Callable[[Draws, Draws, float, Callable[[int, Until | None, bool], P]], P]

    def start(
        self, chains: int, seed: int, start: Any, most: int, until: Until | None, progress_bar: bool, begin: float
    ) -> P:
        """The posterior of a new run, whose clock says it began at ``begin``."""
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
        """Until there are ``most`` draws per chain, or enough; ``seconds`` is what the run took so far."""
        begin = time.perf_counter()
        with self._precision():
            reached = self.run.extend(reached, parts, most, until=until, progress_bar=progress_bar)
        drawn, statistics = (join([part[i] for part in parts]) for i in (0, 1))
        seconds += time.perf_counter() - begin

        def extend(more: int, until: Until | None, progress_bar: bool) -> P:
            return self._extend(reached, list(parts), reached.drawn + more, until, progress_bar, seconds)

        return self.posterior(drawn, statistics, seconds, extend)

    def _precision(self) -> AbstractContextManager[Any]:
        return jax.enable_x64(self.double or bool(jax.config.jax_enable_x64))


def refused_names(reason: str, *names: str) -> Callable[[Any, str], Any]:
    """Return a ``__getattr__`` that says why an object has none of these names, where others of its kind have them."""

    def missing(self: Any, name: str) -> Any:
        plain = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(f"{plain}: {reason}" if name in names else plain)

    return missing


#: Why a posterior given other messages has no tables of effects.
NO_AVERAGES = (
    "the release is of messages of directions or weights, which hold no average effects; with "
    "mpmtl_prob.release(tasks, epsilon, reference=...) it does, and shared_effects reads it"
)


def settled[P: PublicPosterior[Any]](shared: P, *, most: int = MOST_DRAWS, progress_bar: bool = True) -> P:
    """Draw more until the posterior's own diagnosis is content, or ``most`` draws per chain are reached.

    Where transitions diverged more draws mend nothing, and none are made; nor after an interrupt.
    """
    drawn = shared.num_draws
    while drawn < most and shared.diagnose().asks_for_draws:
        shared = shared.extend(min(_MORE, most - drawn), progress_bar=progress_bar)
        if shared.num_draws < min(drawn + _MORE, most):  # interrupted
            break
        drawn = shared.num_draws
    return shared


def check_sampling(chains: int, warmup: int, draws: int | None, seed: int, until: Until | None = None) -> int:
    """The most draws per chain. Raises ValueError for an argument outside its range."""
    whole("warmup", warmup, upto=MANY - 1)  # which compiled programs count
    whole("seed", seed, 0)
    most = _most(draws, until)
    whole("chains", chains, upto=max(MANY // most, 1))
    return most


def _most(draws: int | None, until: Until | None) -> int:
    if until is not None and not isinstance(until, Until):
        raise ValueError(f"until: expected Until(ess=..., rhat=...), got {type(until).__name__}")
    return whole("draws", (300 if until is None else 10_000) if draws is None else draws, upto=MANY)
