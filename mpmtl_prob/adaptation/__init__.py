"""Private domain adaptation: a public labelled source, a private labelled target, and privacy for every target record.

- ``data.domain``: records of a domain, and the bounds on private records. ``data.problems``: synthetic pairs of domains;
  ``data.real``: School by kind of school, diabetes, digits, flights; ``data.paper_files``: the paper's data, from files that
  a user has; ``data.named``: all of these by name. ``data.kernels``: random features, a public map of rows.
- ``paper.discrepancy``: discrepancy between two samples (a measure of domain shift), exact or with Laplace noise.
- ``paper.objective``, ``paper.losses``, ``paper.descent``, ``paper.private``: the paper's objective functions and noisy
  gradient descents; ``paper.cnvx``, ``paper.ncnvx`` and ``paper.network`` are the estimators; ``paper.solver`` finds the
  non-private optimum; ``paper.accounting`` and ``bounds`` compare the theorems with the privacy that holds.
- ``paper.baselines``, ``paper.matching``, ``moments.adassp``, ``public_fit``: methods to compare with.
- ``moments``: one noisy second moment of (x, residual of a public fit), a form of sufficient-statistics perturbation, and a
  posterior from it. ``moment_adaptation`` is the estimator, with ``feature_moment`` and ``clipping`` for its model,
  ``grid_posterior`` (without a sampler) and ``shift_model`` (NUTS). ``tilting`` gives importance weights of source records
  (covariate shift), ``task_prior`` takes other private tasks in place of public records, and ``label_posterior`` is an
  approximate posterior of a classifier. This is no algorithm of the paper; start with it.
- ``data.scaling``, ``data.tables``, ``adapt``, ``arms``: the command ``mpmtl-prob adapt``, from files to a readable model, or
  to estimators side by side.

The unit of privacy is one record of the target, replaced by another one; the number of records is public.

Source: Bassily, Cortes, Mao and Mohri (2023), Differentially Private Domain Adaptation with Theoretical Guarantees.
"""

from mpmtl_prob._util.former import former_names
from mpmtl_prob.adaptation.data import paper_files, problems, real
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.data.kernels import RandomFeatures
from mpmtl_prob.adaptation.moments.adassp import AdaSSP
from mpmtl_prob.adaptation.moments.label_posterior import ApproximatePosterior, approximate_posterior
from mpmtl_prob.adaptation.moments.moment_adaptation import AdaptedPosterior, MomentAdaptation, infer
from mpmtl_prob.adaptation.moments.private_matching import PrivateDiscrepancyMinimisation
from mpmtl_prob.adaptation.moments.release import MomentRelease, release_moments
from mpmtl_prob.adaptation.moments.tilting import tilted
from mpmtl_prob.adaptation.paper import accounting
from mpmtl_prob.adaptation.paper.baselines import NoisyGradient, SourceOnly, Unprotected, WarmDescent
from mpmtl_prob.adaptation.paper.cnvx import CnvxAdap
from mpmtl_prob.adaptation.paper.discrepancy import Ball, private_discrepancy
from mpmtl_prob.adaptation.paper.matching import KMM, DiscrepancyMinimisation
from mpmtl_prob.adaptation.paper.ncnvx import NCnvxAdap
from mpmtl_prob.adaptation.paper.network import NetworkAdap
from mpmtl_prob.theory import adaptation as bounds

__all__ = [
    "KMM",
    "AdaSSP",
    "AdaptedPosterior",
    "ApproximatePosterior",
    "Ball",
    "CnvxAdap",
    "DiscrepancyMinimisation",
    "Domain",
    "MomentAdaptation",
    "MomentRelease",
    "NCnvxAdap",
    "NetworkAdap",
    "NoisyGradient",
    "PrivateDiscrepancyMinimisation",
    "RandomFeatures",
    "SourceOnly",
    "Unprotected",
    "WarmDescent",
    "accounting",
    "approximate_posterior",
    "bounds",
    "infer",
    "paper_files",
    "private_discrepancy",
    "problems",
    "real",
    "release_moments",
    "tilted",
]

__getattr__ = former_names(
    __name__,
    {
        "OneRelease": "MomentAdaptation",
    },
)
