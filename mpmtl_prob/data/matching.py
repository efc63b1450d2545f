"""What data have to do with a fit or a release: names, not positions, say which task and which feature is which."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.tasks import TaskData

#: An index, or all of it, as it is.
Places = NDArray[np.int64] | slice

_SHOWN = 5


def task_data(value: Any, name: str = "tasks", *, targets: bool = True, plain: bool = True) -> TaskData:
    """Return the value, if it is TaskData, with targets unless these are not needed. Raises ValueError for anything else.

    Where targets are needed plain tasks have neither exposure nor weights.
    """
    if not isinstance(value, TaskData):
        raise ValueError(f"{name}: expected TaskData, got {type(value).__name__}; make one with TaskData.from_pandas")
    if targets:
        value.check_targets(name, plain=plain)
    return value


def match_positions(data: TaskData, tasks: Sequence[Hashable], features: Sequence[Hashable]) -> tuple[Places, Places]:
    """Return where weights (..., d, m) of a fit hold those of the data's features and tasks, in the data's own order.

    The data have all features of the fit, and some of its tasks. Tasks without names are as many as the fit's, and in
    their order: of fewer or of other ones nothing says which they are.

    Raises:
        ValueError: no TaskData, a task or a feature that the fit does not know, a feature that is not there, or tasks
            without names where the fit's have names.
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
    """Return where each of the given names stands among the known ones, (len(given),).

    Names that are not equal are compared by :func:`~mpmtl_prob.data.cells.label_text`, which is what files hold.

    Args:
        what: they are names of, for the error.
        given: names.
        known: names.
        of: whose names are known, for the error.
        advice: what to do about other names, for the error.

    Raises:
        ValueError: a name that is not known, or names that do not tell one from another.
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
    """Return where each of the given features stands among the known ones, all of which have to be given, (d,).

    They are found by name, and by position where one side has none, with a warning where the other has: see
    :func:`by_position`.

    Args:
        given: names.
        known: names.
        what: they are names of, for the error.
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
    """Raise ValueError unless these are the known features, in their order."""
    place = columns(given, known, of=of)
    if moved := np.flatnonzero(place != np.arange(len(place))).tolist():
        raise ValueError(
            f"features: expected the order of {of}, got {given[moved[0]]!r} in the place of {known[moved[0]]!r}; make the "
            "tasks with features=[...] in that order"
        )


#: Names are compared as they are, and as files hold them.
_COMPARED: tuple[Callable[[Any], Any], ...] = (lambda name: name, label_text)


def by_position(given: Sequence[Hashable], known: Sequence[Hashable]) -> bool:
    """Return whether one side's features have no names, so that columns are told from one another by their order alone.

    A matrix has the features 0, 1, ..., and so has a table that was made of one. Numbers on both sides are names: what is
    called 4 to 7 here is not what is called 0 to 3 there.
    """
    if len(given) != len(known):
        return False
    pairs = [pair for pair in zip(given, known, strict=True) if pair != (NAME, NAME)]
    first, second = zip(*pairs, strict=True)
    return any(default(one) and not any(map(_is_number, other)) for one, other in ((first, second), (second, first)))


def tell_of_positions(
    given: Sequence[Hashable], known: Sequence[Hashable], *, what: str = "features", of: str = "the fit"
) -> None:
    """Warn where one side alone has names: several columns may be in another order, which nobody would notice."""
    given, known = (tuple(name for name in names if name != NAME) for names in (given, known))
    if default(given) == default(known) or len(known) < 2:
        return
    # never the given names: of a private table without a head they are its first record
    more = f" and {len(known) - _SHOWN} more" if known[_SHOWN:] else ""
    order = f", in the order {', '.join(map(str, known[:_SHOWN]))}{more}" if default(given) else ""
    nameless = "these" if order else f"those of {of}"
    warnings.warn(
        f"{what}: {nameless} have no names, so that columns go by position{order}; give both the same names",
        UserWarning,
        stacklevel=4,
    )


def default(names: tuple[Hashable, ...]) -> bool:
    """Whether these are the names 0, 1, ... of what was given none."""
    return names == tuple(range(len(names)))


def _is_number(name: Hashable) -> bool:
    return label_text(name).removeprefix("-").isdecimal()


def _all(places: NDArray[np.int64], size: int) -> Places:
    return slice(None) if np.array_equal(places, np.arange(size)) else places
