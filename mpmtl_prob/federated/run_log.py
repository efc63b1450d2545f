"""Run log of a data owner, on its own disk: no run is answered twice, and their number is limited."""

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
    """A site refuses a run: by its policy, or because its run log does not allow it. Nothing has left the site."""


class RunLog:
    """Log of the runs that a data owner takes part in. A run is written down before any of the owner's data leaves.

    Anybody who sees the sums of two runs may subtract them. If the runs differ in one owner, the difference is that owner's
    vector. A server that adds the noise sees every sum without it, so this log limits the number of such runs. Where owners
    add the noise, nobody sees a sum without noise, and ``ledger`` counts the run like any release. Without a ledger these
    runs are limited by number too.

    Args:
        path: the log's file, created if it does not exist, readable by its owner only (mode 0600); None keeps the log in
            memory, for exploring.
        runs: how many runs to answer in which the server sees the sum; without a ledger, how many runs in all.
        ledger: pays for runs in which the sites add the noise.

    Raises:
        ValueError: an argument outside its range, or a file that is not a run log.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, runs: int = 1, ledger: Ledger | None = None
    ) -> None:
        self.runs, self.ledger = whole("runs", runs), ledger
        if ledger is not None and not isinstance(ledger, Ledger):
            raise ValueError(f"ledger: expected a Ledger, got {type(ledger).__name__}")
        # Absolute, as the process may change its working directory.
        self._path = None if path is None else Path(path).absolute()
        self._memory = sqlite3.connect(":memory:", check_same_thread=False) if path is None else None
        self._process = os.getpid()
        try:
            if self._path is not None:  # created here, as SQLite gives its journals the mode of this file
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
            raise ValueError(f"path: cannot use {os.fspath(path or '')!r} as a run log: {error}") from error

    def enter(self, run: bytes, trust: str, *, seen: bool) -> None:
        """Enter a run in the log. It is on disk when this method returns.

        Args:
            run: the run's name.
            trust: the run's trust model.
            seen: True if somebody sees the sum without noise.

        Raises:
            RunRefused: the run was answered before, the limit is reached, or the log's file was replaced.
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
        """Return name, trust model and time (UTC) of every run, oldest first."""
        with self._connection() as connection:
            return list(connection.execute("SELECT run, trust, time FROM answered ORDER BY time"))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            yield self._memory
            return
        if self._path is None or not self._path.exists():
            raise RunRefused(f"path: the run log {self._path} is gone, and with it the record of what was answered")
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=rw", timeout=60, uri=True)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection

    def _check_same(self, connection: sqlite3.Connection) -> None:
        """Raise RunRefused if the log's file was replaced, or if a forked process uses its copy of a log in memory."""
        if self._memory is not None and os.getpid() != self._process:
            raise RunRefused("path: this run log is in the memory of another process; keep it in a file")
        if _identity(connection) != self._identity:
            raise RunRefused(f"path: {self._path} is another run log than was opened; open it anew")


def _identity(connection: sqlite3.Connection) -> int:
    """Return the random number that identifies a log's file; 0 for a new file."""
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number


__getattr__ = former_names(__name__, {"Account": "RunLog"})
