r"""Privacy filter: fully adaptive composition, where each mechanism may depend on the outputs of earlier ones.

The composition of :mod:`mpmtl_prob.privacy.accounting.composition` holds for laws that are fixed in advance. If laws may
depend on earlier outputs, the composition of the laws that were used is no bound. A rule for stopping, the filter, bounds the
total. (A running total that stays valid under such choices would be a privacy odometer; this module has none.)

**Theorem.** Fix an adjacency, an order alpha > 1, delta_0 >= 0 and B before the first charge. For every direction of the
adjacency let charge t, given all earlier ones, be dominated by a pair (P_t, Q_t). Let its loss exceed a cut with probability
delta_t under P_t; the cut may depend on earlier outputs. Let R_t be the logarithm of E_P[exp((alpha - 1) loss); loss <= cut].
If always sum delta_t <= delta_0 and sum R_t <= B, then all charges together are, at every eps,

    (eps, delta_0 + c exp(B - (alpha - 1) eps))-private,   c = (1 - 1/alpha)^(alpha - 1) / alpha.

*Proof.* If (P_t, Q_t) dominates at all hockey sticks, there is a Markov kernel from (P_t, Q_t) to the laws of the charge
(Blackwell). The part of P_t above the cut becomes a part of mass delta_t, of which nothing is assumed. The remaining part
becomes a p_t with E_Q[(p_t / q_t)^alpha] <= exp(R_t), by convexity. Mark a charge if it comes from the first part. Some
charge is marked with probability E[sum of delta_t up to the first mark] <= delta_0. Given the past,
exp(-R_1 - ... - R_t) prod (p_s / q_s)^alpha is a supermartingale under Q, as R_t is known before charge t is drawn. So the
unmarked part p of all charges has E_Q[(p / q)^alpha] <= exp(B), and (x - e^eps)_+ <= c exp(-(alpha - 1) eps) x^alpha for
x = p / q.

**How tight.** In the tests, an adaptive analyst reaches about a fifth of delta. The order is the one that allows the most
Gaussian noise, and c is the best constant. The only loss is the Markov inequality of the last step. A filter that adds the
mu^2 of Gaussian privacy loses nothing for Gaussian noise: at (1, .001) it allows 38 charges with mu = .063, as many as
composition, while this filter allows 28. But such a filter counts any other charge as the Gaussian noise that dominates it.
For pure charges of eps = .1, which have mu = .125, it allows 9, this filter 13, and composition 16. Wishart noise, whose loss
may be infinite, is dominated by Gaussian noise only with a share of delta, which noise with few degrees of freedom soon uses
up. A ledger cannot use both filters and take the better result, as each theorem is about a rule that is fixed before the
first charge. So it uses this one, which suits all laws. (``tests/privacy/test_filters.py`` has these numbers.)

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
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution

#: Share of the declared delta for losses above the cuts.
_ABOVE = 0.2
_ORDERS = 1 + np.geomspace(1e-2, 1e6, 4001)


def adaptive_epsilon(mechanisms: Sequence[Mechanism], epsilon: float, delta: float, adjacency: str) -> float:
    """Return the eps that the privacy filter of a declared total has counted so far, at the declared delta.

    Everything together is (epsilon, delta)-private as long as this number never exceeds ``epsilon``. The declared total fixes
    the order of the filter, so a smaller total would count differently. The number starts well above 0, at
    log(c / delta) / (order - 1).

    Args:
        mechanisms: all charged mechanisms, in any order.
        epsilon: the declared total, > 0.
        delta: in (0, 1).
        adjacency: "replace" or "zero_out".

    Returns:
        The larger eps of the two directions; inf where losses above the cuts need more than a fifth of delta.
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
    """Return alpha and B of a declared total, for the order that allows the most Gaussian noise.

    Gaussian noise has R = alpha (alpha - 1) rho, so its rho may add up to B / (alpha (alpha - 1)).
    """
    log_c = xlog1py(_ORDERS - 1, -1 / _ORDERS) - np.log(_ORDERS)
    budgets = np.log((1 - _ABOVE) * delta) - log_c + (_ORDERS - 1) * epsilon
    best = int(np.argmax(budgets / (_ORDERS * (_ORDERS - 1))))
    return float(_ORDERS[best]), float(budgets[best])


@lru_cache(maxsize=256)
def _price(mechanism: Mechanism, epsilon: float, delta: float, adjacency: str) -> np.ndarray:
    """Return delta_t and R_t of one charge in the two directions, (2, 2), at the cut that uses the least of both budgets.

    They come from its pessimistic loss distribution, which dominates the charge. The numerical error of that distribution is
    added to delta_t.
    """
    order, budget = _fixed(epsilon, delta)
    prices = []
    distribution = LossDistribution.of(mechanism.loss_distribution(adjacency))
    for direction in (distribution.remove, distribution.add):
        losses, probabilities = direction.masses(distribution.interval)
        loss = losses[:-1]
        mass = np.maximum(probabilities[:-1], 1e-300)  # a Fourier transform may leave cells below 0
        above = probabilities[-1] + ROUND_OFF + np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)
        moments = np.maximum(np.logaddexp.accumulate(np.log(mass) + (order - 1) * loss), 0.0) + ROUND_OFF
        best = int(np.argmin(above / (_ABOVE * delta) + moments / budget))
        prices.append((above[best], moments[best]))
    return np.array(prices).T
