"""Mechanisms (noise laws): exact sampling, densities, and the privacy loss of one draw."""

from mpmtl_prob._util.former import former_names
from mpmtl_prob.privacy.mechanisms.gaussian import Gaussian
from mpmtl_prob.privacy.mechanisms.mechanism import (
    MatrixMechanism,
    Mechanism,
    VectorMechanism,
    read_mechanism,
    register,
    write_mechanism,
)
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.privacy.mechanisms.quantile import Quantile
from mpmtl_prob.privacy.mechanisms.shares import GaussianShares
from mpmtl_prob.privacy.mechanisms.vector_gaussian import VectorGaussian
from mpmtl_prob.privacy.mechanisms.vectors import IndependentLaplace, VectorLaplace
from mpmtl_prob.privacy.mechanisms.wishart import (
    PAPERS,
    PaperTaskWishart,
    PaperWishart,
    PaperWishart2018,
    PaperWishart2018Unit,
    Wishart,
)

__all__ = [
    "PAPERS",
    "Gaussian",
    "GaussianShares",
    "IndependentLaplace",
    "MatrixMechanism",
    "Mechanism",
    "PaperTaskWishart",
    "PaperWishart",
    "PaperWishart2018",
    "PaperWishart2018Unit",
    "PrivacyProfile",
    "Quantile",
    "VectorGaussian",
    "VectorLaplace",
    "VectorMechanism",
    "Wishart",
    "read_mechanism",
    "register",
    "write_mechanism",
]

__getattr__ = former_names(
    __name__,
    {
        "Law": "Mechanism",
        "MatrixNoise": "MatrixMechanism",
        "Profile": "PrivacyProfile",
        "VectorNoise": "VectorMechanism",
        "read_law": "read_mechanism",
        "write_law": "write_mechanism",
    },
)
