"""Spoil an argument of a call that pays from a ledger, and see whether something is charged before it is refused.

Every call with an argument ``ledger``, every argument, many values; numbers of any size; pairs of spoilt arguments; what a
user's function answers; command lines.
"""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from helpers.charges import Endless, Outcome, commands, doors, fault, tried, values

import mpmtl_prob as mp
from attacks import Case
from mpmtl_prob import cli
from mpmtl_prob.inference import posterior_draws
from mpmtl_prob.privacy import Ledger

ADAPTATION = "an argument of a private adaptation is spoilt"
OTHERS = "an argument of a release, an estimator, the door or a federated run is spoilt"
SIZES = "a number of any size is given"
PAIRS = "two arguments are spoilt at once"
ANSWERS = "what answers a round cannot, or answers something else"
COMMANDS = "an option of a command line is spoilt"
WAYS = (ADAPTATION, OTHERS, SIZES, PAIRS, ANSWERS, COMMANDS)

_SECONDS = 20.0  # after which a call of these sizes has no end
#: Not given here: older versions ask for all that memory at once.
_TOO_LARGE = "more than memory"
#: Arguments that are numbers, but not counts, in which a large one is work.
_COUNTS = {
    "steps",
    "size",
    "vectors",
    "rounds",
    "draws",
    "chains",
    "warmup",
    "hidden",
    "seed",
    "unsafe_seed",
    "runs",
    "which",
}


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Yield an attempt for every call and argument with every value, then random ones."""
    jax.config.update("jax_enable_x64", True)
    every = {name: door for name, door in doors().items() if door.often is None}
    walk = [
        (name, argument, label) for name, door in every.items() for argument in door.arguments for label in values()
    ]
    walk = [each for each in walk if each[2] != _TOO_LARGE]
    for i in rng.permutation(len(walk))[: max(int(effort * len(walk)), 40)]:
        name, argument, label = walk[i]
        outcome = _ended(every[name], **{argument: values()[label]})
        way = ADAPTATION if name.startswith("adaptation") else OTHERS
        yield _case(way, name, {argument: label}, outcome)
    names = list(every)
    for _ in range(max(int(6000 * effort), 20)):
        name = names[rng.integers(len(names))]
        yield from _of_any_size(rng, name, every[name])
    for _ in range(max(int(6000 * effort), 20)):
        name = names[rng.integers(len(names))]
        arguments = every[name].arguments
        labels = [label for label in values() if label != _TOO_LARGE]
        pair = {str(a): str(rng.choice(labels)) for a in rng.permutation(arguments)[:2]}
        outcome = _ended(every[name], **{argument: values()[label] for argument, label in pair.items()})
        yield _case(PAIRS, name, pair, outcome)
    yield from _answers()
    yield from _commands(effort)


def _of_any_size(rng: np.random.Generator, name: str, door: Any) -> Iterator[Case]:
    arguments = [argument for argument in door.arguments if argument not in _COUNTS]
    argument = str(rng.choice(arguments))
    value = float(10.0 ** rng.uniform(-60, 60) if rng.random() < 0.8 else 10.0 ** rng.uniform(-320, 308))
    outcome = _ended(door._replace(ledger={**door.ledger, "epsilon": 1e300}), **{argument: value})
    yield _case(SIZES, name, {argument: f"{value:.3g}"}, outcome)


def _case(way: str, name: str, spoilt: dict[str, str], outcome: Outcome) -> Case:
    fell = all(fault(name, outcome, argument) for argument in spoilt)
    return Case(
        way,
        not fell,
        f"{name}({spoilt}): {outcome.charges} charged, {type(outcome.error).__name__}: {outcome.error}"[:300],
    )


@contextmanager
def _clock() -> Iterator[None]:
    """Raise :class:`Endless` in whatever takes too long."""

    def late(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ended(door: Any, **bad: Any) -> Outcome:
    with _clock(), contextlib.redirect_stderr(io.StringIO()):
        return tried(door, **bad)


def _answers() -> Iterator[Case]:
    """Yield answers that are none, which must not be paid for, and wrong ones, which must keep the rounds so far."""
    rng = np.random.default_rng(0)
    tasks, others = (
        mp.TaskData.from_lists(list(rng.standard_normal((m, 5, 2))), list(rng.standard_normal((m, 5)))) for m in (6, 4)
    )
    ones = np.ones((2, 6))
    unable = {
        "a number": 3,
        "a word": "a",
        "of nothing": lambda: ones,
        "of two": lambda a, b: ones,
        "others'": posterior_draws(others),
    }
    odd = {"transposed": ones.T, "nothing": None, "a word": "a", "ragged": [[1.0], [1.0, 2.0]], "a cube": np.ones((2, 6, 1)),
           "texts": np.full((2, 6), "a"), "too few": ones[:, :3], "too many": np.ones((3, 6)), "a scalar": 1.0}  # fmt: skip
    for label, respond in unable.items():
        yield _round(tasks, f"respond is {label}", respond, kept=False)
    for label, answer in odd.items():
        yield _round(tasks, f"the answer is {label}", lambda _, answer=answer: answer, kept=True)


def _round(tasks: mp.TaskData, what: str, respond: Any, *, kept: bool) -> Case:
    book, error = Ledger(epsilon=10.0, delta=0.5), None
    try:
        mp.release(tasks, 1.0, rounds=2, respond=respond, ledger=book)
    except Exception as caught:
        error = caught
    lost = error is not None and book.charges() and not (kept and hasattr(error, "release"))
    return Case(ANSWERS, not lost, f"{what}: {len(book.charges())} charged, {error!r}")


def _commands(effort: float) -> Iterator[Case]:
    for name in ("release", "adapt"):
        with TemporaryDirectory() as folder:
            tries = list(commands(name, Path(folder)))
            for arguments, path in tries[:: max(1, int(0.2 / effort))]:
                said = io.StringIO()
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                    try:
                        status: Any = cli.main(arguments)
                    except (SystemExit, Exception) as end:
                        status = getattr(end, "code", 1)
                charged = bool(path.exists() and Ledger(path).charges())
                yield Case(
                    COMMANDS, charged <= (status == 0), f"{' '.join(arguments[:3])} ... ended with {status}, charged"
                )
