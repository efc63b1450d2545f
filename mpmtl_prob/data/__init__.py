"""Data of tasks: rows, estimates, predictions and tasks on disk; matching of names; columns and cells of tables."""

from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.data.tasks import TaskData

__all__ = ["Estimate", "Estimates", "Prediction", "Reference", "TaskData", "TaskShards"]
