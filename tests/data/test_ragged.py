"""Tasks of very different sizes: rows are stored once, and nothing is as large as the padded array would be."""

import copy
import dataclasses
import gc
import pickle
import tracemalloc
import weakref
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob import Prediction, TaskData, federated
from mpmtl_prob.convex.losses import InGroups, LeastSquares, Logistic, LogisticRows, SquaredRows
from mpmtl_prob.data.columns import numeric_columns
from mpmtl_prob.data.padding import LARGEST_VIEW
from mpmtl_prob.data.prediction import linear, linear_prediction
from mpmtl_prob.estimators import DPAggr, Lasso, LowRank, MultiTask, Ridge, RidgeLogistic, TraceNorm
from mpmtl_prob.estimators.fitted import in_unit_variance
from mpmtl_prob.estimators.framework import run_rounds
from mpmtl_prob.releases.messages import messages
from mpmtl_prob.single_task import conjugate, laplace
from mpmtl_prob.single_task.posterior_means import _mean

SIZES = (3, 1, 40, 7, 3)
LONG = 20_000


def rows(sizes=SIZES, d=3, seed=0, labels=False):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, d)) for n in sizes]
    y = [x.sum(axis=1) + rng.standard_normal(len(x)) for x in X]
    return X, [np.where(v > 0, 1.0, -1.0) for v in y] if labels else y


def ragged(sizes=SIZES, **options):
    return TaskData.from_lists(*rows(sizes, **options))


def hospital(m=300, d=3, **options):
    """One task with as many rows as a thousand of the others."""
    return ragged([20] * m + [LONG], d=d, **options)


def data_bytes(tasks):
    return tasks.rows.nbytes + tasks.targets.nbytes


def padded_as_in_0_3_0(X, y):
    shape = len(X), max(map(len, y))
    out = np.zeros((*shape, X[0].shape[1]))
    targets = np.zeros(shape)
    mask = np.zeros(shape, dtype=bool)
    for i, (x, v) in enumerate(zip(X, y, strict=True)):
        out[i, : len(v)], targets[i, : len(v)], mask[i, : len(v)] = x, v, True
    return out, targets, mask


def test_rows_are_stored_once_and_in_their_order():
    X, y = rows()
    tasks = ragged()
    assert_array_equal(tasks.rows, np.concatenate(X))
    assert_array_equal(tasks.targets, np.concatenate(y))
    assert tasks.offsets.tolist() == [0, 3, 4, 44, 51, 54]
    assert tasks.row_counts.tolist() == list(SIZES)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(tasks)) == 54 * 4 * 8 + 6 * 8
    assert_array_equal(tasks.task_of_rows, np.repeat(np.arange(5), SIZES))
    for i in range(-5, 5):
        own = tasks.rows_of(i)
        assert_array_equal(own[0], X[i])
        assert_array_equal(own[1], y[i])
        assert not any(np.shares_memory(part, tasks.rows) for part in own)


def test_padded_views_are_those_of_0_3_0_and_read_only():
    """Padded views are those of version 0.3.0 and cannot be written to."""
    tasks, expected = ragged(), padded_as_in_0_3_0(*rows())
    for view, array in zip((tasks.X, tasks.y, tasks.mask), expected, strict=True):
        assert_array_equal(view, array)
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        tasks.rows[0] = 1
    alike = ragged((4, 4))
    assert np.shares_memory(alike.X, alike.rows)
    rows_of_a_user = np.ones((4, 2))
    TaskData.from_rows(rows_of_a_user, np.ones(4), [0, 0, 1, 1])
    rows_of_a_user[0] = 2  # is still theirs


def test_padded_arrays_may_be_given_in_the_place_of_rows():
    X, y, mask = padded_as_in_0_3_0(*rows())
    tasks = TaskData(X, y, mask, tuple(range(5)), (0, 1, 2), np.where(mask, np.arange(5)[:, None], 0))
    assert_array_equal(tasks.rows, ragged().rows)
    assert_array_equal(tasks.subjects, tasks.task_of_rows)
    doubled = dataclasses.replace(tasks, X=2 * tasks.X)
    assert_array_equal(doubled.rows, 2 * tasks.rows)
    assert_array_equal(doubled.subject, tasks.subject)
    fewer = dataclasses.replace(tasks, mask=mask & (np.arange(40) < 2))
    assert fewer.row_counts.tolist() == [2, 1, 2, 2, 2]
    assert_array_equal(fewer.X[2], X[2, :2])
    assert_array_equal(fewer.subjects, np.repeat(np.arange(5), fewer.row_counts))
    assert dataclasses.replace(tasks, subject=None).subjects is None
    some = dataclasses.replace(ragged(), X=X[:2], y=y[:2], mask=mask[:2], tasks=tasks.tasks[:2])
    assert_array_equal(some.rows, tasks.take([0, 1]).rows)


def test_tasks_are_taken_by_their_places():
    tasks = dataclasses.replace(ragged().with_intercept(), tasks=tuple("abcde"))
    some = tasks.take([3, 0])
    assert some.tasks == ("d", "a")
    assert some.intercept
    for i, of in enumerate((3, 0)):
        assert_array_equal(some.rows_of(i)[0], tasks.rows_of(of)[0])


def test_tasks_are_a_pytree_and_its_views_can_be_traced():
    tasks = ragged()
    same = jax.tree.unflatten(jax.tree.structure(tasks), jax.tree.leaves(tasks))
    assert_array_equal(same.X, tasks.X)
    read = jax.jit(lambda t: (t.X, t.y, t.mask, t.task_of_rows))
    for traced, view in zip(read(tasks), (tasks.X, tasks.y, tasks.mask, tasks.task_of_rows), strict=True):
        assert_array_equal(traced, view)
    for traced, view in zip(read(ragged((4, 4))), (ragged((4, 4)).X,), strict=False):
        assert_array_equal(traced, view)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda tasks: pickle.loads(pickle.dumps(tasks))])
def test_copies_are_whole(again):
    tasks = ragged()
    other = again(tasks)
    assert_array_equal(other.X, tasks.X)
    assert (other.tasks, other.features, other.longest) == (tasks.tasks, tasks.features, tasks.longest)


@pytest.fixture(scope="module")
def wide():
    """Tasks that nobody could pad: the array of targets alone would take more than a gibibyte."""
    tasks = ragged([1] * 3000 + [60_000], d=1)
    assert tasks.num_tasks * tasks.longest * 8 > LARGEST_VIEW
    return tasks


def test_what_is_too_large_is_refused_by_name_with_what_it_takes(wide):
    message = (
        r"{}: expected tasks of more alike sizes, got some for which the array padded to the longest, of shape "
        r"\(3001, 60000(, 1)?\), would take 1\.34 GiB, where its rows take 0\.481 MiB; "
    )
    advice = r"rows_of\(i\) returns the rows of one task, and rows, targets and offsets"
    for name in ("X", "y"):
        with pytest.raises(ValueError, match=message.format(name) + advice):
            getattr(wide, name)
    with pytest.raises(ValueError, match=message.format("X") + advice):
        jax.jit(lambda tasks: tasks.X)(wide)
    fit = Ridge().fit(wide)
    prediction = fit.predict(wide)
    advice = r"take\(\[i\]\) is the prediction of one task, and means, interval_of_rows\(\) and to_pandas\(\)"
    with pytest.raises(ValueError, match=message.format("mean") + advice):  # which has no rows_of
        _ = prediction.mean
    assert prediction.take([3000]).mean.shape == (1, 60_000)
    assert len(prediction.to_pandas()) == wide.num_rows


# -- nothing large on the way -------------------------------------------------------------------------------------------


def traced_peak(call):
    """Bytes at the peak of NumPy's and Python's allocations, above what there was."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def posterior(tasks, **options):
    public = SimpleNamespace(shape=lambda power=1.0: np.eye(tasks.num_features))
    from mpmtl_prob.inference.owner.methods import plug_in

    return plug_in(tasks, np.stack([public.shape()]), np.ones(1), None, 50, 0, **options)


CALLS = {
    "messages": lambda tasks: messages(tasks, "pareto"),
    "slopes": lambda tasks: messages(tasks.with_intercept(), "pareto"),
    "ridge": lambda tasks: Ridge().fit(tasks).predict(tasks).to_pandas(),
    "split": lambda tasks: mp.evaluation.compare({"r": Ridge().fit(tasks)}, tasks.split(0.5, 0)[1]),
    "in one unit": lambda tasks: tasks.scaled(np.ones((tasks.num_tasks, tasks.num_features))),
    "rows of unit length": lambda tasks: tasks.unit_rows(),
    "fingerprint": lambda tasks: mp.privacy.Ledger(epsilon=1.0, delta=0.1).fingerprint(tasks),
    "posterior": posterior,
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_as_large_as_a_padded_array(name):
    tasks = hospital()
    CALLS[name](hospital(3))  # what is made once
    data, padded = data_bytes(tasks), 301 * LONG * 4 * 8
    assert padded > 200 * data
    assert 7 * data < 301 * LONG  # a mask would show as well
    least = traced_peak(lambda: CALLS[name](ragged([20] * 301)))
    assert traced_peak(lambda: CALLS[name](tasks)) - least < 6 * data


def federated_run(tasks):
    m = tasks.num_tasks
    invitation = federated.invite(1.0, num_tasks=m, features=tasks.num_features, sites=2)
    sites = [federated.Site(i, tasks.take(range(i, m, 2))) for i in range(2)]
    federated.run(invitation, sites, progress_bar=False)


#: Each with the tasks that it is given, of which nothing was worked out before.
WAYS_IN = {
    "fit": lambda tasks: Ridge().fit(tasks),
    "rounds": lambda tasks: LowRank(0.5, rounds=3, clip=1.0, unsafe_seed=0).fit(tasks),
    "predict": lambda tasks: Ridge().fit(tasks).predict(tasks).to_pandas(),
    "intercept": lambda tasks: mp.release(tasks.with_intercept(), epsilon=1.0, unsafe_seed=0),
    "compare": CALLS["split"],
    "federated": federated_run,
}


@pytest.mark.parametrize("name", WAYS_IN)
def test_one_large_task_takes_four_times_the_data(name):
    """A task with a thousand times the rows of others takes four times the data's memory.

    The data themselves are the first of the four.
    """
    few, many = (ragged(sizes, d=10) for sizes in ([20] * 200, [20] * 999 + [20_000]))
    WAYS_IN[name](few.take(range(200)))  # what is made once
    least = traced_peak(lambda: WAYS_IN[name](few))
    assert traced_peak(lambda: WAYS_IN[name](many)) - least < 3 * data_bytes(many)


def test_draws_are_written_in_the_place_where_they_are_kept(monkeypatch):
    """Owners' posteriors take little beside their draws, and so does their file."""
    from mpmtl_prob.inference.owner import methods
    from mpmtl_prob.sampling import stored

    tasks, kept = ragged([20] * 600, d=10), []
    monkeypatch.setattr(methods, "BLOCK", 50)
    posterior(tasks.take(range(100)))
    peak = traced_peak(lambda: kept.append(posterior(tasks)))
    draws = kept[0].draws
    size = sum(values.nbytes for values in draws.values())
    assert peak < 1.4 * size
    names = {"W": ("chain", "draw", "feature", "task"), "sigma": ("chain", "draw", "task")}
    monkeypatch.setattr(stored, "_CHUNK", 2**12)
    group = xr.Dataset({f"{name} {i}": (names[name], draws[name][None]) for name in names for i in range(3)})
    assert traced_peak(lambda: [None for _ in stored.packed_parts(group)]) < 1.5 * draws["W"].nbytes


def test_a_table_becomes_tasks_in_a_few_copies():
    frame = hospital().to_pandas(task="t", target="y")
    peak = traced_peak(lambda: TaskData.from_pandas(frame, task="t", target="y"))
    assert peak < 5 * frame[["y", 0, 1, 2]].to_numpy().nbytes


@pytest.mark.parametrize("labels", [False, True])
def test_predictions_draw_a_few_rows_at_a_time(labels):
    from mpmtl_prob.inference.owner.likelihoods import LIKELIHOODS

    tasks = hospital(20, labels=labels)
    rng = np.random.default_rng(0)
    draws = {"W": rng.standard_normal((1200, 3, 21)), "sigma": np.ones((1200, 21))}
    likelihood, pick = LIKELIHOODS["bernoulli" if labels else "gaussian"], np.arange(0, 1200, 3)
    predict = lambda: likelihood.predict(tasks, draws["W"].mean(axis=0), draws, pick, 0).interval_of_rows()
    drawn = 400 * tasks.num_rows * 4
    assert traced_peak(predict) < drawn / 2


def test_losses_hold_each_row_once_but_for_a_few():
    tasks = hospital(labels=True)
    smooth = Logistic().alone(tasks)
    assert isinstance(smooth, LogisticRows)
    assert smooth.X.size < 2 * tasks.rows.size
    few = ragged([1] * 200 + [60], d=64)
    groups = LeastSquares().of(few)
    assert isinstance(groups, InGroups)
    assert sum(part.X.size for part in groups.parts) < 2 * few.rows.size
    assert isinstance(LeastSquares().of(ragged([40, 50], d=64)), SquaredRows)


def table(sizes=(3, 1, 40, 7, 300), **options):
    """Tasks in units of their own, that an estimator scales."""
    return dataclasses.replace(ragged(sizes, **options), scaling="unit_variance")


def test_labels_keep_no_row_for_every_signal_size():
    """For labels, nothing is kept of every row for every size of the signal."""
    tasks = ragged([100] * 100, labels=True)
    RidgeLogistic().fit(tasks.take([0]))
    assert traced_peak(lambda: RidgeLogistic().fit(tasks)) < 2 * data_bytes(tasks)
    kept = laplace.logistic_posteriors(tasks).curvature
    assert sum(each.size for each in kept) < 18 * tasks.num_rows  # of 25 values


@pytest.mark.parametrize("loss", [Logistic(), LeastSquares()], ids=["labels", "numbers"])
def test_rounds_run_on_the_only_copy_of_scaled_rows(loss, monkeypatch):
    scaled, there = [], []

    def watched(tasks):
        arrays = in_unit_variance(tasks)
        scaled.append(weakref.ref(arrays[0]))
        return arrays

    def run(sharing, run, *arguments, **options):
        there.extend(each() for each in scaled)
        pairs = zip(*(jax.tree.leaves(each) for each in (run.loss, bound[-1].loss)), strict=True)
        large = [(on_device, given) for on_device, given in pairs if given.nbytes > 2**12]
        assert large
        there.extend(each.shape for each, given in large if each.unsafe_buffer_pointer() != given.ctypes.data)
        return run_rounds(sharing, run, *arguments, **options)

    bound = []
    monkeypatch.setattr("mpmtl_prob.estimators.fitted.in_unit_variance", watched)
    monkeypatch.setattr("mpmtl_prob.estimators.plan.run_rounds", run)
    bind = LowRank.bind
    monkeypatch.setattr(LowRank, "bind", lambda self, tasks: bound.append(bind(self, tasks)) or bound[-1])
    LowRank(0.5, rounds=2, clip=1.0, start="zero", loss=loss, unsafe_seed=0).fit(table(d=12, labels=True))
    assert len(scaled) == 1
    assert there == [None]


def test_a_parquet_file_is_read_a_few_rows_of_a_column_at_a_time(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    from mpmtl_prob.data import shards

    tasks = ragged([20] * 300 + [100_000])
    frame = tasks.to_pandas()
    frame.columns = list(map(str, frame.columns))
    frame.to_parquet(tmp_path / "rows.parquet", use_dictionary=False, row_group_size=10**6)
    taken = []

    def watched(*arguments):
        taken.append(arrow.total_allocated_bytes())
        return numeric_columns(*arguments)

    monkeypatch.setattr(shards, "numeric_columns", watched)
    begin, read = arrow.total_allocated_bytes(), []
    load = lambda: read.extend(mp.TaskShards.from_parquet(tmp_path, task="task", target="y", progress_bar=False))
    assert traced_peak(load) < 3 * data_bytes(tasks)
    assert max(taken) - begin < data_bytes(tasks) / 4
    assert_array_equal(read[0].rows, tasks.rows)
    assert_array_equal(read[0].targets, tasks.targets)
    assert read[0].tasks == tasks.tasks


def test_folds_that_are_large_are_not_all_there_at_once(monkeypatch):
    tasks = dataclasses.replace(hospital(20, d=9), scaling="unit_variance")
    fits = [Ridge(penalty) for penalty in (0.1, 1.0)]
    validate = lambda: mp.evaluation.cross_validate(fits, tasks, folds=5, progress_bar=False).scores
    together = validate()  # small ones side by side, and what is made once
    monkeypatch.setattr("mpmtl_prob.evaluation.selection._TOGETHER", 0)
    assert_array_equal(validate(), together)
    gc.disable()
    try:
        assert traced_peak(validate) < 2.5 * data_bytes(tasks)
    finally:
        gc.enable()


def test_tasks_do_not_hold_themselves():
    tasks = ragged()
    assert tasks.slopes is tasks
    there = weakref.ref(tasks)
    gc.disable()
    try:
        del tasks
        assert there() is None
    finally:
        gc.enable()


# -- and the same numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaling", ["pareto", "unit_variance", "none"])
@pytest.mark.parametrize("d", [3, 13])
def test_messages_are_those_of_0_3_0_bit_for_bit(scaling, d):
    X, y = rows(d=d)
    padded, targets, mask = padded_as_in_0_3_0(X, y)
    # as it was done: what is not padding, task by task
    own = [(padded[i][mask[i]], targets[i][mask[i]]) for i in range(len(X))]
    expected = np.stack([_mean(*each, scaling, conjugate.SENT)[0] for each in own], axis=1)
    sent = messages(TaskData.from_lists(X, y), scaling)[0]
    assert sent.tobytes() == expected.tobytes()


def test_fingerprints_are_those_of_the_padded_arrays(wide):
    """A fingerprint is that of the padded arrays wherever these can be made."""
    ledger, tasks = mp.privacy.Ledger(epsilon=1.0, delta=0.1), ragged()
    X, y, mask = padded_as_in_0_3_0(*rows())
    assert ledger.fingerprint(tasks) == ledger.fingerprint(SimpleNamespace(X=X, y=y, mask=mask))
    other = dataclasses.replace(wide, targets=wide.targets + 1e-12)
    assert len({ledger.fingerprint(each) for each in (wide, other, wide.take(range(3000)))}) == 3


def test_groups_of_similar_size_are_the_same_problem():
    tasks, W = ragged([1] * 20 + [60], d=64), np.random.default_rng(1).standard_normal((64, 21))
    for loss in (LeastSquares(0.3), LeastSquares(0.3, average=True)):
        apart, together = loss.of(tasks), loss.alone(tasks)
        assert isinstance(apart, InGroups)
        for name in ("value", "gradient"):
            assert_allclose(getattr(apart, name)(W), getattr(together, name)(W), rtol=1e-9, atol=1e-9)
        assert_allclose(apart.curvature(), together.curvature(), rtol=1e-9)
        for rho in (0.1, 3.0):
            assert_allclose(apart.resolvent()(W, rho), together.resolvent()(W, rho), rtol=1e-7, atol=1e-9)
    fits = [
        MultiTask(TraceNorm(), 1.0, tolerance=1e-9).fit(tasks.take(order)).W for order in (range(21), range(20, -1, -1))
    ]
    assert_allclose(fits[0], fits[1][:, ::-1], atol=1e-6)


def test_draws_are_the_same_whenever_they_are_asked_for():
    from mpmtl_prob.inference.owner.likelihoods import GAUSSIAN

    tasks = ragged((3, 1500, 2))
    rng = np.random.default_rng(0)
    draws = {"W": rng.standard_normal((500, 3, 3)), "sigma": np.ones((500, 3))}
    prediction = GAUSSIAN.predict(tasks, draws["W"].mean(axis=0), draws, np.arange(400), 7)
    assert_array_equal(prediction.draws, prediction.draws)
    assert_array_equal(prediction.take([1]).draws[:, 0], prediction.draws[:, 1])
    assert_array_equal(pickle.loads(pickle.dumps(prediction)).draws, prediction.draws)
    low, high = prediction.interval(0.8)
    expected = np.quantile(prediction.draws[:, 1], [0.1, 0.9], axis=0)
    assert_allclose([low[1], high[1]], expected, atol=1e-5)
    alone = GAUSSIAN.predict(tasks.take([0]), draws["W"].mean(axis=0)[:, :1], {k: v[..., :1] for k, v in draws.items()},
                             np.arange(400), 7)  # fmt: skip
    assert_array_equal(alone.draws[:, 0], prediction.draws[:, 0, :3])  # another's rows change nothing
    several = prediction.intervals_of_rows([0.5, 0.8])
    assert_array_equal(several[1], prediction.interval_of_rows(0.8))
    part = dataclasses.replace(prediction, mask=prediction.mask & (np.arange(1500) < 2))
    assert_array_equal(part.draws, prediction.draws[:, :, :2])


def test_a_prediction_of_padded_arrays_is_that_of_its_rows():
    tasks, W = ragged(), np.random.default_rng(0).standard_normal((3, 5))
    prediction = linear_prediction(W, tasks)
    expected = np.einsum("tnj,jt->tn", tasks.X, W)
    assert_allclose(prediction.mean, expected, atol=1e-12)
    again = Prediction(expected, tasks.mask, tasks.tasks)
    assert_array_equal(again.means, expected[tasks.mask])
    frame = prediction.to_pandas()
    assert frame["row"].tolist() == [j for n in SIZES for j in range(n)]
    assert isinstance(frame, pd.DataFrame)


# -- compiled once -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [
    LowRank(0.5, rounds=3, clip=1.0, mechanism="wishart", curvature=5.0, start="zero", loss=Logistic(), unsafe_seed=0),
    RidgeLogistic(0.3, max_iterations=50, tolerance=1e-2),
    Lasso(0.3, Logistic(), max_iterations=50, tolerance=1e-2),
    MultiTask(TraceNorm(), 0.3, Logistic(), max_iterations=50, tolerance=1e-2),
    DPAggr(penalty=0.3, loss=Logistic(), unsafe_seed=0),
], ids=lambda estimator: type(estimator).__name__)  # fmt: skip
@pytest.mark.filterwarnings("ignore::mpmtl_prob.estimators.ConvergenceWarning")
def test_other_numbers_of_rows_compile_nothing(estimator, caplog):
    estimator.fit(ragged((3, 30, 40, 7, 9), labels=True))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for sizes in ((4, 30, 40, 7, 9), (1, 90, 2, 7, 9), (40, 1, 200, 3, 3)):
            estimator.fit(ragged(sizes, labels=True))
        assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
        estimator.fit(ragged((40, 1, 200, 3, 3), d=4, labels=True))  # or this test would see nothing
        assert [record for record in caplog.records if "Compiling" in record.getMessage()]


QUICK = {"chains": 1, "warmup": 5, "draws": 5, "progress_bar": False}


def owners(tasks, **options):
    release = mp.release(tasks, epsilon=1.0, unsafe_seed=0)
    shared = mp.inference.shared_covariance(release, **QUICK)
    mp.inference.task_posteriors(tasks, shared, chains=1, draws=5, progress_bar=False, **options)


SAMPLED = {
    "curator": lambda tasks: mp.inference.fit(mp.models.low_rank, tasks, kernel="mala", **QUICK),
    "rounds": lambda tasks: mp.inference.private_langevin(
        LowRank(0.5, rounds=3, clip=1.0, curvature=5.0, start="zero", unsafe_seed=0), tasks, progress_bar=False
    ),
    "owners": owners,
    "owners, jointly": lambda tasks: owners(tasks, method="joint"),  # rows up to the next power of two
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.evidence] * (name == "owners, jointly")) for name in SAMPLED]
)
def test_other_numbers_of_rows_compile_no_sampler(name, caplog):
    SAMPLED[name](ragged((3, 30, 40, 7, 9)))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for sizes in ((4, 30, 40, 7, 9), (3, 17, 64, 5, 16), (4, 32, 33, 8, 10)):
            SAMPLED[name](ragged(sizes))
        assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
        SAMPLED[name](ragged((4, 30, 40, 7, 9), d=4))  # or this test would see nothing
        assert [record for record in caplog.records if "Compiling" in record.getMessage()]


@pytest.mark.filterwarnings("ignore::mpmtl_prob.estimators.ConvergenceWarning")
def test_of_few_rows_only_few_sizes_are_compiled_for(caplog):
    estimator = MultiTask(TraceNorm(), 0.3, max_iterations=20, tolerance=1e-2)
    assert isinstance(LeastSquares().of(ragged((21, 21, 20), d=32)), SquaredRows)
    estimator.fit(ragged((21, 21, 20), d=32))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for longest in (22, 23, 24):
            estimator.fit(ragged((21, longest, 20), d=32))
        assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
        estimator.fit(ragged((21, 25, 20), d=32))  # or this test would see nothing
        assert [record for record in caplog.records if "Compiling" in record.getMessage()]


def test_sums_of_squares_are_the_diagonals_to_the_last_bit():
    tasks = ragged((1, 3, 40, 1000), d=9)
    assert_array_equal(tasks.squares, np.einsum("tii->ti", tasks.gram.xx))


def test_jax_reads_large_arrays_where_they_are():
    tasks = ragged((1, 3, 40, 1000), d=9, labels=True)
    with jax.enable_x64(True):
        for array in (tasks.gram.xx, LeastSquares().alone(tasks).xx, Logistic().alone(tasks).X):
            assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data


def test_weights_of_a_few_rows_at_a_time_predict_the_same(monkeypatch):
    """Weights that are applied to a few rows at a time predict what they do for all rows."""
    tasks, W = ragged((1, 3, 40, 1000), d=9), np.random.default_rng(1).standard_normal((9, 4))
    every = linear(W, tasks)
    assert_allclose(every, np.concatenate([tasks.rows_of(i)[0] @ W[:, i] for i in range(4)]), rtol=1e-9, atol=1e-12)
    monkeypatch.setattr("mpmtl_prob.data.prediction._MANY", 50)
    assert_array_equal(linear(W, tasks), every)
