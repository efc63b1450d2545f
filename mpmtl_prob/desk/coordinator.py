"""Server of a run without a curator, from files: one stage per call, and a sum of which it saw no single part."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpmtl_prob._util.files import write_text
from mpmtl_prob.desk.stages import Stage, read_folder
from mpmtl_prob.federated.flower import wire
from mpmtl_prob.federated.invitation import Invitation, invite
from mpmtl_prob.federated.protocol import Message, Sending, serve, settle
from mpmtl_prob.federated.secure_sum import Vector
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.release import Release
from mpmtl_prob.schema.schema import Schema

_STATE = "run.json"


@dataclass(frozen=True, repr=False)
class Summed:
    """Result of a run: the sum, and the number of sites in it; the noise of a server is not yet added."""

    total: Vector
    sites: int

    def __repr__(self) -> str:
        return f"Summed({self.sites} sites)"


class Coordinator:
    """Desk of the server (coordinator) in secure aggregation.

    Args:
        schema: schema of the study, which lists its participants.
        state: folder for the replies so far (mode 0700); a run that was begun there continues.
        trust: "curator", "secure_sum" or "no_curator", for a new run.
        dropouts: number of sites that may vanish, for a new run; default a third.
        colluders: number of sites that may reveal all they know, for a new run.

    Attributes:
        stage: the present stage, None at the end.
        summed: the result of the run, once it is at its end.

    Raises:
        ValueError: a study without participants, or a folder with a run of another study.
    """

    def __init__(
        self,
        schema: Schema,
        state: str | os.PathLike[str],
        *,
        trust: str = "secure_sum",
        dropouts: int | None = None,
        colluders: int = 1,
    ) -> None:
        if not schema.participants:
            raise ValueError("[study]: participants: expected the ids of all, by which sites are known, got none")
        self.schema, self._place = schema, Path(state) / _STATE
        Path(state).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._replies: list[dict[int, Message]] = []
        if self.begun:
            self.invitation = self._read()
        else:
            m, names = schema.num_tasks, schema.coefficients
            self.invitation = invite(
                schema.spec, m, names, sites=m, trust=trust, dropouts=dropouts, colluders=colluders, study=schema.digest
            )
        self.stage: str | None = None
        self.summed: Summed | None = None
        self._sending: dict[int, Message] = {}
        self._replay()

    @property
    def begun(self) -> bool:
        """True if sites were already asked."""
        return self._place.exists()

    @property
    def run(self) -> str:
        """Name of the run, in hexadecimal."""
        return self.invitation.agreed.run.hex()

    def ask(self, outbox: str | os.PathLike[str]) -> list[Path]:
        """Write the present stage's files for all remaining sites, and record that they were asked."""
        Path(outbox).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write()
        digest, names = self.schema.digest, self.schema.participants
        stages = [
            Stage(digest, self.run, self.stage or "", "server", names[i], message, self.invitation)
            for i, message in self._sending.items()
        ]
        return [stage.save(outbox) for stage in stages]

    def waiting(self, inbox: str | os.PathLike[str]) -> list[str]:
        """Return the ids of sites that have not answered yet. Raises ValueError for files of another run."""
        answered = self._answers(inbox)
        return [self.schema.participants[i] for i in self._sending if i not in answered]

    def close(self, inbox: str | os.PathLike[str]) -> None:
        """Go on to the next stage, or to the end; sites that have not answered count as vanished.

        Raises:
            TooFewOwners: too many have vanished. Nothing is lost: more may still answer.
            ValueError: files of another run, or shares that do not open what was sealed.
        """
        answered = {i: reply for i, reply in self._answers(inbox).items() if i in self._sending}
        before = list(self._replies)
        self._replies.append(answered)
        try:
            self._replay()
        except BaseException:
            self._replies = before
            raise
        self._write()

    def settle(self, *, ledger: Ledger | None = None) -> Release:
        """Return the release, with the server's noise if the sites have not added any. It records the study.

        Raises:
            ValueError: a run that is not at its end.
            BudgetExceeded: the price exceeds what is left in the ledger. Nothing was charged.
        """
        if self.summed is None:
            raise ValueError("stage: expected a run at its end, got one that waits for answers")
        return settle(self.invitation, self.summed.total, self.summed.sites, ledger=ledger)

    def _replay(self) -> None:
        """Replay the protocol from all replies so far, which determine its state."""
        server: Generator[Sending, dict[int, Message], tuple[Vector, int]] = serve(self.invitation)
        stage, sending = next(server)
        try:
            for replies in self._replies:
                stage, sending = server.send(replies)
        except StopIteration as end:
            self.stage, self._sending, self.summed = None, {}, Summed(*end.value)
            return
        self.stage, self._sending = stage, sending

    def _answers(self, inbox: str | os.PathLike[str]) -> dict[int, Message]:
        """Return the replies of this stage, by number of the participant."""
        names = self.schema.participants
        replies: dict[int, Message] = {}
        for reply in read_folder(inbox, self.schema.digest):
            if reply.receiver != "server" or (reply.run, reply.stage) != (self.run, self.stage):
                continue
            if reply.sender not in names:
                raise ValueError(f"inbox: expected answers of the study's participants, got one of {reply.sender!r}")
            number = names.index(reply.sender)
            if replies.setdefault(number, reply.message) != reply.message:
                raise ValueError(f"inbox: {reply.sender} has sent two different answers; keep the one that it confirms")
        return replies

    def _write(self) -> None:
        state = {
            "study": self.schema.digest,
            "invitation": wire.write(self.invitation).decode(),
            "replies": [{str(i): _texts(message) for i, message in replies.items()} for replies in self._replies],
        }
        write_text(self._place, json.dumps(state) + "\n", private=True)

    def _read(self) -> Invitation:
        try:
            state: Mapping[str, Any] = json.loads(self._place.read_text(encoding="utf-8"))
            study, invitation = state["study"], wire.read(state["invitation"].encode())
            self._replies = [
                {int(i): _bytes(message) for i, message in replies.items()} for replies in state["replies"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"state: {str(self._place)!r} holds no run of mpmtl-prob") from None
        if study != self.schema.digest:
            got = f"got one of {str(study)[:12]}; take another folder"
            raise ValueError(f"state: expected a run of this study, {self.schema.digest[:12]}, {got}")
        return invitation


def _texts(message: Message) -> dict[str, str]:
    return {name: base64.b64encode(text).decode() for name, text in message.items()}


def _bytes(message: Mapping[str, str]) -> Message:
    return {name: base64.b64decode(text) for name, text in message.items()}
