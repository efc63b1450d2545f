"""Posteriors of each seat about the means: closed forms, quadrature, NUTS, and calibration by simulation.

A hundred questions and the usual warm-up are those of the pages: the sampler is compiled once. Where that is too many, four
questions and a warm-up of 100 are.
"""

import jax
import numpy as np
import pytest
from helpers.effort import effort
from helpers.tolerances import FAR
from scipy import stats
from scipy.special import comb, logsumexp

from mpmtl_prob.models import rates
from mpmtl_prob.sampling.calibration import chain_for_each
from mpmtl_prob.sampling.nuts import kernel
from mpmtl_prob.threat_models import NoisyMeans, People, mean_loss, posterior, views

GRID = (np.arange(20_000) + 0.5) / 20_000  # of q


def by_hand(likelihood, prior=(1.0, 1.0)):
    """Posterior mean of p, P(p > 0) and the error of its sign, on a fine grid of q."""
    weights = likelihood(GRID) * stats.beta(*prior).pdf(GRID)
    weights /= weights.sum()
    p = 2 * GRID - 1
    positive = weights @ (p > 0)
    wrong = p < 0 if positive >= 0.5 else p > 0
    return weights @ p, positive, weights @ (np.abs(p) * wrong)


def check(seat, likelihood, prior=(1.0, 1.0), which=0):
    mean, positive, excess = by_hand(likelihood, prior)
    assert seat.mean[which] == pytest.approx(mean, abs=1e-5)
    assert seat.positive[which] == pytest.approx(positive, abs=5e-3)  # a node stands for its cell
    assert seat.excess[which] == pytest.approx(excess, abs=1e-4)
    assert seat.sign[which] == (1 if positive >= 0.5 else -1)


@pytest.mark.parametrize("prior", [(1.0, 1.0), (3.0, 1.5)])
def test_one_person_and_one_question_by_hand(prior):
    one = NoisyMeans(1, 1, 0.8, views.billboard())
    noise = stats.norm(0, 0.8).pdf
    seat = posterior.public([0.4], one, population=prior)
    check(seat, lambda q: q * noise(0.4 - 1) + (1 - q) * noise(0.4 + 1), prior)
    a, b = prior  # a mixture of two Beta laws
    up, down = a * noise(0.4 - 1), b * noise(0.4 + 1)
    assert seat.mean[0] == pytest.approx(2 * (up * (a + 1) + down * a) / ((up + down) * (a + b + 1)) - 1, abs=1e-9)


def test_every_seat_by_hand():
    t, n = 5, 2
    separate = NoisyMeans(t, 3, 0.3, views.single(), n)
    noise = lambda g, mean: stats.norm(0, 0.3).pdf(g - mean)
    count = lambda q, c, total: stats.binom(total, q).pmf(c)
    # an owner whose answers are +, -: its number is of them and of eight others
    seat = posterior.owner(0.1, [1, -1], separate)
    check(seat, lambda q: q * (1 - q) * sum(count(q, c, 8) * noise(0.1, (2 * c - 8) / 10) for c in range(9)))
    # two people with one question and noises of their own, and one with another
    people = People(np.array([[[1, 1, 1], [1, -1, 1]], [[1, 1, -1], [1, 1, 1]], [[-1, 1, 1], [1, 1, 1]]]), [0, 0, 2])
    seat = posterior.coalition([0.2, 0.5, -0.1], people, separate)
    assert seat.index.tolist() == [0, 2]
    at_0 = lambda q: (
        q**5
        * (1 - q)
        * sum(count(q, c, 4) * noise(0.2, (2 * c - 4 + 4) / 10) * noise(0.5, (2 * c - 4 + 4) / 10) for c in range(5))
    )
    at_2 = lambda q: q**5 * (1 - q) * sum(count(q, c, 4) * noise(-0.1, (2 * c - 4 + 4) / 10) for c in range(5))
    check(seat, at_0)
    check(seat, at_2, which=1)
    # the public, and a newcomer with two answers that are not on the billboard
    board = NoisyMeans(t, 3, 0.3, views.billboard(), n)
    public = posterior.public([0.2, -0.6, 0.1], board, population=(2.0, 1.0))
    seen = lambda q: sum(count(q, c, 10) * noise(-0.6, (2 * c - 10) / 10) for c in range(11))
    check(public, seen, (2.0, 1.0), which=1)
    new = posterior.newcomer(public, People(np.array([[[1, -1, 1], [1, 1, 1], [1, -1, 1]]]), [1]))
    check(new, lambda q: seen(q) * q * (1 - q) ** 2, (2.0, 1.0))
    assert (new.seat, new.index.tolist()) == ("newcomer", [1])


def test_the_evidence_is_a_beta_binomial_mixture():
    t, sd = 30, 0.2
    board, h = NoisyMeans(t, 4, sd, views.billboard()), np.array([-0.9, 0.0, 0.3, 1.4])
    seen, c, log_evidence, expected = posterior.seen_at(h, board), np.arange(t + 1), [], []
    for phi, k in ((0.5, 2.0), (0.8, 9.0), (0.3, 1.2)):
        prior = np.asarray(rates.log_prior(phi, np.log(k), seen))
        exact = logsumexp(
            stats.betabinom(t, k * phi, k * (1 - phi)).logpmf(c) + stats.norm(2 * c / t - 1, sd).logpdf(h[:, None]),
            axis=1,
        )
        # rows of the likelihood are over their maxima: only differences between populations are the evidence's
        log_evidence.append(np.log(seen.likelihood @ np.exp(prior)))
        expected.append(exact)
    for other in (1, 2):
        assert log_evidence[other] - log_evidence[0] == pytest.approx(expected[other] - expected[0], abs=1e-3)


@pytest.mark.parametrize("people", [3900, 4100, 20_000])
@pytest.mark.parametrize("noise", [0.05, 0.4, 3.0, 300.0])  # in answers
def test_counts_of_many_people_are_summed_out_exactly(people, noise):
    """Counts of many people are summed out as exactly as those of few."""
    board = NoisyMeans(people, 8, 2 * noise / people, views.billboard())
    count = np.array([0, 2, 40.1, 1050.1, 1060, people / 2, people - 1055.1, people - 2])
    seat = posterior.public(2 * count / people - 1, board, population=(1.0, 1.0))
    # before the noise every count is as likely, and given a count q ~ Beta(1 + count, 1 + people - count)
    c = np.arange(people + 1)
    weight = np.exp(-(((c - count[:, None]) / noise) ** 2) / 2 + (np.rint(count) - count)[:, None] ** 2 / noise**2 / 2)
    weight /= weight.sum(axis=1, keepdims=True)
    q = weight @ ((c + 1) / (people + 2))
    sd = np.sqrt(weight @ ((c + 1) * (c + 2) / ((people + 2) * (people + 3))) - q**2)
    assert (np.abs((1 + seat.mean) / 2 - q) < 5e-3 * sd).all()
    for end, tail in zip(seat.interval(0.8), (0.1, 0.9), strict=True):
        given = stats.beta.cdf((1 + end[:, None]) / 2, 1 + c, people + 1 - c)
        below = np.sum(weight * given, axis=1)
        assert below == pytest.approx(np.full(8, tail), abs=0.04)  # a node stands for its cell
        assert below[[0, 1, -1]] == pytest.approx(np.full(3, tail), abs=5e-3)


def test_a_coalition_of_many_knows_what_it_knows(monkeypatch):
    people = People(np.resize([-1, 1], (6, 50, 1)), np.zeros(6, dtype=int))
    seat = lambda: posterior.coalition(np.full(6, 0.1), people, NoisyMeans(8, 1, 0.02, views.coalition(6), 50))
    exact = seat().mean
    monkeypatch.setattr(posterior, "_MANY", -1)
    assert seat().mean == pytest.approx(exact, abs=1e-3)


def test_intervals_and_draws_are_those_of_the_posterior():
    rng, d = np.random.default_rng(0), effort(1000, 2000)
    board = NoisyMeans.at(1.0, 40, d, view=views.billboard())
    p = 2 * rng.beta(2, 3, d) - 1
    seat = posterior.public(
        board.board(rng, 2 * rng.binomial(40, (1 + p) / 2) - 40), board, population=(2, 3), draws=50
    )
    draws = seat.draws()
    assert draws.shape == (4, 50, d)
    assert np.unique(draws[:, :, 0]).size == 200  # and no two on one node
    ranks = (draws < p).sum(axis=(0, 1))  # of the truth: uniform on 0..200
    assert stats.kstest((ranks + rng.random(d)) / 201, "uniform").pvalue > 1e-8
    low, high = seat.interval(0.8)
    assert abs(((low < p) & (p < high)).mean() - 0.8) < FAR * 0.4 / np.sqrt(d)
    z = (draws.mean(axis=(0, 1)) - seat.mean) / (draws.std(axis=(0, 1)) / np.sqrt(200))
    assert abs(z.std() - 1) < FAR / np.sqrt(2 * d) + 0.01  # and the nodes' cells add a little
    # the posterior mean is better than what is seen, as it should be on average over the prior
    assert mean_loss(seat.mean, p).mean() < 0.5 * board.error(p).mean()
    tree = seat.to_arviz()
    assert tree["posterior"]["p"].dims == ("chain", "draw", "feature")
    assert tree.attrs["seat"] == "public"
    assert "sample_stats" not in tree
    with pytest.raises(ValueError, match="posterior: expected one whose population was learnt"):
        seat.diagnose()


def test_chains_agree_with_quadrature_over_phi_and_k():
    rng = np.random.default_rng(1)
    board = NoisyMeans(60, 100, 0.15, views.billboard())
    q = rng.beta(6, 3, 100)
    h = board.board(rng, 2 * rng.binomial(60, q) - 60)
    seat = posterior.public(h, board, chains=2, draws=500, progress_bar=False)
    phi, log_k = np.linspace(0.0075, 0.9925, 132), np.linspace(-3.5, 7.5, 147)
    prior = np.asarray(rates.log_prior(phi[:, None], log_k, seat.seen))
    L, nodes = seat.seen.likelihood, seat.nodes
    evidence = np.exp(prior) @ L.T  # (phi, log_k, features)
    logp = np.log(np.maximum(evidence, 1e-300)).sum(-1)
    weight = np.exp(logp - logp.max()) * stats.norm(rates.LOG_K_MEAN, rates.LOG_K_SD).pdf(log_k)
    weight /= weight.sum()
    ess = min(seat.diagnose().ess.values())
    assert ess > 100
    for draws, grid, chance in ((seat.phi, phi, weight.sum(1)), (seat.log_k, log_k, weight.sum(0))):
        exact = chance @ grid
        assert abs(draws.mean() - exact) < FAR * draws.std() / np.sqrt(ess)
        assert abs(np.log(draws.var() / (chance @ (grid - exact) ** 2))) < FAR * np.sqrt(2 / ess)
    given = (np.exp(prior) * nodes) @ L.T / np.maximum(evidence, 1e-300)
    exact = np.einsum("ab,abj->j", weight, given)
    spread = np.sqrt(np.einsum("ab,abj->j", weight, (given - exact) ** 2))
    assert (np.abs(seat.mean - exact) < FAR * spread / np.sqrt(ess)).all()
    assert set(seat.to_arviz().children) >= {"posterior", "sample_stats"}
    again = posterior.public(h, board, chains=2, draws=50, progress_bar=False)
    assert np.array_equal(seat.phi[:, :50], again.phi)


def test_own_answers_of_a_newcomer_speak_of_the_population_too():
    board, h, yes = NoisyMeans(6, 4, 0.8, views.billboard()), [0.1, 0.6, 0.3, -0.2], 30
    public = posterior.public(h, board, chains=2, warmup=100, draws=2000, progress_bar=False)
    new = posterior.newcomer(public, People(np.ones((1, yes, 4), dtype=int), [0]))
    # by importance: phi, k and all questions' rates from the prior, weighted by what the newcomer sees
    rng, size = np.random.default_rng(0), 500_000
    phi, log_k = rng.random(size), rng.normal(rates.LOG_K_MEAN, rates.LOG_K_SD, size)
    q = rng.beta(*(np.exp(log_k) * each for each in (phi, 1 - phi)), (4, size))
    counts = [comb(6, c) * q**c * (1 - q) ** (6 - c) for c in range(7)]
    seen = sum(each * stats.norm(c / 3 - 1, 0.8).pdf(np.array(h)[:, None]) for c, each in enumerate(counts))
    weight = seen.prod(axis=0) * q[0] ** yes
    weight /= weight.sum()
    draws_of_newcomer = new.to_arviz()["posterior"]
    worth = 1 / np.sum(weight**2)
    assert worth > 50_000

    def close(value, exact, draws):  # of 4000 draws at least 200 count
        mean = weight @ exact
        sd = np.sqrt(weight @ (exact - mean) ** 2)
        assert abs(value - mean) < FAR * sd * (1 / np.sqrt(200) + 1 / np.sqrt(worth))
        assert abs(draws.mean() - mean) < FAR * sd * (1 / np.sqrt(200) + 1 / np.sqrt(worth))

    p = 2 * q[0] - 1
    close(new.mean[0], p, draws_of_newcomer["p"].values)
    close(draws_of_newcomer["phi"].values.mean(), phi, draws_of_newcomer["phi"].values)
    close(np.log(draws_of_newcomer["k"].values).mean(), log_k, np.log(draws_of_newcomer["k"].values))
    low = new.interval(0.8)[0, 0]  # the other end is within rounding of 1
    assert weight @ (p < low) == pytest.approx(0.1, abs=0.06)
    assert new.phi is public.phi  # whose chains are judged


def uniformity(sign=1):
    """p-values of the ranks of phi and log k among draws, on data from the prior, which may be read with the wrong sign."""
    rng, t, d, replications = np.random.default_rng(2), 20, 4, effort(80, 120)
    board, data = NoisyMeans(t, d, 0.2, views.billboard()), []
    phi, log_k = rng.random(replications), rng.normal(rates.LOG_K_MEAN, rates.LOG_K_SD, replications)
    for each, k in zip(phi, np.exp(log_k), strict=True):
        h = 2 * rng.binomial(t, rng.beta(k * each, k * (1 - each), d)) / t - 1 + 0.2 * rng.standard_normal(d)
        data.append(posterior.seen_at(sign * h, board))
    start = {"phi": np.zeros(()), "log_k": np.array(rates.LOG_K_MEAN)}
    # every draw is made and few are kept: so the program is that of `posterior.public`
    draws, _ = chain_for_each(kernel(rates.population), data, start=lambda _: start, warmup=100, draws=57)
    ranks = [(draws[name][:, 2::3] < truth[:, None]).sum(axis=1) for name, truth in (("phi", phi), ("log_k", log_k))]
    return [stats.chisquare(np.bincount(rank // 4, minlength=5)).pvalue for rank in ranks]


@pytest.mark.evidence  # quadrature and weighted draws of the prior say so above, of one billboard each
def test_calibration_holds_and_catches_a_wrong_posterior():
    """The posterior is calibrated by simulation, and a wrong posterior is caught."""
    assert min(uniformity()) > 1e-8
    assert min(uniformity(-1)) < 1e-8


def test_a_billboard_teaches_the_population_of_like_questions():
    """A billboard lets the population be learnt where questions are alike."""
    board = NoisyMeans.at(np.sqrt(0.05 / 3), 200, 100, view=views.billboard())
    errors = np.zeros(3)  # of one board alone the population's own mean is known so roughly that the ratio is .2 to .52
    for seed in (3, 4, 5):
        rng = np.random.default_rng(seed)
        p = np.clip(rng.normal(0.3, 0.15, 100), -1, 1)
        h = board.board(rng, 2 * rng.binomial(200, (1 + p) / 2) - 200)
        learnt = posterior.public(h, board, chains=2, progress_bar=False)
        flat = posterior.public(h, board, population=(1, 1))
        errors += [mean_loss(estimate, p).mean() for estimate in (learnt.mean, flat.mean, board.estimate(h))]
    assert errors[0] < 0.5 * errors[1]
    assert errors[1] < 0.5 * errors[2]
    assert "estimates move by" in posterior.sensitivity(learnt)
    moved = float(posterior.sensitivity(flat).split("move by ")[1].split()[0])
    assert moved < 1e-12  # against itself


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m, s: posterior.public([0.1, 0.2], m), r"values: expected a billboard's 3 numbers, got shape \(2,\)"),
        (lambda m, s: posterior.public([0.1] * 3, s), "values: expected a billboard's 3 numbers"),
        (lambda m, s: posterior.public([np.nan] * 3, m), "values: expected finite numbers with noise"),
        (lambda m, s: posterior.public([0.1] * 3, m, population=(0.0, 1.0)), "beta: expected a positive number"),
        (lambda m, s: posterior.public([0.1] * 3, NoisyMeans(5, 3, 0.0, views.billboard())), "values: expected finite"),
        (lambda m, s: posterior.owner(0.1, [1, 1], s), "answers: expected 1, got 2"),
        (lambda m, s: posterior.owner(0.1, [0], s), "answers: expected -1 and 1"),
        (lambda m, s: posterior.coalition([0.1], People(np.ones((2, 1, 3)), [0, 1]), s), "values: expected 2 numbers"),
        (lambda m, s: posterior.coalition([0.1], People(np.ones((1, 1, 2)), [0]), s), "people: expected those that"),
        (
            lambda m, s: posterior.coalition([0.1] * 6, People(np.ones((6, 1, 3)), [0] * 6), s),
            "people: expected at most 5, got more",
        ),
        (
            lambda m, s: posterior.newcomer(posterior.owner(0.1, [1], s), People(np.ones((1, 1, 3)), [0])),
            "posterior: expected a public one",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make(NoisyMeans(5, 3, 0.3, views.billboard()), NoisyMeans(5, 3, 0.3, views.single()))


def test_it_shows_shapes_and_no_answers():
    own = posterior.owner(0.123456, [1], NoisyMeans(5, 3, 0.3, views.single()))
    assert "0.123" not in repr(own)
    assert jax.config.jax_enable_x64
