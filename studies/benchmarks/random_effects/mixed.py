"""A mixed model without privacy, by restricted likelihood: what all rows in one room would say.

    y_i = X_i (mu + u_i) + e_i,   u_i ~ N(0, Omega),   e_i ~ N(0, sigma^2 I),

every column with a random effect and Omega a full matrix. EM treats mu as one more latent vector with a flat prior, so that
its limit maximises the restricted likelihood.

Source: Laird and Ware (1982), Biometrics 38, equations 3.3 to 3.6; Laird, Lange and Stram (1987), JASA 82.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SMALLEST = 1e-8  #: of the eigenvalues of Omega, relative to sigma^2: EM never quite reaches zero


class Statistics(NamedTuple):
    """Sufficient statistics of the tasks' rows for a normal likelihood.

    Attributes:
        gram: X_i'X_i, (m, d, d).
        cross: X_i'y_i, (m, d).
        square: y_i'y_i, (m,).
        rows: n_i, (m,).
    """

    gram: np.ndarray
    cross: np.ndarray
    square: np.ndarray
    rows: np.ndarray


class Mixed(NamedTuple):
    """A fitted mixed model.

    Attributes:
        mu: average effects, (d,).
        mu_covariance: of their estimate, given Omega and sigma^2, (d, d).
        Omega: covariance of tasks' effects, (d, d).
        sigma2: residual variance.
        beta: predicted coefficients mu + u_i, (d, m).
        beta_variance: of every one of them, mu's uncertainty included, (d, m).
        log_likelihood: restricted, with all constants.
        iterations: of EM that it took.
    """

    mu: np.ndarray
    mu_covariance: np.ndarray
    Omega: np.ndarray
    sigma2: float
    beta: np.ndarray
    beta_variance: np.ndarray
    log_likelihood: float
    iterations: int


class Expected(NamedTuple):
    """Posterior moments of one E-step.

    Attributes:
        mu: mean of mu, (d,).
        C: its covariance, (d, d).
        u: means of u_i, (m, d).
        u_covariance: (m, d, d).
        beta: means of mu + u_i, (m, d).
        beta_covariance: (m, d, d).
        log_likelihood: restricted, of the parameters that came in.
    """

    mu: np.ndarray
    C: np.ndarray
    u: np.ndarray
    u_covariance: np.ndarray
    beta: np.ndarray
    beta_covariance: np.ndarray
    log_likelihood: float


def statistics(X: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> Statistics:
    """Reduce every task's rows X_i (n_i, d), y_i (n_i,) to what a normal likelihood knows of them."""
    gram, cross = np.array([x.T @ x for x in X]), np.array([x.T @ v for x, v in zip(X, y, strict=True)])
    return Statistics(gram, cross, np.array([v @ v for v in y]), np.array([len(v) for v in y]))


def expected(data: Statistics, Omega: np.ndarray, sigma2: float) -> Expected:
    """The E-step: posterior moments of mu, of every u_i and of every mu + u_i, given Omega and sigma^2.

    With P = Omega^-1 and H_i = (X_i'X_i / sigma^2 + P)^-1, the information of a task about mu is
    X_i'V_i^-1 X_i = X_i'X_i H_i P / sigma^2, V_i = X_i Omega X_i' + sigma^2 I; and X_i'V_i^-1 y_i = P H_i X_i'y_i / sigma^2.
    Directions of mu that no row of any task has say nothing, and stay zero.
    """
    m = len(data.rows)
    P = np.linalg.inv(Omega)
    H = np.linalg.inv(data.gram / sigma2 + P)
    C, log_C, rank = _inverse((data.gram @ H @ P).sum(axis=0) / sigma2)
    weighted = np.einsum("ij,mjk,mk->mi", P, H, data.cross) / sigma2
    mu = C @ weighted.sum(axis=0)
    u = np.einsum("mij,mj->mi", H, data.cross - data.gram @ mu) / sigma2
    K, L = H @ data.gram / sigma2, H @ P  # u_i = ... - K_i mu and mu + u_i = ... + L_i mu
    # y_i'V_i^-1 y_i = (y'y - y'X H X'y / sigma^2) / sigma^2, and less what mu takes
    explained = np.einsum("mi,mij,mj->m", data.cross, H, data.cross) / sigma2
    quadratic = (data.square - explained).sum() / sigma2 - weighted.sum(axis=0) @ mu
    log_det = lambda M: np.linalg.slogdet(M)[1]
    total = data.rows.sum()
    log_V = total * np.log(sigma2) + m * log_det(Omega) - log_det(H).sum()
    log_likelihood = -0.5 * ((total - rank) * np.log(2 * np.pi) + log_V - log_C + quadratic)
    return Expected(
        mu, C, u, H + K @ C @ np.swapaxes(K, 1, 2), mu + u, H + L @ C @ np.swapaxes(L, 1, 2), float(log_likelihood)
    )


def _inverse(M: np.ndarray) -> tuple[np.ndarray, float, int]:
    """Pseudo-inverse of a symmetric matrix, the log determinant of the inverse where it is one, and the rank."""
    e, U = np.linalg.eigh((M + M.T) / 2)
    kept = e > 1e-10 * e[-1]
    return (U[:, kept] / e[kept]) @ U[:, kept].T, float(-np.log(e[kept]).sum()), int(kept.sum())


def fit(data: Statistics, *, isotropic: bool = False, iterations: int = 1000, tolerance: float = 1e-7) -> Mixed:
    """Maximise the restricted likelihood by EM.

    Args:
        data: of all tasks.
        isotropic: keep Omega a multiple of I, which overfits less where tasks are few.
        iterations: at most.
        tolerance: stop where the log likelihood grows by less than this, a row.
    """
    d, total = data.cross.shape[1], data.rows.sum()
    sigma2 = float(data.square.sum() / total / 2)
    Omega, before = sigma2 / np.maximum(np.trace(data.gram.sum(axis=0)) / total / d, 1e-12) / d * np.eye(d), -np.inf
    for count in range(1, iterations + 1):
        E = expected(data, Omega, sigma2)
        if E.log_likelihood - before < tolerance * total and count > 1:
            break
        before = E.log_likelihood
        if count == iterations:
            break
        Omega = (E.u.T @ E.u + E.u_covariance.sum(axis=0)) / len(E.u)
        if isotropic:
            Omega = np.trace(Omega) / d * np.eye(d)
        Omega = Omega + SMALLEST * sigma2 * np.eye(d)
        fitted = np.einsum("mi,mij,mj->m", E.beta, data.gram, E.beta) - 2 * (E.beta * data.cross).sum(axis=1)
        sigma2 = float((data.square + fitted + np.einsum("mij,mji->m", data.gram, E.beta_covariance)).sum() / total)
    variance = np.einsum("mii->im", E.beta_covariance)
    return Mixed(E.mu, E.C, Omega, sigma2, E.beta.T, variance, E.log_likelihood, count)
