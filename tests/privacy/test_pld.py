"""Losses on a grid are those of dp-accounting, whose private attributes are read: a version that moves them fails here."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from numpy.testing import assert_allclose

from mpmtl_prob.privacy.accounting.composition import profile
from mpmtl_prob.privacy.mechanisms.gaussian import Gaussian
from mpmtl_prob.privacy.mechanisms.loss_distributions import gaussian_loss, pure_loss, two_point_loss
from mpmtl_prob.privacy.mechanisms.pld import LossDistribution, on_grid
from mpmtl_prob.privacy.mechanisms.quantile import Quantile

LOSSES, STEP = {-2: 0.1, 0: 0.3, 3: 0.5}, 0.25
ROUNDED = privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability


@pytest.fixture(scope="module")
def lopsided():
    """remove: losses -0.5, 0, 0.75 and infinity; add: others."""
    return ROUNDED(LOSSES, 0.1, STEP, True, {-1: 0.6, 2: 0.4}, 0.0, symmetric=False)


def test_both_directions_are_those_that_went_in(lopsided):
    both = LossDistribution.of(lopsided)
    assert (both.interval, both.pessimistic) == (STEP, True)
    assert (both.remove.first, both.remove.infinite) == (-2, 0.1)
    loss, mass = both.remove.masses(STEP)
    assert_allclose(loss[:-1], STEP * np.arange(-2, 4))
    assert np.isinf(loss[-1])
    assert_allclose(mass, [0.1, 0.0, 0.3, 0.0, 0.0, 0.5, 0.1])
    assert_allclose(both.add.masses(STEP)[1], [0.6, 0.0, 0.0, 0.4, 0.0])


def test_there_and_back_delta_is_the_same(lopsided):
    again = LossDistribution.of(lopsided).to_dp_accounting()
    for epsilon in (0.0, 0.4, 1.0):
        assert again.get_delta_for_epsilon(epsilon) == pytest.approx(lopsided.get_delta_for_epsilon(epsilon), abs=1e-15)
        worse = max(
            float(np.sum(mass * np.maximum(1 - np.exp(epsilon - loss), 0)))
            for loss, mass in (one.masses(STEP) for one in LossDistribution.of(lopsided)[:2])
        )
        assert again.get_delta_for_epsilon(epsilon) == pytest.approx(worse, abs=1e-12)


def test_a_loss_alike_in_both_directions_is_one_object():
    for distribution in (gaussian_loss(0.5, 0.01), pure_loss(1.0, 0.01)):
        assert distribution.remove is distribution.add
        again = LossDistribution.of(distribution.to_dp_accounting())
        assert again.remove is again.add
        assert_allclose(again.add.mass, distribution.add.mass, rtol=0, atol=0)


@pytest.mark.parametrize("pessimistic", [True, False])
def test_losses_of_few_values_are_those_of_dp_accounting(pessimistic):
    likely, up = 1 / (1 + np.exp(-1.03)), np.ceil if pessimistic else np.floor
    low, high = int(up(-1.03 / STEP)), int(up(1.03 / STEP))
    theirs = LossDistribution.of(ROUNDED({low: 1 - likely, high: likely}, 0.0, STEP, pessimistic))
    ours = pure_loss(1.03, STEP, pessimistic)
    assert ours.add.first == theirs.add.first
    assert_allclose(ours.add.mass, theirs.add.mass, rtol=1e-15)
    two = ROUNDED({high: 1.0}, 0.0, STEP, pessimistic, {low: 0.7}, 0.3, symmetric=False)
    for own, other in zip(two_point_loss(1.03, 0.3, STEP, pessimistic)[:2], LossDistribution.of(two)[:2], strict=True):
        assert (own.first, own.infinite) == (other.first, other.infinite)
        assert_allclose(own.mass, other.mass, rtol=1e-15)


def test_probabilities_are_never_below_zero():
    assert_allclose(on_grid(3, np.array([0.5, -1e-17, 0.25]), 0.25).mass, [0.5, 0.0, 0.25], rtol=0, atol=0)


def test_a_mechanism_may_bring_a_distribution_of_dp_accounting():
    class Theirs(Quantile):
        def loss_distribution(self, adjacency, *, interval=None, pessimistic=True):
            return super().loss_distribution(adjacency, interval=interval, pessimistic=pessimistic).to_dp_accounting()

    other = Gaussian(2, 5.0)
    ours, theirs = (profile((kind(0.5), other), "zero_out") for kind in (Quantile, Theirs))
    for epsilon in (0.1, 0.5, 1.0):
        assert theirs.delta(epsilon) == ours.delta(epsilon)
