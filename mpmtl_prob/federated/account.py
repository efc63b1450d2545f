"""What an owner answered, on its own disk: no run twice, and no more runs than it means to."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

from mpmtl_prob._check import whole
from mpmtl_prob.privacy.ledger import Ledger


class RunRefused(RuntimeError):
    """An owner does not answer: it has answered this run, or as many as it means to. Nothing left it."""


class Account:
    """The runs that an owner took part in, written down before anything of it leaves.

    Whoever sees the sums of two runs may subtract them: if they differ in one owner, the rest is that owner's. Where the
    server adds the noise it sees every sum, so their number is bounded here. Where owners add the noise nobody sees a sum
    without, and ``ledger`` counts as it counts any release; without one these runs are bounded by number too.

    Args:
        path: the file, made if it is not there; None keeps the account in memory, for exploring; a forked child is refused.
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
        self._path = ":memory:" if path is None else os.path.abspath(os.fsdecode(path))  # wherever it works later
        self._process = os.getpid()
        self._memory = sqlite3.connect(":memory:", check_same_thread=False) if path is None else None
        try:
            with self._connection() as connection, connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS answered (run TEXT PRIMARY KEY, trust TEXT NOT NULL, time TEXT NOT NULL)"
                )
        except sqlite3.Error as error:
            raise ValueError(f"path: cannot use {self._path!r} as an account: {error}") from error

    def enter(self, run: bytes, trust: str, *, seen: bool) -> None:
        """Write a run down; on disk when it returns.

        Args:
            run: its name.
            trust: how much the owner trusts whom in it.
            seen: somebody sees the sum without noise.

        Raises:
            RunRefused: it was answered before, or there were enough.
        """
        now = datetime.now(UTC).isoformat()
        with self._connection() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
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
            if os.getpid() != self._process:
                raise ValueError("account: expected one with a path, to be used by other processes too, got one in memory")
            yield self._memory
            return
        with closing(sqlite3.connect(self._path, timeout=60)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
