"""Tasks on disk, in parts: the same release, bit for bit; what is broken is found before anything is spent."""

import itertools
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.testing import assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob import TaskData, TaskShards
from mpmtl_prob.data import shards as shards_module
from mpmtl_prob.privacy import BudgetExceeded, Ledger, lattice
from mpmtl_prob.privacy.mechanisms import exact

RNG = np.random.default_rng(11)
NAMES = [f"ward {i}" for i in range(23)]
X = [RNG.standard_normal((n, 4)) * 10.0 ** RNG.integers(-3, 4) for n in RNG.integers(1, 40, len(NAMES))]
Y = [x @ RNG.standard_normal(4) + RNG.standard_normal(len(x)) for x in X]
FEATURES = ("age", "dose", "weight", "sex")
TASKS = TaskData.from_lists(X, Y, tasks=NAMES, features=FEATURES)
COLUMNS = {"task": "ward", "target": "days"}
QUIET = {"progress_bar": False}


def frame(tasks):
    names = np.repeat(np.array(NAMES)[tasks], [len(Y[i]) for i in tasks])
    table = pd.DataFrame(np.concatenate([X[i] for i in tasks]), columns=list(FEATURES))
    return table.assign(ward=names, days=np.concatenate([Y[i] for i in tasks]))


def write(folder, parts):
    for i, table in enumerate(parts):
        table.to_parquet(folder / f"part-{i}.parquet")
    return folder


@pytest.fixture
def folder(tmp_path):
    """Rows of a task anywhere in its own file."""
    parts = [frame(list(range(*edges))).sample(frac=1, random_state=1) for edges in ((0, 9), (9, 10), (10, 23))]
    return write(tmp_path, parts)


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "rows.nc"
    table = frame(range(len(NAMES)))
    rows = {
        "X": (("row", "feature"), table[list(FEATURES)]),
        "y": ("row", table.days),
        "task": ("row", table.ward.to_numpy(dtype=object)),
    }
    xr.Dataset(rows, coords={"feature": list(FEATURES)}).to_netcdf(path, engine="h5netcdf")
    return path


def test_a_streamed_release_is_the_one_in_memory_bit_for_bit(store):
    whole = mp.release(TASKS, 1.0, unsafe_seed=3)
    for size in (5, 100):
        out = mp.release(TaskShards.from_xarray(store, per_part=size, **QUIET), 1.0, unsafe_seed=3)
        assert_array_equal(out.sigma, whole.sigma)
        for name in (
            "mechanisms",
            "num_tasks",
            "features",
            "guarantee",
            "message",
            "scaling",
            "composed_with",
            "lattice",
        ):
            assert getattr(out, name) == getattr(whole, name)


@pytest.mark.parametrize(
    "options",
    [
        {"adjacency": "zero_out", "mechanism": "gaussian", "delta": 1e-3},
        {"message": "clip", "clip": 0.5, "scaling": "none"},
    ],
)
@pytest.mark.parametrize("intercept", [False, True])
def test_so_it_is_from_parquet_files_with_every_option(folder, options, intercept):
    shards = TaskShards.from_parquet(folder, **COLUMNS, features=FEATURES, intercept=intercept, **QUIET)
    table = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
    tasks = TaskData.from_pandas(table, **COLUMNS, features=FEATURES, intercept=intercept)
    whole = mp.release(tasks, 1.0, **options, unsafe_seed=5)
    out = mp.release(shards, 1.0, **options, unsafe_seed=5)
    assert_array_equal(out.sigma, whole.sigma)
    assert out.features == whole.features == FEATURES


def test_counts_keep_the_exposure_and_weight_of_their_rows(tmp_path):
    """Counts have the exposure and the weight of their own rows."""
    rng, rows = np.random.default_rng(3), 400
    table = pd.DataFrame({"ward": rng.choice(NAMES[:8], rows), "age": rng.standard_normal(rows)})
    table = table.assign(nights=rng.integers(1, 20, rows), copies=rng.integers(1, 4, rows))
    table["falls"] = rng.poisson(0.1 * table.nights * np.exp(0.3 * table.age))
    parts = [table[table.ward.isin(NAMES[k : k + 4])] for k in (0, 4)]
    columns = {"task": "ward", "target": "falls", "exposure": "nights", "weights": "copies", "intercept": True}
    shards = TaskShards.from_parquet(write(tmp_path, parts), **columns, **QUIET)
    whole = TaskData.from_pandas(pd.concat(parts), **columns)
    assert shards.features == whole.features == ("age", "intercept")
    streamed = {task: part.observations_of(i) for part in shards for i, task in enumerate(part.tasks)}
    for i, task in enumerate(whole.tasks):
        for ours, theirs in zip(streamed[task], whole.observations_of(i), strict=True):
            assert_array_equal(ours, theirs)
    reference = mp.Reference.standard(["age"], outcome="count", baseline=0.1)
    release = lambda source: mp.release(source, 3.0, reference=reference, unsafe_seed=1).sigma
    assert_array_equal(release(shards), release(whole))
    assert not np.array_equal(
        release(whole),
        release(TaskData.from_pandas(pd.concat(parts), **columns | {"exposure": None}, exclude=["nights"])),
    )


def test_exposure_that_is_not_there_is_named(folder):
    with pytest.raises(ValueError, match="exposure: no column 'nights' in part-0"):
        TaskShards.from_parquet(folder, **COLUMNS, exposure="nights", **QUIET)


def test_the_order_of_parts_and_who_reads_them_are_irrelevant(folder, monkeypatch):
    shards = TaskShards.from_parquet(folder, **COLUMNS, features=FEATURES, **QUIET)
    book = Ledger(epsilon=20.0, delta=0.5)
    first = mp.release(shards, 1.0, ledger=book)
    sigma = mp.release(shards, 1.0, unsafe_seed=1).sigma
    for order in itertools.permutations(shards.parts):
        assert_array_equal(mp.release(TaskShards(order, **QUIET), 1.0, unsafe_seed=1).sigma, sigma)
    beside = TaskShards(shards.parts, workers=2, progress_bar=False)
    second = mp.release(TaskShards(shards.parts[::-1], **QUIET), 1.0, ledger=book)
    # one process reads as well as two, and every one takes seconds to start
    monkeypatch.setattr(shards_module, "ProcessPoolExecutor", lambda _, started: ProcessPoolExecutor(1, started))
    assert_array_equal(mp.release(beside, 1.0, unsafe_seed=1).sigma, sigma)
    assert not np.array_equal(first.sigma, second.sigma)  # fresh noise
    # side by side, as processes do
    monkeypatch.setattr(shards_module, "ProcessPoolExecutor", lambda workers, _: ThreadPoolExecutor(workers))
    assert_array_equal(mp.release(beside, 1.0, unsafe_seed=1).sigma, sigma)
    frame([9]).assign(dose=np.nan).to_parquet(folder / "part-1.parquet")
    spoilt = TaskShards(beside.parts[1:2], workers=2, progress_bar=False)
    with pytest.raises(
        ValueError,
        match=r"^shards: part-1.parquet: features: .* in 'dose', .* task 'ward 9'",
    ) as error:
        mp.release(spoilt, 1.0, 1e-3, ledger=book)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    charges = book.charges()
    assert [charge.mechanisms for charge in charges] == [first.mechanisms, second.mechanisms]  # once each
    assert charges[0].fingerprint == charges[1].fingerprint != ""


def test_a_fingerprint_knows_the_rows_and_not_how_they_were_cut(store):
    book = Ledger(epsilon=20.0, delta=0.5)
    for size in (5, 7):
        mp.release(TaskShards.from_xarray(store, per_part=size, **QUIET), 1.0, ledger=book)
    one = TaskShards.from_xarray(store, per_part=7, **QUIET)
    mp.release(TaskShards(one.parts[1:], **QUIET), 1.0, ledger=book)
    one, other, fewer = (charge.fingerprint for charge in book.charges())
    assert one == other != fewer


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda table: table.assign(dose=np.nan), r"shards: part-1.parquet: features: .* in 'dose', .* task 'ward 9'"),
        (lambda table: table.assign(days=np.inf), r"shards: part-1.parquet: target: .* in 'days', .* task 'ward 9'"),
        (lambda table: table.rename(columns={"dose": "pills"}), r"shards: part-1.parquet: expected the features of part-0"),
        (lambda table: table.drop(columns="days"), r"target: no column 'days' in part-1.parquet"),
        (lambda table: table.drop(columns="ward"), r"task: no column 'ward' in part-1.parquet"),
        (lambda table: table.assign(ward="ward 20"), r"shards: expected every task in one part, .*part-1.*part-2"),
    ],
)  # fmt: skip
def test_a_broken_part_is_named_and_nothing_is_spent(folder, monkeypatch, spoil, error):
    drawn = []
    book = Ledger(epsilon=1.0, delta=0.5)
    path = folder / "part-1.parquet"
    monkeypatch.setattr(exact, "source", lambda *_: drawn.append(1))
    spoil(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(ValueError, match=f"^{error}"):
        mp.release(TaskShards.from_parquet(folder, **COLUMNS, **QUIET), 1.0, ledger=book)
    assert book.charges() == drawn == []


def test_a_part_that_changed_after_it_was_opened_is_refused(folder):
    shards = TaskShards.from_parquet(folder, **COLUMNS, **QUIET)
    frame([9, 10]).to_parquet(folder / "part-1.parquet")  # ward 10 twice, by now
    with pytest.raises(ValueError, match=r"^shards: part-1.parquet: other tasks"):
        mp.release(shards, 1.0)


def test_a_total_that_is_too_small_says_so(folder):
    with pytest.raises(BudgetExceeded):
        mp.release(TaskShards.from_parquet(folder, **COLUMNS, **QUIET), 1.0, ledger=Ledger(epsilon=0.5, delta=1e-4))


def test_scattered_rows_of_a_task_are_refused_where_rows_are_cut(tmp_path):
    """Rows of a task that are not one after another are refused where shards are cut by rows."""
    path, rows = tmp_path / "rows.nc", {"X": (("row", "feature"), np.ones((3, 2))), "y": ("row", np.ones(3))}
    xr.Dataset(rows | {"task": ("row", [0, 1, 0])}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ValueError, match=r"^task: expected the rows of a task one after another"):
        TaskShards.from_xarray(path)
    with pytest.raises(ValueError, match=r"^target: no variable 'z'"):
        TaskShards.from_xarray(path, target="z")


def two_files(tmp_path, first, second):
    """A folder of two files of one task each, whose names are spelled like this."""
    table = pd.DataFrame({"x": [1.0, 2.0], "z": [0.5, 0.1], "y": [1.0, 0.0]})
    for name, labels in (("a", first), ("b", second)):
        table.assign(task=labels).to_parquet(tmp_path / f"{name}.parquet")
    return TaskShards.from_parquet(tmp_path, task="task", target="y", **QUIET)


def test_a_task_is_in_one_file_however_it_is_spelled(tmp_path):
    """Two spellings would be two tasks, with two messages and half the protection."""
    types = r"task: expected one type of the column 'task' in all files, got string in b\.parquet and int64 in a"
    with pytest.raises(ValueError, match=types):
        two_files(tmp_path, 7, "7")
    with pytest.raises(ValueError, match="shards: expected every task in one part, got tasks in several"):
        two_files(tmp_path, "7", " 7")
    with pytest.raises(ValueError, match="shards: expected every task in one part"):
        two_files(tmp_path, "Zo\u00eb", "Zoe\u0308")
    assert two_files(tmp_path, "7", "07").num_tasks == 2


def test_encoded_and_plain_names_are_of_one_type(tmp_path):
    assert two_files(tmp_path, pd.Categorical(["a", "a"]), "b").num_tasks == 2
    with pytest.raises(ValueError, match="shards: expected every task in one part"):
        two_files(tmp_path, pd.Categorical(["a", "a"]), "a")


def test_tasks_may_be_days(tmp_path):
    days = [np.datetime64("2020-01-02", unit) for unit in ("s", "ns")]
    shards = two_files(tmp_path, days[0], np.datetime64("2021-01-02", "s"))
    assert [str(task)[:10] for part in shards for task in part.tasks] == ["2020-01-02", "2021-01-02"]


def test_more_rounds_need_the_messages_again(store):
    shards = TaskShards.from_xarray(store, **QUIET)
    for options in ({"rounds": 2}, {"respond": lambda release: release.sigma[0]}):
        with pytest.raises(ValueError, match=r"^rounds: expected 1 with TaskShards"):
            mp.release(shards, 1.0, **options)
    assert mp.release(shards, 1.0, rounds="auto").rounds == 1


def test_an_empty_folder_is_no_shards(tmp_path):
    with pytest.raises(ValueError, match=r"^shards: expected at least one part"):
        TaskShards.from_parquet(tmp_path, **COLUMNS)


def test_parts_are_read_one_at_a_time_and_say_nothing_of_rows(store):
    shards = TaskShards.from_xarray(store, per_part=10, **QUIET)
    assert [part.tasks for part in shards] == [tuple(NAMES[:10]), tuple(NAMES[10:20]), tuple(NAMES[20:])]
    assert repr(shards) == "TaskShards(3 parts, 23 tasks, 4 features)"
    assert repr(pickle.loads(pickle.dumps(shards))) == repr(shards)
    for i, own in enumerate(itertools.chain.from_iterable(map(part.rows_of, range(part.num_tasks)) for part in shards)):
        assert_array_equal(own[0], X[i])
        assert_array_equal(own[1], Y[i])


@pytest.mark.parametrize(("tasks", "exact_at"), [(10**6, 2.0**-13), (10**8, 2.0**-12)])
def test_the_grid_is_coarser_only_where_doubles_overflow(tasks, exact_at):
    """The grid is coarser only where doubles could not hold the sum."""
    # d = 32: 2^-13 < 1e-3 / sqrt(32), and m of its squares are below 2^52 up to m = 2^26
    law = mp.releases.terms(1.0, tasks, 32).mechanisms[0]
    h = lattice.step(1.0, 32, tasks, [law])
    assert h == exact_at
    assert tasks / h**2 < 2.0**53


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_that_say_nothing_are_named_for_all_parts_together(tmp_path, workers):
    """Workers' warnings are seen by nobody."""
    parts = [frame([0, 1]), frame([2, 3])]
    parts[0].loc[parts[0]["ward"] == NAMES[1], "days"] = 0.0
    parts[1] = parts[1].groupby("ward", sort=False).head(1)
    shards = TaskShards.from_parquet(write(tmp_path, parts), **COLUMNS, **QUIET, intercept=True, workers=workers)
    with pytest.warns(UserWarning, match="tasks: 3 of them send the zero vector") as told:
        assert mp.release(shards, 1.0).num_tasks == 4
    assert len(told) == 1
    assert all(name in str(told[0].message) for name in NAMES[1:4])


def test_columns_of_parquet_files_may_be_left_out(folder):
    """Columns of Parquet files may be left out of the features."""
    shards = TaskShards.from_parquet(folder, **COLUMNS, exclude=FEATURES[:1], **QUIET)
    every = TaskShards.from_parquet(folder, **COLUMNS, **QUIET)
    assert shards.features == tuple(name for name in every.features if name != FEATURES[0])
    assert all(part.features == shards.features for part in shards)
    with pytest.raises(ValueError, match="exclude: no column 'nothing' among"):
        TaskShards.from_parquet(folder, **COLUMNS, exclude=["nothing"], **QUIET)
