"""One table in shards on several machines: the release of one machine, every shard counted once, whoever is lost."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import federated
from mpmtl_prob.data.shards import Part
from mpmtl_prob.federated import sharded
from mpmtl_prob.federated.local import conduct

TASKS = mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=8).train


def part(chosen):
    return mp.TaskData.from_lists(*zip(*map(TASKS.rows_of, chosen), strict=True), tasks=chosen)


def shards(*numbers):
    """Shard k holds tasks 2k and 2k + 1."""
    chosen = {k: (2 * k, 2 * k + 1) for k in numbers}
    return mp.TaskShards(
        tuple(Part(f"shard {k}", tasks, (0, 1, 2), partial(part, tasks)) for k, tasks in chosen.items()),
        progress_bar=False,
    )


def invite(trust="curator", sites=3):
    return federated.invite(1.0, 12, 3, sites=sites, dropouts=0, trust=trust)


def gathered(machines, invitation=None, change=lambda stage, asked, i, reply: reply):
    """The release of a run; ``change`` what a machine replies, and what it was asked; nothing if it is lost."""
    invitation = invite(sites=len(machines)) if invitation is None else invitation
    asked = []

    def ask(stage, sending):
        replies = {}
        for i, received in sending.items():
            asked.append((i, *received))
            reply = change(stage, asked, i, sharded.answer(machines[i], invitation, stage, received))
            if reply is not None:
                replies[i] = reply
        return replies

    total, inside = conduct(sharded.gather(invitation), ask)
    return federated.settle(invitation, total, inside, unsafe_seed=3), asked


EVERYWHERE = [shards(*range(6))] * 3
ONE_MACHINE = mp.release(shards(*range(6)), 1.0, unsafe_seed=3).sigma


@pytest.mark.parametrize(
    "machines", [EVERYWHERE, [shards(0, 1), shards(2, 3), shards(4, 5)], [shards(0, 1, 2, 3), shards(2, 3, 4, 5)]]
)
def test_it_is_the_release_of_one_machine_bit_for_bit(machines):
    release, asked = gathered(machines)
    np.testing.assert_array_equal(release.sigma, ONE_MACHINE)
    names = [name for _, *own in asked for name in own]
    assert sorted(names) == [f"shard {k}" for k in range(6)]  # each once, and shared out
    assert max(len(own) for _, *own in asked) <= 3


@pytest.mark.parametrize("lost", [{0}, {1, 2}])
def test_another_machine_does_the_shards_of_one_that_is_lost(lost):
    release, _ = gathered(
        EVERYWHERE, change=lambda stage, _, i, reply: None if stage == "shards" and i in lost else reply
    )
    np.testing.assert_array_equal(release.sigma, ONE_MACHINE)


def test_a_shard_counts_once_though_it_comes_back_twice():
    everything = sharded.answer(EVERYWHERE[0], invite(), "shards", {f"shard {k}": b"" for k in range(6)})
    once = []

    def change(stage, asked, i, reply):
        if stage == "shards" and i == 0 and not once:  # half of what was asked, so that there is a second round
            once.append(i)
            return dict(list(reply.items())[:1])
        return everything | {"shard 99": everything["shard 0"]} if stage == "shards" else reply

    release, _ = gathered(EVERYWHERE, change=change)
    np.testing.assert_array_equal(release.sigma, ONE_MACHINE)


def test_what_nobody_reads_is_named():
    machines = [shards(0, 1, 2, 3), shards(2, 3, 4, 5)]
    lost = lambda stage, _, i, reply: None if stage == "shards" and i == 1 else reply
    with pytest.raises(
        sharded.LostShards, match="8 tasks are in the sum, and 12 were announced; lost: shard 4, shard 5"
    ):
        gathered(machines, change=lost)
    with pytest.raises(sharded.LostShards, match=r"8 tasks are in the sum, and 12 were announced$"):
        gathered(machines[:1])
    with pytest.raises(sharded.LostShards, match="0 tasks are in the sum"):
        gathered(machines, change=lambda *_: None)


@pytest.mark.parametrize("text", [b"", b"1" * 7, b"2" * 64])
def test_a_sum_that_is_none_is_as_good_as_lost(text):
    def change(stage, _, i, reply):
        return dict.fromkeys(reply, text) if stage == "shards" and i == 0 else reply

    np.testing.assert_array_equal(gathered(EVERYWHERE, change=change)[0].sigma, ONE_MACHINE)


def test_a_list_that_is_none_is_as_good_as_lost():
    change = lambda stage, _, i, reply: {"shard 0": b"many"} if stage == "list" and i == 0 else reply
    np.testing.assert_array_equal(gathered(EVERYWHERE, change=change)[0].sigma, ONE_MACHINE)


@pytest.mark.parametrize("spelling", [0, "0", " 0"])
def test_a_task_in_two_shards_is_refused(spelling):
    """It would send two messages, wherever the shards are and however its name is spelled there."""
    again = mp.TaskShards((Part("another shard", (spelling,), (0, 1, 2), partial(part, (0,))),), progress_bar=False)
    with pytest.raises(
        ValueError, match=r"shards: expected every task in one shard, got one in (shard 0|another shard) and in"
    ):
        gathered([shards(0, 1, 2), shards(3, 4, 5), again])


def test_one_name_of_a_shard_stands_for_one_set_of_tasks():
    """Before, the last list counted: the sum of the other machine's shard would have been taken for lost, or for this one."""
    other = mp.TaskShards((Part("shard 1", (2, 11), (0, 1, 2), partial(part, (2, 11))),), progress_bar=False)
    with pytest.raises(
        ValueError, match="shards: expected the same tasks in shard 1 wherever it is, got others from site 1"
    ):
        gathered([shards(0, 1), other, shards(2, 3, 4, 5)])
    turned = mp.TaskShards((Part("shard 1", (3, 2), (0, 1, 2), partial(part, (3, 2))),), progress_bar=False)
    release, _ = gathered([shards(0, 1), turned, shards(2, 3, 4, 5)])
    np.testing.assert_array_equal(release.sigma, ONE_MACHINE)


def test_it_takes_trust_in_a_curator():
    with pytest.raises(ValueError, match="trust: expected 'curator'"):
        gathered(EVERYWHERE, invite("secure_sum"))
    with pytest.raises(ValueError, match=r"trust: expected 'curator', .* got 'no_curator'"):
        sharded.answer(EVERYWHERE[0], invite("no_curator"), "shards", {})
    with pytest.raises(ValueError, match="stage: expected one of 'list', 'shards', got 'advertise'"):
        sharded.answer(EVERYWHERE[0], invite(), "advertise", {})
    with pytest.raises(ValueError, match="shards: expected some of its own"):
        sharded.answer(EVERYWHERE[0], invite(), "shards", {"shard 77": b""})


@pytest.mark.parametrize("trust", ["curator", "secure_sum"])
def test_a_site_of_shards_sums_them_at_home(trust):
    sites = [federated.Site(i, own) for i, own in enumerate((shards(0, 1), shards(2, 3), lambda: shards(4, 5)))]
    outcome = federated.run(invite(trust), sites, unsafe_seed=3, progress_bar=False)
    np.testing.assert_array_equal(outcome.release.sigma, ONE_MACHINE)


def test_shards_are_read_one_at_a_time():
    held = []

    def read(tasks):
        held.append(tasks)
        return part(tasks)

    mine = shards(0, 1)
    mine = replace(mine, parts=tuple(part._replace(read=partial(read, part.tasks)) for part in mine.parts))
    sharded.answer(mine, invite(), "shards", {"shard 1": b""})
    assert held == [(2, 3)]
