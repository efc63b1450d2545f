"""A release as its models read it, and where their chains start: at what the release suggests."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mpmtl_prob.models import second_moment as coordinates
from mpmtl_prob.models.second_moment import Observed
from mpmtl_prob.models.shared_covariance import kappa_at
from mpmtl_prob.releases.release import Release
from mpmtl_prob.tasks import FloatArray


def observed(release: Release) -> Observed:
    """The release as the models read it. Raises ValueError for noise without a known density, or of several kinds."""
    rounds = []
    for sigma, law in zip(release.sigma, release.mechanisms, strict=True):
        rounds.append(
            coordinates.observe(
                sigma,
                law,
                release.num_tasks,
                phi=law.clip**2 / release.num_features,
                trace=float(release.num_tasks) if release.message == "direction" else None,
            )
        )
    if len(rounds) == 1:
        return rounds[0]
    if len({type(each.noise) for each in rounds}) > 1:
        kinds = sorted({law.kind for law in release.mechanisms})
        raise ValueError(f"release: expected noise of one kind in all rounds, got {' and '.join(kinds)}")
    every: Observed = jax.tree.map(lambda *leaves: np.stack(leaves), *rounds)
    return every._replace(num_tasks=rounds[0].num_tasks, log_phi_mean=rounds[0].log_phi_mean)


def drowned(release: Release) -> bool:
    """Whether the size of A is public and the noise's fluctuation exceeds its average eigenvalue, m K^2 / d.

    If its size is not public, A may be as large as the release itself.
    """
    if release.message != "direction":
        return False
    law = release.mechanisms[0]
    return bool(law.fluctuation > release.num_tasks * law.clip**2 / release.num_features)


def start_full(public: Observed) -> dict[str, Any]:
    """Where the model's own coordinates put what the release suggests."""
    return {"z": 0.0, "z_kappa": 0.0} | coordinates.at_rest(public)


def start_adaptive(public: Observed) -> dict[str, Any]:
    """Where Omega may be anything round a small multiple of I: heavy tails reach what is larger."""
    variances = _variances(public)
    d = variances.shape[-1]
    omega = np.full(d, variances.min())
    factor = coordinates.sites_of(public, variances, np.diag(omega), float(kappa_at(0.0, d)))
    return _above_a_floor(public, omega) | {"z_kappa": 0.0} | factor


def start_group_sparse(public: Observed) -> dict[str, Any]:
    """Where Omega has the diagonal that the release suggests."""
    omega = np.diagonal(suggested(public))
    return _above_a_floor(public, omega) | coordinates.sites_of(public, _variances(public), np.diag(omega))


def start_low_rank(public: Observed, rank: int) -> dict[str, Any]:
    """Where Omega has the leading directions that the release suggests, above a floor."""
    leading, directions = (x[..., ::-1][..., :rank] for x in np.linalg.eigh(suggested(public)))
    floor, d = 0.5 * leading.min(), len(directions)
    omega = floor * np.eye(d) + (directions * (leading - floor)) @ directions.T
    factor = coordinates.sites_of(public, _variances(public), omega)
    return _above_a_floor(public, leading) | {"G": np.sqrt(d) * directions} | factor


def _variances(public: Observed) -> FloatArray:
    """Of the weights along the release's eigenvectors, as it suggests: hidden ones share what a public trace leaves."""
    hidden, m = np.asarray(public.hidden), np.asarray(public.num_tasks)
    size = 1 / (np.asarray(public.precision) + np.asarray(public.noise.floor))
    left = (public.trace - np.sum((1 - hidden) * size, axis=-1)) / np.sum(hidden * size, axis=-1)
    share = np.where(np.isfinite(public.trace_sd), np.clip(left, 0.02, 1.0), 1.0)
    found: FloatArray = size * (1 - hidden * (1 - share[..., None])) / m
    return found


def suggested(public: Observed) -> FloatArray:
    """Omega as the release suggests, the mean over rounds, (d, d)."""
    V, variances = np.asarray(public.eigenvectors), _variances(public)
    omega: FloatArray = (V * variances[..., None, :]) @ np.swapaxes(V, -1, -2)
    return omega.reshape(-1, *omega.shape[-2:]).mean(axis=0)


def _above_a_floor(public: Observed, variances: FloatArray) -> dict[str, Any]:
    """Where psi is half the smallest of these variances, and lambda explains the rest of each."""
    psi, log_phi_mean = 0.5 * variances.min(), np.asarray(public.log_phi_mean)
    size = np.sqrt((variances - psi) / np.exp(log_phi_mean))
    return {
        "z": (np.log(psi) - log_phi_mean) / coordinates.LOG_PHI_SD,
        "size": size + np.log(-np.expm1(-size)),  # whose softplus it is
    }
