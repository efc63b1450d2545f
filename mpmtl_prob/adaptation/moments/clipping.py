"""Moments of clipped residuals in closed form, so that the model accounts for the attenuation by clipping.

A record's residual of the public fit is r = x.delta + e, with e ~ N(0, sigma^2), and the release has psi = clip(r, -c, c).
With m = x.delta normal of variance q over the records, t^2 = q + sigma^2, a = c / t, P = P(|r| < c) and phi the normal
density, Stein's lemma gives, given the features' second moment N = n C,

    E[sum x psi]        = P N delta
    Cov(sum x psi)      = (E psi^2 - P^2 q) N + (2D - 2P^2 + 4 P q h - 2 q^2 h^2) N delta delta'N / n,   h = a phi(a) / t^2
    E[sum psi^2]        = n E psi^2,   d E psi^2 / d t^2 = D = P - 2 a phi(a)
    Var(sum psi^2)      = n (E psi^4 - (E psi^2)^2 - 2 q^2 D^2)
    Cov(sum x psi, sum psi^2) = (3 t^2 D - P E psi^2 - 2 P q D + 2 D q^2 h) N delta

Without clipping these are N delta, sigma^2 N, n t^2, 2 n sigma^4 + 4 n sigma^2 q and 2 sigma^2 N delta.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Moments(NamedTuple):
    """Moments of clipped residuals, for a given size t of the residuals. The methods depend on q as well.

    Attributes:
        kept: P, the attenuation of slopes.
        square: E psi^2.
        fourth: E psi^4.
        slope: D.
        edge: h.
        total: t^2.
    """

    kept: Any
    square: Any
    fourth: Any
    slope: Any
    edge: Any
    total: Any

    def along(self, q: Any) -> Any:
        """Return the coefficient of N in the covariance of sum x psi."""
        return self.square - self.kept**2 * q

    def across(self, q: Any) -> Any:
        """Return the coefficient of N delta delta'N / n in the covariance of sum x psi."""
        # The last term is there as q, and so P, depend on N: P(q) N delta explains more than P N delta with P fixed.
        return 2 * self.slope - 2 * self.kept**2 + 4 * self.kept * q * self.edge - 2 * (q * self.edge) ** 2

    def spread(self, q: Any) -> Any:
        """Return the variance of sum psi^2, per record."""
        return self.fourth - self.square**2 - 2 * (q * self.slope) ** 2

    def common(self, q: Any) -> Any:
        """Return the coefficient of N delta in the covariance of the two sums."""
        t2, D = self.total, self.slope
        return 3 * t2 * D - self.kept * self.square - 2 * self.kept * q * D + 2 * D * q**2 * self.edge


def moments(t: Any, c: Any, xp: Any, cdf: Any) -> Moments:
    """Compute the moments of clip(r, -c, c) for r ~ N(0, t^2).

    Args:
        t: > 0, of any shape.
        c: > 0.
        xp: NumPy or jax.numpy.
        cdf: the standard normal distribution function for arrays of ``xp``.
    """
    a = c / t
    P = 2 * cdf(a) - 1
    edge = a * xp.exp(-(a**2) / 2) / xp.sqrt(2 * xp.pi)
    square = t**2 * (P - 2 * edge) + c**2 * (1 - P)
    fourth = t**4 * (3 * P - 2 * (a**2 + 3) * edge) + c**4 * (1 - P)
    return Moments(P, square, fourth, P - 2 * edge, edge / t**2, t**2)
