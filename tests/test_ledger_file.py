"""The ledger: what was written stays written."""

import json
import os
import shutil
import sqlite3
import stat
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from books import ledger

from mpmtl_prob.privacy import Ledger, LedgerAltered, Quantile, Wishart

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


def test_an_older_copy_in_the_ledgers_place_is_seen_by_whoever_kept_a_receipt(tmp_path):
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


def test_a_law_that_no_ledger_can_read_again_is_refused_before_it_is_written():
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
        with pytest.raises(ValueError, match=r"^mechanisms: expected laws that a ledger can read again"):
            book.charge([law])
    book.charge(Wishart(np.int64(3), np.float64(200.0), 30.0))
    assert [charge.mechanisms for charge in book.charges()] == [(LAW,)]
