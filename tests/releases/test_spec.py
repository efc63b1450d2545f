"""A release in two steps: owners make messages, a curator who sees their sum alone publishes."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob import TaskData, federated, releases
from mpmtl_prob.privacy import Gaussian, Ledger, Quantile
from mpmtl_prob.releases import PrivateClipNorm, message, publish, terms
from mpmtl_prob.releases.publish import from_noisy_sum

RNG = np.random.default_rng(3)
X = [RNG.standard_normal((n, 3)) for n in (7, 9, 5, 30, 2)]
Y = [x @ np.ones(3) + RNG.standard_normal(len(x)) for x in X]
TASKS = TaskData.from_lists(X, Y, features=["a", "b", "c"])
DELTA = 1e-3


def alone(i):
    return TaskData.from_lists(X[i : i + 1], Y[i : i + 1], features=["a", "b", "c"])


def same(one, other):
    assert_array_equal(one.sigma, other.sigma)
    for name in ("mechanisms", "num_tasks", "features", "guarantee", "message", "scaling", "composed_with", "lattice"):
        assert getattr(one, name) == getattr(other, name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"adjacency": "zero_out", "mechanism": "gaussian"},
        {"message": "clip", "clip": 0.5, "scaling": "none"},
        {"message": "clip", "clip": PrivateClipNorm(1.0, Quantile(0.1)), "mechanism": "paper"},
    ],
)
def test_owner_by_owner_the_release_is_that_of_all_rows_at_once(options):
    settled = terms(1.0, len(X), TASKS.features, DELTA, **options)
    second_moment = np.zeros((3, 3))
    for i in reversed(range(len(X))):  # in any order: sums on the lattice are exact
        v = message(alone(i), settled)
        second_moment += v @ v.T
    same(publish(second_moment, settled, unsafe_seed=5), mp.release(TASKS, 1.0, DELTA, **options, unsafe_seed=5))


def test_a_published_sum_is_charged_once_with_a_true_promise():
    """A published sum is charged once, and promises what a release does."""
    book, settled = Ledger(epsilon=1.0, delta=DELTA), terms(0.6, 5, 3, DELTA)
    W = message(RNG.standard_normal((3, 5)), settled)
    out = publish(W @ W.T, settled, ledger=book)
    assert out.guarantee.proved.delta <= DELTA
    assert [charge.mechanisms for charge in book.charges()] == [out.mechanisms]
    assert not np.array_equal(out.sigma, publish(W @ W.T, settled).sigma)


def test_sums_of_other_messages_are_refused_before_a_charge():
    """A matrix that cannot be a sum of such messages is refused before it is charged."""
    book, settled = Ledger(epsilon=9.0, delta=DELTA), terms(0.6, 5, 3, DELTA)
    W = message(RNG.standard_normal((3, 5)), settled)
    A = W @ W.T
    for wrong in (
        A[:2, :2],
        A + 2.0**-40,
        A + 6 * np.eye(3),
        A + np.triu(np.full((3, 3), settled.lattice**2), 1),
        A * np.nan,
    ):
        with pytest.raises(ValueError, match=r"^second_moment: expected"):
            publish(wrong, settled, ledger=book)
    with pytest.raises(ValueError, match=r"^terms: expected those of one round, got 2"):
        publish(A, terms(0.6, 5, 3, DELTA, rounds=2), ledger=book)
    assert book.charges() == []


def test_a_spec_holds_public_numbers_and_refuses_others():
    """A release's specification holds public numbers, and says what is wrong with others."""
    for change, name in (
        ({"num_tasks": 0}, "num_tasks"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"message": "shout"}, "message"),
        ({"clip": 1.0}, "clip"),
        ({"mechanism": "uniform"}, "mechanism"),
        ({"mechanism": Gaussian(2, 1.0)}, "mechanism"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"scaling": "max"}, "scaling"),
        ({"rounds": 0}, "rounds"),
        ({"delta": 1.0}, "delta"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            terms(**({"epsilon": 1.0, "num_tasks": 5, "features": 3, "delta": DELTA} | change))
    with pytest.raises(ValueError, match=r"^source: expected 4 features, as the terms say, got 3"):
        message(alone(0), terms(1.0, 5, 4))
    assert releases.default_delta(5) == pytest.approx(1 / (5 * np.log(5)))


def test_all_rounds_bound_messages_alike():
    """Messages are cut to the first law's clip norm: a second law that knows of a smaller one would promise too much."""
    settled = terms(1.0, 5, 3, DELTA, message="clip", clip=10.0, rounds=2)
    first, second = settled.mechanisms
    with pytest.raises(ValueError, match=r"^mechanisms: expected one clip norm in all rounds, got 1.0, 10.0"):
        replace(settled, mechanisms=(first, replace(second, clip=1.0)))
    with pytest.raises(ValueError, match=r"^mechanisms: expected clip = 1.0, as messages have unit length, got 10.0"):
        replace(settled, message="direction")


def test_a_lattice_is_one_on_which_sums_are_exact():
    """Terms may name any; what doubles do not add exactly is not released, before anything is charged."""
    book, settled = Ledger(epsilon=1.0, delta=0.1), terms(0.6, 5, 3, DELTA)
    for h in (2.0**-40, 2.0**-200, 3 * settled.lattice):
        with pytest.raises(ValueError, match=r"^lattice: expected a power of two of at least"):
            publish(np.zeros((3, 3)), replace(settled, lattice=h), ledger=book)
        with pytest.raises(ValueError, match=r"^lattice: expected a power of two of at least"):
            from_noisy_sum(np.zeros((3, 3)), replace(settled, lattice=h))
    assert book.charges() == []
    assert publish(np.zeros((3, 3)), replace(settled, lattice=2 * settled.lattice), ledger=book).rounds == 1


def test_terms_name_no_feature_twice():
    with pytest.raises(ValueError, match=r"^features: expected distinct names"):
        terms(1.0, 5, ["a", "b", "a"])


ONE = TaskData.from_lists([x[:, :1] for x in X], Y)


@pytest.mark.parametrize(
    "asked",
    [
        lambda book: mp.release(ONE, 1.0, DELTA, ledger=book),
        lambda book: mp.release(np.ones((1, 5)), 1.0, DELTA, ledger=book),
        lambda book: mp.release(
            TaskData.from_lists([x[:, :1] for x in X], Y).with_intercept(), 1.0, DELTA, ledger=book
        ),
        lambda book: mp.NoiseAware(1.0, DELTA, ledger=book, progress_bar=False).fit(ONE),
        lambda _: terms(1.0, 5, 1),
        lambda _: terms(1.0, 5, ["a"], mechanism="gaussian"),
        lambda _: federated.invite(1.0, 5, 1),
        lambda _: federated.invite(1.0, 5, ["a"], trust="no_curator"),
        lambda _: mp.evaluation.standard_fits(ONE),
    ],
    ids=["tasks", "matrix", "intercept", "noise-aware", "terms", "named", "invitation", "no curator", "comparison"],
)
def test_one_feature_has_no_direction_worth_paying_for(asked, tmp_path):
    """Squared it is 1, whatever the data: refused wherever directions are sent, before anything is charged."""
    book = Ledger(tmp_path / "ledger", epsilon=5.0, delta=0.1)
    with pytest.raises(ValueError, match=r"message='clip'|reference: expected one with a single feature"):
        asked(book)
    assert book.charges() == []


def test_one_feature_is_released_with_a_clip_norm():
    settled = terms(1.0, 5, 1, message="clip", clip=2.0)
    assert message(ONE, settled).std() > 0.1
    assert mp.release(ONE, 1.0, DELTA, message="clip", clip=2.0).sigma.shape == (1, 1, 1)


CONSTANT = TaskData.from_lists(
    [np.column_stack([x[:, 0], np.full((len(x), 2), i)]) for i, x in enumerate(X)], Y, features=["a", "b", "c"]
).with_intercept()
ALONE_IT_VARIES = (
    "features: 'a' alone varies within these tasks, so that all directions are the same, whatever the weights"
)


def test_who_holds_the_rows_is_told_that_one_feature_varies():
    """A refusal would tell others of the rows; with a clip norm the size is worth sending, and nothing is said."""
    for told in (lambda: mp.release(CONSTANT, 1.0, DELTA), lambda: message(CONSTANT, terms(1.0, 5, ["a", "b", "c"]))):
        with pytest.warns(UserWarning, match=ALONE_IT_VARIES):
            told()
    with pytest.warns(UserWarning, match="features: 0 alone varies within these tasks"):
        mp.release(np.eye(3)[:, :1] * np.ones(4), 1.0, DELTA)
    mp.release(CONSTANT, 1.0, DELTA, message="clip", clip=1.0)
    mp.release(TASKS, 1.0, DELTA)


def test_what_is_published_does_not_show_that_it_was_told():
    with pytest.warns(UserWarning, match=ALONE_IT_VARIES):
        quiet = mp.release(CONSTANT, 1.0, DELTA)
    other = mp.release(TASKS.with_intercept(), 1.0, DELTA)
    assert quiet.to_xarray().attrs == other.to_xarray().attrs


def test_tasks_that_say_nothing_are_named_and_counted():
    silent = TaskData.from_lists(X, [0 * Y[0], *Y[1:4], 0 * Y[4]], tasks=["u", "v", "w", "x", "y"])
    with pytest.warns(UserWarning, match=r"tasks: 2 of them send the zero vector, .*: 'u', 'y'. They are counted"):
        assert mp.release(silent, 1.0, DELTA).num_tasks == 5
    many = TaskData.from_lists([X[0]] * 9, [0 * Y[0]] * 9)
    with pytest.warns(UserWarning, match="0, 1, 2, 3, 4 and 4 more"):
        mp.release(many, 1.0, DELTA)


def test_a_release_says_where_one_person_is_in_several_tasks(tmp_path):
    """A release says so where a person is in several tasks, as its promise is about one; older files say nothing of it."""
    rng = np.random.default_rng(0)
    shared = TaskData.from_targets(rng.standard_normal((20, 3)), rng.standard_normal((20, 5)))
    said = "A person of k tasks is promised less: `guarantee.for_group(k)` says what."
    release = mp.release(shared, 1.0, DELTA)
    release.save(tmp_path / "release.nc")
    loaded = mp.Release.load(tmp_path / "release.nc")
    assert loaded.guarantee == release.guarantee
    fit = mp.estimators.LowRank(0.5, rounds=2, clip=1.0, curvature=40.0).fit(shared)
    for guarantee in (release.guarantee, loaded.guarantee, fit.guarantee):
        assert said in guarantee.explain()
        assert guarantee.for_group(5).delta(1.0) > guarantee.delta(1.0)
        assert type(guarantee).from_dict(guarantee.to_dict()).shared_subjects
    assert said in release.explain()
    apart = mp.release(TASKS, 1.0, DELTA)
    assert said not in apart.explain()
    assert "shared_subjects" not in apart.to_xarray().attrs["release"]


FIELDS = {"mechanism": "gaussian", "adjacency": "zero_out", "message": "clip", "clip": 1.0}
SPEC = mp.ReleaseSpec(2.0, DELTA, **FIELDS)


def test_a_specification_stands_for_its_fields():
    assert terms(SPEC, 5, 3) == terms(2.0, 5, 3, DELTA, **FIELDS) == SPEC.terms(5, 3)
    same(mp.release(TASKS, SPEC, unsafe_seed=1), mp.release(TASKS, 2.0, DELTA, unsafe_seed=1, **FIELDS))
    assert mp.NoiseAware(SPEC).spec == SPEC == mp.NoiseAware(2.0, DELTA, rounds=1, **FIELDS).spec
    assert federated.invite(SPEC, 5, 3).terms == federated.invite(2.0, 5, 3, DELTA, **FIELDS).terms


def test_rounds_take_a_specification_too():
    spec = mp.ReleaseSpec(2.0, DELTA, message="clip", clip=0.5, rounds=3)
    by_spec = mp.estimators.MPMTL(mp.estimators.Proximal(mp.estimators.TraceNorm()), 0.5, spec)
    assert (by_spec.epsilon, by_spec.delta, by_spec.clip, by_spec.rounds) == (2.0, DELTA, 0.5, 3)
    assert by_spec.mechanism == "wishart"
    assert (
        by_spec.fit(TASKS).release.mechanisms == replace(by_spec, mechanism="calibrated").fit(TASKS).release.mechanisms
    )
    with pytest.raises(ValueError, match="epsilon: expected a ReleaseSpec with message='clip'"):
        replace(by_spec, epsilon=mp.ReleaseSpec(2.0))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mp.release(TASKS, SPEC, DELTA), "epsilon: a ReleaseSpec says everything of a release; give it delta"),
        (lambda: mp.release(TASKS, SPEC, clip=1.0, message="clip"), "give it clip, message"),
        (lambda: mp.ReleaseSpec(0.0), "epsilon: expected a positive number"),
        (lambda: mp.ReleaseSpec(1.0, 1.0), "delta: expected a number in"),
        (lambda: mp.ReleaseSpec(mechanism="laplace"), "mechanism: expected one of"),
        (lambda: mp.ReleaseSpec(message="clip"), "clip: expected a number K"),
        (lambda: mp.ReleaseSpec(scaling="log"), "scaling: expected one of"),
        (lambda: mp.ReleaseSpec(rounds="many"), "rounds: expected one of 'auto'"),
        (lambda: federated.invite(mp.ReleaseSpec(message="clip", clip=2.0), 5, 3), "clip: expected 1 where sites"),
        (lambda: federated.invite(mp.ReleaseSpec(rounds=2), 5, 3), "rounds: expected 1, as sites send one message"),
        (
            lambda: federated.invite(mp.ReleaseSpec(mechanism="paper"), 5, 3),
            "mechanism: expected one of 'wishart', 'gaussian'",
        ),
    ],
)
def test_a_specification_is_checked_once_and_in_words(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_field_that_there_is_none_of_is_a_type_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'mechanisms'"):
        mp.release(TASKS, 1.0, mechanisms="gaussian")
