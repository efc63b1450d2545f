"""A mixed model of estimates made elsewhere: beside a meta-analysis, and owners beside the normal posterior."""

import pickle

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

import mpmtl_prob as mp
from mpmtl_prob import Estimate, Estimates, Reference, TaskData
from mpmtl_prob.inference import NoiseAware, OwnerEffects, shared_effects, task_posteriors
from mpmtl_prob.inference.owner.effects import _Public
from mpmtl_prob.single_task.random_effects import KNOWN, EffectsPriors, as_rows, effects_posterior

MU, TAU, M = np.array([0.6, -0.3]), np.array([0.2, 0.1]), 60
REFERENCE = Reference.standard(["a", "b"])


def simulate(seed=0, m=M):
    """Estimates of log hazard ratios, of errors that differ between tasks and go together within them."""
    rng = np.random.default_rng(seed)
    beta = MU + TAU * rng.standard_normal((m, 2))
    own = []
    for b in beta:
        # of either sign: what goes together in one direction everywhere is read wrongly, as docs/random_effects.md says
        sd, r = rng.uniform(0.08, 0.16, 2), rng.choice([-0.3, 0.3])
        V = sd[:, None] * np.array([[1, r], [r, 1]]) * sd
        own.append(Estimate(rng.multivariate_normal(b, V), V, ["a", "b"]))
    return Estimates(own, tasks=[f"H{i}" for i in range(m)]), beta


@pytest.fixture(scope="module")
def fitted():
    estimates, beta = simulate()
    release = mp.release(estimates, 1000.0, reference=REFERENCE, unsafe_seed=1)
    shared = shared_effects(release, warmup=200, progress_bar=False)
    return estimates, beta, shared, task_posteriors(estimates, shared)


@pytest.mark.parametrize("effect", [0, 1])
def test_with_little_noise_average_effects_are_a_meta_analysis(fitted, effect):
    """With hardly any noise, average effects are those of a random-effects meta-analysis.

    The meta-analysis is by maximum likelihood, of one coefficient at a time, in statsmodels.

    A message's weight is not its precision, so that the two differ: over eight such data sets by .3 of a standard error (one
    standard deviation), and by .13 on average.
    """
    estimates, _, shared, _ = fitted
    b = np.array([own.mean[effect] for own in estimates.estimates])
    variance = np.array([own.covariance[effect, effect] for own in estimates.estimates])
    known = combine_effects(b, variance, method_re="iterated")
    average = shared.average_effects().iloc[effect]
    away = (average["mean"] - known.mean_effect_re) / known.sd_eff_w_re
    assert abs(away - 0.13) < 2 * 0.3
    assert abs(np.log(average["sd"] / known.sd_eff_w_re)) < np.log(1.35)
    assert average["tau_lower"] < np.sqrt(known.tau2) < average["tau_upper"]


def public_priors(seed=0):
    rng = np.random.default_rng(seed)
    L = 0.3 * rng.standard_normal((3, 2, 2)) + 0.3 * np.eye(2)
    return EffectsPriors(
        np.log(np.full(3, 1 / 3)), 0.4 * rng.standard_normal((3, 2)), L @ np.swapaxes(L, 1, 2),
        np.array([0.5, 2.0]), np.log([0.3, 0.7]),
    )  # fmt: skip


def normal_posterior(b, V, priors):
    """Mean and log evidence of N(b | beta, V) under normal priors with weights, by SciPy."""
    log, means = [], []
    for each in priors:
        for weight, mean, covariance in zip(each.log_weight, each.mean, each.covariance, strict=True):
            for c, share in zip(each.scales, each.log_scale_weight, strict=True):
                whole = c * covariance + V
                log.append(weight + share + stats.multivariate_normal.logpdf(b, mean, whole))
                means.append(mean + c * covariance @ np.linalg.solve(whole, b - mean))
    log = np.array(log)
    weight = np.exp(log - log.max())
    return weight @ np.array(means) / weight.sum(), log.max() + np.log(weight.sum())


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e2])
def test_rows_with_known_errors_stand_for_an_estimate(scale):
    b = np.array([0.4, -0.1])
    V = scale * np.array([[0.05, 0.02], [0.02, 0.01]])
    prior = public_priors()
    posterior = effects_posterior(*as_rows(b, V), (prior,), residuals=KNOWN)
    mean, log_evidence = normal_posterior(b, V, (prior,))
    assert np.allclose(posterior.mean, mean, atol=1e-6)
    # the density of V^(-1/2) b is that of b times the root of V's determinant
    assert np.isclose(posterior.log_evidence, log_evidence + 0.5 * np.linalg.slogdet(V)[1], atol=1e-5)
    assert np.all(posterior.sample(np.random.default_rng(0), 10)["sigma"] == 1)


def test_owners_weight_public_draws_by_their_evidence(fitted):
    """Owners have the normal posterior of every public draw, weighted by its evidence."""
    estimates, _, shared, _ = fitted
    own = task_posteriors(estimates, shared, leave_one_out="off")
    public = _Public(shared, 100)
    priors = public.priors(np.zeros(100), public.mu)
    for i in (0, 7):
        mean, _ = normal_posterior(estimates.estimates[i].mean, estimates.estimates[i].covariance, priors)
        assert np.allclose(own.W[:, i], mean, atol=1e-6)
        draws = own.to_arviz()["posterior"]["W"].values[..., i].reshape(-1, 2)
        assert np.allclose(draws.mean(axis=0), mean, atol=0.02)


def test_owners_err_less_than_estimates_and_intervals_cover(fitted):
    """Owners err less than their estimates do, and their intervals cover as often as they say."""
    estimates, beta, _, own = fitted
    alone = np.array([each.mean for each in estimates.estimates])
    assert np.mean((own.W.T - beta) ** 2) < 0.9 * np.mean((alone - beta) ** 2)
    table, truth = own.coefficients(), beta.ravel()
    covered = np.mean((table["lower"] <= truth) & (truth <= table["upper"]))
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 / M)


def test_alone_is_the_estimate_as_it_was_handed_over(fitted):
    estimates, _, _, own = fitted
    table = own.coefficients().loc["H3"]
    assert np.allclose(table["alone"], estimates.estimates[3].mean)
    sd = np.sqrt(np.diag(estimates.estimates[3].covariance))
    assert np.allclose((table["alone_upper"] - table["alone_lower"]) / (2 * stats.norm.ppf(0.95)), sd, rtol=0.1)


def test_the_own_message_is_left_out(fitted):
    estimates, _, shared, own = fitted
    assert own.to_arviz().attrs["own_message"] == "out"
    assert np.median(own.to_arviz()["constant_data"]["khat"].values) < 0.5
    kept = task_posteriors(estimates, shared, leave_one_out="off")
    assert not np.allclose(own.W, kept.W, atol=1e-5)
    newcomers = task_posteriors(estimates, shared, leave_one_out="not_in_release")
    assert newcomers.to_arviz().attrs["own_message"] == "in"


def test_owners_depend_on_their_own_estimate_and_on_public_data(fitted):
    """An owner's posterior depends on its own estimate and on what is public, and on nothing else."""
    estimates, _, shared, own = fitted
    changed = [each if i == 3 else Estimate(-each.mean, each.covariance, ["a", "b"])
               for i, each in enumerate(estimates.estimates)]  # fmt: skip
    assert np.array_equal(task_posteriors(Estimates(changed), shared).W[:, 3], own.W[:, 3])


@pytest.mark.filterwarnings("error")
def test_an_empty_estimate_gives_the_law_of_a_new_task(fitted):
    """An estimate that says nothing gives the law of a new task, and stops nobody else."""
    _, _, shared, _ = fitted
    said = Estimates(
        [Estimate([9.0, 30.0], 1e20 * np.eye(2), ["a", "b"]), Estimate([1e149] * 2, np.eye(2), ["a", "b"])]
    )
    own = task_posteriors(said, shared, leave_one_out="not_in_release")
    assert np.allclose(own.W[:, 0], 0.9 * shared.average_effects()["mean"], atol=0.05)  # .1 is for those apart, at 0
    assert np.isfinite(own.W).all()
    assert np.isfinite(own.coefficients().to_numpy()).all()


def test_a_forest_and_standings_are_those_of_rows(fitted):
    _, beta, shared, own = fitted
    matplotlib.use("Agg")
    assert len(mp.plots.forest(own, task="H3")) == len(mp.plots.forest(own)) == 2
    standing = own.standing()
    away = (beta - shared.average_effects()["mean"].to_numpy()).ravel()
    assert np.corrcoef(standing["difference"], away)[0, 1] > 0.6


def test_what_needs_rows_is_refused(fitted):
    estimates, _, shared, own = fitted
    rows = TaskData.from_lists([np.eye(2)] * 2, None, features=["a", "b"], tasks=["H0", "H1"])
    for each in (own, pickle.loads(pickle.dumps(own))):
        with pytest.raises(ValueError, match="posteriors of estimates know neither a link"):
            each.predict(rows)
    assert "sigma" not in own.to_arviz()["posterior"]
    for kind in ("gaussian", "student_t"):
        with pytest.raises(
            ValueError, match=f"likelihood: expected none with estimates, which have theirs, got {kind}"
        ):
            task_posteriors(estimates, shared, likelihood=kind)
    with pytest.raises(ValueError, match="coefficients of the release, got none of"):
        task_posteriors(Estimates(estimates.estimates, coefficients=["a"]), shared)
    with_targets = TaskData.from_lists([np.eye(2)], [[1.0, 2.0]], features=["a", "b"])
    with pytest.raises(ValueError, match=r"expected 'gaussian' or 'student_t' .* got 'estimate'"):
        task_posteriors(with_targets, shared, likelihood=own.likelihood)


def test_file_holds_the_posteriors(fitted, tmp_path):
    _, _, _, own = fitted
    own.save(tmp_path / "own.nc")
    loaded = OwnerEffects.load(tmp_path / "own.nc")
    assert np.array_equal(loaded.W, own.W)
    assert loaded.likelihood == own.likelihood
    pd.testing.assert_frame_equal(loaded.coefficients(), own.coefficients(), atol=1e-5)


def test_without_a_release_of_effects_there_is_nothing_to_join(fitted):
    estimates, _, _, _ = fitted
    train, _, _ = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    shared = mp.inference.shared_covariance(mp.release(train, 1.0), chains=2, warmup=200, draws=20, progress_bar=False)
    with pytest.raises(ValueError, match="tasks: expected TaskData, got Estimates"):
        task_posteriors(estimates, shared)
    train = mp.releases.ReleaseSpec(1.0, message="effects").terms(M, ["a", "b"])
    with pytest.raises(ValueError, match="reference: expected reference values with estimates"):
        mp.releases.message(estimates, train)


def test_natural_units_with_an_intercept_agree_with_common_ones():
    """Natural units with an intercept give the same effects as common units.

    One study in two sorts of units: the same effects, but for what they are called in.
    """
    rng = np.random.default_rng(3)
    own, moved = [], []
    reference = Reference({"age": (60, 15)}, target=(7, 5))
    units = reference.units(["age", "intercept"])
    for _ in range(30):
        b, V = np.array([0.4, 0.1]) + 0.1 * rng.standard_normal(2), np.array([[0.01, 0.002], [0.002, 0.02]])
        moved.append(Estimate(b, V, ["age", "intercept"]))
        change = units.to_table(np.eye(2)) - units.to_table(np.zeros((2, 2)))
        own.append(Estimate(units.to_table(b), change.T @ V @ change, ["age", "intercept"]))
    common = Reference.standard(["age"])
    shared = [
        mp.NoiseAware(1000.0, reference=each, unsafe_seed=1, chains=2, warmup=200, draws=100, progress_bar=False).fit(
            Estimates(estimates)
        )
        for each, estimates in ((reference, own), (common, moved))
    ]
    assert np.allclose(shared[0].W, units.to_table(shared[1].W.T).T, rtol=1e-3, atol=1e-3)
    table, other = (each.coefficients()["mean"].to_numpy().reshape(30, 2) for each in shared)
    assert np.allclose(table, other * [5 / 15, 5] + [0, 7], atol=0.01)


def test_the_whole_way_at_once():
    estimates, _ = simulate(m=30)
    own = NoiseAware(3.0, reference=REFERENCE, warmup=200, draws=100, chains=2, progress_bar=False).fit(estimates)
    assert isinstance(own, OwnerEffects)
    assert own.tasks == estimates.tasks
    ledger = mp.privacy.Ledger(epsilon=5.0, delta=0.1)
    with pytest.raises(ValueError, match="likelihood: expected none with estimates"):
        NoiseAware(3.0, reference=REFERENCE, likelihood="student_t", ledger=ledger).fit(estimates)
    assert ledger.spent.epsilon == 0
