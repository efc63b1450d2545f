"""Make a ledger lose a charge, count in another place, or spend more than it declares.

An attacker may replace, edit or remove the file, and the process that holds the ledger may change folder, fork and pickle.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import sqlite3
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from attacks import Case
from mpmtl_prob.privacy import BudgetExceeded, Gaussian, Ledger, Quantile, VectorLaplace
from mpmtl_prob.privacy.accounting.filters import adaptive_epsilon
from mpmtl_prob.releases import release

PLACE = "another file, an older copy or nothing is put in the place of a ledger in use"
FOLDER = "the process changes its folder between two charges to a relative path"
FORKED = "children that were forked charge a ledger in memory"
AMID = "a child is forked while other threads are charging, and charges too"
PICKLED = "the file is replaced, or the folder changed, between pickling a ledger and loading it"
FOREIGN = "the path leads to somebody else's file, which must stay as it is"
EDITED = "somebody edits the tables, their types or triggers"
HUGE = "charges cost thousands to billions of eps, and what is spent must be stated"
TOGETHER = "threads and processes spend from one file at once"
OPEN = "other users may read the file or what lies beside it"
LOOKING = "whoever looks at each release chooses the next charge by it, against the filter"
WAYS = (PLACE, FOLDER, FORKED, AMID, PICKLED, FOREIGN, EDITED, HUGE, TOGETHER, OPEN, LOOKING)

TOTAL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3}
SMALL = Gaussian(3, 40.0)
HALF = Gaussian(3, 3.0)  # of which the total pays for one


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Yield every attempt."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as name:
        warnings.simplefilter("ignore")  # of forks beside threads, which is what is tried
        root = Path(name)
        for way, attack, attempts in (
            (PLACE, _places, 1200),
            (FOLDER, _folders, 300),
            (FORKED, _forks, 120),
            (AMID, _amid, 25),
            (PICKLED, _pickles, 200),
            (FOREIGN, _foreign, 400),
            (EDITED, _edits, 200),
            (HUGE, _huge, 2000),
            (TOGETHER, _together, 12),
            (OPEN, _open, 60),
            (LOOKING, _looking, 40),
        ):
            for number in range(max(1, round(attempts * effort))):
                folder = root / f"{attack.__name__}{number}"
                folder.mkdir()
                try:
                    case = attack(rng, folder)
                except Exception as error:  # no attack ends in an error, named or not, that it does not expect
                    case = Case(way, False, repr(error))
                yield case
                shutil.rmtree(folder, ignore_errors=True)


def _choice(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.exists()
    }


def _spend(path: Path, charges: int) -> Ledger:
    book = Ledger(path, **TOTAL)
    for _ in range(charges):
        book.charge(SMALL)
    return book


def _refused(act: Callable[[], object]) -> str:
    """Return the text of a named error, or an empty one where there is none."""
    try:
        act()
    except BudgetExceeded:  # of whatever ledger is counted there
        return ""
    except ValueError as error:
        return str(error)
    return ""


def _sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _child(work: Callable[[], int], seconds: int = 60) -> int | None:
    """Run work in a forked child and return its small number; None if it hangs or ends otherwise."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(seconds)
        status = 255
        with suppress(BaseException):
            status = work()
        os._exit(status)
    _, status = os.waitpid(pid, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 255
    return None if code == 255 else code


# -- the file of a ledger in use ---------------------------------------------------------------------------------------


def _replace(how: str, path: Path, folder: Path, older: Path, rng: np.random.Generator) -> None:
    real = path.resolve()
    other = folder / "other"
    if how in ("other by renaming", "other in the same file", "link led elsewhere", "folder led elsewhere"):
        _spend(other, int(rng.integers(3)))
    if how == "gone":
        path.unlink()
    elif how == "declared anew":
        real.unlink()
        _spend(real, int(rng.integers(3)))
    elif how == "other by renaming":
        os.replace(other, real)
    elif how == "other in the same file":
        shutil.copyfile(other, real)
    elif how == "link led elsewhere":
        path.unlink()
        path.symlink_to(other)
    elif how == "folder led elsewhere":
        path.parent.rename(folder / "away")
        path.parent.mkdir()
        other.rename(path)
    elif how == "folder gone":
        path.parent.rename(folder / "away")
    elif how == "older by renaming":
        os.replace(older, real)
    elif how == "older in the same file":
        shutil.copyfile(older, real)
    elif how == "emptied":
        real.write_bytes(b"")
    elif how == "somebody's":
        real.unlink()
        _sql(real, "CREATE TABLE clients (name TEXT)")
    elif how == "larger total":
        _sql(real, "UPDATE total SET epsilon = 50.0")


REPLACEMENTS = (
    "gone", "declared anew", "other by renaming", "other in the same file", "link led elsewhere", "folder led elsewhere",
    "folder gone", "older by renaming", "older in the same file", "emptied", "somebody's", "larger total",
)  # fmt: skip
USES: dict[str, Callable[[Ledger], object]] = {
    "charge": lambda book: book.charge(SMALL),
    "release": lambda book: release(np.eye(3), 0.1, mechanism=SMALL, ledger=book),
    "spent": lambda book: book.spent,
    "spent_adaptively": lambda book: book.spent_adaptively,
    "charges": lambda book: book.charges(),
    "export_receipt": lambda book: book.export_receipt(),
    "repr": repr,
}


def _places(rng: np.random.Generator, folder: Path) -> Case:
    within = folder / "kept"
    within.mkdir()
    path, how = within / "book", _choice(rng, REPLACEMENTS)
    if how == "link led elsewhere" or (rng.random() < 0.3 and not how.startswith("folder")):
        path.symlink_to(folder / "target")
    book, older = _spend(path, int(rng.integers(2))), folder / "older"
    shutil.copyfile(path, older)
    book.charge(SMALL)
    _replace(how, path, folder, older, rng)
    before, use = _contents(folder), _choice(rng, sorted(USES))
    said = _refused(lambda: USES[use](book))
    return Case(PLACE, bool(said) and _contents(folder) == before, f"{how}, then {use}: {said or 'no error'}")


# -- folders, forks, pickles -------------------------------------------------------------------------------------------


def _folders(rng: np.random.Generator, folder: Path) -> Case:
    here, there = folder / "here", folder / "there"
    for made in (here / "sub", there / "sub"):
        made.mkdir(parents=True)
    name = _choice(rng, ("book", "./book", "sub/../book", "sub/book"))
    path = _choice(rng, (str, Path, os.fsencode))(name)
    occupied = rng.random() < 0.5
    if occupied:
        _spend(there / name, 0)
    before = _contents(there)
    with _working_in(here):
        book = Ledger(path, **TOTAL)
        book.charge(HALF)
        os.chdir(there)
        paid = 1
        with suppress(ValueError):
            book.charge(HALF)
            paid = 2
    kept = (here / name).exists() and len(Ledger(here / name).charges())
    held = paid == 1 and kept == 1 and _contents(there) == before
    return Case(FOLDER, held, f"{path!r}, {'another' if occupied else 'nothing'} there: {paid} paid, {kept} kept")


def _forks(rng: np.random.Generator, folder: Path) -> Case:
    book = Ledger(**TOTAL)
    for _ in range(int(rng.integers(3))):
        book.charge(SMALL)
    children, deep = int(rng.integers(1, 5)), rng.random() < 0.3
    use = _choice(rng, ("charge", "release"))

    def charge() -> int:
        with suppress(ValueError):
            USES[use](book)
            return 1
        return 0

    if rng.random() < 0.3:
        with multiprocessing.get_context("fork").Pool(children, _remember, (charge,)) as pool:
            granted = sum(pool.map(_recall, range(children)))
    else:
        work = (lambda: _child(charge) or 0) if deep else charge
        granted = sum(_child(work) or 0 for _ in range(children))
    still = charge()
    return Case(FORKED, granted == 0 and still == 1, f"{children} children: {granted} granted, {still} to the parent")


_work: list[Callable[[], int]] = []


def _remember(work: Callable[[], int]) -> None:
    _work[:] = [work]


def _recall(_: int) -> int:
    return _work[0]()


def _amid(rng: np.random.Generator, folder: Path) -> Case:
    path = folder / "book"
    stop = threading.Event()
    paid = []
    Ledger(path, epsilon=50.0, delta=1e-3)
    books = [Ledger(path, timeout=3) for _ in range(2)]

    def spend(book: Ledger) -> None:
        while not stop.is_set():
            book.charge(SMALL)
            paid.append(1)

    def charge() -> int:
        with suppress(ValueError):  # the threads may keep it waiting for too long, which it says
            _choice(rng, books).charge(SMALL)
            return 1
        return 0

    threads = [threading.Thread(target=spend, args=(book,)) for book in books]
    for thread in threads:
        thread.start()
    came = []
    for _ in range(3):
        stop.wait(float(rng.uniform(0, 0.05)))
        came.append(_child(charge, seconds=20))
    stop.set()
    for thread in threads:
        thread.join()
    kept, expected = len(Ledger(path).charges()), len(paid) + came.count(1)
    return Case(AMID, None not in came and kept == expected, f"children returned {came}; {kept} kept of {expected}")


def _pickles(rng: np.random.Generator, folder: Path) -> Case:
    within = folder / "kept"
    (folder / "there").mkdir()
    within.mkdir()
    relative, older = rng.random() < 0.3, folder / "older"
    how = "folder changed" if relative else _choice(rng, REPLACEMENTS)
    with _working_in(within):
        path = Path("book") if relative else within / "book"
        if how == "link led elsewhere":
            path.symlink_to(folder / "target")
        book = _spend(path, int(rng.integers(2)))
        shutil.copyfile(path, older)
        book.charge(SMALL)
        if relative:
            os.chdir(folder / "there")
            if rng.random() < 0.5:
                Ledger("book", **TOTAL)
        kept = pickle.dumps(book)
        if not relative:
            _replace(how, path, folder, older, rng)
        before, same = _contents(folder), False
        with suppress(ValueError):
            again = pickle.loads(kept)
            same = again.id == book.id and len(again.charges()) == len(book.charges())
            if not relative and how != "gone":
                same = False  # it must be refused
    if relative:
        return Case(PICKLED, same, f"{how}: {'the same' if same else 'another, or none'}")
    loaded = not _refused(lambda: pickle.loads(kept))
    return Case(PICKLED, not loaded and _contents(folder) == before, f"{how}: {'loaded' if loaded else 'refused'}")


# -- other files, edited ones, their modes -----------------------------------------------------------------------------


def _foreign(rng: np.random.Generator, folder: Path) -> Case:
    path = folder / "file"
    kinds = {
        "table": ["CREATE TABLE clients (name TEXT)", "INSERT INTO clients VALUES ('a')"],
        "charge": ["CREATE TABLE charge (id INTEGER PRIMARY KEY, time TEXT, amount REAL)"],
        "charge and total": [
            "CREATE TABLE charge (id INTEGER, hash TEXT)",
            "CREATE TABLE total (id INTEGER, sum REAL)",
        ],
        "view": ["CREATE VIEW answer AS SELECT 42"],
        "account": ["CREATE TABLE answered (run TEXT PRIMARY KEY, trust TEXT NOT NULL, time TEXT NOT NULL)"],
        "index": ["CREATE TABLE a (b)", "CREATE INDEX c ON a (b)", "ANALYZE"],
        "log": ["PRAGMA journal_mode = WAL", "CREATE TABLE a (b)", "INSERT INTO a VALUES (1)"],
        "pages": ["PRAGMA page_size = 512", "PRAGMA auto_vacuum = 1", "CREATE TABLE a (b)"],
    }
    kind = _choice(rng, [*kinds, "log in use", "log left", "journal left", "text", "bytes"])
    held_open = None
    if kind in kinds:
        _sql(path, *kinds[kind])
    elif kind == "text":
        path.write_text("chapter one " * int(rng.integers(1, 500)))
    elif kind == "bytes":
        path.write_bytes(rng.bytes(int(rng.integers(1, 9000))))
    else:
        source = path if kind == "log in use" else folder / "source"
        held_open = sqlite3.connect(source, isolation_level=None)
        held_open.execute(f"PRAGMA journal_mode = {'DELETE' if kind == 'journal left' else 'WAL'}")
        held_open.execute("CREATE TABLE clients (name TEXT)")
        held_open.execute("PRAGMA cache_size = 1")
        held_open.execute("BEGIN")
        for _ in range(50):
            held_open.execute("INSERT INTO clients VALUES (?)", ("a" * 500,))
        if kind != "journal left":
            held_open.execute("COMMIT")
        for suffix in ("", "-wal", "-journal"):
            if kind != "log in use" and Path(f"{source}{suffix}").exists():
                shutil.copyfile(f"{source}{suffix}", f"{path}{suffix}")
    before = {name: text for name, text in _contents(folder).items() if not name.endswith("-shm")}
    declared = TOTAL if rng.random() < 0.7 else {}
    said = _refused(lambda: Ledger(path, timeout=0.2, **declared))
    after = {name: text for name, text in _contents(folder).items() if not name.endswith("-shm")}
    if held_open is not None:
        held_open.close()
    kept = {name: text for name, text in after.items() if text or name in before} == before
    return Case(FOREIGN, bool(said) and kept, f"{kind}: {said or 'taken'}; {'as it was' if kept else 'changed'}")


def _edits(rng: np.random.Generator, folder: Path) -> Case:
    path = folder / "book"
    book = _spend(path, 2)
    edit = _choice(
        rng,
        [
            "UPDATE charge SET mechanisms = x'00' WHERE id = 1",
            "UPDATE charge SET mechanisms = '[]' WHERE id = 1",
            "UPDATE charge SET hash = x'00' WHERE id = 2",
            "UPDATE charge SET time = NULL WHERE id = 1",
            "UPDATE charge SET token = 7 WHERE id = 2",
            "UPDATE charge SET id = id + 5 WHERE id = 1",
            "DELETE FROM charge WHERE id = 1",
            "DELETE FROM charge WHERE id = 2",
            "DELETE FROM total",
            "UPDATE total SET salt = 'text'",
            "UPDATE total SET salt = NULL",
            "UPDATE total SET epsilon = 'much'",
            "UPDATE total SET epsilon = 9e999",
            "UPDATE total SET delta = NULL",
            "UPDATE total SET adaptive = 1",
            "DROP TABLE charge",
            "ALTER TABLE charge RENAME COLUMN hash TO other",
            "CREATE TRIGGER t AFTER INSERT ON charge BEGIN DELETE FROM charge WHERE id = NEW.id; END",
            "CREATE TRIGGER t BEFORE INSERT ON charge BEGIN SELECT RAISE(IGNORE); END",
        ],
    )
    _sql(path, edit)
    live = rng.random() < 0.5 or edit == "DELETE FROM charge WHERE id = 2"  # for whoever opens it anew, a receipt
    try:
        reader = book if live else Ledger(path, **TOTAL)
        reader.charge(SMALL)
        kept, said = len(Ledger(path).charges()), "no error"
        held = "TRIGGER" in edit and kept == 3
    except ValueError as error:
        held, said = True, str(error)
    except Exception as error:
        held, said = False, repr(error)
    return Case(EDITED, held, f"{edit}, {'in use' if live else 'opened anew'}: {said}")


def _open(rng: np.random.Generator, folder: Path) -> Case:
    if os.name != "posix":
        return Case(OPEN, True, "no modes here")
    path, before = folder / "book", os.umask(int(_choice(rng, (0o000, 0o022, 0o002))))
    how = _choice(rng, ("new", "touched", "a link to nothing", "journal"))
    try:
        if how == "touched":
            path.touch()
        if how == "a link to nothing":
            path.symlink_to(folder / "target")
        _spend(path, 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            if how == "journal":
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE total SET epsilon = 2")
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()}
            connection.execute("ROLLBACK")
    finally:
        os.umask(before)
    return Case(OPEN, set(modes.values()) == {0o600}, f"{how}: { {name: oct(mode) for name, mode in modes.items()} }")


# -- amounts -----------------------------------------------------------------------------------------------------------


def _huge(rng: np.random.Generator, folder: Path) -> Case:
    total, cost = 10 ** rng.uniform(0, 12), 10 ** rng.uniform(0, 10)
    law = _choice(
        rng, (Gaussian(3, float(1 / np.sqrt(2 * cost))), Quantile(float(cost)), VectorLaplace(3, float(cost), 1.0))
    )
    book = Ledger(epsilon=float(total), delta=float(10 ** rng.uniform(-9, -1)))
    try:
        for _ in range(int(rng.integers(1, 3))):
            book.charge(law)
    except BudgetExceeded:
        pass
    spent = book.spent.epsilon
    return Case(HUGE, spent <= total * (1 + 1e-6), f"{law} of a total of {total:.3g}: {spent} spent")


def _together(rng: np.random.Generator, folder: Path) -> Case:
    path, law = folder / "book", Gaussian(3, float(rng.uniform(8, 20)))
    alone, allowed = Ledger(**TOTAL), 0
    with suppress(BudgetExceeded):
        while True:
            alone.charge(law)
            allowed += 1
    shared, paid = Ledger(path, **TOTAL), []

    def spend() -> int:
        book, count = _choice(rng, (shared, Ledger(path))), 0
        with suppress(BudgetExceeded):
            while True:
                book.charge(law)
                count += 1
        paid.append(count)
        return count

    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = [_child(spend) for _ in range(2)]
    for thread in threads:
        thread.join()
    granted = sum(paid) + sum(count or 0 for count in children)
    kept = len(shared.charges())
    return Case(TOGETHER, granted == kept == allowed, f"{granted} granted, {kept} kept, {allowed} allowed")


def _looking(rng: np.random.Generator, folder: Path) -> Case:
    """The best that anybody can do by looking at randomised responses that lose one or several units, by exhaustion."""
    eps, delta = float(rng.uniform(0.5, 2)), float(10 ** rng.uniform(-3, -1))
    unit, large = float(rng.uniform(0.06, 0.12)) * eps, int(rng.integers(2, 5))
    first = (Gaussian(3, 1e6 / eps),) if rng.random() < 0.5 else ()  # next to nothing, and yet the first
    laws = Quantile(unit), Quantile(large * unit)

    @lru_cache(None)
    def allowed(few: int, many: int) -> bool:
        return adaptive_epsilon((*first, *(laws[0],) * few, *(laws[1],) * many), eps, delta, "replace") <= eps

    @lru_cache(None)
    def value(few: int, many: int, units: int) -> float:
        best = max(-np.expm1(min(eps - units * unit, 0.0)), 0.0)
        for size, more in ((1, (few + 1, many)), (large, (few, many + 1))):
            if allowed(*more):
                likely = 1 / (1 + np.exp(-size * unit))
                best = max(best, likely * value(*more, units + size) + (1 - likely) * value(*more, units - size))
        return best

    reached = value(0, 0, 0)
    return Case(LOOKING, reached <= delta, f"eps = {eps:.3g}: {reached:.3g} of delta = {delta:.3g}")
