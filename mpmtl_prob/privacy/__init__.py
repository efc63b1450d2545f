"""What leaves the room, and what it gives away: mechanisms, accounting, budgets, the release."""

from mpmtl_prob.privacy import audit, views
from mpmtl_prob.privacy.budget import composition_bound, schedule
from mpmtl_prob.privacy.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.composition import Bracket, delta, delta_bracket, epsilon
from mpmtl_prob.privacy.curves import Curve, MembershipOdds
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED, Bound, Guarantee
from mpmtl_prob.privacy.ledger import BudgetExceeded, Charge, Ledger
from mpmtl_prob.privacy.ledger_file import LedgerAltered
from mpmtl_prob.privacy.mechanisms import (
    Gaussian,
    Mechanism,
    PaperTaskWishart,
    PaperWishart,
    Quantile,
    Wishart,
    paper_wishart,
)
from mpmtl_prob.privacy.messages import BoughtClip, buy_clip
from mpmtl_prob.privacy.outputs import draw_vectors
from mpmtl_prob.privacy.release import Release, default_delta, release
from mpmtl_prob.privacy.vectors import IndependentLaplace, VectorLaplace

__all__ = [
    "NOTHING_SHARED",
    "NOT_PRIVATE",
    "BoughtClip",
    "Bound",
    "Bracket",
    "BudgetExceeded",
    "Charge",
    "Curve",
    "Gaussian",
    "Guarantee",
    "IndependentLaplace",
    "Ledger",
    "LedgerAltered",
    "Mechanism",
    "MembershipOdds",
    "PaperTaskWishart",
    "PaperWishart",
    "Quantile",
    "Release",
    "VectorLaplace",
    "Wishart",
    "audit",
    "buy_clip",
    "calibrate",
    "calibrate_gaussian",
    "composition_bound",
    "default_delta",
    "delta",
    "delta_bracket",
    "draw_vectors",
    "epsilon",
    "paper_wishart",
    "release",
    "schedule",
    "views",
]
