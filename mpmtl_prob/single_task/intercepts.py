"""Owners' posteriors with an intercept: those of :mod:`~mpmtl_prob.single_task.conjugate` and of labels, completed.

Numbers have a flat prior of the intercept, integrated out by contrasts (:mod:`~mpmtl_prob.data.intercepts`); then, exactly,

    b_i | w_i, sigma_i, rows ~ N(mean(y_i) - mean(x_i)'w_i, sigma_i^2 / n_i).

What the slopes explain of a target's variance within its task has a nearly uniform prior (:data:`conjugate.SLOPES`).

Labels that all agree would make a flat prior's posterior improper. There the intercept at the mean of the task's own rows has
a normal prior, independent of the slopes, and half of the log odds' prior variance: a rare outcome is as easy to say as a
strong slope.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.intercepts import completed, means
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.single_task import conjugate, laplace

#: In the place of the size of an error of which nothing is known: beyond all targets, which are below 1e75 in their units
#: (:func:`mpmtl_prob.data.gram.unit`), and so small that what is worked out of it is a double.
UNKNOWN = 2.0**300


@dataclass(frozen=True, eq=False, repr=False)
class CompletedPosteriors:
    """Posteriors of the slopes, completed.

    Attributes:
        slopes: of contrasts.
        tasks: the rows.
    """

    slopes: conjugate.GaussianPosteriors
    tasks: TaskData

    @property
    def mean(self) -> FloatArray:
        """Of W, (d + 1, m), the intercept last."""
        return completed(self.slopes.mean, self.tasks)

    @property
    def log_evidence(self) -> FloatArray:
        """log p(contrasts | Omega) up to a constant of the task, (m,)."""
        return self.slopes.log_evidence

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Independent draws, as of the slopes, with ``W`` (S, d + 1, m). Every task has a stream of its own."""
        draws = self.slopes.sample(rng, num_samples)
        spread = draws["sigma"] / np.sqrt(self.tasks.row_counts)
        spread *= np.stack([own.standard_normal(num_samples) for own in rng.spawn(self.tasks.num_tasks)], axis=1)
        W = completed(draws["W"], self.tasks)
        W[:, -1] += spread
        return draws | {"W": W}


@dataclass(frozen=True, eq=False, repr=False)
class MovedPosteriors:
    """Posteriors at centred rows, moved to where the rows are.

    Attributes:
        centred: of rows less their task's mean, with the constant last.
        tasks: the rows.
    """

    centred: laplace.LogisticPosteriors
    tasks: TaskData

    @property
    def mean(self) -> FloatArray:
        """Of W under the mixture, (d + 1, m), the intercept last."""
        return self._moved(self.centred.mean)

    @property
    def log_evidence(self) -> FloatArray:
        """Laplace's log p(y_i | Omega), (m,)."""
        return self.centred.log_evidence

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """As of :class:`laplace.LogisticPosteriors`, with ``W`` (S, d + 1, m)."""
        draws = self.centred.sample(rng, num_samples)
        return draws | {"W": self._moved(draws["W"])}

    def _moved(self, W: FloatArray) -> FloatArray:
        """b + (x - mean)'w as (b - mean'w) + x'w."""
        x, _ = means(self.tasks)
        with np.errstate(all="ignore"):
            b = W[..., -1:, :] - np.sum(x * W[..., :-1, :], axis=-2, keepdims=True)
        return np.concatenate([W[..., :-1, :], b], axis=-2)


def lone(tasks: TaskData) -> NDArray[np.bool_]:
    """Return which tasks with an intercept have one row, (m,), which says nothing of their slopes and errors."""
    return tasks.intercept & (tasks.row_counts == 1)


def gaussian(
    tasks: TaskData,
    omega: FloatArray | None = None,
    scale: FloatArray | None = None,
    prior: conjugate.SnrPrior = conjugate.SLOPES,
) -> CompletedPosteriors:
    """Return :func:`conjugate.gaussian_posteriors` with intercepts; omega (d, d), scale (m, d) and prior are of the slopes.

    The one row of a task says its intercept given its slopes and nothing else: those keep their prior, Omega with the
    signal-to-noise ratio's, as of a task that is new. Of the error's size it says nothing either. Jeffreys' prior 1/sigma
    then has no law, and no number could stand in for one: a size that follows from one target depends on its origin, a fixed
    one on its unit. So the size is one beside which every target is nothing (:data:`UNKNOWN`), and intervals hold all numbers
    that anybody could mean; means are b = y and slopes of zero.

        sigma^2 ~ InverseGamma(1/2, UNKNOWN^2/2),   snr = c x'S Omega S x / sigma^2

    """
    gram, S = (
        tasks.slopes.gram,
        np.ones((tasks.num_tasks, tasks.num_features - 1)) if scale is None else np.array(scale),
    )
    yy = np.array(gram.yy)
    for i in map(int, np.flatnonzero(lone(tasks))):  # its contrast is a row of zeros
        v = tasks.rows_of(i)[0][0, :-1] * S[i]
        with np.errstate(all="ignore"):
            signal = v @ v if omega is None else v @ omega @ v
            S[i] /= np.sqrt(signal) if signal > 0 else 1.0
        yy[i] = UNKNOWN**2
    return CompletedPosteriors(conjugate.gaussian_posteriors(gram._replace(yy=yy), omega, S, prior), tasks)


def bernoulli(tasks: TaskData, omega: FloatArray | None = None, scale: FloatArray | None = None) -> MovedPosteriors:
    """:func:`laplace.logistic_posteriors` with intercepts; omega (d, d) and scale (m, d) are of the slopes."""
    d = tasks.num_features - 1
    root = np.eye(d) if omega is None else np.linalg.cholesky(omega)
    S = np.ones((tasks.num_tasks, d)) if scale is None else scale
    x, _ = means(tasks)
    away, signal = np.column_stack([x.T, np.zeros(tasks.num_tasks)]), np.empty(tasks.num_tasks)
    with np.errstate(all="ignore"):
        moved = tasks.moved(-away)
        for i in range(tasks.num_tasks):  # prior variance of the slopes' part of the log odds, over the task's own rows
            X = moved.rows_of(i)[0]
            signal[i] = np.sum(((X[:, :d] * S[i]) @ root) ** 2) / len(X)
        sd = np.sqrt(np.where(np.equal(signal, 0), 1.0, signal))
    extended = np.eye(d + 1)
    extended[:d, :d] = root @ root.T
    centred = laplace.logistic_posteriors(moved, extended, np.column_stack([S, sd]))
    return MovedPosteriors(centred, tasks)
