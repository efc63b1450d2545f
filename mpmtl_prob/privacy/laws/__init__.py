"""Noise laws: drawn exactly, their densities, and what one draw gives away."""

from mpmtl_prob.privacy.laws.gaussian import Gaussian
from mpmtl_prob.privacy.laws.law import Law, MatrixNoise, VectorNoise, read_law, register, write_law
from mpmtl_prob.privacy.laws.profile import Profile
from mpmtl_prob.privacy.laws.quantile import Quantile
from mpmtl_prob.privacy.laws.shares import GaussianShares
from mpmtl_prob.privacy.laws.vector_gaussian import VectorGaussian
from mpmtl_prob.privacy.laws.vectors import IndependentLaplace, VectorLaplace
from mpmtl_prob.privacy.laws.wishart import PaperTaskWishart, PaperWishart, Wishart

__all__ = [
    "Gaussian",
    "GaussianShares",
    "IndependentLaplace",
    "Law",
    "MatrixNoise",
    "PaperTaskWishart",
    "PaperWishart",
    "Profile",
    "Quantile",
    "VectorGaussian",
    "VectorLaplace",
    "VectorNoise",
    "Wishart",
    "read_law",
    "register",
    "write_law",
]
