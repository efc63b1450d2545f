"""The scikit-learn wrapper, under scikit-learn's own checks and in its tools."""

import pickle

import numpy as np
import pandas as pd
import polars
import pytest
import sklearn.linear_model
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mpmtl_prob as mp
from mpmtl_prob.estimators import LowRank, MultiTask, Ridge, RidgeLogistic, TraceNorm
from mpmtl_prob.scikit import MultiTaskClassifier, MultiTaskRegressor


@parametrize_with_checks(
    [
        MultiTaskRegressor(),
        MultiTaskRegressor(Ridge(0.1)),
        MultiTaskClassifier(),
        MultiTaskClassifier(RidgeLogistic(0.1)),
    ]
)
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
def test_reference_values_belong_to_the_estimator(fit_intercept):
    """Reference values are the estimator's, and their centres are in its predictions."""
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


def hospitals(seed=0, labels=False, ids=None):
    """A long table as data frames have it, rows of six hospitals in no order."""
    rng = np.random.default_rng(seed)
    ids = [f"Hospital {letter}" for letter in "FEDCBA"] if ids is None else ids
    place = rng.integers(0, 6, 180)
    X = rng.standard_normal((180, 2))
    score = X @ [1.0, -0.5] + np.linspace(-2, 2, 6)[place] * (1 + X[:, 0])
    y = np.where(score + rng.logistic(size=180) > 0, "died", "alive") if labels else score + rng.standard_normal(180)
    return pd.DataFrame({"age": X[:, 0], "hospital": np.array(ids)[place], "stay": X[:, 1]}), y


def in_polars(frame):
    none = frame.astype(object).where(frame.notna(), None)
    return polars.DataFrame({name: polars.Series(name, none[name].tolist()) for name in frame})


FRAMES = {"pandas": lambda frame: frame, "polars": in_polars}


@pytest.mark.parametrize("kind", FRAMES)
def test_data_frames_have_tasks_and_features_by_name(kind):
    frame, y = hospitals()
    there = FRAMES[kind](frame)
    model = MultiTaskRegressor(Ridge(0.3), task="hospital").fit(there, y)
    assert model.feature_names_in_.tolist() == ["age", "hospital", "stay"]
    assert model.n_features_in_ == 3
    assert model.tasks_.tolist() == [f"Hospital {letter}" for letter in "ABCDEF"]
    assert (model.fitted_.tasks, model.fitted_.features) == (tuple(model.tasks_), ("age", "stay", "intercept"))
    predicted = model.predict(there)
    for name in model.tasks_:
        rows = (frame["hospital"] == name).to_numpy()
        alone = sklearn.linear_model.Ridge(alpha=0.3).fit(frame.loc[rows, ["age", "stay"]], y[rows])
        assert_allclose(predicted[rows], alone.predict(frame.loc[rows, ["age", "stay"]]), rtol=1e-9)
    by_position = MultiTaskRegressor(Ridge(0.3), task=1).fit(there, y)
    assert_allclose(by_position.predict(there), predicted)
    some = FRAMES[kind](frame.iloc[[5, 100, 17]])
    assert_allclose(model.predict(some), predicted[[5, 100, 17]])


@pytest.mark.parametrize("kind", FRAMES)
def test_large_numbers_of_tasks_are_told_apart_in_a_data_frame(kind):
    """Large numbers of tasks are compared as whole numbers; as doubles they would be two hospitals, and not six."""
    ids = [2**53 + i for i in range(4)] + [2**62 + 1, 2**62 + 2]
    frame, y = hospitals(ids=ids)
    model = MultiTaskRegressor(Ridge(0.3), task="hospital").fit(FRAMES[kind](frame), y)
    assert model.tasks_.tolist() == ids
    text, _ = hospitals(ids=[str(i) for i in ids])
    assert_allclose(model.predict(FRAMES[kind](text)), model.predict(FRAMES[kind](frame)))  # 7 and "7" are one name
    matrix = np.column_stack([np.searchsorted(ids, frame["hospital"]), frame[["age", "stay"]]])
    assert_allclose(
        model.predict(FRAMES[kind](frame)), MultiTaskRegressor(Ridge(0.3), task=0).fit(matrix, y).predict(matrix)
    )


@pytest.mark.parametrize("kind", FRAMES)
def test_data_frames_are_refused_by_column_and_show_no_cell(kind):
    frame, y = hospitals()
    model = MultiTaskRegressor(task="hospital").fit(FRAMES[kind](frame), y)
    with pytest.raises(ValueError, match=r"task: expected one column of X of this name, got 'clinic' 0 times"):
        MultiTaskRegressor(task="clinic").fit(FRAMES[kind](frame), y)
    with pytest.raises(ValueError, match="task column alone"):
        MultiTaskRegressor(task="hospital").fit(FRAMES[kind](frame[["hospital"]]), y)
    with pytest.raises(ValueError, match="task: expected a task for every row, got 1 without"):
        MultiTaskRegressor(task="hospital").fit(FRAMES[kind](frame.assign(hospital=[None, *frame["hospital"][1:]])), y)
    with pytest.raises(
        ValueError, match=r"expected finite numbers, got others in 'stay', the first of task 'H"
    ) as error:
        model.predict(FRAMES[kind](frame.assign(stay=["4711 Main Street", *frame["stay"].astype(str)[1:]])))
    assert "4711" not in str(error.value)
    with pytest.raises(ValueError, match=r"expected tasks of the fit in column hospital, got \['Hospital Z'\]"):
        model.predict(FRAMES[kind](frame.assign(hospital="Hospital Z")))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAMES[kind](frame.rename(columns={"stay": "income"})))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        MultiTaskRegressor(task="hospital").fit(FRAMES[kind](frame), y[:-1])


def test_pipelines_hand_data_frames_on():
    """A transformer that puts out a data frame leaves the column of tasks as it is."""
    frame, y = hospitals()
    scale = ColumnTransformer(
        [("scaled", StandardScaler(), ["age", "stay"])], remainder="passthrough", verbose_feature_names_out=False
    )
    model = make_pipeline(scale, MultiTaskRegressor(Ridge(0.0), task="hospital"))
    for output in ("pandas", "polars"):
        model.set_output(transform=output)
        there = FRAMES[output](frame)
        fitted = model.fit(there, y)
        assert sorted(fitted[-1].feature_names_in_) == ["age", "hospital", "stay"]
        plain = MultiTaskRegressor(Ridge(0.0), task="hospital").fit(frame, y)
        assert_allclose(fitted.predict(there), plain.predict(frame), rtol=1e-8)  # least squares in any units


def test_searches_reach_the_estimators_own_parameters():
    frame, y = hospitals()
    grid = {"estimator__penalty": [1e5, 0.5]}
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(MultiTaskRegressor(task="hospital"), grid, cv=folds).fit(frame, y)
    assert search.best_params_ == {"estimator__penalty": 0.5}
    assert search.best_estimator_.estimator == Ridge(0.5)
    by_hand = GridSearchCV(MultiTaskRegressor(task="hospital"), {"estimator": [Ridge(1e5), Ridge(0.5)]}, cv=folds)
    assert_allclose(search.cv_results_["mean_test_score"], by_hand.fit(frame, y).cv_results_["mean_test_score"])
    deep = MultiTaskRegressor(MultiTask(TraceNorm(), 0.5)).get_params()
    assert TraceNorm() in deep.values()
    assert "estimator__penalty" not in MultiTaskRegressor().get_params(deep=False)


def test_parameters_of_parts_and_those_that_there_are_not():
    prior = mp.inference.SnrPrior(median=1.0, log_sd=0.5)
    model = MultiTaskRegressor(mp.NoiseAware(1.0, likelihood=mp.inference.NormalErrors()))
    model.set_params(estimator__epsilon=2.0, estimator__likelihood__snr=prior, fit_intercept=False)
    assert model.estimator.epsilon == 2.0
    assert model.estimator.likelihood == mp.inference.NormalErrors(prior)
    assert not model.fit_intercept
    both = MultiTaskRegressor().set_params(estimator__penalty=0.3, estimator=Ridge(7.0))
    assert both.estimator == Ridge(0.3)
    with pytest.raises(ValueError, match="estimator: expected one of Ridge's parameters, penalty, got 'strength'"):
        model.set_params(estimator=None).set_params(estimator__strength=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'strength'"):
        model.set_params(strength=1.0)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_classifier_of_every_task_is_that_of_its_own_rows(kind):
    frame, y = hospitals(labels=True)
    inner = RidgeLogistic(0.5, tolerance=1e-9)
    model = MultiTaskClassifier(inner, task="hospital", fit_intercept=False).fit(FRAMES[kind](frame), y)
    assert model.classes_.tolist() == ["alive", "died"]
    odds, probability = model.decision_function(FRAMES[kind](frame)), model.predict_proba(FRAMES[kind](frame))
    for name in model.tasks_:
        rows = (frame["hospital"] == name).to_numpy()
        X = frame.loc[rows, ["age", "stay"]].to_numpy()
        alone = sklearn.linear_model.LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10).fit(X, y[rows])
        assert_allclose(odds[rows], alone.decision_function(X), atol=1e-5)
        assert_allclose(probability[rows], alone.predict_proba(X), atol=1e-5)
    assert_allclose(probability.sum(axis=1), 1)
    assert np.array_equal(model.predict(FRAMES[kind](frame)), np.where(odds > 0, "died", "alive"))
    assert model.score(FRAMES[kind](frame), y) == np.mean(model.predict(FRAMES[kind](frame)) == y)
    some = FRAMES[kind](frame.iloc[[5, 100, 17]])
    assert_allclose(model.decision_function(some), odds[[5, 100, 17]])


def test_of_posteriors_probabilities_are_their_own():
    frame, y = hospitals(labels=True)
    inner = mp.NoiseAware(
        5.0, delta=0.1, likelihood="bernoulli", unsafe_seed=0, chains=2, warmup=200, draws=200, progress_bar=False
    )
    model = MultiTaskClassifier(inner, task="hospital").fit(frame, y)
    signs = frame.assign(outcome=np.where(y == "died", 1.0, -1.0))
    tasks = mp.TaskData.from_pandas(signs, task="hospital", target="outcome").with_intercept()
    own = np.concatenate([model.fitted_.predict(tasks.take([i])).means for i in range(6)])
    order = np.concatenate([np.flatnonzero(frame["hospital"] == name) for name in tasks.tasks])
    assert_allclose(model.predict_proba(frame)[order, 1], own, rtol=1e-9)
    assert np.array_equal(model.predict(frame) == "died", model.predict_proba(frame)[:, 1] > 0.5)
    search = GridSearchCV(
        MultiTaskClassifier(task="hospital"), {"estimator__penalty": [1e6, 1.0]}, cv=3, scoring="neg_log_loss"
    ).fit(frame, y)
    assert search.best_params_ == {"estimator__penalty": 1.0}


def test_other_than_two_classes_are_refused():
    frame, _ = hospitals()
    for y, words in ((np.arange(180) % 3, "Only binary classification is supported"), (np.ones(180), "got one class")):
        with pytest.raises(ValueError, match=words):
            MultiTaskClassifier(task="hospital").fit(frame, y)
