"""Release of a private target's second moments (sufficient-statistics perturbation), and inference from it at no cost."""

from mpmtl_prob.adaptation.moments.release import MomentRelease, release_moments

__all__ = ["MomentRelease", "release_moments"]
