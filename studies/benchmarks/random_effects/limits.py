"""Lower bound of the error that the noise of a release of unit messages adds, where its mean is read linearly.

A message (g b, 1) / sqrt(1 + g^2 |b|^2) of length one adds g b / (1 + g^2 |b|^2) to the last column of the sum, on which
noise has the standard deviation sd. From m tasks with estimates of about the same length |b|, a coordinate of mu is read with
noise of standard deviation

    sd (1 + g^2 |b|^2) / (g m) >= 2 |b| sd / m,   with equality at g = 1 / |b|.

The square, v, is the inverse of the Fisher information about that coordinate which is in the last column; the other columns
are quadratic in mu. An owner that takes the noisy mean for the true one errs by (I - K_i)(noise), where I - K_i = H_i P,
P = Omega^-1 and H_i = (X_i'X_i / sigma_i^2 + P)^-1, so that an error of

    added = v * average over owners of tr((H_i P)' A H_i P)

comes on top of what a mixed model without noise would have. For independent features and more rows than features this is
w^2 d (2 |b| sd / m)^2, w = V / (V + tau^2 / d). With few rows the best estimates are shrunk by p on average: the length that
counts is that of the estimate over p, and the least over declared prior variances is taken.

Omega and the residual variance are taken as told, and noise of Omega comes on top: the value is no bound for a method that
has a prior of mu or another reading, which where noise is large can do better.
"""

from __future__ import annotations

import numpy as np

from random_effects import arms, cells, mixed, real

PRIORS = np.geomspace(0.01, 100, 9)  #: declared prior variances of the ridge behind a message, the last almost flat


def noise_of_mean(data: mixed.Statistics, sd: float, sigma2: np.ndarray) -> float:
    """Return v, the least variance of a coordinate of mu, from tasks' rows, residual variances (m,) and the noise's sd."""
    m, d = data.cross.shape
    lengths = []
    for prior in PRIORS:
        inverse = np.linalg.inv(data.gram + sigma2[:, None, None] / prior * np.eye(d))
        eta = np.einsum("mij,mj->mi", inverse, data.cross)
        left = np.einsum("mij,mji->m", inverse, data.gram).mean() / d
        lengths.append((eta**2).sum(axis=1).mean() / left**2)
    return float(4 * min(lengths) * sd**2 / m**2)


def release_sd(public: arms.Public, dimension: int) -> float:
    """Return the noise's sd off the diagonal of a release of unit messages; Wishart and Gaussian noise differ by 1 %."""
    from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian

    return calibrate_gaussian(public.epsilon, public.delta, dimension).sd


def added(cell: cells.Cell, draw: cells.Draw) -> float:
    """Return what the noise of mu adds to the error of a cell's data set; with the mixed model's error it is *linear*."""
    data = mixed.statistics(draw.X, draw.y)
    P = np.linalg.inv(draw.Omega)
    v = noise_of_mean(data, release_sd(public(cell), cell.d + 2), draw.sigma2)
    passed = np.linalg.inv(data.gram / draw.sigma2[:, None, None] + P) @ P
    return float(v * np.einsum("mki,kl,mli->m", passed, cells.second_moment(cell), passed).mean())


def added_on_table(given: real.Split) -> float:
    """Return what the noise of mu adds to the error on a real table's split, if the fitted mixed model is the truth."""
    data = mixed.statistics(given.train.X, given.train.y)
    fitted = mixed.fit(data)
    P = np.linalg.inv(fitted.Omega)
    v = noise_of_mean(data, release_sd(given.public, len(P) + 2), np.full(len(data.rows), fitted.sigma2))
    passed = np.linalg.inv(data.gram / fitted.sigma2 + P) @ P
    wrong = sum(((x @ left) ** 2).sum() for (x, _), left in zip(given.test, passed, strict=True))
    return float(v * wrong / sum(((y - y.mean()) ** 2).sum() for _, y in given.test))


def public(cell: cells.Cell) -> arms.Public:
    """Return the public numbers of a cell."""
    return arms.Public(
        cell.epsilon, cell.m, cell.declared_rows, cell.row_range, cells.declared_square(cell), cell.intercept
    )
