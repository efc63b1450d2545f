"""The one door out: the only code that turns models into something that may be published.

A curator holds one vector per task. :func:`release` lets out their perturbed second moment, Sigma = W W' + E, and nothing
else; :func:`perturb` is the door itself, through which the iterative algorithms send all their rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from mpmtl_prob._check import in_range, one_of, positive
from mpmtl_prob._files import write_netcdf
from mpmtl_prob._html import card
from mpmtl_prob.privacy import lattice as grid
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.accounting.curves import MembershipOdds
from mpmtl_prob.privacy.guarantee import Bound, Guarantee, of_release
from mpmtl_prob.privacy.laws import exact
from mpmtl_prob.privacy.laws.closed_forms import ADJACENCIES
from mpmtl_prob.privacy.laws.mechanisms import Mechanism, Noise, PaperWishart
from mpmtl_prob.privacy.ledger import Ledger, check_ledger
from mpmtl_prob.releases import files
from mpmtl_prob.releases.messages import MESSAGES, SCALINGS, BoughtClip, bought, bounded, messages
from mpmtl_prob.releases.rounds import checked_answer, converse, how_many, owners
from mpmtl_prob.tasks import FloatArray, TaskData


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
        besides: what else was bought for this release and is in its guarantee, such as the clip norm.
        lattice: h, the grid of the messages; Sigma lies on that of its square. None where noise was drawn in doubles.

    Raises:
        ValueError: Sigma that is not finite and symmetric, or not positive definite where its noise is; shapes that
            disagree.
    """

    sigma: FloatArray
    mechanisms: tuple[Noise, ...]
    num_tasks: int
    features: tuple[Hashable, ...]
    guarantee: Guarantee
    message: str
    scaling: str
    library_version: str
    besides: tuple[Mechanism, ...] = ()
    lattice: float | None = None

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
        definite = np.array([mechanism.positive_definite for mechanism in self.mechanisms])
        if np.any(definite) and (smallest := np.linalg.eigvalsh(sigma[definite])[:, 0].min()) <= 0:
            raise ValueError(f"sigma: expected positive definite matrices, got an eigenvalue {smallest:.3g}")
        _check_dimension(self.mechanisms, d)
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    def membership_odds(self, prior: float = 0.5) -> MembershipOdds:
        """How far the strongest attacker's odds that a task is in the release can move; in words if printed.

        Args:
            prior: the attacker's probability before the release, in (0, 1).

        Raises:
            ValueError: a prior outside (0, 1), or nothing is proved.
        """
        return self.guarantee.membership_odds(prior)

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
        return files.to_dataset(self)

    def save(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        """Write the release to a NetCDF file; a file that was there stays until the new one is whole.

        Args:
            path: of the file.
            key: signs it (HMAC-SHA256), for readers who share the key: at least 16 secret bytes.

        Raises:
            ValueError: a key that is none.
        """
        data = self.to_xarray()
        write_netcdf(data if key is None else files.signed(data, key), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: bytes | None = None) -> Release:
        """Read a release that :meth:`save` wrote.

        The guarantee is worked out anew from the noise laws in the file; what they do not give is not called proved. That
        Sigma is what those laws made of the messages, and that the noise was fresh, rests on who wrote the file: with a
        ``key`` it must be signed by it.

        Raises:
            ValueError: a file that holds no release or a law that this version does not know; with a ``key``, a signature
                that is missing or wrong.
        """
        data = files.read(path)
        if key is not None:
            files.check_signature(data, key, path)
        try:
            return cls.from_xarray(data)
        except ValueError as error:
            raise ValueError(f"path: {os.fspath(path)!r} holds no release of mpmtl_prob: {error}") from error

    @classmethod
    def from_xarray(cls, data: xr.Dataset) -> Release:
        """The release that :meth:`to_xarray` turned into data, as :meth:`load`. Raises ValueError for other data."""
        return cls(**files.fields(data))

    def __repr__(self) -> str:
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        return (
            f"Release({self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks, {rounds})\n"
            f"  {self.guarantee}"
        )

    def _repr_html_(self) -> str:
        facts = {
            "published": f"{self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks' vectors",
            "rounds": self.rounds,
            "vectors": "unit length"
            if self.message == "direction"
            else f"length at most {self.mechanisms[0].clip:.3g}",
            "noise": ", ".join(sorted({law.kind for law in self.mechanisms})),
        }
        return card("Release", facts | self.guarantee.facts(), self.guarantee.reason)


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
    clip: float | BoughtClip | None = None,
    mechanism: str | Noise = "wishart",
    adjacency: str = "replace",
    scaling: str = "pareto",
    rounds: int | str = 1,
    respond: Callable[[Release], ArrayLike] | None = None,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
) -> Release:
    """Let out the tasks' perturbed second moment, and spend the whole budget on it.

    Args:
        source: TaskData, whose messages are every task's own ridge estimate (its penalty averaged over the task's own
            evidence, so that no hyper-parameter is chosen on other tasks' rows); or the messages themselves, d x m.
        epsilon: > 0.
        delta: in (0, 1); default 1 / (m log m).
        message: "direction" scales every message to unit length, so that K = 1 is public and nothing about norms is
            spent or leaked; "clip" shortens longer messages to ``clip``.
        clip: K, only with message="clip": a number chosen without looking at the messages, or one from :func:`buy_clip`,
            whose price is then part of the total.
        mechanism: "wishart" (the least Wishart noise that is (epsilon, delta)-private, also called "calibrated"),
            "gaussian" (the least Gaussian noise that is), "paper" (the papers' noise, whose guarantee is weaker than
            claimed), or a :class:`Wishart` or :class:`Gaussian` of your choice.
        adjacency: what a task's data are compared with: "replace" (any other task) or "zero_out" (no task).
        scaling: with TaskData, "pareto" lets every owner scale its features by its own rows, which makes tasks alike;
            "none" leaves them. Messages that you bring are taken as they are.
        rounds: T: the budget is spread evenly over T releases, paid for at once. The first message is the estimate, later
            ones answer the releases before. "auto" is 1 up to epsilon = 1, then as many times as the noise of one round is
            smaller than the average eigenvalue of the second moment, m/d, and at most 3; always 1 where m < d.
        respond: the owners' messages, d x m, after the rounds so far; default, with TaskData, draws from their posteriors
            (:func:`mpmtl_prob.inference.posterior_draws`, whose ``likelihood`` labels need). Only with more than one round.
        unsafe_seed: draws the noise from this seed, for demonstrations: the release then guarantees nothing.
        ledger: pays for the release, on disk, before any noise is drawn.

    Returns:
        A :class:`Release` of T rounds.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range, or messages that are not finite. Nothing was charged.

    Source: TPAMI 2022, Algorithm 1, steps 3 to 5, with T = 1.
    """
    one_of("message", message, MESSAGES)
    one_of("adjacency", adjacency, ADJACENCIES)
    one_of("scaling", scaling, SCALINGS)
    positive("epsilon", epsilon)
    W, features, scaling = messages(source, scaling)
    d, m = W.shape
    delta = default_delta(m) if delta is None else in_range("delta", delta, 0, 1)
    W, K, besides = bounded(W, message, clip)
    answered = respond is not None or isinstance(source, TaskData)
    one_round = partial(calibrate, epsilon, delta, d, clip=K, adjacency=adjacency, besides=besides)
    T = how_many(rounds, epsilon, m, answered, one_round)
    laws, claimed = _mechanisms(mechanism, epsilon, delta, d, K, adjacency, besides, T)
    total = of_release(
        (*laws, *besides), epsilon=epsilon, adjacency=adjacency, claimed=claimed, seeded=unsafe_seed is not None
    )
    named = tuple(_name(feature) for feature in features)
    h = grid.step(K, d, m, laws)
    W = grid.sent(W, K, h)

    reply = respond
    if reply is None and T > 1:  # before anything is charged: targets may be of a kind that has to be said
        reply = owners(source, 0 if unsafe_seed is None else unsafe_seed)

    def answer(sigma: Sequence[FloatArray]) -> FloatArray:
        so_far = Release(
            np.stack(sigma), laws[: len(sigma)], m, named, total, message, scaling, _library_version(), besides, h
        )
        assert reply is not None  # a single round asks nobody
        return grid.sent(checked_answer(reply(so_far), W.shape, message, K), K, h)

    published, _ = perturb(
        lambda noise: (converse(W, noise, answer), None),
        laws,
        epsilon=epsilon,
        adjacency=adjacency,
        claimed=claimed,
        num_tasks=m,
        features=features,
        message=message,
        scaling=scaling,
        unsafe_seed=unsafe_seed,
        ledger=ledger,
        data=source,
        besides=bought(clip),
        lattice=h,
    )
    return published


def perturb[Private](
    run: Callable[[FloatArray], tuple[ArrayLike, Private]],
    mechanisms: Sequence[Noise],
    *,
    epsilon: float,
    adjacency: str,
    claimed: Bound | None,
    num_tasks: int,
    features: Sequence[Hashable],
    message: str,
    scaling: str,
    unsafe_seed: int | None,
    ledger: Ledger | None = None,
    data: TaskData | ArrayLike | None = None,
    besides: Sequence[BoughtClip] = (),
    lattice: float,
) -> tuple[Release, Private]:
    """The door: pay, draw the noise of T rounds, let ``run`` add it to its second moments, publish the sums.

    One call with T mechanisms pays for T rounds at once; T calls with one mechanism each pay round by round.

    Args:
        run: maps the noise (T, d, d) to Sigma^(1:T) = A^(t) + E^(t), (T, d, d), and whatever stays in the room. It must
            clip its messages to the mechanisms' K and cut them to the lattice, and must not keep the noise.
        mechanisms: the noise law of each round.
        epsilon: at which the guarantee is stated.
        adjacency: "replace" or "zero_out".
        claimed: the papers' claim, if any.
        num_tasks: m.
        features: names.
        message: how messages were bounded.
        scaling: in which coordinates they are.
        unsafe_seed: as in :func:`release`.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: what the release is about, for the ledger's fingerprint.
        besides: what was bought for this release already, and is part of its guarantee. What the ledger has not paid for
            yet is charged with the rounds.
        lattice: h, of which the messages' entries are whole multiples, as the noise is of its square.

    Returns:
        The release, and what ``run`` keeps.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged, nothing drawn.
    """
    rounds, names = tuple(mechanisms), tuple(_name(feature) for feature in features)
    positive("epsilon", epsilon)
    one_of("adjacency", adjacency, ADJACENCIES)
    if not rounds:
        raise ValueError("mechanisms: expected one per round, at least one, got none")
    _check_dimension(rounds, len(names))
    check_ledger(ledger, unsafe_seed)
    prices = tuple(purchase.law for purchase in besides)
    guarantee = of_release(
        (*rounds, *prices), epsilon=epsilon, adjacency=adjacency, claimed=claimed, seeded=unsafe_seed is not None
    )
    if ledger is not None:
        ledger.charge(rounds, data=data, adjacency=adjacency, bought=besides)
    unit = positive("lattice", lattice) ** 2
    noise = np.stack([law.draw(unit, exact.source(unsafe_seed, t)) for t, law in enumerate(rounds)])
    sigma, private = run(noise)
    on_lattice = np.asarray(sigma).dtype == np.float64 and np.all(np.mod(sigma, unit) == 0)
    if not on_lattice:  # whatever came of it is then lost, and nothing is published
        raise ValueError("run: expected second moments of messages on the lattice, got others")
    published = Release(
        sigma=np.asarray(sigma, dtype=np.float64),
        mechanisms=rounds,
        num_tasks=num_tasks,
        features=names,
        guarantee=guarantee,
        message=message,
        scaling=scaling,
        library_version=_library_version(),
        besides=prices,
        lattice=lattice,
    )
    return published, private


def _mechanisms(
    mechanism: str | Noise,
    epsilon: float,
    delta: float,
    d: int,
    clip: float,
    adjacency: str,
    besides: tuple[Mechanism, ...],
    rounds: int,
) -> tuple[tuple[Noise, ...], Bound | None]:
    """The law of every round, and what the papers claim of them together."""
    if isinstance(mechanism, Noise):
        if mechanism.num_features != d or mechanism.clip != clip:
            raise ValueError(f"mechanism: expected num_features = {d} and clip = {clip}, got {mechanism}")
        return (mechanism,) * rounds, None
    if one_of("mechanism", mechanism, ("wishart", "calibrated", "gaussian", "paper")) == "paper":
        return (PaperWishart(d, epsilon / rounds, clip),) * rounds, Bound(epsilon, 0.0, adjacency)
    least = calibrate_gaussian if mechanism == "gaussian" else calibrate
    return (least(epsilon, delta, d, rounds, clip=clip, adjacency=adjacency, besides=besides),) * rounds, None


def _check_dimension(mechanisms: Sequence[Noise], d: int) -> None:
    if wrong := next((mechanism for mechanism in mechanisms if mechanism.num_features != d), None):
        raise ValueError(
            f"mechanisms: expected noise of dimension {d}, the number of features, got {wrong.num_features}"
        )


def _name(feature: Hashable) -> Hashable:
    """A feature name that a file can hold."""
    if isinstance(feature, np.generic):
        feature = feature.item()
    return feature if isinstance(feature, str | int | float | bool) else str(feature)


def _library_version() -> str:
    try:
        return version("mpmtl-prob")
    except PackageNotFoundError:  # imported from a source tree that is not installed
        return "unknown"
