"""The non-private optimum: a convex solver, not the private algorithm without noise, which stops far from it.

The profile of F is convex and smooth in w: accelerated projected gradient with restart. With kappa_2 or kappa_inf the weights
stay in the problem, jointly convex, and a quasi-Newton method takes both, the maximum made ever sharper.

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
    """Where a solver stopped.

    Attributes:
        w: (d k,).
        weights: u~ of all records, public first, (m + n,); infinite where a record counts for nothing.
        objective: F or J there.
    """

    w: FloatArray
    weights: FloatArray
    objective: float


class Problem(NamedTuple):
    """Public and private records with what is minimised over them."""

    source: Domain
    target: Domain
    loss: Loss
    sizes: Sizes
    discrepancy: float

    @property
    def rows(self) -> tuple[FloatArray, FloatArray]:
        """All records, public first."""
        return np.concatenate([self.source.X, self.target.X]), np.concatenate([self.source.y, self.target.y])

    def losses(self, w: FloatArray) -> FloatArray:
        """L_i, (m + n,)."""
        found = self.loss.values(w, *self.rows)
        found[: self.sizes.public] += self.discrepancy
        return found

    def objective(self, w: FloatArray, u: FloatArray, penalties: Penalties) -> float:
        """F or J at any w and u~."""
        return penalties.value(u, self.losses(w), self.sizes.start)


def minimise(
    problem: Problem,
    penalties: Convex | Smoothed,
    start: FloatArray,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 20_000,
) -> Optimum:
    """The minimiser of F, or with J the best of descents from ``start``: J is not convex, and drops records for good.

    Args:
        problem: the records.
        penalties: of F or of J.
        start: (d k,).
        tolerance: of the gradient mapping, relative to the Lipschitz constant of the loss.
        max_iterations: with a :class:`ConvergenceWarning` where they are used up.
    """
    alone = (penalties.kappa_2 == penalties.kappa_inf == 0) if isinstance(penalties, Convex) else (
        penalties.lambda_2 == penalties.lambda_inf == 0
    )  # fmt: skip
    if not alone:
        return _with_weights(problem, penalties, start, tolerance, max_iterations)
    (X, y), q0, loss = problem.rows, problem.sizes.start, problem.loss

    def value(w: FloatArray) -> float:
        return float(q0 @ penalties.profile(problem.losses(w)))

    def gradient(w: FloatArray) -> FloatArray:
        outer = q0 * penalties.profile_slope(problem.losses(w))
        slopes = loss.slopes(w, X, y)
        found: FloatArray = (X.T @ (outer[:, None] * slopes)).ravel()
        return found

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
    """FISTA on a ball; it restarts where the step goes against the momentum or the value rises."""
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
    """Jointly in (w, u~ >= 1); the ball by a multiplier on ||w||^2, which is exact for a convex objective."""
    from scipy.optimize import minimize

    (X, y), q0, loss, d = problem.rows, problem.sizes.start, problem.loss, len(start)
    x0, bounds = np.concatenate([start, np.ones(len(q0))]), [(None, None)] * d + [(1.0, None)] * len(q0)

    def solve(multiplier: float, x: FloatArray) -> FloatArray:
        for sharpness in (1e2, 1e3, 1e4, 1e5) if penalties.total else (1e2,):  # in units of the largest q0

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
    """Value and slopes by u~ with a soft maximum."""
    if isinstance(penalties, Smoothed):
        return penalties.value(u, L, q0), penalties.slopes(u, L, q0)
    q, rest = q0 / u, Convex(penalties.kappa_1, penalties.kappa_2)
    top = q.max()
    p = np.exp(sharpness * (q - top))
    soft = top + np.log(p.sum()) / sharpness
    slopes = rest.slopes(u, L, q0) - penalties.kappa_inf * p / p.sum() * q / u
    return rest.value(u, L, q0) + penalties.kappa_inf * soft, slopes
