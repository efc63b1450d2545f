"""One owner of a mixed model: what its task knows, and the effects that follow from it and from what is known of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.data.units import Units
from mpmtl_prob.inference.owner.likelihoods import Likelihood, OfEstimates
from mpmtl_prob.inference.public.effects_draws import in_table, per_table_unit
from mpmtl_prob.releases.effects import EffectsLayout, in_common_units, in_layout, predictors, rows_of_numbers
from mpmtl_prob.sampling.chains import Draws
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
    """Posterior of one owner's effects, in the table's units."""

    mean: FloatArray
    draws: Draws
    apart: float
    offset: float
    khat: float
    unit: FloatArray


class Known(NamedTuple):
    """Rows of a task, or its estimate.

    Attributes:
        rows: in common units; of numbers targets are less what earlier studies say, of other outcomes that is in the offset.
        units: which these are.
    """

    rows: Predictors
    units: Units

    def __repr__(self) -> str:
        return shown(self)


class FromAll(NamedTuple):
    """Public draws that all owners use.

    Attributes:
        mu: draws of average effects, (S, d).
        alone: the prior of a task by itself, effects of any size.
    """

    mu: FloatArray
    alone: EffectsPriors


def known_of(tasks: TaskData | Estimates, layout: EffectsLayout) -> Iterator[Known]:
    """Yield the rows or the estimate of every task; none where numbers leave double precision."""
    data = tasks if isinstance(tasks, Estimates) else in_layout(tasks, layout)
    for i in range(data.num_tasks):
        with np.errstate(all="ignore"):  # a warning would tell of one task
            own = _of_estimate(data.estimates[i], layout) if isinstance(data, Estimates) else _of_rows(data, i, layout)
            X, y, offset, _ = own.rows
            if not all(np.isfinite(total).all() for total in (X.T @ X, y @ y, offset)):
                own = own._replace(rows=Predictors(*(part[:0] for part in own.rows)))
        yield own


def _of_rows(tasks: TaskData, i: int, layout: EffectsLayout) -> Known:
    own = tasks.observations_of(i)
    units = layout.units(own.X, own.y)
    if layout.outcome != "number":
        return Known(predictors(own, units, layout.outcome), units)
    return Known(_of_numbers(*rows_of_numbers(own, units)), units)


def _of_estimate(own: Estimate, layout: EffectsLayout) -> Known:
    """Return an estimate as rows whose residual variance is known."""
    mean, covariance = in_common_units(own, layout)
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        return Known(_of_numbers(np.full((1, len(mean)), np.nan), np.full(1, np.nan)), layout.reference_units)
    return Known(_of_numbers(*as_rows(mean, covariance)), layout.reference_units)


def _of_numbers(X: FloatArray, y: FloatArray) -> Predictors:
    return Predictors(X, y, np.zeros(len(y)), np.ones(len(y)))


def own_effects(
    known: Known,
    priors: tuple[EffectsPriors, EffectsPriors],
    from_all: FromAll,
    kind: Likelihood,
    total: int,
    rng: np.random.Generator,
) -> OwnEffects:
    """One owner's effects: in common units first, round what the reference says of them, then in the table's.

    Args:
        known: by its task.
        priors: of a task like the others, one for every draw of average effects, and of one that has nothing to do with them.
        from_all: of all tasks.
        kind: the likelihood.
        total: draws.
        rng: of the draws.
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
    if not isinstance(kind, OfEstimates):  # of which no targets are known
        draws["offset"] = units.offset(effects)
    if "dispersion" in drawn:
        draws["dispersion"] = drawn["dispersion"]
    elif not isinstance(kind, OfEstimates) and kind.families is None:
        draws["sigma"] = drawn["sigma"] * units.target_scale
    offset = float(units.offset(mean + units.guess))
    return OwnEffects(units.to_table(mean + units.guess), draws, float(shares[-1]), offset, khat, scale)


def _alone(known: Known, prior: EffectsPriors, kind: Likelihood, total: int, rng: np.random.Generator) -> FloatArray:
    """Draws of the effects (S, d) of a task that knows neither the release nor other studies."""
    X, y, offset, _ = known.rows
    with np.errstate(all="ignore"):
        guessed = X @ known.units.guess
        if kind.families is not None:
            plain = known.rows._replace(offset=offset - guessed)
        else:
            plain = known.rows._replace(y=y + guessed)
        if isinstance(kind, OfEstimates) and len(X):  # as it was handed over, its mean to the last digits
            z = rng.standard_normal((total, len(y)))
            return np.linalg.solve(X, (plain.y + z - z.mean(axis=0)).T).T
    return _sound_posterior(plain, (prior,), kind, total, rng)[1]["beta"]


#: The mean (d,), draws, how much every set of priors counts, and the Pareto k of what made the draws exact.
type _Posterior = tuple[FloatArray, Draws, FloatArray, float]


def _sound_posterior(
    rows: Predictors, priors: tuple[EffectsPriors, ...], kind: Likelihood, total: int, rng: np.random.Generator
) -> _Posterior:
    """Compute the posterior, or that of a new task where numbers leave double precision."""
    try:
        with np.errstate(all="ignore"):
            posterior = _posterior(rows, priors, kind, total, rng)
        if np.isfinite(posterior[0]).all() and np.isfinite(posterior[1]["beta"]).all():
            return posterior
    except (ValueError, np.linalg.LinAlgError):  # which would end the fits of all others on the desk
        pass
    return _posterior(Predictors(*(part[:0] for part in rows)), priors, kind, total, rng)


def _posterior(
    rows: Predictors, priors: tuple[EffectsPriors, ...], kind: Likelihood, total: int, rng: np.random.Generator
) -> _Posterior:
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
    """The exact mean, draws, the proposals' weights (S,) and their Pareto k, from an approximation's mean and proposals."""
    (weight,), khat = smoothed(log_ratio[None])
    # the approximation's mean is known: only the difference that the weights make is left to chance
    corrected = mean + (weight - 1 / len(weight)) @ proposals["beta"]
    kept = rng.choice(len(weight), total, p=weight)
    return corrected, {name: values[kept] for name, values in proposals.items()}, weight, float(khat[0])


def with_own_intercept(own: OwnEffects, X: FloatArray, y: FloatArray, rng: np.random.Generator) -> OwnEffects:
    """The same with the task's own intercept as the last effect: N(mean(y) - mean(x)'w, sigma^2 / n) given w and sigma."""
    centre, level, n = X[:, :-1].mean(axis=0), y.mean(), len(y)
    error = own.draws["sigma"] / np.sqrt(n) * rng.standard_normal(len(own.draws["sigma"]))
    with_own = {
        name: np.concatenate([own.draws[name], (level - own.draws[name] @ centre + error)[:, None]], axis=1)
        for name in ("W", "effect", "alone")
    }
    none = np.full((len(error), 1), np.nan)  # nothing is known of others' intercepts
    with_own["difference"] = np.concatenate([own.draws["difference"], none], axis=1)
    mean, unit = np.append(own.mean, level - own.mean @ centre), np.append(own.unit, np.nan)
    return replace(own, mean=mean, draws=own.draws | with_own, unit=unit)
