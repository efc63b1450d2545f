"""Base class of owners' posteriors, whatever the messages were: a column per task, a tree of draws, and files."""

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

#: What the file of a public posterior says of it, and where that stands in the file of owners' posteriors.
_OF_SHARED = {"seconds": "shared_seconds"} | {name: name for name in ("structure", "prior", "sampler", "weights")}
_OF_OWNERS = ("seconds", "likelihood")


@dataclass(frozen=True, eq=False, repr=False)
class OwnerPosterior[P: PublicPosterior[Any]]:
    """The posterior of every task. Column i of W belongs to the owner of task i.

    Attributes:
        shared: the public posterior that the owners used.
        W: posterior mean, (d, m).
        seconds: wall-clock time, that of the public posterior included.
        likelihood: of the targets.
        tasks: names of W's columns; as strings where they were loaded.
        features: names of W's rows, likewise.
    """

    shared: P
    W: FloatArray
    seconds: float
    _tree: xr.DataTree
    likelihood: Likelihood
    tasks: tuple[Hashable, ...]
    features: tuple[Hashable, ...]
    _rows: TaskData | None = None  # of the fit, in memory alone: no file and no pickle has them

    seat = "owner"
    #: What a file of it is called in errors; groups of its own that are packed; and what a notebook calls rows of W.
    _held: ClassVar[str]
    _packed: ClassVar[tuple[str, ...]] = ("posterior",)
    _rows_are: ClassVar[str]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rows": None}

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release, which is all that the owners learn of each other."""
        return self.shared.guarantee

    def subspace(self, rank: int, reference: ArrayLike | None = None) -> Subspace:
        """The posterior of what tasks share, from the public posterior: that of its ``subspace``."""
        return self.shared.subspace(rank, reference)

    def _with_rows(self, tasks: TaskData | None, pointwise: bool) -> xr.DataTree:
        """A copy of the tree, with what it says of every row of these tasks, or else of those of the fit."""
        import xarray as xr

        tree, rows = self._tree.copy(deep=True), self._rows if tasks is None else tasks
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
        """Rows of tasks of the fit, found by name, and all draws of theirs, (S, ..., m), that targets are drawn by."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a NetCDF file, of which :meth:`load` makes equal posteriors.

        Means are kept as they are, draws in single precision, round their medians (:mod:`mpmtl_prob.sampling.stored`).

        It holds what owners computed from their rows, and is for its owner alone (mode 0600).
        """
        tree, public = self._tree.copy(), self.shared.as_stored()
        tree["constant_data"] = tree["constant_data"].to_dataset().assign(mean=(("feature", "task"), self.W))
        own = {group: tree[group].to_dataset() for group in self._packed}
        for group, whole in own.items():
            tree[group].dataset = whole.drop_vars(list(whole.data_vars))
        tree["shared"].dataset = public["posterior"].to_dataset()
        for group in public.children.keys() - {"posterior", "release"}:
            tree[f"shared/{group}"] = public[group]
        tree.attrs |= {"seconds": self.seconds, "likelihood": self.likelihood.name}
        tree.attrs |= {_OF_SHARED[name]: public.attrs[name] for name in _OF_SHARED.keys() & public.attrs.keys()}
        parts = ((group, *part) for group, whole in own.items() for part in packed_parts(whole))
        write_netcdf(tree, path, private=True, parts=parts)

    @classmethod
    def _load(
        cls,
        path: str | os.PathLike[str],
        shared_of: Callable[[xr.DataTree], P],
        likelihood: Likelihood | None = None,
    ) -> Self:
        """The posteriors of a file, whose public one ``shared_of`` makes of a tree."""
        import xarray as xr  # with pandas, nearly a second to import

        with holding(cls._held, path), opened_tree(path) as tree:
            draws = unpacked(tree["posterior"].to_dataset())  # a few at a time: they lie in the file in half their size
            tree["posterior"].dataset = draws.drop_vars(list(draws.data_vars))
            tree.load()
            attributes, constants = dict(tree.attrs), tree["constant_data"].to_dataset()
            public = xr.DataTree.from_dict(
                {name: group.to_dataset() for name, group in tree["shared"].children.items()}
                | {"posterior": tree["shared"].to_dataset(), "release": tree["release"].to_dataset()}
            )
            public.attrs |= {name: attributes.pop(there) for name, there in _OF_SHARED.items() if there in attributes}
            seconds, name = (attributes.pop(each) for each in _OF_OWNERS)
            if likelihood is not None and likelihood.name != name:
                raise ValueError(f"likelihood: expected {name!r} as in the file, got {likelihood.name!r}")
            shared = shared_of(public)
            W = constants["mean"].values
            tasks, features = (tuple(tree["posterior"].coords[k].values.tolist()) for k in ("task", "feature"))
            groups = {k: group.to_dataset() for k, group in tree.children.items()}
            groups |= {"posterior": draws, "constant_data": constants.drop_vars("mean")}
            own = xr.DataTree.from_dict(groups | {"shared": shared.to_arviz()["posterior"].to_dataset()})
        own.attrs |= attributes
        W.setflags(write=False)
        return cls(shared, W, float(seconds), own, stored(name) if likelihood is None else likelihood, tasks, features)

    def _repr_html_(self) -> str:
        facts = {
            "tasks": len(self.tasks),
            self._rows_are: len(self.features),
            "likelihood": self.likelihood.name,
            "seat": "every owner has its own column",
        }
        return card(type(self).__name__, facts | self.guarantee.facts(), self.guarantee.reason)
