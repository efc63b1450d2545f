"""Rounds of a release: their number, checks of answers, and what is saved when a later round fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, function, one_of, whole
from mpmtl_prob._util.former import former_names
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.privacy.mechanisms import Wishart

if TYPE_CHECKING:
    from mpmtl_prob.releases.release import Release

#: "auto" takes a second round with at least this many tasks, if the average eigenvalue of their second moment is at least
#: SHOWN times the operator norm of one round's noise. In simulations, 20 or 50 tasks gained nothing, and 139 or more did.
MANY_TASKS = 100
SHOWN = 1.5

Respond = Callable[["Release"], ArrayLike]


def _check(respond: object, shape: tuple[int, int]) -> None:
    """Raise ValueError for a ``respond`` that cannot work, as far as can be known before anything is paid for.

    It is not called for a test: a function that counts its calls, draws from a generator or writes to owners would then
    answer the real rounds differently, and messages that are off by one round are worse than an error.

    Args:
        respond: as the user gave it. Its attribute ``shape``, if it has one, is the shape of its answers.
        shape: shape of the messages, (d, m).
    """
    function("respond", respond, "from the release so far to the next messages")
    shape_of_answers = getattr(respond, "shape", shape)
    if shape_of_answers != shape:
        raise ValueError(f"respond: expected one whose messages have shape {shape}, got one for {shape_of_answers}")


def how_many(
    rounds: int | str, shape: tuple[int, int], respond: Respond | None, one_round: Callable[[], Wishart] | None
) -> int:
    """Return the number of rounds T, from a number or "auto".

    Args:
        rounds: as the user gave it.
        shape: shape of the messages, (d, m).
        respond: function that answers a round; None if there is none.
        one_round: function that returns the noise law of a single round; None for a user's own law, with which "auto" is 1.

    Raises:
        ValueError: later rounds that nobody can answer, or anything but a whole number >= 1 or "auto".
    """
    answered = respond is not None
    num_tasks = shape[1]
    if answered:
        _check(respond, shape)
    if not isinstance(rounds, str):
        T = whole("rounds", rounds, upto=MANY)
        if T > 1 and not answered:
            raise ValueError(
                "respond: expected a function from the release so far to the next messages, with rounds > 1"
            )
        return T
    one_of("rounds", rounds, ("auto",))
    if one_round is None or not answered or num_tasks < MANY_TASKS:
        return 1
    law = one_round()
    average = num_tasks * law.clip**2 / law.num_features  # average eigenvalue of A
    return 2 if average >= SHOWN * law.operator_norm else 1


def checked_answer(answer: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return an answer's messages; one with a cell that is not a finite number becomes zero, as the round is paid for.

    Raises ValueError for another shape: continuing would let the cause of the shape influence all messages.
    """
    try:
        cells = np.asarray(answer, dtype=object)
    except ValueError:  # NumPy's message might show private numbers
        raise ValueError(f"respond: expected messages of shape {shape}, got {shown(answer)}") from None
    if cells.shape != shape:
        raise ValueError(f"respond: expected messages of shape {shape}, got {cells.shape}")
    W = np.array([_number(cell) for cell in cells.ravel()]).reshape(shape)
    return np.where(np.isfinite(W).all(axis=0), W, 0.0)


def _number(cell: Any) -> float:
    """Convert a cell to a number, NaN if it is none; an error would reveal something of one task."""
    try:
        return np.nan if isinstance(cell, str | bytes | complex) else float(cell)
    except Exception:  # a cell may be any object
        return np.nan


@contextmanager
def attach_paid_release(release: object) -> Iterator[None]:
    """Attach a release that is paid for to an error or interrupt, as its attribute ``release``, so that it is not lost."""
    try:
        yield
    except BaseException as error:
        error.release = release  # type: ignore[attr-defined]
        error.add_note("The release is paid for, and not lost: it is this error's attribute `release`.")
        raise


__getattr__ = former_names(__name__, {"kept": "attach_paid_release"})
