"""NumPyro models: pure functions, no inference code."""

from mpmtl_prob.models import shared_covariance, task

__all__ = ["shared_covariance", "task"]
