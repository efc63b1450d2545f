"""What data have to do with a fit or a release: names, not positions, say which task and which feature is which."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._cells import label_text
from mpmtl_prob.intercept import NAME
from mpmtl_prob.tasks import TaskData

#: An index, or all of it, as it is.
Places = NDArray[np.int64] | slice

_SHOWN = 5


def task_data(value: Any, name: str = "tasks", *, targets: bool = True) -> TaskData:
    """Return the value, if it is TaskData, with targets unless these are not needed. Raises ValueError for anything else."""
    if not isinstance(value, TaskData):
        raise ValueError(f"{name}: expected TaskData, got {type(value).__name__}; make one with TaskData.from_pandas")
    if targets:
        value.check_targets(name)
    return value


def places(data: TaskData, tasks: Sequence[Hashable], features: Sequence[Hashable]) -> tuple[Places, Places]:
    """Where weights (..., d, m) of a fit hold those of the data's features and tasks, in the data's own order.

    The data have all features of the fit, and some of its tasks.

    Raises:
        ValueError: no TaskData, a task or a feature that the fit does not know, or a feature that is not there.
    """
    given = task_data(data, targets=False)
    row, column = stand("features", given.features, features, whole=True), stand("tasks", given.tasks, tasks)
    return _all(row, len(features)), _all(column, len(tasks))


def stand(
    what: str, given: Sequence[Hashable], known: Sequence[Hashable], *, whole: bool = False, of: str = "the fit"
) -> NDArray[np.int64]:
    """Where each of the given names stands among the known ones, (len(given),).

    Names that are not equal are compared by :func:`~mpmtl_prob._cells.label_text`, which is what files hold. Default names
    0, 1, ... that have nothing in common with as many others are no names, and go by position.

    Args:
        what: they are names of, for the error.
        given: names.
        known: names.
        whole: all known names have to be given.
        of: whose names are known, for the error.

    Raises:
        ValueError: a name that is not known, or not given and has to be, or names that do not tell one from another.
    """
    if whole and len(given) != len(known):
        raise ValueError(f"{what}: expected {len(known)} as in {of}, got {len(given)}")
    for name in _COMPARED:
        place = {name(k): i for i, k in enumerate(known)}
        found = [place[name(g)] for g in given if name(g) in place]
        if len(place) == len(known) and len(set(found)) == len(given):
            return np.array(found, dtype=np.int64)
    if _by_position(given, known):
        return np.arange(len(known))
    others = [g for g in given if label_text(g) not in set(map(label_text, known))]
    got = f"others: {', '.join(map(repr, others[:_SHOWN]))}" if others else "a name twice"
    raise ValueError(f"{what}: expected those of {of}, got {got}")


def in_order(given: Sequence[Hashable], known: Sequence[Hashable], of: str) -> None:
    """Raise ValueError unless these are the known features, in their order."""
    place = stand("features", given, known, whole=True, of=of)
    if moved := np.flatnonzero(place != np.arange(len(place))).tolist():
        raise ValueError(
            f"features: expected the order of {of}, got {given[moved[0]]!r} in the place of {known[moved[0]]!r}; make the "
            "tasks with features=[...] in that order"
        )


#: Names are compared as they are, and as files hold them.
_COMPARED: tuple[Callable[[Any], Any], ...] = (lambda name: name, label_text)


def _by_position(given: Sequence[Hashable], known: Sequence[Hashable]) -> bool:
    if len(given) != len(known):
        return False
    pairs = [pair for pair in zip(given, known, strict=True) if pair != (NAME, NAME)]
    first, second = zip(*pairs, strict=True)
    return (default(first) or default(second)) and not set(map(label_text, first)) & set(map(label_text, second))


def default(names: tuple[Hashable, ...]) -> bool:
    """Whether these are the names 0, 1, ... of what was given none."""
    return names == tuple(range(len(names)))


def _all(places: NDArray[np.int64], size: int) -> Places:
    return slice(None) if np.array_equal(places, np.arange(size)) else places
