"""NumPyro models: pure functions, no inference code."""

from mpmtl_prob.models import latent_weights, shared_covariance, task

__all__ = ["latent_weights", "shared_covariance", "task"]
