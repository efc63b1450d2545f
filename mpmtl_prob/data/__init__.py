"""Data of tasks: what goes in, what is predicted, tasks on disk, and how names, columns and cells are matched."""

from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.data.tasks import TaskData

__all__ = ["Estimate", "Estimates", "Prediction", "Reference", "TaskData", "TaskShards"]
