"""Approximate posterior of a private classifier's weights, from the noisy gradients of its descent.

Logistic regression has no sufficient statistic of finite size. What was published are noisy gradients at public points
w_0..w_{T-1}. If the target's labels follow weights theta, and its rows are like the source's, their mean over the steps is

    g | theta ~ N(n E[x a(x, y)], n Cov(x a(x, y)) + s^2 I / T),  y | x, theta Bernoulli,  x of the source
    theta | tau ~ N(w_s, V_s + tau^2 I / d),                        tau ~ half-Cauchy

plus n^2 / m times the covariance of E[x a | x], as the source's m rows are a sample too. a(x, y) is the mean over the steps
of a record's slope, trimming included, w_s and V_s are the logistic fit to the source and its covariance, and s is the
noise's sd. Theta has a Laplace approximation for every tau on a grid, weighted by its evidence.

It is approximate in two ways. The distribution of theta given tau is replaced by a normal one. And if the target's rows are
unlike the source's (covariate shift), weights and intervals are wrong, without any warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob.adaptation.data.domain import public_domain
from mpmtl_prob.adaptation.moments.grid_posterior import TAUS
from mpmtl_prob.adaptation.moments.moment_adaptation import between
from mpmtl_prob.adaptation.paper.losses import Logistic
from mpmtl_prob.adaptation.paper.ncnvx import NCnvxAdap, public_fit

_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class ApproximatePosterior:
    """Public draws from the approximate posterior of a private two-class classifier.

    Attributes:
        w: weights, (S, d).
        tau: scale of the shift from the source's weights, (S,).
    """

    w: FloatArray
    tau: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of w, (d,)."""
        return self.w.mean(axis=0)

    def interval(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Compute central intervals of the weights, a pair of (d,)."""
        return between(self.w, probability)

    def probabilities(self, X: ArrayLike, probability: float = 0.9) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute the probability of the second class at rows X: its mean and a central interval, (n,) each."""
        p = expit(self.w @ np.asarray(X, dtype=np.float64).T)
        return p.mean(axis=0), *between(p, probability)


def approximate_posterior(
    model: NCnvxAdap, source: Any, *, shift_scale: float | None = None, draws: int = 300, seed: int = 0
) -> ApproximatePosterior:
    """Compute the posterior of a target's weights from a private descent. It is post-processing, and costs no privacy.

    Args:
        model: a model of two classes, fitted with noise and variant "profiled".
        source: the public records of the fit.
        shift_scale: median of tau, in units of weights; default a scale at which the shift moves log odds by about 1.
        draws: the number of independent draws.
        seed: of the draws.

    Raises:
        ValueError: another model, or an argument outside its range.
    """
    whole("draws", draws)
    public = public_domain("source", source)
    loss, answers = getattr(model, "loss_", None), getattr(model, "answers_", None)
    if not isinstance(loss, Logistic) or answers is None:
        raise ValueError("model: expected an NCnvxAdap fitted with epsilon, variant='profiled' and two classes")
    if public.num_features != len(model.coef_):
        raise ValueError(f"source: expected {len(model.coef_)} features as the model has, got {public.num_features}")
    records = model._coded(public, loss)
    published = _published(model, records.X, answers)
    centre = public_fit(loss, records)
    curvature = expit(records.X @ centre) * expit(-records.X @ centre)
    V = np.linalg.inv((records.X.T * curvature) @ records.X + np.eye(len(centre)) / loss.weight_bound**2)
    width = float(np.sqrt(np.mean(records.X**2)))
    scale = 1 / max(width, 1e-6) if shift_scale is None else positive("shift_scale", shift_scale)
    taus, d = scale * TAUS, len(centre)
    fits: list[_Normal] = []
    for tau in taus:  # every fit starts where the one before stopped
        fits.append(_laplace(published, centre, V + tau**2 * np.eye(d) / d, fits[-1].mean if fits else centre))
    log_weight = np.array([fit.log_evidence for fit in fits]) + np.log(TAUS / (1 + TAUS**2))
    weight = np.exp(log_weight - log_weight.max())
    rng = np.random.default_rng(seed)
    pick = rng.choice(len(taus), size=draws, p=weight / weight.sum())
    z = rng.standard_normal((draws, d))
    w = np.array(
        [fits[k].mean + np.linalg.cholesky(fits[k].covariance) @ noise for k, noise in zip(pick, z, strict=True)]
    )
    return ApproximatePosterior(w, taus[pick])


class _Published(NamedTuple):
    """Mean gradient g with n and s^2 / T, and the mean slopes a(x, y) of the source's rows X (m, d) for both labels (m,)."""

    g: FloatArray
    n: int
    noise: float
    X: FloatArray
    plus: FloatArray
    minus: FloatArray


class _Normal(NamedTuple):
    mean: FloatArray
    covariance: FloatArray
    log_evidence: float


def _published(model: NCnvxAdap, X: FloatArray, answers: Any) -> _Published:
    steps = len(answers.private)
    slopes = []
    for y in (1.0, -1.0):
        total, labels = np.zeros(len(X)), np.full(len(X), y)
        for w in answers.w[:-1]:
            counted = model.loss_.values(w, X, labels) < model.lambda_1  # as profile_slope has it
            total += counted * model.loss_.slopes(w, X, labels)[:, 0]
        slopes.append(total / steps)
    return _Published(answers.private.mean(axis=0), model.num_records_, model.noise_sd_**2 / steps, X, *slopes)


def _mean(published: _Published, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means of g, (d,), and of a(x, y) for every row, (m,), given probabilities p of the second class."""
    first = p * published.plus + (1 - p) * published.minus
    return published.n * (published.X.T @ first) / len(p), first


def _moments(published: _Published, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean of g, its covariance and the mean's derivative by theta, for rows like X."""
    p, m, n = expit(published.X @ theta), len(published.X), published.n
    mean, first = _mean(published, p)
    second = p * published.plus**2 + (1 - p) * published.minus**2
    square = (1 + n / m) * np.outer(mean, mean) / max(n, 1)
    # The covariance is n times that of one record, plus n^2 / m times that of the source's rows, a sample as well.
    C = n / m * (published.X.T * (second + n / m * first**2)) @ published.X - square
    slope = n / m * (published.X.T * (p * (1 - p) * (published.plus - published.minus))) @ published.X
    return mean, C + published.noise * np.eye(len(theta)), slope


def _laplace(published: _Published, centre: FloatArray, V: FloatArray, theta: FloatArray) -> _Normal:
    """Compute the Laplace approximation by the Gauss-Newton method, with steps halved until they descend."""
    P = np.linalg.inv(V)
    R = _moments(published, theta)[1]

    def objective(theta: FloatArray) -> float:
        off, step = published.g - _mean(published, expit(published.X @ theta))[0], theta - centre
        return float(off @ np.linalg.solve(R, off) + step @ P @ step) / 2

    for _ in range(_ROUNDS):
        mean, R, J = _moments(published, theta)
        H = J.T @ np.linalg.solve(R, J) + P
        step = np.linalg.solve(H, J.T @ np.linalg.solve(R, published.g - mean) - P @ (theta - centre))
        length, before = 1.0, objective(theta)
        while objective(theta + length * step) > before and length > 1e-4:
            length /= 2
        theta = theta + length * step
        if np.linalg.norm(length * step) < 1e-8 * (1 + np.linalg.norm(theta)):
            break
    log_R, log_V, log_H = (np.linalg.slogdet(matrix)[1] for matrix in (R, V, H))
    return _Normal(theta, np.linalg.inv(H), -objective(theta) - (log_R + log_V + log_H) / 2)
