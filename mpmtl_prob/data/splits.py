"""Which rows of every task go where when they are cut by chance: into two parts, or into folds.

Rows are cut in every task separately. Where tasks share subjects whole subjects are cut, whatever the task.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.checks import in_range, whole

Counts = NDArray[np.int64]


def in_first_part(
    row_counts: Counts, subjects: Counts | None, fraction: float, seed: int, least: int, names: Sequence[Hashable]
) -> NDArray[np.bool_]:
    """Return which rows go to the first of two parts, (N,).

    Args:
        row_counts: of every task, (m,).
        subjects: whom a row is about, (N,); None where every row is about somebody else.
        fraction: of every task's rows, or of all subjects, in (0, 1).
        seed: of the random choice.
        least: rows of every task that the first part keeps; the second keeps one.
        names: of the tasks, for the error.

    Raises:
        ValueError: fraction outside (0, 1), or a task with too few rows.
    """
    in_range("fraction", fraction, 0, 1)
    whole("seed", seed, 0)
    if row_counts.min() <= least:
        few = names[int(row_counts.argmin())]
        raise ValueError(
            f"tasks: expected {least + 1} rows or more of each for a split, got {row_counts.min()} of {few!r}"
        )
    rng = np.random.default_rng(seed)
    if subjects is not None:
        everybody = np.unique(subjects)
        cut = int(np.clip(round(fraction * len(everybody)), 1, len(everybody) - 1))
        return np.isin(subjects, rng.permutation(everybody)[:cut])
    order = [rng.permutation(count) for count in row_counts]
    first = np.clip(np.round(fraction * row_counts).astype(int), least, row_counts - 1)
    begin = np.cumsum(row_counts) - row_counts
    chosen = np.zeros(row_counts.sum(), dtype=bool)
    chosen[np.concatenate([at + own[:most] for at, own, most in zip(begin, order, first, strict=True)])] = True
    return chosen


def fold_of_rows(row_counts: Counts, subjects: Counts | None, k: int, seed: int) -> Counts:
    """Return which of k folds every row is of, (N,), counted from 0; arguments as of :func:`in_first_part`.

    Raises ValueError unless 2 <= k <= the rows of the smallest task.
    """
    whole("seed", seed, 0)
    if not 2 <= whole("k", k) <= row_counts.min():
        raise ValueError(f"k: expected 2 <= k <= the rows of the smallest task ({row_counts.min()}), got {k!r}")
    rng = np.random.default_rng(seed)
    if subjects is None:
        return np.concatenate([rng.permutation(np.arange(count) % k) for count in row_counts])
    everybody = np.unique(subjects)
    fold: Counts = rng.permutation(np.arange(len(everybody)) % k)[np.searchsorted(everybody, subjects)]
    return fold
