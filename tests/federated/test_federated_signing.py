"""Nobody has to be believed: whose keys a site takes."""

import os
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
from helpers import federated_runs
from helpers.federated_runs import N, W, invite, lie, plain, seen, signed, sites

from mpmtl_prob import federated
from mpmtl_prob.federated import RunRefused, Signer, SitePolicy, secure_sum


@pytest.fixture
def signers():
    return federated_runs.signers()


def test_sites_that_know_each_other_have_the_same_sum(signers):
    invitation = invite()
    outcome, errors = seen(everybody=signed(signers), invitation=invitation)
    assert not errors
    np.testing.assert_array_equal(outcome[0], plain(range(N), invitation))


def own_keys(number, signer=None, invitation=None):
    """Keys of the server's making in place of a site's."""
    _, advert = secure_sum.advertise()
    return b"".join(advert) + (signer.sign(invitation.digest, number, advert) if signer else b"")


def test_the_number_of_sites_costs_a_site_nothing():
    many = replace(invite(partners=4, dropouts=1, colluders=0), sites=2**60)
    site = sites()[0]
    site.answer(many, "advertise", {})
    with pytest.raises(ValueError, match="received: expected messages of sites by their numbers"):
        site.answer(many, "share", {"01": b""})


def test_forged_keys_are_taken_only_by_sites_that_know_nobody(signers):
    """Keys in place of somebody's are accepted only by sites that know nobody."""
    swap = lambda stage, i, received: (
        received | {str((i + 1) % N): own_keys((i + 1) % N)} if stage == "share" else received
    )
    outcome, errors = seen(swap, everybody=signed(signers))
    assert outcome is None
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
    number = 1
    signer = signers[1]
    about = invitation
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

    def record(stage, i, reply):
        if stage == "reveal":
            opened[i] = set(reply)
        return reply

    outcome, errors = seen(change, record, everybody, invitation)
    return outcome, errors, opened


@pytest.mark.parametrize("sign", [True, False])
def test_sites_open_masks_by_one_list_alone(signers, sign):
    invitation, everyone = invite(dropouts=1), list(range(N))
    everybody = lambda: signed(signers) if sign else sites()
    outcome, errors, opened = stories(everybody(), invitation, [everyone] * N)
    assert not errors
    assert opened.keys() == set(everyone)
    other = [0, 1, 2, 3, 4]  # as many as have to be: each list would do by itself
    outcome, errors, opened = stories(everybody(), invitation, [other] * 4 + [everyone] * 2)
    assert outcome is None
    assert not opened
    said = "that of site . is not signed by it for this run" if sign else "site . does not vouch for the list"
    assert len(errors) > N
    assert all(re.match(f"arrived: {said}|reveal: 0 owners", str(error)) for error in errors)


@pytest.mark.parametrize("sign", [True, False])
def test_masks_open_when_as_many_vouch_as_are_in_the_sum(signers, sign):
    """A server that says nothing of what the others confirmed, or too little."""
    invitation = invite(dropouts=1)
    few = lambda stage, i, received: (
        {name: text for name, text in received.items() if name not in ("4", "5")} if stage == "reveal" else received
    )
    outcome, errors = seen(few, everybody=signed(signers) if sign else sites(), invitation=invitation)
    assert outcome is None
    assert str(errors[0]) == "confirm: 4 owners are there, and it takes 5"


def test_a_list_is_signed_once_by_as_many_as_the_sum_needs(signers):
    """A list is signed once, and by as many as have to be in the sum."""
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

    outcome, errors = seen(change, everybody=everybody, invitation=invitation)
    said = [str(error) for error in errors]
    assert said[0] == "confirm: 4 owners are there, and it takes 5"
    assert said[1] == "arrived: that of site 4 is not signed by it for this run"
    assert said[2] == "arrived: expected the list that this site has confirmed"
    assert len(errors) == 4  # and the three others are too few to open
    assert outcome is None


@pytest.mark.parametrize("stage", ["mask", "confirm", "reveal"])
def test_signed_runs_bear_dropouts_too(signers, stage):
    outcome = federated.run(invite(dropouts=2), signed(signers), leave={1: stage, 4: stage}, progress_bar=False)
    assert outcome.sites == (4 if stage == "mask" else 6)
    if stage != "reveal":  # where a few are enough
        with pytest.raises(federated.TooFewOwners):
            federated.run(invite(dropouts=1), signed(signers), leave={1: stage, 4: stage}, progress_bar=False)


def test_some_may_sign_and_others_not_where_nobody_insists(signers):
    one = federated.Site(0, W[:, [0]], signer=signers[0])
    outcome = federated.run(invite(), [one, *sites()[1:]], progress_bar=False)
    assert outcome.sites == N - 1
    assert list(outcome.refused) == [0]  # which insists
    with pytest.raises(federated.TooFewOwners):
        federated.run(
            invite(dropouts=0), [federated.Site(0, W[:, [0]], signer=signers[0]), *sites()[1:]], progress_bar=False
        )
    assert federated.run(invite(), sites(), progress_bar=False).sites == N


@pytest.mark.parametrize(
    ("conditions", "options", "least", "need"),
    [
        ({}, {}, 4, 3),
        ({}, {}, 3, 3),
        ({"colluders": 2}, {}, 4, 4),
        ({}, {"trust": "no_curator", "dropouts": 1, "colluders": 2}, 5, 4),  # of the noise
    ],
)
@pytest.mark.parametrize("sign", [True, False])
def test_sites_insist_that_two_lists_cannot_both_find_enough(signers, conditions, options, least, need, sign):
    invitation, insists = invite(**{"dropouts": 0} | options), SitePolicy(**conditions)
    invitation = lie(invitation, agreed={"least": least, "threshold": 6})
    site = federated.Site(0, W[:, [0]], policy=insists, signer=signers[0] if sign else None)
    if least > need:
        site.answer(invitation, "advertise", {})
    else:
        with pytest.raises(RunRefused, match=f"least: this site expects more than {need} of 6 in the sum"):
            site.answer(invitation, "advertise", {})


def test_sites_that_sign_need_no_more_shares_than_collude(signers):
    """Nobody tells them different terms of one run, and there is one list."""
    invitation = lie(invite(dropouts=1), agreed={"threshold": 2})
    federated.Site(0, W[:, [0]], signer=signers[0]).answer(invitation, "advertise", {})
    with pytest.raises(RunRefused, match="threshold: this site expects that 4 shares open a mask of 6 sites"):
        federated.Site(0, W[:, [0]]).answer(invitation, "advertise", {})


@pytest.mark.parametrize("sign", [True, False])
def test_two_halves_with_two_lists_show_why_lists_are_signed(signers, monkeypatch, sign):
    """Showing two lists to two halves of the sites is the attack that signed lists prevent.

    With half of the sites enough, and without that condition, a server opens the sums of two halves.
    """
    monkeypatch.setattr(SitePolicy, "_of_the_masks", lambda *_: None)
    invitation, halves = lie(invite(dropouts=2), agreed={"least": 3, "threshold": 3}), ([0, 1, 2], [3, 4, 5])
    everybody = signed(signers) if sign else sites()
    _, _, opened = stories(everybody, invitation, [halves[i // 3] for i in range(N)], apart=True)
    assert opened == {
        i: {f"seed {j}" for j in halves[i // 3]} | {f"key {j}" for j in halves[1 - i // 3]} for i in range(N)
    }


def test_invited_sites_have_the_number_of_their_key(signers):
    """A site has the number of its key, and so has one that is invited."""
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


@pytest.mark.parametrize("there", ["private", "public", "link"])
def test_no_key_is_written_over(tmp_path, there):
    """Others were told the public key that is there: another in its place would lock the site out, with no word."""
    private, public = tmp_path / "site.key", tmp_path / "0.pub"
    old = private if there == "private" else public
    old.symlink_to(tmp_path / "nowhere") if there == "link" else old.write_bytes(b"of before")
    with pytest.raises(FileExistsError, match=r"0\.pub is there already" if there != "private" else None):
        federated.write_key(private, public)
    assert os.readlink(old) == str(tmp_path / "nowhere") if there == "link" else old.read_bytes() == b"of before"
    assert [path.name for path in tmp_path.iterdir()] == [old.name]


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
