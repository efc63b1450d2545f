"""A rival of 2026: every site publishes its cross-products with noise of its own, read as a random-intercept model.

    T_i = [X_i y_i]'[X_i y_i] + E_i,   y_ij = x_ij'mu + b_i + e_ij,   b_i ~ N(0, rho sigma^2)

The reading weighs sites as V_i = sigma^2 (I + rho 1 1') does, which X_i'1, 1'y_i and n_i give where the first column is
constant; without a constant column there is no such random intercept, and rho = 0. Variances are cluster-robust, from the
noisy cross-products alone. It is built from the description, with the best clipping that we know of from public numbers:
columns in declared units, and T_i cut to its declared size in Frobenius norm as a whole, so that a site with more rows has
less weight, but X_i'y_i = X_i'X_i b still holds. Two positive semi-definite matrices of norm at most C are at most sqrt 2 C
apart, as ||P - Q||^2 = ||P||^2 + ||Q||^2 - 2 tr PQ.

Slopes are the same for all sites; an owner adds its own intercept, shrunk by rho, from its own rows.

Source: arXiv 2604.00410.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

RATIOS = np.r_[0.0, np.geomspace(1e-3, 10, 30)]  #: rho, the intercepts' variance over the residual one


class Summaries(NamedTuple):
    """Results of the rival: mu (d,), its cluster-robust standard errors (d,), and every site's coefficients (d, m)."""

    mu: np.ndarray
    standard_error: np.ndarray
    beta: np.ndarray


def size(rows: int, d: int) -> float:
    """Return C, the declared Frobenius norm of the cross-products of d features and a target, all with mean square one.

    The root of its mean square for independent normal columns, p = d + 1: n^2 p + n p^2 + n p.
    """
    p = d + 1
    return float(np.sqrt(rows**2 * p + rows * p**2 + rows * p))


def clipped(X: np.ndarray, y: np.ndarray, square: float, longest: float) -> np.ndarray:
    """Return a site's cross-products (d + 1, d + 1) of rows and scaled targets, at most ``longest`` in Frobenius norm."""
    Z = np.column_stack([X, y / np.sqrt(square)])
    T = Z.T @ Z
    return T * min(1.0, longest / max(np.linalg.norm(T), 1e-300))


def noise(d: int, sd: float, rng: np.random.Generator) -> np.ndarray:
    """Draw symmetric noise with the same sd in every direction: sd on the diagonal, and sd / sqrt 2 off it."""
    G = sd * rng.standard_normal((d, d))
    return (G + G.T) / 2


def summaries(
    X: Sequence[np.ndarray], y: Sequence[np.ndarray], public: Any, unit_sd: float, rng: np.random.Generator
) -> Summaries:
    """Publish and read every site's cross-products.

    Args:
        X: rows of every site, (n_i, d) each, in declared units.
        y: targets.
        public: what is declared, :class:`random_effects.arms.Public`.
        unit_sd: of the noise where C = 1: of a release that one site's replacement moves by sqrt 2.
        rng: of the noise.
    """
    d = X[0].shape[1]
    longest = size(public.rows, d)
    published = np.array(
        [
            clipped(x, v, public.square, longest) + noise(d + 1, longest * unit_sd, rng)
            for x, v in zip(X, y, strict=True)
        ]
    )
    mu, error, rho = read(published, longest * unit_sd, public.intercept)
    mu, error = mu * np.sqrt(public.square), error * np.sqrt(public.square)
    beta = np.repeat(mu[:, None], len(X), axis=1)
    if public.intercept:  # an owner's own rows say how far its intercept is from the others'
        beta[0] += [rho * (v - x @ mu).sum() / (1 + rho * len(v)) for x, v in zip(X, y, strict=True)]
    return Summaries(mu, error, beta)


def read(published: np.ndarray, sd: float, intercept: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Estimate mu (d,), its standard errors (d,) and rho from noisy cross-products (m, d + 1, d + 1)."""
    best = None
    edge = sd * np.sqrt(2 * (published.shape[1] - 1) * len(published))  # of the summed noise, in operator norm
    for rho in RATIOS if intercept else RATIOS[:1]:
        weighted = published
        n = np.maximum(published[:, 0, 0], 1.0)
        if rho > 0:
            first = published[:, 0, :]
            weighted = published - (rho / (1 + rho * n))[:, None, None] * np.einsum("mi,mj->mij", first, first)
        mu = np.linalg.solve(_definite(weighted.sum(axis=0)[:-1, :-1], edge), weighted.sum(axis=0)[:-1, -1])
        c = np.r_[-mu, 1.0]
        rest = float(c @ weighted.sum(axis=0) @ c)
        total = n.sum() if intercept else 1.0
        deviance = total * np.log(rest) + np.log1p(rho * n).sum() if rest > 0 else np.inf
        if best is None or deviance < best[0]:
            best = (deviance, mu, weighted, float(rho))
    assert best is not None
    _, mu, weighted, rho = best
    bread = np.linalg.inv(_definite(weighted.sum(axis=0)[:-1, :-1], edge))
    scores = weighted[:, :-1, -1] - weighted[:, :-1, :-1] @ mu
    return mu, np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread)), rho


def _definite(M: np.ndarray, floor: float) -> np.ndarray:
    """Raise eigenvalues to at least the noise's, so that solutions do not explode by noise alone."""
    e, U = np.linalg.eigh(M)
    return (U * np.maximum(e, floor)) @ U.T
