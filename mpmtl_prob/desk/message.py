"""Message of a participant: computed from its own rows and the study's file, shown before it leaves, and written."""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import write_text
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.desk import envelope
from mpmtl_prob.privacy.board import bound
from mpmtl_prob.releases.spec import Terms, default_delta, message
from mpmtl_prob.schema.rows import read_rows
from mpmtl_prob.schema.schema import Schema


@dataclass(frozen=True, eq=False, repr=False)
class Message:
    """Message of a participant: one vector of length 1 at most.

    Attributes:
        schema: schema of the study.
        participant: id of the participant.
        vector: (D,), read-only.
        rows: number of rows behind it; None for a message that was read from a file.
        told: remarks for the data owner, in sentences.
        nonce: random text that makes every message different, also of the same rows.
    """

    schema: Schema
    participant: str
    vector: FloatArray
    rows: int | None = None
    told: tuple[str, ...] = ()
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def __repr__(self) -> str:  # without the numbers, as it ends in logs
        return f"Message({self.participant!r}, study {self.schema.digest[:12]})"

    @property
    def says_nothing(self) -> bool:
        """True for the message of "no estimate", which has the public numbers of its sender alone."""
        return not self.vector[: -1 - len(self.schema.covariates)].any()

    def describe(self, *, numbers: bool = False, seen: str | None = None) -> str:
        """Describe in words what is about to leave, who will see it, and what is promised.

        Args:
            numbers: include the numbers of the message, for the sender only.
            seen: who sees it, in words; default the curator.
        """
        schema, names = self.schema, self.schema.coefficients
        eps, m = schema.promise["epsilon"], schema.num_tasks
        delta = schema.promise["delta"] or default_delta(m)
        what = f"an estimate for each of {len(names)} coefficients ({', '.join(names)}) and how accurate each is"
        if self.says_nothing:
            what = f'the message of "no estimate": nothing of any {schema.row} is in it'
        if schema.covariates:
            listed = ", ".join(f"{name} {value:g}" for name, value in schema.covariates_of(self.participant).items())
            what += f"; with it what the study's file says of {self.participant}, in public: {listed}"
        if seen is None:
            sealed = "curator" in schema.keys
            seen = "the curator, " + ("to whom it is encrypted" if sealed else "and whoever gets the file, in clear")
        named = ", with the names of all who answered and their covariates" if schema.covariates else ""
        lines = [
            f"Message of {self.participant} for the study {schema.title or schema.target.column} ({schema.digest[:12]}).",
            f"What leaves: {what}. No row of any {schema.row} leaves.",
            f"Who sees it: {seen}.",
            f"What is published: one sum over {m} {plural(schema.task)}, with noise{named}. What is promised to each, "
            "against all who see no more than that: whoever held it for 50 % likely that these are its data holds it for "
            f"{bound(1 / (1 + math.exp(-eps)))} likely after the release, rare exceptions aside (eps = {eps:g}, "
            f"delta = {delta:.2g}).",
        ]
        if numbers:
            pairs = zip(schema.terms().features, self.vector, strict=True)
            lines += ["The numbers, in the study's units:", *(f"  {name}: {value:+.4f}" for name, value in pairs)]
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str], key: Any = None) -> list[Path]:
        """Write the message to a file that only its owner can read (mode 0600); if encrypted, with a readable copy.

        Args:
            path: path of a new file.
            key: the participant's private key, if the study has its public key.

        Returns:
            The files that were written.

        Raises:
            FileExistsError: the file exists already, and may have been sent.
            ValueError: no key, or one that does not match the study.
        """
        places = [Path(path)]
        if "curator" in self.schema.keys:
            places.append(Path(path).with_suffix(".own.json"))
        for place in places:
            if os.path.lexists(place):
                raise FileExistsError(
                    f"{os.fspath(place)!r} is there already, and may have been sent; take it away, or give another name"
                )
        head = {"study": self.schema.digest, "participant": self.participant, "nonce": self.nonce}
        texts = [
            envelope.packed(self.schema, head, self.vector.tolist(), key, sealed=place is places[0]) for place in places
        ]
        # The own copy is written first, as no model can be fitted without it.
        for place, text in reversed(list(zip(places, texts, strict=True))):
            write_text(place, text, private=True)
        return places

    def save_own(self, path: str | os.PathLike[str], key: Any = None) -> None:
        """Write the own copy of a message that was sent another way (mode 0600), for :func:`mpmtl_prob.desk.fit`."""
        head = {"study": self.schema.digest, "participant": self.participant, "nonce": self.nonce}
        write_text(path, envelope.packed(self.schema, head, self.vector.tolist(), key, sealed=False), private=True)

    @classmethod
    def load(
        cls, schema: Schema, path: str | os.PathLike[str], key: Any = None, *, lattice: float | None = None
    ) -> Message:
        """Read a file that :meth:`save` wrote.

        Args:
            schema: schema of the study.
            path: path of the file.
            key: the curator's private key, if the study has its public key.
            lattice: step of the grid of the release with this message, if it differs from the study's.

        Raises:
            ValueError: a file that is not a message of this study, was edited, or has an invalid vector.
        """
        content, terms = envelope.unpacked(schema, path, key), schema.terms()
        vector = np.array(content["vector"], dtype=np.float64)
        finest = terms.lattice if lattice is None else min(lattice, terms.lattice)
        check_vector(vector, replace(terms, lattice=finest), repr(os.fspath(path)))
        vector.setflags(write=False)
        return cls(schema, content["participant"], vector, nonce=content["nonce"])


def make_message(schema: Schema, frame: Any, participant: str | None = None, *, no_estimate: bool = False) -> Message:
    """Compute a participant's message from its own rows, which stay where they are.

    Whether to take part is decided before. Whoever sees the numbers and does not want to send them should send the message of
    "no estimate", as a refusal that depends on the rows reveals something about them.

    A warning tells the data owner if columns are far larger than the study says, as if in other units. The message is then
    the same.

    Args:
        schema: schema of the study.
        frame: rows of this participant, in any kind of data frame that narwhals reads; None is allowed with ``no_estimate``.
        participant: id of the participant; default the only one in the frame.
        no_estimate: make the message without information.

    Raises:
        ValueError: missing columns, rows of other participants, or cells that the study refuses.
    """
    terms = schema.terms()
    if no_estimate:
        if participant is None:
            raise ValueError("participant: expected the id of whoever sends no estimate, got none (--participant)")
        who = label_text(participant)
        if schema.participants and who not in schema.participants:
            raise ValueError(f"participant: expected one of the study's {len(schema.participants)}, got {who!r}")
        return Message(schema, who, silent(terms, who), 0)
    rows = read_rows(schema, frame, participant)
    if not len(rows.kept):
        told = (
            *rows.told,
            f'no {schema.row} is left: the message says "no estimate", and the {schema.task} counts all the same',
        )
        return Message(schema, rows.participant, silent(terms, rows.participant), 0, told)
    vector = message(rows.tasks(schema), terms)[:, 0]
    vector.setflags(write=False)
    return Message(schema, rows.participant, vector, len(rows.kept), rows.told)


def silent(terms: Terms, participant: str | None = None) -> FloatArray:
    """Return the message of a task without information, (D,): a one, and a participant's covariates, if there are any."""
    public = np.ones(1) if participant is None or terms.effects is None else terms.effects.z_of([participant])[0]
    vector = np.concatenate([np.zeros(len(terms.features) - len(public)), public])
    sent: FloatArray = terms.bounded(vector[:, None])[:, 0]
    sent.setflags(write=False)
    return sent


def check_vector(vector: FloatArray, terms: Terms, name: str) -> None:
    """Raise ValueError for an impossible message: of a wrong length, or off the grid on which sums are exact."""
    if vector.shape != (len(terms.features),) or not np.isfinite(vector).all() or np.abs(vector).max() > terms.clip:
        raise ValueError(f"{name}: expected {len(terms.features)} numbers of length 1 together, got others")
    units = vector / terms.lattice
    if np.any(units != np.floor(units)) or sum(int(unit) ** 2 for unit in units) > int(terms.clip / terms.lattice) ** 2:
        raise ValueError(f"{name}: expected a vector of length 1 at most on the study's grid, got another")
