"""Data of tasks as a JAX pytree: arrays are leaves, and everything else is static."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from jax.tree_util import GetAttrKey, register_pytree_with_keys

from mpmtl_prob.data.tasks import TaskData

_LEAVES = ("rows", "targets", "offsets", "subjects", "exposure", "weights")
_SETTINGS = tuple(field.name for field in fields(TaskData) if field.name not in _LEAVES)


def _leaves(tasks: TaskData) -> tuple[tuple[tuple[GetAttrKey, Any], ...], tuple[Any, ...]]:
    """Return the arrays with their names, and as static data everything else, with the size of the longest task."""
    keyed = tuple((GetAttrKey(name), getattr(tasks, name)) for name in _LEAVES)
    return keyed, (tasks.longest, *(getattr(tasks, name) for name in _SETTINGS))


def _of_leaves(settings: tuple[Any, ...], leaves: Iterable[Any]) -> TaskData:
    tasks = object.__new__(TaskData)
    names = (*_LEAVES, "longest", *_SETTINGS)
    for name, value in zip(names, (*leaves, *settings), strict=True):
        object.__setattr__(tasks, name, value)
    return tasks


register_pytree_with_keys(TaskData, _leaves, _of_leaves)
