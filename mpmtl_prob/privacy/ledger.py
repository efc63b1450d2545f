"""Ledger of a privacy budget: a durable record of what was spent on a data set, safe against crashes and concurrency.

A ledger is one SQLite file with a declared total and one row per charge. Every charge is composed with all earlier ones under
one lock, and is written to disk before the noise that it pays for is drawn. A crash can waste budget, but never leak it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob._util.former import former_arguments
from mpmtl_prob._util.protocols import derives
from mpmtl_prob.privacy import ledger_file
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.accounting.filters import adaptive_epsilon
from mpmtl_prob.privacy.accounting.remaining import MOST_EPSILON, largest_epsilon
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.ledger_file import LedgerAltered, LedgerFile, Row, Totals
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism, read_mechanism, write_mechanism
from mpmtl_prob.privacy.mechanisms.profile import LARGEST_EPSILON
from mpmtl_prob.privacy.units import Adjacency, Unit

_NO_TOTALS = "epsilon and delta: expected the declared total of a new ledger, got none"


class BudgetExceeded(ValueError):
    """Refusal of a charge that would exceed the declared total. Nothing was charged."""


@dataclass(frozen=True)
class Charge:
    """Charge: one row of a ledger.

    Attributes:
        time: time of the charge, UTC.
        fingerprint: a keyed hash of the data, which only shows whether two data sets are equal; empty if none was given.
        unit: the protected unit, "task" or "row".
        adjacency: adjacency of the release's own guarantee.
        mechanisms: the noise law of every round.
        id: identifier of the charge in the ledger.
    """

    time: datetime
    fingerprint: str
    unit: str
    adjacency: str
    mechanisms: tuple[Mechanism, ...]
    id: str


class Purchase(Protocol):
    """Purchase made for a release in advance, such as a private clip norm.

    Attributes:
        law: the mechanism, which determines its price.
        id: identifier of its charge, in whichever ledger.
        ledger: id of the ledger that paid; empty if none has.
    """

    @property
    def law(self) -> Mechanism: ...
    @property
    def id(self) -> str: ...
    @property
    def ledger(self) -> str: ...


@runtime_checkable
class PaddedTasks(Protocol):
    """Rows of several tasks in arrays of one size, as in a TaskData, of which a ledger takes a fingerprint."""

    @property
    def X(self) -> Any: ...
    @property
    def y(self) -> Any: ...
    @property
    def mask(self) -> Any: ...


@runtime_checkable
class InParts(Protocol):
    """Data that are read part by part for a fingerprint, since they may be too large to be in memory in one piece."""

    def fingerprint_parts(self) -> Iterable[tuple[tuple[int, ...], Any, Iterable[bytes | memoryview]]]:
        """Yield the shape, the type and the bytes of every array."""
        ...


class Ledger:
    """Privacy budget of one population of tasks, shared by all processes that release something about them.

    All charges add up, whatever data they were for: a data set with one changed row is still about the same tasks. Keep
    one ledger per population, and keep it with the data.

    There are two totals. ``spent`` is ordinary composition: it holds if the noise of every charge was chosen before the
    first one, while messages may depend on earlier releases. ``spent_adaptively`` is fully adaptive composition (a privacy
    filter): it holds even if somebody looks at releases before choosing the next charge's noise, or whether there is one;
    it is larger. With ``adaptive`` the ledger refuses by the second total. A printed ledger shows the total by which it
    refuses. ``left`` is the largest release that it would still pay for.

    Only the owner can read the file, and its rows are chained by hashes, so that an edited row is detected when it is next
    read. A ledger in use, or a pickled one, recognises its file: it refuses a missing file, another ledger in its place, and
    an older copy than it has seen. To detect these when a path is opened anew, keep a receipt: :meth:`export_receipt`.

    Args:
        path: path of the file, which is created if it does not exist; it stays the same file if the process changes its
            working directory. None keeps the ledger in this process's memory, for experiments; a forked child is refused.
        epsilon: the declared total, > 0; not needed for a file that has one.
        delta: the delta at which epsilon is declared, in (0, 1); not needed for a file that has one.
        adjacency: "replace" or "zero_out".
        unit: "task", or "row" for a ledger of row-level releases. A charge for whole tasks protects their rows too.
        adaptive: refuse by ``spent_adaptively``, for budgets chosen by looking at releases; default False.
        timeout: seconds to wait for another process.

    Raises:
        LedgerAltered: the content of the file is not what was written to it.
        ValueError: an argument outside its range, one that contradicts the file, or a file of another kind.

    >>> ledger = mp.privacy.Ledger(epsilon=1.0, delta=1e-3)  # in memory; give a path to keep it
    >>> release = mp.release(np.eye(3), epsilon=0.8, delta=1e-3, ledger=ledger)
    >>> ledger
    Ledger(in memory only: it is gone when this process ends)
      declared: eps = 1, delta = 0.001 (replace, one task)
      spent: eps = 0.8, counted at this delta, in 1 charge; budgets settled beforehand
      left: one release at eps 0.501, delta 0.001
    >>> mp.release(np.eye(3), epsilon=0.8, delta=1e-3, ledger=ledger)
    Traceback (most recent call last):
    mpmtl_prob.privacy.ledger.BudgetExceeded: ledger: at delta = 0.001 the declared total is eps = 1, ...
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[Any] | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: str | None = None,
        unit: str | None = None,
        adaptive: bool | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._file = LedgerFile(path, positive("timeout", timeout))
        self.path = self._file.path
        if epsilon is not None:
            epsilon = positive("epsilon", epsilon)
        if delta is not None:
            delta = in_range("delta", delta, 0, 1)
        if adjacency is not None:
            adjacency = Adjacency.of(adjacency)
        if unit is not None:
            unit = Unit.of(unit)
        if adaptive is not None and not isinstance(adaptive, bool):
            raise ValueError(f"adaptive: expected True or False, got {adaptive!r}")
        new = epsilon is not None and delta is not None
        if not new and not self._file.is_there():
            raise ValueError(_NO_TOTALS)
        with self._file.opening(new=new) as connection:
            self._file.totals = _declared(connection, epsilon, delta, adjacency, unit, adaptive)
        self.epsilon, self.delta, self.adjacency, self.unit, self.adaptive, self._salt = self._file.totals
        self.id = self._file.totals.id

    def __copy__(self) -> Self:  # copies would not share their charges
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by path and receipt. Raises ValueError for a ledger in memory, which no other process can charge."""
        if self.path is None:
            raise ValueError(ledger_file.IN_MEMORY)
        return _reopened, (type(self), self.path, self._file.timeout, self._file.seen)

    @former_arguments(bought="purchases")
    def charge(
        self,
        mechanisms: Mechanism | Sequence[Mechanism],
        *,
        data: InParts | PaddedTasks | ArrayLike | None = None,
        unit: str = "task",
        adjacency: str | None = None,
        purchases: Sequence[Purchase] = (),
    ) -> Charge:
        """Pay for the mechanisms, for all rounds or none; the charge is on disk on return.

        Args:
            mechanisms: one round, or several to be reserved at once.
            data: the data behind the release, for the fingerprint.
            unit: the unit that the mechanisms protect.
            adjacency: adjacency of the release's own guarantee; default the ledger's. The ledger always counts by its own.
            purchases: purchases for the release; those that this ledger has not paid for are charged with it.

        Raises:
            BudgetExceeded: the composed eps, at the declared delta, would exceed the declared total.
            LedgerAltered: the content of the file is not what was written to it.
            ValueError: a mechanism without proof or one that no ledger can read, row-level protection in a ledger of tasks,
                or a purchase that another ledger paid for. Nothing was charged.
        """
        if not Unit.of(unit).protects(protected := Unit.of(self.unit)):
            raise ValueError(
                f"unit: expected {protected.value!r} in a ledger of {protected}s; what protects a {unit} does not protect "
                f"a {protected}"
            )
        if adjacency is not None:
            Unit.of(unit).compared(Adjacency.of(adjacency))
        laws = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
        for law in laws:
            derives("mechanisms", law, Mechanism)
        now = datetime.now(UTC).isoformat()
        about = self.fingerprint(data)
        compared = adjacency or self.adjacency
        paid = Row(now, about, unit, compared, _text(laws), secrets.token_hex(16))
        rounds = composition.as_rounds(laws)
        with self._file.transaction() as chain:
            owed = self._owed(chain.rows, purchases)
            if owed and not Unit.TASK.protects(protected):
                raise ValueError(
                    f"clip: expected none in a ledger of {protected}s; what it costs was counted for a task"
                )
            before = _laws(chain.rows)
            more = (*(purchase.law for purchase in owed), *rounds)
            if self._exceeds((*before, *more)):
                raise BudgetExceeded(self._refusal(before, more))
            new = [Row(now, about, "task", compared, _text((purchase.law,)), purchase.id) for purchase in owed]
            chain.append([*new, paid])
        return _charge(paid)

    def charges(self) -> list[Charge]:
        """Return every charge, oldest first."""
        return [_charge(row) for row in self._rows()]

    @property
    def spent(self) -> Bound:
        """Composed eps of all charges at the declared delta, for noise that was chosen before the first charge."""
        return self._bound(self._composed(_laws(self._rows())))

    @property
    def spent_adaptively(self) -> Bound:
        """Value of the privacy filter at the declared delta, for charges that were chosen by looking at earlier releases.

        While it is at most the declared eps, all charges together are private at the declared (eps, delta). No smaller
        value on the way is a guarantee: :mod:`mpmtl_prob.privacy.accounting.filters` states the theorem. Even a small
        charge counts as a large part of the total, since the filter's order suits a total that is spent in full.
        """
        return self._bound(self._filtered(_laws(self._rows())))

    @property
    def left(self) -> Bound | None:
        """Largest (eps, delta) of one further release, at the declared delta; None if nothing is left.

        Such a release is accepted, and one of a hundredth more is refused. The value is for Gaussian noise after a Gaussian
        charge, and else for Wishart noise, the default of releases. For another law, a little more or less may be accepted.
        ``spent`` plus ``left`` exceeds the total, as composition is not addition.

        Less than a hundredth of the total counts as nothing. For a total above eps = 100, which promises nothing, the value
        is not computed, and is None too.
        """
        laws = _laws(self._rows())

        def accepts(law: Mechanism) -> bool:
            return not self._exceeds((*laws, law))

        epsilon = largest_epsilon(accepts, self.epsilon, self.delta, self.adjacency, laws[-1] if laws else None)
        return None if epsilon is None else self._bound(epsilon)

    def export_receipt(self) -> dict[str, Any]:
        """Return a receipt of the present state, to be kept elsewhere: id, number of charges, last hash, and time.

        It consists of plain strings and numbers, for JSON, and reveals nothing about the charges except their number. With
        :meth:`verify` it shows whether the file was replaced by an older copy, or deleted and declared anew. It cannot show
        what happened after it was written, so export one after every release.
        """
        return ledger_file.receipt(self._file.totals, self._rows())

    def verify(self, receipt: Mapping[str, Any]) -> None:
        """Check that the ledger still has every charge of a receipt, unchanged and in its place.

        Whoever can write to the file can still undo charges after the last receipt undetected.

        Raises:
            LedgerAltered: it does not: it was rolled back, replaced or edited.
            ValueError: an invalid receipt.
        """
        ledger_file.check_receipt(receipt, self._file.totals, self._rows())

    def fingerprint(self, data: InParts | PaddedTasks | ArrayLike | None) -> str:
        """Hash the data with this ledger's own key, so that nobody can test a guess of the data without the ledger."""
        if data is None:
            return ""
        digest = hmac.new(self._salt, digestmod=hashlib.sha256)
        for shape, kind, chunks in _parts(data):
            digest.update(f"{kind.str}{shape}".encode())
            for chunk in chunks:
                digest.update(chunk)
        return digest.hexdigest()

    def _rows(self) -> list[Row]:
        with self._file.transaction() as chain:
            return chain.rows

    def _owed(self, rows: Sequence[Row], bought: Sequence[Purchase]) -> list[Purchase]:
        """Return those purchases that this ledger has not paid for."""
        charged = {row.token: row for row in rows}
        owed = []
        for purchase in bought:
            if row := charged.get(purchase.id):
                if _laws([row]) != (purchase.law,):
                    raise ValueError(f"clip: expected the price that the ledger holds, got {purchase.law}")
                continue
            if purchase.ledger == self.id:
                raise LedgerAltered("ledger: it paid for this clip norm, and no longer holds that charge")
            if purchase.ledger and self.unit == "task":  # a ledger of rows counts differently, and charges it again
                raise ValueError(
                    "clip: expected one that this ledger paid for, or none yet, got one paid for by another ledger, whose "
                    "charges this one does not count"
                )
            owed.append(purchase)
        return owed

    def _composed(self, laws: tuple[Mechanism, ...]) -> float:
        return composition.compute_epsilon(self.delta, laws, self.adjacency) if laws else 0.0

    def _filtered(self, laws: tuple[Mechanism, ...]) -> float:
        return adaptive_epsilon(laws, self.epsilon, self.delta, self.adjacency)

    def _exceeds(self, laws: tuple[Mechanism, ...]) -> bool:
        if self.adaptive:
            return self._filtered(laws) > self.epsilon
        countable = min(self.epsilon, LARGEST_EPSILON)  # so that ``spent`` can state every accepted total
        return composition.compute_delta(countable, laws, self.adjacency) > self.delta

    def _bound(self, epsilon: float) -> Bound:
        return Bound(epsilon, self.delta, self.adjacency, self.unit)

    def _refusal(self, before: tuple[Mechanism, ...], more: tuple[Mechanism, ...]) -> str:
        count = self._filtered if self.adaptive else self._composed
        spent, total = count(before), count((*before, *more))
        reach = "no finite eps would hold" if np.isinf(total) else f"eps would be {total:.4g}"
        how = ", for budgets chosen by looking," if self.adaptive else ""
        return (
            f"ledger: at delta = {self.delta:.3g} the declared total{how} is eps = {self.epsilon:.4g}, of which "
            f"{spent:.4g} is spent; with this charge {reach}. Nothing was charged."
        )

    def __repr__(self) -> str:
        where = "in memory only: it is gone when this process ends" if self.path is None else self.path
        laws = [charge.mechanisms for charge in self.charges()]
        rounds = tuple(law for rounds_of_charge in laws for law in rounds_of_charge)
        spent = (self._filtered if self.adaptive else self._composed)(rounds)
        how = "may be chosen by looking at releases" if self.adaptive else "settled beforehand"
        charges = f"{len(laws)} charge{'' if len(laws) == 1 else 's'}"
        left = self.left
        nothing = "nothing" if self.epsilon <= MOST_EPSILON else "not worked out for so large a total"
        return (
            f"Ledger({where})\n"
            f"  declared: {Bound(self.epsilon, self.delta, self.adjacency, self.unit)}\n"
            f"  spent: eps = {spent:.3g}, counted at this delta, in {charges}; budgets {how}\n"
            f"  left: {nothing if left is None else f'one release at eps {left.epsilon:.3g}, delta {left.delta:.3g}'}"
        )


def _declared(
    connection: sqlite3.Connection,
    epsilon: float | None,
    delta: float | None,
    adjacency: str | None,
    unit: str | None,
    adaptive: bool | None,
) -> Totals:
    """Read the totals in the file, or write these to a new one."""
    totals = ledger_file.read_totals(connection)
    if totals is None:
        if epsilon is None or delta is None:
            raise ValueError(_NO_TOTALS)
        adjacency, unit = adjacency or Adjacency.REPLACE, unit or Unit.TASK
        Unit.of(unit).compared(Adjacency.of(adjacency))  # a changed row replaces its task's message, and zeroes none
        return ledger_file.declare(connection, epsilon, delta, adjacency, unit, adaptive or False)
    given = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "unit": unit, "adaptive": adaptive}
    for (name, value), declared in zip(given.items(), totals, strict=False):
        if value is not None and value != declared:
            raise ValueError(f"{name}: expected {declared!r}, as the ledger declares, got {value!r}")
    return totals


def _reopened(kind: type[Ledger], path: str, timeout: float, receipt: Mapping[str, Any]) -> Ledger:
    """Reopen a pickled ledger. Raises LedgerAltered if its file is gone, or no longer has what it had."""
    if not os.path.exists(path):
        raise LedgerAltered(f"ledger: its file {path!r} is gone")
    ledger = kind(path, timeout=timeout)
    ledger.verify(receipt)
    return ledger


def _text(laws: Sequence[Mechanism]) -> str:
    """Write laws as JSON. Raises ValueError for one that could not be read again, which would make the file unreadable."""
    try:
        return json.dumps([write_mechanism(law) for law in laws])
    except ValueError:
        kinds = ", ".join(sorted({type(law).__name__ for law in laws}))
        raise ValueError(
            f"mechanisms: expected laws that a ledger can read again, got {kinds}; a law of your own must be registered"
        ) from None


def _parsed(text: str) -> tuple[Mechanism, ...]:
    return tuple(read_mechanism(fields) for fields in json.loads(text))


def _laws(rows: Sequence[Row]) -> tuple[Mechanism, ...]:
    return tuple(law for row in rows for law in _parsed(row.mechanisms))


def _charge(row: Row) -> Charge:
    return Charge(
        datetime.fromisoformat(row.time), row.fingerprint, row.unit, row.adjacency, _parsed(row.mechanisms), row.token
    )


def check_ledger(ledger: Ledger | None, unsafe_seed: int | None) -> None:
    """Raise ValueError unless the ledger can pay for noise from this source."""
    if ledger is not None and not isinstance(ledger, Ledger):
        raise ValueError(f"ledger: expected a Ledger, got {type(ledger).__name__}")
    if unsafe_seed is not None:
        whole("unsafe_seed", unsafe_seed, 0)
    if ledger is not None and unsafe_seed is not None:
        raise ValueError("unsafe_seed: expected none with a ledger; noise from a known seed protects nothing")


def _parts(
    data: InParts | PaddedTasks | ArrayLike,
) -> Iterable[tuple[tuple[int, ...], Any, Iterable[bytes | memoryview]]]:
    """Return the arrays of a fingerprint: shape, type and bytes of each."""
    if isinstance(data, InParts):
        return data.fingerprint_parts()
    given = (data.X, data.y, data.mask) if isinstance(data, PaddedTasks) else (data,)
    arrays = map(np.ascontiguousarray, given)
    return [(array.shape, array.dtype, [array.tobytes()]) for array in arrays]
