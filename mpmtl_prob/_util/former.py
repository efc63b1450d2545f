"""Former names of 0.3.0, which warn and work for one version."""

from __future__ import annotations

import warnings
from abc import ABCMeta
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that knows former names of what it exports.

    Args:
        module: its ``__name__``.
        names: former name to today's; that of another module, with the module before it (``"mpmtl_prob.releases:Release"``).
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
    """Return a decorator for a function that goes on taking arguments by their former names.

    Args:
        names: former name to today's, with a mapping of former values to today's where these have changed too.

    Raises:
        TypeError: from the function, where an argument is given by both names.
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
                else:  # which may be somebody's array: it is not shown
                    _warn(f"{former}=", f"{name}=", stacklevel=4)
                kwargs[name] = value
            return function(*args, **kwargs)

        return call

    return decorate


def former_value(argument: str, value: str, today: str) -> None:
    """Warn that the value of an argument has another name today."""
    _warn(f"{argument}={value!r}", f"{argument}={today!r}", stacklevel=5)


def accept_former_methods(cls: type, **names: str) -> None:
    """Give a new subclass that defines methods by their former names those of today, with a warning.

    Args:
        cls: as ``__init_subclass__`` has it.
        names: former name to today's.
    """
    for former, today in names.items():
        defined = vars(cls).get(former)
        if defined is not None and today not in vars(cls) and not isinstance(defined, FormerName):
            frames = 5 if isinstance(cls, ABCMeta) else 4  # abc makes the class where it is abstract
            _warn(f"{cls.__name__}.{former}", f"{cls.__name__}.{today}", frames)
            setattr(cls, today, defined)


class FormerName:
    """A method's or an attribute's former name: ``own = FormerName("rows_of")`` in the body of its class."""

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
