"""Mixed models of binary outcomes and counts, from rows to average effects, owners and predictions."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import mpmtl_prob as mp
from mpmtl_prob import Reference, TaskData
from mpmtl_prob.inference import NoiseAware, OwnerEffects, shared_effects, task_posteriors
from mpmtl_prob.releases import ReleaseSpec
from mpmtl_prob.releases.effects import effect_messages

MU, LEVEL, TAU, M = np.array([0.5, -0.4]), -1.5, np.array([0.15, 0.15, 0.3]), 60
OUTCOMES = ["binary", "count"]


def simulate(outcome, seed=0, m=M, n=80, level=LEVEL, tau=TAU):
    rng = np.random.default_rng(seed)
    beta = np.array([*MU, level]) + tau * rng.standard_normal((m, 3))
    X, exposure = rng.standard_normal((m, n, 2)), rng.uniform(0.5, 4, (m, n))
    eta = np.einsum("ind,id->in", X, beta[:, :2]) + beta[:, 2:]
    if outcome == "binary":
        y = (rng.random((m, n)) < expit(eta)).astype(float)
    else:
        y = rng.poisson(exposure * np.exp(eta) * rng.gamma(5, 1 / 5, (m, n))).astype(float)
    names = [f"H{i}" for i in range(m)]
    tasks = TaskData.from_lists(X, y, tasks=names, features=["a", "b"]).with_intercept()
    return (tasks if outcome == "binary" else tasks.with_exposure(exposure)), beta.T


def reference(outcome, baseline=0.15):
    return Reference.standard(["a", "b"], outcome=outcome, baseline=baseline)


def layout(outcome, baseline=0.15):
    return ReleaseSpec(1.0, reference=reference(outcome, baseline)).layout(["a", "b", "intercept"])


@pytest.fixture(scope="module", params=OUTCOMES)
def fitted(request):
    tasks, beta = simulate(request.param)
    release = mp.release(tasks, 30.0, reference=reference(request.param), unsafe_seed=1)
    shared = shared_effects(release, chains=2, warmup=200, draws=200, progress_bar=False)
    return request.param, tasks, beta, shared, task_posteriors(tasks, shared)


def test_with_little_noise_average_effects_are_the_truth(fitted):
    _, _, beta, shared, _ = fitted
    table = shared.average_effects()
    error = (table["mean"] - beta.mean(axis=1)) / table["sd"]
    assert np.abs(error).max() < 3
    assert np.abs(table["mean"] - beta.mean(axis=1)).max() < 0.12


def test_the_spread_is_seen(fitted):
    table = fitted[3].average_effects(0.98)
    assert (table["tau_lower"] < TAU).all()
    assert (table["tau_upper"] > TAU).all()


def test_owners_err_less_than_alone_and_intervals_cover(fitted):
    """Owners err less than they do alone, and their intervals cover as often as they say."""
    _, _, beta, _, own = fitted
    effect, alone = (own.to_arviz()["posterior"][name].values.reshape(-1, 3, M) for name in ("effect", "alone"))
    errors = [((draws.mean(axis=0) - beta) ** 2).sum() for draws in (effect, alone)]
    assert errors[0] < 0.75 * errors[1]
    lower, upper = np.quantile(effect, [0.05, 0.95], axis=0)
    assert 0.83 < np.mean((lower < beta) & (beta < upper)) < 0.97


def test_predictions_are_of_the_outcome(fitted):
    outcome, tasks, _, _, own = fitted
    again = simulate(outcome, seed=0, n=80)[0]
    prediction = own.predict(again)
    if outcome == "binary":
        assert prediction.quantity == "probability"
        assert prediction.means.mean() == pytest.approx(tasks.targets.mean(), abs=0.02)
        assert mp.evaluation.log_score(prediction, again) > -0.55
    else:
        assert prediction.means.mean() == pytest.approx(tasks.targets.mean(), rel=0.1)
        lower, upper = prediction.interval_of_rows(0.9)
        # counts are whole numbers, and an interval holds more than it says
        assert 0.89 < np.mean((lower <= again.targets) & (again.targets <= upper)) < 0.99
        # expected counts are in proportion to the exposure
        twice = tasks.with_exposure(2 * tasks.exposure)
        np.testing.assert_allclose(own.predict(twice).means, 2 * own.predict(tasks).means)


def test_a_file_holds_the_posteriors(fitted, tmp_path):
    *_, tasks, _, _, own = (None, *fitted)
    own.save(tmp_path / "own.nc")
    again = OwnerEffects.load(tmp_path / "own.nc")
    assert again.likelihood.name == own.likelihood.name
    assert again.shared.layout.reference == own.shared.layout.reference
    np.testing.assert_allclose(again.predict(tasks).means, own.predict(tasks).means, rtol=1e-4)


def test_a_reference_keeps_its_outcome_in_files_and_pickles():
    """A reference keeps the outcome that it is of in files and pickles."""
    one = reference("count", 2.5)
    assert Reference.from_dict(one.to_dict()) == pickle.loads(pickle.dumps(one)) == one
    assert hash(one) != hash(reference("count", 2.0))
    assert one.target == (pytest.approx(np.log(2.5)), 1.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"outcome": "yes"}, "outcome: expected one of"),
        ({"outcome": "count"}, "baseline: expected the rate"),
        ({"outcome": "count", "baseline": 0.0}, "baseline: expected a rate above 0"),
        ({"outcome": "binary", "baseline": 1.0}, "baseline: expected a probability"),
        ({"outcome": "binary", "target": (0, 1)}, "target: expected none"),
        ({"baseline": 0.5}, "baseline: expected none of a number"),
    ],
)
def test_a_reference_that_says_no_outcome_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        Reference({"age": (60, 15)}, **given)


def test_labels_may_be_0_and_1_or_less_and_more():
    tasks, _ = simulate("binary", m=5)
    signs = TaskData(
        rows=tasks.rows, targets=2 * tasks.targets - 1, offsets=tasks.offsets, tasks=tasks.tasks,
        features=tasks.features, intercept=True,
    )  # fmt: skip
    np.testing.assert_array_equal(*(effect_messages(data, layout("binary")) for data in (tasks, signs)))


def test_exposure_is_what_the_rate_is_for_one_of():
    """Twice the exposure at half the rate is the same study."""
    tasks, _ = simulate("count", m=5)
    same = effect_messages(tasks.with_exposure(2 * tasks.exposure), layout("count", 0.15 / 2))
    np.testing.assert_allclose(effect_messages(tasks, layout("count")), same, atol=1e-9)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_row_of_weight_two_is_two_rows(outcome):
    tasks, _ = simulate(outcome, m=1, n=20)
    weights = np.arange(20) % 2 + 1.0
    twice = np.repeat(np.arange(20), weights.astype(int))
    exposure = None if tasks.exposure is None else tasks.exposure[twice]
    again = TaskData(
        rows=tasks.rows[twice], targets=tasks.targets[twice], offsets=np.array([0, len(twice)]), tasks=tasks.tasks,
        features=tasks.features, intercept=True, exposure=exposure,
    )  # fmt: skip
    here, there = (effect_messages(data, layout(outcome)) for data in (tasks.with_weights(weights), again))
    np.testing.assert_allclose(here, there, atol=1e-9)


def test_weights_of_numbers_divide_their_variance():
    """Rows of weight 4 are rows in units of half the size, by weighted least squares of hardly shrunk coefficients."""
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((2000, 2)), rng.choice([0.25, 4.0], 2000)
    y = X @ [0.5, -0.3] + rng.standard_normal(2000) / np.sqrt(weights)
    tasks = TaskData.from_lists([X], [y]).with_weights(weights)
    of_numbers = ReleaseSpec(1.0, reference=Reference.standard(2)).layout(tasks.features)
    message = effect_messages(tasks, of_numbers)[:, 0]
    weighted = np.linalg.solve(X.T @ (weights[:, None] * X), X.T @ (weights * y))
    np.testing.assert_allclose(message[:2] / of_numbers.effect_size, weighted, rtol=0.02)


IMPOSSIBLE = {"binary": [2.0, 0.5, -2.0], "count": [-1.0, 0.5, 1e20]}


@pytest.mark.parametrize(("outcome", "wrong"), [(outcome, y) for outcome, ys in IMPOSSIBLE.items() for y in ys])
def test_impossible_targets_send_what_an_empty_task_sends(outcome, wrong):
    """A task with impossible targets sends what a task that knows nothing would send.

    Its owner is told, everything public stays, and so do the messages and posteriors of others, in bits.
    """
    tasks, _ = simulate(outcome, m=6)
    targets = tasks.targets.copy()
    targets[3] = wrong
    odd = TaskData(
        rows=tasks.rows, targets=targets, offsets=tasks.offsets, tasks=tasks.tasks, features=tasks.features,
        intercept=True, exposure=tasks.exposure,
    )  # fmt: skip
    here, there = (effect_messages(data, layout(outcome)) for data in (tasks, odd))
    np.testing.assert_array_equal(there[:, 0], [*np.zeros(len(there) - 1), 1])
    np.testing.assert_array_equal(here[:, 1:], there[:, 1:])
    with pytest.warns(UserWarning, match="some targets are not .* of 'H0'"):
        release = mp.release(odd, 1.0, reference=reference(outcome), unsafe_seed=0)
    usual = mp.release(tasks, 1.0, reference=reference(outcome), unsafe_seed=0)
    assert release.guarantee == usual.guarantee
    assert (release.num_tasks, release.features, release.effects) == (usual.num_tasks, usual.features, usual.effects)


def test_a_task_with_impossible_targets_ends_nobodys_fit():
    tasks, _ = simulate("count", m=6)
    shared = shared_effects(
        mp.release(tasks, 3.0, reference=reference("count"), unsafe_seed=0),
        chains=1, warmup=50, draws=50, progress_bar=False,
    )  # fmt: skip
    targets = tasks.targets.copy()
    targets[0] = -1.0
    odd = TaskData(
        rows=tasks.rows, targets=targets, offsets=tasks.offsets, tasks=tasks.tasks, features=tasks.features,
        intercept=True, exposure=tasks.exposure,
    )  # fmt: skip
    here, there = (task_posteriors(data, shared, leave_one_out="off") for data in (tasks, odd))
    np.testing.assert_array_equal(here.W[:, 1:], there.W[:, 1:])
    np.testing.assert_allclose(there.W[:, 0], shared.average_effects()["mean"], atol=0.3)


@pytest.mark.parametrize(
    ("outcome", "y"),
    [("binary", np.zeros(30)), ("binary", np.ones(30)), ("count", np.zeros(30))],
    ids=["no event", "events only", "zero counts"],
)
def test_tasks_with_one_kind_of_target_have_finite_effects(outcome, y):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 30, 2))
    targets = [y, *(rng.random((11, 30)) < 0.3).astype(float)]
    tasks = TaskData.from_lists(X, targets, features=["a", "b"]).with_intercept()
    fit = NoiseAware(
        3.0, reference=reference(outcome), chains=1, warmup=50, draws=50, unsafe_seed=0, progress_bar=False
    ).fit(tasks)
    table = fit.coefficients().loc[0]
    assert np.isfinite(table.to_numpy()).all()
    assert (table["upper"] - table["lower"]).max() < 12


@pytest.mark.parametrize(
    ("likelihood", "outcome"), [("gaussian", "binary"), ("bernoulli", "count"), ("poisson", "number"), ("t", "count")]
)
def test_another_outcomes_likelihood_is_refused_before_a_charge(likelihood, outcome, tmp_path):
    """The likelihood of another outcome is refused before anything is charged."""
    tasks, _ = simulate("binary", m=5)
    ledger = mp.privacy.Ledger(epsilon=1.0, delta=0.5)
    baseline = {} if outcome == "number" else {"baseline": 0.2}
    declared = Reference.standard(["a", "b"], outcome=outcome, **baseline)
    with pytest.raises(ValueError, match="likelihood: "):
        NoiseAware(0.5, reference=declared, likelihood=likelihood, ledger=ledger).fit(tasks)
    assert not ledger.charges()


def test_exposure_goes_with_counts_alone():
    tasks, _ = simulate("count", m=5)
    with pytest.raises(ValueError, match="expected rows without exposure with outcome='binary'"):
        mp.release(tasks, 1.0, reference=reference("binary"))


def test_counts_do_not_go_with_messages_of_directions():
    tasks, _ = simulate("binary", m=5)
    with pytest.raises(ValueError, match="likelihood: expected one that messages of directions know"):
        NoiseAware(1.0, likelihood="poisson").fit(tasks)


def test_poisson_s_owners_take_counts_for_less_varied():
    tasks, _ = simulate("count", m=8)
    shared = shared_effects(
        mp.release(tasks, 3.0, reference=reference("count"), unsafe_seed=0),
        chains=1, warmup=50, draws=50, progress_bar=False,
    )  # fmt: skip
    width = {}
    for likelihood in ("negative_binomial", "poisson"):
        table = task_posteriors(tasks, shared, likelihood=likelihood).coefficients()
        width[likelihood] = (table["alone_upper"] - table["alone_lower"]).mean()
    assert width["poisson"] < width["negative_binomial"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_from_a_shell(outcome, tmp_path, capsys):
    from mpmtl_prob.cli import main

    tasks, _ = simulate(outcome, m=8)
    frame = tasks.to_pandas()
    exposure = []
    if tasks.exposure is not None:
        frame["days"], exposure = tasks.exposure, ["--exposure", "days"]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    said = {"features": {"a": [0, 1], "b": [0, 1]}, "outcome": outcome, "baseline": 0.15}
    (tmp_path / "reference.json").write_text(json.dumps(said))
    rows = ["--csv", str(tmp_path / "rows.csv"), "--task", "task", "--target", "y", "--intercept", *exposure]
    out = ["--out", str(tmp_path / "release.nc"), "--quiet"]
    assert main(["release", *rows, "--reference", str(tmp_path / "reference.json"), "--epsilon", "3", *out]) == 0
    fit = ["--draws", "40", "--chains", "1", "--quiet", "--release", str(tmp_path / "release.nc")]
    written = ["--out", str(tmp_path / "own.nc"), "--coefficients", str(tmp_path / "own.csv")]
    assert main(["fit", *rows, *fit, *written]) == 0
    assert set(pd.read_csv(tmp_path / "own.csv")["effect"]) == {"a", "b", "intercept"}
    capsys.readouterr()


def test_a_release_of_labels_warns_of_no_units():
    tasks, _ = simulate("binary", m=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mp.release(tasks, 1.0, reference=Reference({"a": (0, 1), "b": (0, 1)}, outcome="binary", baseline=0.001))
