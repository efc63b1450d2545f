"""Which model reads a release: the structures of Omega by name, with where their chains start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from mpmtl_prob.models import latent_weights
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.releases.release import Release
from mpmtl_prob.tasks import FloatArray

STRUCTURES = ("auto", "full", "low_rank", "group_sparse", "paper", "paper_group_sparse")
#: Those whose prior favours no direction.
ROTATION_INVARIANT = ("full", "low_rank", "paper")
#: Those always sampled in double precision: beside a large direction single precision loses the floor.
DOUBLE = ("auto", "low_rank", "group_sparse")
_PAPER = {"full": "matrix_t", "paper": "trace_norm", "paper_group_sparse": "group_laplace"}


class Program(NamedTuple):
    """A model of a release and where to start its chains."""

    model: Callable[..., Any]
    start: Mapping[str, FloatArray | float]


def observed(release: Release) -> model.Observed:
    """The release as the models read it. Raises ValueError for noise without a known density, or of several kinds."""
    rounds = []
    for sigma, law in zip(release.sigma, release.mechanisms, strict=True):
        rounds.append(
            model.observe(
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
    every: model.Observed = jax.tree.map(lambda *leaves: np.stack(leaves), *rounds)
    return every._replace(num_tasks=rounds[0].num_tasks, log_phi_mean=rounds[0].log_phi_mean)


def drowned(release: Release) -> bool:
    """Whether the size of A is public and the noise's fluctuation exceeds its average eigenvalue, m K^2 / d.

    If its size is not public, A may be as large as the release itself.
    """
    if release.message != "direction":
        return False
    law = release.mechanisms[0]
    return bool(law.fluctuation > release.num_tasks * law.clip**2 / release.num_features)


def program(structure: str, release: Release) -> Program:
    """The model of one structure.

    Raises:
        ValueError: a structure that needs more tasks than the release has, or one round.
    """
    m, d, rounds = release.num_tasks, release.num_features, release.rounds
    if structure.startswith("paper") or m < d:
        structure = "full" if structure == "auto" else structure
        if structure not in _PAPER:
            raise ValueError(
                f"structure: {structure!r} needs at least as many tasks as features, got {m} tasks and {d} features; "
                "use 'full' or 'paper'"
            )
        if rounds > 1:
            raise ValueError(f"release: expected one round where the weights are latent, got {rounds}")
        Z = np.random.default_rng(0).standard_normal((d, m))
        scales: dict[str, Any] = {"z": 0.0, "z_kappa": 0.0} if structure == "full" else {"z": 0.0}
        if structure == "full" and m <= d and drowned(release):
            root = {"log_diagonal": np.zeros(m), "off_diagonal": np.zeros(m * (m - 1) // 2)}
            return Program(latent_weights.drowned_weights(m), scales | root | {"N": Z})
        return Program(latent_weights.latent_weights(m, _PAPER[structure]), scales | {"Z": Z})
    public = observed(release)
    if structure == "full":
        return Program(model.full, start_full(public))
    if structure == "low_rank":
        rank = min(model.MAX_RANK, d)
        return Program(_low_rank(rank), start_low_rank(public, rank))
    if structure == "group_sparse":
        return Program(model.group_sparse, start_group_sparse(public))
    return Program(model.adaptive, start_adaptive(public))


def start_full(public: model.Observed) -> dict[str, Any]:
    """Where the model's own coordinates put what the release suggests."""
    *rounds, d = np.shape(public.precision)
    scales = {"z": 0.0, "z_kappa": 0.0}
    return scales | {"log_diagonal": np.zeros((*rounds, d)), "off_diagonal": np.zeros((*rounds, d * (d - 1) // 2))}


def start_adaptive(public: model.Observed) -> dict[str, Any]:
    """Where Omega may be anything round a small multiple of I: heavy tails reach what is larger."""
    variances = _variances(public)
    d = variances.shape[-1]
    omega = np.full(d, variances.min())
    factor = model.sites_of(public, variances, np.diag(omega), float(model.kappa_at(0.0, d)))
    return _above_a_floor(public, omega) | {"z_kappa": 0.0} | factor


def start_group_sparse(public: model.Observed) -> dict[str, Any]:
    """Where Omega has the diagonal that the release suggests."""
    omega = np.diagonal(_suggested(public))
    return _above_a_floor(public, omega) | model.sites_of(public, _variances(public), np.diag(omega))


def start_low_rank(public: model.Observed, rank: int) -> dict[str, Any]:
    """Where Omega has the leading directions that the release suggests, above a floor."""
    leading, directions = (x[..., ::-1][..., :rank] for x in np.linalg.eigh(_suggested(public)))
    floor, d = 0.5 * leading.min(), len(directions)
    omega = floor * np.eye(d) + (directions * (leading - floor)) @ directions.T
    factor = model.sites_of(public, _variances(public), omega)
    return _above_a_floor(public, leading) | {"G": np.sqrt(d) * directions} | factor


def _variances(public: model.Observed) -> FloatArray:
    """Of the weights along the release's eigenvectors, as it suggests: hidden ones share what a public trace leaves."""
    hidden, m = np.asarray(public.hidden), np.asarray(public.num_tasks)
    size = 1 / (np.asarray(public.precision) + np.asarray(public.noise.floor))
    left = (public.trace - np.sum((1 - hidden) * size, axis=-1)) / np.sum(hidden * size, axis=-1)
    share = np.where(np.isfinite(public.trace_sd), np.clip(left, 0.02, 1.0), 1.0)
    found: FloatArray = size * (1 - hidden * (1 - share[..., None])) / m
    return found


def _suggested(public: model.Observed) -> FloatArray:
    """Omega as the release suggests, the mean over rounds, (d, d)."""
    V, variances = np.asarray(public.eigenvectors), _variances(public)
    omega: FloatArray = (V * variances[..., None, :]) @ np.swapaxes(V, -1, -2)
    return omega.reshape(-1, *omega.shape[-2:]).mean(axis=0)


def _above_a_floor(public: model.Observed, variances: FloatArray) -> dict[str, Any]:
    """Where psi is half the smallest of these variances, and lambda explains the rest of each."""
    psi, log_phi_mean = 0.5 * variances.min(), np.asarray(public.log_phi_mean)
    return {
        "z": (np.log(psi) - log_phi_mean) / model.LOG_PHI_SD,
        "log_size": 0.5 * (np.log(variances - psi) - log_phi_mean),
    }


@lru_cache
def _low_rank(rank: int) -> Callable[..., None]:
    return partial(model.low_rank, rank=rank)


#: Typical correlation of two features' weights below which Omega counts as diagonal, and above which as without structure.
_DIAGONAL, _FULL = 0.1, 0.3
#: Inclusion, the share of omega_j above the floor, from which a feature stands out: .5 is what it is before the release.
_STANDS_OUT = 0.9
_SHOWN = 8


def describe(structure: str, posterior: xr.Dataset) -> str:
    """What is known of the structure, in words; of "auto", which structure the release speaks for.

    In the prior Omega ~ InverseWishart(kappa, diagonal) has correlations of mean 0 and variance 1 / (kappa - d + 2), so
    what a kappa means depends on d, and what the words go by does not.
    """
    if structure == "low_rank":
        return "low rank, as asked for: a few directions above a floor"
    if structure.startswith("paper"):
        return f"the papers' {'l2,1 norm' if structure.endswith('sparse') else 'trace norm'} as a prior, as asked for"
    if structure == "group_sparse":
        return f"diagonal, as asked for; {_features(posterior)}"
    if "inclusion" not in posterior:  # "full", or "auto" with fewer tasks than features
        return "none assumed"
    low, kappa, high = np.quantile(posterior["kappa"].values, [0.05, 0.5, 0.95])
    correlation = 1 / np.sqrt(kappa - posterior.sizes["feature"] + 2)
    found = "between full and diagonal: weights of different features go together, but little"
    if correlation < _DIAGONAL:
        found = "diagonal: every feature for itself"
    elif correlation > _FULL:
        found = "full: weights of different features go together"
    return (
        f"found to be {found} (kappa {kappa:.0f}, {low:.0f} to {high:.0f}: correlations near {correlation:.2f}); "
        f"{_features(posterior)}"
    )


def _features(posterior: xr.Dataset) -> str:
    inclusion = posterior["inclusion"].mean(("chain", "draw"))
    order = np.argsort(-inclusion.values, kind="stable")
    out = [str(inclusion["feature"].values[j]) for j in order if inclusion.values[j] > _STANDS_OUT]
    if not out:
        return f"none of {inclusion.size} features stands out"
    names = ", ".join(out[:_SHOWN]) + (", ..." if len(out) > _SHOWN else "")
    stand = "stands" if len(out) == 1 else "stand"
    return f"{len(out)} of {inclusion.size} features {stand} out (inclusion above .9): {names}"
