"""An owner's own message, which is in the release: what to leave it in does, and how it is taken out."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import shared_covariance, task_posteriors
from mpmtl_prob.inference.owner import leave_one_out as module
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.inference.owner.leave_one_out import leave_one_out, leave_one_out_posteriors
from mpmtl_prob.inference.owner.sent_messages import as_sent
from mpmtl_prob.privacy.mechanisms import exact
from mpmtl_prob.single_task import conjugate

read = partial(shared_covariance, chains=2, warmup=200, progress_bar=False)


@pytest.fixture(scope="module")
def six():
    return mp.datasets.synthetic_low_rank(num_tasks=6, num_features=3, rows=12).train


@pytest.fixture(scope="module")
def clear(six):
    """The posterior of a release that noise hardly hides."""
    return read(mp.release(six, 1000.0, unsafe_seed=0), draws=500)


def alone(tasks, i):
    this = slice(i, i + 1)
    return dataclasses.replace(tasks, X=tasks.X[this], y=tasks.y[this], mask=tasks.mask[this], tasks=tasks.tasks[this])


def test_without_ones_message_the_release_is_that_of_the_others(six, clear):
    release = clear.release
    messages = as_sent(six, release)
    rest = leave_one_out(release, messages[:, 3])
    noise = release.sigma[0] - messages @ messages.T
    others = np.delete(messages, 3, axis=1)
    assert_allclose(rest.sigma[0], others @ others.T + noise)
    assert rest.num_tasks == 5
    with pytest.raises(ValueError, match="message: expected the message behind the release"):
        leave_one_out(release, 100 * messages[:, 0])


def test_excluding_ones_own_message_conditions_on_the_rest(six, clear, monkeypatch):
    monkeypatch.setattr(module, "shared_covariance", partial(shared_covariance, warmup=200))
    two = dataclasses.replace(six, X=six.X[:2], y=six.y[:2], mask=six.mask[:2], tasks=six.tasks[:2])
    scale = conjugate.scales(two.gram)
    without = leave_one_out_posteriors(two, clear, scale, 1.0, 4, 0, False)
    public = read(leave_one_out(clear.release, as_sent(two, clear.release)[:, 1]), seed=0)
    assert_allclose(
        without.W[:, 1], conjugate.gaussian_posteriors(two.gram, public.shape(), scale).mean[:, 1], rtol=1e-8
    )


def test_without_their_own_messages_owners_draw_each_for_itself(six, clear, monkeypatch):
    seeds = []
    drawn = methods.Results(np.zeros((3, 1)), {"W": np.zeros((2, 3, 1))})

    def plug_in(*given):
        seeds.append(given[5])
        return drawn

    monkeypatch.setattr(module, "shared_covariance", lambda *_, **__: clear)
    monkeypatch.setattr(module, "raised_shapes", lambda *_: (None, None))
    monkeypatch.setattr(module, "plug_in", plug_in)
    leave_one_out_posteriors(six, clear, None, 1.0, 2, 0, False)
    assert len(set(seeds)) == 6


@pytest.fixture(scope="module", params=["gaussian", "wishart"])
def twelve(request):
    """Tasks, and posteriors of two releases: one whose noise hides messages, and one whose noise does not."""
    tasks = mp.datasets.synthetic_low_rank(num_tasks=12, num_features=4, rows=12).train
    releases = [mp.release(tasks, epsilon, mechanism=request.param, unsafe_seed=1) for epsilon in (3.0, 30.0)]
    return tasks, *(read(release, draws=1000) for release in releases)


def test_a_message_that_is_taken_out_roughly_is_nearly_out(twelve):
    tasks, _, shared = twelve
    left = taken = 0.0
    for w in as_sent(tasks, shared.release).T[:4]:
        truth = read(leave_one_out(shared.release, w), draws=500).shape()
        left += np.linalg.norm(shared.shape() - truth) ** 2
        taken += np.linalg.norm(shared.leave_one_out(w).shape() - truth) ** 2
    assert np.sqrt(taken / left) < 0.5  # 0.13 to 0.26 of releases of two such data sets


def test_the_part_taken_out_is_how_far_the_posterior_follows(twelve):
    """A message is taken out as far as the posterior follows the release."""
    # d E[w' A w | Sigma + t w w'] / dt = Cov(w' A w, d log p(Sigma + t w w' | A) / dt), of any law of the noise
    tasks, *posteriors = twelve
    for shared in posteriors:
        law, sigma = shared.release.mechanisms[0], shared.release.sigma[0]
        A = shared.to_arviz()["posterior"]["A"].values.reshape(-1, 4, 4)
        for w in as_sent(tasks, shared.release).T[:4]:
            step = 1e-4 * law.operator_norm * np.outer(w, w)
            slope = (law.log_prob(sigma + step, A) - law.log_prob(sigma - step, A)) / (2e-4 * law.operator_norm)
            follows = np.cov(np.einsum("i,sij,j->s", w, A, w), slope)[0, 1] / np.dot(w, w) ** 2
            assert_allclose(shared._share(w), min(1.0, follows), rtol=0.15)


def test_a_message_that_noise_hides_is_hardly_there(six):
    shared = read(mp.release(six, 0.01, unsafe_seed=0), draws=500)
    for w in as_sent(six, shared.release).T:
        assert shared._share(w) < 0.1
        assert_allclose(shared.leave_one_out(w).shape(), shared.shape(), atol=0.02)


def test_few_tasks_shapes_without_a_message_are_those_by_hand():
    """With fewer tasks than features, shapes without a message are those computed by hand."""
    tasks = mp.datasets.synthetic_low_rank(num_tasks=4, num_features=7, rows=12).train
    shared = read(mp.release(tasks, 1000.0, unsafe_seed=0), draws=40)
    posterior = shared.to_arviz()["posterior"].to_dataset()
    w = as_sent(tasks, shared.release)[:, 0]
    floor = posterior["prior_scale"].values.reshape(-1, 7)
    without_it = posterior["A"].values.reshape(-1, 7, 7) - shared._share(w) * np.outer(w, w)
    eigenvalues, vectors = np.linalg.eigh(floor[:, None] * np.eye(7) + without_it)
    raised = np.maximum(eigenvalues, floor) ** 1.5
    each = np.einsum("sik,sk,sjk->sij", vectors, 7 * raised / raised.sum(axis=1, keepdims=True), vectors)
    assert_allclose(shared.leave_one_out(w).shapes([1.5] * len(each)), each, atol=1e-5)
    assert_allclose(np.trace(shared.leave_one_out(w).shape(1.5)), 7)
    left = shared.leave_one_out(np.zeros(7)).shapes([1.0] * 5)  # a silent owner takes nothing out
    assert_allclose(left, shared.shapes([1.0] * 5), atol=1e-5)


def test_few_tasks_with_little_noise_lose_their_messages(six, clear):
    """Owners' messages are taken out where tasks are few and noise is little."""
    own, counted = (task_posteriors(six, clear, leave_one_out=x, draws=10) for x in ("auto", "off"))
    rough = task_posteriors(alone(six, 2), clear, draws=10)  # an owner does as in a simulation of all
    assert_allclose(rough.W[:, 0], own.W[:, 2], rtol=1e-8)
    at = task_posteriors(six, clear, power=1.3, draws=10).W[:, 2]
    shape = clear.leave_one_out(as_sent(six, clear.release)[:, 2]).shape(1.3)
    scale = conjugate.scales(six.gram, clear.release.scaling)
    assert_allclose(at, conjugate.gaussian_posteriors(six.gram, shape, scale).mean[:, 2], rtol=1e-8)
    assert not np.allclose(own.W, counted.W, rtol=1e-3)


def test_auto_is_full_where_tasks_are_fewer_than_features():
    tasks = mp.datasets.synthetic_low_rank(num_tasks=4, num_features=7, rows=12).train
    release = mp.release(tasks, 1000.0, unsafe_seed=0)
    auto, full = (task_posteriors(tasks, read(release, structure=s, draws=40), draws=10) for s in ("auto", "full"))
    assert_allclose(auto.W, full.W, rtol=1e-4)


@pytest.mark.parametrize("case", ["much noise", "many tasks", "low rank"])
def test_elsewhere_they_are_left_in(six, case):
    tasks = mp.datasets.synthetic_low_rank(num_tasks=16, num_features=3, rows=12).train if case == "many tasks" else six
    release = mp.release(tasks, 0.5 if case == "much noise" else 1000.0, unsafe_seed=0)
    shared = read(release, structure="low_rank" if case == "low rank" else "full", draws=50)
    own, counted = (task_posteriors(tasks, shared, leave_one_out=x, draws=10) for x in ("auto", "off"))
    assert_array_equal(own.W, counted.W)


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "bernoulli"])
def test_targets_never_make_other_tasks_rows_be_read(six, clear, likelihood):
    """Whatever the targets are, nobody looks at the rows of other tasks."""
    tasks = dataclasses.replace(six, y=np.where(six.mask, np.sign(six.y), 0.0)) if likelihood == "bernoulli" else six
    kept = np.arange(6)[:, None] == 2
    others = dataclasses.replace(
        tasks, X=np.where(kept[..., None], tasks.X, tasks.X[::-1]), y=np.where(kept, tasks.y, tasks.y[::-1])
    )
    here, there = (
        task_posteriors(t, clear, likelihood=likelihood, draws=10).to_arviz()["posterior"] for t in (tasks, others)
    )
    for name in here.data_vars:
        assert_array_equal(here[name][..., 2], there[name][..., 2])
        assert not np.array_equal(here[name][..., 0], there[name][..., 0])
    counted = task_posteriors(tasks, clear, likelihood=likelihood, leave_one_out="off", draws=10)
    assert not np.allclose(here["W"].mean(("chain", "draw")), counted.W, rtol=1e-2)


def test_an_intercept_is_no_part_of_a_message(six, clear):
    tasks = dataclasses.replace(six, y=np.where(six.mask, six.y + 7.0, 0.0)).with_intercept()
    own = task_posteriors(tasks, clear, draws=10)
    assert own.W.shape == (4, 6)
    assert np.isfinite(own.predict(tasks).mean).all()


def test_draws_that_are_mixed_count_rows_twice_and_say_so(six, clear):
    advice = (
        "6 tasks with 3 features and little noise: the release holds much of an owner's own message, its rows count"
    )
    told = lambda **options: advice in str(task_posteriors(six, clear, draws=10, **options).diagnose())
    assert told(method="mixture")
    assert not told(method="mixture", leave_one_out="not_in_release")  # whoever is not in the release
    assert not told()
    assert not told(leave_one_out="off")
    for choice, where in (("auto", "roughly out"), ("off", "in")):
        own = task_posteriors(six, clear, draws=10, leave_one_out=choice)
        assert own.to_arviz().attrs["own_message"] == where
        assert ("Owners' own messages are taken out" in str(own.diagnose())) == (choice == "auto")


@pytest.mark.evidence
def test_intervals_cover_with_few_tasks_and_little_noise():
    """Intervals cover as often as they say where tasks are few and noise is little."""
    covered = {"auto": [], "off": []}
    for seed in range(3):
        made = mp.datasets.synthetic_low_rank(num_tasks=20, num_features=30, seed=seed)
        shared = read(mp.release(made.train, 1000.0, unsafe_seed=seed), draws=150)
        for how, coverages in covered.items():
            own = task_posteriors(made.train, shared, leave_one_out=how, progress_bar=False)
            coverages.append(mp.evaluation.coverage(own.predict(made.test), made.test))
    assert 0.87 < np.mean(covered["auto"]) < 0.93
    assert np.mean(covered["off"]) < 0.86


def test_what_cannot_be_taken_out_is_named(six, clear):
    more = mp.datasets.synthetic_low_rank(num_tasks=7, num_features=3).train
    with pytest.raises(ValueError, match="leave_one_out: expected, with 'exact', a release of these tasks"):
        task_posteriors(more, clear, leave_one_out="exact")
    with pytest.raises(ValueError, match="leave_one_out: expected method='plug_in' with 'exact', got 'mixture'"):
        task_posteriors(six, clear, method="mixture", leave_one_out="exact")
    with pytest.raises(ValueError, match="leave_one_out: expected a posterior of structure 'full' and of one round"):
        read(clear.release, structure="low_rank", draws=5).leave_one_out(np.ones(3))
    for wrong in (np.ones(2), np.full(3, np.nan), 5.0):
        with pytest.raises(ValueError, match=r"message: expected .*numbers"):
            clear.leave_one_out(wrong)
    with pytest.raises(ValueError, match=r"leave_one_out: expected one of .*, got 'no'"):
        task_posteriors(six, clear, leave_one_out="no")
    with pytest.raises(ValueError, match="release: expected more tasks than the one whose message is left out"):
        leave_one_out(mp.release(alone(six, 0), 5.0, delta=0.1), np.ones(3))


@pytest.mark.parametrize("options", [{}, {"message": "clip", "clip": 0.7}, {"scaling": "none"}])
def test_owners_know_what_they_sent_to_the_last_bit(options):
    rng = np.random.default_rng(4)
    X = [rng.standard_normal((rows, 4)) for rows in (2, 3, 9, 12, 5, 7)]  # fewer rows than features too
    tasks = TaskData.from_lists(X, [x @ np.ones(4) + rng.standard_normal(len(x)) for x in X])
    published = mp.release(tasks, 1.0, 1e-2, unsafe_seed=3, **options)
    noise = published.mechanisms[0].draw(published.lattice**2, exact.source(3, 0))
    W = as_sent(tasks, published)
    assert np.array_equal(published.sigma[0] - noise, W @ W.T)
