"""Means with Gaussian noise: problems, calibration, exact errors, and what is published."""

import numpy as np
import pytest
from helpers.tolerances import FAR
from scipy import integrate, stats

from mpmtl_prob.privacy import Guarantee, Ledger, compute_delta
from mpmtl_prob.threat_models import (
    HardPrior,
    NoisyMeans,
    People,
    Population,
    epsilon_of,
    mean_loss,
    mu_within,
    one_of_each,
    people_needed,
    rho_within,
    views,
)
from mpmtl_prob.threat_models.problems import uniform_nodes

SEEN = {"one other": 1, "all others": 4, "billboard": 7}


def z_score(sample, expected, axis=0):
    return (sample.mean(axis) - expected) / (sample.std(axis) / np.sqrt(sample.shape[axis]))


def test_totals_are_sums_of_answers_in_law():
    # one feature, three people of two answers: totals take seven values, compared with enumeration by a chi-square test
    population = Population([0.3], np.zeros(3, int), samples=2)
    size, rng = 4000, np.random.default_rng(0)
    bits = population.person(rng, 3 * size).reshape(size, 3 * 2).sum(axis=1)
    expected = size * stats.binom.pmf(np.arange(7), 6, 0.65)
    for totals in (bits, population.totals(rng, size)[:, 0]):
        observed = np.array([(totals == 2 * c - 6).sum() for c in range(7)])
        assert observed.sum() == size
        assert stats.chisquare(observed, expected).pvalue > 1e-8


def test_people_are_what_the_population_says():
    population = HardPrior(6, 9, samples=2, spread=0.5, distinct=True).population(np.random.default_rng(1))
    assert len(set(population.index.tolist())) == 6
    assert np.abs(population.p).max() <= 0.5
    people = population.people(np.random.default_rng(2))
    assert (people.num_people, people.samples, people.num_features) == (6, 2, 9)
    assert people.totals.tolist() == people.answers.astype(int).sum(axis=(0, 1)).tolist()
    assert people.without(2).num_people == 5
    assert population.asked.tolist() == population.p[population.index].tolist()
    assert "0." not in repr(population)


@pytest.mark.parametrize(
    ("answers", "index", "message"),
    [
        (np.ones((2, 3)), [0, 0], "answers: expected people, samples and features"),
        (np.ones((2, 0, 3)), [0, 0], r"answers: .* got shape \(2, 0, 3\)"),
        (np.zeros((2, 1, 3)), [0, 0], "answers: expected -1 and 1, got other values"),
        (np.full((2, 1, 3), np.nan), [0, 0], "answers: expected -1 and 1, got other values"),
        (np.ones((2, 1, 3)), [0, 3], "index: expected whole numbers from 0 to 2, got one out of range"),
        (np.ones((2, 1, 3)), [0, -1], "index: expected whole numbers from 0 to 2"),
        (np.ones((2, 1, 3)), [0.0, 1.0], "index: expected whole numbers, got others"),
        (np.ones((2, 1, 3)), [0], "index: expected 2 whole numbers, one per person"),
    ],
)
def test_bad_people_are_named_without_their_answers(answers, index, message):
    with pytest.raises(ValueError, match=message):
        People(answers, index)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Population([0.0, 1.5], [0]), r"p: expected means in \[-1, 1\]"),
        (lambda: Population([np.nan], [0]), "p: expected means"),
        (lambda: HardPrior(3, 2, distinct=True), "distinct: expected at most 2 people, got 3"),
        (lambda: HardPrior(3, 2, samples=0), "samples: expected a whole number >= 1, got 0"),
        (lambda: HardPrior(3, 2, spread=2.0), r"spread: expected a number in \(0, 1\]"),
        (lambda: NoisyMeans.at(1.0, 5, 7, view=views.coalition(5)), "view: expected at most 4 other owners, got 5"),
        (lambda: NoisyMeans.at(1.0, 1, 7, view=views.others()), "num_people: expected at least 2"),
        (lambda: NoisyMeans.at(0.0, 5, 7, view=views.single()), "mu: expected a positive number"),
        (lambda: NoisyMeans(5, 7, -1.0, views.single()), "sd: expected a number in"),
        (lambda: mu_within(1.0, 1.0), "delta: expected a number in"),
        (lambda: mu_within(1.0, 1e-6, "renyi"), "accounting: expected one of 'exact', 'zcdp', got 'renyi'"),
        (lambda: people_needed(0.0, 1.0, 1e-6, 10, views.single()), "error: expected a positive number"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("epsilon", "at_delta", "factor"), [(1, 1e-6, 1.60), (1, 1e-3, 2.23), (0.1, 1e-6, 2.10), (10, 1e-5, 1.29)]
)
def test_exact_calibration_keeps_the_promise_with_less_noise(epsilon, at_delta, factor):
    """Exact calibration keeps the promise and saves the noise that it should."""
    mu = mu_within(epsilon, at_delta)
    # an independent integral of the hockey stick
    delta_there = integrate.quad(
        lambda x: max(stats.norm.pdf(x, mu) - np.exp(epsilon) * stats.norm.pdf(x), 0.0),
        epsilon / mu + mu / 2, epsilon / mu + mu / 2 + 12, epsabs=0, epsrel=1e-10,
    )[0]  # fmt: skip
    assert delta_there == pytest.approx(at_delta, rel=1e-6)
    rho = rho_within(epsilon, at_delta)
    assert epsilon_of(rho, at_delta) == pytest.approx(epsilon)
    assert mu**2 / (2 * rho) == pytest.approx(factor, abs=5e-3)


def test_noise_is_as_the_papers_at_rho():
    t, d, rho = 5, 7, 0.3
    for name, mechanism in one_of_each(np.sqrt(2 * rho), t, d).items():
        if name != "none":
            assert mechanism.sd**2 == pytest.approx(2 * SEEN[name] / (rho * t**2))
            assert mechanism.mu() == pytest.approx(np.sqrt(2 * rho))


def test_what_a_view_shows():
    each = one_of_each(1.0, 5, 7)
    mus = {name: [mechanism.mu(view) for view in (views.single(), views.coalition(2), views.others())]
           for name, mechanism in each.items()}  # fmt: skip
    assert mus["one other"] == pytest.approx([1, np.sqrt(2), 2])
    assert mus["all others"] == pytest.approx([0.5, np.sqrt(0.5), 1])
    assert mus["billboard"] == pytest.approx(np.sqrt([1 / 7, 2 / 7, 4 / 7]))
    assert mus["none"] == [np.inf] * 3
    assert [mechanism.mu(views.billboard()) for mechanism in each.values()] == pytest.approx([np.inf] * 3 + [1])
    # more others than features: one noise for each feature, and nobody sees more than d numbers
    few = NoisyMeans.at(1.0, 20, 7, view=views.others())
    assert few.shared
    assert few.sd == NoisyMeans.at(1.0, 20, 7, view=views.billboard()).sd
    assert few.mu(views.coalition(8)) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="view: expected one that the noise covers"):
        few.law(views.billboard())


def test_measured_errors_lie_on_the_exact_ones():
    # the check run of the specification: t = 100, d = 2000, rho = .05
    t, d, rng = 100, 2000, np.random.default_rng(3)
    exact = [0.00167, 0.00267, 0.1007, 2.002]
    for printed, mechanism in zip(exact, one_of_each(np.sqrt(0.1), t, d, clipped=False).values(), strict=True):
        assert mechanism.uniform_error() == pytest.approx(printed, rel=4e-3)
        population = HardPrior(t, d).population(rng)
        outputs = mechanism.simulate(rng, population.totals(rng, 60), population.index)
        errors = mean_loss(outputs, population.asked).mean(axis=1)
        assert abs(z_score(errors, mechanism.error(population.asked).mean())) < FAR


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("view", [views.single(), views.others(), views.billboard()], ids=lambda view: view.name)
def test_clipped_errors_are_exact_and_no_larger(view, samples):
    mechanism = NoisyMeans.at(1.0, 5, 7, view=view, samples=samples)
    population = Population([-1.0, -0.4, 0.0, 0.2, 0.75, 0.9, 1.0], [1, 1, 4, 5, 6], samples)
    rng = np.random.default_rng(4)
    outputs = mechanism.estimate(mechanism.simulate(rng, population.totals(rng, 20_000), population.index))
    assert np.abs(outputs).max() <= 1
    assert np.abs(z_score(mean_loss(outputs, population.asked), mechanism.error(population.asked))).max() < FAR
    plain = NoisyMeans.at(1.0, 5, 7, view=view, samples=samples, clipped=False)
    p = np.linspace(-1, 1, 9)
    assert (mechanism.error(p) < plain.error(p)).all()
    nodes, weights = uniform_nodes()
    assert plain.uniform_error() == pytest.approx((2 / (3 * 5 * samples) + plain.sd**2) / 4)
    assert plain.error(nodes) @ weights == pytest.approx(plain.uniform_error())


def test_clipped_noise_by_quadrature():
    mechanism = NoisyMeans(1, 1, 0.7, views.billboard())
    for p in (-0.3, 0.8):
        square = lambda z, m, p=p: (np.clip(m + 0.7 * z, -1, 1) - p) ** 2 * stats.norm.pdf(z)
        parts = [
            (1 + m * p) / 2 * integrate.quad(square, -12, 12, args=(m,), points=[(-1 - m) / 0.7, (1 - m) / 0.7])[0]
            for m in (-1, 1)
        ]
        assert mechanism.error(p) == pytest.approx(sum(parts) / 4, rel=1e-7)


def test_people_needed():
    at = lambda view, d=10_000, **options: people_needed(0.01, 1.0, 1e-6, d, view, **options)
    assert people_needed(0.01, None, None, 10, views.billboard()) == 25
    assert at(views.single()) == 57
    assert at(views.others()) == 1809
    assert [at(views.billboard(), d) for d in (1000, 10_000)] == [1349, 4238]
    assert at(views.others(), 10) == at(views.billboard(), 10)
    assert at(views.coalition(56)) > at(views.coalition(2)) > 57
    assert at(views.coalition(3000)) == 3001  # fewer are not so many
    for view in (views.single(), views.others(), views.billboard()):
        worst = lambda t, view=view: NoisyMeans.within(1.0, 1e-6, t, 10_000, view=view, clipped=False).error(0.0)
        assert worst(at(view)) <= 0.01 < worst(at(view) - 1)
    assert at(views.single(), samples=4) < 57


@pytest.mark.parametrize(
    "view", [views.single(), views.coalition(2), views.others(), views.billboard()], ids=lambda v: v.name
)
def test_published_means_are_whole_numbers_with_exact_noise(view):
    """Published means are whole numbers with exact noise, and promise what holds."""
    people = HardPrior(5, 7, samples=2).population(np.random.default_rng(5)).people(np.random.default_rng(6))
    mechanism = NoisyMeans.within(1.0, 1e-3, 5, 7, view=view, samples=2)
    published = mechanism.publish(people, 1.0)
    assert published.values.shape == ((7,) if view.owners is None else (5,))
    assert not np.array_equal(published.values, mechanism.publish(people, 1.0).values)
    proved = published.guarantee.proved
    assert (proved.epsilon, proved.adjacency, proved.unit) == (1.0, "replace", "person")
    assert proved.delta == pytest.approx(1e-3, rel=1e-9)
    assert proved.delta == compute_delta(1.0, mechanism.law())
    words = published.guarantee.explain()
    assert {None: "anybody", 1: "any one other person", 2: "any 2 other people", -1: "all other people"}[
        view.owners
    ] in words
    assert "this person's rows" in words
    assert "tasks' owners" not in words
    assert str(published.guarantee.membership_odds()) in words  # what to tell a participant
    assert "more than 73.1% with a probability of about" in words
    assert ("nobody else" in str(published.guarantee)) == (view.owners is not None)
    assert np.abs(published.estimates(people.index)).max() <= 1
    assert "0." not in repr(published.values.shape)
    seeded = mechanism.publish(people, 1.0, unsafe_seed=3)
    assert seeded.guarantee.proved is None
    total = mechanism.num_people * mechanism.samples
    sums = people.totals if mechanism.shared else people.totals[people.index]
    noise = seeded.values * total - sums
    unit = 2.0 ** np.floor(np.log2(mechanism.law().sd * 2.0**-10))
    assert np.allclose(noise / unit, np.rint(noise / unit), atol=1e-6)
    assert len(np.unique(noise)) == len(noise)  # fresh for everybody, or for every feature


@pytest.mark.parametrize("view", [views.single(), views.others(), views.billboard()], ids=lambda view: view.name)
def test_everybody_is_sent_the_mean_of_its_own_question(view):
    people = HardPrior(20, 7).population(np.random.default_rng(7)).people(np.random.default_rng(8))
    published = NoisyMeans(20, 7, 1e-9, view).publish(people, 1.0, unsafe_seed=0)
    means = people.answers.mean(axis=(0, 1))
    assert len(np.unique(means)) > 3
    assert published.estimates(people.index) == pytest.approx(means[people.index], abs=1e-7)


def test_published_noise_has_the_size_that_it_states():
    people = People(np.ones((40, 1, 3)), np.zeros(40, int))
    mechanism = NoisyMeans.at(0.5, 40, 3, view=views.single())
    noise = np.concatenate([mechanism.publish(people, 1.0, unsafe_seed=i).values - 1 for i in range(10)])
    assert stats.kstest(noise / mechanism.sd, "norm").pvalue > 1e-8
    assert stats.kstest(2 * noise / mechanism.sd, "norm").pvalue < 1e-8  # and the test would know


def test_only_billboards_are_charged_and_only_what_fits():
    """Only a billboard is charged, and only what fits the budget is published."""
    people = People(np.ones((5, 1, 7)), np.arange(5))
    book = Ledger(epsilon=1.0, delta=1e-3, unit="person")
    board = NoisyMeans.within(1.0, 1e-3, 5, 7, view=views.billboard())
    board.publish(people, 1.0, ledger=book)
    assert book.spent.epsilon == pytest.approx(1.0, rel=1e-5)
    assert book.charges()[0].mechanisms == (board.law(),)
    with pytest.raises(ValueError, match="ledger: expected none, as it counts what anybody sees"):
        NoisyMeans.at(1.0, 5, 7, view=views.single()).publish(people, 1.0, ledger=book)
    with pytest.raises(ValueError, match=r"people: expected answers of shape \(6, 1, 7\), got \(5, 1, 7\)"):
        NoisyMeans.at(1.0, 6, 7, view=views.single()).publish(people, 1.0)
    with pytest.raises(ValueError, match="sd: expected noise"):
        NoisyMeans(5, 7, 0.0, views.billboard()).publish(people, 1.0)
    assert len(book.charges()) == 1


def test_a_guarantee_against_some_eyes_says_so_wherever_it_goes():
    people = People(np.ones((5, 1, 7)), np.arange(5))
    one = NoisyMeans.within(1.0, 1e-3, 5, 7, view=views.single()).publish(people, 1.0).guarantee
    assert Guarantee.from_dict(one.to_dict()).adversary == one.adversary == "any one other person"
    assert one.facts()["against"] == "any one other person"
    assert "against" not in Guarantee(None, None, "why").to_dict()
