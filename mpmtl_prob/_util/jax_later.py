"""Work that waits until JAX is imported, as that takes most of a second and not everybody needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: list[Callable[[], Any]] = []


def once_jax_is_imported(act: Callable[[], Any]) -> None:
    """Call ``act()`` now if JAX has been imported, else right after it has."""
    if "jax" in sys.modules:
        act()
        return
    _waiting.append(act)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finder that leaves finding JAX to the others, and has its loader do what waits."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of JAX, and None for any other module."""
        if fullname != "jax":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                while _waiting:
                    _waiting.pop(0)()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
