"""The filter: a bound for budgets that are chosen by looking, against the best that anybody can do by looking."""

from functools import lru_cache

import numpy as np
import pytest
from helpers.effort import effort
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.special import expit, ndtri

from mpmtl_prob.privacy import Gaussian, PaperWishart, Quantile, VectorLaplace, Wishart, compute_delta, compute_epsilon
from mpmtl_prob.privacy.accounting.filters import adaptive_epsilon
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian

UNIT = 0.1


def best_by_looking(eps, allowed):
    """The largest delta(eps) that an adversary can reach who picks each charge by the losses so far, by exhaustion.

    A charge is a randomised response that loses 1 or 3 units, up or down; ``allowed(n, k)`` says whether n of the first
    kind and k of the second may have been charged.
    """

    @lru_cache(None)
    def value(n, k, units):
        best = max(-np.expm1(min(eps - units * UNIT, 0.0)), 0.0)  # to stop here
        for size, more in ((1, (n + 1, k)), (3, (n, k + 1))):
            if allowed(*more):
                likely = 1 / (1 + np.exp(-size * UNIT))
                best = max(best, likely * value(*more, units + size) + (1 - likely) * value(*more, units - size))
        return best

    return value(0, 0, 0)


@pytest.mark.parametrize(("eps", "delta"), [(1.0, 1e-2), (1.5, 1e-3), (0.6, 0.1)])
def test_nobody_gets_past_the_filter_by_looking(eps, delta):
    laws = Quantile(UNIT), Quantile(3 * UNIT)

    @lru_cache(None)
    def reading(n, k):
        return adaptive_epsilon((laws[0],) * n + (laws[1],) * k, eps, delta, "replace")

    assert 0 < best_by_looking(eps, lambda n, k: reading(n, k) <= eps) <= delta
    # control: whoever is let through with three times as much does get past
    assert best_by_looking(eps, lambda n, k: reading(n // 3, k // 3) <= eps) > delta


@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
@pytest.mark.parametrize(
    "laws",
    [
        (Gaussian(3, 20.0),) * 10,
        (Wishart(3, 6146.0, 0.313),) * 5,  # calibrated for (.1, 1e-4)
        (Wishart(3, 10.5, 21.8),) * effort(1, 3),  # and so with as few degrees of freedom as will do
        (PaperWishart(3, 1e-5),) * 8,
        (VectorLaplace(3, 0.05, 1.0),) * 5,
        (Quantile(0.05), Gaussian(3, 30.0), Wishart(3, 200.0, 30.0), VectorLaplace(3, 0.05, 1.0)),
    ],
    ids=["gaussian", "many degrees", "few degrees", "papers", "vectors", "mixture"],
)
def test_the_filter_reads_a_finite_eps_above_composition(laws, adjacency):
    """The filter reads more than composition does, and a finite number."""
    epsilon = adaptive_epsilon(laws, 1.0, 1e-3, adjacency)
    assert compute_epsilon(1e-3, laws, adjacency) < epsilon < 1.0
    assert epsilon < adaptive_epsilon((*laws, laws[0]), 1.0, 1e-3, adjacency)
    assert adaptive_epsilon((), 1.0, 1e-3, adjacency) == 0.0


@pytest.mark.parametrize(("adjacency", "sensitivity"), [("zero_out", 1.0), ("replace", np.sqrt(2))])
def test_for_gaussian_noise_it_is_the_renyi_filter(adjacency, sensitivity):
    """R = alpha (alpha - 1) rho with rho = mu^2 / 2, and no loss worth cutting."""
    eps, delta, sd, rounds = 1.0, 1e-3, 25.0, 30
    rho = rounds * (sensitivity / (np.sqrt(2) * sd)) ** 2 / 2
    alpha = 1 + np.geomspace(1e-2, 1e6, 4001)
    log_c = (alpha - 1) * np.log1p(-1 / alpha) - np.log(alpha)
    rest = (log_c - np.log(0.8 * delta)) / (alpha - 1)
    best = np.argmax((eps - rest) / alpha)
    exact = alpha[best] * rho + rest[best]
    filtered = adaptive_epsilon((Gaussian(3, sd),) * rounds, eps, delta, adjacency)
    assert_allclose(filtered, exact, rtol=1e-4)
    assert filtered > exact


def test_an_infinite_loss_is_paid_from_its_own_share_of_delta():
    """The papers' noise: nothing finite holds below 1 - exp(-eps) for every round."""
    laws = (PaperWishart(3, 1e-5),)
    assert np.isfinite(adaptive_epsilon(laws * 19, 1.0, 1e-3, "replace"))
    assert np.isinf(adaptive_epsilon(laws * 21, 1.0, 1e-3, "replace"))


def test_a_gaussian_filter_suits_gaussians_and_nothing_else():
    """A filter that adds mu^2 is wide for other noise: a pure charge counts there as Gaussian noise that dominates it.

    The least favourable test of a randomised response is right with probability p = e^eps / (1 + e^eps), that of Gaussian
    noise with Phi(mu / 2): mu = 2 Phi^-1(p), and as trade-off curves are convex, that is enough.
    """
    budget = brentq(lambda mu: delta_gaussian(1.0, mu) - 1e-3, 0.1, 1.0) ** 2

    def let_through(law, mu):
        at_most = range(1, 100)
        by_this = sum(adaptive_epsilon((law,) * n, 1.0, 1e-3, "replace") <= 1.0 for n in at_most)
        composed = sum(compute_delta(1.0, (law,) * n) <= 1e-3 for n in range(1, 40))
        return by_this, int(budget / mu**2), composed

    gaussian = Gaussian(3, 1 / 0.063)
    assert let_through(gaussian, gaussian.mu("replace")) == (28, 38, 38)
    assert let_through(Quantile(0.1), 2 * ndtri(expit(0.1))) == (13, 9, 16)
