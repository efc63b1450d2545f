"""Intercepts: every task has its own, which nothing shrinks and no message contains (REML).

    y_ij = b_i + x_ij'w_i + e_ij,   b_i flat

Contrasts of a task's rows are n_i - 1 orthonormal combinations in which b_i cancels. They follow the model without
intercept, with the same errors, so a fit to contrasts is a fit of the slopes w_i alone. Penalised least squares then equals
least squares with b_i free, and a posterior of the slopes equals the one under a flat prior of b_i (REML: one row of
information per task goes into b_i). Given w_i, sigma_i and the rows, b_i is N(mean(y_i) - mean(x_i)'w_i, sigma_i^2 / n_i).

A constant column like any other would be worse. If the target has mean 100 and sd 1, the directions of all tasks would be
that of the intercept: the message, the prior and the noise would be spent on a number that every data owner knows from its
own rows. And a change of origin, such as Celsius to Kelvin, would change the slopes.

Labels do not allow this subtraction. Messages are made of contrasts as well, but likelihoods and losses of labels keep the
rows. Owners' posteriors give the intercept a prior of its own (:mod:`mpmtl_prob.single_task.intercepts`). The constant column
is an ordinary feature for estimators with another loss than least squares, for the baselines DPAggr and DPMTRL, whose
guarantee is about rows, and for the curator's models.

Source: Patterson and Thompson (1971), Biometrika 58(3), section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mpmtl_prob._util.arrays import FloatArray
    from mpmtl_prob.data.tasks import TaskData


def means(tasks: TaskData) -> tuple[FloatArray, FloatArray]:
    """Compute the means of every task's rows: of the features without the intercept, (d, m), and of the targets, (m,)."""
    features, targets = np.empty((tasks.num_features - 1, tasks.num_tasks)), np.empty(tasks.num_tasks)
    with np.errstate(all="ignore"):
        for i in range(tasks.num_tasks):
            X, y = tasks.rows_of(i)
            features[:, i], targets[i] = X[:, :-1].mean(axis=0), y.mean()
    return features, targets


def completed(W: FloatArray, tasks: TaskData) -> FloatArray:
    """Append the best intercepts to slopes W (..., d, m), ``b_i = mean(y_i) - mean(x_i)'w_i``: (..., d + 1, m)."""
    x, y = means(tasks)
    with np.errstate(all="ignore"):
        return np.concatenate([W, y - np.sum(x * W, axis=-2, keepdims=True)], axis=-2)
