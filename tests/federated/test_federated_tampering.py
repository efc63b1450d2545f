"""Nobody has to be believed: messages that are not as agreed."""

import re

import numpy as np
import pytest
from attacks.secure_sum import Lied, keys_of_partners, signers_of, three_in_a_row, told_apart
from helpers import federated_runs
from helpers.effort import effort
from helpers.federated_runs import N, W, invite, plain, seen, signed, sites

from mpmtl_prob import federated


@pytest.fixture
def signers():
    return federated_runs.signers()


def garble(rng, text):
    """Something else: cut, longer, one bit turned, or other bytes."""
    kind, at = rng.integers(5), int(rng.integers(max(1, len(text))))
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text + bytes(rng.bytes(3))
    if kind == 2 and text:
        return text[:at] + bytes([text[at] ^ (1 << int(rng.integers(8)))]) + text[at + 1 :]
    return b"" if kind == 3 else bytes(rng.bytes(len(text)))


def tamper(rng, message):
    """One field of a message, or its name, is not what it was."""
    if not message:
        return {"surprise": b"1"}
    name, kind = rng.choice(sorted(message)), rng.integers(4)
    text = message.pop(name)
    if kind == 0:
        return message
    if kind == 1:
        return message | {str(rng.choice(["-1", "99", "x", "seed", "seed x", "key 1 2", "", "٣"])): text}
    return message | {name: garble(rng, text)}


PRIVATE = {f"{abs(number):.3g}" for number in (*W.ravel(), *invite().terms.bounded(W).ravel())}


def check(outcome, errors, invitation, whose=None):
    """It ended in a named error, or in the sum over those who are in it.

    Where a letter was lost a mask is left: the number of tasks, under it, is none; and nothing is published.
    """
    for error in errors:
        assert re.match(r"\w+: ", str(error)), error  # says which argument
        assert not {f"{abs(float(n)):.3g}" for n in re.findall(r"\d+\.\d+", str(error))} & PRIVATE
    if outcome is None:
        assert errors
        return
    total, inside = outcome
    assert len(inside) >= invitation.agreed.least
    if np.array_equal(total, plain(inside, invitation)):
        federated.settle(invitation, total, len(inside), unsafe_seed=1)
        return
    if whose == "mask":  # a site may always say another vector than its own
        return
    with pytest.raises(ValueError, match=r"^(total|num_tasks|second_moment): expected"):
        federated.settle(invitation, total, len(inside), unsafe_seed=1)


@pytest.mark.parametrize("seed", range(effort(30, 600)))
def test_a_garbling_server_gets_named_errors_and_no_wrong_sum(seed, signers):
    """A server that garbles what it passes on gets named errors and no wrong sum."""
    rng = np.random.default_rng(seed)
    invitation = invite()
    everybody = signed(signers) if seed % 2 else sites()
    where = (str(rng.choice(["share", "mask", "reveal", "confirm"][: 3 + seed % 2])), int(rng.integers(N)))
    change = lambda stage, i, received: tamper(rng, received) if (stage, i) == where else received
    check(*seen(change, everybody=everybody, invitation=invitation), invitation)


@pytest.mark.parametrize("seed", range(effort(30, 600)))
def test_a_garbling_site_is_left_out_or_found_out(seed, signers):
    """A site that garbles what it says is left out or found out."""
    rng = np.random.default_rng(seed)
    invitation = invite()
    everybody = signed(signers) if seed % 2 else sites()
    stages = ["advertise", "share", "mask", "reveal", "confirm"][: 4 + seed % 2]
    where = (str(rng.choice(stages)), int(rng.integers(N)))
    answers = lambda stage, i, reply: tamper(rng, reply) if (stage, i) == where else reply
    check(*seen(answers=answers, everybody=everybody, invitation=invitation), invitation, where[0])


def test_a_site_that_leaves_out_a_letter_is_left_out():
    """Else it would mask with somebody who does not mask with it, and the sum would be wrong."""
    invitation = invite()
    short = lambda stage, i, reply: (
        {k: v for k, v in reply.items() if k != "4"} if (stage, i) == ("share", 1) else reply
    )
    outcome, _ = seen(answers=short, invitation=invitation)
    np.testing.assert_array_equal(outcome[0], plain([0, 2, 3, 4, 5], invitation))


def test_messages_said_again_are_out_of_turn():
    invitation = invite()
    everybody = sites()
    past = []

    def record(stage, i, received):
        past.append((stage, i, dict(received)))
        return received

    seen(record, everybody=everybody, invitation=invitation)
    before = everybody[0].run_log.answered()
    for stage, i, received in past:
        with pytest.raises(ValueError, match="out of turn"):
            everybody[i].answer(invitation, stage, received)
    assert everybody[0].run_log.answered() == before


def test_nothing_is_paid_before_a_vector_is_out():
    """Nothing is paid for a run that fails before a vector is out."""
    everybody = sites()
    forge = lambda stage, i, received: (
        {j: bytes(len(text)) for j, text in received.items()} if stage == "mask" else received
    )
    outcome, errors = seen(forge, everybody=everybody)
    assert outcome is None
    assert "was altered in transit" in str(errors[0])
    assert not any(site.run_log.answered() for site in everybody)


def test_a_key_that_everybody_shares_is_none():
    """X25519 has public keys with which any private one gives nought: a server could read what is meant for them."""
    weak = lambda stage, i, received: received | {"3": bytes(63) + b"\1"} if stage == "share" and i != 3 else received
    outcome, errors = seen(weak)
    assert outcome is None
    assert "adverts: expected valid public keys" in str(errors[0])


def test_a_server_cannot_pad_the_list_of_arrivals():
    """A server cannot fill the list of arrivals with others than those who wrote.

    It would open the masks that a small sum shares with the rest.
    """
    invitation, everybody = invite(), sites()
    gone = lambda stage, i, reply: {} if i >= 4 and stage == "share" else reply
    lied = []

    def pad(stage, i, received):
        if stage not in ("confirm", "reveal"):
            return received
        lied.append(i)
        return {"arrived": np.array([i, 4, 5, (i + 1) % 4], dtype="<u4").tobytes()}

    outcome, errors = seen(pad, gone, everybody, invitation)
    assert len(lied) == 4
    assert outcome is None
    assert all("arrived: expected owners who wrote letters" in str(error) for error in errors[:4])


LIES = {"both secrets of a site": told_apart, "keys of its partners": keys_of_partners}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("owners", "dropouts", "colluders"), [(4, None, 0), (6, None, 1), (9, 4, 0), (10, 4, 0)])
def test_a_server_that_lies_about_who_is_there_reads_no_less(owners, dropouts, colluders, lie):
    """Real messages of real sites, each told another list of arrivals: no sum over fewer than have to be in it."""
    invitation = federated.invite(1.0, owners, 2, scaling="none", dropouts=dropouts, colluders=colluders)
    for really in range(colluders + 1):
        run = Lied([invitation] * owners, range(owners - really, owners), np.random.default_rng(really))
        LIES[lie](run, 0) if lie.startswith("both") else LIES[lie](run, 0, 1)
        verdict = run.verdict("", lie)
        assert verdict.held, verdict.what


def test_the_same_sites_read_one_sum_where_nobody_lies():
    """The sum is read where nobody lies, so that the tests above can fail."""
    invitation = federated.invite(1.0, 6, 2, scaling="none")
    run = Lied([invitation] * 6, [], np.random.default_rng(0))
    run.begin(lambda j, i: False)
    run.end(dict.fromkeys(range(6), range(6)))
    assert run.read() == [set(range(6))]
    assert not run.both()


@pytest.mark.parametrize("sign", [False, True])
def test_letters_held_back_on_a_circle_make_no_small_sum(sign):
    """Three neighbours are told, as everybody is, that partners of theirs arrived whose letters they never had."""
    invitation = federated.invite(1.0, 20, 2, scaling="none", dropouts=3, colluders=0, partners=8)
    run = Lied([invitation] * 20, [], np.random.default_rng(0), signers_of(20) if sign else None)
    three_in_a_row(run)
    assert run.read() == []
    assert sum("arrived: expected owners who wrote letters" in text for text in run.refused) >= 3


def test_two_keys_alike_are_noticed():
    twice = lambda stage, i, received: (
        received | {"3": received["2"]} if stage == "share" and i not in (2, 3) else received
    )
    outcome, errors = seen(twice)
    assert outcome is None
    assert "adverts: expected every key once" in str(errors[0])


def test_a_sum_that_no_messages_give_is_not_published():
    invitation = invite("no_curator")
    total = np.random.default_rng(1).integers(0, 2**64, 4, dtype=np.uint64)
    total[-1] = N
    with pytest.raises(ValueError, match="total: expected a sum of messages, got numbers that none can reach"):
        federated.settle(invitation, total, N)
    total[-1] = 7
    with pytest.raises(ValueError, match="num_tasks: expected between 1 and 6 tasks in the sum"):
        federated.settle(invitation, total, N)
