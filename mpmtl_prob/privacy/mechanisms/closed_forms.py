"""What one release gives away, in closed form.

Sigma = A + E, E ~ Wishart_d(d - 1 + 2k, s I). The Wishart law is invariant under rotation, so all that Sigma says about
the presence of one column w is in one number, X = ||w||^2 / (w'(Sigma - A')^{-1} w), A' the second moment of the others:
X ~ Gamma(k, theta) without the task and ||w||^2 + Gamma(k, theta) with it, theta = 2s. The release is exactly as private
as one-sided Gamma noise on a number in [0, K^2]. The support moves with the data, so for k = 1, the papers' noise, no
finite eps holds with delta < 1 - e^{-eps}: an observer who sees that Sigma - A' - ww' is not positive definite knows that
the task was absent. A shorter column gives away less: Gamma noise with k >= 1 is log-concave.

Everything is in units of K = 1. "Add" is the direction in which the data without the task is the likelier one, "remove"
the other. Rounds are composed in :mod:`mpmtl_prob.privacy.accounting.composition`.

A delta is a difference of two probabilities, of which doubles may keep few digits: at eps = 1e-6 a delta of 1e-9 is off in
its eighth. So it is computed in interval arithmetic, with as many bits as it takes, and what is returned is the double
above it. Sizes of noise are rounded numbers themselves; they are taken to be smaller by :data:`ROUNDED`, with which
delta grows. So no delta is below the true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from mpmtl_prob.privacy.mechanisms.exact import precision

#: By so much, relatively, a theta, a k or a mu that was computed in doubles may be wrong.
ROUNDED = 2.0**-49
_BITS = (128, 256, 512, 1024, 2048, 4096)  # of working precision, until delta is known
_KNOWN = 64  # bits of delta that are enough
_LARGE = 2000.0  # an eps whose exponential leaves so many bits no room


def delta_add(epsilon: float, shape: float, theta: float) -> float:
    """delta(eps) of one release when the task's absence is likelier than its presence: F_k(x/theta) - e^eps F_k((x-1)/theta).

    Args:
        epsilon: any real number.
        shape: k >= 1.
        theta: 2 s / K^2 > 0.
    """

    def delta() -> arb:
        eps, loss = arb(epsilon), 1 / _less(theta)  # the loss is never smaller than -1/theta
        if eps <= -loss:
            return 1 - eps.exp()
        if shape == 1:
            return 1 - (-loss).exp()  # P(X <= 1): the loss is infinite there and -1/theta elsewhere
        k = _less(shape)
        x = 1 / ((eps + loss) / (k - 1)).expm1()  # one less than the x of the formula
        likely = 1 - _above(k, (x + 1) * loss)
        if epsilon > _LARGE:  # the other term takes more digits than there are; without it delta is a little too large
            return likely
        return likely - eps.exp() * (1 - _above(k, x * loss))

    return rounded_up(delta)


def delta_remove(epsilon: float, shape: float, theta: float) -> float:
    """delta(eps) of one release when the task's presence is likelier; 0 from eps = 1/theta on. Arguments as delta_add."""

    def delta() -> arb:
        eps, loss = arb(epsilon), 1 / _less(theta)
        if eps >= loss:
            return arb(0)
        if shape == 1:
            return 1 - (eps - loss).exp()
        k = _less(shape)
        x = 1 / ((loss - eps) / (k - 1)).expm1()
        return _above(k, x * loss) - eps.exp() * _above(k, (x + 1) * loss)

    return rounded_up(delta)


def delta_gaussian(epsilon: float, mu: float) -> float:
    """delta(eps) of N(0, 1) against N(mu, 1): Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    Source: Balle and Wang (2018), Theorem 8; Dong, Roth and Su (2022), Corollary 2.13.
    """

    def delta() -> arb:
        eps, distance = arb(epsilon), arb(mu) * (1 + arb(ROUNDED))
        below = lambda z: (-z / arb(2).sqrt()).erfc() / 2
        return below(distance / 2 - eps / distance) - eps.exp() * below(-distance / 2 - eps / distance)

    return rounded_up(delta)


def delta_pure(epsilon: float, each: float, rounds: int = 1) -> float:
    """The largest delta(eps) of rounds that are (each, 0)-private: the optimal composition of equal rounds.

    Every round is at worst a randomised response, right with probability 1 / (1 + e^-each). Of T the sum of losses is above
    eps where more than (T + eps / each) / 2 are right: delta is a difference of two binomial tails.

    Source: Kairouz, Oh and Viswanath (2015), Theorem 3.3.
    """
    right = math.floor((rounds + Fraction(epsilon) / Fraction(each)) / 2) + 1  # exactly
    if right > rounds:
        return 0.0
    if right <= 0:
        return rounded_up(lambda: 1 - arb(epsilon).exp())

    def tail(chance: arb) -> arb:
        return chance.beta_lower(arb(right), arb(rounds - right + 1), True)

    def delta() -> arb:
        likely, unlikely = 1 / (1 + (-arb(each)).exp()), 1 / (1 + arb(each).exp())
        return tail(likely) - arb(epsilon).exp() * tail(unlikely)

    return rounded_up(delta)


def rounded_up(probability: Callable[[], arb]) -> float:
    """The double above a probability, which is computed with more and more bits until it is known; at most 1."""
    for bits in _BITS:
        with precision(bits):
            value = probability()
            if value.rel_accuracy_bits() >= _KNOWN or value < 1e-300:
                break
    with precision(_BITS[-1]):
        if not value < 1:  # nor where nothing is known of it
            return 1.0
        above = max(float(value.upper()), 0.0)
        while not arb(above) >= value:
            above = math.nextafter(above, math.inf)
        return above


def _less(size: float) -> arb:
    """A size of noise, or 1 where that is the least that it can be, less what it may be wrong by."""
    return arb(size) * (1 - arb(ROUNDED))


def _above(shape: arb, x: arb) -> arb:
    """P(G > x) of G ~ Gamma(k, 1)."""
    return x.gamma_upper(shape, True)
