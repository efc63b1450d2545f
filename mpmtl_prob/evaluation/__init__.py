"""Evaluation: scores of predictions, selection by cross-validation, comparison of fits, and planning of a study."""

from mpmtl_prob.evaluation import grids
from mpmtl_prob.evaluation.comparison import Comparison, compare, noise_aware
from mpmtl_prob.evaluation.metrics import auc, coverage, log_score, nmse, nmse_within
from mpmtl_prob.evaluation.named import fits_by_name, standard_fits
from mpmtl_prob.evaluation.planning import StudyPlan, plan_study
from mpmtl_prob.evaluation.selection import Selection, cross_validate

__all__ = [
    "Comparison",
    "Selection",
    "StudyPlan",
    "auc",
    "compare",
    "coverage",
    "cross_validate",
    "fits_by_name",
    "grids",
    "log_score",
    "nmse",
    "nmse_within",
    "noise_aware",
    "plan_study",
    "standard_fits",
]
