"""Mixture, joint sampling and exclusion of one's own message: the same posterior from different sides."""

import dataclasses
import tracemalloc

import jax
import numpy as np
import pytest
import scipy.stats as st
from helpers.effort import effort
from helpers.tolerances import RARE, surprise
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import shared_covariance, task_posteriors
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.inference.owner.methods import mixture
from mpmtl_prob.inference.owner.streams import Block, Turn
from mpmtl_prob.sampling.importance import smoothed
from mpmtl_prob.single_task import conjugate


@pytest.fixture(scope="module")
def few():
    """Tasks with few rows and a release that leaves Omega uncertain: where plugging in one Omega is wrong."""
    rng = np.random.default_rng(0)
    W = np.array([[3.0], [1.0], [0.3]]) * rng.standard_normal((3, 30))
    X = rng.standard_normal((30, 5, 3))
    y = np.einsum("tnj,jt->tn", X, W) + rng.standard_normal((30, 5))
    tasks = TaskData.from_lists(list(X), list(y))
    release = mp.release(tasks, epsilon=1.0, adjacency="zero_out", unsafe_seed=4)
    return tasks, release, shared_covariance(release, chains=2, warmup=200, draws=500, progress_bar=False)


def draws_of(own, name="W"):
    values = own.to_arviz()["posterior"][name].values
    return values.reshape(-1, *values.shape[2:])


def test_mixture_and_joint_sampling_agree_in_distribution(few):
    tasks, _, shared = few
    one = TaskData.from_lists([tasks.X[2]], [tasks.y[2]])
    mixed = task_posteriors(one, shared, method="mixture", power=1.0)
    exact = task_posteriors(one, shared, method="joint", chains=4, draws=500)
    for j in range(3):
        mine, yardstick = (own.to_arviz()["posterior"]["W"].values[..., j, 0] for own in (mixed, exact))
        assert surprise(mine, yardstick) > RARE
    assert surprise(*(own.to_arviz()["posterior"]["sigma"].values[..., 0] for own in (mixed, exact))) > RARE
    # what the test would say of a posterior half an sd off
    assert surprise(mine + 0.5 * mine.std(), yardstick) < RARE
    diagnosis = exact.diagnose()  # of its own chains, not of the public posterior's
    assert set(diagnosis.rhat) == {"W", "sigma", "snr"}
    assert max(diagnosis.rhat.values()) < 1.05
    assert diagnosis.draws == 2000
    plugged = task_posteriors(one, shared, power=1.0)
    assert_allclose(plugged.W, exact.W, atol=0.5 * draws_of(exact)[..., 0].std(0).min())


def test_mixture_reports_how_far_its_weights_can_be_trusted(few):
    tasks, _, shared = few
    tasks = TaskData.from_lists(list(tasks.X[:10]), list(tasks.y[:10]))
    own = task_posteriors(tasks, shared, method="mixture", draws=10)
    khat = own.to_arviz()["constant_data/khat"]
    assert khat.dims == ("task",)
    assert own.W.shape == (3, 10)
    rng = np.random.default_rng(0)
    # every draw says the same: no weight stands out
    alike = st.wishart(2000, np.eye(3) / 2000).rvs(effort(200, 400), random_state=rng)
    assert mixture(tasks, alike, None, 5, 0).khat.max() < 0.6
    heavy = smoothed(2 * rng.exponential(size=(30, 4000)))[1]  # weights whose variance is infinite, with shape 2
    assert heavy.min() > 1


@pytest.mark.parametrize("method", ["plug_in", "mixture"])
def test_blocks_give_the_posteriors_of_all_tasks_at_once(few, method, monkeypatch):
    """Posteriors are those of all tasks at once, whatever the size of a block.

    Means and weights to rounding, draws by their law; blocks have random numbers of their own.
    """
    tasks, _, shared = few
    tasks = TaskData.from_lists([tasks.X[0]] * 7, [tasks.y[0]] * 7)  # alike: their draws differ by random numbers alone
    ask = {"method": method, "leave_one_out": "off", "draws": 500, "chains": 2}
    whole = task_posteriors(tasks, shared, **ask)
    monkeypatch.setattr(methods, "BLOCK", 3)
    parts = task_posteriors(tasks, shared, **ask)
    assert_allclose(parts.W, whole.W, rtol=1e-12)
    for name in parts.to_arviz()["constant_data"].data_vars:
        assert_allclose(parts.to_arviz()["constant_data"][name], whole.to_arviz()["constant_data"][name], rtol=1e-9)
    drawn = draws_of(parts)
    assert surprise(drawn[:, 0, 6], draws_of(whole)[:, 0, 6]) > RARE
    first = np.array([drawn[:, 0, 0], drawn[:, 0, 3], drawn[:, 0, 6]])
    assert np.abs(np.corrcoef(first)[np.triu_indices(3, 1)]).max() < 0.2


def test_owners_take_little_more_memory_than_what_they_return(few, monkeypatch):
    """Posteriors at every Omega are there for a few tasks at a time."""
    _, _, shared = few
    rng = np.random.default_rng(3)
    many = TaskData.from_lists(list(rng.standard_normal((240, 6, 3))), list(rng.standard_normal((240, 6))))
    omegas, prior = methods.raised_shapes(shared, None)

    def peak():
        tracemalloc.start()
        methods.plug_in(many, omegas, prior, None, 4, 0)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak()  # Gram matrices and what else is kept with the tasks
    at_once = peak()
    monkeypatch.setattr(methods, "AT_ONCE", 24 * 2200)
    assert peak() < 0.5 * at_once


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "bernoulli"])
@pytest.mark.parametrize("method", ["plug_in", "mixture"])
def test_draws_do_not_depend_on_how_many_tasks_are_drawn(few, monkeypatch, likelihood, method):
    """Draws of a task are the same however many tasks are drawn beside it.

    Bit for bit: of two tasks a turn, of all of a block, and whatever stream it is that others take.
    """
    rng = np.random.default_rng(5)
    targets = np.sign(rng.standard_normal((7, 6))) if likelihood == "bernoulli" else rng.standard_normal((7, 6))
    tasks = TaskData.from_lists(list(rng.standard_normal((7, 6, 3))), list(targets))
    tasks = tasks if likelihood == "student_t" else tasks.with_intercept()
    monkeypatch.setattr(methods, "BLOCK", 5)
    ask = {"method": method, "likelihood": likelihood, "chains": 1, "draws": 20, "progress_bar": False}
    ask["leave_one_out"] = "not_in_release"
    whole = task_posteriors(tasks, few[2], **ask)
    taken = []
    monkeypatch.setattr(
        TaskData, "take", lambda self, places, take=TaskData.take: taken.append(len(places)) or take(self, places)
    )
    monkeypatch.setattr(methods, "AT_ONCE", 0)
    monkeypatch.setattr(methods, "_FEWEST", 2)
    parts = task_posteriors(tasks, few[2], **ask)
    assert taken[-4:] == [2, 2, 1, 2]
    assert (parts.W == whole.W).all()
    for group in ("posterior", "constant_data"):
        for name, values in parts.to_arviz()[group].data_vars.items():
            assert (values.values == whole.to_arviz()[group][name].values).all()


def test_tasks_of_other_turns_have_numbers_of_their_own():
    """Tasks have random numbers of their own, whether a stream is spawned for each, several for some, or one for all."""
    block = Block(seed=3, number=1, num_tasks=4, num_draws=5)
    turns = [Turn(block, slice(0, 2)), Turn(block, slice(2, 4))]
    whole = Turn(block, slice(0, 4)).at(6)
    assert [rng.random() for rng in whole.spawn(4)] == [rng.random() for turn in turns for rng in turn.at(6).spawn(2)]
    seen = []
    for turn in turns:
        rng = turn.at(6)
        seen += [rng.random(), *(each.random() for n in (2, 3, 1, 2) for each in rng.spawn(n))]
    assert len(set(seen)) == len(seen)


def test_mixture_is_the_average_weighted_by_evidence(few):
    tasks = TaskData.from_lists(list(few[0].X[:10]), list(few[0].y[:10]))
    rng = np.random.default_rng(1)
    omegas = st.wishart(6, np.eye(3)).rvs(effort(200, 400), random_state=rng)
    posteriors = [conjugate.gaussian_posteriors(tasks.gram, omega) for omega in omegas]
    evidence = np.stack([posterior.log_evidence for posterior in posteriors])
    weight = np.exp(evidence - evidence.max(axis=0))
    means = np.stack([posterior.mean for posterior in posteriors])  # (S, d, m)
    expected = np.einsum("sm,sdm->dm", weight / weight.sum(axis=0), means)
    averaged = mixture(tasks, omegas, None, 5, 0).W
    # smoothing moves the largest weights a little; weights that ignore or invert the evidence move the mean ten times as far
    error = np.abs(averaged - expected).mean()
    assert error < 0.1 * np.abs(means.mean(axis=0) - expected).mean()


def test_mixture_weights_are_the_evidence(few):
    # log p(y | Omega) - log p(y | Omega') from dense multivariate t densities, averaged over the prior of snr
    tasks, _, _ = few
    gram, (first, second) = tasks.gram, (np.diag([4.0, 1.0, 0.1]), np.eye(3))
    grid = conjugate.gaussian_posteriors(gram).log_snr
    prior = st.norm.pdf(grid, np.log(conjugate.SNR_MEDIAN), conjugate.SNR_LOG_SD)

    def dense(omega):
        K = tasks.X[0] @ omega @ tasks.X[0].T
        C = np.eye(5) + np.exp(grid)[:, None, None] * 5 / np.trace(K) * K
        quadratic = np.einsum("i,gij,j->g", tasks.y[0], np.linalg.inv(C), tasks.y[0])
        return np.log(np.sum(prior * np.linalg.det(C) ** -0.5 * quadratic**-2.5))

    log_evidence = [conjugate.gaussian_posteriors(gram, omega).log_evidence[0] for omega in (first, second)]
    assert_allclose(log_evidence[0] - log_evidence[1], dense(first) - dense(second), rtol=1e-8)


@pytest.fixture(scope="module")
def six():
    return mp.datasets.synthetic_low_rank(num_tasks=6, num_features=3, rows=12).train


def test_no_draw_of_an_owner_is_given_twice(six):
    omegas = np.stack([np.eye(3), np.diag([1.0, 2.0, 4.0]), np.diag([4.0, 1.0, 1.0])])
    draws = methods.plug_in(six, omegas, np.ones(3), None, 500, 0).draws["W"]
    assert all(len(np.unique(draws[:, 0, i])) == 500 for i in range(6))


def test_joint_needs_the_model_it_samples(few):
    tasks, _, shared = few
    with pytest.raises(ValueError, match="method: 'joint' needs a posterior of structure 'full'"):
        task_posteriors(tasks, shared, method="joint", power=1.25)
    rng = np.random.default_rng(0)
    two = TaskData.from_lists(list(rng.standard_normal((2, 9, 3))), list(rng.standard_normal((2, 9))))
    release = mp.release(two, epsilon=1.0, delta=0.1, unsafe_seed=0)
    singular = dataclasses.replace(shared, release=release)
    with pytest.raises(ValueError, match=r"method: 'joint' needs .* at least as many tasks as features"):
        task_posteriors(two, singular, method="joint")


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_joint_sampling_meets_targets_of_any_size_near_one(few, likelihood):
    """By powers of two, so that every bit of a draw is the same; above 1e38 intervals were NaN, and of tiny ones wrong."""
    tasks, _, shared = few
    fits = []
    for unit in 2.0 ** np.array([0, 130, 400, -60, -160, -400]):
        one = TaskData.from_lists([tasks.X[2]], [tasks.y[2] * unit])
        own = task_posteriors(
            one, shared, method="joint", likelihood=likelihood, chains=2, draws=20, progress_bar=False
        )
        low, high = own.predict(one).interval()
        fits.append([each / unit for each in (own.W, draws_of(own), draws_of(own, "sigma"), high - low)])
    for other in fits[1:]:
        for mine, theirs in zip(fits[0], other, strict=True):
            assert_allclose(theirs, mine, rtol=1e-9)
    assert np.all(fits[0][-1] > 0)


@pytest.mark.parametrize("scale", [1e60, 1e-60])
def test_joint_sampling_meets_features_of_any_size_near_one(few, scale):
    tasks, _, shared = few
    one = TaskData.from_lists([tasks.X[2] * scale], [tasks.y[2]])
    with jax.enable_x64(False):  # as in Python, unless it is told otherwise
        exact = task_posteriors(one, shared, method="joint", chains=4, draws=500, progress_bar=False)
    mixed = task_posteriors(one, shared, method="mixture", power=1.0)
    for j in range(3):
        mine, yardstick = (own.to_arviz()["posterior"]["W"].values[..., j, 0] * scale for own in (mixed, exact))
        assert surprise(mine, yardstick) > RARE
