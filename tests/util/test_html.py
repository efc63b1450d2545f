"""Notebook displays: facts and guarantees, escaped, and nothing private."""

from dataclasses import replace

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.estimators import LowRank, RowProtection

ROWS = np.random.default_rng(0).standard_normal((6, 8, 4))


def tasks_of(rows):
    return TaskData.from_lists(list(rows[..., :3]), list(rows[..., 3]), features=["a", "<b>", "c"])


@pytest.fixture(scope="module")
def tasks():
    return tasks_of(ROWS)


def private_fit(tasks):
    estimator = LowRank(penalty=0.1, epsilon=1.0, clip=1.0, rounds=1, curvature=50.0, rows=RowProtection(5.0))
    return estimator.fit(tasks)


def test_tables_of_two_data_sets_read_alike(tasks):
    others = tasks_of(np.random.default_rng(1).standard_normal(ROWS.shape))
    for show in (
        lambda data: data,
        lambda data: mp.release(data, epsilon=1.0),
        lambda data: replace(private_fit(data), seconds=0.0),
    ):
        one, other = show(tasks)._repr_html_(), show(others)._repr_html_()
        assert one.startswith("<div")
        assert one == other


def test_every_result_shows_its_guarantee(tasks):
    """Every result shows its guarantee, with claimed and proved apart."""
    fitted = private_fit(tasks)
    html = fitted._repr_html_()
    for line in (fitted.guarantee.proved, fitted.guarantee.claimed, fitted.row_guarantee.proved):
        assert str(line) in html
    assert "claimed by the papers" in html
    assert str(fitted.guarantee.proved) in fitted.release._repr_html_()
    assert "nothing" in LowRank(penalty=0.1, epsilon=None, rounds=1).fit(tasks)._repr_html_()


def test_names_are_escaped(tasks):
    assert "&lt;b&gt;" in tasks._repr_html_()
    assert "<b>," not in tasks._repr_html_()


def test_posteriors_say_whose_they_are(tasks):
    shared = mp.inference.shared_covariance(
        mp.release(tasks, epsilon=1.0), chains=2, warmup=200, draws=20, progress_bar=False
    )
    own = mp.inference.task_posteriors(tasks, shared, chains=1, draws=10)
    assert "public" in shared._repr_html_()
    assert "r-hat" in shared._repr_html_()
    assert "its own column" in own._repr_html_()
    assert str(own.guarantee.proved) in own._repr_html_()
