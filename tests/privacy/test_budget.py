"""The papers' budgets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpmtl_prob.privacy import composition_bound, schedule


def test_the_bound_is_the_least_of_the_papers_three():
    """The bound is the least of the three that the papers print."""
    eps, delta = np.full(30, 0.05), 1e-3
    base = np.sum(eps * (np.exp(eps) - 1) / (np.exp(eps) + 1))
    square = np.sum(eps**2)
    expected = min(
        eps.sum(),
        base + np.sqrt(2 * square * np.log(1 / delta)),
        base + np.sqrt(2 * square * np.log(np.e + np.sqrt(square) / delta)),
    )
    assert composition_bound(eps, delta) == pytest.approx(expected, rel=1e-12)
    assert composition_bound(eps, 0.0) == pytest.approx(eps.sum())


@settings(max_examples=100, deadline=None)
@given(epsilon=st.floats(1e-3, 50), delta=st.floats(0, 0.5), rounds=st.integers(1, 60), alpha=st.floats(-0.9, 2.0))
def test_a_schedule_spends_its_budget_and_no_more(epsilon, delta, rounds, alpha):
    budgets = schedule(epsilon, delta, rounds, alpha=alpha)
    assert epsilon * (1 - 1e-9) < composition_bound(budgets, delta) <= epsilon
    assert np.allclose(budgets / budgets[0], np.arange(1, rounds + 1) ** alpha)


def test_a_geometric_schedule_grows_by_one_over_q():
    budgets = schedule(2.0, 1e-3, 10, q=0.8)
    assert np.allclose(budgets[1:] / budgets[:-1], 1 / 0.8)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0.0, 0.1, 3), "epsilon"), ((1.0, 1.0, 3), "delta"), ((1.0, 0.1, 0), "rounds"), ((1.0, 0.1, 1.5), "rounds")],
)
def test_a_bad_argument_is_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        schedule(*arguments)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"alpha": np.nan}, "alpha"),
        ({"alpha": 400.0}, "alpha"),
        ({"q": 0.0}, "q"),
        ({"q": 1e-9}, "q"),
        ({"q": 1e9}, "q"),
    ],
)
def test_a_growth_for_which_budgets_leave_the_doubles_is_named(options, name):
    """Budgets of 0 or NaN went on to the mechanisms."""
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        schedule(1.0, 0.1, 40, **options)


@pytest.mark.parametrize(
    ("epsilons", "delta", "name"),
    [([1.0, -0.5], 0.1, "epsilons"), ([np.nan], 0.1, "epsilons"), ([1.0], 1.5, "delta"), ([1.0], -0.1, "delta")],
)
def test_a_bound_of_no_budgets_is_refused(epsilons, delta, name):
    """A negative budget lowered the bound, and a delta outside [0, 1) gave a number or NaN."""
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        composition_bound(epsilons, delta)


def test_rounds_that_spend_nothing_cost_nothing():
    assert composition_bound([0.0, 0.0], 0.1) == 0.0
