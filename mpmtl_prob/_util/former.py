"""Deprecated names of version 0.3.0, which work with a warning for one version."""

from __future__ import annotations

import warnings
from abc import ABCMeta
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module, which accepts former names of its exports with a warning.

    Args:
        module: its ``__name__``.
        names: today's name by the former one. A name of another module has that module before it
            (``"mpmtl_prob.releases:Release"``).
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, today = names[name].rpartition(":")
        home = home or module
        _warn(f"{module}.{name}", f"{home}.{today}")
        return getattr(import_module(home), today)

    return find


def former_arguments[**P, R](
    **names: str | tuple[str, Mapping[Any, Any]],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for a function that still accepts former names of its arguments, with a warning.

    Args:
        names: today's name by the former one, with a mapping from former values to today's where these have changed too.

    The decorated function raises TypeError where an argument is given by both names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for former in names.keys() & kwargs.keys():
                today = names[former]
                name, values = today if isinstance(today, tuple) else (today, {})
                if name in kwargs:
                    raise TypeError(f"{function.__qualname__}: expected one of {former}= and {name}=, got both")
                value = kwargs.pop(former)
                if values and value in values:
                    _warn(f"{former}={value!r}", f"{name}={values[value]!r}", stacklevel=4)
                    value = values[value]
                else:  # the value is not shown, as it may be a private array
                    _warn(f"{former}=", f"{name}=", stacklevel=4)
                kwargs[name] = value
            return function(*args, **kwargs)

        return call

    return decorate


def former_value(argument: str, value: str, today: str) -> None:
    """Warn that a value of an argument has a new name."""
    _warn(f"{argument}={value!r}", f"{argument}={today!r}", stacklevel=5)


def accept_former_methods(cls: type, **names: str) -> None:
    """Rename the methods of a user's subclass that have former names, with a warning.

    Args:
        cls: the new subclass, from ``__init_subclass__``.
        names: today's name by the former one.
    """
    for former, today in names.items():
        defined = vars(cls).get(former)
        if defined is not None and today not in vars(cls) and not isinstance(defined, FormerName):
            frames = 5 if isinstance(cls, ABCMeta) else 4  # an abstract class is made by abc, one frame further away
            _warn(f"{cls.__name__}.{former}", f"{cls.__name__}.{today}", frames)
            setattr(cls, today, defined)


class FormerName:
    """Descriptor for the former name of a method or an attribute: ``own = FormerName("rows_of")`` in the class body."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._former = name

    def __get__(self, instance: Any, owner: type) -> Any:
        _warn(f"{owner.__name__}.{self._former}", f"{owner.__name__}.{self._name}")
        return getattr(owner if instance is None else instance, self._name)


def _warn(former: str, name: str, stacklevel: int = 3) -> None:
    warnings.warn(
        f"{former} is called {name} from 0.4 on; the former name goes with 0.5", DeprecationWarning, stacklevel
    )
