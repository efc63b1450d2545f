"""Signs, classifiers and the reductions between them; newcomers."""

import itertools

import numpy as np
import pytest
from helpers.tolerances import FAR
from scipy import optimize, stats

from mpmtl_prob import TaskData, datasets
from mpmtl_prob.threat_models import (
    BillboardRelease,
    HardPrior,
    NoisyMeans,
    People,
    Population,
    mean_loss,
    sign_loss,
    signs,
    to_metalearner,
    views,
)
from mpmtl_prob.threat_models import metalearning as meta


def z_score(sample, expected, axis=0):
    return (sample.mean(axis) - expected) / (sample.std(axis) / np.sqrt(sample.shape[axis]))


def test_ties_are_positive_and_losses_count_wrong_signs():
    assert signs.sign([-0.1, 0.0, -0.0, 2.0]).tolist() == [-1, 1, 1, 1]
    assert sign_loss([1, -1, 1, -1], [0.3, 0.3, -0.3, 0.0]).tolist() == [0.0, 0.3, 0.3, 0.0]


def test_labelled_data_have_the_law_of_the_definition():
    population = Population([0.6, -0.2], np.tile([0, 1], 20_000))
    data = signs.labelled(
        population.people(np.random.default_rng(0)).answers[:, 0], population.index, np.random.default_rng(1)
    )
    for j, other in ((0, 1), (1, 0)):
        mine = data.index == j
        n = mine.sum()
        hits = lambda event, n=n: event.sum() / n
        se = 0.5 / np.sqrt(n)
        assert abs(hits(data.y[mine] == 1) - 0.5) < FAR * se
        assert abs(hits(data.x[mine, j] == 1) - 0.5) < FAR * se  # alone it says nothing
        assert abs(hits(data.x[mine, j] == data.y[mine]) - (1 + population.p[j]) / 2) < FAR * se
        assert abs(hits(data.x[mine, other] == 1) - (1 + population.p[other]) / 2) < FAR * se


def test_a_classifier_errs_beyond_the_best_as_its_sign_does():
    # Lemma 5.1, exactly, for every p and sign; and the error itself by counting all draws of (w, y)
    p = np.array([-0.7, -0.1, 0.0, 0.4])
    population = Population(p, np.arange(4))
    for s in itertools.product([-1, 1], repeat=4):
        classifiers = signs.Classifiers(np.array(s, dtype=np.int8), population.index)
        assert classifiers.excess_error(population) == pytest.approx(sign_loss(s, p))
        for j in range(4):
            wrong = 0.0
            for w, y in itertools.product([-1, 1], repeat=2):
                x = np.ones((4, 4), dtype=np.int8)
                x[j, j] = w * y
                wrong += (1 + w * p[j]) / 4 * (classifiers.predict(x)[j] != y)
            assert wrong - (1 - abs(p[j])) / 2 == pytest.approx(sign_loss(s[j], p[j]))


def test_reductions_undo_each_other():
    rng = np.random.default_rng(2)
    people = HardPrior(30, 5).population(rng).people(rng)
    data = signs.labelled(people.answers[:, 0], people.index, rng)
    assert np.array_equal(signs.sign_problem(data).answers, people.answers)
    known = signs.Classifiers(signs.sign(rng.standard_normal(30)), people.index)
    # classifiers that are a sign give that sign back, whatever the second sample
    assert np.array_equal(signs.signs_from(known, people, rng), known.signs)


def test_a_label_used_twice_betrays_the_answer():
    """A label that is used twice gives a remembering classifier the answer."""
    # f remembers y and answers with it: a fresh label makes a coin of that, the first one would make it w_j itself
    population = Population([0.8], np.zeros(4000, int))
    rng = np.random.default_rng(3)
    first = signs.labelled(population.people(rng).answers[:, 0], population.index, rng)

    class Remembers(signs.Classifiers):
        def predict(self, x):
            return first.y

    second = population.people(rng)
    drawn_signs = signs.signs_from(Remembers(first.y, first.index), second, rng)
    assert abs(drawn_signs.mean()) < FAR / np.sqrt(len(drawn_signs))
    stale = first.y * (second.answers[:, 0, 0] * first.y)
    assert stale.mean() > 0.8 - FAR / np.sqrt(len(drawn_signs))


@pytest.mark.parametrize("view", [views.single(), views.others(), views.billboard()], ids=lambda view: view.name)
def test_exact_errors_of_signs_are_measured(view):
    mechanism = NoisyMeans.at(1.0, 6, 5, view=view)
    population = Population([-0.6, -0.3, 0.0, 0.1, 0.5], [0, 1, 2, 3, 4, 4])
    rng = np.random.default_rng(4)
    outputs = mechanism.simulate(rng, population.totals(rng, 20_000), population.index)
    losses = sign_loss(signs.sign(outputs), population.asked)
    exact = signs.sign_error(mechanism, population.asked)
    assert exact[2] == 0
    away = population.asked != 0
    assert np.abs(z_score(losses[:, away], exact[away])).max() < FAR
    # a mean gives a sign no worse than sqrt(E (p^ - p)^2) (the paper's step)
    assert (exact <= np.sqrt(4 * mechanism.error(population.asked))).all()


def test_without_noise_ties_count_as_positive():
    mechanism = NoisyMeans(2, 1, 0.0, views.billboard())
    # means -1, 0, 1: negative with probability (1 - q)^2 alone
    assert signs.sign_error(mechanism, [0.2, -0.2]) == pytest.approx([0.2 * 0.16, 0.2 * (1 - 0.36)])


def test_the_worst_mean_of_a_sign():
    lowest = optimize.minimize_scalar(
        lambda z: -z * stats.norm.cdf(-z), bounds=(0, 3), method="bounded", options={"xatol": 1e-9}
    )
    assert lowest.x == pytest.approx(signs.WORST_MEAN, abs=2e-5)
    assert -lowest.fun == pytest.approx(signs.WORST_ERROR, abs=2e-5)
    mechanism = NoisyMeans.at(0.5, 400, 50, view=views.others())
    p = np.linspace(-0.1, 0.1, 9)
    assert signs.sign_error_roughly(mechanism, p) == pytest.approx(signs.sign_error(mechanism, p), rel=2e-3)


def test_newcomers_fare_as_participants_do_exactly():
    mechanism = NoisyMeans.at(1.0, 20, 4, view=views.billboard(), clipped=False)
    population = Population([-0.5, 0.0, 0.3, 0.9], np.zeros(20, int))
    learner = to_metalearner(meta.BillboardMeans(mechanism))
    rng = np.random.default_rng(5)
    boards = np.array([learner.learn(population.people(rng), seed) for seed in range(2000)])
    losses = mean_loss(learner.adapt(boards, np.arange(4)), population.p)
    assert np.abs(z_score(losses, mechanism.error(population.p))).max() < FAR


def test_a_billboard_of_raw_data_serves_only_those_who_are_on_it():
    class Raw:
        def learn(self, data, seed):
            return {row.tobytes() for row in data}

        def personalise(self, h, own):
            return 0.0 if own.tobytes() in h else 1.0  # the loss

    rng, learner, new, old = np.random.default_rng(6), to_metalearner(Raw()), [], []
    for seed in range(300):
        data, newcomer = rng.standard_normal((4, 3)), rng.standard_normal(3)
        h = learner.learn(data, seed)
        old.append(learner.adapt(h, data[0]))
        new.append(learner.adapt(h, newcomer))
    gap = meta.generalisation_gap(new, old, 1e-3, confidence=1 - 1e-9)
    assert gap.estimate == np.inf
    assert gap.lower > 1.0
    # and one that is private is not refuted, with the same certainty
    mechanism = NoisyMeans.within(1.0, 1e-3, 4, 3, view=views.billboard())
    board = meta.BillboardMeans(mechanism)
    losses = [[], []]
    population = Population(rng.uniform(-1, 1, 3), np.array([0, 1, 2, 0]))
    for seed in range(300):
        h = board.learn(population.people(rng), seed)
        for kind in losses:
            j = rng.integers(3)
            kind.append(mean_loss(board.personalise(h, j), population.p[j]))
    assert meta.generalisation_gap(*losses, 1e-3, confidence=1 - 1e-9).lower <= 1.0


def test_a_new_task_reads_a_release_that_it_is_not_in():
    some = lambda data, part: TaskData.from_lists(list(data.X[part]), list(data.y[part]))
    train, test, _ = datasets.synthetic_low_rank(24, 3, rows=12, test_rows=40, group=12)
    options = {"chains": 2, "warmup": 200, "draws": 100}
    learner = to_metalearner(BillboardRelease(3.0, **options))
    h = learner.learn(some(train, slice(20)), seed=0)
    assert h.release.num_tasks == 20
    assert h.guarantee.proved.epsilon == 3.0
    new = learner.adapt(h, some(train, slice(20, 24)))
    predicted = new.predict(some(test, slice(20, 24)))
    off = test.y[20:24] - predicted.mean
    assert np.mean(off**2) < 0.5 * np.mean(test.y[20:24] ** 2)  # twelve rows of nearly no noise: far below


def test_the_inequality():
    assert meta.newcomers_error(0.1, np.log(2), 0.01) == pytest.approx(0.21)
    assert meta.newcomers_error(0.9, 5.0, 0.0) == 1.0
    gap = meta.generalisation_gap([0.5] * 8, [0.25] * 8, 0.1, 0.9)
    assert gap.estimate == pytest.approx(np.log(0.4 / 0.25))
    assert gap.lower == 0.0
    assert gap.upper == np.inf


def test_limits_of_the_gap_are_of_two_means_and_two_sides():
    gap, width = meta.generalisation_gap([0.8] * 400, [0.2] * 400, 0.1, 0.9), np.sqrt(np.log(40) / 800)  # Hoeffding's
    assert gap.lower == pytest.approx(np.log((0.7 - width) / (0.2 + width)))
    assert gap.upper == pytest.approx(np.log((0.7 + width) / (0.2 - width)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_metalearner(3), "algorithm: .* Billboard of mpmtl_prob.extend .* int without learn, personalise"),
        (
            lambda: meta.BillboardMeans(NoisyMeans.at(1.0, 4, 3, view=views.single())),
            "mechanism: expected one for a billboard",
        ),
        (lambda: meta.generalisation_gap([1.5], [0.2], 0.1), r"newcomers: expected losses in \[0, 1\]"),
        (lambda: meta.newcomers_error(2.0, 1.0, 0.1), "participants_error: expected a number in"),
        (lambda: People(np.ones((1, 1, 1)), [1]), "index: expected whole numbers from 0 to 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
