"""What leaves the room, and what it gives away: mechanisms, accounting, budgets, the release."""

from mpmtl_prob.privacy.accounting import calibrate, delta
from mpmtl_prob.privacy.budget import composition_bound, schedule
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED, Bound, Guarantee
from mpmtl_prob.privacy.mechanisms import Wishart, paper_wishart
from mpmtl_prob.privacy.release import Release, default_delta, release

__all__ = [
    "NOTHING_SHARED",
    "NOT_PRIVATE",
    "Bound",
    "Guarantee",
    "Release",
    "Wishart",
    "calibrate",
    "composition_bound",
    "default_delta",
    "delta",
    "paper_wishart",
    "release",
    "schedule",
]
