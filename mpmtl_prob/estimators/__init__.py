"""Deterministic estimators: single-task, multi-task and model-protected multi-task learning."""

from mpmtl_prob._util.former import former_names
from mpmtl_prob.convex.losses import LeastSquares, Logistic
from mpmtl_prob.convex.penalties import (
    L1,
    ColumnGroupLasso,
    GroupLasso,
    NoPenalty,
    SquaredFrobenius,
    SquaredTraceNorm,
    TraceNorm,
)
from mpmtl_prob.convex.solver import ConvergenceWarning
from mpmtl_prob.estimators.dp_aggr import DPAggr
from mpmtl_prob.estimators.dp_mtrl import DPMTRL
from mpmtl_prob.estimators.fitted import Fitted
from mpmtl_prob.estimators.framework import (
    Carry,
    ConditionalGradient,
    Noise,
    Proximal,
    ProximalSum,
    Run,
    SharingRule,
    TaskRelations,
    first_round,
    framework,
    one_round,
)
from mpmtl_prob.estimators.mp_mtl import MPMTL, FrankWolfe, GroupSparse, LocalGradientDescent, LowRank, LowRankSparse
from mpmtl_prob.estimators.multi_task import MTRL, LowRankPlusSparse, MultiTask
from mpmtl_prob.estimators.plan import RowProtection
from mpmtl_prob.estimators.single_task import Lasso, Ridge, RidgeLogistic

__all__ = [
    "DPMTRL",
    "L1",
    "MPMTL",
    "MTRL",
    "Carry",
    "ColumnGroupLasso",
    "ConditionalGradient",
    "ConvergenceWarning",
    "DPAggr",
    "Fitted",
    "FrankWolfe",
    "GroupLasso",
    "GroupSparse",
    "Lasso",
    "LeastSquares",
    "LocalGradientDescent",
    "Logistic",
    "LowRank",
    "LowRankPlusSparse",
    "LowRankSparse",
    "MultiTask",
    "NoPenalty",
    "Noise",
    "Proximal",
    "ProximalSum",
    "Ridge",
    "RidgeLogistic",
    "RowProtection",
    "Run",
    "SharingRule",
    "SquaredFrobenius",
    "SquaredTraceNorm",
    "TaskRelations",
    "TraceNorm",
    "first_round",
    "framework",
    "one_round",
]

__getattr__ = former_names(
    __name__,
    {
        "Alone": "LocalGradientDescent",
        "Sharing": "SharingRule",
    },
)
