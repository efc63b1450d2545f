"""Domains of records with bounds on private ones, synthetic and real data sets, units, and tables as files."""

from importlib import import_module
from typing import Any

#: Modules, each of which is imported when it is first asked for.
__all__ = ["domain", "paper_files", "problems", "real", "scaling", "tables"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
