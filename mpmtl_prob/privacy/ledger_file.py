"""File of a ledger: its tables, the hash chain of its rows, and the checks by which a ledger recognises its file.

Row n contains HMAC(salt, hash of row n - 1, content of row n), and the first row follows the hash of the declared totals. The
key is the ledger's own salt, in the same file, so it does not stop anybody who can write there. It allows hashes to be
published: without the ledger, no guess about the charges can be tested against them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from mpmtl_prob._util.checks import whole

_SCHEMA = (
    "CREATE TABLE total (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL, adjacency TEXT, "
    "unit TEXT, salt BLOB, adaptive INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE charge (id INTEGER PRIMARY KEY, time TEXT, fingerprint TEXT, unit TEXT, adjacency TEXT, "
    "mechanisms TEXT, token TEXT NOT NULL DEFAULT '', hash TEXT NOT NULL DEFAULT '')",
)
#: Columns that the first version of this file did not have.
_ADDED = (
    "ALTER TABLE total ADD COLUMN adaptive INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE charge ADD COLUMN token TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charge ADD COLUMN hash TEXT NOT NULL DEFAULT ''",
)
_FIELDS = "time, fingerprint, unit, adjacency, mechanisms, token, hash"
IN_MEMORY = "ledger: expected one with a path, to be charged by other processes too, got one in memory"
#: Columns that every version has.
_COLUMNS = {
    "total": {"id", "epsilon", "delta", "adjacency", "unit", "salt"},
    "charge": {"id", "time", "fingerprint", "unit", "adjacency", "mechanisms"},
}
#: Lock that every transaction of this process and every fork take: otherwise a child that is forked during a transaction of
#: another thread would inherit that thread's locks, and nobody would release them.
_one_at_a_time = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_one_at_a_time.release
    )


class LedgerAltered(ValueError):
    """Sign that a ledger's content is not what was written: it was edited, or replaced by an older copy or another one."""


class Totals(NamedTuple):
    """Declared totals of a ledger, and the salt of its hashes."""

    epsilon: float
    delta: float
    adjacency: str
    unit: str
    adaptive: bool
    salt: bytes

    @property
    def id(self) -> str:
        """Public identifier, which another declaration of the same totals does not share."""
        return hmac.new(self.salt, b"ledger", hashlib.sha256).hexdigest()[:32]

    def hash(self) -> str:
        """Return the hash at which the chain begins."""
        return self.linked("", self[:-1])

    def linked(self, before: str, content: Iterable[Any]) -> str:
        """Return the hash of a row that follows the one with hash ``before``."""
        return hmac.new(self.salt, json.dumps([before, *content], default=repr).encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Row:
    """Row of a ledger: a charge as text."""

    time: str
    fingerprint: str
    unit: str
    adjacency: str
    mechanisms: str
    token: str
    hash: str = ""


class Chain:
    """Charges of a ledger within one transaction, with the chain verified, oldest first.

    Attributes:
        rows: all charges, including appended ones.

    Raises:
        LedgerAltered: a row is not what was written.
    """

    def __init__(self, connection: sqlite3.Connection, totals: Totals) -> None:
        self._connection, self._totals = connection, totals
        self.rows = read_rows(connection, totals)

    def append(self, rows: Iterable[Row]) -> None:
        """Write charges at the end of the chain."""
        for row in rows:
            before = self.rows[-1].hash if self.rows else self._totals.hash()
            written = replace(row, hash=self._totals.linked(before, astuple(row)[:-1]))
            self._connection.execute(
                f"INSERT INTO charge ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                astuple(written),
            )
            self.rows.append(written)


class LedgerFile:
    """Storage of one ledger: a file, or the memory of the process that made it.

    In every later transaction, the path has to contain the ledger that was opened, with every charge that was seen in it.

    Args:
        path: path of the file, made absolute at once; None for memory.
        timeout: seconds to wait for another process.

    Attributes:
        path: the absolute path as text, or None.
        timeout: as given.
        totals: the declared totals, once the ledger is opened.
        seen: a receipt of the last transaction.
    """

    totals: Totals
    seen: dict[str, Any]

    def __init__(self, path: str | bytes | os.PathLike[Any] | None, timeout: float) -> None:
        self.path = None if path is None else _absolute(path)
        self.timeout = timeout
        self._memory = _connect(":memory:", timeout) if self.path is None else None
        self._process = os.getpid()

    def is_there(self) -> bool:
        """Return True if there is a file to open."""
        return self.path is not None and os.path.exists(self.path)

    @contextmanager
    def opening(self, *, new: bool) -> Iterator[sqlite3.Connection]:
        """Open a transaction in which ``totals`` are read or declared; with ``new``, a missing file is created.

        Raises:
            ValueError: a file of another kind, which stays as it is.
        """
        with _one_at_a_time:
            if self.path is not None:
                _look(self.path)
                if new:  # readable by the owner only; SQLite's journal gets the same mode
                    with suppress(OSError):  # it exists already, or SQLite will report the problem
                        os.close(os.open(os.path.realpath(self.path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with self._connected() as connection:
                connection.setconfig(
                    sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True
                )  # the file may belong to another program
                prepare(connection, self.path)
                yield connection
                self.seen = receipt(self.totals, _read(connection))

    @contextmanager
    def transaction(self) -> Iterator[Chain]:
        """Open a transaction on the charges: everything or nothing, one process at a time; on disk when it ends.

        Raises:
            LedgerAltered: the file is gone, or does not have this ledger with all charges that were seen in it.
            ValueError: a file that cannot be used, or a ledger in the memory of another process.
        """
        with _one_at_a_time:
            if self.path is not None and not self.is_there():
                raise LedgerAltered(f"ledger: its file {self.path!r} is gone")
            with self._connected() as connection:
                totals = read_totals(connection)
                if totals is None:
                    raise LedgerAltered(f"ledger: what lies at {self.path!r} is no ledger any more")
                chain = Chain(connection, totals)
                check_receipt(self.seen, totals, chain.rows)
                yield chain
            self.seen = receipt(totals, chain.rows)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None and os.getpid() != self._process:
            raise ValueError(IN_MEMORY)
        connection = self._memory
        try:
            connection = connection or _connect(str(self.path), self.timeout)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection  # SQLite does not write to a file that has been moved away
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise ValueError(f"path: cannot use {self.path!r} as a ledger: {error}") from error
        finally:
            if connection is not None and connection is not self._memory:
                connection.close()


def _absolute(path: str | bytes | os.PathLike[Any]) -> str:
    """Return the absolute path as text, so that a later change of the working directory does not matter."""
    try:
        text = os.path.abspath(os.fsdecode(path))
    except (TypeError, OSError) as error:
        raise ValueError(f"path: expected a path in a folder that is there, got {type(path).__name__}") from error
    if "\0" in text:
        raise ValueError("path: expected one without NUL characters")
    return text


def _uri(path: str, how: str) -> str:
    posix = Path(path).as_posix()  # starts with a drive on Windows, which acts as the first folder
    return f"file://{'' if posix.startswith('/') else '/'}{quote(os.fsencode(posix), safe='/:')}?{how}"


def _connect(path: str, timeout: float) -> sqlite3.Connection:
    """Connect to an existing file, or to memory."""
    at = path if path == ":memory:" else _uri(path, "mode=rw")  # a missing file is not created
    connection = sqlite3.connect(
        at, timeout=timeout, isolation_level=None, check_same_thread=False, uri=path != ":memory:"
    )
    connection.execute("PRAGMA synchronous = EXTRA")  # syncs the journal's directory too: no charge is lost
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)  # a trigger in the file could undo a charge
    return connection


def _look(path: str) -> None:
    """Raise ValueError for a file of another kind, reading it without a lock or a journal, so that nothing of it changes."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(_uri(path, "mode=ro&immutable=1"), uri=True)) as connection:
        _check_ours(connection)


def _check_ours(connection: sqlite3.Connection) -> None:
    tables = {
        name for (name,) in connection.execute("SELECT name FROM sqlite_master") if not name.startswith("sqlite_")
    }
    ours = all(columns <= _columns(connection, table) for table, columns in _COLUMNS.items())
    if tables and not ours:
        raise ValueError(
            "path: expected a ledger, or a new file, got a data base of something else, which stays as it is"
        )


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {column[1] for column in connection.execute(f"PRAGMA table_info({table})")}


def prepare(connection: sqlite3.Connection, path: str | None) -> None:
    """Create the tables, or update those of an earlier version. Raises ValueError for a file of another kind."""
    _check_ours(connection)
    columns = _columns(connection, "charge")
    if "hash" in columns:
        return
    if path is not None:
        with suppress(PermissionError):  # another user's file, which this user may write to
            os.chmod(path, 0o600)
    for statement in _ADDED if columns else _SCHEMA:
        connection.execute(statement)
    if totals := read_totals(connection):
        rows = _read(connection)
        connection.execute("DELETE FROM charge")
        Chain(connection, totals).append(rows)


def read_totals(connection: sqlite3.Connection) -> Totals | None:
    """Read the declared totals, if there are any. Raises LedgerAltered for impossible ones."""
    if not {*_COLUMNS["total"], "adaptive"} <= _columns(connection, "total"):
        return None
    row = connection.execute("SELECT epsilon, delta, adjacency, unit, adaptive, salt FROM total").fetchone()
    if row is None:
        return None
    epsilon, delta, adjacency, unit, adaptive, salt = row
    numbers = all(isinstance(number, float) and math.isfinite(number) for number in (epsilon, delta))
    if not (numbers and isinstance(adjacency, str) and isinstance(unit, str) and isinstance(salt, bytes)):
        raise LedgerAltered("ledger: its declared total is not what was written")
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
    """Read every charge, oldest first. Raises LedgerAltered if the chain is broken."""
    rows = _read(connection)
    before = totals.hash()
    for number, row in enumerate(rows, 1):
        before = totals.linked(before, astuple(row)[:-1])
        if row.hash != before:
            raise LedgerAltered(
                f"ledger: charge {number} is not what was written: it, one before it, or the declared total was changed"
            )
    return rows


def receipt(totals: Totals, rows: list[Row]) -> dict[str, Any]:
    """Return a receipt: the state of the ledger at this time, in plain numbers and strings."""
    head = rows[-1].hash if rows else totals.hash()
    return {"ledger": totals.id, "charges": len(rows), "head": head, "time": datetime.now(UTC).isoformat()}


def check_receipt(receipt: Mapping[str, Any], totals: Totals, rows: list[Row]) -> None:
    """Raise LedgerAltered unless the rows continue those of the receipt; ValueError for an invalid receipt."""
    if not isinstance(receipt, Mapping) or not {"ledger", "charges", "head", "time"} <= receipt.keys():
        raise ValueError("receipt: expected what export_receipt returned, with ledger, charges, head and time")
    count, time = whole("receipt: charges", receipt["charges"], 0), receipt["time"]
    if receipt["ledger"] != totals.id:
        raise LedgerAltered(f"ledger: another one is in the place of that of {time}")
    if count > len(rows):
        raise LedgerAltered(
            f"ledger: its number of charges is {len(rows)}, and was {count} at {time}: an older copy was put in its place, "
            "or charges were deleted"
        )
    if receipt["head"] != (rows[count - 1].hash if count else totals.hash()):
        raise LedgerAltered(f"ledger: its total or its first {count} charges were changed since {time}")


def _read(connection: sqlite3.Connection) -> list[Row]:
    return [Row(*row) for row in connection.execute(f"SELECT {_FIELDS} FROM charge ORDER BY id")]
