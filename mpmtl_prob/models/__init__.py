"""NumPyro models: pure functions, no inference code."""

from mpmtl_prob.models import shared_covariance, task
from mpmtl_prob.models.priors import EntrywiseLaplace, GroupLaplace, TraceNorm
from mpmtl_prob.models.wishart import (
    BoundedMatrix,
    MatrixBeta,
    ShiftedWishart,
    between_zero_and,
    positive_definite_above,
)

__all__ = [
    "BoundedMatrix",
    "EntrywiseLaplace",
    "GroupLaplace",
    "MatrixBeta",
    "ShiftedWishart",
    "TraceNorm",
    "between_zero_and",
    "positive_definite_above",
    "shared_covariance",
    "task",
]
