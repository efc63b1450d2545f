"""Owners of a mixed model: their posteriors against closed forms, quadrature and a posterior made without them."""

import jax
import numpy as np
import pytest
import xarray as xr
from scipy import stats

import mpmtl_prob as mp
from mpmtl_prob import Reference, TaskData
from mpmtl_prob.inference import NoiseAware, OwnerEffects, shared_effects, task_posteriors
from mpmtl_prob.inference.owner.effects import _Public
from mpmtl_prob.inference.owner.sent_messages import as_sent
from mpmtl_prob.inference.public.observed_effects import observed_effects
from mpmtl_prob.models.effects import Accuracy, log_likelihood
from mpmtl_prob.models.effects_release import ACCURACY
from mpmtl_prob.single_task.random_effects import (
    EffectsPriors,
    effects_posterior,
    student_effects_posterior,
    student_log_ratio,
)
from mpmtl_prob.single_task.shrunk import LOG_PRIOR, RESIDUALS, shrunk_estimate

D = 2
MU, TAU = np.array([0.6, -0.3]), 0.2


def simulate(m=60, n=15, seed=0, mu=MU, tau=TAU):
    rng = np.random.default_rng(seed)
    beta = mu + tau * rng.standard_normal((m, len(mu)))
    X = [rng.standard_normal((n, len(mu))) for _ in range(m)]
    y = [x @ b + 0.8 * rng.standard_normal(n) for x, b in zip(X, beta, strict=True)]
    return TaskData.from_lists(X, y, features=["a", "b"]), beta.T


def priors(seed=0, d=D, K=3):
    rng = np.random.default_rng(seed)
    L = 0.3 * rng.standard_normal((K, d, d)) + 0.3 * np.eye(d)
    return (
        EffectsPriors(
            np.log(np.full(K, 1 / K)), 0.4 * rng.standard_normal((K, d)), L @ np.swapaxes(L, 1, 2),
            np.array([0.5, 2.0]), np.log([0.3, 0.7]),
        ),
    )  # fmt: skip


def rows(n=6, d=D, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ np.linspace(0.5, -0.5, d) + 0.6 * rng.standard_normal(n)


def test_evidence_and_mean_are_those_of_normal_laws():
    """Beside SciPy: every prior, scale and residual variance has a multivariate normal law of the rows."""
    (X, y), prior = rows(), priors()[0]
    log, means = [], []
    for weight, mean, covariance in zip(prior.log_weight, prior.mean, prior.covariance, strict=True):
        for c, share in zip(prior.scales, prior.log_scale_weight, strict=True):
            for s2, of_residual in zip(RESIDUALS, LOG_PRIOR, strict=True):
                V = c * X @ covariance @ X.T + s2 * np.eye(len(y))
                log.append(weight + share + of_residual + stats.multivariate_normal.logpdf(y, X @ mean, V))
                means.append(mean + c * covariance @ X.T @ np.linalg.solve(V, y - X @ mean))
    log = np.array(log)
    weight = np.exp(log - log.max())
    posterior = effects_posterior(X, y, (prior,))
    assert np.isclose(posterior.log_evidence, log.max() + np.log(weight.sum()), rtol=1e-7)
    assert np.allclose(posterior.mean, weight @ np.array(means) / weight.sum(), atol=1e-6)


def test_draws_have_the_mean_and_the_spread_that_they_should():
    (X, y), (prior,) = rows(), priors()
    posterior = effects_posterior(X, y, (prior,))
    drawn = posterior.sample(np.random.default_rng(0), 40_000)
    assert np.allclose(drawn["beta"].mean(axis=0), posterior.mean, atol=0.01)
    half = effects_posterior(X, y, (prior._replace(mean=prior.mean * 0),)).sample(np.random.default_rng(0), 40_000)
    assert set(np.unique(drawn["prior"])) <= {0, 1, 2}
    assert not np.allclose(half["beta"].mean(axis=0), posterior.mean, atol=0.01)


def test_without_rows_the_posterior_is_the_prior():
    (prior,) = priors()
    posterior = effects_posterior(np.zeros((0, D)), np.zeros(0), (prior,))
    assert np.allclose(posterior.mean, prior.mean.mean(axis=0))


def test_students_errors_are_exact_by_quadrature():
    """One effect: density over a fine grid of it and of sigma."""
    X, y = rows(n=8, d=1)
    y[0] += 6.0  # a row that is far off
    prior = priors(d=1, K=2)[0]
    posterior, counts = student_effects_posterior(X, y, (prior,))
    drawn = posterior.sample(np.random.default_rng(0), 40_000)
    log = student_log_ratio(X, y, counts, drawn)
    weight = np.exp(log - log.max())
    mean = weight @ drawn["beta"][:, 0] / weight.sum()
    grid = np.linspace(-4, 4, 2001)
    density = np.zeros(len(grid))
    of_prior = sum(
        np.exp(w + v) * stats.norm.pdf(grid, m[0], np.sqrt(c * S[0, 0]))
        for w, m, S in zip(prior.log_weight, prior.mean, prior.covariance, strict=True)
        for c, v in zip(prior.scales, prior.log_scale_weight, strict=True)
    )
    for s2, share in zip(RESIDUALS, LOG_PRIOR, strict=True):
        residual = (y - grid[:, None] * X[:, 0]) / np.sqrt(s2)
        density += np.exp(share + stats.t.logpdf(residual, 4).sum(axis=1) - 0.5 * len(y) * np.log(s2))
    density *= of_prior
    assert np.isclose(mean, grid @ density / density.sum(), atol=0.01)
    assert counts[0] < 0.5 * counts[1:].mean()


def test_a_message_undoes_nothing_but_shrinks_as_it_says():
    """E[eta | beta] = p beta, by many targets for the same rows: what the reader of the release relies on."""
    rng = np.random.default_rng(0)
    X, beta = np.sqrt(12) * np.linalg.qr(rng.standard_normal((12, D)))[0], np.array([0.5, -0.4])  # S is diagonal
    estimates = [shrunk_estimate(X, X @ beta + 0.7 * rng.standard_normal(12), 0.25, 8.0) for _ in range(3000)]
    estimate, determined = (np.mean([part[k] for part in estimates], axis=0) for k in (0, 1))
    assert np.allclose(estimate, determined * beta, atol=0.03)


@pytest.fixture(scope="module")
def fitted():
    tasks, beta = simulate()
    release = mp.release(tasks, 3.0, reference=Reference.standard(["a", "b"]), unsafe_seed=1)
    shared = shared_effects(release, warmup=200, progress_bar=False)
    return tasks, beta, shared, task_posteriors(tasks, shared)


def test_owners_err_less_than_alone_and_intervals_cover(fitted):
    """Owners err less than they do alone, and their intervals cover as often as they say."""
    tasks, beta, _, own = fitted
    table = own.coefficients()
    assert np.mean((own.W - beta) ** 2) < 0.8 * np.mean((table["alone"].to_numpy().reshape(-1, D).T - beta) ** 2)
    truth = beta.T.ravel()
    covered = np.mean((table["lower"] <= truth) & (truth <= table["upper"]))
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 / tasks.num_tasks)


def test_an_owner_depends_on_its_own_rows_and_on_what_is_public(fitted):
    tasks, _, shared, own = fitted
    X, y = zip(*map(tasks.rows_of, range(tasks.num_tasks)), strict=True)
    other = [v if i == 3 else -v for i, v in enumerate(y)]
    changed = TaskData.from_lists(X, other, features=["a", "b"])
    assert np.array_equal(task_posteriors(changed, shared).W[:, 3], own.W[:, 3])


def test_weights_of_draws_are_of_the_release_without_the_message(fitted):
    """Public draws are weighted as for the release without the owner's own message.

    p(Sigma - v v' | draw) / p(Sigma | draw), by the model's own likelihood, one draw at a time.
    """
    tasks, _, shared, _ = fitted
    public = _Public(shared, 300)
    log_weight, khat = public.leave_one_out(tasks)
    assert khat.max() < 0.7
    v = as_sent(tasks, shared.release)[:, 0]
    seen = observed_effects(shared.release)
    rest = seen._replace(sigma=seen.sigma - np.outer(v, v), num_tasks=seen.num_tasks - 1)
    accuracy = [shared.draws(name)[public.pick] for name in ACCURACY]
    with jax.enable_x64(True):
        ratio = [
            float(log_likelihood(now, public.mu[k], public.Omega[k], Accuracy(*(part[k] for part in accuracy))))
            for k in (0, 100)
            for now in (rest, seen)
        ]
    assert np.isclose(log_weight[0, 100] - log_weight[0, 0], (ratio[2] - ratio[3]) - (ratio[0] - ratio[1]), atol=0.05)


def test_standing_is_the_effect_less_the_average(fitted):
    _, _, shared, own = fitted
    standing, table = own.standing(), own.coefficients()
    average = shared.average_effects()["mean"]
    difference = table["mean"] - np.tile(average.to_numpy(), len(own.tasks))
    assert np.allclose(standing["difference"], difference, atol=0.05)
    assert np.corrcoef(standing["above"], difference)[0, 1] > 0.8


def test_predictions_have_intervals_that_hold_new_rows(fitted):
    _, beta, _, own = fitted
    rng = np.random.default_rng(9)
    X = [rng.standard_normal((20, D)) for _ in range(60)]
    y = np.array([x @ b + 0.8 * rng.standard_normal(20) for x, b in zip(X, beta.T, strict=True)])
    lower, upper = own.predict(TaskData.from_lists(X, None, features=["a", "b"])).interval()
    assert abs(np.mean((lower <= y) & (y <= upper)) - 0.9) < 0.04


def test_file_holds_the_posteriors_for_their_owner_alone(fitted, tmp_path):
    tasks, _, _, own = fitted
    own.save(tmp_path / "own.nc")
    loaded = OwnerEffects.load(tmp_path / "own.nc")
    assert (tmp_path / "own.nc").stat().st_mode & 0o777 == 0o600
    assert np.array_equal(loaded.W, own.W)
    assert np.allclose(loaded.predict(tasks).mean, own.predict(tasks).mean)
    assert loaded.shared.release.effects == own.shared.release.effects
    assert loaded.to_arviz().attrs == own.to_arviz().attrs
    with xr.open_datatree(tmp_path / "own.nc") as stored:
        assert stored["posterior/W"].dtype == stored["shared/Omega"].dtype == np.float32
    draws, before = loaded.to_arviz(), own.to_arviz()
    for group in ("posterior", "shared", "constant_data"):
        assert set(draws[group].data_vars) == set(before[group].data_vars)
        for name, values in before[group].data_vars.items():
            assert np.allclose(draws[group][name], values, rtol=1e-6, atol=1e-6 * np.nanstd(values), equal_nan=True)


def test_natural_units_and_an_intercept_give_predictions_in_them():
    rng = np.random.default_rng(0)
    X = [np.column_stack([rng.normal(60, 15, 20), rng.integers(0, 2, 20)]) for _ in range(20)]
    y = [7 + 0.05 * (x[:, 0] - 60) + 0.5 * x[:, 1] + rng.normal(0, 1) + rng.normal(0, 2, 20) for x in X]
    tasks = TaskData.from_lists(X, y, features=["age", "male"])
    reference = Reference({"age": (60, 15), "male": (0.5, 0.5)}, target=(7, 3))
    fit = NoiseAware(3.0, reference=reference, draws=100, chains=2, unsafe_seed=0, progress_bar=False).fit
    for data in (tasks.with_intercept(), tasks):
        predicted = fit(data).predict(data)
        level = np.mean([np.mean(v) for v in y])
        assert abs(predicted.to_pandas()["mean"].mean() - level) < 0.5


@pytest.mark.filterwarnings("ignore:tasks")
def test_columns_in_other_units_are_told_to_their_owner(fitted):
    """An owner whose columns are in other units than declared is told so."""
    tasks, _, shared, _ = fitted
    X, y = zip(*map(tasks.rows_of, range(tasks.num_tasks)), strict=True)
    scaled = TaskData.from_lists([X[0] * [1000, 1], *X[1:]], y, features=["a", "b"])
    with pytest.warns(UserWarning, match="as if in other units: 'a' of 0"):
        task_posteriors(scaled, shared, leave_one_out="not_in_release")


def test_own_units_leave_the_intercept_to_its_owner():
    tasks, _ = simulate(m=20)
    X, y = zip(*map(tasks.rows_of, range(20)), strict=True)
    moved = TaskData.from_lists(X, [v + 100 for v in y], features=["a", "b"]).with_intercept()
    of_moved = NoiseAware(3.0, message="effects", draws=100, chains=2, unsafe_seed=0, progress_bar=False).fit(moved)
    assert of_moved.W.shape == (3, 20)
    assert np.all(np.abs(of_moved.W[2] - 100) < 2)
    assert list(of_moved.shared.average_effects().index) == ["a", "b"]
    standing = of_moved.standing()
    assert standing.loc[(slice(None), "intercept"), "above"].isna().all()  # of others' intercepts nothing is known
    assert standing.loc[(slice(None), "a"), "above"].between(0, 1).all()


@pytest.mark.filterwarnings("ignore:tasks")
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_rows_beyond_double_precision_end_nobodys_fit(fitted, likelihood):
    tasks, _, shared, own = fitted
    X, y = zip(*map(tasks.rows_of, range(tasks.num_tasks)), strict=True)
    far = X[3].copy()
    far[0] = 1e140
    changed = TaskData.from_lists([*X[:3], far, *X[4:]], [*y[:4], 1e130 * y[4], *y[5:]], features=["a", "b"])
    posteriors = task_posteriors(changed, shared, likelihood=likelihood, leave_one_out="off", draws=50)
    assert np.isfinite(posteriors.W).all()
    if likelihood == "gaussian":
        assert np.allclose(posteriors.W[:, 10], own.W[:, 10], atol=0.02)


def test_alone_is_the_same_whatever_earlier_studies_say(fitted):
    tasks, _, _, own = fitted
    guess = Reference.standard(["a", "b"])
    guess = Reference(guess.features, effects={"a": 0.5, "b": -0.5})
    release = mp.release(tasks, 3.0, reference=guess, unsafe_seed=1)
    other = task_posteriors(tasks, shared_effects(release, warmup=200, progress_bar=False), leave_one_out="off")
    assert np.allclose(other.coefficients()["alone"], own.coefficients()["alone"], atol=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "mixture"}, "method: expected none"),
        ({"power": 2.0}, "power: expected none"),
        ({"likelihood": "bernoulli"}, "likelihood: expected 'gaussian' or 'student_t'|expected targets -1 and 1"),
        ({"leave_one_out": "roughly"}, "leave_one_out"),
    ],
)
def test_options_that_effects_do_not_have_are_named(fitted, options, words):
    tasks, _, shared, _ = fitted
    with pytest.raises(ValueError, match=words):
        task_posteriors(tasks, shared, **options)
