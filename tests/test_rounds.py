"""Several rounds of one release: the budget, the messages, the posterior."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import posterior_draws, shared_covariance, task_posteriors
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.models.second_moment import LOG_PHI_SD, observe
from mpmtl_prob.privacy import Gaussian, Ledger, Wishart, delta
from mpmtl_prob.releases.release import default_delta
from mpmtl_prob.taskwise import conjugate

D, M, PHI = 2, 9, 0.8
LAWS = {"wishart": Wishart(D, 11.0, 0.5), "gaussian": Gaussian(D, 1.5)}


def tasks_of(m=40, d=3, n=8, seed=0):
    rng = np.random.default_rng(seed)
    W = np.array([3.0, 1.0, 0.2])[:d, None] * rng.standard_normal((d, m))
    X = rng.standard_normal((m, n, d))
    return TaskData.from_lists(list(X), list(np.einsum("tnj,jt->tn", X, W) + rng.standard_normal((m, n))))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_density_of_several_rounds_is_the_joint_one_times_the_jacobian(law):
    rng = np.random.default_rng(0)
    sigmas = [st.wishart(M, np.eye(D)).rvs(random_state=rng) + law.mean for _ in range(2)]
    parts = [observe(sigma, law, M, phi=PHI) for sigma in sigmas]
    observed = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
    observed = observed._replace(num_tasks=float(M), log_phi_mean=np.log(PHI))
    lower = np.tril_indices(D)

    def sites(flat):
        rest = {"log_diagonal": flat[2:6].reshape(2, D), "off_diagonal": flat[6:].reshape(2, 1)}
        return {"z": flat[0], "z_kappa": flat[1], **rest}

    @jax.jit
    @partial(jax.jacfwd, has_aux=True)
    def evaluate(flat):
        """The Jacobian of what the joint density is over; density, A and log phi."""
        value, trace = log_density(model.full, (observed,), {}, sites(flat))
        A, log_phi = trace["A"]["value"], trace["log_phi"]["value"]
        return jnp.concatenate([log_phi[None], flat[1:2], A[:, *lower].ravel()]), (value, A, log_phi)

    difference = []
    for _ in range(5):
        flat = 0.7 * rng.standard_normal(8)
        jacobian, (value, A, log_phi) = jax.tree.map(np.asarray, evaluate(flat))
        # Omega integrated out, by Bayes' rule at any Omega
        kappa, omega = D + 1 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * float(flat[1])), np.eye(D)
        Phi = kappa * np.exp(log_phi) * np.eye(D)
        joint = st.invwishart(kappa, Phi).logpdf(omega)
        joint -= st.invwishart(kappa + 2 * M, Phi + A.sum(axis=0)).logpdf(omega)
        joint += st.norm.logpdf(log_phi, np.log(PHI), LOG_PHI_SD) + st.norm.logpdf(flat[1])
        for each, sigma in zip(A, sigmas, strict=True):
            joint += st.wishart(M, omega).logpdf(each) + law.log_prob(sigma, each)
        difference.append(float(value) - joint - np.linalg.slogdet(jacobian)[1])
    assert_allclose(difference, difference[0], atol=1e-8)


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
    assert delta(2.0, release.mechanisms, "zero_out") <= default_delta(40)
    assert len(ledger.charges()) == 1
    assert len(ledger.charges()[0].mechanisms) == 3
    one = mp.release(tasks_of(), 2.0, adjacency="zero_out", unsafe_seed=0).mechanisms[0]
    assert release.mechanisms[0].fluctuation > one.fluctuation


def test_later_messages_are_bounded_like_the_first():
    release = mp.release(
        tasks_of(), 5.0, rounds=2, respond=lambda _: 1e6 * np.ones((3, 40)), unsafe_seed=0, adjacency="zero_out"
    )
    law = release.mechanisms[1]
    noise = np.linalg.eigvalsh(release.sigma[1])[-1] - 40  # 40 directions, all the same
    assert abs(noise - law.df * law.scale) < 5 * law.fluctuation


def test_bad_answers_are_refused_in_words():
    with pytest.raises(ValueError, match=r"respond: expected messages of shape \(3, 40\), got \(3, 4\)"):
        mp.release(tasks_of(), 1.0, rounds=2, respond=lambda _: np.ones((3, 4)), unsafe_seed=0)
    with pytest.raises(ValueError, match="respond: expected a function"):
        mp.release(np.ones((3, 40)), 1.0, rounds=2)
    with pytest.raises(ValueError, match="rounds: expected one of 'auto', got 'many'"):
        mp.release(tasks_of(), 1.0, rounds="many")


def test_auto_takes_more_rounds_where_noise_is_small():
    rounds = [
        mp.release(
            tasks_of(), eps, rounds="auto", respond=lambda _: np.ones((3, 40)), unsafe_seed=0, adjacency="zero_out"
        ).rounds
        for eps in (1.0, 2.0, 30.0)
    ]
    assert rounds[0] == 1
    assert 1 <= rounds[1] <= rounds[2] == 3
    assert mp.release(np.ones((3, 40)), 30.0, rounds="auto", unsafe_seed=0).rounds == 1


def test_draws_answer_a_release_and_depend_on_no_other_tasks_rows():
    tasks = tasks_of()
    release = mp.release(tasks, 10.0, adjacency="zero_out", unsafe_seed=1)
    message = posterior_draws(tasks)(release)
    assert message.shape == (3, 40)
    other = tasks_of(seed=5)
    X, y = other.X.copy(), other.y.copy()
    X[7], y[7] = tasks.X[7], tasks.y[7]
    mixed = TaskData.from_lists(list(X), list(y))
    assert_allclose(posterior_draws(mixed)(release)[:, 7], message[:, 7])


def test_a_release_of_several_rounds_has_a_posterior():
    tasks = tasks_of()
    release = mp.release(tasks, 20.0, adjacency="zero_out", rounds=2, respond=posterior_draws(tasks), unsafe_seed=0)
    shared = shared_covariance(release, chains=2, warmup=200, draws=100, progress_bar=False)
    A = shared.to_arviz()["posterior/A"]
    assert A.dims == ("chain", "draw", "round", "feature", "feature_other")
    assert (np.linalg.eigvalsh(release.sigma - A.values) > 0).all()
    own = task_posteriors(tasks, shared, sharpness=1.1, draws=20)
    scale = conjugate.scales(tasks.gram)
    assert_allclose(own.W, conjugate.gaussian_posteriors(tasks.gram, shared.shape(1.1), scale).mean)


def test_an_answer_that_is_not_finite_is_silent_as_its_round_is_paid_for():
    W = np.random.default_rng(0).standard_normal((3, 8))
    answer = W.copy()
    answer[1, 2] = np.nan
    book = Ledger(epsilon=5.0, delta=1e-2)
    published = mp.release(W, 4.0, 1e-2, rounds=2, respond=lambda _: answer, ledger=book)
    assert published.rounds == 2
    assert len(book.charges()) == 1
