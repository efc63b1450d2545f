"""What a release with Wishart noise really guarantees.

Sigma = A + E, E ~ Wishart_d(d - 1 + 2k, s I). The Wishart law is invariant under rotation, so all that Sigma says about
the presence of one column w is in one number, X = ||w||^2 / (w'(Sigma - A')^{-1} w), A' the second moment of the others:
X ~ Gamma(k, theta) without the task and ||w||^2 + Gamma(k, theta) with it, theta = 2s. The release is exactly as private
as one-sided Gamma noise on a number in [0, K^2]. The support moves with the data, so for k = 1, the papers' noise, no
finite eps holds with delta < 1 - e^{-eps}: an observer who sees that Sigma - A - ww' is not positive definite knows that
the task was absent.

Everything below is in units of K = 1. "Add" is the direction in which the data without the task is the likelier one,
"remove" the other; zero-out adjacency takes the worse of the two, replacement goes through the zeroed task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammainc, gammaincc

from mpmtl_prob._check import in_range, one_of, positive, whole
from mpmtl_prob.privacy.mechanisms import Wishart

ADJACENCIES = ("replace", "zero_out")

#: The grid of k that `calibrate` searches. Beyond its end the noise is nearly Gaussian and little is left to gain.
SHAPES = tuple(np.geomspace(1.5, 96.0, 13))


def delta_add(epsilon: float, shape: float, theta: float) -> float:
    """delta(eps) of one release when the task's absence is likelier than its presence: F_k(x/theta) - e^eps F_k((x-1)/theta).

    Args:
        epsilon: >= 0.
        shape: k >= 1.
        theta: 2 s / K^2 > 0.
    """
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
    return _hockey_stick(gammaincc(shape, (x - 1) / theta), epsilon, gammaincc(shape, x / theta))


def _hockey_stick(p: float, epsilon: float, q: float) -> float:
    return float(min(max(p - np.exp(min(epsilon, 700.0)) * q, 0.0), 1.0)) if q > 0 else float(p)


def delta_zero_out(epsilon: float, mechanisms: Sequence[Wishart]) -> tuple[float, float]:
    """(delta_add, delta_remove) at eps of the mechanisms composed.

    Exact for one round and for any number of rounds of the papers' noise (k = 1), whose loss takes one finite value:
    there the composition is that of one round with 1/theta = sum_t 1/theta_t. Otherwise basic composition, which holds
    but is loose: eps split evenly, deltas added.
    """
    if len(mechanisms) == 1 or all(mechanism.shape == 1 for mechanism in mechanisms):
        theta = 1 / sum(1 / mechanism.theta for mechanism in mechanisms)
        shape = mechanisms[0].shape
        return delta_add(epsilon, shape, theta), delta_remove(epsilon, shape, theta)
    each = epsilon / len(mechanisms)
    add = sum(delta_add(each, mechanism.shape, mechanism.theta) for mechanism in mechanisms)
    remove = sum(delta_remove(each, mechanism.shape, mechanism.theta) for mechanism in mechanisms)
    return min(add, 1.0), min(remove, 1.0)


def delta(epsilon: float, mechanisms: Wishart | Sequence[Wishart], adjacency: str = "replace") -> float:
    """The delta at which the mechanisms, one per round, are (eps, delta)-private for one task.

    Args:
        epsilon: >= 0.
        mechanisms: one, or one per round.
        adjacency: "zero_out" (the task's vector against zero) or "replace" (against any other vector): two hops through
            the zeroed task, delta_rep(eps) <= min_a delta_remove(a) + e^a delta_add(eps - a), a in [0, eps].
    """
    one_of("adjacency", adjacency, ADJACENCIES)
    in_range("epsilon", epsilon, 0, np.inf, left_closed=True)
    rounds = (mechanisms,) if isinstance(mechanisms, Wishart) else tuple(mechanisms)
    if adjacency == "zero_out":
        return max(delta_zero_out(epsilon, rounds))

    def two_hops(a: float) -> float:
        add, remove = delta_zero_out(epsilon - a, rounds)[0], delta_zero_out(a, rounds)[1]
        return remove + np.exp(min(a, 700.0)) * add

    # any a gives a valid bound; the kink, where `remove` vanishes, is often the best one
    kink = min(epsilon, len(rounds) * max(1 / mechanism.theta for mechanism in rounds))
    grid = np.append(np.linspace(0, epsilon, 33), kink)
    best = float(grid[np.argmin([two_hops(a) for a in grid])])
    step = epsilon / 32
    around = (max(0.0, best - step), min(epsilon, best + step))
    refined = minimize_scalar(two_hops, bounds=around, method="bounded").fun if step > 0 else 1.0
    return float(min(1.0, two_hops(best), refined))


def calibrate(
    epsilon: float, delta: float, num_features: int, *, clip: float = 1.0, adjacency: str = "replace"
) -> Wishart:
    """The Wishart noise with the least fluctuation whose one release is (eps, delta)-private, exactly.

    More degrees of freedom give a smoother likelihood and less fluctuation round a larger, known mean.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        num_features: d.
        clip: K, the largest norm of a message.
        adjacency: "replace" or "zero_out".

    Raises:
        ValueError: an argument outside its range.
    """
    positive("epsilon", epsilon)
    target = in_range("delta", delta, 0, 1)
    d = whole("num_features", num_features)
    positive("clip", clip)

    def mechanism(shape: float) -> Wishart:
        def excess(log_theta: float) -> float:
            found = _delta(epsilon, Wishart(d, d - 1 + 2 * shape, np.exp(log_theta) / 2), adjacency)
            return np.log(max(found, 1e-300)) - np.log(target)

        low, high = -8.0, 4.0
        while excess(high) > 0:
            high += 4
        log_theta = brentq(excess, low, high, xtol=1e-12, rtol=1e-13)
        while excess(log_theta) > 0:  # on the private side of the root
            log_theta += 1e-12 * max(1.0, abs(log_theta))
        return Wishart(d, d - 1 + 2 * shape, clip**2 * np.exp(log_theta) / 2, clip)

    return min((mechanism(shape) for shape in SHAPES), key=lambda found: found.fluctuation)


_delta = delta  # `calibrate` has an argument of that name
