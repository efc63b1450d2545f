"""Which model reads a release: the structures of Omega by name, with where their chains start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from mpmtl_prob.models import latent_weights
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.privacy.mechanisms import Wishart
from mpmtl_prob.privacy.release import Release
from mpmtl_prob.tasks import FloatArray

STRUCTURES = ("auto", "full", "low_rank", "group_sparse", "paper", "paper_group_sparse")
#: Those whose prior favours no direction.
ROTATION_INVARIANT = ("full", "low_rank", "paper")
_PAPER = {"full": "matrix_t", "paper": "trace_norm", "paper_group_sparse": "group_laplace"}
_MAX_RANK = 8


class Program(NamedTuple):
    """A model of a release and where to start its chains."""

    model: Callable[..., Any]
    start: Mapping[str, FloatArray | float]


def observed(release: Release) -> model.Observed:
    """The release as the models read it. Raises ValueError for noise without a known density."""
    rounds = []
    for sigma, law in zip(release.sigma, release.mechanisms, strict=True):
        if not isinstance(law, Wishart):
            raise ValueError(f"release: expected Wishart noise, whose density the model knows, got {law.kind}")
        rounds.append(
            model.observe(
                sigma,
                law.df,
                law.scale,
                release.num_tasks,
                phi=law.clip**2 / release.num_features,
                trace=float(release.num_tasks) if release.message == "direction" else None,
            )
        )
    if len(rounds) == 1:
        return rounds[0]
    every: model.Observed = jax.tree.map(lambda *leaves: np.stack(leaves), *rounds)
    return every._replace(num_tasks=rounds[0].num_tasks, log_phi_mean=rounds[0].log_phi_mean)


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
        return Program(latent_weights.latent_weights(m, _PAPER[structure]), {"z": 0.0, "Z": Z})
    shape = () if rounds == 1 else (rounds,)
    start: dict[str, Any] = {
        "z": 0.0,
        "log_diagonal": np.zeros((*shape, d)),
        "off_diagonal": np.zeros((*shape, d * (d - 1) // 2)),
    }
    if structure == "full":
        return Program(model.full, start)
    if structure == "auto":
        return Program(model.adaptive, start | {"z_kappa": 0.0, "log_lambda": np.zeros(d)})
    if structure == "group_sparse":
        return Program(model.group_sparse, start | {"log_lambda": np.zeros(d)})
    rank = min(_MAX_RANK, d)
    leading = np.linalg.eigh(release.sigma.mean(axis=0))[1][:, ::-1][:, :rank]
    return Program(_low_rank(rank), start | {"log_lambda": np.zeros(rank), "G": np.sqrt(d) * leading})


@lru_cache
def _low_rank(rank: int) -> Callable[..., None]:
    return partial(model.low_rank, rank=rank)
