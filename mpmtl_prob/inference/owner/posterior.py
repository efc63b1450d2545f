"""Base class of owners' posteriors for messages of all kinds: a column per task, a tree of draws, and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import holding, opened_tree, write_netcdf
from mpmtl_prob._util.html import card
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.likelihoods import Likelihood, stored
from mpmtl_prob.inference.owner.pointwise import pointwise_groups
from mpmtl_prob.inference.public.posterior import PublicPosterior
from mpmtl_prob.inference.subspace import Subspace
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.sampling.stored import packed_parts, unpacked

if TYPE_CHECKING:
    import xarray as xr

#: From attributes in the file of a public posterior to their names in the file of owners' posteriors.
_OF_SHARED = {"seconds": "shared_seconds"} | {name: name for name in ("structure", "prior", "sampler", "weights")}
_OF_OWNERS = ("seconds", "likelihood")


@dataclass(frozen=True, eq=False, repr=False)
class OwnerPosterior[P: PublicPosterior[Any]]:
    """Posterior of every task. Column i of W belongs to the owner of task i.

    Attributes:
        shared: the public posterior that the owners used.
        W: posterior mean, (d, m).
        seconds: wall-clock time, that of the public posterior included.
        likelihood: of the targets.
        tasks: names of W's columns; strings after loading from a file.
        features: names of W's rows; strings after loading from a file.
    """

    shared: P
    W: FloatArray
    seconds: float
    _tree: xr.DataTree
    likelihood: Likelihood
    tasks: tuple[Hashable, ...]
    features: tuple[Hashable, ...]
    _rows: TaskData | None = None  # rows of the fit, which no file and no pickle has

    seat = "owner"
    #: Name of its files' contents in errors.
    _contents: ClassVar[str]
    #: Groups of draws and targets that a file stores packed.
    _packed: ClassVar[tuple[str, ...]] = ("posterior",)
    #: Name of the rows of W in a notebook.
    _rows_are: ClassVar[str]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rows": None}

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release, which is all that owners learn about each other."""
        return self.shared.guarantee

    def subspace(self, rank: int, reference: ArrayLike | None = None) -> Subspace:
        """Return the posterior of the subspace that tasks share, which is that of the public posterior."""
        return self.shared.subspace(rank, reference)

    def _with_rows(self, tasks: TaskData | None, pointwise: bool) -> xr.DataTree:
        """Return a copy of the tree with a number per row of these tasks, by default of those of the fit."""
        import xarray as xr

        tree = self._tree.copy(deep=True)
        rows = self._rows if tasks is None else tasks
        if not pointwise or rows is None:
            return tree
        rows, draws = self._of_rows(rows)
        sizes = self._tree.children["posterior"].dataset.sizes
        groups = pointwise_groups(self.likelihood, rows, draws, (sizes["chain"], sizes["draw"]))
        task_of = ("observation", np.array(list(map(label_text, rows.tasks)))[rows.task_of_rows])
        for group, values in groups.items():
            dims = ("chain", "draw", "observation")[-values.ndim :]
            coords: dict[str, Any] = {name: np.arange(size) for name, size in zip(dims, values.shape, strict=True)}
            tree[group] = xr.DataTree(xr.Dataset({"y": (dims, values)}, coords | {"task_of": task_of}))
        return tree

    def _of_rows(self, tasks: TaskData) -> tuple[TaskData, dict[str, FloatArray]]:
        """Match tasks with those of the fit by name; return rows, and the draws by which targets are drawn, (S, ..., m)."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a NetCDF file, from which :meth:`load` makes equal posteriors.

        Means are stored in double precision, and draws in single precision around their medians
        (:mod:`mpmtl_prob.sampling.stored`). The file depends on owners' rows, so that only its owner may read it (mode 0600).
        """
        tree = self._tree.copy()
        public = self.shared.as_stored()
        tree["constant_data"] = tree["constant_data"].to_dataset().assign(mean=(("feature", "task"), self.W))
        to_pack = {group: tree[group].to_dataset() for group in self._packed}
        for group, contents in to_pack.items():
            tree[group].dataset = contents.drop_vars(list(contents.data_vars))
        tree["shared"].dataset = public["posterior"].to_dataset()
        for group in public.children:
            if group not in ("posterior", "release"):
                tree[f"shared/{group}"] = public[group]
        tree.attrs |= {"seconds": self.seconds, "likelihood": self.likelihood.name}
        tree.attrs |= {_OF_SHARED[name]: public.attrs[name] for name in _OF_SHARED.keys() & public.attrs.keys()}
        parts = ((group, *part) for group, contents in to_pack.items() for part in packed_parts(contents))
        write_netcdf(tree, path, private=True, parts=parts)

    @classmethod
    def _load(
        cls,
        path: str | os.PathLike[str],
        shared_of: Callable[[xr.DataTree], P],
        likelihood: Likelihood | None = None,
    ) -> Self:
        """Read posteriors from a file; ``shared_of`` makes the public posterior from its part of the tree."""
        import xarray as xr  # imported here because it takes nearly a second, with pandas

        with holding(cls._contents, path), opened_tree(path) as tree:
            # draws are read a few at a time before the rest, so that they are never in memory in both precisions
            draws = unpacked(tree["posterior"].to_dataset())
            tree["posterior"].dataset = draws.drop_vars(list(draws.data_vars))
            tree.load()
            attributes = dict(tree.attrs)
            constants = tree["constant_data"].to_dataset()
            public = xr.DataTree.from_dict(
                {name: group.to_dataset() for name, group in tree["shared"].children.items()}
                | {"posterior": tree["shared"].to_dataset(), "release": tree["release"].to_dataset()}
            )
            public.attrs |= {name: attributes.pop(there) for name, there in _OF_SHARED.items() if there in attributes}
            seconds, name = (attributes.pop(attribute) for attribute in _OF_OWNERS)
            if likelihood is not None and likelihood.name != name:
                raise ValueError(f"likelihood: expected {name!r} as in the file, got {likelihood.name!r}")
            shared = shared_of(public)
            W = constants["mean"].values
            tasks, features = (tuple(tree["posterior"].coords[k].values.tolist()) for k in ("task", "feature"))
            groups = {k: group.to_dataset() for k, group in tree.children.items()}
            groups |= {"posterior": draws, "constant_data": constants.drop_vars("mean")}
            full_tree = xr.DataTree.from_dict(groups | {"shared": shared.to_arviz()["posterior"].to_dataset()})
        full_tree.attrs |= attributes
        W.setflags(write=False)
        kind = stored(name) if likelihood is None else likelihood
        return cls(shared, W, float(seconds), full_tree, kind, tasks, features)

    def _repr_html_(self) -> str:
        facts = {
            "tasks": len(self.tasks),
            self._rows_are: len(self.features),
            "likelihood": self.likelihood.name,
            "seat": "every owner has its own column",
        }
        return card(type(self).__name__, facts | self.guarantee.facts(), self.guarantee.reason)
