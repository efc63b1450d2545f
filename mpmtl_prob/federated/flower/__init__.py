"""The protocol between machines, over the runtime Flower: its apps, sites whose processes end, nodes that run no other app.

The apps need Flower (the extra ``flower``), and are imported when somebody asks for them; the rest does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpmtl_prob.federated.flower.apps import ACTION, answer, main, run

__all__ = ["ACTION", "answer", "main", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.apps"), name)
