"""Privacy guarantees in numbers and in words: what the papers claim beside what is proved."""

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
    "It holds against {against}, whatever else they know and whatever they compute from "
    "the release, now or later. {alone}\n\n"
    "It does not cover: hyper-parameters, features or a clip norm chosen by looking at these data (choose them on public "
    "data, or pay for them); other releases from the same data (a ledger adds them up); anything that an owner publishes "
    "of its own model, which depends on its own rows; and public information: the number of tasks, the names of the "
    "features, and whether all targets are labels -1 and 1. "
    "Nor does it cover side channels, that is, anything that can be observed while a computation runs: how long it takes, "
    "and which errors and warnings come up. These may depend on the data. Their texts show no private value, but the fact "
    "that one comes up can reveal something. So whoever must not see the data should not watch the run, its duration or its "
    "logs; hand out the finished release alone. "
    "{arithmetic}"
)


#: The attackers against whom a guarantee holds, unless it says otherwise.
ANYBODY = "anybody: all other tasks' owners together"
#: How the noise was drawn and added.
EXACT, DOUBLES = "exact on a lattice (total variation 0)", "double precision, not covered"
DISCRETE = "exact on a lattice, with discrete noise"

_ARITHMETIC = {
    EXACT: (
        "Arithmetic is covered: messages are cut to a public grid, the noise is drawn as a real number and correctly "
        "rounded to it, and sums on the grid are exact. The operating system's random bits are assumed to be random."
    ),
    DISCRETE: (
        "Arithmetic is covered: messages are cut to a public grid on which sums are exact, the noise is discrete and drawn "
        "exactly, and delta includes the small loss of privacy compared with real-valued noise. The operating system's "
        "random bits are assumed to be random."
    ),
    DOUBLES: (
        "It does not cover floating-point arithmetic either: the proof is about real numbers, and the last bits of a sum of "
        "doubles can show what was added."
    ),
}


_PERSONS = (
    "Tasks share subjects: one person's rows may be in several tasks, up to all of them, but the promise is about any one "
    "{unit}. A person of k {unit}s is promised less: `guarantee.for_group(k)` says what."
)


@dataclass(frozen=True)
class Bound:
    """Bound of (eps, delta)-differential privacy for one unit under an adjacency.

    Raises ValueError for an unknown unit or adjacency, or for two that do not combine.
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
    """Privacy guarantee of a result, with the papers' claim and the proved bound kept apart.

    Attributes:
        claimed: the bound in the papers' theorem, or None where they state none.
        proved: the bound that is proved, or None where nothing is.
        reason: why it holds, or why nothing is proved, in words.
        arithmetic: :data:`EXACT`, :data:`DISCRETE` or :data:`DOUBLES`; empty where there is no noise.
        mechanisms: the noise laws that it follows from: of every round, and of purchases such as a private clip norm.
        adversary: the attackers against whom it holds, in words.
        shared_subjects: True if one person's rows may be in several tasks.
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
        """Build a guarantee from the fields that :meth:`to_dict` returned."""
        claimed, proved = (None if fields[k] is None else Bound(**fields[k]) for k in ("claimed", "proved"))
        arithmetic, against = fields.get("arithmetic", DOUBLES), fields.get("against", ANYBODY)
        persons = fields.get("shared_subjects", False) is True
        return cls(claimed, proved, fields["reason"], arithmetic, adversary=against, shared_subjects=persons)

    def facts(self) -> dict[str, str]:
        """Return names and texts for tables: the proved bound and, where it differs, the papers' claim."""
        texts = {"proved": str(self.proved) if self.proved else "nothing"}
        if self.claimed and self.claimed != self.proved:
            texts["claimed by the papers"] = str(self.claimed)
        if self.adversary != ANYBODY:
            texts["against"] = self.adversary
        return texts | ({"arithmetic": self.arithmetic} if self.arithmetic else {})

    def _repr_html_(self) -> str:
        return card("Guarantee", self.facts(), self.reason)

    def explain(
        self, audience: str = "analyst", *, organisation: str = "organisation", person: str = "person", group: int = 1
    ) -> str:
        """Explain the guarantee in words: against whom it holds, what it compares, and what it does not cover.

        Args:
            audience: "analyst", with eps and delta; or "board", for people who decide whether an organisation takes part:
                patients first, and odds in plain words.
            organisation: for a board, the word for a task, such as "hospital".
            person: for a board, the word for the people in the data, such as "patient".
            group: for a board, the number of tasks that belong together, such as the hospitals of one owner.

        Raises:
            ValueError: another audience; for a board, a guarantee that is not about whole tasks; or a group below 1.
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
        """Return the promise to one task, or to a group of tasks, for the words to a board.

        Raises:
            ValueError: a guarantee of another unit than whole tasks, one without its noise laws, or a group below 1.
        """
        if self.unit != Unit.TASK:
            raise ValueError(f"guarantee: expected one that protects whole tasks for a board, got one of a {self.unit}")
        whole("group", group)
        if self.proved is None or self.proved.delta >= 1:
            return board.Promise(Adjacency.REPLACE, None, self.reason, group)
        profile, delta = self.for_group(group), self.proved.delta
        epsilon = self.proved.epsilon * group if group == 1 or delta == 0 else profile.epsilon(delta)
        exception = profile.exceeding(epsilon) if np.isfinite(epsilon) and delta > 0 else 0.0
        most = float(expit(epsilon))
        typical = float(expit(profile.median()))
        odds = board.Odds(most, exception, typical if exception else min(typical, most))
        return board.Promise(Adjacency.of(self.proved.adjacency), odds, self.reason, group)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for :meth:`from_dict`, without the noise laws."""
        claimed, proved = (None if bound is None else asdict(bound) for bound in (self.claimed, self.proved))
        fields = {"claimed": claimed, "proved": proved, "reason": self.reason, "arithmetic": self.arithmetic}
        fields |= {} if self.adversary == ANYBODY else {"against": self.adversary}
        return fields | ({"shared_subjects": True} if self.shared_subjects else {})

    @property
    def curve(self) -> PrivacyProfile:
        """The proved privacy profile, delta at every eps.

        Raises ValueError where nothing is proved, or where the noise laws are not known. A guarantee that was read from a
        posterior's file does not know them; that of its release does.
        """
        self._check_mechanisms()
        assert self.proved is not None
        return compute_profile(self.mechanisms, self.proved.adjacency)

    def delta(self, epsilon: float) -> float:
        """Return the proved delta at another eps. Raises ValueError where nothing is proved."""
        return self.curve.delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return the proved eps at another delta; inf if there is none. Raises ValueError where nothing is proved."""
        return self.curve.epsilon(delta)

    def tradeoff(self, false_alarms: ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the trade-off curve: the least type II errors of any test; see :meth:`PrivacyProfile.tradeoff`."""
        return self.curve.tradeoff(false_alarms)

    def for_group(self, k: int) -> PrivacyProfile:
        """Return the privacy profile of k units that belong together (group privacy). Raises ValueError for k < 1."""
        return self.curve.for_group(k)

    def gdp(self) -> float:
        """Return mu of Gaussian differential privacy: no test does better than one of N(0, 1) against N(mu, 1).

        Raises ValueError where nothing is proved, or for other than Gaussian noise.
        """
        mu = self.curve.gdp
        if mu is None:
            others = ", ".join(dict.fromkeys(law.kind for law in self.mechanisms))
            raise ValueError(
                f"guarantee: expected one of Gaussian noise, which alone is proved to have mu, rho and Renyi numbers, got "
                f"{others}; use guarantee.curve for its privacy profile, or make the release with mechanism='gaussian'"
            )
        return mu

    def zcdp(self) -> float:
        """Return rho of zero-concentrated differential privacy, mu^2 / 2. Raises ValueError as :meth:`gdp` does."""
        return self.gdp() ** 2 / 2

    def renyi(self, order: float) -> float:
        """Return eps of Renyi differential privacy at an order above 1, order mu^2 / 2.

        Raises ValueError for an order of 1 or less, and as :meth:`gdp` does.

        Source: Bun and Steinke (2016), Lemma 2.4; Mironov (2017), Proposition 7.
        """
        return in_range("order", order, 1, np.inf) * self.zcdp()

    def to_dp_event(self) -> Any:
        """Return the proved guarantee as a ``DpEvent``, which dp-accounting's accountants compose with other spending.

        Gaussian noise becomes a ``GaussianDpEvent``, which loses nothing. The event uses this guarantee's own neighbouring
        relation. So use an accountant with its default relation, whatever the adjacency is here: the default does not double
        the sensitivity. Any other noise becomes an ``EpsilonDeltaDpEvent``, one point of the curve, which composes less
        tightly than a ledger of this library; dp-accounting has this event since the version after 0.6.0.

        Raises:
            ValueError: nothing is proved, the noise laws are not known, or the installed dp-accounting has no such event.
        """
        self._check_mechanisms()
        assert self.proved is not None
        return dp_event(self.mechanisms, self.proved.adjacency, self.proved.epsilon, self.proved.delta)

    def plot(self, axes: Any = None) -> Any:
        """Plot delta(eps) and the trade-off curve, and return the two matplotlib axes."""
        return self.curve.plot(axes)

    def membership_odds(self, prior: float = 0.5) -> MembershipOdds:
        """Return membership-inference odds: how far the strongest attacker's belief that a task took part can move.

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
            raise ValueError("guarantee: expected one that knows its noise laws, got none; use that of its release")

    @property
    def unit(self) -> Unit:
        """The unit of privacy, such as a "task" or a "row" of one."""
        bound = self.proved or self.claimed
        return Unit.TASK if bound is None else Unit.of(bound.unit)

    def _promise(self) -> str:
        if self.proved is None:
            return "Nothing is proved about this result. Treat it as if it showed every task's model."
        if self.proved.delta >= 1:
            return "At this eps nothing is promised: delta = 1. Treat the result as if it showed every task's model."
        if self.proved.epsilon == 0 and self.proved.delta == 0:
            return "No task can learn anything about another: nothing was shared."
        factor = np.exp(min(self.proved.epsilon, 700.0))
        neighbour = self.unit.compared(Adjacency.of(self.proved.adjacency))
        return (
            f"Take any one {self.unit.any_one}, and any conclusion that somebody might draw from the release: {neighbour}, "
            f"the probability of that conclusion would have been the same up to a factor of {factor:.3g} "
            f"(e^eps, eps = {self.proved.epsilon:.3g}), except for a probability of at most {self.proved.delta:.2g} (delta). "
            f"As a test: assume an attacker who tries to recognise the {self.unit} and accepts one false alarm in twenty. "
            f"They recognise a {self.unit} that is there at most {_power(self.proved):.0%} of the time."
        )

    def _odds(self) -> str:
        participants = (Unit.TASK, Unit.PERSON)  # the odds address a reader who may have taken part
        if self.proved is None or not self.mechanisms or self.unit not in participants or self.proved.delta >= 1:
            return ""
        return str(self.membership_odds())

    def _papers(self) -> str:
        if self.claimed is None or self.claimed == self.proved:
            return ""
        return (
            f"The papers claim eps = {self.claimed.epsilon:.3g} with delta = {self.claimed.delta:.3g} for this mechanism. "
            f"That claim differs from the guarantee stated above, and must not be quoted without it."
        )


def _power(bound: Bound, false_alarms: float = 0.05) -> float:
    """Return the largest true-positive rate of any test at a false-positive rate, from both directions of (eps, delta)."""
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
    """Return the guarantee of the composed mechanisms at the given eps.

    Args:
        mechanisms: one per round.
        epsilon: where the true delta is computed.
        adjacency: "replace" or "zero_out".
        claimed: the papers' claim, if there is one.
        seeded: the noise came from a seed. Whoever knows the seed can subtract the noise, so nothing is proved.
        unit: the unit that the mechanisms protect, such as a "task" or a "row".
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
    adversary = next((law.adversary for law in laws if law.adversary), ANYBODY)
    return Guarantee(claimed, Bound(epsilon, true_delta, adjacency, unit), reason, arithmetic, laws, adversary)


def _reason(laws: Sequence[Mechanism], adjacency: str) -> str:
    rounds = Counter(type(law) for law in laws)
    return " ".join(dict.fromkeys(law.justification(adjacency, rounds[type(law)]) for law in dict.fromkeys(laws)))
