"""A cell is read by itself, whatever the others are; names of tasks are one name however they are spelled."""

import datetime as dt
import decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpmtl_prob import TaskData
from mpmtl_prob.adaptation import Domain
from mpmtl_prob.data.cells import as_matrix, as_number, as_numbers, as_vector, check_labels, column_names, label_text
from mpmtl_prob.releases import terms

NUMBERS = [
    (1, 1.0), (True, 1.0), (np.bool_(False), 0.0), ("1.5", 1.5), (" 7 ", 7.0), ("True", 1.0), ("false", 0.0), (b"2", 2.0),
    (np.float32(0.1), float(np.float32(0.1))), (decimal.Decimal("0.1"), 0.1), (Fraction(1, 4), 0.25), (3 + 0j, 3.0),
    (np.complex64(3), 3.0), (2**70, 2.0**70), ("-inf", -np.inf), (np.longdouble("0.1"), 0.1),
]  # fmt: skip
OTHERS = [
    "unknown", "", "1,5", None, pd.NA, pd.NaT, np.nan, dt.timedelta(1), np.timedelta64(3, "ns"), np.timedelta64(3, "D"),
    np.datetime64("2020"), dt.date(2020, 1, 1), pd.Timestamp("2020"), pd.Timedelta("1D"), 1 + 1j, np.complex64(1j), 10**400,
    [1.0], {}, object(), np.ma.masked,
]  # fmt: skip


@pytest.mark.parametrize(("cell", "number"), NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_a_number_is_read_as_python_reads_it(cell, number):
    assert as_number(cell) == number


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cell", OTHERS, ids=lambda cell: type(cell).__name__)
def test_anything_else_is_no_number(cell):
    column = np.empty(2, dtype=object)
    column[:] = [cell, 0.5]
    np.testing.assert_array_equal(as_numbers(column), [np.nan, 0.5])


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False)), min_size=1))
def test_a_whole_column_is_what_its_cells_are(values):
    for column in (np.array(values), pd.Series(values)):
        expected = [as_number(cell) for cell in column.tolist()]
        np.testing.assert_array_equal(as_numbers(column), expected)


def test_durations_are_numbers_in_no_unit_and_no_container():
    for unit in ("ns", "s", "D"):
        days = np.array([3, 4], dtype=f"m8[{unit}]")
        for column in (days, pd.Series(days), list(days), days.astype(object) if unit != "ns" else days):
            assert np.isnan(as_vector("y", column)).all()


def test_a_masked_cell_is_missing():
    column = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
    np.testing.assert_array_equal(as_numbers(column), [1.0, np.nan, 3.0])


def test_a_row_of_another_length_is_one_record():
    rows = [[1.0, 2.0], [3.0], [4.0, 5.0], [6.0, 7.0, 8.0], "ab", None]
    expected = np.full((6, 2), np.nan)
    expected[0], expected[2] = [1.0, 2.0], [4.0, 5.0]
    np.testing.assert_array_equal(as_matrix("X", rows), expected)
    wide = as_matrix("X", rows, num_columns=3)
    assert wide.shape == (6, 3)
    np.testing.assert_array_equal(wide[3], [6.0, 7.0, 8.0])
    assert np.isnan(np.delete(wide, 3, axis=0)).all()


def test_what_is_no_table_is_named():
    for value, message in (
        (np.ones(3), r"^X: expected shape \(records, features\), got \(3,\)"),
        ("text", "^X: expected a table or an array, got str"),
        (7.0, "^X: expected a table or an array, got float"),
    ):
        with pytest.raises(ValueError, match=message):
            as_matrix("X", value)
    with pytest.raises(ValueError, match=r"^y: expected one number per record, shape \(records,\), got \(3, 1\)"):
        as_vector("y", np.ones((3, 1)))


def test_names_of_columns_are_not_the_cells_of_an_arrow_table():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"age": [1.0, 2.0], "dose": [3.0, 4.0]})
    assert column_names(table) == column_names(table.to_pandas()) == ("age", "dose")
    assert column_names(np.ones((2, 2))) == ()
    np.testing.assert_array_equal(as_matrix("X", table), [[1.0, 3.0], [2.0, 4.0]])


SAME = [
    (7, "7", " 7 ", 7.0, np.int8(7), np.uint64(7), np.float32(7)),
    ("Zoë", "Zoe\u0308"),
    (2**53, float(2**53)),
    (dt.date(2020, 1, 2), dt.datetime(2020, 1, 2), np.datetime64("2020-01-02"), np.datetime64("2020-01-02", "ns"),
     pd.Timestamp("2020-01-02"), "2020-01-02"),
    (dt.datetime(2020, 1, 2, 3, 4, 5), np.datetime64("2020-01-02T03:04:05", "ns"), "2020-01-02T03:04:05"),
    (True, "True", np.bool_(True)),
]  # fmt: skip


@pytest.mark.parametrize("names", SAME, ids=lambda names: repr(names[0]))
def test_one_name_has_many_spellings(names):
    assert {label_text(name) for name in names} == {label_text(names[-1])}
    with pytest.raises(ValueError, match=r"^tasks: expected one spelling of every task's name"):
        check_labels("tasks", names[:2])


def test_other_names_are_others():
    names = [
        "007",
        "07",
        "7",
        "1E2",
        "100",
        "NA",
        "None",
        "nan",
        "a",
        "A",
        "Z",
        dt.datetime(2020, 1, 2, 3),
        dt.date(2020, 1, 2),
    ]
    assert len({label_text(name) for name in names}) == len(names)
    check_labels("tasks", names)


@pytest.mark.parametrize("name", [0.5, np.nan, np.inf, 2.0**60, np.float32(0.1)])
def test_a_fraction_is_no_name(name):
    with pytest.raises(ValueError, match=r"^tasks: expected names that are text, whole numbers or dates"):
        TaskData.from_lists([np.eye(2)] * 2, [np.ones(2)] * 2, tasks=["a", name])


def test_days_stay_days_whatever_pandas_counts_them_in():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "z": [0.0, 1.0, 0.0], "y": [0.0, 1.0, 2.0]})
    days = ["2020-01-02", "2020-01-02", "2021-05-06"]
    tasks = [
        TaskData.from_pandas(frame.assign(day=np.array(days, dtype=f"M8[{unit}]")), task="day", target="y").tasks
        for unit in ("s", "us", "ns")
    ]
    assert tasks[0] == tasks[1] == tasks[2] == (dt.datetime(2020, 1, 2), dt.datetime(2021, 5, 6))


@pytest.mark.parametrize("name", ["a\0b", "\0", "half \ud800", np.str_("a\0b")], ids=ascii)
def test_a_name_that_no_file_holds_is_refused(name):
    with pytest.raises(ValueError, match=r"^tasks: expected names without NUL and half characters"):
        TaskData.from_lists([np.eye(2)] * 2, [np.ones(2)] * 2, tasks=["a", name])
    with pytest.raises(ValueError, match=r"^features: expected names without NUL and half characters"):
        TaskData.from_lists([np.eye(2)], [np.ones(2)], features=["a", name])
    with pytest.raises(ValueError, match=r"^features: expected names without NUL and half characters"):
        terms(1.0, 10, ["a", name])


@pytest.mark.parametrize("names", [(1, "1"), (2.0, "2"), ("a", " a")], ids=repr)
def test_a_feature_has_one_spelling(names):
    """A file holds both as one text."""
    with pytest.raises(ValueError, match=r"^features: expected one spelling of every feature's name"):
        TaskData.from_lists([np.eye(2)], [np.ones(2)], features=names)
    assert TaskData.from_lists([np.eye(2)], [np.ones(2)], features=[0.5, 0.25]).features == (0.5, 0.25)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_frame_of_any_kind_is_read_alike(kind):
    """Numbers, truth values, text, missing cells and dates, each cell by itself; tasks keep the names that they have."""
    library = pytest.importorskip(kind)
    cells = {
        "site": ["b", "b", "a", "a"],
        "dose": [1.5, 2.5, 0.5, 1.0],
        "smokes": [True, False, True, True],
        "count": ["3", "1", "2", "2"],
        "days": [1, 2**60 + 1, 3, 4],
    }
    make = library.table if kind == "pyarrow" else library.DataFrame
    tasks = TaskData.from_pandas(make(cells), task="site", target="days")
    assert tasks.tasks == ("b", "a")
    assert tasks.features == ("dose", "smokes", "count")
    np.testing.assert_array_equal(tasks.rows_of(0)[0], [[1.5, 1.0, 3.0], [2.5, 0.0, 1.0]])
    assert tasks.rows_of(0)[1].tolist() == [1.0, 2.0**60]
    with pytest.raises(
        ValueError, match=r"features: expected finite numbers, got others in 'dose', the first of task 'a'"
    ):
        TaskData.from_pandas(make(cells | {"dose": [1.5, 2.5, None, 1.0]}), task="site", target="days")
    private = Domain(make({"a": [1.0, None], "b": ["x", "2"]}), [1.0, 2.0])
    assert private.features == ("a", "b")
    np.testing.assert_array_equal(private.X, [[1.0, np.nan], [np.nan, 2.0]])
