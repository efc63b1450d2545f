"""A sum of which nobody sees a part: exact over those who stayed, whoever leaves and when."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, kstest

from mpmtl_prob.federated import invite
from mpmtl_prob.federated import secure_sum as s
from mpmtl_prob.federated.thresholds import risk, unbroken, undivided

AGREED = s.Agreed(b"run 1", 5, threshold=3)


def vectors(owners, length=5, seed=0):
    rng = np.random.default_rng(seed)
    return {i: rng.integers(0, 2**64, length, dtype=np.uint64) for i in owners}


def run(x, agreed=AGREED, leave=None):
    """All stages; ``leave`` says at which an owner vanishes: 1 before its letters, 2 before its vector, 3 before the end."""
    leave = leave or {}
    here = lambda stage: [i for i in x if leave.get(i, 9) > stage]
    keys, adverts = {}, {}
    for i in x:
        keys[i], adverts[i] = s.advertise()
    shared = {}
    boxes = {}
    graph = s.partners_of(agreed, adverts)
    for i in here(1):
        shared[i], boxes[i] = s.share(agreed, i, keys[i], {j: adverts[j] for j in (i, *graph[i])})
    masked, sent = {}, {}
    for i in here(2):
        letters = {j: box[i] for j, box in boxes.items() if i in box}
        masked[i], sent[i] = s.mask(agreed, i, keys[i], shared[i], letters, x[i])
    revealed = {i: s.unmask(agreed, i, masked[i], sent.keys()) for i in here(3)}
    return sent, s.total(agreed, adverts, boxes.keys(), sent, revealed)


def ends_in(x, agreed, leave):
    """The sum, or the error in its place."""
    try:
        return run(x, agreed, leave)[1], None
    except s.TooFewOwners as error:
        return None, error


def plain(x, owners):
    return sum((x[i] for i in owners), np.zeros(5, dtype=np.uint64))


def test_every_pattern_of_departures_ends_in_a_sum_or_an_error():
    """Every pattern of four owners who leave ends in their sum or in a named error."""
    x = vectors(range(4))
    sums = errors = 0
    for stages in product((1, 2, 3, 9), repeat=4):
        leave = dict(enumerate(stages))
        stayed = [i for i in x if leave[i] > 2]
        ends = [i for i in x if leave[i] > 3]
        total, missed = ends_in(x, AGREED, leave)
        assert (total is None) == (len(ends) < AGREED.threshold)
        if total is None:
            assert missed.have < missed.need
            errors += 1
        else:
            np.testing.assert_array_equal(total, plain(x, stayed))
            sums += 1
    assert sums + errors == 256
    assert sums == 1 + 4 * 3  # nobody leaves, or one at any of three stages


@settings(max_examples=15, deadline=None)
@given(st.integers(6, 24), st.data())
def test_few_partners_give_the_same_sum(owners, data):
    stages = data.draw(st.lists(st.sampled_from([9] * 12 + [1, 2, 3]), min_size=owners, max_size=owners))
    x = vectors(range(owners))
    leave = dict(enumerate(stages))
    agreed = s.Agreed(b"few", 5, threshold=unbroken(4), partners=4)
    total, missed = ends_in(x, agreed, leave)
    if total is None:
        assert missed.have < missed.need
    else:
        np.testing.assert_array_equal(total, plain(x, [i for i in x if leave[i] > 2]))


def left_on_a_circle(state, partners, threshold):
    """Parts of the circle between whom no mask is left, if the sum is opened; None if it is not.

    An owner is here, colludes, wrote letters and no vector, or wrote none.
    """
    n, half = len(state), partners // 2
    near = [[(i + j) % n for j in range(-half, half + 1) if j] for i in range(n)]
    there = [each in "hc" for each in state]
    for i in range(n):
        if there[i] and sum(state[j] != "n" for j in near[i]) + 1 < threshold:
            return None  # it would have left in its third stage
        opened = there[i] or (state[i] == "w" and any(there[j] for j in near[i]))
        if opened and sum(there[j] for j in near[i]) + there[i] < threshold:
            return None
    honest, parts = {i for i in range(n) if state[i] == "h"}, 0
    while honest:
        parts, new = parts + 1, {honest.pop()}
        while new:
            new = {j for i in new for j in near[i]} & honest
            honest -= new
    return parts


@pytest.mark.parametrize(("partners", "owners", "states"), [(2, 8, "hwn"), (4, 9, "hwn"), (4, 12, "hn"), (6, 14, "hn")])
def test_whoever_vanishes_there_is_one_sum_or_none(partners, owners, states):
    sums_left = lambda threshold: {
        left_on_a_circle(each, partners, threshold) for each in product(states, repeat=owners)
    }
    assert sums_left(unbroken(partners)) <= {None, 1, 0}
    if owners > 9:
        assert (
            max(sums_left(unbroken(partners) - 1) - {None}) > 1
        )  # with one share less, two sums that can be told apart


def test_whoever_colludes_there_is_one_sum_or_none():
    for colluders in (1, 2, 3):
        for who in combinations(range(1, 8), colluders):
            for rest in product("hwn", repeat=7 - colluders):
                free = iter(rest)
                state = ["h", *("c" if i in who else next(free) for i in range(1, 8))]
                assert left_on_a_circle(state, 4, unbroken(4, colluders)) in (None, 0, 1)


@pytest.mark.parametrize(("owners", "partners", "gone"), [(30, 10, 6), (60, 20, 12), (40, 6, 3)])
def test_the_risk_bounds_how_often_a_mask_stays_closed(owners, partners, gone):
    """Places on a circle at random, and everybody who vanishes does so when most harm is done."""
    agreed = s.Agreed(b"", 1, unbroken(partners), partners)
    rng = np.random.default_rng(0)
    half = partners // 2
    near = [offset for offset in range(-half, half + 1) if offset]
    there = np.arange(owners) >= gone
    state = np.array([rng.permutation(there) for _ in range(20_000)])
    held = sum(np.roll(state, offset, axis=1) for offset in near) + state
    failed = (held < agreed.threshold).any(axis=1).mean()
    chance = risk(agreed, owners, gone)
    error = 6 * np.sqrt(chance / len(state))
    assert failed <= chance + error
    assert chance <= 3 * failed + error  # owners add up, though they share partners
    assert chance > 2 * error
    assert risk(agreed, owners, 0) == 0
    assert risk(agreed, owners, owners) == 1


def test_a_circle_of_partners_is_one_and_mutual():
    adverts = {i: s.advertise()[1] for i in range(11)}
    partners = s.partners_of(s.Agreed(b"r", 1, 2, partners=4), adverts)
    assert all(len(set(each) - {i}) == 4 for i, each in partners.items())
    assert all(i in partners[j] for i, each in partners.items() for j in each)
    reached, new = {0}, {0}
    while new:
        new = {j for i in new for j in partners[i]} - reached
        reached |= new
    assert len(reached) == 11


def test_what_the_server_sees_of_a_vector_is_uniform():
    x = {i: np.zeros(4000, dtype=np.uint64) for i in range(3)}
    sent, aggregate = run(x, s.Agreed(b"u", 4000, threshold=2))
    assert not aggregate.any()
    for vector, _ in sent.values():
        assert kstest(vector / 2.0**64, "uniform").pvalue > 1e-7


def coalition_sees(x, threshold, trials):
    """Return the part of the vectors of 1 to 3 that the server and owner 0 of five cannot account for, (trials, 3).

    They know what 0 knows, the own masks of those who arrived, which are opened, and the key of 4, which is opened too as it
    vanished before its vector.
    """
    seen = np.zeros((trials, 3), dtype=np.uint64)
    for trial in range(trials):
        agreed = s.Agreed(b"%d" % trial, 1, threshold)
        keys, adverts = zip(*(s.advertise() for _ in range(5)), strict=True)
        adverts = dict(enumerate(adverts))
        shared, boxes = zip(*(s.share(agreed, i, keys[i], adverts) for i in range(5)), strict=True)
        pair = lambda i, j: s.stream(agreed, s._secret(agreed, s._private(keys[i].masks), adverts[j].masks, b"mask"))  # noqa: B023
        for k, i in enumerate((1, 2, 3)):
            letters = {j: boxes[j][i] for j in range(5) if j != i}
            vector = np.full(1, x[k], dtype=np.uint64)
            sent = s.mask(agreed, i, keys[i], shared[i], letters, vector)[1].vector
            known = s.stream(agreed, shared[i].seed) - pair(0, i) + pair(4, i)
            seen[trial, k] = (sent - known)[0]
    return seen


def test_small_coalitions_see_nothing_but_the_sum():
    """Below the threshold, a coalition sees the same of any vectors with the same sum.

    The three vectors leave their sum and otherwise uniform numbers: equal in law whoever has which vector.
    """
    trials = 60
    one, other = coalition_sees((5, 0, 2**60), 3, trials), coalition_sees((2**60, 5, 0), 3, trials)
    for seen in (one, other):
        assert (seen.sum(axis=1, dtype=np.uint64) == 2**60 + 5).all()
        u = seen / 2.0**64
        free = [u[:, 0], u[:, 1], u[:, 2], (u[:, 0] + u[:, 1]) % 1, (u[:, 0] - u[:, 1]) % 1, (u[:, 1] - u[:, 2]) % 1]
        assert min(kstest(each, "uniform").pvalue for each in free) > 1e-8
    assert min(ks_2samp(one[:, k] / 2.0**64, other[:, k] / 2.0**64).pvalue for k in range(3)) > 1e-8


def test_at_the_threshold_a_coalition_sees_a_vector():
    """With the shares that it takes the key of one opens, and its vector is read: what is tested above can fail."""
    agreed, x = s.Agreed(b"open", 1, threshold=2), vectors(range(4), 1)
    keys, adverts = zip(*(s.advertise() for _ in x), strict=True)
    adverts = dict(enumerate(adverts))
    shared, boxes = zip(*(s.share(agreed, i, keys[i], adverts) for i in x), strict=True)
    letters = {i: {j: boxes[j][i] for j in x if j != i} for i in x}
    masked, sent = zip(*(s.mask(agreed, i, keys[i], shared[i], letters[i], x[i]) for i in x), strict=True)
    both = [s._Opener(2).secret({i: masked[i].shares[1][which] for i in (0, 3)}) for which in (0, 1)]
    hidden = sent[1].vector - s.stream(agreed, both[0])
    for j in (0, 2, 3):
        pair = s.stream(agreed, s._secret(agreed, s._private(both[1]), adverts[j].masks, b"mask"))
        hidden = hidden - pair if j > 1 else hidden + pair
    np.testing.assert_array_equal(hidden, x[1])
    with pytest.raises(s.TooFewOwners):
        s._Opener(3).secret({i: masked[i].shares[1][0] for i in (0, 3)})


def test_shares_open_a_secret_and_fewer_say_nothing():
    secret = 2**256 - 12345
    shares = s.split(secret, 3, range(6), np.random.default_rng(0).bytes)
    for three in combinations(range(6), 3):
        assert s._Opener(3).secret({i: shares[i] for i in three}) == secret.to_bytes(32)
    with pytest.raises(s.TooFewOwners, match="2 owners are there, and it takes 3"):
        s._Opener(3).secret({0: shares[0], 1: shares[1]})
    opened = lambda some: (
        sum(w * shares[i] for i, w in zip(some, s.lagrange([i + 1 for i in some]), strict=True)) % s.PRIME
    )
    assert opened((5, 1, 3)) == secret
    assert secret not in {opened(some) for count in (1, 2) for some in combinations(range(6), count)}
    # any other secret goes with two shares just as well: a third value explains it
    for other in (0, 1, 2**255):
        weights = s.lagrange([1, 2, 3])
        third = (other - weights[0] * shares[0] - weights[1] * shares[1]) * pow(weights[2], -1, s.PRIME) % s.PRIME
        assert s._Opener(3).secret({0: shares[0], 1: shares[1], 2: third}) == other.to_bytes(32)


def test_what_was_changed_on_its_way_is_noticed():
    x = vectors(range(3))
    keys, adverts = zip(*(s.advertise() for _ in x), strict=True)
    adverts = dict(enumerate(adverts))
    with pytest.raises(ValueError, match="own keys"):
        s.share(AGREED, 0, keys[0], adverts | {0: adverts[1]})
    with pytest.raises(ValueError, match="twice"):
        s.share(AGREED, 0, keys[0], adverts | {2: adverts[1]})
    shared, boxes = zip(*(s.share(AGREED, i, keys[i], adverts) for i in x), strict=True)
    letters = {j: boxes[j][0] for j in (1, 2)}
    forged = letters | {1: bytes([letters[1][0] ^ 1]) + letters[1][1:]}
    with pytest.raises(ValueError, match="that of 1 was altered"):
        s.mask(AGREED, 0, keys[0], shared[0], forged, x[0])
    with pytest.raises(ValueError, match="that of 1 was altered"):  # a letter for somebody else
        s.mask(AGREED, 0, keys[0], shared[0], letters | {1: boxes[1][2]}, x[0])
    masked, sent = {}, {}
    for i in x:
        masked[i], sent[i] = s.mask(AGREED, i, keys[i], shared[i], {j: boxes[j][i] for j in x if j != i}, x[i])
    revealed = {i: s.unmask(AGREED, i, masked[i], sent.keys()) for i in x}
    wrong = revealed | {0: s.Revealed({**revealed[0].seeds, 1: 7}, {})}
    with pytest.raises(ValueError, match="the shares of 1 do not open its mask"):
        s.total(AGREED, adverts, range(3), sent, wrong)


def test_shares_that_open_another_key_are_noticed():
    agreed = s.Agreed(b"r" * 16, 2, threshold=3)
    everybody = range(4)
    there = range(3)  # 3 vanished after its letters
    keys, adverts = zip(*(s.advertise() for _ in everybody), strict=True)
    adverts = dict(enumerate(adverts))
    shared, boxes = zip(*(s.share(agreed, i, keys[i], adverts) for i in everybody), strict=True)
    masked, sent = {}, {}
    for i in there:
        letters = {j: boxes[j][i] for j in everybody if j != i}
        masked[i], sent[i] = s.mask(agreed, i, keys[i], shared[i], letters, np.ones(2, dtype=np.uint64))
    revealed = {i: s.unmask(agreed, i, masked[i], there) for i in there}
    assert s.total(agreed, adverts, everybody, sent, revealed).tolist() == [3, 3]
    wrong = revealed | {0: revealed[0]._replace(keys={3: revealed[0].keys[3] ^ 1})}
    with pytest.raises(ValueError, match="the shares of 3 do not open its key"):
        s.total(agreed, adverts, everybody, sent, wrong)


def test_an_owner_reveals_one_of_anothers_two_secrets():
    """An owner reveals one of another's two secrets, and nothing to a sum without it."""
    x = vectors(range(4))
    keys, adverts = zip(*(s.advertise() for _ in x), strict=True)
    adverts = dict(enumerate(adverts))
    shared, boxes = zip(*(s.share(AGREED, i, keys[i], adverts) for i in x), strict=True)
    masked, _ = s.mask(AGREED, 0, keys[0], shared[0], {j: boxes[j][0] for j in (1, 2, 3)}, x[0])
    revealed = s.unmask(AGREED, 0, masked, {0, 1, 2})
    assert set(revealed.seeds) == {0, 1, 2}
    assert set(revealed.keys) == {3}
    with pytest.raises(ValueError, match="this owner among"):
        s.unmask(AGREED, 0, masked, {1, 2, 3})
    with pytest.raises(s.TooFewOwners, match="reveal: 3 owners are there, and it takes 4"):
        s.unmask(AGREED._replace(least=4), 0, masked, {0, 1, 2})


def opened_by_two_lists(owners, colluders, threshold, least):
    """Check whether two lists of arrivals, with an owner and without it, open both its secrets; all splits are tried.

    Owner 0 is on its own list. Those who collude tell what they know of both secrets, whatever they are told.
    """
    others = range(1, owners - colluders)
    if least > owners:
        return False
    for without in range(len(others) + 1):
        for split in combinations(others, without):
            if split and least > owners - 1:  # a list without the owner has all others at most
                continue
            seeds = owners - colluders - len(split) + colluders
            keys = len(split) + colluders
            if min(seeds, keys) >= threshold:
                return True
    return False


NUMBERS = [(n, c, gone) for n in range(2, 11) for c in range(n) for gone in (None, *range(n - 1))]


def invited(owners, colluders, dropouts):
    """Return the numbers that an invitation agrees on, or None where it is refused."""
    try:
        return invite(1.0, owners, 2, dropouts=dropouts, colluders=colluders).agreed
    except ValueError:
        return None


def test_no_two_lists_open_both_secrets_of_an_owner():
    agreed = {
        (n, c): [invitation for gone in (None, *range(n - 1)) if (invitation := invited(n, c, gone))]
        for n, c, _ in NUMBERS
    }
    assert all(agreed.values())  # with nobody who may vanish there is an invitation for every number of colluders
    for (n, c), invitations in agreed.items():
        for invitation in invitations:
            assert invitation.least >= invitation.threshold >= undivided(n, c)
            for really in range(c + 1):
                assert not opened_by_two_lists(n, really, invitation.threshold, invitation.least)


def test_one_share_less_and_two_lists_open_both():
    """The threshold is the least that does, and two thirds of all are not enough by themselves."""
    for n in range(3, 11):
        for c in range(n - 1):
            least = n - 1  # who says that the owner has vanished leaves it out
            assert not opened_by_two_lists(n, c, undivided(n, c), least)
            assert opened_by_two_lists(n, c, undivided(n, c) - 1, least)
    old = {(n, c) for n in range(3, 11) for c in (0, 1) if opened_by_two_lists(n, c, max(2, 2 * n // 3), n - n // 3)}
    assert old == {(4, 0), (3, 1), (4, 1), (5, 1), (7, 1)}


def test_a_word_vouches_for_one_list_to_one_partner():
    agreed, x = s.Agreed(b"words", 5, threshold=2), vectors(range(3))
    keys, adverts = zip(*(s.advertise() for _ in x), strict=True)
    adverts = dict(enumerate(adverts))
    shared, boxes = zip(*(s.share(agreed, i, keys[i], adverts) for i in x), strict=True)
    letters = {i: {j: boxes[j][i] for j in x if j != i} for i in x}
    masked = [s.mask(agreed, i, keys[i], shared[i], letters[i], x[i])[0] for i in x]
    words = s.vouch(masked[0], 0, b"list")
    assert s.vouched(masked[1], 0, b"list", words[1])
    assert s.vouched(masked[2], 0, b"list", words[2])
    assert not s.vouched(masked[1], 0, b"another", words[1])
    assert not s.vouched(masked[1], 0, b"list", words[2])  # for somebody else
    assert not s.vouched(masked[1], 2, b"list", words[1])  # by somebody else
    assert not s.vouched(masked[0], 1, b"list", words[1])  # its own, sent back
    assert not s.vouched(masked[1], 7, b"list", words[1])  # by nobody that is known
    assert not s.vouched(masked[1], 0, b"list", b"")
