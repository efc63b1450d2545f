"""Posterior means of all tasks, alone, task by task: what every owner knows before anything is shared.

Nothing of one task depends on another here, so tasks go through in chunks, on a few threads, and memory stays small for
any number of them. Where a task has fewer rows than features its weights' mean lies in the span of the rows: with an
orthonormal basis Q of that span, v = Q u turns d features into n, and :mod:`mpmtl_prob.conjugate` is asked about u.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob import conjugate
from mpmtl_prob._chunks import in_chunks
from mpmtl_prob.tasks import FloatArray, Gram, TaskData


class Means(NamedTuple):
    """Posterior means with the ridge penalty averaged over each task's own evidence.

    Attributes:
        scaled: of v = S^{-1} w, in which tasks are compared, (d, m).
        scale: the diagonals of S, (m, d).
    """

    scaled: FloatArray
    scale: FloatArray

    @property
    def W(self) -> FloatArray:
        """Of the weights, (d, m)."""
        return self.scale.T * self.scaled


def posterior_means(tasks: TaskData, *, pareto: bool = True, chunk: int | None = None) -> Means:
    """Every task's posterior mean, as :func:`mpmtl_prob.conjugate.task_posteriors` has it with Omega = I.

    Args:
        tasks: the rows.
        pareto: every task scales its features by its own rows; else S = I.
        chunk: how many tasks at a time; default what fits the cache.
    """
    m, n, d = tasks.X.shape
    found = Means(np.empty((d, m)), np.ones((m, d)))

    def one(part: slice) -> None:
        gram = _gram(tasks, part)
        scale = conjugate.pareto_scale(gram) if pareto else None
        if scale is not None:
            found.scale[part] = scale
        if n >= d:
            found.scaled[:, part] = conjugate.task_posteriors(gram, scale=scale).scaled_mean
        else:
            rows = np.asarray(tasks.X[part], dtype=np.float64) * found.scale[part, None, :]
            found.scaled[:, part] = _in_span_of_rows(rows, np.asarray(tasks.y[part], dtype=np.float64), gram)

    in_chunks(one, m, bytes_per_task=8 * n * d, size=chunk)
    return found


def _gram(tasks: TaskData, part: slice) -> Gram:
    """Of these tasks alone; all tasks' would be the largest array of all."""
    few = TaskData(tasks.X[part], tasks.y[part], tasks.mask[part], tasks.tasks[part], tasks.features)
    return few.gram


def _in_span_of_rows(A: FloatArray, y: FloatArray, gram: Gram) -> FloatArray:
    """Scaled posterior means (d, m) of rows A (m, n, d), n < d: A' = Q R, so that A v = R'u."""
    Q, R = np.linalg.qr(np.swapaxes(A, 1, 2))
    inner = Gram(R @ np.swapaxes(R, 1, 2), (R @ y[..., None])[..., 0], gram.yy, gram.n)
    return np.einsum("tij,jt->it", Q, conjugate.task_posteriors(inner).scaled_mean)
