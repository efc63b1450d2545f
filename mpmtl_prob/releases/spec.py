"""What is settled before anybody looks at a row: the noise, what it promises, and how messages are bounded. Public.

Whoever has the terms can make its own message, and whoever sums up what these give can publish: see :func:`message` and
:func:`mpmtl_prob.releases.publish`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, normalise_fields, one_of, positive, whole
from mpmtl_prob._util.protocols import named
from mpmtl_prob.data.cells import check_spelling
from mpmtl_prob.data.matching import in_order
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.accounting.composition import compute_delta as composed_delta
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, PaperWishart
from mpmtl_prob.privacy.units import Adjacency
from mpmtl_prob.releases.messages import MESSAGES, SCALINGS, PrivateClipNorm, clip_norm, messages
from mpmtl_prob.releases.silent import silent_tasks, tell

#: Noise by name; "calibrated" is a synonym of "wishart".
MECHANISMS = {name: name for name in ("wishart", "calibrated", "gaussian", "paper")}


@dataclass(frozen=True)
class Terms:
    """The terms of T rounds.

    Attributes:
        mechanisms: the noise law of each round; its ``clip`` is K.
        epsilon: at which the guarantee is stated.
        adjacency: "replace" or "zero_out".
        num_tasks: m.
        features: names, d of them.
        lattice: h, of which the messages' entries are whole multiples, as the noise is of its square.
        message: "direction" or "clip", how messages are bounded.
        scaling: "pareto", "unit" or "none", the coordinates that they are in.
        claimed: what the papers say, if anything.
        purchases: what was bought for the release, and is part of its guarantee.

    Raises:
        ValueError: an argument outside its range.
    """

    mechanisms: tuple[MatrixMechanism, ...]
    epsilon: float
    adjacency: str
    num_tasks: int
    features: tuple[Hashable, ...]
    lattice: float
    message: str = "clip"
    scaling: str = "none"
    claimed: Bound | None = None
    purchases: tuple[PrivateClipNorm, ...] = ()

    def __post_init__(self) -> None:
        normalise_fields(self, positive, "epsilon", "lattice")
        object.__setattr__(self, "adjacency", Adjacency.of(self.adjacency))
        normalise_fields(self, whole, "num_tasks")
        one_of("message", self.message, MESSAGES)
        one_of("scaling", self.scaling, SCALINGS)
        object.__setattr__(self, "features", tuple(_name(feature) for feature in self.features))
        if len(set(self.features)) < len(self.features):
            raise ValueError("features: expected distinct names, got a name twice")
        check_spelling("features", "feature", self.features)
        if not self.mechanisms:
            raise ValueError("mechanisms: expected one per round, at least one, got none")
        check_message(self.message, len(self.features))
        check_laws(self.mechanisms, len(self.features), self.message)

    @property
    def clip(self) -> float:
        """K, the largest norm of a message."""
        return self.mechanisms[0].clip

    def bounded(self, W: FloatArray) -> FloatArray:
        """Messages (d, k) as they leave their owners: not longer than K, exactly, and on the lattice."""
        return lattice.sent(lattice.unit_columns(W) if self.message == "direction" else W, self.clip, self.lattice)


def terms(
    epsilon: float,
    num_tasks: int,
    features: Sequence[Hashable] | int,
    delta: float | None = None,
    *,
    message: str = "direction",
    clip: float | PrivateClipNorm | None = None,
    mechanism: str | MatrixMechanism = "wishart",
    adjacency: str = "replace",
    scaling: str = "pareto",
    rounds: int = 1,
) -> Terms:
    """The terms of a release of ``num_tasks`` messages, from public numbers alone.

    Args:
        epsilon: > 0.
        num_tasks: m, at least two where delta is not given.
        features: their names, or how many there are.
        delta: in (0, 1); default 1 / (m log m).
        message: as in :func:`mpmtl_prob.release`, like all that follow.
        clip: K, only with message="clip".
        mechanism: "wishart", "gaussian", "paper", or a law of your own, which must keep a given delta.
        adjacency: "replace" or "zero_out".
        scaling: "pareto", "unit" or "none".
        rounds: T, over which the budget is spread evenly.

    Raises:
        ValueError: an argument outside its range, or directions of a single feature.
    """
    names = tuple(range(whole("features", features))) if isinstance(features, int | np.integer) else tuple(features)
    epsilon = positive("epsilon", epsilon)
    d, m, T = len(names), whole("num_tasks", num_tasks), whole("rounds", rounds)
    one_of("message", message, MESSAGES)
    adjacency = Adjacency.of(adjacency)
    delta = None if delta is None else in_range("delta", delta, 0, 1)
    law: MatrixMechanism
    K, bought = clip_norm(message, clip)
    claimed = None
    if isinstance(mechanism, MatrixMechanism):
        if mechanism.num_features != d or mechanism.clip != K:
            raise ValueError(f"mechanism: expected num_features = {d} and clip = {K}, got {mechanism}")
        law = mechanism
        if delta is not None:
            _check_delta(delta, epsilon, (law,) * T, bought, adjacency)
    elif named("mechanism", mechanism, MECHANISMS, MatrixMechanism) == "paper":
        law, claimed = PaperWishart(d, epsilon / T, K), Bound(epsilon, 0.0, adjacency)
    else:
        delta = default_delta(m) if delta is None else delta
        least = calibrate_gaussian if mechanism == "gaussian" else calibrate
        prices = tuple(purchase.law for purchase in bought)
        law = least(epsilon, delta, d, T, clip=K, adjacency=adjacency, composed_with=prices)
    h = lattice.step(K, d, m, [law])
    return Terms((law,) * T, epsilon, adjacency, m, names, h, message, scaling, claimed, bought)


def _check_delta(
    delta: float,
    epsilon: float,
    laws: Sequence[MatrixMechanism],
    bought: Sequence[PrivateClipNorm],
    adjacency: str,
) -> None:
    """Raise ValueError where given laws do not keep a delta that was asked for."""
    unproved = any(law.unproved for law in laws)
    true = 1.0 if unproved else composed_delta(epsilon, (*laws, *(each.law for each in bought)), adjacency)
    if true > delta:
        raise ValueError(
            f"delta: the given mechanism has {true:.3g} at eps = {epsilon:g}, more than the {delta:g} asked for; leave "
            "delta out, as a law of your own is taken as it is, or give one with more noise"
        )


def message(source: TaskData | ArrayLike, terms: Terms) -> FloatArray:
    """An owner's step: one message per task in ``source``, (d, k), bounded as the terms say, to be handed to the curator.

    Every column is a function of its own task's rows alone, in bits.

    A warning says where a message says nothing: to the owner, whose rows it is about.

    Args:
        source: the rows of one task, or of those of one owner; or vectors of your own, d x k.
        terms: of the release.

    Raises:
        ValueError: other features than the terms', or in another order, or vectors that are not finite.
    """
    W = quiet_message(source, terms)
    tell(silent_tasks(W, source), W @ W.T, terms.features, terms.message)
    return W


def quiet_message(source: TaskData | ArrayLike, terms: Terms) -> FloatArray:
    """Return :func:`message` without its warnings, for whoever has more tasks to tell of together."""
    W, features, _ = messages(source, terms.scaling)
    if len(W) != len(terms.features):
        raise ValueError(f"source: expected {len(terms.features)} features, as the terms say, got {len(W)}")
    in_order(features, terms.features, "the terms")
    return terms.bounded(W)


def check_message(message: str, d: int) -> None:
    """Raise ValueError for directions of a single feature: squared they are 1, whatever the data."""
    if message == "direction" and d == 1:
        raise ValueError(
            "message: expected 'clip' with one feature, as a direction then is 1 or -1 and its square the same whatever the "
            "data, got 'direction'; take message='clip' with a clip norm (--clip on the command line)"
        )


def default_delta(num_tasks: int) -> float:
    """1 / (m log m), the papers' choice. Raises ValueError for fewer than two tasks."""
    if num_tasks < 2:
        raise ValueError(f"delta: the default 1 / (m log m) needs at least two tasks, got {num_tasks}; give delta")
    return 1 / (num_tasks * np.log(num_tasks))


def check_laws(mechanisms: Sequence[MatrixMechanism], d: int, message: str) -> None:
    """Raise ValueError unless the noise of all rounds is of dimension d, and for one clip norm K; for directions, 1."""
    if wrong := next((mechanism for mechanism in mechanisms if mechanism.num_features != d), None):
        raise ValueError(
            f"mechanisms: expected noise of dimension {d}, the number of features, got {wrong.num_features}"
        )
    clips = sorted({mechanism.clip for mechanism in mechanisms})
    if len(clips) > 1:
        raise ValueError(f"mechanisms: expected one clip norm in all rounds, got {', '.join(map(repr, clips))}")
    if message == "direction" and clips != [1.0]:
        raise ValueError(f"mechanisms: expected clip = 1.0, as directions have unit length, got {clips[0]!r}")


def check_lattice(terms: Terms) -> None:
    """Raise ValueError for a lattice on which sums are not exact, so that nothing could be said of their last bits."""
    least = lattice.finest(terms.clip, terms.num_tasks, terms.mechanisms)
    if terms.lattice < least or np.frexp(terms.lattice)[0] != 0.5:
        raise ValueError(f"lattice: expected a power of two of at least {least:.3g}, got {terms.lattice!r}")


def _name(feature: Hashable) -> Hashable:
    """A feature name that a file can hold."""
    if isinstance(feature, np.generic):
        feature = feature.item()
    return feature if isinstance(feature, str | int | float | bool) else str(feature)
