"""Log likelihoods and predictions of owners' posteriors for every draw and row, by which ArviZ checks models.

They are the owners' own as rows are: with features known, they let targets be worked back, to the last digit.
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

#: The groups of a tree that hold a number per row.
GROUPS = ("posterior_predictive", "log_likelihood", "observed_data")
#: Bytes that they may take unasked.
LARGEST = 2**32


def pointwise_groups(
    likelihood: Likelihood, tasks: TaskData, draws: Mapping[str, FloatArray], shape: tuple[int, int]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of :data:`GROUPS` by name; none where the likelihood does not know them, or there is no target.

    Draws anew of a task do not depend on the rows of others. In single precision where that loses nothing.

    Args:
        likelihood: of the targets.
        tasks: the rows, N.
        draws: of W, (S, d, m), and of what the likelihood knows beside, (S, m), by name.
        shape: chains, and draws of each, of which there are S.

    Raises:
        ValueError: groups of more than four gibibytes.
    """
    if not tasks.has_targets:
        return {}
    W, beside = draws["W"], {name: value for name, value in draws.items() if name != "W"}
    kind = _kind(likelihood, tasks.targets, beside.get("sigma", np.ones(1)).min())
    if (size := len(W) * tasks.num_rows * (4 + np.dtype(kind).itemsize)) > LARGEST:
        raise ValueError(
            f"pointwise: expected at most {LARGEST / 2**30:.3g} GiB of numbers per draw and row, got {len(W)} draws of "
            f"{tasks.num_rows} rows, {size / 2**30:.3g} GiB; leave them out, to_arviz(pointwise=False), or ask for some "
            "tasks, to_arviz(tasks.take([0]))"
        )
    density = np.empty((len(W), tasks.num_rows), dtype=np.float32)
    anew = np.empty_like(density, dtype=kind)
    for i in range(tasks.num_tasks):
        own_draws, rng = {name: value[:, i] for name, value in beside.items()}, stream(0, i)
        for own in row_blocks(tasks.offsets, i, len(W)):
            with np.errstate(all="ignore"):  # a warning would tell of one task
                known = likelihood.pointwise(tasks, own, W[:, :, i] @ tasks.rows[own].T, own_draws, rng)
                if known is None:
                    return {}
                density[:, own], anew[:, own] = known
    by_chain = lambda values: values.reshape(*shape, tasks.num_rows)
    observed = tasks.targets.astype(kind if np.issubdtype(kind, np.integer) else np.float64)
    return dict(zip(GROUPS, (by_chain(anew), by_chain(density), observed), strict=True))


def _kind(likelihood: Likelihood, targets: FloatArray, error: float) -> type[np.generic]:
    """Labels and counts are whole numbers, for which ArviZ has pictures of their own; unless a target is none."""
    if likelihood.families is not None and (targets == np.floor(targets)).all() and np.abs(targets).max() < 2**53:
        return np.int64
    return np.float32 if single_holds(targets, error) else np.float64
