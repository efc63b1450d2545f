"""Privacy-loss distributions of single rounds, on a grid, for dp-accounting to compose.

With a cell [a, b] of the loss that holds mass p under the one law and q under the other, the mass is shared between the
two ends so that both laws keep theirs,

    p_a + p_b = p,    e^{-a} p_a + e^{-b} p_b = q,

which replaces the curve delta(eps) by its chords: never below it (Doroshenko et al. 2022, "Connect the dots"), with an
error of second order in the grid. The optimistic distribution rounds every loss down instead; the truth lies between.

p and q are differences of probabilities, so that log(p / q) is not known better than to what these are wrong by. Where that
is not small beside the cell, as for noise that hides nearly everything, the masses are shared as if it were at the far end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betainc, betaln, gammainc, gammaincc, gammainccinv, gammaincinv, ndtr, xlogy

from mpmtl_prob.privacy.mechanisms.pld import cells, directions, on_grid

_NODES = 200  # of the quadrature over angles, where 100 already agree to twelve digits
_LARGEST_LOSS = 400.0  # losses above count as infinite: e^{-400} is nothing
_MOST_CELLS = 2**18  # of one round's loss; what lies above counts as infinite
_DIRECT = 10**8  # products of masses: a convolution of that many takes a tenth of a second
_TAIL = (
    1e-12  # what a tail probability may be wrong by, relatively: four times what SciPy's incomplete gamma functions are
)
_FAR = 12.0  # standard deviations, beyond which a normal number lies with a probability of 2e-33


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
    index = _grid(-1 / theta, _top(shape, theta, certain), interval)
    loss = index * interval  # of "add": l(x) = -(k-1) log(1 - 1/x) - 1/theta, which falls with x
    u = np.maximum(loss + 1 / theta, 0) / (shape - 1)
    with np.errstate(divide="ignore"):
        x = 1 / -np.expm1(-u)
    (absent, absent_error), (present, present_error) = _cells(shape, x / theta), _cells(shape, (x - 1) / theta)
    beyond = max(gammainc(shape, x[-1] / theta) - certain, 0.0)  # losses above the grid
    below = gammainc(shape, (x[-1] - 1) / theta)  # the same event with the task there
    if pessimistic:
        P, Q = _shared(absent, present, loss, interval, absent_error + present_error)
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
    (first, there, lost), (start, absent, never) = cells(remove), cells(add)
    together, hidden = _convolved(there, absent)
    infinite = lost + never - lost * never + hidden * add._pessimistic_estimate
    return privacy_loss_distribution.PrivacyLossDistribution(
        on_grid(first + start, together, min(infinite, 1.0), add._discretization, add._pessimistic_estimate)
    )


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
    """The privacy-loss distribution of N(0, 1) against N(mu, 1), the same in both directions, as :func:`gamma_loss`."""
    from dp_accounting.pld import privacy_loss_distribution

    index = _grid(-mu * (_FAR - mu / 2), mu * (_FAR + mu / 2), interval)
    loss = index * interval  # mu x - mu^2 / 2 at x
    x = loss / mu + mu / 2
    (p, p_error), (q, q_error) = _normal_cells(x - mu), _normal_cells(x)
    above, below = ndtr(mu - x[-1]), ndtr(x[0] - mu)
    if pessimistic:
        P = _shared(p, q, loss, interval, p_error + q_error)[0]
        P[0] += below
    else:
        P, above = np.append(p, above), 0.0
    return privacy_loss_distribution.PrivacyLossDistribution(on_grid(index[0], P, above, interval, pessimistic))


def add_slack(symmetric: Any, slack: float) -> Any:
    """A distribution that is the same in both directions, and beside it a chance ``slack`` that all is given away."""
    from dp_accounting.pld import privacy_loss_distribution

    pmf = directions(symmetric)[0]
    first, mass, infinite = cells(pmf)
    lost = min(infinite + slack, 1.0)
    return privacy_loss_distribution.PrivacyLossDistribution(
        on_grid(first, mass, lost, pmf._discretization, pmf._pessimistic_estimate)
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


def _grid(low: float, high: float, interval: float) -> np.ndarray:
    """Whole numbers of intervals from below ``low`` to above ``high``, or as many as there may be.

    Raises OverflowError for numbers so large that doubles do not tell them apart.
    """
    if not max(abs(low), abs(high)) < 2**52 * interval:
        raise OverflowError(f"a loss between {low:g} and {high:g} on a grid of {interval:g}")
    first = int(np.floor(low / interval))
    return np.arange(first, min(int(np.ceil(high / interval)), first + _MOST_CELLS) + 1)


def _cells(shape: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x_{j+1} < G <= x_j) of G ~ Gamma(k, 1), for falling x, from whichever tail is the smaller; what it is wrong by."""
    middle = np.count_nonzero(x >= gammaincinv(shape, 0.5))  # so many cells start above the median
    upper, lower = gammaincc(shape, x[: middle + 1]), gammainc(shape, x[middle:])
    return _differences(np.diff(upper), -np.diff(lower), upper[1:], lower[:-1])


def _normal_cells(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(x_j < Z <= x_{j+1}) of a standard normal Z, for rising x, and what it is wrong by, as :func:`_cells`."""
    middle = int(np.clip(np.searchsorted(x, 0.0), 0, len(x) - 1))
    lower, upper = ndtr(x[: middle + 1]), ndtr(-x[middle:])
    return _differences(np.diff(lower), -np.diff(upper), lower[1:], upper[:-1])


def _differences(first: np.ndarray, second: np.ndarray, *tails: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masses of cells from differences of tails, and by how much they may be wrong, relatively."""
    mass = np.maximum(np.append(first, second), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return mass, np.nan_to_num(_TAIL * np.concatenate(tails) / mass, nan=0.0, posinf=1e300)


def _convolved(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, float]:
    """The masses of a sum, and how much mass rounding errors may hide of it.

    Products are added up one by one, which leaves every mass right to its last digits, however small it is; by transforms
    where that takes too long.
    """
    if len(p) * len(q) <= _DIRECT:
        return np.convolve(p, q), 0.0
    size = len(p) + len(q) - 1
    norms = float(np.linalg.norm(p) * np.linalg.norm(q))
    together = np.fft.irfft(
        np.fft.rfft(p, padded := 2 ** int(np.ceil(np.log2(size)))) * np.fft.rfft(q, padded), padded
    )[:size]
    # see accounting/convolution.py; of three transforms, and by the inequality of Cauchy and Schwarz
    hidden = 25 * 2.0**-53 * np.log2(padded) * np.sqrt(padded) * norms * np.sqrt(size)
    return np.maximum(together, 0.0), float(hidden)


def _shared(
    p: np.ndarray, q: np.ndarray, loss: np.ndarray, interval: float, error: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Every cell's masses shared between its two ends, so that both laws keep theirs.

    Args:
        p: masses of the cells, (n,).
        q: under the other law.
        loss: the ends of the cells, (n + 1,).
        interval: between them.
        error: what log(p / q) may be wrong by.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p) - np.log(q)
    unknown = np.isnan(ratio)
    high, low = (np.clip(np.where(unknown, end, ratio + sign * error), loss[:-1], loss[1:])
                 for end, sign in ((loss[1:], 1), (loss[:-1], -1)))  # fmt: skip
    p_b = p * np.expm1(loss[:-1] - high) / np.expm1(-interval)
    q_a = q * np.expm1(low - loss[1:]) / np.expm1(-interval)
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
