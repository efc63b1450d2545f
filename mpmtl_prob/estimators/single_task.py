"""Single-task estimators, which fit every task on its own rows: baselines for methods that share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import one_of, positive
from mpmtl_prob.convex.losses import LeastSquares, Logistic, Loss, Smooth
from mpmtl_prob.convex.penalties import L1, SquaredFrobenius
from mpmtl_prob.convex.solver import solve_alone
from mpmtl_prob.data.intercepts import completed
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.fitted import (
    Fitted,
    by_name,
    fit_slopes_then_intercept,
    in_own_units,
    in_unit_variance,
    named,
    unit_variance,
)
from mpmtl_prob.estimators.multi_task import MultiTask, fitted
from mpmtl_prob.privacy.guarantee import NOTHING_SHARED
from mpmtl_prob.single_task import conjugate, laplace
from mpmtl_prob.single_task.posterior_means import posterior_means


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of every task on its own rows.

    Attributes:
        penalty: of argmin 0.5 ||y - X w||^2 + (penalty/2) ||w||^2, >= 0, in squared units of X; or "evidence", the
            posterior mean with the penalty averaged by each task's own evidence (empirical Bayes), on Pareto-scaled features.
            Features of tasks that come from a table are scaled to unit variance first, and a penalty is in these units.
    """

    penalty: float | str = "evidence"

    @fit_slopes_then_intercept
    def fit(self, tasks: TaskData) -> Fitted:
        """Fit every task. Raises ValueError for a negative penalty."""
        start = time.perf_counter()
        if isinstance(self.penalty, str):
            one_of("penalty", self.penalty, ("evidence",))
            W = posterior_means(tasks).W
        else:
            return self.path(tasks, [self.penalty])[0]
        return Fitted(W, NOTHING_SHARED, seconds=time.perf_counter() - start, name="STL ridge")

    def path(self, tasks: TaskData, penalties: Sequence[float]) -> list[Fitted]:
        """Fit for each penalty in the order given, with one decomposition per task.

        Raises ValueError for a negative penalty.
        """
        start = time.perf_counter()
        for penalty in penalties:
            if not penalty >= 0:
                raise ValueError(f"penalty: expected a number >= 0 or 'evidence', got {penalty!r}")
        rows, scale = in_unit_variance(tasks.slopes)
        scaled = conjugate.ridge_path(rows.gram, penalties)
        weights = scaled if scale is None else [scale.T * W for W in scaled]
        weights = [completed(W, tasks) for W in weights] if tasks.intercept else weights
        share = (time.perf_counter() - start) / len(penalties)
        return [named(Fitted(W, NOTHING_SHARED, seconds=share, name="STL ridge"), tasks) for W in weights]


@dataclass(frozen=True)
class Lasso:
    """Lasso regression of every task on its own rows, argmin L_i(w) + penalty ||w||_1.

    Attributes:
        penalty: > 0.
        loss: L_i, :class:`LeastSquares` or :class:`Logistic`.
        tolerance: as in :class:`MultiTask`, for every task alone.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """

    penalty: float
    loss: Loss = field(default_factory=LeastSquares)
    tolerance: float = 1e-6
    max_iterations: int = 20_000

    @property
    def problem(self) -> MultiTask:
        """All tasks' problems as one problem without coupling, for approximate paths."""
        return MultiTask(L1(), self.penalty, self.loss, self.tolerance, self.max_iterations)

    @fit_slopes_then_intercept
    def fit(self, tasks: TaskData) -> Fitted:
        """Fit every task. Raises ValueError for a penalty that is not positive. ``history`` has entries per task."""
        begin, problem = time.perf_counter(), self.problem
        problem.check()
        return _each(problem, problem.loss.alone(tasks), _zero(tasks), "STL lasso", begin)


@dataclass(frozen=True)
class RidgeLogistic:
    """Logistic ridge regression of every task on its own rows, y in {-1, 1}.

    Attributes:
        penalty: of argmin sum_j log(1 + exp(-y_ij x_ij'w)) + (penalty/2) ||w||^2, > 0, in squared units of X; or "evidence",
            as in :class:`Ridge`: the posterior mean by normal approximation, with the penalty averaged by the evidence.
        tolerance: on every task's gradient, relative to its gradient at w = 0.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """

    penalty: float | str = "evidence"
    tolerance: float = 1e-6
    max_iterations: int = 20_000

    @property
    def problem(self) -> MultiTask:
        """All tasks' problems as one problem without coupling. Raises ValueError if the penalty is not a number."""
        half = positive("penalty", self.penalty) / 2  # type: ignore[arg-type]  # raises for a name
        return MultiTask(SquaredFrobenius(), half, Logistic(), self.tolerance, self.max_iterations)

    @by_name
    def fit(self, tasks: TaskData) -> Fitted:
        """Fit every task. Raises ValueError for a bad penalty or targets other than -1 and 1. Predictions are log odds."""
        begin = time.perf_counter()
        if isinstance(self.penalty, str):
            one_of("penalty", self.penalty, ("evidence",))
            Logistic().check(tasks)
            rows, scale = in_unit_variance(tasks)
            W = laplace.logistic_means(rows, conjugate.scales_of(rows.squares, rows.row_counts))
            fitted = Fitted(W, NOTHING_SHARED, seconds=time.perf_counter() - begin, name="STL ridge logistic")
        else:
            problem = self.problem
            problem.check()
            smooth, scale = Logistic().alone(tasks), unit_variance(tasks)
            if scale is not None:
                smooth.scale(scale)  # in place, as scaled copies of the tasks would need memory
            fitted = _each(problem, smooth, _zero(tasks), "STL ridge logistic", begin)
        return in_own_units(fitted, scale)


def _each(problem: MultiTask, smooth: Smooth, zero: FloatArray, name: str, begin: float) -> Fitted:
    """Solve a problem without coupling, every task alone; ``history`` has an entry per task, (1, m).

    The loss is bound to the rows, so that the tasks themselves need not be in memory any longer.
    """
    solution = solve_alone(
        problem.norm, smooth, problem.penalty, zero, smooth.curvature(), problem.tolerance, problem.max_iterations
    )
    return fitted(solution.W, solution, time.perf_counter() - begin, name, NOTHING_SHARED)


def _zero(tasks: TaskData) -> FloatArray:
    return np.zeros((tasks.num_features, tasks.num_tasks))
