"""Grids of hyper-parameters for every estimator: the same number of candidates for each, scaled to the data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.convex.losses import Loss
from mpmtl_prob.convex.penalties import GroupLasso, Penalty
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import (
    DPMTRL,
    L1,
    MPMTL,
    DPAggr,
    FrankWolfe,
    Lasso,
    LeastSquares,
    LocalGradientDescent,
    MultiTask,
    Ridge,
    RidgeLogistic,
)
from mpmtl_prob.estimators.fitted import in_unit_variance, slopes
from mpmtl_prob.privacy.mechanisms import PAPERS, PaperWishart

#: Number of candidates per estimator.
SIZE = 40

# A rough solution is enough to choose a candidate, and an ill-conditioned one is not worth waiting for.
_ROUGH: dict[str, Any] = {"tolerance": 1e-3, "max_iterations": 500}


def ridge(train: TaskData) -> list[Ridge]:
    """Return ridge with its penalty by evidence, and with penalties from a millionth of the largest curvature up to it."""
    curvature = LeastSquares().of(_rows(train)).curvature().max()
    return [Ridge(), *(Ridge(float(curvature * share)) for share in np.geomspace(1e-6, 1.0, SIZE - 1))]


def ridge_logistic(train: TaskData) -> list[RidgeLogistic]:
    """Return penalties from a hundred-thousandth of the largest curvature of least squares up to it."""
    curvature = LeastSquares().of(in_unit_variance(train)[0]).curvature().max()
    return [RidgeLogistic(float(curvature * share), **_ROUGH) for share in np.geomspace(1e-5, 1.0, SIZE)]


def lasso(train: TaskData, loss: Loss | None = None) -> list[Lasso]:
    """Return penalties downwards from the smallest that makes every weight zero."""
    chosen = LeastSquares() if loss is None else loss
    top = np.abs(_gradient_at_zero(train, chosen)).max()
    return [Lasso(float(top * share), chosen, **_ROUGH) for share in np.geomspace(1e-4, 1.0, SIZE)]


def multi_task(norm: Penalty, train: TaskData, loss: Loss | None = None) -> list[MultiTask]:
    """Return penalties downwards from the smallest that makes every weight zero."""
    chosen = LeastSquares() if loss is None else loss
    G = _gradient_at_zero(train, chosen)
    top = np.linalg.norm(G, axis=1).max() if isinstance(norm, GroupLasso) else np.linalg.norm(G, 2)
    if isinstance(norm, L1):
        top = np.abs(G).max()
    return [MultiTask(norm, float(top * share), chosen, **_ROUGH) for share in np.geomspace(1e-4, 1.0, SIZE)]


def alone(train: TaskData, loss: Loss | None = None) -> list[LocalGradientDescent]:
    """Return local gradient descent with early stopping: two accelerations, two starts (zero, ridge) and two step sizes.

    The step size is each task's own, or 1/L of all training rows, which is chosen on the data like every grid here.
    """
    chosen = LeastSquares() if loss is None else loss
    largest = float(chosen.of(_rows(train, chosen)).curvature().max())
    steps: tuple[dict[str, Any], ...] = ({"step_size": None, "curvature": largest}, {"step_size": "per_task"})
    starts: tuple[Ridge | str, ...] = (Ridge(), "zero")
    return [
        LocalGradientDescent(rounds=rounds, acceleration=acceleration, start=start, loss=chosen, **step)
        for rounds, acceleration in itertools.product((1, 3, 10, 30, 100), (False, True))
        for start in starts
        for step in steps
    ]


def rounds(
    algorithm: Callable[..., MPMTL],
    train: TaskData,
    *,
    start: Ridge | None = None,
    counts: Sequence[int] = (1, 10, 30, 100),
    **options: Any,
) -> list[MPMTL]:
    """Return rounds, clip norms and penalties of Algorithm 2 or 3; the noise of validation is drawn from a seed.

    Args:
        algorithm: :class:`LowRank` or :class:`GroupSparse`.
        train: training rows, whose ridge models set the scale of K and lambda.
        start: starting models W^(0).
        counts: the numbers of rounds to try.
        options: further arguments of the algorithm, such as epsilon, adjacency, mechanism and loss.
    """
    begin = Ridge() if start is None else start
    loss: Loss = options.get("loss", LeastSquares())
    train = _rows(train, loss)
    W = begin.fit(train).W
    median, signal = float(np.median(np.linalg.norm(W, axis=0))), float(np.linalg.norm(W, 2))
    curvature = loss.of(train).curvature().max()
    step: dict[str, Any] = {} if "step_size" in options else {"curvature": float(curvature)}  # from the data
    epsilon, mechanism = options.get("epsilon", 1.0), options.get("mechanism")
    law = PAPERS[mechanism] if isinstance(mechanism, str) and mechanism in PAPERS else PaperWishart
    candidates: list[MPMTL] = []
    for T, clip in itertools.product(counts, (median, 3 * median)):
        # At this lambda, shrinkage removes both signal and noise entirely.
        noise = law(train.num_features, epsilon / T, clip).scale
        top = curvature * np.hypot(signal, np.sqrt(2 * train.num_features * noise))
        candidates += [
            algorithm(
                penalty=float(top * share), rounds=T, clip=clip, start=begin, unsafe_seed=0, **{**step, **options}
            )
            for share in np.geomspace(1e-4, 1e-2, SIZE // (2 * len(counts)))
        ]
    return candidates


def frank_wolfe(
    train: TaskData, *, start: Ridge | None = None, counts: Sequence[int] = (1, 3, 10, 30), **options: Any
) -> list[FrankWolfe]:
    """Return rounds, clip norms of gradients, and radii around the trace norm of ridge models.

    Arguments as of :func:`rounds`; ``start`` are the ridge models, as the rounds themselves begin at zero.
    """
    loss: Loss = options.get("loss", LeastSquares())
    rows = _rows(train, loss)
    ball = float(np.linalg.norm((Ridge() if start is None else start).fit(rows).W, "nuc"))
    median = float(np.median(np.linalg.norm(_gradient_at_zero(train, loss), axis=0)))
    return [
        FrankWolfe(radius=ball * share, rounds=T, clip=clip, unsafe_seed=0, **options)
        for T, clip in itertools.product(counts, (median, 3 * median))
        for share in np.geomspace(0.1, 3.0, SIZE // (2 * len(counts)))
    ]


def strategies(best: MPMTL) -> list[MPMTL]:
    """Return what the papers search besides rounds and penalty: acceleration, strong convexity, and alpha or Q.

    Strong convexity adds (mu/2) ||w_i||^2 to every loss, with mu = 1e-3. Q is the papers' best, Q_0 = 1 - sqrt(mu), or Q_0^4.

    Args:
        best: the rounds, clip norm and penalty to try them with.

    Source: TPAMI 2022, section 5.2; the exponents are those of Fig 4.
    """
    mu = 1e-3
    strongly: Loss = replace(best.loss, strong_convexity=mu)  # type: ignore[type-var]
    Q_0 = 1 - np.sqrt(mu)
    convex = itertools.product((False, True), (0.0, 0.4, 1.0, 2.0))
    strong = itertools.product((False, True), (None, float(Q_0), float(Q_0**4)))
    return [replace(best, acceleration=acceleration, alpha=alpha) for acceleration, alpha in convex] + [
        replace(best, acceleration=acceleration, q=q, loss=strongly) for acceleration, q in strong
    ]


def dp_aggr(train: TaskData, **options: Any) -> list[DPAggr]:
    """Return penalties around the curvature of the average loss, and with noise far above it, as they shrink the noise.

    Args:
        train: training rows, whose curvature sets the scale.
        options: arguments of :class:`DPAggr`, such as epsilon, loss, noise and level.
    """
    curvature = LeastSquares(average=True).of(train).curvature().max()
    return [
        DPAggr(penalty=float(curvature * share), unsafe_seed=0, **options) for share in np.geomspace(1e-4, 1e6, SIZE)
    ]


def dp_mtrl(train: TaskData, **options: Any) -> list[DPMTRL]:
    """Return ridge penalties, relation penalties and rounds of DP-MTRL, up to penalties at which model and noise vanish.

    Arguments as in :func:`dp_aggr`.
    """
    curvature = LeastSquares(average=True).of(train).curvature().max()
    return [
        DPMTRL(ridge=float(curvature * l1), relation=float(curvature * l2), rounds=T, unsafe_seed=0, **options)
        for T, l1, l2 in itertools.product((1, 5), np.geomspace(1e-4, 1e8, 5), np.geomspace(1e-6, 1e-1, SIZE // 10))
    ]


def _gradient_at_zero(train: TaskData, loss: Loss) -> FloatArray:
    rows = _rows(train, loss)
    return np.asarray(loss.of(rows).gradient(np.zeros((rows.num_features, rows.num_tasks))))  # type: ignore[arg-type]


def _rows(train: TaskData, loss: Loss | None = None) -> TaskData:
    """Return the rows that are fitted: contrasts if an intercept cancels, with features of a table in unit variance."""
    return in_unit_variance(slopes(train, loss))[0]
