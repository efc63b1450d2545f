"""Explanation of a guarantee for a board that decides whether an organisation takes part: patients first, no formulas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob.privacy.units import Adjacency


class Words(NamedTuple):
    """A study's own words for tasks and rows.

    Attributes:
        task: word for a participant, such as "hospital".
        row: word for the people in its data, such as "patient".
    """

    task: str = "organisation"
    row: str = "person"


class Odds(NamedTuple):
    """Membership-inference odds: how far the belief of an attacker can move who found both answers equally likely.

    Attributes:
        most: the attacker's probability of the truth after the release, except in rare cases.
        exception: the largest possible frequency of these rare cases.
        typical: the median of the attacker's probability of the truth; None where it is not known.
    """

    most: float
    exception: float
    typical: float | None


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
        f"{say.row}s together: estimates, and how exact they are. These numbers are added to those of the other "
        f"{say.task}s, and random noise is added to the sum. Only whoever adds the numbers up may see them without noise. "
    )
    if promise.odds is None:
        return [
            (
                f"Your {say.row}s",
                patients + "Nothing is proved about this result: treat it as if it showed those numbers.",
            ),
            ("Why", promise.reason),
        ]
    promised = (
        f"The promise is about the {say.task} as a whole, and so about each of its {say.row}s. Suppose that its records had "
        "been different, or that there had been none: anything that can be computed from the published result would have "
        "been nearly as likely as it is now."
    )
    return [
        (f"Your {say.row}s", patients + promised),
        ("How much can be learnt", _learnt(promise, promise.odds, say)),
        ("What is not promised", _not_promised(say)),
    ]


def _learnt(promise: Promise, moved: Odds, say: Words) -> str:
    one = f"one {say.task}" if promise.group == 1 else f"{promise.group} {say.task}s that belong together"
    typically = "" if moved.typical is None else f" In a typical case they find it {percent(moved.typical)} likely."
    knowledge = (
        f"who knows all data except those of {one}. For these they have two candidates: the true data and other data"
        if promise.adjacency == Adjacency.REPLACE
        else f"who knows all data, also those of {one}, but not whether the latter are in the study or were left out"
    )
    return (
        f"Assume an attacker {knowledge}. Before the release, both possibilities are equally likely to them: 50 %. After "
        "reading everything that is published, and with any computer, they find the true one at most "
        f"{percent(moved.most)} likely.{typically} {_exception(moved.exception)}"
    )


def percent(share: float) -> str:
    """Return a probability in per cent, which is never rounded to a certainty."""
    if share > 0.99:
        return "more than 99 %"
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _exception(chance: float) -> str:
    """Return a sentence about how often the odds may be exceeded; its number is rounded to the cautious side."""
    if chance <= 0:
        return "There is no exception."
    if chance < 1e-12:
        return "By chance it can be more, in less than one case of a trillion."
    if chance > 0.5:
        return "It can be more, and nothing useful is promised about how often."
    in_so_many = 1 / chance
    digits = 10 ** max(int(np.floor(np.log10(in_so_many))) - 1, 0)
    return f"By chance it can be more, in at most one case of {int(in_so_many // digits) * digits:,}."


def _not_promised(say: Words) -> str:
    return " ".join(
        [
            f"It is usually known that a {say.task} takes part, and this is not kept secret. The study publishes its "
            f"findings on purpose: if it finds that older {say.row}s stay longer, this is then known about yours too, as "
            "after any study.",
            f"The {say.task} still has its {say.row}s' records. Whoever adds up the lists sees them, unless they are added "
            f"up under masks (secure aggregation). If the {say.task} computes further results from its own records and "
            "shows them, the promise does not cover these.",
            f"Several {say.task}s that belong together are promised less than one. Every further study of the same records "
            "reveals a little more, and a ledger keeps count.",
        ]
    )
