"""Solvers for the non-private optimum of the paper's objectives.

The private algorithm without noise would stop far from the optimum. F with the best weights inserted is convex and smooth in
w, and is minimised by accelerated projected gradient descent with restarts. With kappa_2 or kappa_inf the weights stay in the
problem, which is jointly convex. A quasi-Newton method minimises over both, with ever sharper smooth maxima.

Source: Beck and Teboulle (2009), with the restart of O'Donoghue and Candes (2015).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.paper.descent import project
from mpmtl_prob.adaptation.paper.losses import Loss
from mpmtl_prob.adaptation.paper.objective import Convex, Penalties, Sizes, Smoothed
from mpmtl_prob.convex.solver import ConvergenceWarning


class Optimum(NamedTuple):
    """Result of a solver.

    Attributes:
        w: predictor, (d k,).
        weights: u~ of all records, public first, (m + n,); infinite for a record of weight zero.
        objective: value of F or J.
    """

    w: FloatArray
    weights: FloatArray
    objective: float


class Problem(NamedTuple):
    """Public and private records, with the loss, the weights and the discrepancy of the objective."""

    source: Domain
    target: Domain
    loss: Loss
    sizes: Sizes
    discrepancy: float

    @property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """X and y of all records, public first."""
        return np.concatenate([self.source.X, self.target.X]), np.concatenate([self.source.y, self.target.y])

    def losses(self, w: FloatArray) -> FloatArray:
        """Return L_i, (m + n,), the losses with the discrepancy added to public ones."""
        losses = self.loss.values(w, *self.rows)
        losses[: self.sizes.public] += self.discrepancy
        return losses

    def objective(self, w: FloatArray, u: FloatArray, penalties: Penalties) -> float:
        """Return F or J at w and u~."""
        return penalties.value(u, self.losses(w), self.sizes.start)


def minimise(
    problem: Problem,
    penalties: Convex | Smoothed,
    start: FloatArray,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 20_000,
) -> Optimum:
    """Minimise F, or descend on J from ``start``. J is not convex, so that its descent may end in a local minimum.

    Args:
        problem: the records and the loss.
        penalties: those of F or of J.
        start: starting predictor, (d k,).
        tolerance: largest length of the gradient mapping, relative to the Lipschitz constant of the loss.
        max_iterations: there is a :class:`ConvergenceWarning` if they are used up.
    """
    separable = (penalties.kappa_2 == penalties.kappa_inf == 0) if isinstance(penalties, Convex) else (
        penalties.lambda_2 == penalties.lambda_inf == 0
    )  # fmt: skip
    if not separable:
        return _with_weights(problem, penalties, start, tolerance, max_iterations)
    (X, y), q0, loss = problem.rows, problem.sizes.start, problem.loss

    def value(w: FloatArray) -> float:
        return float(q0 @ penalties.profile(problem.losses(w)))

    def gradient(w: FloatArray) -> FloatArray:
        outer = q0 * penalties.profile_slope(problem.losses(w))
        slopes = loss.slopes(w, X, y)
        slope: FloatArray = (X.T @ (outer[:, None] * slopes)).ravel()
        return slope

    curvature = loss.smoothness * float(np.linalg.eigvalsh((X * q0[:, None]).T @ X)[-1]) / loss.row_bound**2
    w = accelerated(value, gradient, start, loss.weight_bound, curvature, tolerance * loss.lipschitz, max_iterations)
    L = problem.losses(w)
    return Optimum(w, penalties.best_weights(L), float(q0 @ penalties.profile(L)))


def accelerated(
    value: Callable[[FloatArray], float],
    gradient: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    radius: float,
    curvature: float,
    tolerance: float,
    max_iterations: int,
) -> FloatArray:
    """Minimise over a ball by FISTA, with a restart when a step opposes the momentum or the value rises."""
    w = project(start, radius)
    z, momentum, step = w, 1.0, 1 / max(curvature, 1e-12)
    for _ in range(max_iterations):
        new = project(z - step * gradient(z), radius)
        if np.linalg.norm(new - z) <= tolerance * step:
            return new
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        if (z - new) @ (new - w) > 0 or value(new) > value(w):
            z, momentum = w if value(new) > value(w) else new, 1.0
            w = z
            continue
        z, momentum, w = new + (momentum - 1) / faster * (new - w), faster, new
    warnings.warn(
        f"{max_iterations} iterations left the gradient above {tolerance:.2g}; allow more, or a larger tolerance",
        ConvergenceWarning,
        stacklevel=4,
    )
    return w


def _with_weights(
    problem: Problem, penalties: Convex | Smoothed, start: FloatArray, tolerance: float, max_iterations: int
) -> Optimum:
    """Minimise jointly over w and u~ >= 1. A multiplier on ||w||^2 enforces the ball, exactly for a convex objective."""
    from scipy.optimize import minimize

    (X, y), q0, loss, d = problem.rows, problem.sizes.start, problem.loss, len(start)
    x0, bounds = np.concatenate([start, np.ones(len(q0))]), [(None, None)] * d + [(1.0, None)] * len(q0)

    def solve(multiplier: float, x: FloatArray) -> FloatArray:
        for sharpness in (1e2, 1e3, 1e4, 1e5) if penalties.total else (1e2,):  # relative to the largest q0

            def both(x: FloatArray, sharpness: float = sharpness) -> tuple[float, FloatArray]:
                w, u = x[:d], x[d:]
                L = problem.losses(w)
                f, by_u = _smooth(penalties, sharpness / q0.max(), u, L, q0)
                by_w = (X.T @ ((q0 / u)[:, None] * loss.slopes(w, X, y))).ravel()
                return f + multiplier * float(w @ w), np.concatenate([by_w + 2 * multiplier * w, by_u])

            options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": 1e-15, "gtol": tolerance * 1e-3}
            x = minimize(both, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return x

    x, radius = solve(0.0, x0), loss.weight_bound
    if np.linalg.norm(x[:d]) > radius:
        low, high = 0.0, 1e-3
        while np.linalg.norm((x := solve(high, x))[:d]) > radius:
            low, high = high, 4 * high
        for _ in range(40):
            middle = (low + high) / 2
            x = solve(middle, x)
            low, high = (middle, high) if np.linalg.norm(x[:d]) > radius else (low, middle)
        x = solve(high, x)
    w, u = x[:d], x[d:]
    return Optimum(w, u, penalties.value(u, problem.losses(w), q0))


def _smooth(
    penalties: Convex | Smoothed, sharpness: float, u: FloatArray, L: FloatArray, q0: FloatArray
) -> tuple[float, FloatArray]:
    """Return value and derivatives by u~ of the objective with a soft maximum."""
    if isinstance(penalties, Smoothed):
        return penalties.value(u, L, q0), penalties.slopes(u, L, q0)
    q, others = q0 / u, Convex(penalties.kappa_1, penalties.kappa_2)
    top = q.max()
    p = np.exp(sharpness * (q - top))
    soft = top + np.log(p.sum()) / sharpness
    slopes = others.slopes(u, L, q0) - penalties.kappa_inf * p / p.sum() * q / u
    return others.value(u, L, q0) + penalties.kappa_inf * soft, slopes
