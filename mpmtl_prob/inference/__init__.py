"""From a release to posteriors: the public one, and every owner's own."""

from mpmtl_prob.inference.owners import OwnerPosteriors, task_posteriors
from mpmtl_prob.inference.rounds import posterior_draws
from mpmtl_prob.inference.shared import SharedPosterior, shared_covariance
from mpmtl_prob.inference.subspace import Subspace, subspace

__all__ = ["OwnerPosteriors", "SharedPosterior", "Subspace", "posterior_draws", "shared_covariance", "subspace", "task_posteriors"]
