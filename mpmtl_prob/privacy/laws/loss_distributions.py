"""Privacy-loss distributions of single rounds, on a grid, for dp-accounting to compose.

With a cell [a, b] of the loss that holds mass p under the one law and q under the other, the mass is shared between the
two ends so that both laws keep theirs,

    p_a + p_b = p,    e^{-a} p_a + e^{-b} p_b = q,

which replaces the curve delta(eps) by its chords: never below it (Doroshenko et al. 2022, "Connect the dots"), with an
error of second order in the grid. The optimistic distribution rounds every loss down instead; the truth lies between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betainc, betaln, gammainc, gammaincc, gammainccinv, gammaincinv, xlogy

from mpmtl_prob.privacy.laws.pld import directions, on_grid

_NODES = 200  # of the quadrature over angles, where 100 already agree to twelve digits
_LARGEST_LOSS = 400.0  # losses above count as infinite: e^{-400} is nothing


def gamma_loss(shape: float, theta: float, interval: float, pessimistic: bool = True) -> Any:
    """The privacy-loss distribution of Gamma(k, theta) noise on a number in [0, 1], in both directions.

    Args:
        shape: k > 1.
        theta: scale of the noise, in units of K^2.
        interval: grid spacing of the loss.
        pessimistic: rounded so that delta(eps) is never too small; else so that it is never too large.

    Returns:
        A ``dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution``.
    """
    certain = gammainc(shape, 1 / theta)  # P(X <= 1): the task was certainly absent
    index = np.arange(int(np.floor(-1 / theta / interval)), int(np.ceil(_top(shape, theta, certain) / interval)) + 1)
    loss = index * interval  # of "add": l(x) = -(k-1) log(1 - 1/x) - 1/theta, which falls with x
    u = np.maximum(loss + 1 / theta, 0) / (shape - 1)
    with np.errstate(divide="ignore"):
        x = 1 / -np.expm1(-u)
    absent, present = _cells(shape, x / theta), _cells(shape, (x - 1) / theta)
    beyond = max(gammainc(shape, x[-1] / theta) - certain, 0.0)  # losses above the grid
    below = gammainc(shape, (x[-1] - 1) / theta)  # the same event with the task there
    if pessimistic:
        P, Q = _shared(absent, present, loss, interval)
        Q[-1] += below
        return _distribution(index, Q, P, certain + beyond, interval, True)
    P, Q = np.append(absent, beyond), np.insert(present, 0, 0.0)  # every loss rounded down; loss = -l for "remove"
    return _distribution(index, Q, P, certain, interval, False)


def replaced(zeroed: Any) -> Any:
    """The privacy-loss distribution of a replacement: the loss of a removal and that of an addition, with their own noises.

    The pair (K^2 + G, G') against (G, K^2 + G') dominates a replacement of a column of W under Wishart noise (proof in
    docs/privacy.md). Its two directions are the same.

    Args:
        zeroed: the distribution when a task is zeroed, in both directions.
    """
    from dp_accounting.pld import privacy_loss_distribution

    remove, add = directions(zeroed)
    return privacy_loss_distribution.PrivacyLossDistribution(remove.compose(add))


def two_point_loss(loss: float, infinity_mass: float, interval: float, pessimistic: bool = True) -> Any:
    """The privacy-loss distribution of the papers' noise: "add" is infinite or -loss, "remove" always loss."""
    rounded = np.ceil if pessimistic else np.floor
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        {int(rounded(loss / interval)): 1.0},
        0.0,
        interval,
        pessimistic,
        {int(rounded(-loss / interval)): 1 - infinity_mass},
        infinity_mass,
        symmetric=False,
    )


def pure_loss(epsilon: float, interval: float, pessimistic: bool = True) -> Any:
    """The largest privacy loss that (eps, 0) allows: eps or -eps."""
    from dp_accounting.pld import privacy_loss_distribution

    rounded, likely = (np.ceil if pessimistic else np.floor), 1 / (1 + np.exp(-epsilon))
    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        {int(rounded(-epsilon / interval)): 1 - likely, int(rounded(epsilon / interval)): likely},
        0.0,
        interval,
        pessimistic,
    )


def vector_loss(num_features: int, epsilon: float, interval: float, pessimistic: bool = True) -> Any:
    """The privacy-loss distribution of a vector with density exp(-eps ||b||) against the same moved by length 1.

    A shorter move gives away less: on every line along it the density is log-concave. Arguments as :func:`gamma_loss`.
    """
    from dp_accounting.pld import privacy_loss_distribution

    if num_features == 1:
        return privacy_loss_distribution.from_laplace_mechanism(
            1 / epsilon,
            pessimistic_estimate=pessimistic,
            value_discretization_interval=interval,
            use_connect_dots=pessimistic,
        )
    top = int(np.ceil(epsilon / interval))
    index = np.arange(-top, top + 1)
    loss = index * interval
    p = np.maximum(np.diff(_vector_loss_cdf(num_features, epsilon, np.clip(loss / epsilon, -1.0, 1.0))), 0.0)
    p /= p.sum()
    # seen from the other vector the loss has the same law: its mass on a cell is the first one's on the cell's mirror image
    P = _shared(p, p[::-1], loss, interval)[0] if pessimistic else np.append(p, 0.0)
    return privacy_loss_distribution.PrivacyLossDistribution(on_grid(-top, P, 0.0, interval, pessimistic))


def _vector_loss_cdf(d: int, epsilon: float, x: np.ndarray) -> np.ndarray:
    """P(loss <= x eps): of length rho ~ Gamma(d, 1/eps) and angle theta with the move, loss / eps = |b - h| - |b|.

    That is at most x where u = cos theta >= (1 - x^2) / (2 rho) - x. For u above what the shortest lengths need, that is
    certain; below what the longest need, impossible; between, an integral over theta. d >= 2.
    """
    edge = 1e-18  # what the integral may leave out, on either side
    short, long = gammaincinv(d, edge) / epsilon, gammainccinv(d, edge) / epsilon
    needed = lambda rho: np.clip((1 - x**2) / (2 * rho) - x, -1.0, 1.0)
    start, end = np.arccos(needed(short)), np.arccos(needed(long))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    v = (nodes + 1) / 2  # theta = end - (end - start) v^4: dense at the end, where little noise makes a sharp rise
    theta = end[:, None] - (end - start)[:, None] * v**4
    rho = (1 - x[:, None] ** 2) / (2 * np.maximum(np.cos(theta) + x[:, None], 1e-300))
    density = np.exp(xlogy(d - 2, np.sin(theta)) - betaln((d - 1) / 2, 0.5))
    between = 2 * (end - start) * np.sum(weights * v**3 * density * gammaincc(d, epsilon * rho), axis=1)
    return betainc((d - 1) / 2, (d - 1) / 2, (1 - np.cos(start)) / 2) + between


def vector_spread(num_features: int, epsilon: float) -> float:
    """A width of :func:`vector_loss`: ten standard deviations and the mean for many features, and never more than 2 eps."""
    return float(min(2 * epsilon, 10 * epsilon / np.sqrt(num_features) + epsilon**2 / num_features))


def gaussian_loss(mu: float, interval: float, pessimistic: bool = True) -> Any:
    """The privacy-loss distribution of N(0, 1) against N(mu, 1), as :func:`gamma_loss`."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=interval,
        use_connect_dots=pessimistic,
    )


def gamma_spread(shape: float, theta: float) -> float:
    """A width of the loss of round about ten standard deviations, that heavy tails do not blow up."""
    x = 1 + theta * gammaincinv(shape, [0.05, 0.95])  # where the task is there: "remove"
    upper, lower = -(shape - 1) * np.log1p(-1 / x)
    return float(3 * (upper - lower))


def _top(shape: float, theta: float, certain: float) -> float:
    """The loss above which "add" has next to no mass but the infinite."""
    x = theta * gammaincinv(shape, certain + max(1e-18, 1e-5 * certain))
    top = -(shape - 1) * np.log1p(-1 / x) - 1 / theta if x > 1 else np.inf
    return float(min(top, _LARGEST_LOSS))


def _cells(shape: float, x: np.ndarray) -> np.ndarray:
    """P(x_{j+1} < G <= x_j) of G ~ Gamma(k, 1), for falling x, from whichever tail is the smaller."""
    middle = np.count_nonzero(x >= gammaincinv(shape, 0.5))  # so many cells start above the median
    upper, lower = gammaincc(shape, x[: middle + 1]), gammainc(shape, x[middle:])
    return np.maximum(np.append(np.diff(upper), -np.diff(lower)), 0.0)


def _shared(p: np.ndarray, q: np.ndarray, loss: np.ndarray, interval: float) -> tuple[np.ndarray, np.ndarray]:
    """Every cell's masses shared between its two ends, so that both laws keep theirs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p) - np.log(q)
    ratio = np.clip(np.where(np.isnan(ratio), loss[1:], ratio), loss[:-1], loss[1:])
    p_b = p * np.expm1(loss[:-1] - ratio) / np.expm1(-interval)
    q_a = q * np.expm1(ratio - loss[1:]) / np.expm1(-interval)
    P, Q = np.zeros_like(loss), np.zeros_like(loss)
    P[:-1] += p - p_b
    P[1:] += p_b
    Q[:-1] += q_a
    Q[1:] += q - q_a
    return np.maximum(P, 0.0), np.maximum(Q, 0.0)


def _distribution(
    index: np.ndarray, Q: np.ndarray, P: np.ndarray, infinity_mass: float, interval: float, pessimistic: bool
) -> Any:
    """The loss is index * interval with P where the task is absent, and minus that with Q where it is there."""
    from dp_accounting.pld import privacy_loss_distribution

    infinity_mass = min(float(infinity_mass), 1 - 1e-15)  # dp-accounting takes the logarithm of the rest
    return privacy_loss_distribution.PrivacyLossDistribution(
        on_grid(-index[-1], Q[::-1], 0.0, interval, pessimistic),
        on_grid(index[0], P, infinity_mass, interval, pessimistic),
    )
