"""A stage of a run without a curator as a file: what the server says to a participant, or a participant to the server.

    {"format": ..., "study": hash, "run": hex, "stage": name, "from": id, "to": id, "message": {...}, "checksum": sha256}

What is in it may be passed on by anybody: secrets are under masks and letters that their readers alone open
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
#: Bytes of the largest file that is read: a masked sum of all pairs of a thousand coefficients takes a tenth of it.
_LARGEST = 200_000_000


@dataclass(frozen=True, repr=False)
class Stage:
    """What one side says at one stage.

    Attributes:
        study: hash of the study's file.
        run: name of the run, hexadecimal.
        stage: of the protocol.
        sender: id of the participant, or "server".
        receiver: likewise.
        message: byte strings by name.
        invitation: what the server invites to; of participants, who were invited, None.
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
        """Of its file."""
        parts = self.run[:8], self.stage, "from", self.sender, "to", self.receiver
        return "-".join(map(_of_a_file, parts)) + ".json"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write it to a folder (mode 0600), and return the place."""
        said: dict[str, Any] = {
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
        write_text(place, json.dumps(said | {"checksum": _checksum(said)}) + "\n", private=True)
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str], study: str) -> Stage:
        """Read what :meth:`save` wrote. Raises ValueError for a file that is none of this study, or was edited."""
        name = repr(os.fspath(path))
        try:
            said = json.loads(text_of_file(path, _LARGEST), object_pairs_hook=each_once)
            checksum = said.pop("checksum")
            texts = [said[key] for key in ("study", "run", "stage", "from", "to")]
            if said["format"] != FORMAT or not all(isinstance(text, str) and not UNSAID.search(text) for text in texts):
                raise ValueError(name)
            message = {str(key): base64.b64decode(text, validate=True) for key, text in said["message"].items()}
            invited = None if said["invitation"] is None else wire.read(said["invitation"].encode())
        except FileNotFoundError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
            raise ValueError(f"{name} holds no stage of a run of mpmtl-prob") from None
        if checksum != _checksum(said):
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
    """Text as part of a file's name: an id comes from a file that somebody else wrote, and is no path."""
    safe = re.sub(r"[^\w.]", "_", text)
    return safe if safe == text else f"{safe}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _checksum(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def read_folder(folder: str | os.PathLike[str], study: str) -> list[Stage]:
    """Read all stages in a folder, in the order of their names. Raises ValueError, with all that is wrong."""
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"inbox: expected a folder, got {os.fspath(folder)!r}")
    found, problems = [], []
    for path in sorted(place.glob("*.json")):
        try:
            found.append(Stage.load(path, study))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("inbox: expected stages of this study's run:\n  " + "\n  ".join(problems))
    return found
