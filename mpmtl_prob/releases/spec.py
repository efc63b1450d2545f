"""Specification of a release, and its terms for m tasks of d features: public, and fixed before anybody looks at a row.

With the terms, a data owner can make its message (:func:`message`), and a curator can publish the sum
(:func:`mpmtl_prob.releases.publish`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, normalise_fields, one_of, positive, whole
from mpmtl_prob._util.former import FormerName
from mpmtl_prob._util.protocols import named
from mpmtl_prob.data.cells import check_spelling, file_name
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.covariates import Covariates
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.matching import in_order
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.accounting.composition import compute_delta as composed_delta
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms import PAPERS, MatrixMechanism
from mpmtl_prob.privacy.units import Adjacency
from mpmtl_prob.releases.effects import EffectsLayout, effect_messages, row_warnings, warn_owner
from mpmtl_prob.releases.messages import MESSAGES, OF_LENGTH_ONE, PrivateClipNorm, clip_norm, messages, scaling_named
from mpmtl_prob.releases.silent import silent_tasks, tell

#: Kinds of noise by name; "calibrated" is a synonym of "wishart".
MECHANISMS = {name: name for name in ("wishart", "calibrated", "gaussian", *PAPERS)}


@dataclass(frozen=True)
class Terms:
    """Terms of a release of T rounds: noise, guarantee and form of the messages.

    Attributes:
        mechanisms: the noise law of each round; its ``clip`` is K.
        epsilon: the eps at which the guarantee is stated.
        adjacency: "replace" or "zero_out".
        num_tasks: number of tasks m.
        features: names of a message's coordinates, d of them: features, or those of :class:`EffectsLayout`.
        lattice: h; the messages' entries are whole multiples of h, and those of the noise of h^2.
        message: kind of message and of its bound: "direction", "clip" or "effects".
        scaling: coordinates of the messages: "pareto", "unit_variance" or "none".
        claimed: the guarantee that the papers claim, if any.
        purchases: purchases for the release, which are part of its guarantee.
        effects: the layout of messages of "effects"; None for other messages.

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
    effects: EffectsLayout | None = None

    bought = FormerName("purchases")

    def __post_init__(self) -> None:
        normalise_fields(self, positive, "epsilon", "lattice")
        object.__setattr__(self, "adjacency", Adjacency.of(self.adjacency))
        normalise_fields(self, whole, "num_tasks")
        one_of("message", self.message, MESSAGES)
        object.__setattr__(self, "scaling", scaling_named(self.scaling))
        object.__setattr__(self, "features", tuple(file_name(feature) for feature in self.features))
        if len(set(self.features)) < len(self.features):
            raise ValueError("features: expected distinct names, got a name twice")
        check_spelling("features", "feature", self.features)
        if not self.mechanisms:
            raise ValueError("mechanisms: expected one per round, at least one, got none")
        check_layout(self.message, self.effects, self.features, len(self.mechanisms), self.num_tasks)
        check_message(self.message, len(self.features))
        check_laws(self.mechanisms, len(self.features), self.message)

    @property
    def clip(self) -> float:
        """Clip norm K, the largest norm of a message."""
        return self.mechanisms[0].clip

    def bounded(self, W: FloatArray) -> FloatArray:
        """Return messages (d, k) as they leave their data owners: exactly no longer than K, and on the lattice."""
        return lattice.sent(lattice.unit_columns(W) if self.message in OF_LENGTH_ONE else W, self.clip, self.lattice)


@dataclass(frozen=True)
class ReleaseSpec:
    """Specification of a release: its guarantee and the bound of its messages. Public, and fixed before any row is seen.

    It can take the place of ``epsilon`` wherever something is published: in :func:`mpmtl_prob.release`,
    :class:`mpmtl_prob.NoiseAware`, the estimators that publish rounds, and :func:`mpmtl_prob.federated.invite`.

    Attributes:
        epsilon: > 0.
        delta: in (0, 1); default 1 / (m log m) for m tasks.
        mechanism: "wishart" (the smallest Wishart noise that is (epsilon, delta)-private, also called "calibrated"),
            "gaussian" (the smallest Gaussian noise that is), "paper" (the papers' noise, whose guarantee is weaker than
            claimed), "paper_2018" and "paper_2018_unit" (the noise with which the papers' figures were made, of scale
            clip / eps and 1 / eps, which is smaller, and its guarantee weaker still, for a clip above 2 and sqrt(2)),
            or your own :class:`Wishart` or :class:`Gaussian`, used as it is: it must satisfy a given ``delta``.
        adjacency: what a task's data are compared with: "replace" (any other task) or "zero_out" (no task).
        message: content of every task's message, decided before any row is seen. "direction": the direction of its
            coefficients, at unit length, so that K = 1 is public and nothing about norms is spent or leaked. "effects": its
            coefficients and their accuracy, also at unit length, from which :func:`mpmtl_prob.inference.shared_effects`
            estimates average effects and the spread between tasks: a mixed model. "clip": its coefficients, shortened to
            ``clip`` if they are longer. Default "effects" if a ``reference`` is declared, else "direction", which does not
            exist for a single feature: there take one of the others.
        reference: the study's :class:`~mpmtl_prob.Reference`, public units in which effects are comparable. Messages of
            "effects" without one are in units of every task's own rows, and contain no intercepts.
        clip: K, only with message="clip": a number chosen without looking at the messages, or one from
            :func:`mpmtl_prob.releases.private_clip_norm`, whose price is then part of the total.
        scaling: "unit_variance" lets every owner scale its features by its own rows, for features in different units; it is
            the default for tasks from a table. "pareto" scales by the square root of that, for features in one unit; it is
            the default for tasks from arrays. "none" leaves the features as they are. The choice is public, and never
            depends on the rows. Messages that you bring are not scaled.
        covariates: public numbers of tasks, which the reference declares: a pandas data frame with a row for every task and
            the tasks' names as its index, or a mapping from tasks to numbers by name. The release contains them with the
            names: they are not protected, so everybody may know them before, and they must not be computed from rows.
        rounds: T: the budget is divided evenly over T releases, paid for at once. The first message is the estimate, later
            ones answer the releases before, and a posterior uses the last. "auto" is 2 for at least 100 tasks whose second
            moment has an average eigenvalue K^2 m/d of at least 1.5 times the norm of one round's noise; else, and for your
            own law, it is 1.

    Raises:
        ValueError: an argument outside its range.

    >>> spec = mp.releases.ReleaseSpec(epsilon=1.0, adjacency="zero_out")
    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> mp.release(train, spec).guarantee.proved.adjacency
    'zero_out'
    """

    epsilon: float = 1.0
    delta: float | None = None
    _: KW_ONLY
    mechanism: str | MatrixMechanism = "wishart"
    adjacency: str = "replace"
    message: str | None = None
    clip: float | PrivateClipNorm | None = None
    scaling: str | None = None
    rounds: int | str = 1
    reference: Reference | None = None
    covariates: Any = None

    def __post_init__(self) -> None:
        normalise_fields(self, positive, "epsilon")
        if self.delta is not None:
            normalise_fields(self, fraction, "delta")
        named("mechanism", self.mechanism, MECHANISMS, MatrixMechanism)
        object.__setattr__(self, "adjacency", Adjacency.of(self.adjacency))
        if self.message is not None:
            one_of("message", self.message, MESSAGES)
        clip_norm(self.kind, self.clip)
        if self.scaling is not None:
            object.__setattr__(self, "scaling", scaling_named(self.scaling))
        self._check_effects()
        if isinstance(self.rounds, str):
            one_of("rounds", self.rounds, ("auto",))
        else:
            normalise_fields(self, whole, "rounds")

    @property
    def kind(self) -> str:
        """Kind of message: ``message``, or its default, which depends on public arguments only."""
        if self.message is not None:
            return self.message
        return "direction" if self.reference is None else "effects"

    def _check_effects(self) -> None:
        if self.reference is not None and not isinstance(self.reference, Reference):
            raise ValueError(
                f"reference: expected a mpmtl_prob.Reference, got {type(self.reference).__name__}; make one with "
                "mpmtl_prob.Reference({column: (centre, scale)}, target=(centre, scale))"
            )
        declared = {} if self.reference is None else self.reference.covariates
        if self.covariates is not None and not declared:
            raise ValueError(
                "covariates: expected reference values that declare their centres and scales, "
                f"mp.Reference(..., covariates={{'beds': (300, 200)}}), got {self.reference!r}"
            )
        if declared:
            if self.covariates is None:
                raise ValueError(
                    f"covariates: expected public values of {list(declared)} for every task, which the reference declares, "
                    "got none; mp.release, ReleaseSpec, NoiseAware and a study's file take them"
                )
            object.__setattr__(self, "covariates", Covariates.of_table(self.covariates, tuple(declared)))
        if self.kind != "effects":
            if self.reference is not None:
                raise ValueError(f"reference: expected it with message='effects' alone, got message={self.message!r}")
            return
        if self.scaling is not None:
            raise ValueError(
                f"scaling: expected none with message='effects', whose units are the reference's or those of a task's own "
                f"rows, got {self.scaling!r}"
            )
        if self.rounds not in (1, "auto"):
            raise ValueError(
                f"rounds: expected 1 with message='effects', whose one round says all, got {self.rounds!r}"
            )

    def layout(self, features: Sequence[Hashable]) -> EffectsLayout:
        """Return the layout of messages of "effects" for tasks with these features, of which an intercept is the last.

        Without a reference the intercept stays with every task, and is not in the layout.

        Raises:
            ValueError: features that the reference does not name, or reference values of other features.
        """
        names = tuple(name for name in features if self.reference is not None or name != NAME)
        return EffectsLayout.of_study(names, self.reference, self.covariates)

    def among(self, tasks: Sequence[Hashable]) -> ReleaseSpec:
        """Return the same with the covariates of these tasks only. Raises ValueError for a task that has none."""
        return self if self.covariates is None else replace(self, covariates=self.covariates.among(tasks))

    @classmethod
    def of(cls, epsilon: float | ReleaseSpec, delta: float | None = None, **options: Any) -> ReleaseSpec:
        """Return the specification given in the place of epsilon, or make one from an epsilon and further fields.

        Raises:
            ValueError: a specification together with further fields, or a field outside its range.
            TypeError: an unknown field.
        """
        if not isinstance(epsilon, ReleaseSpec):
            return ReleaseSpec(epsilon, delta, **options)
        if delta is not None or options:
            names = ", ".join(([] if delta is None else ["delta"]) + sorted(options))
            raise ValueError(
                f"epsilon: a ReleaseSpec says everything of a release; give it {names}, by dataclasses.replace"
            )
        return epsilon

    def terms(self, num_tasks: int, features: Sequence[Hashable] | int) -> Terms:
        """Compute the terms of a release of ``num_tasks`` messages, from public numbers alone.

        Args:
            num_tasks: number of tasks m, at least two if delta is not given.
            features: names of the features, or their number.

        Raises:
            ValueError: an argument outside its range, directions of a single feature, or rounds="auto".
        """
        names = tuple(range(whole("features", features))) if isinstance(features, int | np.integer) else tuple(features)
        effects = None
        if self.kind == "effects":
            effects = self.layout(names)
            names = effects.coordinates
        d = len(names)
        m = whole("num_tasks", num_tasks)
        T = whole("rounds", self.rounds)  # type: ignore[arg-type]
        law: MatrixMechanism
        K, purchases = clip_norm(self.kind, self.clip)
        claimed = None
        if isinstance(self.mechanism, MatrixMechanism):
            if self.mechanism.num_features != d or self.mechanism.clip != K:
                raise ValueError(f"mechanism: expected num_features = {d} and clip = {K}, got {self.mechanism}")
            law = self.mechanism
            if self.delta is not None:
                check_delta(self.delta, self.epsilon, (law,) * T, purchases, self.adjacency)
        elif papers := PAPERS.get(self.mechanism):
            law, claimed = papers(d, self.epsilon / T, K), Bound(self.epsilon, 0.0, self.adjacency)
        else:
            delta = default_delta(m) if self.delta is None else self.delta
            calibrate_law = calibrate_gaussian if self.mechanism == "gaussian" else calibrate
            prices = tuple(purchase.law for purchase in purchases)
            law = calibrate_law(self.epsilon, delta, d, T, clip=K, adjacency=self.adjacency, composed_with=prices)
        h = lattice.step(K, d, m, [law])
        scaling = "pareto" if self.scaling is None else self.scaling
        if effects is not None:  # the units of "effects" without a reference are those of every task's own rows
            scaling = "unit_variance" if effects.reference is None else "none"
        return Terms(
            (law,) * T, self.epsilon, self.adjacency, m, names, h, self.kind, scaling, claimed, purchases, effects
        )


def terms(
    epsilon: float | ReleaseSpec,
    num_tasks: int,
    features: Sequence[Hashable] | int,
    delta: float | None = None,
    **options: Any,
) -> Terms:
    """Compute the terms of a release of ``num_tasks`` messages, from public numbers alone.

    Args:
        epsilon: > 0, or a :class:`ReleaseSpec`.
        num_tasks: number of tasks m, at least two if delta is not given.
        features: names of the features, or their number.
        delta: in (0, 1); default 1 / (m log m).
        options: further fields of :class:`ReleaseSpec`.

    Raises:
        ValueError: an argument outside its range, or directions of a single feature.
    """
    return ReleaseSpec.of(epsilon, delta, **options).terms(num_tasks, features)


def check_delta(
    delta: float,
    epsilon: float,
    laws: Sequence[MatrixMechanism],
    bought: Sequence[PrivateClipNorm],
    adjacency: str,
) -> None:
    """Raise ValueError if the given laws do not satisfy the requested delta."""
    unproved = any(law.unproved for law in laws)
    prices = (purchase.law for purchase in bought)
    true = 1.0 if unproved else composed_delta(epsilon, (*laws, *prices), adjacency)
    if true > delta:
        raise ValueError(
            f"delta: the given mechanism has {true:.3g} at eps = {epsilon:g}, more than the {delta:g} asked for; leave "
            "delta out, as a law of your own is taken as it is, or give one with more noise"
        )


def message(source: TaskData | Estimates | ArrayLike, terms: Terms) -> FloatArray:
    """Compute one message per task in ``source``, (d, k), bounded as the terms say: the data owner's step, for the curator.

    Every column depends on its own task's rows, or estimate, only, in every bit.

    A warning tells the data owner of messages without information.

    Args:
        source: the rows of one task, or of several tasks of one owner; their Estimates, for messages of "effects" with
            reference values; or your own vectors, d x k.
        terms: terms of the release.

    Raises:
        ValueError: features that differ from the terms' or are in another order, or vectors that are not finite.
    """
    W = quiet_message(source, terms)
    if terms.effects is not None and isinstance(source, TaskData):
        warn_owner([row_warnings(source, terms.effects)], terms.effects.outcome)
    tell(silent_tasks(W, source), W @ W.T, terms.features, terms.message)
    return W


def quiet_message(source: TaskData | Estimates | ArrayLike, terms: Terms) -> FloatArray:
    """Compute :func:`message` without its warnings, for callers that collect these from several parts."""
    if terms.effects is not None and isinstance(source, TaskData | Estimates):
        in_order(terms.effects.of(source), terms.effects.coefficients, "the terms")
        return terms.bounded(effect_messages(source, terms.effects))
    W, features, _ = messages(source, terms.scaling)
    if len(W) != len(terms.features):
        raise ValueError(f"source: expected {len(terms.features)} features, as the terms say, got {len(W)}")
    in_order(features, terms.features, "the terms")
    return terms.bounded(W)


def check_message(message: str, d: int) -> None:
    """Raise ValueError for directions of a single feature: their squares are 1 whatever the data."""
    if message == "direction" and d == 1:
        raise ValueError(
            "message: expected 'clip' with one feature, as a direction then is 1 or -1 and its square the same whatever the "
            "data, got 'direction'; take message='clip' with a clip norm (--clip on the command line)"
        )


def default_delta(num_tasks: int) -> float:
    """Return 1 / (m log m), the papers' choice of delta. Raises ValueError for fewer than two tasks."""
    if num_tasks < 2:
        raise ValueError(f"delta: the default 1 / (m log m) needs at least two tasks, got {num_tasks}; give delta")
    return 1 / (num_tasks * np.log(num_tasks))


def check_layout(
    message: str, effects: EffectsLayout | None, features: Sequence[Hashable], rounds: int, num_tasks: int
) -> None:
    """Raise ValueError unless exactly messages of "effects" have a layout, which matches features, rounds and tasks.

    The features have to be its coordinates, there is one round, and covariates belong to ``num_tasks`` tasks.
    """
    if (message == "effects") != (effects is not None):
        raise ValueError(
            f"effects: expected a layout with message='effects' and with no other, got message={message!r}"
        )
    if effects is None:
        return
    if [str(name) for name in features] != [str(name) for name in effects.coordinates]:
        raise ValueError(f"features: expected the coordinates {list(effects.coordinates)}, got {list(features)}")
    if rounds != 1:
        raise ValueError(f"mechanisms: expected one round of messages of effects, got {rounds}")
    if effects.covariates is not None and len(effects.covariates.tasks) != num_tasks:
        raise ValueError(
            f"covariates: expected those of the {num_tasks} tasks of the release alone, got {len(effects.covariates.tasks)}"
        )


def check_laws(mechanisms: Sequence[MatrixMechanism], d: int, message: str) -> None:
    """Raise ValueError unless the noise of all rounds has dimension d and one clip norm K, which is 1 for unit length."""
    if wrong := next((mechanism for mechanism in mechanisms if mechanism.num_features != d), None):
        raise ValueError(
            f"mechanisms: expected noise of dimension {d}, the number of features, got {wrong.num_features}"
        )
    clips = sorted({mechanism.clip for mechanism in mechanisms})
    if len(clips) > 1:
        raise ValueError(f"mechanisms: expected one clip norm in all rounds, got {', '.join(map(repr, clips))}")
    if message in OF_LENGTH_ONE and clips != [1.0]:
        raise ValueError(f"mechanisms: expected clip = 1.0, as messages have unit length, got {clips[0]!r}")


def check_lattice(terms: Terms) -> None:
    """Raise ValueError for a lattice that is too fine for exact sums, or whose step is not a power of two."""
    least = lattice.finest(terms.clip, terms.num_tasks, terms.mechanisms)
    if terms.lattice < least or np.frexp(terms.lattice)[0] != 0.5:
        raise ValueError(f"lattice: expected a power of two of at least {least:.3g}, got {terms.lattice!r}")
