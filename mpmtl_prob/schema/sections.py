"""Sections of a study's file, with checks of their keys and values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from mpmtl_prob.data.cells import check_spelling, label_text

#: Key of every section that tells whether its numbers are agreed on, or come from a draft.
SETTLED = "settled"
#: Largest whole number, and largest number.
_MOST, _LARGEST = 10**9, 1e100
#: Characters that texts of a study or a message must not have, as they are shown on a terminal before somebody agrees: those
#: that move the cursor, end a line, or change the direction of reading; and surrogates.
UNSAID = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Section:
    """Section of a study's file, whose values are taken one by one.

    Args:
        name: its name in the file, for errors.
        values: its keys and values.

    Raises:
        ValueError: the values are not a mapping.
    """

    def __init__(self, name: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise ValueError(f"[{name}]: expected a section of keys and values, got {type(values).__name__}")
        self.name, self._values = name, dict(values)
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def take(self, key: str, default: Any = None) -> Any:
        """Return the value unchecked, or the default."""
        self._taken.add(key)
        return self._values.get(key, default)

    def text(self, key: str, default: str | None = None, *, what: str = "text") -> str:
        """Return a text. Raises ValueError for another value, or for none without a default."""
        value = self._needed(key, default, what)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"expected {what}, got {value!r}")
        return value

    def choice(self, key: str, default: str | None, choices: Sequence[str]) -> str:
        """Return one of several words. Raises ValueError for another."""
        value = self.text(key, default, what=" or ".join(map(repr, choices)))
        if value not in choices:
            raise self.error(key, f"expected {' or '.join(map(repr, choices))}, got {value!r}")
        return value

    def number(self, key: str, default: float | None = None, *, what: str = "a finite number") -> float:
        """Return a finite number. Raises ValueError for another value, or for none without a default."""
        return self._number(key, self._needed(key, default, what), what)

    def positive(self, key: str, default: float | None = None, *, what: str = "a positive number") -> float:
        """Return a number above 0. Raises ValueError for another value, or for none without a default."""
        value = self.number(key, default, what=what)
        if not value > 0:
            raise self.error(key, f"expected {what}, got {value!r}")
        return value

    def whole(self, key: str, default: int | None = None, *, what: str = "a whole number of at least 1") -> int:
        """Return a whole number above 0. Raises ValueError for another value, or for none without a default."""
        value = self._needed(key, default, what)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
            raise self.error(key, f"expected {what}, got {value!r}")
        return value

    def pair(self, key: str) -> tuple[float, float] | None:
        """Return a lower and a larger upper number, or None. Raises ValueError for another value."""
        value, what = self.take(key), "two numbers, the lower first, such as [0, 120]"
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise self.error(key, f"expected {what}, got {value!r}")
        low, high = (self._number(key, part, what) for part in value)
        if not low < high:
            raise self.error(key, f"expected {what}, got {value!r}")
        return low, high

    def names(self, key: str, *, least: int = 1) -> tuple[str, ...]:
        """Return distinct names, compared as names of tasks are. Raises ValueError for other values."""
        value = self._needed(key, None, "a list of names")
        if not isinstance(value, list | tuple) or not all(isinstance(name, str | int) for name in value):
            raise self.error(key, f"expected a list of names, got {value!r}")
        names = tuple(label_text(name) for name in value)
        check_spelling(f"[{self.name}]: {key}", "task", dict.fromkeys(names))
        if len(names) < least:
            raise self.error(key, f"expected at least {least}, got {len(names)}")
        if twice := sorted(name for name, times in Counter(names).items() if times > 1):
            raise self.error(key, f"expected every name once, got {twice[0]!r} more than once")
        return names

    def finish(self, known: Collection[str] = ()) -> None:
        """Raise ValueError if a key is left that was not taken, as it is probably misspelled."""
        allowed = self._taken | set(known)
        if others := [key for key in self._values if key not in allowed]:
            raise ValueError(
                f"[{self.name}]: {others[0]!r}: expected the keys {', '.join(sorted(allowed))}, got this one"
            )

    def error(self, key: str, text: str) -> ValueError:
        """Return an error that names the section and the key."""
        return ValueError(f"[{self.name}]: {key}: {text}")

    def _needed(self, key: str, default: Any, what: str) -> Any:
        value = self.take(key, default)
        if value is None:
            raise self.error(key, f"expected {what}, got none; add it to the study's file")
        return value

    def _number(self, key: str, value: Any, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == math.inf:
            raise self.error(key, f"expected {what}, got {value!r}")
        if abs(value) > _LARGEST:  # also whole numbers beyond double precision
            got = repr(value) if isinstance(value, float) else "a larger one"
            raise self.error(key, f"expected {what}, up to {_LARGEST:g}, got {got}")
        return float(value)


def check_texts(said: object) -> None:
    """Raise ValueError for a text or name with characters of ``UNSAID``. A formula may have several lines."""
    queue: list[tuple[str, object]] = [("", said)]
    while queue:
        key, value = queue.pop()
        if isinstance(value, Mapping):
            queue += [("", name) for name in value] + [(str(name), part) for name, part in value.items()]
        elif isinstance(value, list | tuple):
            queue += [(key, part) for part in value]
        elif isinstance(value, str) and UNSAID.search(re.sub(r"[\r\n\t]", " ", value) if key == "formula" else value):
            raise ValueError(
                f"{key or 'names'!a}: expected text without line ends, control characters and others that a terminal does "
                f"not show as they are, got {value!a}"
            )
