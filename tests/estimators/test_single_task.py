"""Single-task estimators against scikit-learn, one task at a time."""

import numpy as np
import pytest
import sklearn.linear_model
from numpy.testing import assert_allclose

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import Lasso, Logistic, Ridge, RidgeLogistic
from mpmtl_prob.privacy.guarantee import NOTHING_SHARED
from mpmtl_prob.single_task import laplace


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 4)) * scale for n, scale in 4 * ((7, 1.0), (9, 3.0), (5, 0.3))]
    y = [np.where(x @ [1.0, -1.0, 0.5, 0.0] + rng.standard_normal(len(x)) > 0, 1.0, -1.0) for x in X]
    for labels in y:
        labels[:2] = 1.0, -1.0  # of both kinds in every task
    return TaskData.from_lists(X, y)


def each(tasks, fit):
    columns = [fit(X[real], y[real]).coef_.ravel() for X, y, real in zip(tasks.X, tasks.y, tasks.mask, strict=True)]
    return np.stack(columns, axis=1)


def test_ridge(binary):
    fit = sklearn.linear_model.Ridge(alpha=0.7, fit_intercept=False).fit
    assert_allclose(Ridge(0.7).fit(binary).W, each(binary, fit), atol=1e-10)


def test_lasso(binary):
    # scikit-learn divides the sum of squares by n
    fit = lambda X, y: sklearn.linear_model.Lasso(alpha=0.9 / len(X), fit_intercept=False, tol=1e-12).fit(X, y)
    fitted = Lasso(0.9, tolerance=1e-9).fit(binary)
    expected = each(binary, fit)
    assert_allclose(fitted.W, expected, atol=1e-6)
    assert ((fitted.W == 0) == (expected == 0)).all()
    assert (expected == 0).any()


def test_ridge_logistic(binary):
    fit = sklearn.linear_model.LogisticRegression(C=1 / 0.7, fit_intercept=False, tol=1e-10, max_iter=10_000).fit
    assert_allclose(RidgeLogistic(0.7, tolerance=1e-9).fit(binary).W, each(binary, fit), atol=1e-5)


def test_ridge_logistic_averages_its_penalty_over_the_evidence():
    """One feature agrees with a sum over a grid of weights and of prior variances of the log odds."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 1))
    y = np.where(rng.random(40) < 1 / (1 + np.exp(-1.5 * x[:, 0])), 1.0, -1.0)
    w, log_variance = np.linspace(-4, 8, 1501), laplace.SNR_LOG_SD * np.linspace(-4, 4, 161)
    prior = laplace.SNR_MEDIAN * np.exp(log_variance)[:, None] / np.mean(x**2)
    log_joint = (
        -0.5 * (log_variance / laplace.SNR_LOG_SD)[:, None] ** 2 - 0.5 * np.log(prior) - 0.5 * w**2 / prior
    ) - np.logaddexp(0, -y[:, None] * x * w).sum(axis=0)
    weight = np.exp(log_joint - log_joint.max())
    weights = RidgeLogistic().fit(TaskData.from_lists([x], [y])).W
    assert_allclose(weights, (weight * w).sum() / weight.sum(), rtol=0.03)


def test_sparse_logistic(binary):
    fit = sklearn.linear_model.LogisticRegression(
        C=1 / 0.8, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit
    assert_allclose(Lasso(0.8, Logistic(), tolerance=1e-9).fit(binary).W, each(binary, fit), atol=1e-4)


def test_nothing_is_shared(binary):
    for estimator in (Ridge(), Lasso(1.0), RidgeLogistic(1.0), RidgeLogistic()):
        assert estimator.fit(binary).guarantee == NOTHING_SHARED
    with pytest.raises(ValueError, match="penalty: expected a positive number, got 0"):
        RidgeLogistic(0.0).fit(binary)
    with pytest.raises(ValueError, match="penalty: expected one of 'evidence', got 'best'"):
        RidgeLogistic("best").fit(binary)
