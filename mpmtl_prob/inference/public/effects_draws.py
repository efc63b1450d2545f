"""Draws of a mixed model: starts of their chains, which of them are stored and watched, and their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob.data.units import Units
from mpmtl_prob.models.effects_density import EffectsDensity
from mpmtl_prob.models.effects_release import ACCURACY, FEW_NUMBERS, MAX_RANK, EffectsRelease, other_site

if TYPE_CHECKING:
    from mpmtl_prob.sampling.compiled_density import CompiledDensity

#: Sites that are stored.
STORED = (
    *("mu", "Omega", *ACCURACY, "log_prior_mu", "log_prior_tau", "log_likelihood"),
    *("slopes", "log_prior_slopes"),  # of tasks with covariates
)


def start_of(seen: EffectsRelease, structure: str, others: Sequence[EffectsRelease] = ()) -> dict[str, Any]:
    """Return unconstrained values around which chains start."""
    groups, d = np.shape(seen.averages)
    accuracy: dict[str, Any] = {"level": np.full(groups, 1.0), "determined_spread_site": -0.5, "errors_site": 0.0}
    if d > 1:
        accuracy |= {"level_sd_site": -0.5, "levels": np.zeros(d)}
    start: dict[str, Any] = {"mu_away": np.zeros(d), "size": np.zeros(groups)} | accuracy
    if seen.covariates is not None:
        start["slopes_away"] = np.zeros(np.shape(seen.covariates.start))
    for number in range(len(others)):
        start |= {f"{other_site(number)}/{name}": value for name, value in accuracy.items()}
    if d > 1:
        of_shape: dict[str, dict[str, Any]] = {
            "full": {"unevenness": 0.0, "diagonal": np.zeros(d), "below": np.zeros(d * (d - 1) // 2)},
            "diagonal": {"unevenness": 0.0, "diagonal": np.zeros(d)},
            "group_sparse": {"scales": np.zeros(d)},
            "low_rank": {"scales": np.zeros(min(MAX_RANK, d)), "directions": np.zeros((d, min(MAX_RANK, d)))},
        }
        start |= of_shape[structure]
    return start


def density_of(
    structure: str, args: tuple[EffectsRelease, tuple[EffectsRelease, ...]], start: Mapping[str, Any]
) -> EffectsDensity | CompiledDensity:
    """Return the density of the model, in NumPy where that has it, and compiled otherwise."""
    release, others = args
    long = len(np.asarray(release.sigma)) > FEW_NUMBERS
    if structure == "full" and long and release.covariates is None and not others:
        return EffectsDensity(release, start)
    from mpmtl_prob.models.effects import model_of
    from mpmtl_prob.sampling.compiled_density import CompiledDensity

    return CompiledDensity(model_of(structure), args, start, STORED)


def stored_of(draws: Draws) -> Draws:
    """Return the draws that are stored."""
    return {name: draws[name] for name in STORED if name in draws}


def watched_of(draws: Draws) -> dict[str, FloatArray]:
    """Return average effects, the size of the spread, and slopes, which a run counts effective draws of."""
    watched = {"mu": draws["mu"], "log size": np.log(np.trace(draws["Omega"], axis1=-2, axis2=-1))}
    return watched | ({"slopes": draws["slopes"]} if "slopes" in draws else {})


def judged_of(draws: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Return what draws are judged by: average effects, the size of the spread, the accuracy of estimates, and slopes."""
    judged = {
        "average effects": draws["mu"],
        "spread": np.log(np.trace(draws["Omega"], axis1=-2, axis2=-1)),
        "accuracy": draws["determined"].mean(axis=-1),
    }
    return judged | ({"slopes": draws["slopes"]} if "slopes" in draws else {})


def in_table(effects: FloatArray, units: Units) -> FloatArray:
    """Return effects (..., d) in the table's units, with the reference's guess; an intercept at the reference's centres."""
    out: FloatArray = (effects + units.guess) * per_table_unit(units)
    if units.intercept:
        out[..., -1] += units.target_centre
    return out


def per_table_unit(units: Units) -> FloatArray:
    """Return the factors from effects in common units to those in the table's units, (d,)."""
    return units.target_scale / units.scale
