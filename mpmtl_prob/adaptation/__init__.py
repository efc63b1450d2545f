"""Private domain adaptation."""

from mpmtl_prob.adaptation import accounting, bounds, problems
from mpmtl_prob.adaptation.baselines import NoisyGradient, SourceOnly, Unprotected, WarmDescent
from mpmtl_prob.adaptation.cnvx import CnvxAdap
from mpmtl_prob.adaptation.discrepancy import Ball, private_discrepancy
from mpmtl_prob.adaptation.domain import Domain
from mpmtl_prob.adaptation.matching import KMM, DiscrepancyMinimisation
from mpmtl_prob.adaptation.ncnvx import NCnvxAdap

__all__ = [
    "KMM",
    "Ball",
    "CnvxAdap",
    "DiscrepancyMinimisation",
    "Domain",
    "NCnvxAdap",
    "NoisyGradient",
    "SourceOnly",
    "Unprotected",
    "WarmDescent",
    "accounting",
    "bounds",
    "private_discrepancy",
    "problems",
]
