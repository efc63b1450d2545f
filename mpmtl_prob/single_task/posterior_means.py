"""Posterior means of single tasks, each from its own rows alone.

Every task is computed alone, so that its mean depends on its own rows only, in every bit, and memory stays small for any
number of tasks. If a task has fewer rows than features, the mean of its weights lies in the span of the rows. With an
orthonormal basis Q of that span, v = Q u reduces d features to n, and :mod:`mpmtl_prob.single_task.conjugate` computes u.
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
    """Posterior means with the ridge penalty averaged by each task's own evidence (empirical Bayes).

    Attributes:
        scaled: means of v = S^{-1} w, in which tasks are compared, (d, m).
        scale: the diagonals of S, (m, d).
    """

    scaled: FloatArray
    scale: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    @property
    def W(self) -> FloatArray:
        """Posterior means of the weights, (d, m)."""
        with np.errstate(over="ignore"):
            return self.scale.T * self.scaled


def posterior_means(
    tasks: TaskData,
    *,
    scaling: str = "pareto",
    prior: conjugate.SnrPrior | None = None,
) -> Means:
    """Compute every task's posterior mean, as :func:`mpmtl_prob.single_task.conjugate.gaussian_posteriors` with Omega = I.

    A task whose numbers leave double precision has a mean of zero, as an error would reveal it to others.

    Args:
        tasks: the rows.
        scaling: scaling of every task's features by its own rows, as for :func:`mpmtl_prob.release`.
        prior: prior of the signal-to-noise ratio; default that of the owners' posteriors, :data:`conjugate.SLOPES` for
            contrasts.
    """
    if prior is None:
        prior = conjugate.SLOPES if tasks.centred else conjugate.SnrPrior()
    pairs = [_mean(*tasks.rows_of(i), scaling, prior) for i in range(tasks.num_tasks)]
    scaled, scale = zip(*pairs, strict=True)
    return Means(np.stack(scaled, axis=1), np.stack(scale))


def _mean(X: FloatArray, y: FloatArray, scaling: str, prior: conjugate.SnrPrior) -> tuple[FloatArray, FloatArray]:
    """Return the mean of v and the diagonal of S, both (d,), for one task with rows X (n, d)."""
    n, d = X.shape
    size = unit(y)
    with np.errstate(all="ignore"):
        y = y / size
        task_gram = Gram(*(np.asarray(part)[None] for part in gram(X, y)))  # type: ignore[arg-type]
        scale = conjugate.scales(task_gram, scaling)
        if n >= d:
            mean = conjugate.gaussian_posteriors(task_gram, scale=scale, prior=prior).scaled_mean[:, 0]
        else:
            Q, R = np.linalg.qr((X * scale).T)  # X S = R'Q', so that X S v = R'u
            inner = Gram((R @ R.T)[None], (R @ y)[None], task_gram.yy, task_gram.n)
            mean = Q @ conjugate.gaussian_posteriors(inner, prior=prior).scaled_mean[:, 0]
        mean = mean * size
    return np.where(np.isfinite(mean).all(), mean, 0.0), np.where(np.isfinite(scale[0]).all(), scale[0], 1.0)
