"""What an owner answered, on its own disk: no run twice, and no more runs than it means to."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from mpmtl_prob._util.checks import whole
from mpmtl_prob._util.former import former_names
from mpmtl_prob.privacy.ledger import Ledger


class RunRefused(RuntimeError):
    """An owner does not answer: it has answered this run, or as many as it means to. Nothing left it."""


class RunLog:
    """The runs that an owner took part in, written down before anything of it leaves.

    Whoever sees the sums of two runs may subtract them: if they differ in one owner, the rest is that owner's. Where the
    server adds the noise it sees every sum, so their number is bounded here. Where owners add the noise nobody sees a sum
    without, and ``ledger`` counts as it counts any release; without one these runs are bounded by number too.

    Args:
        path: the file, made if it is not there, for its owner alone (mode 0600); None keeps the account in memory, for
            exploring.
        runs: how many to answer whose sum the server sees; without a ledger, how many at all.
        ledger: pays for runs whose noise is in the sum.

    Raises:
        ValueError: an argument outside its range, or a file that is no account.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, runs: int = 1, ledger: Ledger | None = None
    ) -> None:
        self.runs, self.ledger = whole("runs", runs), ledger
        if ledger is not None and not isinstance(ledger, Ledger):
            raise ValueError(f"ledger: expected a Ledger, got {type(ledger).__name__}")
        self._path = None if path is None else Path(path).absolute()  # whatever folder the process works in later
        self._memory = sqlite3.connect(":memory:", check_same_thread=False) if path is None else None
        self._process = os.getpid()
        try:
            if self._path is not None:  # SQLite gives its journals the mode of the file
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            with self._connection() as connection, connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS answered (run TEXT PRIMARY KEY, trust TEXT NOT NULL, time TEXT NOT NULL)"
                )
                if not _identity(connection):
                    connection.execute(f"PRAGMA user_version = {1 + secrets.randbelow(2**31 - 1)}")
                self._identity = _identity(connection)
        except (sqlite3.Error, OSError) as error:
            raise ValueError(f"path: cannot use {os.fspath(path or '')!r} as an account: {error}") from error

    def enter(self, run: bytes, trust: str, *, seen: bool) -> None:
        """Write a run down; on disk when it returns.

        Args:
            run: its name.
            trust: how much the owner trusts whom in it.
            seen: somebody sees the sum without noise.

        Raises:
            RunRefused: it was answered before, or there were enough; or the account is another than it was.
        """
        now = datetime.now(UTC).isoformat()
        with self._connection() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            self._check_same(connection)
            known = dict(connection.execute("SELECT run, trust FROM answered"))
            if run.hex() in known:
                raise RunRefused(f"run {run.hex()[:8]}: answered before, and never twice")
            unpaid = self.ledger is None
            before = sum(unpaid or other != "no_curator" for other in known.values())
            if (seen or unpaid) and before >= self.runs:
                which = "runs were answered, and no ledger pays" if unpaid else "sums were seen by others"
                raise RunRefused(f"run {run.hex()[:8]}: {before} {which}, of {self.runs} at most")
            connection.execute("INSERT INTO answered VALUES (?, ?, ?)", (run.hex(), trust, now))

    def answered(self) -> list[tuple[str, str, str]]:
        """Run, trust and time (UTC) of every run, oldest first."""
        with self._connection() as connection:
            return list(connection.execute("SELECT run, trust, time FROM answered ORDER BY time"))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            yield self._memory
            return
        if self._path is None or not self._path.exists():
            raise RunRefused(f"path: the account {self._path} is gone, and with it what was answered")
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=rw", timeout=60, uri=True)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection

    def _check_same(self, connection: sqlite3.Connection) -> None:
        """Raise for a file that took the place of the account, and for the copy of one in memory that a fork has made."""
        if self._memory is not None and os.getpid() != self._process:
            raise RunRefused("path: this account is in the memory of another process; keep it in a file")
        if _identity(connection) != self._identity:
            raise RunRefused(f"path: {self._path} is another account than was opened; open it anew")


def _identity(connection: sqlite3.Connection) -> int:
    """A number by which a file is known for the same; 0 where it has none yet."""
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number


__getattr__ = former_names(__name__, {"Account": "RunLog"})
