"""Exposure and weights of rows: where they come from, and that nothing passes them over without a word."""

import numpy as np
import pandas as pd
import pytest

import mpmtl_prob as mp

FRAME = pd.DataFrame(
    {
        "ward": ["b", "a", "b", "a", "b"],
        "age": [1.0, 2.0, 3.0, 4.0, 5.0],
        "falls": [0, 1, 2, 0, 1],
        "days": [10.0, 20.0, 30.0, 40.0, 50.0],
        "weight": [1.0, 2.0, 1.0, 2.0, 1.0],
    }
)


def tasks() -> mp.TaskData:
    return mp.TaskData.from_pandas(FRAME, task="ward", target="falls", exposure="days", weights="weight")


def test_exposure_and_weights_are_no_features() -> None:
    """Columns of exposure and weights are no features, and go with their rows."""
    made = tasks()
    assert made.features == ("age",)
    own = made.observations_of(1)
    np.testing.assert_array_equal(own.X[:, 0], [2.0, 4.0])
    np.testing.assert_array_equal(own.exposure, [20.0, 40.0])
    np.testing.assert_array_equal(own.weights, [2.0, 2.0])


@pytest.mark.parametrize("part", ["take", "split", "where"])
def test_parts_of_tasks_keep_the_exposure_of_their_rows(part: str) -> None:
    made = tasks()
    cut = {
        "take": lambda: made.take([1]),
        "split": lambda: made.split(0.5, seed=0)[1],
        "where": lambda: made.where(made.rows[:, 0] > 1),
    }[part]()
    assert cut.exposure is not None
    np.testing.assert_array_equal(cut.exposure, 10 * cut.rows[:, 0])


def test_rows_without_either_have_ones() -> None:
    own = mp.TaskData.from_lists([np.ones((3, 2))], [np.arange(3.0)]).observations_of(0)
    np.testing.assert_array_equal([own.exposure, own.weights], np.ones((2, 3)))


def test_exposure_may_be_given_task_by_task() -> None:
    made = tasks().with_exposure([[1.0, 2.0, 3.0], [4.0, 5.0]])
    np.testing.assert_array_equal(made.observations_of(1).exposure, [4.0, 5.0])


@pytest.mark.parametrize("given", [[1.0] * 4, [1.0, 1.0, 0.0, 1.0, 1.0], [1.0, 1.0, np.nan, 1.0, 1.0], [[1.0], [2.0]]])
@pytest.mark.parametrize("name", ["exposure", "weights"])
def test_what_is_no_positive_number_for_every_row_is_refused(name: str, given: list[float]) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected"):
        getattr(tasks(), f"with_{name}")(given)


@pytest.mark.parametrize("wrong", ["gone", "age", "falls", "ward"])
def test_a_column_that_means_something_else_is_no_exposure(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"exposure: |features: "):
        mp.TaskData.from_pandas(FRAME, task="ward", target="falls", features=["age"], exposure=wrong)


@pytest.mark.parametrize("column", ["exposure", "weights"])
@pytest.mark.parametrize(
    "fit",
    [
        lambda data: mp.release(data, epsilon=1.0, delta=0.1, message="direction"),
        lambda data: mp.estimators.Ridge(1.0).fit(data),
        lambda data: mp.estimators.LowRank(0.1).fit(data),
        lambda data: mp.estimators.RidgeLogistic(0.1).fit(data),
        lambda data: mp.release(data.with_intercept(), epsilon=1.0, delta=0.1, message="clip", clip=1.0),
    ],
)
def test_what_knows_no_exposure_or_weights_refuses_them(column: str, fit) -> None:
    rng = np.random.default_rng(0)
    made = mp.TaskData.from_lists(rng.standard_normal((4, 6, 2)), rng.integers(0, 2, (4, 6)) * 2.0 - 1)
    given = getattr(made, f"with_{column}")(np.full(24, 2.0))
    with pytest.raises(ValueError, match=column):
        fit(given)


def test_a_ledger_tells_other_exposures_from_these() -> None:
    made = tasks()
    parts = [
        [b"".join(chunks) for _, _, chunks in data.fingerprint_parts()]
        for data in (made, made.with_exposure(np.ones(5)))
    ]
    assert parts[0] != parts[1]
