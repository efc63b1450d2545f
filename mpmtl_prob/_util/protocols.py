"""Errors about objects of users that lack what a protocol or base class asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpmtl_prob._util.checks import instance, one_of
from mpmtl_prob._util.hidden_arrays import shown


def members(protocol: type) -> list[str]:
    """Return the names that an object needs: all of a protocol, of a base class those that have no default."""
    if not getattr(protocol, "_is_protocol", False):
        return sorted(getattr(protocol, "__abstractmethods__", ()))
    names = set[str]()
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base.__module__ != "typing":
            names |= {*vars(base), *getattr(base, "__annotations__", ())}
    return sorted(name for name in names if not name.startswith("_"))


def lacking(value: object, protocol: type, needs: Sequence[str] = ()) -> list[str]:
    """Return the names of a protocol that an object does not have, or that are methods there and none of the object."""
    # asked of its class first: a property may take long, or fail
    own = lambda name: getattr(type(value), name, None) or getattr(value, name, None)
    method = lambda name: callable(getattr(protocol, name, None))
    has = lambda name: hasattr(type(value), name) or hasattr(value, name)
    return [name for name in needs or members(protocol) if not has(name) or (method(name) and not callable(own(name)))]


def implements(name: str, value: object, protocol: type, needs: Sequence[str] = ()) -> None:
    """Raise ValueError for an object that lacks a member of a protocol; it names the protocol and all that is missing.

    Args:
        name: of the argument.
        value: the object; a class in its place is an error too.
        protocol: what it should be like.
        needs: members of the protocol that are used here; default all.
    """
    instance(name, value)
    if missing := lacking(value, protocol, needs):
        raise ValueError(
            f"{name}: expected an object with all that {protocol.__name__} of mpmtl_prob.extend asks for, got "
            f"{type(value).__name__} without {', '.join(missing)}"
        )


def derives(name: str, value: object, base: type) -> None:
    """Raise ValueError for an object whose class does not derive from a base class; it names what the object lacks."""
    instance(name, value)
    if not isinstance(value, base):
        raise ValueError(f"{name}: expected {_derived(value, base)}")


def named(name: str, value: object, choices: Mapping[str, Any], base: type) -> Any:
    """Return what a name stands for, or the user's own object. Raises ValueError for what is neither."""
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
