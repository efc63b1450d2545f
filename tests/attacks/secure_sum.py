"""A server that lies about who is there opens what it should not, another user reads a site's files, or seeds count as noise.

In a secure sum the server passes on the public keys as they are and lies about everything else: it holds letters back, tells
every site another list of those whose vectors arrived, and knows all that some sites know, who collude. It has won where it
reads the sum over fewer sites than the invitation lets it, or opens both secrets of a site.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from attacks import Case
from mpmtl_prob import federated
from mpmtl_prob.federated import protocol, secure_sum
from mpmtl_prob.federated.flower import certificates
from mpmtl_prob.federated.flower.persistent_site import PersistentSite

BOTH = "one half is told that a site has vanished, the other that it has not"
KEYS = "a site masks with few others, of each of whom most are told that it has vanished"
RANDOM = "letters are held back and lists made up at random"
INVITED = "sites are invited to one run by different terms"
SIGNED = "sites sign their keys and lists, and are told the same lies"
CIRCLE = "few partners, one list for all, and letters held back"
CIRCLE_BOTH = "few partners, and lists that differ: both secrets of a site"
ACCEPTED = "an invitation by which the server could open both secrets of a site"
FILES = "a file of a site is readable by others"
FLOWER = "sites whose noise is drawn from a seed, under Flower"
WAYS = (BOTH, KEYS, RANDOM, INVITED, SIGNED, CIRCLE, CIRCLE_BOTH, ACCEPTED, FILES, FLOWER)
D = 2


class Lied:
    """A run of which the server knows what honest sites told it, and all that the colluding ones know.

    Args:
        invitations: by site; most often one and the same.
        colluders: the numbers of sites that tell the server everything.
        rng: of their vectors.
        signers: by site, where sites sign.
    """

    def __init__(
        self,
        invitations: list[Any],
        colluders: Collection[int],
        rng: np.random.Generator,
        signers: list[Any] | None = None,
    ) -> None:
        n = len(invitations)
        self.invitations, self.colluders = invitations, set(colluders)
        self.honest = [i for i in range(n) if i not in self.colluders]
        W = rng.standard_normal((D, n))
        self.sites = [federated.Site(i, W[:, [i]], signer=signers and signers[i]) for i in range(n)]
        self.truth = {}
        for i, invitation in enumerate(invitations):
            A, tasks, _ = protocol.moment(W[:, [i]], invitation.terms)
            self.truth[i] = protocol.in_units(A, invitation.terms.lattice**2, tasks)
        self.adverts: dict[int, secure_sum.Advert] = {}
        self.letters: dict[int, dict[int, bytes]] = {}
        self.heard: dict[int, set[int]] = {}
        self.sent: dict[int, secure_sum.Sent] = {}
        self.seeds: dict[int, dict[int, int]] = {i: {} for i in range(n)}
        self.keys: dict[int, dict[int, int]] = {i: {} for i in range(n)}
        self.refused: list[str] = []

    def ask(self, i: int, stage: str, received: Mapping[str, bytes]) -> dict[str, bytes] | None:
        """Return the answer of a site; None where it refuses."""
        try:
            return self.sites[i].answer(self.invitations[i], stage, dict(received))
        except (federated.RunRefused, federated.TooFewOwners, ValueError) as error:
            self.refused.append(f"{stage}: {error}")
            return None

    def begin(self, withheld: Callable[[int, int], bool]) -> None:
        """The first three stages; ``withheld(j, i)``: whether the letter of j does not reach i."""
        said = {i: reply for i in range(len(self.sites)) if (reply := self.ask(i, "advertise", {})) is not None}
        self.adverts = {i: secure_sum.Advert(reply["letters"], reply["masks"]) for i, reply in said.items()}
        texts = {i: b"".join(self.adverts[i]) + said[i].get("signature", b"") for i in said}
        self.graph = {}
        for i in said:
            whole = secure_sum.partners_of(self.invitations[i].agreed, self.adverts)[i]
            self.graph[i] = {j for j in whole if j < self.invitations[i].sites}
        for i in said:
            letters = self.ask(i, "share", {str(j): texts[j] for j in {i, *self.graph[i]}})
            if letters is not None:
                self.letters[i] = {int(j): text for j, text in letters.items()}
        for i in self.letters:
            mine = {j for j in self.graph[i] & self.letters.keys() if i in self.letters[j] and not withheld(j, i)}
            reply = self.ask(i, "mask", {str(j): self.letters[j][i] for j in mine})
            if reply is not None:
                self.heard[i] = mine | {i}
                self.sent[i] = secure_sum.Sent(np.frombuffer(reply["vector"], "<u8").astype(np.uint64), reply["seal"])
        for i in self.colluders & self.sent.keys():  # before the site, as agreed, forgets them
            for j, (seed, key) in self.sites[i]._masked.shares.items():
                self.seeds[j][i], self.keys[j][i] = seed, key

    def end(self, lists: Mapping[int, Collection[int]], asked: Collection[int] | None = None) -> None:
        """The stages after the vectors: a site is told the list under its number, and whoever has the same list vouches."""
        texts = {i: np.array(sorted(names), dtype="<u4").tobytes() for i, names in lists.items()}
        asked = [i for i in (self.honest if asked is None else asked) if i in texts and i in self.sent]
        vouched = {
            i: {texts[i]: reply} for i in asked if (reply := self.ask(i, "confirm", {"arrived": texts[i]})) is not None
        }
        for i in self.colluders & self.sent.keys():  # they vouch for every list that there is
            vouched[i] = {}
            for text in set(texts.values()):
                site = self.sites[i]
                site._masked = site._masked._replace(confirmed=b"")
                if (reply := self.ask(i, "confirm", {"arrived": text})) is not None:
                    vouched[i][text] = reply
        for i in asked:
            received = {"arrived": texts[i]}
            for j, replies in vouched.items():
                reply = replies.get(texts[i], {})
                if word := reply.get("signature") or reply.get(str(i)):
                    received[str(j)] = word
            reply = self.ask(i, "reveal", received)
            for name, share in (reply or {}).items():
                kind, number = name.split()
                {"seed": self.seeds, "key": self.keys}[kind][int(number)][i] = int.from_bytes(share)

    def opened(self, shares: Mapping[int, Mapping[int, int]]) -> dict[int, bytes]:
        """Secrets of honest sites of which there are shares enough."""
        secrets = {}
        for i in self.honest:
            if i in self.sent and len(shares[i]) >= (need := self.invitations[i].agreed.threshold):
                secrets[i] = secure_sum._Opener(need).secret(shares[i])
        return secrets

    def both(self) -> list[int]:
        """Honest sites of which the server has both secrets."""
        return sorted(self.opened(self.seeds).keys() & self.opened(self.keys).keys())

    def read(self) -> list[set[int]]:
        """Groups of honest sites whose sum the server has, without those who collude; checked against the truth."""
        seeds, keys = self.opened(self.seeds), self.opened(self.keys)
        keys |= {i: self.sites[i]._keys.masks for i in self.colluders & self.sent.keys()}
        unknown = {j: {i for i in self.heard[j] - {j} if i not in keys and j not in keys} for j in seeds}
        while bad := [j for j in unknown if any(i not in unknown or j not in self.heard[i] for i in unknown[j])]:
            for j in bad:
                del unknown[j]
        groups = []
        while unknown:
            group, new = set(), {next(iter(unknown))}
            while new:
                group |= new
                new = {i for j in new for i in unknown[j]} - group
            unknown = {j: others for j, others in unknown.items() if j not in group}
            total = sum(
                (self._unmasked(j, seeds[j], keys, group) for j in group), np.zeros_like(self.sent[min(group)].vector)
            )
            truth = sum((self.truth[j] for j in group), np.zeros_like(total))
            if not np.array_equal(total, truth):
                raise AssertionError("the attack subtracts other masks than a site has added")
            groups.append(group)
        return groups

    def _unmasked(self, j: int, seed: bytes, keys: Mapping[int, bytes], group: set[int]) -> Any:
        agreed = self.invitations[j].agreed
        left = self.sent[j].vector - secure_sum.stream(agreed, seed)
        for i in self.heard[j] - {j}:
            if i in keys:
                private, public = keys[i], self.adverts[j].masks
            elif j in keys:
                private, public = keys[j], self.adverts[i].masks
            else:  # it cancels in the group
                continue
            pair = secure_sum.stream(agreed, secure_sum._secret(agreed, secure_sum._private(private), public, b"mask"))
            left = left - pair if j < i else left + pair
        return left

    def verdict(self, way: str, what: str) -> Case:
        """Check whether the server has both secrets of a site, or a sum over too few honest sites."""
        least = min(invitation.agreed.least for invitation in self.invitations) - len(self.colluders)
        both, small = self.both(), [sorted(group) for group in self.read() if len(group) < least]
        if both:
            return Case(way, False, f"{what}: both secrets of site {both[0]}, whose vector is read")
        if small:
            return Case(
                way, False, f"{what}: the sum over sites {small[0]} alone is read, where {least} have to be in it"
            )
        return Case(way, True, what)


def invitation_of(n: int, dropouts: int | None, colluders: int, **options: Any) -> Any:
    """An invitation to a secure sum; None where there is none by these numbers."""
    try:
        return federated.invite(1.0, n, D, trust="secure_sum", scaling="none", dropouts=dropouts, colluders=colluders,
                                **options)  # fmt: skip
    except ValueError:
        return None


def told_apart(run: Lied, target: int) -> None:
    """Ask for as many shares of a site's seed as open it, and for all others of its key."""
    need = run.invitations[target].agreed.threshold - len(run.colluders)
    others = [i for i in run.honest if i != target]
    run.begin(lambda j, i: False)
    everybody = set(run.sent)
    lists = {i: everybody if i == target or k + 1 < need else everybody - {target} for k, i in enumerate(others)}
    run.end(lists | {target: everybody})


def keys_of_partners(run: Lied, target: int, size: int) -> None:
    """The keys of all with whom some sites mask: those hear of no others, and everybody else is told that they vanished."""
    agreed = run.invitations[target].agreed
    group = {target, *[i for i in run.honest if i != target][: size - 1]}
    need = max(agreed.least, agreed.threshold) - len(run.colluders) - len(group)
    masking = [i for i in run.honest if i not in group][: max(need, 0)]
    near = group | set(masking) | run.colluders
    run.begin(lambda j, i: i in group and j not in near)
    everybody, often = set(run.sent), dict.fromkeys(masking, 0)
    lists = {}
    for i in run.honest:
        heard = run.heard.get(i, set())
        spare = max(len(heard) - agreed.least, 0)
        gone = sorted(set(masking) - {i}, key=lambda j: often[j])[:spare]
        for j in gone:
            often[j] += 1
        lists[i] = (heard & everybody) - set(gone)
    run.end(lists)


def at_random(run: Lied, rng: np.random.Generator) -> None:
    """Letters and lists by chance, as many as a site would still answer."""
    n, agreed = len(run.sites), run.invitations[0].agreed
    spare = n - max(agreed.least, agreed.threshold)
    gone = {
        i: set(rng.permutation([j for j in range(n) if j != i])[: rng.integers(0, spare + 1)].tolist())
        for i in range(n)
    }
    run.begin(lambda j, i: j in gone[i] if rng.random() < 0.8 else False)
    few = [set(rng.permutation(n)[: rng.integers(0, spare + 1)].tolist()) for _ in range(int(rng.integers(1, 4)))]
    lists = {}
    for i in run.honest:
        without = few[int(rng.integers(len(few)))] if rng.random() < 0.8 else gone[i]
        lists[i] = (run.heard.get(i, set()) - without) | {i}
    run.end(lists)


def shapes(most: int) -> list[tuple[int, int | None, int]]:
    """Numbers of sites, of those who may vanish (None: the default), and of those who collude."""
    return [(n, gone, c) for n in range(2, most + 1) for c in range(n - 1) for gone in (None, *range(n - 1))]


def unsigned(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Yield what a lying server can read of sites that do not sign."""
    every = shapes(10)
    for chosen in rng.permutation(len(every))[: max(int(len(every) * effort), 6)]:
        n, gone, c = every[chosen]
        invitation = invitation_of(n, gone, c)
        what = f"{n} sites, {'by default' if gone is None else gone} may vanish, {c} collude"
        if invitation is None or n - c < 2:  # of one honest site the sum is the vector
            yield Case(BOTH, True, what)
            yield Case(KEYS, True, what)
            continue
        for really in {0, c}:
            colluders = rng.permutation(n)[:really].tolist()
            run = Lied([invitation] * n, colluders, rng)
            told_apart(run, run.honest[0])
            yield run.verdict(BOTH, what + f", {really} of whom there are")
            for size in range(1, min(3, n - really)):
                run = Lied([invitation] * n, colluders, rng)
                keys_of_partners(run, run.honest[0], size)
                yield run.verdict(KEYS, what + f", {really} of whom there are")


def by_chance(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """The same at random, with one invitation or several."""
    for trial in range(max(int(1500 * effort), 10)):
        n, c = int(rng.integers(4, 11)), int(rng.integers(0, 3))
        invitation = invitation_of(n, None if trial % 2 else int(rng.integers(0, n - 1)), c)
        if invitation is None:
            yield Case(RANDOM, True, f"{n} sites, {c} collude: no invitation")
            continue
        run = Lied([invitation] * n, rng.permutation(n)[:c].tolist(), rng)
        at_random(run, rng)
        yield run.verdict(RANDOM, f"{n} sites, {c} collude, trial {trial}")
    for trial in range(max(int(400 * effort), 6)):
        n = int(rng.integers(6, 11))
        offers = [invitation_of(int(k), None, 0) for k in rng.integers(n // 2, n + 1, 2)] + [invitation_of(n, None, 0)]
        name = offers[0].agreed.run
        offers = [replace(offer, agreed=offer.agreed._replace(run=name)) for offer in offers]
        told = [
            max((offers[int(rng.integers(3))], offers[2]), key=lambda offer, i=i: i < offer.sites) for i in range(n)
        ]
        run = Lied(told, [], rng)
        (told_apart(run, int(rng.integers(n))) if trial % 2 else at_random(run, rng))
        yield run.verdict(INVITED, f"{[offer.sites for offer in told]} sites, as each is told")


def signing(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """The same of sites that sign."""
    for trial in range(max(int(400 * effort), 8)):
        n, c = int(rng.integers(4, 9)), int(rng.integers(0, 2))
        invitation = invitation_of(n, None if trial % 2 else int(rng.integers(0, n // 2)), c)
        if invitation is None:
            yield Case(SIGNED, True, f"{n} sites, {c} collude: no invitation")
            continue
        run = Lied([invitation] * n, rng.permutation(n)[:c].tolist(), rng, signers_of(n))
        kind = trial % 3
        if kind == 0:
            told_apart(run, run.honest[0])
        elif kind == 1:
            keys_of_partners(run, run.honest[0], 1)
        else:
            at_random(run, rng)
        yield run.verdict(SIGNED, f"{n} sites, {c} collude, trial {trial}")


def signers_of(n: int) -> list[Any]:
    """For every site a key of its own, and those of all."""
    private, public = zip(*(federated.new_key() for _ in range(n)), strict=True)
    return [federated.Signer(key, dict(enumerate(public))) for key in private]


def circle(graph: Mapping[int, set[int]]) -> list[int]:
    """The order of sites on the circle on which they are partners: neighbours have most partners in common."""
    order = [0]
    while len(order) < len(graph):
        order.append(max(graph[order[-1]] - set(order), key=lambda j: len(graph[j] & graph[order[-1]]), default=-1))
        if order[-1] < 0:
            raise AssertionError("the attack does not find the circle")
    return order


def three_in_a_row(run: Lied) -> None:
    """Three neighbours on the circle hear of each other and of three who vanish, as the one list for all says.

    The others, who share masks with these three as they believe, sit on the same list.
    """
    run.begin(lambda j, i: i in heard(run) and j not in heard(run)[i])
    vanished = set.union(*heard(run).values()) - heard(run).keys()
    there = set(run.sent) - vanished
    run.end(dict.fromkeys(there, there), there)


def heard(run: Lied) -> dict[int, set[int]]:
    """List the numbers of the sites whose letters reach the three."""
    order = circle(run.graph)
    three, vanish = order[6:9], {order[4], order[9], order[10]}
    return {i: vanish | set(three) for i in three}


def on_a_circle(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Few partners, on a circle as it is: with a list for all, and with lists that differ."""
    for trial in range(max(int(150 * effort), 4)):
        n = int(rng.integers(18, 26))
        invitation = invitation_of(n, 3, 0, partners=8)
        run = Lied([invitation] * n, [], rng, signers_of(n) if trial % 2 else None)
        three_in_a_row(run)
        yield run.verdict(CIRCLE, f"{n} sites with 8 partners, {'signed' if trial % 2 else 'unsigned'}")
    for trial in range(max(int(150 * effort), 4)):
        n, partners = (12, 4) if trial % 2 else (20, 8)
        c = trial // 2 % 2
        invitation = replace(
            base := invitation_of(n, 1, c, partners=partners), agreed=base.agreed._replace(least=n // 2 + 1)
        )
        run = Lied([invitation] * n, rng.permutation(n)[:c].tolist(), rng)
        told_apart(run, run.honest[0])
        yield Case(
            CIRCLE_BOTH, not run.both(), f"{n} sites with {partners} partners, {c} collude: both of {run.both()}"
        )


def accepted(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """A site reads an invitation with a threshold that is too low for it."""
    for _ in range(max(int(1000 * effort), 20)):
        n, c = int(rng.integers(3, 40)), int(rng.integers(0, 4))
        base = invitation_of(n, 0, 0)
        least = int(rng.integers(2, n + 1))
        threshold = int(rng.integers(2, (n + c) // 2 + 1)) if n + c > 3 else 2
        offer = replace(base, agreed=base.agreed._replace(threshold=threshold, least=least))
        conditions = federated.SitePolicy(trust="secure_sum", epsilon=1.0, least=2, colluders=c)
        try:
            conditions.check(offer)
            held = 2 * threshold > n + c
        except federated.RunRefused:
            held = True
        yield Case(ACCEPTED, held, f"{n} sites, {c} of whom may collude, threshold {threshold}: accepted")


@contextmanager
def open_umask() -> Iterator[None]:
    """Set the permissions of a machine where new files can be read by everybody."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def exposed(folder: Path) -> list[str]:
    """Files that somebody else may read, and no folder on the way keeps from it."""
    readable = []
    for path in folder.rglob("*"):
        others = stat.S_IMODE(path.stat().st_mode) & 0o077
        if path.is_file() and others and path.suffix not in (".pub", ".nc", ".pem"):  # what is public anyway
            readable.append(f"{path.name} has mode {stat.S_IMODE(path.stat().st_mode):o}")
    return readable


def an_account(folder: Path) -> None:
    account = federated.RunLog(folder / "account.db")
    account.enter(b"x" * 16, "no_curator", seen=False)


def a_journal(folder: Path) -> None:
    """A transaction under way: its journal lies beside the file."""
    account = federated.RunLog(folder / "account.db")
    account.enter(b"x" * 16, "no_curator", seen=False)
    with sqlite3.connect(folder / "account.db") as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO answered VALUES ('a', 'b', 'c')")
        if problems := exposed(folder):
            raise Exposed(problems[0])
        connection.rollback()


def a_kept_site(folder: Path) -> None:
    PersistentSite(0, np.eye(D)[:, :1], folder).answer(invitation_of(4, 0, 0), "advertise", {})


def a_site_in_an_open_folder(folder: Path) -> None:
    folder.chmod(0o777)
    a_kept_site(folder)


def a_link_whose_key_was_planted(folder: Path) -> None:
    """A file that is there already, with everybody's mode, where the server's key is to be."""
    (folder / "server.key").touch(0o666)
    certificates.write(folder)


def a_key(folder: Path) -> None:
    federated.write_key(folder / "site.key", folder / "0.pub")
    certificates.write_node_key(folder)


class Exposed(Exception):
    """Somebody else could read a file while it was written."""


def files(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Yield the files that sites write where the process masks no permissions."""
    if os.name != "posix":
        return
    for _ in range(max(int(20 * effort), 1)):
        for write in (
            an_account,
            a_journal,
            a_kept_site,
            a_site_in_an_open_folder,
            a_link_whose_key_was_planted,
            a_key,
        ):
            with tempfile.TemporaryDirectory() as folder, open_umask():
                try:
                    write(Path(folder))
                    problems = exposed(Path(folder))
                except Exposed as error:
                    problems = [str(error)]
            yield Case(FILES, not problems, f"{write.__name__}: {', '.join(problems)}")


class Grid:
    """Nodes in this process, whose messages are Flower's own."""

    def __init__(self, folder: Path, seeds: Mapping[int, int], nodes: int) -> None:
        self._folder, self._seeds, self._nodes = folder, seeds, nodes

    def get_node_ids(self) -> list[int]:
        return [100 + k for k in range(self._nodes)]

    def send_and_receive(self, messages: list[Any], *, timeout: float) -> Iterator[Any]:
        from mpmtl_prob.federated import flower

        for message in messages:
            k = message.metadata.dst_node_id - 100
            rows = np.random.default_rng(k).standard_normal((D, 2))
            yield flower.answer(message, lambda rows=rows: rows, self._folder / str(k),
                                policy=federated.SitePolicy(), unsafe_seed=self._seeds.get(k))  # fmt: skip


def under_flower(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Some nodes draw their noise from a seed, and the server knows of none."""
    try:
        with catch_warnings():
            simplefilter("ignore")  # of what Flower imports
            from flwr.app import ConfigRecord  # noqa: F401
            from flwr.supercore.task_identity import TaskIdentity

            from mpmtl_prob.federated import flower
    except ImportError:
        yield Case(FLOWER, True, "Flower is not installed")
        return
    kept = {name: TaskIdentity.__dict__.get(name) for name in ("_run_id", "_node_id", "_task_id")}
    for name in kept:
        setattr(TaskIdentity, name, 1)
    try:
        for trial in range(max(int(40 * effort), 2)):
            nodes = int(rng.integers(3, 6))
            seeded = rng.permutation(nodes)[: 1 + trial % nodes].tolist()
            invitation = federated.invite(
                1.0, 2 * nodes, D, sites=nodes, trust="no_curator", scaling="none", dropouts=0
            )
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                grid = Grid(Path(folder), dict.fromkeys(seeded, trial), nodes)
                release = flower.run(grid, invitation, timeout=5.0).release
            yield Case(
                FLOWER, release.guarantee.proved is None, f"{len(seeded)} of {nodes} nodes with a seed: called proved"
            )
    finally:
        for name, value in kept.items():
            setattr(TaskIdentity, name, value)


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Every way, one after the other."""
    for attempts in (unsigned, by_chance, signing, on_a_circle, accepted, files, under_flower):
        yield from attempts(rng, effort)
