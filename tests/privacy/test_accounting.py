"""Privacy loss of one release: the closed forms against quadrature, Monte Carlo and reference figures."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from flint import arb
from helpers.effort import effort
from helpers.tolerances import FAR
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammainc

from mpmtl_prob.privacy import Gaussian, Wishart, calibrate, compute_delta
from mpmtl_prob.privacy.mechanisms.closed_forms import ROUNDED, delta_add, delta_gaussian, delta_remove, rounded_up
from mpmtl_prob.privacy.mechanisms.wishart import LARGEST_SHAPE

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "wishart_privacy.json"
K_THETA = [(1.0, 0.3), (1.0, 3.0), (1.5, 0.3), (3.0, 0.3), (8.0, 1.0), (24.0, 3.0), (48.0, 1.0)]


def by_definition(epsilon, shape, theta, direction, *, exactly=False):
    """sup_S P(S) - e^eps Q(S) of G and 1 + G, G ~ Gamma(k, theta), in 50 digits, from the likelihood ratio alone."""
    with mpmath.workdps(50):
        k, th, eps = mpmath.mpf(shape), mpmath.mpf(theta), mpmath.mpf(epsilon)

        def below(x):
            return mpmath.gammainc(k, 0, x / th, regularized=True) if x > 0 else mpmath.mpf(0)

        def above(x):
            return mpmath.gammainc(k, x / th, mpmath.inf, regularized=True) if x > 0 else mpmath.mpf(1)

        # the log ratio of absence to presence at x > 1 falls from infinity to -1/theta
        level = (eps if direction == "add" else -eps) + 1 / th
        if direction == "remove" and level <= 0:
            return 0.0
        edge = 1 / -mpmath.expm1(-level / (k - 1))
        if direction == "add":
            excess = below(edge) - mpmath.exp(eps) * below(edge - 1)
        else:
            excess = above(edge - 1) - mpmath.exp(eps) * above(edge)
        return excess if exactly else float(excess)


def reference():
    if not REFERENCE.exists():
        pytest.skip("the reference figures are not beside this checkout")
    return json.loads(REFERENCE.read_text())


@pytest.mark.parametrize(("shape", "theta"), [pair for pair in K_THETA if pair[0] > 1])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
def test_closed_forms_agree_with_fifty_digits(shape, theta, epsilon):
    for direction, closed_form in (
        ("add", delta_add(epsilon, shape, theta)),
        ("remove", delta_remove(epsilon, shape, theta)),
    ):
        assert closed_form == pytest.approx(by_definition(epsilon, shape, theta, direction), rel=1e-10, abs=1e-16)


def by_integration(epsilon, shape, theta):
    """delta when absence is likelier, the density of Gamma(k, 1) integrated: tails of any k, in 30 digits."""
    with mpmath.workdps(30):
        k, th, eps = mpmath.mpf(shape), mpmath.mpf(theta), mpmath.mpf(epsilon)
        edge = 1 / -mpmath.expm1(-(eps + 1 / th) / (k - 1))
        size = mpmath.loggamma(k)
        density = lambda u: mpmath.exp((k - 1) * mpmath.log(u) - u - size)
        below = lambda z: mpmath.quad(density, mpmath.linspace(z - 9 * mpmath.sqrt(k), z, 19))
        return float(below(edge / th) - mpmath.exp(eps) * below((edge - 1) / th))


@pytest.mark.parametrize("deviations", [3.0, 4.6, 6.0])
def test_delta_is_right_up_to_the_largest_shape(deviations):
    """Delta is right up to the largest shape parameter, and laws beyond it are refused."""
    largest = Wishart(3, 2 + 2 * LARGEST_SHAPE, 1.0)
    for mu in (0.3, 3.0):  # Gamma noise of so large a k is next to Gaussian noise of so many standard deviations
        shape = LARGEST_SHAPE
        theta = 1 / (mu * np.sqrt(LARGEST_SHAPE))
        epsilon = mu * (deviations + mu / 2)
        delta = compute_delta(epsilon, replace(largest, scale=theta / 2), "zero_out")
        assert delta == pytest.approx(by_integration(epsilon, shape, theta), rel=1e-9)
    for df in (2.1 + 2 * LARGEST_SHAPE, 1e12, 2e34, 1e300):
        with pytest.raises(ValueError, match=r"^df: expected at most num_features - 1 \+ 4e5 = 400002, beyond which"):
            Wishart(3, df, 1.0)


def test_beyond_the_largest_shape_scipys_tails_are_too_small():
    """The closed form is right there; the masses of which rounds are composed would not be."""
    epsilon = 3.0 * (5 + 1.5)
    shape = 1e8
    theta = 1 / (3.0 * np.sqrt(1e8))
    exact = by_integration(epsilon, shape, theta)
    assert delta_add(epsilon, shape, theta) == pytest.approx(exact, rel=1e-9)
    x = 1 / -np.expm1(-(epsilon + 1 / theta) / (shape - 1))
    assert gammainc(shape, x / theta) - np.exp(epsilon) * gammainc(shape, (x - 1) / theta) < 0.5 * exact


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-6, 1e-3, 0.5, 2.0])
def test_no_closed_form_is_below_the_truth_by_a_last_digit(epsilon):
    rng = np.random.default_rng(0)
    for shape, theta in zip(rng.uniform(1.1, 60, 10), rng.uniform(0.05, 1e5, 10), strict=True):
        assert delta_add(epsilon, shape, theta) >= by_definition(epsilon, shape, theta, "add", exactly=True)
        assert delta_remove(epsilon, shape, theta) >= by_definition(epsilon, shape, theta, "remove", exactly=True)
    for mu in rng.uniform(1e-6, 3.0, 10):
        with mpmath.workdps(50):
            edge = mpmath.mpf(epsilon) / mu + mpmath.mpf(mu) / 2
            exact = mpmath.ncdf(mu - edge) - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.ncdf(-edge)
        assert delta_gaussian(epsilon, mu) >= exact


def test_a_probability_is_rounded_up_and_known_to_enough_bits():
    for denominator in range(3, 200, 2):
        probability = Fraction(rounded_up(lambda denominator=denominator: arb(1) / denominator))
        assert Fraction(1, denominator) < probability < Fraction(1, denominator) * (1 + Fraction(1, 2**51))
    assert rounded_up(lambda: (arb(1) + arb(2) ** -300) - 1) == 2.0**-300  # lost in fewer bits
    assert rounded_up(lambda: arb(2) ** -3000) == 5e-324
    assert rounded_up(lambda: arb(0)) == 0
    assert rounded_up(lambda: arb(0, 2)) == 1


def test_calibrated_noise_keeps_the_smallest_promise():
    """Calibrated noise keeps the smallest promise to the last digit."""
    law = calibrate(1e-6, 1e-9, 4, adjacency="zero_out")
    for direction in ("add", "remove"):
        assert by_definition(1e-6, law.shape, law.theta, direction, exactly=True) <= 1e-9


def test_upper_tails_keep_the_digits_that_lower_tails_lose():
    """Upper tails keep the digits that one minus a lower tail loses."""
    for shape, theta, epsilon in ((3.0, 0.3, 3.0), (48.0, 1.0, 0.5)):
        exact = by_definition(epsilon, shape, theta, "remove")
        assert delta_remove(epsilon, shape, theta) == pytest.approx(exact, rel=1e-11, abs=0)
        x = 1 / -np.expm1((epsilon - 1 / theta) / (shape - 1))
        lower_tails = (
            1 - stats.gamma.cdf((x - 1) / theta, shape) - np.exp(epsilon) * (1 - stats.gamma.cdf(x / theta, shape))
        )
        assert abs(lower_tails / exact - 1) > 1e-9


def test_closed_forms_reproduce_the_reference_figures():
    for row in reference()["single"]:
        shape, theta, epsilon = row["k"], row["theta"], row["epsilon"]
        for direction, delta in (
            ("add", delta_add(epsilon, shape, theta)),
            ("remove", delta_remove(epsilon, shape, theta)),
        ):
            expected = row[f"delta_{direction}"]
            if delta != pytest.approx(expected, rel=1e-9, abs=0):  # the reference subtracts numbers near 1
                assert expected == pytest.approx(delta, rel=0, abs=2 * ROUNDED)  # theta counts as smaller by that
                assert delta == pytest.approx(
                    by_definition(epsilon, shape, theta, direction), rel=1e-9, abs=2 * ROUNDED
                )
        replaced = compute_delta(epsilon, Wishart(2, 1 + 2 * shape, theta / 2), "replace")
        two_hops = min(1.0, row["delta_replace_two_hop"])  # through the zeroed task: a bound that is never better
        assert replaced <= two_hops * (1 + 1e-3) + 1e-11


def test_pinned_figures():
    assert delta_add(1.0, 8.0, 4.0) == pytest.approx(3.6484895e-05, rel=1e-6)
    assert delta_add(1.0, 24.0, 1.0) == pytest.approx(2.1199607e-04, rel=1e-6)
    assert delta_remove(0.5, 1.0, 1.0) == pytest.approx(-np.expm1(-0.5), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_papers_noise_has_the_same_large_delta_at_every_eps(epsilon):
    """The papers' noise has delta = 1 - exp(-eps) at every finite eps."""
    for at in (0.0, epsilon, 10 * epsilon, 100.0):
        assert delta_add(at, 1.0, 1 / epsilon) == pytest.approx(-np.expm1(-epsilon), rel=1e-12)


@pytest.mark.parametrize(("shape", "theta"), K_THETA)
def test_closed_forms_agree_with_monte_carlo(shape, theta):
    rng = np.random.default_rng(0)
    n, epsilon = 200_000, 0.4
    absent = rng.gamma(shape, theta, n)
    present = 1 + rng.gamma(shape, theta, n)

    def log_ratio(x):
        return stats.gamma.logpdf(x, shape, scale=theta) - stats.gamma.logpdf(x - 1, shape, scale=theta)

    for p, q, sign, closed_form in (
        (absent, present, 1, delta_add(epsilon, shape, theta)),
        (present, absent, -1, delta_remove(epsilon, shape, theta)),
    ):
        inside_p, inside_q = (np.mean(sign * log_ratio(x) > epsilon) for x in (p, q))
        error = np.sqrt(inside_p * (1 - inside_p) / n + np.exp(2 * epsilon) * inside_q * (1 - inside_q) / n)
        assert abs(inside_p - np.exp(epsilon) * inside_q - closed_form) < FAR * error + 1e-12


laws = st.tuples(st.floats(1.0, 96.0), st.floats(0.05, 50.0))


@settings(max_examples=effort(50, 200), deadline=None)
@given(law=laws, low=st.floats(0, 8), high=st.floats(0, 8), adjacency=st.sampled_from(["zero_out", "replace"]))
def test_delta_falls_with_eps(law, low, high, adjacency):
    mechanism = Wishart(2, 1 + 2 * law[0], law[1] / 2)
    low, high = sorted((low, high))
    assert compute_delta(high, mechanism, adjacency) <= compute_delta(low, mechanism, adjacency) * (1 + 1e-6) + 1e-14


@settings(max_examples=effort(8, 60), deadline=None)
@given(law=laws, epsilon=st.floats(0, 8))
def test_replacement_costs_at_least_as_much_as_zeroing(law, epsilon):
    mechanism = Wishart(2, 1 + 2 * law[0], law[1] / 2)
    assert compute_delta(epsilon, mechanism, "replace") >= compute_delta(epsilon, mechanism, "zero_out") * (1 - 1e-9)


@pytest.mark.evidence
@pytest.mark.parametrize(("law", "epsilon"), [((1 + 2.0**-52, 0.0625), 0.0), ((1 + 1e-5, 0.05), 1.0)])
def test_it_does_so_where_the_loss_takes_nearly_one_value(law, epsilon):
    mechanism = Wishart(2, 1 + 2 * law[0], law[1] / 2)
    assert compute_delta(epsilon, mechanism, "replace") >= compute_delta(epsilon, mechanism, "zero_out") * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(law=laws, epsilon=st.floats(0, 8), length=st.floats(0.05, 1.0))
def test_a_shorter_column_gives_away_less(law, epsilon, length):
    shape, theta = law  # a column of length r in noise of scale theta is one of length 1 in noise of scale theta / r^2
    for closed_form in (delta_add, delta_remove):
        shorter = closed_form(epsilon, shape, theta / length**2)
        assert shorter <= closed_form(epsilon, shape, theta) * (1 + 1e-9) + 1e-14


@settings(max_examples=100, deadline=None)
@given(theta=st.floats(0.1, 20.0), epsilon=st.floats(0, 5))
def test_k_near_one_approaches_the_exponential_case(theta, epsilon):
    for closed_form in (delta_add, delta_remove):
        assert closed_form(epsilon, 1 + 1e-9, theta) == pytest.approx(closed_form(epsilon, 1.0, theta), abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_many_degrees_of_freedom_approach_gaussian_noise(epsilon):
    """Wishart noise with many degrees of freedom approaches Gaussian noise of the same variance."""
    gap = []
    for shape in (1e3, 1e5, 1e7):
        theta = 1 / np.sqrt(shape)  # the Gamma noise has variance 1
        gap.append(abs(delta_add(epsilon, shape, theta) / delta_gaussian(epsilon, 1.0) - 1))
    assert gap[0] > gap[1] > gap[2]
    assert gap[2] < 2e-3
    assert Gaussian(3, 1 / np.sqrt(2)).mu("zero_out") == pytest.approx(1.0)  # whose diagonal entries have variance 1


def test_gaussian_delta_agrees_with_quadrature():
    for mu in (0.1, 1.0, 4.0):
        for epsilon in (0.0, 0.5, 2.0):
            with mpmath.workdps(30):
                edge = mpmath.mpf(epsilon) / mu + mpmath.mpf(mu) / 2  # N(mu, 1) is e^eps times likelier above
                exact = mpmath.ncdf(mu - edge) - mpmath.exp(epsilon) * mpmath.ncdf(-edge)
            assert delta_gaussian(epsilon, mu) == pytest.approx(float(exact), rel=1e-10)


def test_gaussian_replacement_is_a_rotation_by_a_right_angle():
    law = Gaussian(4, 0.7, clip=1.5)
    w, v = 1.5 * np.eye(4)[0], 1.5 * np.eye(4)[1]
    distance = np.linalg.norm(np.outer(w, w) - np.outer(v, v))
    assert law.mu("replace") == pytest.approx(distance / (np.sqrt(2) * 0.7))
    assert compute_delta(1.0, law, "replace") == pytest.approx(delta_gaussian(1.0, law.mu("replace")))


@pytest.mark.parametrize(
    "arguments", [(-1.0, "replace"), (np.nan, "replace"), (np.inf, "replace"), (1.0, "swap"), (1.0, None)]
)
def test_delta_names_a_bad_argument(arguments):
    with pytest.raises(ValueError, match=r"^(epsilon|adjacency): expected"):
        compute_delta(arguments[0], Wishart(2, 5.0, 1.0), arguments[1])
