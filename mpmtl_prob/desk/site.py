"""Site of a run without a curator, from files: one answer per call, and no state between calls except in its folder."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from mpmtl_prob._util.checks import one_of
from mpmtl_prob._util.files import check_place, write_text
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.desk.keys import public_key
from mpmtl_prob.desk.message import Message, silent
from mpmtl_prob.desk.stages import Stage, read_folder
from mpmtl_prob.federated.flower.persistent_site import PersistentSite
from mpmtl_prob.federated.invitation import Invitation, Trust
from mpmtl_prob.federated.run_log import RunRefused
from mpmtl_prob.federated.signing import Signer
from mpmtl_prob.federated.site_policy import SitePolicy
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.spec import default_delta, message
from mpmtl_prob.schema.schema import Schema

#: Stages in the order of the protocol.
STAGES = ("send", "advertise", "share", "mask", "confirm", "reveal")
#: Stages at which the message contains the rows' contribution.
_WITH_ROWS = ("send", "mask")
OWN_COPY = "message.own.json"


@dataclass(frozen=True)
class StudyPolicy(SitePolicy):
    """Policy of a study's site: it insists on the columns, units and privacy guarantee of the study's file.

    Attributes:
        schema: schema of the study.
    """

    schema: Schema | None = None

    @classmethod
    def of(cls, schema: Schema, trust: str = "secure_sum", **options: Any) -> StudyPolicy:
        """Return the policy of a study's file, with further fields of :class:`mpmtl_prob.federated.SitePolicy`."""
        declared = schema.promise
        promise = {"epsilon": declared["epsilon"], "adjacency": declared["adjacency"]}
        promise["delta"] = declared["delta"] or default_delta(schema.num_tasks)
        return cls(trust, schema=schema, **promise | options)

    def check(self, invitation: Invitation, *, signed: bool = False) -> None:
        """Check an invitation like :class:`mpmtl_prob.federated.SitePolicy`, and against the study's file.

        Raises:
            RunRefused: the invitation differs from the study, or guarantees less than it promises.
        """
        assert self.schema is not None
        terms, expected = invitation.terms, self.schema.terms()
        if invitation.study != self.schema.digest:
            raise RunRefused(f"invitation: expected one to this study, {self.schema.digest[:12]}, got another")
        if terms.effects != expected.effects or (terms.message, terms.scaling) != (expected.message, expected.scaling):
            raise RunRefused("invitation: expected the columns and units of the study's file, got others")
        if terms.num_tasks != self.schema.num_tasks:
            raise RunRefused(
                f"invitation: expected {self.schema.num_tasks} {plural(self.schema.task)}, got {terms.num_tasks}"
            )
        super().check(invitation, signed=signed)


@dataclass(frozen=True, eq=False, repr=False)
class SiteDesk:
    """Desk of a participant in a run without a curator (secure aggregation).

    Attributes:
        schema: schema of the study, which lists its participants.
        participant: id of the participant.
        state: folder for its secrets between stages, its log of runs, and its copy of its message (mode 0700).
        trust: the most that it trusts others with: "curator", "secure_sum" or "no_curator".
        key: its private key, if the study has its public key: it then answers only with the study's participants.
        ledger: pays for a run whose sum contains the noise.

    Raises:
        ValueError: a study that does not list participants, or another participant's key.
    """

    schema: Schema
    participant: str
    state: Path
    trust: str = "secure_sum"
    key: Any = None
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        number_of(self.schema, self.participant)
        one_of("trust", self.trust, tuple(trust.value for trust in Trust))
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._signer()

    def __repr__(self) -> str:
        return f"SiteDesk({self.participant!r}, study {self.schema.digest[:12]})"

    def asked(self, inbox: str | os.PathLike[str]) -> Stage | None:
        """Return the stage in an inbox that waits for an answer; None if there is none.

        Raises:
            ValueError: a file that is not a stage of this study, or stages of several runs.
        """
        addressed = [stage for stage in read_folder(inbox, self.schema.digest) if stage.receiver == self.participant]
        unanswered = [stage for stage in addressed if stage.stage in STAGES and stage.name not in self._answered()]
        if len({stage.run for stage in unanswered}) > 1:
            raise ValueError("inbox: expected stages of one run, got those of several; take out those of the others")
        return min(unanswered, key=lambda stage: STAGES.index(stage.stage), default=None)

    def answer(self, asked: Stage, source: Callable[[], TaskData | None], outbox: str | os.PathLike[str]) -> Path:
        """Answer one stage, once, and return the file for the server.

        Args:
            asked: result of :meth:`asked`.
            source: function that returns the rows, called at stages that need them; it returns None for "no estimate".
            outbox: folder to write to.

        Raises:
            RunRefused: the invitation differs from the study, or guarantees less; or the run was already answered.
            ValueError: a message out of turn.
        """
        if asked.invitation is None:
            raise ValueError(f"inbox: expected an invitation in {asked.name!r}, got none")
        if asked.invitation.sites != self.schema.num_tasks:
            raise RunRefused(f"invitation: expected {self.schema.num_tasks} sites of one {self.schema.task} each")
        check_place("outbox", Path(outbox) / "answer")
        rows = source() if asked.stage in _WITH_ROWS else None
        if asked.stage in _WITH_ROWS:
            self._keep(rows, asked.invitation)
        sent: TaskData | ArrayLike = silent(asked.invitation.terms)[:, None] if rows is None else rows
        site = PersistentSite(
            number_of(self.schema, self.participant),
            sent,
            self.state,
            ledger=self.ledger,
            policy=StudyPolicy.of(self.schema, self.trust),
            signer=self._signer(),
        )
        with warnings.catch_warnings():
            if rows is None:  # a vector has no names of columns, of which a warning would tell
                warnings.simplefilter("ignore")
            reply_message = site.answer(asked.invitation, asked.stage, asked.message)
        reply = Stage(asked.study, asked.run, asked.stage, self.participant, "server", reply_message)
        place = reply.save(outbox)
        write_text(self.state / "answered.json", json.dumps([*self._answered(), asked.name]), private=True)
        return place

    @property
    def own_copy(self) -> Path:
        """Path of its copy of the message it sent, which :func:`mpmtl_prob.desk.fit` takes out of the release."""
        return self.state / OWN_COPY

    def _answered(self) -> list[str]:
        place = self.state / "answered.json"
        answered: list[str] = json.loads(place.read_text()) if place.exists() else []
        return answered

    def _keep(self, rows: TaskData | None, invitation: Invitation) -> None:
        """Save a copy of the message before it is sent."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning will be repeated
            vector = silent(invitation.terms) if rows is None else message(rows, invitation.terms)[:, 0]
        Message(self.schema, self.participant, vector).save_own(self.own_copy, self.key)

    def _signer(self) -> Signer | None:
        """Return its own key with those of the others, if the study has them."""
        names = self.schema.participants
        if f"participant {self.participant}" not in self.schema.keys:
            return None
        if self.key is None:
            raise ValueError("key: expected this participant's private key, as the study has its public one (--key)")
        texts = [self.schema.keys[f"participant {name}"] for name in names]
        known = {i: public_key(text, "participant").public_bytes_raw() for i, text in enumerate(texts)}
        signer = Signer(self.key.private_bytes_raw(), known)
        if signer.number != number_of(self.schema, self.participant):
            raise ValueError(f"key: expected that of {self.participant!r}, whose public one the study has, got another")
        return signer


def number_of(schema: Schema, participant: str) -> int:
    """Return a participant's number in a run. Raises ValueError for one that the study does not list."""
    if participant not in schema.participants:
        raise ValueError(
            f"participant: expected one of the {len(schema.participants)} that the study's file lists, got {participant!r}"
        )
    return schema.participants.index(participant)
