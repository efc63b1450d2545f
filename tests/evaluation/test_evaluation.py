import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import Prediction, TaskData
from mpmtl_prob.estimators import Ridge
from mpmtl_prob.evaluation import (
    auc,
    compare,
    coverage,
    cross_validate,
    grids,
    named,
    nmse,
    nmse_within,
    noise_aware,
    standard_fits,
)
from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL


@pytest.fixture
def two_tasks():
    return TaskData.from_lists([np.ones((3, 1)), np.ones((1, 1))], [[1.0, 2.0, 3.0], [10.0]])


def test_scores_by_hand(two_tasks):
    zero = Prediction(np.zeros((2, 3)), two_tasks.mask, two_tasks.tasks)
    assert_allclose(nmse(zero, two_tasks), (1 + 4 + 9 + 100) / 4 / np.var([1, 2, 3, 10]))
    assert_allclose(nmse_within(zero, two_tasks), (1 + 4 + 9 + 100) / (1 + 0 + 1 + 0))
    assert np.isnan(coverage(zero, two_tasks))


def test_variances_over_n_less_one(two_tasks):
    zero = Prediction(np.zeros((2, 3)), two_tasks.mask, two_tasks.tasks)
    assert_allclose(nmse(zero, two_tasks, ddof=1), 114 / 4 / np.var([1, 2, 3, 10], ddof=1))
    assert_allclose(
        nmse_within(zero, two_tasks, ddof=1), 114 / (3 * np.var([1, 2, 3], ddof=1))
    )  # one row has no variance
    for score in (nmse, nmse_within):
        with pytest.raises(ValueError, match="ddof: expected 0, or 1"):
            score(zero, two_tasks, ddof=2)


def test_coverage_counts_real_rows_only(two_tasks):
    draws = np.random.default_rng(0).uniform(0, 4, (5000, 2, 3))
    prediction = Prediction(draws.mean(0), two_tasks.mask, two_tasks.tasks, draws)
    assert coverage(prediction, two_tasks, 0.9) == 0.75  # 1, 2 and 3 inside, 10 outside
    assert coverage(prediction, two_tasks, 0.2) == 0.25  # 2 inside


def test_auc_is_scikit_learns_average_over_mixed_tasks():
    """The AUC is the average of scikit-learn's over tasks with both kinds of rows."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    y = [rng.choice([-1.0, 1.0], n) for n in (30, 50, 7)] + [np.ones(4)]
    tasks = TaskData.from_lists([np.ones((len(v), 1)) for v in y], y)
    score = np.where(tasks.mask, np.round(tasks.y + rng.normal(0, 2, tasks.y.shape)), 99)  # rounded: many ties
    areas = [roc_auc_score(tasks.y[i][tasks.mask[i]], score[i][tasks.mask[i]]) for i in range(3)]
    prediction = Prediction(score, tasks.mask, tasks.tasks)
    assert_allclose(auc(prediction, tasks), np.mean(areas), rtol=1e-13)
    alone = TaskData.from_lists([np.ones((2, 1))], [np.ones(2)])
    assert np.isnan(auc(Prediction(np.zeros((1, 2)), alone.mask, alone.tasks), alone))
    score[1, 3] = np.nan
    with pytest.raises(ValueError, match="prediction: expected numbers, got 1 that are not"):
        auc(Prediction(score, tasks.mask, tasks.tasks), tasks)


def test_the_reliability_picture_is_scikit_learns():
    """The reliability picture is scikit-learn's, for probabilities and log odds alike."""
    pytest.importorskip("matplotlib").use("Agg")
    from scipy.special import logit
    from sklearn.calibration import calibration_curve

    from mpmtl_prob import plots

    rng = np.random.default_rng(0)
    p = rng.uniform(size=(2, 60))
    tasks = TaskData.from_lists(np.ones((2, 60, 1)), np.where(rng.uniform(size=p.shape) < p**2, 1.0, -1.0))
    predictions = {
        "probabilities": Prediction(p, tasks.mask, tasks.tasks, quantity="probability"),
        "log odds": Prediction(logit(p), tasks.mask, tasks.tasks),
    }
    _, *lines = plots.reliability(predictions, tasks, bins=8).lines
    share, said = calibration_curve(tasks.y.ravel(), p.ravel(), n_bins=8, strategy="quantile")
    for line in lines:
        assert_allclose(line.get_xydata(), np.stack([said, share], axis=1), rtol=1e-12)
    with pytest.raises(ValueError, match="test: expected targets -1 and 1"):
        plots.reliability(predictions, TaskData.from_lists(np.ones((2, 60, 1)), p))
    with pytest.raises(ValueError, match="bins: expected a whole number >= 1, got 0"):
        plots.reliability(predictions, tasks, bins=0)


def test_scores_refuse_predictions_of_other_rows(two_tasks):
    other = Prediction(np.zeros((2, 2)), np.ones((2, 2), bool), ("a", "b"))
    with pytest.raises(ValueError, match="prediction and test"):
        nmse(other, two_tasks)
    with pytest.raises(ValueError, match=r"prediction: expected a Prediction, as of a fit's predict\(\), got TaskData"):
        nmse(two_tasks, other)


def test_cross_validation_finds_the_penalty_that_predicts():
    train, test, _ = mp.datasets.synthetic_low_rank(num_tasks=60, num_features=8, rows=9, test_rows=40)
    candidates = [Ridge(p) for p in (1e-6, 0.02, 50.0)]
    selection = cross_validate(candidates, train, folds=9, progress_bar=False)  # with as many rows as features
    assert selection.best == Ridge(0.02)
    assert selection.mean.argmin() == 1
    held_out = [nmse(c.fit(train).predict(test), test) for c in candidates]
    assert np.argmin(held_out) == 1
    with pytest.raises(ValueError, match="candidates: expected at least one"):
        cross_validate([], train)


@pytest.fixture(scope="module")
def synthetic():
    train, test, _ = mp.datasets.synthetic_low_rank(num_tasks=8, num_features=3, rows=8, test_rows=20, group=4)
    with pytest.MonkeyPatch.context() as patch:  # two candidates of every grid, of one kind
        some = lambda candidates, *more, **options: cross_validate(candidates[:2], *more, **options)
        patch.setattr(named, "cross_validate", some)
        patch.setattr(named, "WARMUP", 200)  # the usual
        fits = standard_fits(train, [1.0], adjacency="zero_out", chains=2, draws=200, progress_bar=False)
    return compare(fits, test)


@pytest.mark.evidence
def test_one_release_closes_most_of_the_multi_task_gap():
    """One release closes most of the gap between single-task and multi-task learning."""
    train, test, _ = mp.datasets.synthetic_low_rank(num_tasks=160, num_features=16, rows=16)
    fits = standard_fits(train, [1.0], adjacency="zero_out", chains=2, draws=150, progress_bar=False)
    synthetic = compare(fits, test)
    ours, alone, together = (synthetic[name]["nmse"] for name in (noise_aware(1.0), STL, NON_PRIVATE))
    # one draw of the noise; over twenty the share is .91 with sd .02, the coverage .915 with sd .003
    assert (alone - ours) / (alone - together) > 0.8
    assert ours < 0.6 * synthetic["Algorithm 2, eps = 1"]["nmse"]
    assert abs(synthetic[noise_aware(1.0)]["coverage_90"] - 0.9) < 0.03


def test_every_line_says_what_is_claimed_and_what_is_proved(synthetic):
    paper, ours = synthetic["Algorithm 2, eps = 1"], synthetic[noise_aware(1.0)]
    delta = mp.releases.default_delta(8)
    assert (paper["claimed"].epsilon, paper["claimed"].delta) == (1.0, delta)
    assert paper["proved"].delta >= 1 - np.exp(-1)
    assert ours["claimed"] is None
    assert ours["proved"].epsilon == 1.0
    assert_allclose(ours["proved"].delta, delta, rtol=1e-6)
    assert ours["proved"].delta <= delta
    assert synthetic[NON_PRIVATE]["proved"] is None
    assert synthetic[ALONE]["proved"].epsilon == 0


def test_the_table_prints_exports_and_renders(synthetic):
    text = str(synthetic)
    assert "proved (eps, delta)" in text
    assert text.count("\n") == 1 + len(synthetic.rows)
    assert json.loads(json.dumps(synthetic.to_dicts()))[0]["name"] == STL
    assert synthetic.to_dicts()[0]["coverage_90"] is None
    assert synthetic.to_pandas().loc[STL, "nmse"] == synthetic[STL]["nmse"]
    assert synthetic._repr_html_().count("<tr>") == 1 + len(synthetic.rows)
    with pytest.raises(KeyError):
        synthetic["nobody"]


@pytest.mark.evidence
def test_on_school_the_posterior_beats_what_needs_no_sharing():
    try:
        train, test = mp.datasets.school().split(0.3, seed=0)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    fits = {
        name: cross_validate(grid, train, progress_bar=False).fit(train)
        for name, grid in {STL: grids.ridge(train), ALONE: grids.alone(train)[::3]}.items()
    }
    fits["ours"] = mp.NoiseAware(1.0, adjacency="zero_out", chains=2, warmup=150, draws=150).fit(train)
    table = compare(fits, test)
    # over releases .763 with sd .003; ridge and M = I are near .83
    for name in (STL, ALONE):
        assert table["ours"]["nmse_within"] < table[name]["nmse_within"] - 0.03
    assert abs(table["ours"]["coverage_90"] - 0.9) < 0.02


def test_bad_arguments_are_named(synthetic):
    with pytest.raises(ValueError, match="fits: expected at least one"):
        compare({}, None)
    train, _, _ = mp.datasets.synthetic_low_rank(num_tasks=5, num_features=2, rows=4, test_rows=1)
    with pytest.raises(ValueError, match="epsilons: expected a positive number, got -1"):
        standard_fits(train, [-1.0])


def test_what_is_no_fit_is_named(two_tasks):
    test = two_tasks
    with pytest.raises(ValueError, match="fits: expected a mapping from names to fits, got list"):
        mp.evaluation.compare([Ridge().fit(test)], test)
    with pytest.raises(ValueError, match=r"fits: expected a fit, got Ridge as 'ridge'; call its fit\(train\) first"):
        mp.evaluation.compare({"ridge": Ridge()}, test)


def test_reference_values_make_a_mixed_models_posterior():
    """Reference values make the posterior that of a mixed model."""
    train, test, _ = mp.datasets.synthetic_low_rank(num_tasks=8, num_features=3, rows=8, test_rows=20, group=4)
    reference = mp.Reference.standard(3)
    with pytest.MonkeyPatch.context() as patch:
        some = lambda candidates, *more, **options: cross_validate(candidates[:1], *more, **(options | {"folds": 2}))
        patch.setattr(named, "cross_validate", some)
        patch.setattr(named, "WARMUP", 200)
        fits = standard_fits(train, [2.0], reference=reference, chains=2, draws=200, progress_bar=False)
        ours = fits[noise_aware(2.0)]
        assert isinstance(ours, mp.inference.OwnerEffects)
        assert ours.shared.layout.reference == reference
        assert len(compare(fits, test).rows) == len(fits) == 6
        patch.setattr(named, "cross_validate", None)  # nothing is fitted before these are refused
        with pytest.raises(ValueError, match="reference: expected values of the columns"):
            standard_fits(train, [2.0], reference=mp.Reference.standard(4))
        labels = mp.TaskData.from_lists(np.ones((8, 4, 3)), np.tile([1.0, -1.0], (8, 2)))
        with pytest.raises(ValueError, match="likelihood: expected 'gaussian' or 'student_t' with messages of effects"):
            standard_fits(labels, [2.0], reference=reference, likelihood="bernoulli")
