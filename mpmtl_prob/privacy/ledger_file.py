"""The file of a ledger: its tables, the chain of hashes through its rows, and by what a ledger knows its file again.

Row n holds HMAC(salt, hash of row n - 1, content of row n), and the first follows the hash of the declared totals. The key
is the ledger's own salt. It lies in the same file and so hinders nobody who may write there; it is what lets a hash leave
the room, since without the ledger no guess about the charges can be tested against it.
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
#: of the first version of this file
_ADDED = (
    "ALTER TABLE total ADD COLUMN adaptive INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE charge ADD COLUMN token TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE charge ADD COLUMN hash TEXT NOT NULL DEFAULT ''",
)
_FIELDS = "time, fingerprint, unit, adjacency, mechanisms, token, hash"
IN_MEMORY = "ledger: expected one with a path, to be charged by other processes too, got one in memory"
#: The columns that every version has.
_COLUMNS = {
    "total": {"id", "epsilon", "delta", "adjacency", "unit", "salt"},
    "charge": {"id", "time", "fingerprint", "unit", "adjacency", "mechanisms"},
}
#: Held through every transaction of this process, and through a fork: a child that was forked amid a transaction of another
#: thread would find that thread's locks, and nobody to release them.
_one_at_a_time = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_one_at_a_time.acquire, after_in_parent=_one_at_a_time.release, after_in_child=_one_at_a_time.release
    )


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
        return hmac.new(self.salt, json.dumps([before, *content], default=repr).encode(), hashlib.sha256).hexdigest()


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


class Chain:
    """The charges of a ledger within one transaction, checked, oldest first.

    Attributes:
        rows: all of them, with those that were appended.

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
    """The place where one ledger is kept, which knows it again: a file, or the memory of the process that made it.

    What lies at the path in a later transaction has to be the ledger that was opened, with every charge that was seen in it.

    Args:
        path: the file, whose path is made absolute at once; None for memory.
        timeout: seconds to wait for another process.

    Attributes:
        path: the absolute path as text, or None.
        timeout: as given.
        totals: what the ledger declares, once it is opened.
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
        """Return whether there is anything to open."""
        return self.path is not None and os.path.exists(self.path)

    @contextmanager
    def opening(self, *, new: bool) -> Iterator[sqlite3.Connection]:
        """The transaction in which ``totals`` are read or declared; with ``new``, of a file that is made if it is not there.

        Raises:
            ValueError: a file of something else, which stays as it is.
        """
        with _one_at_a_time:
            if self.path is not None:
                _look(self.path)
                if new:  # for its owner alone, and so then its journal
                    with suppress(OSError):  # it is there, or SQLite will say what is wrong
                        os.close(os.open(os.path.realpath(self.path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with self._connected() as connection:
                connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)  # it may be somebody else's file
                prepare(connection, self.path)
                yield connection
                self.seen = receipt(self.totals, _read(connection))

    @contextmanager
    def transaction(self) -> Iterator[Chain]:
        """The charges: everything or nothing, one process at a time; on disk when it ends.

        Raises:
            LedgerAltered: the file is gone, or does not hold this ledger with all that was seen in it.
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
                yield connection  # SQLite writes nothing to a file that was moved away meanwhile
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
    """The path as text, from the root, whatever folder the process works in later."""
    try:
        text = os.path.abspath(os.fsdecode(path))
    except (TypeError, OSError) as error:
        raise ValueError(f"path: expected a path in a folder that is there, got {type(path).__name__}") from error
    if "\0" in text:
        raise ValueError("path: expected one without NUL characters")
    return text


def _uri(path: str, how: str) -> str:
    posix = Path(path).as_posix()  # with a drive on Windows, which stands for a first folder
    return f"file://{'' if posix.startswith('/') else '/'}{quote(os.fsencode(posix), safe='/:')}?{how}"


def _connect(path: str, timeout: float) -> sqlite3.Connection:
    """A connection to a file that is there, or to memory."""
    at = path if path == ":memory:" else _uri(path, "mode=rw")  # a file that is gone is not made anew
    connection = sqlite3.connect(
        at, timeout=timeout, isolation_level=None, check_same_thread=False, uri=path != ":memory:"
    )
    connection.execute("PRAGMA synchronous = EXTRA")  # the journal's directory entry too: a power cut undoes no charge
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)  # one in the file could take a charge back
    return connection


def _look(path: str) -> None:
    """Raise ValueError for a file of something else, without a lock or a journal: not even those of it are touched."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(_uri(path, "mode=ro&immutable=1"), uri=True)) as connection:
        _check_ours(connection)


def _check_ours(connection: sqlite3.Connection) -> None:
    held = {name for (name,) in connection.execute("SELECT name FROM sqlite_master") if not name.startswith("sqlite_")}
    ours = all(columns <= _columns(connection, table) for table, columns in _COLUMNS.items())
    if held and not ours:
        raise ValueError(
            "path: expected a ledger, or a new file, got a data base of something else, which stays as it is"
        )


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {column[1] for column in connection.execute(f"PRAGMA table_info({table})")}


def prepare(connection: sqlite3.Connection, path: str | None) -> None:
    """Make the tables, or bring those of an earlier version up to date. Raises ValueError for a file of something else."""
    _check_ours(connection)
    held = _columns(connection, "charge")
    if "hash" in held:
        return
    if path is not None:
        with suppress(PermissionError):  # somebody else's, who lets this user write
            os.chmod(path, 0o600)
    for statement in _ADDED if held else _SCHEMA:
        connection.execute(statement)
    if totals := read_totals(connection):
        rows = _read(connection)
        connection.execute("DELETE FROM charge")
        Chain(connection, totals).append(rows)


def read_totals(connection: sqlite3.Connection) -> Totals | None:
    """What the file declares, if anything. Raises LedgerAltered for what no ledger declares."""
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
    """Every charge, oldest first. Raises LedgerAltered where the chain is broken."""
    rows, before = _read(connection), totals.hash()
    for number, row in enumerate(rows, 1):
        before = totals.linked(before, astuple(row)[:-1])
        if row.hash != before:
            raise LedgerAltered(
                f"ledger: charge {number} is not what was written: it, one before it, or the declared total was changed"
            )
    return rows


def receipt(totals: Totals, rows: list[Row]) -> dict[str, Any]:
    """What the ledger held at this time, in plain numbers and strings."""
    head = rows[-1].hash if rows else totals.hash()
    return {"ledger": totals.id, "charges": len(rows), "head": head, "time": datetime.now(UTC).isoformat()}


def check_receipt(receipt: Mapping[str, Any], totals: Totals, rows: list[Row]) -> None:
    """Raise LedgerAltered unless the rows continue those of the receipt, ValueError for what is no receipt."""
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
