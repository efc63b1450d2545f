"""Noisy projected gradient descent on public and private records.

Private records enter every step in two noisy forms: the sum of their gradients, each clipped to a public length, and, where
they have weights, the loss of each. Both are rounded to a lattice on which sums are exact. The noise of all steps is drawn
beforehand, by :mod:`mpmtl_prob.privacy.charge_and_draw`. All else is public or follows from what was published.

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
    """Return the noise of T steps as one mechanism, in units in which a replaced record changes every query by at most 1.

    Args:
        steps: T.
        size: noisy numbers per step: d, or d + n with weights of private records.
        queries: k, 1 or 2 per step; T steps of k queries change by sqrt(k T) in all.
        ratio: sigma_j / s_j.

    Raises:
        ValueError: too many noisy numbers to draw.
    """
    steps, size = whole("steps", steps), whole("size", size)
    if steps * size > MANY:
        raise ValueError(f"steps: expected at most {MANY // size}, with {size} noisy numbers in each, got {steps}")
    return VectorGaussian(steps * size, ratio, float(np.sqrt(steps * queries)))


def grid(noise: VectorGaussian) -> float:
    """Return the lattice step, a power of two: 2^-20 of a sensitivity, or coarser where large noise needs room in a double.

    Squared lengths are then whole numbers below 2^40, so that no rounding error exceeds the bound, and sums over fewer than
    2^32 records are exact.
    """
    room = np.ceil(np.log2((64 + 2 * noise.num_features) * noise.sd)) - 51
    return float(2.0 ** max(-20.0, room))


@dataclass(frozen=True, eq=False, repr=False)
class PrivateSums:
    """Noisy sums over the private records, all that a descent learns about them.

    Attributes:
        records: private records with bounds applied.
        loss: the loss of a record.
        longest: the length to which gradients are clipped.
        noise: the noise of every step, (T, d) or (T, d + n), in units of the sensitivities; None without privacy.
        lattice: h, the lattice step.
    """

    records: Domain
    loss: Loss
    longest: float
    noise: FloatArray | None
    lattice: float

    def gradient(self, t: int, w: FloatArray, weights: FloatArray) -> FloatArray:
        """Return sum_i weights_i grad l_i + noise of sd sigma_1 n / (1 - alpha), (d,), for weights of at most 1."""
        with np.errstate(all="ignore"):  # a warning would reveal one record
            g = weights[:, None] * self.loss.gradients(w, self.records.X, self.records.y)
        if self.noise is None:
            return g.sum(axis=0)
        sent = lattice.sent(g.T / (2 * self.longest), 0.5, self.lattice)  # a replacement changes the sum by at most 1
        return 2 * self.longest * (sent.sum(axis=1) + self.noise[t, : len(w)])

    def losses(self, t: int, w: FloatArray, weights: FloatArray) -> FloatArray:
        """Return weights_i l_i + noise for every record, (n,)."""
        with np.errstate(all="ignore"):
            losses = weights * self.loss.values(w, self.records.X, self.records.y)
        if self.noise is None:
            return losses
        B = self.loss.bound
        return B * (lattice.cut(np.clip(losses / B, 0.0, 1.0), self.lattice) + self.noise[t, len(w) :])


class StepSizes(NamedTuple):
    """Step sizes of the predictor, and of the weights u (not u~) of public and private records."""

    w: float
    public: float = 0.0
    private: float = 0.0


class Path(NamedTuple):
    """Path of a descent, with the weights of the records.

    Attributes:
        w: w_1..w_T, (T, d).
        public: u~ of public records, averaged over the steps, (m,).
        private: u~ of private records, averaged likewise, (n,); never published, as each belongs to one record.
    """

    w: FloatArray
    public: FloatArray
    private: FloatArray


def project(w: FloatArray, radius: float) -> FloatArray:
    """Project onto the ball (Algorithm 1, line 7)."""
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
    """Run Algorithm 1, lines 5 to 12, in u~: a step of u by eta grad_u is a step of u~ by eta q0^2 grad_u~."""
    loss, m, q0 = private.loss, sizes.public, sizes.start
    a, b = sizes.each_public, sizes.each_private
    w, u, path, total = start.copy(), np.ones(len(q0)), np.empty((steps, len(start))), np.zeros(len(q0))
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
        path[t], total = w, total + u
    return Path(path, total[:m] / steps, total[m:] / steps)


class Answers(NamedTuple):
    """Path of a profiled descent with its noisy sums, all public where there is noise.

    Attributes:
        w: w_0..w_T, (T + 1, d).
        private: noisy sums of the private records' gradients at w_0..w_{T-1}, (T, d).
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
    """Run the descent with the best weights inserted for every w, so that no weights have to be learnt."""
    loss, w = private.loss, start.copy()
    path, private_sums = np.empty((steps + 1, len(start))), np.empty((steps, len(start)))
    path[0] = w
    for t in range(steps):
        outer = slope(loss.values(w, source.X, source.y) + discrepancy)
        gradient = sizes.each_public * (outer[:, None] * loss.gradients(w, source.X, source.y)).sum(axis=0)
        with np.errstate(all="ignore"):
            record_weights = slope(loss.values(w, private.records.X, private.records.y))
        private_sums[t] = private.gradient(t, w, record_weights)
        w = project(w - step * (gradient + sizes.each_private * private_sums[t]), loss.weight_bound)
        path[t + 1] = w
    return Answers(path, private_sums)


__getattr__ = former_names(__name__, {"with_weights": "descend_with_weights"})
