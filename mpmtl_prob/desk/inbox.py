"""Inbox of a curator: the messages of all participants, checked for their sender and study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.desk.message import Message
from mpmtl_prob.privacy import lattice
from mpmtl_prob.releases.spec import Terms
from mpmtl_prob.schema.schema import Schema

_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Inbox:
    """Messages of all participants, one each.

    Attributes:
        schema: schema of the study.
        messages: messages in the order of the participants' ids.
        without: ids of participants who did not answer, and are not counted.
        terms: terms of the release of these messages.
    """

    schema: Schema
    messages: tuple[Message, ...]
    without: tuple[str, ...]
    terms: Terms

    def __repr__(self) -> str:
        return f"Inbox({len(self.messages)} messages, {len(self.without)} did not answer)"

    @property
    def vectors(self) -> FloatArray:
        """Vectors of all messages, (D, m), on the grid of the release."""
        W = np.stack([message.vector for message in self.messages], axis=1)
        return lattice.sent(W, self.terms.clip, self.terms.lattice)


def collect(schema: Schema, place: str | os.PathLike[str], *, without: Sequence[str] = (), key: Any = None) -> Inbox:
    """Read all messages in a folder, and check that there is one of every participant.

    Args:
        schema: schema of the study.
        place: folder of files that end in .json.
        without: ids of participants who did not answer: the release has fewer messages, with matching noise and delta.
        key: the curator's private key, if messages are encrypted.

    Raises:
        ValueError: a file that is not a message of this study, two messages of one participant, or a missing one. The error
            lists all problems. Nothing was charged.
        FileNotFoundError: the folder does not exist.
    """
    folder = Path(place)
    if not folder.is_dir():
        raise FileNotFoundError(f"messages: expected a folder of them, got {os.fspath(place)!r}")
    absent = tuple(dict.fromkeys(map(label_text, without)))
    if others := [name for name in absent if schema.participants and name not in schema.participants]:
        raise ValueError(f"without: expected ids of the study's participants, got {', '.join(others)}")
    files = sorted(folder.glob("*.json"))
    problems: list[str] = []
    received: dict[str, list[tuple[Path, Message]]] = {}
    for file in files:
        try:
            message = Message.load(schema, file, key)
        except ValueError as error:
            problems.append(str(error))
            continue
        received.setdefault(message.participant, []).append((file, message))
    unread = len(problems)
    for name, several in received.items():
        if len(several) > 1:
            same = "the same" if len({message.nonce for _, message in several}) == 1 else "another"
            listed = ", ".join(repr(file.name) for file, _ in several)
            problems.append(
                f"{name} has sent {len(several)} messages, {same} each time: {listed}; keep the one that it confirms"
            )
    missing = _missing(schema, received, absent, len(files))
    if missing and unread:
        missing.append("a participant whose file is refused above counts as missing")
    shown = problems[:_SHOWN] + ([f"and {len(problems) - _SHOWN} more like these"] if problems[_SHOWN:] else [])
    problems = shown + missing
    if problems:
        raise ValueError("messages: expected one of every participant:\n  " + "\n  ".join(problems))
    messages = tuple(received[name][0][1] for name in sorted(received))
    try:
        terms = schema.terms(absent)
    except ValueError as error:
        if not absent or not schema.covariates:
            raise
        raise ValueError(
            f"without: those who are left have no release ({error}); wait for the others, or agree on a file without this "
            "covariate, for which all send anew"
        ) from None
    return Inbox(schema, messages, absent, terms)


def _missing(schema: Schema, there: dict[str, list[Any]], gone: Sequence[str], files: int) -> list[str]:
    """Describe participants who have not answered, and those who have although they are left out."""
    out = []
    if answered := [name for name in gone if name in there]:
        out.append(
            f"{', '.join(answered)} has answered, and --without is for those who did not: taking somebody out whose message "
            "is there depends on what it says"
        )
    due = schema.num_tasks - len(gone)
    if schema.participants:
        absent = [name for name in schema.participants if name not in there and name not in gone]
        if absent:
            listed = ", ".join(absent[:_SHOWN]) + (f" and {len(absent) - _SHOWN} more" if absent[_SHOWN:] else "")
            out.append(
                f"{files} files of {due}, none of {listed}; wait for them, or say --without if they will never come"
            )
    elif len(there) != due:
        out.append(
            f"{len(there)} participants of {due}; a study whose file lists participants can say which are missing"
        )
    return out
