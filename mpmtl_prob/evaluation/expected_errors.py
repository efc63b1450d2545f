"""Expected errors of a planned study: simulated tasks, and the accuracy that a release has by its noise.

Tasks are simulated from the user's guess, with targets of variance 1 and features that are independent and standard normal,

    beta_i ~ N(mu, tau^2 / d I),   |mu|^2 + tau^2 = explained,   |mu|^2 = common * explained,   sigma^2 = 1 - explained,

or, where residual variances differ between tasks, log-normal ones with that mean.

A shared intercept is one more coefficient, with mean 0 and the variance ``between``, the share of the target's variance that
lies between tasks (intra-class correlation); the three shares above are then those of the variance within a task.

Tasks are fitted as a data owner would: with its own rows alone, and with the release. The error of an estimate b is averaged
over the law of beta given the task's rows, N(b*, V*) under the model above: |b - b*|^2 + tr V*. The accuracy of the release
is computed, not simulated. A message (g eta, k p, 1) over its length |u| adds g p mu / |u|^2 to the last column of the sum,
on which noise has the standard deviation s. So a coordinate of mu is known with the variance

    (s E|u|^2 / (g p m))^2 / (1 + (g p)^2 |mu|^2 (d - 1) / d)  +  1 / sum_i [(Omega + V_i)^-1]_jj.

The first part comes from the noise (*accuracy before spending*): the bracket is the information in the last column, and the
denominator that in the products of mu with itself. The second part is the uncertainty that m tasks leave without any noise.
The spread of slopes, and that of an intercept, is known from what remains after the mean, or else from its prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.inference.owner.effects import APART, APART_SCALES, SCALE_WEIGHTS, SCALES
from mpmtl_prob.models.effects_release import EffectsPrior
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.single_task.random_effects import EffectsPriors, effects_posterior

#: Least and greatest number of simulated tasks, the coefficients that they have together, and the number of values of the
#: spread and the length of mu over which each task is averaged.
_FEWEST, _MOST, _TOGETHER, _READINGS = 100, 500, 1500, 6


class Guess(NamedTuple):
    """The user's guess. With an intercept it is the last coefficient.

    Attributes:
        d: number of coefficients.
        rows: smallest and largest number of rows; None for the rows of the examples as they are.
        explained: share of the target's variance within a task that slopes explain.
        common: share of that which is the same in all tasks.
        between: variance of the intercept between tasks; None without an intercept.
        residual_spread: standard deviation of the logarithm of residual variances between tasks.
        columns: columns of example tasks in common units, (n, slopes) each, from which simulated tasks take theirs; if there
            are none, columns are independent and standard normal.
    """

    d: int
    rows: tuple[int, int] | None
    explained: float
    common: float
    between: float | None
    residual_spread: float = 0.0
    columns: tuple[FloatArray, ...] = ()

    @property
    def within(self) -> float:
        """Share of the target's variance within a task."""
        return 1 - (self.between or 0.0)

    @property
    def slopes(self) -> int:
        """Number of coefficients other than the intercept."""
        return self.d - (self.between is not None)

    @property
    def mean(self) -> float:
        """Squared length of the mean effects, |mu|^2."""
        return self.common * self.explained * self.within

    @property
    def spread(self) -> FloatArray:
        """Variances of effects between tasks, (d,): the diagonal of Omega."""
        of_slope = max((1 - self.common) * self.explained * self.within, 1e-4) / max(self.slopes, 1)
        of_intercept = [] if self.between is None else [max(self.between, 1e-4)]
        return np.array([of_slope] * self.slopes + of_intercept)

    @property
    def alike(self) -> list[slice]:
        """Coefficients with the same spread: the slopes, and the intercept."""
        of_slopes = [slice(0, self.slopes)] if self.slopes else []
        return of_slopes + ([] if self.between is None else [slice(self.slopes, self.d)])

    @property
    def residual(self) -> float:
        """Residual variance, sigma^2, averaged over tasks."""
        return max((1 - self.explained) * self.within, 1e-4)


class SimulatedTask(NamedTuple):
    """A simulated task.

    Attributes:
        X: rows, (n, d).
        y: targets, (n,).
        residual: residual variance.
        mu: average effects of its study, (d,).
        best: mean of the task's effects given its rows and the model they were drawn from, (d,).
        new_rows: second moment of a new row of the task, by which errors of coefficients are weighted, (d, d).
        least: the least expected squared error, which is that of ``best``.
        alone: expected squared error of the estimate from its own rows alone.
        apart: log evidence of its rows if the task is unlike all others, and the mean of its effects then, (d,): the same
            whatever a release says.
    """

    X: FloatArray
    y: FloatArray
    residual: float
    mu: FloatArray
    best: FloatArray
    new_rows: FloatArray
    least: float
    alone: float
    apart: tuple[float, FloatArray]

    def error(self, estimate: FloatArray) -> float:
        """Return the expected squared error of predictions by an estimate, (d,), less what no coefficient predicts."""
        away = estimate - self.best
        return float(away @ self.new_rows @ away) + self.least


def simulate(guess: Guess, seed: int) -> list[SimulatedTask]:
    """Simulate tasks, with numbers of rows evenly over the logarithm of their range."""
    rng = np.random.default_rng(seed)
    number, d = int(np.clip(_TOGETHER // guess.d, _FEWEST, _MOST)), guess.d
    tasks = []
    for X, new_rows in _rows_of_tasks(guess, number, rng):
        mu = np.zeros(d)
        if guess.slopes:
            direction = rng.standard_normal(guess.slopes)
            mu[: guess.slopes] = np.sqrt(guess.mean) * direction / np.linalg.norm(direction)
        beta = mu + np.sqrt(guess.spread) * rng.standard_normal(d)
        residual = guess.residual
        if guess.residual_spread:
            residual *= np.exp(guess.residual_spread * rng.standard_normal() - guess.residual_spread**2 / 2)
        y = X @ beta + np.sqrt(residual) * rng.standard_normal(len(X))
        covariance = np.linalg.inv(X.T @ X / residual + np.diag(1 / guess.spread))
        best = covariance @ (X.T @ y / residual + mu / guess.spread)
        unlike = effects_posterior(X, y, (_apart(d),))
        apart = (unlike.log_evidence + np.log(APART), unlike.mean)
        task = SimulatedTask(X, y, residual, mu, best, new_rows, float(np.sum(new_rows * covariance)), np.nan, apart)
        tasks.append(task._replace(alone=task.error(_alone(X, y, guess, apart[1]))))
    return tasks


def _rows_of_tasks(guess: Guess, number: int, rng: np.random.Generator) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield rows of every task with its intercept, (n, d), and the second moment of a new row, (d, d)."""
    intercept, counts = guess.d - guess.slopes, [0]
    if guess.rows is not None:
        low, high = np.log(guess.rows)
        counts = [round(np.exp(low + share * (high - low))) for share in (np.arange(number) + 0.5) / number]
    if not guess.columns:
        for n in counts:
            yield np.column_stack([rng.standard_normal((n, guess.slopes)), np.ones((n, intercept))]), np.eye(guess.d)
        return
    # A task's own mean is kept, as a column may be constant within tasks; deviations from it vary as in all tasks together.
    deviations = np.concatenate([columns - columns.mean(axis=0) for columns in guess.columns])
    within = np.zeros((guess.d, guess.d))
    within[: guess.slopes, : guess.slopes] = deviations.T @ deviations / max(len(deviations) - len(guess.columns), 1)
    for index in rng.permutation(max(number, len(guess.columns))):
        columns = guess.columns[index % len(guess.columns)]
        X = np.column_stack([columns, np.ones((len(columns), intercept))])
        new_rows = within + np.outer(X.mean(axis=0), X.mean(axis=0))
        yield X if guess.rows is None else X[rng.integers(len(X), size=counts[index % number])], new_rows


def _alone(X: FloatArray, y: FloatArray, guess: Guess, apart: FloatArray) -> FloatArray:
    """Estimate a task's coefficients from its own rows; its intercept is free, as of a task that knows no other."""
    if guess.between is None or len(y) < 2:
        return apart
    columns, level = X[:, : guess.slopes], y.mean()
    centre = columns.mean(axis=0)
    slopes = np.zeros(0)
    if guess.slopes:
        slopes = effects_posterior(columns - centre, y - level, (_apart(guess.slopes),), number=len(y) - 1).mean
    return np.append(slopes, level - centre @ slopes)


def _apart(d: int) -> EffectsPriors:
    """Return the prior of a task that uses no release."""
    even = np.full(len(APART_SCALES), -np.log(len(APART_SCALES)))
    return EffectsPriors(np.zeros(1), np.zeros((1, d)), np.eye(d)[None], APART_SCALES / d, even)


class Accuracy(NamedTuple):
    """Accuracy with which average effects and the spread are known.

    Attributes:
        mean: covariance of average effects with the release, (d, d).
        mean_without_noise: the same with all rows.
        log_spread: standard deviation of the log of the standard deviation of every effect with the release, (d,).
        log_spread_without_noise: the same with all rows.
    """

    mean: FloatArray
    mean_without_noise: FloatArray
    log_spread: FloatArray
    log_spread_without_noise: FloatArray

    def standard_errors(self, d: int) -> FloatArray:
        """Return the standard errors of average effects, (d,), whose sizes are known by their prior only."""
        errors: FloatArray = 1 / np.sqrt(1 / np.diag(self.mean) + d / EffectsPrior().average ** 2)
        return errors


def accuracy(guess: Guess, tasks: Sequence[SimulatedTask], layout: EffectsLayout, sd: float, m: int) -> Accuracy:
    """Compute the accuracy of a release of m tasks, whose noise has the standard deviation sd off the diagonal."""
    d, weak, v = guess.d, layout.weak_prior, layout.effect_variance
    spread, prior = guess.spread, EffectsPrior()
    information, p, length, sampling = np.zeros((d, d)), [], [], []
    for task in tasks:
        e, U = np.linalg.eigh(task.X.T @ task.X)
        e = np.maximum(e, 0.0)
        # (Omega + V)^-1 = X'X / sigma^2 - X'X / sigma^2 (X'X / sigma^2 + Omega^-1)^-1 X'X / sigma^2
        rows = (U * (e / task.residual)) @ U.T
        information += (rows - rows @ np.linalg.solve(rows + np.diag(1 / spread), rows)) / len(tasks)
        share = e / (e + task.residual / (weak * v))
        S, squares = (U**2) @ share, (U**2) @ share**2
        each = S**2 / np.maximum(squares + weak * (S - squares), 1e-12)  # p_j, of every coefficient by itself
        determined, averages = np.empty(d), []
        for alike in guess.alike:
            determined[alike] = each[alike].mean()
            averages.append(each[alike].mean())
        p.append(each)
        size = float((each**2 * (spread + task.mu**2) + v * each * (1 - each)).sum())
        length.append(1 + layout.determined_size**2 * float(np.square(averages).sum()) + layout.effect_size**2 * size)
        sampling.append(v * (1 - determined) / np.maximum(determined, 1e-12))
    g, p_, u, V = layout.effect_size, np.mean(p, axis=0), float(np.mean(length)), np.mean(sampling, axis=0)
    # An average effect is known by its prior where tasks leave it open.
    uncertainty = np.linalg.inv(m * information + d / prior.average**2 * np.eye(d))
    noise = (sd * u / (g * np.maximum(p_, 1e-6) * m)) ** 2 / (1 + (g * p_) ** 2 * guess.mean * (d - 1) / d)
    # The size of errors of estimation is known up to a factor only, which more tasks do not average out.
    unknown = prior.errors * (1 - p_) * V
    before, log_sd = np.log(prior.spread_factor), np.zeros((2, d))
    for alike in guess.alike:
        # From what remains after the mean: k diagonal entries, with twice the variance of the others.
        k, tau2 = len(spread[alike]), spread[alike][0]
        of = np.maximum(p_[alike].mean(), 1e-6)
        without = (tau2 + float(V[alike].mean())) * np.sqrt(2 / (m * k))
        read = np.sqrt((sd * np.sqrt(2 / k) * u / (g**2 * of**2 * m)) ** 2 + without**2 + unknown[alike].mean() ** 2)
        for row, error in zip(log_sd, (read, without), strict=True):
            row[alike] = 1 / np.sqrt(1 / before**2 + (2 * tau2 / error) ** 2)
    return Accuracy(uncertainty + np.diag(noise), uncertainty, *log_sd)


def expected_errors(
    task: SimulatedTask, guess: Guess, known: Accuracy, rng: np.random.Generator, mixed: float | None = None
) -> tuple[float, float, float]:
    """Return expected squared errors of one task: alone, with the release, and with all rows.

    The last is given as ``mixed`` where it has been computed already, with the same random numbers.
    """
    read = _read(task, guess, known.mean, known.log_spread, rng)
    with_release = task.error(_with_prior(task, read))
    read = _read(task, guess, known.mean_without_noise, known.log_spread_without_noise, rng)
    return task.alone, with_release, task.error(_with_prior(task, read)) if mixed is None else mixed


def _read(
    task: SimulatedTask, guess: Guess, covariance: FloatArray, log_sd: FloatArray, rng: np.random.Generator
) -> EffectsPriors:
    """Return priors of a task's effects as they may be read from a release of this accuracy."""
    d, mu, prior = guess.d, task.mu, EffectsPrior()
    lengths = prior.average * ndtri(0.5 + (np.arange(_READINGS) + 0.5) / (2 * _READINGS))  # half-normal
    read = mu + np.linalg.cholesky(covariance) @ rng.standard_normal(d)
    # The length of mu follows the guess as far as mu is known, and the prior as far as it is not.
    total = float(np.trace(covariance))
    seen = guess.mean / (guess.mean + total)
    square = seen * guess.mean + (1 - seen) * lengths**2
    # The posterior of mu under N(0, square / d I): keep @ read, keep @ covariance.
    keep = square[:, None, None] / d * np.linalg.inv(covariance + square[:, None, None] / d * np.eye(d))
    trust = 1 - (log_sd / np.log(prior.spread_factor)) ** 2
    log_tau = trust * 0.5 * np.log(guess.spread) + (1 - trust) * (np.log(prior.spread) - 0.5 * np.log(d))
    away = np.concatenate(
        [np.repeat(rng.standard_normal((_READINGS, 1)), len(mu[alike]), axis=1) for alike in guess.alike], axis=1
    )
    # The uncertainty of mu is integrated out in closed form.
    weight = np.full(_READINGS, np.log((1 - APART) / _READINGS))
    size = keep @ covariance + np.exp(log_tau + log_sd * away)[:, :, None] ** 2 * np.eye(d)
    return EffectsPriors(weight, keep @ read, size, SCALES, np.log(SCALE_WEIGHTS))


def _with_prior(task: SimulatedTask, prior: EffectsPriors) -> FloatArray:
    """Return the mean of a task's effects, which are of this prior, or else unlike all others."""
    related, (apart, unlike) = effects_posterior(task.X, task.y, (prior,)), task.apart
    share = expit(related.log_evidence - apart)
    return np.asarray(share * related.mean + (1 - share) * unlike)
