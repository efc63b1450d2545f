"""Several rounds of one release: how many, what counts as an answer, and what is left where one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import numbers, one_of, whole
from mpmtl_prob.privacy.laws import Wishart
from mpmtl_prob.tasks import FloatArray

if TYPE_CHECKING:
    from mpmtl_prob.releases.release import Release

#: "auto" takes a second round with so many tasks, and where the average eigenvalue of their second moment is so many times
#: what one round's noise moves it by. On made-up data 20 or 50 tasks gained nothing by it, and 139 and more did.
MANY_TASKS = 100
SHOWN = 1.5

Respond = Callable[["Release"], ArrayLike]


def how_many(rounds: int | str, num_tasks: int, answered: bool, one_round: Callable[[], Wishart] | None) -> int:
    """T, a number or "auto".

    Args:
        rounds: as the user gave it.
        num_tasks: m.
        answered: somebody can answer a round.
        one_round: the noise that one round would have; None for a law of one's own, which "auto" draws once.

    Raises:
        ValueError: later rounds that nobody answers, or anything but a whole number >= 1 or "auto".
    """
    if not isinstance(rounds, str):
        if whole("rounds", rounds) > 1 and not answered:
            raise ValueError(
                "respond: expected a function from the release so far to the next messages, with rounds > 1"
            )
        return rounds
    one_of("rounds", rounds, ("auto",))
    if one_round is None or not answered or num_tasks < MANY_TASKS:
        return 1
    law = one_round()
    average = num_tasks * law.clip**2 / law.num_features  # eigenvalue of A
    return 2 if average >= SHOWN * law.fluctuation else 1


def checked_answer(answer: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """An answer's messages; one that is not finite is silent, as the round is paid for already.

    Raises ValueError for another shape.
    """
    W = numbers("respond", answer)
    if W.shape != shape:
        raise ValueError(f"respond: expected messages of shape {shape}, got {W.shape}")
    return np.where(np.isfinite(W).all(axis=0), W, 0.0)


@contextmanager
def kept(release: Release) -> Iterator[None]:
    """An error or an interrupt does not lose what is paid for: it is the error's attribute ``release``."""
    try:
        yield
    except BaseException as error:
        error.release = release  # type: ignore[attr-defined]
        error.add_note("The release is paid for, and not lost: it is this error's attribute `release`.")
        raise
