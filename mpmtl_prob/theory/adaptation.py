"""The adaptation paper's theorems as functions, with its slips mended; where a bound says nothing, it says so by its size.

Source: Bassily, Cortes, Mao and Mohri (2023), Theorems 4.2, 4.3, 5.2 and B.1, Lemma 5.1, appendices C.2 and D.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, positive, whole
from mpmtl_prob.adaptation.paper.losses import Loss
from mpmtl_prob.adaptation.paper.objective import Penalties, Sizes, Smoothed, objective_range, smoothness


class ConvexBound(NamedTuple):
    """The three parts of the bound on E F - F*; together they are the bound."""

    predictor: float
    private_weights: float
    public_weights: float

    @property
    def total(self) -> float:
        return float(sum(self))


def convex_utility(
    loss: Loss,
    penalties: Penalties,
    sizes: Sizes,
    *,
    epsilon: float,
    delta: float,
    steps: int,
    num_features: int,
    private_distance: float,
    public_distance: float,
) -> ConvexBound:
    """E F(wbar, ubar) - F* of Algorithm 1 with the printed noise and step sizes, from w0 = 0 (Theorem 4.2, C.2 explicit).

    Args:
        loss: with B, G and Lambda.
        penalties: with Bbar - B.
        sizes: m, n and alpha.
        epsilon: the optimiser's share.
        delta: beside it.
        steps: T.
        num_features: d.
        private_distance: ||u_0 - u*||^2 of private records, in the paper's units of u, which grow as n^3.
        public_distance: the same of public records. Both parts are void once a fixed share of weights moves at all.

    Raises:
        ValueError: a number outside its range, or sizes without private records.
    """
    _check(epsilon, delta, num_features)
    whole("steps", steps)
    whole("private", sizes.private)
    m, n, a, b = sizes.public, sizes.private, sizes.source_weight, 1 - sizes.source_weight
    B, G, wide, L = loss.bound, loss.lipschitz, loss.bound + penalties.total, np.log(3 / delta)
    w = loss.weight_bound * G * np.sqrt(1 / steps + 16 * b**2 * num_features * L / (n * epsilon) ** 2)
    private = b**2 * (private_distance + 1) / (2 * n**1.5) * np.sqrt(wide**2 / steps + 4 * B**2 * L / epsilon**2)
    public = a**2 * (public_distance + 1) * (B + wide) / (2 * m**1.5 * np.sqrt(steps))
    return ConvexBound(float(w), float(private), float(public))


def convex_steps(
    loss: Loss, penalties: Penalties, sizes: Sizes, *, epsilon: float, delta: float, num_features: int
) -> int:
    """The fewest steps of Theorem 4.2: max(1, (n eps)^2 / (d (1 - alpha)^2 L), (Bbar eps / B)^2 / L, (n / m)^3 (...)).

    Raises:
        ValueError: a number outside its range, or alpha = 1: no step then draws noise, and every further step makes the bound
            smaller, so that no number of steps is enough.
    """
    _check(epsilon, delta, num_features)
    if sizes.source_weight == 1:
        raise ValueError(
            "sizes: expected a source weight alpha below 1, as steps are weighed against the noise on private records, got 1"
        )
    m, n, L = sizes.public, sizes.private, np.log(1 / delta)
    wide = ((loss.bound + penalties.total) * epsilon / loss.bound) ** 2 / L
    first = (n * epsilon) ** 2 / (num_features * (1 - sizes.source_weight) ** 2 * L)
    return int(np.ceil(max(1.0, first, wide, wide * (n / m) ** 3)))


class OptimalRate(NamedTuple):
    """The rate of Theorem 4.3, and what it asks for.

    Attributes:
        rate: G Lambda sqrt(d log(1 / delta)) / (n eps), up to a constant.
        private_records: the n from which it holds.
        steps: the fewest steps T.
        holds: whether n is large enough. The rate is then optimal: private empirical risk minimisation, which has no smaller
            error, is the case in which the best weights are known and lie on the private records alone.
    """

    rate: float
    private_records: float
    steps: int
    holds: bool


def optimal_rate(
    loss: Loss,
    penalties: Penalties,
    sizes: Sizes,
    *,
    epsilon: float,
    delta: float,
    num_features: int,
    private_distance: float,
    public_distance: float,
) -> OptimalRate:
    """Compute the rate of Algorithm 1 and whether it is optimal: n >= (B max(1, U_pub + U_priv))^2 / ((G Lambda)^2 d).

    Arguments as of :func:`convex_utility`. Distances grow as n^3 and m^3 once a fixed share of the weights moves at all, and
    then no n is large enough.

    Raises:
        ValueError: a number outside its range, or alpha = 1, as of :func:`convex_steps`.

    Source: Bassily et al. (2023), Theorem 4.3.
    """
    _check(epsilon, delta, num_features)
    reach, L = loss.weight_bound * loss.lipschitz, np.log(1 / delta)
    least = (loss.bound * max(1.0, private_distance + public_distance)) ** 2 / (reach**2 * num_features)
    rate = reach * np.sqrt(num_features * L) / (max(sizes.private, 1) * epsilon)
    steps = convex_steps(loss, penalties, sizes, epsilon=epsilon, delta=delta, num_features=num_features)
    return OptimalRate(float(rate), float(least), steps, bool(sizes.private >= least))


def _check(epsilon: float, delta: float, num_features: int) -> None:
    """Raise ValueError for a budget or a number of features outside its range."""
    positive("epsilon", epsilon)
    fraction("delta", delta)
    whole("num_features", num_features)


def stationarity(
    loss: Loss,
    penalties: Smoothed,
    sizes: Sizes,
    *,
    epsilon: float,
    delta: float,
    steps: int | None,
    num_features: int,
) -> tuple[float, float]:
    """E ||G_J||^2 at a uniform step of Algorithm 2, and the number of steps it is for (Theorem 5.2, constants mended).

    8 betabar M / T + 160 (1 - alpha)^2 G^2 d T L / (eps n)^2 + 40 (1 - alpha)^4 B^2 T L / (eps^2 n^3); ``steps`` None
    takes the T that is best for it.
    """
    n, c, L = sizes.private, 1 - sizes.source_weight, np.log(3 / delta)
    beta, M = smoothness(loss, penalties, sizes), objective_range(loss, penalties, sizes)
    per_step = 160 * (c * loss.lipschitz / (epsilon * n)) ** 2 * num_features * L
    per_step += 40 * c**4 * loss.bound**2 * L / (epsilon**2 * n**3)
    T = max(1, round(np.sqrt(8 * beta * M / per_step))) if steps is None else steps
    return float(8 * beta * M / T + per_step * T), T


def gradient_mapping(
    v: tuple[FloatArray, FloatArray],
    slopes: tuple[FloatArray, FloatArray],
    smoothness: float,
    sizes: Sizes,
    radius: float,
) -> float:
    """||G_J||^2 = ||betabar (v - Proj(v - grad J / betabar))||^2 in the paper's u = u~ / q0.

    Args:
        v: w and u~.
        slopes: gradients by w and by u~.
        smoothness: betabar.
        sizes: m, n and alpha.
        radius: Lambda.
    """
    (w, u), (by_w, by_u), q0 = v, slopes, sizes.start
    new = w - by_w / smoothness
    new = new * min(1.0, radius / max(float(np.linalg.norm(new)), 1e-300))
    moved = (u - np.maximum(u - q0**2 * by_u / smoothness, 1.0)) / q0
    return float(smoothness**2 * (np.sum((w - new) ** 2) + np.sum(moved**2)))


def learning_bound(
    q: FloatArray,
    losses: FloatArray,
    sizes: Sizes,
    discrepancy: float,
    bound: float,
    complexity: float,
    eta: float = 0.05,
) -> float:
    """Theorem B.1: with probability 1 - eta the target's loss is at most this, for all w and all q with ||q - p0||_1 < 1.

    sum q l + qbar dis + 2 R_q + c B x + B (||q||_2 + 2x) (sqrt(log log2(2 / (1 - x))) + sqrt(log(2 / eta) / 2)), where
    x = ||q - p0||_1 and c = 9; 6 is printed, and its own steps add up to 9. A diagnostic: it is far above 1 on samples of any
    practical size.

    Args:
        q: weights, public records first, (m + n,).
        losses: of all records, without the discrepancy.
        sizes: m, n and alpha.
        discrepancy: dis, over all predictors, of the two distributions.
        bound: B.
        complexity: R_q, the weighted Rademacher complexity.
        eta: how often it may fail.
    """
    x = float(np.abs(q - sizes.start).sum())
    if not x < 1:
        return float(np.inf)
    chance = np.sqrt(np.log(np.log2(2 / (1 - x)))) if x > 0 else 0.0
    spread = bound * (np.linalg.norm(q) + 2 * x) * (chance + np.sqrt(np.log(2 / eta) / 2))
    main = q @ losses + q[: sizes.public].sum() * discrepancy + 2 * complexity
    return float(main + 9 * bound * x + spread)
