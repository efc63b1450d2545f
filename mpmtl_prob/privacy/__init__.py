"""Differential privacy: mechanisms (noise), accounting and composition, guarantees, the privacy ledger, audits.

This package is about vectors and matrices of bounded norm. Releases of tasks are in :mod:`mpmtl_prob.releases`.
"""

from __future__ import annotations

from mpmtl_prob._util.former import former_names
from mpmtl_prob.privacy import audit
from mpmtl_prob.privacy.accounting.budgets import composition_bound, schedule
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.accounting.composition import Bracket, compute_delta, compute_epsilon, delta_bracket
from mpmtl_prob.privacy.accounting.curves import MembershipOdds, compute_profile
from mpmtl_prob.privacy.audit import views
from mpmtl_prob.privacy.charge_and_draw import draw_vectors
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED, Bound, Guarantee
from mpmtl_prob.privacy.ledger import BudgetExceeded, Charge, Ledger
from mpmtl_prob.privacy.ledger_file import LedgerAltered
from mpmtl_prob.privacy.mechanisms import (
    Gaussian,
    GaussianShares,
    IndependentLaplace,
    MatrixMechanism,
    Mechanism,
    PaperTaskWishart,
    PaperWishart,
    PaperWishart2018,
    PaperWishart2018Unit,
    PrivacyProfile,
    Quantile,
    VectorGaussian,
    VectorLaplace,
    VectorMechanism,
    Wishart,
    register,
)
from mpmtl_prob.privacy.units import Adjacency, Unit

__all__ = [
    "NOTHING_SHARED",
    "NOT_PRIVATE",
    "Adjacency",
    "Bound",
    "Bracket",
    "BudgetExceeded",
    "Charge",
    "Gaussian",
    "GaussianShares",
    "Guarantee",
    "IndependentLaplace",
    "Ledger",
    "LedgerAltered",
    "MatrixMechanism",
    "Mechanism",
    "MembershipOdds",
    "PaperTaskWishart",
    "PaperWishart",
    "PaperWishart2018",
    "PaperWishart2018Unit",
    "PrivacyProfile",
    "Quantile",
    "Unit",
    "VectorGaussian",
    "VectorLaplace",
    "VectorMechanism",
    "Wishart",
    "audit",
    "calibrate",
    "calibrate_gaussian",
    "composition_bound",
    "compute_delta",
    "compute_epsilon",
    "compute_profile",
    "delta_bracket",
    "draw_vectors",
    "register",
    "schedule",
    "views",
]

__getattr__ = former_names(
    __name__,
    {
        "Law": "Mechanism",
        "MatrixNoise": "MatrixMechanism",
        "VectorNoise": "VectorMechanism",
        "Curve": "compute_profile",
        "delta": "compute_delta",
        "epsilon": "compute_epsilon",
        "Release": "mpmtl_prob.releases:Release",
        "release": "mpmtl_prob.releases:release",
        "buy_clip": "mpmtl_prob.releases:private_clip_norm",
        "BoughtClip": "mpmtl_prob.releases:PrivateClipNorm",
        "default_delta": "mpmtl_prob.releases:default_delta",
    },
)
