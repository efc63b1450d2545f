"""How differently two samples judge predictors: the discrepancy over a ball, exactly, and with Laplace noise.

With the squared loss the difference of two mean losses is f(v) = v'Av - 2b'v + c, and the largest |f| over a ball two
trust-region problems, solved by their secular equation. A ball round a public fit is the default: over the whole ball the
discrepancy is large between samples that differ in nothing. The centre must be public; one fitted to private records moves
with them, and the sensitivity B / n is lost.

Source: Bassily et al. (2023), (2) and section 3; Conn, Gould and Toint (2000), chapter 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import moderate, normalise_fields, positive
from mpmtl_prob.adaptation.data.domain import Domain, pair
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.charge_and_draw import draw_each
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import VectorLaplace
from mpmtl_prob.privacy.units import Unit

#: What the solver may be wrong by, relative to the range of the loss; it is part of the sensitivity. Decompositions of
#: matrices this small are wrong by about 1e-15.
SLACK = 1e-9


class Quadratic(NamedTuple):
    """f(v) = v'Av - 2b'v + c, the target's mean loss less the source's."""

    A: FloatArray
    b: FloatArray
    c: float

    def __call__(self, v: ArrayLike) -> FloatArray:
        v = np.asarray(v)
        return np.einsum("...i,ij,...j", v, self.A, v) - 2 * v @ self.b + self.c

    @property
    def negative(self) -> Quadratic:
        return Quadratic(-self.A, -self.b, -self.c)


@dataclass(frozen=True)
class Ball:
    """Predictors w_s + v with ||v|| <= R, and residuals of w_s that are cut to [-c, c].

    Attributes:
        centre: w_s, public, (d,); None is zero.
        radius: R.
        residual_bound: c; with the centre at zero, the bound on the targets.
        row_bound: r.
    """

    centre: tuple[float, ...] | None
    radius: float
    residual_bound: float = 1.0
    row_bound: float = 1.0

    def __post_init__(self) -> None:
        normalise_fields(self, moderate, "radius", "residual_bound", "row_bound")

    @property
    def loss_range(self) -> float:
        """B_R = (c + R r)^2."""
        return (self.residual_bound + self.radius * self.row_bound) ** 2

    def rows(self, records: Domain) -> FloatArray:
        """(x, residual) of every record as it counts, (n, d + 1): bounded, on a grid on which sums of products are exact."""
        w = np.zeros(records.num_features) if self.centre is None else np.asarray(self.centre, dtype=np.float64)
        if w.shape != (records.num_features,):
            raise ValueError(f"centre: expected {records.num_features} public weights, got shape {w.shape}")
        r, c = self.row_bound, self.residual_bound
        x = records.bounded(r, np.finfo(float).max / 8)
        with np.errstate(all="ignore"):  # a warning would tell of one record
            rho = np.clip(x.y - np.sum(x.X * w, axis=1), -c, c)  # of its own row: no product of matrices
        h = lattice.step(float(np.hypot(r, c)), x.num_features + 1, max(x.num_records, 1), ())
        return np.column_stack([lattice.sent(x.X.T, r, h).T, lattice.cut(rho, h)])

    def difference(self, source: Domain, target: Domain) -> Quadratic:
        """f of two samples; no record at all counts as a mean loss of zero."""
        S, T = (moment(self.rows(each)) for each in (source, target))
        D = T / max(target.num_records, 1) - S / max(source.num_records, 1)
        return Quadratic(D[:-1, :-1], D[:-1, -1], float(D[-1, -1]))


def moment(rows: FloatArray) -> FloatArray:
    """sum v v', exact on the grid in whatever order."""
    return rows.T @ rows


class Extreme(NamedTuple):
    """The largest value of a quadratic over a ball, and where, as far as that is known."""

    value: float
    at: FloatArray


def largest(f: Quadratic, radius: float) -> Extreme:
    """max f over ||v|| <= R, as its dual: the least of mult R^2 + b'(mult I - A)^-1 b + c over mult >= max(a_max, 0).

    The dual is flat at its minimum and needs no case of its own where -b has no part along the top eigenvectors; next to that
    hard case the maximiser itself is known to few digits, and f of it to as few. What is left to find is the distance s of
    mult from max(a_max, 0), relative to itself, by bisection of ||v(s)|| = R.
    """
    a, Q = np.linalg.eigh(f.A)
    g, floor = Q.T @ f.b, max(float(a[-1]), 0.0)
    below = floor - a  # >= 0
    v = lambda s: -np.divide(g, s + below, out=np.zeros_like(g), where=g != 0)  # b along it counts, or it is not needed
    with np.errstate(divide="ignore"):
        inside = bool(np.linalg.norm(v(0.0)) <= radius)
    high = float(np.linalg.norm(g)) / radius  # ||v|| <= R there, and >= R where the last entry alone is as long
    low, s = max(abs(float(g[-1])) / radius - float(below[-1]), 1e-30 * high), 0.0
    if not inside:
        for _ in range(100):
            s = float(np.sqrt(low) * np.sqrt(high))
            low, high = (s, high) if np.linalg.norm(v(s)) > radius else (low, s)
    at = v(s)
    found = (floor + s) * radius**2 - float(g @ at) + f.c
    if not inside:
        at *= radius / max(float(np.linalg.norm(at)), 1e-300)
    elif a[-1] >= 0:  # to the sphere, along the top, where -b has no part
        at[-1] = np.sqrt(max(radius**2 - float(at @ at), 0.0))
    return Extreme(found, Q @ at)


def discrepancy(f: Quadratic, radius: float) -> Extreme:
    """d = max |f| over the ball (2): the larger of two trust-region problems."""
    return max((largest(f, radius), largest(f.negative, radius)), key=lambda found: found.value)


def by_dca(f: Quadratic, radius: float, start: ArrayLike, steps: int = 1000) -> Extreme:
    """max f by the paper's difference-of-convex programming, v <- Proj(v + (A v - b) / rho), rho >= ||A||.

    From single starts it may end below the global maximum, and what it returns then has no proved sensitivity.
    """
    rho, v = max(np.linalg.norm(f.A, 2), 1e-300), np.array(start, dtype=np.float64)
    for _ in range(steps):
        v = v + (f.A @ v - f.b) / rho
        v *= min(1.0, radius / max(np.linalg.norm(v), 1e-300))
    return Extreme(float(f(v)), v)


def price(loss_range: float, num_records: int, epsilon: float) -> VectorLaplace:
    """Laplace noise for a sensitivity of B / n and what rounding adds; eps is the discrepancy's share."""
    return VectorLaplace(1, epsilon, loss_range * (1 / max(num_records, 1) + 4 * SLACK))


def grid(law: VectorLaplace) -> float:
    """The grid on which a discrepancy is published: far below its noise, coarse enough to be exact."""
    return float(2.0 ** np.floor(np.log2(law.sensitivity * SLACK / 4))) if law.sensitivity else 1.0


def noisy(value: float, noise: float, law: VectorLaplace, loss_range: float) -> float:
    """d_DP = clip(d + nu, 0, B), d rounded to the grid first (line 1 of both algorithms)."""
    h = grid(law)
    return float(np.clip(np.rint(value / h) * h + noise, 0.0, loss_range))


@dataclass(frozen=True)
class NoisyDiscrepancy:
    """d_DP and what it promises.

    Attributes:
        value: clip(d + nu, 0, B).
        ball: over which predictors.
        guarantee: of one record of the target.
    """

    value: float
    ball: Ball
    guarantee: Guarantee


def private_discrepancy(
    source: Any,
    target: Any,
    *,
    ball: Ball,
    epsilon: float,
    ledger: Ledger | None = None,
    unsafe_seed: int | None = None,
) -> NoisyDiscrepancy:
    """Pay, then publish the discrepancy of two samples with Laplace noise: (epsilon, 0)-private of a target's record.

    Args:
        source: public, a Domain or a pair (X, y).
        target: private, the same.
        ball: of the predictors; its centre is public.
        epsilon: > 0.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged.
    """
    public, private = pair(source, target)
    if not isinstance(ball, Ball):
        raise ValueError(f"ball: expected a Ball, got {type(ball).__name__}")
    ball.difference(public, public)  # what is wrong with the ball is said before anything is paid
    law = price(ball.loss_range, private.num_records, positive("epsilon", epsilon))
    (noise,), guarantee = draw_each(
        [law],
        lattices=[grid(law)],
        epsilon=epsilon,
        unit=Unit.TARGET_RECORD,
        ledger=ledger,
        unsafe_seed=unsafe_seed,
        data=private.X,
    )
    found = discrepancy(ball.difference(public, private), ball.radius)
    return NoisyDiscrepancy(noisy(found.value, float(noise[0]), law, ball.loss_range), ball, guarantee)
