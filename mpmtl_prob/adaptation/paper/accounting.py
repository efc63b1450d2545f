"""Privacy accounting of a noisy descent: the paper's formula, its range of validity, and the exact cost.

T adaptive steps with Gaussian noise are together exactly mu-Gaussian differentially private. So the whole descent has the
cost of one Gaussian mechanism on T d numbers. The Laplace noise on the discrepancy is composed with it by privacy loss
distributions.

Source: Bassily, Cortes, Mao and Mohri (2023), Theorems 4.2 and 5.2; Dong, Roth and Su (2022), Corollary 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpmtl_prob._util.checks import fraction, positive, whole
from mpmtl_prob.privacy.accounting.calibration import crossing
from mpmtl_prob.privacy.accounting.composition import compute_delta as composed_delta
from mpmtl_prob.privacy.accounting.composition import compute_epsilon as composed_epsilon
from mpmtl_prob.privacy.mechanisms import Mechanism, VectorGaussian, VectorLaplace


def default_delta(num_records: int) -> float:
    """Return 1 / n^1.1, which is less than 1 / n. The paper's delta = .01 would allow to publish one record in a hundred."""
    return float(max(num_records, 2) ** -1.1)


def printed_noise(epsilon: float, delta: float, steps: int) -> float:
    """Return sigma_j / s_j = 2 sqrt(T log(3 / delta)) / eps (Algorithms 1 and 2, lines 2 and 3; eps of the optimiser)."""
    return float(
        2 * np.sqrt(whole("steps", steps) * np.log(3 / fraction("delta", delta))) / positive("epsilon", epsilon)
    )


def printed_mu(epsilon: float, delta: float) -> float:
    """Return mu = eps / sqrt(2 log(3 / delta)), the exact cost of T steps with that noise on two gradients, for any T."""
    return float(positive("epsilon", epsilon) / np.sqrt(2 * np.log(3 / fraction("delta", delta))))


def printed_epsilon(epsilon: float, delta: float) -> float:
    """Compute the true eps at delta of the printed optimiser for eps: it is less up to about 9, and more above.

    >>> from mpmtl_prob.adaptation.paper import accounting
    >>> [round(accounting.printed_epsilon(e, 0.01), 2) for e in (1, 5, 10, 15)]
    [0.45, 3.95, 10.54, 19.39]
    """
    return composed_epsilon(delta, VectorGaussian(1, 1.0, printed_mu(epsilon, delta)))


def printed_total(epsilon: float, delta: float) -> float:
    """Compute the true eps of discrepancy and optimiser together, with eps / 2 claimed for each.

    >>> from mpmtl_prob.adaptation.paper import accounting
    >>> round(accounting.printed_total(10.0, 0.01), 2)
    8.65
    """
    half = positive("epsilon", epsilon) / 2
    return composed_epsilon(delta, [VectorLaplace(1, half, 1.0), VectorGaussian(1, 1.0, printed_mu(half, delta))])


def valid_up_to(delta: float) -> float:
    """Compute the largest eps of the optimiser for which the printed noise is enough.

    >>> from mpmtl_prob.adaptation.paper import accounting
    >>> [round(accounting.valid_up_to(d), 2) for d in (1e-2, 1e-3, 1e-5)]
    [8.92, 9.44, 10.25]
    """
    from scipy.optimize import brentq  # slow to import

    delta = fraction("delta", delta)

    def excess(e: float) -> float:
        return float(np.log(composed_delta(e, VectorGaussian(1, 1.0, printed_mu(e, delta)))) - np.log(delta))

    return float(brentq(excess, 4.0, 40.0, xtol=1e-8))


def calibrated_mu(epsilon: float, delta: float, besides: Sequence[Mechanism] = ()) -> float:
    """Compute the largest mu of a Gaussian mechanism that meets (eps, delta) in composition with other mechanisms.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        besides: the other mechanisms, such as the Laplace noise on the discrepancy.

    Raises:
        ValueError: an argument outside its range, or the other mechanisms use up the budget.
    """
    epsilon, delta = positive("epsilon", epsilon), fraction("delta", delta)
    if besides and composed_delta(epsilon, tuple(besides)) >= delta:
        raise ValueError("epsilon: expected something left after the discrepancy, got a price that spends all")

    def excess(log_noise: float) -> float:
        laws = (VectorGaussian(1, 1.0, float(np.exp(-log_noise))), *besides)
        return float(np.log(max(composed_delta(epsilon, laws), 1e-300)) - np.log(delta))

    return float(np.exp(-crossing(excess, 0.0, 1e-9)))
