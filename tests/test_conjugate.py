"""The closed form against a dense Gaussian marginal, quadrature, and NUTS on the NumPyro model."""

import numpy as np
import pytest
import scipy.stats as st
from chance import RARE, surprise
from numpy.testing import assert_allclose

from mpmtl_prob import TaskData
from mpmtl_prob.inference.sampling.nuts import run_nuts
from mpmtl_prob.models import task
from mpmtl_prob.taskwise import conjugate


@pytest.fixture
def one_task():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((15, 3)) * [1.0, 0.2, 3.0]
    y = X @ [1.0, -4.0, 0.3] + 0.5 * rng.standard_normal(15)
    omega = np.cov(rng.standard_normal((3, 20)))
    return TaskData.from_lists([X], [y]), X, y, omega


def test_weights_are_the_marginal_likelihood_of_each_snr_times_its_prior(one_task):
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)
    found = conjugate.gaussian_posteriors(tasks.gram, omega, scale)
    SX = X * scale[0]
    expected = []
    for log_snr in found.log_snr:
        K = SX @ omega @ SX.T
        ratio = np.exp(log_snr) * len(y) / np.trace(K)
        # sigma integrated under 1/sigma: the multivariate t with 0 degrees of freedom added
        C = np.eye(len(y)) + ratio * K
        log_marginal = -0.5 * np.linalg.slogdet(C)[1] - 0.5 * len(y) * np.log(y @ np.linalg.solve(C, y))
        expected.append(log_marginal + st.norm.logpdf(log_snr, np.log(conjugate.SNR_MEDIAN), conjugate.SNR_LOG_SD))
    expected = np.exp(np.array(expected) - np.max(expected))
    assert_allclose(found.weights[0], expected / expected.sum(), rtol=1e-8)


def test_mean_is_the_average_of_ridge_solutions(one_task):
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)
    found = conjugate.gaussian_posteriors(tasks.gram, omega, scale)
    prior = np.diag(scale[0]) @ omega @ np.diag(scale[0])
    ridges = [np.linalg.solve(X.T @ X + np.linalg.inv(r * prior), X.T @ y) for r in found.ratio[0]]
    assert_allclose(found.mean[:, 0], found.weights[0] @ np.array(ridges), rtol=1e-8)
    assert_allclose(found.mean, scale.T * found.scaled_mean)


def test_closed_form_and_nuts_agree_in_distribution(one_task):
    tasks, X, y, omega = one_task
    scale = conjugate.scales(tasks.gram)
    exact = conjugate.gaussian_posteriors(tasks.gram, omega, scale).sample(np.random.default_rng(0), 20_000)
    start = {"log_snr": 2.0, "log_sigma": 0.0, "v": np.zeros(3)}
    drawn, statistics = run_nuts(
        task.gaussian, X, y, omega, scale[0], start=start, chains=2, warmup=300, draws=2000, seed=0, progress_bar=False
    )
    assert statistics["diverging"].mean() < 0.01
    for name, one, other in [
        *((f"w_{j}", exact["W"][:, j, 0], drawn["w"][..., j]) for j in range(3)),
        ("sigma", exact["sigma"][:, 0], drawn["sigma"]),
    ]:
        assert surprise(one, other) > RARE, name
    # the same test sees a posterior that is a quarter of an sd off
    shifted = drawn["w"][..., 2] + 0.25 * drawn["w"][..., 2].std()
    assert surprise(exact["W"][:, 2, 0], shifted) < RARE


def test_posterior_depends_on_the_shape_of_omega_alone(one_task):
    tasks, _, _, omega = one_task
    one, other = (conjugate.gaussian_posteriors(tasks.gram, c * omega) for c in (1.0, 1e6))
    assert_allclose(one.mean, other.mean, rtol=1e-8)


@pytest.mark.parametrize(("scaling", "power"), [("pareto", -0.25), ("unit", -0.5), ("none", 0.0)])
def test_a_scale_is_a_power_of_the_mean_square(scaling, power):
    X = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    scale = conjugate.scales(TaskData.from_lists([X], [[0.0, 1.0]]).gram, scaling)
    assert_allclose(scale[0], [5.0**power, 2.0**power, 2.0**power])  # unseen features as the rarest one seen


def test_ridge_solves_the_normal_equations_and_interpolates_without_penalty():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 6)), rng.standard_normal(4)
    gram = TaskData.from_lists([X], [y]).gram
    assert_allclose(conjugate.ridge(gram, 0.3)[:, 0], np.linalg.solve(X.T @ X + 0.3 * np.eye(6), X.T @ y), rtol=1e-9)
    assert_allclose(conjugate.ridge(gram, 0.0)[:, 0], np.linalg.pinv(X) @ y, rtol=1e-6)


@pytest.mark.parametrize("y", [[0.0, 0.0], [1.0, 1.0]])
def test_degenerate_tasks_give_finite_posteriors(y):
    tasks = TaskData.from_lists([np.zeros((2, 2)), np.eye(2)], [y, y])
    found = conjugate.gaussian_posteriors(tasks.gram, scale=conjugate.scales(tasks.gram))
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.sample(np.random.default_rng(0), 10)["W"]).all()
