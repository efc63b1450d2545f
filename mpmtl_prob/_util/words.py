"""Words of a study in sentences."""

from __future__ import annotations

#: Plurals that no rule gives.
_PLURALS = {"person": "people", "child": "children", "man": "men", "woman": "women"}


def plural(word: str) -> str:
    """Return the plural of an English noun: pharmacies of "pharmacy", boxes of "box"; other words get an s."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word[-1:] == "y" and word[-2:-1] not in tuple("aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"
