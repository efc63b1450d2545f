"""Pictures: what is drawn where, that nothing is left out, and that axes, titles and legends are in words."""

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData, plots
from mpmtl_prob.inference import fit, shared_covariance, task_posteriors

pytest.importorskip("matplotlib").use("Agg")
FAST = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}
NAMES = [f"clinic {i}" for i in range(12)]


@pytest.fixture(scope="module")
def rows():
    """Training and test rows, whose level is far above all slopes."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((12, 14, 3)), rng.standard_normal((12, 3))
    y = np.einsum("mnd,md->mn", X, W) + rng.standard_normal((12, 14)) + 500
    make = lambda part: TaskData.from_lists(
        X[:, part], y[:, part], tasks=NAMES, features=["a", "b", "c"]
    ).with_intercept()
    return make(slice(10)), make(slice(10, 14)), W


@pytest.fixture(scope="module")
def shared(rows):
    return shared_covariance(mp.release(rows[0], 10.0, unsafe_seed=0), **FAST)


@pytest.fixture(scope="module")
def own(rows, shared):
    return task_posteriors(rows[0], shared)


@pytest.fixture(autouse=True)
def closed():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def medians(ax):
    """Points by their row, from the top."""
    points = [dots.get_offsets()[0] for dots in ax.collections]
    return [float(x) for x, _ in sorted(points, key=lambda point: -point[1])]


def test_an_intercept_has_a_scale_of_its_own(own):
    ax = plots.weights({"own": own}, "clinic 3")
    slopes, intercept = ax.figure.axes
    assert ax is slopes
    assert (labels(slopes), labels(intercept)) == (["a", "b", "c"], ["intercept"])
    W = own.to_arviz()["posterior/W"].sel(task="clinic 3").median(("chain", "draw")).values
    np.testing.assert_allclose(medians(slopes), W[:3])
    np.testing.assert_allclose(medians(intercept), W[3:])
    assert np.ptp(slopes.get_xlim()) < 20
    assert min(intercept.get_xlim()) > 450
    low, high = slopes.get_ylim()
    assert all(low + 0.3 < tick < high - 0.3 for tick in slopes.get_yticks())  # no row is cut off
    assert slopes.get_xlabel() == "weight"
    assert intercept.get_xlabel() == "intercept: where every feature is 0"


def test_posteriors_of_different_sizes_stand_side_by_side(rows, shared, own):
    """Posteriors with different numbers of draws and features stand side by side."""
    short = task_posteriors(rows[0], shared, chains=1, draws=50)
    parts = [rows[0].rows_of(i) for i in range(12)]
    without = TaskData.from_lists(
        [X[:, :3] for X, _ in parts], [y - 500 for _, y in parts], tasks=NAMES, features=["a", "b", "c"]
    )
    curator = fit(mp.models.low_rank, without, chains=1, warmup=100, draws=60, progress_bar=False)
    slopes, intercept = plots.weights({"own": own, "short": short, "curator": curator}, "clinic 3").figure.axes
    assert len(medians(slopes)) == 9
    assert len(medians(intercept)) == 2  # which the curator's model does not have
    assert np.isfinite([*medians(slopes), *medians(intercept)]).all()
    drawn = np.median(curator.draws["W"][..., 3].reshape(-1, 3), axis=0)
    np.testing.assert_allclose(medians(slopes)[2::3], drawn, rtol=1e-6)
    assert [text.get_text() for text in slopes.get_legend().get_texts()] == ["own", "short", "curator"]


def test_intervals_are_those_of_the_draws(own):
    ax = plots.weights({"own": own}, "clinic 3", probability=0.8)
    W = own.to_arviz()["posterior/W"].sel(task="clinic 3", feature="a").values
    ends = [line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2][:2]
    np.testing.assert_allclose(ends, [np.quantile(W, [0.1, 0.9]), np.quantile(W, [0.25, 0.75])])


def test_every_picture_has_a_title_axis_labels_and_a_legend(rows, shared, own):
    """Every picture has a title, axes in words and, where it shows several things, a legend."""
    _, test, W = rows
    one, both = shared.subspace(1, reference=W.T @ W), {"one": own, "other": own}
    predictions = {"one": own.predict(test), "other": own.predict(test)}
    for several, ax in (
        (True, plots.spectrum(shared, W.T @ W)),
        (True, plots.spectrum({"one": shared, "other": shared})),
        (False, plots.projector(one)),
        (True, plots.angles(one, chance=True)),
        (True, plots.error_by_task(both, test)),
        (False, plots.error_by_task(own, test)),
        (True, plots.weights(both, "clinic 0")),
        (True, plots.shift(own, own)),
        (True, plots.coverage(predictions, test)),
        (True, plots.ladder({1.0: one, 10.0: one})),
    ):
        assert len(ax.get_title() or ax.figure.get_suptitle()) > 10
        assert len(ax.get_xlabel()) > 3
        assert len(ax.get_ylabel()) > 3 or len(labels(ax)[0]) > 0
        assert (ax.get_legend() is not None) == several
        for line in ax.lines:
            low, high = sorted(ax.get_ylim())
            seen = np.asarray(line.get_ydata(), dtype=float)
            assert ((seen[np.isfinite(seen)] >= low) & (seen[np.isfinite(seen)] <= high)).all() or line.get_label()[
                0
            ] == "_"
