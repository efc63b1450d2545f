"""The owner seats: every task's own posterior, given its own rows and what is public."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import arviz as az
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob import conjugate
from mpmtl_prob._check import one_of, whole
from mpmtl_prob._files import write_netcdf
from mpmtl_prob._html import card
from mpmtl_prob.inference import owner_methods as methods
from mpmtl_prob.inference.diagnostics import JOINT, Diagnosis, diagnose, weights_advice
from mpmtl_prob.inference.shared import SharedPosterior
from mpmtl_prob.inference.subspace import Subspace
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.release import Release
from mpmtl_prob.tasks import FloatArray, Prediction, TaskData, check_weights

METHODS = ("plug_in", "mixture", "joint")
_PREDICTIVE_DRAWS = 400
_OF_SHARED = ("sample_stats", "observed_data")  # groups of the public posterior that only a file needs


@dataclass(frozen=True, eq=False, repr=False)
class OwnerPosteriors:
    """The posterior of every task's weights. Column i of W belongs to the owner of task i.

    Attributes:
        shared: the public posterior that the owners used.
        W: posterior mean of the weights, exact, (d, m).
        seconds: wall-clock time, that of the public posterior included.
    """

    shared: SharedPosterior
    W: FloatArray
    seconds: float
    _tree: xr.DataTree

    seat = "owner"
    name = "noise-aware posterior"

    @property
    def guarantee(self) -> Guarantee:
        """That of the release, which is all that the owners learn of each other."""
        return self.shared.guarantee

    def to_arviz(self) -> xr.DataTree:
        """A DataTree with groups ``posterior``, ``observed_data``, ``constant_data``, ``shared`` and ``release``.

        ``posterior`` holds ``W`` (chain, draw, feature, task), ``sigma`` and ``snr`` (chain, draw, task); the draws are
        independent. ``shared`` is the public posterior. The targets are the owners' own: keep the tree where they may be.
        """
        return self._tree.copy()

    def predict(self, tasks: TaskData, seed: int = 0) -> Prediction:
        """Posterior predictive of every row of tasks, which must be those of the fit.

        The mean is exact; intervals come from 400 draws of weights and noise.

        Raises:
            ValueError: data with other tasks or features.
        """
        check_weights(self.W, tasks)
        posterior = self._tree.children["posterior"].dataset
        W = posterior["W"].values.reshape(-1, *self.W.shape)
        sigma = posterior["sigma"].values.reshape(-1, self.W.shape[1])
        pick = np.linspace(0, len(W) - 1, min(_PREDICTIVE_DRAWS, len(W))).astype(int)
        rng = np.random.default_rng(seed)
        draws = np.empty((len(pick), *tasks.y.shape), dtype=np.float32)
        for row, s in enumerate(pick):  # one draw at a time: memory, not speed
            mean = (tasks.X @ W[s].T[..., None])[..., 0]
            draws[row] = mean + sigma[s][:, None] * rng.standard_normal(mean.shape)
        return Prediction((tasks.X @ self.W.T[..., None])[..., 0], tasks.mask, tasks.tasks, draws)

    def subspace(self, rank: int, reference: ArrayLike | None = None) -> Subspace:
        """The posterior of what tasks share, from the public posterior: :meth:`SharedPosterior.subspace`."""
        return self.shared.subspace(rank, reference)

    def diagnose(self) -> Diagnosis:
        """How far the owners' posteriors can be trusted, in words: the draws that they rest on, and their weights' k-hat.

        With "plug_in" and "mixture" the owners' own draws are independent, and what is judged are those of the public
        posterior; with "joint" those of every owner's chains.
        """
        method, constants = self._tree.attrs["method"], self._tree["constant_data"].to_dataset()
        if method == "joint":
            kept = {str(k): v.values for k, v in self._tree["posterior"].to_dataset().items()}
            logs = {"sigma": np.log(kept["sigma"]), "snr": np.log(kept["snr"]), "W": kept["W"]}
            return diagnose(logs, {"diverging": constants["divergences"].values}, remedies=JOINT)
        public = self.shared.diagnose()
        if "khat" not in constants:
            return public
        return replace(public, advice=(*public.advice, *weights_advice(constants["khat"].values, methods.MIXED)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a NetCDF file, of which :meth:`load` makes equal posteriors. It holds the owners' models."""
        tree, public = self.to_arviz(), self.shared.to_arviz()
        tree["constant_data"] = tree["constant_data"].to_dataset().assign(mean=(("feature", "task"), self.W))
        for group in _OF_SHARED:
            tree[f"shared/{group}"] = public[group]
        tree.attrs |= {"seconds": self.seconds, "shared_seconds": self.shared.seconds, "structure": self.shared.structure}
        write_netcdf(tree, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OwnerPosteriors:
        """Read posteriors that :meth:`save` wrote. Raises ValueError for a file that holds none."""
        try:
            with xr.open_datatree(path, engine="h5netcdf") as found:
                tree = found.load()
            attributes, constants = tree.attrs, tree["constant_data"].to_dataset()
            groups = {"posterior": tree["shared"].to_dataset(), "release": tree["release"].to_dataset()}
            public = xr.DataTree.from_dict(groups | {k: tree[f"shared/{k}"].to_dataset() for k in _OF_SHARED})
            public.attrs |= {"seat": SharedPosterior.seat, "structure": attributes.pop("structure")}
            public.attrs["seconds"] = attributes.pop("shared_seconds")
            seconds, W = float(attributes.pop("seconds")), constants["mean"].values
        except FileNotFoundError:
            raise
        except (OSError, KeyError, TypeError) as error:
            raise ValueError(f"path: {os.fspath(path)!r} holds no owners' posteriors of mpmtl_prob") from error
        tree["constant_data"], tree["shared"] = constants.drop_vars("mean"), groups["posterior"]
        W.setflags(write=False)
        return cls(SharedPosterior.from_tree(public), W, seconds, tree)

    def __repr__(self) -> str:
        d, m = self.W.shape
        return f"OwnerPosteriors({m} tasks, {d} features, {self.seconds:.3g} s)\n  {self.guarantee}"

    def _repr_html_(self) -> str:
        d, m = self.W.shape
        facts = {"tasks": m, "features": d, "seat": "every owner has its own column"} | self.guarantee.facts()
        return card("OwnerPosteriors", facts, self.guarantee.reason)


def task_posteriors(
    tasks: TaskData,
    shared: SharedPosterior,
    *,
    method: str = "plug_in",
    sharpness: float | None = None,
    exclude_own: bool = False,
    chains: int = 4,
    draws: int = 250,
    seed: int = 0,
    progress_bar: bool = False,
) -> OwnerPosteriors:
    """Every owner's posterior, all tasks at once: a simulation of what each computes in its own room.

    Args:
        tasks: the owners' rows. Task i's posterior depends on its own rows and on ``shared`` alone.
        shared: the public posterior.
        method: "plug_in" replaces Omega by the posterior mean of its shape; the Gaussian model is then conjugate up to the
            local signal-to-noise ratio and the sharpness, which are integrated on grids. "mixture" weights 64 draws of it by each task's own
            evidence, Pareto-smoothed; its k-hat is in the tree. "joint" runs NUTS on the owner's model and the public one
            together, one owner at a time: exact, slow, for structure "full", one round and sharpness 1.
        sharpness: p of :meth:`SharedPosterior.shape`; 1 takes the messages for the weights themselves. Default: unknown, with
            a log-normal prior round 1.5, because estimates' errors make their second moment flatter than that of the
            weights; every owner averages over it by its own evidence.
        exclude_own: condition on the release without the owner's own message, Sigma - w~_i w~_i', so that its rows count
            once; with "plug_in", one public posterior per owner, for releases of default messages.
        chains: how the independent draws are arranged.
        draws: per chain.
        seed: of the draws.
        progress_bar: show one, where owners are sampled one at a time.

    Raises:
        ValueError: a method that the release or another argument rules out, tasks with other features than the release, or
            an argument outside its range.

    Model: :func:`mpmtl_prob.models.task.gaussian`.
    """
    one_of("method", method, METHODS)
    whole("chains", chains)
    whole("draws", draws)
    if tasks.num_features != shared.release.num_features:
        raise ValueError(
            f"tasks: expected {shared.release.num_features} features as in the release, got {tasks.num_features}"
        )
    begin = time.perf_counter()
    scale = conjugate.pareto_scale(tasks.gram) if shared.release.scaling == "pareto" else None
    total = chains * draws
    if exclude_own:
        _check_exclusion(tasks, shared, method)
        found = methods.excluding(tasks, shared, scale, sharpness, total, seed, progress_bar)
    elif method == "mixture":
        found = methods.mixture(tasks.gram, methods.drawn(shared, sharpness), scale, total, seed)
    elif method == "joint":
        if shared.structure != "full" or shared.release.rounds > 1 or (sharpness or 1.0) != 1.0:
            raise ValueError("method: 'joint' needs a posterior of structure 'full', of one round, and sharpness 1")
        found = methods.joint(tasks, shared.release, scale, chains, total, seed, progress_bar)
    else:
        found = methods.plug_in(tasks.gram, *methods.sharpened(shared, sharpness), scale, total, seed)
    kept = dict(found.draws)
    kept["snr"] = np.exp(kept.pop("log_snr"))
    by_chain = {k: v.reshape(chains, draws, *v.shape[1:]) for k, v in kept.items()}
    W = found.W
    W.setflags(write=False)
    seconds = shared.seconds + time.perf_counter() - begin
    return OwnerPosteriors(shared, W, seconds, _tree(tasks, shared, by_chain, found, method))


def _check_exclusion(tasks: TaskData, shared: SharedPosterior, method: str) -> None:
    if method != "plug_in":
        raise ValueError(f"exclude_own: expected method='plug_in' with it, got {method!r}")
    if shared.release.message != "direction" or tasks.num_tasks != shared.release.num_tasks:
        raise ValueError("exclude_own: expected a release of these tasks' own directions")


def _tree(
    tasks: TaskData, shared: SharedPosterior, draws: dict[str, NDArray[Any]], found: methods.Found, method: str
) -> xr.DataTree:
    public = shared.to_arviz()
    of_tasks = {"rows_per_task": tasks.mask.sum(axis=1), "khat": found.khat, "divergences": found.divergences}
    tree = az.from_dict(
        {
            "posterior": draws,
            "observed_data": {"y": np.where(tasks.mask, tasks.y, np.nan)},
            "constant_data": {k: v for k, v in of_tasks.items() if v is not None},
        },
        dims={
            "W": ["feature", "task"],
            "sigma": ["task"],
            "snr": ["task"],
            "y": ["task", "row"],
        }
        | dict.fromkeys(of_tasks, ["task"]),
        coords={"feature": [str(f) for f in tasks.features], "task": [str(t) for t in tasks.tasks]},
    )
    tree["shared"] = public.children["posterior"].copy()
    tree["release"] = public.children["release"].copy()
    tree.attrs |= {"seat": OwnerPosteriors.seat, "method": method}
    return tree
