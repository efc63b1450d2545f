"""One task's coefficients of a generalized linear model, and how far its rows determine each: what its message says.

    targets y given linear predictors  o + X beta,    o known,    beta ~ N(0, u I)

The mode b and the curvature H = X' diag(curvature) X + I / u of the log posterior there exist whatever the rows: with one
label only, no event at all, or a column that separates the labels. Near the mode, what the rows say of coefficient j, all
others being averaged over, is a normal law with mean b_j / s_j and precision q_j = s_j / (u (1 - s_j)), where
s_j = 1 - (H^-1)_jj / u is the share of its prior variance that the rows have taken away. Under N(0, v) in the place of
N(0, u) that is

    eta_j = p_j b_j / s_j,     p_j = v q_j / (1 + v q_j),     E[eta_j | beta] = p_j beta_j,     Var = v p_j (1 - p_j)

as of numbers (:mod:`mpmtl_prob.single_task.shrunk`), for which the two are the same. A mode under N(0, v I) itself stays
near the declared baseline, on which curvatures and so the errors of the approximation depend; u = 1 was chosen among
1, 4 and 16 by simulations of logistic regressions with events in 1 to 50 per cent of rows.
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
    """One task's rows of a generalized linear model in common units.

    Attributes:
        X: (n, d).
        y: targets as the family takes them, (n,).
        offset: o, (n,).
        weights: how much every row counts, (n,).
    """

    X: FloatArray
    y: FloatArray
    offset: FloatArray
    weights: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    def log_likelihood(self, law: Family, predictor: FloatArray) -> FloatArray:
        """Of linear predictors (..., n), summed over rows, (...,)."""
        out: FloatArray = law.log_density(self.y, predictor) @ self.weights
        return out


class Mode(NamedTuple):
    """Where a log posterior is largest.

    Attributes:
        at: (d,).
        curvature: H, (d, d).
        log_evidence: by Laplace's approximation.
    """

    at: FloatArray
    curvature: FloatArray
    log_evidence: float

    def __repr__(self) -> str:
        return shown(self)


def mode(rows: Predictors, law: Family, prior_variance: float = _WEAK) -> Mode:
    """Find the mode under N(0, u I) by Newton's method with halved steps, which a log-concave density needs at most.

    Raises:
        LinAlgError: numbers with which no step can be made.
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
            if reached >= now + 1e-4 * size * rise - 1e-12 * abs(now):  # false of what is no number
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
    """Return how probable each law is by its evidence, (A,)."""
    log = families.log_prior + np.array([each.log_evidence for each in modes])
    weight: FloatArray = np.exp(log - log.max())
    return weight / weight.sum()


def generalized_estimate(rows: Predictors, families: Families, prior_variance: float) -> Shrunk:
    """Estimate one task's coefficients as under N(0, v I), averaged over laws by their evidence.

    Args:
        rows: of the task, in common units.
        families: laws of its targets.
        prior_variance: v, public.

    Returns:
        Estimates; of a task whose numbers leave double precision zeros, as of one whose rows say nothing.
    """
    nothing = Shrunk(np.zeros(rows.X.shape[1]), np.zeros(rows.X.shape[1]))
    with np.errstate(all="ignore"):  # a warning would tell of one task
        try:
            modes = [mode(rows, law) for law in families.laws]
            weight = law_weights(modes, families)
            pairs = [_marginal(each, prior_variance) for each in modes]
        except np.linalg.LinAlgError:  # an error would tell the others of one task's rows
            return nothing
        estimate = sum(w * own.estimate for w, own in zip(weight, pairs, strict=True))
        determined = sum(w * own.determined for w, own in zip(weight, pairs, strict=True))
    if not (np.isfinite(estimate).all() and np.isfinite(determined).all()):
        return nothing
    return Shrunk(np.asarray(estimate), np.clip(determined, 0.0, 1.0))


def _marginal(found: Mode, prior_variance: float) -> Shrunk:
    """What the rows say of every coefficient by itself, under N(0, v) in the place of N(0, u)."""
    share = np.clip(1 - np.diag(np.linalg.inv(found.curvature)) / _WEAK, 0.0, 1.0)
    factor = prior_variance / (_WEAK * (1 - share) + prior_variance * share)  # p / s
    return Shrunk(factor * found.at, factor * share)
