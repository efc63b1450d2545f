"""Preparation of a release for its models, and starts of their chains near a moment estimate."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models import second_moment as coordinates
from mpmtl_prob.models.observed import LOG_PHI_SD, Observed, observe
from mpmtl_prob.models.scale import OPEN
from mpmtl_prob.releases.release import Release


def observed(release: Release) -> Observed:
    """Prepare the last round of a release, whose messages have used all rounds before.

    The first round's messages know nothing of other tasks. Their second moment is flatter than that of the weights, and Omega
    would be too.

    Raises:
        ValueError: noise without a known density, or messages of effects, which another model reads.
    """
    if release.effects is not None:
        raise ValueError(
            "release: expected messages of directions or weights, got those of effects, which "
            "mpmtl_prob.inference.shared_effects(release) reads"
        )
    law = release.mechanisms[-1]
    return observe(
        release.sigma[-1],
        law,
        release.num_tasks,
        phi=law.clip**2 / release.num_features,
        trace=float(release.num_tasks) if release.message == "direction" else None,
    )


def noise_dominated(release: Release) -> bool:
    """Return whether the trace of A is public and noise dominates even its largest direction, or nearly.

    If the trace is not public, A may be as large as the release itself. The limit was chosen on LSOA II, by which coordinates
    mix better; the posterior is the same in both.
    """
    return release.message == "direction" and bool(np.min(observed(release).noise_dominance) > 0.25)


def start_full(public: Observed) -> dict[str, Any]:
    """Start at zero in the model's coordinates, which are centred near a moment estimate."""
    return {"z": 0.0, "z_kappa": 0.0} | coordinates.at_rest(public)


def start_adaptive(public: Observed) -> dict[str, Any]:
    """Start where Omega is near a small multiple of I, from which chains reach larger variances by heavy tails."""
    least = np.full(np.shape(public.precision), _variances(public).min())
    return _above_a_floor(public, least) | {"z_kappa": 0.0} | coordinates.at_rest(public)


def start_group_sparse(public: Observed) -> dict[str, Any]:
    """Start where Omega has the diagonal of the moment estimate."""
    omega = np.diagonal(suggested(public))
    return _above_a_floor(public, omega) | coordinates.sites_of(public, _variances(public), omega)


def start_noise_dominated(public: Observed) -> dict[str, Any]:
    """Start where a random W has the row norms of the moment estimate along the release's eigenvectors.

    Chains from a draw of Bartlett's distribution reach the boundary A < Sigma, and are thrown far from the posterior's mass.
    """
    m = round(float(np.asarray(public.num_tasks)))
    variances = _variances(public)
    Z = np.random.default_rng(0).standard_normal((len(variances), m))
    rows = {"Z": Z * np.sqrt(variances / variances.mean())[:, None]}
    return rows | {"z": 0.0, "z_kappa": 1.5, "log_diagonal": np.zeros(m), "off_diagonal": np.zeros(m * (m - 1) // 2)}


def start_low_rank(public: Observed, rank: int) -> dict[str, Any]:
    """Start where Omega has the leading directions of the moment estimate, above a floor."""
    leading, directions = (x[..., ::-1][..., :rank] for x in np.linalg.eigh(suggested(public)))
    floor = 0.5 * leading.min()
    d = len(directions)
    V = np.asarray(public.eigenvectors)
    omega = floor * np.eye(d) + (directions * (leading - floor)) @ directions.T
    factor = coordinates.sites_of(public, _variances(public), omega)
    return _above_a_floor(public, leading) | {"G": np.sqrt(d) * V.T @ directions} | factor


def _variances(public: Observed) -> FloatArray:
    """Estimate variances of the weights along the release's eigenvectors, (d,).

    Directions that noise dominates share the part of a public trace that the others leave.
    """
    hidden = np.asarray(public.noise_dominance)
    m = np.asarray(public.num_tasks)
    size = 1 / (np.asarray(public.precision) + np.asarray(public.noise.precision_floor))
    left = (public.trace - np.sum((1 - hidden) * size)) / np.sum(hidden * size)
    share = np.clip(left, 0.02, 1.0) if public.trace_precision else 1.0
    variances: FloatArray = size * (1 - hidden * (1 - share)) / m
    return variances


def suggested(public: Observed) -> FloatArray:
    """Return the moment estimate of Omega, (d, d)."""
    V = np.asarray(public.eigenvectors)
    omega: FloatArray = (V * _variances(public)) @ V.T
    return omega


def _above_a_floor(public: Observed, variances: FloatArray) -> dict[str, Any]:
    """Start where psi is half the smallest of some variances, and each lambda the remainder of one."""
    psi = 0.5 * variances.min()
    log_phi_mean = np.asarray(public.log_phi_mean)
    size = np.sqrt((variances - psi) / np.exp(log_phi_mean))
    return {
        "z": (np.log(psi) - log_phi_mean) / (LOG_PHI_SD * OPEN),
        "size": size + np.log(-np.expm1(-size)),  # the inverse of the softplus
    }
