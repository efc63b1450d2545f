"""Forests of a mixed model's effects: they show the numbers of its tables, and whose these are."""

import dataclasses

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import plots

pytest.importorskip("matplotlib").use("Agg")


@pytest.fixture(scope="module")
def own():
    rng = np.random.default_rng(0)
    X = [rng.normal(60, 15, (12, 1)) for _ in range(10)]
    y = [7 + 0.1 * (rows[:, 0] - 60) + rng.normal(0, 2, 12) for rows in X]
    names = [f"H{i}" for i in range(10)]
    tasks = mp.TaskData.from_lists(X, y, features=["age"], tasks=names).with_intercept()
    release = mp.release(tasks, 5.0, reference=mp.Reference({"age": (60, 15)}, target=(7, 5)), unsafe_seed=0)
    shared = mp.inference.shared_effects(release, chains=2, warmup=200, draws=200, progress_bar=False)
    return mp.inference.task_posteriors(tasks, shared)


@pytest.fixture(autouse=True)
def closed():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def points(ax):
    """Return where points lie from left to right, in the order of drawing."""
    return [float(x) for line in ax.lines if line.get_marker() == "o" for x in line.get_xdata()]


def intervals(ax):
    """The ends of what is drawn as horizontal lines."""
    return [(path[0, 0], path[1, 0]) for lines in ax.collections for path in lines.get_segments()]


def rows(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def title(ax):
    return ax.figure.get_suptitle()


def test_a_task_stands_beside_the_average_and_a_new_tasks_range(own):
    """One task stands beside the average and the range in which a new task is expected."""
    axes = plots.forest(own, task="H3", probability=0.8)
    assert [ax.get_title() for ax in axes] == ["age", "intercept"]
    table, average, new = own.coefficients(0.8), own.shared.average_effects(0.8), own.shared.new_task(0.8)
    for ax in axes:
        mine, of_all, other = table.loc[("H3", ax.get_title())], average.loc[ax.get_title()], new.loc[ax.get_title()]
        np.testing.assert_allclose(points(ax), [mine["alone"], mine["mean"], of_all["mean"]])
        ends = [
            [mine["alone_lower"], mine["alone_upper"]],
            *([row["lower"], row["upper"]] for row in (mine, of_all, other)),
        ]
        np.testing.assert_allclose(intervals(ax), ends)
    assert rows(axes[0]) == ["alone", "with the release", "average", "a new task"]  # which all panels share
    assert title(axes[0]) == "Effects of H3, for its owner, 80 % intervals"


def test_a_picture_has_the_words_and_units_of_its_study(own):
    axes = plots.forest(own, task="H3", units={"age": "days (age in years)"}, task_word="hospital")
    assert [ax.get_xlabel() for ax in axes] == ["in days (age in years)", "in the table's units"]
    assert rows(axes[0])[-1] == "a new hospital"


def test_all_tasks_are_on_one_desk_alone_and_the_picture_says_so(own):
    (ax,) = plots.forest(own, effect="age")
    table = own.coefficients().xs("age", level="effect").sort_values("mean")
    assert rows(ax) == list(table.index)
    np.testing.assert_allclose(points(ax), [*table["alone"], *table["mean"]])
    assert "not to be published" in title(ax)
    legend = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert legend == ["range of a new task", "average", "alone", "with the release"]
    new, average = own.shared.new_task().loc["age"], own.shared.average_effects().loc["age"]
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in ax.patches]
    np.testing.assert_allclose(spans, [[new["lower"], new["upper"]], [average["lower"], average["upper"]]])


def test_the_public_posterior_has_averages_and_nobodys_effects(own):
    axes = plots.forest(own.shared)
    for ax in axes:
        average, new = own.shared.average_effects().loc[ax.get_title()], own.shared.new_task().loc[ax.get_title()]
        np.testing.assert_allclose(points(ax), [average["mean"]])
        np.testing.assert_allclose(intervals(ax), [[row["lower"], row["upper"]] for row in (average, new)])
        low, high = ax.get_xlim()
        marked = ax.get_title() != "intercept" and bool(low < 0 < high)  # where there is no effect, if that is in sight
        assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() != "o"] == [[0, 0]] * marked
    assert rows(axes[0]) == ["average", "a new task"]
    assert "published" not in title(axes[0])


@pytest.fixture(scope="module")
def in_own_units():
    """Rows of ten tasks, whose columns vary differently, and owners of a release without reference values."""
    rng = np.random.default_rng(1)
    X = [rng.normal(60, 10 + i, (12, 1)) for i in range(10)]
    y = [7 + 0.1 * (rows[:, 0] - 60) + rng.normal(0, 2, 12) for rows in X]
    tasks = mp.TaskData.from_lists(X, y, features=["age"], tasks=[f"H{i}" for i in range(10)]).with_intercept()
    release = mp.release(tasks, 5.0, message="effects", unsafe_seed=0)
    shared = mp.inference.shared_effects(release, chains=2, warmup=200, draws=200, progress_bar=False)
    return X, y, mp.inference.task_posteriors(tasks, shared)


def test_effects_without_reference_are_per_own_deviation(in_own_units):
    """Without reference values, effects are per standard deviation of each task's own rows."""
    X, y, own = in_own_units
    sds = np.array([v.std(ddof=1) / x[:, 0].std(ddof=1) for x, v in zip(X, y, strict=True)])
    np.testing.assert_allclose(own.common_units().xs("age", level="effect"), sds)
    assert own.common_units().xs("intercept", level="effect").isna().all()
    average, new = own.shared.average_effects().loc["age"], own.shared.new_task().loc["age"]
    mine = own.coefficients().loc[("H3", "age")] / sds[3]
    ax, intercept = plots.forest(own, task="H3")
    np.testing.assert_allclose(points(ax), [mine["alone"], mine["mean"], average["mean"]])
    np.testing.assert_allclose(intervals(ax)[2:], [[row["lower"], row["upper"]] for row in (average, new)])
    assert (ax.get_xlabel(), intercept.get_xlabel()) == ("per sd of own rows", "in the table's units")
    level = own.coefficients().loc[("H3", "intercept")]
    np.testing.assert_allclose(points(intercept), [level["alone"], level["mean"]])  # and no average
    every, _ = plots.forest(own)
    assert every.get_xlabel() == "per sd of own rows"
    shown = (own.coefficients().xs("age", level="effect")["mean"] / sds).sort_values()
    np.testing.assert_allclose(every.lines[1].get_xdata(), shown)
    assert len(every.patches) == 2
    (ax,) = plots.forest(own.shared)
    assert ax.get_xlabel() == "per sd of own rows"


def test_owners_without_units_stand_beside_no_average(in_own_units):
    """Owners who do not know their units are shown in the tables, and beside no average.

    Their units are unknown where a file was written before files held them.
    """
    _, _, own = in_own_units
    tree = own.to_arviz()
    tree["constant_data"] = tree["constant_data"].to_dataset().drop_vars("unit")
    (ax,) = plots.forest(dataclasses.replace(own, _tree=tree), effect="age", task="H3")
    mine = own.coefficients().loc[("H3", "age")]
    np.testing.assert_allclose(points(ax), [mine["alone"], mine["mean"]])
    assert ax.get_xlabel() == "in the table's units"


def test_every_table_says_in_which_units_it_is(own, in_own_units):
    _, _, other = in_own_units
    tables = [
        lambda posterior: posterior.average_effects(),
        lambda posterior: posterior.new_task(),
        lambda posterior: posterior.contrasts({"ten years": {"age": 10}}),
    ]
    for table in tables:
        assert table(own.shared).attrs["units"] == "of the table"
        assert "own rows" not in table(own.shared).to_string()
        assert table(other.shared).attrs["units"] == "standard deviations of each task's own rows"
        assert "per sd of own rows" in table(other.shared).to_string()
    for table in (other.coefficients(), other.standing(), own.coefficients(), own.standing()):
        assert table.attrs["units"] == "of the table"


def test_the_subspace_of_effects_is_drawn_as_that_of_weights(own):
    """Spectra of the public posterior and of owners, which rest on it, are the same."""
    one, other = (plots.spectrum(each) for each in (own.shared, own))
    assert np.array_equal(one.lines[0].get_ydata(), other.lines[0].get_ydata())
    assert [text.get_text() for text in plots.projector(own.subspace(1)).get_yticklabels()] == list(
        own.shared.coefficients
    )
    with pytest.raises(ValueError, match="got 'full'"):
        plots.inclusion(own.shared)


def test_what_cannot_be_drawn_is_named(own):
    for options, message in (
        ({"effect": "sex"}, r"effect: expected one of \['age', 'intercept'\], got 'sex'"),
        ({"task": "H10"}, "task: expected one of the fit's, such as 'H0', got 'H10'"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.forest(own, **options)
    with pytest.raises(ValueError, match="task: expected none of the public posterior, got 'H0'"):
        plots.forest(own.shared, task="H0")
    with pytest.raises(ValueError, match=r"effects: expected OwnerEffects or SharedEffects, .* got Release"):
        plots.forest(own.shared.release)
