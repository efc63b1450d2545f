"""Data of tasks: rows, estimates, predictions and tasks on disk; matching of names; columns and cells of tables."""

from importlib import import_module

from mpmtl_prob._util.jax_later import once_jax_is_imported
from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.data.tasks import TaskData

__all__ = ["Estimate", "Estimates", "Prediction", "Reference", "TaskData", "TaskShards"]

once_jax_is_imported(lambda: import_module("mpmtl_prob.data.pytree"))
