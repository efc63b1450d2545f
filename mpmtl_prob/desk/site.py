"""A participant of a run without a curator, from files: one answer a call, and between two calls nothing but its folder."""

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

#: In the order of the protocol.
STAGES = ("send", "advertise", "share", "mask", "confirm", "reveal")
#: At which the rows are in what leaves.
_WITH_ROWS = ("send", "mask")
OWN_COPY = "message.own.json"


@dataclass(frozen=True)
class StudyPolicy(SitePolicy):
    """What a site of a study insists upon: the columns, units and promise of the study's file, whatever it is invited to.

    Attributes:
        schema: of the study.
    """

    schema: Schema | None = None

    @classmethod
    def of(cls, schema: Schema, trust: str = "secure_sum", **options: Any) -> StudyPolicy:
        """That of a study's file, and of further fields of :class:`mpmtl_prob.federated.SitePolicy`."""
        said = schema.promise
        promise = {"epsilon": said["epsilon"], "adjacency": said["adjacency"]}
        promise["delta"] = said["delta"] or default_delta(schema.num_tasks)
        return cls(trust, schema=schema, **promise | options)

    def check(self, invitation: Invitation, *, signed: bool = False) -> None:
        """As that of :class:`mpmtl_prob.federated.SitePolicy`.

        Raises:
            RunRefused: the invitation is to something else than the study, or to less than it promises.
        """
        assert self.schema is not None
        terms, expected = invitation.terms, self.schema.terms()
        if invitation.study != self.schema.digest:
            raise RunRefused(f"invitation: expected one to this study, {self.schema.digest[:12]}, got another")
        if terms.effects != expected.effects or (terms.message, terms.scaling) != (expected.message, expected.scaling):
            raise RunRefused("invitation: expected the columns and units of the study's file, got others")
        if terms.num_tasks != self.schema.num_tasks:
            raise RunRefused(f"invitation: expected {self.schema.num_tasks} {self.schema.task}s, got {terms.num_tasks}")
        super().check(invitation, signed=signed)


@dataclass(frozen=True, eq=False, repr=False)
class SiteDesk:
    """A participant's desk in a run without a curator.

    Attributes:
        schema: of the study, which lists its participants.
        participant: whose desk it is.
        state: folder for its secrets between stages, its account of runs, and its own copy of its message (mode 0700).
        trust: the most that it trusts others with: "curator", "secure_sum" or "no_curator".
        key: its private key, where the study has its public one: it then answers with the study's participants alone.
        ledger: pays for a run whose noise is in the sum.

    Raises:
        ValueError: a study that lists no participants, or another participant's key.
    """

    schema: Schema
    participant: str
    state: Path
    trust: str = "secure_sum"
    key: Any = None
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        number_of(self.schema, self.participant)
        one_of("trust", self.trust, tuple(each.value for each in Trust))
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._signer()

    def __repr__(self) -> str:
        return f"SiteDesk({self.participant!r}, study {self.schema.digest[:12]})"

    def asked(self, inbox: str | os.PathLike[str]) -> Stage | None:
        """The stage in an inbox that waits for an answer; None where there is none.

        Raises:
            ValueError: a file that is no stage of this study, or stages of several runs.
        """
        here = [one for one in read_folder(inbox, self.schema.digest) if one.receiver == self.participant]
        open_ones = [one for one in here if one.stage in STAGES and one.name not in self._answered()]
        if len({one.run for one in open_ones}) > 1:
            raise ValueError("inbox: expected stages of one run, got those of several; take out those of the others")
        return min(open_ones, key=lambda one: STAGES.index(one.stage), default=None)

    def answer(self, asked: Stage, source: Callable[[], TaskData | None], outbox: str | os.PathLike[str]) -> Path:
        """Answer one stage, once, and return the file that is for the server.

        Args:
            asked: of :meth:`asked`.
            source: gives the rows, and is called at the stage at which they are in what leaves; None for "no estimate".
            outbox: folder to write to.

        Raises:
            RunRefused: the invitation is not of this study, or less than it promises; or the run was answered before.
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
            if rows is None:  # which has no names of columns, by which it could be known
                warnings.simplefilter("ignore")
            said = site.answer(asked.invitation, asked.stage, asked.message)
        reply = Stage(asked.study, asked.run, asked.stage, self.participant, "server", said)
        place = reply.save(outbox)
        write_text(self.state / "answered.json", json.dumps([*self._answered(), asked.name]), private=True)
        return place

    @property
    def own_copy(self) -> Path:
        """The message that it has sent, which :func:`mpmtl_prob.desk.fit` takes out of the release."""
        return self.state / OWN_COPY

    def _answered(self) -> list[str]:
        place = self.state / "answered.json"
        found: list[str] = json.loads(place.read_text()) if place.exists() else []
        return found

    def _keep(self, rows: TaskData | None, invitation: Invitation) -> None:
        """Write down what is sent, before it is."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it will be said again
            vector = silent(invitation.terms) if rows is None else message(rows, invitation.terms)[:, 0]
        Message(self.schema, self.participant, vector).save_own(self.own_copy, self.key)

    def _signer(self) -> Signer | None:
        """Its own key and those of the others, where the study has them."""
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
    """A participant's number in a run. Raises ValueError for one that the study does not list."""
    if participant not in schema.participants:
        raise ValueError(
            f"participant: expected one of the {len(schema.participants)} that the study's file lists, got {participant!r}"
        )
    return schema.participants.index(participant)
