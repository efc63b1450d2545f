"""Flower apps of the federated protocol: a server app that asks its nodes, and a client app that answers for one site.

Needs the extra ``flower``. Flower carries byte strings and starts processes; nothing else of it is used. In particular, its
own secure aggregation is not used, and neither is its state, which would leave the node. The app in
``apps/mpmtl-federated`` consists of these functions.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob._util.files import write_text
from mpmtl_prob.data.reference import read_reference
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.federated import sharded as scattered
from mpmtl_prob.federated.flower import wire
from mpmtl_prob.federated.flower.persistent_site import PersistentSite
from mpmtl_prob.federated.invitation import Invitation, invite
from mpmtl_prob.federated.local import Outcome, conduct, size
from mpmtl_prob.federated.protocol import Message, Source, serve, settle
from mpmtl_prob.federated.run_log import RunLog, RunRefused
from mpmtl_prob.federated.secure_sum import TooFewOwners
from mpmtl_prob.federated.site_policy import SitePolicy
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.spec import default_delta
from mpmtl_prob.schema.schema import Schema

if TYPE_CHECKING:
    from flwr.app import Message as FlowerMessage
    from flwr.serverapp import Grid

#: The action that messages name. A client app registers it by ``@app.query(ACTION)``.
ACTION = "mpmtl"
_NAME = 60  # at most so many letters of an error's name are believed
_POLL = 0.5  # seconds between two looks at who is connected


def run(
    grid: Grid,
    invitation: Invitation,
    *,
    timeout: float = 300.0,
    shards: bool = False,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
) -> Outcome:
    """Run the protocol over the nodes of a grid, and send the release back to all of them.

    The function :func:`mpmtl_prob.federated.run` does the same in one process.

    Args:
        grid: the grid of the server app.
        invitation: to the run; its sites are the connected nodes, in the order of their ids.
        timeout: seconds that every stage may take, and the wait for enough nodes. A node that has not answered by then counts
            as dropped out.
        shards: True if the nodes read one table in shards, so that one node can take over the shards of a lost one; see
            :mod:`mpmtl_prob.federated.sharded`.
        unsafe_seed: draws the noise from this seed, for demonstrations.
        ledger: the server's ledger, where the server adds the noise.

    Raises:
        TooFewOwners: too many nodes dropped out, refused or never connected.
        LostShards: with ``shards``, some tasks are in no shard that a node could read.
        BudgetExceeded: the ledger's total does not cover it.
    """
    positive("timeout", timeout)
    nodes = Nodes(grid, invitation, timeout)
    server = scattered.gather(invitation) if shards else serve(invitation)
    total, inside = conduct(server, nodes.ask)
    release = settle(invitation, total, inside, unsafe_seed=unsafe_seed, seeded=nodes.seeded, ledger=ledger)
    text = _file_of(release)
    nodes.ask("release", {i: {"release": text} for i in nodes.ids})
    return Outcome(release, inside, dict(nodes.moved), nodes.refused)


class Nodes:
    """The Flower nodes of one run, by site number, with the traffic and the refusals so far.

    A site that signs has its number from the public keys that the sites know of each other, and states it at the first
    stage. The other nodes get the numbers that are left. From then on a node is identified by its id, which the link
    vouches for, and not by what the node writes.

    Attributes:
        ids: Flower's node ids, by site number.
        moved: bytes sent and received, by stage.
        refused: the error's name for every site that refused, by site number.
        seeded: True if some site says that it draws its noise from a seed.

    Raises:
        TooFewOwners: too few nodes connected in time.
    """

    def __init__(self, grid: Grid, invitation: Invitation, timeout: float) -> None:
        self._grid, self._timeout, self._invitation = grid, timeout, wire.write(invitation)
        self.ids = dict(enumerate(_connected(grid, invitation.sites, invitation.agreed.least, timeout)))
        self._sites, self._first = invitation.sites, True
        self.seeded = False
        self.moved: Counter[str] = Counter()
        self.refused: dict[int, str] = {}

    def ask(self, stage: str, sending: Mapping[int, Message]) -> dict[int, Message]:
        """Send one stage's messages to the nodes, and return their replies by site number."""
        from flwr.app import ConfigRecord, RecordDict
        from flwr.app import Message as FlowerMessage

        letters, asked = [], set()
        for i, received in sending.items():
            if i not in self.ids or i in self.refused:
                continue
            call = {"stage": stage, "number": i, "invitation": self._invitation}
            content = RecordDict({"call": ConfigRecord(call), "message": ConfigRecord(dict(received))})
            letters.append(FlowerMessage(content, self.ids[i], f"query.{ACTION}", ttl=self._timeout))
            asked.add(self.ids[i])
            self.moved[stage] += size(received)
        answers: dict[int, _Said] = {}
        for reply in self._grid.send_and_receive(letters, timeout=self._timeout):
            # The link reports a lost node as an error.
            if reply.metadata.src_node_id in asked and not reply.has_error():
                with suppress(KeyError, ValueError, TypeError):  # a malformed answer counts as no answer
                    answers[reply.metadata.src_node_id] = _read(reply)
        if self._first:
            claimed = {node: said.number for node, said in answers.items()}
            self.ids, self._first = _by_number(self.ids.values(), claimed, self._sites), False
        replies: dict[int, Message] = {}
        for i, node in self.ids.items():
            if (said := answers.get(node)) is None:
                continue
            if isinstance(said.what, str):
                self.refused[i] = said.what
            elif said.number != i:
                self.refused[i] = f"says that it is site {said.number}"
            else:
                replies[i] = said.what
                self.seeded |= said.seeded
                self.moved[stage] += size(said.what)
        named = ", ".join(f"{i}: {name}" for i, name in self.refused.items())
        print(
            f"{stage}: {len(replies)} of {len(letters)} answered" + (f"; refused {named}" if named else ""), flush=True
        )
        return replies


def answer(
    message: FlowerMessage, source: Source, folder: Path, *, policy: SitePolicy, **options: Any
) -> FlowerMessage:
    """Return the client app's reply: the site's answer, or the bare name of the error that prevented one.

    Args:
        message: the message from the server app.
        source: as for :class:`Site`; preferably a function, which is called only when rows are needed.
        folder: on the data owner's disk, for its run log, its secrets between stages, and releases.
        policy: the conditions that an invitation must meet.
        options: further arguments of :class:`mpmtl_prob.federated.flower.persistent_site.PersistentSite`.
    """
    from flwr.app import ConfigRecord, RecordDict
    from flwr.app import Message as FlowerMessage

    try:
        call, received = message.content.config_records["call"], message.content.config_records["message"]
        site = _Owner(source, folder, policy, options)
        replied = site.answer(call, _only_bytes(received))
        number = site.number(call)
    except Exception as error:  # Flower would send the error's text, which may quote rows, to the server
        print(f"no answer: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return FlowerMessage(RecordDict({"refused": ConfigRecord({"error": type(error).__name__})}), reply_to=message)
    about = {"number": number, "seeded": options.get("unsafe_seed") is not None}
    content = RecordDict({"message": ConfigRecord(dict(replied)), "site": ConfigRecord(about)})
    return FlowerMessage(content, reply_to=message)


class _Owner(NamedTuple):
    """The client app's settings: the rows' source, the folder, the policy and the options of the site."""

    source: Source
    folder: Path
    policy: SitePolicy
    options: Mapping[str, Any]

    def number(self, call: Mapping[str, Any]) -> int:
        """Return this site's number: that of its signing key if it has one, else the one that the server states."""
        signer = self.options.get("signer")
        number: int = whole("number", call["number"], 0) if signer is None else signer.number
        return number

    def answer(self, call: Mapping[str, Any], received: Message) -> Message:
        invitation, number, stage = wire.read(call["invitation"]), self.number(call), call["stage"]
        site = PersistentSite(number, self.source, self.folder, policy=self.policy, **self.options)
        if stage == "release":
            self._known(site.run_log, invitation)
            with open(self.folder / f"release-{invitation.agreed.run.hex()[:8]}.nc", "xb") as file:
                file.write(received["release"])
            return {}
        if stage in ("list", "shards"):
            shards = self.source() if callable(self.source) else self.source
            if not isinstance(shards, TaskShards):
                raise ValueError("shards: this site has none")
            self.policy.check(invitation)
            answered = scattered.answer(shards, invitation, stage, received)
            if stage == "list":  # the later stages belong to the same run, and are not counted again
                site.run_log.enter(invitation.agreed.run, invitation.trust, seen=True)
            self._known(site.run_log, invitation)
            return answered
        return site.answer(invitation, stage, received)

    @staticmethod
    def _known(account: RunLog, invitation: Invitation) -> None:
        run = invitation.agreed.run.hex()
        if run not in (known for known, *_ in account.answered()):
            raise RunRefused(f"run {run[:8]}: this site has not answered it")


def main(grid: Grid, config: Mapping[str, Any]) -> Outcome:
    """Run the server app: invite the sites, run the protocol, and write the outcome to the folder ``out``.

    The file ``outcome.json`` is always written, and ``release.nc`` if the run succeeded.

    Args:
        grid: the grid of the server app.
        config: the run's configuration; ``apps/mpmtl-federated/pyproject.toml`` documents its entries.

    Raises:
        Exception: the error that ended the run, after it was written to ``outcome.json``.
    """
    out, begin = Path(str(config["out"])), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {}
    try:
        outcome = run(grid, invited(config), timeout=config["timeout"], shards=config["shards"], ledger=_ledger(config),
                    unsafe_seed=_unless_negative(config["unsafe-seed"]))  # fmt: skip
        outcome.release.save(out / "release.nc")
        record = {"sites": outcome.sites, "moved": outcome.moved, "refused": outcome.refused}
    except Exception as error:
        record = {"error": type(error).__name__, "says": str(error)}
        raise
    finally:
        seconds = round(time.monotonic() - begin, 1)
        write_text(out / "outcome.json", json.dumps(record | {"seconds": seconds}, indent=1) + "\n")
    print(outcome.release, flush=True)
    return outcome


def invited(config: Mapping[str, Any]) -> Invitation:
    """Return the invitation that a run's configuration describes. Raises ValueError for invalid entries."""
    if config.get("study"):
        return _invited_to_study(Schema.read(str(config["study"])), config)
    features, path = str(config["features"]), str(config["reference"])
    names = int(features) if features.isdecimal() else [name.strip() for name in features.split(",")]
    reference = read_reference(path, "reference") if path else None
    if reference is not None and isinstance(names, int):
        raise ValueError(
            f"features: expected names of the columns beside reference values, got how many there are, {names}"
        )
    return invite(
        config["epsilon"],
        config["num-tasks"],
        names,
        config["delta"] or None,
        sites=config["sites"],
        trust=config["trust"],
        dropouts=_unless_negative(config["dropouts"]),
        colluders=config["colluders"],
        partners=config["partners"] or None,
        mechanism=config["mechanism"],
        adjacency=config["adjacency"],
        reference=reference,
    )


def _invited_to_study(study: Schema, config: Mapping[str, Any]) -> Invitation:
    """Return the invitation to a study, whose file specifies the columns, the release and its privacy budget."""
    return invite(
        study.spec,
        study.num_tasks,
        study.coefficients,
        sites=config["sites"],
        trust=config["trust"],
        dropouts=_unless_negative(config["dropouts"]),
        colluders=config["colluders"],
        partners=config["partners"] or None,
        study=study.digest,
    )


def _ledger(config: Mapping[str, Any]) -> Ledger | None:
    """Return the server's ledger. A new file is declared with the delta and the adjacency of this run."""
    if not config["ledger"]:
        return None
    if Path(config["ledger"]).exists():
        return Ledger(config["ledger"])
    delta, tasks, adjacency = config["delta"], config["num-tasks"], config["adjacency"]
    if config.get("study"):
        study = Schema.read(str(config["study"]))
        delta, tasks, adjacency = study.promise["delta"], study.num_tasks, study.promise["adjacency"]
    return Ledger(config["ledger"], epsilon=config["total"], delta=delta or default_delta(tasks), adjacency=adjacency)


def _unless_negative(number: int) -> int | None:
    """Return None for a negative number, as Flower's configurations have no None."""
    return None if number < 0 else number


def _connected(grid: Grid, invited_nodes: int, least: int, timeout: float) -> list[int]:
    """Wait for the invited number of nodes and return their ids. When time is up, ``least`` of them are enough."""
    until = time.monotonic() + timeout
    while len(ids := sorted(grid.get_node_ids())) < invited_nodes and time.monotonic() < until:
        time.sleep(_POLL)
    if len(ids) < least:
        raise TooFewOwners("connect", len(ids), least)
    return ids[:invited_nodes]


class _Said(NamedTuple):
    """A site's answer or the name of its error, the site's number, and whether its noise comes from a seed."""

    what: Message | str
    number: int
    seeded: bool = False


def _read(reply: FlowerMessage) -> _Said:
    """Parse a site's reply. Raises KeyError, TypeError or ValueError for a malformed one."""
    records = reply.content.config_records
    if "refused" in records:
        name = str(records["refused"]["error"])
        return _Said(name if name.isidentifier() and len(name) < _NAME else "Exception", -1)
    about = records["site"]
    return _Said(_only_bytes(records["message"]), whole("number", about["number"], 0), bool(about["seeded"]))


def _by_number(nodes: Collection[int], claimed: Mapping[int, int], sites: int) -> dict[int, int]:
    """Return the nodes by site number.

    A node gets the number that it alone claims. All other nodes get the numbers that are left, in order.
    """
    claims = Counter(claimed.values())
    by_number = {i: node for node, i in claimed.items() if 0 <= i < sites and claims[i] == 1}
    others = [node for node in nodes if node not in by_number.values()]
    return by_number | dict(zip([i for i in range(sites) if i not in by_number], others, strict=False))


def _only_bytes(record: Mapping[str, Any]) -> Message:
    if any(not isinstance(text, bytes) for text in record.values()):
        raise ValueError("message: expected bytes by name")
    return dict(record)


def _file_of(release: Release) -> bytes:
    with TemporaryDirectory() as folder:
        release.save(path := Path(folder) / "release.nc")
        return path.read_bytes()
