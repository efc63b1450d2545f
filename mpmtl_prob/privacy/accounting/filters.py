r"""What charges give away whose laws were chosen by looking at what earlier ones let out: a privacy filter.

The composition of :mod:`mpmtl_prob.privacy.accounting.composition` holds for laws fixed in advance. If laws may follow from
earlier outputs, the total is bounded by a rule that says stop, the filter, and by no number read off afterwards.

**Theorem.** Fix an adjacency, an order alpha > 1, delta_0 >= 0 and B before the first charge. For every direction of the
adjacency let charge t, given all before, be dominated by a pair (P_t, Q_t) whose loss exceeds some cut, that may be chosen
by looking too, with probability delta_t under P_t, and let R_t be the logarithm of E_P[exp((alpha - 1) loss); loss <= cut].
If always sum delta_t <= delta_0 and sum R_t <= B, then all charges together are, at every eps,

    (eps, delta_0 + c exp(B - (alpha - 1) eps))-private,   c = (1 - 1/alpha)^(alpha - 1) / alpha.

*Proof.* Domination for all hockey sticks is a Markov kernel from (P_t, Q_t) to the laws of the charge (Blackwell). The part
of P_t above the cut becomes a part of mass delta_t, of which nothing is used; the rest a p_t with
E_Q[(p_t / q_t)^alpha] <= exp(R_t), by convexity. Mark a charge if it comes from the first part. Some charge is marked with
probability E[sum of delta_t up to the first mark] <= delta_0. Given the past, exp(-R_1 - ... - R_t) prod (p_s / q_s)^alpha
is a supermartingale under Q, as R_t is known before charge t is drawn; so the unmarked part p of all charges has
E_Q[(p / q)^alpha] <= exp(B), and (x - e^eps)_+ <= c exp(-(alpha - 1) eps) x^alpha for x = p / q.

**How tight.** Whoever looks reaches about a fifth of delta in the tests. The order is the one that lets the most Gaussian
noise through, and c is the best constant: what is lost is the Markov inequality of the last step. A filter that adds the
mu^2 of Gaussian privacy loses nothing for Gaussian noise: of charges with mu = .063 it lets 38 through at (1, .001), as
many as composition, and this one 28. But there any other charge counts as the Gaussian noise that dominates it. A pure
one of eps = .1 has mu = .125: nine are let through, by this filter 13, by composition 16; and Wishart noise, whose loss
may be infinite, is dominated by none without a share of delta, which few degrees of freedom use up. A ledger cannot have
both and take whichever is larger, as each theorem is about a rule that is fixed before the first charge; so it has this
one, which suits all laws. (``tests/privacy/test_filters.py`` has these numbers.)

Sources: Feldman and Zrnic (2021), "Individual privacy accounting via a Renyi filter"; Whitehouse, Ramdas, Rogers and Wu
(2023), "Fully-adaptive composition in differential privacy", whose filter for approximate zCDP puts aside a part of mass
delta_t in the same way; Canonne, Kamath and Steinke (2020) for c; Smith and Thakurta (2022), "Fully adaptive composition
for Gaussian differential privacy", and Koskela, Tobaben and Honkela (2022), "Individual privacy accounting with Gaussian
differential privacy", for the other filter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import xlog1py

from mpmtl_prob.privacy.accounting.composition import ROUND_OFF
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.mechanisms.pld import directions, masses

#: The share of a total's delta for losses above the cuts.
_ABOVE = 0.2
_ORDERS = 1 + np.geomspace(1e-2, 1e6, 4001)


def adaptive_epsilon(mechanisms: Sequence[Mechanism], epsilon: float, delta: float, adjacency: str) -> float:
    """The eps that the filter of a declared total has counted up to now, at the declared delta.

    It is a reading of the filter, whose order is fixed by the declared total: everything together is
    (epsilon, delta)-private as long as the reading never exceeds ``epsilon``. It starts well above 0, at
    log(c / delta) / (order - 1); what a smaller total would have counted is another number.

    Args:
        mechanisms: what was charged, in any order.
        epsilon: the declared total, > 0.
        delta: in (0, 1).
        adjacency: "replace" or "zero_out".

    Returns:
        The larger of the two directions; inf where losses above the cuts need more than a fifth of delta.
    """
    if not mechanisms:
        return 0.0
    above, moments = np.zeros(2), np.zeros(2)
    for mechanism, times in Counter(mechanisms).items():
        price = _price(mechanism, epsilon, delta, adjacency)
        above += times * price[0]
        moments += times * price[1]
    if np.max(above) > _ABOVE * delta:
        return float(np.inf)
    order, budget = _fixed(epsilon, delta)
    return float(epsilon + (np.max(moments) - budget) / (order - 1))


@lru_cache(maxsize=64)
def _fixed(epsilon: float, delta: float) -> tuple[float, float]:
    """alpha and B of a declared total: of all orders the one that lets the most Gaussian noise through.

    There R = alpha (alpha - 1) rho, so that rho may add up to B / (alpha (alpha - 1)).
    """
    log_c = xlog1py(_ORDERS - 1, -1 / _ORDERS) - np.log(_ORDERS)
    budgets = np.log((1 - _ABOVE) * delta) - log_c + (_ORDERS - 1) * epsilon
    best = int(np.argmax(budgets / (_ORDERS * (_ORDERS - 1))))
    return float(_ORDERS[best]), float(budgets[best])


@lru_cache(maxsize=256)
def _price(mechanism: Mechanism, epsilon: float, delta: float, adjacency: str) -> np.ndarray:
    """delta_t and R_t of one charge in the two directions, (2, 2), where the cut uses up the least of both budgets.

    From its pessimistic loss distribution, which dominates the charge; what that may be wrong by goes to delta_t.
    """
    order, budget = _fixed(epsilon, delta)
    prices = []
    for pmf in directions(mechanism.loss_distribution(adjacency)):
        losses, found = masses(pmf)
        loss, mass = losses[:-1], np.maximum(found[:-1], 1e-300)  # a Fourier transform may leave cells below 0
        above = found[-1] + ROUND_OFF + np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)
        moments = np.maximum(np.logaddexp.accumulate(np.log(mass) + (order - 1) * loss), 0.0) + ROUND_OFF
        best = int(np.argmin(above / (_ABOVE * delta) + moments / budget))
        prices.append((above[best], moments[best]))
    return np.array(prices).T
