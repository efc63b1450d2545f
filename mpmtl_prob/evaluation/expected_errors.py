"""Expected errors of a planned study: simulated tasks, and the accuracy that a release has by its noise.

Tasks are simulated from the user's guess, with targets of variance 1 and features that are independent and standard normal,

    beta_i ~ N(mu, tau^2 / d I),   |mu|^2 + tau^2 = explained,   |mu|^2 = common * explained,   sigma^2 = 1 - explained.

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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

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
        rows: smallest and largest number of rows.
        explained: share of the target's variance within a task that slopes explain.
        common: share of that which is the same in all tasks.
        between: variance of the intercept between tasks; None without an intercept.
    """

    d: int
    rows: tuple[int, int]
    explained: float
    common: float
    between: float | None

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
        """Residual variance, sigma^2."""
        return max((1 - self.explained) * self.within, 1e-4)


class SimulatedTask(NamedTuple):
    """A simulated task.

    Attributes:
        X: rows, (n, d).
        y: targets, (n,).
        mu: average effects of its study, (d,).
        best: mean of the task's effects given its rows and the model they were drawn from, (d,).
        least: the trace of their covariance, which is the least expected squared error.
        alone: expected squared error of the estimate from its own rows alone.
    """

    X: FloatArray
    y: FloatArray
    mu: FloatArray
    best: FloatArray
    least: float
    alone: float


def simulate(guess: Guess, seed: int) -> list[SimulatedTask]:
    """Simulate tasks, with numbers of rows evenly over the logarithm of their range."""
    rng = np.random.default_rng(seed)
    low, high = np.log(guess.rows)
    number, d = int(np.clip(_TOGETHER // guess.d, _FEWEST, _MOST)), guess.d
    tasks = []
    for share in (np.arange(number) + 0.5) / number:  # evenly over the range of log row counts
        n = round(np.exp(low + share * (high - low)))
        X, mu = rng.standard_normal((n, d)), np.zeros(d)
        if guess.slopes:
            direction = rng.standard_normal(guess.slopes)
            mu[: guess.slopes] = np.sqrt(guess.mean) * direction / np.linalg.norm(direction)
        X[:, guess.slopes :] = 1.0
        beta = mu + np.sqrt(guess.spread) * rng.standard_normal(d)
        y = X @ beta + np.sqrt(guess.residual) * rng.standard_normal(n)
        covariance = np.linalg.inv(X.T @ X / guess.residual + np.diag(1 / guess.spread))
        best = covariance @ (X.T @ y / guess.residual + mu / guess.spread)
        least = float(np.trace(covariance))
        own = _alone(X, y, guess)
        tasks.append(SimulatedTask(X, y, mu, best, least, float(((own - best) ** 2).sum()) + least))
    return tasks


def _alone(X: FloatArray, y: FloatArray, guess: Guess) -> FloatArray:
    """Estimate a task's coefficients from its own rows; its intercept is free, as of a task that knows no other."""
    if guess.between is None or len(y) < 2:
        return effects_posterior(X, y, (_apart(guess.d),)).mean
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
        mean: variances of average effects with the release, (d,).
        mean_without_noise: the same with all rows.
        log_spread: standard deviation of the log of the standard deviation of every effect with the release, (d,).
        log_spread_without_noise: the same with all rows.
    """

    mean: FloatArray
    mean_without_noise: FloatArray
    log_spread: FloatArray
    log_spread_without_noise: FloatArray

    def standard_error(self, d: int) -> float:
        """Return the standard error of an average effect, whose size is known by its prior only."""
        return float(np.mean(1 / np.sqrt(1 / self.mean + d / EffectsPrior().average ** 2)))


def accuracy(guess: Guess, tasks: Sequence[SimulatedTask], layout: EffectsLayout, sd: float, m: int) -> Accuracy:
    """Compute the accuracy of a release of m tasks, whose noise has the standard deviation sd off the diagonal."""
    d, weak, v = guess.d, layout.weak_prior, layout.effect_variance
    spread, size_of_effects = guess.spread, guess.explained * guess.within + (guess.between or 0.0)
    information, p, length, sampling = np.zeros(d), [], [], []
    for task in tasks:
        e, U = np.linalg.eigh(task.X.T @ task.X)
        e = np.maximum(e, 0.0)
        # (Omega + V)^-1 = X'X / sigma^2 - X'X / sigma^2 (X'X / sigma^2 + Omega^-1)^-1 X'X / sigma^2
        rows = (U * (e / guess.residual)) @ U.T
        information += np.diag(rows - rows @ np.linalg.solve(rows + np.diag(1 / spread), rows)) / len(tasks)
        share = e / (e + guess.residual / (weak * v))
        s, squares = share.mean(), (share**2).mean()
        p.append(s**2 / (squares + weak * (s - squares)))
        size = p[-1] ** 2 * size_of_effects + d * v * p[-1] * (1 - p[-1])
        length.append(1 + (layout.determined_size * p[-1]) ** 2 + layout.effect_size**2 * size)
        sampling.append(v * (1 - p[-1]) / p[-1])
    g, p_, u = layout.effect_size, float(np.mean(p)), float(np.mean(length))
    uncertainty = 1 / (m * np.maximum(information, 1e-12))
    noise = (sd * u / (g * p_ * m)) ** 2 / (1 + (g * p_) ** 2 * guess.mean * (d - 1) / d)
    prior = EffectsPrior()
    # The size of errors of estimation is known up to a factor only, which more tasks do not average out.
    unknown = prior.errors * (1 - p_) * float(np.mean(sampling))
    before, log_sd = np.log(prior.spread_factor), np.zeros((2, d))
    for alike in guess.alike:
        # From what remains after the mean: k diagonal entries, with twice the variance of the others.
        k, tau2 = len(spread[alike]), spread[alike][0]
        without = (tau2 + float(np.mean(sampling))) * np.sqrt(2 / (m * k))
        read = np.sqrt((sd * np.sqrt(2 / k) * u / (g**2 * p_**2 * m)) ** 2 + without**2 + unknown**2)
        for row, error in zip(log_sd, (read, without), strict=True):
            row[alike] = 1 / np.sqrt(1 / before**2 + (2 * tau2 / error) ** 2)
    return Accuracy(uncertainty + noise, uncertainty, *log_sd)


def expected_errors(
    task: SimulatedTask, guess: Guess, known: Accuracy, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Return expected squared errors of one task's coefficients: alone, with the release, and with all rows."""
    d, mu = guess.d, task.mu
    errors = [task.alone]
    prior = EffectsPrior()
    lengths = prior.average * ndtri(0.5 + (np.arange(_READINGS) + 0.5) / (2 * _READINGS))  # half-normal
    trusted = ((known.mean, known.log_spread), (known.mean_without_noise, known.log_spread_without_noise))
    for variance, log_sd in trusted:
        read = mu + np.sqrt(variance) * rng.standard_normal(d)
        # The length of mu follows the guess as far as mu is known, and the prior as far as it is not.
        total = float(variance.sum())
        seen = guess.mean / (guess.mean + total)
        square = seen * guess.mean + (1 - seen) * lengths**2
        keep = square / (square + total)
        trust = 1 - (log_sd / np.log(prior.spread_factor)) ** 2
        log_tau = trust * 0.5 * np.log(guess.spread) + (1 - trust) * (np.log(prior.spread) - 0.5 * np.log(d))
        away = np.concatenate(
            [np.repeat(rng.standard_normal((_READINGS, 1)), len(mu[alike]), axis=1) for alike in guess.alike], axis=1
        )
        # The uncertainty of mu is integrated out in closed form.
        size = keep[:, None] * variance + np.exp(log_tau + log_sd * away) ** 2
        weight = np.full(_READINGS, np.log((1 - APART) / _READINGS))
        covariance = size[:, :, None] * np.eye(d)
        from_release = EffectsPriors(weight, keep[:, None] * read, covariance, SCALES, np.log(SCALE_WEIGHTS))
        other = _apart(d)._replace(log_weight=np.log([APART]))
        estimate = effects_posterior(task.X, task.y, (from_release, other)).mean
        errors.append(float(((estimate - task.best) ** 2).sum()) + task.least)
    alone, release, mixed = errors
    return alone, release, mixed
