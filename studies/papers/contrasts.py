"""Paired differences between arms, and the share of the STL-to-MTL gap that an arm closes."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy import stats

from mpmtl_prob._util.arrays import FloatArray
from studies.papers.settings import KINDS, MTL, STL, Shared

LEVEL = 0.05  # significance level of every one-sided test


@dataclass(frozen=True)
class Difference:
    """Paired difference of two arms over replications, with t tests.

    Attributes:
        mean: mean of first minus second; positive if the first is worse.
        se: its standard error.
        worse: one-sided p of "the first is not worse".
        better: one-sided p of "the first is not better".
    """

    mean: float
    se: float
    worse: float
    better: float

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray) -> Difference | None:
        """Compute the difference; None with fewer than two replications of both."""
        d = np.asarray(first) - np.asarray(second)
        d = d[np.isfinite(d)]
        if len(d) < 2:
            return None
        mean, se = float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d)))
        if se == 0:
            return cls(mean, 0.0, 0.0 if mean > 0 else 1.0, 0.0 if mean < 0 else 1.0)
        t = stats.t(len(d) - 1)
        return cls(mean, se, float(t.sf(mean / se)), float(t.cdf(mean / se)))

    @property
    def is_worse(self) -> bool:
        return self.worse < LEVEL

    @property
    def is_better(self) -> bool:
        return self.better < LEVEL


def loss(results: xr.Dataset, data: str) -> xr.DataArray:
    """Return errors on one data set, less is better; for AUC they are 1 - AUC."""
    error = results["error"].sel(data=data)
    return 1 - error if json.loads(results.attrs["metrics"])[data] == "auc" else error


def shared(results: xr.Dataset, data: str) -> Shared:
    """Return the structure that the tasks of a data set share."""
    return KINDS[json.loads(results.attrs["kinds"])[data]].shared


def best_of(errors: xr.DataArray, arms: tuple[str, ...]) -> xr.DataArray | None:
    """Return the arm with the least mean error among those present, as the papers do for STL and MTL."""
    present = [arm for arm in arms if arm in errors["arm"] and bool(errors.sel(arm=arm).notnull().any())]
    if not present:
        return None
    return errors.sel(arm=min(present, key=lambda arm: float(errors.sel(arm=arm).mean())))


def gap_share(results: xr.Dataset, data: str, arm: str) -> xr.DataArray | None:
    """Return (STL - arm) / (STL - MTL) of means over replications, by epsilon; None if an arm or the gap is missing."""
    errors = loss(results, data)
    single, together = best_of(errors, STL), best_of(errors, MTL)
    if single is None or together is None or arm not in errors["arm"]:
        return None
    gap = single.mean("replication") - together.mean("replication")
    share = (single.mean("replication") - errors.sel(arm=arm).mean("replication")) / gap
    return share.dropna("epsilon") if bool((gap.dropna("epsilon") > 0).all()) else None


def pairs_of(first: xr.DataArray | None, second: xr.DataArray | None) -> dict[float, Difference]:
    """Return the differences by epsilon, where they exist."""
    if first is None or second is None:
        return {}
    by_epsilon = {
        float(eps): Difference.of(first.sel(epsilon=eps).values, second.sel(epsilon=eps).values)
        for eps in first["epsilon"].values
    }
    return {eps: difference for eps, difference in by_epsilon.items() if difference is not None}


def arm_of(errors: xr.DataArray, name: str) -> xr.DataArray | None:
    """Return the errors of an arm, or None if it was not run."""
    return errors.sel(arm=name) if name in errors["arm"] and bool(errors.sel(arm=name).notnull().any()) else None
