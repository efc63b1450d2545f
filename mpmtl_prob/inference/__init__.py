"""From a release to posteriors, the public one and every owner's own; and from all rows to a curator's."""

from mpmtl_prob.inference.comparison import ReleaseComparison, compare_releases
from mpmtl_prob.inference.diagnostics import Diagnosis
from mpmtl_prob.inference.fitting import fit
from mpmtl_prob.inference.information import Information
from mpmtl_prob.inference.langevin import ProximalLangevin
from mpmtl_prob.inference.noise_aware import NoiseAware
from mpmtl_prob.inference.odds import Membership, membership
from mpmtl_prob.inference.owners import OwnerPosteriors, task_posteriors
from mpmtl_prob.inference.posterior import Posterior
from mpmtl_prob.inference.private import MPMTLKernel, private_langevin
from mpmtl_prob.inference.rounds import posterior_draws
from mpmtl_prob.inference.shared import SharedPosterior, shared_covariance
from mpmtl_prob.inference.subspace import Subspace, subspace

__all__ = [
    "Diagnosis",
    "Information",
    "MPMTLKernel",
    "Membership",
    "NoiseAware",
    "OwnerPosteriors",
    "Posterior",
    "ProximalLangevin",
    "ReleaseComparison",
    "SharedPosterior",
    "Subspace",
    "compare_releases",
    "fit",
    "membership",
    "posterior_draws",
    "private_langevin",
    "shared_covariance",
    "subspace",
    "task_posteriors",
]
