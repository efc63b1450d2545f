"""Distribution of Omega before a release, and given the second moment A of a release.

With ``w_i ~ N(0, Omega)`` and ``Omega ~ InverseWishart(kappa, Phi)``, ``Omega | A ~ InverseWishart(kappa + m, Phi + A)``.
Given A, Omega does not depend on the release, so that this is all the uncertainty that m tasks leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import former_names
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.privacy.mechanisms.wishart import bartlett


def given_second_moment(posterior: Mapping[Any, ArrayLike], num_tasks: int) -> tuple[FloatArray, FloatArray] | None:
    """Return Phi + A (chain, draw, d, d) and kappa + m of every draw, or None where Omega | A is not inverse Wishart.

    Args:
        posterior: draws of A (chain, draw, d, d), of ``prior_scale``, the diagonal of Phi, and of kappa.
        num_tasks: m.
    """
    if "prior_scale" not in posterior:
        return None
    M = np.array(posterior["A"])
    prior_scale = np.asarray(posterior["prior_scale"])
    np.einsum("...ii->...i", M)[...] += prior_scale
    return M, np.asarray(posterior["kappa"]) + num_tasks


def inverse_wishart(rng: np.random.Generator, M: FloatArray, df: FloatArray | float) -> FloatArray:
    """Draw Omega ~ InverseWishart(df, M) exactly, (..., d, d); df broadcasts over the leading axes."""
    d = M.shape[-1]
    L = np.linalg.cholesky(M)
    T = bartlett(rng, df, d, M.shape[:-2])
    half = np.empty_like(T)
    for out, lower, right in zip(*(X.reshape(-1, d, d) for X in (half, T, L)), strict=True):
        out[:] = solve_triangular(lower, right.T, lower=True, check_finite=False)
    return np.swapaxes(half, -1, -2) @ half  # Omega = L T'^{-1} T^{-1} L'


def draw_prior_omega(rng: np.random.Generator, s: FloatArray) -> FloatArray:
    """Draw Omega ~ InverseWishart(kappa, kappa diag(s)) with kappa from its prior, (S, d, d), for s (S, d)."""
    draws, d = s.shape
    kappa = d + 1 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * rng.standard_normal(draws))
    return inverse_wishart(rng, (kappa[:, None] * s)[..., None] * np.eye(d), kappa)


def above_a_floor(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Draw variances over their floor, 1 + lambda^2 with lambda ~ HalfCauchy(1)."""
    return 1 + half_cauchy(rng, shape) ** 2


def half_cauchy(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Draw half-Cauchy numbers, at most 1e6 so that Omega is not too badly conditioned to be decomposed."""
    return np.minimum(np.abs(rng.standard_cauchy(shape)), 1e6)


__getattr__ = former_names(__name__, {"with_kappa": "draw_prior_omega"})
