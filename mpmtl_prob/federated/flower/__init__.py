"""Federated release between machines, over the runtime Flower: server and client apps, restartable sites, locked-down nodes.

The apps need Flower (the extra ``flower``) and are imported on first use. The other modules work without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpmtl_prob._util.former import former_names

if TYPE_CHECKING:
    from mpmtl_prob.federated.flower.apps import ACTION, answer, main, run

__all__ = ["ACTION", "answer", "main", "run"]


_apps = f"{__name__}.apps"
_former = former_names(__name__, {"Nodes": f"{_apps}:Nodes", "invited": f"{_apps}:invited"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return _former(name)
    return getattr(import_module(_apps), name)
