"""A guarantee in numbers and in words: what the papers claim, and what is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, one_of, whole
from mpmtl_prob._util.former import FormerName
from mpmtl_prob._util.html import card
from mpmtl_prob.privacy import board
from mpmtl_prob.privacy.accounting.composition import compute_delta
from mpmtl_prob.privacy.accounting.curves import MembershipOdds, compute_profile, membership_odds
from mpmtl_prob.privacy.accounting.events import dp_event
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.units import Adjacency, Unit

_SCOPE = (
    "It holds against {against}, whatever they know besides and whatever they compute from "
    "the release, now or later. {alone}\n\n"
    "It does not cover: hyper-parameters, features or a clip norm chosen by looking at these data (choose them on public "
    "data, or pay for them); other releases from the same data (a ledger adds them up); what an owner publishes of its own "
    "model, which depends on its own rows; and what is public: the number of tasks, the names of the features, and whether "
    "all targets are labels -1 and 1. "
    "Nor does it cover what can be seen while a computation runs: how long it takes, and which errors and warnings come up. "
    "These may depend on the data. Their words show no private value, but that one comes up can tell something. So let "
    "nobody watch the run, its clock or its logs who must not see the data, and hand out the finished release alone. "
    "{arithmetic}"
)


#: against whom a guarantee holds, unless it says otherwise
ANYBODY = "anybody: all other tasks' owners together"
#: how the noise was drawn and added
EXACT, DOUBLES = "exact on a lattice (total variation 0)", "double precision, not covered"
DISCRETE = "exact on a lattice, with discrete noise"

_ARITHMETIC = {
    EXACT: (
        "Arithmetic is covered: messages are cut to a public grid, the noise is drawn as a real number and correctly "
        "rounded to it, and sums on the grid are exact. That the operating system's random bits are random is assumed."
    ),
    DISCRETE: (
        "Arithmetic is covered: messages are cut to a public grid on which sums are exact, the noise is discrete and drawn "
        "exactly, and what that gives away beyond real noise is in delta. That the operating system's random bits are random "
        "is assumed."
    ),
    DOUBLES: (
        "It does not cover floating-point arithmetic either: the proof is about real numbers, and the last bits of a sum of "
        "doubles can show what was added."
    ),
}


_PERSONS = (
    "Tasks share subjects: one person's rows may be in several tasks, up to all of them, while the promise is about any one "
    "{unit}. A person of k {unit}s is promised less: `guarantee.for_group(k)` says what."
)


@dataclass(frozen=True)
class Bound:
    """(eps, delta)-privacy of one unit under an adjacency.

    Raises ValueError for a unit or an adjacency of no such name, or two that do not go together.
    """

    epsilon: float
    delta: float
    adjacency: str
    unit: str = "task"

    def __post_init__(self) -> None:
        unit, adjacency = Unit.of(self.unit), Adjacency.of(self.adjacency)
        unit.compared(adjacency)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "adjacency", adjacency)

    def __str__(self) -> str:
        compared = self.adjacency.replace("_", "-")
        return f"eps = {self.epsilon:.3g}, delta = {self.delta:.3g} ({compared}, one {self.unit})"


@dataclass(frozen=True)
class Guarantee:
    """What protects one task's model, as claimed and as proved; they are never mixed.

    Attributes:
        claimed: what the papers' theorem says, or None where they say nothing.
        proved: what holds, or None where nothing is proved.
        reason: why, in words.
        arithmetic: :data:`EXACT` or :data:`DOUBLES`; empty where there is no noise.
        mechanisms: the laws that it follows from, of every round and of what was bought besides.
        adversary: who sees what it is about, and whatever else they know.
        shared_subjects: tasks share subjects, so that one person's rows may be in several of them.
    """

    claimed: Bound | None
    proved: Bound | None
    reason: str
    arithmetic: str = ""
    mechanisms: tuple[Mechanism, ...] = field(default=(), repr=False, compare=False)
    adversary: str = ANYBODY
    shared_subjects: bool = False

    against = FormerName("adversary")

    def __str__(self) -> str:
        proved = str(self.proved) if self.proved else "nothing"
        proved += "" if self.adversary == ANYBODY else f", against {self.adversary} and nobody else"
        claimed = f"; the papers claim {self.claimed}" if self.claimed and self.claimed != self.proved else ""
        return f"proved: {proved}{claimed}. {self.reason}"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Guarantee:
        """The guarantee that :meth:`to_dict` made fields of."""
        claimed, proved = (None if fields[k] is None else Bound(**fields[k]) for k in ("claimed", "proved"))
        arithmetic, against = fields.get("arithmetic", DOUBLES), fields.get("against", ANYBODY)
        persons = fields.get("shared_subjects", False) is True
        return cls(claimed, proved, fields["reason"], arithmetic, adversary=against, shared_subjects=persons)

    def facts(self) -> dict[str, str]:
        """For tables: what is proved and, where it differs, what the papers claim."""
        found = {"proved": str(self.proved) if self.proved else "nothing"}
        if self.claimed and self.claimed != self.proved:
            found["claimed by the papers"] = str(self.claimed)
        if self.adversary != ANYBODY:
            found["against"] = self.adversary
        return found | ({"arithmetic": self.arithmetic} if self.arithmetic else {})

    def _repr_html_(self) -> str:
        return card("Guarantee", self.facts(), self.reason)

    def explain(
        self, audience: str = "analyst", *, organisation: str = "organisation", person: str = "person", group: int = 1
    ) -> str:
        """The guarantee in words: against whom it holds, what it compares, and what it does not cover.

        Args:
            audience: "analyst", with eps and delta; or "board", for people who decide whether an organisation takes part:
                patients first, and odds in plain words.
            organisation: for a board, what it calls a task, such as "hospital".
            person: for a board, whom data are about, such as "patient".
            group: for a board, how many tasks belong together, such as the hospitals of one owner.

        Raises:
            ValueError: another audience, a guarantee that is not about whole tasks for a board, or a group that is none.
        """
        if one_of("audience", audience, ("analyst", "board")) == "board":
            parts = board.paragraphs(self.promise(group), board.Words(organisation, person))
            return "\n\n".join(f"{heading}. {text}" for heading, text in parts)
        arithmetic = _ARITHMETIC.get(self.arithmetic, "")
        against = "anybody" if self.adversary == ANYBODY and self.unit == Unit.PERSON else self.adversary
        persons = _PERSONS.format(unit=self.unit) if self.shared_subjects and self.proved else ""
        scope = _SCOPE.format(against=against, alone=self.unit.alone, arithmetic=arithmetic).strip()
        return "\n\n".join(
            part for part in (self._promise(), self._odds(), persons, self._papers(), self.reason, scope) if part
        )

    def promise(self, group: int = 1) -> board.Promise:
        """What is promised to one task, or to a group that belongs together, as a board is told.

        Raises:
            ValueError: a guarantee of another unit than whole tasks, one that does not know its noise laws, or a group
                that is none.
        """
        if self.unit != Unit.TASK:
            raise ValueError(f"guarantee: expected one that protects whole tasks for a board, got one of a {self.unit}")
        whole("group", group)
        if self.proved is None or self.proved.delta >= 1:
            return board.Promise(Adjacency.REPLACE, None, self.reason, group)
        if group == 1:
            moved = self.membership_odds()
            odds = board.Odds(moved.cap, moved.above, moved.typical)
        else:
            # a privacy loss lies above eps + t with probability delta(eps) / (1 - e^-t) at most; t = log 2
            epsilon = self.for_group(group).epsilon(self.proved.delta) + np.log(2)
            odds = board.Odds(float(expit(epsilon)), min(1.0, 2 * self.proved.delta), None)
        return board.Promise(Adjacency.of(self.proved.adjacency), odds, self.reason, group)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for :meth:`from_dict`; without the laws."""
        claimed, proved = (None if bound is None else asdict(bound) for bound in (self.claimed, self.proved))
        fields = {"claimed": claimed, "proved": proved, "reason": self.reason, "arithmetic": self.arithmetic}
        fields |= {} if self.adversary == ANYBODY else {"against": self.adversary}
        return fields | ({"shared_subjects": True} if self.shared_subjects else {})

    @property
    def curve(self) -> PrivacyProfile:
        """What is proved at all eps at once.

        Raises ValueError where nothing is proved, or where the laws are not known, as of a guarantee read from a posterior's
        file (its release has them).
        """
        self._check_mechanisms()
        assert self.proved is not None
        return compute_profile(self.mechanisms, self.proved.adjacency)

    def delta(self, epsilon: float) -> float:
        """The proved delta at another eps. Raises ValueError where nothing is proved."""
        return self.curve.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """The proved eps at another delta; inf if there is none. Raises ValueError where nothing is proved."""
        return self.curve.epsilon(delta)

    def tradeoff(self, false_alarms: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Errors of type I and the least errors of type II of any test; see :meth:`PrivacyProfile.tradeoff`."""
        return self.curve.tradeoff(false_alarms)

    def for_group(self, k: int) -> PrivacyProfile:
        """What k units that belong together are promised, such as the tasks of one family. Raises ValueError for k < 1."""
        return self.curve.for_group(k)

    def gdp(self) -> float:
        """mu of Gaussian differential privacy: no test does better than one of N(0, 1) against N(mu, 1).

        Raises ValueError where nothing is proved, or for other than Gaussian noise.
        """
        mu = self.curve.gdp
        if mu is None:
            others = ", ".join(dict.fromkeys(law.kind for law in self.mechanisms))
            raise ValueError(
                f"guarantee: expected one of Gaussian noise, which alone is proved to have mu, rho and Renyi numbers, got "
                f"{others}; its whole curve is guarantee.curve, and mechanism='gaussian' makes a release that has them"
            )
        return mu

    def zcdp(self) -> float:
        """rho of zero-concentrated differential privacy, mu^2 / 2. Raises ValueError as :meth:`gdp`."""
        return self.gdp() ** 2 / 2

    def renyi(self, order: float) -> float:
        """eps of Renyi differential privacy at an order above 1, order mu^2 / 2.

        Raises ValueError for an order of 1 or less, and as :meth:`gdp`.

        Source: Bun and Steinke (2016), Lemma 2.4; Mironov (2017), Proposition 7.
        """
        return in_range("order", order, 1, np.inf) * self.zcdp()

    def to_dp_event(self) -> Any:
        """What is proved as a ``DpEvent`` of dp-accounting, whose accountants add it to what else was spent.

        Gaussian noise is a ``GaussianDpEvent``, as exact as here. It is about this guarantee's own neighbours: give it to an
        accountant as it is made by default, which does not double the sensitivity, whatever the adjacency here. Any other
        noise is an ``EpsilonDeltaDpEvent``, one point of the curve, which composes less tightly than our ledger, and which
        dp-accounting has from the version after 0.6.0.

        Raises:
            ValueError: nothing is proved, the laws are not known, or no event of the installed dp-accounting says as much.
        """
        self._check_mechanisms()
        assert self.proved is not None
        return dp_event(self.mechanisms, self.proved.adjacency, self.proved.epsilon, self.proved.delta)

    def plot(self, axes: Any = None) -> Any:
        """delta(eps) and the trade-off curve; returns the two matplotlib axes."""
        return self.curve.plot(axes)

    def membership_odds(self, prior: float = 0.5) -> MembershipOdds:
        """How far the strongest attacker's odds that a task is there can move.

        Args:
            prior: the probability before the release, in (0, 1).

        Raises:
            ValueError: a prior outside (0, 1), or nothing is proved.
        """
        self._check_mechanisms()
        assert self.proved is not None
        return membership_odds(self.mechanisms, self.proved.adjacency, self.proved.epsilon, prior)

    def _check_mechanisms(self) -> None:
        if self.proved is None:
            raise ValueError(f"guarantee: expected one of which something is proved. {self.reason}")
        if not self.mechanisms and self.proved.epsilon > 0:
            raise ValueError("guarantee: expected one that knows its noise laws; a release's does")

    @property
    def unit(self) -> Unit:
        """What is protected, such as a "task" or a "row" of one."""
        bound = self.proved or self.claimed
        return Unit.TASK if bound is None else Unit.of(bound.unit)

    def _promise(self) -> str:
        if self.proved is None:
            return "Nothing is proved about this result. Treat it as if it showed every task's model."
        if self.proved.delta >= 1:
            return "At this eps nothing is promised: delta = 1. Treat the result as if it showed every task's model."
        if self.proved.epsilon == 0 and self.proved.delta == 0:
            return "No task can learn anything about another: nothing was shared."
        factor, one = np.exp(min(self.proved.epsilon, 700.0)), self.unit.any_one
        otherwise = self.unit.compared(Adjacency.of(self.proved.adjacency))
        return (
            f"Take any one {one}, and any conclusion that somebody might draw from what was released. Had things been "
            f"otherwise - {otherwise} - the probability of that conclusion would have been the same "
            f"up to a factor of {factor:.3g} (e^eps, eps = {self.proved.epsilon:.3g}), but for a probability of at most "
            f"{self.proved.delta:.2g} (delta). Put to a test: whoever wants to recognise the {self.unit} and accepts one "
            f"false alarm in twenty is right about a {self.unit} that is there at most {_power(self.proved):.0%} of the time."
        )

    def _odds(self) -> str:
        told = (Unit.TASK, Unit.PERSON)  # who can be asked whether it was them
        if self.proved is None or not self.mechanisms or self.unit not in told or self.proved.delta >= 1:
            return ""
        return str(self.membership_odds())

    def _papers(self) -> str:
        if self.claimed is None or self.claimed == self.proved:
            return ""
        return (
            f"The papers claim eps = {self.claimed.epsilon:.3g} with delta = {self.claimed.delta:.3g} for this mechanism. "
            f"That claim is not what is stated above, and must not be quoted without it."
        )


def _power(bound: Bound, false_alarms: float = 0.05) -> float:
    """The largest true-positive rate at a false-positive rate, from both sides of (eps, delta)."""
    return min(
        1.0,
        np.exp(min(bound.epsilon, 700.0)) * false_alarms + bound.delta,
        1 - np.exp(-bound.epsilon) * (1 - bound.delta - false_alarms),
    )


NOTHING_SHARED = Guarantee(
    Bound(0.0, 0.0, "replace"), Bound(0.0, 0.0, "replace"), "Every task learns alone: nothing is shared."
)
NOT_PRIVATE = Guarantee(None, None, "Every task's model depends on the rows of all others without any noise.")


def of_release(
    mechanisms: Sequence[Mechanism],
    *,
    epsilon: float,
    adjacency: str,
    claimed: Bound | None,
    seeded: bool,
    unit: str = "task",
    arithmetic: str = EXACT,
) -> Guarantee:
    """The guarantee of the mechanisms composed, at the given eps.

    Args:
        mechanisms: one per round.
        epsilon: at which the true delta is computed.
        adjacency: "replace" or "zero_out".
        claimed: what the papers say of it.
        seeded: the noise came from a seed, which whoever knows it can subtract.
        unit: what the mechanisms protect, such as a "task" or a "row".
        arithmetic: how the noise was drawn and added.
    """
    if seeded:
        reason = "The noise was drawn from a fixed seed: whoever knows the seed removes it."
        return Guarantee(claimed, None, reason, arithmetic)
    if unproved := next((mechanism.unproved for mechanism in mechanisms if mechanism.unproved), ""):
        return Guarantee(claimed, None, unproved, arithmetic)
    laws = tuple(mechanisms)
    true_delta = compute_delta(epsilon, laws, adjacency)
    reason = _reason(mechanisms, adjacency)
    if true_delta >= 1:
        true_delta, reason = 1.0, reason + " delta = 1 guarantees nothing."
    against = next((law.adversary for law in laws if law.adversary), ANYBODY)
    return Guarantee(claimed, Bound(epsilon, true_delta, adjacency, unit), reason, arithmetic, laws, against)


def _reason(laws: Sequence[Mechanism], adjacency: str) -> str:
    rounds = Counter(type(law) for law in laws)
    return " ".join(dict.fromkeys(law.justification(adjacency, rounds[type(law)]) for law in dict.fromkeys(laws)))
