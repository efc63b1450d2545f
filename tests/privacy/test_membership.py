"""Membership inference by an attacker who knows a task's message and not the others'."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.effort import effort
from helpers.oracles import wishart
from scipy import integrate
from scipy.special import expit

from mpmtl_prob.inference import membership, shared_covariance
from mpmtl_prob.inference.public.membership import log_densities
from mpmtl_prob.privacy import Gaussian, Wishart
from mpmtl_prob.releases import release


def test_the_factor_is_a_density_on_the_circle():
    A = np.array([[2.0, 0.7], [0.7, 0.5]])
    factor = lambda angle: np.exp(log_densities(A[None], np.array([[np.cos(angle)], [np.sin(angle)]]))[0][0])
    assert integrate.quad(factor, 0, 2 * np.pi)[0] / (2 * np.pi) == pytest.approx(1, rel=1e-8)


def test_the_factor_compares_directions_with_and_without_a_task():
    """The factor is the ratio of the densities of directions with the task and without it."""
    # m = 4 normal vectors given their second moment: whitened, any of them is a column of a Haar-distributed frame
    rng, m = np.random.default_rng(0), 4
    A = np.diag([9.0, 1.0])
    frames = np.linalg.qr(rng.standard_normal((200_000, m, 2)))[0][:, 0]  # (n, 2): the first task, whitened
    W = frames * np.sqrt([9.0, 1.0])
    angle = np.abs(np.arctan2(W[:, 1], W[:, 0]) % np.pi)
    edges = np.linspace(0, np.pi, 9)
    counts = np.histogram(angle, edges)[0]
    grid = np.linspace(0, np.pi, 80 * 8 + 1)
    middle = (grid[1:] + grid[:-1]) / 2
    density = np.exp(log_densities(A[None], np.array([np.cos(middle), np.sin(middle)]))[0])
    expected = len(W) * density.reshape(8, -1).mean(axis=1) / 8
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected) + 1e-3 * expected)


D, TASKS, KAPPA = 2, 3, 4.0  # few of everything, so that a single task matters
LAWS = {"wishart": Wishart(D, 4.0, 0.15), "gaussian": Gaussian(D, 0.3)}


def covariances(rng, n, df):
    """Omega ~ InverseWishart(df, I), (n, D, D)."""
    return np.linalg.inv(wishart(rng, n, D, df, 1.0))


def played(law, cases, draws, seed):
    """Log Bayes factors of a task that is in each release and of one of the same population that is not, (2, cases).

    The posterior of (A, Omega) given Sigma is that of draws from the prior, weighted by the density of the noise.
    """
    rng = np.random.default_rng(seed)
    omega = covariances(rng, cases + draws, KAPPA)
    W = np.linalg.cholesky(omega) @ rng.standard_normal((cases + draws, D, TASKS + 1))
    A = W[..., :TASKS] @ np.swapaxes(W[..., :TASKS], 1, 2)
    sigma = law.sample(rng, A[:cases])
    odds = np.empty((2, cases))
    for i in range(cases):
        log_weight = np.asarray(law.log_prob(sigma[i], A[cases:]))
        weight = np.exp(log_weight - log_weight.max())
        chosen = cases + rng.choice(draws, 600, p=weight / weight.sum())
        U = W[i][:, [0, TASKS]]
        odds[:, i] = log_densities(A[chosen], U)[0] - log_densities(omega[chosen], U)[0]
    return odds


@pytest.mark.parametrize(
    "law",
    [LAWS["wishart"], pytest.param(LAWS["gaussian"], marks=pytest.mark.evidence)],
    ids=["wishart", "gaussian"],
)
def test_membership_probabilities_are_as_often_right_as_they_say(law):
    """Among tasks that are given a probability, as many as it says are in the release."""
    n = effort(750, 1500)
    said = expit(played(law, n, effort(4000, 5000), 1))
    there = np.repeat([True, False], n)
    for part in np.array_split(np.argsort(said.ravel()), 5):
        assert abs(there[part].mean() - said.ravel()[part].mean()) < 6 * 0.5 / np.sqrt(len(part)) + 0.01
    # E[1 - probability | in] = E[probability | out] at even odds
    gap = (1 - said[0]) - said[1]
    assert abs(gap.mean()) < 6 * gap.std() / np.sqrt(n)
    assert said[0].mean() - said[1].mean() > 6 * np.std(said[0] - said[1]) / np.sqrt(n)  # and it does say something


@pytest.fixture(scope="module")
def shared():
    W = np.random.default_rng(2).standard_normal((3, 30)) * [[3], [1], [0.3]]
    return shared_covariance(release(W, 5.0, 1e-2), chains=2, warmup=200, draws=150, progress_bar=False)


def test_a_release_of_many_tasks_says_little_of_any(shared):
    probabilities = membership(shared, np.eye(3))
    assert probabilities.probability.shape == (3,)
    assert np.all(probabilities.ess > 1)
    posterior = shared.to_arviz()["posterior"]
    inside, outside = (log_densities(posterior[name].values.reshape(-1, 3, 3), np.eye(3)) for name in ("A", "Omega"))
    assert np.allclose(probabilities.log_factor, inside[0] - outside[0])
    assert np.allclose(probabilities.ess, np.minimum(inside[1], outside[1]))
    # that a direction is common is no sign that this very task was in it
    assert np.all(np.abs(probabilities.probability - 0.5) < 0.2)
    assert np.allclose(membership(shared, 7 * np.eye(3)).log_factor, probabilities.log_factor)
    assert np.all(membership(shared, np.eye(3), prior=0.1).probability < probabilities.probability)


def test_bad_arguments_are_named(shared):
    with pytest.raises(ValueError, match=r"messages: expected 3 rows, one per feature, got shape \(2, 2\)"):
        membership(shared, np.eye(2))
    with pytest.raises(ValueError, match="prior: expected a number in"):
        membership(shared, np.eye(3), prior=0.0)
    for bad in (np.zeros((3, 1)), np.full((3, 1), np.nan)):
        with pytest.raises(ValueError, match="messages: expected finite numbers, not all zero"):
            membership(shared, bad)
    few = release(np.random.default_rng(0).standard_normal((3, 2)), 1.0, 0.1, mechanism=Wishart(3, 9.0, 1.0))
    with pytest.raises(ValueError, match="shared: expected a release of at least 3 tasks"):
        membership(replace(shared, release=few), np.eye(3))
