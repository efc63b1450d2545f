"""Noisy projected gradient descent on public and private records.

Private records enter through two noisy numbers of every step: the sum of their gradients, each shortened to a public length,
and, where they have weights, each one's loss. Both are cut to a grid on which sums are exact, and the noise of all steps is
drawn beforehand, through the door; all else is public or follows from what was let out.

Source: Bassily et al. (2023), Algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, whole
from mpmtl_prob._util.former import former_names
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.paper.losses import Loss
from mpmtl_prob.adaptation.paper.objective import Penalties, Sizes
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.mechanisms import VectorGaussian


def law(steps: int, size: int, queries: int, ratio: float) -> VectorGaussian:
    """The noise of T steps as one vector, in units in which a replaced record moves each of the queries by at most 1.

    Args:
        steps: T.
        size: noisy numbers in a step: d, or d + n with weights of private records.
        queries: k, 1 or 2 in a step; T steps of k queries move by sqrt(k T) in all.
        ratio: sigma_j / s_j.

    Raises:
        ValueError: more noise than anybody draws.
    """
    steps, size = whole("steps", steps), whole("size", size)
    if steps * size > MANY:
        raise ValueError(f"steps: expected at most {MANY // size}, with {size} noisy numbers in each, got {steps}")
    return VectorGaussian(steps * size, ratio, float(np.sqrt(steps * queries)))


def grid(noise: VectorGaussian) -> float:
    """A power of two: 2^-20 of a sensitivity, or coarser where noise needs room in a double.

    Squared lengths are then whole numbers below 2^40, which a rounding error does not carry past the bound, and sums over
    fewer than 2^32 records are exact.
    """
    room = np.ceil(np.log2((64 + 2 * noise.num_features) * noise.sd)) - 51
    return float(2.0 ** max(-20.0, room))


@dataclass(frozen=True, eq=False, repr=False)
class PrivateSums:
    """What a step learns of the private records.

    Attributes:
        records: bounded.
        loss: of a record.
        longest: to which a gradient is shortened.
        noise: of every step, (T, d) or (T, d + n), in units of the sensitivities; None without privacy.
        lattice: h.
    """

    records: Domain
    loss: Loss
    longest: float
    noise: FloatArray | None
    lattice: float

    def gradient(self, t: int, w: FloatArray, weights: FloatArray) -> FloatArray:
        """sum_i weights_i grad l_i + noise of sd sigma_1 n / (1 - alpha), (d,); weights at most 1, public."""
        with np.errstate(all="ignore"):  # a warning would tell of one record
            g = weights[:, None] * self.loss.gradients(w, self.records.X, self.records.y)
        if self.noise is None:
            return g.sum(axis=0)
        sent = lattice.sent(g.T / (2 * self.longest), 0.5, self.lattice)  # a replacement moves the sum by at most 1
        return 2 * self.longest * (sent.sum(axis=1) + self.noise[t, : len(w)])

    def losses(self, t: int, w: FloatArray, weights: FloatArray) -> FloatArray:
        """weights_i l_i + noise, of every record, (n,)."""
        with np.errstate(all="ignore"):
            losses = weights * self.loss.values(w, self.records.X, self.records.y)
        if self.noise is None:
            return losses
        B = self.loss.bound
        return B * (lattice.cut(np.clip(losses / B, 0.0, 1.0), self.lattice) + self.noise[t, len(w) :])


class StepSizes(NamedTuple):
    """Of the predictor, and of the weights u (not u~) of public and private records."""

    w: float
    public: float = 0.0
    private: float = 0.0


class Path(NamedTuple):
    """Where a descent went.

    Attributes:
        w: w_1..w_T, (T, d).
        public: u~ of public records at the end, or their mean over steps, (m,).
        private: the same of private records, (n,); per record, and so never published.
    """

    w: FloatArray
    public: FloatArray
    private: FloatArray


def project(w: FloatArray, radius: float) -> FloatArray:
    """Onto the ball (Algorithm 1, line 7)."""
    return w * min(1.0, radius / max(float(np.linalg.norm(w)), 1e-300))


def descend_with_weights(
    source: Domain,
    private: PrivateSums,
    penalties: Penalties,
    sizes: Sizes,
    discrepancy: float,
    size: StepSizes,
    steps: int,
    start: FloatArray,
    *,
    move_private: bool,
) -> Path:
    """Algorithm 1, lines 5 to 12, in u~: a step of u by eta grad_u is one of u~ by eta q0^2 grad_u~."""
    loss, m, q0 = private.loss, sizes.public, sizes.start
    a, b = sizes.each_public, sizes.each_private
    w, u, found, total = start.copy(), np.ones(len(q0)), np.empty((steps, len(start))), np.zeros(len(q0))
    eta = np.repeat([size.public * a**2, size.private * b**2], [m, sizes.private])
    for t in range(steps):
        L_public = loss.values(w, source.X, source.y) + discrepancy
        pull = 1 / u[m:]
        noisy = private.losses(t, w, pull**2) if move_private else np.zeros(sizes.private)  # l_i / u~_i^2
        gradient = a * (loss.gradients(w, source.X, source.y) / u[:m, None]).sum(axis=0)
        gradient = gradient + b * private.gradient(t, w, pull)
        slopes = penalties.slopes(u, np.concatenate([L_public, noisy * u[m:] ** 2]), q0)
        w = project(w - size.w * gradient, loss.weight_bound)  # lines 6 and 7
        u_next = np.maximum(u - eta * slopes, 1.0)  # lines 8 to 11
        u = np.concatenate([u_next[:m], u_next[m:] if move_private else u[m:]])
        found[t], total = w, total + u
    return Path(found, total[:m] / steps, total[m:] / steps)


class Answers(NamedTuple):
    """A profiled descent, all of it public where there is noise.

    Attributes:
        w: w_0..w_T, (T + 1, d).
        private: what each step was told of the private records at w_0..w_{T-1}, (T, d).
    """

    w: FloatArray
    private: FloatArray


def profiled(
    source: Domain,
    private: PrivateSums,
    slope: Callable[[FloatArray], FloatArray],
    sizes: Sizes,
    discrepancy: float,
    step: float,
    steps: int,
    start: FloatArray,
) -> Answers:
    """The same with the best weights put in for every w: no record has one that must be learnt."""
    loss, w = private.loss, start.copy()
    found, told = np.empty((steps + 1, len(start))), np.empty((steps, len(start)))
    found[0] = w
    for t in range(steps):
        outer = slope(loss.values(w, source.X, source.y) + discrepancy)
        gradient = sizes.each_public * (outer[:, None] * loss.gradients(w, source.X, source.y)).sum(axis=0)
        with np.errstate(all="ignore"):
            own = slope(loss.values(w, private.records.X, private.records.y))
        told[t] = private.gradient(t, w, own)
        w = project(w - step * (gradient + sizes.each_private * told[t]), loss.weight_bound)
        found[t + 1] = w
    return Answers(found, told)


__getattr__ = former_names(__name__, {"with_weights": "descend_with_weights"})
