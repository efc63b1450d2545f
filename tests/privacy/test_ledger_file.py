"""The ledger: what was written stays written."""

import json
import os
import pickle
import shutil
import sqlite3
import stat
import threading
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from helpers.ledgers import ledger

from mpmtl_prob.privacy import BudgetExceeded, Gaussian, Ledger, LedgerAltered, Quantile, Wishart
from mpmtl_prob.privacy.ledger_file import LedgerFile

LAW = Wishart(3, 200.0, 30.0)


def filled(path, charges=3):
    book = ledger(path)
    for _ in range(charges):
        book.charge(LAW)
    return book


def execute(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_receipt_is_small_json_and_holds_as_the_ledger_grows(tmp_path):
    book = ledger(tmp_path / "book")
    receipts = [book.export_receipt()]
    for _ in range(3):
        book.charge(LAW)
        receipts.append(json.loads(json.dumps(book.export_receipt())))
    assert [each["charges"] for each in receipts] == [0, 1, 2, 3]
    assert len(json.dumps(receipts[-1])) < 250
    for each in receipts:
        Ledger(tmp_path / "book").verify(each)


def test_an_older_copy_of_a_ledger_is_seen_by_its_receipts(tmp_path):
    """Whoever kept a receipt sees that an older copy stands in the ledger's place."""
    path = tmp_path / "book"
    book = filled(path)
    early = book.export_receipt()
    shutil.copy(path, tmp_path / "copy")
    book.charge(LAW)
    late = book.export_receipt()
    shutil.copy(tmp_path / "copy", path)
    restored = Ledger(path)
    restored.verify(early)  # nothing older is missing
    with pytest.raises(LedgerAltered, match="its number of charges is 3, and was 4"):
        restored.verify(late)
    restored.charge(Wishart(3, 300.0, 30.0))  # as many charges as there were, with another at the end
    with pytest.raises(LedgerAltered, match="first 4 charges were changed"):
        restored.verify(late)


def test_a_ledger_that_was_deleted_and_declared_anew_is_seen(tmp_path):
    path = tmp_path / "book"
    for charges in (0, 3):
        receipt = filled(path, charges).export_receipt()
        path.unlink()
        with pytest.raises(LedgerAltered, match="another one is in the place"):
            filled(path, charges).verify(receipt)
        path.unlink()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE charge SET mechanisms = replace(mechanisms, '30.0', '90.0') WHERE id = 2",
        "UPDATE charge SET time = '2020-01-01T00:00:00+00:00' WHERE id = 1",
        "UPDATE charge SET token = '' WHERE id = 3",
        "DELETE FROM charge WHERE id = 2",
        "UPDATE total SET epsilon = 1.5",
        "UPDATE total SET adaptive = 1",
    ],
)
def test_an_edited_ledger_is_refused_by_all_that_read_it(tmp_path, edit):
    receipt = filled(tmp_path / "book").export_receipt()
    execute(tmp_path / "book", edit)
    book = Ledger(tmp_path / "book")
    for use in (lambda: book.spent, lambda: book.charge(LAW), book.export_receipt, lambda: book.verify(receipt)):
        with pytest.raises(LedgerAltered, match=r"^ledger: charge [123] is not what was written"):
            use()


@pytest.mark.parametrize(
    "bad", [None, {}, "receipt", {"ledger": 1}, {"ledger": "", "charges": "one", "head": "", "time": ""}]
)
def test_what_is_no_receipt_is_named(bad):
    with pytest.raises(ValueError, match=r"^receipt: "):
        ledger().verify(bad)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes: a file there is as open as its folder")
def test_the_file_and_its_journal_are_for_the_owner_alone(tmp_path):
    filled(tmp_path / "book", 1)
    connection = sqlite3.connect(tmp_path / "book", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE total SET epsilon = 2")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    connection.execute("ROLLBACK")
    connection.close()
    assert modes == {"book": 0o600, "book-journal": 0o600}


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes: a file there is as open as its folder")
def test_the_file_is_closed_from_the_first_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    filled(tmp_path / "book", 1)
    assert stat.S_IMODE((tmp_path / "book").stat().st_mode) == 0o600


def test_a_ledger_of_the_first_version_opens_and_is_chained(tmp_path):
    path, old = (
        tmp_path / "book",
        json.dumps([{"kind": "Wishart", "num_features": 3, "df": 200.0, "scale": 30.0, "clip": 1.0}]),
    )
    execute(
        path,
        "CREATE TABLE total (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL, adjacency TEXT, unit TEXT, "
        "salt BLOB)",
        "CREATE TABLE charge (id INTEGER PRIMARY KEY, time TEXT, fingerprint TEXT, unit TEXT, adjacency TEXT, "
        "mechanisms TEXT)",
        "INSERT INTO total VALUES (1, 1.0, 0.001, 'replace', 'task', x'00112233')",
        *[
            f"INSERT INTO charge VALUES ({n}, '2026-01-0{n}T00:00:00+00:00', '', 'task', 'replace', '{old}')"
            for n in (1, 2)
        ],
    )
    path.chmod(0o644)
    book = Ledger(path)
    assert [charge.mechanisms for charge in book.charges()] == [(LAW,)] * 2
    assert (book.epsilon, book.adaptive) == (1.0, False)
    assert os.name != "posix" or stat.S_IMODE(path.stat().st_mode) == 0o600
    receipt = book.export_receipt()
    book.charge(LAW)
    Ledger(path).verify(receipt)
    assert len(Ledger(path).charges()) == 3
    execute(path, "UPDATE charge SET time = '2026-01-05T00:00:00+00:00' WHERE id = 1")
    with pytest.raises(LedgerAltered, match="charge 1"):
        Ledger(path).charges()


def test_an_unreadable_law_is_refused_before_it_is_written():
    """A law that no ledger could read again is refused before it is written."""

    @dataclass(frozen=True)
    class Homemade:
        epsilon: float
        kind: ClassVar[str] = "Homemade"
        unproved: ClassVar[str] = ""
        loss_spread: ClassVar[float] = 0.1

        def loss_distribution(self, adjacency, *, interval=None, pessimistic=True):
            return Quantile(self.epsilon).loss_distribution(adjacency, interval=interval, pessimistic=pessimistic)

    class Dearer(Quantile):
        """Reads again as another law."""

    book = ledger()
    for law in (Homemade(0.05), Dearer(0.05), "Wishart", None):
        with pytest.raises(
            ValueError, match=r"^mechanisms: expected (laws that a ledger can read again|an object that derives)"
        ):
            book.charge([law])
    book.charge(Wishart(np.int64(3), np.float64(200.0), 30.0))
    assert [charge.mechanisms for charge in book.charges()] == [(LAW,)]


# -- a ledger in use, and its file ---------------------------------------------------------------------------------------

USES = {
    "charge": lambda book: book.charge(LAW),
    "spent": lambda book: book.spent,
    "charges": lambda book: book.charges(),
    "receipt": lambda book: book.export_receipt(),
}


def gone(path):
    path.unlink()


def declared_anew(path):
    path.unlink()
    ledger(path)


def another_by_renaming(path):
    ledger(path.with_name("other"))
    path.with_name("other").replace(path)


def another_copied_over_it(path):
    ledger(path.with_name("other"))
    shutil.copyfile(path.with_name("other"), path)


def older_copy(path):
    shutil.copyfile(path.with_name("older"), path)


def larger_total(path):
    execute(path, "UPDATE total SET epsilon = 9.0")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "replace", [gone, declared_anew, another_by_renaming, another_copied_over_it, older_copy, larger_total]
)
def test_a_ledger_in_use_refuses_what_took_its_files_place(tmp_path, replace, use):
    path = tmp_path / "book"
    book = ledger(path)
    shutil.copyfile(path, tmp_path / "older")
    book.charge(LAW)
    replace(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(LedgerAltered, match=r"^ledger: "):
        USES[use](book)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    pickled = pickle.dumps(book)
    with pytest.raises(LedgerAltered, match=r"^ledger: "):
        pickle.loads(pickled)


def test_a_link_that_leads_elsewhere_is_noticed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "first")
    book = ledger(tmp_path / "link")
    ledger(tmp_path / "second")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "second")
    with pytest.raises(LedgerAltered, match="another one is in the place of"):
        book.charge(LAW)
    assert Ledger(tmp_path / "second").charges() == []


def test_a_file_swapped_in_the_middle_of_a_charge_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "book"
    book, exceeds = ledger(path), Ledger._exceeds
    shutil.copyfile(path, tmp_path / "copy")

    def swap(*arguments):
        (tmp_path / "copy").replace(path)
        return exceeds(*arguments)

    monkeypatch.setattr(Ledger, "_exceeds", swap)
    with pytest.raises(ValueError, match=r"^path: cannot use"):
        book.charge(LAW)
    assert Ledger(path).charges() == []


def test_a_file_that_vanishes_just_then_is_not_made_anew(tmp_path, monkeypatch):
    book = ledger(tmp_path / "book")
    (tmp_path / "book").unlink()
    monkeypatch.setattr(LedgerFile, "is_there", lambda self: True)
    with pytest.raises(ValueError, match=r"^path: cannot use"):
        book.charge(LAW)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["book", b"book", os.path.join("sub", "..", "book")])
def test_a_relative_path_is_where_it_was_first(tmp_path, monkeypatch, name):
    for folder in ("here", "there"):
        (tmp_path / folder / "sub").mkdir(parents=True)
    ledger(tmp_path / "there" / "book")
    monkeypatch.chdir(tmp_path / "here")
    book, law = ledger(name), Gaussian(3, 3.0)
    assert book.path == str(tmp_path / "here" / "book")
    book.charge(law)
    monkeypatch.chdir(tmp_path / "there")
    for same in (book, pickle.loads(pickle.dumps(book))):
        with pytest.raises(BudgetExceeded):
            same.charge(law)
    assert len(Ledger(tmp_path / "here" / "book").charges()) == 1
    assert Ledger("book").charges() == []


@pytest.mark.parametrize("bad", [3, "a\0b", object()])
def test_what_is_no_path_is_named(bad):
    with pytest.raises(ValueError, match=r"^path: expected"):
        ledger(bad)


def test_a_path_without_a_ledger_or_a_total_makes_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"^epsilon and delta: expected the declared total"):
        Ledger(tmp_path / "misspelt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE clients (name TEXT)"],
        ["CREATE TABLE charge (id INTEGER PRIMARY KEY, amount REAL)"],
        ["CREATE TABLE charge (id INTEGER, hash TEXT)", "CREATE TABLE total (id INTEGER, sum REAL)"],
        ["CREATE VIEW answer AS SELECT 42"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE clients (name TEXT)"],
    ],
)
def test_a_data_base_of_something_else_stays_as_it_is(tmp_path, statements):
    execute(tmp_path / "theirs", *statements)
    (tmp_path / "theirs").chmod(0o644)
    before = (tmp_path / "theirs").read_bytes()
    with pytest.raises(ValueError, match=r"^path: expected a ledger, or a new file, got a data base of something else"):
        ledger(tmp_path / "theirs")
    assert [file.name for file in tmp_path.iterdir()] == ["theirs"]
    assert (tmp_path / "theirs").read_bytes() == before
    assert os.name != "posix" or stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == 0o644


def test_a_data_base_left_in_the_middle_of_a_write_stays_so(tmp_path):
    with sqlite3.connect(tmp_path / "source", isolation_level=None) as theirs:
        theirs.execute("CREATE TABLE clients (name TEXT)")
        theirs.execute("PRAGMA cache_size = 1")
        theirs.execute("BEGIN")
        for _ in range(100):
            theirs.execute("INSERT INTO clients VALUES (?)", ("a" * 900,))
        for suffix in ("", "-journal"):
            shutil.copyfile(tmp_path / f"source{suffix}", tmp_path / f"copy{suffix}")
    theirs.close()
    before = {file.name: file.read_bytes() for file in tmp_path.glob("copy*")}
    assert len(before) == 2
    with pytest.raises(ValueError, match=r"^path: expected a ledger"):
        ledger(tmp_path / "copy")
    assert {file.name: file.read_bytes() for file in tmp_path.glob("copy*")} == before


def test_a_ledger_beside_other_tables_goes_on_loading(tmp_path):
    """Version 0.3.0 put its tables into whatever file it was given, and charged there."""
    filled(tmp_path / "book", 2)
    execute(tmp_path / "book", "CREATE TABLE clients (name TEXT)")
    assert len(Ledger(tmp_path / "book").charges()) == 2


def test_a_trigger_in_the_file_takes_no_charge_back(tmp_path):
    book = filled(tmp_path / "book", 1)
    execute(
        tmp_path / "book",
        "CREATE TRIGGER undo AFTER INSERT ON charge BEGIN DELETE FROM charge WHERE id = NEW.id; END",
    )
    book.charge(LAW)
    assert len(book.charges()) == 2


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE charge SET mechanisms = x'00' WHERE id = 1",
        "UPDATE total SET salt = 'text'",
        "UPDATE total SET epsilon = 'much'",
        "UPDATE total SET delta = NULL",
    ],
)
def test_edits_of_another_type_are_named(tmp_path, edit):
    filled(tmp_path / "book", 1)
    execute(tmp_path / "book", edit)
    with pytest.raises(LedgerAltered, match=r"^ledger: "):
        Ledger(tmp_path / "book").charge(LAW)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes: a file there is as open as its folder")
@pytest.mark.parametrize("how", ["there and empty", "a link to nothing"])
def test_a_file_that_was_not_made_here_is_closed_too(tmp_path, how):
    path = tmp_path / "book"
    path.touch(0o644) if how == "there and empty" else path.symlink_to(tmp_path / "target")
    filled(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# -- forks ---------------------------------------------------------------------------------------------------------------


def forked(work, seconds=60):
    """The status of a child that does the work: what it returns, or 255; None if it did not end."""
    import signal

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are other threads; the child touches nothing of theirs
        pid = os.fork()
    if pid == 0:
        status = 255
        signal.alarm(seconds)
        try:
            status = work()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_cannot_charge_a_ledger_in_memory():
    book, law = ledger(), Gaussian(3, 30.0)

    def charge():
        try:
            book.charge(law)
        except ValueError as error:
            return int(str(error).startswith("ledger: expected one with a path"))
        return 0

    assert [forked(charge), forked(lambda: forked(charge))] == [1, 1]
    assert charge() == 0
    assert len(book.charges()) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_amid_a_threads_charge_can_charge(tmp_path, monkeypatch):
    book = ledger(tmp_path / "book", timeout=5)
    law = Gaussian(3, 30.0)
    exceeds = Ledger._exceeds
    amid, go = threading.Event(), threading.Event()

    def slowly(*arguments):
        amid.set()
        go.wait(0.5)
        return exceeds(*arguments)

    def charge():
        book.charge(law)
        return 1

    monkeypatch.setattr(Ledger, "_exceeds", slowly)
    thread = threading.Thread(target=charge)
    thread.start()
    amid.wait()
    assert forked(charge, seconds=30) == 1
    thread.join()
    assert len(book.charges()) == 2
