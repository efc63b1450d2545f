"""Mixin for classes with private arrays: ``repr`` shows shapes only, and ``==`` compares arrays by identity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from numbers import Number
from typing import Any

import numpy as np


def shown(value: Any) -> str:
    """Return a repr that shows arrays, also those in tuples, by their shapes and not by their numbers."""
    if isinstance(value, tuple):
        if names := getattr(value, "_fields", ()):
            return _call(type(value).__name__, zip(names, value, strict=True))
        if _is_array(value):
            return f"<tuple of {len(value)}>"
        return f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
    if _hashable(value):
        return repr(value)
    shape = (
        f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else f" of {len(value)}" if _sized(value) else ""
    )
    return f"<{type(value).__name__}{shape}>"


def public(value: Any) -> Any:
    """Return the value itself, or :func:`shown` of it where it holds arrays."""
    return value if _hashable(value) and not (isinstance(value, tuple) and _is_array(value)) else shown(value)


class HidesArrays:
    """Mixin for data classes with ``repr=False, eq=False``: other fields are shown and compared by value.

    Arrays are shown by shape and compared by identity. A subclass may use the repr of ``dataclass`` again; that one leaves
    fields with ``repr=False`` out.
    """

    def __repr__(self) -> str:
        return _call(type(self).__qualname__, ((f.name, getattr(self, f.name)) for f in fields(self)))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[Any, ...]:
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return tuple(value if _hashable(value) else id(value) for value in values)


def _call(name: str, arguments: Iterable[tuple[str, Any]]) -> str:
    return f"{name}({', '.join(f'{key}={shown(value)}' for key, value in arguments)})"


def _is_array(value: tuple[Any, ...]) -> bool:
    """Guess whether a tuple is a row or a matrix of private numbers.

    Settings are at most pairs of floats, and names may be whole numbers; so three floats, or tuples of numbers, are data.
    """
    return sum(isinstance(part, float | np.floating) for part in value) > 2 or any(map(_is_row, value))


def _is_row(part: Any) -> bool:
    return isinstance(part, tuple) and part != () and all(isinstance(number, Number) for number in part)


def _sized(value: Any) -> bool:
    return hasattr(value, "__len__")


def _hashable(value: Any) -> bool:
    """Return True for numbers, strings and frozen objects; False for arrays, lists, and tuples of them."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
