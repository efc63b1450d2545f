"""Non-private multi-task learning: the convex problems behind Algorithms 2 to 4, and task relationship learning.

Ji and Ye (2009) for the trace norm; Liu, Ji and Ye (2009) for l2,1; Zhang and Yeung (2010) for task relations.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.convex.losses import LeastSquares, Loss, Resolvent, Smooth
from mpmtl_prob.convex.penalties import L1, GroupLasso, Penalty, SquaredTraceNorm, Sum, TraceNorm
from mpmtl_prob.convex.solver import Solution, minimise_path, solve
from mpmtl_prob.data.intercepts import completed
from mpmtl_prob.data.prediction import check_weights
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.fitted import Fitted, fit_slopes_then_intercept, in_unit_variance, named, slopes
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE


@dataclass(frozen=True)
class MultiTask:
    """Multi-task learning with a convex penalty: min_W sum_i L_i(w_i) + lambda g(W).

    Attributes:
        norm: g, for example :class:`TraceNorm` or :class:`GroupLasso`.
        penalty: lambda > 0.
        loss: L_i, :class:`LeastSquares` or :class:`Logistic`.
        tolerance: stop when the distance of -gradient to lambda * subdifferential is at most this times lambda.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.
    """

    norm: Penalty
    penalty: float
    loss: Loss = field(default_factory=LeastSquares)
    tolerance: float = 1e-6
    max_iterations: int = 20_000

    @fit_slopes_then_intercept
    def fit(self, tasks: TaskData, start: FloatArray | None = None) -> Fitted:
        """Solve from ``start`` (d, m), default zero. Raises ValueError for a bad argument.

        ``history`` holds ``objective``, ``optimality`` (relative to lambda) and ``iterations``, one entry each.
        """
        begin = time.perf_counter()
        self.check()
        smooth = bound(self.loss, tasks)
        solution = solve(
            self.norm,
            smooth,
            self.penalty,
            _start(tasks, start),
            smooth.curvature(),
            self.tolerance,
            self.max_iterations,
        )
        return fitted(solution.W, solution, time.perf_counter() - begin, self.name)

    def path(self, tasks: TaskData, penalties: Sequence[float]) -> list[Fitted]:
        """Fit for each penalty in the order given, starting from the fit before; give the largest first."""
        begin = time.perf_counter()
        for penalty in penalties:
            replace(self, penalty=penalty).check()
        slope_rows = slopes(tasks, self.loss)
        rows, scale = in_unit_variance(slope_rows)
        smooth = bound(self.loss, rows)
        curvature = smooth.curvature()
        check_not_forked()
        with jax.enable_x64(True):
            path = minimise_path(
                self.norm,
                smooth,
                np.asarray(penalties, dtype=np.float64),
                _start(rows, None),
                curvature if self.norm.separable else curvature.max(),
                self.tolerance,
                self.max_iterations,
            )
        share = (time.perf_counter() - begin) / len(penalties)
        solutions = [Solution(*parts) for parts in zip(*map(np.asarray, path), strict=True)]
        weights = [part.W if scale is None else scale.T * part.W for part in solutions]
        weights = weights if slope_rows is tasks else [completed(W, tasks) for W in weights]
        return [named(fitted(W, part, share, self.name), tasks) for W, part in zip(weights, solutions, strict=True)]

    @property
    def name(self) -> str:
        """Name of the method, for tables."""
        return {TraceNorm: "MTL trace norm", GroupLasso: "MTL l2,1"}.get(type(self.norm), "MTL")

    def check(self) -> None:
        """Raise ValueError for an argument outside its range."""
        implements("norm", self.norm, Penalty)
        positive("penalty", self.penalty)
        positive("tolerance", self.tolerance)
        whole("max_iterations", self.max_iterations)


@dataclass(frozen=True)
class LowRankPlusSparse:
    """Low-rank plus sparse multi-task learning, W = P + Q: tasks share a subspace, with exceptions.

    It minimises sum_i L_i(p_i + q_i) + lambda_1 g_1(P) + lambda_2 g_2(Q).

    Attributes:
        penalty: (lambda_1, lambda_2), both > 0.
        norm: g_1, :class:`TraceNorm`, or :class:`GroupLasso`.
        own: g_2, :class:`L1`, :class:`ColumnGroupLasso` or :class:`SquaredFrobenius`.
        loss: L_i.
        tolerance: as in :class:`MultiTask`, relative to lambda_1 + lambda_2.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.

    Source: TPAMI 2022, supplement, equation (24).
    """

    penalty: tuple[float, float]
    norm: Penalty = field(default_factory=TraceNorm)
    own: Penalty = field(default_factory=L1)
    loss: Loss = field(default_factory=LeastSquares)
    tolerance: float = 1e-6
    max_iterations: int = 20_000

    name = "MTL low rank + sparse"

    @fit_slopes_then_intercept
    def fit(self, tasks: TaskData) -> Fitted:
        """Solve the problem. Raises ValueError for a bad argument. ``history`` also has ``P`` and ``Q``, (1, d, m)."""
        begin = time.perf_counter()
        if np.shape(self.penalty) != (2,):
            raise ValueError(f"penalty: expected a pair (lambda_1, lambda_2), got {self.penalty!r}")
        for part in self.penalty:
            positive("penalty", part)
        positive("tolerance", self.tolerance)
        whole("max_iterations", self.max_iterations)
        implements("norm", self.norm, Penalty)
        implements("own", self.own, Penalty)
        smooth = bound(self.loss, tasks)
        solution = solve(
            Sum(self.norm, self.own),
            _OfSum(smooth),  # type: ignore[arg-type]
            tuple(map(float, self.penalty)),
            np.zeros((2 * tasks.num_features, tasks.num_tasks)),
            2 * smooth.curvature(),  # the curvature in (P, Q), as both parts move
            self.tolerance,
            self.max_iterations,
        )
        P, Q = np.split(np.asarray(solution.W), 2)
        return fitted(P + Q, solution, time.perf_counter() - begin, self.name, P=P, Q=Q)


@partial(jax.tree_util.register_dataclass, data_fields=["loss"], meta_fields=[])
@dataclass(frozen=True, eq=False, repr=False)
class _OfSum:
    """Loss of P + Q as a function of the stacked parts [P; Q]."""

    loss: Smooth

    def value(self, W: Array) -> Array:
        P, Q = jnp.split(W, 2)
        return self.loss.value(P + Q)

    def gradient(self, W: Array) -> Array:
        P, Q = jnp.split(W, 2)
        return jnp.tile(self.loss.gradient(P + Q), (2, 1))

    def resolvent(self) -> Resolvent | None:
        """Return the prox: it leaves P - Q unchanged, and applies the prox of the loss to P + Q with rho/2."""
        nearest = self.loss.resolvent()
        if nearest is None:
            return None

        def nearest_pair(V: Array, rho: Array) -> Array:
            P, Q = jnp.split(V, 2)
            return V + jnp.tile((nearest(P + Q, rho / 2) - P - Q) / 2, (2, 1))

        return nearest_pair


@dataclass(frozen=True)
class MTRL:
    """Multi-task relationship learning (MTRL). It minimises, over W and Omega (PSD, trace 1),

        sum_i ||y_i - X_i w_i||^2 / (2 n_i) + (l1/2) ||W||_F^2 + (l2/2) tr(W Omega^{-1} W').

    The minimum over Omega is known, (W'W)^{1/2} / tr (W'W)^{1/2}, and leaves l2 times half the squared trace norm. This is
    one convex problem in W with an optimality condition. Alternating minimisation would be slow as Omega loses rank.

    Attributes:
        ridge: l1 >= 0.
        relation: l2 > 0.
        tolerance: relative to l2.
        max_iterations: a :class:`ConvergenceWarning` is issued when they are used up.

    Source: Zhang and Yeung (2010), equation (3).
    """

    ridge: float
    relation: float
    tolerance: float = 1e-6
    max_iterations: int = 20_000

    name = "MTL task relations"

    @fit_slopes_then_intercept
    def fit(self, tasks: TaskData) -> Fitted:
        """Solve the problem. Raises ValueError for a bad argument. ``history["Omega"]`` has the task relations, (1, m, m)."""
        begin = time.perf_counter()
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise ValueError(f"ridge: expected a number >= 0, got {self.ridge!r}")
        positive("relation", self.relation)
        loss = LeastSquares(strong_convexity=self.ridge, average=True)
        solution = MultiTask(SquaredTraceNorm(), self.relation, loss, self.tolerance, self.max_iterations).fit(tasks)
        relations = task_relations(solution.W)
        history = dict(solution.history) | {"Omega": relations[None]}
        return Fitted(solution.W, NOT_PRIVATE, history, seconds=time.perf_counter() - begin, name=self.name)


def task_relations(W: FloatArray) -> FloatArray:
    """Return Omega = (W'W)^{1/2} / tr (W'W)^{1/2}, (m, m); zero for W = 0."""
    _, s, Vt = np.linalg.svd(W, full_matrices=False)
    return (Vt.T * s) @ Vt / s.sum() if s.any() else np.zeros((W.shape[1],) * 2)


def fitted(W: Any, solution: Solution, seconds: float, name: str, guarantee: Any = NOT_PRIVATE, **parts: Any) -> Fitted:
    """Return the result, with the solver's objective, optimality and iterations in its history."""
    history = {
        "objective": np.array([solution.objective]),
        "optimality": np.array([solution.optimality]),
        "iterations": np.array([solution.iterations]),
    } | {name: np.asarray(part)[None] for name, part in parts.items()}
    return Fitted(np.asarray(W), guarantee, history, seconds=seconds, name=name)


def bound(loss: Loss, tasks: TaskData) -> Smooth:
    """Bind a loss to the rows of all tasks. Raises ValueError for an object that is not a loss."""
    implements("loss", loss, Loss, needs=("of",))
    smooth = loss.of(tasks)
    implements("loss.of(tasks)", smooth, Smooth)
    return smooth


def _start(tasks: TaskData, start: FloatArray | None) -> FloatArray:
    W0 = np.zeros((tasks.num_features, tasks.num_tasks)) if start is None else np.asarray(start, dtype=np.float64)
    check_weights(W0, tasks)
    return W0
