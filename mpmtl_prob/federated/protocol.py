"""One release of which the vectors never meet: who is invited, what each site answers, and what becomes of the sum.

A site holds the rows of one task or of many, and sums up the messages of its own. No transport here: :func:`serve` says what
to send to whom, and is told what came back; :class:`Site` answers. Messages are byte strings by name.

How much is trusted to whom:

    curator       the server sees every site's sum, and adds the noise
    secure_sum    the server sees the sum over all sites, and adds the noise
    no_curator    every site adds its share of the noise, and nobody sees a sum without
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import one_of, whole
from mpmtl_prob.federated import secure_sum
from mpmtl_prob.federated.account import Account
from mpmtl_prob.federated.secure_sum import Advert, Agreed, Revealed, Sent, TooFewOwners, Vector
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian
from mpmtl_prob.privacy.door import draw_share
from mpmtl_prob.privacy.laws import GaussianShares
from mpmtl_prob.privacy.laws.shares import slack
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.release import Release, arrived, publish
from mpmtl_prob.releases.terms import Terms, default_delta, message, terms
from mpmtl_prob.tasks import FloatArray, TaskData

Message = dict[str, bytes]
#: A stage, and what to send to whom.
Sending = tuple[str, dict[int, Message]]


class Trust(StrEnum):
    """Who sees what."""

    CURATOR = "curator"
    SECURE_SUM = "secure_sum"
    NO_CURATOR = "no_curator"

    @property
    def seen(self) -> bool:
        """Somebody sees a sum without noise."""
        return self is not Trust.NO_CURATOR


@dataclass(frozen=True)
class Invitation:
    """What everybody knows before a row is read.

    Attributes:
        terms: of the release; ``num_tasks`` is how many there are at most.
        trust: who sees what.
        sites: how many are invited, numbered from 0.
        agreed: on the sum; ``least`` is how many sites have to be in it.
    """

    terms: Terms
    trust: Trust
    sites: int
    agreed: Agreed

    @property
    def share(self) -> GaussianShares:
        """The noise where sites add it, if as few stay as may."""
        (law,) = self.terms.mechanisms
        assert isinstance(law, GaussianShares)
        return law


def invite(
    epsilon: float,
    num_tasks: int,
    features: Sequence[Hashable] | int,
    delta: float | None = None,
    *,
    sites: int | None = None,
    trust: str = "secure_sum",
    dropouts: int | None = None,
    colluders: int = 0,
    partners: int | None = None,
    mechanism: str = "wishart",
    adjacency: str = "replace",
    scaling: str = "pareto",
) -> Invitation:
    """The terms of one release over several sites, from public numbers alone.

    Args:
        epsilon: > 0.
        num_tasks: how many there are at all sites together, at most.
        features: their names, or how many there are.
        delta: in (0, 1); default 1 / (m log m).
        sites: how many are invited; default one for every task.
        trust: "curator", "secure_sum" or "no_curator".
        dropouts: how many sites may vanish; default a third of them, rounded down. With more there is no release.
        colluders: how many sites may tell all they know to whoever attacks, with trust="no_curator": noise is added for that.
            Every site knows its own share of it: the promise is made against outsiders alone with 0, and against any one site
            with 1.
        partners: of every site, with whom it shares masks; default all others. An even number of order log(sites) will do
            for thousands, if few vanish: there is no release either where too few of somebody's partners stay to open a mask.
        mechanism: "wishart" or "gaussian", where the server adds the noise; shares are Gaussian.
        adjacency: "replace" or "zero_out".
        scaling: "pareto" or "none".

    Raises:
        ValueError: an argument outside its range.

    >>> from mpmtl_prob.federated import invite
    >>> invitation = invite(1.0, num_tasks=40, features=3, trust="no_curator", dropouts=4, colluders=2)
    >>> law = invitation.share  # of the 36 that stay at least, 34 keep theirs to themselves
    >>> print(f"{law.sd:.2f} for {law.share * 34**0.5:.2f}")
    2.06 for 2.00
    """
    how = Trust(one_of("trust", trust, tuple(Trust)))
    m = whole("num_tasks", num_tasks)
    n = whole("sites", m if sites is None else sites)
    gone = whole("dropouts", n // 3 if dropouts is None else dropouts, 0)
    whole("colluders", colluders, 0)
    least = n - gone
    if how is not Trust.CURATOR and least < 2:
        raise ValueError(f"dropouts: expected at most {n - 2} of {n} sites, so that two are in the sum, got {gone}")
    if how is Trust.NO_CURATOR and colluders >= least:
        raise ValueError(f"colluders: expected fewer than the {least} sites that stay at least, got {colluders}")
    options: dict[str, Any] = {"adjacency": adjacency, "scaling": scaling}
    if how is Trust.NO_CURATOR:
        settled = _with_shares(epsilon, m, features, delta, least, colluders, options)
    else:
        settled = terms(
            epsilon, m, features, delta, mechanism=one_of("mechanism", mechanism, ("wishart", "gaussian")), **options
        )
    if partners is not None and whole("partners", partners) % 2:
        raise ValueError(f"partners: expected an even number, as many on either side, got {partners}")
    d, holders = len(settled.features), n if partners is None else min(n, partners + 1)
    threshold = min(max(2, 2 * holders // 3), holders)
    if partners is None:
        threshold = min(threshold, least)  # who stays opens the masks
    elif holders < n:
        threshold = max(threshold, secure_sum.unbroken(partners, colluders))
        if threshold > holders:
            raise ValueError(f"partners: expected more of them with {colluders} colluders, got {partners}")
    if colluders >= threshold and how is not Trust.CURATOR:
        raise ValueError(f"colluders: expected fewer than the {threshold} shares that open a mask, got {colluders}")
    agreed = Agreed(secrets.token_bytes(16), d * (d + 1) // 2 + 1, max(threshold, 1), partners, least)
    return Invitation(settled, how, n, agreed)


def _with_shares(
    epsilon: float, m: int, features: Sequence[Hashable] | int, delta: float | None, least: int, colluders: int,
    options: dict[str, Any],
) -> Terms:  # fmt: skip
    """Terms whose noise is private though only ``least - colluders`` shares protect."""
    d = features if isinstance(features, int) else len(features)
    wanted = default_delta(m) if delta is None else delta
    adjacency = options["adjacency"]
    real = calibrate_gaussian(epsilon, wanted, d, adjacency=adjacency)
    h = lattice.step(1.0, d, m, [real])
    for _ in range(2):  # what discreteness costs is next to nothing, and paid too
        lost = slack(d, real.sd / h**2, real.mu("replace"))
        real = calibrate_gaussian(epsilon, wanted - 1.01 * lost, d, adjacency=adjacency)
    law = GaussianShares(d, float(real.sd / np.sqrt(least - colluders)), least, h**2, colluders)
    settled = terms(epsilon, m, features, wanted, mechanism=law, **options)
    if settled.lattice != h:
        law = replace(law, step=settled.lattice**2)
        settled = replace(settled, mechanisms=(law,))
    return settled


class Site:
    """Where the rows are: answers a run, once.

    Args:
        number: among the sites that are invited.
        source: the rows of its tasks, or their messages, d x k.
        account: of runs answered; default one in memory, which forgets.
        unsafe_seed: draws the site's noise from this seed, for demonstrations.
    """

    def __init__(
        self,
        number: int,
        source: TaskData | ArrayLike,
        account: Account | None = None,
        *,
        unsafe_seed: int | None = None,
    ) -> None:
        self.number = whole("number", number, 0)
        self.account = Account() if account is None else account
        self._source, self._seed = source, unsafe_seed
        self._invitation: Invitation | None = None
        self._keys: secure_sum.Keys | None = None
        self._shared: secure_sum.Shared | None = None
        self._masked: secure_sum.Masked | None = None

    def __repr__(self) -> str:
        return f"Site({self.number})"

    @property
    def seeded(self) -> bool:
        """Its noise protects nothing."""
        return self._seed is not None

    def answer(self, invitation: Invitation, stage: str, received: Message) -> Message:
        """What this site says at a stage.

        Raises:
            RunRefused: the account does not allow it.
            BudgetExceeded: its ledger does not.
            TooFewOwners: too many others have vanished.
            ValueError: a message out of turn, or one that was changed on its way.
        """
        agreed, me = invitation.agreed, self.number
        if self._invitation not in (None, invitation):
            raise ValueError("invitation: expected the one that this site has answered before")
        self._invitation = invitation
        if stage == "send" and invitation.trust is Trust.CURATOR:  # nobody else is shown it as it is
            return {"vector": _bytes(self._vector(invitation))}
        if stage == "advertise" and self._keys is None:
            self._keys, advert = secure_sum.advertise()
            return {"letters": advert.letters, "masks": advert.masks}
        if stage == "share" and self._keys is not None and self._shared is None:
            adverts = {int(i): Advert(both[:32], both[32:]) for i, both in received.items()}
            self._shared, letters = secure_sum.share(agreed, me, self._keys, adverts)
            return {str(j): letter for j, letter in letters.items()}
        if stage == "mask" and self._keys is not None and self._shared is not None and self._masked is None:
            letters = {int(j): letter for j, letter in received.items()}
            if len(letters) + 1 < agreed.threshold:
                raise TooFewOwners("mask", len(letters) + 1, agreed.threshold)  # before anything is paid
            vector = self._vector(invitation)
            self._masked, sent = secure_sum.mask(agreed, me, self._keys, self._shared, letters, vector)
            return {"vector": _bytes(sent.vector), "seal": sent.seal}
        if stage == "reveal" and self._masked is not None:
            masked, self._masked = self._masked, secure_sum.Masked({})  # once
            revealed = secure_sum.reveal(agreed, me, masked, np.frombuffer(received["arrived"], "<u4").tolist())
            own = {f"seed {j}": share.to_bytes(33) for j, share in revealed.seeds.items()}
            return own | {f"key {j}": share.to_bytes(33) for j, share in revealed.keys.items()}
        raise ValueError(f"stage: {stage!r} is out of turn")

    def _vector(self, invitation: Invitation) -> Vector:
        """The second moment of its messages, with its share of the noise if nobody else adds any; paid for first."""
        settled, trust = invitation.terms, invitation.trust
        own = message(self._source, settled)
        self.account.enter(invitation.agreed.run, trust, seen=trust.seen)
        A = own @ own.T
        if trust is Trust.NO_CURATOR:
            A = A + draw_share(
                invitation.share, adjacency=settled.adjacency, ledger=self.account.ledger, data=self._source,
                unsafe_seed=self._seed, which=self.number,
            )  # fmt: skip
        return _whole(A, settled.lattice**2, own.shape[1])


def serve(invitation: Invitation) -> Generator[Sending, dict[int, Message], tuple[Vector, int]]:
    """The server: yields a stage with what to send to whom, is sent what came back, and returns the sum and the sites in it.

    Whoever does not answer is left out from then on. The sum holds the second moment and, last, the number of tasks.

    Raises:
        TooFewOwners: too many have vanished.
    """
    agreed, everybody = invitation.agreed, range(invitation.sites)
    if invitation.trust is Trust.CURATOR:
        sent = yield "send", {i: {} for i in everybody}
        if len(sent) < agreed.least:
            raise TooFewOwners("send", len(sent), agreed.least)
        return np.sum([_vector(reply["vector"]) for reply in sent.values()], axis=0, dtype=np.uint64), len(sent)
    replies = yield "advertise", {i: {} for i in everybody}
    adverts = {i: Advert(reply["letters"], reply["masks"]) for i, reply in replies.items()}
    _enough("advertise", adverts, agreed)
    graph = secure_sum.partners_of(agreed, adverts)
    keys = {i: advert.letters + advert.masks for i, advert in adverts.items()}
    letters = yield "share", {i: {str(j): keys[j] for j in (i, *graph[i])} for i in adverts}
    _enough("share", letters, agreed)
    to = {i: {str(j): box[str(i)] for j, box in letters.items() if str(i) in box} for i in letters}
    replies = yield "mask", to
    arrived_from = {i: Sent(_vector(reply["vector"]), reply["seal"]) for i, reply in replies.items()}
    _enough("mask", arrived_from, agreed)
    names = np.array(sorted(arrived_from), dtype="<u4").tobytes()
    replies = yield "reveal", {i: {"arrived": names} for i in arrived_from}
    revealed = {i: _revealed(reply) for i, reply in replies.items()}
    return secure_sum.total(agreed, adverts, letters, arrived_from, revealed), len(arrived_from)


def settle(
    invitation: Invitation, total: Vector, sites: int, *, unsafe_seed: int | None = None, ledger: Ledger | None = None
) -> Release:
    """The release of a sum, with the server's noise where the sites have added none.

    Args:
        invitation: to the run.
        total: of :func:`serve`.
        sites: that are in it.
        unsafe_seed: draws the noise from this seed, for demonstrations; the seed of the sites, if these add it.
        ledger: of the server, which pays before noise is drawn; where sites add the noise, theirs have paid.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: more tasks than were announced.
    """
    settled, d = invitation.terms, len(invitation.terms.features)
    m = int(total[-1])
    if not 1 <= m <= settled.num_tasks:
        raise ValueError(f"num_tasks: expected between 1 and {settled.num_tasks} tasks in the sum, got {m}")
    A = np.zeros((d, d))
    A[np.tril_indices(d)] = total[:-1].view(np.int64) * settled.lattice**2
    A = A + np.tril(A, -1).T
    settled = replace(settled, num_tasks=m)
    if invitation.trust is Trust.NO_CURATOR:
        if ledger is not None:
            raise ValueError("ledger: expected none where sites add the noise; theirs have paid")
        law = replace(invitation.share, owners=sites)
        return arrived(A, replace(settled, mechanisms=(law,)), seeded=unsafe_seed is not None)
    return publish(A, settled, unsafe_seed=unsafe_seed, ledger=ledger)


def _enough(stage: str, there: Mapping[int, Any], agreed: Agreed) -> None:
    if len(there) < agreed.least:
        raise TooFewOwners(stage, len(there), agreed.least)


def _whole(A: FloatArray, unit: float, tasks: int) -> Vector:
    """The lower triangle in units of the lattice, and the number of tasks, modulo 2^64."""
    numbers = np.rint(A[np.tril_indices(len(A))] / unit).astype(np.int64)
    return np.append(numbers, np.int64(tasks)).view(np.uint64)


def _bytes(vector: Vector) -> bytes:
    return vector.astype("<u8").tobytes()


def _vector(text: bytes) -> Vector:
    return np.frombuffer(text, "<u8").astype(np.uint64)


def _revealed(reply: Message) -> Revealed:
    numbers: dict[str, dict[int, int]] = {"seed": {}, "key": {}}
    for name, share in reply.items():
        kind, number = name.split()
        numbers[kind][int(number)] = int.from_bytes(share)
    return Revealed(numbers["seed"], numbers["key"])
