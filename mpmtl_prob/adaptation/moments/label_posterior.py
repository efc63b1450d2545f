"""An approximate posterior of a private classifier: what the noisy gradients of its descent say of the target's weights.

With logistic loss no finite sum says all there is of the records, and what left the room are noisy gradients at public points
w_0..w_{T-1}. If the target's labels follow weights theta, and its rows are like the source's, their mean over the steps is

    g | theta ~ N(n E[x a(x, y)], n Cov(x a(x, y)) + s^2 I / T),  y | x, theta Bernoulli,  x of the source
    theta | tau ~ N(w_s, V_s + tau^2 I / d),                        tau ~ half-Cauchy

with n^2 / m of the covariance of E[x a | x] besides, as the source's m rows are a sample too. a(x, y) is the mean over the
steps of a record's slope, trimming included, w_s and V_s are the logistic fit to the source and its covariance, and s is the
noise's sd. Laplace's approximation of theta for every tau on a grid, weighted by its evidence.

It is approximate in two ways: theta's law given tau is replaced by a normal one, and rows of the target that are unlike the
source's make weights and intervals wrong, without a sign of it.
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
    """Draws of the weights of a private classifier of two classes; approximate, and public.

    Attributes:
        w: weights, (S, d).
        tau: how far they are from the source's, (S,).
    """

    w: FloatArray
    tau: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Of w, (d,)."""
        return self.w.mean(axis=0)

    def interval(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals of the weights, a pair of (d,)."""
        return between(self.w, probability)

    def probabilities(self, X: ArrayLike, probability: float = 0.9) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of the second of ``classes_`` at rows X: its mean and a central interval, (n,) each."""
        p = expit(self.w @ np.asarray(X, dtype=np.float64).T)
        return p.mean(axis=0), *between(p, probability)


def approximate_posterior(
    model: NCnvxAdap, source: Any, *, shift_scale: float | None = None, draws: int = 300, seed: int = 0
) -> ApproximatePosterior:
    """The posterior of a target's weights given what a private descent let out: post-processing, and free.

    Args:
        model: fitted with noise, of two classes and variant "profiled".
        source: the public records of the fit.
        shift_scale: median of tau, in units of weights; default where the shift moves log odds by about 1.
        draws: independent.
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
    told = _told(model, records.X, answers)
    centre = public_fit(loss, records)
    curvature = expit(records.X @ centre) * expit(-records.X @ centre)
    V = np.linalg.inv((records.X.T * curvature) @ records.X + np.eye(len(centre)) / loss.weight_bound**2)
    width = float(np.sqrt(np.mean(records.X**2)))
    scale = 1 / max(width, 1e-6) if shift_scale is None else positive("shift_scale", shift_scale)
    taus, d = scale * TAUS, len(centre)
    found: list[_Normal] = []
    for tau in taus:  # each from where the one before stopped
        found.append(_laplace(told, centre, V + tau**2 * np.eye(d) / d, found[-1].mean if found else centre))
    log_weight = np.array([each.log_evidence for each in found]) + np.log(TAUS / (1 + TAUS**2))
    weight = np.exp(log_weight - log_weight.max())
    rng = np.random.default_rng(seed)
    pick = rng.choice(len(taus), size=draws, p=weight / weight.sum())
    z = rng.standard_normal((draws, d))
    w = np.array(
        [found[k].mean + np.linalg.cholesky(found[k].covariance) @ each for k, each in zip(pick, z, strict=True)]
    )
    return ApproximatePosterior(w, taus[pick])


class _Told(NamedTuple):
    """g with n and s^2 / T, and of the source's rows X (m, d) the mean slopes a(x, y) for both labels (m,)."""

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


def _told(model: NCnvxAdap, X: FloatArray, answers: Any) -> _Told:
    steps = len(answers.private)
    slopes = []
    for y in (1.0, -1.0):
        total, labels = np.zeros(len(X)), np.full(len(X), y)
        for w in answers.w[:-1]:
            kept = model.loss_.values(w, X, labels) < model.lambda_1  # as profile_slope has it
            total += kept * model.loss_.slopes(w, X, labels)[:, 0]
        slopes.append(total / steps)
    return _Told(answers.private.mean(axis=0), model.num_records_, model.noise_sd_**2 / steps, X, *slopes)


def _mean(told: _Told, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of g, (d,), and of a(x, y) for every row, (m,), with probabilities p of the second class."""
    first = p * told.plus + (1 - p) * told.minus
    return told.n * (told.X.T @ first) / len(p), first


def _moments(told: _Told, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean of g, its covariance and the mean's derivative by theta, of rows like X."""
    p, m, n = expit(told.X @ theta), len(told.X), told.n
    mean, first = _mean(told, p)
    second = p * told.plus**2 + (1 - p) * told.minus**2
    square = (1 + n / m) * np.outer(mean, mean) / max(n, 1)
    # n times the covariance, and n^2 / m times that of the source's rows, which are a sample as well
    C = n / m * (told.X.T * (second + n / m * first**2)) @ told.X - square
    slope = n / m * (told.X.T * (p * (1 - p) * (told.plus - told.minus))) @ told.X
    return mean, C + told.noise * np.eye(len(theta)), slope


def _laplace(told: _Told, centre: FloatArray, V: FloatArray, theta: FloatArray) -> _Normal:
    """Gauss and Newton's method, with steps halved until they descend."""
    P = np.linalg.inv(V)
    R = _moments(told, theta)[1]

    def objective(theta: FloatArray) -> float:
        off, step = told.g - _mean(told, expit(told.X @ theta))[0], theta - centre
        return float(off @ np.linalg.solve(R, off) + step @ P @ step) / 2

    for _ in range(_ROUNDS):
        mean, R, J = _moments(told, theta)
        H = J.T @ np.linalg.solve(R, J) + P
        step = np.linalg.solve(H, J.T @ np.linalg.solve(R, told.g - mean) - P @ (theta - centre))
        length, before = 1.0, objective(theta)
        while objective(theta + length * step) > before and length > 1e-4:
            length /= 2
        theta = theta + length * step
        if np.linalg.norm(length * step) < 1e-8 * (1 + np.linalg.norm(theta)):
            break
    log_R, log_V, log_H = (np.linalg.slogdet(each)[1] for each in (R, V, H))
    return _Normal(theta, np.linalg.inv(H), -objective(theta) - (log_R + log_V + log_H) / 2)
