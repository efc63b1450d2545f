"""Sharded release: one table in shards on many machines of one organisation, where every shard is counted once.

The machines keep no secrets from each other (``trust="curator"``), so that another machine which reads the same shard can
take over when one is lost. The release equals that of a single machine, as the messages are the same and sums of whole
numbers do not depend on their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from mpmtl_prob._util.checks import one_of
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.federated.invitation import Invitation, Trust
from mpmtl_prob.federated.protocol import Message, Sending, in_units, moment, read_vector
from mpmtl_prob.federated.secure_sum import Vector

_DIGEST = 16  # bytes; a million names have different digests, except with negligible probability


class LostShards(RuntimeError):
    """Some tasks are in no shard that a remaining machine can read. Nothing was published.

    Attributes:
        shards: names of the lost shards; empty if no machine has listed them.
        have: the number of tasks in the sum.
        need: the number of tasks that were announced.
    """

    def __init__(self, shards: tuple[str, ...], have: int, need: int) -> None:
        named = f"; lost: {', '.join(shards[:4])}" if shards else ""
        super().__init__(f"{have} tasks are in the sum, and {need} were announced{named}")
        self.shards, self.have, self.need = shards, have, need

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shards, self.have, self.need)


def gather(invitation: Invitation) -> Generator[Sending, dict[int, Message], tuple[Vector, int]]:
    """Run the server as a generator, as :func:`mpmtl_prob.federated.serve` does, over machines that read shards.

    Each shard is assigned to one machine that has it. The shards of a machine that does not answer are assigned to others. A
    shard is never counted twice.

    Raises:
        LostShards: no machine that has the shard has answered.
        ValueError: a trust model other than "curator"; a task in two shards, even if its name is spelled differently there,
            as its privacy loss would be twice as large; or a shard for which two machines list different tasks.
    """
    _check_trust(invitation)
    need = invitation.terms.num_tasks
    replies = yield "list", {i: {} for i in range(invitation.sites)}
    lists: dict[int, dict[str, int]] = {}
    names: dict[str, bytes] = {}
    for i, listed in replies.items():
        # A machine with a malformed list counts as lost.
        if all(len(digests) % _DIGEST == 0 for digests in listed.values()):
            lists[i] = {name: len(digests) // _DIGEST for name, digests in listed.items()}
            for name, digests in listed.items():
                if _tasks(names.setdefault(name, digests)) != _tasks(digests):
                    raise ValueError(
                        f"shards: expected the same tasks in {name} wherever it is, got others from site {i}"
                    )
    tasks = {name: number for listed in lists.values() for name, number in listed.items()}
    _check_apart(names)
    # Machines that have a shard and were not asked for its sum yet, by shard.
    not_asked = {name: [i for i, listed in lists.items() if name in listed] for name in sorted(tasks)}
    remaining, sums = set(lists), dict[str, Vector]()
    while missing := [name for name in tasks if name not in sums]:
        plan = _plan({name: [i for i in not_asked[name] if i in remaining] for name in missing})
        if not plan:
            break
        replies = yield "shards", {i: dict.fromkeys(names, b"") for i, names in plan.items()}
        remaining &= set(replies) | (remaining - set(plan))
        for i, shards in plan.items():
            for name in shards:
                not_asked[name].remove(i)
                with suppress(KeyError, ValueError):  # the sum is missing or malformed
                    sums.setdefault(name, _sum(replies[i][name], tasks[name], invitation))
    have = sum(int(vector[-1]) for vector in sums.values())
    if missing or have != need:
        raise LostShards(tuple(sorted(missing)), have, need)
    total: Vector = np.sum(list(sums.values()), axis=0, dtype=np.uint64)
    return total, len(remaining)


def answer(source: TaskShards, invitation: Invitation, stage: str, received: Message) -> Message:
    """Answer one stage as a machine: list its shards, or return their sums.

    Args:
        source: its shards; a shard's name must stand for the same tasks on every machine.
        invitation: to the run.
        stage: "list" or "shards".
        received: names of shards, at the second stage.

    Raises:
        ValueError: an unknown stage, a shard that this machine does not have, or a trust model other than "curator".
    """
    _check_trust(invitation)
    one_of("stage", stage, ("list", "shards"))
    parts = {part.name: part for part in source.parts}
    if stage == "list":
        return {name: b"".join(map(_digest, part.tasks)) for name, part in parts.items()}
    if strangers := received.keys() - parts.keys():
        raise ValueError(f"shards: expected some of its own, got {sorted(strangers)[:4]}")
    sums = {}
    for name in received:
        A, tasks, _ = moment(replace(source, parts=(parts[name],), progress_bar=False), invitation.terms)
        sums[name] = in_units(A, invitation.terms.lattice**2, tasks).astype("<u8").tobytes()
    return sums


def _check_trust(invitation: Invitation) -> None:
    if invitation.trust is not Trust.CURATOR:
        raise ValueError(f"trust: expected 'curator', who sees every shard's sum, got {invitation.trust.value!r}")


def _digest(task: Hashable) -> bytes:
    """Return the digest of a task's name, by which messages refer to it. The names are public."""
    return hashlib.blake2b(label_text(task).encode(), digest_size=_DIGEST).digest()


def _tasks(digests: bytes) -> list[bytes]:
    """Return the digests of a shard's tasks one by one, sorted."""
    return sorted(digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST))


def _check_apart(names: Mapping[str, bytes]) -> None:
    """Raise ValueError if a task is in two shards. The argument maps names of shards to the digests of their tasks."""
    where: dict[bytes, str] = {}
    for shard, digests in names.items():
        for task in _tasks(digests):
            other = where.setdefault(task, shard)
            if other != shard:
                raise ValueError(f"shards: expected every task in one shard, got one in {other} and in {shard}")


def _sum(text: bytes, tasks: int, invitation: Invitation) -> Vector:
    """Parse the sum of one shard. Raises ValueError for another length or another number of tasks."""
    vector = read_vector(text, invitation.agreed)
    if vector[-1] != tasks:
        raise ValueError(f"tasks: expected {tasks} in the sum, got {vector[-1]}")
    return vector


def _plan(has: Mapping[str, list[int]]) -> dict[int, list[str]]:
    """Assign each shard to the machine among its holders that has the fewest so far, rarest shards first."""
    plan: dict[int, list[str]] = {}
    for name, machines in sorted(has.items(), key=lambda shard: len(shard[1])):
        if machines:
            plan.setdefault(min(machines, key=lambda i: (len(plan.get(i, ())), i)), []).append(name)
    return plan
