"""The one door out: the only code that turns models into something that may be published.

A curator holds one vector per task. :func:`release` lets out their perturbed second moment, Sigma = W W' + E, and nothing
else; :func:`perturb` is the door itself, through which the iterative algorithms send all their rounds.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from mpmtl_prob import conjugate
from mpmtl_prob._check import in_range, one_of, positive
from mpmtl_prob.privacy.accounting import ADJACENCIES
from mpmtl_prob.privacy.calibration import calibrate
from mpmtl_prob.privacy.guarantee import Bound, Guarantee, of_release
from mpmtl_prob.privacy.mechanisms import Wishart, paper_wishart
from mpmtl_prob.tasks import FloatArray, TaskData

MESSAGES = ("direction", "clip")
SCALINGS = ("pareto", "none")


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """What left the room: the perturbed second moments of T rounds, and the law of their noise. Public.

    Attributes:
        sigma: Sigma^(1:T), (T, d, d), read-only.
        mechanisms: the noise law of each round; its ``clip`` is K.
        num_tasks: m.
        features: feature names, d of them.
        guarantee: claimed and proved.
        message: "direction" (every column of W has unit length or is zero) or "clip" (length at most K).
        scaling: the coordinates of the messages: "pareto" (every owner scaled its features by its own rows) or "none".
        library_version: of the code that made it.

    Raises:
        ValueError: Sigma that is not finite, symmetric and positive definite, or shapes that disagree.
    """

    sigma: FloatArray
    mechanisms: tuple[Wishart, ...]
    num_tasks: int
    features: tuple[Hashable, ...]
    guarantee: Guarantee
    message: str
    scaling: str
    library_version: str

    def __post_init__(self) -> None:
        d = len(self.features)
        sigma = np.array(self.sigma, dtype=np.float64)
        if sigma.shape != (len(self.mechanisms), d, d):
            raise ValueError(f"sigma: expected shape {(len(self.mechanisms), d, d)} (round, feature, feature), "
                             f"got {sigma.shape}")  # fmt: skip
        if not np.all(np.isfinite(sigma)):
            raise ValueError("sigma: expected finite numbers")
        if not np.allclose(sigma, np.swapaxes(sigma, 1, 2), rtol=1e-10, atol=0):
            raise ValueError("sigma: expected symmetric matrices")
        if (smallest := np.linalg.eigvalsh(sigma)[:, 0].min()) <= 0:
            raise ValueError(f"sigma: expected positive definite matrices, got an eigenvalue {smallest:.3g}")
        if any(mechanism.num_features != d for mechanism in self.mechanisms):
            raise ValueError(f"mechanisms: expected noise of dimension {d}, the number of features")
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.mechanisms)

    @property
    def num_features(self) -> int:
        """d."""
        return len(self.features)

    def to_xarray(self) -> xr.Dataset:
        """The release as a data set with dims (round, feature, feature_other); all else in the attribute ``release``."""
        meta = {
            "mechanisms": [asdict(mechanism) for mechanism in self.mechanisms],
            "num_tasks": self.num_tasks,
            "features": list(self.features),
            "guarantee": asdict(self.guarantee),
            "message": self.message,
            "scaling": self.scaling,
            "library_version": self.library_version,
        }
        names = [str(feature) for feature in self.features]
        return xr.Dataset(
            {"sigma": (("round", "feature", "feature_other"), self.sigma)},
            coords={"round": np.arange(1, self.rounds + 1), "feature": names, "feature_other": names},
            attrs={"release": json.dumps(meta)},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the release to a NetCDF file."""
        self.to_xarray().to_netcdf(path, engine="h5netcdf")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read a release that :meth:`save` wrote. Raises ValueError for a file that holds none."""
        with xr.open_dataset(path, engine="h5netcdf") as data:
            if "release" not in data.attrs or "sigma" not in data:
                raise ValueError(f"path: {os.fspath(path)!r} holds no release of mpmtl_prob")
            meta, sigma = json.loads(data.attrs["release"]), data["sigma"].values
        bounds = {
            key: Bound(**meta["guarantee"][key]) if meta["guarantee"][key] else None for key in ("claimed", "proved")
        }
        return cls(
            sigma=sigma,
            mechanisms=tuple(Wishart(**mechanism) for mechanism in meta["mechanisms"]),
            num_tasks=meta["num_tasks"],
            features=tuple(meta["features"]),
            guarantee=Guarantee(reason=meta["guarantee"]["reason"], **bounds),
            message=meta["message"],
            scaling=meta["scaling"],
            library_version=meta["library_version"],
        )

    def __repr__(self) -> str:
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        return (
            f"Release({self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks, {rounds})\n"
            f"  {self.guarantee}"
        )


def default_delta(num_tasks: int) -> float:
    """1 / (m log m), the papers' choice. Raises ValueError for fewer than two tasks."""
    if num_tasks < 2:
        raise ValueError(f"delta: the default 1 / (m log m) needs at least two tasks, got {num_tasks}; give delta")
    return 1 / (num_tasks * np.log(num_tasks))


def release(
    source: TaskData | ArrayLike,
    epsilon: float,
    delta: float | None = None,
    *,
    message: str = "direction",
    clip: float | None = None,
    mechanism: str | Wishart = "calibrated",
    adjacency: str = "replace",
    scaling: str = "pareto",
    unsafe_seed: int | None = None,
) -> Release:
    """Let out the tasks' perturbed second moment, once, and spend the whole budget on it.

    Args:
        source: TaskData, whose messages are every task's own ridge estimate (its penalty averaged over the task's own
            evidence, so that no hyper-parameter is chosen on other tasks' rows); or the messages themselves, d x m.
        epsilon: > 0.
        delta: in (0, 1); default 1 / (m log m).
        message: "direction" scales every message to unit length, so that K = 1 is public and nothing about norms is
            spent or leaked; "clip" shortens longer messages to ``clip``.
        clip: K, only with message="clip". It must not be read off the messages: that would leak their norms.
        mechanism: "calibrated" (the least Wishart noise that is (epsilon, delta)-private), "paper" (the papers' noise,
            whose guarantee is weaker than claimed), or a :class:`Wishart` with degrees of freedom of your choice.
        adjacency: what a task's data are compared with: "replace" (any other task) or "zero_out" (no task).
        scaling: with TaskData, "pareto" lets every owner scale its features by its own rows, which makes tasks alike;
            "none" leaves them. Messages that you bring are taken as they are.
        unsafe_seed: draws the noise from this seed, for demonstrations: the release then guarantees nothing.

    Returns:
        A :class:`Release` of one round.

    Raises:
        ValueError: an argument outside its range, or messages that are not finite.

    Source: TPAMI 2022, Algorithm 1, steps 3 to 5, with T = 1.
    """
    one_of("message", message, MESSAGES)
    one_of("adjacency", adjacency, ADJACENCIES)
    one_of("scaling", scaling, SCALINGS)
    positive("epsilon", epsilon)
    W, features, scaling = _messages(source, scaling)
    d, m = W.shape
    delta = default_delta(m) if delta is None else in_range("delta", delta, 0, 1)
    if message == "clip":
        if clip is None or isinstance(clip, str):
            raise ValueError(
                "clip: expected a number K chosen without looking at the messages, with message='clip'; "
                f"got {clip!r}. A K read off the tasks' norms would leak them."
            )
        K = positive("clip", clip)
        W = clipped(W, K)
    else:
        if clip is not None:
            raise ValueError("clip: directions have unit length; give clip only with message='clip'")
        K = 1.0
        W = unit_columns(W)
    law, claimed = _mechanism(mechanism, epsilon, delta, d, K, adjacency)
    A = W @ W.T
    published, _ = perturb(
        lambda noise: (A + noise, None),
        (law,),
        epsilon=epsilon,
        adjacency=adjacency,
        claimed=claimed,
        num_tasks=m,
        features=features,
        message=message,
        scaling=scaling,
        unsafe_seed=unsafe_seed,
    )
    return published


def perturb[Private](
    run: Callable[[FloatArray], tuple[ArrayLike, Private]],
    mechanisms: Sequence[Wishart],
    *,
    epsilon: float,
    adjacency: str,
    claimed: Bound | None,
    num_tasks: int,
    features: Sequence[Hashable],
    message: str,
    scaling: str,
    unsafe_seed: int | None,
) -> tuple[Release, Private]:
    """The door: draw the noise of T rounds, let ``run`` add it to its second moments, publish the sums.

    Args:
        run: maps the noise (T, d, d) to Sigma^(1:T) = A^(t) + E^(t), (T, d, d), and whatever stays in the room. It must
            clip its messages to the mechanisms' K, and must not keep the noise.
        mechanisms: the noise law of each round.
        epsilon: at which the guarantee is stated.
        adjacency: "replace" or "zero_out".
        claimed: the papers' claim, if any.
        num_tasks: m.
        features: names.
        message: how messages were bounded.
        scaling: in which coordinates they are.
        unsafe_seed: as in :func:`release`.

    Returns:
        The release, and what ``run`` keeps.
    """
    guarantee = of_release(
        mechanisms, epsilon=epsilon, adjacency=adjacency, claimed=claimed, seeded=unsafe_seed is not None
    )
    # The operating system's entropy: nobody, the curator included, can draw the same noise again.
    rng = np.random.default_rng(secrets.randbits(256) if unsafe_seed is None else unsafe_seed)
    zero = np.zeros((len(features), len(features)))
    noise = np.stack([mechanism.sample(rng, zero) for mechanism in mechanisms])
    sigma, private = run(noise)
    published = Release(
        sigma=np.asarray(sigma, dtype=np.float64),
        mechanisms=tuple(mechanisms),
        num_tasks=num_tasks,
        features=tuple(features),
        guarantee=guarantee,
        message=message,
        scaling=scaling,
        library_version=_library_version(),
    )
    return published, private


def unit_columns(W: FloatArray) -> FloatArray:
    """Columns of W scaled to Euclidean length 1; a zero column stays zero."""
    largest = np.abs(W).max(axis=0)  # first, so that squaring neither overflows nor underflows
    W = W / np.where(largest > 0, largest, 1.0)
    norm = np.linalg.norm(W, axis=0)
    return W / np.where(norm > 0, norm, 1.0)


def clipped(W: FloatArray, clip: float) -> FloatArray:
    """Columns of W shortened to Euclidean length at most clip (Algorithm 1, step 3)."""
    return W / np.maximum(1.0, np.linalg.norm(W, axis=0) / clip)


def _messages(source: TaskData | ArrayLike, scaling: str) -> tuple[FloatArray, tuple[Hashable, ...], str]:
    if isinstance(source, TaskData):
        scale = conjugate.pareto_scale(source.gram) if scaling == "pareto" else None
        return conjugate.task_posteriors(source.gram, scale=scale).scaled_mean, source.features, scaling
    W = np.asarray(source, dtype=np.float64)
    if W.ndim != 2 or W.size == 0:
        raise ValueError(f"source: expected TaskData or one message per task as a d x m matrix, got shape {W.shape}")
    if not np.all(np.isfinite(W)):  # the values are private: count them, do not show them
        raise ValueError(f"source: expected finite messages, got {int(np.sum(~np.isfinite(W)))} entries that are not")
    return W, tuple(range(W.shape[0])), "none"


def _mechanism(
    mechanism: str | Wishart, epsilon: float, delta: float, d: int, clip: float, adjacency: str
) -> tuple[Wishart, Bound | None]:
    if isinstance(mechanism, Wishart):
        if mechanism.num_features != d or mechanism.clip != clip:
            raise ValueError(f"mechanism: expected num_features = {d} and clip = {clip}, got {mechanism}")
        return mechanism, None
    if one_of("mechanism", mechanism, ("calibrated", "paper")) == "paper":
        return paper_wishart(d, epsilon, clip), Bound(epsilon, 0.0, adjacency)
    return calibrate(epsilon, delta, d, clip=clip, adjacency=adjacency), None


def _library_version() -> str:
    try:
        return version("mpmtl-prob")
    except PackageNotFoundError:  # imported from a source tree that is not installed
        return "unknown"
