"""Messages of effects: of length one, of their own rows alone, and silent where rows say nothing."""

import dataclasses

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import Reference, ReleaseSpec, TaskData
from mpmtl_prob.releases import message, terms
from mpmtl_prob.releases.effects import EffectsLayout, effect_messages
from mpmtl_prob.releases.spec import quiet_message

D = 3
REFERENCE = Reference({"a": (0, 1), "b": (1, 2), "c": (0, 1)}, target=(0, 1.5))


def make(rows=(6, 9, 5, 30, 11, 7), seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n, D)) for n in rows]
    y = [x @ [0.5, -0.2, 0.0] + 0.5 * rng.standard_normal(len(x)) for x in X]
    return X, y


def tasks_of(X, y):
    return TaskData.from_lists(X, y, features=["a", "b", "c"])


TASKS = tasks_of(*make())
TERMS = terms(1.0, TASKS.num_tasks, TASKS.features, reference=REFERENCE)


def test_messages_have_length_one_and_lie_on_the_lattice():
    v = message(TASKS, TERMS)
    assert v.shape == (D + 2, TASKS.num_tasks)
    assert np.all(np.linalg.norm(v, axis=0) <= 1)
    assert np.all(np.linalg.norm(v, axis=0) > 0.995)
    assert np.all(np.mod(v, TERMS.lattice) == 0)


def test_the_last_column_of_the_sum_is_the_weighted_mean():
    """The last column of the sum of messages is the weighted mean of the estimates."""
    u = effect_messages(TASKS, TERMS.effects)
    A = sum(np.outer(x, x) / (x @ x) for x in u.T)
    weight = 1 / (u**2).sum(axis=0)
    assert np.allclose(A[:D, -1] / A[-1, -1], u[:D] @ weight / weight.sum())


def test_an_owner_alone_makes_the_same_bits_as_the_curator():
    together = message(TASKS, TERMS)
    for i in range(TASKS.num_tasks):
        X, y = TASKS.rows_of(i)
        alone = tasks_of([X], [y])
        assert np.array_equal(message(alone, TERMS)[:, 0], together[:, i])


OTHERS = {
    "other targets": lambda X, y: (X, -y[::-1]),
    "one row": lambda X, y: (X[:1], y[:1]),
    "a thousand rows": lambda X, y: (np.repeat(X, 200, axis=0), np.repeat(y, 200)),
    "a constant column": lambda X, y: (X * [1, 0, 1] + [0, 1, 0], y),
    "constant targets": lambda X, y: (X, np.full_like(y, 3.0)),
    "zeros": lambda X, y: (0 * X, 0 * y),
    "huge": lambda X, y: (1e149 * X, 1e149 * y),
    "tiny": lambda X, y: (1e-200 * X, 1e-200 * y),
    "whole numbers": lambda X, y: (np.round(X).astype(np.int64), np.round(y).astype(np.int64)),
}


@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.filterwarnings("ignore:tasks")
@pytest.mark.parametrize("reference", [REFERENCE, None], ids=["declared units", "own units"])
def test_neighbours_differ_in_one_message_alone(change, reference):
    """Data sets that differ in one task differ in that task's message and in nothing that is public."""
    X, y = make()
    X2, y2 = list(X), list(y)
    X2[2], y2[2] = OTHERS[change](X[2], y[2])
    before, after = tasks_of(X, y), tasks_of(X2, y2)
    of = ReleaseSpec(1.0, message="effects", reference=reference).terms(len(X), before.features)
    sent = message(before, of), message(after, of)
    assert np.array_equal(np.delete(sent[0], 2, axis=1), np.delete(sent[1], 2, axis=1))
    assert np.all(np.linalg.norm(sent[1], axis=0) <= 1)
    options = {"message": "effects", "reference": reference, "unsafe_seed": 0}
    public = [dataclasses.asdict(mp.release(data, 1.0, **options)) | {"sigma": None} for data in (before, after)]
    assert str(public[0]) == str(public[1])


@pytest.mark.parametrize("scale", [1.0, 1e-90])
def test_a_task_that_knows_nothing_sends_a_one_alone(scale):
    """Rows of zeros, and rows beyond double precision in the units that were declared."""
    X, y = (part[0] for part in make())
    X, y = (0 * X, 0 * y) if scale == 1 else (1e80 * X, 1e80 * y)
    layout = EffectsLayout(("a", "b", "c"), Reference(dict.fromkeys("abc", (0.0, scale)), target=(0.0, scale)))
    u = effect_messages(tasks_of([X], [y]), layout)
    assert np.all(u[:D] == 0)
    assert u[-1] == 1.0


def test_a_guess_makes_messages_shorter_where_it_is_right():
    plain, guess = (Reference(dict.fromkeys("abc", (0, 1)), effects=known) for known in ({}, {"a": 0.5, "b": -0.2}))
    length = lambda reference: np.abs(effect_messages(TASKS, EffectsLayout(TASKS.features, reference))[:D]).sum()
    assert length(guess) < 0.7 * length(plain)


def test_file_holds_the_layout(tmp_path):
    release = mp.release(TASKS, 1.0, reference=REFERENCE)
    release.save(tmp_path / "release.nc")
    loaded = mp.Release.load(tmp_path / "release.nc")
    assert loaded.effects == release.effects
    assert loaded.guarantee.proved == release.guarantee.proved
    assert loaded.features == ("a", "b", "c", "determined: columns", "one")


def test_without_reference_every_task_has_its_own_intercept():
    """Without reference values, the intercept is every task's own."""
    release = mp.release(TASKS.with_intercept(), 1.0, message="effects", unsafe_seed=0)
    assert release.effects.coefficients == ("a", "b", "c")
    assert release.scaling == "unit_variance"
    moved = tasks_of(*(list(parts) for parts in (make()[0], [v + 100 for v in make()[1]]))).with_intercept()
    assert np.allclose(mp.release(moved, 1.0, message="effects", unsafe_seed=0).sigma, release.sigma, atol=0.05)


def test_with_reference_values_the_intercept_is_an_effect():
    release = mp.release(TASKS.with_intercept(), 1.0, reference=REFERENCE)
    assert release.effects.coefficients[-1] == "intercept"
    assert release.features[-3:] == ("determined: columns", "determined: intercept", "one")


def test_shards_send_the_same_messages(tmp_path):
    table = TASKS.to_pandas(task="task", target="y")
    table["task"] = "t" + table["task"].astype(str)
    for number, part in enumerate(([0, 1, 2], [3, 4, 5])):
        names = [f"t{i}" for i in part]
        table[table["task"].isin(names)].to_parquet(tmp_path / f"{number}.parquet")
    shards = mp.TaskShards.from_parquet(tmp_path, task="task", target="y", progress_bar=False)
    whole = TaskData.from_pandas(table, task="task", target="y")
    one, other = (mp.release(data, 1.0, reference=REFERENCE, unsafe_seed=3) for data in (shards, whole))
    assert np.array_equal(one.sigma, other.sigma)


def test_a_badly_scaled_column_is_told_to_its_owner_alone():
    """An owner whose column is a thousand times its scale is told so; nothing public changes."""
    X, y = make()
    scaled = tasks_of([X[0] * [1000, 1, 1], *X[1:]], y)
    with pytest.warns(UserWarning, match="as if in other units: 'a' of 0"):
        told = mp.release(scaled, 1.0, reference=REFERENCE, unsafe_seed=0)
    plain = mp.release(TASKS, 1.0, reference=REFERENCE, unsafe_seed=0)
    assert (told.num_tasks, told.features, told.effects) == (plain.num_tasks, plain.features, plain.effects)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reference": {"a": (0, 1)}}, "reference: expected a mpmtl_prob.Reference"),
        ({"reference": REFERENCE, "message": "direction"}, "reference: expected it with message='effects' alone"),
        ({"reference": REFERENCE, "scaling": "pareto"}, "scaling: expected none with message='effects'"),
        ({"reference": REFERENCE, "rounds": 2}, "rounds: expected 1"),
        ({"reference": REFERENCE, "respond": print}, "respond: expected none"),
        ({"reference": REFERENCE, "clip": 2.0}, "clip: messages of 'effects' have unit length"),
    ],
)
def test_what_does_not_go_with_effects_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        mp.release(TASKS, 1.0, **options)


@pytest.mark.parametrize(
    ("column", "scale"), [("a", [1000, 1, 1]), ("the target", [1, 1, 1])], ids=["a column", "the target"]
)
def test_rows_in_other_units_are_told_at_their_owners_line(column, scale):
    """Whoever holds rows in other units is told at their own line, and the message stays as it was."""
    X, y = make()
    X, y = [X[0] * scale, *X[1:]], [y[0] * (1000 if column == "the target" else 1), *y[1:]]
    with pytest.warns(UserWarning, match=f"{column!r} of 0") as told:
        release = mp.release(tasks_of(X, y), 1.0, reference=REFERENCE, unsafe_seed=0)
    assert told[0].filename == __file__
    quiet = quiet_message(tasks_of(X, y), TERMS)  # as an owner makes it
    noise = mp.release(TASKS, 1.0, reference=REFERENCE, unsafe_seed=0).sigma - (sent := message(TASKS, TERMS)) @ sent.T
    assert np.allclose(release.sigma - noise, quiet @ quiet.T, atol=1e-12)


def test_an_intercept_is_shared_by_all_or_by_nobody():
    with_it, without = (
        ReleaseSpec(1.0, reference=REFERENCE).layout(names) for names in (("a", "b", "c", "intercept"), "abc")
    )
    with pytest.raises(
        ValueError, match=r"tasks: expected them with an intercept.* with_intercept\(\), in a shell --intercept"
    ):
        effect_messages(TASKS, with_it)
    with pytest.raises(ValueError, match="tasks: expected them without an intercept"):
        effect_messages(TASKS.with_intercept(), without)


def test_rows_without_eigenvalues_stop_nothing(monkeypatch):
    """Rows whose eigenvalues do not converge stop nothing and say nothing.

    A finite matrix may do that to LAPACK; whether there is a release must not depend on one task's rows.
    """

    def refuse(matrix):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", refuse)
    assert np.all(effect_messages(TASKS, TERMS.effects)[:D] == 0)


@pytest.mark.parametrize("names", [np.arange(3), [("x", 1), ("x", 2), ("x", 3)], [1.5, True, "b"]])
def test_names_of_any_kind_stand_in_files(names, tmp_path):
    tasks = TaskData.from_lists(*make(), features=list(names))
    for options in ({"message": "effects"}, {"reference": Reference.standard(list(names))}):
        release = mp.release(tasks, 1.0, **options)
        release.save(tmp_path / "release.nc")
        assert mp.Release.load(tmp_path / "release.nc").effects == release.effects


@pytest.mark.parametrize("reference", [REFERENCE, None], ids=["declared units", "own units"])
@pytest.mark.parametrize("names", [["a", "b", "intercept"], ["intercept", "b", "c"]])
@pytest.mark.parametrize("kind", ["rows", "shards"])
def test_a_column_called_intercept_is_refused_before_a_charge(names, reference, kind, tmp_path):
    """A user's own column called "intercept" is refused before anything is charged.

    By name it would be dropped, or shared as the intercept, whatever it holds.
    """
    tasks = TaskData.from_lists(*make(), features=names)
    if kind == "shards":
        tasks.to_pandas(task="task", target="y").to_parquet(tmp_path / "0.parquet")
        tasks = mp.TaskShards.from_parquet(tmp_path, task="task", target="y", progress_bar=False)
    ledger = mp.privacy.Ledger(epsilon=1.0, delta=0.1)
    with pytest.raises(ValueError, match=r"no column of your own that is called 'intercept'.*rename it"):
        mp.release(tasks, 1.0, message="effects", reference=reference, ledger=ledger)
    assert ledger.spent.epsilon == 0
    with pytest.raises(ValueError, match=r"'intercept'.*rename it"):
        effect_messages(TaskData.from_lists(*make(), features=names), EffectsLayout(("a", "b", "c")))


def test_contrasts_have_no_centres_to_take():
    with pytest.raises(ValueError, match="expected rows, got contrasts"):
        mp.release(TASKS.with_intercept().slopes, 1.0, reference=REFERENCE)


@pytest.mark.parametrize(
    ("names", "words"),
    [((), "names of one effect at least"), (("a", "a"), "distinct names"), (("a", "one"), "'one' is what messages")],
)
def test_a_layout_of_names_that_cannot_be_is_refused(names, words):
    with pytest.raises(ValueError, match=words):
        EffectsLayout(names)


def test_shards_tell_of_units_too(tmp_path):
    table = TASKS.to_pandas(task="task", target="y")
    table.to_parquet(tmp_path / "0.parquet")
    shards = mp.TaskShards.from_parquet(tmp_path, task="task", target="y", progress_bar=False)
    thousandth = Reference(dict.fromkeys("abc", (0, 0.001)), target=(0, 1))
    with pytest.warns(UserWarning, match="as if in other units: 'a' of"):
        mp.release(shards, 1.0, reference=thousandth, unsafe_seed=0)


def test_vectors_of_ones_own_are_no_rows():
    with pytest.raises(ValueError, match="expected TaskData or TaskShards with message='effects'"):
        mp.release(np.eye(3), 1.0, message="effects")


@pytest.mark.parametrize("rows", [2, 9])
def test_constant_targets_send_what_an_empty_task_sends(rows):
    """A task whose targets do not vary sends what a task that knows nothing would send.

    Its residuals are zero, as if its effects were known without error.
    """
    X = np.random.default_rng(0).standard_normal((rows, 2))
    layout = EffectsLayout(("a", "b"), Reference.standard(["a", "b"]))
    tasks = TaskData.from_lists([X, X], [np.full(rows, 3.0), X[:, 0]], features=["a", "b"])
    sent = effect_messages(tasks, layout)
    np.testing.assert_array_equal(sent[:, 0], [0, 0, 0, 1])
    assert sent[:, 1].any()
    one = TaskData.from_lists([X[:1]], [[3.0]], features=["a", "b"])
    assert effect_messages(one, layout)[:2].any()
