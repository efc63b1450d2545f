"""What has been spent on a data set, where no crash and no second process can make it look like less.

A ledger is one SQLite file with a declared total and one row per charge. Every charge is composed with all before it, under
one lock, and written to disk before the noise that it pays for is drawn: a crash can waste budget, and never leak it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import in_range, one_of, positive
from mpmtl_prob.privacy import composition
from mpmtl_prob.privacy.accounting import ADJACENCIES
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms import Mechanism, from_dict, to_dict
from mpmtl_prob.tasks import TaskData

UNITS = ("task", "row")

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS total "
    "(id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL, adjacency TEXT, unit TEXT, salt BLOB)",
    "CREATE TABLE IF NOT EXISTS charge "
    "(id INTEGER PRIMARY KEY, time TEXT, fingerprint TEXT, unit TEXT, adjacency TEXT, mechanisms TEXT)",
)


class BudgetExceeded(ValueError):
    """A charge would take the total over what was declared. Nothing was charged."""


@dataclass(frozen=True)
class Charge:
    """One row of a ledger.

    Attributes:
        time: when it was charged, UTC.
        fingerprint: a keyed hash of the data, which tells two data sets apart and nothing else; empty if none was given.
        unit: what is protected, "task" or "row".
        adjacency: what the release states its own guarantee for.
        mechanisms: the law of every round.
    """

    time: datetime
    fingerprint: str
    unit: str
    adjacency: str
    mechanisms: tuple[Mechanism, ...]


class Ledger:
    """The budget of one population of tasks, shared by all processes that release something about them.

    All charges add up, whatever data they were for: a data set with one row changed is still about the same tasks. Keep
    one ledger per population, and keep it with the data.

    Args:
        path: the file, made if it is not there; None keeps the ledger in memory, for exploring.
        epsilon: the declared total, > 0; may be left out for a file that has one.
        delta: at which epsilon is declared, in (0, 1); may be left out for a file that has one.
        adjacency: "replace" or "zero_out".
        unit: "task", or "row" for a ledger of row-level releases. A charge for whole tasks protects their rows too.
        timeout: seconds to wait for another process.

    Raises:
        ValueError: an argument outside its range, or one that contradicts the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: str | None = None,
        unit: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self._timeout = positive("timeout", timeout)
        if epsilon is not None:
            epsilon = positive("epsilon", epsilon)
        if delta is not None:
            delta = in_range("delta", delta, 0, 1)
        if adjacency is not None:
            one_of("adjacency", adjacency, ADJACENCIES)
        if unit is not None:
            one_of("unit", unit, UNITS)
        self._lock = threading.Lock()
        self._memory = _connect(":memory:", timeout) if self.path is None else None
        with self._transaction() as connection:
            self.epsilon, self.delta, self.adjacency, self.unit, self._salt = _declared(
                connection, epsilon, delta, adjacency, unit
            )

    def charge(
        self,
        mechanisms: Mechanism | Sequence[Mechanism],
        *,
        data: TaskData | ArrayLike | None = None,
        unit: str = "task",
        adjacency: str | None = None,
    ) -> Charge:
        """Pay for the mechanisms, all rounds or none; on disk when it returns.

        Args:
            mechanisms: one round, or several to be reserved at once.
            data: what the release is about, for the fingerprint.
            unit: what the mechanisms protect.
            adjacency: what the release states its own guarantee for; default the ledger's. The ledger counts by its own.

        Raises:
            BudgetExceeded: the composed eps, at the declared delta, would exceed the declared total.
            ValueError: a mechanism of which nothing is proved, or row-level protection in a ledger of tasks.
        """
        if one_of("unit", unit, UNITS) == "row" and self.unit == "task":
            raise ValueError("unit: expected 'task' in a ledger of tasks; what protects a row does not protect a task")
        if adjacency is not None:
            one_of("adjacency", adjacency, ADJACENCIES)
        rounds = composition.as_rounds(mechanisms)
        paid = Charge(datetime.now(UTC), self.fingerprint(data), unit, adjacency or self.adjacency, rounds)
        with self._transaction() as connection:
            before = _mechanisms(connection)
            if composition.delta(self.epsilon, (*before, *rounds), self.adjacency) > self.delta:
                raise BudgetExceeded(self._refusal(before, rounds))
            connection.execute(
                "INSERT INTO charge (time, fingerprint, unit, adjacency, mechanisms) VALUES (?, ?, ?, ?, ?)",
                (
                    paid.time.isoformat(),
                    paid.fingerprint,
                    paid.unit,
                    paid.adjacency,
                    json.dumps([to_dict(mechanism) for mechanism in rounds]),
                ),
            )
        return paid

    def charges(self) -> list[Charge]:
        """Every charge, oldest first."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT time, fingerprint, unit, adjacency, mechanisms FROM charge ORDER BY id")
            return [
                Charge(datetime.fromisoformat(time), fingerprint, unit, adjacency, _parsed(mechanisms))
                for time, fingerprint, unit, adjacency, mechanisms in rows
            ]

    @property
    def spent(self) -> Bound:
        """The eps of all charges composed, at the declared delta."""
        with self._transaction() as connection:
            return self._spent(_mechanisms(connection))

    def fingerprint(self, data: TaskData | ArrayLike | None) -> str:
        """A hash of the data under this ledger's own key: without the ledger nobody can test a guess against it."""
        if data is None:
            return ""
        parts = (data.X, data.y, data.mask) if isinstance(data, TaskData) else (data,)
        digest = hmac.new(self._salt, digestmod=hashlib.sha256)
        for part in parts:
            array = np.ascontiguousarray(part)
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def _spent(self, mechanisms: tuple[Mechanism, ...]) -> Bound:
        if not mechanisms:
            return Bound(0.0, self.delta, self.adjacency, self.unit)
        spent = composition.epsilon(self.delta, mechanisms, self.adjacency)
        return Bound(spent, self.delta, self.adjacency, self.unit)

    def _refusal(self, before: tuple[Mechanism, ...], rounds: tuple[Mechanism, ...]) -> str:
        spent, wanted = self._spent(before).epsilon, self._spent((*before, *rounds)).epsilon
        reach = "no finite eps would hold" if np.isinf(wanted) else f"eps would be {wanted:.4g}"
        return (
            f"ledger: at delta = {self.delta:.3g} the declared total is eps = {self.epsilon:.4g}, of which {spent:.4g} is "
            f"spent; with this charge {reach}. Nothing was charged."
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything or nothing, one process at a time; on disk when it ends."""
        with self._lock:
            connection = self._memory
            try:
                connection = connection or _connect(str(self.path), self._timeout)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise ValueError(f"path: cannot use {self.path!r} as a ledger: {error}") from error
            finally:
                if connection is not None and connection is not self._memory:
                    connection.close()

    def __repr__(self) -> str:
        where = "in memory only: it is gone when this process ends" if self.path is None else self.path
        charges = self.charges()
        return (
            f"Ledger({where})\n"
            f"  declared: {Bound(self.epsilon, self.delta, self.adjacency)}, per {self.unit}\n"
            f"  spent: eps = {self.spent.epsilon:.3g} in {len(charges)} charge{'' if len(charges) == 1 else 's'}"
        )


def _connect(path: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = EXTRA")  # the journal's directory entry too: a power cut undoes no charge
    return connection


def _declared(
    connection: sqlite3.Connection, epsilon: float | None, delta: float | None, adjacency: str | None, unit: str | None
) -> tuple[float, float, str, str, bytes]:
    """The totals in the file, or these, written to it."""
    for statement in _SCHEMA:
        connection.execute(statement)
    row = connection.execute("SELECT epsilon, delta, adjacency, unit, salt FROM total").fetchone()
    if row is None:
        if epsilon is None or delta is None:
            raise ValueError("epsilon and delta: expected the declared total of a new ledger, got none")
        row = (epsilon, delta, adjacency or "replace", unit or "task", secrets.token_bytes(32))
        if row[2:4] == ("zero_out", "row"):
            raise ValueError("adjacency: expected 'replace' for rows; changing a row replaces its task's message")
        connection.execute("INSERT INTO total VALUES (1, ?, ?, ?, ?, ?)", row)
    given = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "unit": unit}
    for (name, value), held in zip(given.items(), row, strict=False):
        if value is not None and value != held:
            raise ValueError(f"{name}: expected {held!r}, as the ledger declares, got {value!r}")
    return row


def _mechanisms(connection: sqlite3.Connection) -> tuple[Mechanism, ...]:
    rows = connection.execute("SELECT mechanisms FROM charge ORDER BY id").fetchall()
    return tuple(mechanism for (text,) in rows for mechanism in _parsed(text))


def _parsed(text: str) -> tuple[Mechanism, ...]:
    return tuple(from_dict(fields) for fields in json.loads(text))
