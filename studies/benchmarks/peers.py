"""The same problems in other people's code, each as its documentation recommends, with Lipschitz constants given.

A solver here maps its own stopping number (iterations, or a tolerance) to W (d, m), from zero.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.framework import Run

Trace = Callable[[FloatArray], bool]


def design(tasks: TaskData) -> tuple[Any, FloatArray]:
    """Return all tasks as one regression on vec(W): a block-diagonal matrix (rows, m d), and the targets."""
    blocks = [X[real] for X, real in zip(tasks.X, tasks.mask, strict=True)]
    return sp.block_diag(blocks, format="csc"), tasks.y[tasks.mask]


def pyproximal_trace_norm(tasks: TaskData, penalty: float, L: float) -> Callable[..., FloatArray]:
    """Run accelerated proximal gradient with step 1/L. The solver also takes a callback on W, called every iteration."""
    import pylops
    import pyproximal
    from pyproximal.optimization.primal import ProximalGradient

    m, d = tasks.num_tasks, tasks.num_features
    X, y = design(tasks)
    smooth = pyproximal.L2(Op=pylops.MatrixMult(X.tocsr()), b=y)
    norm = pyproximal.Nuclear((m, d), penalty)

    def solve(iterations: int, callback: Callable[[FloatArray], None] | None = None) -> FloatArray:
        watch = None if callback is None else lambda x: callback(x.reshape(m, d).T)
        x = ProximalGradient(
            smooth, norm, np.zeros(m * d), tau=1 / L, niter=iterations, acceleration="fista", callback=watch
        )
        return x.reshape(m, d).T

    return solve


def skglm_group_lasso(tasks: TaskData, penalty: float) -> Callable[[float], FloatArray]:
    """Run GroupBCD on the sparse block design (twenty times faster for it than the dense one), a group per feature."""
    from skglm.datafits.group import QuadraticGroup
    from skglm.penalties.block_separable import WeightedGroupL2
    from skglm.solvers import GroupBCD
    from skglm.utils.jit_compilation import compiled_clone

    m, d = tasks.num_tasks, tasks.num_features
    X, y = design(tasks)
    start = np.arange(0, d * m + 1, m, dtype=np.int32)
    columns = np.arange(d * m, dtype=np.int32).reshape(m, d).T.ravel()
    smooth = compiled_clone(QuadraticGroup(start, columns))
    norm = compiled_clone(WeightedGroupL2(penalty / len(y), np.ones(d), start, columns))

    def solve(tolerance: float) -> FloatArray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            w, *_ = GroupBCD(tol=tolerance, max_iter=1000, p0=d).solve(X, y, smooth, norm)
        return w.reshape(m, d).T

    return solve


def algorithm_2_by_loops(tasks: TaskData, run: Run, W: FloatArray, noise: FloatArray) -> FloatArray:
    """Run Algorithm 2 as printed: a loop over rounds, and in it over tasks."""
    rows = [(X[real], y[real]) for X, y, real in zip(tasks.X, tasks.y, tasks.mask, strict=True)]
    clip = lambda w: w / max(1.0, np.linalg.norm(w) / run.clip)
    previous = np.stack([clip(w) for w in W.T], axis=1)
    for t, E in enumerate(noise):
        W = np.stack([clip(w) for w in W.T], axis=1)
        M = _projection(W @ W.T + E, run.threshold)
        projected, after = np.empty_like(W), np.empty_like(W)
        for i, (X, y) in enumerate(rows):
            projected[:, i] = M @ W[:, i]
            z = projected[:, i] + run.beta[t] * (projected[:, i] - previous[:, i])
            after[:, i] = z - run.step_size[i] * (X.T @ (X @ z - y))
        W, previous = after, projected
    return projected


def algorithm_2_in_batches(tasks: TaskData, run: Run, W: FloatArray, noise: FloatArray) -> FloatArray:
    """Run Algorithm 2 with all tasks in one stacked product, from their Gram matrices."""
    xx, xy = tasks.gram.xx, tasks.gram.xy
    clip = lambda V: V / np.maximum(1.0, np.linalg.norm(V, axis=0) / run.clip)
    previous = clip(W)
    for t, E in enumerate(noise):
        W = clip(W)
        projected = _projection(W @ W.T + E, run.threshold) @ W
        Z = projected + run.beta[t] * (projected - previous)
        W, previous = Z - run.step_size * ((xx @ Z.T[..., None])[..., 0] - xy).T, projected
    return projected


def _projection(sigma: FloatArray, threshold: Any) -> FloatArray:
    eigenvalues, U = np.linalg.eigh(sigma)
    return (U * np.maximum(0, 1 - threshold / np.sqrt(np.maximum(eigenvalues, 1e-300)))) @ U.T
