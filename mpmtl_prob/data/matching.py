"""Matching of data with a fit or a release: tasks and features are matched by name, not by position."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.tasks import TaskData

#: An index array, or a slice where everything is taken in order.
Places = NDArray[np.int64] | slice

_SHOWN = 5


def task_data(value: Any, name: str = "tasks", *, targets: bool = True, plain: bool = True) -> TaskData:
    """Check that the value is TaskData, with targets unless ``targets=False``, and return it. Raises ValueError otherwise.

    Tasks with targets have to be ``plain``, without exposure or weights, unless ``plain=False``.
    """
    if not isinstance(value, TaskData):
        raise ValueError(f"{name}: expected TaskData, got {type(value).__name__}; make one with TaskData.from_pandas")
    if targets:
        value.check_targets(name, plain=plain)
    return value


def match_positions(data: TaskData, tasks: Sequence[Hashable], features: Sequence[Hashable]) -> tuple[Places, Places]:
    """Return the positions of the data's features and tasks in weights (..., d, m) of a fit, in the data's order.

    The data have all features of the fit, and some of its tasks. Tasks without names have to be as many as the fit's and in
    the same order, as nothing else says which they are.

    Raises:
        ValueError: not TaskData, a task or a feature that the fit does not know, a missing feature, or tasks without names
            where the fit's have names.
    """
    given = task_data(data, targets=False)
    row = columns(given.features, features)
    if given.numbered and list(map(label_text, tasks)) != list(map(str, range(given.num_tasks))):
        raise ValueError(
            f"tasks: expected names, by which those of the fit are found, such as {tasks[0]!r}, got {given.num_tasks} tasks "
            f"without names for {len(tasks)} of the fit; make them with tasks=[...]"
        )
    column = match_names("tasks", given.tasks, tasks, advice="take these out, or fit again with them")
    return _all(row, len(features)), _all(column, len(tasks))


def match_names(
    what: str, given: Sequence[Hashable], known: Sequence[Hashable], *, of: str = "the fit", advice: str
) -> NDArray[np.int64]:
    """Return the position of each given name among the known ones, (len(given),).

    Names are compared as they are, and else by :func:`~mpmtl_prob.data.cells.label_text`, which files hold.

    Args:
        what: the kind of names, for the error.
        given: names to look up.
        known: names to look in.
        of: whose names are known, for the error.
        advice: what to do about other names, for the error.

    Raises:
        ValueError: a name that is not known, or names that are not distinct.
    """
    for name in _COMPARED:
        place = {name(k): i for i, k in enumerate(known)}
        positions = [place[name(g)] for g in given if name(g) in place]
        if len(place) == len(known) and len(set(positions)) == len(given):
            return np.array(positions, dtype=np.int64)
    others = [g for g in given if label_text(g) not in set(map(label_text, known))]
    got = f"others: {', '.join(map(repr, others[:_SHOWN]))}" if others else "a name twice"
    raise ValueError(f"{what}: expected those of {of}, got {got}; {advice}")


def columns(
    given: Sequence[Hashable], known: Sequence[Hashable], *, what: str = "features", of: str = "the fit"
) -> NDArray[np.int64]:
    """Return the position of each given feature among the known ones, all of which have to be given, (d,).

    Features are matched by name. Where one side has no names, they are matched by position (:func:`by_position`), with a
    warning if the other side has names.

    Args:
        given: names to look up.
        known: names to look in.
        what: the kind of names, for the error.
        of: whose names are known, for the error.

    Raises:
        ValueError: another number of features, or other names.
    """
    if len(given) != len(known):
        raise ValueError(f"{what}: expected {len(known)} as in {of}, got {len(given)}")
    if by_position(given, known):
        tell_of_positions(given, known, what=what, of=of)
        return np.arange(len(known))
    return match_names(what, given, known, of=of, advice=f"give columns the names that they have in {of}")


def in_order(given: Sequence[Hashable], known: Sequence[Hashable], of: str) -> None:
    """Raise ValueError unless the given features are the known ones, in the same order."""
    place = columns(given, known, of=of)
    if moved := np.flatnonzero(place != np.arange(len(place))).tolist():
        raise ValueError(
            f"features: expected the order of {of}, got {given[moved[0]]!r} in the place of {known[moved[0]]!r}; make the "
            "tasks with features=[...] in that order"
        )


#: Forms in which names are compared: as they are, then as files hold them.
_COMPARED: tuple[Callable[[Any], Any], ...] = (lambda name: name, label_text)


def by_position(given: Sequence[Hashable], known: Sequence[Hashable]) -> bool:
    """Return True if one side's features have no names, so that only their order tells which is which.

    The columns of a matrix are called 0, 1, ..., and so are those of a table made from one. If both sides have numbers, these
    are names: features 4 to 7 on one side are not features 0 to 3 on the other.
    """
    if len(given) != len(known):
        return False
    pairs = [pair for pair in zip(given, known, strict=True) if pair != (NAME, NAME)]
    if not pairs:
        return False
    first, second = zip(*pairs, strict=True)
    return any(default(one) and not any(map(_is_number, other)) for one, other in ((first, second), (second, first)))


def tell_of_positions(
    given: Sequence[Hashable], known: Sequence[Hashable], *, what: str = "features", of: str = "the fit"
) -> None:
    """Warn if one side alone has names: several columns may be in another order, which nobody would notice."""
    given, known = (tuple(name for name in names if name != NAME) for names in (given, known))
    if default(given) == default(known) or len(known) < 2:
        return
    # The given names are not shown: in a private table without a header they are its first record.
    more = f" and {len(known) - _SHOWN} more" if known[_SHOWN:] else ""
    order = f", in the order {', '.join(map(str, known[:_SHOWN]))}{more}" if default(given) else ""
    nameless = "these" if order else f"those of {of}"
    warnings.warn(
        f"{what}: {nameless} have no names, so that columns go by position{order}; give both the same names",
        UserWarning,
        stacklevel=4,
    )


def default(names: tuple[Hashable, ...]) -> bool:
    """Return True for the default names 0, 1, ..."""
    return names == tuple(range(len(names)))


def _is_number(name: Hashable) -> bool:
    return label_text(name).removeprefix("-").isdecimal()


def _all(places: NDArray[np.int64], size: int) -> Places:
    return slice(None) if np.array_equal(places, np.arange(size)) else places
