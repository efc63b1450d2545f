"""What may hold somebody's arrays: shown by their shapes, and equal to nothing but themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from numbers import Number
from typing import Any

import numpy as np


def shown(value: Any) -> str:
    """A repr without the numbers of arrays, alone or in tuples."""
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
    """The value itself, or what is shown of arrays."""
    return value if _hashable(value) and not (isinstance(value, tuple) and _is_array(value)) else shown(value)


class HidesArrays:
    """Of data classes with ``repr=False, eq=False``: hyper-parameters by value, arrays by shape and identity.

    Where a subclass has its dataclass-made repr back, fields with ``repr=False`` are left out of that one too.
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
    """A row or a matrix, by its look: settings are pairs of numbers at most, and names may be whole numbers."""
    row = lambda part: isinstance(part, tuple) and part != () and all(isinstance(x, Number) for x in part)
    return sum(isinstance(part, float | np.floating) for part in value) > 2 or any(map(row, value))


def _sized(value: Any) -> bool:
    return hasattr(value, "__len__")


def _hashable(value: Any) -> bool:
    """Numbers, strings and frozen objects are; arrays, lists, and tuples of them are not."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
