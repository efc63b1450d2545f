"""Multi-task learning in which no task's model leaks to the others, with the uncertainty of every estimate."""

from mpmtl_prob import datasets, estimators, evaluation, inference, models, plots, privacy, releases
from mpmtl_prob.inference import NoiseAware
from mpmtl_prob.releases import Release, release
from mpmtl_prob.tasks import Prediction, TaskData

__all__ = [
    "NoiseAware",
    "Prediction",
    "Release",
    "TaskData",
    "datasets",
    "estimators",
    "evaluation",
    "inference",
    "models",
    "plots",
    "privacy",
    "release",
    "releases",
]
