"""The least noise that keeps a promise."""

import numpy as np
import pytest
from helpers.effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from mpmtl_prob.privacy import PaperWishart, calibrate, calibrate_gaussian, compute_delta, schedule
from mpmtl_prob.privacy.__main__ import cost_table
from mpmtl_prob.releases import release


def test_an_honest_promise_costs_next_to_nothing_up_to_eps_one():
    # School: d = 27, m = 139, delta = 1 / (m log m); fluctuation relative to the papers' noise at the same nominal eps
    epsilons = (0.1, 0.3, 1.0, 3.0, 10.0)
    table = cost_table(27, 1 / (139 * np.log(139)), epsilons, max_shape=96)
    assert np.allclose(table["zero_out"], [0.41, 0.52, 0.66, 0.85, 1.21], atol=0.0075)
    assert np.allclose(table["replace"], [0.52, 0.66, 0.82, 1.02, 1.40], atol=0.0075)
    wider = cost_table(27, 1 / (139 * np.log(139)), epsilons)
    assert np.all(np.array(wider["zero_out"]) < 0.85 * np.array(table["zero_out"]))
    assert np.all(np.array(wider["replace"]) < 0.95 * np.array(table["replace"]))


def test_nothing_to_search_is_named():
    with pytest.raises(ValueError, match=r"max_shape: expected a number >= 1\.5, got 1\.0"):
        calibrate(1.0, 1e-3, 5, max_shape=1.0)


@settings(max_examples=effort(10, 30), deadline=None)
@given(
    epsilon=st.floats(0.05, 8),
    log_delta=st.floats(-16, -2),
    d=st.integers(1, 60),
    rounds=st.sampled_from([1, 1, 4]),
    clip=st.floats(0.1, 10),
    adjacency=st.sampled_from(["replace", "zero_out"]),
)
def test_calibrated_noise_keeps_its_promise_and_spends_it(epsilon, log_delta, d, rounds, clip, adjacency):
    target = np.exp(log_delta)
    law = calibrate(epsilon, target, d, rounds, clip=clip, adjacency=adjacency)
    spent = compute_delta(epsilon, (law,) * rounds, adjacency)
    assert target * (1 - 1e-4) < spent <= target
    gaussian = calibrate_gaussian(epsilon, target, d, rounds, clip=clip, adjacency=adjacency)
    assert target * (1 - 1e-4) < compute_delta(epsilon, (gaussian,) * rounds, adjacency) <= target
    assert (law.clip, law.num_features) == (clip, d)


def test_no_other_shape_on_the_grid_has_less_fluctuation():
    from mpmtl_prob.privacy import Wishart
    from mpmtl_prob.privacy.accounting.calibration import SHAPES

    best = calibrate(1.0, 1e-3, 12)
    for shape in SHAPES:
        smaller = best.operator_norm * 0.999 / Wishart(12, 11 + 2 * shape, 1.0).operator_norm
        assert compute_delta(1.0, Wishart(12, 11 + 2 * shape, smaller)) > 1e-3


def test_a_schedule_scales_noise_inversely_to_each_budget():
    """A schedule gives every round noise that is inverse to its budget."""
    budgets = schedule(1.0, 1e-3, effort(4, 8), alpha=0.4)
    laws = calibrate(1.0, 1e-3, 10, schedule=budgets)
    assert np.allclose(
        [law.scale * budget for law, budget in zip(laws, budgets, strict=True)], laws[0].scale * budgets[0]
    )
    assert 1e-3 * (1 - 1e-4) < compute_delta(1.0, laws) <= 1e-3
    assert calibrate(1.0, 1e-3, 10, schedule=np.ones(2)) == (calibrate(1.0, 1e-3, 10, 2),) * 2


def test_extreme_budgets_are_met():
    for epsilon in effort((1e-3, 1e3), (1e-3, 50.0, 1e3)):
        for rounds in (1, 3):
            law = calibrate(epsilon, 1e-3, 4, rounds)
            assert 1e-3 * (1 - 1e-3) < compute_delta(epsilon, (law,) * rounds) <= 1e-3


@pytest.mark.parametrize(
    ("mechanism", "wanted", "factor"),
    [("wishart", 1e-200, r"\d\.\d*e\+18\d"),
     ("gaussian", 1e-300, "1"), ("gaussian", 5e-324, "2.02")],
)  # fmt: skip
def test_an_unreachable_delta_is_named_with_what_is_possible(mechanism, wanted, factor):
    """A delta that no noise reaches is refused, with the least that is possible."""
    with pytest.raises(ValueError, match=rf"^delta: expected one that is larger by more than a factor of {factor}"):
        release(np.eye(3), 1.0, wanted, mechanism=mechanism)
    possible = 1e-299 if mechanism == "gaussian" else 1e-18
    assert release(np.eye(3), 1.0, possible, mechanism=mechanism).guarantee.proved.delta <= possible


def test_the_papers_noise_never_reaches_a_small_delta():
    assert compute_delta(50.0, PaperWishart(27, 1.0)) > 0.6


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"num_features": 0}, "num_features"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"clip": -1.0}, "clip"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"schedule": []}, "schedule"),
        ({"schedule": [1.0, -1.0]}, "schedule"),
        ({"schedule": [1.0, 1.0], "rounds": 3}, "schedule"),
    ],
)
def test_a_bad_argument_is_named(change, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        calibrate(**({"epsilon": 1.0, "delta": 1e-3, "num_features": 3} | change))
