"""Privacy loss of replacing one task, computed without the library: quadrature of densities, and draws.

One release is Sigma = S0 + w w' + N, N ~ Wishart_d(d - 1 + 2k, theta/2 I), against S0 + u u' + N, in units of K = 1.
With the extreme eigenvalues a >= 0 >= -b of ww' - uu', both laws can be moved to a ee' + N and b ff' + N, where e and f
are orthonormal.
Every function gives a hockey-stick divergence E_g(P||Q) = int (dP - g dQ)_+ with g = e^eps, eps any real number.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, gammaln


def shifted(log_g, a, b, k, theta):
    """Compute E_g(a + G || b + G), G ~ Gamma(k, theta), k > 1: the test of Neyman and Pearson is a half-line. Broadcasts."""
    log_g, shift = np.broadcast_arrays(np.asarray(log_g, float), np.asarray(a, float) - b)
    size = np.abs(shift)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        g = np.exp(log_g)
        # log of the ratio of densities at x > size, for the likelier law further right: (k-1) log(1 - size/x) + size/theta
        right = size / -np.expm1((log_g - size / theta) / (k - 1))
        up = gammaincc(k, (right - size) / theta) - g * gammaincc(k, right / theta)
        up = np.where(log_g >= size / theta, 0.0, up)
        left = size / -np.expm1(-(log_g + size / theta) / (k - 1))
        down = gammainc(k, left / theta) - g * gammainc(k, (left - size) / theta)
        down = np.where(log_g <= -size / theta, 1 - g, np.where(g == np.inf, gammainc(k, size / theta), down))
    return np.where(shift > 0, up, np.where(shift < 0, down, np.maximum(0.0, 1 - g)))


def independent(eps, k, theta, a=1.0, b=1.0, first="remove"):
    """Compute E_g((a + G) x G' || G x (b + G')), k > 1: the divergence of one coordinate, averaged over the other.

    ``first``: which coordinate is integrated over; the answer must not depend on it.
    """
    if first == "remove":  # under P the first coordinate is a + G
        kink = (a - b) / theta - eps  # where the loss reaches eps + b/theta, every test of the second is trivial
        noise, weight = _gamma_nodes(k, theta, 0.0, a / np.expm1(min(kink / (k - 1), 700.0)) if kink > 0 else 0.0)
        loss = -(k - 1) * np.log1p(a / noise) + a / theta
        return float(weight @ shifted(eps - loss, 0.0, b, k, theta))
    kink = eps - (a - b) / theta
    noise, weight = _gamma_nodes(k, theta, b, b / -np.expm1(-kink / (k - 1)) if kink > 0 else 0.0)
    loss = -(k - 1) * np.log1p(-b / noise) - b / theta  # of G' under P; infinite below b
    return float(gammainc(k, b / theta) + weight @ shifted(eps - loss, a, 0.0, k, theta))


def pair(eps, k, theta, a, b):
    """Compute E_g(a ee' + N || b ff' + N) exactly, k > 1.

    With T1 = 1/(e'X^-1 e), T2 = 1/(f'X^-1 f) the densities against the law of N are A(T1) and B(T2); under that law
    T1 = y1 c, T2 = y2 c with y1, y2 ~ Gamma(k + 1/2, theta) and c ~ Beta(k, 1/2) independent. So the divergence is
    int_0^inf E_c[P(A(y1 c) > z | c) P(g B(y2 c) <= z | c)] dz, in the variable log z.
    """
    top, level = a / theta, eps + b / theta  # A < e^top, and gB <= z surely once log z >= level
    angle, angle_weight = _nodes(np.linspace(0, min(np.pi / 2, 9 / np.sqrt(k)), 9), 8)
    cosine = np.cos(angle) ** (2 * k - 1) * angle_weight
    share, cosine = np.cos(angle)[:, None] ** 2, cosine / cosine.sum()
    x, weight = _nodes(_mesh(top, level, k, theta, a, b), 10)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        t1 = a / -np.expm1((x - top) / (k - 1)) if a else np.zeros_like(x)
        t2 = np.where(x < level, b / -np.expm1((x - level) / (k - 1)) if b else 0.0, np.inf)
        both = gammaincc(k + 0.5, t1 / share / theta) * gammainc(k + 0.5, t2 / share / theta)
    return float(cosine @ both @ (weight * np.exp(x)))


def pair_by_columns(eps, k, theta, a, b):
    """Compute the same by another route, k > 1: the second column of the 2 x 2 block is seen first, then the corner x11.

    Under P, x22 ~ Gamma(k + 1/2), x12 | x22 ~ N(0, x22 theta/2), and x11 = a + x12^2/x22 + Gamma(k) given both. Under Q
    the same holds of x22 - b, with 0 for a. No third law, and no Beta.
    """
    low, high = theta * gammaincinv(k + 0.5, 1e-17), theta * gammainccinv(k + 0.5, 1e-17)
    kink = (a - b) / theta - eps
    turn = b / -np.expm1(kink / (k - 1)) if kink < 0 else b  # further out one law is the likelier whatever x11 is
    fine = np.geomspace(1e-12, 1, 41) * max(high - b, 1e-9)
    edges = np.concatenate([[b], np.linspace(low, high, 33), b + fine, turn - fine, [turn], turn + fine])
    x22, weight = _nodes(np.unique(edges[(edges >= b) & (edges <= b + fine[-1])]), 6)
    # z = x12 in units of its spread; at ``level`` the two laws of x11 begin at the same point
    level = np.minimum(np.sqrt(2 * a * (x22 - b) / max(b * theta, 1e-300)), 9.0)[:, None]
    s, s_weight = _nodes(np.union1d(np.linspace(0, 1, 13), np.geomspace(1e-5, 0.1, 9)), 6)
    z = np.hstack([level * (1 - s), level + (9 - level) * s])
    z_weight = np.hstack([level * s_weight, (9 - level) * s_weight])
    x22, x12 = x22[:, None], z * np.sqrt(x22[:, None] * theta / 2)
    log_p = (k - 0.5) * np.log(x22 / theta) - x22 / theta - gammaln(k + 0.5) - np.log(theta)
    weights = weight[:, None] * np.exp(log_p) * z_weight * np.exp(-(z**2) / 2) * np.sqrt(2 / np.pi)
    gap = x22 - b
    ratio = (k - 1) * np.log(gap / x22) + b / theta - x12**2 / theta * (1 / gap - 1 / x22)  # log dQ/dP of (x22, x12)
    given = shifted(eps + ratio, a + x12**2 / x22, x12**2 / gap, k, theta)
    return float(gammainc(k + 0.5, b / theta) + np.sum(weights * given))


def wishart(rng, n, d, df, scale):
    """Sample n matrices, (n, d, d), from normals and chi-squares (Bartlett's decomposition)."""
    lower = np.tril(rng.standard_normal((n, d, d)), -1)
    lower[:, range(d), range(d)] = np.sqrt(rng.chisquare(df - np.arange(d), (n, d)))
    return scale * lower @ np.swapaxes(lower, 1, 2)


def log_density(noise, k, theta):
    """Compute log Wishart_d(d - 1 + 2k, theta/2 I) at symmetric matrices (..., d, d), up to a constant; -inf off the cone."""
    eigenvalues = np.linalg.eigvalsh(noise)
    inside = eigenvalues[..., 0] > 0
    logs = np.log(np.where(inside[..., None], eigenvalues, 1.0)).sum(-1)
    return np.where(inside, (k - 1) * logs - eigenvalues.sum(-1) / theta, -np.inf)


def losses(sigma, present, absent, k, theta):
    """Compute log dP/dQ at releases sigma that were drawn under P: A + N with A = ``present``, against A = ``absent``."""
    return log_density(sigma - present, k, theta) - log_density(sigma - absent, k, theta)


def estimate(loss, eps):
    """Compute (1 - e^(eps - loss))_+ for draws of the loss under P: its mean is E_g, and each lies in [0, 1]."""
    return -np.expm1(np.minimum(eps - loss, 0.0))


def margin(mean, n, alarm=1e-8):
    """Bound how far an average of n numbers in [0, 1] lies from their mean, but for a probability 2 ``alarm`` (Bernstein)."""
    log = -np.log(alarm)
    return log / (3 * n) + np.sqrt((log / (3 * n)) ** 2 + 2 * mean * (1 - mean) * log / n)


def _nodes(edges, order):
    """Return Gauss-Legendre nodes and weights on every panel between sorted edges."""
    x, w = leggauss(order)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1] + edges[1:])[:, None] / 2 + half * x).ravel(), (half * w).ravel()


def _gamma_nodes(k, theta, start, kink):
    """Return nodes and weights of Gamma(k, theta) on (start, inf), with thin panels next to ``start`` and ``kink``."""
    high = max(gammainccinv(k, 1e-18) * theta, start + 1e-9)
    fine = np.geomspace(1e-14, 1, 81) * (high - start)
    edges = np.concatenate([[start], np.linspace(start, high, 81), start + fine, kink - fine, [kink], kink + fine])
    x, w = _nodes(np.unique(edges[(edges >= start) & (edges <= high)]), 8)
    return x, w * np.exp((k - 1) * np.log(x / theta) - x / theta - gammaln(k) - np.log(theta))


def _mesh(top, level, k, theta, a, b):
    """Return edges of panels in log z: fine next to ``top`` and ``level``, and where log A and log gB live."""
    bottom = -40.0  # z < e^-40 adds less than that
    noise = theta * np.array([gammaincinv(k, 1e-17), gammainccinv(k, 1e-17)])
    ranges = top - (k - 1) * np.log1p(a / noise), level + (k - 1) * np.log(np.maximum(1 - b / noise, 1e-300))
    fine = np.geomspace(1e-9, top - bottom, 70)
    bulks = [np.linspace(*np.maximum(ends, bottom), 60) for ends in ranges]
    edges = np.concatenate([[bottom, top, level], top - fine, level - fine, level + fine, *bulks])
    return np.unique(edges[(edges >= bottom) & (edges <= top)])
