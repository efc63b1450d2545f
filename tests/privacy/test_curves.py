"""A guarantee at all eps at once: trade-off curves, groups, and odds of membership."""

import itertools
import re

import matplotlib
import numpy as np
import pytest
from helpers.tolerances import RARE
from scipy import stats

from mpmtl_prob.privacy import Gaussian, Quantile, VectorLaplace, Wishart, calibrate, compute_delta, compute_epsilon
from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian
from mpmtl_prob.privacy.accounting.curves import compute_profile, membership_odds
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_add, delta_gaussian, delta_remove
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.releases import Release, release

matplotlib.use("Agg")

W = np.random.default_rng(0).standard_normal((3, 12))
LAW = calibrate(1.0, 1e-2, 3, adjacency="zero_out")


def test_a_release_knows_delta_at_every_eps_and_the_inverse(tmp_path):
    """A release knows its delta at every eps and its eps at every delta."""
    out = release(W, 1.0, 1e-2)
    out.save(tmp_path / "out.nc")
    for guarantee in (out.guarantee, Release.load(tmp_path / "out.nc").guarantee):
        assert guarantee.delta(1.0) == guarantee.proved.delta
        assert guarantee.delta(0.3) == compute_delta(0.3, out.mechanisms)
        assert guarantee.epsilon(1e-3) == compute_epsilon(1e-3, out.mechanisms)


def test_what_was_bought_besides_is_on_the_curve():
    law = VectorLaplace(3, 0.5, 1.0)
    assert compute_profile((law, Quantile(0.2)), "replace").delta(0.3) > compute_profile((law,), "replace").delta(0.3)


@pytest.mark.parametrize("mu", [0.3, 2.0])
def test_gaussian_noise_has_the_normal_trade_off_curve(mu):
    """The trade-off curve of Gaussian noise is the normal one, and is never too hopeful."""
    curve = compute_profile((Gaussian(2, 1 / (np.sqrt(2) * mu)),), "zero_out")
    false_alarms, missed = curve.tradeoff()
    exact = stats.norm.cdf(stats.norm.isf(false_alarms) - mu)
    assert np.all(missed <= exact + 1e-12)
    assert np.all(missed >= exact - 2e-3)
    assert (curve.gdp, curve.zcdp) == (pytest.approx(mu), pytest.approx(mu**2 / 2))


def test_a_trade_off_curve_is_convex_symmetric_and_falls():
    curve = compute_profile((LAW,), "zero_out")
    rates = np.linspace(0, 1, 41)
    missed = curve.tradeoff(rates)[1]
    assert np.all(np.diff(missed) <= 1e-12)
    assert np.all(np.diff(missed, 2) >= -1e-9)
    assert np.all(curve.tradeoff(missed)[1] <= rates + 1e-2)
    assert curve.gdp is None
    assert curve.zcdp is None


def test_a_group_is_joined_member_by_member():
    """The bound of steps of one, in the order of the formula, is that of groups that are doubled; a large one has it too."""
    profile, at = compute_profile((LAW,), "zero_out", 1), np.linspace(0, 3, 201)
    of_one = np.array([profile.delta(eps) for eps in at])
    delta = of_one
    for k in range(2, 8):
        delta = np.array([
            min(1.0, min(of_one[c] + np.exp(at[c]) * delta[j - c] for c in range(j + 1))) for j in range(len(at))
        ])  # fmt: skip
        np.testing.assert_allclose(profile.for_group(k)._of_group(at), delta, rtol=1e-12)
    assert profile.for_group(20_000).delta(1.0) == 1.0
    tiny = compute_profile((calibrate(1e-5, 1e-12, 3, adjacency="zero_out"),), "zero_out", 1).for_group(20_000)
    assert 0 < tiny.delta(1.0) < 1


def test_a_group_of_one_is_the_task_itself():
    curve = compute_profile((LAW,), "replace")
    assert curve.for_group(1).delta(0.7) == curve.delta(0.7)
    single = curve.for_group(2).delta(0.0)
    assert single == pytest.approx(2 * curve.delta(0.0), rel=1e-9)


@pytest.mark.parametrize("k", [2, 5])
def test_a_group_under_gaussian_noise_is_exact(k):
    law = Gaussian(3, 4.0)
    group = release(W, 1.0, mechanism=law).guarantee.for_group(k)
    assert repr(group).startswith(f"PrivacyProfile({k} units together; eps at delta = 0.01: ")
    assert group.delta(1.0) == pytest.approx(delta_gaussian(1.0, k * law.mu("replace")))
    assert group.gdp == pytest.approx(k * law.mu("replace"))


def test_a_group_costs_no_less_than_its_members():
    """A group costs no less than the exact delta of members who share one vector."""
    # k tasks of the same vector shift one Gamma variable by k
    law, k = Wishart(3, 2 + 2 * 40.0, 0.5), 3
    group = compute_profile((law,), "zero_out", k)
    for at in (0.2, 0.5, 1.0):
        exact = [one(at, law.shape, law.theta / k) for one in (delta_add, delta_remove)]  # in units of the whole shift
        assert max(exact) <= group.delta(at) <= 1
    near = calibrate(0.3, 1e-2, 3, adjacency="zero_out")  # nearly Gaussian: the bound through members is tight
    mu = next(m for m in np.linspace(0.01, 1, 1000) if delta_gaussian(0.3, m) > 1e-2)
    assert compute_profile((near,), "zero_out", 4).delta(1.0) == pytest.approx(delta_gaussian(1.0, 4 * mu), rel=0.1)
    rates = np.array([0.01, 0.1, 0.5])
    assert np.allclose(
        compute_profile((near,), "zero_out", 4).power(rates), stats.norm.cdf(stats.norm.ppf(rates) + 4 * mu), atol=0.03
    )


def test_the_power_against_two_tasks_may_be_that_of_twice_eps():
    """The power of a test about two tasks may be that of twice the eps."""
    assert compute_profile((Quantile(1.0),), "replace", 2).power(0.05) >= np.exp(2) * 0.05 * (1 - 1e-9)


def test_the_power_of_a_test_for_absence_has_its_own_direction():
    """The power of a test for absence is that of its own direction.

    Wishart noise hides a zeroed task less well in one direction; the bound for both is above that for "add".
    """
    profile, rates = compute_profile(LAW, "zero_out"), np.array([0.01, 0.1, 0.5])
    assert np.all(profile.one_sided_power(rates) <= profile.power(rates) + 1e-12)
    assert np.any(profile.one_sided_power(rates) < profile.power(rates) - 1e-3)
    with pytest.raises(ValueError, match=r"group: expected one unit, .* got 2"):
        profile.for_group(2).one_sided_power(rates)


def test_a_groups_eps_inverts_its_delta():
    group = compute_profile((LAW,), "replace", 2)
    epsilon = group.epsilon(1e-2)
    assert group.delta(epsilon) <= 1e-2 < group.delta(epsilon * 0.999)


def test_unproved_releases_have_no_curve_and_empty_ones_are_flat():
    """A release without proof has no curve, and one that shares nothing has a flat one."""
    for guarantee in (NOT_PRIVATE, release(W, 1.0, 1e-2, unsafe_seed=1).guarantee):
        for ask in (
            lambda g: g.delta(1.0),
            lambda g: g.for_group(2),
            lambda g: g.membership_odds(),
            lambda g: g.plot(),
        ):
            with pytest.raises(ValueError, match="guarantee: expected one of which something is proved"):
                ask(guarantee)
    assert NOTHING_SHARED.delta(0.0) == NOTHING_SHARED.for_group(3).delta(0.0) == 0
    assert NOTHING_SHARED.epsilon(1e-9) == 0
    assert np.array_equal(NOTHING_SHARED.tradeoff([0.0, 0.3, 1.0])[1], [1.0, 0.7, 0.0])
    with pytest.raises(ValueError, match="k: expected a whole number >= 1, got 0"):
        release(W, 1.0, 1e-2).guarantee.for_group(0)


def known(law, n, seed):
    """log Bayes factors of n releases with the task and n without it, from the density itself."""
    rng = np.random.default_rng(seed)
    others = W[:, 1:] @ W[:, 1:].T
    w = W[:, 0] / np.linalg.norm(W[:, 0])
    there = others + np.outer(w, w)
    tables = []
    for A in (there, others):
        sigma = law.sample(rng, np.broadcast_to(A, (n, 3, 3)))
        with np.errstate(invalid="ignore"):
            tables.append(law.log_prob(sigma, there) - law.log_prob(sigma, others))
    return tables


@pytest.mark.parametrize("law", [LAW, Gaussian(3, 0.7)], ids=lambda law: law.kind)
def test_odds_are_those_of_the_density(law):
    present, _ = known(law, 4000, 1)
    odds = membership_odds((law,), "zero_out", 1.0, 0.3)
    posterior = 1 / (1 + 0.7 / 0.3 * np.exp(-present))
    for q in (0.1, 0.5, 0.9):
        below = np.sum(posterior <= odds.quantile(q))
        assert stats.binomtest(int(below), 4000, q).pvalue > RARE


@pytest.mark.parametrize("law", [LAW, Gaussian(3, 0.7)], ids=lambda law: law.kind)
def test_of_the_cases_given_a_probability_as_many_are_there(law):
    present, absent = known(law, 20_000, 2)
    prior = 0.5
    factors = np.concatenate([present, absent])
    is_there = np.repeat([True, False], 20_000)
    posterior = 1 / (1 + (1 - prior) / prior * np.exp(-factors))
    edges = np.quantile(posterior, np.linspace(0, 1, 6))
    for low, high in itertools.pairwise(edges):
        inside = (posterior >= low) & (posterior <= high)
        gap = is_there[inside].mean() - posterior[inside].mean()
        assert abs(gap) < 6 * 0.5 / np.sqrt(inside.sum())


@pytest.mark.parametrize("law", [LAW, Gaussian(3, 0.7)], ids=lambda law: law.kind)
def test_the_odds_of_a_replaced_task_stay_within_the_bound(law):
    """The odds of a task that another replaces pass their bound no more often than is said."""
    n, rng = 4000, np.random.default_rng(3)
    others, (w, v) = W[:, 1:] @ W[:, 1:].T, np.linalg.qr(W[:, :2])[0].T  # at a right angle, where most is seen
    there, absent = others + np.outer(w, w), others + np.outer(v, v)
    sigma = law.sample(rng, np.broadcast_to(there, (n, 3, 3)))
    with np.errstate(invalid="ignore"):
        factor = law.log_prob(sigma, there) - law.log_prob(sigma, absent)
    odds = membership_odds((law,), "replace", 1.0, 0.3)
    posterior = 1 / (1 + 0.7 / 0.3 * np.exp(-factor))
    for q in (0.1, 0.5, 0.9):
        below = int(np.sum(posterior <= odds.quantile(q)))
        kind = "two-sided" if law.kind == "Gaussian" else "less"  # exact of Gaussian noise, a bound of Wishart noise
        assert stats.binomtest(below, n, q, alternative=kind).pvalue > RARE
    passed = int(np.sum(posterior > odds.cap))
    assert stats.binomtest(passed, n, min(odds.above + 1e-3, 1.0), alternative="greater").pvalue > RARE


def test_the_loss_is_bounded_for_every_pair_below_the_curve():
    """No pair whose delta(eps) is below the curve passes an eps more often; such a pair may pass it more often than another.

    The pair with the curve of N(0, 1) against N(mu, 1) passes eps with one probability. A pair with three results, of which
    one has a Bayes factor just above e^eps, stays below the curve and passes eps more often.
    """
    mu, epsilon = 0.45, 1.0
    profile = PrivacyProfile.gaussian(mu)
    curve = np.array([profile.delta(e) for e in np.linspace(0, 4, 401)])
    bound, of_gaussian = profile.exceeding(epsilon), stats.norm.sf((epsilon - mu**2 / 2) / mu)
    most = 0.0
    for likely in np.linspace(
        0.002, 0.2, 100
    ):  # P of the result; the two others make Q and P sum to one, and mirror it
        rare = likely * np.exp(-epsilon - 1e-6)
        P, Q = np.array([likely, 1 - likely - rare, rare]), np.array([rare, 1 - likely - rare, likely])
        deltas = np.maximum(P[:, None] - np.exp(np.linspace(0, 4, 401)) * Q[:, None], 0).sum(axis=0)
        if (deltas <= curve + 1e-12).all():
            most = max(most, likely)
    assert of_gaussian < most <= bound


@pytest.mark.parametrize("mu", [1e-10, 0.05, 1.0, 3.5])
def test_the_median_of_the_loss_is_bounded(mu):
    """The loss of N(0, 1) against N(mu, 1) has the median mu^2 / 2."""
    assert mu**2 / 2 <= PrivacyProfile.gaussian(mu).median() < mu**2 / 2 + 3 * mu + 1e-8


def test_a_group_has_no_smaller_delta_than_two_zeroed_columns():
    """Two units whose columns are parallel are removed by one with twice the shift; eps is beyond the range of e^eps."""
    law = Wishart(4, 4e5, 1e-5)
    profile = compute_profile(law, "zero_out", group=2)
    assert profile.delta(22_000) > 0.99


def test_gaussian_log_factors_are_normal():
    law = Gaussian(3, 2.0)
    odds = release(W, 1.0, mechanism=law).membership_odds()
    mu = law.mu("replace")
    assert odds.quantile(0.9) == pytest.approx(1 / (1 + np.exp(-(mu**2 / 2 + mu * stats.norm.ppf(0.9)))), rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_cap_is_passed_as_often_as_is_said(epsilon):
    law = calibrate_gaussian(epsilon, 1e-3, 3)
    odds, mu = membership_odds((law,), "replace", epsilon), law.mu("replace")
    assert odds.above == pytest.approx(stats.norm.cdf(mu / 2 - epsilon / mu), rel=1e-3)
    assert odds.above > 3 * odds.delta


@pytest.mark.parametrize(("shape", "theta"), [(24.0, 0.5), (96.0, 0.2), (500.0, 0.05)])
@pytest.mark.parametrize("beside", [(), (Wishart(2, 193.0, 1e9),)], ids=["alone", "through the grid"])
def test_the_cap_is_passed_as_often_under_wishart_noise(shape, theta, beside):
    """The loss when the task is there is (k - 1) log(1 - 1/x) + 1/theta at x = 1 + Gamma(k, theta), and rises with x."""
    law = Wishart(2, 1 + 2 * shape, theta / 2)
    for deviations in (0.5, 2.0):
        epsilon = deviations / (theta * np.sqrt(shape))
        x = 1 / -np.expm1((epsilon - 1 / theta) / (shape - 1))
        exact = stats.gamma.sf((x - 1) / theta, shape)
        assert membership_odds((law, *beside), "zero_out", epsilon).above == pytest.approx(exact, rel=2e-3)


def test_a_loss_of_eps_itself_does_not_pass_the_cap():
    odds = membership_odds((Quantile(1.0),), "replace", 1.0)
    assert odds.above == 0
    assert membership_odds((Quantile(1.0),), "replace", 0.9).above == pytest.approx(1 / (1 + np.exp(-1)), rel=1e-3)


def test_the_words_say_what_can_be_seen_of_a_run():
    words = release(W, 1.0, 1e-2).explain()
    assert "how long it takes, and which errors and warnings come up" in words


def test_the_odds_are_said_in_words():
    out = release(W, 1.0, 1e-2)
    words = str(out.membership_odds())
    assert "thought it 50% likely that you are in it" in words
    assert f"more than 73.1% with a probability of about {out.membership_odds().above:.2g}" in words
    assert words in out.guarantee.explain()
    assert out.explain() == f"3 x 3 second moment of 12 tasks, one round.\n\n{out.guarantee.explain()}"
    assert out.membership_odds(0.01).cap == pytest.approx(np.e / (np.e + 99))
    with pytest.raises(ValueError, match="prior: expected a number in"):
        out.membership_odds(1.0)


@pytest.mark.parametrize("epsilon", [3.0, 8.0, 15.0, 40.0, 800.0])
def test_no_odds_are_more_than_a_hundred_percent(epsilon):
    words = str(membership_odds((Gaussian(2, 0.02),), "replace", epsilon))
    assert "100" not in words
    if epsilon < 20:
        assert float(re.search(r"and more than ([\d.]+)% with", words)[1]) == pytest.approx(
            100 / (1 + np.exp(-epsilon)), rel=1e-3
        )
    else:
        assert f"and more than e^{epsilon:g} times the odds before with a probability" in words


@pytest.mark.parametrize("rates", [-0.1, 1.01, 5, np.nan, [0.1, 2.0]])
def test_rates_of_false_alarms_are_from_0_to_1(rates):
    curve = compute_profile((LAW,), "zero_out")
    for power in (curve.power, curve.one_sided_power, curve.tradeoff, curve.for_group(2).power):
        with pytest.raises(ValueError, match=r"rates from 0 to 1|one unit"):
            power(rates)


def test_a_curve_is_drawn():
    first, second = release(W, 1.0, 1e-2).guarantee.plot()
    assert first.get_yscale() == "log"
    assert second.get_xlabel() == "false alarms"
