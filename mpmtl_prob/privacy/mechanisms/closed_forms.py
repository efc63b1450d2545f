"""Closed forms of delta(eps) for a single release: Wishart noise, Gaussian noise and pure differential privacy.

Sigma = A + E, E ~ Wishart_d(d - 1 + 2k, s I). The Wishart law is invariant under rotation. So one number contains all
information in Sigma about the presence of a column w: X = ||w||^2 / (w'(Sigma - A')^{-1} w), A' the second moment of the
others. X ~ Gamma(k, theta) without the task and ||w||^2 + Gamma(k, theta) with it, theta = 2s. The release is exactly as
private as one-sided Gamma noise on a number in [0, K^2]. The support of the noise moves with the data. So for k = 1, the
papers' noise, no finite eps holds with delta < 1 - e^{-eps}: an observer who sees that Sigma - A' - ww' is not positive
definite knows that the task was absent. A shorter column costs less privacy, as Gamma noise with k >= 1 is log-concave.

Everything is in units of K = 1. In the direction "add" the data without the task are the more likely ones, in "remove" those
with it. Rounds are composed in :mod:`mpmtl_prob.privacy.accounting.composition`.

delta is a difference of two probabilities, and doubles may keep few of its digits: at eps = 1e-6, a delta of 1e-9 is wrong
in its eighth digit. So delta is computed in interval arithmetic with enough bits, and rounded up to the next double. Sizes
of noise are rounded numbers themselves. They are taken to be smaller by :data:`ROUNDED`, which increases delta. So no delta
is below the true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from mpmtl_prob.privacy.mechanisms.exact import precision

#: Relative error that a theta, a k or a mu may have after a computation in doubles.
ROUNDED = 2.0**-49
_BITS = (128, 256, 512, 1024, 2048, 4096)  # working precisions that are tried until delta is known
_KNOWN = 64  # bits of delta that must be known
_LARGE = 2000.0  # above this eps, e^eps needs more bits than the working precision has


def delta_add(epsilon: float, shape: float, theta: float) -> float:
    """Compute delta(eps) of one release in the direction "add": F_k(x/theta) - e^eps F_k((x-1)/theta).

    Args:
        epsilon: any real number.
        shape: k >= 1.
        theta: 2 s / K^2 > 0.
    """

    def delta() -> arb:
        eps = arb(epsilon)
        loss = 1 / _less(theta)  # the privacy loss is never smaller than -1/theta
        if eps <= -loss:
            return 1 - eps.exp()
        if shape == 1:
            return 1 - (-loss).exp()  # P(X <= 1): the loss is infinite there and -1/theta elsewhere
        k = _less(shape)
        x = 1 / ((eps + loss) / (k - 1)).expm1()  # x - 1 of the formula
        likely = 1 - _above(k, (x + 1) * loss)
        if epsilon > _LARGE:  # the second term cannot be computed, and leaving it out makes delta a little too large
            return likely
        return likely - eps.exp() * (1 - _above(k, x * loss))

    return rounded_up(delta)


def delta_remove(epsilon: float, shape: float, theta: float) -> float:
    """Compute delta(eps) of one release in the direction "remove"; 0 from eps = 1/theta on. Arguments as delta_add."""

    def delta() -> arb:
        eps = arb(epsilon)
        loss = 1 / _less(theta)
        if eps >= loss:
            return arb(0)
        if shape == 1:
            return 1 - (eps - loss).exp()
        k = _less(shape)
        x = 1 / ((loss - eps) / (k - 1)).expm1()
        return _above(k, x * loss) - eps.exp() * _above(k, (x + 1) * loss)

    return rounded_up(delta)


def delta_gaussian(epsilon: float, mu: float) -> float:
    """Compute delta(eps) of N(0, 1) against N(mu, 1): Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    Source: Balle and Wang (2018), Theorem 8; Dong, Roth and Su (2022), Corollary 2.13.
    """

    def delta() -> arb:
        eps = arb(epsilon)
        distance = arb(mu) * (1 + arb(ROUNDED))
        normal_cdf = lambda z: (-z / arb(2).sqrt()).erfc() / 2
        return normal_cdf(distance / 2 - eps / distance) - eps.exp() * normal_cdf(-distance / 2 - eps / distance)

    return rounded_up(delta)


def delta_pure(epsilon: float, each: float, rounds: int = 1) -> float:
    """Compute the largest delta(eps) of rounds that are (each, 0)-private: the optimal composition of equal rounds.

    The worst case of every round is a randomised response, which is true with probability 1 / (1 + e^-each). The sum of T
    losses exceeds eps if more than (T + eps / each) / 2 responses are true. So delta is a difference of two binomial tails.

    Source: Kairouz, Oh and Viswanath (2015), Theorem 3.3.
    """
    needed = math.floor((rounds + Fraction(epsilon) / Fraction(each)) / 2) + 1  # fractions make this exact
    if needed > rounds:
        return 0.0
    if needed <= 0:
        return rounded_up(lambda: 1 - arb(epsilon).exp())

    def tail(chance: arb) -> arb:
        return chance.beta_lower(arb(needed), arb(rounds - needed + 1), True)

    def delta() -> arb:
        likely = 1 / (1 + (-arb(each)).exp())
        unlikely = 1 / (1 + arb(each).exp())
        return tail(likely) - arb(epsilon).exp() * tail(unlikely)

    return rounded_up(delta)


def rounded_up(probability: Callable[[], arb]) -> float:
    """Round a probability up to a double, at most 1. It is computed with more and more bits until it is known."""
    for bits in _BITS:
        with precision(bits):
            value = probability()
            if value.rel_accuracy_bits() >= _KNOWN or value < 1e-300:
                break
    with precision(_BITS[-1]):
        if not value < 1:  # also true for an interval that contains 1
            return 1.0
        above = max(float(value.upper()), 0.0)
        while not arb(above) >= value:
            above = math.nextafter(above, math.inf)
        return above


def _less(size: float) -> arb:
    """Return a lower bound on a size of noise that was computed in doubles."""
    return arb(size) * (1 - arb(ROUNDED))


def _above(shape: arb, x: arb) -> arb:
    """Compute P(G > x) for G ~ Gamma(k, 1)."""
    return x.gamma_upper(shape, True)
