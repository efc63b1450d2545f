"""Draft of a study's file, generated from an example table, with comments and with entries to complete by hand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.cells import as_number, label_text
from mpmtl_prob.schema.columns import day_of, is_empty

#: A text column with more levels is not a category, but holds names or free text.
_MOST_LEVELS = 20
_OPEN = "settle this by hand: add the number, and take the # away"


@dataclass(frozen=True)
class Example:
    """Example table for a draft.

    Attributes:
        columns: cells of the example's columns, by name.
        task: the column with the task of every row.
        target: the column that is predicted.
        num_tasks: number of tasks of the study; None for those in the example.
        public: True if the draft may take numbers from it, as it is public or synthetic.
    """

    columns: Mapping[str, Sequence[Any]]
    task: str
    target: str
    num_tasks: int | None = None
    public: bool = False


def draft(
    example: Example, *, epsilon: float, delta: float | None = None, row: str = "row", exclude: Sequence[str] = ()
) -> str:
    """Return the text of a study's file, for people to read, complete and agree on.

    Args:
        example: the example table. If it is not public, the draft has levels and types only.
        epsilon: epsilon of the release.
        delta: delta of the release; default 1 / (m log m) for 30 tasks or more.
        row: the word for a row.
        exclude: columns that are no features.

    Raises:
        ValueError: a missing column, no column left as a feature, or a promise or number of tasks out of range.
    """
    positive("epsilon", epsilon)
    if delta is not None:
        in_range("delta", delta, 0, 1)
    if example.num_tasks is not None:
        whole("tasks", example.num_tasks, 2)
    for name in (example.task, example.target, *exclude):
        if name not in example.columns:
            raise ValueError(
                f"columns: expected {name!r} among those of the example, got {len(example.columns)} others"
            )
    ids = list(dict.fromkeys(label_text(cell) for cell in example.columns[example.task] if not is_empty(cell)))
    names = [name for name in example.columns if name not in (example.task, example.target, *exclude)]
    if not names:
        raise ValueError("columns: expected at least one beside the task and the target, got none")
    parts = [_head(example, ids, row), _target(example)]
    parts += [_column(name, example.columns[name], example) for name in names]
    return "\n".join([*parts, _release(len(ids) if example.num_tasks is None else example.num_tasks, epsilon, delta)])


def _head(example: Example, ids: Sequence[str], row: str) -> str:
    m = len(ids) if example.num_tasks is None else example.num_tasks
    who = f'tasks = {m}  # how many {plural(example.task)} take part; or, better, their ids:\n# participants = ["H01", "H02"]'
    if example.public and m == len(ids):
        who = f"participants = [{', '.join(map(_text, ids))}]"
    return f"""\
# A study: what everybody agrees on before anybody looks at a row. This file is public.
# It is a draft: read it aloud in a meeting, correct it, and take out every line "settled = false" whose section is agreed.
# Messages and the release are bound to what it says; comments do not matter.

[study]
task = {_text(example.task)}  # the column that says whose a row is
row = {_text(row)}  # what a row is called
{who}
# person = "patient"  # the column of whom a row is about: several rows of one person are refused
# missing_values = ["", "NA"]  # what means that a cell is empty
# formula = "{example.target} ~ age + C(insurance) * emergency + bs(bmi, knots=[20, 25, 30])"  # default: all columns below
settled = false
"""


def _target(example: Example) -> str:
    cells = [cell for cell in example.columns[example.target] if not is_empty(cell)]
    head = f"[target]\ncolumn = {_text(example.target)}\n"
    words = sorted({label_text(cell) for cell in cells})
    if len(words) == 2:
        share = sum(label_text(cell) == words[1] for cell in cells) / len(cells)
        known = f"baseline = {_short(share)}" if example.public else f"# baseline = 0.1  # {_OPEN}"
        return (
            f'{head}kind = "binary"\nlabels = [{_text(words[0])}, {_text(words[1])}]  # the second is what is predicted\n'
            f"{known}  # probability of the second where all columns are at their centres\n"
            'missing = "error"  # or "drop"\nsettled = false\n'
        )
    return (
        f'{head}kind = "number"  # or "binary" with labels, "count" with a baseline\nunit = "units"\n'
        f"{_moments(cells, example.public)}"
        'missing = "error"  # or "drop" the row\nsettled = false\n'
    )


def _column(name: str, cells: Sequence[Any], example: Example) -> str:
    there = [cell for cell in cells if not is_empty(cell)]
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
    head = f"[columns.{key}]\n"
    missing = 'missing = "error"  # or "drop" the row, "indicator", or a value to put in its place\n'
    if there and all(math.isfinite(as_number(cell)) for cell in there):
        outside = '# range = [0, 120]  # what is possible\nout_of_range = "error"  # or "drop", or "clip"\n'
        body = f'kind = "number"\nunit = "units"\n{_moments(there, example.public)}{outside}{missing}'
    elif there and all(day_of(cell) is not None for cell in there):
        first = min(day for cell in there if (day := day_of(cell)) is not None) if example.public else None
        origin = f"origin = {first}" if first else f"# origin = 2024-01-01  # {_OPEN}"
        since = [(day - first).days for cell in there if first and (day := day_of(cell)) is not None]
        body = f'kind = "date"\n{origin}\nunit = "days"  # or "weeks" or "years"\n{_moments(since, example.public)}{missing}'
    else:
        levels = sorted({label_text(cell) for cell in there})
        # So many levels in few private rows may identify people.
        names = not example.public and 2 * len(levels) > len(there)
        if len(levels) > _MOST_LEVELS or not levels or names:
            lines = f"{len(levels)} levels, as of names: leave it out, or say person = {_text(name)} in [study]"
            return f"# [columns.{key}]  # {lines}\n"
        body = (
            f'kind = "category"\nlevels = [{", ".join(map(_text, levels))}]\n'
            f"reference = {_text(levels[0])}  # to which the others are compared\n"
            '# shares = [0.5, 0.5]  # how often they occur, default all alike\nunknown = "error"  # or "drop", or a level\n'
            f"{missing}"
        )
    return f"{head}{_nested(name, cells, example)}{body}settled = false\n"


def _nested(name: str, cells: Sequence[Any], example: Example) -> str:
    """Return a comment on a column that is constant within every task, as messages do not describe nested groups."""
    by_task: dict[str, set[str]] = {}
    for task, cell in zip(example.columns[example.task], cells, strict=True):
        by_task.setdefault(label_text(task), set()).add(label_text(cell))
    values = [value for group in by_task.values() for value in group]
    if len(by_task) < 2 or any(len(group) > 1 for group in by_task.values()) or len(set(values)) == 1:
        return ""
    task = example.task
    return (
        f"# the same in all rows of a {task}: if {plural(task)} belong to groups by it, they are nested, which no message\n"
        f"# describes; leave the column out, as a {task}'s own intercept holds what it says\n"
    )


def _release(num_tasks: int, epsilon: float, delta: float | None) -> str:
    said = "# delta = 0.001  # default 1 / (m log m)" if delta is None else f"delta = {delta!r}"
    if delta is None and num_tasks < 30:
        said = f"delta = 0.001  # of fewer than 30 tasks it has no default; the usual would be {_usual(num_tasks)}"
    return f"""\
[release]
epsilon = {epsilon!r}
{said}
adjacency = "replace"  # a task is compared with any other in its place; or "zero_out": with none
mechanism = "wishart"  # or "gaussian"
settled = false

# [keys]  # public keys, if the study has them: mpmtl-prob keys
# curator = "x25519:..."
# [keys.participants]
# H01 = "ed25519:..."
"""


def _usual(num_tasks: int) -> float:
    return _short(1 / (num_tasks * math.log(num_tasks))) if num_tasks > 1 else 1.0


def _moments(cells: Sequence[Any], public: bool) -> str:
    """Return lines with a centre and a scale, which have numbers only if the example is public."""
    if not public:
        return f"# centre = 0.0  # {_OPEN}: a public guess of the average\n# scale = 1.0  # {_OPEN}: of the deviation\n"
    numbers: FloatArray = np.array([as_number(cell) for cell in cells])
    numbers = numbers[np.isfinite(numbers)]
    centre = _short(float(numbers.mean())) if len(numbers) else 0.0
    scale = _short(float(numbers.std())) if len(numbers) else 1.0
    return f"centre = {centre!r}  # a public guess of the average\nscale = {scale or 1.0!r}  # and of the deviation\n"


def _short(value: float) -> float:
    return float(f"{value:.2g}")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
