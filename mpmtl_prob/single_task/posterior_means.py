"""Posterior means of all tasks, alone, task by task: what every owner knows before anything is shared.

Every task goes through by itself, so that its mean is a function of its own rows down to the last bit, and memory stays
small for any number of them. Where a task has fewer rows than features its weights' mean lies in the span of the rows: with
an orthonormal basis Q of that span, v = Q u turns d features into n, and :mod:`mpmtl_prob.single_task.conjugate` is asked
about u.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.gram import Gram, gram, unit
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.single_task import conjugate


class Means(NamedTuple):
    """Posterior means with the ridge penalty averaged over each task's own evidence.

    Attributes:
        scaled: of v = S^{-1} w, in which tasks are compared, (d, m).
        scale: the diagonals of S, (m, d).
    """

    scaled: FloatArray
    scale: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    @property
    def W(self) -> FloatArray:
        """Of the weights, (d, m)."""
        with np.errstate(over="ignore"):
            return self.scale.T * self.scaled


def posterior_means(
    tasks: TaskData,
    *,
    scaling: str = "pareto",
    prior: conjugate.SnrPrior | None = None,
) -> Means:
    """Every task's posterior mean, as :func:`mpmtl_prob.single_task.conjugate.gaussian_posteriors` has it with Omega = I.

    A task whose numbers leave double precision says nothing: its mean is zero. An error would tell the others.

    Args:
        tasks: the rows.
        scaling: of every task's features by its own rows, as of :func:`mpmtl_prob.release`.
        prior: of the signal-to-noise ratio; default that of the owners' posteriors, :data:`conjugate.SLOPES` of contrasts.
    """
    if prior is None:
        prior = conjugate.SLOPES if tasks.centred else conjugate.SnrPrior()
    each = [_mean(*tasks.rows_of(i), scaling, prior) for i in range(tasks.num_tasks)]
    scaled, scale = zip(*each, strict=True)
    return Means(np.stack(scaled, axis=1), np.stack(scale))


def _mean(X: FloatArray, y: FloatArray, scaling: str, prior: conjugate.SnrPrior) -> tuple[FloatArray, FloatArray]:
    """Of one task with rows X (n, d): the mean of v and the diagonal of S, both (d,)."""
    n, d = X.shape
    size = unit(y)
    with np.errstate(all="ignore"):
        y = y / size
        own = Gram(*(np.asarray(part)[None] for part in gram(X, y)))  # type: ignore[arg-type]
        scale = conjugate.scales(own, scaling)
        if n >= d:
            mean = conjugate.gaussian_posteriors(own, scale=scale, prior=prior).scaled_mean[:, 0]
        else:
            Q, R = np.linalg.qr((X * scale).T)  # X S = R'Q', so that X S v = R'u
            inner = Gram((R @ R.T)[None], (R @ y)[None], own.yy, own.n)
            mean = Q @ conjugate.gaussian_posteriors(inner, prior=prior).scaled_mean[:, 0]
        mean = mean * size
    return np.where(np.isfinite(mean).all(), mean, 0.0), np.where(np.isfinite(scale[0]).all(), scale[0], 1.0)
