"""Cells of a private table, converted one by one: no record's type, text or container changes how another is read.

Names of tasks are public. :func:`label_text` is the one rule by which they are compared.

A table may be an array, a data frame of any kind that narwhals knows, or a list of rows. NumPy and pandas read a whole column
at once and choose one type that suits every cell. A single text among durations then turns all the others from numbers into
objects, so that a result computed from the *other* records shows that this one is there. Here :func:`as_number` decides for
every cell alone. Whole columns are converted at once only where their type guarantees the same result.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Words for a truth value, as pandas reads them in a CSV file.
_TRUTH = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
#: Kinds of NumPy arrays whose cells become doubles one by one: booleans, integers and floating-point numbers.
_NUMERIC = "biuf"
#: Whole numbers up to here are doubles without an error.
_WHOLE = 2**53
#: Characters that text in a file cannot hold: NUL, and one half of a surrogate pair of UTF-16.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


def as_number(cell: Any) -> float:
    """Return a cell as a double, or NaN if it is not a number: a date, a duration, a missing value, other text.

    Truth values are 1 and 0, also as words. Text is read as Python reads it. A complex number needs no imaginary part.
    """
    try:
        if isinstance(cell, str):
            return _TRUTH[cell] if cell in _TRUTH else float(cell)
        if isinstance(cell, np.datetime64 | np.timedelta64):  # float() accepts some of their units and refuses others
            return np.nan
        if isinstance(cell, complex | np.complexfloating):
            return float(cell.real) if cell.imag == 0 else np.nan
        return float(cell)
    except Exception:  # a cell may be any object, and its error would reveal it
        return np.nan


def numbers_of_text(cells: Sequence[str]) -> list[float]:
    """Return :func:`as_number` of each of a few texts, quickly where all are numbers, as in most lines of a file."""
    try:
        return list(map(float, cells))
    except ValueError:
        return list(map(as_number, cells))


def as_numbers(column: Any) -> NDArray[np.float64]:
    """Return the cells of one column, (n,), as doubles; see :func:`as_number`."""
    column = cells_of(column)
    if isinstance(getattr(column, "dtype", None), np.dtype) and column.dtype.kind in _NUMERIC:
        with np.errstate(all="ignore"):  # a warning would reveal something of one record
            values = np.array(column, dtype=np.float64)
            if isinstance(column, np.ma.MaskedArray):
                values[np.ma.getmaskarray(column)] = np.nan  # a masked cell is missing
            return values
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.fromiter(map(as_number, column), dtype=np.float64)


def cells_of(column: Any) -> Any:
    """Convert a column that narwhals has read to a list or an array; return any other column as it is."""
    if not (hasattr(column, "to_list") and hasattr(column, "implementation")):
        return column
    return column.to_numpy() if column.dtype.is_float() and not column.null_count() else column.to_list()


def as_matrix(name: str, table: Any, num_columns: int | None = None) -> NDArray[np.float64]:
    """Return a table's cells as doubles, (records, columns).

    Args:
        name: name of the argument, for the error.
        table: a data frame, a two-dimensional array, or a sequence of rows.
        num_columns: number of columns, which is public. The default for a sequence of rows is the most common length. A row
            of another length becomes a row of NaN, because an error would reveal it.

    Raises:
        ValueError: the value is not a table, for example an array of one dimension. The shape of an array is public.
    """
    if is_frame(table):
        columns = [as_numbers(column) for _, column in frame_columns(table)]
        return np.column_stack(columns) if columns else np.zeros((len(table), 0))
    if hasattr(table, "__array__") or hasattr(table, "shape"):
        array = np.asanyarray(table)
        if array.ndim != 2:
            raise ValueError(f"{name}: expected shape (records, features), got {array.shape}")
        return as_numbers(array.ravel()).reshape(array.shape)
    if not isinstance(table, Sequence) or isinstance(table, str | bytes):
        raise ValueError(f"{name}: expected a table or an array, got {type(table).__name__}")
    rows = [_row(row) for row in table]
    d = Counter(map(len, rows)).most_common(1)[0][0] if num_columns is None and rows else num_columns or 0
    matrix = np.full((len(rows), d), np.nan)
    for record, row in zip(matrix, rows, strict=True):
        if len(row) == d:
            record[:] = as_numbers(row)
    return matrix


def as_vector(name: str, column: Any) -> NDArray[np.float64]:
    """Return one column's cells as doubles, (n,). Raises ValueError for anything else, such as a matrix."""
    if hasattr(column, "__array__") or hasattr(column, "shape"):
        shape = np.shape(column)
        if len(shape) != 1:
            raise ValueError(f"{name}: expected one number per record, shape (records,), got {shape}")
    elif not isinstance(column, Sequence) or isinstance(column, str | bytes):
        raise ValueError(f"{name}: expected a column or an array, got {type(column).__name__}")
    return as_numbers(column)


def label_text(label: Hashable) -> str:
    """Return the text that stands for a task's name in comparisons and in files.

    Text is stripped of blanks around it and brought to Unicode's normal form C. Whole numbers, also floating-point ones up to
    2^53, become their decimal digits. Dates are in ISO form, and midnight is written as the day. So 7, 7.0, "7" and " 7" are
    one name, and "007" is another.
    """
    if isinstance(label, np.generic) and not isinstance(label, np.datetime64 | np.timedelta64):
        label = label.item()
    if isinstance(label, str):
        return unicodedata.normalize("NFC", label).strip()
    if isinstance(label, float) and label.is_integer() and abs(label) <= _WHOLE:
        return str(int(label))
    if isinstance(label, np.datetime64):
        short = label.astype("datetime64[us]")
        label = short.item() if short == label else np.datetime_as_string(label)
    if isinstance(label, datetime):
        return label.isoformat().removesuffix("T00:00:00")
    if isinstance(label, date):
        return label.isoformat()
    return str(label)


def check_labels(name: str, labels: Iterable[Hashable]) -> None:
    """Raise ValueError for names of tasks that :func:`check_spelling` refuses, and for a fractional number.

    Args:
        name: name of the argument, for the error.
        labels: the names, each once.
    """
    labels = tuple(labels)
    for label in labels:
        if isinstance(label, float | np.floating) and not (label.is_integer() and abs(float(label)) <= _WHOLE):
            raise ValueError(f"{name}: expected names that are text, whole numbers or dates, got {float(label)!r}")
    check_spelling(name, "task", labels)


def check_spelling(name: str, kind: str, labels: Iterable[Hashable]) -> None:
    """Raise ValueError for two spellings of one name, and for a name that no file can hold.

    Args:
        name: name of the argument, for the error.
        kind: the kind of names, "task" or "feature", for the error.
        labels: the names, each once.
    """
    seen: dict[str, Hashable] = {}
    for label in labels:
        text = label_text(label)
        if _UNWRITABLE.search(text):
            raise ValueError(
                f"{name}: expected names without NUL and half characters, which no file holds, got {label!r}"
            )
        first = seen.setdefault(text, label)
        if first is not label and (type(first) is not type(label) or first != label):
            raise ValueError(
                f"{name}: expected one spelling of every {kind}'s name, got {first!r} and {label!r}, which are the same name"
            )


def is_frame(table: Any) -> bool:
    """Return True for a data frame of a kind that narwhals knows, with its rows in memory."""
    from narwhals import dependencies

    return bool(dependencies.is_into_dataframe(table))


def frame_columns(frame: Any) -> list[tuple[Hashable, Any]]:
    """Return (name, column) of every column of a data frame, in order: pandas series, or narwhals series for other kinds.

    Raises:
        ValueError: the frame cannot be read, for example because two columns outside pandas have one name.
    """
    import narwhals

    if narwhals.dependencies.is_pandas_dataframe(frame):  # in pandas, names may be any objects, and may repeat
        return [(name, frame.iloc[:, j]) for j, name in enumerate(frame.columns)]
    try:
        table = narwhals.from_native(frame, eager_only=True)
    except (TypeError, ValueError):
        raise ValueError(
            f"frame: expected a data frame with columns of different names, got {type(frame).__name__}"
        ) from None
    return [(column.name, column) for column in table.iter_columns()]


def column_names(table: Any) -> tuple[Hashable, ...]:
    """Return the names of a data frame's columns; an empty tuple for a table without names."""
    return tuple(name for name, _ in frame_columns(table)) if is_frame(table) else ()


def _row(row: Any) -> list[Any]:
    """Return the cells of one record; an empty list for anything that is not a row."""
    try:
        return [] if isinstance(row, str | bytes) else list(row)
    except Exception:  # a record may be any object
        return []


def file_name(feature: Hashable) -> Hashable:
    """Return a feature's name as a file can hold it."""
    if isinstance(feature, np.generic):
        feature = feature.item()
    return feature if isinstance(feature, str | int | float | bool) else str(feature)
