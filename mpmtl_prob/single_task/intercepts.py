"""Single-task posteriors with intercepts, for Gaussian and binary targets.

For Gaussian targets the intercept has a flat prior. Contrasts integrate it out (:mod:`~mpmtl_prob.data.intercepts`), and
then, exactly,

    b_i | w_i, sigma_i, rows ~ N(mean(y_i) - mean(x_i)'w_i, sigma_i^2 / n_i).

The share of a target's variance within its task that the slopes explain has a nearly uniform prior
(:data:`conjugate.SLOPES`).

For binary targets a flat prior would give an improper posterior where all labels agree. So the intercept at the mean of the
task's own rows has a normal prior, independent of the slopes, with half of the prior variance of the log odds: a priori, a
rare outcome is as likely as a strong slope.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.intercepts import completed, means
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.single_task import conjugate, laplace

#: Stands for an unknown size of errors. It exceeds all targets, which are below 1e75 in their units
#: (:func:`mpmtl_prob.data.gram.unit`), and is so small that numbers computed from it do not overflow.
UNKNOWN = 2.0**300


@dataclass(frozen=True, eq=False, repr=False)
class CompletedPosteriors:
    """Gaussian posteriors of slopes and intercepts.

    Attributes:
        slopes: posteriors of the slopes, from contrasts.
        tasks: the rows.
    """

    slopes: conjugate.GaussianPosteriors
    tasks: TaskData

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of W, (d + 1, m), with the intercept last."""
        return completed(self.slopes.mean, self.tasks)

    @property
    def log_evidence(self) -> FloatArray:
        """log p(contrasts | Omega) up to a constant of the task, (m,)."""
        return self.slopes.log_evidence

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw independent samples, as for the slopes, with ``W`` (S, d + 1, m). Every task has its own random stream."""
        draws = self.slopes.sample(rng, num_samples)
        spread = draws["sigma"] / np.sqrt(self.tasks.row_counts)
        spread *= np.stack([stream.standard_normal(num_samples) for stream in rng.spawn(self.tasks.num_tasks)], axis=1)
        W = completed(draws["W"], self.tasks)
        W[:, -1] += spread
        return draws | {"W": W}


@dataclass(frozen=True, eq=False, repr=False)
class MovedPosteriors:
    """Logistic posteriors of slopes and intercepts, computed at centred rows.

    Attributes:
        centred: posteriors for rows less their task's mean, with the constant last.
        tasks: the rows.
    """

    centred: laplace.LogisticPosteriors
    tasks: TaskData

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of W under the mixture, (d + 1, m), with the intercept last."""
        return self._moved(self.centred.mean)

    @property
    def log_evidence(self) -> FloatArray:
        """Laplace approximation of log p(y_i | Omega), (m,)."""
        return self.centred.log_evidence

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw as :meth:`laplace.LogisticPosteriors.sample` does, with ``W`` (S, d + 1, m)."""
        draws = self.centred.sample(rng, num_samples)
        return draws | {"W": self._moved(draws["W"])}

    def _moved(self, W: FloatArray) -> FloatArray:
        """Convert weights from centred rows: b + (x - mean)'w is (b - mean'w) + x'w."""
        x, _ = means(self.tasks)
        with np.errstate(all="ignore"):
            b = W[..., -1:, :] - np.sum(x * W[..., :-1, :], axis=-2, keepdims=True)
        return np.concatenate([W[..., :-1, :], b], axis=-2)


def lone(tasks: TaskData) -> NDArray[np.bool_]:
    """Return True for tasks with an intercept and a single row, (m,), which tells nothing about slopes and errors."""
    return tasks.intercept & (tasks.row_counts == 1)


def gaussian(
    tasks: TaskData,
    omega: FloatArray | None = None,
    scale: FloatArray | None = None,
    prior: conjugate.SnrPrior = conjugate.SLOPES,
) -> CompletedPosteriors:
    """Compute :func:`conjugate.gaussian_posteriors` with intercepts; omega (d, d), scale (m, d) and prior are for the slopes.

    A single row determines the intercept given the slopes, and nothing else. The slopes keep their prior, Omega with the
    signal-to-noise ratio's, as for a new task. The size of the error is unknown too. With Jeffreys' prior 1/sigma its
    posterior is improper, and no number can replace it: a size computed from one target depends on the origin, a fixed one
    on the unit. So the size is set far above every target (:data:`UNKNOWN`), and intervals contain all plausible numbers;
    the means are b = y and slopes of zero.

        sigma^2 ~ InverseGamma(1/2, UNKNOWN^2/2),   snr = c x'S Omega S x / sigma^2

    """
    gram = tasks.slopes.gram
    S = np.ones((tasks.num_tasks, tasks.num_features - 1)) if scale is None else np.array(scale)
    yy = np.array(gram.yy)
    for i in map(int, np.flatnonzero(lone(tasks))):  # the contrast of a single row is zero
        v = tasks.rows_of(i)[0][0, :-1] * S[i]
        with np.errstate(all="ignore"):
            signal = v @ v if omega is None else v @ omega @ v
            S[i] /= np.sqrt(signal) if signal > 0 else 1.0
        yy[i] = UNKNOWN**2
    return CompletedPosteriors(conjugate.gaussian_posteriors(gram._replace(yy=yy), omega, S, prior), tasks)


def bernoulli(tasks: TaskData, omega: FloatArray | None = None, scale: FloatArray | None = None) -> MovedPosteriors:
    """Compute :func:`laplace.logistic_posteriors` with intercepts; omega (d, d) and scale (m, d) are for the slopes."""
    d = tasks.num_features - 1
    root = np.eye(d) if omega is None else np.linalg.cholesky(omega)
    S = np.ones((tasks.num_tasks, d)) if scale is None else scale
    x, _ = means(tasks)
    away, signal = np.column_stack([x.T, np.zeros(tasks.num_tasks)]), np.empty(tasks.num_tasks)
    with np.errstate(all="ignore"):
        moved = tasks.moved(-away)
        for i in range(tasks.num_tasks):  # prior variance of the log odds due to the slopes, over the task's rows
            X = moved.rows_of(i)[0]
            signal[i] = np.sum(((X[:, :d] * S[i]) @ root) ** 2) / len(X)
        sd = np.sqrt(np.where(np.equal(signal, 0), 1.0, signal))
    extended = np.eye(d + 1)
    extended[:d, :d] = root @ root.T
    centred = laplace.logistic_posteriors(moved, extended, np.column_stack([S, sd]))
    return MovedPosteriors(centred, tasks)
