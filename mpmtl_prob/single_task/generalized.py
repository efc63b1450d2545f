"""Generalized linear model of one task: estimates of the coefficients, and how far the rows determine each, for messages.

    targets y given linear predictors  o + X beta,    o known,    beta ~ N(0, u I)

The mode b and the curvature H = X' diag(curvature) X + I / u of the log posterior exist for all rows, even with one label
only, without any event, or with a column that separates the labels. Near the mode, the likelihood of coefficient j, with the
others integrated out, is normal with mean b_j / s_j and precision q_j = s_j / (u (1 - s_j)). Here s_j = 1 - (H^-1)_jj / u is
the share by which the rows reduce the prior variance. With the prior N(0, v) in place of N(0, u) the estimate is

    eta_j = p_j b_j / s_j,     p_j = v q_j / (1 + v q_j),     E[eta_j | beta] = p_j beta_j,     Var = v p_j (1 - p_j)

as for Gaussian targets (:mod:`mpmtl_prob.single_task.shrunk`), where the two agree. The mode under N(0, v I) itself would
stay near the declared baseline, on which the curvatures depend, and so the errors of the approximation. The value u = 1 was
chosen from 1, 4 and 16 by simulations of logistic regressions with events in 1 to 50 per cent of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.single_task.families import Families, Family
from mpmtl_prob.single_task.shrunk import Shrunk

_WEAK = 1.0  # u
_NEWTON, _HALVINGS, _TOLERANCE = 100, 40, 1e-10


class Predictors(NamedTuple):
    """Rows of one task for a generalized linear model, in common units.

    Attributes:
        X: (n, d).
        y: targets in the coding of the likelihood, (n,).
        offset: o, (n,).
        weights: weights of the rows, (n,).
    """

    X: FloatArray
    y: FloatArray
    offset: FloatArray
    weights: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    def log_likelihood(self, law: Family, predictor: FloatArray) -> FloatArray:
        """Return the log likelihood of linear predictors (..., n), summed over rows, (...,)."""
        out: FloatArray = law.log_density(self.y, predictor) @ self.weights
        return out


class Mode(NamedTuple):
    """Posterior mode, with the Laplace approximation there.

    Attributes:
        at: the mode, (d,).
        curvature: H, (d, d).
        log_evidence: log evidence by the Laplace approximation.
    """

    at: FloatArray
    curvature: FloatArray
    log_evidence: float

    def __repr__(self) -> str:
        return shown(self)


def mode(rows: Predictors, law: Family, prior_variance: float = _WEAK) -> Mode:
    """Find the mode under N(0, u I) by Newton's method, with steps halved where necessary.

    Raises:
        LinAlgError: a step cannot be computed.
    """
    X, y, offset, weights = rows
    d = X.shape[1]
    prior = np.eye(d) / prior_variance

    def height(beta: FloatArray) -> float:
        return float(rows.log_likelihood(law, offset + X @ beta) - 0.5 * beta @ beta / prior_variance)

    def bend(beta: FloatArray) -> FloatArray:
        return (X.T * (weights * law.curvature(y, offset + X @ beta))) @ X + prior

    beta = np.zeros(d)
    now = height(beta)
    for _ in range(_NEWTON):
        gradient = X.T @ (weights * law.slope(y, offset + X @ beta)) - beta / prior_variance
        step = np.linalg.solve(bend(beta), gradient)
        size, rise = 1.0, float(gradient @ step)
        for _ in range(_HALVINGS):
            reached = height(beta + size * step)
            if reached >= now + 1e-4 * size * rise - 1e-12 * abs(now):  # false for nan
                break
            size /= 2
        else:
            break
        beta, now = beta + size * step, reached
        if rise < _TOLERANCE:
            break
    H = bend(beta)
    log_evidence = now - 0.5 * (np.linalg.slogdet(H)[1] + d * np.log(prior_variance))
    return Mode(beta, H, float(log_evidence))


def law_weights(modes: list[Mode], families: Families) -> FloatArray:
    """Return the posterior probability of every likelihood, by its evidence, (A,)."""
    log = families.log_prior + np.array([fit.log_evidence for fit in modes])
    weight: FloatArray = np.exp(log - log.max())
    return weight / weight.sum()


def generalized_estimate(rows: Predictors, families: Families, prior_variance: float) -> Shrunk:
    """Estimate one task's coefficients under N(0, v I), averaged over the likelihoods by their evidence.

    Args:
        rows: rows of the task, in common units.
        families: possible likelihoods of its targets.
        prior_variance: v, public.

    Returns:
        Estimates; zeros for a task whose numbers leave double precision, as for a task without information.
    """
    nothing = Shrunk(np.zeros(rows.X.shape[1]), np.zeros(rows.X.shape[1]))
    with np.errstate(all="ignore"):  # a warning would reveal one task
        try:
            modes = [mode(rows, law) for law in families.laws]
            weight = law_weights(modes, families)
            pairs = [_marginal(fit, prior_variance) for fit in modes]
        except np.linalg.LinAlgError:  # an error would reveal one task's rows to others
            return nothing
        estimate = sum(w * pair.estimate for w, pair in zip(weight, pairs, strict=True))
        determined = sum(w * pair.determined for w, pair in zip(weight, pairs, strict=True))
    if not (np.isfinite(estimate).all() and np.isfinite(determined).all()):
        return nothing
    return Shrunk(np.asarray(estimate), np.clip(determined, 0.0, 1.0))


def _marginal(fit: Mode, prior_variance: float) -> Shrunk:
    """Return the estimate and the determined share of every coefficient under N(0, v) in place of N(0, u)."""
    share = np.clip(1 - np.diag(np.linalg.inv(fit.curvature)) / _WEAK, 0.0, 1.0)
    factor = prior_variance / (_WEAK * (1 - share) + prior_variance * share)  # p / s
    return Shrunk(factor * fit.at, factor * share)
