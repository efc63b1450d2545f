"""Tracing scores for membership inference: correlations of noisy means with a person's answers, for an attacker who knows p.

T is the score of a person who took part, T' that of the same person if a new person had taken part instead. E T' = 0. Privacy
keeps E T small, while accuracy makes the sum over all people large. The lower bounds on errors follow from this conflict.

The guarantee allows, with |T| <= B,

    E T <= sinh(eps) E|T'| + (1 + e^-eps) delta B,

from the positive and the negative part of T separately. The paper's 2 eps sd(T') + 2 delta B follows up to eps = 2.17.

Accuracy forces, with the sum over EVERY person whose answers are in the estimates (Lemma B.3, an identity for any estimate),

    E sum_i T_i = sum_j (1/3 + E p^_j^2 - E (p^_j - p_j)^2)      for p ~ U[-1, 1].

The estimate of person l contains l's own answers. So in the sum of the scores that all others see, the own term is missing.
Theorem 4.6 and Lemma B.4 overlook this term: if everybody answers x / 3, no score is above 0, and yet
"t / 3 - sum of errors" is t / 9.

Source: Aliakbarpour et al. (2024), Theorems 4.6 and 4.7, Lemmas 5.8, B.1 to B.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob.threat_models.problems import at_most_one


def mean_score(estimates: ArrayLike, p: ArrayLike, x: ArrayLike) -> FloatArray:
    """Compute T = sum_j (p^_j - p_j)(x_j - p_j) over the numbers that are seen, (..., k): (...)."""
    p = np.asarray(p, dtype=np.float64)
    return np.sum((np.asarray(estimates) - p) * (np.asarray(x) - p), axis=-1)


def sign_score(signs: ArrayLike, p: ArrayLike, x: ArrayLike, spread: float) -> FloatArray:
    """Compute T = sum_j r_j s_j (x_j - p_j), r_j = (spread^2 - p_j^2) / (1 - p_j^2), over the signs that are seen: (...)."""
    p = np.asarray(p, dtype=np.float64)
    return np.sum(weights(p, spread) * np.asarray(signs) * (np.asarray(x) - p), axis=-1)


def weights(p: ArrayLike, spread: float) -> FloatArray:
    """Compute the weights r_j of the score of signs, for p ~ U[-spread, spread]; 1 for spread 1."""
    p = np.asarray(p, dtype=np.float64)
    return np.ones_like(p) if at_most_one("spread", spread) == 1 else (spread**2 - p**2) / (1 - p**2)


def largest(seen: int, spread: float | None = None) -> float:
    """Return B, the largest possible score: 4 per clipped mean, 2 spread^2 per sign."""
    return float(seen * (4 if spread is None else 2 * spread**2))


def outside_variance(estimates: ArrayLike, p: ArrayLike) -> FloatArray:
    """Compute Var T' given the estimates, sum_j (p^_j - p_j)^2 (1 - p_j^2): (...). The paper has 4 instead of 1 - p^2."""
    p = np.asarray(p, dtype=np.float64)
    return np.sum((np.asarray(estimates) - p) ** 2 * (1 - p**2), axis=-1)


def forced(estimates: ArrayLike, p: ArrayLike) -> FloatArray:
    """Compute sum_j (1/3 + p^_j^2 - (p^_j - p_j)^2), (...), whose mean is that of the sum of all scores, for p ~ U[-1, 1]."""
    e, p = np.asarray(estimates, dtype=np.float64), np.asarray(p, dtype=np.float64)
    return np.sum(1 / 3 + e**2 - (e - p) ** 2, axis=-1)


def own_term(estimates: ArrayLike, p: ArrayLike, own: ArrayLike) -> FloatArray:
    """Compute sum_l (p^_l - p_l)(x_l - p_l) with each person's own answer to their own question, (...).

    The scores that all others see add up to :func:`forced` minus this term.
    """
    return mean_score(estimates, p, own)


def allowed(epsilon: float, delta: float, outside: float, bound: float) -> float:
    """Compute the largest E T that the guarantee allows: sinh(eps) E|T'| + (1 + e^-eps) delta B.

    Args:
        epsilon: of the claim.
        delta: of the claim.
        outside: E|T'|.
        bound: B.
    """
    return float(np.sinh(epsilon) * outside + (1 + np.exp(-epsilon)) * delta * bound)


def implied_epsilon(inside: float, outside: float, delta: float, bound: float) -> float:
    """Compute the least eps that allows a mean score: asinh((E T - 2 delta B) / E|T'|), at least 0."""
    return float(np.arcsinh(max(inside - 2 * delta * bound, 0.0) / positive("outside", outside)))


def closed_form(seen: int, num_people: int, sd: float) -> tuple[float, float, float]:
    """Compute E T, sd(T') and the approximate AUC of the score, for unclipped means and p ~ U[-1, 1].

    Args:
        seen: k.
        num_people: t.
        sd: s, of the noise.
    """
    in_range("sd", sd, 0, np.inf, left_closed=True)
    mean = 2 * seen / (3 * num_people)
    spread = np.sqrt(seen * (8 / (15 * num_people) + 2 * sd**2 / 3))
    return float(mean), float(spread), float(ndtr(mean / (np.sqrt(2) * spread)))
