"""Checks of arguments, in the user's words: the name, what was expected, what came."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.hidden_arrays import shown

#: Upper limit on counts: more are refused before any budget is spent, rather than by running out of memory afterwards.
MANY = 2**31
#: Between these and one over them, numbers have powers and products that doubles hold.
LARGEST = 1e30


def positive(name: str, value: float) -> float:
    """A finite number above 0."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name}: expected a positive number, got {_got(value)}")
    return number


def in_range(name: str, value: float, low: float, high: float, *, left_closed: bool = False) -> float:
    """A number in (low, high), or in [low, high) with left_closed."""
    number = _number(name, value)
    if not (low < number < high or (left_closed and number == low)):
        raise ValueError(f"{name}: expected a number in {'[' if left_closed else '('}{low}, {high}), got {_got(value)}")
    return number


def not_negative(name: str, value: float) -> float:
    """A finite number of at least 0."""
    return in_range(name, value, 0, math.inf, left_closed=True)


def fraction(name: str, value: float) -> float:
    """A number in (0, 1)."""
    return in_range(name, value, 0, 1)


def moderate(name: str, value: float, *, zero: bool = False) -> float:
    """A number between 1e-30 and 1e30, or 0 where that is allowed: what is worked out of several stays a double."""
    number = not_negative(name, value) if zero else positive(name, value)
    if number and not 1 / LARGEST <= number <= LARGEST:
        raise ValueError(f"{name}: expected a number between {1 / LARGEST:g} and {LARGEST:g}, got {_got(value)}")
    return number


def optional[T](check: Callable[[str, Any], T], name: str, value: Any) -> T | None:
    """None, or what the check makes of the value."""
    return None if value is None else check(name, value)


def whole(name: str, value: int, least: int = 1, upto: int | None = None) -> int:
    """A whole number of at least ``least``, and at most ``upto``."""
    try:
        number = int(operator.index(value))  # of True too, which is 1
    except TypeError:
        raise ValueError(f"{name}: expected a whole number, got {_got(value)}") from None
    if number < least:
        raise ValueError(f"{name}: expected a whole number >= {least}, got {_got(value)}")
    if upto is not None and number > upto:
        raise ValueError(f"{name}: expected a whole number <= {upto}, got {_got(value)}")
    return number


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}: expected True or False, got {_got(value)}")
    return bool(value)


def function(name: str, value: object, what: str) -> None:
    """Raise ValueError unless the value can be called with one argument, as far as that can be known before."""
    try:
        inspect.signature(value).bind(None)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}: expected a function {what}, got {_got(value)}") from None
    except ValueError:  # a function of another language, which says nothing of its arguments
        pass


def normalise_fields(instance: Any, check: Callable[[str, Any], float], *names: str) -> None:
    """Check fields of a frozen data class and keep them as Python's numbers.

    The square of a NumPy integer may overflow, and what is worked out of a short float is as short: 1e-6 may be 0.
    """
    for name in names:
        object.__setattr__(instance, name, check(name, getattr(instance, name)))


def as_float_array(name: str, value: ArrayLike, kind: type[np.generic] = np.float64) -> NDArray[Any]:
    """An array of numbers, which may hold somebody's: an error of NumPy's would show one of them."""
    try:
        if np.iscomplexobj(value) or getattr(getattr(value, "dtype", None), "kind", "f") in "mM":  # dates and durations
            raise TypeError
        with np.errstate(all="ignore"):  # a warning would tell of one
            return np.asarray(value, dtype=kind)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected numbers of the kind {kind.__name__}, got others") from None


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """One of the named choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {_got(value)}")
    return value


def _got(value: object) -> str:
    """What came in place of one thing: several may be somebody's."""
    return f"<tuple of {len(value)}>" if isinstance(value, tuple) else shown(value)


def instance(name: str, value: object) -> None:
    """Raise ValueError for a class where one of its instances is expected."""
    if isinstance(value, type):
        raise ValueError(f"{name}: expected an instance, such as {value.__name__}(...), got the class {value.__name__}")


def _number(name: str, value: float) -> float:
    try:
        if isinstance(value, str | bytes):  # float() would read them
            raise TypeError
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a number, got a larger one than a double holds") from None
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected a number, got {_got(value)}") from None
