"""A site that answers every stage in a process of its own: the same sum, no stage twice, and no secret that stays."""

import json
import os
import sqlite3
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import federated
from mpmtl_prob.federated.flower import certificates, wire
from mpmtl_prob.federated.flower import persistent_site as kept
from mpmtl_prob.federated.flower.persistent_site import PersistentSite
from mpmtl_prob.federated.flower.sites import Sites

OWNERS = 5
TASKS = mp.datasets.synthetic_low_rank(num_tasks=OWNERS, num_features=3, rows=8).train


def rows(i):
    return mp.TaskData.from_lists([TASKS.rows_of(i)[0]], [TASKS.rows_of(i)[1]])


def invite(trust="secure_sum"):
    return federated.invite(1.0, OWNERS, 3, trust=trust, dropouts=1)


class Anew:
    """A site of which nothing is left after every stage but its folder."""

    seeded = False

    def __init__(self, number, folder, **options):
        self.number, self._folder, self._options = number, folder, options

    def answer(self, invitation, stage, received):
        # the invitation travels too
        site = PersistentSite(self.number, lambda: rows(self.number), self._folder / str(self.number), **self._options)
        return site.answer(wire.read(wire.write(invitation)), stage, dict(received))


def everybody(folder, **options):
    return [Anew(i, folder, **options) for i in range(OWNERS)]


def states(folder):
    return sorted(folder.rglob("*.state"))


@pytest.mark.parametrize("leave", [{}, {2: "share"}, {1: "mask"}, {0: "reveal"}])
def test_a_site_resumed_after_every_stage_gives_the_same_sum(tmp_path, leave):
    invitation = invite()
    outcome = federated.run(invitation, everybody(tmp_path), unsafe_seed=3, leave=leave, progress_bar=False)
    here = [federated.Site(i, rows(i)) for i in range(OWNERS)]
    same = federated.run(invite(), here, unsafe_seed=3, leave=leave, progress_bar=False)
    np.testing.assert_array_equal(outcome.release.sigma, same.release.sigma)
    assert outcome.sites == same.sites
    left = {path.parent.name for path in states(tmp_path)}
    assert left == {str(i) for i in leave}  # who saw the end keeps no secret


def test_a_share_of_noise_is_drawn_and_paid_for_once(tmp_path):
    ledgers = [mp.privacy.Ledger(tmp_path / f"{i}.db", epsilon=5.0, delta=0.2) for i in range(OWNERS)]
    sites = [Anew(i, tmp_path, ledger=ledger) for i, ledger in enumerate(ledgers)]
    outcome = federated.run(invite("no_curator"), sites, progress_bar=False)
    proved = outcome.release.guarantee.proved
    assert proved.epsilon == 1.0
    assert 0.5 < proved.delta * OWNERS * np.log(OWNERS) <= 1.0  # one of five may vanish, and left its noise here
    assert [len(ledger.charges()) for ledger in ledgers] == [1] * OWNERS


def test_signed_keys_and_lists_are_kept_too(tmp_path):
    private, public = zip(*(federated.new_key() for _ in range(OWNERS)), strict=True)
    signers = [federated.Signer(key, dict(enumerate(public))) for key in private]
    sites = [Anew(i, tmp_path, signer=signer) for i, signer in enumerate(signers)]
    assert federated.run(invite(), sites, leave={2: "share"}, progress_bar=False).sites == OWNERS - 1
    assert {path.parent.name for path in states(tmp_path)} == {"2"}


def answers(invitation, folder, stop):
    """A run up to a stage, which is not sent: the site that is tried, and what it would be sent."""
    sites = everybody(folder)
    server = federated.serve(invitation)
    stage, sending = next(server)
    while stage != stop:
        stage, sending = server.send({i: sites[i].answer(invitation, stage, sending[i]) for i in range(OWNERS)})
    return sites[0], sending[0]


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "confirm", "reveal"])
def test_no_stage_is_answered_twice(tmp_path, stage):
    invitation = invite()
    site, received = answers(invitation, tmp_path, stage)
    site.answer(invitation, stage, received)
    with pytest.raises(ValueError, match="stage: "):
        site.answer(invitation, stage, received)


def test_of_many_processes_at_once_one_reveals(tmp_path):
    invitation = invite()
    site, received = answers(invitation, tmp_path, "reveal")

    def tried(what):
        try:
            return site.answer(invitation, "reveal", what)
        except ValueError:
            return None

    with ThreadPoolExecutor(8) as pool:
        revealed = list(pool.map(tried, [received] * 8))
    assert sum(answer is not None for answer in revealed) == 1
    assert states(tmp_path / "0") == []


def test_who_dies_after_it_has_paid_does_not_pay_again(tmp_path, monkeypatch):
    invitation = invite()
    site, received = answers(invitation, tmp_path, "mask")

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PersistentSite, "_leave", dies)
    with pytest.raises(KeyboardInterrupt):
        site.answer(invitation, "mask", received)
    monkeypatch.undo()
    account = federated.RunLog(tmp_path / "0" / "account.db")
    assert [run for run, *_ in account.answered()] == [invitation.agreed.run.hex()]  # it says what happened
    with pytest.raises(ValueError, match="has no saved state of the stage before"):
        site.answer(invitation, "mask", received)
    for path in states(tmp_path):
        path.unlink()
    site, received = answers(invitation, tmp_path, "mask")  # a run of the same name, from its beginning
    with pytest.raises(federated.RunRefused, match="answered before"):
        site.answer(invitation, "mask", received)


def test_what_is_kept_of_one_run_is_of_no_use_in_another(tmp_path):
    first, second = invite(), invite()
    site, received = answers(first, tmp_path, "mask")
    (path,) = states(tmp_path / "0")
    os.rename(path, path.with_name(f"{second.agreed.run.hex()}.state"))
    with pytest.raises(ValueError, match="invitation: expected the one that this site has answered before"):
        site.answer(second, "mask", received)
    assert states(tmp_path / "0") == []


def test_nor_with_another_number_or_other_terms(tmp_path):
    invitation = invite()
    site, received = answers(invitation, tmp_path, "mask")
    (path,) = states(tmp_path / "0")
    text = path.read_text()
    other = PersistentSite(1, lambda: rows(0), tmp_path / "0")
    with pytest.raises(ValueError, match="invitation: expected the one"):
        other.answer(invitation, "mask", received)
    path.write_text(text)
    with pytest.raises(ValueError, match="invitation: expected the one"):
        site.answer(invitation.__class__(invitation.terms, federated.Trust.NO_CURATOR, OWNERS, invitation.agreed),
                    "mask", received)  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="other permissions")
def test_secrets_are_their_owners_alone_and_do_not_stay(tmp_path):
    invitation = invite()
    answers(invitation, tmp_path, "reveal")
    (path,) = states(tmp_path / "0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    long_ago = time.time() - 2 * kept._DAY
    os.utime(path, (long_ago, long_ago))
    Anew(0, tmp_path).answer(invite(), "advertise", {})
    assert path not in states(tmp_path / "0")


@pytest.fixture
def no_umask():
    """A process that takes no permission away from new files."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="other permissions")
def test_what_a_site_writes_is_its_owners_alone(tmp_path, no_umask):
    account = federated.RunLog(tmp_path / "account.db")
    account.enter(b"x" * 16, "no_curator", seen=False)
    with sqlite3.connect(tmp_path / "account.db") as under_way:
        under_way.execute("INSERT INTO answered VALUES ('a', 'b', 'c')")  # the journal lies beside it
        assert {path.name for path in tmp_path.iterdir()} == {"account.db", "account.db-journal"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
        under_way.rollback()
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o777)  # made by somebody else
    PersistentSite(0, rows(0), open_folder).answer(invite(), "advertise", {})
    assert len(list(open_folder.iterdir())) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in open_folder.iterdir()} == {0o600}


@pytest.mark.skipif(os.name == "nt", reason="other permissions")
def test_a_key_takes_the_place_of_a_file_that_is_there(tmp_path, no_umask):
    (tmp_path / "server.key").touch(0o666)
    written = certificates.write(tmp_path)
    assert stat.S_IMODE(written.key.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="other permissions")
def test_a_nodes_log_is_its_owners_alone(tmp_path, no_umask):
    by_processes = Sites(tmp_path, [], tls=False)
    by_processes._launch("node-0", [sys.executable, "-c", "print('a row')"])
    by_processes.processes["node-0"].wait()
    assert stat.S_IMODE((tmp_path / "node-0").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "node-0" / "log").stat().st_mode) == 0o600
    assert (tmp_path / "node-0" / "log").read_text() == "a row\n"


def test_an_account_stays_where_it_was_opened(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    account = federated.RunLog("account.db")
    account.enter(b"x" * 16, "secure_sum", seen=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(federated.RunRefused, match="1 runs were answered"):
        account.enter(b"y" * 16, "secure_sum", seen=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_account_in_anothers_place_is_refused(tmp_path):
    account = federated.RunLog(tmp_path / "account.db")
    account.enter(b"x" * 16, "secure_sum", seen=True)
    (tmp_path / "account.db").unlink()
    with pytest.raises(federated.RunRefused, match="is gone, and with it the record of what was answered"):
        account.enter(b"y" * 16, "secure_sum", seen=True)
    federated.RunLog(tmp_path / "account.db")  # somebody else's, or one that was made anew
    with pytest.raises(federated.RunRefused, match="is another run log than was opened"):
        account.enter(b"y" * 16, "secure_sum", seen=True)


def test_an_account_that_0_3_0_wrote_goes_on(tmp_path):
    with closing(sqlite3.connect(tmp_path / "account.db")) as connection, connection:
        connection.execute("CREATE TABLE answered (run TEXT PRIMARY KEY, trust TEXT NOT NULL, time TEXT NOT NULL)")
        connection.execute("INSERT INTO answered VALUES (?, 'secure_sum', 'then')", (b"x".hex() * 16,))
    for _ in range(2):
        account = federated.RunLog(tmp_path / "account.db")
        with pytest.raises(federated.RunRefused, match="1 runs were answered"):
            account.enter(b"y" * 16, "secure_sum", seen=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_an_account_in_memory_does_not_answer_in_a_fork():
    account = federated.RunLog()
    child = os.fork()
    if not child:
        try:
            account.enter(b"x" * 16, "secure_sum", seen=True)
        except federated.RunRefused:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    account.enter(b"x" * 16, "secure_sum", seen=True)


def test_a_server_that_comes_back_a_day_later_is_told_nothing(tmp_path):
    invitation = invite()
    site, received = answers(invitation, tmp_path, "reveal")
    (path,) = states(tmp_path / "0")
    os.utime(path, (time.time() - 2 * kept._DAY,) * 2)
    with pytest.raises(ValueError, match="has no saved state of the stage before"):
        site.answer(invitation, "reveal", received)
    assert states(tmp_path / "0") == []


@pytest.mark.parametrize("trust", federated.Trust)
def test_an_invitation_arrives_as_it_was_sent(trust):
    invitation = federated.invite(1.0, OWNERS, ["a", "b", "c"], trust=trust, dropouts=1)
    assert wire.read(wire.write(invitation)) == invitation


@pytest.mark.parametrize("features", ["abc", {"a": 1}, [["a"], "b"], [None, "a"], 3])
def test_an_invitation_names_its_features_in_a_list(features):
    """A text would be read letter by letter, and a table by its keys."""
    fields = json.loads(wire.write(federated.invite(1.0, OWNERS, ["a", "b", "c"])))
    fields["terms"]["features"] = features
    with pytest.raises(ValueError, match="expected one that this version wrote: features: expected a list of names"):
        wire.read(json.dumps(fields).encode())


def test_reference_values_travel_with_an_invitation():
    reference = mp.Reference({"age": (60, 15), 2: (0.5, 0.5)}, target=(7, 5), effects={"age": 0.05})
    invitation = federated.invite(1.0, OWNERS, ["age", 2, "intercept"], reference=reference)
    again = wire.read(wire.write(invitation))
    assert again == invitation
    assert again.terms.effects.reference == reference
    fields = json.loads(wire.write(invitation))
    fields["effects"]["reference"]["features"][0][2] = -15
    with pytest.raises(ValueError, match="invitation: expected one that this version wrote: features: 'age'"):
        wire.read(json.dumps(fields).encode())
    del fields["effects"]
    with pytest.raises(ValueError, match="effects: expected a layout with message='effects'"):
        wire.read(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("agreed"),
        lambda fields: fields.update(trust="everybody"),
        lambda fields: fields["terms"].update(lattice="small"),
        lambda fields: fields.update(mechanisms=[{"kind": "VectorGaussian"}]),
        lambda fields: fields.update(mechanisms=[]),
        lambda fields: fields["agreed"].__setitem__(0, "00" * 400),
        lambda fields: fields["agreed"].__setitem__(0, ""),
    ],
)
def test_what_is_no_invitation_is_named(change):
    fields = json.loads(wire.write(invite()))
    change(fields)
    with pytest.raises(ValueError, match="invitation: expected one that this version wrote"):
        wire.read(json.dumps(fields).encode())
