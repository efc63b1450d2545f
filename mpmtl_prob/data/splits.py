"""Random splits of rows: training and test parts, and folds of cross-validation.

Every task's rows are divided separately. Where tasks share subjects, subjects are divided instead, across all tasks.
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
    """Return True for the rows in the first of two parts, (N,).

    Args:
        row_counts: number of rows of every task, (m,).
        subjects: number of every row's subject, (N,); None if every row has its own subject.
        fraction: share of every task's rows, or of all subjects, in (0, 1).
        seed: seed of the random choice.
        least: minimum number of rows of every task in the first part; the second has at least one.
        names: names of the tasks, for the error.

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
        distinct = np.unique(subjects)
        num_first = int(np.clip(round(fraction * len(distinct)), 1, len(distinct) - 1))
        return np.isin(subjects, rng.permutation(distinct)[:num_first])
    orders = [rng.permutation(count) for count in row_counts]
    num_first = np.clip(np.round(fraction * row_counts).astype(int), least, row_counts - 1)
    begin = np.cumsum(row_counts) - row_counts
    chosen = np.zeros(row_counts.sum(), dtype=bool)
    first_rows = [at + order[:number] for at, order, number in zip(begin, orders, num_first, strict=True)]
    chosen[np.concatenate(first_rows)] = True
    return chosen


def fold_of_rows(row_counts: Counts, subjects: Counts | None, k: int, seed: int) -> Counts:
    """Return the fold of every row, (N,), from 0 to k - 1; arguments as in :func:`in_first_part`.

    Raises ValueError unless 2 <= k <= the rows of the smallest task.
    """
    whole("seed", seed, 0)
    if not 2 <= whole("k", k) <= row_counts.min():
        raise ValueError(f"k: expected 2 <= k <= the rows of the smallest task ({row_counts.min()}), got {k!r}")
    rng = np.random.default_rng(seed)
    if subjects is None:
        return np.concatenate([rng.permutation(np.arange(count) % k) for count in row_counts])
    distinct = np.unique(subjects)
    fold: Counts = rng.permutation(np.arange(len(distinct)) % k)[np.searchsorted(distinct, subjects)]
    return fold
