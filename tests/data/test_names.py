"""Names say which task and which feature is which, in whatever order data have them."""

import dataclasses
import datetime as dt
import pickle
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData, adaptation
from mpmtl_prob.data.matching import columns, match_names
from mpmtl_prob.estimators import (
    MTRL,
    Fitted,
    Lasso,
    LocalGradientDescent,
    LowRank,
    LowRankSparse,
    MultiTask,
    Ridge,
    TraceNorm,
)
from mpmtl_prob.inference import OwnerPosteriors, shared_covariance, task_posteriors
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE

FAST = {"chains": 2, "warmup": 200, "draws": 100, "progress_bar": False}
NAMES = ["a", "b", "c"]
SCALE = np.array([1.0, 0.1, 3.0])


def table(m=6, n=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m * n, 3))
    task = np.repeat([f"t{i:02d}" for i in range(m)], n)
    W = rng.standard_normal((m, 3)) * SCALE
    y = np.sum(X * np.repeat(W, n, axis=0), axis=1) + 0.1 * rng.standard_normal(m * n)
    return pd.DataFrame(X, columns=NAMES).assign(task=task, y=y)


def tasks_of(frame, **options):
    return TaskData.from_pandas(frame, task="task", target="y", **options)


FRAME = table()
TRAIN = tasks_of(FRAME)
REVERSED = tasks_of(FRAME[::-1][["c", "y", "a", "task", "b"]])
#: what tests of other things ignore
BY_POSITION = "ignore:.*have no names, so that columns go by position"


@pytest.fixture(scope="module")
def public():
    return shared_covariance(mp.release(TRAIN, 5.0, unsafe_seed=0), **FAST)


@pytest.fixture(scope="module")
def own(public):
    return task_posteriors(TRAIN, public, draws=50)


def means(prediction):
    """Return the predicted mean of every row, by task."""
    per_task = zip(prediction.tasks, prediction.mean, prediction.mask, strict=True)
    return {str(name).removesuffix(".0"): mean[real] for name, mean, real in per_task}


def check_order(fit, data=TRAIN, other=REVERSED):
    """Rows of a task come in the reverse order too."""
    expected, mean_of_other = means(fit.predict(data)), means(fit.predict(other))
    assert mean_of_other.keys() <= expected.keys()
    assert fit.predict(other).tasks == other.tasks
    for name, mean in mean_of_other.items():
        assert_allclose(mean[::-1], expected[name], rtol=1e-12)


ESTIMATORS = [
    Ridge(),
    Lasso(0.1),
    MultiTask(TraceNorm(), 0.1),
    MTRL(0.1, 0.1),
    mp.estimators.LowRankPlusSparse((0.5, 0.5)),
    mp.estimators.DPMTRL(0.1, 0.1, epsilon=None),
    mp.estimators.DPAggr(0.1, epsilon=None, row_norm=10.0),
    LocalGradientDescent(rounds=3),
    LowRank(penalty=0.1, epsilon=None, rounds=3),
    LowRankSparse(penalty=(0.1, 0.1), epsilon=None, rounds=3),
    mp.estimators.FrankWolfe(None, radius=1.0, rounds=3),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_fits_find_tasks_and_features_by_name(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mp.estimators.ConvergenceWarning)
        check_order(estimator.fit(TRAIN))


def test_a_path_of_fits_finds_them_too():
    for fit in MultiTask(TraceNorm(), 1.0).path(TRAIN, [1.0, 0.8, 0.6, 0.4, 0.2, 0.1]):
        check_order(fit)


def test_labels_too():
    signs = tasks_of(FRAME.assign(y=np.sign(FRAME["y"])))
    check_order(mp.estimators.RidgeLogistic(1.0).fit(signs))


def test_intercepts_stay_last_and_go_with_their_task():
    """Intercepts stay behind the features and go with their task."""
    data, other = TRAIN.with_intercept(), REVERSED.with_intercept()
    check_order(Ridge().fit(data), data, other)
    with pytest.raises(ValueError, match="features: expected 4 as in the fit, got 3"):
        Ridge().fit(data).predict(TRAIN)


def test_owners_find_tasks_and_features_by_name(own):
    check_order(own)
    few = tasks_of(FRAME[FRAME["task"] > "t03"])
    low, high = own.predict(few).interval()
    lows, highs = own.predict(TRAIN).interval()
    assert_allclose(high - low, (highs - lows)[4:], rtol=0.5)  # of other draws of the noise


def test_curators_find_them_too():
    fit = mp.inference.fit(
        mp.models.group_sparse, TRAIN, kernel="mala", chains=1, warmup=30, draws=20, progress_bar=False
    )
    check_order(fit)


def test_files_hold_names(own, tmp_path):
    own.save(tmp_path / "own.nc")
    check_order(OwnerPosteriors.load(tmp_path / "own.nc"))


def test_numeric_names_are_found_as_they_are_and_in_a_file(public, tmp_path):
    """Names that are numbers are recognised as they are, and after reading them from a file."""
    frame = FRAME.assign(task=FRAME["task"].str[1:].astype(int))
    data, other = tasks_of(frame), tasks_of(frame[::-1])
    fit = task_posteriors(data, public, draws=50)
    fit.save(tmp_path / "own.nc")
    for each in (fit, OwnerPosteriors.load(tmp_path / "own.nc"), Ridge().fit(data)):
        check_order(each, data, other)
    check_order(fit, data, tasks_of(frame[::-1].assign(task=frame["task"][::-1].astype(float))))


@pytest.mark.parametrize("kind", [float, lambda number: dt.datetime(2020, 1, number + 1)], ids=["float", "datetime"])
def test_a_file_holds_names_as_they_are_compared(public, tmp_path, kind):
    frame = FRAME.assign(task=[kind(int(name[1:])) for name in FRAME["task"]]).astype({"task": object})
    data = tasks_of(frame)
    fit = task_posteriors(data, public, draws=50)
    fit.save(tmp_path / "own.nc")
    loaded = OwnerPosteriors.load(tmp_path / "own.nc")
    np.testing.assert_array_equal(loaded.predict(data).mean, fit.predict(data).mean)


def test_pickled_fits_know_their_names():
    check_order(pickle.loads(pickle.dumps(Ridge().fit(TRAIN))))


def test_some_of_the_tasks_are_enough(own):
    few = tasks_of(FRAME[FRAME["task"].isin(["t05", "t03"])][::-1])
    for fit in (own, Ridge().fit(TRAIN)):
        check_order(fit, TRAIN, few)
        assert fit.predict(few).tasks == ("t05", "t03")


def test_other_tasks_and_features_are_named(own):
    for fit in (own, Ridge().fit(TRAIN)):
        with pytest.raises(ValueError, match="tasks: expected those of the fit, got others: 'new'"):
            fit.predict(tasks_of(FRAME.replace({"task": {"t03": "new"}})))
        with pytest.raises(ValueError, match="features: expected those of the fit, got others: 'z'"):
            fit.predict(tasks_of(FRAME.rename(columns={"a": "z"})))
        with pytest.raises(ValueError, match="features: expected 3 as in the fit, got 4"):
            fit.predict(tasks_of(FRAME.assign(z=1.0)))
        with pytest.raises(ValueError, match="features: expected 3 as in the fit, got 2"):
            fit.predict(tasks_of(FRAME.drop(columns="c")))


def test_what_is_no_task_data_is_named(own):
    for fit in (own, Ridge().fit(TRAIN), Fitted(np.zeros((3, 6)), NOT_PRIVATE)):
        for other in (FRAME, FRAME[NAMES].to_numpy()):
            got = type(other).__name__
            with pytest.raises(
                ValueError, match=f"tasks: expected TaskData, got {got}; make one with TaskData.from_pandas"
            ):
                fit.predict(other)


NUMBERED = TaskData.from_lists(list(TRAIN.X), list(TRAIN.y), features=NAMES)


@pytest.mark.filterwarnings(BY_POSITION)
def test_features_without_names_go_by_position(own):
    bare = TaskData.from_lists(list(TRAIN.X), list(TRAIN.y), tasks=TRAIN.tasks)
    for fit, of in ((own, TRAIN), (Ridge().fit(TRAIN), TRAIN), (Ridge().fit(bare), bare)):
        for data in (bare, TRAIN):
            assert_allclose(fit.predict(data).mean, fit.predict(of).mean)


def test_tasks_go_by_position_where_neither_side_has_names():
    fit, again = Ridge().fit(NUMBERED), TaskData.from_lists(list(TRAIN.X), list(TRAIN.y), features=NAMES)
    assert_allclose(fit.predict(again).mean, fit.predict(NUMBERED).mean)
    for part, _ in (NUMBERED.split(0.5, 0), NUMBERED.folds(2, 0)[0]):
        assert part.numbered
        assert fit.predict(part).tasks == NUMBERED.tasks
    assert not TRAIN.numbered


def test_tasks_without_names_are_not_those_of_a_named_fit(own, tmp_path):
    own.save(tmp_path / "own.nc")
    codes = tasks_of(FRAME[::-1].assign(task=FRAME["task"][::-1].str[1:].astype(int)))  # 5, 4, ..., 0
    for fit in (own, OwnerPosteriors.load(tmp_path / "own.nc"), Ridge().fit(TRAIN), Ridge().fit(codes)):
        with pytest.raises(ValueError, match=r"tasks: expected names, by which those of the fit are found, such as .*, "
                           r"got 6 tasks without names for 6 of the fit; make them with tasks="):  # fmt: skip
            fit.predict(NUMBERED)


def test_fewer_tasks_without_names_could_be_any_of_the_fit():
    fewer = TaskData.from_lists(list(TRAIN.X[2:]), list(TRAIN.y[2:]), features=NAMES)
    with pytest.raises(ValueError, match="got 4 tasks without names for 6 of the fit"):
        Ridge().fit(NUMBERED).predict(fewer)
    named = TaskData.from_lists(list(TRAIN.X[2:]), list(TRAIN.y[2:]), features=NAMES, tasks=range(2, 6))
    fit = Ridge().fit(NUMBERED)
    assert_allclose(fit.predict(named).mean, fit.predict(NUMBERED).mean[2:])


@pytest.mark.parametrize("later", [range(6, 12), [f"h{i}" for i in range(6)]], ids=["numbers", "words"])
def test_unseen_tasks_are_named_though_the_fit_s_are_numbers(public, later, tmp_path):
    """Tasks coded 0 to 5 in the column of a table have names: task 6 is not task 0."""
    codes = FRAME["task"].str[1:].astype(int)
    seen, unseen = tasks_of(FRAME.assign(task=codes)), tasks_of(FRAME.assign(task=[later[code] for code in codes]))
    own = task_posteriors(seen, public, draws=50)
    own.save(tmp_path / "own.nc")
    curators = mp.inference.fit(
        mp.models.group_sparse, seen, kernel="mala", chains=1, warmup=5, draws=5, progress_bar=False
    )
    for fit in (Ridge().fit(seen), own, OwnerPosteriors.load(tmp_path / "own.nc"), curators, Ridge().fit(NUMBERED)):
        with pytest.raises(ValueError, match=f"tasks: expected those of the fit, got others: {later[0]!r}, .*; take these "
                           "out, or fit again with them"):  # fmt: skip
            fit.predict(unseen)


def test_features_called_by_other_numbers_are_others():
    numbered = FRAME.rename(columns={"a": 0, "b": 1, "c": 2})
    fit = Ridge().fit(tasks_of(numbered, features=[0, 1, 2]))
    with pytest.raises(
        ValueError, match="features: expected those of the fit, got others: 4, 5, 6; give columns the names"
    ):
        fit.predict(tasks_of(FRAME.rename(columns={"a": 4, "b": 5, "c": 6}), features=[4, 5, 6]))
    adapted, X = adaptation.SourceOnly().fit(records(0, names=False)), records(2)[0].set_axis(range(4, 8), axis=1)
    with pytest.raises(ValueError, match="X: features: expected those of the fit, got others: 4, 5, 6, 7"):
        adapted.predict(X)


def test_pictures_find_tasks_by_name(own):
    mp.plots.error_by_task(own, REVERSED)
    for wrong in (NUMBERED, tasks_of(FRAME.replace({"task": {"t03": "new"}}))):
        with pytest.raises(ValueError, match="tasks: expected"):
            mp.plots.error_by_task(own, wrong)
    other = dataclasses.replace(own, tasks=tuple("uvwxyz"))
    with pytest.raises(ValueError, match="after: expected the tasks and features of before, in the same order"):
        mp.plots.shift(own, other)
    moved = dataclasses.replace(TRAIN, tasks=TRAIN.tasks[::-1])
    for picture in (mp.plots.coverage, mp.plots.reliability):
        with pytest.raises(ValueError, match="prediction and test: expected predictions of the rows of test"):
            picture({"own": own.predict(TRAIN)}, dataclasses.replace(moved, y=np.sign(moved.y)))


def test_a_picture_s_errors_are_of_the_tasks_that_it_names(own):
    """ArviZ's forest shows medians: those of reversed rows are those of the same tasks."""
    shown = []

    def drawn(tree, *_):
        shown.append(tree["posterior"]["RMSE"])
        return mock.Mock()

    with mock.patch("mpmtl_prob.plots.forest_of", drawn):
        for test in (TRAIN, REVERSED):
            mp.plots.error_by_task(own, test)
    assert_allclose(shown[1].sel(task=shown[0]["task"]), shown[0])


def test_weights_without_names_go_by_position():
    fit = Ridge().fit(TRAIN)
    assert_allclose(Fitted(fit.W, NOT_PRIVATE).predict(TRAIN).mean, fit.predict(TRAIN).mean)


@pytest.mark.parametrize(
    ("given", "known", "place"),
    [
        (("b", "a"), ("a", "b", "c"), [1, 0]),
        ((2, 0), (0, 1, 2), [2, 0]),
        ((2, 0), ("0", "1", "2"), [2, 0]),
        (("1", 1), (1, "1"), [1, 0]),
        ((0, 1), ("a", "b"), None),
        (("a", "b"), (0, 1), None),
        ((0, 1, 2), (1, 2, 3), None),
        ((0, 1), ("a", "b", "c"), None),
        ((3, 4), ("a", "b"), None),
        (("1", "2"), (1, "1"), None),
    ],
)
def test_places_of_names(given, known, place):
    if place is None:
        with pytest.raises(ValueError, match="tasks: expected those of the fit, got"):
            match_names("tasks", given, known, advice="")
    else:
        assert match_names("tasks", given, known, advice="").tolist() == place


@pytest.mark.filterwarnings(BY_POSITION)
@pytest.mark.parametrize(
    ("given", "known", "place"),
    [
        (("b", "a"), ("a", "b"), [1, 0]),
        ((1, 0), ("0", "1"), [1, 0]),
        ((0, 1), ("a", "b"), [0, 1]),
        ((0, 1, "intercept"), ("a", "b", "intercept"), [0, 1, 2]),
        (("intercept",), ("intercept",), [0]),
        (("a", "b"), (0, 1), [0, 1]),
        ((4, 5), (0, 1), None),
        ((0, 1), ("4", "b"), None),
        (("a", "b"), ("a", "c"), None),
    ],
)
def test_places_of_columns(given, known, place):
    if place is None:
        with pytest.raises(ValueError, match="features: expected those of the fit, got others"):
            columns(given, known)
    else:
        assert columns(given, known).tolist() == place


def test_scores_are_of_the_same_tasks_in_the_same_order():
    prediction = Ridge().fit(TRAIN).predict(TRAIN)
    with pytest.raises(ValueError, match="prediction and test: expected predictions of the rows of test"):
        mp.evaluation.nmse(prediction, dataclasses.replace(TRAIN, tasks=TRAIN.tasks[::-1]))


@pytest.mark.filterwarnings(BY_POSITION)
def test_owners_read_a_release_by_its_features(public):
    with pytest.raises(
        ValueError,
        match="features: expected the order of the release, got 'c' in the place of 'a'; make the tasks with features=",
    ):
        task_posteriors(REVERSED, public)
    again = tasks_of(FRAME[::-1][["c", "y", "a", "task", "b"]], features=list(public.release.features))
    assert_allclose(task_posteriors(again, public, draws=5).W[:, ::-1], task_posteriors(TRAIN, public, draws=5).W)
    with pytest.raises(ValueError, match="features: expected those of the release, got others: 'z'"):
        task_posteriors(tasks_of(FRAME.rename(columns={"a": "z"})), public)
    bare = TaskData.from_lists(list(TRAIN.X), list(TRAIN.y))
    assert_allclose(task_posteriors(bare, public, draws=5).W, task_posteriors(TRAIN, public, draws=5).W)


COLUMNS = list("efgh")


def records(seed, names=True):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (60, 4))
    y = X @ [0.8, -0.1, 0.3, 0.0] + 0.01 * rng.standard_normal(60)
    return (pd.DataFrame(X, columns=COLUMNS) if names else X), y


MODELS = [
    adaptation.DiscrepancyMinimisation(),
    adaptation.AdaSSP(epsilon=5.0, unsafe_seed=0),
    adaptation.CnvxAdap(epsilon=None, steps=5),
    adaptation.Unprotected(),
    adaptation.KMM(),
    adaptation.MomentAdaptation(epsilon=5.0, unsafe_seed=0, draws=50),
    adaptation.MomentAdaptation(epsilon=5.0, unsafe_seed=0, draws=50, intercept=True),
]


@pytest.mark.filterwarnings(BY_POSITION)
@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("named", [(True, True), (True, False), (False, True)])
def test_adapted_models_find_columns_by_name(model, named):
    model.fit(records(0, named[0]), records(1, named[1]))
    X, _ = records(2)
    expected = model.predict(X.to_numpy())
    assert_allclose(model.predict(X), expected)
    assert_allclose(model.predict(X[COLUMNS[::-1]]), expected)
    with pytest.raises(ValueError, match="X: features: expected those of the fit, got others: 'z'"):
        model.predict(X.rename(columns={"e": "z"}))


def test_intervals_and_files_of_adapted_models_too(tmp_path):
    model = adaptation.MomentAdaptation(epsilon=5.0, unsafe_seed=0, draws=50).fit(records(0), records(1))
    model.save(tmp_path / "model.nc")
    X, _ = records(2)
    for each in (model, adaptation.MomentAdaptation.load(tmp_path / "model.nc")):
        assert_allclose(each.interval(X[COLUMNS[::-1]]), model.interval(X))
        assert_allclose(each.predict(X[COLUMNS[::-1]]), model.predict(X))


def test_a_posteriors_predictive_refuses_a_table():
    """A posterior's predictive distribution goes by position, and so refuses a table."""
    model = adaptation.MomentAdaptation(epsilon=5.0, unsafe_seed=0, draws=50).fit(records(0), records(1))
    X, _ = records(2)
    assert_allclose(model.posterior_.predictive(X.to_numpy()), model.interval(X))
    with pytest.raises(
        ValueError, match=r"X: expected an array, got a table; `MomentAdaptation\.interval` finds its columns"
    ):
        model.posterior_.predictive(X)
    with pytest.raises(ValueError, match=r"X: expected shape \(records, 4\), got \(60, 3\)"):
        model.posterior_.predictive(X.to_numpy()[:, :3])


@pytest.mark.filterwarnings(BY_POSITION)
def test_adapted_models_without_names_go_by_position():
    X, _ = records(2)
    for names, data in ((False, X), (True, X.to_numpy())):
        model = adaptation.SourceOnly().fit(records(0, names))
        assert_allclose(model.predict(data), model.predict(X))


def test_public_domains_have_the_same_features_in_the_same_order():
    X, y = records(1)
    with pytest.raises(ValueError, match="source: expected domains of the same features in the same order"):
        adaptation.MomentAdaptation().fit({"one": records(0), "other": (X[COLUMNS[::-1]], y)}, records(2, False))


def test_what_is_taken_for_something_else_is_named(public):
    with pytest.raises(
        ValueError, match=r"tasks: expected TaskData, got DataFrame; make one with TaskData\.from_pandas"
    ):
        task_posteriors(FRAME, public)
    with pytest.raises(ValueError, match="tasks: expected TaskData, got SharedPosterior"):
        task_posteriors(public, TRAIN)
    with pytest.raises(ValueError, match="shared: expected a SharedPosterior, got Release; make one with mpmtl_prob"):
        task_posteriors(TRAIN, public.release)
    with pytest.raises(ValueError, match="tasks: expected TaskData, got ndarray"):
        Ridge().fit(TRAIN.X)
    for sample in (
        lambda seed: task_posteriors(TRAIN, public, seed=seed),
        lambda seed: shared_covariance(public.release, seed=seed),
    ):
        with pytest.raises(ValueError, match="seed: expected a whole number, got 'a'"):
            sample("a")


@pytest.mark.filterwarnings(BY_POSITION)
def test_owners_send_what_the_terms_name():
    settled = mp.releases.terms(1.0, 6, NAMES)
    again = tasks_of(FRAME[["c", "y", "a", "task", "b"]], features=NAMES)
    assert_allclose(mp.releases.message(again, settled), mp.releases.message(TRAIN, settled))
    with pytest.raises(ValueError, match="features: expected the order of the terms, got 'c' in the place of 'a'"):
        mp.releases.message(REVERSED, settled)
    assert mp.releases.message(REVERSED, mp.releases.terms(1.0, 6, 3)).shape == (3, 6)  # terms without names


def test_a_matrix_beside_names_is_told_the_order_of_columns(public):
    """Whoever gives a matrix where others have names is told the order of the columns."""
    told = "these have no names, so that columns go by position, in the order a, b, c; give both the same names"
    bare = TaskData.from_lists(list(TRAIN.X), list(TRAIN.y), tasks=TRAIN.tasks)
    fit = Ridge().fit(TRAIN)
    for call in (
        lambda: fit.predict(bare),
        lambda: Ridge().fit(TRAIN.with_intercept()).predict(bare.with_intercept()),
        lambda: task_posteriors(bare, public, draws=5),
        lambda: mp.releases.message(bare, mp.releases.terms(1.0, 6, NAMES)),
    ):
        with pytest.warns(UserWarning, match=f"^features: {told}"):
            call()
    with pytest.warns(
        UserWarning, match="^features: those of the terms have no names, so that columns go by position; give"
    ):
        mp.releases.message(TRAIN, mp.releases.terms(1.0, 6, 3))
    with pytest.warns(UserWarning, match="^target: features: those of the source have no names, .* by position; give"):
        adaptation.KMM().fit(records(0, False), records(1))  # a private table without a head has a record for its names
    # nothing to tell: the same names, no names, or one column
    fit.predict(TRAIN)
    Ridge().fit(bare).predict(bare)
    one = TaskData.from_lists([x[:, :1] for x in TRAIN.X], list(TRAIN.y), tasks=TRAIN.tasks)
    Ridge().fit(dataclasses.replace(one, features=("a",))).predict(one)
