"""A guarantee in the words of a board that decides whether an organisation takes part: patients first, and no formulas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob.privacy.units import Adjacency


class Words(NamedTuple):
    """What a study calls things.

    Attributes:
        task: whoever takes part, such as "hospital".
        row: whom its data are about, such as "patient".
    """

    task: str = "organisation"
    row: str = "person"


class Odds(NamedTuple):
    """How far somebody's belief can move who held something for as likely as not.

    Attributes:
        most: the probability that is hardly ever passed.
        exception: how often it is passed at most.
        typical: the probability afterwards in the middle of all cases; None where it is not known.
    """

    most: float
    exception: float
    typical: float | None


class Promise(NamedTuple):
    """What is promised to a task, or to several that belong together.

    Attributes:
        adjacency: what its data are compared with.
        odds: how far a belief can move; None where nothing is promised.
        reason: why, in words.
        group: how many tasks belong together, such as the hospitals of one owner.
    """

    adjacency: Adjacency
    odds: Odds | None
    reason: str
    group: int = 1


def paragraphs(promise: Promise, say: Words) -> list[tuple[str, str]]:
    """Return headings and paragraphs about a promise to whole tasks, in a study's words."""
    patients = (
        f"No {say.row}'s record leaves the {say.task}. What leaves it is one short list of numbers about all of its "
        f"{say.row}s together: estimates, and how exact these are. They are added to those of the other {say.task}s, "
        "and random noise is added to the sum before anybody sees it who takes no part in the adding. "
    )
    if promise.odds is None:
        return [
            (
                f"Your {say.row}s",
                patients + "Of this result nothing is proved: treat it as if it showed those numbers.",
            ),
            ("Why", promise.reason),
        ]
    promised = (
        f"The promise is about the {say.task} as a whole, and so about each of its {say.row}s: with any others in "
        "their place, none of them or quite different ones, everything that anybody could compute from what is "
        "published would have come out nearly as likely as it did."
    )
    return [
        (f"Your {say.row}s", patients + promised),
        ("How much can be learnt", _learnt(promise, promise.odds, say)),
        ("What is not promised", _not_promised(say)),
    ]


def _learnt(promise: Promise, moved: Odds, say: Words) -> str:
    one = f"one {say.task}" if promise.group == 1 else f"{promise.group} {say.task}s that belong together"
    typically = "" if moved.typical is None else f" Typically it would be {percent(moved.typical)}."
    unknown = (
        f"which of two sets of data are those of {one}, the true ones or others"
        if promise.adjacency == Adjacency.REPLACE
        else f"whether the data of {one} are in it or were left out"
    )
    return (
        f"Suppose that somebody knows everything but {unknown}, and holds either for as likely as the other: 50 %. "
        "Having read all that is published, and with any computer, they would hold the truth for at most "
        f"{percent(moved.most)} likely.{typically} {_exception(moved.exception)}"
    )


def percent(share: float) -> str:
    """Return a share in words, of which no rounding makes a certainty."""
    if share > 0.99:
        return "more than 99 %"
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _exception(chance: float) -> str:
    if chance < 1e-12:
        return "There is no exception."
    in_so_many = 1 / chance
    digits = 10 ** max(int(np.floor(np.log10(in_so_many))) - 1, 0)
    return f"By chance it is more in one case of {int(in_so_many // digits) * digits:,} at most."


def _not_promised(say: Words) -> str:
    return " ".join(
        [
            f"That a {say.task} takes part is usually known, and is no secret here. What the study finds is published on "
            f"purpose: if it is that older {say.row}s stay longer, that is then known of yours too, as after any study.",
            f"The {say.task} itself has its {say.row}s' records, as before. Whoever adds up the lists sees them, "
            f"unless they are added up under masks. What the {say.task} makes of the result with its own records is "
            "its own, and is promised nothing once it is shown.",
            f"Several {say.task}s that belong together are promised less than one, and every further study on the same "
            "records adds to what can be learnt: a ledger keeps count.",
        ]
    )
