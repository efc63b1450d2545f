"""Packages whose exports are imported when somebody first asks for them (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package, which imports an export, or a module of the package, on request.

    Args:
        package: its ``__name__``.
        homes: the modules that exports are in, by the exports' names, relative to the package (``".public.effects"``) or not.
    """

    def find(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name], package), name)
        elif not name.startswith("__") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return vars(sys.modules[package]).setdefault(name, value)

    return find
