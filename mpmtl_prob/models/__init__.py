"""NumPyro models: pure functions, no inference code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpmtl_prob._util.lazy import lazy_names

if TYPE_CHECKING:
    from mpmtl_prob.models import latent_weights, penalised, shared_covariance, task
    from mpmtl_prob.models.effects import random_effects
    from mpmtl_prob.models.effects_release import EffectsPrior
    from mpmtl_prob.models.penalised import group_sparse, low_rank, low_rank_sparse
    from mpmtl_prob.models.priors import EntrywiseLaplace, GroupLaplace, TraceNormPrior
    from mpmtl_prob.models.wishart import (
        BoundedMatrix,
        MatrixBeta,
        ShiftedGaussian,
        ShiftedWishart,
        between_zero_and,
        positive_definite_above,
    )

__all__ = [
    "BoundedMatrix",
    "EffectsPrior",
    "EntrywiseLaplace",
    "GroupLaplace",
    "MatrixBeta",
    "ShiftedGaussian",
    "ShiftedWishart",
    "TraceNormPrior",
    "between_zero_and",
    "group_sparse",
    "latent_weights",
    "low_rank",
    "low_rank_sparse",
    "penalised",
    "positive_definite_above",
    "random_effects",
    "shared_covariance",
    "task",
]

#: A public posterior without chains needs no NumPyro, so that everything is imported on request.
__getattr__ = lazy_names(
    __name__,
    {
        "BoundedMatrix": ".wishart",
        "EffectsPrior": ".effects_release",
        "EntrywiseLaplace": ".priors",
        "GroupLaplace": ".priors",
        "MatrixBeta": ".wishart",
        "ShiftedGaussian": ".wishart",
        "ShiftedWishart": ".wishart",
        "TraceNormPrior": ".priors",
        "between_zero_and": ".wishart",
        "group_sparse": ".penalised",
        "low_rank": ".penalised",
        "low_rank_sparse": ".penalised",
        "positive_definite_above": ".wishart",
        "random_effects": ".effects",
    },
)
