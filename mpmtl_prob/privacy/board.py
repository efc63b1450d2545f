"""Explanation of a guarantee for a board that decides whether an organisation takes part: patients first, no formulas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.words import plural
from mpmtl_prob.privacy.units import Adjacency

#: The largest probability that is told as a number.
_MOST_TOLD = 0.99


class Words(NamedTuple):
    """A study's own words for tasks and rows.

    Attributes:
        task: word for a participant, such as "hospital".
        row: word for the people in its data, such as "patient".
    """

    task: str = "organisation"
    row: str = "person"

    @property
    def rows(self) -> str:
        """The plural of a row."""
        return plural(self.row)


class Odds(NamedTuple):
    """Membership-inference odds: how far the belief of an attacker can move who found both answers equally likely.

    Attributes:
        most: the attacker's probability of the truth after the release, except in rare cases.
        exception: the largest possible frequency of these rare cases.
        typical: a bound of the median of the attacker's probability of the truth.
    """

    most: float
    exception: float
    typical: float


class Promise(NamedTuple):
    """Privacy promise to one task, or to a group of tasks.

    Attributes:
        adjacency: neighbouring relation of the guarantee.
        odds: how far an attacker's belief can move; None where nothing is promised.
        reason: why the promise holds, in words.
        group: number of tasks that belong together, such as the hospitals of one owner.
    """

    adjacency: Adjacency
    odds: Odds | None
    reason: str
    group: int = 1


def paragraphs(promise: Promise, say: Words) -> list[tuple[str, str]]:
    """Return headings and paragraphs that explain a promise to whole tasks, in a study's words."""
    patients = (
        f"No {say.row}'s record leaves the {say.task}. The {say.task} sends one short list of numbers about all of its "
        f"{say.rows} together: estimates, and how exact they are. The numbers of these lists, and their products, are added "
        f"up over all {plural(say.task)}, and random noise is added. Only the noisy sums are published. "
    )
    if promise.odds is None:
        return [
            (
                f"Your {say.rows}",
                patients + "Nothing is proved about this result: treat it as if it showed those numbers.",
            ),
            ("Why", promise.reason),
        ]
    if promise.adjacency == Adjacency.REPLACE:
        # one record that is different makes the hospital's records different, which is what the guarantee compares
        promised = (
            f"The promise protects all records of the {say.task} together. One {say.row}'s record is a part of them, so that "
            f"it is protected at least as well. If the {say.task} had had any other records"
        )
    else:
        promised = f"The promise protects all records of the {say.task} together. If the {say.task} had not taken part"
    promised += (
        f", each result that might be published would have had a similar probability{_factor(promise.odds.most)}."
    )
    return [
        (f"Your {say.rows}", patients + promised),
        ("How much can be learnt", _learnt(promise, promise.odds, say)),
        ("What is not promised", _not_promised(say)),
    ]


def _factor(most: float) -> str:
    """Return by how much probabilities differ, in words; nothing where that is more than a hundred times."""
    factor = most / (1 - most) if most < 1 else np.inf
    rounded_up = np.ceil(factor * 100 - 1e-9) / 100
    return f", at most {rounded_up:.3g} times as large or as small, rare exceptions aside" if factor < 100 else ""


def _learnt(promise: Promise, odds: Odds, say: Words) -> str:
    one = f"one {say.task}" if promise.group == 1 else f"{promise.group} {plural(say.task)} that belong together"
    knowledge = (
        f"knows everything except the records of {one}. Of these the attacker has two versions, a true one and a false one"
        if promise.adjacency == Adjacency.REPLACE
        else f"knows everything, also the records of {one}, but not whether these are in the study or were left out"
    )
    sentences = [
        f"Assume an attacker who {knowledge}, and cannot tell which is right: 50 % each. After reading everything that is "
        f"published, however much they compute, they {_gives(odds.most)}.",
    ]
    sentences.append(_exception(odds.exception))
    if odds.typical <= _MOST_TOLD:
        sentences.append(f"In half of all cases it is no more than {at_most(odds.typical)}.")
    if promise.adjacency == Adjacency.REPLACE:
        # of a version that was thought p likely the odds grow by no more than those of one half
        guess = 0.01
        after = odds.most * guess / (odds.most * guess + (1 - odds.most) * (1 - guess))
        if after <= _MOST_TOLD:
            sentences.append(
                "Attackers who know less have more than two versions to choose from. One that they "
                f"believed {about(guess)} likely becomes at most {at_most(after)} likely, with the same exception."
            )
    return " ".join(sentences)


def _gives(most: float) -> str:
    if most > _MOST_TOLD:
        return f"may give the right one a probability of {bound(most)}"
    return f"give the right one a probability of {bound(most)}"


def about(share: float) -> str:
    """Return a probability in per cent, to the nearest, but never as a certainty."""
    if share > _MOST_TOLD:
        return "more than 99 %"
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def at_most(share: float) -> str:
    """Return a bound of a probability in per cent, rounded up, and never to a certainty; near one half to a decimal."""
    places = 1 if 0.5 < share < 0.505 else 0
    up = np.ceil(100 * share * 10**places - 1e-9) / 10**places  # what rounding errors add is no more of a promise
    return "more than 99 %" if share > _MOST_TOLD else f"{up:.{places}f} %"


def bound(share: float) -> str:
    """Return "at most 73 %", or that so much is possible that little is promised."""
    return f"{at_most(share)}, so that little is promised" if share > _MOST_TOLD else f"at most {at_most(share)}"


def to_group(odds: Odds) -> str:
    """Return an attacker's probability of the truth about a group, and how often it may be more."""
    return f"a probability of {bound(odds.most)}. {_exception(odds.exception)}"


def _exception(chance: float) -> str:
    """Return a sentence about how often the odds may be exceeded; its number is rounded to the cautious side."""
    if chance <= 0:
        return "There is no exception."
    if chance < 1e-12:
        return "The random noise can make it more with a probability of less than one in a trillion."
    if chance > 0.5:
        return "It can be more, and nothing useful is promised about how often."
    in_so_many = 1 / chance
    digits = 10 ** max(int(np.floor(np.log10(in_so_many))) - 1, 0)
    in_words = f"one in {int(in_so_many // digits) * digits:,}"
    return f"The random noise can make it more with a probability of at most {in_words}."


def _not_promised(say: Words) -> str:
    article = "an" if say.task[0].lower() in "aeiou" else "a"
    return " ".join(
        [
            f"That {article} {say.task} takes part is usually known, and is not kept secret. The study publishes its "
            f"findings on purpose: if it finds that older {say.rows} stay longer, people will suppose so of yours too, as "
            "after any study.",
            f"Whoever adds up the lists sees the list of each {say.task}, unless they are added up under masks (secure "
            f"aggregation). The promise is no help against people who already have records of the {say.task}. If the "
            f"{say.task} computes further results from its own records and shows them, the promise does not cover these.",
            f"The {plural(say.task)} of one owner, as a group, have a weaker promise than each. Every further study of the "
            "same records reveals a little more. The curator's ledger adds up the releases of this curator, and refuses one "
            "beyond an agreed total. It does not count studies elsewhere.",
        ]
    )
