"""Malformed input to the release path, generated: always a named error, nothing charged, nothing drawn, nothing written.

Hundreds of examples by default, thousands as evidence, and a million by
``MALFORMED=1000000 pytest tests/releases/test_malformed.py``.
"""

import os
import re

import numpy as np
import pytest
from helpers.effort import effort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpmtl_prob import TaskData
from mpmtl_prob.privacy import Gaussian, Ledger, Wishart
from mpmtl_prob.privacy.mechanisms import exact
from mpmtl_prob.releases import release

EXAMPLES = int(os.environ.get("MALFORMED", effort(250, 3000)))

W = np.random.default_rng(0).standard_normal((3, 8))
BOOK = Ledger(epsilon=100.0, delta=0.5)

not_positive = st.one_of(
    st.sampled_from([0, 0.0, -0.0, -1, np.nan, np.inf, -np.inf, None, "one", "", [], (), {}, object(), b"1", 1j]),
    st.floats(max_value=0, allow_nan=False),
)
CHOICES = (
    "direction",
    "clip",
    "effects",
    "replace",
    "zero_out",
    "pareto",
    "unit_variance",
    "none",
    "calibrated",
    "paper",
)
not_a_choice = st.one_of(
    st.text(max_size=8).filter(lambda text: text not in CHOICES),
    st.sampled_from([None, 0, 1.5, b"clip", ("replace",)]),
)
not_finite = st.sampled_from([np.nan, np.inf, -np.inf])


@st.composite
def bad_matrices(draw):
    """Messages that are no finite d x m matrix."""
    kind = draw(st.sampled_from(["value", "shape", "empty", "type"]))
    if kind == "value":
        bad = np.array(W)
        bad[draw(st.integers(0, 2)), draw(st.integers(0, 7))] = draw(not_finite)
        return bad
    if kind == "shape":
        shape = draw(st.lists(st.integers(1, 3), max_size=4).filter(lambda sizes: len(sizes) != 2))
        return np.full(shape, draw(st.floats(-1e6, 1e6)))
    if kind == "empty":
        return np.zeros(draw(st.sampled_from([(0, 4), (4, 0), (0, 0)])))
    return draw(st.sampled_from([None, "W", {"W": 1}, [[1.0, "x"]], [[1.0], [1.0, 2.0]], object(), [[None]], 7.0]))


change = st.one_of(
    st.tuples(st.just("source"), bad_matrices()),
    st.tuples(st.just("epsilon"), not_positive),
    st.tuples(
        st.just("delta"), st.one_of(not_positive.filter(lambda value: value is not None), st.floats(min_value=1))
    ),
    st.tuples(st.just("message"), not_a_choice.filter(lambda value: value is not None)),
    st.tuples(st.just("adjacency"), not_a_choice),
    st.tuples(st.just("scaling"), not_a_choice.filter(lambda value: value is not None)),
    st.tuples(st.just("mechanism"), not_a_choice),
    st.tuples(
        st.just("mechanism"),
        st.builds(lambda d, clip: Wishart(d, d + 4.0, 1.0, clip), st.integers(4, 9), st.floats(0.1, 5)),
    ),
    st.tuples(st.just("mechanism"), st.builds(lambda d: Gaussian(d, 1.0), st.integers(4, 9))),
    st.tuples(st.just("clip"), st.one_of(not_positive, st.sampled_from(["median", np.ones(8), W]))),
    st.tuples(st.just("ledger"), st.sampled_from(["ledger.db", 3, object(), {}])),
    st.tuples(st.just("unsafe_seed"), st.integers(0, 10)),  # with a ledger
)


TRIED = []


def attempt(name, value):
    arguments = {"source": W, "epsilon": 1.0, "delta": 1e-3, "ledger": BOOK, name: value}
    if name == "clip":
        arguments["message"] = "clip"
    source = arguments.pop("source")
    return release(source, arguments.pop("epsilon"), arguments.pop("delta"), **arguments)


@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(bad=change)
def malformed(bad):
    name, value = bad
    TRIED.append(name)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is examined
        attempt(name, value)
    text = str(error.value)
    assert re.match(rf"{name}: ", text), text
    assert len(text) < 300  # it names the trouble, it does not pour out the data


def test_malformed_input_is_named_and_nothing_is_charged(tmp_path, monkeypatch):
    """Malformed input is a named error, and nothing is charged, drawn or written."""
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr(exact, "source", lambda *_: drawn.append(1))
    malformed()
    assert len(TRIED) >= EXAMPLES  # the generator did not run dry
    assert len(set(TRIED)) == 10  # every argument had its turn
    assert BOOK.charges() == []
    assert drawn == []
    assert os.listdir(tmp_path) == []


def test_the_input_that_they_spoil_is_good():
    assert attempt("epsilon", 1.0).guarantee.proved.delta <= 1e-3
    assert attempt("clip", 2.0).mechanisms[0].clip == 2.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["X", "y"])
def test_rows_that_are_not_finite_are_counted_and_not_shown(bad, part):
    X, y = [np.ones((4, 2)), np.full((3, 2), 7.25)], [np.ones(4), np.full(3, 7.25)]
    {"X": X, "y": y}[part][1][0] = bad
    with pytest.raises(ValueError, match=rf"^{part}: task 1: expected finite numbers, got \d that are not"):
        TaskData.from_lists(X, y)


@pytest.mark.parametrize(
    ("X", "y", "name"),
    [
        ([], [], "X"),
        ([np.ones((0, 2))], [np.ones(0)], "X"),
        ([np.ones((3, 2)), np.ones((3, 4))], [np.ones(3), np.ones(3)], "X"),
        ([np.ones((3, 2))], [np.ones(2)], "y"),
        ([np.ones((3, 2))], [np.ones(3), np.ones(3)], "X and y"),
    ],
)
def test_tasks_without_rows_or_with_other_features_are_refused(X, y, name):
    with pytest.raises(ValueError, match=f"^{name}: "):
        TaskData.from_lists(X, y)
