"""A curator's inbox: which participants have answered, and whether what they sent is theirs and of this study."""

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
    """Messages of all who take part, one of each.

    Attributes:
        schema: of the study.
        messages: by their participants' ids, in order.
        without: ids of those who did not answer, and are not counted.
        terms: of the release of these messages.
    """

    schema: Schema
    messages: tuple[Message, ...]
    without: tuple[str, ...]
    terms: Terms

    def __repr__(self) -> str:
        return f"Inbox({len(self.messages)} messages, {len(self.without)} did not answer)"

    @property
    def vectors(self) -> FloatArray:
        """(D, m), on the grid of the release."""
        W = np.stack([each.vector for each in self.messages], axis=1)
        return lattice.sent(W, self.terms.clip, self.terms.lattice)


def collect(schema: Schema, place: str | os.PathLike[str], *, without: Sequence[str] = (), key: Any = None) -> Inbox:
    """Read all messages of a folder, and check that there is one of everybody.

    Args:
        schema: of the study.
        place: a folder of files that end in .json.
        without: ids of those who did not answer: the release is of fewer, with the noise and delta that belong to that.
        key: the curator's private one, where messages are encrypted.

    Raises:
        ValueError: a file that is no message of this study, two of one participant, or none of somebody; all that is wrong is
            named. Nothing was charged.
        FileNotFoundError: no such folder.
    """
    folder = Path(place)
    if not folder.is_dir():
        raise FileNotFoundError(f"messages: expected a folder of them, got {os.fspath(place)!r}")
    gone = tuple(dict.fromkeys(map(label_text, without)))
    if others := [name for name in gone if schema.participants and name not in schema.participants]:
        raise ValueError(f"without: expected ids of the study's participants, got {', '.join(others)}")
    files, problems = sorted(folder.glob("*.json")), []
    there: dict[str, list[tuple[Path, Message]]] = {}
    for file in files:
        try:
            one = Message.load(schema, file, key)
        except ValueError as error:
            problems.append(str(error))
            continue
        there.setdefault(one.participant, []).append((file, one))
    for name, several in there.items():
        if len(several) > 1:
            same = "the same" if len({one.nonce for _, one in several}) == 1 else "another"
            listed = ", ".join(repr(file.name) for file, _ in several)
            problems.append(
                f"{name} has sent {len(several)} messages, {same} each time: {listed}; keep one, as it says"
            )
    problems += _missing(schema, there, gone, len(files))
    if problems:
        raise ValueError("messages: expected one of every participant:\n  " + "\n  ".join(problems))
    found = tuple(there[name][0][1] for name in sorted(there))
    return Inbox(schema, found, gone, schema.terms(absent=len(gone)))


def _missing(schema: Schema, there: dict[str, list[Any]], gone: Sequence[str], files: int) -> list[str]:
    """What is said of those who have not answered, and of those who have although they are left out."""
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
                f"{files} files of {due}, none of {listed}; wait for them, or say --without where they will never come"
            )
    elif len(there) != due:
        out.append(
            f"{len(there)} participants of {due}; a study whose file lists participants can say which are missing"
        )
    return out
