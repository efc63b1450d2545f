"""The file of a ledger: its tables, and the chain of hashes through its rows.

Row n holds HMAC(salt, hash of row n - 1, content of row n), and the first follows the hash of the declared totals. The key
is the ledger's own salt. It lies in the same file and so hinders nobody who may write there; it is what lets a hash leave
the room, since without the ledger no guess about the charges can be tested against it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mpmtl_prob._check import whole

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL, adjacency TEXT, "
    "unit TEXT, salt BLOB, adaptive INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS charge (id INTEGER PRIMARY KEY, time TEXT, fingerprint TEXT, unit TEXT, adjacency TEXT, "
    "mechanisms TEXT, token TEXT NOT NULL DEFAULT '', hash TEXT NOT NULL DEFAULT '')",
)
#: of the first version of this file
_ADDED = (
    "ALTER TABLE total ADD COLUMN adaptive INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE charge ADD COLUMN token TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charge ADD COLUMN hash TEXT NOT NULL DEFAULT ''",
)
_connecting = threading.Lock()


class LedgerAltered(ValueError):
    """A ledger does not hold what was written to it: it was edited, or an older or another one is in its place."""


class Totals(NamedTuple):
    """What a ledger declares."""

    epsilon: float
    delta: float
    adjacency: str
    unit: str
    adaptive: bool
    salt: bytes

    @property
    def id(self) -> str:
        """A public name, which another declaration of the same totals does not share."""
        return hmac.new(self.salt, b"ledger", hashlib.sha256).hexdigest()[:32]

    def hash(self) -> str:
        """Where the chain begins."""
        return self.linked("", self[:-1])

    def linked(self, before: str, content: Iterable[Any]) -> str:
        """The hash of a row after the one with hash ``before``."""
        return hmac.new(self.salt, json.dumps([before, *content]).encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Row:
    """A charge as text."""

    time: str
    fingerprint: str
    unit: str
    adjacency: str
    mechanisms: str
    token: str
    hash: str = ""


def connect(path: str, timeout: float) -> sqlite3.Connection:
    """A connection to the file, which is made readable by its owner alone if it is not there, as is then its journal."""
    with _connecting:  # closing a file drops the locks that this process holds on it: nobody may have one yet
        if path != ":memory:" and not os.path.exists(path):
            with suppress(OSError):  # another process was first, or SQLite will say what is wrong
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = EXTRA")  # the journal's directory entry too: a power cut undoes no charge
    return connection


def prepare(connection: sqlite3.Connection, path: str | None) -> None:
    """Make the tables, or bring those of an earlier version up to date."""
    for statement in _SCHEMA:
        connection.execute(statement)
    if "hash" in {column[1] for column in connection.execute("PRAGMA table_info(charge)")}:
        return
    for statement in _ADDED:
        connection.execute(statement)
    if path is not None:
        with suppress(PermissionError):  # somebody else's, who lets this user write
            os.chmod(path, 0o600)
    if totals := read_totals(connection):
        rows = _read(connection)
        connection.execute("DELETE FROM charge")
        append(connection, totals, rows)


def read_totals(connection: sqlite3.Connection) -> Totals | None:
    """What the file declares, if anything."""
    row = connection.execute("SELECT epsilon, delta, adjacency, unit, adaptive, salt FROM total").fetchone()
    if row is None:
        return None
    epsilon, delta, adjacency, unit, adaptive, salt = row
    return Totals(epsilon, delta, adjacency, unit, bool(adaptive), salt)


def declare(
    connection: sqlite3.Connection, epsilon: float, delta: float, adjacency: str, unit: str, adaptive: bool
) -> Totals:
    """Write the totals of a new ledger."""
    totals = Totals(epsilon, delta, adjacency, unit, adaptive, secrets.token_bytes(32))
    connection.execute(
        "INSERT INTO total (id, epsilon, delta, adjacency, unit, adaptive, salt) VALUES (1, ?, ?, ?, ?, ?, ?)", totals
    )
    return totals


def read_rows(connection: sqlite3.Connection, totals: Totals) -> list[Row]:
    """Every charge, oldest first. Raises LedgerAltered where the chain is broken."""
    rows, before = _read(connection), totals.hash()
    for number, row in enumerate(rows, 1):
        before = totals.linked(before, astuple(row)[:-1])
        if row.hash != before:
            raise LedgerAltered(
                f"ledger: charge {number} is not what was written: it, one before it, or the declared total was changed"
            )
    return rows


def append(connection: sqlite3.Connection, totals: Totals, rows: Iterable[Row]) -> None:
    """Write charges at the end of the chain."""
    last = connection.execute("SELECT hash FROM charge ORDER BY id DESC LIMIT 1").fetchone()
    before = totals.hash() if last is None else last[0]
    for row in rows:
        before = totals.linked(before, astuple(row)[:-1])
        connection.execute(
            "INSERT INTO charge (time, fingerprint, unit, adjacency, mechanisms, token, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
            astuple(replace(row, hash=before)),
        )


def receipt(totals: Totals, rows: list[Row]) -> dict[str, Any]:
    """What the ledger held at this time, in plain numbers and strings."""
    head = rows[-1].hash if rows else totals.hash()
    return {"ledger": totals.id, "charges": len(rows), "head": head, "time": datetime.now(UTC).isoformat()}


def check_receipt(receipt: Mapping[str, Any], totals: Totals, rows: list[Row]) -> None:
    """Raise LedgerAltered unless the rows continue those of the receipt, ValueError for what is no receipt."""
    if not isinstance(receipt, Mapping) or not {"ledger", "charges", "head", "time"} <= receipt.keys():
        raise ValueError("receipt: expected what export_receipt returned, with ledger, charges, head and time")
    count, since = whole("receipt: charges", receipt["charges"], 0), f"since the receipt of {receipt['time']}"
    if receipt["ledger"] != totals.id:
        raise LedgerAltered(f"ledger: another one is in the place of that of the receipt of {receipt['time']}")
    if count > len(rows):
        raise LedgerAltered(
            f"ledger: its number of charges is {len(rows)}, and was {count} at the time of the receipt of {receipt['time']}: "
            f"an older copy was put in its place, or charges were deleted"
        )
    if receipt["head"] != (rows[count - 1].hash if count else totals.hash()):
        raise LedgerAltered(f"ledger: its first {count} charges were changed {since}")


def _read(connection: sqlite3.Connection) -> list[Row]:
    columns = "time, fingerprint, unit, adjacency, mechanisms, token, hash"
    return [Row(*row) for row in connection.execute(f"SELECT {columns} FROM charge ORDER BY id")]
