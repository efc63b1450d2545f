"""One table in shards on many machines of one organisation: every shard's sum counts once, whoever worked it out.

Nobody is kept from anybody here (``trust="curator"``), so that a shard which is lost with its machine can be done again by
another that reads it too. Messages are those of one machine, and whole numbers add up in any order: so is the release.
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

_DIGEST = 16  # bytes, of which no two of a million names are alike by chance


class LostShards(RuntimeError):
    """Tasks are in no shard that anybody there could read. Nothing was published.

    Attributes:
        shards: by name; empty where nobody knows of any.
        have: tasks that are in the sum.
        need: tasks that were announced.
    """

    def __init__(self, shards: tuple[str, ...], have: int, need: int) -> None:
        named = f"; lost: {', '.join(shards[:4])}" if shards else ""
        super().__init__(f"{have} tasks are in the sum, and {need} were announced{named}")
        self.shards, self.have, self.need = shards, have, need

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shards, self.have, self.need)


def gather(invitation: Invitation) -> Generator[Sending, dict[int, Message], tuple[Vector, int]]:
    """The server: as :func:`mpmtl_prob.federated.serve`, over machines that read shards.

    Each shard goes to one machine that has it, those of a machine that does not answer to others, and what comes back of
    one that was counted is not counted again.

    Raises:
        LostShards: some were asked of everybody who has them.
        ValueError: trust that is not in a curator; a task that is in two shards, however its name is spelled there, which
            would be protected half; or a shard for which two machines list other tasks.
    """
    _check_trust(invitation)
    need = invitation.terms.num_tasks
    replies = yield "list", {i: {} for i in range(invitation.sites)}
    lists: dict[int, dict[str, int]] = {}
    names: dict[str, bytes] = {}
    for i, own in replies.items():
        if all(
            len(digests) % _DIGEST == 0 for digests in own.values()
        ):  # a machine that says something else is not there
            lists[i] = {name: len(digests) // _DIGEST for name, digests in own.items()}
            for name, digests in own.items():
                if _tasks(names.setdefault(name, digests)) != _tasks(digests):
                    raise ValueError(
                        f"shards: expected the same tasks in {name} wherever it is, got others from site {i}"
                    )
    tasks = {name: number for own in lists.values() for name, number in own.items()}
    _check_apart(names)
    left = {name: [i for i, own in lists.items() if name in own] for name in sorted(tasks)}  # who was not asked yet
    there, found = set(lists), dict[str, Vector]()
    while missing := [name for name in tasks if name not in found]:
        plan = _plan({name: [i for i in left[name] if i in there] for name in missing})
        if not plan:
            break
        replies = yield "shards", {i: dict.fromkeys(names, b"") for i, names in plan.items()}
        there &= set(replies) | (there - set(plan))
        for i, shards in plan.items():
            for name in shards:
                left[name].remove(i)
                with suppress(KeyError, ValueError):  # none came back, or something else
                    found.setdefault(name, _sum(replies[i][name], tasks[name], invitation))
    have = sum(int(vector[-1]) for vector in found.values())
    if missing or have != need:
        raise LostShards(tuple(sorted(missing)), have, need)
    total: Vector = np.sum(list(found.values()), axis=0, dtype=np.uint64)
    return total, len(there)


def answer(source: TaskShards, invitation: Invitation, stage: str, received: Message) -> Message:
    """A machine: which shards it has, or their sums.

    Args:
        source: its shards; a name stands for the same tasks wherever it is.
        invitation: to the run.
        stage: "list" or "shards".
        received: names, at the second stage.

    Raises:
        ValueError: a stage that is none, a shard that it has not, or trust that is not in a curator.
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
    """Return what stands for the name of a task, which is public, on its way."""
    return hashlib.blake2b(label_text(task).encode(), digest_size=_DIGEST).digest()


def _tasks(digests: bytes) -> list[bytes]:
    """Return what stands for the tasks of a shard, one by one, in an order of its own."""
    return sorted(digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST))


def _check_apart(names: Mapping[str, bytes]) -> None:
    """Raise ValueError where a task is in two shards, by the names of shards with the digests of their tasks."""
    where: dict[bytes, str] = {}
    for shard, digests in names.items():
        for task in _tasks(digests):
            other = where.setdefault(task, shard)
            if other != shard:
                raise ValueError(f"shards: expected every task in one shard, got one in {other} and in {shard}")


def _sum(text: bytes, tasks: int, invitation: Invitation) -> Vector:
    """Of one shard. Raises ValueError for what is of another length, or of other tasks."""
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
