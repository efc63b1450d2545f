"""Noise laws: drawn exactly, their densities, and what one draw gives away."""

from mpmtl_prob.privacy.mechanisms.gaussian import Gaussian
from mpmtl_prob.privacy.mechanisms.mechanism import (
    MatrixMechanism,
    Mechanism,
    VectorMechanism,
    read_mechanism,
    register,
    write_mechanism,
)
from mpmtl_prob.privacy.mechanisms.profile import LossProfile
from mpmtl_prob.privacy.mechanisms.quantile import Quantile
from mpmtl_prob.privacy.mechanisms.shares import GaussianShares
from mpmtl_prob.privacy.mechanisms.vector_gaussian import VectorGaussian
from mpmtl_prob.privacy.mechanisms.vectors import IndependentLaplace, VectorLaplace
from mpmtl_prob.privacy.mechanisms.wishart import PaperTaskWishart, PaperWishart, Wishart

__all__ = [
    "Gaussian",
    "GaussianShares",
    "IndependentLaplace",
    "LossProfile",
    "MatrixMechanism",
    "Mechanism",
    "PaperTaskWishart",
    "PaperWishart",
    "Quantile",
    "VectorGaussian",
    "VectorLaplace",
    "VectorMechanism",
    "Wishart",
    "read_mechanism",
    "register",
    "write_mechanism",
]
