"""Releases of messages of effects as the mixed model reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, in_range, positive
from mpmtl_prob.data.covariates import grouped
from mpmtl_prob.models.effects_release import CovariateGroups, EffectsPrior, EffectsRelease
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.release import Release


def checked_releases(releases: Any) -> tuple[Release, tuple[Release, ...]]:
    """Return the owners' release and the others. Raises ValueError unless they are of the same effects in the same units."""
    first, *others = releases if isinstance(releases, list | tuple) and releases else [releases]
    for release in (first, *others):
        if not isinstance(release, Release):
            got = type(release).__name__
            raise ValueError(f"release: expected a Release, got {got}; make one with mpmtl_prob.release")
    layout = layout_of(first)
    for number, release in enumerate(others, 2):
        other = layout_of(release)
        same = (other.coefficients, other.reference) == (layout.coefficients, layout.reference)
        if not same or other.coordinates != layout.coordinates:
            raise ValueError(
                f"release: expected the effects {list(layout.coefficients)} in the same units in all releases, got others in "
                f"release {number}; their columns and reference values have to be the same"
            )
    return first, tuple(others)


def layout_of(release: Release) -> EffectsLayout:
    """Return the layout of a release's messages. Raises ValueError for a release without average effects."""
    if release.effects is None:
        raise ValueError(
            f"release: expected one of messages of effects, which holds average effects, got message={release.message!r}; "
            "make one with mpmtl_prob.release(tasks, epsilon, reference=...) or message='effects'"
        )
    return release.effects


def check_prior(prior: EffectsPrior) -> EffectsPrior:
    """Return the prior with its numbers as floats. Raises ValueError for one outside its range."""
    if not isinstance(prior, EffectsPrior):
        raise ValueError(f"prior: expected an EffectsPrior, got {type(prior).__name__}")
    return EffectsPrior(
        positive("prior: average", prior.average),
        positive("prior: spread", prior.spread),
        in_range("prior: spread_factor", prior.spread_factor, 1, np.inf),
        fraction("prior: correlation", prior.correlation),
        fraction("prior: determined", prior.determined),
        positive("prior: slope", prior.slope),
        positive("prior: errors", prior.errors),
    )


def observed_effects(release: Release, prior: EffectsPrior | None = None) -> EffectsRelease:
    """Prepare a release of messages of effects for :func:`mpmtl_prob.models.random_effects`.

    Args:
        release: a release of messages of effects.
        prior: default: :class:`EffectsPrior`.

    Raises:
        ValueError: a release of other messages.
    """
    layout = layout_of(release)
    law = release.mechanisms[-1]
    sigma = release.sigma[-1] - law.mean
    d = len(layout.coefficients)
    m = float(release.num_tasks)
    noise = law.variance / 2
    checked = EffectsPrior() if prior is None else prior
    if layout.covariates is not None:
        return _observed_with_covariates(layout, sigma, m, noise, checked)
    # the last column over the last entry is the mean of g eta, with noise
    last = float(np.clip(sigma[-1, -1], 0.15 * m, 0.9 * m))
    start = sigma[-1][:d] / last / layout.effect_size
    scale = np.sqrt(noise) / (last * layout.effect_size) + 0.3 / np.sqrt(m * d)
    start *= max(0.0, 1 - d * scale**2 / max(float(start @ start), 1e-12)) if d > 2 else 1.0  # James and Stein
    return EffectsRelease(
        sigma, m, noise, layout.averages, layout.effect_size, layout.determined_size, layout.effect_variance, start, scale,
        checked,
    )  # fmt: skip


def _observed_with_covariates(
    layout: EffectsLayout, sigma: FloatArray, m: float, noise: float, prior: EffectsPrior
) -> EffectsRelease:
    """Prepare a release as :func:`observed_effects`, for tasks with covariates z."""
    Z, d = layout.z, len(layout.coefficients)
    number = Z.shape[1]
    # The last columns times the inverse of their last rows are the regression of g eta on z. Those rows are the sum of
    # z z' / |u|^2 with noise. Here it is computed from the public z and one number, |u|^2 - |z|^2, which is estimated from
    # the noisy sum of |z|^2 / |u|^2.
    excess = np.geomspace(0.1, 6.0, 60)
    squares = (Z**2).sum(axis=1)
    share = (squares / (squares + excess[:, None])).sum(axis=1)
    weight = 1 / (squares + excess[np.abs(share - np.trace(sigma[-number:, -number:])).argmin()])
    inverse = np.linalg.inv((Z.T * weight) @ Z)
    start = sigma[:d, -number:] @ inverse / layout.effect_size
    scale = np.sqrt(noise) * np.linalg.norm(inverse, axis=0) / layout.effect_size + 0.3 / np.sqrt(m * d)
    if d > 2:  # James and Stein
        start *= np.maximum(0.0, 1 - d * scale**2 / np.maximum((start**2).sum(axis=0), 1e-12))
    groups = grouped(Z)
    return EffectsRelease(
        sigma, m, noise, layout.averages, layout.effect_size, layout.determined_size, layout.effect_variance,
        start[:, 0], scale[0], prior, CovariateGroups(groups.values, groups.counts, start[:, 1:], scale[1:]),
    )  # fmt: skip
