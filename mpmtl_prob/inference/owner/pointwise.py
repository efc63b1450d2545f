"""Log likelihoods and predictions of owners' posteriors for every draw and row, by which ArviZ checks models.

They are as private as the rows, because targets can be computed from them and the features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.prediction import row_blocks, single_holds, stream
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.likelihoods import Likelihood

#: The groups of a tree with a number per row.
GROUPS = ("posterior_predictive", "log_likelihood", "observed_data")
#: Largest size of these groups, in bytes.
LARGEST = 2**32


def pointwise_groups(
    likelihood: Likelihood, tasks: TaskData, draws: Mapping[str, FloatArray], shape: tuple[int, int]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of :data:`GROUPS` by name; none where the likelihood has no pointwise density, or without targets.

    Predictions of a task do not depend on the rows of others. Arrays are in single precision where that is accurate enough.

    Args:
        likelihood: of the targets.
        tasks: the rows, N.
        draws: draws of W, (S, d, m), and of the likelihood's other quantities, (S, m), by name.
        shape: numbers of chains and of draws of each, whose product is S.

    Raises:
        ValueError: groups of more than four gibibytes.
    """
    if not tasks.has_targets:
        return {}
    W = draws["W"]
    others = {name: value for name, value in draws.items() if name != "W"}
    kind = _kind(likelihood, tasks.targets, others.get("sigma", np.ones(1)).min())
    if (size := len(W) * tasks.num_rows * (4 + np.dtype(kind).itemsize)) > LARGEST:
        raise ValueError(
            f"pointwise: expected at most {LARGEST / 2**30:.3g} GiB of numbers per draw and row, got {len(W)} draws of "
            f"{tasks.num_rows} rows, {size / 2**30:.3g} GiB; leave them out, to_arviz(pointwise=False), or ask for some "
            "tasks, to_arviz(tasks.take([0]))"
        )
    density = np.empty((len(W), tasks.num_rows), dtype=np.float32)
    predicted = np.empty_like(density, dtype=kind)
    for i in range(tasks.num_tasks):
        of_task = {name: value[:, i] for name, value in others.items()}
        rng = stream(0, i)
        for rows in row_blocks(tasks.offsets, i, len(W)):
            with np.errstate(all="ignore"):  # a warning would tell about one task
                pointwise = likelihood.pointwise(tasks, rows, W[:, :, i] @ tasks.rows[rows].T, of_task, rng)
                if pointwise is None:
                    return {}
                density[:, rows], predicted[:, rows] = pointwise
    by_chain = (*shape, tasks.num_rows)
    observed = tasks.targets.astype(kind if np.issubdtype(kind, np.integer) else np.float64)
    return dict(zip(GROUPS, (predicted.reshape(by_chain), density.reshape(by_chain), observed), strict=True))


def _kind(likelihood: Likelihood, targets: FloatArray, error: float) -> type[np.generic]:
    """Return the type of predictions: integers for labels and counts, which ArviZ plots differently, otherwise floats."""
    if likelihood.families is not None and (targets == np.floor(targets)).all() and np.abs(targets).max() < 2**53:
        return np.int64
    return np.float32 if single_holds(targets, error) else np.float64
