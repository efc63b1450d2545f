"""The deterministic side: single-task, multi-task and model-protected multi-task estimators."""

from mpmtl_prob.estimators.fitted import Fitted
from mpmtl_prob.estimators.mp_mtl import MPMTL, GroupSparse, LowRank, framework
from mpmtl_prob.estimators.multi_task import ConvergenceWarning, MultiTask
from mpmtl_prob.estimators.single_task import Ridge
from mpmtl_prob.proximal import GroupLasso, NoPenalty, TraceNorm

__all__ = [
    "MPMTL",
    "ConvergenceWarning",
    "Fitted",
    "GroupLasso",
    "GroupSparse",
    "LowRank",
    "MultiTask",
    "NoPenalty",
    "Ridge",
    "TraceNorm",
    "framework",
]
