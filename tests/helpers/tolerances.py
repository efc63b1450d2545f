"""Tolerances: how seldom a test of what is true may fail, on any machine and from any seed; and what draws are worth."""

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy import stats

#: Probability that one assertion fails though all is right; of 60 ranks by chi-squared's law, 7e-7.
RARE = 1e-7
#: Number of standard errors that a right result may be off; more are rarer still: 2e-9.
FAR = 6.0


def surprise(one, other):
    """Compute how rarely two sets of draws of one law are as far apart: Kolmogorov and Smirnov, by what draws are worth.

    Draws are (chains, draws), or (draws,) where they are independent.
    """
    x, y = (np.sort(np.ravel(each)) for each in (one, other))
    both = np.concatenate([x, y])
    gap = np.abs(np.searchsorted(x, both, "right") / x.size - np.searchsorted(y, both, "right") / y.size).max()
    return float(stats.kstwobign.sf(gap * np.sqrt(1 / (1 / worth(one) + 1 / worth(other)))))


def worth(draws):
    """Return how many independent draws these are worth."""
    draws = np.asarray(draws)
    return min(float(effective_sample_size(draws)), draws.size) if draws.ndim == 2 else draws.size
