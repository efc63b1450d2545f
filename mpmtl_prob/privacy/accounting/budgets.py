"""Budgets as in the papers: their claim for T rounds, and its division over the rounds.

The proved privacy of a release is in :mod:`mpmtl_prob.privacy.mechanisms.closed_forms`.

Source: TPAMI 2022, equation (6) and section 4.5; Kairouz, Oh and Viswanath (2015), Theorem 3.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole


def composition_bound(epsilons: ArrayLike, delta: float) -> float:
    """Compute CB({eps_t}, delta), the least of three bounds on the total eps of rounds that are (eps_t, 0)-private each.

    Args:
        epsilons: budgets of the rounds, each at least 0, (T,).
        delta: in [0, 1). With 0 the bound is the plain sum.

    Raises:
        ValueError: an argument outside its range.
    """
    eps = np.asarray(epsilons, dtype=np.float64)
    if not np.all(np.isfinite(eps) & (eps >= 0)):
        raise ValueError("epsilons: expected a finite number of at least 0 for every round, got others")
    delta = in_range("delta", delta, 0, 1, left_closed=True)
    total = float(eps.sum())
    q = float(np.sum(eps**2))
    if delta == 0 or q == 0:
        return total
    base = float(np.sum(eps * np.tanh(eps / 2)))  # B = sum eps (e^eps - 1) / (e^eps + 1)
    return min(
        total,
        base + np.sqrt(2 * q * -np.log(delta)),
        base + np.sqrt(2 * q * np.logaddexp(1.0, np.log(q) / 2 - np.log(delta))),  # log(e + sqrt(q) / delta)
    )


def schedule(epsilon: float, delta: float, rounds: int, *, alpha: float = 0.0, q: float | None = None) -> FloatArray:
    """Divide a total budget over T rounds, with the largest eps_0 for which CB({eps_t}, delta) <= epsilon.

    Args:
        epsilon: the total claimed, > 0.
        delta: in [0, 1).
        rounds: T >= 1.
        alpha: eps_t = eps_0 t^alpha (convex loss; the papers' best is 0 without and 2/5 with acceleration).
        q: eps_t = eps_0 q^{-t} instead (strongly convex loss; the papers' best is (1 - mu/L)^{2/5} without and
            (1 - sqrt(mu/L))^{1/5} with acceleration).

    Returns:
        eps_1..eps_T, (T,).

    Raises:
        ValueError: an argument outside its range.

    >>> mp.privacy.schedule(1.0, 0.0, 4, alpha=1.0).round(2)
    array([0.1, 0.2, 0.3, 0.4])
    """
    epsilon, delta = positive("epsilon", epsilon), in_range("delta", delta, 0, 1, left_closed=True)
    whole("rounds", rounds)
    from scipy.optimize import brentq  # a quarter of a second to import

    if q is not None:
        q = positive("q", q)
    t = np.arange(1, rounds + 1, dtype=np.float64)
    with np.errstate(all="ignore"):
        shape = t**alpha if q is None else q**-t
        shape /= shape.sum()  # as CB is at most the sum, a factor of 1 is always possible
    if not np.all(shape > 0):  # also refuses NaN
        name, value = ("alpha", alpha) if q is None else ("q", q)
        raise ValueError(
            f"{name}: expected a number with which all {rounds} budgets are positive doubles, got {value!r}"
        )

    def excess(factor: float) -> float:
        return composition_bound(factor * epsilon * shape, delta) - epsilon

    upper = 1.0
    while excess(upper) <= 0:
        upper *= 2
    factor = brentq(excess, upper / 2, upper, xtol=1e-300, rtol=1e-14) if upper > 1 else 1.0
    while excess(factor) > 0:  # the total must not be exceeded, also not by a rounding error
        factor = np.nextafter(factor, 0)
    return factor * epsilon * shape


def best_alpha(*, accelerated: bool, pure: bool = False) -> float:
    """Return the alpha of eps_t = eps_0 t^alpha that minimises the papers' utility bounds for a convex loss.

    Args:
        accelerated: with beta_t = (t-1)/(t+2) rather than 0.
        pure: with delta = 0, where only the sum of the budgets counts.

    Source: TPAMI 2022, Theorem 6, part 1; supplement, the corresponding theorem of setting 1.
    """
    return (2 / 3 if pure else 2 / 5) if accelerated else 0.0


def best_q(ratio: float, *, accelerated: bool, pure: bool = False) -> float:
    """Return the Q of eps_t = eps_0 Q^{-t} that minimises the papers' utility bounds for a strongly convex loss.

    Args:
        ratio: mu / L, in (0, 1).
        accelerated: with beta_t = (1 - sqrt(mu/L)) / (1 + sqrt(mu/L)) rather than 0.
        pure: with delta = 0.

    Raises:
        ValueError: a ratio outside (0, 1).

    Source: as :func:`best_alpha`, part 2: Q_0^{2/5} or Q_0'^{1/5}; with delta = 0, 2/3 and 1/3.
    """
    ratio = in_range("ratio", ratio, 0, 1)
    if accelerated:
        return (1 - np.sqrt(ratio)) ** (1 / 3 if pure else 1 / 5)
    return (1 - ratio) ** (2 / 3 if pure else 2 / 5)
