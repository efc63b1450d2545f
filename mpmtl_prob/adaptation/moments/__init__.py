"""One release of second moments of a private target, and all that follows from it without further cost."""

from mpmtl_prob.adaptation.moments.release import MomentRelease, release_moments

__all__ = ["MomentRelease", "release_moments"]
