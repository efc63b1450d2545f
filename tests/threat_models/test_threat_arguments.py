"""Refusals of the laboratory, by name, before anything is played, drawn or published."""

import numpy as np
import pytest

from mpmtl_prob.privacy import Bound, views
from mpmtl_prob.threat_models import (
    BillboardMeans,
    BillboardRelease,
    HardPrior,
    NoisyMeans,
    People,
    audits,
    odds,
    people_needed,
    posterior,
    signs,
)

BOARD = NoisyMeans.at(1.0, 5, 7, view=views.billboard())
SINGLE = NoisyMeans.at(1.0, 5, 7, view=views.single())
PERSON = Bound(1.0, 0.1, "replace", "person")


def people(t=5, d=7):
    rng = np.random.default_rng(0)
    return HardPrior(t, d).population(rng).people(rng)


def newcomer(d):
    public = posterior.public(np.zeros(7), BOARD, population=(1, 1))
    return posterior.newcomer(public, People(np.ones((1, 1, d)), [0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # half a promise is no promise: an eps without a delta once meant no privacy at all
        (lambda: people_needed(0.01, 1.0, None, 10, views.single()), "delta: expected epsilon and delta, or neither"),
        (lambda: people_needed(0.01, None, 1e-6, 10, views.single()), "delta: expected epsilon and delta, or neither"),
        (lambda: people_needed(np.inf, 1.0, 1e-6, 10, views.single()), "error: expected a positive number"),
        (lambda: NoisyMeans(5, 7, None, views.single()), "sd: expected a number"),
        (lambda: NoisyMeans(5, 7, 1.0, "single"), "view: expected one of mpmtl_prob.threat_models.views, got 'single'"),
        (lambda: SINGLE.mu(views.coalition(5)), "view: expected at most 4 other owners, got 5"),
        (lambda: SINGLE.error(1.5), r"p: expected means in \[-1, 1\]"),
        (lambda: signs.sign_error(SINGLE, np.nan), r"p: expected means in \[-1, 1\]"),
        (lambda: signs.sign_error_roughly(SINGLE, 2.0), r"p: expected means in \[-1, 1\]"),
        (lambda: BOARD.board(np.random.default_rng(0), np.zeros(3)), "totals: expected 7 sums, one per feature"),
        (lambda: BOARD.simulate(np.random.default_rng(0), 0.0, [0]), "totals: expected 7 sums, one per feature"),
        (lambda: people().without(5), "i: expected one of two or more people, got 5 of 5"),
        (lambda: people().without(-1), "i: expected a whole number >= 0, got -1"),
        (lambda: people(1).without(0), "i: expected one of two or more people, got 0 of 1"),
        # a mean over five people is not one over six
        (lambda: BillboardMeans(BOARD).learn(people(6), 0), r"people: expected answers of shape \(5, 1, 7\)"),
        (lambda: BillboardMeans(BOARD).personalise(np.zeros(7), -1), "index: expected whole numbers from 0 to 6"),
        (lambda: BillboardMeans(BOARD).personalise(np.zeros(7), 7), "index: expected whole numbers from 0 to 6"),
        # before there is a release
        (lambda: BillboardRelease(-1.0), "epsilon: expected a positive number"),
        (lambda: BillboardRelease(1.0, 2.0), "delta: expected a number in"),
        (lambda: BillboardRelease(1.0, chains=0), "chains: expected a whole number >= 1, got 0"),
        (lambda: odds.log_factor([np.nan], [1], BOARD), "values: expected finite numbers"),
        (lambda: odds.log_factor([0.1, 0.2], [1, 1, 1], BOARD), "values: expected finite numbers, one per sum"),
        (lambda: odds.log_factor([0.1], [1], BOARD, p=[3.0]), r"p: expected means in \[-1, 1\]"),
        (lambda: odds.suspect(SINGLE, beta=(0, 1)), "beta: expected a positive number"),
        (lambda: odds.suspect(SINGLE, view=views.coalition(9)), "view: expected at most 4 other owners, got 9"),
        (lambda: newcomer(3), "people: expected 7 features, as published, got 3"),
        (lambda: posterior.public(np.zeros(7), BOARD, population=(1, 1), chains=0), "chains: expected a whole number"),
        (lambda: posterior.owner([0.1, 0.2], [1], SINGLE), "value: expected the one number that was sent"),
        (lambda: signs.labelled(np.ones((2, 3)), [0, 3], np.random.default_rng(0)), "index: expected whole numbers"),
        (lambda: signs.labelled(np.ones((2, 3)), [0, -1], np.random.default_rng(0)), "index: expected whole numbers"),
        (lambda: signs.labelled(np.full((2, 3), 0.5), [0, 1], np.random.default_rng(0)), "w: expected -1 and 1"),
        (lambda: signs.Labelled(np.ones((2, 3)), np.ones(3), [0, 1]), "y: expected one label per person"),
        (lambda: signs.Classifiers([1, 0], [0, 1]), "signs: expected -1 and 1"),
        (
            lambda: signs.Classifiers([1, 1], [0, 5]).predict(np.ones((2, 3))),
            "index: expected whole numbers from 0 to 2",
        ),
        (lambda: signs.Classifiers([1, 1], [0, 1]).predict(np.ones((3, 3))), "x: expected features of 2 people"),
        # somebody else in the place refutes no promise about a person who stays away, or about a task
        (
            lambda: audits.likelihood_ratio(SINGLE, Bound(1.0, 0.1, "zero_out", "person")),
            "claim: expected one with unit 'person'",
        ),
        (lambda: audits.likelihood_ratio(SINGLE, Bound(1.0, 0.1, "replace")), "claim: expected one with unit 'person'"),
        (
            lambda: audits.trace(SINGLE, trials=50).threshold(Bound(1.0, 0.1, "replace")),
            "claim: expected one with unit 'person'",
        ),
        (lambda: audits.trace(SINGLE, trials=50).threshold(PERSON, 2.0), "confidence: expected a number in"),
        (lambda: audits.trace(SINGLE, trials=50).moments(-1.0), "delta: expected a number in"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
