"""Nobody has to be believed: what a site insists upon, whose keys it takes, and messages that are not as agreed."""

import os
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
from effort import effort

from mpmtl_prob import federated
from mpmtl_prob.federated import Conditions, RunRefused, Signer, secure_sum
from mpmtl_prob.privacy.laws import PaperWishart

N, D = 6, 2
W = np.random.default_rng(0).standard_normal((D, N)) * 77_712.345


def invite(trust="secure_sum", epsilon=1.0, **options):
    return federated.invite(epsilon, N, D, trust=trust, scaling="none", **options)


def sites(**options):
    return [federated.Site(i, W[:, [i]], **options) for i in range(N)]


def seen(
    change=lambda stage, i, message: message, answers=lambda stage, i, reply: reply, everybody=None, invitation=None
):
    """A run through a server that changes what it passes on, and sites that change what they say.

    Returns:
        The sum with the numbers of those in it, or None; and all errors.
    """
    invitation, everybody = invitation or invite(), everybody or sites()
    server, errors, inside = federated.serve(invitation), [], []
    stage, sending = next(server)
    while True:
        replies = {}
        if stage == "reveal":
            inside = list(sending)
        for i, received in sending.items():
            try:
                reply = everybody[i].answer(invitation, stage, change(stage, i, dict(received)))
                replies[i] = answers(stage, i, dict(reply))
            except (RunRefused, federated.TooFewOwners, ValueError) as error:
                errors.append(error)
        try:
            stage, sending = server.send(replies)
        except StopIteration as end:
            return (end.value[0], inside), errors
        except (federated.TooFewOwners, ValueError) as error:
            return None, [*errors, error]


def plain(inside, invitation):
    """The sum over the sites inside, as it should be."""
    V = invitation.terms.bounded(W[:, inside])
    A = (V @ V.T)[np.tril_indices(D)] / invitation.terms.lattice**2
    return np.append(A.astype(np.int64), len(inside)).view(np.uint64)


# What a site insists upon


@pytest.mark.parametrize(
    ("conditions", "options", "said"),
    [
        ({"trust": "secure_sum"}, {"trust": "curator"}, "trust: this site accepts 'secure_sum', and was asked for"),
        ({"trust": "no_curator"}, {}, "trust: this site accepts 'no_curator'"),
        ({"epsilon": 1.0}, {"epsilon": 1.1}, "epsilon: at 1 this site accepts delta up to 0.093, and that of the noise is"),
        ({"delta": 1e-3}, {"delta": 1.1e-3}, "epsilon: at 1 this site accepts delta up to 0.001"),
        ({"adjacency": "replace"}, {"adjacency": "zero_out"}, "epsilon: at 1 this site accepts"),
        ({"least": 5}, {}, "least: this site expects 5 sites in the sum, got 4"),
        ({"colluders": 2}, {"trust": "no_curator"}, "colluders: this site expects noise against 2, got 1"),
        ({"colluders": 4}, {}, "threshold: this site expects that 5 shares open a mask, got 4"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", ["advertise", "send"])
def test_an_invitation_that_asks_for_more_is_refused_before_anything_leaves(conditions, options, said, stage):
    site = sites(conditions=Conditions(**conditions))[0]
    with pytest.raises(RunRefused, match=said):
        site.answer(invite(**options), stage, {})
    assert not site.account.answered()


@pytest.mark.parametrize("trust", federated.Trust)
def test_an_invitation_that_asks_for_no_more_is_answered(trust):
    for conditions in (
        Conditions(),
        Conditions(trust, 1.0, 0.1, "replace", least=4, colluders=1),
        Conditions(epsilon=2.0),
    ):
        found = federated.run(invite(trust), sites(conditions=conditions), progress_bar=False)
        assert found.sites == N
    found = federated.run(invite(adjacency="zero_out"), sites(conditions=Conditions(epsilon=3.0, adjacency="replace")),
                          progress_bar=False)  # fmt: skip
    assert found.sites == N  # which is private enough in either sense


def lie(invitation, agreed=None, law=None, **terms):
    """An invitation that says what is not so."""
    laws = {"mechanisms": (replace(invitation.terms.mechanisms[0], **law),)} if law else {}
    return replace(
        invitation,
        terms=replace(invitation.terms, **laws, **terms),
        agreed=invitation.agreed._replace(**agreed or {}),
    )


@pytest.mark.parametrize(
    ("invitation", "said"),
    [
        (lie(invite(), law={"scale": 1e-3}), "epsilon: at 1 this site accepts"),
        (lie(invite(), mechanisms=(PaperWishart(D, 1.0),)), "epsilon: at 1 this site accepts"),
        (lie(invite("no_curator"), law={"share": 0.1}), "epsilon: at 1 this site accepts"),
        (lie(invite("no_curator"), agreed={"least": 3}), "least: the noise takes 4 shares, and 3 sites may be enough"),
        (lie(invite("no_curator"), agreed={"least": 7}), "least: this site expects 2 sites in the sum, got 7"),
        (lie(invite(), agreed={"least": 1}), "least: this site expects 2 sites in the sum, got 1"),
        (lie(invite(), agreed={"threshold": 1}), "threshold: this site expects that 2 shares"),
        (lie(invite(), agreed={"partners": 4, "threshold": 3}), "threshold: this site expects that 4 shares"),
        (lie(invite(), num_tasks=3), "num_tasks: expected one for each of 4 sites, got 3"),
        (lie(invite(), agreed={"length": 3}), "length: expected that of a second moment of 2 features, got 3"),
        (lie(invite(), lattice=2.0**-25), "lattice: expected one on which the sum of 6 tasks is exact"),
        (lie(invite("no_curator"), lattice=2.0**-12), "lattice: expected one on which"),
        (replace(invite(), trust=federated.Trust.NO_CURATOR), "mechanisms: expected the noise of one release, in shares"),
        (replace(invite("no_curator"), trust=federated.Trust.CURATOR), "mechanisms: expected the noise of one release"),
    ],
)  # fmt: skip
def test_an_invitation_that_contradicts_itself_is_refused_by_every_site(invitation, said):
    with pytest.raises(RunRefused, match=said):
        sites()[0].answer(invitation, "advertise", {})


def test_a_site_of_more_tasks_than_were_announced_sends_nothing():
    account = federated.Account()
    many = federated.Site(0, np.eye(D, 7), account)
    with pytest.raises(ValueError, match="source: expected at most the 6 tasks of the invitation, got 7"):
        many.answer(invite("curator"), "send", {})
    assert not account.answered()


@pytest.mark.parametrize(
    ("argument", "value"),
    [("trust", "all"), ("epsilon", 0), ("delta", 1.0), ("adjacency", "add"), ("least", 0), ("colluders", -1)],
)
def test_conditions_that_are_none_are_named(argument, value):
    with pytest.raises(ValueError, match=argument):
        Conditions(**{argument: value})


# Whose keys it takes


@pytest.fixture
def signers():
    private, public = zip(*(federated.new_key() for _ in range(N)), strict=True)
    return [Signer(key, dict(enumerate(public))) for key in private]


def signed(signers):
    return [federated.Site(i, W[:, [i]], signer=signer) for i, signer in enumerate(signers)]


def test_sites_that_know_each_other_have_the_same_sum(signers):
    invitation = invite()
    found, errors = seen(everybody=signed(signers), invitation=invitation)
    assert not errors
    np.testing.assert_array_equal(found[0], plain(range(N), invitation))


def own_keys(number, signer=None, invitation=None):
    """Keys of the server's making in place of a site's."""
    _, advert = secure_sum.advertise()
    return b"".join(advert) + (signer.sign(invitation.digest, number, advert) if signer else b"")


def test_the_number_of_sites_costs_a_site_nothing():
    many = replace(invite(), sites=2**60)
    site = sites()[0]
    site.answer(many, "advertise", {})
    with pytest.raises(ValueError, match="received: expected messages of sites by their numbers"):
        site.answer(many, "share", {"01": b""})


def test_keys_in_place_of_somebodys_are_taken_by_those_alone_who_know_nobody(signers):
    swap = lambda stage, i, received: (
        received | {str((i + 1) % N): own_keys((i + 1) % N)} if stage == "share" else received
    )
    found, errors = seen(swap, everybody=signed(signers))
    assert found is None
    assert [str(error)[:7] for error in errors[:N]] == ["advert:"] * N
    assert all(isinstance(error, RunRefused) for error in errors[:N])
    taken = sites()[0]
    taken.answer(invitation := invite(), "advertise", {})
    adverts = {"0": b"".join(secure_sum.Advert(*map(secure_sum._public, taken._keys)))}
    letters = taken.answer(invitation, "share", adverts | {str(j): own_keys(j) for j in range(1, N)})
    assert len(letters) == N - 1  # the server has all of them: a site that knows no keys cannot tell


@pytest.mark.parametrize("kind", ["unsigned", "another's", "another run's", "other terms'", "a stranger's"])
def test_a_signature_is_for_one_site_one_run_and_its_terms(signers, kind):
    site, invitation = signed(signers)[0], invite()
    site.answer(invitation, "advertise", {})
    number, signer, about = 1, signers[1], invitation
    if kind == "unsigned":
        signer = None
    elif kind == "another's":
        signer = signers[2]
    elif kind == "another run's":
        about = lie(invitation, agreed={"run": b"before"})
    elif kind == "other terms'":
        about = lie(invitation, epsilon=1.5)
    else:
        site.signer = replace(site.signer, known={0: site.signer.known[0]})
    with pytest.raises(RunRefused, match=r"advert: (that of site 1 is not signed|expected sites that this one knows)"):
        site._adverts(invitation, {1: own_keys(number, signer, about)})


@pytest.mark.parametrize(
    "other", [{"epsilon": 2.0}, {"adjacency": "zero_out"}, {"num_tasks": 7}, {"lattice": 0.25}, {"scaling": "pareto"}]
)
def test_what_is_signed_tells_all_terms_apart(other):
    invitation = invite()
    assert lie(invitation, **other).digest != invitation.digest


def stories(everybody, invitation, lists, *, apart=False):
    """A server that tells every site a list of arrivals of its own, ``apart`` with its signatures alone; what each opens."""
    told, opened = iter(lists), {}
    lists = {}

    def change(stage, i, received):
        if stage == "confirm":
            lists[i] = np.array(next(told), dtype="<u4").tobytes()
            return {"arrived": lists[i]}
        if stage == "reveal" and apart:
            received = {j: text for j, text in received.items() if j == "arrived" or lists[int(j)] == lists[i]}
        return received | {"arrived": lists[i]} if stage == "reveal" else received

    keep = lambda stage, i, reply: (opened.update({i: set(reply)}) if stage == "reveal" else None) or reply
    found, errors = seen(change, keep, everybody, invitation)
    return found, errors, opened


def test_sites_that_sign_open_masks_by_one_list_alone(signers):
    invitation, everyone = invite(dropouts=1), list(range(N))
    found, errors, opened = stories(signed(signers), invitation, [everyone] * N)
    assert not errors
    assert opened.keys() == set(everyone)
    other = [0, 1, 2, 3, 4]  # as many as have to be: each list would do by itself
    found, errors, opened = stories(signed(signers), invitation, [other] * 4 + [everyone] * 2)
    assert found is None
    assert not opened
    assert all(re.match("arrived: that of site . is not signed by it for this run", str(error)) for error in errors[:N])


def test_a_list_is_signed_once_and_by_as_many_as_have_to_be_in_the_sum(signers):
    invitation, everybody = invite(dropouts=1), signed(signers)
    everyone = {"arrived": np.arange(N, dtype="<u4").tobytes()}
    signatures, said = {}, []

    def change(stage, i, received):
        if stage != "reveal":
            return received
        with pytest.raises(ValueError, match="stage: 'confirm' is out of turn"):
            everybody[i].answer(invitation, "confirm", everyone)
        signatures.update(received)
        few = {name: text for name, text in received.items() if name not in ("4", "5")}
        return {0: few, 1: few | {"4": few["3"]}, 2: received | {"arrived": b""}}.get(i, received)

    found, errors = seen(change, everybody=everybody, invitation=invitation)
    said = [str(error) for error in errors]
    assert said[0] == "confirm: 4 owners are there, and it takes 5"
    assert said[1] == "arrived: that of site 4 is not signed by it for this run"
    assert said[2] == "arrived: expected the list that this site has signed"
    assert len(errors) == 4  # and the three others are too few to open
    assert found is None


@pytest.mark.parametrize("stage", ["mask", "confirm", "reveal"])
def test_signed_runs_bear_dropouts_too(signers, stage):
    found = federated.run(invite(dropouts=2), signed(signers), leave={1: stage, 4: stage}, progress_bar=False)
    assert found.sites == (4 if stage == "mask" else 6)
    if stage != "reveal":  # where a few are enough
        with pytest.raises(federated.TooFewOwners):
            federated.run(invite(dropouts=1), signed(signers), leave={1: stage, 4: stage}, progress_bar=False)


def test_some_may_sign_and_others_not_where_nobody_insists(signers):
    one = federated.Site(0, W[:, [0]], signer=signers[0])
    with pytest.raises(federated.TooFewOwners):
        federated.run(invite(), [one, *sites()[1:]], progress_bar=False)
    assert federated.run(invite(), sites(), progress_bar=False).moved.keys() == {"advertise", "share", "mask", "reveal"}


@pytest.mark.parametrize(
    ("conditions", "options", "need"),
    [
        ({}, {"dropouts": 2}, 3),
        ({}, {"dropouts": 3}, 3),
        ({"colluders": 2}, {"dropouts": 2}, 4),
        ({}, {"trust": "no_curator", "dropouts": 2, "colluders": 2}, 4),
    ],
)
def test_sites_that_sign_insist_that_two_lists_cannot_both_be_signed_by_enough(signers, conditions, options, need):
    invitation, insists = invite(**options), Conditions(**conditions)
    site = federated.Site(0, W[:, [0]], conditions=insists, signer=signers[0])
    if invitation.agreed.least > need:
        site.answer(invitation, "advertise", {})
    else:
        with pytest.raises(RunRefused, match=f"least: sites that sign expect more than {need} of 6 in the sum"):
            site.answer(invitation, "advertise", {})
    federated.Site(0, W[:, [0]], conditions=insists).answer(invitation, "advertise", {})  # unsigned there are no lists


def test_two_halves_that_are_shown_two_lists_are_what_that_is_for(signers, monkeypatch):
    """With half of the sites enough, and without that condition, a server opens the sums of two halves."""
    monkeypatch.setattr(Conditions, "_of_the_lists", lambda *_: None)
    invitation, halves = invite(dropouts=3), ([0, 1, 2], [3, 4, 5])
    _, _, opened = stories(signed(signers), invitation, [halves[i // 3] for i in range(N)], apart=True)
    assert opened == {
        i: {f"seed {j}" for j in halves[i // 3]} | {f"key {j}" for j in halves[1 - i // 3]} for i in range(N)
    }


def test_a_site_has_the_number_of_its_key_and_one_that_is_invited(signers):
    with pytest.raises(ValueError, match="number: expected 1, by which this site's own key is known, got 0"):
        federated.Site(0, W[:, [0]], signer=signers[1])
    late = federated.Site(N, W[:, [0]])
    with pytest.raises(RunRefused, match="sites: expected more than 6, the number of this one, got 6"):
        late.answer(invite(), "advertise", {})


@pytest.fixture
def files(tmp_path):
    (tmp_path / "keys").mkdir()
    for i in range(3):
        federated.write_key(tmp_path / f"{i}.key", tmp_path / "keys" / f"{i}.pub")
    return tmp_path


def test_keys_are_read_from_files(files):
    read = [Signer.read(files / f"{i}.key", files / "keys") for i in range(3)]
    assert [signer.number for signer in read] == [0, 1, 2]
    _, advert = secure_sum.advertise()
    read[0].check(b"invited", 2, advert, read[2].sign(b"invited", 2, advert))
    with pytest.raises(FileExistsError):  # and none is written over
        federated.write_key(files / "0.key", files / "keys" / "0.pub")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: (f / "0.key").write_text("none"), r"private: expected an Ed25519PrivateKey in PEM, without a .*0\.key"),
        (lambda f: (f / "keys" / "1.pub").write_text("none"), r"known: expected an Ed25519PublicKey in PEM, .*1\.pub"),
        (lambda f: (f / "keys" / "0.pub").unlink(), "known: expected this site's own public key among them"),
        (lambda f: (f / "keys" / "9.pub").write_bytes((f / "keys" / "1.pub").read_bytes()), "known: expected a key of its"),
        (lambda f: (f / "keys" / "1.pub").rename(f / "keys" / "01.pub"), "known: expected files by the numbers of sites"),
    ],
)  # fmt: skip
def test_files_that_are_no_keys_are_named_and_not_shown(files, change, said):
    secret = (files / "0.key").read_text().splitlines()[1]
    change(files)
    with pytest.raises(ValueError, match=said) as error:
        Signer.read(files / "0.key", files / "keys")
    assert secret not in str(error.value)


@pytest.mark.skipif(os.name != "posix", reason="other permissions")
def test_a_private_key_is_its_owners_alone(files):
    assert stat.S_IMODE((files / "0.key").stat().st_mode) == 0o600
    (files / "0.key").chmod(0o640)
    with pytest.raises(ValueError, match="private: expected a file that its owner alone can read"):
        Signer.read(files / "0.key", files / "keys")


@pytest.mark.parametrize("kind", ["Keys", "Shared", "Masked", "Revealed"])
def test_secrets_of_a_run_do_not_show(kind):
    fields = getattr(secure_sum, kind)._fields
    assert repr(getattr(secure_sum, kind)(*(b"secret",) * len(fields))) == f"{kind}(...)"


def test_keys_do_not_show_and_must_be_keys(signers):
    assert repr(signers[0]) == "Signer(knows 6 sites)"
    with pytest.raises(ValueError, match="known: expected this site's own public key among them"):
        replace(signers[0], known={1: signers[0].known[1]})
    with pytest.raises(ValueError, match="known: expected a key of its own for every site, got one twice"):
        replace(signers[0], known={0: signers[0].known[0], 1: signers[0].known[0]})
    with pytest.raises(ValueError, match="private: expected a key of 32 bytes"):
        Signer(b"short", {})
    with pytest.raises(ValueError, match=r"known\[3\]: expected a key of 32 bytes"):
        Signer(signers[0].private, {3: b""})


# Messages that are not as agreed


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


def check(found, errors, invitation, whose=None):
    """It ended in a named error, or in the sum over those who are in it.

    Where a letter was lost a mask is left: the number of tasks, under it, is none; and nothing is published.
    """
    for error in errors:
        assert re.match(r"\w+: ", str(error)), error  # says which argument
        assert not {f"{abs(float(n)):.3g}" for n in re.findall(r"\d+\.\d+", str(error))} & PRIVATE
    if found is None:
        assert errors
        return
    total, inside = found
    assert len(inside) >= invitation.agreed.least
    if np.array_equal(total, plain(inside, invitation)):
        federated.settle(invitation, total, len(inside), unsafe_seed=1)
        return
    if whose == "mask":  # a site may always say another vector than its own
        return
    with pytest.raises(ValueError, match=r"^(total|num_tasks|second_moment): expected"):
        federated.settle(invitation, total, len(inside), unsafe_seed=1)


@pytest.mark.parametrize("seed", range(effort(30, 600)))
def test_a_server_that_garbles_what_it_passes_on_gets_named_errors_and_no_wrong_sum(seed, signers):
    rng, invitation, everybody = np.random.default_rng(seed), invite(), signed(signers) if seed % 2 else sites()
    where = (str(rng.choice(["share", "mask", "reveal", "confirm"][: 3 + seed % 2])), int(rng.integers(N)))
    change = lambda stage, i, received: tamper(rng, received) if (stage, i) == where else received
    check(*seen(change, everybody=everybody, invitation=invitation), invitation)


@pytest.mark.parametrize("seed", range(effort(30, 600)))
def test_a_site_that_garbles_what_it_says_is_left_out_or_found_out(seed, signers):
    rng, invitation, everybody = np.random.default_rng(seed), invite(), signed(signers) if seed % 2 else sites()
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
    found, _ = seen(answers=short, invitation=invitation)
    np.testing.assert_array_equal(found[0], plain([0, 2, 3, 4, 5], invitation))


def test_messages_said_again_are_out_of_turn():
    invitation, everybody, past = invite(), sites(), []
    keep = lambda stage, i, received: past.append((stage, i, dict(received))) or received
    seen(keep, everybody=everybody, invitation=invitation)
    before = everybody[0].account.answered()
    for stage, i, received in past:
        with pytest.raises(ValueError, match="out of turn"):
            everybody[i].answer(invitation, stage, received)
    assert everybody[0].account.answered() == before


def test_nothing_is_paid_for_a_run_that_fails_before_a_vector_is_out():
    everybody = sites()
    forge = lambda stage, i, received: (
        {j: bytes(len(text)) for j, text in received.items()} if stage == "mask" else received
    )
    found, errors = seen(forge, everybody=everybody)
    assert found is None
    assert "was changed on its way" in str(errors[0])
    assert not any(site.account.answered() for site in everybody)


def test_a_key_that_everybody_shares_is_none():
    """X25519 has public keys with which any private one gives nought: a server could read what is meant for them."""
    weak = lambda stage, i, received: received | {"3": bytes(63) + b"\1"} if stage == "share" and i != 3 else received
    found, errors = seen(weak)
    assert found is None
    assert "adverts: expected public keys" in str(errors[0])


def test_a_server_cannot_fill_the_list_of_arrivals_with_others_than_wrote():
    """It would open the masks that a small sum shares with the rest."""
    invitation, everybody = invite(), sites()
    gone = lambda stage, i, reply: {} if i >= 4 and stage == "share" else reply
    lied = []

    def pad(stage, i, received):
        if stage != "reveal":
            return received
        lied.append(i)
        return {"arrived": np.array([i, 4, 5, (i + 1) % 4], dtype="<u4").tobytes()}

    found, errors = seen(pad, gone, everybody, invitation)
    assert len(lied) == 4
    assert found is None
    assert all("arrived: expected owners who wrote letters" in str(error) for error in errors[:4])


def test_whatever_a_server_tells_whom_no_site_opens_both_its_masks():
    """Shares of its seed go out with one list of arrivals and those of its key with another: never enough of both."""
    for colluders in (0, 1):
        for options in ({"dropouts": 2}, {"partners": 4, "dropouts": 1}):
            agreed = invite(colluders=colluders, **options).agreed
            holders = N if agreed.partners is None else agreed.partners + 1
            assert 2 * agreed.threshold > holders + colluders


def test_two_keys_alike_are_noticed():
    twice = lambda stage, i, received: (
        received | {"3": received["2"]} if stage == "share" and i not in (2, 3) else received
    )
    found, errors = seen(twice)
    assert found is None
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
