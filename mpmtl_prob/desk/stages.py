"""Stages of a run without a curator as files: messages between the server and a participant.

    {"format": ..., "study": hash, "run": hex, "stage": name, "from": id, "to": id, "message": {...}, "checksum": sha256}

Anybody may carry these files: secrets in them are masked, or encrypted so that only their readers can open them
(:mod:`mpmtl_prob.federated.secure_sum`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpmtl_prob._util.files import each_once, text_of_file, write_text
from mpmtl_prob.federated.flower import wire
from mpmtl_prob.federated.invitation import Invitation
from mpmtl_prob.federated.protocol import Message
from mpmtl_prob.schema.sections import UNSAID

FORMAT = "mpmtl-prob stage 1"
#: Size in bytes of the largest file that is read: ten times that of a masked sum for a thousand coefficients.
_LARGEST = 200_000_000


@dataclass(frozen=True, repr=False)
class Stage:
    """Message of one side at one stage.

    Attributes:
        study: hash of the study's file.
        run: name of the run, hexadecimal.
        stage: name of the stage in the protocol.
        sender: id of the participant, or "server".
        receiver: likewise.
        message: byte strings by name.
        invitation: the server's invitation; None in a participant's message.
    """

    study: str
    run: str
    stage: str
    sender: str
    receiver: str
    message: Message
    invitation: Invitation | None = None

    def __repr__(self) -> str:
        return f"Stage({self.stage!r}, from {self.sender} to {self.receiver})"

    @property
    def name(self) -> str:
        """Name of its file."""
        parts = self.run[:8], self.stage, "from", self.sender, "to", self.receiver
        return "-".join(map(_of_a_file, parts)) + ".json"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write it to a folder (mode 0600), and return its path."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "study": self.study,
            "run": self.run,
            "stage": self.stage,
            "from": self.sender,
            "to": self.receiver,
            "message": {name: base64.b64encode(text).decode() for name, text in self.message.items()},
            "invitation": None if self.invitation is None else wire.write(self.invitation).decode(),
        }
        place = Path(folder) / self.name
        write_text(place, json.dumps(content | {"checksum": _checksum(content)}) + "\n", private=True)
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str], study: str) -> Stage:
        """Read a file that :meth:`save` wrote. Raises ValueError for a file of another study, or an edited one."""
        name = repr(os.fspath(path))
        try:
            content = json.loads(text_of_file(path, _LARGEST), object_pairs_hook=each_once)
            checksum = content.pop("checksum")
            texts = [content[key] for key in ("study", "run", "stage", "from", "to")]
            if content["format"] != FORMAT or not all(
                isinstance(text, str) and not UNSAID.search(text) for text in texts
            ):
                raise ValueError(name)
            message = {str(key): base64.b64decode(text, validate=True) for key, text in content["message"].items()}
            invited = None if content["invitation"] is None else wire.read(content["invitation"].encode())
        except FileNotFoundError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
            raise ValueError(f"{name} holds no stage of a run of mpmtl-prob") from None
        if checksum != _checksum(content):
            raise ValueError(f"{name}: it was edited or damaged since it was made; ask for it again")
        if texts[0] != study:
            raise ValueError(
                f"{name}: made with another study file (its hash is {texts[0][:12]}, this one's {study[:12]})"
            )
        study_of, run, stage, sender, receiver = texts
        if invited is not None and invited.agreed.run.hex() != run:
            raise ValueError(f"{name}: expected an invitation to the run that it is of, got one to another")
        return cls(study_of, run, stage, sender, receiver, message, invited)


def _of_a_file(text: str) -> str:
    """Convert text to a part of a file's name: an id comes from another party's file, and must not act as a path."""
    safe = re.sub(r"[^\w.]", "_", text)
    return safe if safe == text else f"{safe}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _checksum(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def read_folder(folder: str | os.PathLike[str], study: str) -> list[Stage]:
    """Read all stages in a folder, in the order of their names. Raises ValueError with a list of all problems."""
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"inbox: expected a folder, got {os.fspath(folder)!r}")
    stages: list[Stage] = []
    problems: list[str] = []
    for path in sorted(place.glob("*.json")):
        try:
            stages.append(Stage.load(path, study))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("inbox: expected stages of this study's run:\n  " + "\n  ".join(problems))
    return stages
