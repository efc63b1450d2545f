"""Membership odds and bounds."""

import itertools

import numpy as np
import pytest
from helpers.tolerances import FAR
from scipy import stats

from mpmtl_prob.privacy import views
from mpmtl_prob.theory import people as bounds
from mpmtl_prob.threat_models import NoisyMeans, audits, newcomers_error, odds, one_of_each, rho_within

SURE = 1 - 1e-9


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("known", [False, True])
def test_the_bayes_factor_by_counting_everybodys_answers(samples, known):
    # three people, one feature: p integrated on a grid, answers of the others enumerated one by one
    mechanism = NoisyMeans(3, 1, 0.6, views.billboard(), samples)
    g, a, b = 0.23, 1.7, 0.8
    x, w = np.polynomial.legendre.leggauss(400)
    q = np.array([0.7]) if known else (x + 1) / 2
    for own in itertools.product([-1, 1], repeat=samples):
        ones = (np.array(own) == 1).sum()
        prior = np.ones(1) if known else w / 2 * stats.beta(a, b).pdf(q)
        prior = prior * q**ones * (1 - q) ** (samples - ones)  # the own answers say something of p too

        def seen(unknown, added, prior=prior):
            total = 0.0
            for others in itertools.product([-1, 1], repeat=unknown):
                up = (np.array(others) == 1).sum()
                like = stats.norm(0, 0.6).pdf(g - (added + sum(others)) / (3 * samples))
                total += prior @ (q**up * (1 - q) ** (unknown - up)) * like
            return total / prior.sum()

        exact = np.log(seen(2 * samples, sum(own)) / seen(3 * samples, 0))
        log_factor = odds.log_factor([g], [sum(own)], mechanism, beta=(a, b), p=[0.4] if known else None)
        assert log_factor == pytest.approx(exact, abs=1e-4 if not known else 1e-9)


# for who knows p they are of the same odds, which are counted above
@pytest.mark.parametrize("known", [False, pytest.param(True, marks=pytest.mark.evidence)])
def test_probabilities_are_what_they_say(known):
    mechanism = NoisyMeans.at(2.0, 15, 40, view=views.billboard())
    inside, outside = odds.suspect(mechanism, known=known, trials=2000).probability(0.3)
    there = np.random.default_rng(0).random(2000) < 0.3
    said = np.where(there, inside, outside)
    for part in np.array_split(np.argsort(said), 5):  # the least likely fifth, and so on
        assert abs(there[part].mean() - said[part].mean()) < FAR * 0.5 / np.sqrt(len(part))
    # E[1 - probability | in] = E[probability | out] at even odds, exactly: both integrate f g / (f + g)
    inside, outside = odds.suspect(mechanism, known=known, trials=4000, seed=1).probability()
    gap = (1 - inside) - outside
    assert abs(gap.mean()) < FAR * gap.std() / np.sqrt(len(gap))
    assert inside.mean() - outside.mean() > FAR * np.hypot(inside.std(), outside.std()) / np.sqrt(len(gap))


def test_learning_is_within_rho_except_before_the_wrong_eyes():
    """The information that is learnt is within rho, and beyond it before the wrong eyes."""
    # t = 50, rho = .2: noise for one other person, before 49, refuted by somebody who knows p and nothing of the others
    each = one_of_each(np.sqrt(0.4), 50, 60)
    suspected = odds.suspect(each["one other"], view=views.others(), known=True, trials=3000)
    assert suspected.information(SURE).lower > 0.2
    for name in ("one other", "all others", "billboard"):
        for known in (False, True):
            assert odds.suspect(each[name], known=known, trials=300).information(SURE).lower <= 0.2


def test_limits_of_what_is_learnt_are_by_hand():
    board = NoisyMeans(5, 3, 0.4, views.billboard())
    learnt = odds.Suspected(board, board.view, np.arange(4.0), np.zeros(4)).information(0.9)
    width = stats.norm.isf(0.05) * np.std(np.arange(4), ddof=1) / 2
    assert (learnt.lower, learnt.upper) == pytest.approx((1.5 - width, 1.5 + width))


def test_who_knows_p_learns_as_tracing_does():
    mechanism = NoisyMeans.at(2.0, 30, 40, view=views.billboard(), clipped=False)
    played = odds.suspect(mechanism, known=True, trials=2000)
    traced = audits.trace(mechanism, trials=4000)
    assert audits.auc(played.inside, played.outside) == pytest.approx(
        traced.auc, abs=0.02 + FAR / np.sqrt(6 * 2000) * 1.3
    )  # of two samples
    assert played.information().lower <= 2.0


def test_what_a_participant_is_told():
    mechanism = NoisyMeans.within(1.0, 1e-3, 40, 25, view=views.others())
    told = odds.participant(mechanism, 1.0, trials=300)
    assert told.most == pytest.approx(np.e / (1 + np.e))
    assert 0.45 < told.typical < told.tenth < told.most
    mu = mechanism.mu()
    assert told.passed == pytest.approx(stats.norm(mu**2 / 2, mu).sf(1.0))
    assert "all other people together" in str(told)
    assert "do not get beyond 73%" in str(told)
    board = odds.participant(NoisyMeans.within(1.0, 1e-3, 40, 25, view=views.billboard()), 1.0, trials=300)
    assert "Against anybody: assume" in str(board)  # people, not tasks' owners


def test_the_bounds_of_the_table():
    # t = 1000, d = 10^6, eps = 1, delta = 5e-7
    rho = rho_within(1.0, 5e-7)
    assert rho == pytest.approx(0.016662, rel=1e-4)
    upper = {loss: [bounds.upper_bound(loss, k, 1000, rho) for k in (0, 1, 999, 10**6)] for loss in ("mean", "sign")}
    assert upper["mean"] == pytest.approx([2.5e-4, 2.80e-4, 0.0302, 30], rel=5e-3)
    assert upper["sign"] == pytest.approx([0.032, 0.043, 0.378, 11], rel=2e-2)
    lower = bounds.lower_bounds(1000, 10**6, 1.0, 5e-7)
    assert all(bound.holds for bound in lower)
    assert [bound.value for bound in lower] == pytest.approx(
        [2.3e-7, 3.65e-4, 6.08e-5, 6.2e-5, 3.9e-3, 6.5e-4], rel=2e-2
    )
    tight = {(bound.loss, bound.against): bound.unmet for bound in bounds.lower_bounds(1000, 10**6, 1.0, 1e-6)}
    assert {key for key, unmet in tight.items() if unmet} == {("mean", "billboard"), ("sign", "billboard")}
    assert tight["mean", "billboard"] == ("delta < 1 / (1152 t)",)
    assert all(not bound.holds for bound in bounds.lower_bounds(1000, 10**6, 2.0, 0.0))
    assert [bound.holds for bound in bounds.lower_bounds(1000, 1000, 1.0, 0.0)] == [
        False,
        True,
        False,
        False,
        True,
        True,
    ]


def test_the_billboards_bound_follows_from_that_of_newcomers():
    """Theorem 3.2 turns one into the other, at the largest delta that the conditions allow, wherever they hold."""
    kept = 0
    for t, eps in itertools.product((2, 30, 1000, 10**5), (0.05, 0.3, 1.0)):
        least = 576 / 121 * eps**2 * t  # questions from which delta is at most half of the newcomers' bound
        for d in (max(int(0.99 * least), 1), int(least) + 1, 10 * int(least) + 1, 100 * t**2):
            delta = (1 - 1e-12) / (1152 * t)
            by_kind = {(b.loss, b.against): b for b in bounds.lower_bounds(t, d, eps, delta)}
            newcomers, billboard = by_kind["mean", "newcomers"], by_kind["mean", "billboard"]
            assert billboard.holds == (d >= least)
            if not billboard.holds:
                continue
            kept += 1
            assert billboard.value == pytest.approx(newcomers.value / 6, rel=1e-12)
            assert newcomers_error(billboard.value, eps, delta) <= newcomers.value * (1 + 1e-9)
    assert kept > 30


def test_the_bound_for_newcomers_follows_from_the_tracing_scores():
    # 1/3 - 4 alpha <= 4 eps t sqrt(alpha / d) + 8 delta t + 4 sqrt(alpha), the inequality of the proof of Theorem 4.7 with
    # the variance 4 d alpha of a score, must fail for every alpha below the bound, at the largest delta
    for t, d, eps in ((10, 5, 1.0), (1000, 10, 1.0), (1000, 10**6, 0.2)):
        value = next(
            b.value for b in bounds.lower_bounds(t, d, eps, 0.0) if (b.loss, b.against) == ("mean", "newcomers")
        )
        alpha = value * (1 - 1e-9)
        assert 4 * eps * t * np.sqrt(alpha / d) + 1 / 12 + 4 * np.sqrt(alpha) < 1 / 3 - 4 * alpha


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_variance_of_a_score_is_a_quarter_of_the_printed(epsilon):
    """Means of randomised answers, by quadrature over p and enumeration of all answers: each step of Theorem 4.7's proof."""
    # two people are asked all d = 2 questions and answer one each, by randomised response, which keeps eps; the estimate of
    # a question is the unbiased mean of its answers, cut to [-1, 1], or 0 without one
    t, d, keep = 2, 2, np.exp(epsilon) / (1 + np.exp(epsilon))
    node, weight = np.polynomial.legendre.leggauss(9)
    answer_sets = list(itertools.product([-1, 1], repeat=d))

    def estimates(told, asked):
        sums = np.zeros(d)
        np.add.at(sums, asked, told)
        return np.clip(sums / np.maximum(np.bincount(asked, minlength=d), 1) / (2 * keep - 1), -1, 1)

    error = square = score = forced = 0.0
    for place in itertools.product(range(len(node)), repeat=d):
        p, share = node[list(place)], np.prod(weight[list(place)]) / 2**d
        chance = {x: np.prod((1 + np.array(x) * p) / 2) for x in answer_sets}
        for asked in itertools.product(range(d), repeat=t):
            for told in itertools.product([-1, 1], repeat=t):
                law = {x: keep if told[0] == x[asked[0]] else 1 - keep for x in answer_sets}  # of the first person
                mean = 1 / 2 + (keep - 1 / 2) * np.array(told) * p[list(asked)]  # chance of each of the reports
                off = estimates(told, list(asked)) - p
                seen = share / d**t * mean[1]
                error += seen * mean[0] * (off**2).mean() / 4
                for x in answer_sets:
                    own = off @ (np.array(x) - p)
                    square += seen * chance[x] * mean[0] * own**2  # the report is of fresh answers
                    score += seen * chance[x] * law[x] * own
        forced += share
    assert forced == pytest.approx(1)
    assert 0.5 * 4 * d * error < square <= 4 * d * error  # 16 d alpha is printed
    assert 0 < score <= 2 * epsilon * np.sqrt(square)
    assert score <= 4 * epsilon * np.sqrt(error * d)


def test_no_lower_bound_is_above_what_is_achieved():
    for t, d, eps in ((100, 10**4, 1.0), (1000, 10**6, 0.1), (10, 10**5, 0.5)):
        delta = 1 / (2000 * t)
        each = {}
        for view, name in ((views.others(), "all others"), (views.billboard(), "billboard")):
            each[name] = NoisyMeans.within(eps, delta, t, d, view=view)
        each["newcomers"] = each["billboard"]
        for bound in bounds.lower_bounds(t, d, eps, delta):
            if bound.loss == "mean":
                assert bound.value < each[bound.against].error(np.linspace(-1, 1, 21)).max()


def test_the_constant_against_all_others_follows():
    """The constant against all others follows from the equality."""
    # per person, all in units of t: 1/3 - 8 delta t <= A + sqrt(2 A / 3) + 2 eps sqrt(t A), A = E(p^ - p)^2 = 4 alpha,
    # questions differ with probability 1/2; at delta = 1 / (96 t), for every alpha below the bound the inequality fails
    for t, eps in ((10, 1.0), (1000, 0.01), (1000, 1.0)):
        value = next(
            b.value for b in bounds.lower_bounds(t, t**2, eps, 0.0) if (b.loss, b.against) == ("mean", "all others")
        )
        A = 4 * 2 * value * (1 - 1e-9)
        assert A + np.sqrt(2 * A / 3) + 2 * eps * np.sqrt(t * A) < 1 / 3 - 1 / 12


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: odds.log_factor([0.1], [0], NoisyMeans(3, 1, 0.5, views.billboard())),
            "own: expected sums of 1 answers",
        ),
        (
            lambda: odds.log_factor([0.1], [1], NoisyMeans(3, 1, 0.0, views.billboard())),
            "mechanism: expected one with noise",
        ),
        (
            lambda: odds.suspect(NoisyMeans.at(1.0, 3, 4, view=views.single()), view=views.billboard()),
            "view: expected other",
        ),
        (
            lambda: odds.participant(NoisyMeans.at(1.0, 3, 4, view=views.single()), 1.0, prior=1.0),
            "prior: expected a number",
        ),
        (lambda: bounds.upper_bound("median", 1, 10, 1.0), "loss: expected one of 'mean', 'sign', got 'median'"),
        (lambda: bounds.lower_bounds(10, 0, 1.0, 0.0), "num_features: expected a whole number >= 1, got 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
