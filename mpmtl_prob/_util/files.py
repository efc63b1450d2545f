"""Files that are either whole or not there, what is said of one that holds something else, and tables line by line."""

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


#: How reading what is no file of this library fails; a broken file may fail in more ways.
FOREIGN = (OSError, KeyError, TypeError, json.JSONDecodeError)
#: What else than a comma stands between columns, in words.
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, private: bool) -> Iterator[str]:
    """Where to write: it takes the place of path when all went well, and a file that was there stays until then.

    Args:
        path: of the file.
        private: what is written is for the owner of the file alone, from its first byte and whatever the umask (mode 0600);
            else the umask decides. Rows, models that depend on them, and what says whether somebody guessed them right are
            private; what is proved to protect them, simulations and public data are not.
    """
    unfinished = f"{os.fspath(path)}.{os.getpid()}.unfinished"
    try:
        if private:
            _empty_for_its_owner(unfinished)
        yield unfinished
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def _empty_for_its_owner(path: str) -> None:
    """Make an empty file that nobody else can open; one that was there is left to whoever has it open."""
    with suppress(FileNotFoundError):
        os.remove(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(handle)
    os.chmod(path, 0o600)  # where the umask took more


def check_place(name: str, path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless a file can be written there, before something is spent on what it will hold."""
    reason = "it is a folder"
    if not os.path.isdir(path):
        try:
            probe = f"{os.fspath(path)}.{os.getpid()}.unfinished"
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
    """Reading a file fails with a ValueError that says what it does not hold; one that is not there, or closed, as it does.

    Args:
        what: the file should hold.
        path: of the file.
        name: of the argument.
        foreign: errors of a file that holds something else.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except foreign as error:
        raise ValueError(f"{name}: {os.fspath(path)!r} holds no {what} of mpmtl_prob") from error


def check_there(path: str | os.PathLike[str]) -> None:
    """Raise FileNotFoundError for a file that is not there: HDF5 says it in words of its own."""
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))


class Slabs(NamedTuple):
    """A variable of floating-point numbers that is written a part at a time, as xarray writes a whole one.

    Attributes:
        name: of the variable.
        dims: names of its dimensions.
        shape: of the whole.
        dtype: of its numbers.
        attributes: of the variable.
        chunks: in which it is compressed; none of an empty one.
        slabs: places and what belongs there, one after another.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any]
    chunks: tuple[int, ...]
    slabs: Iterable[tuple[tuple[slice, ...], NDArray[Any]]]

    def append(self, path: str | os.PathLike[str], group: str) -> None:
        """Write it into a group of a file that is there."""
        import h5netcdf

        how: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "chunks": self.chunks}
        how = {"fillvalue": self.dtype.type(np.nan)} | (how if self.chunks else {})
        with h5netcdf.File(path, "a") as file:
            place = file[group]
            for dim, size in zip(self.dims, self.shape, strict=True):
                if dim not in place.dimensions:
                    place.dimensions[dim] = size
            own = place.create_variable(self.name, self.dims, self.dtype, **how)
            own.attrs.update(self.attributes)
            for at, values in self.slabs:
                own[at] = values


def write_netcdf(
    data: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    *,
    private: bool,
    parts: Iterable[tuple[str, xr.Dataset, list[Slabs]]] = (),
) -> None:
    """Write data to a NetCDF file, whole or not at all; ``private`` as for :func:`atomic_write`.

    ``parts`` are further variables with the names of their groups, of which one after another is asked for and written.
    """
    check_there(os.path.dirname(os.path.abspath(path)))
    import xarray as xr  # with pandas, nearly a second to import

    with atomic_write(path, private=private) as unfinished:
        if isinstance(data, xr.Dataset):  # such as a release that was paid for: HDF5 ends the process on a full disk
            content = data.to_netcdf(engine="h5netcdf")
            with open(unfinished, "wb") as file:
                file.write(content)
        else:  # draws, which would take their size in memory once more
            data.to_netcdf(unfinished, engine="h5netcdf")
        for group, part, slabs in parts:
            part.to_netcdf(unfinished, mode="a", group=group, engine="h5netcdf")
            for each in slabs:
                each.append(unfinished, group)


def write_text(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write text, whole or not at all; ``private`` as for :func:`atomic_write`."""
    with atomic_write(path, private=private) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)


def text_of_file(path: str | os.PathLike[str], largest: int) -> str:
    """Return the text of a file that somebody else has written, of so many bytes at most.

    Raises ValueError for a larger one, and for a pipe, which would be waited for, or a device, which has no end.
    """
    file = os.stat(path)
    if not stat.S_ISREG(file.st_mode) or file.st_size > largest:
        raise ValueError(f"{os.fspath(path)!r}: expected a file of at most {largest} bytes, got another")
    with open(path, encoding="utf-8") as opened:
        return opened.read()


def each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's pairs, of which JSON itself would keep the last of a name without a word. Raises ValueError."""
    if twice := [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]:
        raise ValueError(f"{twice[0]!r}: expected it once, got it twice")
    return dict(pairs)


def read_tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """A NetCDF file's groups, in memory."""
    with opened_tree(path) as tree:
        return tree.load()


@contextmanager
def opened_tree(path: str | os.PathLike[str]) -> Iterator[xr.DataTree]:
    """A NetCDF file's groups, of which nothing is read but what is asked for."""
    import xarray as xr  # with pandas, nearly a second to import

    check_there(path)
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        yield tree


_LARGEST_FIELD = 2**17  # characters, beyond which csv takes no field apart


def lines(path: str | os.PathLike[str], *, errors: str = "replace") -> list[str]:
    """Return a table's lines as they lie in the file, which may be compressed: no byte of one takes anything from another.

    Args:
        path: of the file.
        errors: as of :meth:`bytes.decode`, for bytes that are no UTF-8.
    """
    return list(_lines(path, errors))


def _lines(path: str | os.PathLike[str], errors: str) -> Iterator[str]:
    from pandas.io.common import get_handle  # opens whatever pandas.read_csv does

    with get_handle(path, "rb", compression="infer", is_text=False) as file:
        for number, line in enumerate(file.handle):
            whole = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
            yield whole.removesuffix(b"\n").removesuffix(b"\r").decode(errors=errors)


def fields(line: str) -> list[str]:
    """Return the fields of one line by itself; none of a line that is blank, or cannot be taken apart."""
    if '"' not in line and "\r" not in line and "\n" not in line and 0 < len(line) < _LARGEST_FIELD:
        return line.split(",")  # as the reader of csv does in several times the time
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
    """Read a CSV file with one record a line: every cell as it is written, whatever the others are.

    Blank lines are left out. Lines are read one after another: what is kept of a number is eight bytes.

    Args:
        name: of the argument.
        path: of the file, UTF-8, which may be compressed.
        numbers: what makes numbers of the cells of one line; None keeps the text of all cells.
        text: columns whose text is kept whatever ``numbers`` is.

    Raises:
        FileNotFoundError: a file that is not there.
        ValueError: a file that cannot be read, or has no commas, two columns of one name, or lines with another number of
            fields than the head.
    """
    import pandas as pd

    unreadable = f"{name}: cannot read {os.fspath(path)!r} as a table with one record a line"
    try:
        records = (fields(line) for line in _lines(path, "strict") if line)
        head = next(records, [])
        words = [j for j, column in enumerate(head) if numbers is None or column in text]
        others = [j for j in range(len(head)) if j not in words]
        known: dict[str, str] = {}  # texts that are alike are one
        kept: list[list[str]] = [[] for _ in words]
        flat, bad = array("d"), 0
        for record in records:
            if len(record) != len(head):
                bad += 1
                continue
            for column, j in zip(kept, words, strict=True):
                column.append(known.setdefault(record[j], record[j]))
            if numbers is not None:
                flat.extend(numbers([record[j] for j in others]))
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise ValueError(f"{name}: expected {os.fspath(path)!r} in UTF-8, got other bytes; save it as UTF-8") from None
    except Exception:  # of whatever opens it
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
    rows = len(kept[0]) if kept else len(flat) // max(len(others), 1)
    table = np.frombuffer(flat).reshape(rows, len(others))
    frame = pd.DataFrame(table, columns=range(len(others)), copy=False)
    for j, column in zip(words, kept, strict=True):
        frame.insert(j, f"text {j}", np.array(column, dtype=object))
    return frame.set_axis(head, axis=1)


def check_separator(name: str, path: str | os.PathLike[str], head: Sequence[str]) -> None:
    """Raise ValueError for a head of one field that is several with another separator than the comma.

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
    """Raise ValueError for two columns of one name, and for one without a name.

    The error tells them by their places: in a file without a head the names are its first record.

    Args:
        name: of the argument.
        path: of the file.
        head: the names.
        unnamed: a column without a name is no error, as nobody will ask for it.
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
    """Read a public CSV file with one record a line, whose mistakes may be spoken of; pandas finds the types of its columns.

    Arguments and errors are as of :func:`read_cells`.
    """
    import pandas as pd

    check_names(name, path, list(read_cells(name, path).columns))
    try:
        return pd.read_csv(path, index_col=False)
    except ValueError:  # whose text may quote a line
        raise ValueError(f"{name}: cannot read {os.fspath(path)!r} as a table with one record a line") from None
