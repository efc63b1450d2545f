"""Starts of a mixed model's chains, and which of their draws are kept and watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.effects import ACCURACY, MAX_RANK, EffectsRelease, other_site
from mpmtl_prob.sampling.chains import Draws

#: Sites that are kept.
KEPT = (
    *("mu", "Omega", *ACCURACY, "log_prior_mu", "log_prior_tau", "log_likelihood"),
    *("slopes", "log_prior_slopes"),  # of tasks with covariates
)


def start_of(seen: EffectsRelease, structure: str, others: Sequence[EffectsRelease] = ()) -> dict[str, Any]:
    """Unconstrained values round which chains start."""
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


def kept(draws: Draws) -> Draws:
    """Those of the draws that are kept."""
    return {name: draws[name] for name in KEPT if name in draws}


def watched_of(draws: Draws) -> dict[str, FloatArray]:
    """Average effects, the size of the spread and slopes, of whose draws there have to be enough."""
    watched = {"mu": draws["mu"], "log size": np.log(np.trace(draws["Omega"], axis1=-2, axis2=-1))}
    return watched | ({"slopes": draws["slopes"]} if "slopes" in draws else {})
