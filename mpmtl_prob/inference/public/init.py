"""A release as its models read it, and where their chains start: at what the release suggests."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models import second_moment as coordinates
from mpmtl_prob.models.observed import LOG_PHI_SD, Observed, observe
from mpmtl_prob.models.scale import OPEN
from mpmtl_prob.releases.release import Release


def observed(release: Release) -> Observed:
    """The release as the models read it: its last round, whose messages answer all rounds before.

    The first messages know of no other task: their second moment is not yet that of the weights, and to read it as if it were
    makes Omega too flat.

    Raises:
        ValueError: noise without a known density, or messages of effects, which have a model of their own.
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
    """Return whether the size of A is public and the noise hides even its largest direction, or nearly.

    If its size is not public, A may be as large as the release itself. From where on other coordinates serve better was found
    on LSOA II; the posterior is the same in both.
    """
    return release.message == "direction" and bool(np.min(observed(release).noise_dominance) > 0.25)


def start_full(public: Observed) -> dict[str, Any]:
    """Start where the model's own coordinates put what the release suggests."""
    return {"z": 0.0, "z_kappa": 0.0} | coordinates.at_rest(public)


def start_adaptive(public: Observed) -> dict[str, Any]:
    """Start where Omega is near a small multiple of I: heavy tails reach what is larger."""
    least = np.full(np.shape(public.precision), _variances(public).min())
    return _above_a_floor(public, least) | {"z_kappa": 0.0} | coordinates.at_rest(public)


def start_group_sparse(public: Observed) -> dict[str, Any]:
    """Start where Omega has the diagonal that the release suggests."""
    omega = np.diagonal(suggested(public))
    return _above_a_floor(public, omega) | coordinates.sites_of(public, _variances(public), omega)


def start_noise_dominated(public: Observed) -> dict[str, Any]:
    """Start where a random W has the row norms that the release suggests along its eigenvectors.

    Started where one does, as Bartlett's law has it, chains run into the boundary, and are thrown to where none ever will.
    """
    m, variances = round(float(np.asarray(public.num_tasks))), _variances(public)
    Z = np.random.default_rng(0).standard_normal((len(variances), m))
    rows = {"Z": Z * np.sqrt(variances / variances.mean())[:, None]}
    return rows | {"z": 0.0, "z_kappa": 1.5, "log_diagonal": np.zeros(m), "off_diagonal": np.zeros(m * (m - 1) // 2)}


def start_low_rank(public: Observed, rank: int) -> dict[str, Any]:
    """Start where Omega has the leading directions that the release suggests, above a floor."""
    leading, directions = (x[..., ::-1][..., :rank] for x in np.linalg.eigh(suggested(public)))
    floor, d, V = 0.5 * leading.min(), len(directions), np.asarray(public.eigenvectors)
    omega = floor * np.eye(d) + (directions * (leading - floor)) @ directions.T
    factor = coordinates.sites_of(public, _variances(public), omega)
    return _above_a_floor(public, leading) | {"G": np.sqrt(d) * V.T @ directions} | factor


def _variances(public: Observed) -> FloatArray:
    """Return variances of the weights along the release's eigenvectors: hidden ones share what a public trace leaves."""
    hidden, m = np.asarray(public.noise_dominance), np.asarray(public.num_tasks)
    size = 1 / (np.asarray(public.precision) + np.asarray(public.noise.precision_floor))
    left = (public.trace - np.sum((1 - hidden) * size)) / np.sum(hidden * size)
    share = np.clip(left, 0.02, 1.0) if public.trace_precision else 1.0
    found: FloatArray = size * (1 - hidden * (1 - share)) / m
    return found


def suggested(public: Observed) -> FloatArray:
    """Omega as the release suggests, (d, d)."""
    V = np.asarray(public.eigenvectors)
    omega: FloatArray = (V * _variances(public)) @ V.T
    return omega


def _above_a_floor(public: Observed, variances: FloatArray) -> dict[str, Any]:
    """Start where psi is half the smallest of these variances, and lambda explains the rest of each."""
    psi, log_phi_mean = 0.5 * variances.min(), np.asarray(public.log_phi_mean)
    size = np.sqrt((variances - psi) / np.exp(log_phi_mean))
    return {
        "z": (np.log(psi) - log_phi_mean) / (LOG_PHI_SD * OPEN),
        "size": size + np.log(-np.expm1(-size)),  # whose softplus it is
    }
