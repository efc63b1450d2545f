"""File helpers: atomic writing, errors for files with other contents, NetCDF, and CSV tables read line by line."""

from __future__ import annotations

import csv
import errno
import json
import os
import stat
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


#: Errors from reading a file that this library did not write. A broken file may raise others.
FOREIGN = (OSError, KeyError, TypeError, json.JSONDecodeError)
#: Separators that some programs write instead of commas, with their names for errors.
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, private: bool) -> Iterator[str]:
    """Yield a temporary path to write to; it replaces ``path`` once all went well, and an older file stays until then.

    A path that is a link is written through: the link stays, and what it leads to is replaced.

    Args:
        path: of the file.
        private: only the owner of the file may read it, from the first byte on and whatever the umask is (mode 0600). Without
            it the umask decides. Private are rows, models that depend on them, and results that show whether a guess about
            rows was right. Not private are results with a privacy proof, simulations, and public data.
    """
    path = os.path.realpath(path)
    unfinished = f"{path}.{os.getpid()}.unfinished"
    try:
        if private:
            _empty_for_its_owner(unfinished)
        yield unfinished
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def _empty_for_its_owner(path: str) -> None:
    """Make an empty file that nobody else can open; a process that has an older file open keeps only that one."""
    with suppress(FileNotFoundError):
        os.remove(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(handle)
    os.chmod(path, 0o600)  # the umask may have removed the owner's own permissions


def check_place(name: str, path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless a file can be written at this path, before any budget is spent on its contents."""
    reason = "it is a folder"
    if not os.path.isdir(path):
        try:
            probe = f"{os.path.realpath(path)}.{os.getpid()}.probe"  # not that of atomic_write, which may be at work
            open(probe, "w").close()
            os.remove(probe)
            return
        except OSError as error:
            reason = str(error.strerror)
    raise ValueError(f"{name}: expected a place for a file, got {os.fspath(path)!r}: {reason}")


@contextmanager
def holding(
    what: str, path: str | os.PathLike[str], *, name: str = "path", foreign: tuple[type[Exception], ...] = FOREIGN
) -> Iterator[None]:
    """Turn errors of reading a file with other contents into a ValueError that says what was expected of the file.

    A missing file still raises FileNotFoundError, and one without permission PermissionError.

    Args:
        what: the contents that the file should have.
        path: of the file.
        name: of the argument.
        foreign: errors that a file with other contents raises.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except foreign as error:
        raise ValueError(f"{name}: {os.fspath(path)!r} holds no {what} of mpmtl_prob") from error


def check_there(path: str | os.PathLike[str]) -> None:
    """Raise FileNotFoundError for a missing file, as HDF5's own error is hard to read."""
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))


class Slabs(NamedTuple):
    """Floating-point variable that is written to a NetCDF file part by part, as xarray would write the whole.

    Attributes:
        name: of the variable.
        dims: names of its dimensions.
        shape: of the whole variable.
        dtype: of its numbers.
        attributes: of the variable.
        chunks: shape of the compressed chunks; () for an empty variable.
        slabs: pairs of a place in the variable and its values, produced one after another.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]
    chunks: tuple[int, ...]
    slabs: Iterable[tuple[tuple[slice, ...], NDArray[Any]]]

    def append(self, path: str | os.PathLike[str], group: str) -> None:
        """Write the variable into a group of an existing file."""
        import h5netcdf

        compression: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        options = {"fillvalue": self.dtype.type(np.nan)}
        if self.chunks:
            options |= compression | {"chunks": self.chunks}
        with h5netcdf.File(path, "a") as file:
            parent = file[group]
            for dim, size in zip(self.dims, self.shape, strict=True):
                if dim not in parent.dimensions:
                    parent.dimensions[dim] = size
            variable = parent.create_variable(self.name, self.dims, self.dtype, **options)
            variable.attrs.update(self.attributes)
            for place, values in self.slabs:
                variable[place] = values


def write_netcdf(
    data: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    *,
    private: bool,
    parts: Iterable[tuple[str, xr.Dataset, list[Slabs]]] = (),
) -> None:
    """Write data to a NetCDF file, whole or not at all; ``private`` as for :func:`atomic_write`.

    ``parts`` are further variables with the names of their groups. They are produced and written one after another, so that
    only one of them is in memory at a time.
    """
    check_there(os.path.dirname(os.path.abspath(path)))
    import xarray as xr  # with pandas, nearly a second to import

    with atomic_write(path, private=private) as unfinished:
        if isinstance(data, xr.Dataset):
            # HDF5 aborts the whole process on a full disk, and a release that was paid for would be lost. So the file is made
            # in memory first.
            content = data.to_netcdf(engine="h5netcdf")
            with open(unfinished, "wb") as file:
                file.write(content)
        else:  # draws are large: a copy in memory would take their size once more
            data.to_netcdf(unfinished, engine="h5netcdf")
        for group, part, slabs in parts:
            part.to_netcdf(unfinished, mode="a", group=group, engine="h5netcdf")
            for variable in slabs:
                variable.append(unfinished, group)


def write_text(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write text, whole or not at all; ``private`` as for :func:`atomic_write`."""
    with atomic_write(path, private=private) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


def text_of_file(path: str | os.PathLike[str], largest: int) -> str:
    """Return the text of a file that somebody else has written, with at most ``largest`` bytes.

    Raises ValueError for a larger file, for a pipe (reading would wait for its writer) and for a device (which has no end).
    """
    file = os.stat(path)
    if not stat.S_ISREG(file.st_mode) or file.st_size > largest:
        raise ValueError(f"{os.fspath(path)!r}: expected a file of at most {largest} bytes, got another")
    with open(path, encoding="utf-8") as opened:
        return opened.read()


def each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dictionary. Raises ValueError for a name that occurs twice.

    ``json`` alone would keep the last value of a repeated name silently.
    """
    if repeated := [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]:
        raise ValueError(f"{repeated[0]!r}: expected it once, got it twice")
    return dict(pairs)


def read_tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read all groups of a NetCDF file into memory."""
    with opened_tree(path) as tree:
        return tree.load()


@contextmanager
def opened_tree(path: str | os.PathLike[str]) -> Iterator[xr.DataTree]:
    """Open the groups of a NetCDF file; values are read when they are used."""
    import xarray as xr  # with pandas, nearly a second to import

    check_there(path)
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        yield tree


_LARGEST_FIELD = 2**17  # the csv module splits no field with more characters


def lines(path: str | os.PathLike[str], *, errors: str = "replace") -> list[str]:
    """Return the lines of a table's file, which may be compressed. A broken line does not affect the others.

    Args:
        path: of the file.
        errors: handling of bytes that are not UTF-8, as in :meth:`bytes.decode`.
    """
    return list(_lines(path, errors))


def _lines(path: str | os.PathLike[str], errors: str) -> Iterator[str]:
    from pandas.io.common import get_handle  # opens the same compressed files as pandas.read_csv

    with get_handle(path, "rb", compression="infer", is_text=False) as file:
        for number, line in enumerate(file.handle):
            content = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line  # a byte-order mark
            yield content.removesuffix(b"\n").removesuffix(b"\r").decode(errors=errors)


def fields(line: str) -> list[str]:
    """Split one line into its fields. Returns no fields for a line that is blank or cannot be split."""
    if '"' not in line and "\r" not in line and "\n" not in line and 0 < len(line) < _LARGEST_FIELD:
        return line.split(",")  # gives what csv.reader gives, several times faster
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:  # such as a quote that nothing closes
        return []


def read_cells(
    name: str,
    path: str | os.PathLike[str],
    *,
    numbers: Callable[[Sequence[str]], Iterable[float]] | None = None,
    text: Sequence[str | None] = (),
) -> pd.DataFrame:
    """Read a CSV file with one record per line, with every cell as it is written: no types are guessed from other cells.

    Blank lines are left out. Lines are read one after another, and a number takes eight bytes of memory.

    Args:
        name: of the argument.
        path: of the file, UTF-8, which may be compressed.
        numbers: function that turns the cells of one line into numbers; None keeps the text of all cells.
        text: columns whose text is kept in any case.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a file that cannot be read, without commas, with two columns of one name, or with a line whose number of
            fields differs from the head's.
    """
    import pandas as pd

    unreadable = f"{name}: cannot read {os.fspath(path)!r} as a table with one record a line"
    try:
        records = (fields(line) for line in _lines(path, "strict") if line)
        head = next(records, [])
        words = [j for j, column in enumerate(head) if numbers is None or column in text]
        others = [j for j in range(len(head)) if j not in words]
        unique: dict[str, str] = {}  # equal texts share one object, which saves memory
        texts: list[list[str]] = [[] for _ in words]
        flat = array("d")
        bad = 0
        for record in records:
            if len(record) != len(head):
                bad += 1
                continue
            for column, j in zip(texts, words, strict=True):
                column.append(unique.setdefault(record[j], record[j]))
            if numbers is not None:
                flat.extend(numbers([record[j] for j in others]))
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise ValueError(f"{name}: expected {os.fspath(path)!r} in UTF-8, got other bytes; save it as UTF-8") from None
    except Exception:  # each kind of compression has its own errors
        raise ValueError(unreadable) from None
    if not head:
        raise ValueError(unreadable)
    check_separator(name, path, head)
    if bad:
        raise ValueError(
            f"{name}: expected {len(head)} fields in every line of {os.fspath(path)!r}, as in its head, and no quote "
            f"left open, got {bad} other lines"
        )
    check_names(name, path, head, unnamed=True)
    rows = len(texts[0]) if texts else len(flat) // max(len(others), 1)
    table = np.frombuffer(flat).reshape(rows, len(others))
    frame = pd.DataFrame(table, columns=range(len(others)), copy=False)
    for j, column in zip(words, texts, strict=True):
        frame.insert(j, f"text {j}", np.array(column, dtype=object))
    return frame.set_axis(head, axis=1)


def check_separator(name: str, path: str | os.PathLike[str], head: Sequence[str]) -> None:
    """Raise ValueError for a head that has a single field because its columns are not separated by commas.

    Args:
        name: of the argument.
        path: of the file.
        head: the fields of its first line.
    """
    line = head[0] if len(head) == 1 else ""
    separator = max(_SEPARATORS, key=line.count)
    if separator in line:
        raise ValueError(
            f"{name}: expected commas between the columns of {os.fspath(path)!r}, got {_SEPARATORS[separator]}; save the "
            "table with commas, and with points in its numbers"
        )


def check_names(name: str, path: str | os.PathLike[str], head: Sequence[str], *, unnamed: bool = False) -> None:
    """Raise ValueError for two columns with the same name, and for a column without a name.

    The error gives positions instead of names: in a file without a head the names would be its first record.

    Args:
        name: of the argument.
        path: of the file.
        head: the names.
        unnamed: accept a column without a name, as nobody can ask for it.
    """
    if nameless := [] if unnamed else [place for place, column in enumerate(head, start=1) if not column.strip()]:
        raise ValueError(
            f"{name}: expected a name for every column of {os.fspath(path)!r}, got none for column {nameless[0]}, as of an "
            "index that pandas wrote; write the table with index=False"
        )
    if twice := [place for place, column in enumerate(head, start=1) if column and column in head[: place - 1]]:
        raise ValueError(
            f"{name}: expected columns of different names in {os.fspath(path)!r}, got that of column {twice[0]} twice"
        )


def read_table(name: str, path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a public CSV file with one record per line into a data frame; pandas infers the types of the columns.

    Arguments and errors as for :func:`read_cells`.
    """
    import pandas as pd

    check_names(name, path, list(read_cells(name, path).columns))
    try:
        return pd.read_csv(path, index_col=False)
    except ValueError:  # the text of pandas' error may quote a line
        raise ValueError(f"{name}: cannot read {os.fspath(path)!r} as a table with one record a line") from None
