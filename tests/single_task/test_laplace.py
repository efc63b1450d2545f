"""Binary tasks: the approximation against quadrature, its correction against exact draws, and what is made of both."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
import scipy.stats as st
from helpers.quickly import quickly
from helpers.tolerances import FAR, RARE, surprise
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density
from scipy.optimize import minimize
from scipy.special import expit, log_expit

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import posterior_draws, shared_covariance, task_posteriors
from mpmtl_prob.inference.owner import leave_one_out
from mpmtl_prob.inference.owner.leave_one_out import leave_one_out_posteriors
from mpmtl_prob.inference.owner.likelihoods import LIKELIHOODS
from mpmtl_prob.inference.owner.methods import plug_in
from mpmtl_prob.inference.public.init import observed
from mpmtl_prob.inference.public.structures import model_for, structure_of
from mpmtl_prob.models import task
from mpmtl_prob.sampling.importance import resampled, smoothed
from mpmtl_prob.single_task import conjugate, laplace

LABELS = LIKELIHOODS["bernoulli"]
FAST = {"chains": 2, "warmup": 200, "draws": 150, "progress_bar": False}


def labels(rng, log_odds):
    return np.where(rng.random(log_odds.shape) < expit(log_odds), 1.0, -1.0)


def simulate(m, d, n, seed):
    """Tasks from the owners' model: rows, weights (d, m), Omega."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((d, 2)) * [2.0, 1.0]
    omega = root @ root.T + 0.1 * np.eye(d)
    X = rng.standard_normal((m, n, d))
    snr = np.exp(np.log(laplace.SNR_MEDIAN) + laplace.SNR_LOG_SD * rng.standard_normal(m))
    c = snr * n / np.einsum("tni,ij,tnj->t", X, omega, X)
    W = np.linalg.cholesky(omega) @ rng.standard_normal((d, m)) * np.sqrt(c)
    y = labels(rng, np.einsum("tni,it->tn", X, W))
    return TaskData.from_lists(list(X), list(y)), W, omega


def log_joint(X, y, omega, snr, w):
    """log p(y | w) + log N(w; 0, c Omega), straight from the definition."""
    c = snr * len(y) / np.trace(X @ omega @ X.T)
    return np.sum(log_expit(y * (X @ w))) + st.multivariate_normal.logpdf(w, np.zeros(len(w)), c * omega)


@pytest.fixture
def one_task():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 2)) * [1.0, 0.5]
    omega = np.array([[1.0, 0.4], [0.4, 2.0]])
    return X, labels(rng, X @ [2.0, -1.0]), omega


@pytest.mark.parametrize("d", [1, 2])
def test_evidence_times_the_mean_ratio_is_the_exact_integral(one_task, d):
    """The evidence times the mean ratio is the integral of the joint density."""
    X = one_task[0][:, :d]
    y = one_task[1]
    omega = one_task[2][:d, :d]
    posterior = laplace.logistic_posteriors(TaskData.from_lists([X], [y]), omega)
    ratio = np.exp(posterior.sample(np.random.default_rng(0), 20_000)["log_ratio"][:, 0])
    axis = np.linspace(-6, 6, 200 if d == 2 else 4000)  # in prior sds
    u = np.stack(np.meshgrid(*[axis] * d), axis=-1).reshape(-1, d)
    step = (axis[1] - axis[0]) ** d
    prior = np.exp(-0.5 * ((posterior.log_snr - np.log(laplace.SNR_MEDIAN)) / laplace.SNR_LOG_SD) ** 2)
    unit = np.sqrt(np.exp(posterior.log_snr) * len(y) / np.trace(X @ omega @ X.T))
    density = st.norm.pdf(u).prod(axis=1)
    eta = u @ np.linalg.cholesky(omega).T @ X.T
    exact = np.array([step * density @ np.exp(log_expit(y * eta * c).sum(axis=1)) for c in unit])  # p(y | snr)
    used = posterior.weights[0] > 1e-2
    assert_allclose(posterior.log_laplace[0, used], np.log(exact[used]), atol=0.2)  # Laplace's own error
    expected = np.log(prior @ exact / prior.sum())
    error = ratio.std() / ratio.mean() / np.sqrt(len(ratio))
    assert abs(posterior.log_evidence[0] + np.log(ratio.mean()) - expected) < FAR * error + 1e-4


# few rows; separable; many, and so many that steps are in double precision: of these some values are left to the spline
@pytest.mark.parametrize(
    ("n", "d", "factor", "all_count"),
    [(12, 2, 1.0, True), (40, 3, np.inf, True), (400, 3, 3.0, False), (4000, 3, 3.0, False)],
)
def test_modes_and_evidence_are_those_of_a_general_optimiser(n, d, factor, all_count):
    """Modes and Laplace's evidence are those of a general optimiser."""
    rng = np.random.default_rng(3)
    X, omega = rng.standard_normal((n, d)) * [1.0, 0.5, 0.2][:d], np.eye(d) + 0.4
    log_odds = X @ [2.0, -1.0, 3.0][:d]
    y = np.sign(log_odds) if factor == np.inf else labels(rng, factor * log_odds)
    posteriors, expected = laplace.logistic_posteriors(TaskData.from_lists([X], [y]), omega), []
    for log_snr in posteriors.log_snr:
        c = np.exp(log_snr) * n / np.trace(X @ omega @ X.T)
        inverse = np.linalg.inv(c * omega)

        def loss(w, inverse=inverse):
            p = expit(-y * (X @ w))
            return 0.5 * w @ inverse @ w - log_expit(y * (X @ w)).sum(), inverse @ w - X.T @ (y * p)

        best = minimize(loss, np.zeros(d), jac=True, tol=1e-10)
        p = expit(X @ best.x)
        H = (X.T * (p * (1 - p))) @ X + inverse
        expected.append(-best.fun - 0.5 * (np.linalg.slogdet(H)[1] + np.linalg.slogdet(c * omega)[1]))
    prior = -0.5 * ((posteriors.log_snr - np.log(laplace.SNR_MEDIAN)) / laplace.SNR_LOG_SD) ** 2
    log_weight, highest = np.array(expected) + prior, np.max(expected + prior)
    counts = log_weight > highest - 25
    assert counts.all() == all_count
    # steps towards the mode end within 1e-4 of an sd: of 200 other data sets none is off by more than 6e-5
    assert_allclose(posteriors.log_laplace[0, counts], np.array(expected)[counts], rtol=0, atol=5e-4)
    assert np.all((posteriors.log_laplace[0] + prior)[~counts] < highest - 20)
    weights = np.exp(log_weight - highest)
    assert_allclose(posteriors.weights[0], weights / weights.sum(), atol=5e-4)
    assert_allclose(posteriors.log_evidence[0], highest + np.log(weights.sum() / np.exp(prior).sum()), atol=5e-4)


@pytest.fixture(scope="module")
def yardstick():
    """A task with few, skewed rows, in fewer rows than features, and draws of its posterior by rejection.

    Those of the prior are kept with the probability that it gives the labels, which four rows allow.
    """
    rng = np.random.default_rng(5)
    X = rng.standard_normal((4, 5)) + 0.5
    y = np.array([1.0, 1.0, 1.0, -1.0])
    omega = np.cov(rng.standard_normal((5, 20)))
    scale = 0.5 + rng.random(5)
    snr = np.exp(np.log(laplace.SNR_MEDIAN) + laplace.SNR_LOG_SD * rng.standard_normal(400_000))
    c = snr * len(y) / np.trace((X * scale) @ omega @ (X * scale).T)
    w = scale * np.sqrt(c)[:, None] * (rng.standard_normal((len(c), 5)) @ np.linalg.cholesky(omega).T)
    exact = w[rng.random(len(w)) < expit(w @ X.T * y).prod(axis=1)]
    return TaskData.from_lists([X], [y]), omega, scale[None], exact[:8000]


def test_the_numpyro_model_has_the_density_of_the_definition(yardstick):
    tasks, omega, scale, _ = yardstick
    X = tasks.X[0]
    y = tasks.y[0]
    rng = np.random.default_rng(0)
    difference = []

    @jax.jit
    def density(site):
        log_p, trace = log_density(task.bernoulli, (X, y, omega, scale[0]), {}, site)
        return log_p, trace["w"]["value"]

    for _ in range(4):
        log_snr, v = rng.standard_normal(), rng.standard_normal(5)
        log_p, w = map(np.asarray, density({"log_snr": log_snr, "v": v}))
        assert_allclose(w, scale[0] * v)
        prior = st.norm.logpdf(log_snr, np.log(laplace.SNR_MEDIAN), laplace.SNR_LOG_SD)
        difference.append(log_p - prior - log_joint(X * scale[0], y, omega, np.exp(log_snr), v))
    assert_allclose(difference, 0, atol=1e-8)


def agrees(draws, mean, exact):
    """Means and mean squares within Monte Carlo error, and the laws of all coordinates by Kolmogorov and Smirnov.

    False alarms below 1e-6.
    """
    error = exact.std(axis=0) * np.sqrt(1 / len(exact) + 1 / len(draws))
    squares = (exact**2).std(axis=0) * np.sqrt(1 / len(exact) + 1 / len(draws))
    return (
        np.all(np.abs(mean - exact.mean(axis=0)) < 6.5 * error)
        and np.all(np.abs((draws**2).mean(axis=0) - (exact**2).mean(axis=0)) < 6.5 * squares)
        and all(st.ks_2samp(draws[:, j], exact[:, j]).pvalue > 1e-9 for j in range(exact.shape[1]))
    )


def test_corrected_draws_are_exact_and_uncorrected_ones_are_not(yardstick):
    tasks, omega, scale, exact = yardstick
    corrected = plug_in(tasks, omega[None], np.ones(1), scale, 8000, 0, LABELS)
    assert corrected.khat_draws[0] < 0.7
    assert agrees(corrected.draws["W"][..., 0], corrected.W[:, 0], exact)

    posterior, rng = laplace.logistic_posteriors(tasks, omega, scale), np.random.default_rng(0)
    narrow = dataclasses.replace(
        posterior, curvature=tuple(6 * each for each in posterior.curvature)
    )  # a wrong Hessian
    raw = narrow.sample(rng, 32000)
    assert not agrees(raw["W"][:8000, :, 0], posterior.mean[:, 0], exact)
    W, draws, _ = resampled(raw, posterior.mean, 8000, rng)
    assert agrees(draws["W"][..., 0], W[:, 0], exact)  # is set right
    prior = -0.5 * np.sum((raw["W"][..., 0] / scale[0]) ** 2, axis=1)
    for wrong in (-raw["log_ratio"][:, 0], raw["log_ratio"][:, 0] - prior):  # upside down; without a prior
        W, draws, _ = resampled(raw | {"log_ratio": wrong[:, None]}, posterior.mean, 8000, rng)
        assert not agrees(draws["W"][..., 0], W[:, 0], exact)


def test_resampling_turns_one_known_law_into_another():
    rng = np.random.default_rng(0)
    x = 1.3 * rng.standard_normal((20_000, 1, 2))  # of N(0, 1.69), to become N(1/2, 1)
    ratio = st.norm.logpdf(x[:, 0], 0.5) - st.norm.logpdf(x[:, 0], 0, 1.3)
    W, draws, khat = resampled({"W": x, "log_ratio": ratio}, np.zeros((1, 2)), 10_000, rng)
    assert khat.max() < 0.5
    assert_allclose(W, 0.5, atol=0.04)
    assert st.kstest(draws["W"][:2000, 0, 1], st.norm(0.5).cdf).pvalue > RARE
    same, flat = smoothed(np.zeros((1, 50)))
    assert_allclose(same, 1 / 50)
    assert not flat[0] > 0.7


@pytest.fixture(scope="module")
def drawn():
    tasks, W, omega = simulate(m=1500, d=3, n=25, seed=1)
    return W, plug_in(tasks, omega[None], np.ones(1), None, 300, 0, LABELS)


@pytest.mark.evidence
@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95])
def test_intervals_cover_the_weights_as_often_as_they_say(drawn, probability):
    W, own = drawn
    assert np.mean(own.khat_draws > 0.7) < 0.01
    tail = (1 - probability) / 2

    def covered(draws):
        low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
        return np.mean((low <= W) & (high >= W))

    assert abs(covered(own.draws["W"]) - probability) < 0.02
    assert abs(covered(own.W + 0.85 * (own.draws["W"] - own.W)) - probability) > 0.02  # surer than it may be


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (
            np.arange(-4.0, 5.0)[:, None] * [1.0, 0.0],
            np.where(np.arange(-4, 5) < 0, -1.0, 1.0),
        ),  # separable, a zero column
        (np.random.default_rng(0).standard_normal((9, 2)), np.ones(9)),  # one class
        (np.array([[3.0, 1.0]]), [-1.0]),  # one row
        (np.zeros((2, 2)), [1.0, -1.0]),  # rows that say nothing
    ],
)
def test_hard_cases_have_proper_posteriors(X, y):
    tasks = TaskData.from_lists([X], [y])
    posterior = plug_in(tasks, np.eye(2)[None], np.ones(1), conjugate.scales(tasks.gram), 1000, 0, LABELS)
    W, mean = posterior.draws["W"][..., 0], posterior.W[:, 0]
    assert np.isfinite(W).all()
    assert posterior.khat_draws[0] < 0.7 or not X.any()
    assert np.all(np.abs(W.mean(axis=0) - mean) < FAR * W.std(axis=0) / np.sqrt(1000))
    if np.ptp(y) == 0:
        assert np.mean(y * (X @ mean)) > 0


@pytest.fixture(scope="module")
def shared():
    tasks, W, _ = simulate(m=40, d=3, n=20, seed=2)
    release = mp.release(tasks, epsilon=3.0, adjacency="zero_out", unsafe_seed=1)
    return tasks, W, shared_covariance(release, **FAST)


def few(tasks, count):
    return TaskData(tasks.X[:count], tasks.y[:count], tasks.mask[:count], tasks.tasks[:count], tasks.features)


@pytest.mark.evidence  # every day by the density below, and by the normal model in test_owner_methods.py
def test_mixture_and_joint_sampling_agree_in_distribution(shared):
    one = few(shared[0], 1)
    kind = {"likelihood": "bernoulli", "power": 1.0}
    mixed = task_posteriors(one, shared[2], method="mixture", draws=400, **kind).to_arviz()
    exact = task_posteriors(one, shared[2], method="joint", draws=600, **kind).to_arviz()
    assert mixed["constant_data/khat"] < 0.7
    assert mixed["constant_data/khat_draws"] < 0.7
    for j in range(3):
        mine, theirs = (tree["posterior/W"].values[..., j, 0] for tree in (mixed, exact))
        assert surprise(mine, theirs) > RARE
        assert surprise(mine + 0.5 * mine.std(), theirs) < RARE


def test_the_joint_model_differs_by_the_law_of_the_labels(shared):
    """The joint model differs from the normal one by the law of the labels."""
    tasks, _, public = shared
    X, y = tasks.rows_of(0)
    jointly = LABELS.jointly(X, y)
    read = observed(public.release)
    rng = np.random.default_rng(0)
    difference = []
    mask, scale = np.arange(len(y)) < 15, 0.5 + rng.random(3)
    start = {name: np.asarray(value) for name, value in model_for("full", public.release).start.items()}

    @quickly
    def densities(site):
        rows = (read, X * mask[:, None], y * mask, 1.0 * mask, scale)
        log_p, trace = log_density(jointly.model, rows, {}, site)
        return log_p, log_density(task.joint, rows, {}, site | {"log_sigma": 0.0})[0], trace["w"]["value"]

    for _ in range(2):
        own = {"log_snr": 1.0 + rng.random(), "u": rng.standard_normal(3)}
        assert own.keys() == jointly.start.keys()
        log_p, normal, w = map(np.asarray, densities(start | own))
        expected = np.sum((log_expit(y * (X @ w)) + 0.5 * (y - X @ w) ** 2)[mask])
        for sign, prior in ((1, laplace), (-1, conjugate)):
            expected += sign * st.norm.logpdf(own["log_snr"], np.log(prior.SNR_MEDIAN), prior.SNR_LOG_SD)
        difference.append(log_p - normal - expected)
    assert_allclose(difference, 0, atol=1e-8)


def poisoned(tasks, keep, kind):
    """Tasks of which one alone has rows; where labels must be labels they are turned round."""
    X, y = np.full_like(tasks.X, np.nan), -tasks.y if kind == "bernoulli" else np.full_like(tasks.y, np.nan)
    X[keep], y[keep] = tasks.X[keep], tasks.y[keep]
    with np.errstate(invalid="ignore"):  # LAPACK refuses nan, so the others' X'X become 1
        out = dataclasses.replace(tasks, X=X, y=y)
        gram = out.gram._replace(xx=np.nan_to_num(out.gram.xx, nan=1.0))
    object.__setattr__(out, "gram", gram)
    return out


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((method, kind) for method in ("plug_in", "mixture") for kind in ("gaussian", "bernoulli")),
        # test_neighbours.py has "joint" every day
        *(pytest.param("joint", kind, marks=pytest.mark.evidence) for kind in LIKELIHOODS),
    ],
)
def test_an_owner_needs_no_row_of_any_other_task(shared, kind, method):
    tasks = few(shared[0], 2 if method == "joint" else 4)
    options = {"method": method, "likelihood": kind, "power": 1.0, "chains": 2, "draws": 25}
    own = task_posteriors(tasks, shared[2], **options)
    again = task_posteriors(poisoned(tasks, 1, kind), shared[2], **options)
    assert_allclose(again.W[:, 1], own.W[:, 1], rtol=1e-10)
    assert_allclose(again.to_arviz()["posterior/W"][..., 1], own.to_arviz()["posterior/W"][..., 1], rtol=1e-10)
    if method != "joint":  # a chain whose density is nan stays where it starts
        assert np.isnan(again.W[:, 0]).all()


@pytest.mark.parametrize("kind", [pytest.param("gaussian", marks=pytest.mark.evidence), "bernoulli"])
def test_owners_without_their_message_need_no_other_rows(shared, monkeypatch, kind):
    """Without its own message, too, an owner needs no row of any other task."""
    monkeypatch.setattr(
        leave_one_out, "shared_covariance", partial(shared_covariance, warmup=200)
    )  # a program that there is
    tasks = few(shared[0], 2)
    X, y = tasks.X.copy(), tasks.y.copy()
    X[0], y[0] = tasks.X[0, ::-1, ::-1], -tasks.y[0]  # numbers: messages of nan would stop the simulation
    other = dataclasses.replace(tasks, X=X, y=y)
    scale = [conjugate.scales(each.gram) for each in (tasks, other)]
    one, two = (
        leave_one_out_posteriors(each, shared[2], S, 1.0, 10, 0, False, LIKELIHOODS[kind])
        for each, S in zip((tasks, other), scale, strict=True)
    )
    assert_allclose(one.draws["W"][..., 1], two.draws["W"][..., 1], rtol=1e-10)
    assert np.abs(one.W[:, 0] - two.W[:, 0]).max() > 1e-3


@pytest.mark.parametrize("why", ["intercept", "structure"])
def test_no_method_is_advised_that_would_be_refused(shared, why):
    tasks, _, public = shared
    if why == "intercept":
        tasks = tasks.with_intercept()
    else:
        public = dataclasses.replace(public, structure=structure_of("low_rank"))
    own = task_posteriors(tasks, public, likelihood="bernoulli", draws=50)
    with pytest.raises(ValueError, match="method: 'joint'"):
        task_posteriors(tasks, public, likelihood="bernoulli", method="joint", draws=50)
    tree = own.to_arviz()
    tree["constant_data/khat_draws"].values[0] = 0.8
    advice = str(dataclasses.replace(own, _tree=tree).diagnose())
    assert "k-hat is above" in advice
    assert "joint" not in advice
    assert "Take the intervals of these tasks as rough." in advice


def test_predictions_are_probabilities_with_intervals(shared):
    tasks, W, public = shared
    own = task_posteriors(tasks, public, likelihood="bernoulli")
    prediction = own.predict(tasks)
    assert prediction.quantity == "probability"
    draws = own.to_arviz()["posterior/W"].values.reshape(-1, 3, 40)
    assert_allclose(prediction.mean[5], expit(draws[..., 5] @ tasks.X[5].T).mean(axis=0))
    low, high = prediction.interval(0.9)
    true = expit(np.einsum("tni,it->tn", tasks.X, W))
    assert abs(np.mean((low <= true) & (true <= high)) - 0.9) < 0.07
    assert np.isnan(mp.evaluation.coverage(prediction, tasks))
    with pytest.raises(ValueError, match="prediction: expected predicted targets, got probabilities"):
        mp.evaluation.nmse(prediction, tasks)
    scores = mp.evaluation.compare({"own": own}, tasks)["own"]
    expected = np.mean((2 * prediction.mean - 1 - tasks.y)[tasks.mask] ** 2) / np.var(tasks.y[tasks.mask])
    assert_allclose(scores["nmse"], expected)
    assert np.isnan(scores["coverage_90"])
    assert "sigma" not in own.to_arviz()["posterior"]
    tree = own.to_arviz()
    assert tree["constant_data/khat_draws"].dims == ("task",)
    assert "k-hat" not in str(own.diagnose())
    tree["constant_data/khat_draws"].values[[2, 7]] = 0.8, np.nan
    troubled = dataclasses.replace(own, _tree=tree).diagnose()
    assert "k-hat is above 0.7 for 2 of 40 tasks (up to 0.8): the approximation" in str(troubled)
    assert "Use method='joint', or take the intervals" in str(troubled)
    assert "bernoulli" in repr(own)
    assert "bernoulli" in own._repr_html_()


def test_the_log_score_is_scikit_learns_log_loss(shared):
    """The log score is scikit-learn's log loss, of probabilities and of log odds."""
    from sklearn.metrics import log_loss

    tasks = shared[0]
    eta = np.random.default_rng(0).standard_normal(tasks.y.shape)
    expected = -log_loss(tasks.y.ravel(), expit(eta).ravel())
    for mean, quantity in ((eta, "target"), (expit(eta), "probability")):
        prediction = mp.Prediction(mean, tasks.mask, tasks.tasks, quantity=quantity)
        assert_allclose(mp.evaluation.log_score(prediction, tasks), expected)
    numbers = dataclasses.replace(tasks, y=2 * tasks.y)
    with pytest.raises(ValueError, match="test: expected targets -1 and 1"):
        mp.evaluation.log_score(prediction, numbers)


def test_targets_that_could_be_meant_either_way_are_not_guessed(shared):
    tasks, _, public = shared
    with pytest.raises(ValueError, match="likelihood: all targets are -1 or 1; give likelihood='bernoulli'"):
        task_posteriors(tasks, public)
    with pytest.raises(ValueError, match="likelihood: all targets are -1 or 1"):
        mp.release(tasks, epsilon=5.0, rounds=2, respond=posterior_draws(tasks))
    numbers = dataclasses.replace(tasks, y=tasks.y + 1)
    with pytest.raises(ValueError, match="tasks: expected targets -1 and 1 for likelihood='bernoulli', got others"):
        task_posteriors(numbers, public, likelihood="bernoulli")
    with pytest.raises(ValueError, match=r"likelihood: expected one of 'gaussian', .*'poisson', got 'cauchy'"):
        task_posteriors(tasks, public, likelihood="cauchy")
    assert task_posteriors(tasks, public, likelihood="gaussian", draws=5).likelihood.name == "gaussian"


@pytest.mark.evidence
def test_later_rounds_of_binary_tasks_are_posterior_draws(shared):
    """Later rounds of binary tasks are draws of their posteriors."""
    tasks = shared[0]
    answer = posterior_draws(tasks, likelihood="bernoulli")
    release = mp.release(tasks, epsilon=20.0, rounds=2, respond=answer, adjacency="zero_out")
    assert release.rounds == 2
    own = task_posteriors(tasks, shared_covariance(release, **FAST), likelihood="bernoulli", draws=25)
    assert mp.evaluation.auc(own.predict(tasks), tasks) > 0.7
