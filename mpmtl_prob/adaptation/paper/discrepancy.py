"""Discrepancy between two samples, a measure of domain shift: exact over a ball of predictors, or with Laplace noise.

It is the largest difference of the mean losses of one predictor on the two samples. With the squared loss that difference is
f(v) = v'Av - 2b'v + c, and the largest |f| over a ball is two trust-region problems, solved by their secular equations. The
default is a ball around a public fit, as over the ball of all predictors the discrepancy is large even between samples of the
same distribution. The centre must be public: the sensitivity B / n does not hold for a centre fitted to private records.

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

#: Allowance for the solver's error relative to the range of the loss, which is added to the sensitivity. Eigenvalues of
#: such small matrices have errors of about 1e-15.
SLACK = 1e-9


class Quadratic(NamedTuple):
    """Quadratic f(v) = v'Av - 2b'v + c, the target's mean loss less the source's."""

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
    """Ball of predictors w_s + v with ||v|| <= R, with residuals of w_s clipped to [-c, c].

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
        """Return (x, residual) of every record, (n, d + 1), bounded, and on a lattice on which sums of products are exact."""
        w = np.zeros(records.num_features) if self.centre is None else np.asarray(self.centre, dtype=np.float64)
        if w.shape != (records.num_features,):
            raise ValueError(f"centre: expected {records.num_features} public weights, got shape {w.shape}")
        r, c = self.row_bound, self.residual_bound
        x = records.bounded(r, np.finfo(float).max / 8)
        with np.errstate(all="ignore"):  # a warning would reveal one record
            # Row by row: in a matrix product rows could affect each other's rounding.
            rho = np.clip(x.y - np.sum(x.X * w, axis=1), -c, c)
        h = lattice.step(float(np.hypot(r, c)), x.num_features + 1, max(x.num_records, 1), ())
        return np.column_stack([lattice.sent(x.X.T, r, h).T, lattice.cut(rho, h)])

    def difference(self, source: Domain, target: Domain) -> Quadratic:
        """Return f of two samples. A sample without records has a mean loss of zero."""
        S, T = (moment(self.rows(sample)) for sample in (source, target))
        D = T / max(target.num_records, 1) - S / max(source.num_records, 1)
        return Quadratic(D[:-1, :-1], D[:-1, -1], float(D[-1, -1]))


def moment(rows: FloatArray) -> FloatArray:
    """Return sum v v', which is exact on the lattice in any order of summation."""
    return rows.T @ rows


class Extreme(NamedTuple):
    """Largest value of a quadratic over a ball, with an approximate maximiser."""

    value: float
    at: FloatArray


def largest(f: Quadratic, radius: float) -> Extreme:
    """Maximise f over ||v|| <= R by the dual: minimise mult R^2 + b'(mult I - A)^-1 b + c over mult >= max(a_max, 0).

    The dual is flat at its minimum, and needs no special case where -b has no component along the top eigenvectors. Near that
    hard case the maximiser itself is known to few digits, and so is f of it. The unknown is the distance s of mult from
    max(a_max, 0), found by bisection of ||v(s)|| = R in log s.
    """
    a, Q = np.linalg.eigh(f.A)
    g, floor = Q.T @ f.b, max(float(a[-1]), 0.0)
    below = floor - a  # >= 0

    def v(s: float) -> FloatArray:
        return -np.divide(g, s + below, out=np.zeros_like(g), where=g != 0)  # zero where g is, also for 0 / 0

    with np.errstate(divide="ignore"):
        inside = bool(np.linalg.norm(v(0.0)) <= radius)
    high = float(np.linalg.norm(g)) / radius  # ||v(high)|| <= R, and ||v(low)|| >= R by its last entry alone
    low, s = max(abs(float(g[-1])) / radius - float(below[-1]), 1e-30 * high), 0.0
    if not inside:
        for _ in range(100):
            s = float(np.sqrt(low) * np.sqrt(high))
            low, high = (s, high) if np.linalg.norm(v(s)) > radius else (low, s)
    at = v(s)
    value = (floor + s) * radius**2 - float(g @ at) + f.c
    if not inside:
        at *= radius / max(float(np.linalg.norm(at)), 1e-300)
    elif a[-1] >= 0:  # move along the top eigenvector, where -b is zero, to the sphere
        at[-1] = np.sqrt(max(radius**2 - float(at @ at), 0.0))
    return Extreme(value, Q @ at)


def discrepancy(f: Quadratic, radius: float) -> Extreme:
    """Compute d = max |f| over the ball (2), the larger of two trust-region problems."""
    return max((largest(f, radius), largest(f.negative, radius)), key=lambda extreme: extreme.value)


def by_dca(f: Quadratic, radius: float, start: ArrayLike, steps: int = 1000) -> Extreme:
    """Maximise f by the paper's difference-of-convex programming, v <- Proj(v + (A v - b) / rho), rho >= ||A||.

    From a single start it may end in a local maximum, whose value has no proved sensitivity.
    """
    rho, v = max(np.linalg.norm(f.A, 2), 1e-300), np.array(start, dtype=np.float64)
    for _ in range(steps):
        v = v + (f.A @ v - f.b) / rho
        v *= min(1.0, radius / max(np.linalg.norm(v), 1e-300))
    return Extreme(float(f(v)), v)


def price(loss_range: float, num_records: int, epsilon: float) -> VectorLaplace:
    """Return the Laplace noise for the sensitivity B / n plus rounding; eps is the discrepancy's share."""
    return VectorLaplace(1, epsilon, loss_range * (1 / max(num_records, 1) + 4 * SLACK))


def grid(law: VectorLaplace) -> float:
    """Return the lattice step for a published discrepancy: far below the noise, and coarse enough for exact sums."""
    return float(2.0 ** np.floor(np.log2(law.sensitivity * SLACK / 4))) if law.sensitivity else 1.0


def noisy(value: float, noise: float, law: VectorLaplace, loss_range: float) -> float:
    """Return d_DP = clip(d + nu, 0, B), with d rounded to the lattice first (line 1 of both algorithms)."""
    h = grid(law)
    return float(np.clip(np.rint(value / h) * h + noise, 0.0, loss_range))


@dataclass(frozen=True)
class NoisyDiscrepancy:
    """Noisy discrepancy d_DP with its privacy guarantee.

    Attributes:
        value: clip(d + nu, 0, B).
        ball: the ball of predictors.
        guarantee: the privacy guarantee for one record of the target.
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
    """Publish the discrepancy of two samples with Laplace noise, (epsilon, 0)-private for a target's record, after a charge.

    Args:
        source: public, a Domain or a pair (X, y).
        target: private, the same.
        ball: the ball of predictors; its centre is public.
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
    ball.difference(public, public)  # raises for a wrong ball, before anything is paid
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
    extreme = discrepancy(ball.difference(public, private), ball.radius)
    return NoisyDiscrepancy(noisy(extreme.value, float(noise[0]), law, ball.loss_range), ball, guarantee)
