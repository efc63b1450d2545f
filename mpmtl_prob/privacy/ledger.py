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
        id: by which the ledger knows it again.
    """

    time: datetime
    fingerprint: str
    unit: str
    adjacency: str
    mechanisms: tuple[Mechanism, ...]
    id: str


class Purchase(Protocol):
    """Something bought for a release before it, such as a clip norm.

    Attributes:
        law: what it costs.
        id: of its charge, wherever that is or will be.
        ledger: the id of the ledger that paid, empty if none did yet.
    """

    @property
    def law(self) -> Mechanism: ...
    @property
    def id(self) -> str: ...
    @property
    def ledger(self) -> str: ...


@runtime_checkable
class PaddedTasks(Protocol):
    """Rows of several tasks in arrays of one size, such as those of a TaskData: what a ledger takes a fingerprint of."""

    @property
    def X(self) -> Any: ...
    @property
    def y(self) -> Any: ...
    @property
    def mask(self) -> Any: ...


@runtime_checkable
class InParts(Protocol):
    """Data that are read part by part for a fingerprint, as they may be too large to be there in one piece."""

    def fingerprint_parts(self) -> Iterable[tuple[tuple[int, ...], Any, Iterable[bytes | memoryview]]]:
        """Return the shape, the type and the bytes of every array."""
        ...


class Ledger:
    """The budget of one population of tasks, shared by all processes that release something about them.

    All charges add up, whatever data they were for: a data set with one row changed is still about the same tasks. Keep
    one ledger per population, and keep it with the data.

    There are two totals. ``spent`` composes what was charged: it holds if the noise of every charge was settled before the
    first one, while messages may follow from earlier releases. ``spent_adaptively`` holds if somebody looks at what was
    released, and then settles the next charge's noise or whether there is one; it is larger. ``adaptive`` makes the second
    the one that refuses, and a ledger prints the one by which it refuses. ``left`` is the largest release that it would
    still pay for.

    The file is for its owner alone, and its rows are chained by hashes: a row that was edited is found when it is next
    read. A ledger in use, or pickled, knows its file again: it refuses one that is gone, another ledger in its place, and an
    older copy than it has seen. Who opens the path anew needs a receipt for that: see :meth:`export_receipt`.

    Args:
        path: the file, made if it is not there, and found again from wherever the process works later; None keeps the ledger
            in the memory of this process alone, for exploring: a forked child is refused.
        epsilon: the declared total, > 0; may be left out for a file that has one.
        delta: at which epsilon is declared, in (0, 1); may be left out for a file that has one.
        adjacency: "replace" or "zero_out".
        unit: "task", or "row" for a ledger of row-level releases. A charge for whole tasks protects their rows too.
        adaptive: refuse by ``spent_adaptively``, for budgets that are chosen by looking; default no.
        timeout: seconds to wait for another process.

    Raises:
        LedgerAltered: a file that does not hold what was written to it.
        ValueError: an argument outside its range, one that contradicts the file, or a file of something else.

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

    def __copy__(self) -> Self:  # it is one account, whoever holds it
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """By its path and a receipt. Raises ValueError for a ledger in memory, which no other process can charge."""
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
        """Pay for the mechanisms, all rounds or none; on disk when it returns.

        Args:
            mechanisms: one round, or several to be reserved at once.
            data: what the release is about, for the fingerprint.
            unit: what the mechanisms protect.
            adjacency: what the release states its own guarantee for; default the ledger's. The ledger counts by its own.
            purchases: what was bought for them; what this ledger has not paid for yet is charged together with them.

        Raises:
            BudgetExceeded: the composed eps, at the declared delta, would exceed the declared total.
            LedgerAltered: the file does not hold what was written to it.
            ValueError: a mechanism of which nothing is proved or that no ledger can read, row-level protection in a ledger
                of tasks, or a purchase that another ledger paid for. Nothing was charged.
        """
        if not Unit.of(unit).protects(own := Unit.of(self.unit)):
            raise ValueError(
                f"unit: expected {own.value!r} in a ledger of {own}s; what protects a {unit} does not protect a {own}"
            )
        if adjacency is not None:
            Unit.of(unit).compared(Adjacency.of(adjacency))
        listed = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
        for law in listed:
            derives("mechanisms", law, Mechanism)
        now, about, compared = datetime.now(UTC).isoformat(), self.fingerprint(data), adjacency or self.adjacency
        paid = Row(now, about, unit, compared, _text(listed), secrets.token_hex(16))
        rounds = composition.as_rounds(listed)
        with self._file.transaction() as chain:
            owed = self._owed(chain.rows, purchases)
            if owed and not Unit.TASK.protects(own):
                raise ValueError(f"clip: expected none in a ledger of {own}s; what it costs was counted for a task")
            before, more = _laws(chain.rows), (*(purchase.law for purchase in owed), *rounds)
            if self._exceeds((*before, *more)):
                raise BudgetExceeded(self._refusal(before, more))
            new = [Row(now, about, "task", compared, _text((purchase.law,)), purchase.id) for purchase in owed]
            chain.append([*new, paid])
        return _charge(paid)

    def charges(self) -> list[Charge]:
        """Every charge, oldest first."""
        return [_charge(row) for row in self._rows()]

    @property
    def spent(self) -> Bound:
        """The eps of all charges composed, at the declared delta, for noise that was settled before the first charge."""
        return self._bound(self._composed(_laws(self._rows())))

    @property
    def spent_adaptively(self) -> Bound:
        """The reading of the filter, at the declared delta, for charges that were settled by looking at earlier releases.

        While it is at most the declared eps, everything together is private at the declared (eps, delta), and no number
        read off on the way is: see :mod:`mpmtl_prob.privacy.accounting.filters` for the theorem. Even a small charge reads
        as a good part of the total, since the filter's order suits a total that is spent in full.
        """
        return self._bound(self._filtered(_laws(self._rows())))

    @property
    def left(self) -> Bound | None:
        """The (eps, delta) that one further release may have at most, at the declared delta; None where nothing is left.

        A release of that is accepted, and one of a hundredth more is refused. It is worked out for Gaussian noise after a
        Gaussian charge and else for Wishart noise, the default of releases; of another law a little more or less may be
        accepted. What is spent and what is left are more together than the total, as composition is no addition.

        Less than a hundredth of the total counts as nothing. Of a total above eps = 100, which promises nothing, it is not
        worked out, and None too.
        """
        laws = _laws(self._rows())
        accepts = lambda law: not self._exceeds((*laws, law))
        epsilon = largest_epsilon(accepts, self.epsilon, self.delta, self.adjacency, laws[-1] if laws else None)
        return None if epsilon is None else self._bound(epsilon)

    def export_receipt(self) -> dict[str, Any]:
        """What the ledger holds now, to be kept elsewhere: its id, the number of charges, the last hash, and the time.

        Plain strings and numbers, for JSON; they say nothing about the charges but how many there are. Together with
        :meth:`verify` a receipt shows that the file was put back to an older copy, or deleted and declared anew. It cannot
        show what happened after it was written: export one after every release. Who keeps none sees nothing.
        """
        return ledger_file.receipt(self._file.totals, self._rows())

    def verify(self, receipt: Mapping[str, Any]) -> None:
        """Check that the ledger still holds every charge of a receipt, unchanged and in its place.

        Somebody who may write to the file can still undo charges newer than the last receipt, unseen.

        Raises:
            LedgerAltered: it does not: it was rolled back, replaced or edited.
            ValueError: what is no receipt.
        """
        ledger_file.check_receipt(receipt, self._file.totals, self._rows())

    def fingerprint(self, data: InParts | PaddedTasks | ArrayLike | None) -> str:
        """A hash of the data under this ledger's own key: without the ledger nobody can test a guess against it."""
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
        """What of it this ledger has not paid for."""
        held, owed = {row.token: row for row in rows}, []
        for purchase in bought:
            if row := held.get(purchase.id):
                if _laws([row]) != (purchase.law,):
                    raise ValueError(f"clip: expected the price that the ledger holds, got {purchase.law}")
                continue
            if purchase.ledger == self.id:
                raise LedgerAltered("ledger: it paid for this clip norm, and no longer holds that charge")
            if purchase.ledger and self.unit == "task":  # one of rows counts something else, and charges it again
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
        countable = min(self.epsilon, LARGEST_EPSILON)  # what is let through, spent can state
        return composition.compute_delta(countable, laws, self.adjacency) > self.delta

    def _bound(self, epsilon: float) -> Bound:
        return Bound(epsilon, self.delta, self.adjacency, self.unit)

    def _refusal(self, before: tuple[Mechanism, ...], more: tuple[Mechanism, ...]) -> str:
        count = self._filtered if self.adaptive else self._composed
        spent, wanted = count(before), count((*before, *more))
        reach = "no finite eps would hold" if np.isinf(wanted) else f"eps would be {wanted:.4g}"
        how = ", for budgets chosen by looking," if self.adaptive else ""
        return (
            f"ledger: at delta = {self.delta:.3g} the declared total{how} is eps = {self.epsilon:.4g}, of which "
            f"{spent:.4g} is spent; with this charge {reach}. Nothing was charged."
        )

    def __repr__(self) -> str:
        where = "in memory only: it is gone when this process ends" if self.path is None else self.path
        laws = [charge.mechanisms for charge in self.charges()]
        rounds = tuple(law for each in laws for law in each)
        spent = (self._filtered if self.adaptive else self._composed)(rounds)
        how = "may be chosen by looking at releases" if self.adaptive else "settled beforehand"
        charges = f"{len(laws)} charge{'' if len(laws) == 1 else 's'}"
        left, nothing = self.left, "nothing" if self.epsilon <= MOST_EPSILON else "not worked out for so large a total"
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
    """The totals in the file, or these, written to it."""
    totals = ledger_file.read_totals(connection)
    if totals is None:
        if epsilon is None or delta is None:
            raise ValueError(_NO_TOTALS)
        adjacency, unit = adjacency or Adjacency.REPLACE, unit or Unit.TASK
        Unit.of(unit).compared(Adjacency.of(adjacency))  # changing a row replaces its task's message: it zeroes none
        return ledger_file.declare(connection, epsilon, delta, adjacency, unit, adaptive or False)
    given = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "unit": unit, "adaptive": adaptive}
    for (name, value), held in zip(given.items(), totals, strict=False):
        if value is not None and value != held:
            raise ValueError(f"{name}: expected {held!r}, as the ledger declares, got {value!r}")
    return totals


def _reopened(kind: type[Ledger], path: str, timeout: float, receipt: Mapping[str, Any]) -> Ledger:
    """The ledger of a pickle. Raises LedgerAltered where it is gone, or no longer holds what it held."""
    if not os.path.exists(path):
        raise LedgerAltered(f"ledger: its file {path!r} is gone")
    ledger = kind(path, timeout=timeout)
    ledger.verify(receipt)
    return ledger


def _text(laws: Sequence[Mechanism]) -> str:
    """Laws as JSON. Raises ValueError for one that could not be read again, and would make the ledger unreadable."""
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
    """What a fingerprint is of."""
    if isinstance(data, InParts):
        return data.fingerprint_parts()
    given = (data.X, data.y, data.mask) if isinstance(data, PaddedTasks) else (data,)
    arrays = map(np.ascontiguousarray, given)
    return [(array.shape, array.dtype, [array.tobytes()]) for array in arrays]
