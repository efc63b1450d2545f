"""The closed form and the NumPyro model against dense Gaussians."""

import numpy as np
import pytest
import scipy.stats as st
from helpers.quickly import quickly
from helpers.tolerances import RARE, surprise
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

from mpmtl_prob import TaskData
from mpmtl_prob.models import task
from mpmtl_prob.single_task import conjugate


@pytest.fixture
def one_task():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((15, 3)) * [1.0, 0.2, 3.0]
    y = X @ [1.0, -4.0, 0.3] + 0.5 * rng.standard_normal(15)
    omega = np.cov(rng.standard_normal((3, 20)))
    return TaskData.from_lists([X], [y]), X, y, omega


def test_weights_are_the_likelihood_of_each_snr_times_its_prior(one_task):
    """Weights are the marginal likelihood of each signal-to-noise ratio times its prior."""
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)
    posterior = conjugate.gaussian_posteriors(tasks.gram, omega, scale)
    SX = X * scale[0]
    expected = []
    for log_snr in posterior.log_snr:
        K = SX @ omega @ SX.T
        ratio = np.exp(log_snr) * len(y) / np.trace(K)
        # sigma integrated under 1/sigma: the multivariate t with 0 degrees of freedom added
        C = np.eye(len(y)) + ratio * K
        log_marginal = -0.5 * np.linalg.slogdet(C)[1] - 0.5 * len(y) * np.log(y @ np.linalg.solve(C, y))
        expected.append(log_marginal + st.norm.logpdf(log_snr, np.log(conjugate.SNR_MEDIAN), conjugate.SNR_LOG_SD))
    expected = np.exp(np.array(expected) - np.max(expected))
    assert_allclose(posterior.weights[0], expected / expected.sum(), rtol=1e-8)


def test_mean_is_the_average_of_ridge_solutions(one_task):
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)
    posterior = conjugate.gaussian_posteriors(tasks.gram, omega, scale)
    prior = np.diag(scale[0]) @ omega @ np.diag(scale[0])
    ridges = [np.linalg.solve(X.T @ X + np.linalg.inv(r * prior), X.T @ y) for r in posterior.ratio[0]]
    assert_allclose(posterior.mean[:, 0], posterior.weights[0] @ np.array(ridges), rtol=1e-8)
    assert_allclose(posterior.mean, scale.T * posterior.scaled_mean)


def test_draws_have_the_law_that_dense_algebra_gives(one_task):
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)
    rng = np.random.default_rng(0)
    size = 20_000
    posterior = conjugate.gaussian_posteriors(tasks.gram, omega, scale)
    drawn = posterior.sample(rng, size)
    prior = np.diag(scale[0]) @ omega @ np.diag(scale[0])
    W, sigma = [], []
    for ratio, number in zip(posterior.ratio[0], rng.multinomial(size, posterior.weights[0]), strict=True):
        C = np.eye(len(y)) + ratio * X @ prior @ X.T  # y ~ N(0, sigma^2 C)
        variance = st.invgamma(len(y) / 2, scale=y @ np.linalg.solve(C, y) / 2).rvs(number, random_state=rng)
        gain = np.linalg.solve(C, ratio * X @ prior).T
        root = np.linalg.cholesky(ratio * prior - gain @ (ratio * X @ prior))
        sigma.append(np.sqrt(variance))
        W.append(gain @ y + np.sqrt(variance)[:, None] * (rng.standard_normal((number, 3)) @ root.T))
    W, sigma = np.concatenate(W), np.concatenate(sigma)
    for j in range(3):
        assert surprise(drawn["W"][:, j, 0], W[:, j]) > RARE
    assert surprise(drawn["sigma"][:, 0], sigma) > RARE
    # weights and sigma go together as they should
    away = lambda W, sigma: np.abs(W - posterior.mean[:, 0]) / sigma[:, None]
    for one, other in zip(away(drawn["W"][..., 0], drawn["sigma"][:, 0]).T, away(W, sigma).T, strict=True):
        assert surprise(one, other) > RARE
    # the same test sees a posterior that is a tenth of an sd off
    assert surprise(drawn["W"][:, 2, 0] + 0.1 * W[:, 2].std(), W[:, 2]) < RARE


def test_the_numpyro_model_has_the_density_of_the_definition(one_task):
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)[0]
    rng = np.random.default_rng(0)
    difference = []

    @quickly
    def density(site):
        log_joint, trace = log_density(task.gaussian, (X, y, omega, scale), {}, site)
        return log_joint, trace["w"]["value"], trace["sigma"]["value"]

    for _ in range(4):
        log_snr, log_sigma, v = rng.standard_normal(), rng.standard_normal(), rng.standard_normal(3)
        log_joint, w, sigma = map(np.asarray, density({"log_snr": log_snr, "log_sigma": log_sigma, "v": v}))
        assert_allclose(w, scale * v)
        assert_allclose(sigma, np.exp(log_sigma))  # and under 1 / sigma, log sigma is uniform
        c = np.exp(log_snr + 2 * log_sigma) * len(y) / np.trace((X * scale) @ omega @ (X * scale).T)
        expected = st.norm.logpdf(log_snr, np.log(conjugate.SNR_MEDIAN), conjugate.SNR_LOG_SD)
        expected += st.multivariate_normal(cov=c * omega).logpdf(v) + st.norm.logpdf(y, X @ w, sigma).sum()
        difference.append(log_joint - expected)
    assert_allclose(difference, 0, atol=1e-8)


def test_posterior_depends_on_the_shape_of_omega_alone(one_task):
    tasks, _, _, omega = one_task
    one, other = (conjugate.gaussian_posteriors(tasks.gram, c * omega) for c in (1.0, 1e6))
    assert_allclose(one.mean, other.mean, rtol=1e-8)


@pytest.mark.parametrize(("scaling", "power"), [("pareto", -0.25), ("unit_variance", -0.5), ("none", 0.0)])
def test_a_scale_is_a_power_of_the_mean_square(scaling, power):
    X = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    scale = conjugate.scales(TaskData.from_lists([X], [[0.0, 1.0]]).gram, scaling)
    assert_allclose(scale[0], [5.0**power, 2.0**power, 2.0**power])  # unseen features as the rarest one seen


def test_ridge_solves_the_normal_equations():
    """Ridge regression solves the normal equations, and interpolates without a penalty."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 6)), rng.standard_normal(4)
    gram = TaskData.from_lists([X], [y]).gram
    assert_allclose(conjugate.ridge(gram, 0.3)[:, 0], np.linalg.solve(X.T @ X + 0.3 * np.eye(6), X.T @ y), rtol=1e-9)
    assert_allclose(conjugate.ridge(gram, 0.0)[:, 0], np.linalg.pinv(X) @ y, rtol=1e-6)


@pytest.mark.parametrize("y", [[0.0, 0.0], [1.0, 1.0]])
def test_degenerate_tasks_give_finite_posteriors(y):
    tasks = TaskData.from_lists([np.zeros((2, 2)), np.eye(2)], [y, y])
    posteriors = conjugate.gaussian_posteriors(tasks.gram, scale=conjugate.scales(tasks.gram))
    assert np.isfinite(posteriors.sample(np.random.default_rng(0), 10)["W"]).all()
    assert_allclose(posteriors.mean[:, 0], 0, atol=1e-12)  # features of zeros say nothing
    assert_allclose(
        posteriors.mean[0, 1], posteriors.mean[1, 1]
    )  # the features stand in the same relation to the targets
    assert posteriors.mean[0, 1] == 0 if y[0] == 0 else 0 < posteriors.mean[0, 1] < 1
