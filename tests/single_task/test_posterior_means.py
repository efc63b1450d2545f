"""Posterior means task by task and in the span of the rows, against the whole and the full space."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpmtl_prob import TaskData, release
from mpmtl_prob.estimators import Ridge
from mpmtl_prob.single_task import conjugate
from mpmtl_prob.single_task.posterior_means import posterior_means


def make(rows, d, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, d)) * np.geomspace(0.1, 3, d) for n in rows]
    return TaskData.from_lists(X, [x @ rng.standard_normal(d) + rng.standard_normal(len(x)) for x in X])


@pytest.mark.parametrize("scaling", ["pareto", "unit_variance", "none"])
@pytest.mark.parametrize(("rows", "d"), [((9, 12, 7, 8, 11), 6), ((4, 2, 5, 1, 3), 8), ((1, 1, 1), 2)])
def test_means_are_those_of_the_posterior_in_the_full_space(rows, d, scaling):
    tasks = make(rows, d)
    whole = conjugate.gaussian_posteriors(tasks.gram, scale=conjugate.scales(tasks.gram, scaling))
    means = posterior_means(tasks, scaling=scaling)
    assert_allclose(means.scaled, whole.scaled_mean, rtol=1e-10, atol=1e-12)
    assert_allclose(means.W, whole.mean, rtol=1e-10, atol=1e-12)


def test_rows_that_repeat_or_vanish_span_less_than_they_number():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(7)
    tasks = TaskData.from_lists([np.stack([x, 2 * x, 0 * x]), np.zeros((3, 7))], [[1.0, 2.2, 0.3], [0.1, 0.2, 0.3]])
    whole = conjugate.gaussian_posteriors(tasks.gram, scale=conjugate.scales(tasks.gram))
    assert_allclose(posterior_means(tasks).scaled, whole.scaled_mean, atol=1e-10)
    assert not posterior_means(tasks).W[:, 1].any()


def test_a_task_s_mean_does_not_depend_on_the_others():
    tasks = make((3, 4, 2, 5), 6)
    alone = TaskData.from_lists([tasks.X[2, :2]], [tasks.y[2, :2]])
    assert_allclose(posterior_means(tasks).W[:, 2], posterior_means(alone).W[:, 0], rtol=1e-10)


def test_ridge_and_releases_never_form_all_gram_matrices():
    tasks = make((3,) * 20, 6)
    Ridge().fit(tasks)
    release(tasks, 1.0)
    assert "gram" not in tasks.__dict__
