"""Private domain adaptation: a public labelled source, a private labelled target, and what one record of it is promised.

- ``domain``: records of a domain, and how a private one is bounded. ``problems``: made-up pairs; ``real``: School by kind
  of school, diabetes, digits, flights; ``paper_files``: the paper's own data, of files that a user has.
- ``discrepancy``: how differently two samples judge predictors, exactly, and with Laplace noise.
- ``objective``, ``losses``, ``descent``, ``private``: what the paper minimises, and its noisy descents; ``cnvx``,
  ``ncnvx`` and ``network`` are the estimators, ``label_posterior`` what a classifier's descent says, approximately;
  ``solver`` the non-private optimum, ``accounting`` and ``bounds`` what theorems say and what holds.
- ``baselines``, ``adassp``, ``matching``, ``public_fit``: what every comparison needs beside it.
- ``moments``, ``one_release``: one noisy second moment of (x, residual of a public fit) and a posterior: ``shape`` (of the
  features), ``clipping`` (of the residuals), ``conditional`` (no sampler), ``shift_model`` (NUTS), ``tilting`` (weights of
  source records), ``task_prior`` (other private tasks in place of public records). This is no algorithm of the paper; it is
  the one to start with.
- ``scaling``, ``tables``, ``report``: the way from files to a model that can be read, ``mpmtl-prob adapt``.

Everything is about one record of the target, replaced by another; the number of records is public.

Source: Bassily, Cortes, Mao and Mohri (2023), Differentially Private Domain Adaptation with Theoretical Guarantees.
"""

from mpmtl_prob._util.former import former_names
from mpmtl_prob.adaptation.data import paper_files, problems, real
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.moments.adassp import AdaSSP
from mpmtl_prob.adaptation.moments.label_posterior import ApproximatePosterior, approximate_posterior
from mpmtl_prob.adaptation.moments.moment_adaptation import AdaptedPosterior, MomentAdaptation, infer
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
