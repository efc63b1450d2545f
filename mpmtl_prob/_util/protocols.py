"""Checks that users' objects have all members of a protocol or base class, with errors that name the missing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpmtl_prob._util.checks import instance, one_of
from mpmtl_prob._util.hidden_arrays import shown


def members(protocol: type) -> list[str]:
    """Return the names that an object needs: all names of a protocol, or the abstract ones of a base class."""
    if not getattr(protocol, "_is_protocol", False):
        return sorted(getattr(protocol, "__abstractmethods__", ()))
    names = set[str]()
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base.__module__ != "typing":
            names |= {*vars(base), *getattr(base, "__annotations__", ())}
    return sorted(name for name in names if not name.startswith("_"))


def lacking(value: object, protocol: type, needs: Sequence[str] = ()) -> list[str]:
    """Return the names of a protocol that an object lacks, or that should be methods and are not."""

    # The class is looked at before the object, as evaluating a property may take long, or fail.
    def is_missing(name: str) -> bool:
        return not (hasattr(type(value), name) or hasattr(value, name))

    def is_no_method(name: str) -> bool:
        member = getattr(type(value), name, None) or getattr(value, name, None)
        return callable(getattr(protocol, name, None)) and not callable(member)

    return [name for name in needs or members(protocol) if is_missing(name) or is_no_method(name)]


def implements(name: str, value: object, protocol: type, needs: Sequence[str] = ()) -> None:
    """Raise ValueError for an object that lacks members of a protocol; the error names the protocol and those members.

    Args:
        name: of the argument.
        value: the object. A class instead of an instance is an error too.
        protocol: which the object should implement.
        needs: members of the protocol that the caller uses; default all.
    """
    instance(name, value)
    if missing := lacking(value, protocol, needs):
        raise ValueError(
            f"{name}: expected an object with all that {protocol.__name__} of mpmtl_prob.extend asks for, got "
            f"{type(value).__name__} without {', '.join(missing)}"
        )


def derives(name: str, value: object, base: type) -> None:
    """Raise ValueError for an object whose class does not derive from a base class; the error names missing members."""
    instance(name, value)
    if not isinstance(value, base):
        raise ValueError(f"{name}: expected {_derived(value, base)}")


def named(name: str, value: object, choices: Mapping[str, Any], base: type) -> Any:
    """Return the object with this name, or the user's own object. Raises ValueError for anything else."""
    if isinstance(value, base):
        return value
    if isinstance(value, str):
        return choices[one_of(name, value, tuple(choices))]
    raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, or {_derived(value, base)}")


def _derived(value: object, base: type) -> str:
    if isinstance(value, type):
        return f"an object that derives from {base.__name__} of mpmtl_prob.extend, got the class {value.__name__}"
    missing = lacking(value, base)
    without = f" without {', '.join(missing)}" if missing else ""
    got = f"{type(value).__name__}{without}" if hasattr(value, "__dict__") else shown(value)
    return f"an object that derives from {base.__name__} of mpmtl_prob.extend, got {got}"
