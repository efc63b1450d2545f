"""Messages of estimates: those of the rows that they come from, of their own task alone, silent where they say nothing."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import mpmtl_prob as mp
from mpmtl_prob import Estimate, Estimates, Reference, TaskData
from mpmtl_prob.releases import message, terms
from mpmtl_prob.releases.effects import EffectsLayout, effect_messages
from mpmtl_prob.single_task import shrunk

NAMES = ("a", "b", "intercept")
REFERENCE = Reference({"a": (1, 2), "b": (0, 1)}, target=(2, 1.5), effects={"a": 0.3})
M = 6


def least_squares(X, y):
    """Coefficients and covariance of a linear model with an intercept, which R, SAS and Stata put first."""
    rows = np.column_stack([np.ones(len(y)), X])
    inverse = np.linalg.inv(rows.T @ rows)
    b = inverse @ rows.T @ y
    return b, inverse * ((y - rows @ b) ** 2).sum() / (len(y) - rows.shape[1])


def make(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, 2)) + [1, 0] for _ in range(M)]
    return X, [x @ [0.5, -0.2] + 1 + rng.standard_normal(n) for x in X]


X, Y = make()
ROWS = TaskData.from_lists(X, Y, features=["a", "b"]).with_intercept()
OWN = [Estimate(*least_squares(x, y), ["(Intercept)", "a", "b"]) for x, y in zip(X, Y, strict=True)]
ESTIMATES = Estimates(OWN)
TERMS = terms(1.0, M, NAMES, reference=REFERENCE)


def test_messages_have_length_one_and_lie_on_the_lattice():
    v = message(ESTIMATES, TERMS)
    assert v.shape == (6, M)
    assert np.all(np.linalg.norm(v, axis=0) <= 1)
    assert np.all(np.linalg.norm(v, axis=0) > 0.995)
    assert np.all(np.mod(v, TERMS.lattice) == 0)


def test_a_message_is_that_of_the_rows_where_these_are_many():
    assert np.allclose(effect_messages(ESTIMATES, TERMS.effects), effect_messages(ROWS, TERMS.effects), atol=2e-3)
    few = effect_messages(Estimates([Estimate(*least_squares(X[0][:9], Y[0][:9]), OWN[0].coefficients)]), TERMS.effects)
    assert np.abs(few - effect_messages(ESTIMATES, TERMS.effects)[:, :1]).max() > 0.1  # which is not so of any estimate


def test_estimates_alone_give_the_messages_of_their_rows(monkeypatch):
    """An estimate has exactly the message of its rows where these count through it alone."""
    x, y, s2, v = X[0][:12], Y[0][:12], 0.7, 0.2
    monkeypatch.setattr(shrunk, "RESIDUALS", np.array([s2]))
    monkeypatch.setattr(shrunk, "LOG_PRIOR", np.zeros(1))
    monkeypatch.setattr(shrunk, "read_together", lambda X, ridge: 1.0)  # an estimate has no rows that tell it
    gram = x.T @ x
    by_rows = shrunk.shrunk_estimate(x, y, v, 8.0)
    by_estimate = shrunk.shrunk_from(np.linalg.solve(gram, x.T @ y), s2 * np.linalg.inv(gram), v, 8.0)
    for one, other in zip(by_rows, by_estimate, strict=True):
        assert np.allclose(one, other, rtol=1e-10)
        assert np.all(np.abs(one) < 0.99)


def test_it_is_the_posterior_mean_under_the_declared_prior():
    """A message is the posterior mean under the declared prior where no other prior is weaker.

    In other words: of N(b | beta, V) under N(0, v I), by precisions.
    """
    b, V, v = OWN[1].mean, OWN[1].covariance * 300, 0.2
    shrunken = shrunk.shrunk_from(b, V, v, 1.0)
    precision = np.linalg.inv(V)
    assert np.allclose(shrunken.estimate, np.linalg.solve(precision + np.eye(3) / v, precision @ b))
    assert np.allclose(shrunken.determined, np.diag(np.linalg.solve(precision + np.eye(3) / v, precision)))


def test_coefficients_of_unequal_accuracy_are_all_kept():
    """An estimate whose coefficients are of very different accuracy loses none of them.

    This happens where one category is separated perfectly: its standard error is beyond all sense, and no other is.
    """
    shrunken = shrunk.shrunk_from(np.array([0.5, 30.0]), np.diag([0.01, 1e18]), 0.25, 8.0)
    assert np.allclose(shrunken.estimate, [0.5 * 0.25 / 0.26, 0], atol=1e-12)
    assert np.allclose(shrunken.determined, [0.25 / 0.26, 0], atol=1e-12)


def test_an_owner_alone_makes_the_same_bits_as_the_curator():
    together = message(ESTIMATES, TERMS)
    for i, own in enumerate(OWN):
        assert np.array_equal(message(Estimates([own]), TERMS)[:, 0], together[:, i])


def test_coefficients_come_in_the_order_of_the_reference():
    """Coefficients come in the order of the reference, whatever order a task has them in."""
    moved = [Estimate(own.mean[::-1], own.covariance[::-1, ::-1], ["b", "a", "const"]) for own in OWN]
    assert Estimates(moved).features == ("b", "a", "intercept")
    one, other = (mp.release(Estimates(each), 1.0, reference=REFERENCE, unsafe_seed=0) for each in (moved, OWN))
    assert one.features == other.features == (*NAMES, "determined: columns", "determined: intercept", "one")
    assert np.array_equal(one.sigma, other.sigma)


OTHERS = {
    "another": lambda own: Estimate(-own.mean, 3 * own.covariance, own.coefficients),
    "another order": lambda own: own.take(["b", "intercept", "a"]),
    "the names of other programs": lambda own: Estimate(own.mean, own.covariance, ["_cons", "a", "b"]),
    "a series and a frame": lambda own: Estimate(
        pd.Series(own.mean, list(own.coefficients)), pd.DataFrame(own.covariance, columns=list(own.coefficients))
    ),
    "text": lambda own: Estimate(list(map(repr, own.mean.tolist())), own.covariance, own.coefficients),
    "short floats": lambda own: Estimate(own.mean.astype(np.float32), own.covariance, own.coefficients),
    "whole numbers": lambda own: Estimate([1, 2, 3], np.eye(3, dtype=int), own.coefficients),
    "large": lambda own: Estimate(1e149 * own.mean, own.covariance, own.coefficients),
    "large beyond squares": lambda own: Estimate(1e149 * own.mean, 1e149 * own.covariance, own.coefficients),
    "tiny variances": lambda own: Estimate(own.mean, 1e-140 * own.covariance, own.coefficients),
    "no information": lambda own: Estimate(own.mean, 1e140 * own.covariance, own.coefficients),
    "separated": lambda own: Estimate([1.0, 30.0, 0.1], np.diag([0.01, 1e9, 0.01]), own.coefficients),
}


@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.filterwarnings("error")
def test_neighbours_differ_in_one_message_alone(change):
    """Data sets that differ in one task differ in that task's message and in nothing that is public."""
    for place in (0, 2):  # the first task's too, of which names are taken where nobody says which
        own = list(OWN)
        own[place] = OTHERS[change](own[place])
        data = ESTIMATES, Estimates(own)
        sent = [message(each, TERMS) for each in data]
        assert np.array_equal(np.delete(sent[0], place, axis=1), np.delete(sent[1], place, axis=1))
        assert np.all(np.linalg.norm(sent[1], axis=0) <= 1)
        options = {"reference": REFERENCE, "unsafe_seed": 0}
        public = [dataclasses.asdict(mp.release(each, 1.0, **options)) | {"sigma": None} for each in data]
        assert str(public[0]) == str(public[1])


def test_rows_and_estimates_have_the_same_public_part():
    """Nobody sees from a release which of the two its messages were made of."""
    options = {"reference": REFERENCE, "unsafe_seed": 0}
    public = [dataclasses.asdict(mp.release(each, 1.0, **options)) | {"sigma": None} for each in (ROWS, ESTIMATES)]
    assert str(public[0]) == str(public[1])


def test_an_estimate_beyond_doubles_sends_an_empty_message():
    """An estimate beyond double precision says what a task without rows says."""
    layout = EffectsLayout(("a", "b"), Reference(dict.fromkeys("ab", (0.0, 1e90)), target=(0.0, 1e-90)))
    u = effect_messages(Estimates([Estimate([1e149, 1.0], np.eye(2), ["a", "b"])]), layout)
    assert np.array_equal(u[:, 0], [0, 0, 0, 1])


def test_a_singular_estimate_stops_nothing_and_says_nothing(monkeypatch):
    """An estimate whose covariance cannot be inverted stops nothing and says nothing.

    The existence of a release must not depend on one task's numbers.
    """

    def refuse(matrix):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(np.linalg, "inv", refuse)
    u = effect_messages(ESTIMATES, TERMS.effects)
    assert np.all(u[:-1] == 0)
    assert np.all(u[-1] == 1)


def test_a_guess_is_taken_off():
    estimate = Estimates([Estimate([0.3, 0.0], 0.01 * np.eye(2), ["a", "b"])])
    assert np.all(effect_messages(estimate, EffectsLayout(("a", "b"), REFERENCE))[:2] == 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "source: expected TaskData, got Estimates: estimates make messages of effects alone"),
        ({"message": "clip", "clip": 1.0}, "source: expected TaskData, got Estimates"),
        ({"message": "effects"}, "reference: expected reference values with estimates, which have no rows"),
        (
            {"reference": Reference.standard(["a", "c"])},
            r"estimates: expected the coefficients of the reference, got none of",
        ),
        ({"reference": Reference.standard(["a"])}, r"got others: \['b'\]"),
        ({"reference": REFERENCE, "rounds": 2}, "rounds: expected 1"),
    ],
)
def test_unsuitable_arguments_are_named_before_a_charge(options, words):
    """Whatever does not go with estimates is named, and nothing is charged."""
    ledger = mp.privacy.Ledger(epsilon=5.0, delta=0.2)
    with pytest.raises(ValueError, match=words):
        mp.release(ESTIMATES, 1.0, ledger=ledger, **options)
    assert ledger.spent.epsilon == 0


def test_a_ledger_pays_for_estimates():
    ledger = mp.privacy.Ledger(epsilon=5.0, delta=0.05)
    mp.release(ESTIMATES, 1.0, 0.05, reference=REFERENCE, ledger=ledger)
    assert 0.9 < ledger.spent.epsilon <= 1.0


def test_estimates_without_a_shared_intercept_are_refused():
    """Estimates without an intercept are refused where the intercept is shared."""
    with pytest.raises(ValueError, match=r"got none of \['intercept'\]"):
        message(Estimates(OWN, coefficients=["a", "b"]), TERMS)
    with pytest.raises(ValueError, match="source: expected TaskData, got Estimates"):
        message(ESTIMATES, terms(1.0, M, 3))
    with pytest.raises(ValueError, match="tasks: expected TaskData, got Estimates"):
        mp.NoiseAware(1.0).fit(ESTIMATES)
    with pytest.raises(ValueError, match="source: expected TaskData, got Estimates"):
        mp.releases.private_clip_norm(ESTIMATES, 1.0, low=0.1, high=1)
