"""Integral of exp(-||W||_*) over d x m matrices, in closed form, by which the trace norm's prior is normalised.

With k = min(d, m), n = max(d, m) and q = n - k, singular values turn the integral into

    2^k pi^{k(n+k)/2} / (Gamma_k(n/2) Gamma_k(k/2))
        * int_{s_1 < ... < s_k} prod_i s_i^q e^{-s_i} prod_{i<j} (s_j^2 - s_i^2) ds,

and de Bruijn's formula turns that into a Pfaffian of numbers int int_{x<y} (x^a y^b - x^b y^a) e^{-x-y}, which are
incomplete beta functions at 1/2 and so, for whole a and b, rational.

Source: Muirhead (1982), theorems 2.1.14 and 3.2.17, for the constant; de Bruijn (1955), section 4, for the Pfaffian.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache
from math import comb

import numpy as np
from scipy.special import gammaln, multigammaln

_DIGITS = 40  # digits of the result; elimination loses about four more in every row


@lru_cache(maxsize=256)
def log_trace_norm_integral(d: int, m: int) -> float:
    """Return the log of the integral of exp(-||W||_*) over all d x m matrices W."""
    k, n = sorted((d, m))
    log_constant = k * np.log(2) + 0.5 * k * (n + k) * np.log(np.pi) - multigammaln(n / 2, k) - multigammaln(k / 2, k)
    return float(log_constant + _log_singular_value_integral(k, n - k))


@lru_cache(maxsize=256)
def acceptance_rate(d: int, m: int) -> float:
    """Return the share of Wishart proposals that the trace norm's rejection sampler accepts.

    It is the mean of prod_{i<j} (h_i + h_j) k / (2 tr H) over the Wishart distribution of H. The integral of the product
    against |H|^q e^{-tr H} follows from :func:`log_trace_norm_integral`, that of |H|^q e^{-tr H} alone is Selberg's, and
    tr H is independent of H / tr H.
    """
    k, n = sorted((d, m))
    q = n - k
    pairs = k * (k - 1) // 2
    j = np.arange(k)
    selberg = np.sum(gammaln(1 + (j + 1) / 2) + gammaln(q + 1 + j / 2)) - k * gammaln(1.5) - gammaln(k + 1)
    trace = k * (q + 1) + pairs  # the Wishart's trace is Gamma with this shape
    moment = _log_singular_value_integral(k, q) - selberg - gammaln(trace + pairs) + gammaln(trace)
    return float(np.exp(moment + pairs * np.log(k / 2)))


def _log_singular_value_integral(k: int, q: int) -> float:
    """Return the log of int_{s_1 < ... < s_k} prod s_i^q e^{-s_i} prod_{i<j} (s_j^2 - s_i^2) ds.

    The Pfaffian is computed by skew elimination in decimal arithmetic. No pivoting is needed, because the leading Pfaffians
    are integrals over fewer singular values, and so positive.
    """
    with localcontext() as context:
        context.prec = _DIGITS + 4 * k
        a = [q + 2 * i + 1 for i in range(k)]
        size = k + k % 2  # an odd number of singular values borders the matrix by single integrals
        # rows and columns are divided by Gamma(a), which keeps the numbers near 1
        M = [
            [_pair(a[i], a[j]) if max(i, j) < k else Decimal((j == k) - (i == k)) for j in range(size)]
            for i in range(size)
        ]
        log_pfaffian = Decimal(0)
        for r in range(0, size, 2):
            pivot = M[r][r + 1]
            log_pfaffian += pivot.ln()
            for i in range(r + 2, size):
                for j in range(i + 1, size):
                    M[i][j] -= (M[r][i] * M[r + 1][j] - M[r + 1][i] * M[r][j]) / pivot
        return float(log_pfaffian) + float(np.sum(gammaln(a)))


def _pair(a: int, b: int) -> Decimal:
    """Return int int_{x<y} (x^{a-1} y^{b-1} - x^{b-1} y^{a-1}) e^{-x-y} / (Gamma(a) Gamma(b)).

    This is P(X < Y) - P(X > Y) for X ~ Gamma(a) and Y ~ Gamma(b). X < Y has the probability of at least a heads in a + b - 1
    tosses of a fair coin.
    """
    tosses = a + b - 1
    heads = term = comb(tosses, a)
    for i in range(a, tosses):
        term = term * (tosses - i) // (i + 1)
        heads += term
    return Decimal(2 * heads - 2**tosses) / Decimal(2**tosses)
