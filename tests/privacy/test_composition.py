"""Several releases together: bounds from both sides, against closed forms, Monte Carlo and reference figures."""

import json
import math
import time
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from helpers.effort import effort
from helpers.tolerances import FAR
from hypothesis import given, settings
from hypothesis import strategies as st

from mpmtl_prob.privacy import (
    Gaussian,
    PaperTaskWishart,
    PaperWishart,
    Quantile,
    VectorLaplace,
    Wishart,
    compute_delta,
    compute_epsilon,
    delta_bracket,
)
from mpmtl_prob.privacy.accounting.composition import profile
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "wishart_privacy.json"


def gamma_law(shape, theta):
    return Wishart(2, 1 + 2 * shape, theta / 2)


def test_composed_deltas_reproduce_the_reference_figures():
    """Composed deltas reproduce the reference figures within their grid."""
    if not REFERENCE.exists():
        pytest.skip("the reference figures are not beside this checkout")
    for row in json.loads(REFERENCE.read_text())["composed"]:
        rounds = (gamma_law(row["k"], row["theta"]),) * row["rounds"]
        lower, upper = (
            profile(rounds, "zero_out", pessimistic=False, cells=800).add,
            profile(rounds, "zero_out").add,
        )
        for key, expected in row["delta_at_eps"].items():
            # the reference rounds every loss up by at most 1e-4
            at, shift = float(key), 1e-4 * row["rounds"]
            assert lower(at) <= expected + 1e-12
            assert lower(at) <= upper(at)
            assert expected * (1 - 1e-3) - 2e-12 <= upper(max(at - shift, 0.0))
            assert upper(at) <= expected * (1 + 1e-3) + 2e-12


def test_one_round_on_the_grid_brackets_the_closed_form():
    for law in (gamma_law(1.5, 3.0), gamma_law(3.0, 5.0), gamma_law(24.0, 1.0), gamma_law(96.0, 0.2)):
        closed = profile((law,), "zero_out")
        for at in (0.0, 0.3, 1.0, 3.0):
            for direction in ("add", "remove"):
                exact = getattr(closed, direction)(at)
                # dp-accounting's own reading of the round's distribution, on both sides
                sides = [
                    law.loss_distribution("zero_out", pessimistic=side).to_dp_accounting() for side in (False, True)
                ]
                low, high = (getattr(side, f"_pmf_{direction}").get_delta_for_epsilon(at) for side in sides)
                assert low <= exact * (1 + 1e-9) + 1e-13
                assert exact <= high * (1 + 1e-9) + 1e-13
                assert high <= exact * (1 + 1e-4) + (law.loss_spread / 1000) ** 2  # second order in the grid


@pytest.mark.parametrize(("shape", "theta", "T"), [(1.5, 3.0, 3), (4.0, 3.0, 5), (48.0, 2.0, 20)])
def test_composition_agrees_with_monte_carlo(shape, theta, T):
    rng = np.random.default_rng(1)
    n = 100_000
    at = 0.5
    rounds = (gamma_law(shape, theta),) * T
    bounds = profile(rounds, "zero_out")

    def loss(x):  # of "add", summed over rounds
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(x > 1, -(shape - 1) * np.log1p(-1 / x) - 1 / theta, np.inf)
        return each.sum(axis=1)

    absent, present = loss(rng.gamma(shape, theta, (n, T))), loss(1 + rng.gamma(shape, theta, (n, T)))
    for direction, p, q in (("add", absent > at, present > at), ("remove", -present > at, -absent > at)):
        measured = p.mean() - np.exp(at) * q.mean()
        error = np.sqrt((p.var() + np.exp(2 * at) * q.var()) / n)
        assert abs(getattr(bounds, direction)(at) - measured) < FAR * error


@pytest.mark.parametrize("T", [2, 9, 40])
def test_equal_rounds_are_their_sums_one_by_one_and_not_below(T):
    law = gamma_law(30.0, 2.0)
    composed = profile((law,) * T, "zero_out", cells=100)
    one = law.loss_distribution("zero_out", interval=(interval := law.loss_spread / 100))
    for direction in ("remove", "add"):
        loss, p = getattr(one, direction).masses(interval)
        together = p[:-1]
        for _ in range(T - 1):
            together = np.convolve(together, p[:-1])  # of positive numbers, so exact to the last digits
        losses = (T * round(loss[0] / interval) + np.arange(len(together))) * interval
        for at in np.linspace(0, losses[-1], 20):
            above = losses > at
            exact = -np.expm1(T * np.log1p(-p[-1])) - np.expm1(at - losses[above]) @ together[above]
            assert exact <= getattr(composed, direction)(at) < exact * (1 + 1e-8) + 1e-30


def test_gaussian_rounds_compose_alike_exactly_and_on_the_grid():
    """Gaussian rounds compose to the same delta in closed form and on the grid."""
    law = Gaussian(3, 4.0)
    assert compute_delta(0.5, (law,) * 9, "zero_out") == pytest.approx(
        delta_gaussian(0.5, 3 * law.mu("zero_out")), rel=1e-12
    )
    # a Wishart round that gives away next to nothing sends the composition through the grid
    mixed = delta_bracket(0.5, (*(law,) * 9, gamma_law(96.0, 1e5)), "zero_out")
    exact = delta_gaussian(0.5, 3 * law.mu("zero_out"))
    assert mixed.lower <= exact * (1 + 1e-3)
    assert mixed.upper == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize("mu", [0.05, 0.3])
def test_the_pessimistic_side_covers_even_a_tiny_delta(mu):
    """The pessimistic side is not below the truth even where delta is tiny."""
    rounds = tuple(Gaussian(2, (1 + 1e-6 * t) / np.sqrt(2) / mu) for t in range(30))
    together = np.sqrt(sum(law.mu("zero_out") ** 2 for law in rounds))
    through_the_grid = profile((*rounds, gamma_law(96.0, 1e6)), "zero_out").add
    for at in np.linspace(0, 10 * together, 12):
        exact = delta_gaussian(at, together)
        assert exact <= through_the_grid(at) <= exact * 1.01 + 1e-11


def test_the_papers_rounds_add_up_in_the_exponent():
    budgets = [0.1, 0.2, 0.05]
    rounds = tuple(PaperWishart(4, budget) for budget in budgets)
    assert compute_delta(2.0, rounds, "zero_out") == pytest.approx(-np.expm1(-sum(budgets)), rel=1e-12)
    # and through the grid too, when another law is among them
    mixed = delta_bracket(2.0, (*rounds, gamma_law(96.0, 1e4)), "zero_out")
    assert mixed.lower == pytest.approx(-np.expm1(-sum(budgets)), rel=1e-3)
    assert mixed.upper == pytest.approx(-np.expm1(-sum(budgets)), rel=1e-3)


rounds_of = st.lists(
    st.one_of(
        st.builds(gamma_law, st.floats(1.0, 40.0), st.floats(2.0, 20.0)),
        st.builds(lambda sd: Gaussian(2, sd), st.floats(1.0, 10.0)),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20, deadline=None)
@given(rounds=rounds_of, at=st.floats(0.05, 4.0), adjacency=st.sampled_from(["zero_out", "replace"]))
def test_another_round_never_gives_away_less(rounds, at, adjacency):
    fewer = delta_bracket(at, tuple(rounds[:-1]) or (gamma_law(96.0, 1e6),), adjacency).lower
    assert compute_delta(at, tuple(rounds), adjacency) >= fewer * (1 - 1e-6) - 1e-11


@settings(max_examples=effort(10, 20), deadline=None)
@given(rounds=rounds_of, at=st.floats(0.05, 4.0), adjacency=st.sampled_from(["zero_out", "replace"]))
def test_the_two_sides_are_in_order_and_replacement_costs_more(rounds, at, adjacency):
    lower, upper = delta_bracket(at, tuple(rounds), adjacency)
    assert 0 <= lower <= upper <= 1
    assert (
        compute_delta(at, tuple(rounds), "replace") >= compute_delta(at, tuple(rounds), "zero_out") * (1 - 1e-6) - 1e-11
    )


def test_the_gap_between_the_sides_is_small():
    lower, upper = delta_bracket(1.0, (gamma_law(48.0, 2.0),) * 30)
    assert 0 < upper - lower < 0.05 * upper


def test_a_bought_quantile_costs_what_pure_privacy_costs():
    # k-fold randomised response, in closed form
    law = Quantile(0.3)
    T = 4
    at = 0.5
    with mpmath.workdps(30):
        heads = 1 / (1 + mpmath.exp(-mpmath.mpf(0.3)))
        exact = sum(
            math.comb(T, j)
            * heads**j
            * (1 - heads) ** (T - j)
            * max(0, 1 - mpmath.exp(at - mpmath.mpf(0.3) * (2 * j - T)))
            for j in range(T + 1)
        )
    lower, upper = delta_bracket(at, (law,) * T, "zero_out")
    assert lower <= exact <= upper
    assert upper - lower < 0.01 * exact


def test_a_private_quantile_costs_replacing_what_zeroing_costs():
    """A private quantile costs a replaced task what it costs a zeroed task."""
    law = Quantile(0.4)
    assert compute_delta(0.2, law, "replace") == pytest.approx(compute_delta(0.2, law, "zero_out"), rel=1e-12)
    # at worst it says which of two data sets it is with odds e^{0.4}: a mixture of the release's own curve, moved
    release, right = gamma_law(96.0, 0.5), 1 / (1 + np.exp(-0.4))
    exact = right * compute_delta(0.6, release) + (1 - right) * compute_delta(1.4, release)
    assert exact * (1 - 1e-9) <= compute_delta(1.0, (release, law)) <= exact * 1.01


def test_the_papers_rounds_have_one_delta_at_every_eps():
    """Under replacement, the papers' rounds have one delta at every eps."""
    budgets = [0.1, 0.2, 0.05]
    rounds = tuple(PaperWishart(4, budget) for budget in budgets)
    for at in (0.0, 0.5, 3.0):
        assert compute_delta(at, rounds, "replace") == pytest.approx(-np.expm1(-sum(budgets)), rel=1e-12)
    mixed = delta_bracket(2.0, (*rounds, gamma_law(96.0, 1e4)), "replace")
    assert mixed.lower == pytest.approx(-np.expm1(-sum(budgets)), rel=1e-3)
    assert mixed.upper == pytest.approx(-np.expm1(-sum(budgets)), rel=1e-3)


def test_the_order_of_rounds_does_not_matter():
    rounds = (gamma_law(2.0, 5.0), gamma_law(30.0, 3.0), Gaussian(2, 3.0))
    assert compute_delta(1.0, rounds) == pytest.approx(compute_delta(1.0, rounds[::-1]), rel=1e-6)


@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
def test_epsilon_inverts_delta(adjacency):
    for rounds in ((gamma_law(24.0, 1.0),), (gamma_law(24.0, 1.0),) * 10, (Gaussian(2, 1.0),) * 3):
        epsilon = compute_epsilon(1e-3, rounds, adjacency)
        assert compute_delta(epsilon, rounds, adjacency) <= 1e-3
        assert compute_delta(epsilon * (1 - 1e-5), rounds, adjacency) > 1e-3
    assert compute_epsilon(0.05, PaperWishart(3, 0.1), "zero_out") == np.inf  # no finite eps below delta = 1 - e^{-0.1}
    assert compute_epsilon(0.999, gamma_law(96.0, 1e3), adjacency) == 0


def test_thirty_rounds_take_a_fraction_of_a_second():
    compute_delta(1.0, (gamma_law(10.0, 3.0),) * 2)  # the first call imports dp-accounting
    start = time.perf_counter()
    compute_delta(1.0, (gamma_law(47.0, 2.3),) * 30)
    assert time.perf_counter() - start < 2


def test_what_is_not_proved_is_not_accounted_for():
    with pytest.raises(ValueError, match=r"mechanisms: .* got PaperTaskWishart.*both signs"):
        compute_delta(1.0, PaperTaskWishart(5, 1.0))
    with pytest.raises(ValueError, match="mechanisms: expected at least one round"):
        compute_delta(1.0, ())


@pytest.mark.parametrize("T", [30, 300_000])
def test_many_rounds_are_just_above_the_truth_however_small(T):
    """In doubles a sum of 300 000 losses is right to some 1e-11, unless masses are tilted to where they matter."""
    law, mu = Gaussian(2, np.sqrt(T) / np.sqrt(2)), 1.0
    rounds = (law,) * T + (gamma_law(96.0, 1e9),)  # the last gives away nothing, and sends all through the grid
    for deviations in (0.0, 3.0, 6.0, 6.5, 9.0):
        at = mu * (deviations + mu / 2)
        with mpmath.workdps(40):
            exact = mpmath.ncdf(mu / 2 - at / mu) - mpmath.exp(at) * mpmath.ncdf(-mu / 2 - at / mu)
        assert exact * (1 - 1e-12) <= compute_delta(at, rounds, "zero_out") <= exact * (1 + 5e-3)


def test_delta_is_not_zero_below_the_largest_loss():
    for budget, rounds in ((1 / 3228, 3228), (0.1, 10), (0.3, 7)):
        at = rounds * budget
        while Fraction(at) >= rounds * Fraction(budget):
            at = np.nextafter(at, 0.0)
        assert compute_delta(at, (Quantile(budget),) * rounds) > 0
        assert compute_delta(rounds * budget * 1.001, (Quantile(budget),) * rounds) == 0
        assert compute_delta(0.9 * at, (*(Quantile(budget),) * rounds, Quantile(1e-3))) > 0
    assert compute_delta(500.0, Gaussian(2, 3.0)) > 0


@pytest.mark.parametrize(
    "rounds",
    [
        (Wishart(2, 5.0, 1e-300), Gaussian(2, 1.0)),
        (Wishart(2, 3.0000001, 1e200, 1e-100), Gaussian(2, 1e-100)),
        (Quantile(1e300), Gaussian(2, 1.0)),
        (VectorLaplace(1, 1e-300, 1.0), VectorLaplace(1, 1e-250, 1.0)),
        (VectorLaplace(3, 1e200, 1.0), Gaussian(2, 1e200)),
    ],
)
def test_noise_of_any_size_has_a_delta_or_a_named_error(rounds):
    try:
        answer = compute_delta(1.0, rounds)
    except ValueError as error:
        answer = str(error)
    named = "mechanisms: expected noise whose privacy loss can be computed in doubles, got "
    assert answer.startswith(named) if isinstance(answer, str) else 0 <= answer <= 1
