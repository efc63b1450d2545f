"""Messages of effects, of one task: each coefficient is shrunk by itself."""

import itertools

import numpy as np
import pytest

from mpmtl_prob.single_task import shrunk
from mpmtl_prob.single_task.shrunk import read_together, shrunk_estimate

V, RESIDUAL = 0.2, 0.7


@pytest.fixture(autouse=True)
def known_residual_variance(monkeypatch):
    monkeypatch.setattr(shrunk, "RESIDUALS", np.array([RESIDUAL]))
    monkeypatch.setattr(shrunk, "LOG_PRIOR", np.zeros(1))


def correlated(rng, n, d=4, correlation=0.7):
    """Rows whose columns all go together."""
    return np.sqrt(1 - correlation) * rng.standard_normal((n, d)) + np.sqrt(correlation) * rng.standard_normal((n, 1))


@pytest.fixture
def each_alone(monkeypatch):
    """Nothing is undone for columns that go together."""
    monkeypatch.setattr(shrunk, "read_together", lambda X, ridge: 1.0)


def test_where_no_prior_is_weaker_it_is_the_posterior_mean(each_alone):
    X = correlated(np.random.default_rng(0), 6)
    y = np.arange(6.0) / 3
    S = np.linalg.solve(X.T @ X + RESIDUAL / V * np.eye(4), X.T @ X)
    own = shrunk_estimate(X, y, V, 1.0)
    assert np.allclose(own.estimate, np.linalg.solve(X.T @ X + RESIDUAL / V * np.eye(4), X.T @ y))
    assert np.allclose(own.determined, np.diag(S))


@pytest.mark.parametrize("n", [3, 12])  # fewer rows than columns, and more
def test_its_mean_and_variance_are_those_that_readers_rely_on(n, each_alone):
    """E[eta | beta_j] = p_j beta_j and Var = v p_j (1 - p_j), where other coefficients are as their prior says."""
    rng = np.random.default_rng(n)
    X, number = correlated(rng, n), 20_000
    beta = np.sqrt(V) * rng.standard_normal((number, 4))
    beta[:, 0] = 0.6
    y = beta @ X.T + np.sqrt(RESIDUAL) * rng.standard_normal((number, n))
    p = shrunk_estimate(X, y[0], V, 8.0).determined[0]
    eta = np.array([shrunk_estimate(X, each, V, 8.0).estimate[0] for each in y[:4000]])
    assert 0.05 < p < 0.95
    assert abs(eta.mean() - 0.6 * p) < 4 * eta.std() / np.sqrt(len(eta))
    assert np.isclose(eta.var(), V * p * (1 - p), rtol=4 * np.sqrt(2 / len(eta)))


def test_correlated_columns_are_not_read_as_each_other(each_alone):
    """Other coefficients add far less to the average over tasks than they do under the declared prior alone."""
    rng = np.random.default_rng(0)
    mu, wrong = np.array([1.0, 0.0, 0.0, 0.0]), {}
    tasks = [correlated(rng, 8) for _ in range(400)]
    targets = [X @ mu + np.sqrt(RESIDUAL) * rng.standard_normal(8) for X in tasks]
    for weak in (1.0, 8.0):
        own = [shrunk_estimate(X, y, V, weak) for X, y in zip(tasks, targets, strict=True)]
        estimate, determined = (np.mean([each[k] for each in own], axis=0) for k in (0, 1))
        wrong[weak] = np.abs(estimate / determined - mu).max()
    assert wrong[8.0] < 0.4 * wrong[1.0]


@pytest.mark.parametrize(("n", "correlation"), [(6, 0.7), (12, 0.7), (6, 0.0)])
def test_predictions_are_as_long_as_the_truth_on_average(n, correlation):
    """mu'C E[eta] = mu'C (p o mu) over tasks, and over average effects of any direction.

    The bounds are four standard errors, over tasks.
    """
    rng, number = np.random.default_rng(n), 1500
    C = (1 - correlation) * np.eye(4) + correlation
    read, truth = np.zeros(number), np.zeros(number)
    for task in range(number):
        X, mu = correlated(rng, n, correlation=correlation), rng.standard_normal(4)
        own = shrunk_estimate(X, X @ mu + np.sqrt(RESIDUAL) * rng.standard_normal(n), V, 4.0)
        read[task], truth[task] = mu @ C @ own.estimate, mu @ C @ (own.determined * mu)
    off = read - truth
    assert abs(off.mean()) < 4 * off.std() / np.sqrt(number) + 0.02 * truth.mean()


def test_columns_read_alone_predict_too_long_vectors(each_alone):
    """Without the reading of columns together, predictions from correlated columns are too long."""
    with pytest.raises(AssertionError):
        test_predictions_are_as_long_as_the_truth_on_average(6, 0.7)


@pytest.mark.parametrize(("n", "d"), [(7, 4), (12, 4), (5, 8)])
def test_what_is_read_together_is_that_of_pairs_left_out(n, d):
    rng, ridge = np.random.default_rng(n), 0.7
    X = correlated(rng, n, d)
    read = each = 0.0
    for r, s in itertools.permutations(range(n), 2):
        rest = np.delete(X, [r, s], axis=0)
        S = np.linalg.solve(rest.T @ rest + ridge * np.eye(d), rest.T @ rest)
        difference = X[r] - X[s]
        read += difference @ S @ difference
        each += difference**2 @ np.diag(S)
    assert np.isclose(read_together(X, ridge), read / each)


def test_columns_constant_within_a_task_do_not_go_together():
    """Columns that are constant within a task are not read together."""
    rng = np.random.default_rng(0)
    constant = np.column_stack([np.full((9, 2), [1.0, -0.6]), rng.standard_normal(9)])
    alone = np.column_stack([np.zeros((9, 2)), constant[:, 2]])
    assert read_together(constant[:, :2], 0.7) == 1.0
    # the third column is as far from independent of them as its rows happen to be
    assert abs(read_together(constant, 0.7) - read_together(alone, 0.7)) < 0.1


def test_immeasurable_rows_are_read_as_independent_columns():
    """Rows beyond all measure are read as columns that do not go together."""
    X = correlated(np.random.default_rng(0), 6)
    with np.errstate(all="ignore"):
        for scale in (1e9, 1e80):
            assert 0 <= read_together(scale * X, 0.7) < 10
    assert read_together(X[:2], 0.7) == 1.0


def test_a_zero_column_is_undetermined_and_harmless():
    """A column of zeros is not determined, and takes nothing from the others."""
    X = correlated(np.random.default_rng(1), 8)
    X[:, 2] = 0.0
    own = shrunk_estimate(X, X[:, 0], V, 8.0)
    rest = shrunk_estimate(X[:, [0, 1, 3]], X[:, 0], V, 8.0)
    assert own.estimate[2] == own.determined[2] == 0.0
    assert np.allclose(own.estimate[[0, 1, 3]], rest.estimate)
    assert np.allclose(own.determined[[0, 1, 3]], rest.determined)
