"""What notebooks show: facts and guarantees, escaped, and nothing private."""

import re

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.estimators import LowRank, RowProtection


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    return TaskData.from_lists(
        list(rng.standard_normal((6, 8, 3))), list(rng.standard_normal((6, 8))), features=["a", "<b>", "c"]
    )


def numbers(html):
    return {abs(float(x)) for x in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", html)}


def test_tables_show_no_rows_weights_or_noise(tasks):
    release = mp.release(tasks, epsilon=1.0)
    fitted = LowRank(penalty=0.1, epsilon=1.0, clip=1.0, rounds=2, curvature=50.0, rows=RowProtection(5.0)).fit(tasks)
    for shown, private in ((tasks, tasks.X), (tasks, tasks.y), (release, release.sigma), (fitted, fitted.W)):
        html = shown._repr_html_()
        assert html.startswith("<div")
        hidden = {round(abs(float(x)), digits) for x in private.ravel() for digits in (2, 3, 4)}
        public = numbers(str(shown.guarantee)) if hasattr(shown, "guarantee") else set()
        rows = numbers(str(shown.row_guarantee)) if hasattr(shown, "row_guarantee") else set()
        assert not (numbers(html) - {0.5, 0.9, 0.7} - public - rows) & hidden


def test_the_guarantee_is_on_every_result_claimed_and_proved_apart(tasks):
    fitted = LowRank(penalty=0.1, epsilon=1.0, clip=1.0, rounds=2, curvature=50.0, rows=RowProtection(5.0)).fit(tasks)
    html = fitted._repr_html_()
    for line in (fitted.guarantee.proved, fitted.guarantee.claimed, fitted.row_guarantee.proved):
        assert str(line) in html
    assert "claimed by the papers" in html
    assert str(fitted.guarantee.proved) in fitted.release._repr_html_()
    assert "nothing" in LowRank(penalty=0.1, epsilon=None).fit(tasks)._repr_html_()


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
