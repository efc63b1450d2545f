"""Posteriors given a release, the public one and every owner's, and the curator's given all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpmtl_prob._util.lazy import lazy_names
from mpmtl_prob.inference.subspace import Subspace, subspace  # now, as the module of this name would hide the function

if TYPE_CHECKING:
    from mpmtl_prob.inference.curator.fitting import fit
    from mpmtl_prob.inference.curator.posterior import Posterior
    from mpmtl_prob.inference.curator.private import MPMTLKernel, private_langevin
    from mpmtl_prob.inference.noise_aware import NoiseAware
    from mpmtl_prob.inference.owner.answers import posterior_draws
    from mpmtl_prob.inference.owner.effects import OwnerEffects
    from mpmtl_prob.inference.owner.likelihoods import Likelihood, NormalErrors
    from mpmtl_prob.inference.owner.posteriors import OwnerPosteriors, task_posteriors
    from mpmtl_prob.inference.public.comparison import ReleaseComparison, compare_releases
    from mpmtl_prob.inference.public.effects import SharedEffects, shared_effects
    from mpmtl_prob.inference.public.information import Information
    from mpmtl_prob.inference.public.membership import Membership, membership
    from mpmtl_prob.inference.public.moment_estimate import FirstLook, first_look
    from mpmtl_prob.inference.public.observed_effects import observed_effects
    from mpmtl_prob.inference.public.shared import SharedPosterior, shared_covariance
    from mpmtl_prob.inference.public.structures import Structure, structure_for
    from mpmtl_prob.models.effects_release import EffectsPrior
    from mpmtl_prob.sampling.diagnostics import Diagnosis
    from mpmtl_prob.sampling.extent import Interrupted, Until
    from mpmtl_prob.sampling.langevin import ProximalLangevin
    from mpmtl_prob.single_task.conjugate import SnrPrior

__all__ = [
    "Diagnosis",
    "EffectsPrior",
    "FirstLook",
    "Information",
    "Interrupted",
    "Likelihood",
    "MPMTLKernel",
    "Membership",
    "NoiseAware",
    "NormalErrors",
    "OwnerEffects",
    "OwnerPosteriors",
    "Posterior",
    "ProximalLangevin",
    "ReleaseComparison",
    "SharedEffects",
    "SharedPosterior",
    "SnrPrior",
    "Structure",
    "Subspace",
    "Until",
    "compare_releases",
    "first_look",
    "fit",
    "membership",
    "observed_effects",
    "posterior_draws",
    "private_langevin",
    "shared_covariance",
    "shared_effects",
    "structure_for",
    "subspace",
    "task_posteriors",
]

#: A public posterior without chains needs no NumPyro, so that everything is imported on request.
__getattr__ = lazy_names(
    __name__,
    {
        "Diagnosis": "mpmtl_prob.sampling.diagnostics",
        "EffectsPrior": "mpmtl_prob.models.effects_release",
        "FirstLook": ".public.moment_estimate",
        "Information": ".public.information",
        "Interrupted": "mpmtl_prob.sampling.extent",
        "Likelihood": ".owner.likelihoods",
        "MPMTLKernel": ".curator.private",
        "Membership": ".public.membership",
        "NoiseAware": ".noise_aware",
        "NormalErrors": ".owner.likelihoods",
        "OwnerEffects": ".owner.effects",
        "OwnerPosteriors": ".owner.posteriors",
        "Posterior": ".curator.posterior",
        "ProximalLangevin": "mpmtl_prob.sampling.langevin",
        "ReleaseComparison": ".public.comparison",
        "SharedEffects": ".public.effects",
        "SharedPosterior": ".public.shared",
        "SnrPrior": "mpmtl_prob.single_task.conjugate",
        "Structure": ".public.structures",
        "Until": "mpmtl_prob.sampling.extent",
        "compare_releases": ".public.comparison",
        "first_look": ".public.moment_estimate",
        "fit": ".curator.fitting",
        "membership": ".public.membership",
        "observed_effects": ".public.observed_effects",
        "posterior_draws": ".owner.answers",
        "private_langevin": ".curator.private",
        "shared_covariance": ".public.shared",
        "shared_effects": ".public.effects",
        "structure_for": ".public.structures",
        "task_posteriors": ".owner.posteriors",
    },
)
