"""Tasks from lists of matrices and vectors: checked, and stacked one after another."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array
from mpmtl_prob.data.cells import column_names
from mpmtl_prob.data.padding import cells, check_numbers, check_shapes, feature_names, offsets_of, task_names


def of_lists(
    X: Sequence[ArrayLike],
    y: Sequence[ArrayLike] | None,
    tasks: Sequence[Hashable] | None,
    features: Sequence[Hashable] | None,
    subject: Sequence[ArrayLike] | None,
) -> tuple[dict[str, Any], tuple[Hashable, ...], tuple[Hashable, ...]]:
    """Stack the rows of all tasks; return arrays by name, the names of tasks, and those of features.

    Args:
        X: m matrices.
        y: m vectors; None if no target is known.
        tasks: names; default 0, 1, ...
        features: names; default the columns of data frames, or 0, 1, ...
        subject: m vectors with the number of every row's subject, if any.

    Raises:
        ValueError: no tasks, shapes that disagree, or numbers or names that are refused.
    """
    if len(X) == 0:
        raise ValueError("X: expected at least one task, got none")
    if y is not None and len(X) != len(y):
        raise ValueError(f"X and y: expected one entry per task in each, got {len(X)} and {len(y)}")
    names = task_names(tasks, len(X))
    xs = [cells(f"X: task {name!r}", x) for name, x in zip(names, X, strict=True)]
    if y is None:
        ys = [np.full(x.shape[:1], np.nan) for x in xs]
    else:
        ys = [cells(f"y: task {name!r}", v) for name, v in zip(names, y, strict=True)]
    d = xs[0].shape[-1] if xs[0].ndim == 2 else 0
    for name, x, v in zip(names, xs, ys, strict=True):
        check_shapes(name, x, v, d)
    columns = feature_names(features, X, d)
    for name, x, v in zip(names, xs, ys, strict=True):
        check_numbers(name, x, None if y is None else v, columns)
    arrays: dict[str, Any] = {"rows": np.concatenate(xs), "targets": np.concatenate(ys)}
    arrays["offsets"] = offsets_of(list(map(len, ys)))
    if subject is not None:
        subjects = [as_float_array("subject", s, np.int64) for s in subject]
        if [s.shape for s in subjects] != [v.shape for v in ys]:
            raise ValueError("subject: expected one vector per task, with one whole number per row")
        arrays["subjects"] = np.concatenate(subjects)
    return arrays, names, columns


def of_targets(
    X: ArrayLike,
    Y: ArrayLike,
    observed: ArrayLike | None,
    tasks: Sequence[Hashable] | None,
    features: Sequence[Hashable] | None,
) -> tuple[
    list[FloatArray], list[FloatArray], list[NDArray[np.int64]], Sequence[Hashable] | None, Sequence[Hashable] | None
]:
    """Split a matrix of targets: return X, y and subjects of every column of Y, and the names of tasks and features.

    Args:
        X: (subjects, d).
        Y: (subjects, m).
        observed: True where a target was observed, (subjects, m); default everywhere.
        tasks: names; default the columns of a data frame.
        features: likewise.

    Raises:
        ValueError: shapes that disagree, or an observed target that is not a number.
    """
    columns = (column_names(X) or None) if features is None else features
    names = (column_names(Y) or None) if tasks is None else tasks
    X, Y = cells("X", X), cells("Y", Y)
    seen = np.ones(Y.shape, dtype=bool) if observed is None else np.asarray(observed, dtype=bool)
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y):
        raise ValueError(f"X and Y: expected matrices with a row per subject, got shapes {X.shape} and {Y.shape}")
    if seen.shape != Y.shape:
        raise ValueError(f"observed: expected shape {Y.shape} as Y, got {seen.shape}")
    if missing := int(np.sum(seen & ~np.isfinite(Y))):
        raise ValueError(
            f"Y: expected finite numbers, got {missing} cells with others; observed=np.isfinite(Y) leaves them out"
        )
    rows = [np.flatnonzero(column) for column in seen.T]
    return [X[r] for r in rows], [Y[r, i] for i, r in enumerate(rows)], rows, names, columns
