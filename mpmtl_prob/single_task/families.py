"""Likelihoods of generalized linear models: binary targets, and counts with or without overdispersion.

    binary   log odds of y = 1:   eta
    count    mean of y:           exp(eta),   variance mean + a mean^2, a the dispersion: Poisson for a = 0

All are log-concave in eta, so that the mode is unique and Newton's method finds it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from mpmtl_prob._util.arrays import FloatArray

#: Grid of dispersions of counts, and their public prior: Poisson with probability .2, the others log-normal with median .3
#: and a factor of three per standard deviation. The prior was not tuned.
DISPERSIONS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_OF_POISSON, _MEDIAN, _FACTOR = 0.2, 0.3, 3.0


class Bernoulli(NamedTuple):
    """Bernoulli likelihood of targets 0 and 1, whose log odds is the linear predictor."""

    def log_density(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the log density of every row (..., n), for targets y (n,) and linear predictors eta (..., n)."""
        out: FloatArray = y * eta - np.logaddexp(0.0, eta)
        return out

    def slope(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the derivative of the log density by eta, (..., n)."""
        out: FloatArray = y - expit(eta)
        return out

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return minus the second derivative of the log density by eta, (..., n), which is never negative."""
        out: FloatArray = expit(eta) * expit(-eta)
        return out


class NegativeBinomial(NamedTuple):
    """Negative binomial likelihood of counts with mean exp(eta) and a dispersion; Poisson if that is 0.

    Attributes:
        dispersion: a, not negative.
    """

    dispersion: float = 0.0

    def log_density(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return the log density of every row, as :meth:`Bernoulli.log_density` does."""
        out: FloatArray
        if self.dispersion == 0:
            out = y * eta - np.exp(eta) - gammaln(y + 1)
            return out
        size = 1 / self.dispersion
        normaliser = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        log_share = eta + np.log(self.dispersion)
        out = normaliser + y * log_share - (y + size) * np.logaddexp(0.0, log_share)
        return out

    def slope(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return its derivative by eta, as :meth:`Bernoulli.slope` does."""
        if self.dispersion == 0:
            return y - np.exp(eta)
        share: FloatArray = expit(eta + np.log(self.dispersion))  # a mean / (1 + a mean)
        return y - (y + 1 / self.dispersion) * share

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return minus its second derivative by eta, as :meth:`Bernoulli.curvature` does."""
        out: FloatArray
        if self.dispersion == 0:
            out = np.exp(eta)
            return out
        log_share = eta + np.log(self.dispersion)
        out = (y + 1 / self.dispersion) * expit(log_share) * expit(-log_share)
        return out


type Family = Bernoulli | NegativeBinomial


class Families(NamedTuple):
    """Possible likelihoods of a task's targets, with prior probabilities.

    Attributes:
        laws: the A likelihoods.
        log_prior: log prior probabilities, (A,).
    """

    laws: tuple[Family, ...]
    log_prior: FloatArray


def _dispersed() -> Families:
    positive = np.array(DISPERSIONS[1:])
    log = -0.5 * (np.log(positive / _MEDIAN) / np.log(_FACTOR)) ** 2
    log += np.log(1 - _OF_POISSON) - np.log(np.exp(log).sum())
    return Families(tuple(map(NegativeBinomial, DISPERSIONS)), np.concatenate([[np.log(_OF_POISSON)], log]))


BERNOULLI = Families((Bernoulli(),), np.zeros(1))
POISSON = Families((NegativeBinomial(),), np.zeros(1))
NEGATIVE_BINOMIAL = _dispersed()
#: Likelihoods that messages assume, by outcome; data owners may assume others for their own models.
OF_OUTCOMES = {"binary": BERNOULLI, "count": NEGATIVE_BINOMIAL}
