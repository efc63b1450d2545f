"""Posterior of a curator's model: draws, predictions, diagnosis and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.files import holding, read_tree, write_netcdf
from mpmtl_prob._util.html import card
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.matching import match_positions
from mpmtl_prob.data.prediction import DrawnNumbers, Prediction, linear, normal_errors, single_holds
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.subspace import Subspace, subspace
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, Guarantee
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.diagnostics import Diagnosis, Remedies, diagnose
from mpmtl_prob.sampling.stored import packed, unpacked

if TYPE_CHECKING:
    import xarray as xr

_PREDICTIVE_DRAWS = 400
UNFOUNDED = "The file states a guarantee, and holds no release that it could follow from."
#: Advice of a diagnosis of :func:`mpmtl_prob.inference.fit`.
REMEDIES = Remedies(
    "Draw more with extend(), or warm up longer.",
    lambda more, draws: f"extend({more}) should do.",
    "Sample in local coordinates (precondition=True), or take smaller steps with a NUTS kernel of larger target_accept_prob.",
    "precondition=True.",
)


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """Draws from the posterior of the weights W (d x m) and the model's other sites. It is immutable.

    Attributes:
        name: name of the model and its kernel, for tables.
        tasks: the rows that it conditions on.
        draws: by site, (chain, draw, ...).
        statistics: of the sampler, (chain, draw).
        guarantee: protection of one task's model from the owners of the others.
        release: the release that the model observed or the sampler made, if any.
        seconds: wall-clock time of the sampling.
        exact: whether the sampler targets the posterior itself, or an approximation.
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

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_extend": None}  # chains are compiled programs, which cannot be pickled

    @cached_property
    def W(self) -> FloatArray:
        """Posterior mean of the weights, (d, m)."""
        W = self.draws["W"].mean(axis=(0, 1), dtype=np.float64)
        W.setflags(write=False)
        return W

    def extend(self, draws: int, *, progress_bar: bool = True) -> Posterior:
        """Return the posterior with more draws per chain, from where the chains stopped, as a longer run would return it.

        Raises:
            ValueError: a posterior that was loaded from a file, or whose budget is spent.
        """
        if self._extend is None:
            raise ValueError(
                "extend: this posterior holds no chains to go on from; fit with checkpoint=... to continue later"
            )
        return self._extend(self, draws, progress_bar)

    def to_arviz(self, *, pointwise: bool = True) -> xr.DataTree:
        """Return a DataTree of draws and data.

        Its groups are ``posterior``, ``sample_stats``, ``log_likelihood``, ``posterior_predictive``, ``observed_data``,
        ``constant_data`` and ``release``. ``W`` has dims (chain, draw, feature, task). Rows of all tasks follow one another
        along ``observation``, and ``constant_data["task_of"]`` has their tasks. The tree has rows and models of all tasks,
        and is for the curator only.

        Args:
            pointwise: include the two groups with a number per draw and row.
        """
        import arviz_base as az  # imported here because it takes nearly a second, with xarray and pandas
        import xarray as xr

        rows = _Rows.of(self.tasks)
        groups: dict[str, Any] = {"posterior": self.draws, "sample_stats": self.statistics}
        if pointwise and "sigma" in self.draws:
            groups |= rows.pointwise(self.draws)
        groups |= {"observed_data": {"y": rows.y}, "constant_data": {"X": rows.X, "task_of": rows.task}}
        if rows.subject is not None:
            groups["constant_data"]["subject"] = rows.subject
        of_matrix = ["feature", "task"]
        tree = az.from_dict(
            groups,
            dims=dict.fromkeys(("W", "P", "Q"), of_matrix)
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
        """Return the posterior predictive distribution of every row, of some of the fit's tasks, which are matched by name.

        The mean is that of all draws. Intervals come from at most 400 of them, with random errors.

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
        """Return the posterior of the leading subspace of W W'; arguments as :func:`mpmtl_prob.inference.subspace`."""
        W = np.asarray(self.draws["W"], dtype=np.float64)
        return subspace(W @ np.swapaxes(W, -1, -2), rank, features=self.tasks.features, reference=reference)

    def diagnose(self) -> Diagnosis:
        """Return r-hat and effective sample sizes of W, its spectrum and the scales, and what they mean, in words.

        They do not refer to P and Q, which the data do not identify.
        """
        W = np.asarray(self.draws["W"], dtype=np.float64)
        singular = np.linalg.svd(W, compute_uv=False)
        scales = {k: v for k, v in self.draws.items() if v.ndim == 2 and np.ptp(v) > 0}
        functionals = scales | {"the spectrum of W": np.log(singular), "W": W}
        return diagnose(functionals, self.statistics, remedies=REMEDIES, exact=self.exact)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything except the chains' states to a NetCDF file, from which :meth:`load` makes an equal posterior.

        The file has rows and models of all tasks, so that only its owner may read it (mode 0600). Draws are stored in single
        precision, around their medians (:mod:`mpmtl_prob.sampling.stored`).
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
        """Read a posterior that :meth:`save` wrote. Raises ValueError for a file without a posterior."""
        with holding("posterior", path):
            tree = read_tree(path)
            meta = json.loads(tree.attrs["posterior"])
            stated = Guarantee.from_dict(meta["guarantee"])
            sets = {name: unpacked(group.to_dataset()) for name, group in tree.children.items()}
            draws = {str(k): v.values for k, v in sets["posterior"].data_vars.items()}
            statistics = {str(k): v.values for k, v in sets["sample_stats"].data_vars.items()}
            constants = sets["constant_data"]
            X = constants["X"].values
            y = sets["observed_data"]["y"].values
            task = constants["task_of"].values
            subject = constants["subject"].values if "subject" in constants else None
            release = Release.from_xarray(sets["release"]) if meta["released"] else None
        places = _rows_of_names(task, list(map(label_text, meta["tasks"])))
        tasks = TaskData.from_lists(
            [X[rows] for rows in places],
            [y[rows] for rows in places],
            tasks=meta["tasks"],
            features=meta["features"],
            subject=None if subject is None else [subject[rows] for rows in places],
        )
        # Anybody can write a file, so that a stated guarantee is not believed. That of a release is computed from the
        # release, and no file can show that nothing was shared.
        if stated.proved is not None:
            stated = Guarantee(stated.claimed, None, UNFOUNDED) if release is None else release.guarantee
        return cls(
            name=meta["name"],
            tasks=tasks,
            draws=draws,
            statistics=statistics,
            guarantee=stated,
            release=release,
            seconds=meta["seconds"],
            exact=meta["exact"],
        )

    def __repr__(self) -> str:  # without draws, which are private models
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
    """Return the places of every task's rows, given the name of every row's task."""
    present, code = np.unique(task, return_inverse=True)
    rows = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code, minlength=len(present)))[:-1])
    by_name = dict(zip(present.tolist(), rows, strict=True))
    return [by_name.get(name, np.zeros(0, dtype=np.int64)) for name in names]


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """Rows of all tasks, one after another."""

    X: FloatArray
    y: FloatArray
    index: NDArray[np.int64]  # number of every row's task
    task: NDArray[np.str_]  # name of every row's task
    subject: NDArray[np.int64] | None  # subject of every row, where tasks share subjects

    @classmethod
    def of(cls, tasks: TaskData) -> _Rows:
        names = np.array(list(map(label_text, tasks.tasks)))
        return cls(tasks.rows, tasks.targets, tasks.task_of_rows, names[tasks.task_of_rows], tasks.subjects)

    def pointwise(self, draws: Draws) -> dict[str, dict[str, NDArray[np.floating[Any]]]]:
        """Return log p(y | draw) and a draw of y, for every row and draw, (chain, draw, observation).

        They are in single precision, except draws of a y that would lose a thousandth of sigma in it, or that is too large or
        too small for it.
        """
        W = np.asarray(draws["W"], dtype=np.float64)
        sigma = np.asarray(draws["sigma"], dtype=np.float64)[..., None]
        ordinary = 1e-30 < np.abs(self.y).max() < 1e30
        residual = np.empty((*W.shape[:2], len(self.y)), dtype=np.float32 if ordinary else np.float64)  # y - X w
        for i in range(W.shape[-1]):
            rows = self.index == i
            residual[..., rows] = self.y[rows] - W[..., i] @ self.X[rows].T
        log_density = -0.5 * (residual / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
        noise = np.random.default_rng(0).standard_normal(residual.shape, dtype=np.float32)
        kind = np.float32 if single_holds(self.y, sigma.min()) else np.float64
        predicted = self.y + (sigma * noise - residual)
        return {
            "log_likelihood": {"y": log_density.astype(np.float32)},
            "posterior_predictive": {"y": predicted.astype(kind)},
        }
