"""The scikit-learn wrapper, under scikit-learn's own checks and in its tools."""

import pickle

import numpy as np
import pytest
import sklearn.linear_model
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import mpmtl_prob as mp
from mpmtl_prob.estimators import LowRank, MultiTask, Ridge, TraceNorm
from mpmtl_prob.scikit import MultiTaskRegressor


@parametrize_with_checks([MultiTaskRegressor(), MultiTaskRegressor(Ridge(0.1))])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    train, test, _ = mp.datasets.synthetic_low_rank(num_tasks=6, num_features=3, rows=15, test_rows=10, group=3)
    long = lambda tasks: np.column_stack([np.repeat(np.arange(6.0), tasks.mask.sum(1)), tasks.X[tasks.mask]])
    return train, long(train), train.y[train.mask], test, long(test)


def test_it_is_the_estimator_it_wraps(table):
    train, X, y, test, X_test = table
    for estimator in (
        MultiTask(TraceNorm(), 0.5),
        LowRank(penalty=0.5, epsilon=1.0, clip=10.0, unsafe_seed=0, rounds=3),
    ):
        direct = estimator.fit(train)
        wrapped = MultiTaskRegressor(estimator, task=0, fit_intercept=False).fit(X, y)
        assert_allclose(wrapped.fitted_.W, direct.W)
        assert_allclose(wrapped.predict(X_test), direct.predict(test).mean[test.mask])
    assert wrapped.fitted_.guarantee.claimed.epsilon == 1.0


def test_its_intercept_is_scikit_learns(table):
    _, X, y, _, X_test = table
    X, y, X_test = X + 3.0, y + 100 + 5 * X[:, 0], X_test + 3.0  # tasks too have other names
    wrapped = MultiTaskRegressor(Ridge(0.3), task=0).fit(X, y).predict(X_test)
    for code in np.unique(X[:, 0]):
        rows, new = X[:, 0] == code, X_test[:, 0] == code
        alone = sklearn.linear_model.Ridge(alpha=0.3).fit(X[rows, 1:], y[rows])
        assert_allclose(wrapped[new], alone.predict(X_test[new, 1:]), rtol=1e-9)


def test_rows_may_come_in_any_order_and_from_some_tasks_only(table):
    _, X, y, _, X_test = table
    order = np.random.default_rng(0).permutation(len(X))
    wrapped = MultiTaskRegressor(task=0).fit(X, y)
    assert_allclose(
        wrapped.predict(X_test[7:20]), MultiTaskRegressor(task=0).fit(X[order], y[order]).predict(X_test)[7:20]
    )


def test_pipelines_and_searches(table):
    _, X, y, _, X_test = table
    unit = FunctionTransformer(
        lambda X: np.column_stack([X[:, 0], X[:, 1:] / np.linalg.norm(X[:, 1:], axis=1, keepdims=True)])
    )
    model = make_pipeline(unit, MultiTaskRegressor(task=0))
    grid = {"multitaskregressor__estimator": [Ridge(1e4), Ridge(0.05)]}
    search = GridSearchCV(model, grid, cv=3).fit(
        X[np.argsort(np.arange(len(X)) % 15, kind="stable")], y[np.argsort(np.arange(len(y)) % 15, kind="stable")]
    )
    assert search.best_params_["multitaskregressor__estimator"] == Ridge(0.05)
    assert search.predict(X_test).shape == (len(X_test),)
    assert cross_val_predict(MultiTaskRegressor(), X, y).shape == y.shape


def test_bad_tables_are_named(table):
    _, X, y, _, _ = table
    with pytest.raises(ValueError, match="task: expected a column of X, which has 4, got 4"):
        MultiTaskRegressor(task=4).fit(X, y)
    with pytest.raises(ValueError, match="task column alone"):
        MultiTaskRegressor(task=0).fit(X[:, :1], y)
    with pytest.raises(ValueError, match=r"expected tasks of the fit in column 0, got \[99.0\]"):
        MultiTaskRegressor(task=0).fit(X, y).predict(np.column_stack([[99.0], X[:1, 1:]]))


@pytest.mark.parametrize("task", ["t", 1.0, True])
def test_a_task_column_is_a_position(table, task):
    _, X, y, _, _ = table
    with pytest.raises(ValueError, match="task: expected the position of a column of X, a whole number, or None, got"):
        MultiTaskRegressor(task=task).fit(X, y)


def test_an_estimator_is_an_instance(table):
    _, X, y, _, _ = table
    with pytest.raises(ValueError, match=r"estimator: expected an instance, such as Ridge\(...\), got the class Ridge"):
        MultiTaskRegressor(Ridge, task=0).fit(X, y)


def test_clones_and_folds_charge_one_ledger(table, tmp_path):
    _, X, y, _, _ = table
    ledger = mp.privacy.Ledger(tmp_path / "ledger", epsilon=5.0, delta=0.02)
    paying = LowRank(
        penalty=0.5, clip=1.0, epsilon=1.0, mechanism="calibrated", curvature=10.0, rounds=3, ledger=ledger
    )
    wrapped = MultiTaskRegressor(paying, task=0)
    assert clone(wrapped).estimator.ledger is ledger
    cross_val_score(wrapped, X, y, cv=KFold(2, shuffle=True, random_state=0))
    assert len(ledger.charges()) == 2


def test_fitted_posteriors_can_be_pickled(table):
    _, X, y, _, X_test = table
    estimator = mp.NoiseAware(1.0, unsafe_seed=0, chains=1, warmup=200, draws=20, progress_bar=False)
    wrapped = MultiTaskRegressor(estimator, task=0).fit(X, y)
    again = pickle.loads(pickle.dumps(wrapped))
    assert_allclose(again.predict(X_test), wrapped.predict(X_test))
    assert wrapped.fitted_.shared.extend(5, progress_bar=False).num_draws == 25
    with pytest.raises(ValueError, match="extend: this posterior holds no chains to go on from"):
        again.fitted_.shared.extend(5)


def test_a_cell_of_text_is_not_shown():
    X = np.array([[0.0, 1.0], [0.0, 2.0]], dtype=object)
    X[1, 1] = "4711 Main Street"
    with pytest.raises(ValueError, match="X and y: expected numbers, got text in some cells") as error:
        MultiTaskRegressor(task=0).fit(X, [1.0, 2.0])
    assert "4711" not in str(error.value)
    assert error.value.__suppress_context__


def test_task_numbers_that_doubles_cannot_tell_apart_are_refused():
    """2^53 and 2^53 + 1 would be one task, of two hospitals."""
    X = np.array([[2**53, 1], [2**53 + 1, 2]])
    with pytest.raises(ValueError, match="X: expected task numbers below 2\\^53 in column 0"):
        MultiTaskRegressor(task=0).fit(X, [1.0, 2.0])


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_reference_values_are_the_estimators_and_their_centres_are_in_predictions(fit_intercept):
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(8.0), 10)
    age = rng.normal(60, 15, 80)
    y = 7 + 0.1 * (age - 60) + rng.normal(0, 1, 80)
    reference = mp.Reference({0: (60, 15)}, target=(7, 5))
    inner = mp.NoiseAware(5.0, reference=reference, chains=2, warmup=200, draws=200, progress_bar=False, unsafe_seed=0)
    model = MultiTaskRegressor(inner, task=0, fit_intercept=fit_intercept).fit(np.column_stack([code, age]), y)
    tasks = mp.TaskData.from_lists(age.reshape(8, 10, 1), y.reshape(8, 10), tasks=np.arange(8.0).tolist())
    tasks = tasks.with_intercept() if fit_intercept else tasks
    expected = model.fitted_.predict(tasks).mean.ravel()
    np.testing.assert_allclose(model.predict(np.column_stack([code, age])), expected, rtol=1e-9)
    assert np.sqrt(np.mean((expected - y) ** 2)) < 2
