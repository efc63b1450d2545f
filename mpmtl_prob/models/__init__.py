"""NumPyro models: pure functions, no inference code."""

from mpmtl_prob.models import latent_weights, penalised, shared_covariance, task
from mpmtl_prob.models.effects import EffectsPrior, random_effects
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
