"""Federated protocol for one release: the site's answers, the server, and the release that the sum becomes.

A site holds the rows of one task or of many, and sums the messages of its own tasks. This module has no transport.
:func:`serve` yields the messages to send and is given the replies; :class:`Site` answers. Messages are byte strings by name.
The stages are those of :mod:`mpmtl_prob.federated.secure_sum`. Before the last one there is a further stage, in which the
sites confirm to each other which sites are in the sum. It is left out where partners are few and keys are not signed.

The trust models:

    curator       the server sees every site's sum, and adds the noise
    secure_sum    the server sees the sum over all sites, and adds the noise
    no_curator    every site adds a share of the noise, and nobody sees a sum without noise
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import whole
from mpmtl_prob._util.former import FormerName, former_arguments
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.federated import secure_sum
from mpmtl_prob.federated.invitation import Invitation, Trust
from mpmtl_prob.federated.run_log import RunLog, RunRefused
from mpmtl_prob.federated.secure_sum import Advert, Agreed, Revealed, Sent, TooFewOwners, Vector
from mpmtl_prob.federated.signing import Arrived, Signer
from mpmtl_prob.federated.site_policy import SitePolicy
from mpmtl_prob.privacy.charge_and_draw import draw_share
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.publish import from_noisy_sum, publish
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.sharded import second_moment
from mpmtl_prob.releases.spec import Terms, message

_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
#: Byte strings by name.
Message = dict[str, bytes]
#: Rows of tasks, shards of them on disk, estimates, or messages, d x k.
Rows = TaskData | TaskShards | Estimates | ArrayLike
Source = Rows | Callable[[], Rows]
#: A stage, and the messages to send by site number.
Sending = tuple[str, dict[int, Message]]


class Site:
    """Federated site: holds a data owner's rows, and answers one run, once.

    Args:
        number: the site's number among the invited sites, from 0.
        source: the rows of the site's tasks, their Estimates, or their messages, d x k. TaskShards are read part by part. A
            function that returns any of these is called when the rows are needed.
        run_log: log of the runs that the site answered; default a log in memory, which is lost with the process.
        policy: conditions that an invitation must meet; by default its noise must be as private as the invitation states.
        signer: the site's long-term key and the public keys of the others; with a signer the site takes part only with sites
            that sign their keys of the run.
        unsafe_seed: draws the site's noise from this seed, for demonstrations.

    Attributes:
        failure: name and text of the error because of which the site did not answer in a run in one process, for its owner
            only; else None.

    Raises:
        ValueError: the number is not a whole number, or not the signer's.
    """

    @former_arguments(account="run_log", conditions="policy")
    def __init__(
        self,
        number: int,
        source: Source,
        run_log: RunLog | None = None,
        *,
        policy: SitePolicy | None = None,
        signer: Signer | None = None,
        unsafe_seed: int | None = None,
    ) -> None:
        self.number = whole("number", number, 0)
        if signer is not None and signer.number != number:
            raise ValueError(f"number: expected {signer.number}, by which this site's own key is known, got {number}")
        self.run_log = RunLog() if run_log is None else run_log
        self.policy = SitePolicy() if policy is None else policy
        self.signer = signer
        self.failure: str | None = None
        self._source, self._seed = source, unsafe_seed
        self._invitation: Invitation | None = None
        self._keys: secure_sum.Keys | None = None
        self._shared: secure_sum.Shared | None = None
        self._masked: secure_sum.Masked | None = None

    account = FormerName("run_log")

    def __repr__(self) -> str:
        return f"Site({self.number})"

    @property
    def seeded(self) -> bool:
        """True if the site draws its noise from a seed, which protects nothing."""
        return self._seed is not None

    def answer(self, invitation: Invitation, stage: str, received: Message) -> Message:
        """Answer one stage of a run.

        Raises:
            RunRefused: the policy or the run log does not allow it, or a signature is missing or wrong.
            BudgetExceeded: the site's ledger does not cover it.
            TooFewOwners: too many other sites have dropped out.
            ValueError: a message out of turn, or one that was altered in transit.
        """
        agreed, me = invitation.agreed, self.number
        if self._invitation is None:
            self.policy.check(invitation, signed=self.signer is not None)
            if me >= invitation.sites:
                raise RunRefused(f"sites: expected more than {me}, the number of this one, got {invitation.sites}")
        elif self._invitation != invitation:
            raise ValueError("invitation: expected the one that this site has answered before")
        self._invitation = invitation
        if stage == "send" and invitation.trust is Trust.CURATOR:  # the curator alone sees it unmasked
            return {"vector": _bytes(self._vector(invitation))}
        if stage == "advertise" and self._keys is None:
            self._keys, advert = secure_sum.advertise()
            signed = {"signature": self.signer.sign(invitation.digest, me, advert)} if self.signer else {}
            return {"letters": advert.encryption, "masks": advert.masks} | signed
        if stage == "share" and self._keys is not None and self._shared is None:
            adverts = self._adverts(invitation, _numbered(received, invitation))
            self._shared, letters = secure_sum.share(agreed, me, self._keys, adverts)
            return {str(j): letter for j, letter in letters.items()}
        if stage == "mask" and self._keys is not None and self._shared is not None and self._masked is None:
            nothing, letters = np.zeros(agreed.length, dtype=np.uint64), _numbered(received, invitation)
            masked, sent = secure_sum.mask(agreed, me, self._keys, self._shared, letters, nothing)
            vector = self._vector(invitation)  # pays, and so comes after all that can fail
            self._masked = masked
            return {"vector": _bytes(sent.vector + vector), "seal": sent.seal}
        if stage == "confirm" and self._masked is not None and self._masked.shares and not self._masked.confirmed:
            return self._confirm(invitation, self._masked, received)
        if stage == "reveal" and self._masked is not None and self._masked.shares:
            masked, self._masked = self._masked, secure_sum.Masked({})  # the shares are revealed once only
            if self.signer is not None or agreed.partners is None:
                self._check_confirmed(invitation, masked, received)
            revealed = secure_sum.unmask(agreed, me, masked, _arrived(received, invitation))
            seeds = {f"seed {j}": share.to_bytes(33) for j, share in revealed.seeds.items()}
            return seeds | {f"key {j}": share.to_bytes(33) for j, share in revealed.keys.items()}
        raise ValueError(f"stage: {stage!r} is out of turn")

    def _confirm(self, invitation: Invitation, masked: secure_sum.Masked, received: Message) -> Message:
        """Confirm a single list of arrivals to the other sites: by a signature, or by a code for each partner."""
        if self.signer is None and invitation.agreed.partners is not None:
            return {}
        there = _arrived(received, invitation)
        # Raises where no sum may be opened by this list.
        secure_sum.unmask(invitation.agreed, self.number, masked, there)
        text = received["arrived"]
        self._masked = masked._replace(confirmed=text)
        if self.signer is not None:
            return {"signature": self.signer.sign(invitation.digest, self.number, Arrived(text))}
        words = secure_sum.vouch(masked, self.number, invitation.digest + text)
        return {str(j): word for j, word in words.items()}

    def _check_confirmed(self, invitation: Invitation, masked: secure_sum.Masked, received: Message) -> None:
        """Raise unless at least as many sites as must be in the sum confirm the list of arrivals that this site has."""
        if not masked.confirmed or received.get("arrived") != masked.confirmed:
            raise RunRefused("arrived: expected the list that this site has confirmed")
        least, who = invitation.agreed.least, set(_arrived(received, invitation))
        confirmations = _numbered({name: text for name, text in received.items() if name != "arrived"}, invitation)
        for i, text in confirmations.items():
            if self.signer is not None:
                self.signer.check(invitation.digest, i, Arrived(masked.confirmed), text)
            elif not secure_sum.vouched(masked, i, invitation.digest + masked.confirmed, text):
                raise RunRefused(f"arrived: site {i} does not vouch for the list that this site has")
        if len(confirming := who & {self.number, *confirmations}) < least:
            raise TooFewOwners("confirm", len(confirming), least)

    def _adverts(self, invitation: Invitation, received: Mapping[int, bytes]) -> dict[int, Advert]:
        """Parse the public keys of the run, and check their signatures if this site has a signer."""
        few = invitation.agreed.partners
        if few is not None and len(received) > few + 1:
            raise ValueError(f"adverts: expected those of {few} partners and its own, got {len(received)}")
        adverts = {}
        for i, text in received.items():
            adverts[i] = Advert(text[:32], text[32:64])
            if self.signer is not None and i != self.number:
                self.signer.check(invitation.digest, i, adverts[i], text[64:])
        return adverts

    def _vector(self, invitation: Invitation) -> Vector:
        """Return the second moment of the site's messages, with a share of the noise where sites add it; pays first."""
        terms, trust = invitation.terms, invitation.trust
        source: Any = self._source() if callable(self._source) else self._source
        A, tasks, rows = moment(source, terms)
        if tasks > terms.num_tasks:
            raise ValueError(f"source: expected at most the {terms.num_tasks} tasks of the invitation, got {tasks}")
        self.run_log.enter(invitation.agreed.run, trust, seen=trust.seen)
        if trust is Trust.NO_CURATOR:
            A = A + draw_share(
                invitation.share, adjacency=terms.adjacency, ledger=self.run_log.ledger, data=rows,
                unsafe_seed=self._seed, which=self.number,
            )  # fmt: skip
        return in_units(A, terms.lattice**2, tasks)


def serve(invitation: Invitation) -> Generator[Sending, dict[int, Message], tuple[Vector, int]]:
    """Run the server as a generator, and return the sum and the number of sites in it.

    It yields each stage with the messages by site, and is sent the replies. A site that does not answer, or gives a malformed
    answer, is left out from then on. The sum holds the second moment and, as its last entry, the number of tasks.

    Raises:
        TooFewOwners: too many sites have dropped out.
        ValueError: the shares of a secret do not open it.
    """
    agreed, everybody = invitation.agreed, range(invitation.sites)
    if invitation.trust is Trust.CURATOR:
        replies = yield "send", {i: {} for i in everybody}
        vectors = _read(replies, everybody, lambda _, reply: read_vector(reply["vector"], agreed))
        if not vectors or len(vectors) < agreed.least:
            raise TooFewOwners("send", len(vectors), max(agreed.least, 1))
        return np.sum(list(vectors.values()), axis=0, dtype=np.uint64), len(vectors)
    replies = yield "advertise", {i: {} for i in everybody}
    adverts = _read(replies, everybody, _advert)
    _enough("advertise", adverts, agreed)
    graph = secure_sum.partners_of(agreed, adverts)
    signatures = {i: replies[i].get("signature", b"") for i in adverts}
    keys = {i: b"".join(advert) + signatures[i] for i, advert in adverts.items()}
    replies = yield "share", {i: {str(j): keys[j] for j in (i, *graph[i])} for i in adverts}
    letters = _read(replies, adverts, lambda i, reply: {j: reply[str(j)] for j in graph[i]})
    _enough("share", letters, agreed)
    replies = yield "mask", {i: {str(j): letters[j][i] for j in graph[i] if j in letters} for i in letters}
    arrived_from = _read(replies, letters, lambda _, reply: Sent(read_vector(reply["vector"], agreed), reply["seal"]))
    _enough("mask", arrived_from, agreed)
    names = np.array(sorted(arrived_from), dtype="<u4").tobytes()
    confirmations: dict[int, Message] = {}
    if agreed.partners is None or any(signatures.values()):
        replies = yield "confirm", {i: {"arrived": names} for i in arrived_from}
        confirmations = _read(replies, arrived_from, lambda i, reply: _confirming(i, reply, arrived_from))
        _enough("confirm", confirmations, agreed)
    passed_on = {
        i: {str(j): words[str(i)] for j, words in confirmations.items() if str(i) in words} for i in arrived_from
    }
    replies = yield "reveal", {i: {"arrived": names} | passed_on[i] for i in arrived_from}
    revealed = _read(replies, arrived_from, _revealed)
    return secure_sum.total(agreed, adverts, letters, arrived_from, revealed), len(arrived_from)


def settle(
    invitation: Invitation,
    total: Vector,
    sites: int,
    *,
    unsafe_seed: int | None = None,
    seeded: bool = False,
    ledger: Ledger | None = None,
) -> Release:
    """Make the release of a sum. The server adds its noise here, unless the sites have added theirs.

    Args:
        invitation: to the run.
        total: the sum that :func:`serve` returns.
        sites: the number of sites in it.
        unsafe_seed: draws the noise from this seed, for demonstrations; where sites add the noise, any value marks the
            release as seeded.
        seeded: True if some site draws its share of the noise from a seed, so that the release guarantees nothing.
        ledger: the server's ledger, which pays before noise is drawn; where sites add the noise, their ledgers have paid.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: more tasks than were announced, or numbers too large for a sum of messages.
    """
    terms, d = invitation.terms, len(invitation.terms.features)
    m = int(total[-1])
    if not 1 <= m <= terms.num_tasks:
        raise ValueError(f"num_tasks: expected between 1 and {terms.num_tasks} tasks in the sum, got {m}")
    A = np.zeros((d, d))
    A[np.tril_indices(d)] = total[:-1].view(np.int64) * terms.lattice**2
    A = A + np.tril(A, -1).T
    if np.abs(A).max() > m * terms.clip**2 + _reach(invitation, sites):
        raise ValueError("total: expected a sum of messages, got numbers that none can reach")
    terms = replace(terms, num_tasks=m)
    if invitation.trust is Trust.NO_CURATOR:
        if ledger is not None:
            raise ValueError("ledger: expected none where sites add the noise; theirs have paid")
        law = replace(invitation.share, owners=sites)
        release = from_noisy_sum(A, replace(terms, mechanisms=(law,)), seeded=seeded or unsafe_seed is not None)
    else:
        release = publish(A, terms, unsafe_seed=unsafe_seed, ledger=ledger)
    return release if invitation.study is None else replace(release, study=invitation.study)


def _reach(invitation: Invitation, sites: int) -> float:
    """Return a bound on the entries of the noise in a sum. Larger entries have a negligible probability."""
    return 0.0 if invitation.trust.seen else 64 * replace(invitation.share, owners=sites).operator_norm


def moment(source: Rows, terms: Terms) -> tuple[FloatArray, int, Any]:
    """Return the second moment of a site's messages, (d, d), their number, and the rows or a digest that identifies them."""
    if isinstance(source, TaskShards):
        A, digest = second_moment(source, terms)
        return A, source.num_tasks, digest
    vectors = message(source, terms)
    return vectors @ vectors.T, vectors.shape[1], source


def _enough(stage: str, there: Mapping[int, Any], agreed: Agreed) -> None:
    if len(there) < agreed.least:
        raise TooFewOwners(stage, len(there), agreed.least)


def in_units(A: FloatArray, unit: float, tasks: int) -> Vector:
    """Return the lower triangle in units of the lattice, and the number of tasks, modulo 2^64."""
    numbers = np.rint(A[np.tril_indices(len(A))] / unit).astype(np.int64)
    return np.append(numbers, np.int64(tasks)).view(np.uint64)


def _read[T](replies: Mapping[int, Message], asked: Collection[int], read: Callable[[int, Message], T]) -> dict[int, T]:
    """Parse the replies of the sites that were asked. A site with a malformed reply counts as dropped out."""
    parsed = {}
    for i in sorted(set(replies) & set(asked)):
        with suppress(KeyError, ValueError, TypeError, AttributeError):
            parsed[i] = read(i, replies[i])
    return parsed


def _bytes(vector: Vector) -> bytes:
    return vector.astype("<u8").tobytes()


def read_vector(text: bytes, agreed: Agreed) -> Vector:
    """Parse a vector that :func:`in_units` made. Raises ValueError if its number of bytes is not the agreed one."""
    if len(text) != 8 * agreed.length:
        raise ValueError(f"vector: expected {agreed.length} numbers of 8 bytes, got {len(text)} bytes")
    return np.frombuffer(text, "<u8").astype(np.uint64)


def _advert(_: int, reply: Message) -> Advert:
    if len(reply["letters"]) != 32 or len(reply["masks"]) != 32:
        raise ValueError("adverts: expected keys of 32 bytes")
    return Advert(bytes(reply["letters"]), bytes(reply["masks"]))


def _revealed(_: int, reply: Message) -> Revealed:
    numbers: dict[str, dict[int, int]] = {"seed": {}, "key": {}}
    for name, share in reply.items():
        kind, number = name.split()
        numbers[kind][int(number)] = int.from_bytes(share)
    return Revealed(numbers["seed"], numbers["key"])


def _numbered(received: Message, invitation: Invitation) -> dict[int, bytes]:
    """Return the messages passed on from other sites, by site number. Raises ValueError for other names."""
    by_number = {int(name): text for name, text in received.items() if _NUMBER.fullmatch(name)}
    if len(by_number) < len(received) or max(by_number, default=0) >= invitation.sites:
        raise ValueError(f"received: expected messages of sites by their numbers, got {sorted(received)[:3]}")
    return by_number


def _confirming(i: int, reply: Message, arrived_from: Collection[int]) -> Message:
    """Return a site's confirmation for each of the others, by site number: one signature for all, or a code for each."""
    if "signature" in reply:
        return dict.fromkeys(map(str, arrived_from), reply["signature"])
    return {str(j): reply[str(j)] for j in arrived_from if j != i}


def _arrived(received: Message, invitation: Invitation) -> list[int]:
    """Parse the list of arrivals: the numbers of the sites whose vectors arrived, each once."""
    text = received.get("arrived", b"")
    numbers: list[int] = np.frombuffer(text[: len(text) // 4 * 4], "<u4").tolist()
    if len(text) % 4 or len(set(numbers)) < len(numbers) or max(numbers, default=0) >= invitation.sites:
        raise ValueError(f"arrived: expected numbers below {invitation.sites}, each once, in 4 bytes each")
    return numbers
