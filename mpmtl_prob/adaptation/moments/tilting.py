"""Importance weights of source records for covariate shift, by noise-aware matching of a private target's moments.

The weights follow from a release and cost no further privacy. The model is that p_t(x, y) is proportional to
p_s(x, y) exp(theta'phi(x, y)) (exponential tilting), so that public record i has weight q_i = softmax(theta'phi_i). The
features phi are the entries of v v', whose noisy mean z is in the release:

    theta ~ N(0, t^2 I),    z | theta ~ N(sum q_i phi_i, Cov(phi) / n + noise)

theta = 0 leaves the source unchanged. Where the target is outside the source's support, few records carry all weight. Look at
``records``, the effective sample size, before use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.moments.release import MomentRelease, rows


class Tilted(NamedTuple):
    """Importance weights of the source's records.

    Attributes:
        weights: q at the posterior mode, which sum to 1, (m,).
        draws: draws of q by a Laplace approximation, (S, m).
        records: effective sample size, 1 / sum q^2.
    """

    weights: FloatArray
    draws: FloatArray
    records: float


def tilted(
    release: MomentRelease, source: Domain, *, scale: float = 1.0, draws: int = 300, seed: int = 0, steps: int = 50
) -> Tilted:
    """Compute importance weights of public records from a release of features, with or without targets.

    Args:
        release: public.
        source: public.
        scale: t, in units in which every phi has sd 1 over the source.
        draws: number of draws of the weights.
        seed: of the draws.
        steps: largest number of Gauss-Newton steps.
    """
    t2, n = positive("scale", scale) ** 2, max(release.num_records, 1)
    v = rows(source, release.centre, release.residual_bound, release.row_bound, 2.0**-40)
    i, j = np.tril_indices(v.shape[1])
    phi, z = v[:, i] * v[:, j], release.sigma[i, j] / n
    spread = np.maximum(phi.std(axis=0), 1e-6)
    middle = phi.mean(axis=0)
    phi, z = (phi - middle) / spread, (z - middle) / spread
    noise = (release.sd * np.where(i == j, np.sqrt(2.0), 1.0) / n / spread) ** 2
    theta = np.zeros(len(z))

    def mean(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        score = phi @ theta
        q = np.exp(score - score.max())
        q /= q.sum()
        m = q @ phi
        return q, m, (phi * q[:, None]).T @ phi - np.outer(m, m)

    # The precision of z, evaluated at theta = 0 and then fixed, so that the objective does not change between steps.
    precision = np.linalg.inv(mean(theta)[2] / n + np.diag(noise + 1e-12))

    def objective(theta: FloatArray) -> float:
        off = z - mean(theta)[1]
        return float(off @ precision @ off + theta @ theta / t2) / 2

    for _ in range(whole("steps", steps)):
        _, m, C = mean(theta)
        hessian = C @ precision @ C + np.eye(len(z)) / t2
        step = np.linalg.solve(hessian, C @ precision @ (z - m) - theta / t2)
        length, before = 1.0, objective(theta)
        while objective(theta + length * step) > before and length > 1e-4:
            length /= 2
        theta = theta + length * step
        if np.linalg.norm(length * step) < 1e-8 * (1 + np.linalg.norm(theta)):
            break
    values, Q = np.linalg.eigh(hessian)
    rng = np.random.default_rng(seed)
    around = theta + (rng.standard_normal((whole("draws", draws), len(z))) / np.sqrt(values)) @ Q.T
    q = mean(theta)[0]
    return Tilted(q, np.stack([mean(draw)[0] for draw in around]), float(1 / np.sum(q**2)))
