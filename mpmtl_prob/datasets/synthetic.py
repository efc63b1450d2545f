"""Synthetic tasks of the MP-MTL papers (TPAMI 2022, section 5.1), with the true weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.tasks import TaskData


class Synthetic(NamedTuple):
    """Synthetic data: training and test tasks, and the true weights W (d, m)."""

    train: TaskData
    test: TaskData
    W: FloatArray


def synthetic_low_rank(
    num_tasks: int = 320,
    num_features: int = 30,
    rows: int = 30,
    test_rows: int = 270,
    *,
    variance: float = 62.5,
    similarity: float = 0.95,
    group: int = 75,
    seed: int = 0,
) -> Synthetic:
    """Simulate groups of similar tasks, so that W (d x m) is nearly of low rank.

    Every row of W is normal with a block covariance over tasks: ``variance`` on the diagonal, ``similarity * variance``
    within a group, 0 across. X is standard normal with rows scaled to unit length, the noise is N(0, 1).

    The papers give neither the scale nor the similarity. With the defaults ridge regression has a pooled nMSE near .15
    and the non-private trace norm near .05, which is two thirds of the papers' gap (.158 and .018). With ``similarity=1.0``
    the two have .15 and .027: `mpmtl-prob reproduce` makes the papers' figures with that.

    Args:
        num_tasks: number of tasks m.
        num_features: number of features d.
        rows: training rows of a task.
        test_rows: test rows of a task.
        variance: variance of one weight.
        similarity: correlation of two tasks of a group.
        group: number of tasks in a group; the last group has the remaining ones.
        seed: seed of the generator.

    Raises:
        ValueError: a count below 1, or similarity outside [0, 1].
    """
    _check_counts(num_tasks=num_tasks, num_features=num_features, rows=rows, test_rows=test_rows, group=group)
    if not 0 <= similarity <= 1:
        raise ValueError(f"similarity: expected a correlation in [0, 1], got {similarity!r}")
    rng = np.random.default_rng(seed)
    label = np.arange(num_tasks) // group
    common = rng.standard_normal((num_features, label[-1] + 1))[:, label]
    of_task = rng.standard_normal((num_features, num_tasks))
    W = np.sqrt(variance) * (np.sqrt(similarity) * common + np.sqrt(1 - similarity) * of_task)
    return _regression(W, rows, test_rows, rng)


def synthetic_group_sparse(
    num_tasks: int = 320,
    num_features: int = 30,
    rows: int = 30,
    test_rows: int = 270,
    *,
    active: int = 4,
    seed: int = 0,
) -> Synthetic:
    """Simulate tasks that use the same few features: the first ``active`` rows of W uniform on [-50, -1] u [1, 50], else 0.

    Arguments, X and noise are as in :func:`synthetic_low_rank`.
    """
    _check_counts(num_tasks=num_tasks, num_features=num_features, rows=rows, test_rows=test_rows, active=active)
    if active > num_features:
        raise ValueError(f"active: expected at most num_features = {num_features}, got {active}")
    rng = np.random.default_rng(seed)
    W = np.zeros((num_features, num_tasks))
    size = rng.uniform(1, 50, (active, num_tasks))
    sign = rng.choice([-1.0, 1.0], (active, num_tasks))
    W[:active] = sign * size
    return _regression(W, rows, test_rows, rng)


def _regression(W: FloatArray, rows: int, test_rows: int, rng: np.random.Generator) -> Synthetic:
    d, m = W.shape
    X = rng.standard_normal((m, rows + test_rows, d))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    y = (X @ W.T[..., None])[..., 0] + rng.standard_normal((m, rows + test_rows))
    parts = [TaskData.from_lists(list(X[:, part]), list(y[:, part])) for part in (slice(rows), slice(rows, None))]
    return Synthetic(parts[0], parts[1], W)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}: expected a positive whole number, got {value!r}")
