"""Several rounds of one release: the budget, the messages, the posterior."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import posterior_draws, shared_covariance
from mpmtl_prob.privacy import Gaussian, Ledger, Wishart, compute_delta
from mpmtl_prob.releases.spec import default_delta


def tasks_of(m=40, d=3, n=8, seed=0):
    rng = np.random.default_rng(seed)
    W = np.array([3.0, 1.0, 0.2])[:d, None] * rng.standard_normal((d, m))
    X = rng.standard_normal((m, n, d))
    return TaskData.from_lists(list(X), list(np.einsum("tnj,jt->tn", X, W) + rng.standard_normal((m, n))))


@pytest.fixture(autouse=True)
def _short_answers(monkeypatch):
    """By a program that there is."""
    monkeypatch.setattr("mpmtl_prob.inference.owner.answers.shared_covariance", partial(shared_covariance, warmup=200))


def test_rounds_share_one_budget_and_are_paid_for_at_once():
    seen = []

    def respond(so_far):
        seen.append(so_far)
        return np.random.default_rng(so_far.rounds).standard_normal((3, 40))

    ledger = Ledger(epsilon=2.0, delta=default_delta(40), adjacency="zero_out")
    release = mp.release(tasks_of(), 2.0, adjacency="zero_out", rounds=3, respond=respond, ledger=ledger)
    assert release.rounds == 3
    assert [each.rounds for each in seen] == [1, 2]
    assert_allclose(seen[1].sigma, release.sigma[:2])
    assert compute_delta(2.0, release.mechanisms, "zero_out") <= default_delta(40)
    assert len(ledger.charges()) == 1
    assert len(ledger.charges()[0].mechanisms) == 3
    one = mp.release(tasks_of(), 2.0, adjacency="zero_out", unsafe_seed=0).mechanisms[0]
    assert release.mechanisms[0].operator_norm > one.operator_norm


def test_later_messages_are_bounded_like_the_first():
    release = mp.release(
        tasks_of(), 5.0, rounds=2, respond=lambda _: 1e6 * np.ones((3, 40)), unsafe_seed=0, adjacency="zero_out"
    )
    law = release.mechanisms[1]
    noise = np.linalg.eigvalsh(release.sigma[1])[-1] - 40  # 40 directions, all the same
    assert abs(noise - law.df * law.scale) < 5 * law.operator_norm


def test_bad_answers_are_refused_in_words():
    with pytest.raises(ValueError, match=r"respond: expected messages of shape \(3, 40\), got \(3, 4\)"):
        mp.release(tasks_of(), 1.0, rounds=2, respond=lambda _: np.ones((3, 4)), unsafe_seed=0)
    with pytest.raises(ValueError, match="respond: expected a function"):
        mp.release(np.ones((3, 40)), 1.0, rounds=2)
    with pytest.raises(ValueError, match="rounds: expected one of 'auto', got 'many'"):
        mp.release(tasks_of(), 1.0, rounds="many")


def test_auto_takes_two_rounds_of_little_noise_and_many_tasks():
    """Automatic rounds take a second one where noise is small and tasks are many."""

    def rounds(eps, m):
        answer = lambda _: np.ones((3, m))
        return mp.release(tasks_of(m), eps, rounds="auto", respond=answer, unsafe_seed=0, adjacency="zero_out").rounds

    assert [rounds(eps, 120) for eps in (0.01, 1.0, 30.0)] == [1, 2, 2]
    assert rounds(30.0, 40) == 1
    assert mp.release(np.ones((3, 120)), 30.0, rounds="auto", unsafe_seed=0).rounds == 1  # nobody answers
    wide = np.random.default_rng(0).standard_normal((30, 120))
    assert mp.release(wide, 1.0, rounds="auto", respond=lambda _: wide, unsafe_seed=0).rounds == 1  # noise is large


def test_draws_depend_on_the_release_and_on_no_other_rows():
    """A task's draws answer a release and depend on no rows of other tasks."""
    tasks = tasks_of()
    release = mp.release(tasks, 10.0, adjacency="zero_out", unsafe_seed=1)
    message = posterior_draws(tasks)(release)
    assert message.shape == (3, 40)
    other = tasks_of(seed=5)
    X, y = other.X.copy(), other.y.copy()
    X[7], y[7] = tasks.X[7], tasks.y[7]
    mixed = TaskData.from_lists(list(X), list(y))
    assert_allclose(posterior_draws(mixed)(release)[:, 7], message[:, 7])


def test_the_last_round_alone_is_read():
    """The last round alone is read: earlier ones are in its messages, whatever noise they had."""
    tasks = tasks_of()
    release = mp.release(tasks, 20.0, adjacency="zero_out", rounds=2, respond=posterior_draws(tasks), unsafe_seed=0)
    last = replace(release, sigma=release.sigma[1:], mechanisms=release.mechanisms[1:])
    sigma = np.stack([50 * np.eye(3), release.sigma[1]])
    others = [
        replace(release, sigma=sigma, mechanisms=(first, release.mechanisms[1]), lattice=None)
        for first in (Wishart(3, 9.0, 40.0), Gaussian(3, 2.0))
    ]
    draws = [
        shared_covariance(each, chains=2, warmup=200, draws=20, progress_bar=False).to_arviz()["posterior"].to_dataset()
        for each in (release, last, *others)
    ]
    assert all(draws[0].equals(each) for each in draws[1:])
    assert draws[0]["A"].dims == ("chain", "draw", "feature", "feature_other")


@pytest.mark.evidence
def test_a_second_round_errs_less_with_few_rows_and_many_tasks():
    """A second round of the same budget errs less where rows are few and tasks many."""

    def error(rounds, seed):
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 150))
        X = rng.standard_normal((150, 10, 20))
        y = np.einsum("tnj,jt->tn", X, W) + rng.standard_normal((150, 10))
        train = TaskData.from_lists(list(X), list(y))
        fit = mp.NoiseAware(10.0, rounds=rounds, chains=2, unsafe_seed=seed, progress_bar=False).fit(train)
        return np.mean((fit.W - W) ** 2)

    assert sum(error("auto", seed) for seed in range(3)) < 0.9 * sum(error(1, seed) for seed in range(3))


def test_an_answer_that_is_not_finite_becomes_silent():
    """An answer that is not finite is replaced by a silent message, as its round is paid for."""
    W = np.random.default_rng(0).standard_normal((3, 8))
    answer = W.copy()
    answer[1, 2] = np.nan
    book = Ledger(epsilon=5.0, delta=1e-2)
    published = mp.release(W, 4.0, 1e-2, rounds=2, respond=lambda _: answer, ledger=book)
    assert published.rounds == 2
    assert len(book.charges()) == 1
