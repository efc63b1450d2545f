"""What one release gives away, in closed form.

Sigma = A + E, E ~ Wishart_d(d - 1 + 2k, s I). The Wishart law is invariant under rotation, so all that Sigma says about
the presence of one column w is in one number, X = ||w||^2 / (w'(Sigma - A')^{-1} w), A' the second moment of the others:
X ~ Gamma(k, theta) without the task and ||w||^2 + Gamma(k, theta) with it, theta = 2s. The release is exactly as private
as one-sided Gamma noise on a number in [0, K^2]. The support moves with the data, so for k = 1, the papers' noise, no
finite eps holds with delta < 1 - e^{-eps}: an observer who sees that Sigma - A' - ww' is not positive definite knows that
the task was absent. A shorter column gives away less: Gamma noise with k >= 1 is log-concave.

Everything is in units of K = 1. "Add" is the direction in which the data without the task is the likelier one, "remove"
the other. Rounds are composed in :mod:`mpmtl_prob.privacy.accounting.composition`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, gammainc, gammaincc, log_ndtr

ADJACENCIES = ("replace", "zero_out")


def delta_add(epsilon: float, shape: float, theta: float) -> float:
    """delta(eps) of one release when the task's absence is likelier than its presence: F_k(x/theta) - e^eps F_k((x-1)/theta).

    Args:
        epsilon: any real number.
        shape: k >= 1.
        theta: 2 s / K^2 > 0.
    """
    if epsilon <= -1 / theta:  # the loss is never smaller
        return -np.expm1(epsilon)
    if shape == 1:
        return -np.expm1(-1 / theta)  # P(X <= 1): the loss is infinite there and -1/theta elsewhere
    x = 1 / -np.expm1(-(epsilon + 1 / theta) / (shape - 1))
    return _hockey_stick(gammainc(shape, x / theta), epsilon, gammainc(shape, (x - 1) / theta))


def delta_remove(epsilon: float, shape: float, theta: float) -> float:
    """delta(eps) of one release when the task's presence is likelier; 0 from eps = 1/theta on. Arguments as delta_add."""
    if epsilon >= 1 / theta:
        return 0.0
    if shape == 1:
        return -np.expm1(epsilon - 1 / theta)
    x = 1 / -np.expm1((epsilon - 1 / theta) / (shape - 1))
    # upper tails, not one minus lower ones: delta may be far smaller than the rounding error of 1
    return _hockey_stick(gammaincc(shape, (x - 1) / theta), epsilon, gammaincc(shape, x / theta))


def delta_gaussian(epsilon: float, mu: float) -> float:
    """delta(eps) of N(0, 1) against N(mu, 1): Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).

    Source: Balle and Wang (2018), Theorem 8; Dong, Roth and Su (2022), Corollary 2.13.
    """
    log_p, log_q = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(-np.exp(log_p) * np.expm1(min(log_q - log_p, 0.0)))


def delta_pure(epsilon: float, each: float, rounds: int = 1) -> float:
    """The largest delta(eps) of rounds that are (each, 0)-private: the optimal composition of equal rounds.

    Source: Kairouz, Oh and Viswanath (2015), Theorem 3.3; every round is at worst a randomised response.
    """
    from scipy.stats import binom  # which takes a second to import

    if epsilon >= rounds * each * (1 - 1e-14):  # budgets that add up to eps may miss it by a rounding error
        return 0.0
    likely = np.arange(rounds + 1)
    loss = (2 * likely - rounds) * each
    mass = binom.pmf(likely, rounds, expit(each))
    return float(np.sum(mass * -np.expm1(np.minimum(epsilon - loss, 0.0))))


def _hockey_stick(p: float, epsilon: float, q: float) -> float:
    return float(min(max(p - np.exp(min(epsilon, 700.0)) * q, 0.0), 1.0)) if q > 0 else float(p)
