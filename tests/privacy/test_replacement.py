"""Replacing a task reveals at most as much as removing one and adding one, with independent noises.

The oracles (tests/helpers/oracles.py) know nothing of the library: two quadratures of the exact divergence of a pair of
releases, draws of both releases, and a quadrature of the bound.
"""

import numpy as np
import pytest
from helpers import oracles
from helpers.effort import effort

from mpmtl_prob.privacy import Wishart, compute_delta
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_add, delta_remove

ONE_RELEASE = [  # k, theta, and delta at eps = .1, 1, 3
    (10.0, 0.6, (0.267030, 0.0770173, 0.00650034)),
    (96.0, 0.2, (0.247824, 0.0457818, 6.0359e-5)),
    (1536.0, 0.05, (0.246803, 0.0431833, 1.23699e-5)),
]
ROUNDS = [  # k, theta, T, delta at eps = 3 of the pessimistic composition, how near the truth must come
    (96.0, 0.5, 20, 0.018229, 0.94),
    (1536.0, 0.1, 10, 0.0059987, 0.94),
    (5.0, 2.0, 5, 0.0099160, 0.65),
]


def law(k, theta, d=2):
    return Wishart(d, d - 1 + 2 * k, theta / 2)


def cases(n, seed, smallest=1.01):
    """n points (eps, k, theta, a, b): k up to 1000, losses of .1 to 6 standard deviations, eps of both signs."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        k = 1 + (smallest - 1) * ((1000 - 1) / (smallest - 1)) ** rng.uniform()
        theta = 1 / np.sqrt(k) / 10 ** rng.uniform(-1, 0.8)
        yield rng.choice([-1, 1]) * 10 ** rng.uniform(-2, 0.7), k, theta, *np.sqrt(rng.uniform(size=2))


def two_hops(eps, k, theta):
    """Through the zeroed task: min over c of delta_remove(c) + e^c delta_add(eps - c), from closed forms."""
    c = np.linspace(0, eps, 400)
    return np.min(oracles.shifted(c, 1, 0, k, theta) + np.exp(c) * oracles.shifted(eps - c, 0, 1, k, theta))


# The theorem, between oracles


def test_the_exact_divergence_is_the_same_by_two_routes():
    for case in cases(effort(6, 25), seed=1):
        assert oracles.pair(*case) == pytest.approx(oracles.pair_by_columns(*case), abs=5e-7)


def test_no_pair_gives_away_more_than_the_bound():
    for eps, k, theta, a, b in cases(effort(12, 60), seed=2):
        exact = oracles.pair(eps, k, theta, a, b)
        assert exact <= oracles.independent(eps, k, theta, a, b) + 1e-10
        assert oracles.independent(eps, k, theta, a, b) <= oracles.independent(eps, k, theta) + 1e-10


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_draws_agree_with_the_exact_divergence(d):
    """Draws of any two releases agree with the exact divergence."""
    rng, n = np.random.default_rng(d), 20_000
    for k, theta, eps in ((1.3, 1.5, 0.4), (2.75, 0.6, -0.5), (12.2, 0.4, 0.8)):
        w, u = rng.standard_normal((2, d)) * np.array([[1.0], [-1.0]])
        w, u = w / np.linalg.norm(w), 0.8 * u / np.linalg.norm(u)
        fixed = rng.standard_normal((d, d))
        fixed = fixed + fixed.T
        sigma = fixed + np.outer(w, w) + oracles.wishart(rng, n, d, d - 1 + 2 * k, theta / 2)
        loss = oracles.losses(sigma, fixed + np.outer(w, w), fixed + np.outer(u, u), k, theta)
        spectrum = np.linalg.eigvalsh(np.outer(w, w) - np.outer(u, u))
        exact = oracles.pair(eps, k, theta, max(spectrum[-1], 0.0), max(-spectrum[0], 0.0))
        measured = oracles.estimate(loss, eps).mean()
        assert abs(measured - exact) < oracles.margin(exact, n)
        assert measured < oracles.independent(eps, k, theta) + oracles.margin(exact, n)


def test_the_bound_is_the_same_in_both_directions():
    for eps, k, theta, *_ in cases(20, seed=3):
        bound = oracles.independent(eps, k, theta)
        assert oracles.independent(eps, k, theta, first="add") == pytest.approx(bound, abs=1e-9)
        # E_1/g(Q||P) = 1 - 1/g + E_g(P||Q)/g of any pair; here E(Q||P) = E(P||Q)
        other = -np.expm1(-eps) + np.exp(-eps) * bound
        assert oracles.independent(-eps, k, theta) == pytest.approx(other, abs=1e-8)


def test_orthogonal_full_vectors_are_not_always_the_worst():
    """Orthogonal vectors of full length are not always the worst pair."""
    eps, k, theta = 3.0, 1.5, 0.8165
    orthogonal, zeroed = oracles.pair(eps, k, theta, 1, 1), oracles.pair(eps, k, theta, 0, 1)
    assert orthogonal == pytest.approx(0.4286, abs=5e-5)
    assert zeroed == pytest.approx(0.5154, abs=2e-4)
    assert zeroed == pytest.approx(float(oracles.shifted(eps, 0, 1, k, theta)), abs=1e-9)
    assert orthogonal < zeroed < oracles.independent(eps, k, theta) < 0.5158


@pytest.mark.parametrize(("k", "theta", "share"), [(10.0, 0.6, 0.9264), (96.0, 0.2, 0.9901), (1536.0, 0.05, 0.9994)])
def test_little_is_given_up_at_many_degrees_of_freedom(k, theta, share):
    """The bound gives up little where the noise has many degrees of freedom."""
    worst = max(oracles.pair(1.0, k, theta, 1, 1), oracles.pair(1.0, k, theta, 0, 1))
    assert worst / oracles.independent(1.0, k, theta) == pytest.approx(share, abs=1e-4)


# What the library says


@pytest.mark.parametrize(("k", "theta", "published"), ONE_RELEASE)
def test_one_release_is_the_bound_from_above(k, theta, published):
    for eps, expected in zip((0.1, 1.0, 3.0), published, strict=True):
        exact = oracles.independent(eps, k, theta)
        assert exact == pytest.approx(expected, rel=1e-5)
        assert exact - 1e-11 <= compute_delta(eps, law(k, theta), "replace") <= exact * (1 + 1e-3)


@pytest.mark.parametrize("k", [1.05, 1.5, 2.0, 3.7, 24.0, 400.0])
def test_any_shape_and_scale_is_the_bound_from_above(k):
    for spread in (0.2, 1.0, 4.0):  # standard deviations of the loss, nearly
        theta = 1 / spread / np.sqrt(k)
        for eps in (0.0, 0.3, 2.0, 6.0):
            exact = oracles.independent(eps, k, theta)
            assert exact - 1e-11 <= compute_delta(eps, law(k, theta), "replace") <= exact * (1 + 1e-3) + 2e-12


def test_features_and_the_unit_of_length_do_not_matter():
    """The number of features and the unit of length do not matter."""
    expected = compute_delta(0.7, law(6.5, 0.8), "replace")
    for d in (1, 5, 27):
        assert compute_delta(0.7, law(6.5, 0.8, d), "replace") == expected
        assert compute_delta(0.7, Wishart(d, d + 12.0, 3.6, clip=3.0), "replace") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("theta", [0.2, 1.0, 9.0])
def test_the_papers_noise_gives_away_what_a_zeroed_task_does(theta):
    papers = law(1.0, theta)
    for eps in (0.0, 0.5, 2 / theta):
        assert compute_delta(eps, papers, "replace") == pytest.approx(-np.expm1(-1 / theta), rel=1e-9)
        assert compute_delta(eps, papers, "replace") == pytest.approx(compute_delta(eps, papers, "zero_out"), rel=1e-9)
    for eps in (0.05, 0.5 / theta):  # the limit of the bound, from above
        assert oracles.independent(eps, 1 + 1e-4, theta) == pytest.approx(-np.expm1(-1 / theta), rel=2e-3)


def test_between_one_zeroed_task_and_two_hops():
    for eps, k, theta, *_ in cases(15, seed=4):
        eps = abs(eps)
        delta = compute_delta(eps, law(k, theta), "replace")
        zeroed = max(delta_add(eps, k, theta), delta_remove(eps, k, theta))
        assert zeroed == pytest.approx(compute_delta(eps, law(k, theta), "zero_out"), abs=1e-12)
        assert zeroed - 1e-12 <= delta <= two_hops(eps, k, theta) * (1 + 1e-3) + 1e-11


@pytest.mark.parametrize(("k", "theta", "T", "published", "near"), ROUNDS)
def test_rounds_lie_above_draws_of_the_worst_orthogonal_pair(k, theta, T, published, near):
    delta = compute_delta(3.0, (law(k, theta),) * T, "replace")
    assert delta == pytest.approx(published, rel=2e-3)
    rng, n = np.random.default_rng(T), 60_000
    loss = np.zeros(n)
    for _ in range(T):  # the 2 x 2 block that matters, by its Cholesky factor: P adds 1 to x11, Q to x22
        x12 = np.sqrt(theta / 2) * rng.standard_normal(n)
        x22, schur = rng.gamma(k + 0.5, theta, n), rng.gamma(k, theta, n)
        x12, x11 = x12 * np.sqrt(x22), 1 + schur + x12**2
        under_q = x11 * (x22 - 1) - x12**2
        with np.errstate(divide="ignore", invalid="ignore"):
            each = (k - 1) * (np.log(schur * x22) - np.log(under_q))
        loss += np.where((under_q > 0) & (x11 > 0), each, np.inf)
    measured = oracles.estimate(loss, 3.0).mean()
    assert measured < delta + oracles.margin(delta, n)
    assert measured > near * delta - oracles.margin(delta, n)


def test_rounds_chosen_by_what_was_seen_give_away_no_more():
    """In the second round the others' moment and both vectors are read off the first release."""
    rng, n, k, theta, eps = np.random.default_rng(5), 60_000, 10.0, 1.2, 1.0
    first = np.diag([1.0, 0.0]) + oracles.wishart(rng, n, 2, 1 + 2 * k, theta / 2)
    loss = oracles.losses(first, np.diag([1.0, 0.0]), np.diag([0.0, 1.0]), k, theta)
    axes = np.linalg.eigh(first)[1]
    lost = loss > 0  # the curator's bad luck: play on with full length, else with the shortest that still helps
    w, u = axes[:, :, 0], np.where(lost, 1.0, 0.6)[:, None] * axes[:, :, 1]
    present, absent = (first + v[:, :, None] * v[:, None, :] for v in (w, u))
    second = present + oracles.wishart(rng, n, 2, 1 + 2 * k, theta / 2)
    loss = loss + oracles.losses(second, present, absent, k, theta)
    measured, bound = oracles.estimate(loss, eps).mean(), compute_delta(eps, (law(k, theta),) * 2, "replace")
    assert measured < bound + oracles.margin(bound, n)
    assert measured > 0.7 * bound - oracles.margin(bound, n)  # an adversary worth the name
