"""Private attributes of dp-accounting: they agree with its public side, and a version that moves them fails here."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from numpy.testing import assert_allclose

from mpmtl_prob.privacy.mechanisms import pld

LOSSES, STEP = {-2: 0.1, 0: 0.3, 3: 0.5}, 0.25


@pytest.fixture(scope="module")
def lopsided():
    """remove: losses -0.5, 0, 0.75 and infinity; add: others."""
    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        LOSSES, 0.1, STEP, True, {-1: 0.6, 2: 0.4}, 0.0, symmetric=False
    )


def test_directions_and_masses_are_those_that_went_in(lopsided):
    remove, add = pld.directions(lopsided)
    loss, mass = pld.masses(remove)
    assert_allclose(loss[:-1], STEP * np.arange(-2, 4))
    assert np.isinf(loss[-1])
    assert_allclose(mass, [0.1, 0.0, 0.3, 0.0, 0.0, 0.5, 0.1])
    assert_allclose(pld.masses(add)[1], [0.6, 0.0, 0.0, 0.4, 0.0])


def test_masses_give_the_delta_that_dp_accounting_gives(lopsided):
    for epsilon in (0.0, 0.4, 1.0):
        worse = max(
            float(np.sum(mass * np.maximum(1 - np.exp(epsilon - loss), 0)))
            for loss, mass in map(pld.masses, pld.directions(lopsided))
        )
        assert lopsided.get_delta_for_epsilon(epsilon) == pytest.approx(worse, abs=1e-12)


def test_cells_are_masses_on_whole_numbers_and_never_below_zero(lopsided):
    remove = pld.directions(lopsided)[0]
    first, mass, infinite = pld.cells(remove)
    assert (first, infinite) == (-2, 0.1)
    assert_allclose(mass, [0.1, 0.0, 0.3, 0.0, 0.0, 0.5])
    below = pld.on_grid(3, np.array([0.5, -1e-17, 0.25]), 0.25, STEP, True)
    assert_allclose(pld.cells(below)[1], [0.5, 0.0, 0.25], rtol=0, atol=0)
