"""Privacy-loss distributions (PLDs) of single rounds on a grid, for composition.

A cell [a, b] of the loss has mass p under one law and q under the other. The mass is divided between the two ends of the
cell so that both laws keep theirs,

    p_a + p_b = p,    e^{-a} p_a + e^{-b} p_b = q,

which replaces the curve delta(eps) by its chords. The chords are never below it (Doroshenko et al. 2022, "Connect the
dots"), and their error is of second order in the grid. The optimistic distribution rounds every loss down instead. The truth
lies between the two.

p and q are differences of probabilities, so log(p / q) has an error. Where this error is not small compared with the cell,
as for noise that hides nearly everything, log(p / q) is taken to be at the unfavourable end of its error.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, betaln, gammainc, gammaincc, gammainccinv, gammaincinv, ndtr, xlogy

from mpmtl_prob.privacy.mechanisms.pld import LossDistribution, on_grid

_NODES = 200  # nodes of the quadrature over angles; 100 already agree to twelve digits
_LARGEST_LOSS = 400.0  # larger losses count as infinite, as e^{-400} is negligible
_MOST_CELLS = 2**18  # cells of one round's loss; losses above the grid count as infinite
_DIRECT = 10**8  # products in a direct convolution, which then takes a tenth of a second
_TAIL = 1e-12  # relative error of a tail probability: four times that of SciPy's incomplete gamma functions
_FAR = 12.0  # standard deviations; a normal number lies beyond with a probability of 2e-33


def gamma_loss(shape: float, theta: float, interval: float, pessimistic: bool = True) -> LossDistribution:
    """Compute the privacy-loss distribution of Gamma(k, theta) noise on a number in [0, 1], in both directions.

    Args:
        shape: k > 1.
        theta: scale of the noise, in units of K^2.
        interval: grid spacing of the loss.
        pessimistic: round so that delta(eps) is never too small; otherwise so that it is never too large.
    """
    certain = gammainc(shape, 1 / theta)  # P(X <= 1), where the task was certainly absent
    index = _grid(-1 / theta, _top(shape, theta, certain), interval)
    loss = index * interval  # in the direction "add": l(x) = -(k-1) log(1 - 1/x) - 1/theta, which decreases in x
    u = np.maximum(loss + 1 / theta, 0) / (shape - 1)
    with np.errstate(divide="ignore"):
        x = 1 / -np.expm1(-u)
    (absent, absent_error), (present, present_error) = _cells(shape, x / theta), _cells(shape, (x - 1) / theta)
    beyond = max(gammainc(shape, x[-1] / theta) - certain, 0.0)  # losses above the grid
    below = gammainc(shape, (x[-1] - 1) / theta)  # the same event if the task is there
    if pessimistic:
        P, Q = _shared(absent, present, loss, interval, absent_error + present_error)
        Q[-1] += below
        return _distribution(index, Q, P, certain + beyond, interval, True)
    # Every loss is rounded down. The loss of "remove" is -l.
    P, Q = np.append(absent, beyond), np.insert(present, 0, 0.0)
    return _distribution(index, Q, P, certain, interval, False)


def replaced(zeroed: LossDistribution) -> LossDistribution:
    """Compute the privacy-loss distribution of a replacement: the sum of the losses of a removal and an addition.

    The removal and the addition have independent noise. The pair (K^2 + G, G') against (G, K^2 + G') dominates a replacement
    of a column of W under Wishart noise (proof in docs/proofs.md). Its two directions are the same.

    Args:
        zeroed: the distribution for a zeroed task, in both directions.
    """
    (first, there, lost), (start, absent, never) = zeroed.remove, zeroed.add
    together, hidden = _convolved(there, absent)
    infinite = lost + never - lost * never + hidden * zeroed.pessimistic
    loss = on_grid(first + start, together, min(infinite, 1.0))
    return zeroed._replace(remove=loss, add=loss)


def two_point_loss(loss: float, infinity_mass: float, interval: float, pessimistic: bool = True) -> LossDistribution:
    """Compute the privacy-loss distribution of the papers' noise: infinite or -loss for "add", always loss for "remove"."""
    rounded = np.ceil if pessimistic else np.floor
    remove = on_grid(rounded(loss / interval), np.ones(1), 0.0)
    add = on_grid(rounded(-loss / interval), np.array([1 - infinity_mass]), infinity_mass)
    return LossDistribution(remove, add, interval, pessimistic)


def pure_loss(epsilon: float, interval: float, pessimistic: bool = True) -> LossDistribution:
    """Compute the largest privacy-loss distribution that (eps, 0) allows: eps or -eps."""
    rounded, likely = (np.ceil if pessimistic else np.floor), 1 / (1 + np.exp(-epsilon))
    low, high = (int(rounded(sign * epsilon / interval)) for sign in (-1, 1))
    mass = np.zeros(high - low + 1)
    mass[0] += 1 - likely
    mass[-1] += likely
    loss = on_grid(low, mass, 0.0)
    return LossDistribution(loss, loss, interval, pessimistic)


def vector_loss(num_features: int, epsilon: float, interval: float, pessimistic: bool = True) -> LossDistribution:
    """Compute the privacy-loss distribution of noise with density exp(-eps ||b||) on a vector that moves by length 1.

    A shorter move has a smaller loss, as the density is log-concave along every line. Arguments as :func:`gamma_loss`.
    """
    if num_features == 1:
        from dp_accounting.pld import privacy_loss_distribution

        return LossDistribution.of(
            privacy_loss_distribution.from_laplace_mechanism(
                1 / epsilon,
                pessimistic_estimate=pessimistic,
                value_discretization_interval=interval,
                use_connect_dots=pessimistic,
            )
        )
    top = int(np.ceil(epsilon / interval))
    index = np.arange(-top, top + 1)
    loss = index * interval
    p = np.maximum(np.diff(_vector_loss_cdf(num_features, epsilon, np.clip(loss / epsilon, -1.0, 1.0))), 0.0)
    p /= p.sum()
    # By symmetry, the other law's mass on a cell is this law's mass on the mirror image of the cell.
    P = _shared(p, p[::-1], loss, interval)[0] if pessimistic else np.append(p, 0.0)
    loss_on_grid = on_grid(-top, P, 0.0)
    return LossDistribution(loss_on_grid, loss_on_grid, interval, pessimistic)


def _vector_loss_cdf(d: int, epsilon: float, x: np.ndarray) -> np.ndarray:
    """Compute P(loss <= x eps) for d >= 2, where loss / eps = |b - h| - |b|.

    The noise b has length rho ~ Gamma(d, 1/eps) and an angle theta with the move h. The loss is at most x eps where
    u = cos theta >= (1 - x^2) / (2 rho) - x. For large u this holds at all lengths that are not negligible, for small u at
    none of them. Between the two, the probability is an integral over theta.
    """
    edge = 1e-18  # probability of the lengths that the integral leaves out, on either side
    short, long = gammaincinv(d, edge) / epsilon, gammainccinv(d, edge) / epsilon
    least_cosine = lambda rho: np.clip((1 - x**2) / (2 * rho) - x, -1.0, 1.0)
    start, end = np.arccos(least_cosine(short)), np.arccos(least_cosine(long))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    v = (
        nodes + 1
    ) / 2  # theta = end - (end - start) v^4: dense at the end, where the integrand rises sharply for little noise
    theta = end[:, None] - (end - start)[:, None] * v**4
    rho = (1 - x[:, None] ** 2) / (2 * np.maximum(np.cos(theta) + x[:, None], 1e-300))
    density = np.exp(xlogy(d - 2, np.sin(theta)) - betaln((d - 1) / 2, 0.5))
    between = 2 * (end - start) * np.sum(weights * v**3 * density * gammaincc(d, epsilon * rho), axis=1)
    return betainc((d - 1) / 2, (d - 1) / 2, (1 - np.cos(start)) / 2) + between


def vector_spread(num_features: int, epsilon: float) -> float:
    """Return the width of :func:`vector_loss`: ten standard deviations plus the mean for many features, at most 2 eps."""
    return float(min(2 * epsilon, 10 * epsilon / np.sqrt(num_features) + epsilon**2 / num_features))


def gaussian_loss(mu: float, interval: float, pessimistic: bool = True) -> LossDistribution:
    """Compute the privacy-loss distribution of N(0, 1) against N(mu, 1), the same in both directions.

    Arguments as :func:`gamma_loss`.
    """
    index = _grid(-mu * (_FAR - mu / 2), mu * (_FAR + mu / 2), interval)
    loss = index * interval  # the loss at x is mu x - mu^2 / 2
    x = loss / mu + mu / 2
    (p, p_error), (q, q_error) = _normal_cells(x - mu), _normal_cells(x)
    above, below = ndtr(mu - x[-1]), ndtr(x[0] - mu)
    if pessimistic:
        P = _shared(p, q, loss, interval, p_error + q_error)[0]
        P[0] += below
    else:
        P, above = np.append(p, above), 0.0
    loss_on_grid = on_grid(index[0], P, above)
    return LossDistribution(loss_on_grid, loss_on_grid, interval, pessimistic)


def add_slack(symmetric: LossDistribution, slack: float) -> LossDistribution:
    """Add a probability ``slack`` of an infinite loss to a distribution that is the same in both directions."""
    loss = symmetric.remove._replace(infinite=min(symmetric.remove.infinite + slack, 1.0))
    return symmetric._replace(remove=loss, add=loss)


def gamma_spread(shape: float, theta: float) -> float:
    """Return a width of the loss, about ten standard deviations; it uses quantiles, as the tails may be heavy."""
    x = 1 + theta * gammaincinv(shape, [0.05, 0.95])  # quantiles of X if the task is there ("remove")
    upper, lower = -(shape - 1) * np.log1p(-1 / x)
    return float(3 * (upper - lower))


def _top(shape: float, theta: float, certain: float) -> float:
    """Return the loss above which the finite losses of "add" have negligible mass."""
    x = theta * gammaincinv(shape, certain + max(1e-18, 1e-5 * certain))
    top = -(shape - 1) * np.log1p(-1 / x) - 1 / theta if x > 1 else np.inf
    return float(min(top, _LARGEST_LOSS))


def _grid(low: float, high: float, interval: float) -> np.ndarray:
    """Return the grid points from below ``low`` to above ``high`` as whole numbers of intervals, up to the largest size.

    Raises OverflowError for numbers so large that doubles cannot distinguish neighbouring ones.
    """
    if not max(abs(low), abs(high)) < 2**52 * interval:
        raise OverflowError(f"a loss between {low:g} and {high:g} on a grid of {interval:g}")
    first = int(np.floor(low / interval))
    return np.arange(first, min(int(np.ceil(high / interval)), first + _MOST_CELLS) + 1)


def _cells(shape: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute P(x_{j+1} < G <= x_j) for G ~ Gamma(k, 1) and decreasing x, with relative errors.

    Every probability is a difference of tails on that side of the median where tails are small.
    """
    middle = np.count_nonzero(x >= gammaincinv(shape, 0.5))  # number of cells that start above the median
    upper, lower = gammaincc(shape, x[: middle + 1]), gammainc(shape, x[middle:])
    return _differences(np.diff(upper), -np.diff(lower), upper[1:], lower[:-1])


def _normal_cells(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute P(x_j < Z <= x_{j+1}) for a standard normal Z and increasing x, with relative errors, as :func:`_cells`."""
    middle = int(np.clip(np.searchsorted(x, 0.0), 0, len(x) - 1))
    lower, upper = ndtr(x[: middle + 1]), ndtr(-x[middle:])
    return _differences(np.diff(lower), -np.diff(upper), lower[1:], upper[:-1])


def _differences(first: np.ndarray, second: np.ndarray, *tails: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the masses of cells from differences of tails, and their relative errors."""
    mass = np.maximum(np.append(first, second), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return mass, np.nan_to_num(_TAIL * np.concatenate(tails) / mass, nan=0.0, posinf=1e300)


def _convolved(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, float]:
    """Convolve the masses of two losses, and return a bound on the mass that rounding errors may hide.

    A direct sum of products keeps the relative precision of every mass, however small it is. Fourier transforms are used
    where the direct sum takes too long.
    """
    if len(p) * len(q) <= _DIRECT:
        return np.convolve(p, q), 0.0
    size = len(p) + len(q) - 1
    norms = float(np.linalg.norm(p) * np.linalg.norm(q))
    padded = 2 ** int(np.ceil(np.log2(size)))
    together = np.fft.irfft(np.fft.rfft(p, padded) * np.fft.rfft(q, padded), padded)[:size]
    # The errors of three transforms, as in accounting/convolution.py, with the inequality of Cauchy and Schwarz.
    hidden = 25 * 2.0**-53 * np.log2(padded) * np.sqrt(padded) * norms * np.sqrt(size)
    return np.maximum(together, 0.0), float(hidden)


def _shared(
    p: np.ndarray, q: np.ndarray, loss: np.ndarray, interval: float, error: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Divide the masses of every cell between its two ends, so that both laws keep theirs.

    Args:
        p: masses of the cells, (n,).
        q: masses of the cells under the other law, (n,).
        loss: the ends of the cells, (n + 1,).
        interval: distance between them.
        error: largest error of log(p / q).
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
) -> LossDistribution:
    """Build the distribution of a loss: index * interval with masses P ("add"), and minus that with masses Q ("remove")."""
    infinity_mass = min(float(infinity_mass), 1 - 1e-15)  # a sum takes the logarithm of one minus this
    remove, add = on_grid(-index[-1], Q[::-1], 0.0), on_grid(index[0], P, infinity_mass)
    return LossDistribution(remove, add, interval, pessimistic)
