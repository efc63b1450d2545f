"""Several rounds of one release: how many, what counts as an answer, and what is left where one fails."""

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

#: "auto" takes a second round with so many tasks, and where the average eigenvalue of their second moment is so many times
#: what one round's noise moves it by. On made-up data 20 or 50 tasks gained nothing by it, and 139 and more did.
MANY_TASKS = 100
SHOWN = 1.5

Respond = Callable[["Release"], ArrayLike]


def _check(respond: object, shape: tuple[int, int]) -> None:
    """Raise ValueError for what cannot answer, as far as that is known before anything is paid for.

    It is not asked for a rehearsal: one that counts its calls, draws from a generator or writes to owners would answer the
    real rounds otherwise than without, and messages that are off by one round are worse than an error.

    Args:
        respond: as the user gave it. Its attribute ``shape``, if it has one, says what shape its answers have.
        shape: of the messages, (d, m).
    """
    function("respond", respond, "from the release so far to the next messages")
    said = getattr(respond, "shape", shape)
    if said != shape:
        raise ValueError(f"respond: expected one whose messages have shape {shape}, got one for {said}")


def how_many(
    rounds: int | str, shape: tuple[int, int], respond: Respond | None, one_round: Callable[[], Wishart] | None
) -> int:
    """T, a number or "auto".

    Args:
        rounds: as the user gave it.
        shape: of the messages, (d, m).
        respond: answers a round; None if nobody does.
        one_round: the noise that one round would have; None for a law of one's own, which "auto" draws once.

    Raises:
        ValueError: later rounds that nobody can answer, or anything but a whole number >= 1 or "auto".
    """
    answered, num_tasks = respond is not None, shape[1]
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
    average = num_tasks * law.clip**2 / law.num_features  # eigenvalue of A
    return 2 if average >= SHOWN * law.operator_norm else 1


def checked_answer(answer: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """An answer's messages; one with a cell that is no finite number is silent, as the round is paid for already.

    Raises ValueError for another shape. To go on without an answer would let whatever made its shape reach all messages.
    """
    try:
        cells = np.asarray(answer, dtype=object)
    except ValueError:  # NumPy's words might show some of it
        raise ValueError(f"respond: expected messages of shape {shape}, got {shown(answer)}") from None
    if cells.shape != shape:
        raise ValueError(f"respond: expected messages of shape {shape}, got {cells.shape}")
    W = np.array([_number(cell) for cell in cells.ravel()]).reshape(shape)
    return np.where(np.isfinite(W).all(axis=0), W, 0.0)


def _number(cell: Any) -> float:
    """Of its own cell alone; an error would tell of one task."""
    try:
        return np.nan if isinstance(cell, str | bytes | complex) else float(cell)
    except Exception:  # of a cell, which may be any object
        return np.nan


@contextmanager
def attach_paid_release(release: object) -> Iterator[None]:
    """An error or an interrupt does not lose what is paid for: it is the error's attribute ``release``."""
    try:
        yield
    except BaseException as error:
        error.release = release  # type: ignore[attr-defined]
        error.add_note("The release is paid for, and not lost: it is this error's attribute `release`.")
        raise


__getattr__ = former_names(__name__, {"kept": "attach_paid_release"})
