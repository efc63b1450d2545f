"""Differential privacy: noise laws, what they give away together, guarantees, the ledger, audits.

It knows vectors and matrices of bounded norm, and nothing of models; what is made of tasks is in :mod:`mpmtl_prob.releases`.
"""

from __future__ import annotations

from mpmtl_prob.privacy import audit
from mpmtl_prob.privacy.accounting.budgets import composition_bound, schedule
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.accounting.composition import Bracket, delta, delta_bracket, epsilon
from mpmtl_prob.privacy.accounting.curves import Curve, MembershipOdds
from mpmtl_prob.privacy.audit import views
from mpmtl_prob.privacy.door import draw_vectors
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED, Bound, Guarantee
from mpmtl_prob.privacy.laws import (
    Gaussian,
    GaussianShares,
    IndependentLaplace,
    Law,
    MatrixNoise,
    PaperTaskWishart,
    PaperWishart,
    Quantile,
    VectorGaussian,
    VectorLaplace,
    VectorNoise,
    Wishart,
    register,
)
from mpmtl_prob.privacy.ledger import BudgetExceeded, Charge, Ledger
from mpmtl_prob.privacy.ledger_file import LedgerAltered
from mpmtl_prob.privacy.units import Adjacency, Unit

__all__ = [
    "NOTHING_SHARED",
    "NOT_PRIVATE",
    "Adjacency",
    "Bound",
    "Bracket",
    "BudgetExceeded",
    "Charge",
    "Curve",
    "Gaussian",
    "GaussianShares",
    "Guarantee",
    "IndependentLaplace",
    "Law",
    "Ledger",
    "LedgerAltered",
    "MatrixNoise",
    "MembershipOdds",
    "PaperTaskWishart",
    "PaperWishart",
    "Quantile",
    "Unit",
    "VectorGaussian",
    "VectorLaplace",
    "VectorNoise",
    "Wishart",
    "audit",
    "calibrate",
    "calibrate_gaussian",
    "composition_bound",
    "delta",
    "delta_bracket",
    "draw_vectors",
    "epsilon",
    "register",
    "schedule",
    "views",
]
