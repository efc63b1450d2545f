"""What an attacker learns who knows a task's message and not the others'."""

import numpy as np
import pytest
from scipy import integrate

from mpmtl_prob.inference import membership, shared_covariance
from mpmtl_prob.inference.public.odds import log_factors
from mpmtl_prob.privacy import Wishart
from mpmtl_prob.releases import release


def test_the_factor_is_a_density_on_the_circle():
    A = np.array([[2.0, 0.7], [0.7, 0.5]])
    factor = lambda angle: np.exp(log_factors(A[None], np.array([[np.cos(angle)], [np.sin(angle)]]))[0][0])
    assert integrate.quad(factor, 0, 2 * np.pi)[0] / (2 * np.pi) == pytest.approx(1, rel=1e-8)


def test_the_factor_is_the_ratio_of_directions_with_and_without_the_task():
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
    density = np.exp(log_factors(A[None], np.array([np.cos(middle), np.sin(middle)]))[0])
    expected = len(W) * density.reshape(8, -1).mean(axis=1) / 8
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected) + 1e-3 * expected)


def test_probabilities_are_calibrated_where_the_prior_is():
    # Omega from a law that favours no direction, A known
    rng, n, m, d = np.random.default_rng(1), 4000, 6, 3
    log_factor = np.empty((2, n))
    for i in range(n):
        root = rng.standard_normal((d, d + 2))
        W = root @ rng.standard_normal((d + 2, m + 1))
        A = W[:, :m] @ W[:, :m].T
        log_factor[:, i] = log_factors(A[None], W[:, [0, m]])[0] if i % 2 else log_factors(A[None], W[:, [1, m]])[0]
        # the alternative's vector is drawn from the prior, not from this Omega
        fresh = rng.standard_normal((d, 1))
        log_factor[1, i] = log_factors(A[None], fresh)[0][0]
    probability = 1 / (1 + np.exp(-log_factor))
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.0)):
        inside = (probability >= low) & (probability < high)
        share = inside[0].sum() / inside.sum()
        assert inside.sum() > 100
        assert abs(share - probability[inside].mean()) < 6 * 0.5 / np.sqrt(inside.sum())


@pytest.fixture(scope="module")
def shared():
    W = np.random.default_rng(2).standard_normal((3, 30)) * [[3], [1], [0.3]]
    return shared_covariance(release(W, 5.0, 1e-2), chains=2, warmup=150, draws=150, progress_bar=False)


def test_a_release_speaks_for_directions_that_its_tasks_have(shared):
    found = membership(shared, np.eye(3))
    assert found.probability.shape == (3,)
    assert found.probability[0] > 0.5 > found.probability[2]
    assert np.all(found.ess > 1)
    assert np.allclose(membership(shared, 7 * np.eye(3)).log_factor, found.log_factor)
    assert np.all(membership(shared, np.eye(3), prior=0.1).probability < found.probability)


def test_bad_arguments_are_named(shared):
    with pytest.raises(ValueError, match=r"messages: expected 3 rows, one per feature, got shape \(2, 2\)"):
        membership(shared, np.eye(2))
    with pytest.raises(ValueError, match="prior: expected a number in"):
        membership(shared, np.eye(3), prior=0.0)
    few = release(np.random.default_rng(0).standard_normal((3, 2)), 1.0, 0.1, mechanism=Wishart(3, 9.0, 1.0))
    with pytest.raises(ValueError, match="shared: expected a release of at least 3 tasks"):
        membership(shared_covariance(few, chains=2, warmup=50, draws=50, progress_bar=False), np.eye(3))
