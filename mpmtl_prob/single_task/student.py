"""Robust linear models of single tasks with Student's t errors, in which outliers have less weight.

    y_ij = x_ij'w_i + sigma_i e_ij,   e_ij ~ t(4),   w_i and sigma_i as in :mod:`mpmtl_prob.single_task.conjugate`

A t error is a normal one whose precision lambda_ij ~ Gamma(2, 2) is unknown; given these precisions everything is conjugate.
A variational approximation q(w, sigma, snr) q(lambda) is found by coordinate updates. It underestimates the spread, so draws
are wider, and have importance weights that make them exact.

Source: Lange, Little and Taylor (1989), JASA 84(408), for the model; Tipping and Lawrence (2005), Neurocomputing 69, for the
approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.gram import Gram, gram
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.single_task import conjugate
from mpmtl_prob.single_task.conjugate import OF_MESSAGES, GaussianPosteriors, SnrPrior, in_turns

#: Degrees of freedom of the errors, the value that Lange, Little and Taylor fix where data are too few to estimate them.
FREEDOM = 4.0
#: Information of a t error relative to a normal one, about its scale and about its centre.
_COUNT = FREEDOM / (FREEDOM + 3)
_INFORMED = (FREEDOM + 1) / (FREEDOM + 3)
#: Degrees of freedom of the proposal for w, chosen by the Pareto k of tasks with 8 to 100 rows and 10 to 28 features.
_TAILS = 5.0
#: Number of rows from which draws of sigma have a fourth moment, so that averages of w and their errors are reliable.
_MANY = int(4 / _COUNT) + 1
_TURNS = 50  # largest number of updates
_SETTLED = 1e-2  # largest relative change of a precision at convergence


@dataclass(frozen=True, eq=False, repr=False)
class StudentPosteriors:
    """Approximate posteriors of all tasks, with importance weights for their draws.

    Attributes:
        tasks: the rows.
        normal: the proposal: the posteriors given every row's mean precision, with flattened weights of the grid.
        log_evidence: the variational bound of log p(y_i | Omega), up to a constant of the task, (m,).
    """

    tasks: TaskData
    normal: GaussianPosteriors
    log_evidence: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Exact mean of W under the proposal, (d, m)."""
        return self.normal.mean

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw independent samples: ``W``, ``sigma``, ``log_snr`` as :class:`GaussianPosteriors`, and ``log_ratio`` (S, m).

        ``log_ratio`` is the log importance weight: the joint density over that of the proposal and over the evidence's bound,
        up to a constant of the task. If some task has few rows, there is ``centre`` (S, d, m) too, nan for tasks with many:
        the mean of w given the grid and a drawn precision of every row. It is bounded even where sigma has no mean.
        """
        with np.errstate(all="ignore"):
            drawn = [self._draws(i, stream, num_samples) for i, stream in enumerate(rng.spawn(self.tasks.num_tasks))]
        names = ("W", "sigma", "log_snr", "log_ratio", "centre")
        parts = dict(zip(names, zip(*drawn, strict=True), strict=True))
        if self.normal.n.min() >= _MANY:
            del parts["centre"]
        return {name: np.moveaxis(np.stack(part), 0, -1) for name, part in parts.items()}

    def _draws(self, i: int, rng: np.random.Generator, num_samples: int) -> tuple[FloatArray, ...]:
        """Draw w (S, d), sigma, log_snr and log_ratio (S,) of task i, and the centre of w (S, d)."""
        X, y = self.tasks.rows_of(i)
        normal, n = self.normal, len(y)
        weights = normal.weights[i]
        g = np.minimum(np.searchsorted(np.cumsum(weights), rng.random(num_samples)), len(weights) - 1)
        ratio, rate = normal.ratio[i, g], 0.5 * _COUNT * normal.residual[i, g]
        precision = rng.standard_gamma(0.5 * _COUNT * n, num_samples) / rate  # 1 / sigma^2
        gain = ratio[:, None] * normal.eigenvalues[i]
        shrunk = ratio[:, None] / (1 + gain)
        spread = shrunk * (1 + gain / _INFORMED) / (1 + gain)  # wider in directions that the rows determine
        unit = rng.standard_normal(gain.shape) / np.sqrt(rng.chisquare(_TAILS, (num_samples, 1)) / _TAILS)
        z = shrunk * normal.projected[i] + np.sqrt(spread / precision[:, None]) * unit
        W = z @ normal.basis[i].T * normal.scale[i]

        # Both densities are in z, 1 / sigma^2 and the grid; common factors are left out.
        def squares(now: slice) -> FloatArray:
            return precision[now, None] * (y - W[now] @ X.T) ** 2

        d, turns = z.shape[1], in_turns(num_samples, n, few=OF_MESSAGES)
        logs = np.concatenate([np.sum(np.log1p(squares(now) / FREEDOM), axis=1) for now in turns])
        log_target = -0.5 * (FREEDOM + 1) * logs + 0.5 * n * np.log(precision)
        log_target -= 0.5 * (precision * np.sum(z**2, axis=1) / ratio + d * np.log(ratio) + conjugate.GRID[g] ** 2)
        log_drawn = np.log(weights[g]) + 0.5 * _COUNT * n * np.log(precision * rate) - rate * precision
        log_drawn -= 0.5 * (_TAILS + d) * np.log1p(np.sum(unit**2, axis=1) / _TAILS)
        log_drawn -= 0.5 * np.sum(np.log(spread), axis=1)
        log_ratio = log_target - log_drawn - self.log_evidence[i]

        centre = np.broadcast_to(np.nan, W.shape)
        if n < _MANY:
            square = squares(slice(None))
            of_rows = rng.standard_gamma(0.5 * (FREEDOM + 1), square.shape) / (0.5 * (FREEDOM + square))
            A = (X * normal.scale[i]) @ normal.basis[i]
            K = ratio[:, None, None] * (A @ A.T) + np.eye(n) / of_rows[:, None]
            mean = ratio[:, None] * (np.linalg.solve(K, np.broadcast_to(y[:, None], (num_samples, n, 1)))[..., 0] @ A)
            centre = mean @ normal.basis[i].T * normal.scale[i]
        return W, 1 / np.sqrt(precision), normal.log_snr[g], log_ratio, centre


def student_posteriors(
    tasks: TaskData,
    omega: FloatArray | None = None,
    scale: FloatArray | None = None,
    prior: SnrPrior = SnrPrior(),  # noqa: B008
) -> StudentPosteriors:
    """Approximate the posterior of every task given its own rows and the shape of the shared covariance.

    Args:
        tasks: the rows.
        omega: (d, d) positive definite, up to a factor; default the identity.
        scale: the diagonals of S_i, (m, d); default 1.
        prior: prior of the signal-to-noise ratio, where sigma is the noise's scale.
    """
    m, d = tasks.num_tasks, tasks.num_features
    R = np.eye(d) if omega is None else np.linalg.cholesky(omega)
    S = np.ones((m, d)) if scale is None else scale
    log_snr = conjugate.log_grid(prior)
    posteriors, bounds = [], []
    for i in range(m):
        posterior, bound = _alone(*tasks.rows_of(i), S[i][:, None] * R, log_snr)
        posteriors.append(posterior)
        bounds.append(bound)
    normal = conjugate.gathered(posteriors, S, R, log_snr, tasks.row_counts)
    return StudentPosteriors(tasks, normal, np.array(bounds))


def _alone(
    X: FloatArray, y: FloatArray, SR: FloatArray, log_snr: FloatArray
) -> tuple[conjugate.SingleTaskPosterior, float]:
    """Compute one task's proposal, and the variational bound on its evidence."""
    with np.errstate(all="ignore"):
        A = X @ SR
        signal = np.sum(A**2) / len(y)
        shape, after = 0.5 * (FREEDOM + 1), np.ones(len(y))
        for _ in range(_TURNS):
            precision, root = after, np.sqrt(after)
            weighted: Gram = Gram(*(np.asarray(part) for part in gram(root[:, None] * X, root * y)))  # type: ignore[arg-type]
            posterior = conjugate.alone(weighted, SR, log_snr, signal)
            after = shape / (0.5 * (FREEDOM + _square(A @ posterior.basis, y, posterior)))
            if not np.max(np.abs(after / precision - 1)) > _SETTLED:
                break
        # E[log lambda] / 2 - KL(q(lambda) || p(lambda)), q a Gamma(shape, shape / precision)
        bound = posterior.log_evidence + np.sum(shape * np.log(precision) - 0.5 * FREEDOM * precision)
        flattened = np.sqrt(posterior.weights)
    return posterior._replace(weights=flattened / flattened.sum()), float(bound)


def _square(A: FloatArray, y: FloatArray, posterior: conjugate.SingleTaskPosterior) -> FloatArray:
    """Return the mean of ((y_j - x_j'w) / sigma)^2 for every row, (n,); A z are the predictions in the basis of z."""
    # The variance of z / sigma, (g, d).
    shrunk = posterior.ratio[:, None] / (1 + posterior.ratio[:, None] * posterior.eigenvalues)
    squares = (shrunk * posterior.projected) @ A.T  # (g, n), overwritten by the squares, as it is large for many rows
    np.subtract(y, squares, out=squares)
    np.square(squares, out=squares)
    squares *= (len(y) / posterior.residual)[:, None]
    squares += shrunk @ (A**2).T
    square: FloatArray = posterior.weights @ squares
    return square
