"""Protocols and base classes of all that can be brought from outside: docs/extend.md has an example of each.

- noise: :class:`Mechanism`, :class:`MatrixMechanism`, :class:`VectorMechanism`, made known to files by :func:`register`;
  its likelihood in the public model: :class:`NoisyRelease`, registered with :func:`of_law`.
- convex problems: :class:`Penalty`, :class:`SharedPenalty` (with a projection of the second moment), :class:`Loss`, which
  bound to rows is a :class:`Smooth`.
- algorithms: :class:`SharingRule` (what Algorithm 1 leaves open), :class:`SingleTask` (what starts it), :class:`Estimator`
  and its :class:`Fit`, :class:`Fitted` where that has weights.
- posteriors: :class:`Structure` with its :class:`ModelAndInit`, :class:`Likelihood` with its :class:`Posteriors` and
  :class:`Jointly`, :class:`Kernel`.
- :class:`Billboard`, an algorithm with one public result that newcomers read.
- adaptation: :class:`AdaptationLoss`.
- what a prediction draws: :class:`RowDraws`, :class:`KeptDraws` where all draws are there.
- what pays and is fingerprinted: :class:`Purchase`, :class:`PaddedTasks`, or, part by part, :class:`InParts`.

An object that lacks a method is refused where it is handed over, with the names of the method and of the protocol. A site of
a federated release is :class:`mpmtl_prob.federated.local.AnySite`, which needs the extra ``federated``.
"""

from __future__ import annotations

from mpmtl_prob.adaptation.paper.losses import Loss as AdaptationLoss
from mpmtl_prob.convex.losses import Loss, Smooth
from mpmtl_prob.convex.penalties import Penalty, SharedPenalty
from mpmtl_prob.data.prediction import KeptDraws, RowDraws
from mpmtl_prob.estimators.fitted import Fitted
from mpmtl_prob.estimators.framework import SharingRule
from mpmtl_prob.estimators.mp_mtl import SingleTask
from mpmtl_prob.evaluation.comparison import Fit
from mpmtl_prob.evaluation.selection import Estimator
from mpmtl_prob.inference.curator.fitting import Kernel
from mpmtl_prob.inference.owner.likelihoods import Jointly, Likelihood, Posteriors
from mpmtl_prob.inference.public.structures import ModelAndInit, Structure
from mpmtl_prob.models.noise import NoisyRelease, of_law
from mpmtl_prob.privacy.ledger import InParts, PaddedTasks, Purchase
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, Mechanism, VectorMechanism, register
from mpmtl_prob.threat_models.metalearning import Billboard

__all__ = [
    "AdaptationLoss",
    "Billboard",
    "Estimator",
    "Fit",
    "Fitted",
    "InParts",
    "Jointly",
    "KeptDraws",
    "Kernel",
    "Likelihood",
    "Loss",
    "MatrixMechanism",
    "Mechanism",
    "ModelAndInit",
    "NoisyRelease",
    "PaddedTasks",
    "Penalty",
    "Posteriors",
    "Purchase",
    "RowDraws",
    "SharedPenalty",
    "SharingRule",
    "SingleTask",
    "Smooth",
    "Structure",
    "VectorMechanism",
    "of_law",
    "register",
]
