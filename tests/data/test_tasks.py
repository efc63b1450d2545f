import dataclasses
import operator
from functools import partial

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import xarray as xr

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.data.contrasts import contrasts
from mpmtl_prob.data.prediction import Prediction, linear_prediction
from mpmtl_prob.estimators import Ridge


@pytest.fixture
def ragged():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 3)) for n in (4, 2, 6)]
    y = [rng.standard_normal(n) for n in (4, 2, 6)]
    return TaskData.from_lists(X, y, tasks=["a", "b", "c"], features=["u", "v", "w"]), X, y


def test_padding_keeps_every_row_and_masks_the_rest(ragged):
    tasks, X, y = ragged
    assert tasks.X.shape == (3, 6, 3)
    assert (tasks.num_tasks, tasks.num_features, tasks.num_rows) == (3, 3, 12)
    for i in range(3):
        np.testing.assert_array_equal(tasks.X[i][tasks.mask[i]], X[i])
        np.testing.assert_array_equal(tasks.y[i][tasks.mask[i]], y[i])
        assert not tasks.X[i][~tasks.mask[i]].any()


def test_gram_matrices_are_of_each_tasks_rows_and_computed_once(ragged):
    """Gram matrices are those of each task's own rows, and are computed once."""
    tasks, X, y = ragged
    for i in range(3):
        np.testing.assert_allclose(tasks.gram.xx[i], X[i].T @ X[i])
        np.testing.assert_allclose(tasks.gram.xy[i], X[i].T @ y[i])
        np.testing.assert_allclose(tasks.gram.yy[i], y[i] @ y[i])
    assert tasks.gram.n.tolist() == [4, 2, 6]
    assert tasks.gram is tasks.gram


def test_pandas_and_xarray_round_trip(ragged):
    tasks, X, _ = ragged
    frame = tasks.to_pandas(task="school", target="mark")
    assert list(frame.columns) == ["school", "u", "v", "w", "mark"]
    shuffled = frame.sample(frac=1, random_state=1)
    again = TaskData.from_pandas(shuffled, task="school", target="mark")
    order = [again.tasks.index(name) for name in tasks.tasks]
    np.testing.assert_allclose(again.gram.xx[order], tasks.gram.xx)
    np.testing.assert_allclose(again.gram.xy[order], tasks.gram.xy)

    data = xr.Dataset(
        {"X": (("row", "feature"), np.concatenate(X)), "y": ("row", frame["mark"]), "task": ("row", frame["school"])},
        coords={"feature": ["u", "v", "w"]},
    )
    from_x = TaskData.from_xarray(data)
    assert from_x.tasks == tasks.tasks
    assert from_x.features == tasks.features
    np.testing.assert_array_equal(from_x.X, tasks.X)


def test_tasks_are_a_pytree_whose_leaves_are_the_arrays(ragged):
    tasks, _, _ = ragged
    leaves, structure = jax.tree.flatten(tasks)
    assert len(leaves) == 3
    twice = lambda leaf: 2 * leaf if leaf.dtype == float else leaf
    doubled = jax.jit(lambda t: jax.tree.map(twice, t))(tasks)
    assert doubled.tasks == tasks.tasks
    np.testing.assert_allclose(doubled.X, 2 * tasks.X)
    assert "TaskData" in repr(jax.tree.unflatten(structure, [None] * 3))


@pytest.fixture
def shared():
    rng = np.random.default_rng(3)
    X, Y, observed = rng.standard_normal((20, 2)), rng.standard_normal((20, 3)), rng.random((20, 3)) < 0.8
    Y[~observed] = np.nan  # never read
    return TaskData.from_targets(X, Y, observed, tasks=["a", "b", "c"]), X, Y, observed


def test_targets_of_the_same_subjects_make_one_task_each(shared):
    tasks, X, Y, observed = shared
    for i in range(3):
        real = tasks.mask[i]
        assert np.array_equal(tasks.subject[i][real], np.flatnonzero(observed[:, i]))
        assert np.array_equal(tasks.X[i][real], X[observed[:, i]])
        assert np.array_equal(tasks.y[i][real], Y[observed[:, i], i])
    assert len(jax.tree.leaves(tasks)) == 4
    with pytest.raises(ValueError, match=r"observed: expected shape \(20, 3\) as Y, got \(20, 2\)"):
        TaskData.from_targets(X, np.zeros((20, 3)), observed[:, :2])
    with pytest.raises(ValueError, match="X and Y: expected matrices with a row per subject"):
        TaskData.from_targets(X[1:], Y)


def test_folds_and_splits_keep_a_subject_together(shared):
    tasks, _, _, _ = shared
    people = lambda part: set(part.subject[part.mask].tolist())
    held = []
    for train, validation in [tasks.split(0.4, seed=2), *tasks.folds(4, seed=2)]:
        assert not people(train) & people(validation)
        assert people(train) | people(validation) == people(tasks)
        assert train.num_rows + validation.num_rows == tasks.num_rows
        held.append(people(validation))
    assert len(held[0]) == len(people(tasks)) - round(0.4 * len(people(tasks)))
    assert sum(map(len, held[1:])) == len(people(tasks))


def test_split_shares_out_every_row_of_every_task(ragged):
    tasks, _, _ = ragged
    train, test = tasks.split(0.5, seed=3)
    assert train.mask.sum(axis=1).tolist() == [2, 1, 3]
    np.testing.assert_allclose(train.gram.xx + test.gram.xx, tasks.gram.xx)
    again, _ = tasks.split(0.5, seed=3)
    np.testing.assert_array_equal(train.X, again.X)
    extreme, _ = tasks.split(0.99, seed=0)
    assert (extreme.mask.sum(axis=1) < tasks.mask.sum(axis=1)).all()


def test_folds_hold_out_every_row_once(ragged):
    tasks, _, _ = ragged
    folds = tasks.folds(2, seed=0)
    np.testing.assert_allclose(sum(held.gram.xx for _, held in folds), tasks.gram.xx)
    for train, held in folds:
        np.testing.assert_allclose(train.gram.xx + held.gram.xx, tasks.gram.xx)


def test_unit_rows_have_length_one_and_zero_rows_stay_zero():
    tasks = TaskData.from_lists([[[3.0, 4.0], [0.0, 0.0]]], [[1.0, 2.0]]).unit_rows()
    np.testing.assert_allclose(tasks.X[0], [[0.6, 0.8], [0.0, 0.0]])


def test_an_intercept_is_a_last_feature_and_goes_with_its_rows(ragged):
    """An intercept is a last feature that goes wherever the rows go."""
    tasks, _, _ = ragged
    ours = tasks.with_intercept()
    assert ours.features == ("u", "v", "w", "intercept")
    for part in (ours, *ours.folds(2, seed=0)[0], ours.unit_rows(), jax.tree.map(np.asarray, ours)):
        assert part.intercept
        assert np.array_equal(part.X[..., -1], part.mask)
    np.testing.assert_allclose(np.linalg.norm(ours.unit_rows().X[ours.mask][:, :-1], axis=1), 1)
    frame = ours.to_pandas(task="school", target="mark")
    assert list(frame.columns) == ["school", "u", "v", "w", "mark"]
    again = TaskData.from_pandas(frame, task="school", target="mark", intercept=True)
    assert again.intercept
    np.testing.assert_array_equal(again.X, ours.X)
    with pytest.raises(ValueError, match="features: expected none named 'intercept' beside the intercept"):
        ours.with_intercept()


def test_a_split_leaves_an_intercept_two_rows_of_training():
    tasks = TaskData.from_lists([np.eye(3), np.ones((9, 3))], [np.ones(3), np.ones(9)]).with_intercept()
    train, test = tasks.split(0.1, seed=0)
    assert train.mask.sum(axis=1).tolist() == [2, 2]
    assert train.intercept
    assert test.intercept
    with pytest.raises(ValueError, match="tasks: expected 3 rows or more of each for a split, got 1 of 0"):
        test.split(0.5, seed=0)


def test_contrasts_are_helmerts_and_know_no_origin(ragged):
    tasks, X, y = ragged
    slopes = tasks.with_intercept().slopes
    assert slopes.features == tasks.features
    assert not slopes.intercept
    assert tasks.slopes is tasks
    for i in range(3):
        H = scipy.linalg.helmert(len(y[i]))
        own = slopes.rows_of(i)
        np.testing.assert_allclose(own[0], -H @ X[i], atol=1e-14)
        np.testing.assert_allclose(own[1], -H @ y[i], atol=1e-14)
        far = contrasts(X[i] + 2.0**20, y[i] - 2.0**20)
        np.testing.assert_allclose(far[0], own[0], atol=1e-8)
        np.testing.assert_allclose(far[1], own[1], atol=1e-8)
    assert not contrasts(np.full((7, 2), 0.1), np.full(7, 0.3))[0].any()
    assert [part.tolist() for part in contrasts(np.full((1, 2), 0.1), np.full(1, 0.3))] == [[[0, 0]], [0]]


def test_repr_tells_the_size_and_shows_no_row(ragged):
    tasks, _, _ = ragged
    assert repr(tasks) == "TaskData(3 tasks, 3 features, 12 rows, 2 to 6 per task)"


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([], [], "X: expected at least one task"),
        ([np.ones((2, 2))], [], "X and y: expected one entry per task"),
        ([np.ones((2, 2)), np.ones((0, 2))], [np.ones(2), np.ones(0)], "X: task 1 has no rows"),
        ([np.ones((2, 2)), np.ones((2, 3))], [np.ones(2), np.ones(2)], "X: task 1: expected 2 features"),
        ([np.ones((2, 2))], [np.ones(3)], "y: task 0: expected 2 targets"),
        ([np.full((2, 2), np.nan)], [np.ones(2)], "X: task 0: expected finite numbers, got 4 that are not"),
        ([np.ones((2, 2))], [np.array([1, np.inf])], "y: task 0: expected finite numbers, got 1 that are not"),
        ([np.ones(2)], [np.ones(2)], "X: task 0: expected a matrix"),
    ],
)
def test_bad_lists_are_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        TaskData.from_lists(X, y)


def test_bad_frames_are_named():
    frame = pd.DataFrame({"t": ["a", "b"], "x": [1.0, 2.0], "word": ["p", "q"], "y": [0.0, 1.0]})
    with pytest.raises(ValueError, match="task: no column 'school'"):
        TaskData.from_pandas(frame, task="school", target="y")
    with pytest.raises(
        ValueError, match="features: expected finite numbers, got others in 'word', the first of task 'a'"
    ):
        TaskData.from_pandas(frame, task="t", target="y")
    for column, argument in (("x", "features"), ("y", "target")):
        with pytest.raises(
            ValueError, match=rf"^{argument}: expected finite numbers, got others in '{column}', the first of task 'b'"
        ):
            TaskData.from_pandas(frame.assign(**{column: [1.0, np.nan]}), task="t", target="y", features=["x"])
    with pytest.raises(ValueError, match=r"features: expected a list of names, got the text 'x'; write \['x'\]"):
        TaskData.from_pandas(frame, task="t", target="y", features="x")
    with pytest.raises(ValueError, match=r"fraction: expected a number in \(0, 1\), got"):
        TaskData.from_pandas(frame, task="t", target="y", features=["x"]).split(1.0, seed=0)
    with pytest.raises(ValueError, match="tasks: expected 2 rows or more of each for a split, got 1 of 'a'"):
        TaskData.from_pandas(frame, task="t", target="y", features=["x"]).split(0.5, seed=0)


def test_predictions_are_linear_and_know_their_rows(ragged):
    tasks, X, _ = ragged
    W = np.arange(9.0).reshape(3, 3)
    prediction = linear_prediction(W, tasks)
    for i in range(3):
        np.testing.assert_allclose(prediction.mean[i][tasks.mask[i]], X[i] @ W[:, i])
    table = prediction.to_pandas()
    assert list(table.columns) == ["task", "row", "mean"]
    assert table["task"].tolist() == ["a"] * 4 + ["b"] * 2 + ["c"] * 6
    with pytest.raises(ValueError, match="this predictor gives points"):
        prediction.interval()
    with pytest.raises(ValueError, match="tasks: expected 3 features and 2 tasks"):
        linear_prediction(W[:, :2], tasks)


def test_intervals_are_central_quantiles(ragged):
    tasks, _, _ = ragged
    draws = np.random.default_rng(0).standard_normal((20_000, *tasks.y.shape))
    low, high = Prediction(np.zeros(tasks.y.shape), tasks.mask, tasks.tasks, draws).interval(0.8)
    np.testing.assert_allclose([low, high], [-1.2816 * tasks.mask, 1.2816 * tasks.mask], atol=0.05)
    with pytest.raises(ValueError, match="probability: expected"):
        Prediction(np.zeros(tasks.y.shape), tasks.mask, tasks.tasks, draws).interval(1.0)


LONG = pd.DataFrame(
    {"t": ["a", "a", "b", "b"], "x": [1.0, 2.0, 3.0, 4.0], "z": [0.0, 1.0, 0.0, 1.0], "y": [0.0, 1.0, 2.0, 3.0]}
)


@pytest.mark.parametrize(
    "task",
    [
        ["a", None, "b", None],
        ["a", np.nan, "b", pd.NA],
        [1.0, np.nan, 2.0, np.nan],
        pd.to_datetime(["2020", None, None, "2021"]),
    ],
)
def test_every_row_has_a_task(task):
    message = "task: expected a task for every row, got 2 without"
    with pytest.raises(ValueError, match=message):
        TaskData.from_pandas(LONG.assign(t=task), task="t", target="y")
    with pytest.raises(ValueError, match=message):
        TaskData.from_rows(LONG[["x", "z"]], LONG["y"], task)


def test_labels_of_tasks_are_of_one_kind():
    with pytest.raises(ValueError, match="task: expected labels of one kind"):
        TaskData.from_rows(LONG[["x", "z"]], LONG["y"], ["a", 1, "b", 2])
    assert TaskData.from_rows(LONG[["x", "z"]], LONG["y"], ["b", "b", "a", "a"]).tasks == ("b", "a")
    assert TaskData.from_pandas(LONG.assign(t=LONG["t"].astype("category")), task="t", target="y").tasks == ("a", "b")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"features": ["x", "y"]}, "features: expected none that is the target, got 'y'"),
        ({"t": [1, 1, 2, 2]}, {"features": ["x", "t"]}, "features: expected none that is the task, got 't'"),
        ({}, {"features": ["x", "x"]}, "features: expected distinct columns, got 'x' more than once"),
        ({}, {"target": "t"}, "target: expected another column than that of the tasks, got 't' for both"),
        ({"x": pd.Timestamp("2020")}, {}, "features: expected finite numbers, got others in 'x'"),
        ({"x": pd.Timestamp("2020", tz="UTC")}, {}, "features: expected finite numbers, got others in 'x'"),
        ({"y": pd.Timedelta(days=1)}, {}, "target: expected finite numbers, got others in 'y'"),
        ({"x": 1j}, {}, "features: expected finite numbers, got others in 'x'"),
    ],
)
def test_a_column_is_one_thing(change, options, message):
    with pytest.raises(ValueError, match=message):
        TaskData.from_pandas(LONG.assign(**change), **{"task": "t", "target": "y"} | options)


def test_names_of_columns_are_distinct():
    with pytest.raises(ValueError, match="features: expected distinct columns, got 'x' more than once"):
        TaskData.from_pandas(pd.concat([LONG, LONG[["x"]]], axis=1), task="t", target="y")
    with pytest.raises(ValueError, match="target: expected distinct columns, got 'y' more than once"):
        TaskData.from_pandas(pd.concat([LONG, LONG[["y"]]], axis=1), task="t", target="y")
    with pytest.raises(ValueError, match="features: expected distinct names, got a name twice"):
        TaskData.from_lists([np.eye(2)], [np.ones(2)], features=["x", "x"])


def test_other_things_than_tables_and_numbers_are_named():
    tasks = TaskData.from_pandas(LONG, task="t", target="y")
    with pytest.raises(ValueError, match="frame: expected a data frame, of pandas, polars or Arrow, got ndarray"):
        TaskData.from_pandas(LONG.to_numpy(), task="t", target="y")
    with pytest.raises(ValueError, match="fraction: expected a number, got 'a'"):
        tasks.split("a", seed=0)
    with pytest.raises(ValueError, match=r"seed: expected a whole number, got 1\.5"):
        tasks.split(0.5, seed=1.5)
    with pytest.raises(ValueError, match=r"k: expected a whole number, got 2\.5"):
        tasks.folds(2.5, 0)


def test_a_prediction_may_be_changed_in_part():
    whole = Prediction(np.ones((1, 2)), np.ones((1, 2), bool), ("a",), np.zeros((5, 1, 2)), around=np.full((1, 2), 1e9))
    part = dataclasses.replace(whole, mask=np.array([[True, False]]))
    np.testing.assert_array_equal(part.draws, np.full((5, 1, 1), 1e9))


def test_a_table_has_the_intervals_that_were_asked_for():
    draws = np.random.default_rng(0).standard_normal((200, 1, 2))
    prediction = Prediction(draws.mean(axis=0), np.ones((1, 2), bool), ("a",), draws)
    table, (low, high) = prediction.to_pandas(0.5), prediction.interval(0.5)
    np.testing.assert_array_equal(table[["lower", "upper"]], np.column_stack([low[0], high[0]]))


def test_rows_without_targets_are_predicted_and_not_fitted(ragged):
    tasks, X, _ = ragged
    frame = tasks.to_pandas(task="school", target="mark")
    ledger = mp.privacy.Ledger(epsilon=10.0, delta=0.1)
    fit = Ridge(0.1).fit(tasks)
    bare = frame.drop(columns="mark")
    kinds = {
        "lists": TaskData.from_lists(X, None, tasks=tasks.tasks, features=tasks.features),
        "rows": TaskData.from_rows(bare[["u", "v", "w"]], None, bare["school"]),
        "pandas": TaskData.from_pandas(bare, task="school", target=None),
        "chosen": TaskData.from_pandas(frame, task="school", target=None, features=["u", "v", "w"]),
        "split": TaskData.from_lists(X, None, tasks=tasks.tasks, features=tasks.features).folds(2, seed=0)[0][0],
    }
    for name, rows in kinds.items():
        assert not rows.has_targets
        assert "no targets" in repr(rows)
        known = tasks if name != "split" else tasks.folds(2, seed=0)[0][0]
        np.testing.assert_array_equal(fit.predict(rows).mean, fit.predict(known).mean)
        assert list(rows.to_pandas().columns) == ["task", "u", "v", "w"]
        for use in (
            Ridge(0.1).fit,
            partial(mp.release, epsilon=1.0, ledger=ledger),
            mp.NoiseAware(1.0, ledger=ledger, progress_bar=False).fit,
            mp.estimators.Lasso(0.1).fit,
            partial(mp.evaluation.nmse, fit.predict(rows)),
            operator.attrgetter("gram"),
        ):
            with pytest.raises(ValueError, match=r"^\w+: expected rows with targets, got rows made without"):
                use(rows)
        assert not ledger.charges()
    assert tasks.has_targets
    with pytest.raises(ValueError, match=r"^target: no column 'mark' among .*; in Python, .* take target=None"):
        TaskData.from_pandas(bare, task="school", target="mark")


def test_a_store_may_have_no_targets(ragged):
    tasks, _, _ = ragged
    data = xr.Dataset({"X": (("row", "feature"), tasks.X[tasks.mask]), "task": ("row", np.nonzero(tasks.mask)[0])})
    rows = TaskData.from_xarray(data.assign_coords(feature=list(tasks.features)), target=None)
    assert not rows.has_targets
    np.testing.assert_array_equal(rows.X, tasks.X)


def test_tables_give_their_names_to_tasks_and_features():
    X = pd.DataFrame({"age": [1.0, 2.0, 3.0], "dose": [0.0, 1.0, 0.5]})
    Y = pd.DataFrame({"liver": [1.0, 2.0, 3.0], "heart": [3.0, 2.0, 0.0]})
    tasks = TaskData.from_targets(X, Y)
    assert (tasks.tasks, tasks.features) == (("liver", "heart"), ("age", "dose"))
    assert TaskData.from_rows(X, Y["liver"], ["a", "a", "b"]).features == ("age", "dose")
    assert TaskData.from_lists([X, X], [Y["liver"], Y["heart"]]).features == ("age", "dose")
    renamed = TaskData.from_targets(X, Y, tasks=["l", "h"], features=["a", "d"])
    assert (renamed.tasks, renamed.features) == (("l", "h"), ("a", "d"))
    assert TaskData.from_targets(X.to_numpy(), Y.to_numpy()).features == (0, 1)
    with pytest.raises(ValueError, match=r"^X: expected the columns \['age', 'dose'\] in every task, in this order"):
        TaskData.from_lists([X, X[["dose", "age"]]], [Y["liver"], Y["heart"]])


def test_a_missing_target_names_the_argument_for_it():
    X, Y = np.eye(3), np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 6.0]])
    with pytest.raises(
        ValueError, match=r"^Y: expected finite numbers, got 1 cells with .*; observed=np.isfinite\(Y\)"
    ):
        TaskData.from_targets(X, Y)
    assert TaskData.from_targets(X, Y, np.isfinite(Y)).num_rows == 5
    mixed = pd.DataFrame({"a": [1, 2, 3], "b": [None, 5, 6]}, dtype=object)
    assert TaskData.from_targets(X, mixed, mixed.notna()).num_rows == 5


@pytest.mark.parametrize("cell", [None, np.nan, pd.NA, "high", pd.Timestamp("2020")], ids=str)
def test_a_cell_that_is_no_number_is_named_by_its_column(cell):
    """A column of objects was refused without its name, or with all others, wherever it came from."""
    X = pd.DataFrame({"age": [1.0, 2.0], "dose": pd.Series([0.5, cell], dtype=object)})
    y = np.ones(2)
    for make in (
        lambda: TaskData.from_lists([X], [y], tasks=["north"]),
        lambda: TaskData.from_lists([X.to_numpy()], [y], tasks=["north"], features=list(X)),
        lambda: TaskData.from_rows(X, y, ["north"] * 2),
        lambda: TaskData.from_targets(X, pd.DataFrame({"north": y})),
    ):
        with pytest.raises(
            ValueError, match=r"^X: task 'north': expected finite numbers, .* in feature 'dose'; leave rows"
        ):
            make()
    with pytest.raises(ValueError, match=r"^y: task 'north': expected finite numbers, got 1 that are not; leave rows"):
        TaskData.from_lists([np.eye(2)], [X["dose"]], tasks=["north"])
    with pytest.raises(ValueError, match=r"^features: expected finite numbers, got others in 'dose'"):
        TaskData.from_pandas(X.assign(t="north", y=y), task="t", target="y")


def test_columns_may_be_left_out_of_the_features():
    frame = pd.DataFrame(
        {"school": [1, 1, 2], "age": [1.0, 2, 3], "mark": [0.0, 1, 2], "note": ["a", "b", "c"], "dose": [3.0, 1, 2]}
    )
    made = lambda **chosen: TaskData.from_pandas(frame, task="school", target="mark", **chosen)
    assert made(exclude=["note"]).features == ("age", "dose")
    assert made(features=["dose"], exclude=["note", "age"]).features == ("dose",)
    for wrong, message in (
        ({"exclude": ["notes"]}, "exclude: no column 'notes' among the frame's 5"),
        ({"exclude": "note"}, r"exclude: expected a list of names, got the text 'note'; write \['note'\]"),
        ({"exclude": ["mark"]}, "exclude: expected columns that would be features, got 'mark'"),
        ({"exclude": ["school"]}, "exclude: expected columns that would be features, got 'school'"),
        (
            {"features": ["age", "dose"], "exclude": ["dose"]},
            "exclude: expected none of the features .*, got 'dose' in both",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            made(**wrong)
