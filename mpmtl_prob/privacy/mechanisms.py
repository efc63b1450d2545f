"""The noise laws of a release: how to draw from them, and their densities.

A mechanism turns A = W W' (d x d), W with columns of norm at most ``clip``, into Sigma = A + E. The release path draws
from it, the models read its density, the accountant its privacy loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import multigammaln

from mpmtl_prob._check import positive, whole
from mpmtl_prob.tasks import FloatArray


@dataclass(frozen=True)
class Wishart:
    """E ~ Wishart_d(df, scale I).

    Attributes:
        num_features: d.
        df: degrees of freedom nu, at least d + 1, in units of rows.
        scale: s, in squared units of the weights; E has mean df * scale * I.
        clip: K, the largest norm of a column of W, in units of the weights.

    Raises:
        ValueError: an argument outside its range.
    """

    num_features: int
    df: float
    scale: float
    clip: float = 1.0

    def __post_init__(self) -> None:
        whole("num_features", self.num_features)
        positive("scale", self.scale)
        positive("clip", self.clip)
        if not positive("df", self.df) >= self.num_features + 1:
            # with fewer the density is infinite where Sigma - A is singular, and the privacy loss is unbounded both ways
            raise ValueError(f"df: expected at least num_features + 1 = {self.num_features + 1}, got {self.df!r}")

    @property
    def shape(self) -> float:
        """k of the Gamma(k, theta) noise that this release is exactly as private as: df = d - 1 + 2k."""
        return (self.df - self.num_features + 1) / 2

    @property
    def theta(self) -> float:
        """Scale of that Gamma noise, in units of clip^2: theta = 2 s / K^2."""
        return 2 * self.scale / self.clip**2

    @property
    def mean(self) -> FloatArray:
        """E[Sigma - A] = df * scale * I, (d, d)."""
        return self.df * self.scale * np.eye(self.num_features)

    @property
    def fluctuation(self) -> float:
        """Size of Sigma - A - mean in operator norm, s (2 sqrt(nu d) + d), in squared units of the weights."""
        return self.scale * (2 * np.sqrt(self.df * self.num_features) + self.num_features)

    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """A + E, exactly symmetric, (d, d); E by Bartlett's decomposition."""
        d = self.num_features
        T = np.tril(rng.standard_normal((d, d)), -1)
        np.fill_diagonal(T, np.sqrt(rng.chisquare(self.df - np.arange(d))))
        T *= np.sqrt(self.scale)
        return (A + A.T) / 2 + T @ T.T

    def log_prob(self, sigma: FloatArray, A: FloatArray) -> float:
        """log density of the release sigma given A; -inf where sigma - A is not positive definite."""
        d = self.num_features
        try:
            log_det = 2 * np.sum(np.log(np.diagonal(np.linalg.cholesky(sigma - A))))
        except np.linalg.LinAlgError:
            return -np.inf
        log_norm = 0.5 * self.df * d * np.log(2 * self.scale) + multigammaln(0.5 * self.df, d)
        return float(0.5 * (self.df - d - 1) * log_det - 0.5 * np.trace(sigma - A) / self.scale - log_norm)


def paper_wishart(num_features: int, epsilon: float, clip: float = 1.0) -> Wishart:
    """The papers' noise, Wishart_d(d + 1, K^2 / (2 eps) I) (Algorithm 1, step 5), for one round of nominal budget eps."""
    return Wishart(num_features, num_features + 1.0, clip**2 / (2 * positive("epsilon", epsilon)), clip)
