"""Tracing scores and the identities behind them; attacks on every mechanism and view; controls that have to be caught."""

import itertools

import numpy as np
import pytest
from helpers.tolerances import FAR, RARE
from scipy import stats

from mpmtl_prob.privacy import Bound, views
from mpmtl_prob.threat_models import NoisyMeans, audits, mean_loss, one_of_each, scores, sign_loss, signs
from mpmtl_prob.threat_models.problems import uniform_nodes

SURE = 1 - 1e-9  # of limits that a true promise may not pass


def expected(function, t, spread=1.0):
    """E over p ~ U[-spread, spread] and t answers of function(x (t,), p): every x, and quadrature on both sides of 0."""
    nodes, weights = uniform_nodes(spread / 2, 40)
    p = np.concatenate([nodes + spread / 2, -nodes - spread / 2])
    total = np.zeros(len(p))
    for x in itertools.product([-1, 1], repeat=t):
        total += np.prod([(1 + each * p) / 2 for each in x], axis=0) * function(np.array(x), p)
    return total @ np.tile(weights / 2, 2)


ESTIMATES = {
    "the mean": lambda x: x.mean(),
    "the majority": lambda x: np.sign(x.sum()),
    "one's own": lambda x: x[0] / 3,
    "a third of a product": lambda x: x.prod() / 3,
    "not even in [-1, 1]": lambda x: 3 * x[1] + x.sum() ** 2,
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_accuracy_forces_the_scores_of_means(name):
    # Lemma B.3, an identity: the sum runs over all five people whom the estimate has seen
    f = ESTIMATES[name]
    column = lambda x, p: np.full((len(p), 1), f(x))
    total = expected(lambda x, p: sum(scores.mean_score(column(x, p), p[:, None], each) for each in x), 5)
    assert total == pytest.approx(expected(lambda x, p: scores.forced(column(x, p), p[:, None]), 5), abs=1e-12)
    if name in ("the mean", "the majority"):
        both = total + expected(lambda x, p: (f(x) - p) ** 2, 5)
        assert both == pytest.approx({"the mean": 0.8, "the majority": 4 / 3}[name])


@pytest.mark.parametrize("spread", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("name", ["the majority", "one's own", "a third of a product"])
def test_accuracy_forces_the_scores_of_signs(name, spread):
    # Lemma 5.8, for any f in [-1, 1]; 4 sign_loss = 2 (|p| - f p)
    f = ESTIMATES[name]
    total = expected(
        lambda x, p: sum(scores.sign_score(np.full((len(p), 1), f(x)), p[:, None], each, spread) for each in x)
        + 4 * sign_loss(f(x), p), 5, spread,
    )  # fmt: skip
    assert total == pytest.approx(spread, abs=1e-12)


def test_the_two_steps_of_the_identities():
    f, p, h = ESTIMATES["the majority"], np.linspace(-0.8, 0.8, 7), 1e-6
    mean = lambda function, p: sum(
        np.prod([(1 + each * p) / 2 for each in x], axis=0) * function(np.array(x))
        for x in itertools.product([-1, 1], repeat=5)
    )
    correlation = mean(lambda x: f(x) * x.sum(), p) - 5 * p * mean(f, p)
    slope = (mean(f, p + h) - mean(f, p - h)) / (2 * h)
    assert correlation == pytest.approx((1 - p**2) * slope, rel=1e-7)  # Lemma B.1, (1 - p^2) and not (1 - p)^2
    nodes, weights = uniform_nodes(0.7)
    slope = (mean(f, nodes + h) - mean(f, nodes - h)) / (2 * h)
    left = (scores.weights(nodes, 0.7) * slope * (1 - nodes**2)) @ weights
    assert left == pytest.approx(2 * (mean(f, nodes) * nodes) @ weights, rel=1e-7)  # Lemma B.2


@pytest.mark.parametrize(("share", "claimed"), [(1 / 3, 1 / 9), (1 / 2, 1 / 12)])
def test_the_gap_in_theorem_4_6(share, claimed):
    # everybody answers with a share of the own x: nobody else's score can be above 0, whatever the printed step says
    own = lambda x, p: np.full((len(p), 1), share * x[0])
    others = expected(lambda x, p: sum(scores.mean_score(own(x, p), p[:, None], each) for each in x[1:]), 4)
    printed = 1 / 3 - expected(lambda x, p: (share * x[0] - p) ** 2, 4)
    assert others == pytest.approx(0, abs=1e-13)
    assert printed == pytest.approx(claimed)
    repaired = expected(
        lambda x, p: scores.forced(own(x, p), p[:, None]) - scores.own_term(own(x, p), p[:, None], x[:1]), 4
    )
    assert repaired == pytest.approx(others, abs=1e-13)
    squares = expected(lambda x, p: (share * x[0] - p) ** 2, 4)
    term = expected(lambda x, p: scores.own_term(own(x, p), p[:, None], x[:1]), 4)
    assert term <= np.sqrt(2 / 3 * squares)  # the repair's bound


def test_the_gap_in_lemma_b4():
    spread = 0.3
    own = lambda x, p: np.full((len(p), 1), x[0])
    each = [
        expected(lambda x, p, i=i: scores.sign_score(own(x, p), p[:, None], x[i : i + 1], spread), 3, spread)
        for i in range(3)
    ]
    assert each == pytest.approx([2 * spread**2 / 3, 0, 0], abs=1e-13)  # .060, and nothing for the others


def test_variances_of_scores_of_those_who_were_not_there():
    f = ESTIMATES["the mean"]
    new = lambda x: np.append(x[:-1], x[-1])  # the last person's answer is new: f does not see it
    variance = expected(lambda x, p: ((f(new(x)[:-1]) - p) * (x[-1] - p)) ** 2, 5)
    exact = expected(lambda x, p: scores.outside_variance(np.full((len(p), 1), f(x[:-1])), p[:, None]), 5)
    assert variance == pytest.approx(exact)
    spread = 0.6
    sign_variance = expected(
        lambda x, p: scores.sign_score(np.full((len(p), 1), x[0]), p[:, None], x[1:], spread) ** 2, 2, spread
    )
    assert sign_variance <= 2 / 3 * spread**4


def test_no_pair_of_laws_that_are_private_passes_what_is_allowed():
    rng = np.random.default_rng(0)
    for _ in range(300):
        q, p = (rng.dirichlet(np.full(6, 0.7)) for _ in range(2))
        T = rng.uniform(-1, 1, 6)
        T -= q @ T
        for eps in (0.1, 0.7, 2.0):
            delta = max(np.maximum(p - np.exp(eps) * q, 0).sum(), np.maximum(q - np.exp(eps) * p, 0).sum())
            assert p @ T <= scores.allowed(eps, delta, q @ np.abs(T), np.abs(T).max()) + 1e-12
    # and it is reached: a third outcome takes what is missing
    eps, share = 0.8, 0.05
    q, p = np.array([share / 2, share / 2, 1 - share]), share / 2 * np.exp([eps, -eps, 0.0])
    p[2] = 1 - p[:2].sum()
    T = np.array([1.0, -1.0, 0.0])
    assert np.abs(np.log(p / q)).max() == pytest.approx(eps)
    assert p @ T == pytest.approx(scores.allowed(eps, 0.0, q @ np.abs(T), 1.0))
    assert scores.implied_epsilon(p @ T, q @ np.abs(T), 0.0, 1.0) == pytest.approx(eps)
    grid = np.linspace(0.01, 2.17, 50)
    assert (np.sinh(grid) <= 2 * grid).all()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_score_that_is_allowed_implies_no_more(epsilon):
    inside = scores.allowed(epsilon, 0.01, 0.5, 12.0)
    assert scores.implied_epsilon(inside, 0.5, 0.01, 12.0) <= epsilon * (1 + 1e-12)


def test_no_score_is_above_its_bound():
    p, e, x = (
        np.array(v) for v in zip(*itertools.product([-1.0, -0.4, 0.9, 1.0], [-1.0, 1.0], [-1.0, 1.0]), strict=True)
    )
    assert np.abs(scores.mean_score(e[:, None], p[:, None], x[:, None])).max() == scores.largest(1)
    spread = 0.9
    inner = np.linspace(-spread, spread, 101)[:, None]
    assert np.abs(scores.sign_score(np.ones_like(inner), inner, -1, spread)).max() <= scores.largest(1, spread)


def test_a_trace_has_the_bound_of_its_scores():
    board = NoisyMeans(5, 3, 0.4, views.billboard())
    worst = scores.mean_score(np.ones(3), -np.ones(3), np.ones(3))
    assert audits.trace(board, trials=2).bound == worst == 12.0
    assert audits.trace(board, spread=0.3, trials=2).bound == pytest.approx(3 * 2 * 0.3**2)


@pytest.mark.parametrize("view", [views.others(), views.billboard()], ids=lambda view: view.name)
def test_tracing_has_its_closed_form(view):
    mechanism = NoisyMeans.at(2.0, 30, 60, view=view, clipped=False)
    traced = audits.trace(mechanism, trials=4000)
    mean, spread, _ = scores.closed_form(mechanism.numbers(view), 30, mechanism.sd)
    se = spread / np.sqrt(4000)
    assert abs(traced.outside.mean()) < FAR * se
    assert abs(traced.inside.mean() - mean) < FAR * se * 1.1  # who was there varies by little more
    assert traced.outside.std() == pytest.approx(spread, rel=FAR * 1.2 / np.sqrt(2 * 4000))
    assert traced.bound == np.inf
    with pytest.raises(ValueError, match="mechanism: expected clipped estimates"):
        traced.moments(1e-3)


def test_tracing_is_weak_under_privacy_and_certain_without():
    # at rho = 2; printed to two digits, and the standard error of an AUC near a half is sqrt(1 / (6 n))
    for view, printed in ((views.billboard(), 0.70), (views.others(), 0.68)):
        traced = audits.trace(NoisyMeans.at(2.0, 50, 2000, view=view, clipped=False), trials=2500)
        assert traced.auc == pytest.approx(printed, abs=0.005 + FAR / np.sqrt(6 * 2500))
        assert not traced.threshold(Bound(5.0, 0.01, "replace", "person"), SURE).broken
    none = audits.trace(NoisyMeans(50, 2000, 0.0, views.billboard()), trials=200)
    assert none.auc > 0.999
    assert none.threshold(Bound(1.0, 1e-3, "replace", "person"), SURE).broken


@pytest.mark.parametrize("spread", [None, 0.4])
def test_mean_scores_keep_the_promise_only_with_noise(spread):
    """Mean scores stay within the promise, and pass it without noise."""
    delta = 1e-5
    for name, mechanism in one_of_each(1.0, 40, 300).items():
        if name == "none":
            limits_of_moments = audits.trace(mechanism, spread=spread, trials=400).moments(delta, SURE)
            assert limits_of_moments.lower > 0.5
        else:
            claim = audits.own_claim(mechanism, delta)
            limits_of_moments = audits.trace(mechanism, spread=spread, trials=2000).moments(delta, SURE)
            assert limits_of_moments.lower <= limits_of_moments.estimate <= limits_of_moments.upper
            assert limits_of_moments.lower <= claim.epsilon


def test_a_moment_limit_covers_the_truth():
    # of unclipped Gaussian scores the truth is known; clipping to so wide an interval changes nothing
    inside, outside = 0.3 + np.random.default_rng(1).standard_normal((2, 4000))
    traced = audits.Traced(NoisyMeans.at(1.0, 4, 3, view=views.single()), views.single(), inside, outside - 0.3, 0.0)
    assert np.arcsinh(0.3 / np.sqrt(2 / np.pi)) in traced.moments(0.0, SURE)


def test_limits_of_the_moments_are_of_two_means_and_two_sides():
    inside, outside, delta, most = np.tile([0.9, 1.1], 50), np.tile([-0.5, 0.7], 50), 0.01, 12.0
    traced = audits.Traced(NoisyMeans.at(1.0, 4, 3, view=views.single()), views.single(), inside, outside, most)
    w, v = (stats.norm.isf(0.025) * each.std(ddof=1) / 10 for each in (inside, np.abs(outside)))
    limits, beyond = traced.moments(delta, 0.9), 2 * delta * most
    assert limits.lower == pytest.approx(np.arcsinh((1 - w - beyond) / (0.6 + v)))
    assert limits.upper == pytest.approx(np.arcsinh((1 + w - beyond) / (0.6 - v)))


@pytest.mark.parametrize(
    ("kind", "view", "printed"),
    [("all others", views.others(), 0.673), ("one other", views.others(), 0.999), ("one other", views.single(), 0.673)],
)
def test_the_likelihood_ratio_shows_the_separation(kind, view, printed):
    # t = 50, rho = .2: noise for one other person says nothing to 49 of them together
    mechanism = one_of_each(np.sqrt(0.4), 50, 100)[kind]
    claim = Bound(2.0, 1e-3, "replace", "person")
    report = audits.likelihood_ratio(mechanism, claim, view=view, trials=10_000, confidence=SURE)
    mu = mechanism.mu(view)
    area = audits.auc(-report.present, -report.absent)
    assert stats.norm.cdf(mu / np.sqrt(2)) == pytest.approx(printed, abs=1e-3)
    assert area == pytest.approx(stats.norm.cdf(mu / np.sqrt(2)), abs=FAR * 0.5 / np.sqrt(10_000))
    # exactly Gaussian: N(-+ mu^2 / 2, mu^2)
    for sample, sign in ((report.absent, 1), (report.present, -1)):
        assert stats.kstest(sample, stats.norm(sign * mu**2 / 2, mu).cdf).pvalue > RARE
    assert report.broken == (printed > 0.9)


@pytest.mark.parametrize("kind", ["one other", "all others", "billboard"])
@pytest.mark.parametrize("people", [8, 30])
def test_own_claims_are_not_broken_and_half_of_them_is(kind, people):
    mechanism = one_of_each(1.5, people, 12)[kind]
    claim = audits.own_claim(mechanism, 0.05)
    options = {"trials": 20_000, "confidence": SURE}
    assert not audits.likelihood_ratio(mechanism, claim, **options).broken
    half = Bound(claim.epsilon / 2, 0.05, "replace", "person")
    assert audits.likelihood_ratio(mechanism, half, **options).broken


def test_a_billboard_shows_a_coalition_part_of_it():
    board = NoisyMeans.at(1.0, 8, 12, view=views.billboard())
    report = audits.likelihood_ratio(board, Bound(9, 0.1, "replace", "person"), view=views.single(), trials=10_000)
    mu = np.sqrt(1 / 12)
    assert stats.kstest(report.absent, stats.norm(mu**2 / 2, mu).cdf).pvalue > RARE
    with pytest.raises(ValueError, match="view: expected other people's numbers"):
        audits.likelihood_ratio(
            NoisyMeans.at(1.0, 8, 12, view=views.single()), Bound(1, 0.1, "replace", "person"), view=views.billboard()
        )


def test_the_one_time_pad_hides_one_view_and_not_two():
    """The one-time pad is private before one view, and broken by two."""
    claim = Bound(0.0, 0.0, "replace", "person")
    for first in (1, 2):
        report = audits.one_time_pad(views.single(first), claim, confidence=SURE)
        assert not report.broken
        assert set(report.absent.tolist()) == {0.0, 1.0}
    together = audits.one_time_pad(views.others(), claim, confidence=SURE)
    assert together.broken
    assert together.present.max() < together.absent.min()
    # exactly: whatever the secret, each alone is a fair coin
    for secret in (0, 1):
        assert sorted(r ^ secret for r in (0, 1)) == [0, 1]


def test_every_control_is_found():
    verdicts = audits.controls(1.0, 1e-3, confidence=1 - 1e-6)
    assert len(verdicts) == 4
    assert all(verdicts.values())


def test_the_matrix_tells_who_is_covered():
    rows = audits.matrix(one_of_each(1.0, 20, 30), 1.0, 0.2, trials=400)
    holds = {(row["mechanism"], row["view"]): row["holds"] for row in rows}
    assert len(holds) == 12
    one, all_others, board = (view.name for view in (views.single(), views.others(), views.billboard()))
    assert [holds["one other", view] for view in (one, all_others, board)] == [True, False, False]
    assert [holds["all others", view] for view in (one, all_others, board)] == [True, True, False]
    assert [holds["billboard", view] for view in (one, all_others, board)] == [True, True, True]
    assert not any(holds["none", view] for view in (one, all_others, board))
    areas = {(row["mechanism"], row["view"]): row["likelihood_ratio"] for row in rows}
    assert areas["one other", board] is None
    assert areas["one other", all_others] > areas["one other", one]


def test_a_promise_of_a_little_more_does_not_hold():
    board = {"board": NoisyMeans.within(1.0, 1e-3, 20, 30, view=views.billboard())}
    assert [audits.matrix(board, 1.0, delta, trials=100)[-1]["holds"] for delta in (1e-3, 0.9e-3)] == [True, False]


def test_losses_and_estimates_fit_together():
    # forced scores, by simulation on a billboard: E sum over all t people, and over the newcomer, whose score is 0
    t, d, n = 10, 4, 20_000
    mechanism, rng = NoisyMeans.at(3.0, t, d, view=views.billboard()), np.random.default_rng(7)
    p = rng.uniform(-1, 1, (n, d))
    x = 2 * (rng.random((t, n, d)) < (1 + p) / 2) - 1
    e = mechanism.estimate(mechanism.board(rng, x.sum(axis=0)))
    gap = scores.mean_score(e, p, x).sum(axis=0) - scores.forced(e, p)
    assert abs(gap.mean()) < FAR * gap.std() / np.sqrt(n)
    assert scores.forced(e, p).mean() == pytest.approx(
        d / 3 + (e**2).sum(-1).mean() - 4 * mean_loss(e, p).sum(-1).mean()
    )
    assert signs.sign(e).shape == e.shape


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: audits.trace(m, view=views.coalition(9)), "view: expected at most 7 other owners, got 9"),
        (lambda m: audits.trace(m, view=views.billboard()), "view: expected other people's numbers"),
        (lambda m: audits.trace(m, trials=1), "trials: expected a whole number >= 2"),
        (lambda m: audits.trace(m, spread=2.0), r"spread: expected a number in \(0, 1\]"),
        (lambda m: audits.one_time_pad(views.billboard(), None), "view: expected what other people receive"),
        (lambda m: audits.one_time_pad(views.single(), None, confidence=1.5), "confidence: expected a number in"),
        (
            lambda m: audits.trace(NoisyMeans.at(1.0, 8, 12, view=views.single(), samples=2)),
            "mechanism: expected one of a single sample",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make(NoisyMeans.at(1.0, 8, 12, view=views.others()))
