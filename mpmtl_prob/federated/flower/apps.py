"""The protocol over Flower: a server app that asks its nodes, and a client app that answers for one site.

Needs the extra ``flower``. Flower carries byte strings and starts processes, and nothing else of it is used: not its own
secure aggregation, and not its state, which would leave the node. ``apps/mpmtl-federated`` is an app made of this.
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

#: Of a message, and in a client app ``@app.query(ACTION)``.
ACTION = "mpmtl"
_NAME = 60  # letters of an error's name at most
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
    """A run over the nodes of a grid: as :func:`mpmtl_prob.federated.run`, and the release goes back to all of them.

    Args:
        grid: of the server app.
        invitation: to the run; its sites are the connected nodes, in the order of their ids.
        timeout: of every stage, in seconds, and of the wait for enough nodes. Who has not answered by then has vanished.
        shards: nodes read one table in shards, and one does what another has lost; see
            :mod:`mpmtl_prob.federated.sharded`.
        unsafe_seed: of the noise, for demonstrations.
        ledger: of the server, where it adds the noise.

    Raises:
        TooFewOwners: too many vanished, refused or never came.
        LostShards: with ``shards``.
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
    """The nodes of a run by their sites' numbers, and what became of them.

    A site that signs has its number from the keys that sites know of each other, and says it at the first stage; the others
    have those that are left. From then on a node is known by its id, which the link says, and not by what it writes.

    Attributes:
        ids: Flower's, by number.
        moved: bytes by stage, both ways.
        refused: the name of the error of who did not answer, by number.
        seeded: one of them says that it draws its noise from a seed.

    Raises:
        TooFewOwners: not enough were connected in time.
    """

    def __init__(self, grid: Grid, invitation: Invitation, timeout: float) -> None:
        self._grid, self._timeout, self._invitation = grid, timeout, wire.write(invitation)
        self.ids = dict(enumerate(_connected(grid, invitation.sites, invitation.agreed.least, timeout)))
        self._sites, self._first = invitation.sites, True
        self.seeded = False
        self.moved: Counter[str] = Counter()
        self.refused: dict[int, str] = {}

    def ask(self, stage: str, sending: Mapping[int, Message]) -> dict[int, Message]:
        """What came back, by number."""
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
        found: dict[int, _Said] = {}
        for reply in self._grid.send_and_receive(letters, timeout=self._timeout):
            if reply.metadata.src_node_id in asked and not reply.has_error():  # the link says so of a node that is gone
                with suppress(KeyError, ValueError, TypeError):  # another answer than agreed is none
                    found[reply.metadata.src_node_id] = _read(reply)
        if self._first:
            claimed = {node: said.number for node, said in found.items()}
            self.ids, self._first = _by_number(self.ids.values(), claimed, self._sites), False
        replies: dict[int, Message] = {}
        for i, node in self.ids.items():
            if (said := found.get(node)) is None:
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
    """What a client app returns: a site's answer, or the bare name of the error because of which there is none.

    Args:
        message: from the server app.
        source: as of a :class:`Site`; best a function, which is called when rows are needed.
        folder: on the owner's disk, for its account, its secrets between stages, and releases.
        policy: what the owner insists upon, whatever it is asked for.
        options: of :class:`mpmtl_prob.federated.flower.persistent_site.PersistentSite`.
    """
    from flwr.app import ConfigRecord, RecordDict
    from flwr.app import Message as FlowerMessage

    try:
        call, received = message.content.config_records["call"], message.content.config_records["message"]
        site = _Owner(source, folder, policy, options)
        replied = site.answer(call, _only_bytes(received))
        number = site.number(call)
    except Exception as error:  # Flower would send its text to the server
        print(f"no answer: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return FlowerMessage(RecordDict({"refused": ConfigRecord({"error": type(error).__name__})}), reply_to=message)
    about = {"number": number, "seeded": options.get("unsafe_seed") is not None}
    content = RecordDict({"message": ConfigRecord(dict(replied)), "site": ConfigRecord(about)})
    return FlowerMessage(content, reply_to=message)


class _Owner(NamedTuple):
    """What a client app knows before a message comes."""

    source: Source
    folder: Path
    policy: SitePolicy
    options: Mapping[str, Any]

    def number(self, call: Mapping[str, Any]) -> int:
        """Of this site: that of its key, if it has one, and else what the server says."""
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
            if stage == "list":  # later stages, of which there may be several, are of the same run and count no more
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
    """What a server app does: invites, runs, and writes down how it ended.

    To the folder ``out`` go ``outcome.json`` and, if it ended well, ``release.nc``.

    Args:
        grid: of the server app.
        config: of the run; ``apps/mpmtl-federated/pyproject.toml`` says what each entry means.

    Raises:
        Exception: whatever ended the run, after it was written down.
    """
    out, begin = Path(str(config["out"])), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    said: dict[str, Any] = {}
    try:
        found = run(grid, invited(config), timeout=config["timeout"], shards=config["shards"], ledger=_ledger(config),
                    unsafe_seed=_unless_negative(config["unsafe-seed"]))  # fmt: skip
        found.release.save(out / "release.nc")
        said = {"sites": found.sites, "moved": found.moved, "refused": found.refused}
    except Exception as error:
        said = {"error": type(error).__name__, "says": str(error)}
        raise
    finally:
        seconds = round(time.monotonic() - begin, 1)
        write_text(out / "outcome.json", json.dumps(said | {"seconds": seconds}, indent=1) + "\n")
    print(found.release, flush=True)
    return found


def invited(config: Mapping[str, Any]) -> Invitation:
    """The invitation that the configuration of a run describes. Raises ValueError for what no run can have."""
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
    """The invitation to a study, whose file says what a release is of and what it promises."""
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
    """Of the server. It is declared where it is not there, for releases by the terms of this one."""
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
    """Flower's configurations have no None."""
    return None if number < 0 else number


def _connected(grid: Grid, wanted: int, least: int, timeout: float) -> list[int]:
    """The ids of as many nodes as are invited, waiting for them; fewer are enough when time is up."""
    until = time.monotonic() + timeout
    while len(ids := sorted(grid.get_node_ids())) < wanted and time.monotonic() < until:
        time.sleep(_POLL)
    if len(ids) < least:
        raise TooFewOwners("connect", len(ids), least)
    return ids[:wanted]


class _Said(NamedTuple):
    """A site's answer, or the name of its error; its number; and whether its noise protects nothing."""

    what: Message | str
    number: int
    seeded: bool = False


def _read(reply: FlowerMessage) -> _Said:
    """Return what a site said. Raises an error for anything else."""
    records = reply.content.config_records
    if "refused" in records:
        name = str(records["refused"]["error"])
        return _Said(name if name.isidentifier() and len(name) < _NAME else "Exception", -1)
    about = records["site"]
    return _Said(_only_bytes(records["message"]), whole("number", about["number"], 0), bool(about["seeded"]))


def _by_number(nodes: Collection[int], claimed: Mapping[int, int], sites: int) -> dict[int, int]:
    """Nodes by the numbers that they alone claim; those who have not said one that there is take what is left, in order."""
    often = Counter(claimed.values())
    found = {i: node for node, i in claimed.items() if 0 <= i < sites and often[i] == 1}
    rest = [node for node in nodes if node not in found.values()]
    return found | dict(zip([i for i in range(sites) if i not in found], rest, strict=False))


def _only_bytes(record: Mapping[str, Any]) -> Message:
    if any(not isinstance(text, bytes) for text in record.values()):
        raise ValueError("message: expected bytes by name")
    return dict(record)


def _file_of(release: Release) -> bytes:
    with TemporaryDirectory() as folder:
        release.save(path := Path(folder) / "release.nc")
        return path.read_bytes()
