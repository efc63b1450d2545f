"""Results of inference on a curator's model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import holding, read_tree, write_netcdf
from mpmtl_prob._util.html import card
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.matching import match_positions
from mpmtl_prob.data.prediction import DrawnNumbers, Prediction, linear, normal_errors, single_holds
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.subspace import Subspace, subspace
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, Guarantee
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.chains import Draws
from mpmtl_prob.sampling.diagnostics import Diagnosis, Remedies, diagnose
from mpmtl_prob.sampling.stored import packed, unpacked

if TYPE_CHECKING:
    import xarray as xr

_PREDICTIVE_DRAWS = 400
UNFOUNDED = "The file states a guarantee, and holds no release that it could follow from."
#: What a diagnosis of :func:`mpmtl_prob.inference.fit` advises.
REMEDIES = Remedies(
    "Draw more with extend(), or warm up longer.",
    lambda more, draws: f"extend({more}) should do.",
    "Sample in local coordinates (precondition=True), or take smaller steps with a NUTS kernel of larger target_accept_prob.",
    "precondition=True.",
)
_X, _Y, _TASK = ("constant_data", "X"), ("observed_data", "y"), ("constant_data", "task_of")


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws from the posterior of the weights W (d x m) and what else the model holds, immutable.

    Attributes:
        name: of the model and its kernel, for tables.
        tasks: the rows that it conditions on.
        draws: by site, (chain, draw, ...).
        statistics: of the sampler, (chain, draw).
        guarantee: what protects one task's model from the owners of the others.
        release: what the model observed or the sampler let out, if anything.
        seconds: wall-clock time of the sampling.
        exact: whether the sampler targets the posterior itself, or a neighbour of it.
    """

    name: str
    tasks: TaskData
    draws: Draws
    statistics: Draws
    guarantee: Guarantee = NOT_PRIVATE
    release: Release | None = None
    seconds: float = 0.0
    exact: bool = True
    _extend: Callable[[Posterior, int, bool], Posterior] | None = None

    seat = "curator"

    def __post_init__(self) -> None:
        for arrays in (self.draws, self.statistics):
            for array in arrays.values():
                array.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:  # chains are compiled programs: as in a file, there are none
        return self.__dict__ | {"_extend": None}

    @cached_property
    def W(self) -> FloatArray:
        """Posterior mean of the weights, (d, m)."""
        W = self.draws["W"].mean(axis=(0, 1), dtype=np.float64)
        W.setflags(write=False)
        return W

    def extend(self, draws: int, *, progress_bar: bool = True) -> Posterior:
        """The posterior with that many more draws per chain, from where the chains stopped.

        The result is the one that a longer run would have given.

        Raises:
            ValueError: a posterior that was loaded from a file, or whose budget is spent.
        """
        if self._extend is None:
            raise ValueError(
                "extend: this posterior holds no chains to go on from; fit with checkpoint=... to continue later"
            )
        return self._extend(self, draws, progress_bar)

    def to_arviz(self, *, pointwise: bool = True) -> xr.DataTree:
        """A DataTree with groups ``posterior``, ``sample_stats``, ``log_likelihood``, ``posterior_predictive``,
        ``observed_data``, ``constant_data`` and ``release``.

        ``W`` has dims (chain, draw, feature, task). Rows of all tasks stand one after another along ``observation``, whose
        task is ``constant_data["task_of"]``. All of it is the curator's: rows and models of all tasks are in the tree.

        Args:
            pointwise: with the two groups that hold a number per draw and row.
        """
        import arviz_base as az  # with xarray and pandas, nearly a second to import
        import xarray as xr

        rows = _Rows.of(self.tasks)
        groups: dict[str, Any] = {"posterior": self.draws, "sample_stats": self.statistics}
        if pointwise and "sigma" in self.draws:
            groups |= rows.pointwise(self.draws)
        groups |= {"observed_data": {"y": rows.y}, "constant_data": {"X": rows.X, "task_of": rows.task}}
        if rows.subject is not None:
            groups["constant_data"]["subject"] = rows.subject
        square = ["feature", "task"]
        tree = az.from_dict(
            groups,
            dims=dict.fromkeys(("W", "P", "Q"), square)
            | {
                "y": ["observation"],
                "X": ["observation", "feature"],
                "task_of": ["observation"],
                "subject": ["observation"],
            },
            coords={
                "feature": list(map(label_text, self.tasks.features)),
                "task": list(map(label_text, self.tasks.tasks)),
            },
        )
        tree["release"] = xr.DataTree(xr.Dataset() if self.release is None else self.release.to_xarray())
        tree["release"].attrs["guarantee"] = str(self.guarantee)
        tree["release"].attrs["seat"] = self.seat
        tree.attrs["seat"] = self.seat
        tree.attrs["name"] = self.name
        return tree

    def predict(self, tasks: TaskData, seed: int = 0) -> Prediction:
        """Posterior predictive of every row of tasks: some of the fit's, with its features, in any order, found by name.

        The mean is that of all draws; intervals come from at most 400 of them, with the rows' noise.

        Raises:
            ValueError: data with other tasks or features, or a posterior without sigma.
        """
        feature, task = match_positions(tasks, self.tasks.tasks, self.tasks.features)
        if "sigma" not in self.draws:
            raise ValueError(f"predict: the model has no site sigma, the sd of a row; it has {', '.join(self.draws)}")
        W = self.draws["W"].reshape(-1, *self.W.shape)[:, feature][..., task]
        sigma = self.draws["sigma"].reshape(-1)
        pick = np.linspace(0, len(W) - 1, min(_PREDICTIVE_DRAWS, len(W))).astype(int)
        centre = self.W[feature][:, task]
        means = linear(centre, tasks)
        drawn = DrawnNumbers(tasks, means, W, centre, sigma, pick, seed, normal_errors)
        return Prediction(means=means, offsets=tasks.offsets, tasks=tasks.tasks, row_draws=drawn)

    def subspace(self, rank: int, reference: ArrayLike | None = None) -> Subspace:
        """The posterior of the leading subspace of W W'; arguments as :func:`mpmtl_prob.inference.subspace`."""
        W = np.asarray(self.draws["W"], dtype=np.float64)
        return subspace(W @ np.swapaxes(W, -1, -2), rank, features=self.tasks.features, reference=reference)

    def diagnose(self) -> Diagnosis:
        """r-hat and effective sample sizes of W, its spectrum and the scales, and what they mean, in words.

        Parts of W, as P and Q, are not judged: the data do not tell them apart.
        """
        W = np.asarray(self.draws["W"], dtype=np.float64)
        singular = np.linalg.svd(W, compute_uv=False)
        scales = {k: v for k, v in self.draws.items() if v.ndim == 2 and np.ptp(v) > 0}
        functionals = scales | {"the spectrum of W": np.log(singular), "W": W}
        return diagnose(functionals, self.statistics, remedies=REMEDIES, exact=self.exact)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the chains' own state to a NetCDF file, of which :meth:`load` makes an equal posterior.

        It holds everybody's rows and models, and is for its owner alone (mode 0600). Draws are kept in single precision,
        round their medians (:mod:`mpmtl_prob.sampling.stored`).
        """
        tree = self.to_arviz(pointwise=False)
        for group in ("posterior", "sample_stats", "constant_data"):
            tree[group].dataset = packed(tree[group].to_dataset())
        meta = {
            "name": self.name,
            "seconds": self.seconds,
            "exact": self.exact,
            "tasks": list(self.tasks.tasks),
            "features": list(self.tasks.features),
            "guarantee": self.guarantee.to_dict(),
            "released": self.release is not None,
        }
        tree.attrs["posterior"] = json.dumps(meta)
        write_netcdf(tree, path, private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Posterior:
        """Read a posterior that :meth:`save` wrote. Raises ValueError for a file that holds none."""
        with holding("posterior", path):
            tree = read_tree(path)
            meta = json.loads(tree.attrs["posterior"])
            stated = Guarantee.from_dict(meta["guarantee"])
            sets = {name: unpacked(group.to_dataset()) for name, group in tree.children.items()}
            groups = [{str(k): v.values for k, v in sets[g].data_vars.items()} for g in ("posterior", "sample_stats")]
            X, y, task = (sets[g][k].values for g, k in (_X, _Y, _TASK))
            subject = sets["constant_data"]["subject"].values if "subject" in sets["constant_data"] else None
            release = Release.from_xarray(sets["release"]) if meta["released"] else None
        names, features = meta["tasks"], meta["features"]
        which = _rows_of_names(task, list(map(label_text, names)))
        tasks = TaskData.from_lists(
            [X[w] for w in which],
            [y[w] for w in which],
            tasks=names,
            features=features,
            subject=None if subject is None else [subject[w] for w in which],
        )
        # anybody can write a file: a release is worked out anew, and that nothing was shared no file shows
        if stated.proved is not None:
            stated = Guarantee(stated.claimed, None, UNFOUNDED) if release is None else release.guarantee
        return cls(
            name=meta["name"],
            tasks=tasks,
            draws=groups[0],
            statistics=groups[1],
            guarantee=stated,
            release=release,
            seconds=meta["seconds"],
            exact=meta["exact"],
        )

    def __repr__(self) -> str:  # draws are models: not shown
        chains, draws = self.draws["W"].shape[:2]
        d, m = self.W.shape
        return (
            f"Posterior({self.name}; {m} tasks, {d} features, {chains} chains of {draws} draws, {self.seconds:.3g} s)\n"
            f"  {self.guarantee}"
        )

    def _repr_html_(self) -> str:
        chains, draws = self.draws["W"].shape[:2]
        facts = {
            "tasks": len(self.tasks.tasks),
            "features": len(self.tasks.features),
            "seat": "curator: it conditions on all tasks' rows",
            "sampling": f"{chains} chains of {draws} draws, {self.seconds:.3g} s",
        }
        return card(f"Posterior: {self.name}", facts | self.guarantee.facts(), self.guarantee.reason)


def _rows_of_names(task: NDArray[np.str_], names: Sequence[str]) -> list[NDArray[np.int64]]:
    """Return the places of every task's rows, given the task's name of every row."""
    found, code = np.unique(task, return_inverse=True)
    rows = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code, minlength=len(found)))[:-1])
    by_name = dict(zip(found.tolist(), rows, strict=True))
    return [by_name.get(name, np.zeros(0, dtype=np.int64)) for name in names]


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """All tasks' rows, one after another."""

    X: FloatArray
    y: FloatArray
    index: NDArray[np.int64]  # of the task
    task: NDArray[np.str_]  # its name
    subject: NDArray[np.int64] | None  # whom it is about, where tasks share subjects

    @classmethod
    def of(cls, tasks: TaskData) -> _Rows:
        names = np.array(list(map(label_text, tasks.tasks)))
        return cls(tasks.rows, tasks.targets, tasks.task_of_rows, names[tasks.task_of_rows], tasks.subjects)

    def pointwise(self, draws: Draws) -> dict[str, dict[str, NDArray[np.floating[Any]]]]:
        """log p(y | draw) and a draw of y, for every row and draw, (chain, draw, observation).

        In single precision, but for draws of a y that would lose a thousandth of sigma in it, or that it does not reach.
        """
        W, sigma = np.asarray(draws["W"], dtype=np.float64), np.asarray(draws["sigma"], dtype=np.float64)[..., None]
        reached = 1e-30 < np.abs(self.y).max() < 1e30
        away = np.empty((*W.shape[:2], len(self.y)), dtype=np.float32 if reached else np.float64)  # y - X w
        for i in range(W.shape[-1]):
            own = self.index == i
            away[..., own] = self.y[own] - W[..., i] @ self.X[own].T
        log_density = -0.5 * (away / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
        noise = np.random.default_rng(0).standard_normal(away.shape, dtype=np.float32)
        coarse = not single_holds(self.y, sigma.min())
        again = sigma * noise - away
        return {
            "log_likelihood": {"y": log_density.astype(np.float32)},
            "posterior_predictive": {"y": (self.y + again).astype(np.float64 if coarse else np.float32)},
        }
