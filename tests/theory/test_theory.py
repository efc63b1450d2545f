"""The papers' utility rates: their optimal budgets by numerical search, and their powers from the bounds they come from."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from mpmtl_prob.theory.utility import UtilityBound, phi, psi

CONVEX = UtilityBound(10**24, 20, 1.0)  # so many tasks that the noise is small beside every constant
STRONG = replace(CONVEX, strong_convexity=0.1)
SETTINGS = [{"delta": 0.0}, {"delta": 1e-3}, {"delta": 1e-3, "composition": "plain"}]  # No. 1, main text, No. 2


def test_the_number_of_tasks_in_assumption_1():
    bound = UtilityBound(100, 27, 0.5, 1e-3, clip=3.0)
    inside = np.log(np.e + 0.5 / (np.sqrt(2) * 1e-3)) + 2 * 0.5
    assert_allclose(bound.tasks_needed, 3.0**2 * 27**2 * np.log(27) ** 2 * inside / 0.5**2)
    assert_allclose(replace(bound, norm="group sparse").tasks_needed, np.log(27) * np.sqrt(inside) / 0.5)
    # With so many tasks M_0 is 1 where budgets are equal (alpha = 0) and one value survives: no error is small yet.
    for norm in ("low rank", "group sparse"):
        needed = replace(bound, norm=norm).tasks_needed
        assert_allclose(replace(bound, norm=norm, num_tasks=round(needed)).noise(0.0), 1.0, rtol=0.05)
        many = replace(bound, norm=norm, num_tasks=int(np.ceil(needed)))
        assert many.enough_tasks()
        assert not replace(many, num_tasks=many.num_tasks - 1).enough_tasks()
        assert not many.enough_tasks(2.0)
    with pytest.raises(ValueError, match="constant: expected a positive number"):
        bound.enough_tasks(0.0)


def minimiser(bound, low, high):
    """The best growth of the budgets, by search over a fine grid and then in its cell."""
    grid = np.linspace(low, high, 801)[1:-1]
    best = grid[np.argmin([bound.rate(x) for x in grid])]
    step = grid[1] - grid[0]
    return minimize_scalar(bound.rate, bounds=(best - step, best + step), method="bounded", options={"xatol": 1e-9}).x


@pytest.mark.parametrize("norm", ["low rank", "group sparse"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("accelerated", [False, True])
def test_the_stated_alpha_minimises_the_rate_over_all_growths(norm, setting, accelerated):
    bound = replace(CONVEX, norm=norm, accelerated=accelerated, **setting)
    pure = bound.delta == 0
    stated = {(False, False): 0, (True, False): 2 / 5, (False, True): 0, (True, True): 2 / 3}[accelerated, pure]
    assert bound.best_growth == stated
    assert_allclose(minimiser(bound, -4, 9), stated, atol=1e-5)
    # Table 2
    assert_allclose(bound.power(), {(False, False): 2 / 5, (True, False): 4 / 9, (False, True): 1 / 3,
                                    (True, True): 2 / 5}[accelerated, pure])  # fmt: skip


@pytest.mark.parametrize("norm", ["low rank", "group sparse"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("ratio", [0.02, 0.3])
def test_the_stated_q_minimises_the_rate_over_all_growths(norm, setting, accelerated, ratio):
    bound = replace(STRONG, norm=norm, accelerated=accelerated, strong_convexity=ratio, **setting)
    pure = bound.delta == 0
    stated = (
        (1 - np.sqrt(ratio)) ** (1 / 3 if pure else 1 / 5) if accelerated else (1 - ratio) ** (2 / 3 if pure else 2 / 5)
    )
    assert_allclose(bound.best_growth, stated)
    assert_allclose(minimiser(bound, 0, 3), stated, atol=1e-5)
    assert_allclose(bound.power(), 1.0 if accelerated else 0.5)  # Table 2


def convex_error(kappa, alpha, accelerated, pure, rounds=400_000):
    """Schmidt et al. (2011), Propositions 1 and 2, at every T, with approximation errors kappa / eps_t and unit budget."""
    t = np.arange(1.0, rounds + 1)
    total = np.cumsum(t**alpha) if pure else np.sqrt(np.cumsum(t ** (2 * alpha)))
    sums = np.cumsum(t ** ((1 if accelerated else 0) - alpha / 2))
    return (1 + np.sqrt(kappa * total) * sums) ** 2 / t ** (2 if accelerated else 1)


def strong_error(kappa, q, ratio, accelerated, pure, rounds=300):
    """Schmidt et al. (2011), Propositions 3 and 4, likewise."""
    t = np.arange(1.0, rounds + 1)
    total = np.cumsum(q**-t) if pure else np.sqrt(np.cumsum(q ** (-2 * t)))
    if accelerated:
        q0 = 1 - np.sqrt(ratio)
        return q0**t * (1 + np.sqrt(kappa * total) * np.cumsum((q / q0) ** (t / 2))) ** 2
    q0 = 1 - ratio
    return q0**t * (1 + np.sqrt(kappa * total) * np.cumsum(q ** (t / 2) / q0**t))


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(
    ("accelerated", "alpha"), [(False, a) for a in (-3, 0, 1, 4)] + [(True, a) for a in (-3, 0.4, 2, 7)]
)
def test_phi_is_the_power_of_noise_in_the_descent_bound(accelerated, alpha, pure):
    """Phi is the power of the noise in the bound of inexact proximal descent."""
    kappas = 10.0 ** np.array([-10, -13])
    curves = [convex_error(kappa, alpha, accelerated, pure) for kappa in kappas]
    slope = np.diff([np.log10(curve.min()) for curve in curves])[0] / -3
    assert_allclose(slope, phi(alpha, accelerated=accelerated, pure=pure), atol=0.01)
    # and the T that achieves it grows as stated
    growth = np.diff([np.log10(curve.argmin() + 1) for curve in curves])[0] / 3
    assert_allclose(growth, phi(alpha, accelerated=accelerated, pure=pure) / (2 if accelerated else 1), atol=0.01)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("q", [0.4, 0.9, 1.3])
def test_the_power_with_strong_convexity_is_that_of_the_bound(accelerated, q, pure):
    ratio = 0.1
    bound = replace(STRONG, accelerated=accelerated, strong_convexity=ratio, delta=0.0 if pure else 1e-3)
    kappas = 10.0 ** np.array([-8, -24])
    curves = [strong_error(kappa, q, ratio, accelerated, pure) for kappa in kappas]
    slope = np.diff([np.log10(curve.min()) for curve in curves])[0] / -16
    assert_allclose(slope, bound.power(q), atol=0.02)
    # T rounds are enough up to a constant, and half as many are not
    q_tilde = 1 - np.sqrt(ratio) if accelerated else (1 - ratio) ** 2
    T = int(np.log(kappas[1]) / np.log(psi(q, q_tilde)))
    assert curves[1][T - 1] < 30 * curves[1].min()
    assert curves[1][T // 2 - 1] > curves[1].min() ** 0.75


def test_rounds_and_rates_by_hand():
    m, d, eps, delta = 10**8, 20, 0.5, 1e-3
    M = 2 * 3 * d * np.log(d) / np.sqrt(m) * np.sqrt(np.log(np.e + eps / (np.sqrt(2) * delta)) + 2 * eps) / eps
    bound = UtilityBound(m, d, eps, delta, accelerated=False, clip=2.0, index=3, curvature=5.0)
    assert_allclose(bound.noise(), M)
    assert_allclose(bound.rate(), 4 * 5 * M**0.4)  # equation (11) at alpha = 0
    assert_allclose(bound.rounds(), M**-0.4)
    sparse = replace(bound, norm="group sparse", delta=0.0, accelerated=True)
    M = 3 * np.log(d) / (m * eps)  # supplement, Theorem 8, with alpha = 2/3
    assert_allclose(sparse.rate(), 4 * 5 * (M / (5 / 3) ** 3) ** 0.4)
    assert_allclose(sparse.rounds(), ((5 / 3) ** 3 / M) ** 0.2)
    m = 10**16
    strong = replace(bound, num_tasks=m, delta=0.0, strong_convexity=0.5)  # Theorem 9: Q_0 = .9, Q = .9^{2/3}
    M, q = 2 * 3 * d * np.log(d) / (np.sqrt(m) * eps), 0.9 ** (2 / 3)
    assert_allclose(strong.rate(), 2 * np.sqrt(M / (1 - q) ** 3))
    assert_allclose(strong.rounds(), np.log((1 - q) ** 3 / M) / -np.log(0.81))


def test_acceleration_needs_fewer_rounds_where_claimed():
    """Acceleration needs fewer rounds where the second claim says so."""
    many = replace(STRONG, num_tasks=10**40, delta=1e-3)  # so many that constants do not matter
    for ratio, fewer in ((0.05, True), (0.3, True), (0.36, True), (0.41, False), (0.6, False)):
        slow, fast = (replace(many, strong_convexity=ratio, accelerated=a).rounds() for a in (False, True))
        assert (fast < slow) == fewer, ratio
        assert replace(many, strong_convexity=ratio).rounds_saved == slow / fast
    slow, fast = (replace(many, strong_convexity=0.0, accelerated=a).rounds() for a in (False, True))
    assert fast < slow
    assert replace(many, strong_convexity=0.0).rounds_saved == slow / fast


def test_psi_is_continuous_and_piecewise():
    assert [psi(q, 0.5) for q in (0.2, 0.5, 0.7, 1.0, 2.0)] == [0.2, 0.5, 0.5, 0.5, 0.25]
    assert phi(2, accelerated=False) == pytest.approx(phi(2 + 1e-9, accelerated=False))
    assert phi(-0.5, accelerated=True) == pytest.approx(phi(-0.5 - 1e-9, accelerated=True))
    assert CONVEX.rate(4.0) == np.inf  # a pole of the printed bound


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_tasks": 0}, "num_tasks"),
        ({"num_features": 1}, "num_features"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"strong_convexity": 1.0}, "strong_convexity"),
        ({"norm": "trace"}, "norm"),
        ({"composition": "zCDP"}, "composition"),
        ({"clip": -1.0}, "clip"),
    ],
)
def test_bad_arguments_are_named(change, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        replace(CONVEX, **change)
    with pytest.raises(ValueError, match="q: expected"):
        psi(0.0, 0.5)
