"""Effects of one owner in a mixed model, given its own rows or estimate and the public posterior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.data.units import Units
from mpmtl_prob.inference.owner.likelihoods import Likelihood, OfEstimates
from mpmtl_prob.inference.public.effects_draws import in_table, per_table_unit
from mpmtl_prob.releases.effects import EffectsLayout, in_common_units, in_layout, predictors, rows_of_numbers
from mpmtl_prob.sampling.importance import num_proposals, smoothed
from mpmtl_prob.single_task.generalized import Predictors
from mpmtl_prob.single_task.generalized_effects import generalized_posterior
from mpmtl_prob.single_task.random_effects import (
    KNOWN,
    UNKNOWN,
    EffectsPosterior,
    EffectsPriors,
    as_rows,
    effects_posterior,
    student_effects_posterior,
    student_log_ratio,
)


@dataclass(frozen=True, eq=False)
class OwnEffects:
    """Posterior of one owner's effects, in the table's units.

    Attributes:
        mean: of the effects, (d,).
        draws: by name, (S, ...).
        apart: posterior probability that the task is unrelated to the average of all tasks.
        offset: posterior mean of the part of the linear predictor that centres cause, where there is no intercept.
        khat: Pareto k of the weights that correct approximate draws.
        unit: size of a common unit in the table's units, (d,).
    """

    mean: FloatArray
    draws: Draws
    apart: float
    offset: float
    khat: float
    unit: FloatArray


class Known(NamedTuple):
    """Data of a task: its rows, or its estimate as rows.

    Attributes:
        rows: rows in common units. The prediction of the reference's guess is subtracted from targets that are numbers, and
            is part of the offset for other outcomes.
        units: the units.
    """

    rows: Predictors
    units: Units

    def __repr__(self) -> str:
        return shown(self)


class FromAll(NamedTuple):
    """Public information that all owners use.

    Attributes:
        mu: draws of average effects, (S, d).
        alone: the prior of a task without other tasks, with effects of any size.
    """

    mu: FloatArray
    alone: EffectsPriors


def known_of(tasks: TaskData | Estimates, layout: EffectsLayout) -> Iterator[Known]:
    """Yield the rows or the estimate of every task, without rows where numbers exceed double precision."""
    data = tasks if isinstance(tasks, Estimates) else in_layout(tasks, layout)
    for i in range(data.num_tasks):
        with np.errstate(all="ignore"):  # a warning would tell about one task
            known = (
                _of_estimate(data.estimates[i], layout) if isinstance(data, Estimates) else _of_rows(data, i, layout)
            )
            X, y, offset, _ = known.rows
            if not all(np.isfinite(total).all() for total in (X.T @ X, y @ y, offset)):
                known = known._replace(rows=Predictors(*(part[:0] for part in known.rows)))
        yield known


def _of_rows(tasks: TaskData, i: int, layout: EffectsLayout) -> Known:
    """Return the rows of a task in common units."""
    observations = tasks.observations_of(i)
    units = layout.units(observations.X, observations.y)
    if layout.outcome != "number":
        return Known(predictors(observations, units, layout.outcome), units)
    return Known(_of_numbers(*rows_of_numbers(observations, units)), units)


def _of_estimate(estimate: Estimate, layout: EffectsLayout) -> Known:
    """Return an estimate as rows whose residual variance is known."""
    mean, covariance = in_common_units(estimate, layout)
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        return Known(_of_numbers(np.full((1, len(mean)), np.nan), np.full(1, np.nan)), layout.reference_units)
    return Known(_of_numbers(*as_rows(mean, covariance)), layout.reference_units)


def _of_numbers(X: FloatArray, y: FloatArray) -> Predictors:
    """Return rows without offset, each of weight one."""
    return Predictors(X, y, np.zeros(len(y)), np.ones(len(y)))


def own_effects(
    known: Known,
    priors: tuple[EffectsPriors, EffectsPriors],
    from_all: FromAll,
    kind: Likelihood,
    total: int,
    rng: np.random.Generator,
) -> OwnEffects:
    """Compute the posterior of one owner's effects, in common units about the reference's guess and then in the table's.

    Args:
        known: the task's data.
        priors: the prior of a task like the others, one for every draw of average effects, and that of an unrelated task.
        from_all: public information.
        kind: the likelihood.
        total: number of draws.
        rng: generator of the draws.
    """
    units = known.units
    mean, drawn, shares, khat = _sound_posterior(known.rows, priors, kind, total, rng)
    alone = _alone(known, from_all.alone, kind, total, rng)
    number = np.where(drawn["part"] == 0, drawn["prior"], rng.integers(len(from_all.mu), size=total))
    scale = per_table_unit(units)
    effects = drawn["beta"] + units.guess
    draws = {
        "W": units.to_table(effects),
        "effect": in_table(drawn["beta"], units),
        "alone": in_table(alone - units.guess, units),
        "difference": (drawn["beta"] - from_all.mu[number]) * scale,
    }
    if not isinstance(kind, OfEstimates):  # estimates have no targets to predict
        draws["offset"] = units.offset(effects)
    if "dispersion" in drawn:
        draws["dispersion"] = drawn["dispersion"]
    elif not isinstance(kind, OfEstimates) and kind.families is None:
        draws["sigma"] = drawn["sigma"] * units.target_scale
    offset = float(units.offset(mean + units.guess))
    return OwnEffects(units.to_table(mean + units.guess), draws, float(shares[-1]), offset, khat, scale)


def _alone(known: Known, prior: EffectsPriors, kind: Likelihood, total: int, rng: np.random.Generator) -> FloatArray:
    """Draw the effects (S, d) of a task given its own data only, without the release and earlier studies."""
    X, y, offset, _ = known.rows
    with np.errstate(all="ignore"):
        guessed = X @ known.units.guess
        if kind.families is not None:
            without_guess = known.rows._replace(offset=offset - guessed)
        else:
            without_guess = known.rows._replace(y=y + guessed)
        if isinstance(kind, OfEstimates) and len(X):
            # the estimate itself, with a mean of the draws that is exact
            z = rng.standard_normal((total, len(y)))
            return np.linalg.solve(X, (without_guess.y + z - z.mean(axis=0)).T).T
    return _sound_posterior(without_guess, (prior,), kind, total, rng)[1]["beta"]


#: Mean (d,), draws, the posterior probability of every set of priors, and the Pareto k of the weights that correct draws.
type _Posterior = tuple[FloatArray, Draws, FloatArray, float]


def _sound_posterior(
    rows: Predictors, priors: tuple[EffectsPriors, ...], kind: Likelihood, total: int, rng: np.random.Generator
) -> _Posterior:
    """Compute the posterior, or that of a task without rows where numbers exceed double precision."""
    try:
        with np.errstate(all="ignore"):
            posterior = _posterior(rows, priors, kind, total, rng)
        if np.isfinite(posterior[0]).all() and np.isfinite(posterior[1]["beta"]).all():
            return posterior
    except (ValueError, np.linalg.LinAlgError):  # an error would end the fits of all other tasks
        pass
    return _posterior(Predictors(*(part[:0] for part in rows)), priors, kind, total, rng)


def _posterior(
    rows: Predictors, priors: tuple[EffectsPriors, ...], kind: Likelihood, total: int, rng: np.random.Generator
) -> _Posterior:
    """Compute the posterior by the likelihood."""
    X, y = rows.X, rows.y
    posterior: EffectsPosterior
    if kind.exact:
        residuals = KNOWN if isinstance(kind, OfEstimates) else UNKNOWN
        posterior = effects_posterior(X, y, priors, residuals=residuals)
        return posterior.mean, posterior.sample(rng, total), posterior.shares, 0.0
    if kind.families is not None:
        return _of_other_outcomes(rows, priors, kind, total, rng)
    posterior, counts = student_effects_posterior(X, y, priors)
    proposals = posterior.sample(rng, num_proposals(total))
    mean, draws, _, khat = _exact(posterior.mean, proposals, student_log_ratio(X, y, counts, proposals), total, rng)
    return mean, draws, posterior.shares, khat


def _of_other_outcomes(
    rows: Predictors, priors: tuple[EffectsPriors, ...], kind: Likelihood, total: int, rng: np.random.Generator
) -> _Posterior:
    """Compute the posterior for labels and counts, by importance weights of a normal approximation."""
    assert kind.families is not None
    approximate = generalized_posterior(rows, kind.families, priors)
    proposals = approximate.sample(rng, num_proposals(total))
    log_ratio = approximate.log_ratio(rows, proposals)
    mean, draws, weight, khat = _exact(approximate.mean, proposals, log_ratio, total, rng)
    dispersions = [getattr(law, "dispersion", np.nan) for law in approximate.laws]
    if not np.isnan(dispersions).any():
        draws["dispersion"] = np.array(dispersions)[draws["block"]]
    return mean, draws, np.bincount(proposals["part"].astype(int), weight, len(priors)), khat


def _exact(
    mean: FloatArray, proposals: Draws, log_ratio: FloatArray, total: int, rng: np.random.Generator
) -> tuple[FloatArray, Draws, FloatArray, float]:
    """Correct an approximation by importance weights.

    Args:
        mean: exact mean of the approximation, (d,).
        proposals: its draws by name, (S, ...).
        log_ratio: log of the exact over the approximate density, (S,).
        total: number of draws.
        rng: generator that resamples.

    Returns:
        The exact mean, draws, the proposals' weights (S,) and their Pareto k.
    """
    (weight,), khat = smoothed(log_ratio[None])
    # the mean of the approximation is known, so that only the weights' correction of it has a Monte Carlo error
    corrected = mean + (weight - 1 / len(weight)) @ proposals["beta"]
    picked = rng.choice(len(weight), total, p=weight)
    return corrected, {name: values[picked] for name, values in proposals.items()}, weight, float(khat[0])


def with_own_intercept(slopes: OwnEffects, X: FloatArray, y: FloatArray, rng: np.random.Generator) -> OwnEffects:
    """Add the task's own intercept as the last effect: N(mean(y) - mean(x)'w, sigma^2 / n) given w and sigma."""
    centre = X[:, :-1].mean(axis=0)
    level = y.mean()
    sigma = slopes.draws["sigma"]
    error = sigma / np.sqrt(len(y)) * rng.standard_normal(len(sigma))
    draws = {
        name: np.concatenate([slopes.draws[name], (level - slopes.draws[name] @ centre + error)[:, None]], axis=1)
        for name in ("W", "effect", "alone")
    }
    unknown = np.full((len(error), 1), np.nan)  # an average of intercepts is not released
    draws["difference"] = np.concatenate([slopes.draws["difference"], unknown], axis=1)
    mean = np.append(slopes.mean, level - slopes.mean @ centre)
    return replace(slopes, mean=mean, draws=slopes.draws | draws, unit=np.append(slopes.unit, np.nan))
