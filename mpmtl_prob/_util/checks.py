"""Argument checks, whose errors give the argument's name, what was expected, and what was given."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.hidden_arrays import shown

#: Upper limit on counts. A larger count is refused before any budget is spent; otherwise the memory would run out afterwards.
MANY = 2**31
#: Upper limit on sizes, and one over the lower limit. Powers and products of numbers in this range stay within doubles.
LARGEST = 1e30


def positive(name: str, value: float) -> float:
    """Return the value as a float. Raises ValueError unless it is a finite number above 0."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}: expected a positive number, got {_got(value)}")
    return number


def in_range(name: str, value: float, low: float, high: float, *, left_closed: bool = False) -> float:
    """Return the value as a float. Raises ValueError unless it is in (low, high), or in [low, high) with left_closed."""
    number = _number(name, value)
    if not (low < number < high or (left_closed and number == low)):
        raise ValueError(f"{name}: expected a number in {'[' if left_closed else '('}{low}, {high}), got {_got(value)}")
    return number


def not_negative(name: str, value: float) -> float:
    """Return the value as a float. Raises ValueError unless it is a finite number of at least 0."""
    return in_range(name, value, 0, math.inf, left_closed=True)


def fraction(name: str, value: float) -> float:
    """Return the value as a float. Raises ValueError unless it is in (0, 1)."""
    return in_range(name, value, 0, 1)


def moderate(name: str, value: float, *, zero: bool = False) -> float:
    """Return the value as a float. Raises ValueError unless it is between 1e-30 and 1e30, or 0 with ``zero``.

    The limits keep products of several such numbers within the range of doubles.
    """
    number = not_negative(name, value) if zero else positive(name, value)
    if number and not 1 / LARGEST <= number <= LARGEST:
        raise ValueError(f"{name}: expected a number between {1 / LARGEST:g} and {LARGEST:g}, got {_got(value)}")
    return number


def optional[T](check: Callable[[str, Any], T], name: str, value: Any) -> T | None:
    """Return None for None, and else the result of the check."""
    return None if value is None else check(name, value)


def whole(name: str, value: int, least: int = 1, upto: int | None = None) -> int:
    """Return the value as an int. Raises ValueError unless it is a whole number from ``least`` to ``upto``."""
    try:
        number = int(operator.index(value))  # True counts as 1
    except TypeError:
        raise ValueError(f"{name}: expected a whole number, got {_got(value)}") from None
    if number < least:
        raise ValueError(f"{name}: expected a whole number >= {least}, got {_got(value)}")
    if upto is not None and number > upto:
        raise ValueError(f"{name}: expected a whole number <= {upto}, got {_got(value)}")
    return number


def flag(name: str, value: object) -> bool:
    """Return the value as a bool. Raises ValueError unless it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}: expected True or False, got {_got(value)}")
    return bool(value)


def function(name: str, value: object, what: str) -> None:
    """Raise ValueError unless the value can be called with one argument, as far as its signature tells."""
    try:
        inspect.signature(value).bind(None)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}: expected a function {what}, got {_got(value)}") from None
    except ValueError:  # functions written in C may have no signature to inspect
        pass


def normalise_fields(instance: Any, check: Callable[[str, Any], float], *names: str) -> None:
    """Check fields of a frozen data class, and store them as Python's own numbers.

    The square of a NumPy integer may overflow, and a float of few bits passes its low precision on: 1e-6 may become 0.
    """
    for name in names:
        object.__setattr__(instance, name, check(name, getattr(instance, name)))


def as_float_array(name: str, value: ArrayLike, kind: type[np.generic] = np.float64) -> NDArray[Any]:
    """Return the values as an array of numbers. Raises ValueError, without showing a value, where that is not possible.

    NumPy's own errors quote the value that they refuse, and values may be private.
    """
    try:
        if np.iscomplexobj(value) or getattr(getattr(value, "dtype", None), "kind", "f") in "mM":  # dates and durations
            raise TypeError
        with np.errstate(all="ignore"):  # a warning would reveal that a value is out of range
            return np.asarray(value, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected numbers of the kind {kind.__name__}, got others") from None


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return the value. Raises ValueError unless it is one of the named choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {_got(value)}")
    return value


def _got(value: object) -> str:
    """Return the words for a wrong value. A tuple is shown by its length alone, as its numbers may be private."""
    return f"<tuple of {len(value)}>" if isinstance(value, tuple) else shown(value)


def instance(name: str, value: object) -> None:
    """Raise ValueError for a class in the place of one of its instances."""
    if isinstance(value, type):
        raise ValueError(f"{name}: expected an instance, such as {value.__name__}(...), got the class {value.__name__}")


def _number(name: str, value: float) -> float:
    try:
        if isinstance(value, str | bytes):  # float() would accept text such as "1"
            raise TypeError
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a number, got a larger one than a double holds") from None
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected a number, got {_got(value)}") from None
